"""Where file tools may work: from what a model calls a file to an opened one, without leaving the workspace.

A path is gone through name by name, each opened relative to the descriptor of the folder before it and never through a
link. Links are read and their targets gone through in the same way, so what is checked is what is used: nobody can
swap a folder for a link in between.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import heapq
import os
import stat
import threading
import time
from collections.abc import Generator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias
from weakref import WeakValueDictionary

from toolnexus._unicode import clean_text
from toolnexus.errors import ConfigurationError

if TYPE_CHECKING:
    from toolnexus.tools import ToolContext

FOLDER_FLAGS = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
"""How a folder is opened: not through a link."""
FILE_FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOCTTY", 0)
)
"""How a file is opened: not through a link, and without waiting, should a pipe have been put in its place."""
_MAX_LINKS = 40
"""Links on the way to one file, as in Linux."""
_MAX_LISTED = 50
_MAX_COMPARED = 5_000
"""Names of a folder among which one is looked for that may have been meant."""
DEEPEST = 200
"""Folders in each other; each holds a descriptor while it is gone through, and a process has some thousand."""
SECONDS = 30.0
"""How long a search, or the way to a line, may take. What was found until then is given."""
MOST_SHOWN = 48 * 1024
"""Bytes of one answer: less than what a run cuts, so that the way to go on is said."""
_LONGEST_SHOWN = 1000

Version: TypeAlias = tuple[int, int, int, int]
"""Which file, and in which state: device, inode, size, and when it was changed in ns."""


class PathRefused(Exception):
    """A path leads out of the workspace, or to what is no regular file. The text says what to do instead."""


class FileProblem(Exception):
    """A file cannot be used as asked. The text says why."""


def deadline(ctx: ToolContext) -> float:
    """When a search ends at the latest, in seconds on `time.monotonic()`: with its call, if that is sooner."""
    ends = time.monotonic() + SECONDS
    return ends if ctx.deadline is None else min(ends, ctx.deadline)


def version(status: os.stat_result) -> Version:
    """What tells a changed file from the one that was looked at."""
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def is_only_name(folder: int, name: str, opened: os.stat_result) -> bool:
    """Whether an opened file has this name, and no other.

    That it has one name is not enough: that may be outside, and this one have been there for a moment only.
    """
    try:
        there = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return there.st_nlink == 1 and there.st_ino == opened.st_ino and there.st_dev == opened.st_dev


class _Lock:
    """One for each root, so that workspaces on the same folder take turns."""

    def __init__(self) -> None:
        self.held = threading.RLock()


_locks: WeakValueDictionary[str, _Lock] = WeakValueDictionary()
_locks_guard = threading.Lock()


@dataclass(frozen=True, slots=True)
class Place:
    """A name in an opened folder. What it stands for is known to be inside the workspace, and to be no link.

    Attributes:
        folder: The descriptor of the folder.
        name: The name there; `.` for the folder itself.
        path: How to call it: from the root, or absolute if it is outside.
    """

    workspace: Workspace = field(repr=False)
    folder: int
    name: str
    path: str

    @property
    def shown(self) -> str:
        """The path for a text."""
        return repr(clean_text(self.path))

    def status(self) -> os.stat_result | None:
        """What stands there now. None: nothing."""
        try:
            return os.stat(self.name, dir_fd=self.folder, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def open_file(self) -> int:
        """Open the regular file that stands there for reading.

        Raises:
            FileProblem: There is none, or it must not be read.
            PathRefused: It is not a regular file, or may be one from outside.
        """
        status = self.status()
        if status is None:
            raise FileProblem(f"There is no file {self.shown}.{self._similar()}")
        self._check_regular(status)
        opened = self._open(FILE_FLAGS)
        try:
            self._check_regular(os.fstat(opened))
            self.check_links(opened)
        except BaseException:
            os.close(opened)
            raise
        return opened

    def open_folder(self) -> int:
        """Open the folder that stands there.

        Raises:
            FileProblem: There is none.
        """
        return self._open(FOLDER_FLAGS)

    def _open(self, flags: int) -> int:
        try:
            return os.open(self.name, flags, dir_fd=self.folder)
        except OSError as error:
            if error.errno == errno.ENOTDIR:
                raise FileProblem(f"{self.shown} is not a folder.") from error
            raise problem(self.shown, error) from error

    def _check_regular(self, status: os.stat_result) -> None:
        mode = status.st_mode
        if stat.S_ISDIR(mode):
            raise FileProblem(f"{self.shown} is a folder, not a file.{self._listed()}")
        if not stat.S_ISREG(mode):
            kind = "a link" if stat.S_ISLNK(mode) else "a device, a pipe or a socket"
            raise PathRefused(f"{self.shown} is {kind}. Only regular files can be used.")

    def check_links(self, opened: int) -> None:
        """Refuse an opened file that may have a name outside the workspace as well.

        Raises:
            PathRefused: It has several names, and the workspace guards against that.
        """
        if not self.workspace.guards_hard_links or self._is_only_name(opened):
            return
        with self.workspace.changing():  # one of our own changes may have given it a second name for a moment
            if self._is_only_name(opened):
                return
            names = os.fstat(opened).st_nlink
        if names > 1:
            raise PathRefused(
                f"{self.shown} has {names} names (hard links), so it may be a file from outside the workspace."
            )
        raise PathRefused(f"{self.shown} was changed while it was opened. Try again.")

    def _is_only_name(self, opened: int) -> bool:
        """Whether an opened file has no other name than this. One without any was replaced just now."""
        there = os.fstat(opened)
        return there.st_nlink == 0 or is_only_name(self.folder, self.name, there)

    def _similar(self) -> str:
        try:
            with os.scandir(self.folder) as entries:
                names = [entry.name for entry in islice(entries, _MAX_COMPARED)]
        except OSError:
            return ""
        close = difflib.get_close_matches(self.name, names, n=3, cutoff=0.6)
        around = self.path[: len(self.path) - len(self.name)]
        return f" Did you mean {' or '.join(repr(clean_text(around + name)) for name in close)}?" if close else ""

    def _listed(self) -> str:
        """What a folder holds, which is what whoever reads one wants to know."""
        with contextlib.suppress(OSError):
            folder = os.open(self.name, FOLDER_FLAGS, dir_fd=self.folder)
            try:
                with os.scandir(folder) as entries:
                    names = [
                        f"{entry.name}/" if entry.is_dir(follow_symlinks=False) else entry.name for entry in entries
                    ]
            finally:
                os.close(folder)
            first = heapq.nsmallest(_MAX_LISTED, names)  # there may be so many that sorting would stop the event loop
            more = f" and {len(names) - len(first)} more" if len(names) > len(first) else ""
            return f" It holds: {clean_text(', '.join(first)) or 'nothing'}{more}."
        return ""


class Workspace:
    """A folder that file tools work in.

    Args:
        root: The folder. Relative paths of a model begin here.
        confine: Whether nothing outside it can be read or written. False is a choice of the host: everything that this
            process may use is then open to the model.
        hard_links: Whether files with several names may be read while confined. One of the names may be outside, and
            nothing tells which file is meant to be shared; package managers that link from a cache need True.

    Raises:
        ConfigurationError: There is no such folder, or this platform cannot open files relative to folders (Windows),
            without which nothing here is safe.
    """

    def __init__(self, root: str | os.PathLike[str], *, confine: bool = True, hard_links: bool = False) -> None:
        if os.open not in os.supports_dir_fd:
            raise ConfigurationError(
                "This platform cannot open files relative to folders, which the file tools need. Linux and macOS can."
            )
        given = os.fspath(Path(root).absolute())
        try:
            resolved = Path(given).resolve(strict=True)
        except (OSError, RuntimeError, ValueError) as error:
            raise ConfigurationError(
                f"The workspace {given!r} cannot be used: {error}. Give a folder that is there."
            ) from error
        if not resolved.is_dir():
            raise ConfigurationError(f"The workspace {given!r} is not a folder. Give one.")
        self.root = resolved
        self.confine = confine
        self.guards_hard_links = confine and not hard_links
        self._spellings = [_names(os.fspath(resolved)), _names(given)]
        with _locks_guard:
            self._lock = _locks.setdefault(os.fspath(resolved), _Lock())

    def __repr__(self) -> str:
        return f"<toolnexus.Workspace {os.fspath(self.root)!r}{'' if self.confine else ', not confined'}>"

    @contextlib.contextmanager
    def changing(self) -> Generator[None]:
        """Hold the workspace's files still for the other tools of this process: to read one, and write what follows."""
        with self._lock.held:
            yield

    @contextlib.contextmanager
    def place(self, path: str, *, made: list[tuple[int, str]] | None = None) -> Generator[Place]:
        """Where `path` leads, links followed. What stands there may not exist.

        Args:
            made: Make the folders on the way that are missing, and note them here: the descriptor of the folder that
                each is in, which is the reader's to close, and its name. None: they have to be there.

        Raises:
            PathRefused: It leads out of the workspace.
            FileProblem: There is no way there.
        """
        descent = _Descent(self, path, made)
        try:
            yield descent.go()
        finally:
            descent.close()

    @contextlib.contextmanager
    def open(self, path: str) -> Generator[tuple[int, Place]]:
        """A regular file, opened for reading.

        Raises:
            PathRefused: It is outside the workspace, or no regular file.
            FileProblem: It cannot be read.
        """
        with self.place(path) as place:
            opened = place.open_file()
            try:
                yield opened, place
            finally:
                os.close(opened)

    def inside(self, names: list[str]) -> list[str] | None:
        """The names below the root, of the names of an absolute path. None: it is outside."""
        for root in self._spellings:
            if names[: len(root)] == root:
                return names[len(root) :]
        return None


