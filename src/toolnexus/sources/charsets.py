"""What the charset that a server names is to Python, and text read by it. Pure."""

from __future__ import annotations

import codecs

MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
"""How a text begins that says itself what it is, which counts more than what is said of it; in this order."""

# WHATWG Encoding: what servers call by the left name is in truth the right one.
_CALLED = {
    "iso8859-1": "cp1252",
    "ascii": "cp1252",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "shift_jis": "cp932",
    # Python looks for a mark in these, and raises if there is none; but that is looked for before, see `MARKS`.
    "utf-16": "utf-16-le",
    "utf-32": "utf-32-le",
}
_NO_CHARSETS = frozenset(
    {"idna", "punycode", "unicode-escape", "raw-unicode-escape", "utf-7", "undefined", "mbcs", "oem"}
)
"""What Python calls text encodings besides, and no server means."""
_STEP = 32 * 1024
"""Bytes that are decoded at once. Of damaged ones that takes some 15 ms, in which no other thread runs."""


def known(charset: str) -> str | None:
    """Python's name for a charset. None: there is no such thing."""
    try:
        name = codecs.lookup(charset).name
        b"a".decode(name, "replace")
    except (LookupError, ValueError):  # or it is no encoding of text, such as `hex`
        return None
    return None if name.replace("_", "-") in _NO_CHARSETS else _CALLED.get(name, name)


def decode(data: bytes, encoding: str, errors: str = "replace", *, final: bool = True) -> str:
    """Bytes as text, step by step, so that other threads run in between.

    Args:
        errors: As for `bytes.decode`.
        final: Whether that is all. Else the end may be half a character, which is left out.

    Raises:
        UnicodeDecodeError: They are damaged, and `errors` says `strict`.
    """
    decoder = codecs.getincrementaldecoder(encoding)(errors)
    pieces = [decoder.decode(data[at : at + _STEP]) for at in range(0, len(data), _STEP)]
    return "".join([*pieces, decoder.decode(b"", final)])
