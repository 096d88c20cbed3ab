"""Finds the SKILL.md files under some folders.

A folder with a SKILL.md is a skill, and is not looked into any further. Links are followed inside the root only, and
each folder is looked into once, so that links in a circle end.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from toolnexus._unicode import clean_text
from toolnexus.sources.skills import SkillInfo
from toolnexus.sources.skills.files import SKIPPED_FOLDERS, FileRefused, read_start, real_path, resolve
from toolnexus.sources.skills.reading import describe
from toolnexus.sources.skills.skill_md import HEAD, Unreadable, decode
from toolnexus.sources.skills.usable import Skill, SkillFile

FILE_NAME = "SKILL.md"
MAX_DEPTH = 10
"""Folders below a root that are looked into."""
MAX_SKILLS = 1000
MAX_FOLDERS = 20_000


@dataclass(frozen=True, slots=True)
class _Folder:
    """A folder to look into, `path` as one would call it, and where that really is."""

    path: Path
    real: Path
    depth: int


def find_skills(roots: Iterable[str | os.PathLike[str]]) -> list[Skill | SkillInfo]:
    """The skills under some roots, in their order, and what was skipped. Nearer ones come first, then by name.

    A root may be the folder of a skill, or its SKILL.md.

    Raises:
        MissingExtra: PyYAML is not installed.
    """
    search = _Search()
    for root in roots:
        search.root(Path(root).absolute())
    return search.found


class _Search:
    def __init__(self) -> None:
        self.found: list[Skill | SkillInfo] = []
        self._root = Path()
        self._folders: deque[_Folder] = deque()
        self._links: deque[_Folder] = deque()
        self._seen: set[Path] = set()
        self._skills = 0
        self._looked_into = 0
        self._too_deep: list[Path] = []

    def root(self, given: Path) -> None:
        if _is_skill(given.name) and not given.is_dir():
            given = given.parent
        if not given.is_dir():
            self._skip(given, "There is no such folder.")
            return
        self._root = real_path(given)
        self._too_deep.clear()
        self._folders.append(_Folder(given, self._root, 0))
        # What links lead to comes last, so that a skill is known by where it is.
        while folder := self._next():
            if self._skills >= MAX_SKILLS or self._looked_into >= MAX_FOLDERS:
                self._skip(given, f"The search ended after {MAX_SKILLS} skills or {MAX_FOLDERS} folders.")
                self._folders.clear()
                self._links.clear()
            elif folder.real not in self._seen:
                self._seen.add(folder.real)
                self._look_into(folder)
        if self._too_deep:
            others = f", nor were {len(self._too_deep) - 1} like it" if len(self._too_deep) > 1 else ""
            reason = f"It is more than {MAX_DEPTH} folders deep, so it was not looked into{others}."
            self._skip(self._too_deep[0], reason)

    def _next(self) -> _Folder | None:
        waiting = self._folders or self._links
        return waiting.popleft() if waiting else None

    def _skip(self, path: Path, reason: str) -> None:
        name = path.parent.name if _is_skill(path.name) else path.name
        self.found.append(SkillInfo(name=clean_text(name), path=path, state="skipped", reason=reason))

    def _look_into(self, folder: _Folder) -> None:
        self._looked_into += 1
        try:
            with os.scandir(folder.path) as listing:
                entries = {entry.name: entry for entry in listing}
        except OSError as error:
            self._skip(folder.path, f"The folder cannot be read: {error.strerror}.")
            return
        if file := entries.get(FILE_NAME) or next((e for name, e in entries.items() if _is_skill(name)), None):
            self._take(folder, file)
            return
        for _, entry in sorted(entries.items()):
            if entry.name not in SKIPPED_FOLDERS and _is_folder(entry):
                self._add(folder, entry)

    def _add(self, folder: _Folder, entry: os.DirEntry[str]) -> None:
        path, depth = folder.path / entry.name, folder.depth + 1
        if depth > MAX_DEPTH:
            self._too_deep.append(path)
        elif not entry.is_symlink():
            self._folders.append(_Folder(path, folder.real / entry.name, depth))
        elif real := resolve(path, self._root):
            self._links.append(_Folder(path, real, depth))
        else:
            self._skip(path, "It is a link that leads out of the root.")

    def _take(self, folder: _Folder, entry: os.DirEntry[str]) -> None:
        path = folder.path / entry.name
        real = resolve(path, self._root) if entry.is_symlink() else folder.real / entry.name
        if real is None:
            self._skip(path, "It is a link that leads out of the root.")
            return
        name = clean_text(folder.path.name)
        try:
            start = read_start(real, HEAD)
            definition, warnings = describe(decode(start.data, whole=start.whole), name)
        except (FileRefused, Unreadable) as error:
            self._skip(path, str(error))
            return
        if entry.name != FILE_NAME:
            warnings.append(f"The file should be called {FILE_NAME}, not {entry.name}.")
        definition = replace(definition, directory=folder.path)
        self._skills += 1
        self.found.append(
            Skill(
                definition,
                SkillInfo(
                    name=definition.name,
                    description=definition.description,
                    path=path,
                    warnings=tuple(warnings),
                    metadata=definition.metadata,
                ),
                SkillFile(path, self._root),
            )
        )


def _is_skill(name: str) -> bool:
    return name.casefold() == FILE_NAME.casefold()


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself, for one
        return False
