"""Finds the lines that the hunks of a patch are about, and changes them. Pure.

Lines are compared as they are; where that finds nothing, without the white space at their ends. Nothing else is
guessed.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from toolnexus.sources.builtin import near_miss
from toolnexus.sources.builtin.text_files import line_end_of, split_lines

if TYPE_CHECKING:
    from toolnexus.sources.builtin.patch_format import Hunk

_Line = tuple[str, str]


class HunkRefused(Exception):
    """A hunk cannot be placed: its lines are not in the file, or more than once. The text says where."""


def patched(text: str, hunks: Sequence[Hunk], shown: str) -> str:
    """A text with hunks applied, each after the one before it. Lines that they keep stay as they are in the file.

    Args:
        shown: How to call the file in messages.

    Raises:
        HunkRefused: A hunk cannot be placed.
    """
    lines = list(split_lines(text))
    end = line_end_of(text)
    result: list[_Line] = []
    done = 0
    for hunk in hunks:
        start = _Search(lines, hunk, shown).place(done)
        result += lines[done:start]
        done = start
        for sign, added in hunk.lines:
            if sign == "+":
                result.append((added, end))
            else:
                if sign == " ":
                    result.append(lines[done])
                done += 1
    result += lines[done:]
    return _joined(result, end, ends=not lines or lines[-1][1] != "")


def _joined(lines: Sequence[_Line], end: str, *, ends: bool) -> str:
    """The text of lines, of which the last has an end if that of the file had one."""
    if not lines:
        return ""
    text = io.StringIO()
    for line, own in lines[:-1]:
        text.write(line + (own or end))
    last, own = lines[-1]
    text.write(last + ((own or end) if ends else ""))
    return text.getvalue()


class _Search:
    """Looks for the place of one hunk."""

    def __init__(self, lines: Sequence[_Line], hunk: Hunk, shown: str) -> None:
        self._lines = [line for line, _ in lines]
        self._hunk = hunk
        self._what = f"The hunk at line {hunk.number} of the patch"
        self._shown = shown

    def place(self, after: int) -> int:
        """The index of its first line, which is not before `after`."""
        old = self._hunk.old
        start = self._after_anchors(after)
        if not old:
            return self._for_added_alone(start)
        found = self._found(old, start)
        if self._hunk.at_end:
            found = [index for index in found if index + len(old) == len(self._lines)]
        if not found:
            raise self._missing(old, start)
        if len(found) > 1 and not self._hunk.anchors:
            raise HunkRefused(
                f"{self._what} fits {self._shown} more than once, at {self._numbers(found)}. Take in more of the lines "
                "around it, or put a line from further up after '@@'. Nothing was changed."
            )
        return found[0]

    def _after_anchors(self, after: int) -> int:
        """The index after the lines that come before the hunk. The first of them has to be there only once."""
        for number, anchor in enumerate(self._hunk.anchors):
            found = [index for index in range(after, len(self._lines)) if self._lines[index].strip() == anchor]
            if not found:
                raise HunkRefused(
                    f"{self._what}: the line {anchor!r} after '@@' is not in {self._shown}{self._from(after)}."
                    f"{near_miss.hint([anchor], self._lines)} Nothing was changed."
                )
            if len(found) > 1 and number == 0:
                raise HunkRefused(
                    f"{self._what}: the line {anchor!r} after '@@' is in {self._shown} more than once, at "
                    f"{self._numbers(found)}. Put one before it that is there once. Nothing was changed."
                )
            after = found[0] + 1
        return after

    def _for_added_alone(self, start: int) -> int:
        if self._hunk.at_end or not self._lines:
            return len(self._lines)
        if self._hunk.anchors:
            return start
        raise HunkRefused(
            f"{self._what} only adds lines, so it does not say where. Give a line around them, one after '@@', or "
            "'*** End of File'. Nothing was changed."
        )

    def _found(self, old: Sequence[str], start: int) -> list[int]:
        return self._matches(old, start, _as_it_is) or self._matches(old, start, str.rstrip)

    def _matches(self, old: Sequence[str], start: int, normal: Callable[[str], str]) -> list[int]:
        wanted = [normal(line) for line in old]
        lines = [normal(line) for line in self._lines[start:]]
        last = len(lines) - len(wanted)
        first = wanted[0]
        return [
            start + index
            for index in range(last + 1)
            if lines[index] == first and lines[index : index + len(wanted)] == wanted
        ]

    def _missing(self, old: Sequence[str], start: int) -> HunkRefused:
        if self._hunk.at_end and (found := self._found(old, start)):
            return HunkRefused(
                f"{self._what} is at {self._numbers(found)} of {self._shown}, but not at its end. Nothing was changed."
            )
        if before := self._found(old, 0):
            return HunkRefused(
                f"{self._what} is at {self._numbers(before)} of {self._shown}, before what the patch has already "
                "changed or anchored there. Give the hunks in the order of the file. Nothing was changed."
            )
        return HunkRefused(
            f"{self._what}: its lines are not in {self._shown}{self._from(start)}."
            f"{near_miss.hint(old, self._lines)} Nothing was changed."
        )

    def _from(self, index: int) -> str:
        return f" from line {index + 1} on" if index else ""

    def _numbers(self, found: Sequence[int]) -> str:
        return near_miss.line_list([index + 1 for index in found])


def _as_it_is(line: str) -> str:
    return line
