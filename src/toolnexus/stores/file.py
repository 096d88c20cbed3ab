"""Conversations in files: one for each, that is only ever appended to."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import ParamSpec, TypeVar

from toolnexus._workers import Workers
from toolnexus.clock import settled
from toolnexus.errors import ConversationConflict, ConversationFenced, CorruptConversation, StoreError, StoreTooNew
from toolnexus.stores import disk, file_state, frames
from toolnexus.stores.backend import NOTHING, Grant, Head, Key, Listed, LogSlice, Owner, Page, Record, Version
from toolnexus.stores.file_state import Place, scope_folder
from toolnexus.stores.logstore import LogStore
from toolnexus.stores.order import Order
from toolnexus.stores.words import words

_P = ParamSpec("_P")
_T = TypeVar("_T")

_log = logging.getLogger("toolnexus")

_disk = Workers(limit=8)  # not the pool of the tools: a lease has to be renewed while all of them hang
os.register_at_fork(after_in_child=_disk.reset)


class FileStore(LogStore):
    """Conversations in a folder, for the processes of one machine.

    Each has a file that is made of its id and a hash, `main/k4/user-42-k4….log`, with one line a record. Beside it is
    a small file `….now` with what can be found again: who holds its turn, and where what a list shows is.

    Args:
        dir: The folder. It is made when something is first written, for its owner alone.
        scope: Keeps tenants and remote peers apart.
        lease: Seconds that a turn's lease lasts without being renewed.

    Raises:
        CorruptConversation: From every method: a line is not what was written. A copy is kept as `….corrupt`.
        StoreTooNew: From every method: a newer toolnexus wrote this.
    """

    def __init__(
        self,
        dir: str | os.PathLike[str],  # noqa: A002 - the word that people look for
        *,
        scope: str = "",
        lease: float = 30.0,
    ) -> None:
        super().__init__(FileBackend(dir), scope=scope, lease=lease)


class FileBackend:
    """A `LogBackend` in a folder. Processes, threads and objects on the same folder share the data.

    Args:
        folder: It need not be there yet.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._root = Path(folder).absolute()

    async def begin(
        self, key: Key, *, owner: Owner, ttl: float, expect: Version, records: Sequence[Record]
    ) -> Grant | None:
        return await self._do(key.id, self._begin, key, owner, ttl, expect, records)

    async def append(
        self, grant: Grant, records: Sequence[Record], *, expect: int, head: Head | None = None, release: bool = False
    ) -> int:
        return await self._do(grant.key.id, self._append, grant, records, expect, head, release)

    async def renew(self, grant: Grant, *, ttl: float) -> Grant:
        return await self._do(grant.key.id, self._renew, grant, ttl)

    async def read(self, key: Key, *, after: Version = NOTHING) -> LogSlice | None:
        return await self._do(key.id, self._read, key, after)

    async def delete(self, key: Key) -> bool:
        return await self._do(key.id, self._delete, key)

    async def list(self, scope: str, *, after: str | None, limit: int, query: str | None) -> Page:
        return await self._do(None, self._list, scope, after, limit, query)

    async def aclose(self) -> None:
        """Nothing is open."""

    async def _do(self, id: str | None, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return await settled(_disk.run(work, *args, **kwargs))
        except OSError as error:
            what = "The store" if id is None else f"Conversation {id!r}"
            raise StoreError(
                f"{what} could not be reached in {str(self._root)!r}: {error.strerror or error}. Nothing was changed.",
                conversation_id=id,
            ) from error

    def _begin(self, key: Key, owner: Owner, ttl: float, expect: Version, records: Sequence[Record]) -> Grant | None:
        place = Place.of(self._root, key)
        order = _order(place.folder, file_state.boot())
        disk.make_folders(place.log.parent)
        with disk.locked(place.log, create=True) as file:
            state = file_state.read_state(file, place, key)
            again = state is not None and state.owner is not None and state.owner.token == owner.token
            if state is not None and not again and (lease := state.lease()) is not None and lease.left > 0:
                return None
            if state is None:
                state = file_state.create(file, place, key, order)
                fence = state.fence
            else:
                fence = state.fence if again else state.next_fence(place, order)
            file_state.cut(file, state)
            opened = state.stands_at(expect)
            lines = frames.batch(records) if opened else b""
            if not opened and again and expect.incarnation in (NOTHING.incarnation, state.incarnation):
                opened = file_state.has_after(file, place, state, expect.last, records)
            newer = () if opened else file_state.after(file, place, state, expect)
            new = replace(
                state,
                owner=owner,
                fence=fence,
                until=file_state.now() + ttl,
                boot=file_state.boot(),
                size=state.size + len(lines),
                count=state.count + (len(records) if lines else 0),
            )
            file_state.write(file, place, new, lines)
            return Grant(key=key, owner=owner, fence=fence, version=new.version, opened=opened, newer=newer)

    def _append(self, grant: Grant, records: Sequence[Record], expect: int, head: Head | None, release: bool) -> int:
        key = grant.key
        place = Place.of(self._root, key)
        with file_state.held(place, grant) as (file, state):
            if state.count != expect or state.owner is None:
                if file_state.has_after(file, place, state, expect, records):
                    return state.count  # sent again
                if state.owner is None:
                    raise ConversationFenced(key.id)
                raise ConversationConflict(key.id, expected=expect, actual=state.count)
            file_state.cut(file, state)
            changed, end = state.changed, b""
            if head is not None:
                changed = _order(place.folder, file_state.boot()).next(place.name)
                end = frames.write_head(head, changed=changed, after=records)
            lines = frames.batch(records, end)
            size = state.size + len(lines)
            new = replace(
                state,
                size=size,
                count=expect + len(records),
                changed=changed,
                owner=None if release else state.owner,
                shown=(size - len(end), len(end)) if end else state.shown,
            )
            file_state.write(file, place, new, lines)
            return new.count

    def _renew(self, grant: Grant, ttl: float) -> Grant:
        place = Place.of(self._root, grant.key)
        with file_state.held(place, grant) as (file, state):
            if state.owner is None:
                raise ConversationFenced(grant.key.id)
            file_state.write(file, place, replace(state, until=file_state.now() + ttl, boot=file_state.boot()), b"")
            return grant

    def _read(self, key: Key, after: Version) -> LogSlice | None:
        place = Place.of(self._root, key)
        with suppress(FileNotFoundError), disk.locked(place.log, write=False) as file:
            state = file_state.read_state(file, place, key)
            if state is None or not state.count:
                return None
            return LogSlice(
                records=file_state.after(file, place, state, after), version=state.version, lease=state.lease()
            )
        return None

    def _delete(self, key: Key) -> bool:
        place = Place.of(self._root, key)
        with suppress(FileNotFoundError), disk.locked(place.log) as file:
            try:
                state = file_state.read_state(file, place, key)
                there = state is not None and state.count > 0
            except CorruptConversation:
                there = True
            # The log goes last: without it the name is free, and what is beside it may be somebody else's.
            for path in (place.corrupt, place.now, place.log):
                path.unlink(missing_ok=True)
            disk.sync_folder(place.log.parent)
            return there
        return False

    def _list(self, scope: str, after: str | None, limit: int, query: str | None) -> Page:
        folder = scope_folder(self._root, scope)
        wanted = words(query) if query is not None else []
        items: list[Listed] = []
        last: str | None = None
        with closing(_order(folder, file_state.boot()).before(after)) as changes:
            for cursor, number, name in changes if limit > 0 else ():
                listed = _listed(Place.named(folder, name), number, wanted)
                if listed is None:
                    continue
                if len(items) == limit:
                    return Page(items=tuple(items), after=last)
                items.append(listed)
                last = cursor
        return Page(items=tuple(items), after=None)


@lru_cache(maxsize=64)
def _order(folder: Path, boot: str) -> Order:
    """In which order the conversations of a scope changed."""
    return Order(folder, boot=boot, changed=partial(_changed, folder), names=partial(_names, folder))


def _listed(place: Place, changed: int, wanted: Sequence[str]) -> Listed | None:
    """A conversation in a list. None: this was not its last change, or it does not say all of the words."""
    try:
        with disk.locked(place.log, write=False) as file:
            state = file_state.read_state(file, place, None)
            disk.unlock(file)  # what is there will not change
            if state is None or state.changed != changed or (head := file_state.shown(file, place, state)) is None:
                return None
            if wanted and not file_state.says(file, place, state.size, head.title, wanted):
                return None
    except FileNotFoundError:
        return None
    except CorruptConversation as error:
        _log.warning("Left out of a list: %s", error)
        return None
    return Listed(
        id=state.key.id,
        title=head.title,
        updated=head.updated,
        messages=head.messages,
        status=head.status,
        preview=head.preview,
    )


def _changed(folder: Path, name: str) -> int | None:
    """The order of a conversation's last change. None: it cannot be read, or nothing was written yet.

    Raises:
        FileNotFoundError: There is none.
    """
    place = Place.named(folder, name)
    with disk.opened(place.log) as file:
        try:
            state = file_state.read_state(file, place, None)
        except (CorruptConversation, StoreTooNew) as error:
            _log.warning("Left out of lists: %s", error)
            return None
    return None if state is None else state.changed


def _names(folder: Path) -> Iterator[str]:
    return (path.stem for path in folder.glob("*/*.log"))
