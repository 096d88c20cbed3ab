"""Conversations in files: one for each, that is only ever appended to."""

from __future__ import annotations

import json
import logging
import os
import re
import secrets
import time
from base64 import b32encode
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from hashlib import blake2b
from pathlib import Path
from typing import ParamSpec, TypeVar

from toolnexus._workers import Workers
from toolnexus.clock import settled
from toolnexus.errors import ConversationConflict, ConversationFenced, CorruptConversation, StoreError, StoreTooNew
from toolnexus.stores import disk, frames
from toolnexus.stores.backend import NOTHING, Grant, Head, Key, Lease, Listed, LogSlice, Owner, Page, Record, Version
from toolnexus.stores.logstore import LogStore
from toolnexus.stores.order import Order
from toolnexus.stores.process import is_gone, this_process
from toolnexus.stores.words import words

_P = ParamSpec("_P")
_T = TypeVar("_T")

_log = logging.getLogger("toolnexus")

_SLUG = 40
_PART = 1 << 20
"""Bytes of a file that are read at once, at least."""
_TAIL = 1 << 14
"""Bytes of the end of a file that are read at once, at first."""
_HEADER = 4096
_HASH = 32
"""Characters of a hash: 160 bits."""
_INCARNATIONS = 2**53 - 1
"""A new conversation takes one of so many numbers at random, so that it is never one that was deleted."""
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Goes on while the machine sleeps, and is the same for all processes. The wall clock may be set."""

_disk = Workers(limit=8)  # not the pool of the tools: a lease has to be renewed while all of them hang
os.register_at_fork(after_in_child=_disk.reset)


class FileStore(LogStore):
    """Conversations in a folder, for the processes of one machine.

    Each has a file that is made of its id and a hash, `main/k4/user-42-k4….log`, with one line a record. Beside it is
    a small file `….now` with what can be found again: who holds its turn, and what a list shows.

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
        place = _Place.of(self._root, key)
        disk.make_folders(place.log.parent)
        order = self._order(place.folder)
        with disk.locked(place.log, create=True) as file:
            state = _state(file, place, key)
            again = state is not None and state.owner is not None and state.owner.token == owner.token
            if state is not None and not again and (lease := state.lease()) is not None and lease.left > 0:
                return None
            if state is None:
                state = _created(file, place, key, order)
                change = state.changed
            else:
                change = order.next(place.name)
            _cut(file, state)
            opened = state.stands_at(expect)
            lines = frames.batch(records) if opened else b""
            if not opened and again and expect.incarnation in (NOTHING.incarnation, state.incarnation):
                opened = _has_after(file, place, state, expect.last, records)
            newer = () if opened else _after(file, place, state, expect)
            new = replace(
                state,
                owner=owner,
                fence=state.fence if again else change,
                until=_now() + ttl,
                boot=_boot(),
                count=state.count + (len(records) if lines else 0),
                changed=change if lines else state.changed,
            )
            _write(file, place, new, lines)
            return Grant(key=key, owner=owner, fence=new.fence, version=new.version, opened=opened, newer=newer)

    def _append(self, grant: Grant, records: Sequence[Record], expect: int, head: Head | None, release: bool) -> int:
        key = grant.key
        place = _Place.of(self._root, key)
        with _held(place, grant) as (file, state):
            if state.count != expect or state.owner is None:
                if _has_after(file, place, state, expect, records):
                    return state.count  # sent again
                if state.owner is None:
                    raise ConversationFenced(key.id)
                raise ConversationConflict(key.id, expected=expect, actual=state.count)
            _cut(file, state)
            new = replace(state, count=expect + len(records), owner=None if release else state.owner)
            end = b""
            if head is not None:
                new.changed = self._order(place.folder).next(place.name)
                new.head = replace(head, text="", anew=False)
                end = frames.write_head(head, changed=new.changed)
            _write(file, place, new, frames.batch(records, end))
            return new.count

    def _renew(self, grant: Grant, ttl: float) -> Grant:
        place = _Place.of(self._root, grant.key)
        with _held(place, grant) as (file, state):
            if state.owner is None:
                raise ConversationFenced(grant.key.id)
            _write(file, place, replace(state, until=_now() + ttl, boot=_boot()), b"")
            return grant

    def _read(self, key: Key, after: Version) -> LogSlice | None:
        place = _Place.of(self._root, key)
        with suppress(FileNotFoundError), disk.locked(place.log, write=False) as file:
            state = _state(file, place, key)
            if state is None or not state.count:
                return None
            return LogSlice(records=_after(file, place, state, after), version=state.version, lease=state.lease())
        return None

    def _delete(self, key: Key) -> bool:
        place = _Place.of(self._root, key)
        with suppress(FileNotFoundError), disk.locked(place.log) as file:
            try:
                state = _state(file, place, key)
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
        folder = _folder(self._root, scope)
        wanted = words(query) if query is not None else []
        items: list[Listed] = []
        last: str | None = None
        with closing(self._order(folder).before(after)) as changes:
            for cursor, number, name in changes if limit > 0 else ():
                listed = _listed(_Place.named(folder, name), number, wanted)
                if listed is None:
                    continue
                if len(items) == limit:
                    return Page(items=tuple(items), after=last)
                items.append(listed)
                last = cursor
        return Page(items=tuple(items), after=None)

    def _order(self, folder: Path) -> Order:
        return Order(folder, boot=_boot(), changed=partial(_changed, folder), names=partial(_names, folder))


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a conversation is. `folder` is its scope's."""

    folder: Path
    name: str
    log: Path
    now: Path
    corrupt: Path

    @classmethod
    @lru_cache(maxsize=1024)
    def of(cls, root: Path, key: Key) -> _Place:
        return cls.named(_folder(root, key.scope), f"{_slug(key.id)}-{_hash(key.scope, key.id)}")

    @classmethod
    def named(cls, folder: Path, name: str) -> _Place:
        shard = folder / name[-_HASH:][:2]
        return cls(folder, name, shard / f"{name}.log", shard / f"{name}.now", shard / f"{name}.corrupt")


