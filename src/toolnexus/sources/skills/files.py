"""Opens and lists the files of a skill, without leaving the root that it was found under."""

from __future__ import annotations

import os
import stat
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

SKIPPED_FOLDERS = frozenset({".git", "node_modules"})
_MAX_LOOKED_AT = 2000
"""Entries of a skill's folder that are looked at to name some of its files."""

# Without waiting, and never through a link: a pipe or a link may have been put in the file's place.
_FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)

Version: TypeAlias = tuple[int, int, int]
"""Tells a changed file from the one that was read: inode, size, and when it was changed in ns."""


class FileRefused(Exception):
    """A file is not read. The text says why."""


@dataclass(frozen=True, slots=True)
class Start:
    """The first bytes of a file.

    Attributes:
        size: Bytes of the whole file.
    """

    data: bytes
    size: int
    version: Version

    @property
    def whole(self) -> bool:
        return len(self.data) >= self.size


def real_path(path: Path) -> Path:
    """Where a path leads when all links are followed."""
    return Path(os.path.realpath(path))  # Path.resolve raises for a link to itself


def resolve(path: Path, root: Path) -> Path | None:
    """Where a path really leads. None: out of `root`, which has to be a real path itself."""
    real = real_path(path)
    return real if real.is_relative_to(root) else None


def read_start(path: Path, limit: int) -> Start:
    """The first `limit` bytes of a regular file that is no link.

    Raises:
        FileRefused: It is something else, or cannot be read.
    """
    try:
        if not stat.S_ISREG(path.lstat().st_mode):  # opening a device may already do something
            raise FileRefused("It is a folder, a device, a pipe or a socket, not a file.")
        opened = os.open(path, _FLAGS)
        try:
            status = os.fstat(opened)
            if not stat.S_ISREG(status.st_mode):
                raise FileRefused("It is not a file any more.")
            return Start(_read(opened, limit), status.st_size, (status.st_ino, status.st_size, status.st_mtime_ns))
        finally:
            os.close(opened)
    except OSError as error:
        raise FileRefused(f"It cannot be read: {error.strerror}.") from error


def _read(opened: int, limit: int) -> bytes:
    pieces: list[bytes] = []
    while limit > 0 and (piece := os.read(opened, limit)):
        pieces.append(piece)
        limit -= len(piece)
    return b"".join(pieces)


def list_files(directory: Path, most: int) -> tuple[list[str], bool]:
    """Files in a skill's folder beside its SKILL.md, those nearest first, and whether there are more.

    Links are not followed, and hidden files are left out.

    Returns:
        Paths from the folder, with `/` between their names.
    """
    found: list[str] = []
    folders = deque([""])
    left = _MAX_LOOKED_AT
    while folders and len(found) <= most and left > 0:
        inside = folders.popleft()
        for entry in _entries(directory / inside, left):
            left -= 1
            if entry.name.startswith(".") or entry.name in SKIPPED_FOLDERS:
                continue
            path = f"{inside}/{entry.name}" if inside else entry.name
            if entry.is_dir(follow_symlinks=False):
                folders.append(path)
            elif entry.is_file(follow_symlinks=False) and path.casefold() != "skill.md":
                found.append(path)
    return found[:most], len(found) > most or (bool(folders) and left <= 0)


def _entries(folder: Path, most: int) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            first = [entry for entry, _ in zip(entries, range(most), strict=False)]
    except OSError:  # one that cannot be listed has no files that can be named
        return []
    return sorted(first, key=lambda entry: entry.name)
