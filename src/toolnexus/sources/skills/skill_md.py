"""The two parts of a SKILL.md: front matter and body."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass

HEAD = 64 * 1024
"""Bytes in which the front matter has to end."""

_OPENING = re.compile(r"(?:[ \t]*\n)*---[ \t]*\n")
_CLOSING = re.compile(r"^---[ \t]*$", re.MULTILINE)


class Unreadable(Exception):
    """There is no skill in this file. The text says why."""


@dataclass(frozen=True, slots=True)
class Split:
    """A SKILL.md in its two parts.

    Attributes:
        front: What stands between the two `---`.
        front_line: The number of its first line, from 1.
        body: What follows.
        body_line: The number of its first line.
    """

    front: str
    front_line: int
    body: str
    body_line: int


def decode(data: bytes, *, whole: bool) -> str:
    """The text of a SKILL.md, with `\\n` at the end of its lines and without a byte order mark.

    Args:
        whole: False: these are only its first bytes, and the last character may be cut.

    Raises:
        Unreadable: It is not UTF-8.
    """
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise Unreadable("The file is UTF-16. Save it as UTF-8.")
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(data.removeprefix(codecs.BOM_UTF8), final=whole)
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise Unreadable(
            f"The file is not UTF-8: there is a byte 0x{byte:02X} at {error.start}, as in Latin-1. Save it as UTF-8."
        ) from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def split(text: str) -> Split:
    """Front matter and body. Only a whole line of `---` ends the front matter.

    Raises:
        Unreadable: There is no front matter.
    """
    opening = _OPENING.match(text)
    if opening is None:
        raise Unreadable("There is no front matter: the first line has to be `---`, then `name: ` and `description: `.")
    closing = _CLOSING.search(text, opening.end())
    if closing is None:
        raise Unreadable(f"The front matter has no end: a line that is only `---`, in the first {HEAD // 1024} KiB.")
    body = text[closing.end() :].lstrip("\n")
    return Split(
        front=text[opening.end() : closing.start()],
        front_line=text.count("\n", 0, opening.end()) + 1,
        body=body,
        body_line=text.count("\n", 0, len(text) - len(body)) + 1,
    )
