"""Files that several processes share: opened without following links, locked, written as a whole or not at all."""

from __future__ import annotations

import os
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from toolnexus.errors import ConfigurationError

try:
    import fcntl
except ImportError as exc:  # Windows
    raise ConfigurationError("Files with locks need a POSIX system. Use SQLiteStore here.") from exc

if TYPE_CHECKING:
    from pathlib import Path

_WAIT = 30.0
"""Seconds to wait for a lock. Nobody holds one for longer than a commit takes."""
_PAUSE = (0.0005, 0.02)
"""Seconds between two tries: the first, and the longest."""
_FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def opened(path: Path, flags: int = os.O_RDONLY) -> Generator[int]:
    """Open a file, and close it afterwards. One that is made is its owner's alone."""
    descriptor = os.open(path, flags | _FLAGS, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def locked(path: Path, *, write: bool = True, create: bool = False) -> Generator[int]:
    """Open and lock a file: alone to write, or together with other readers.

    Raises:
        FileNotFoundError: There is none, and it is not to be made.
        TimeoutError: Somebody held it all the time.
        OSError: It cannot be opened.
    """
    flags = (os.O_RDWR if write else os.O_RDONLY) | (os.O_CREAT if create else 0)
    while True:
        descriptor = os.open(path, flags | _FLAGS, 0o600)
        try:
            _lock(descriptor, fcntl.LOCK_EX if write else fcntl.LOCK_SH)
            if os.fstat(descriptor).st_nlink:  # else it was removed or replaced before we had the lock
                yield descriptor
                return
        finally:
            os.close(descriptor)


def unlock(descriptor: int) -> None:
    """Give a lock back before the file is closed."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)


def read_at(descriptor: int, size: int, offset: int) -> bytes:
    """As many bytes as there are, up to `size`."""
    parts: list[bytes] = []
    while size > 0 and (part := os.pread(descriptor, size, offset)):
        parts.append(part)
        size -= len(part)
        offset += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def write_at(descriptor: int, data: bytes, offset: int) -> None:
    """Write all of it."""
    while data:
        written = os.pwrite(descriptor, data, offset)
        data = data[written:]
        offset += written


def append(descriptor: int, data: bytes, offset: int) -> None:
    """Write at the end, to the disk, or leave the file as it was."""
    try:
        write_at(descriptor, data, offset)
        _sync(descriptor)
    except BaseException:
        os.ftruncate(descriptor, offset)
        raise


def make_folders(folder: Path) -> None:
    """Make a folder and those above it, so that they outlast a power cut. They are their owner's alone."""
    if folder.is_dir():
        return
    make_folders(folder.parent)
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Write to the disk what was made in, or removed from, a folder."""
    with opened(folder, os.O_DIRECTORY) as descriptor:
        os.fsync(descriptor)


def _lock(descriptor: int, kind: int) -> None:
    end = time.monotonic() + _WAIT
    pause = _PAUSE[0]
    while True:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end:
                raise TimeoutError(f"another process has kept it locked for {_WAIT:g} s") from None
            time.sleep(pause)
            pause = min(2 * pause, _PAUSE[1])
        else:
            return


_sync = getattr(os, "fdatasync", os.fsync)  # macOS has only the second
