"""Reads the text of a patch into what it wants done to which file. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

_BEGIN, _END = "*** Begin Patch", "*** End Patch"
_ADD, _UPDATE, _DELETE, _MOVE = "*** Add File: ", "*** Update File: ", "*** Delete File: ", "*** Move to: "
_END_OF_FILE = "*** End of File"
_SECTIONS = (_ADD, _UPDATE, _DELETE)
# What `diff -u` writes. Its numbers are not trusted: the lines say where the hunk belongs.
_NUMBERS = re.compile(r"-\d+(,\d+)? \+\d+(,\d+)? @@")


class InvalidPatch(Exception):
    """The text is no patch. The message says in which of its lines."""


@dataclass(frozen=True, slots=True)
class Hunk:
    """Lines that stand together, and what becomes of them.

    Attributes:
        number: The hunk's first line in the patch, from 1, for messages.
        anchors: Lines that come before it in the file, each after the one before.
        lines: The sign (blank to keep, `-` to remove, `+` to add) and the text of each.
        at_end: Whether it stands at the end of the file.
    """

    number: int
    anchors: tuple[str, ...]
    lines: tuple[tuple[str, str], ...]
    at_end: bool = False

    @property
    def old(self) -> list[str]:
        """The lines that have to be in the file."""
        return [text for sign, text in self.lines if sign != "+"]


@dataclass(frozen=True, slots=True)
class Add:
    path: str
    content: str


@dataclass(frozen=True, slots=True)
class Delete:
    path: str


@dataclass(frozen=True, slots=True)
class Update:
    """Hunks in the order of the file. `move_to`: where it is afterwards; None: where it was."""

    path: str
    hunks: tuple[Hunk, ...]
    move_to: str | None = None


Section: TypeAlias = Add | Delete | Update


def parse(text: str) -> list[Section]:
    """The sections of a patch.

    Raises:
        InvalidPatch: It is none.
    """
    sections = list(_Parser(text).sections())
    if not sections:
        raise InvalidPatch("The patch is empty.")
    return sections


@dataclass(slots=True)
class _Parser:
    text: str
    _lines: list[str] = field(init=False)
    _at: int = field(init=False, default=0)
    _between: set[int] = field(init=False, default_factory=set[int])

    def __post_init__(self) -> None:
        self._lines = self.text.replace("\r\n", "\n").split("\n")
        while self._lines and not self._lines[-1].strip():
            self._lines.pop()

    def sections(self) -> Iterator[Section]:
        while self._more and not self._line.strip():
            self._at += 1
        if not self._more or self._line.strip() != _BEGIN:
            raise self._wrong(f"a patch begins with {_BEGIN!r}")
        self._at += 1
        if not self._lines[-1].strip() == _END or self._at == len(self._lines):
            raise InvalidPatch(f"The patch does not end with {_END!r}; it may be cut. Send all of it.")
        self._lines.pop()
        for at in reversed(range(self._at, len(self._lines))):
            following = (
                at + 1 == len(self._lines) or self._lines[at + 1].startswith(_SECTIONS) or at + 1 in self._between
            )
            if not self._lines[at] and following:
                self._between.add(at)
        while self._more:
            if self._at in self._between:
                self._at += 1
            else:
                yield self._section()

    @property
    def _more(self) -> bool:
        return self._at < len(self._lines)

    @property
    def _line(self) -> str:
        return self._lines[self._at]

    def _wrong(self, what: str) -> InvalidPatch:
        shown = f": {self._line[:100]!r}" if self._more else ""
        return InvalidPatch(f"Line {self._at + 1} of the patch is wrong, {what}{shown}. Nothing was changed.")

    def _take(self, beginning: str) -> str | None:
        """The rest of the line if it begins so; the line is then done."""
        if not self._more or not self._line.startswith(beginning):
            return None
        rest = self._line[len(beginning) :].strip()
        if not rest:
            raise self._wrong("the path is missing")
        self._at += 1
        return rest

    def _section(self) -> Section:
        if (path := self._take(_ADD)) is not None:
            return Add(path, self._added())
        if (path := self._take(_DELETE)) is not None:
            return Delete(path)
        if (path := self._take(_UPDATE)) is not None:
            move_to = self._take(_MOVE)
            hunks = tuple(self._hunks())
            if not hunks and move_to is None:
                raise self._wrong(f"{path!r} is to be updated, but there are no changed lines")
            return Update(path, hunks, move_to)
        raise self._wrong(f"expected one of {', '.join(map(repr, _SECTIONS))}")

    def _in_section(self) -> bool:
        """Whether the section goes on. Empty lines between it and the next belong to neither."""
        return self._more and not self._line.startswith(_SECTIONS) and self._at not in self._between

    def _added(self) -> str:
        lines: list[str] = []
        while self._in_section():
            if not self._line.startswith("+"):
                raise self._wrong("each line of a new file begins with '+'")
            lines.append(self._line[1:])
            self._at += 1
        return "".join(f"{line}\n" for line in lines)

    def _hunks(self) -> Iterator[Hunk]:
        while self._in_section():
            number = self._at + 1
            anchors = tuple(self._anchors())
            lines = tuple(self._changes())
            at_end = self._in_section() and self._line.strip() == _END_OF_FILE
            if at_end:
                self._at += 1
            if not any(sign != " " for sign, _ in lines):
                self._at = min(self._at, len(self._lines) - 1)
                raise self._wrong("a hunk without lines that begin with '+' or '-' ends here")
            yield Hunk(number, anchors, lines, at_end)

    def _anchors(self) -> Iterator[str]:
        while self._in_section() and self._line.startswith("@@"):
            anchor = self._line[2:].strip()
            if (numbers := _NUMBERS.match(anchor)) is not None:
                anchor = anchor[numbers.end() :].strip()
            self._at += 1
            if anchor:
                yield anchor

    def _changes(self) -> Iterator[tuple[str, str]]:
        while self._in_section() and not self._line.startswith("@@") and self._line.strip() != _END_OF_FILE:
            line = self._line
            if line and line[0] not in " +-":
                raise self._wrong("a line of a hunk begins with a blank, '+' or '-'")
            yield (line[0], line[1:]) if line else (" ", "")
            self._at += 1
