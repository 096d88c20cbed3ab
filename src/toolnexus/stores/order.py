"""In which order the conversations of a folder changed: a file of rows of equal length, one row for each change."""

from __future__ import annotations

import json
import os
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from errno import EACCES, EPERM, EROFS
from functools import lru_cache
from typing import TYPE_CHECKING

from toolnexus.errors import StoreTooNew
from toolnexus.stores.backend import SCHEMA
from toolnexus.stores.disk import locked, opened, read_at, write_at
from toolnexus.stores.frames import pack

if TYPE_CHECKING:
    from pathlib import Path

_ROW = 96
_DIGITS = 16
_BLOCK = 256
"""Rows that are read at once."""
_SPARE = 1024
"""Rows that a file may have beyond four for each conversation before it is made anew."""
_GAP = 1_000_000
"""What the numbers jump by when the machine was started anew: the last rows may not have reached the disk."""


class Order:
    """Numbers changes, and remembers the conversation of each. Only the last change of each is kept in the long run.

    It is not written to the disk with each change: what is lost with the machine's power is found again in the
    conversations' files, which say themselves when they changed last.

    Args:
        folder: Where the conversations are. It has to be there before the first change.
        boot: What changes when the machine is started anew.
        changed: The number of a conversation's last change as its own file says. None: it cannot be read.
            Called without a lock. Raises `FileNotFoundError` when there is no such file.
        names: The names of all conversations.
    """

    def __init__(
        self, folder: Path, *, boot: str, changed: Callable[[str], int | None], names: Callable[[], Iterator[str]]
    ) -> None:
        self._path = folder / "order"
        self._boot = boot
        self._changed = changed
        self._names = names

    def next(self, name: str) -> int:
        """Number a change. Higher than all before, whoever made them.

        The caller holds the conversation's lock, and writes the number to its file before giving that back.
        """
        while True:
            with locked(self._path, create=True) as file:
                rows = _Rows.of(file)
                head = rows.head()
                last = rows.last()
                if head is None or last is None or rows.count > 4 * head.kept + _SPARE:
                    self._write(rows, everything=last is None or head is None or not head.complete)
                    continue
                number = last + 1
                if head.boot != self._boot:
                    number += _GAP
                    write_at(file, _Head(self._boot, head.kept, complete=False).row(), 0)
                write_at(file, _row(number, name), (rows.count + 1) * _ROW)
                return number

    def before(self, cursor: str | None) -> Generator[tuple[str, int, str]]:
        """Changes, newest first: a cursor for what comes after it, its number, and the name of the conversation.

        A change is the conversation's last if its file has the same number; others are to be passed over.

        Args:
            cursor: None: from the newest.
        """
        for row in self._rows(cursor):
            if (change := _read(row)) is not None:
                yield row.decode(), *change

    def _rows(self, cursor: str | None) -> Iterator[bytes]:
        while True:
            with suppress(FileNotFoundError), opened(self._path) as file:
                rows = _Rows.of(file)
                if (head := rows.head()) is not None and head.complete and head.boot == self._boot:
                    yield from rows.backwards(cursor)
                    return
            if not self._path.parent.is_dir():
                return
            try:
                with locked(self._path, create=True) as file:
                    self._write(_Rows.of(file), everything=True)
            except OSError as error:
                if error.errno not in (EACCES, EPERM, EROFS):
                    raise
                # What cannot be written can still be read.
                kept = sorted(row.strip() for name in self._names() for row in self._kept(name))
                yield from reversed(kept[: None if cursor is None else bisect_left(kept, cursor.encode())])
                return

    def _write(self, rows: _Rows, *, everything: bool) -> None:
        """Put another file in its place that has the last row of each conversation only.

        Args:
            everything: Look for conversations that have no row, too.
        """
        # A change that is being made has the last row of its conversation already, but not yet its number in the file.
        last = {name: number for number, name in filter(None, map(_read, rows.forwards()))}
        names = {*last, *(self._names() if everything else ())}
        kept = {row for name in names for row in self._kept(name, last.get(name))}
        written = self._path.with_suffix(".new")
        with suppress(FileNotFoundError):
            written.unlink()
        with opened(written, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as file:
            write_at(file, b"".join([_Head(self._boot, len(kept), complete=True).row(), *sorted(kept)]), 0)
        written.rename(self._path)

    def _kept(self, name: str, last: int | None = None) -> set[bytes]:
        """The rows to keep of a conversation: the change that its file names, and the last that was numbered."""
        try:
            numbers = {self._changed(name), last}
        except FileNotFoundError:
            return set()
        return {_row(number, name) for number in numbers if number is not None}


@dataclass(frozen=True, slots=True)
class _Head:
    """The first row.

    Attributes:
        kept: How many rows there were when the file was made.
        complete: Whether every conversation has a row.
    """

    boot: str
    kept: int
    complete: bool

    def row(self) -> bytes:
        fields = {"v": SCHEMA, "boot": self.boot, "kept": self.kept, "complete": self.complete}
        return _padded(pack(fields))


class _Rows:
    """The rows of an open file. A row that was not written to its end is none.

    Attributes:
        count: How many there are after the first.
    """

    def __init__(self, read: Callable[[int, int], bytes], size: int) -> None:
        self._read = read
        self.count = max(size // _ROW - 1, 0)

    @classmethod
    def of(cls, file: int) -> _Rows:
        return cls(lambda size, offset: read_at(file, size, offset), os.fstat(file).st_size)

    def head(self) -> _Head | None:
        """None: the file is new, or not readable any more."""
        return _head(self._read(_ROW, 0))

    def row(self, index: int) -> bytes:
        return self._read(_ROW, (index + 1) * _ROW).strip()

    def last(self) -> int | None:
        """The number of the last change, 0 if there is none. None: its row cannot be read."""
        if not self.count:
            return 0
        change = _read(self.row(self.count - 1))
        return None if change is None else change[0]

    def forwards(self) -> Iterator[bytes]:
        for start in range(0, self.count, _BLOCK):
            yield from self._block(start, min(start + _BLOCK, self.count))

    def backwards(self, cursor: str | None) -> Iterator[bytes]:
        end = self.count if cursor is None else bisect_left(range(self.count), cursor.encode(), key=self.row)
        for stop in range(end, 0, -_BLOCK):
            yield from reversed(self._block(max(stop - _BLOCK, 0), stop))

    def _block(self, start: int, stop: int) -> list[bytes]:
        data = self._read((stop - start) * _ROW, (start + 1) * _ROW)
        return [data[offset : offset + _ROW].strip() for offset in range(0, len(data), _ROW)]


@lru_cache(maxsize=16)
def _head(row: bytes) -> _Head | None:
    """What the first row says. None: it cannot be read."""
    try:
        fields = json.loads(row)
        version, head = fields["v"], _Head(fields["boot"], fields["kept"], fields["complete"])
    except (ValueError, KeyError, TypeError):
        return None
    if version > SCHEMA:
        raise StoreTooNew(f"The store is of layout {version}; this toolnexus reads up to {SCHEMA}. Update toolnexus.")
    return head


def _row(number: int, name: str) -> bytes:
    return _padded(f"{number:0{_DIGITS}d} {name}".encode("ascii"))


def _read(row: bytes) -> tuple[int, str] | None:
    """Number and name. None: the row was lost with the machine's power."""
    number, _, name = row.partition(b" ")
    return (int(number), name.decode("ascii")) if number.isdigit() and name.isascii() else None


def _padded(text: bytes) -> bytes:
    assert len(text) < _ROW, "names and boot ids are short"
    return text.ljust(_ROW - 1) + b"\n"
