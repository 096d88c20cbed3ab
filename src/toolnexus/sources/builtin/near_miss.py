"""What a text that was not found is probably meant to be: hints for a model that remembers it wrongly. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import islice

_NUMBERED = re.compile(r"\s*\d+\t")
_MOST_LINES = 50_000
"""Lines of a file that are looked at."""
_LONGEST_LINE = 10_000
"""Characters of a line that is looked at."""
_TOLD = 3
NUMBERS = 10
"""Lines whose numbers are told."""


def hint(wanted: Sequence[str], lines: Iterable[str]) -> str:
    """Where lines are that differ from those wanted only in white space or case, else where the most telling one is.

    Args:
        wanted: The lines that were not found, without line ends.
        lines: All lines of the file.

    Returns:
        A sentence that begins with a space, or nothing.
    """
    wanted = _without_blank_ends(wanted)
    lines = ["" if len(line) > _LONGEST_LINE else line for line in islice(lines, _MOST_LINES)]
    if not wanted or any(len(line) > _LONGEST_LINE for line in wanted):
        return ""
    if all(_NUMBERED.match(line) for line in wanted if line.strip()):
        return " It has line numbers in it, which are not part of the file: leave out the number and the tab."
    for normal, difference in (
        (_indented, "at line ends"),
        (_spaced, "in white space"),
        (_folded, "in case and white space"),
    ):
        if found := _found([normal(line) for line in wanted], [normal(line) for line in lines]):
            return f" It differs only {difference} from {_told(found, len(wanted))}. Copy the text exactly."
    telling = max(wanted, key=lambda line: len(line.strip()))
    found = _found([_spaced(telling)], [_spaced(line) for line in lines])
    if not found or not telling.strip():
        return " Nothing in the file is like it. Read the file again."
    return f" But {telling.strip()[:80]!r} is in {_told(found, 1)}, with other lines around it. Read them again."


def _without_blank_ends(lines: Sequence[str]) -> Sequence[str]:
    filled = [number for number, line in enumerate(lines) if line.strip()]
    return lines[filled[0] : filled[-1] + 1] if filled else []


def _indented(line: str) -> str:
    return line.rstrip()


def _spaced(line: str) -> str:
    return "".join(line.split())


def _folded(line: str) -> str:
    return _spaced(line).casefold()


def _found(wanted: Sequence[str], lines: Sequence[str]) -> list[int]:
    """The numbers of the lines, from 1, at which the wanted ones stand; one more than are told. Ends may be parts."""
    found: list[int] = []
    for start in range(len(lines) - len(wanted) + 1):
        if _fits(wanted, lines, start):
            found.append(start + 1)
            if len(found) > _TOLD:
                break
    return found


def _fits(wanted: Sequence[str], lines: Sequence[str], start: int) -> bool:
    if len(wanted) == 1:
        return wanted[0] in lines[start]
    last = start + len(wanted) - 1
    return (
        lines[start].endswith(wanted[0])
        and lines[last].startswith(wanted[-1])
        and all(lines[start + offset] == wanted[offset] for offset in range(1, len(wanted) - 1))
    )


def _told(found: Sequence[int], length: int) -> str:
    places = [f"{line}" if length == 1 else f"{line}-{line + length - 1}" for line in found[:_TOLD]]
    more = " and others" if len(found) > _TOLD else ""
    return f"line{'s' if len(places) > 1 or length > 1 else ''} {', '.join(places)}{more}"


def line_list(numbers: Sequence[int], total: int | None = None) -> str:
    """`line 3`, or `lines 3, 9 and 12`; the first few.

    Args:
        total: How many there are if `numbers` are only the first. None: these are all.
    """
    first = [str(number) for number in numbers[:NUMBERS]]
    more = (len(numbers) if total is None else total) - len(first)
    if more:
        return f"lines {', '.join(first)} and {more} more"
    return f"line {first[0]}" if len(first) == 1 else f"lines {', '.join(first[:-1])} and {first[-1]}"
