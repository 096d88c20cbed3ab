"""Text as it stands in files: its encoding, its byte order mark and its line ends, so that all of it can be kept. Pure.

Only what can be known is decoded: UTF-8, and what a byte order mark names. Of other bytes each is taken for its Latin-1
character, which loses nothing when they are written back; what they really are is not guessed.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
LATIN_1 = "latin-1"
SAMPLE = 64 * 1024
"""Bytes at the beginning of a file that say what it is."""
_CONTROLS = bytes(set(range(32)) - set(b"\t\n\v\f\r\b\x1b"))
_MANY = 0.1
"""The share of control characters above which bytes without an encoding are no text."""


@dataclass(frozen=True, slots=True)
class Encoding:
    """How a file says its text.

    Attributes:
        name: As Python calls it; `latin-1` also stands for bytes that are no UTF-8.
        mark: The byte order mark that the file begins with. Empty: none.
    """

    name: str = "utf-8"
    mark: bytes = b""

    def described(self) -> str:
        """For the model, as far as it is not what everybody expects. Empty: UTF-8."""
        if self.name == LATIN_1:
            return "not UTF-8; each byte is taken for its Latin-1 character"
        if self.mark:
            return f"{self.name.upper()} with a byte order mark"
        return ""


@dataclass(frozen=True, slots=True)
class TextFile:
    """The text of a file, line ends as they are there, and how it is encoded."""

    text: str
    encoding: Encoding = Encoding()

    def with_text(self, text: str) -> TextFile:
        return replace(self, text=text)

    def to_bytes(self) -> bytes:
        """The file's bytes.

        Raises:
            UnicodeEncodeError: A character is not in its encoding.
        """
        return self.encoding.mark + self.text.encode(self.encoding.name)


def encoding_of(head: bytes, *, whole: bool) -> Encoding | None:
    """The encoding of a file that begins with `head`. None: it is no text.

    Args:
        whole: Whether that is all of the file; else its last character may be cut.
    """
    for mark, name in _MARKS:
        if head.startswith(mark):
            return Encoding(name, mark)
    if b"\0" in head:
        return None
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head, whole)
    except UnicodeDecodeError:
        controls = len(head) - len(head.translate(None, _CONTROLS))
        return None if controls > _MANY * len(head) else Encoding(LATIN_1)
    return Encoding()


def read_text(data: bytes) -> TextFile | None:
    """The text of a whole file. None: it is none."""
    encoding = encoding_of(data, whole=True)
    if encoding is None:
        return None
    try:
        return TextFile(data[len(encoding.mark) :].decode(encoding.name), encoding)
    except UnicodeDecodeError:  # a byte order mark that the rest does not keep to
        return None


_LINE_END = re.compile(r"\r?\n")
_STEP = 64 * 1024
"""Characters that are split into lines at once."""


def line_end_of(text: str) -> str:
    """The line end that most lines of a text have; `\\n` where there is none."""
    windows = text.count("\r\n")
    return "\r\n" if windows * 2 > text.count("\n") else "\n"


def with_line_ends(text: str, end: str) -> str:
    """A text with all its line ends made `end`."""
    return _LINE_END.sub(end, text)


def split_lines(text: str) -> Iterator[tuple[str, str]]:
    """A text as its lines, each with its end: `\\n`, `\\r\\n`, or empty for a last line that has none."""
    at = 0
    while at < len(text):  # not all at once, which may stop the event loop
        end = text.find("\n", at + _STEP) + 1 or len(text)
        lines = text[at:end].split("\n")
        last = lines.pop()
        yield from ((line[:-1], "\r\n") if line.endswith("\r") else (line, "\n") for line in lines)
        if last:
            yield last, ""
        at = end