@dataclass(slots=True, kw_only=True)
class _State:
    """How a conversation stands.

    Attributes:
        key: As its file says.
        size: The bytes of its file that were written whole.
        count: The records in them.
        changed: The order of its last change.
        fence: That of the last lease, whether somebody holds it or not.
        until: When the lease expires, by `_CLOCK` since the start of the machine that `boot` names.
        head: What a list shows, without what can be searched.
    """

    key: Key
    incarnation: int
    size: int
    count: int = 0
    changed: int = 0
    fence: int = 0
    owner: Owner | None = None
    until: float = 0.0
    boot: str = ""
    head: Head | None = None

    @property
    def version(self) -> Version:
        return Version(incarnation=self.incarnation, last=self.count)

    def stands_at(self, version: Version) -> bool:
        return self.count == version.last and (version == NOTHING or version.incarnation == self.incarnation)

    def lease(self) -> Lease | None:
        if self.owner is None:
            return None
        expired = self.boot != _boot() or is_gone(self.owner.process)
        return Lease(owner=self.owner, fence=self.fence, left=0.0 if expired else self.until - _now())


@contextmanager
def _held(place: _Place, grant: Grant) -> Generator[tuple[int, _State]]:
    """The locked file of a conversation, and how it stands, if no other lease was given since `grant`.

    Raises:
        ConversationFenced: One was, or the conversation is another.
    """
    with ExitStack() as stack:
        try:
            file = stack.enter_context(disk.locked(place.log))
        except FileNotFoundError:
            raise ConversationFenced(grant.key.id) from None
        state = _state(file, place, grant.key)
        if state is None or (state.incarnation, state.fence) != (grant.version.incarnation, grant.fence):
            raise ConversationFenced(grant.key.id)
        yield file, state


def _state(file: int, place: _Place, key: Key | None) -> _State | None:
    """How a conversation stands: what was kept beside its file, brought up to date with the file.

    Args:
        key: Whose file it has to be. None: anybody's.

    Returns:
        None: it was made, and nothing was written to it.
    """
    size = os.fstat(file).st_size
    found = _header(file, place, size)
    if found is None:
        return None
    header, start = found
    if key is not None and header.key != key:
        raise CorruptConversation(
            f"{str(place.log)!r} is the file of another conversation than {key.id!r}. Nothing was changed.",
            conversation_id=key.id,
        )
    state = _kept(place, header.key)
    if state is None or state.incarnation != header.incarnation:
        state = _State(key=header.key, incarnation=header.incarnation, size=start, changed=header.changed)
    elif state.size > size:
        _log.warning("Conversation %r is shorter than it was: what was written last is lost.", header.key.id)
        state = replace(state, size=start, count=0, head=None)
    for part in _parts(file, place, state.size, size):
        state.size += part.whole
        state.count += len(part.records)
        for head, changed in _heads(part, place, file):
            state.head = replace(head, text="", anew=False)
            state.changed = max(changed, state.changed)
    return state