class _Descent:
    """The way to one file, with the folders on it opened."""

    def __init__(self, workspace: Workspace, path: str, made: list[tuple[int, str]] | None) -> None:
        self._workspace = workspace
        self._path = path
        self._made = made
        self._folders: list[int] = []
        self._names: list[str] = []
        self._links = 0

    def close(self) -> None:
        while self._folders:
            os.close(self._folders.pop())

    def go(self) -> Place:
        if "\0" in self._path:
            raise PathRefused(f"{self._shown} has a NUL character in it.")
        try:
            return self._go()
        except UnicodeEncodeError:
            raise FileProblem(f"{self._shown} has half a character in it, which no file's name has.") from None
        except OSError as error:
            raise problem(self._shown, error) from error

    @property
    def _shown(self) -> str:
        cut = "…" if len(self._path) > _LONGEST_SHOWN else ""
        return repr(clean_text(self._path[:_LONGEST_SHOWN]) + cut)

    def _go(self) -> Place:
        workspace = self._workspace
        anchor = os.fspath(workspace.root) if workspace.confine else "/"
        self._folders.append(os.open(anchor, FOLDER_FLAGS))
        waiting = self._start(self._path)[::-1]
        while waiting:
            name = waiting.pop()
            if name == "..":
                self._up()
            elif (target := self._target(name)) is not None:
                self._links += 1
                if self._links > _MAX_LINKS:
                    raise FileProblem(f"{self._shown} is a link that leads in a circle.")
                waiting += self._after_link(target)[::-1]
            elif waiting:
                self._down(name)
            else:
                return self._at(name)
        return self._at(".")

    def _at(self, name: str) -> Place:
        names = self._names if name == "." else [*self._names, name]
        if not self._workspace.confine:
            inside = self._workspace.inside(names)
            shown = "/" + "/".join(names) if inside is None else "/".join(inside)
        else:
            shown = "/".join(names)
        return Place(self._workspace, self._folders[-1], name, shown or ".")

    def _start(self, path: str) -> list[str]:
        names = _names(path)
        if not path.startswith("/"):
            return names if self._workspace.confine else [*_names(os.fspath(self._workspace.root)), *names]
        return self._absolute(names)

    def _absolute(self, names: list[str]) -> list[str]:
        if not self._workspace.confine:
            return names
        inside = self._workspace.inside(names)
        if inside is None:
            raise self._outside()
        return inside

    def _after_link(self, target: str) -> list[str]:
        names = _names(target)
        if target.startswith("/"):
            names = self._absolute(names)
            while len(self._folders) > 1:
                os.close(self._folders.pop())
            self._names.clear()
        return names

    def _outside(self) -> PathRefused:
        return PathRefused(f"{self._shown} is outside the workspace. Give a path inside it, relative to its root.")

    def _up(self) -> None:
        if len(self._folders) > 1:
            os.close(self._folders.pop())
            self._names.pop()
        elif self._workspace.confine:
            raise self._outside()

    def _target(self, name: str) -> str | None:
        """Where a link leads. None: it is none, or nothing."""
        try:
            return os.readlink(name, dir_fd=self._folders[-1])
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOENT):
                return None
            raise

    def _down(self, name: str) -> None:
        if len(self._folders) > DEEPEST:
            raise FileProblem(f"{self._shown} is more than {DEEPEST} folders deep, which is too deep.")
        try:
            folder = os.open(name, FOLDER_FLAGS, dir_fd=self._folders[-1])
        except FileNotFoundError:
            if self._made is None:
                raise
            folder = self._make(name, self._made)
        self._folders.append(folder)
        self._names.append(name)

    def _make(self, name: str, made: list[tuple[int, str]]) -> int:
        with contextlib.suppress(FileExistsError):  # somebody else was faster, which is as good
            os.mkdir(name, dir_fd=self._folders[-1])
            made.append((os.dup(self._folders[-1]), name))
        return os.open(name, FOLDER_FLAGS, dir_fd=self._folders[-1])


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in ("", ".")]


def problem(shown: str, error: OSError) -> FileProblem | PathRefused:
    """A failure of the operating system, told without its numbers.

    Args:
        shown: The path as the model knows it, quoted.
    """
    match error.errno:
        case errno.ENOENT:
            return FileProblem(f"There is no file {shown}. The folder may not be there either; glob finds files.")
        case errno.ENOTDIR:
            return FileProblem(f"There is no file {shown}: a part of the path is not a folder.")
        case errno.ELOOP:
            return PathRefused(f"{shown} changed into a link while it was looked for. Try again.")
        case _:
            return FileProblem(f"{shown} cannot be used: {error.strerror or error}.")
