"""Goes through the files below a folder in the order of their names, each folder opened relative to the one before it.

Links are not followed: what they lead to is found where it is, or is outside. What git ignores is left out, `.git` too,
unless a pattern writes the name out.
"""

from __future__ import annotations

import heapq
import os
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import TYPE_CHECKING, NamedTuple

from toolnexus.sources.builtin.atomic import TEMPORARY
from toolnexus.sources.builtin.ignore import Ignored
from toolnexus.sources.builtin.workspace import DEEPEST, FOLDER_FLAGS

if TYPE_CHECKING:
    from toolnexus.sources.builtin.patterns import Glob
    from toolnexus.sources.builtin.workspace import Place

_GIT = ".git"
_STEP = 10_000
"""Names that are sorted at once, which takes some 5 ms."""


class Found(NamedTuple):
    """A file, or whatever else is no folder.

    Attributes:
        folder: The descriptor of its folder, until the next one is asked for.
        path: From the workspace's root.
        is_file: Whether it is a regular file, as its folder says.
    """

    folder: int
    name: str
    path: str
    is_file: bool


@dataclass(slots=True)
class _Level:
    """A folder that is being gone through. `path` ends with a slash, unless it is empty."""

    folder: int
    path: str
    glob: Glob
    ignored: Ignored
    entries: Iterator[os.DirEntry[str]] = field(default_factory=lambda: iter(()))

    def read(self) -> None:
        with os.scandir(self.folder) as entries:
            steps = [sorted(step, key=_name) for step in iter(lambda: list(islice(entries, _STEP)), [])]
        self.entries = heapq.merge(*steps, key=_name) if len(steps) > 1 else chain(*steps)
        self.ignored = self.ignored.within(self.folder, self.path, {entry.name for step in steps for entry in step})


@dataclass(slots=True)
class Walk:
    """One way through the files below `place`, a folder, that match a pattern from there on.

    Attributes:
        deadline: When it ends at the latest, in seconds on `time.monotonic()`.
        late: Whether it did, so that files are missing.
        unread: Folders that could not be gone through: no right to, or too deep.
    """

    place: Place
    glob: Glob
    deadline: float
    unread: int = 0
    late: bool = False

    def files(self) -> Generator[Found]:
        """The files, one after the other. Close it if it is left early.

        Raises:
            FileProblem: The place is no folder.
        """
        path = "" if self.place.path == "." else f"{self.place.path.rstrip('/')}/"
        rules = _rules_above(self.place)
        levels = [_Level(self.place.open_folder(), path, self.glob, rules)]
        try:
            levels[0].read()
            while levels and not self.late:
                level = levels[-1]
                entry = next(level.entries, None)
                if entry is None:
                    os.close(levels.pop().folder)
                elif entry.is_dir(follow_symlinks=False):
                    below = self._below(level, entry.name)
                    if below is not None:
                        self.late = time.monotonic() > self.deadline
                        if len(levels) < DEEPEST and self._enter(below, entry.name, level.folder):
                            levels.append(below)
                        else:
                            self.unread += 1
                elif self._takes(level, entry.name):
                    is_file = entry.is_file(follow_symlinks=False)
                    yield Found(level.folder, entry.name, level.path + entry.name, is_file)
        finally:
            for level in levels:
                os.close(level.folder)

    def _takes(self, level: _Level, name: str) -> bool:
        if not level.glob.takes(name) or name.startswith(TEMPORARY):
            return False
        return not level.ignored or not level.ignored(level.path + name, is_folder=False) or level.glob.spells(name)

    def _below(self, level: _Level, name: str) -> _Level | None:
        """The folder of this name, not opened yet. None: nothing in it is of interest."""
        glob = level.glob.below(name)
        if glob is None:
            return None
        path = level.path + name
        ignored = level.ignored
        if name == _GIT or ignored(path, is_folder=True):
            if not level.glob.spells(name):
                return None
            ignored = Ignored()  # whoever names an ignored folder means what is in it
        return _Level(-1, f"{path}/", glob, ignored)

    def _enter(self, level: _Level, name: str, above: int) -> bool:
        try:
            level.folder = os.open(name, FOLDER_FLAGS, dir_fd=above)
        except OSError:
            return False
        try:
            level.read()
        except OSError:
            os.close(level.folder)
            return False
        return True


def _name(entry: os.DirEntry[str]) -> str:
    return entry.name


def _rules_above(place: Place) -> Ignored:
    """The rules of the folders from the workspace's root down to a folder; none if they ignore the folder itself."""
    workspace = place.workspace
    names = [] if place.path == "." or place.path.startswith("/") else place.path.split("/")
    rules = Ignored()
    path = ""
    folder = os.open(workspace.root, FOLDER_FLAGS)
    try:
        for name in names:
            with os.scandir(folder) as entries:
                rules = rules.within(folder, path, {entry.name for entry in entries})
            path += name
            if name == _GIT or rules(path, is_folder=True):
                return Ignored()
            path += "/"
            below = os.open(name, FOLDER_FLAGS, dir_fd=folder)
            os.close(folder)
            folder = below
    except OSError:  # it changes at this moment; what is opened then says so
        return Ignored()
    else:
        return rules
    finally:
        os.close(folder)