def _created(file: int, place: _Place, key: Key, order: Order) -> _State:
    """Write the first line of a new conversation, or leave no file."""
    try:
        incarnation = secrets.randbelow(_INCARNATIONS) + 1
        changed = order.next(place.name)
        line = frames.write_header(frames.Header(key=key, incarnation=incarnation, changed=changed))
        os.ftruncate(file, 0)  # whoever tried before did not come to the end of the line
        disk.append(file, line, 0)
        disk.sync_folder(place.log.parent)
    except BaseException:
        place.log.unlink(missing_ok=True)
        raise
    return _State(key=key, incarnation=incarnation, size=len(line), changed=changed)


def _cut(file: int, state: _State) -> None:
    """Remove what a process that died did not write to its end."""
    size = os.fstat(file).st_size
    if size > state.size:
        _log.warning(
            "Conversation %r ended in %d bytes of an unfinished write; they were removed.",
            state.key.id,
            size - state.size,
        )
        os.ftruncate(file, state.size)


def _write(file: int, place: _Place, new: _State, lines: bytes) -> None:
    """Append lines, and keep how the conversation stands then; or neither."""
    size = new.size
    if lines:
        disk.append(file, lines, size)
        new.size += len(lines)
    try:
        _keep(place, new)
    except OSError:
        os.ftruncate(file, size)
        raise


def _keep(place: _Place, state: _State) -> None:
    """Write what is kept beside a conversation's file. One that was cut short is not believed, and found out again."""
    owner = state.owner
    fields = {
        "incarnation": state.incarnation,
        "size": state.size,
        "count": state.count,
        "changed": state.changed,
        "fence": state.fence,
        "owner": None if owner is None else [owner.token, owner.process],
        "until": state.until,
        "boot": state.boot,
        "head": None if state.head is None else frames.head_fields(state.head),
    }
    with disk.opened(place.now, os.O_WRONLY | os.O_CREAT) as file:
        disk.write_at(file, frames.frame(frames.pack(fields)), 0)


def _kept(place: _Place, key: Key) -> _State | None:
    """What is kept beside a conversation's file. None: nothing that can be believed."""
    try:
        with disk.opened(place.now) as file:
            data = disk.read_at(file, os.fstat(file).st_size, 0)
    except FileNotFoundError:
        return None
    line = data[: data.find(b"\n") + 1]  # what is behind it is left of a longer one
    try:
        [body] = frames.split(line).records
        fields = json.loads(body)
        owner, head = fields.pop("owner"), fields.pop("head")
        return _State(
            key=key,
            owner=None if owner is None else Owner(token=owner[0], process=owner[1]),
            head=None if head is None else frames.read_head(head),
            **fields,
        )
    except (ValueError, TypeError, LookupError):
        return None


def _header(file: int, place: _Place, size: int) -> tuple[frames.Header, int] | None:
    """The first line, and where it ends. None: it has no end."""
    length = _HEADER
    while not (end := (data := disk.read_at(file, length, 0)).find(b"\n") + 1):
        if length >= size:
            return None
        length *= 4
    try:
        [body] = frames.split(data[:end]).notes
        return frames.read_header(body), end
    except ValueError as error:
        raise _damaged(file, place, 0) from error


def _parts(file: int, place: _Place, start: int, size: int) -> Iterator[frames.Split]:
    """The lines from `start` on, part by part. What has no end is left out."""
    length = _PART
    while start < size:
        try:
            part = frames.split(disk.read_at(file, min(length, size - start), start))
        except frames.BadFrame as error:
            raise _damaged(file, place, start + error.offset) from error
        if part.whole:
            yield part
            start += part.whole
        elif length < size - start:
            length *= 4
        else:
            return


def _heads(part: frames.Split, place: _Place, file: int) -> Iterator[tuple[Head, int]]:
    """What a list was to show, and when."""
    try:
        for body in part.notes:
            fields = frames.read_note(body)
            if fields["k"] == "head":
                yield frames.read_head(fields), fields["changed"]
    except (ValueError, TypeError, LookupError) as error:
        raise _damaged(file, place, 0) from error


