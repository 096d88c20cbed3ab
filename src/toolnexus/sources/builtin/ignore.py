"""What `.gitignore` files, and `.git/info/exclude`, leave out: the rules that hold in one folder."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from toolnexus.errors import MissingExtra
from toolnexus.sources.builtin import linear
from toolnexus.sources.builtin.workspace import FILE_FLAGS, FOLDER_FLAGS

try:
    from pathspec.patterns.gitignore import GitIgnorePatternError
    from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern
except ImportError as exc:
    raise MissingExtra("The built-in tools grep and glob", extra="tools") from exc

if TYPE_CHECKING:
    import re

_FILE = ".gitignore"
_EXCLUDE = (".git", "info", "exclude")
_MAX_BYTES = 256 * 1024
"""Bytes of an ignore file that are read."""
_LONGEST_RULE = 1000
"""Characters of a rule. Longer ones are passed over: no path is like that."""
_TOGETHER = 25
"""Rules that are looked for at once."""


class _Rules:
    """The rules of one file."""

    def __init__(self, lines: Iterable[str]) -> None:
        rules: list[tuple[linear.Pattern, str, bool]] = []
        for line in lines:
            if len(line) > _LONGEST_RULE:
                continue
            try:
                pattern = GitIgnoreSpecPattern(line)
            except GitIgnorePatternError:  # git passes over such lines as well
                continue
            compiled = cast("re.Pattern[str] | None", pattern.regex)
            if pattern.include is None or compiled is None:
                continue
            # Matched by RE2, so that no rule in a strange repository can hold a search up.
            source = compiled.pattern.replace("?P<ps_d>", "?:")
            try:
                rules.append((linear.compile(source), f"(?:{source})", pattern.include))
            except linear.InvalidPattern:
                continue
        rules.reverse()
        self._groups = [_Group(rules[at : at + _TOGETHER]) for at in range(0, len(rules), _TOGETHER)]

    def verdict(self, path: bytes) -> bool | None:
        """Whether `path` is ignored. None: no rule says."""
        verdicts = (group.verdict(path) for group in self._groups)
        return next((verdict for verdict in verdicts if verdict is not None), None)


class _Group:
    """Some rules of a file, the strongest first: each as its pattern, the source of that, and whether it ignores."""

    def __init__(self, rules: Sequence[tuple[linear.Pattern, str, bool]]) -> None:
        self._rules = [(pattern, ignores) for pattern, _, ignores in rules]
        self._any: linear.Pattern | None = None
        with contextlib.suppress(linear.InvalidPattern):  # together they may be too large
            self._any = linear.compile("|".join(source for _, source, _ in rules))

    def verdict(self, path: bytes) -> bool | None:
        if self._any is not None and self._any.search(path) is None:
            return None
        return next((ignores for pattern, ignores in self._rules if pattern.search(path) is not None), None)


@dataclass(frozen=True, slots=True)
class Ignored:
    """The rules that hold in a folder, the weakest first, each with the length of the path above its own."""

    _chain: tuple[tuple[int, _Rules], ...] = ()

    def __bool__(self) -> bool:
        return bool(self._chain)

    def __call__(self, path: str, *, is_folder: bool) -> bool:
        """Whether git ignores what is at `path`, from the workspace's root, in a folder that it does not ignore."""
        for start, rules in reversed(self._chain):
            below = os.fsencode(path[start:] + "/" if is_folder else path[start:])
            if (verdict := rules.verdict(below)) is not None:
                return verdict
        return False

    def within(self, folder: int, path: str, names: Container[str]) -> Ignored:
        """The rules that hold in an opened folder, whose own ones are stronger.

        Args:
            path: The folder from the workspace's root, with a slash at its end; empty for the root.
            names: What the folder holds.
        """
        found: list[tuple[int, _Rules]] = []
        if _EXCLUDE[0] in names and (text := _read(folder, *_EXCLUDE)) is not None:
            found.append((len(path), _Rules(text)))
        if _FILE in names and (text := _read(folder, _FILE)) is not None:
            found.append((len(path), _Rules(text)))
        return Ignored((*self._chain, *found)) if found else self


def _read(folder: int, *names: str) -> list[str] | None:
    """The lines of a regular file. None: there is none that can be read."""
    opened: list[int] = []
    try:
        for name in names[:-1]:
            folder = os.open(name, FOLDER_FLAGS, dir_fd=folder)
            opened.append(folder)
        file = os.open(names[-1], FILE_FLAGS, dir_fd=folder)
        opened.append(file)
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return None
        return os.read(file, _MAX_BYTES).decode("utf-8-sig", "replace").splitlines()
    except OSError:
        return None
    finally:
        for descriptor in opened:
            os.close(descriptor)
