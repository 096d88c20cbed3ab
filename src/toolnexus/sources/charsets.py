"""What the charset that a server names is to Python. Pure."""

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
_CALLED = {"iso8859-1": "cp1252", "ascii": "cp1252", "gb2312": "gb18030", "gbk": "gb18030", "shift_jis": "cp932"}
_NO_CHARSETS = frozenset(
    {"idna", "punycode", "unicode-escape", "raw-unicode-escape", "utf-7", "undefined", "mbcs", "oem"}
)
"""What Python calls text encodings besides, and no server means."""


def known(charset: str) -> str | None:
    """Python's name for a charset. None: there is no such thing."""
    try:
        name = codecs.lookup(charset).name
        b"a".decode(name, "replace")
    except (LookupError, ValueError):  # or it is no encoding of text, such as `hex`
        return None
    return None if name.replace("_", "-") in _NO_CHARSETS else _CALLED.get(name, name)