def _after(file: int, place: _Place, state: _State, version: Version) -> tuple[Record, ...]:
    """The records after a version. It costs what they are, not what the conversation is."""
    known = version.last if version.incarnation == state.incarnation else 0
    return tuple(_last(file, place, state, state.count - known))


def _has_after(file: int, place: _Place, state: _State, number: int, records: Sequence[Record]) -> bool:
    """Whether these are the records after the one of that number, up to the last."""
    return state.count == number + len(records) and _last(file, place, state, len(records)) == [*records]


def _last(file: int, place: _Place, state: _State, count: int) -> list[Record]:
    """The last records."""
    if count <= 0:
        return []
    length = _TAIL if count < state.count else state.size
    while length < state.size:
        start = state.size - length
        data = disk.read_at(file, length, start)
        skipped = data.find(b"\n") + 1  # the rest of a line that begins before
        try:
            found = frames.split(data[skipped:]).records if skipped else []
        except frames.BadFrame as error:
            raise _damaged(file, place, start + skipped + error.offset) from error
        if len(found) >= count:
            return found[-count:]
        length *= 4
    found = [record for part in _parts(file, place, 0, state.size) for record in part.records]
    if len(found) != state.count:
        raise _damaged(file, place, state.size)
    return found[-count:]


def _listed(place: _Place, changed: int, wanted: Sequence[str]) -> Listed | None:
    """A conversation in a list. None: this was not its last change, or it does not say all of the words."""
    try:
        with disk.locked(place.log, write=False) as file:
            state = _state(file, place, None)
            disk.unlock(file)  # what is there will not change
            if state is None or state.changed != changed or state.head is None:
                return None
            if wanted and not _says(file, place, state.size, state.head.title, wanted):
                return None
    except FileNotFoundError:
        return None
    except CorruptConversation as error:
        _log.warning("Left out of a list: %s", error)
        return None
    head = state.head
    return Listed(
        id=state.key.id,
        title=head.title,
        updated=head.updated,
        messages=head.messages,
        status=head.status,
        preview=head.preview,
    )


def _says(file: int, place: _Place, size: int, title: str | None, wanted: Sequence[str]) -> bool:
    """Whether these words were said, or are in the title."""
    untitled = {*wanted}.difference(words(title or ""))
    missing = untitled
    for part in _parts(file, place, 0, size):
        for head, _ in _heads(part, place, file):
            missing = (untitled if head.anew else missing).difference(words(head.text))
    return not missing


def _changed(folder: Path, name: str) -> int | None:
    """The order of a conversation's last change. None: it cannot be read, or nothing was written yet.

    Raises:
        FileNotFoundError: There is none.
    """
    place = _Place.named(folder, name)
    with disk.opened(place.log) as file:
        try:
            state = _state(file, place, None)
        except (CorruptConversation, StoreTooNew) as error:
            _log.warning("Left out of lists: %s", error)
            return None
    return None if state is None else state.changed


def _names(folder: Path) -> Iterator[str]:
    return (path.stem for path in folder.glob("*/*.log"))


def _damaged(file: int, place: _Place, offset: int) -> CorruptConversation:
    """The error for a line that is not what was written. The file is copied first, so that a repair can go wrong."""
    with suppress(OSError), disk.opened(place.corrupt, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as copy:
        disk.write_at(copy, disk.read_at(file, os.fstat(file).st_size, 0), 0)
    return CorruptConversation(
        f"The conversation in {str(place.log)!r} is damaged at byte {offset}. Nothing was changed; "
        f"a copy is {place.corrupt.name!r}. See `toolnexus memory check`."
    )


def _folder(root: Path, scope: str) -> Path:
    return root / (f"{_slug(scope)}-{_hash(scope)}" if scope else "main")


def _slug(text: str) -> str:
    """What people recognise a name by."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:_SLUG] or "id"


def _hash(*texts: str) -> str:
    data = b"\0".join(text.encode("utf-8", "surrogatepass") for text in texts)
    return b32encode(blake2b(data, digest_size=_HASH * 5 // 8).digest()).decode("ascii").lower()


def _now() -> float:
    return time.clock_gettime(_CLOCK)


def _boot() -> str:
    return this_process().split("|")[1]
