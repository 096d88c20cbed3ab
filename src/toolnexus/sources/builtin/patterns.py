"""The language of glob patterns: `*`, `?`, `[ab]`, `[!ab]`, `{a,b}`, and `**` for any folders. Pure.

A pattern is walked along with the folders, name by name, so that what cannot hold a match is never opened.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable
from functools import cached_property, lru_cache
from typing import TypeAlias

_Names: TypeAlias = tuple[str, ...]

_NOTHING = r"(?!)"
_MOST = 500
"""Patterns that braces may stand for."""
_LONGEST = 2000


class InvalidGlob(Exception):
    """A glob pattern that cannot be meant. The text says why."""


class Glob:
    """What is left of a pattern in one folder. Names that begin with a dot match like all others."""

    def __init__(self, rests: Iterable[_Names]) -> None:
        # `**` also stands for no folder at all, so what comes after it may begin here as well.
        self._rests = frozenset(
            rest[skipped:] for rest in rests for skipped in range(_leading(rest) + 1) if rest[skipped:]
        )

    @classmethod
    def parse(cls, pattern: str) -> Glob:
        """Read a pattern.

        Raises:
            InvalidGlob: It is empty, stands for too many others, or leads upwards.
        """
        if len(pattern) > _LONGEST:
            raise InvalidGlob(f"The pattern is longer than {_LONGEST} characters.")
        rests: list[_Names] = []
        for plain in _expanded(pattern):
            names = tuple(name for name in plain.split("/") if name not in ("", "."))
            if ".." in names:
                raise InvalidGlob(f"The pattern {pattern!r} has '..' in it. Give the folder as path.")
            if names:
                rests.append(names)
        if not rests:
            raise InvalidGlob("The pattern is empty. '**/*' finds all files.")
        return cls(rests)

    def takes(self, name: str) -> bool:
        """Whether a file of this name matches here."""
        return self._takes_all or self._last(name) is not None

    def below(self, name: str) -> Glob | None:
        """What is left of the pattern in a folder of this name. None: nothing there can match."""
        left = [rest if rest[0] == "**" else rest[1:] for rest in self._rests if _leads_into(rest, name)]
        if not left:
            return None
        below = Glob(left)
        return self if below._rests == self._rests else below

    def spells(self, name: str) -> bool:
        """Whether this name is written out in the pattern here, so that it is surely meant."""
        return name in self._spelled

    @cached_property
    def _spelled(self) -> frozenset[str]:
        return frozenset(rest[0] for rest in self._rests if not any(sign in rest[0] for sign in "*?["))

    @cached_property
    def _takes_all(self) -> bool:
        return ("**",) in self._rests or ("*",) in self._rests

    @cached_property
    def _last(self) -> Callable[[str], re.Match[str] | None]:
        """Matches the names that end a match here."""
        ends = {rest[0] for rest in self._rests if len(rest) == 1}
        return re.compile("|".join(_translated(end) for end in ends) or _NOTHING, re.DOTALL).fullmatch


def _leading(rest: _Names) -> int:
    count = 0
    while count < len(rest) and rest[count] == "**":
        count += 1
    return count


def _leads_into(rest: _Names, name: str) -> bool:
    return rest[0] == "**" or (len(rest) > 1 and _matcher(rest[0])(name) is not None)


def _translated(pattern: str) -> str:
    """A pattern for one name as a regular expression. Python writes one that never goes back over what `*` took."""
    return fnmatch.translate(pattern)


@lru_cache(256)
def _matcher(pattern: str) -> Callable[[str], re.Match[str] | None]:
    return re.compile(_translated(pattern)).match


def _expanded(pattern: str) -> list[str]:
    """A pattern without braces for each choice in its braces."""
    done: list[str] = []
    waiting = [pattern]
    while waiting:
        plain = waiting.pop()
        choice = _first_choice(plain)
        if choice is None:
            done.append(plain)
        else:
            start, end, options = choice
            waiting += [plain[:start] + option + plain[end:] for option in reversed(options)]
        if len(waiting) + len(done) > _MOST:
            raise InvalidGlob(
                f"The pattern {pattern[:100]!r} stands for more than {_MOST} others. Ask for less at once."
            )
    return done


def _first_choice(pattern: str) -> tuple[int, int, list[str]] | None:
    """Where the first braces with a comma in them begin and end, and what is between their commas. None: nowhere."""
    found: list[list[int]] = []
    opened: list[list[int]] = []  # of each brace that is not closed yet, where it is and its commas are
    for at, sign in enumerate(pattern):
        if sign == "{":
            opened.append([at])
        elif sign == "," and opened:
            opened[-1].append(at)
        elif sign == "}" and opened and len(cuts := opened.pop()) > 1:
            found.append([*cuts, at])
    if not found:
        return None
    start, *ends = min(found)
    cuts = [start, *ends[:-1]]
    return start, ends[-1] + 1, [pattern[cut + 1 : end] for cut, end in zip(cuts, ends, strict=True)]
