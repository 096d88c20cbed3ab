"""Changes files all together or not at all.

Everything that can fail for want of space or of a right is done beside the files first: the new contents are written to
temporary files and brought to the disk, and the old ones kept under a second name. Then names are exchanged one after
the other, each at once; if one fails, those before it are exchanged back. Should the machine stop in between, each file
is whole, those from some point on are still the old ones, and files named `.toolnexus-tmp-*` may stay behind.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import stat
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import partial

from toolnexus.sources.builtin.workspace import FileProblem, Place, Version, Workspace, problem, version

_log = logging.getLogger("toolnexus")

TEMPORARY = ".toolnexus-tmp-"
"""What the names of our temporary files begin with."""
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_PERMISSIONS = 0o777
_NO_LINKS = (OSError, NotImplementedError)
"""What giving a file a second name raises where there are none: the file system or the platform has no such thing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What is to become of one name.

    Attributes:
        data: The file's new contents. None: the file goes away.
        seen: The file that the change was made for. None: there was none. If there is another now, nothing is done.
        like: The file whose owner and permissions it gets. None: those of a new file.
    """

    place: Place
    data: bytes | None
    seen: Version | None
    like: os.stat_result | None = None


class Transaction:
    """Places in a workspace, held still for this process's other tools, and the one change that is made there."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._open = contextlib.ExitStack()
        self._made: list[tuple[int, str]] = []
        self._committed = False
        self._temporary: list[tuple[int, str]] = []
        self._done: list[tuple[Change, str | None]] = []

    def __enter__(self) -> Transaction:
        self._open.enter_context(self._workspace.changing())
        return self

    def __exit__(self, *_: object) -> None:
        with self._open:
            for folder, name in self._temporary:
                _quietly(partial(os.unlink, name, dir_fd=folder), "remove a temporary file")
            for folder, name in reversed(self._made):
                if not self._committed:
                    _quietly(partial(os.rmdir, name, dir_fd=folder), "remove a folder that it made")
                os.close(folder)

    def place(self, path: str, *, make_folders: bool = False) -> Place:
        """Where `path` leads, until this transaction ends.

        Args:
            make_folders: Make the folders on the way that are missing. They go again if nothing is changed.

        Raises:
            PathRefused: It leads out of the workspace.
            FileProblem: There is no way there.
        """
        return self._open.enter_context(self._workspace.place(path, made=self._made if make_folders else None))

    def commit(self, changes: Sequence[Change]) -> None:
        """Make all the changes, in their order. If this raises, none is made.

        Raises:
            FileProblem: A change cannot be made. Should the disk then also refuse to take back those before it, the
                text says so, and the old contents stay beside the files.
        """
        last = len(changes) - 1
        try:
            staged = [self._stage(change, last=number == last) for number, change in enumerate(changes)]
            for change in changes:
                _check_unchanged(change)
            for change, (new, old) in zip(changes, staged, strict=True):
                with _told(change.place):
                    self._exchange(change, new, old)
        except BaseException as error:
            troubles = [self._undo(change, old) for change, old in reversed(self._done)]
            if any(troubles):
                raise FileProblem(f"{error}{''.join(troubles)}") from error
            raise
        self._committed = True

    def _stage(self, change: Change, *, last: bool) -> tuple[str | None, str | None]:
        """The temporary names of the new contents and of the old file. None: there are none, or nobody needs them.

        When the last change fails, nothing of it has happened, so its old file is not kept.
        """
        with _told(change.place):
            new = None if change.data is None else self._written(change.place.folder, change.data, change.like)
            old = None if change.seen is None or last else self._kept(change.place)
            return new, old

    def _temporary_name(self, folder: int) -> str:
        name = TEMPORARY + secrets.token_hex(8)
        self._temporary.append((folder, name))
        return name

    def _written(self, folder: int, data: bytes, like: os.stat_result | None) -> str:
        name = self._temporary_name(folder)
        opened = os.open(name, _NEW, 0o666 if like is None else 0o600, dir_fd=folder)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(opened, view) :]
            if like is not None:
                if (like.st_uid, like.st_gid) != (os.geteuid(), os.getegid()):
                    with contextlib.suppress(OSError):  # only some users may give files away
                        os.fchown(opened, like.st_uid, like.st_gid)
                os.fchmod(opened, stat.S_IMODE(like.st_mode) & _PERMISSIONS)
            os.fsync(opened)
        finally:
            os.close(opened)
        return name

    def _kept(self, place: Place) -> str:
        """A second name for what stands there, or a copy where there are no second names."""
        name = self._temporary_name(place.folder)
        try:
            os.link(place.name, name, src_dir_fd=place.folder, dst_dir_fd=place.folder, follow_symlinks=False)
        except _NO_LINKS:
            opened = place.open_file()
            with os.fdopen(opened, "rb") as file:
                return self._written(place.folder, file.read(), os.fstat(opened))
        return name

    def _exchange(self, change: Change, new: str | None, old: str | None) -> None:
        name, folder = change.place.name, change.place.folder
        if new is None:
            os.unlink(name, dir_fd=folder)
        elif change.seen is None:
            self._appear(change.place, new)
        else:
            os.rename(new, name, src_dir_fd=folder, dst_dir_fd=folder)
        self._done.append((change, old))

    def _undo(self, change: Change, old: str | None) -> str:
        """Exchange a name back. Returns what is to be told if that cannot be done; what was there is then kept."""
        name, folder = change.place.name, change.place.folder
        try:
            if old is not None:
                os.rename(old, name, src_dir_fd=folder, dst_dir_fd=folder)
            elif change.seen is None:
                os.unlink(name, dir_fd=folder)
        except OSError as error:
            told = f" {change.place.shown} is changed already, and could not be changed back: {error.strerror}."
            if old is None:
                return told
            self._temporary.remove((folder, old))
            return f"{told} What it was is in {old!r} beside it."
        return ""

    def _appear(self, place: Place, new: str) -> None:
        """Give a new file its name, but not if another has come to have it."""
        try:
            os.link(new, place.name, src_dir_fd=place.folder, dst_dir_fd=place.folder, follow_symlinks=False)
        except FileExistsError:
            raise _changed(place) from None
        except _NO_LINKS:
            os.rename(new, place.name, src_dir_fd=place.folder, dst_dir_fd=place.folder)


def _check_unchanged(change: Change) -> None:
    status = change.place.status()
    if (None if status is None else version(status)) != change.seen:
        raise _changed(change.place)


def _changed(place: Place) -> FileProblem:
    return FileProblem(f"{place.shown} was changed by somebody else meanwhile. Nothing was written; read it again.")


@contextlib.contextmanager
def _told(place: Place) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise problem(place.shown, error) from error


def _quietly(step: Callable[[], object], what: str) -> None:
    """Clean up as far as it goes: a failure here must not hide what happened before."""
    try:
        step()
    except FileNotFoundError:
        return  # it became what it was made for
    except OSError as error:
        _log.warning("A file tool could not %s: %s", what, error)
