"""One conversation in a folder: its file, and how it stands, which is kept in a small file beside it."""

from __future__ import annotations

import logging
import os
import re
import secrets
import time
from base64 import b32encode
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING

from toolnexus import _json
from toolnexus.errors import ConversationFenced, CorruptConversation
from toolnexus.stores import disk, frames
from toolnexus.stores.backend import NOTHING, Grant, Head, Key, Lease, Owner, Record, Version
from toolnexus.stores.process import is_gone, this_process
from toolnexus.stores.words import words

if TYPE_CHECKING:
    from pathlib import Path

    from toolnexus.stores.order import Order

_log = logging.getLogger("toolnexus")

_SLUG = 40
_PART = 1 << 20
"""Bytes of a file that are read at once, at least."""
_TAIL = 1 << 14
"""Bytes of the end of a file that are read at once, at first."""
_SMALL = 4096
"""Bytes of a first line, or of what is kept beside a file, that are read at once."""
_HASH = 32
"""Characters of a hash: 160 bits."""
_INCARNATIONS = 2**53 - 1
"""A new conversation takes one of so many numbers at random, so that it is never one that was deleted."""
_FENCES = 2**16
"""Leases of a conversation that are given with one number of the order."""
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Goes on while the machine sleeps, and is the same for all processes. The wall clock may be set."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a conversation is. `folder` is its scope's."""

    folder: Path
    name: str
    log: Path
    now: Path
    corrupt: Path

    @classmethod
    @lru_cache(maxsize=1024)
    def of(cls, root: Path, key: Key) -> Place:
        return cls.named(scope_folder(root, key.scope), f"{_slug(key.id)}-{_hash(key.scope, key.id)}")

    @classmethod
    def named(cls, folder: Path, name: str) -> Place:
        shard = folder / name[-_HASH:][:2]
        return cls(folder, name, shard / f"{name}.log", shard / f"{name}.now", shard / f"{name}.corrupt")


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """How a conversation stands.

    Attributes:
        key: As its file says.
        size: The bytes of its file that were written whole.
        count: The records in them.
        changed: The order of its last change that a list shows.
        fence: That of the last lease, whether somebody holds it or not. 0: not known any more.
        until: When the lease expires, by `now` since the start of the machine that `boot` names.
        shown: Where in its file the line of what a list shows begins, and its bytes. None: there is none.
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
    shown: tuple[int, int] | None = None

    @property
    def version(self) -> Version:
        return Version(incarnation=self.incarnation, last=self.count)

    def stands_at(self, version: Version) -> bool:
        return self.count == version.last and (version == NOTHING or version.incarnation == self.incarnation)

    def lease(self) -> Lease | None:
        if self.owner is None:
            return None
        expired = self.boot != boot() or is_gone(self.owner.process)
        return Lease(owner=self.owner, fence=self.fence, left=0.0 if expired else self.until - now())

    def next_fence(self, place: Place, order: Order) -> int:
        """One that is higher than all before, also than those that are not known any more.

        What is beside the file may be lost, and is older than it was when the machine lost its power. The order is
        not asked for each lease, because that costs as much as the rest of taking one.
        """
        following = self.fence + 1
        if self.fence and self.boot == boot() and following % _FENCES:
            return following
        return max(order.next(place.name) * _FENCES, following)


def read_state(file: int, place: Place, key: Key | None) -> State | None:
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
        state = State(key=header.key, incarnation=header.incarnation, size=start, changed=header.changed)
    elif state.size > size:
        _log.warning("Conversation %r is shorter than it was: what was written last is lost.", header.key.id)
        state = replace(state, size=start, count=0, shown=None)
    for offset, part in _parts(file, place, state.size, size):
        state = replace(state, size=offset + part.whole, count=state.count + len(part.records))
        for _, changed, at in _heads(file, place, offset, part):
            state = replace(state, shown=(offset + at.offset, at.size), changed=max(changed, state.changed))
    return state


@contextmanager
def held(place: Place, grant: Grant) -> Generator[tuple[int, State]]:
    """The locked file of a conversation, and how it stands, if no other lease was given since `grant`.

    Raises:
        ConversationFenced: One was, or the conversation is another.
    """
    with ExitStack() as stack:
        try:
            file = stack.enter_context(disk.locked(place.log))
        except FileNotFoundError:
            raise ConversationFenced(grant.key.id) from None
        state = read_state(file, place, grant.key)
        if state is None or (state.incarnation, state.fence) != (grant.version.incarnation, grant.fence):
            raise ConversationFenced(grant.key.id)
        yield file, state


def create(file: int, place: Place, key: Key, order: Order) -> State:
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
    return State(
        key=key, incarnation=incarnation, size=len(line), changed=changed, fence=changed * _FENCES, boot=boot()
    )


def cut(file: int, state: State) -> None:
    """Remove what a process that died did not write to its end."""
    size = os.fstat(file).st_size
    if size > state.size:
        _log.warning(
            "Conversation %r ended in %d bytes of an unfinished write; they were removed.",
            state.key.id,
            size - state.size,
        )
        os.ftruncate(file, state.size)


def write(file: int, place: Place, new: State, lines: bytes) -> None:
    """Append lines, and keep how the conversation stands then; or neither.

    Args:
        new: How it stands with the lines, whose end is its size.
    """
    before = new.size - len(lines)
    if lines:
        disk.append(file, lines, before)
    try:
        _keep(place, new)
    except OSError:
        os.ftruncate(file, before)
        raise


def after(file: int, place: Place, state: State, version: Version) -> tuple[Record, ...]:
    """The records after a version. It costs what they are, not what the conversation is."""
    known = version.last if version.incarnation == state.incarnation else 0
    return tuple(_last(file, place, state, state.count - known))


def has_after(file: int, place: Place, state: State, number: int, records: Sequence[Record]) -> bool:
    """Whether these are the records after the one of that number, up to the last."""
    return state.count == number + len(records) and _last(file, place, state, len(records)) == [*records]


def shown(file: int, place: Place, state: State) -> Head | None:
    """What a list shows, without what can be searched. None: nothing."""
    if state.shown is None:
        return None
    offset, size = state.shown
    try:
        [body] = frames.split(disk.read_at(file, size, offset)).notes
        return frames.read_head(frames.read_note(body))
    except (ValueError, TypeError, LookupError) as error:
        raise damaged(file, place, offset) from error


def says(file: int, place: Place, size: int, title: str | None, wanted: Sequence[str]) -> bool:
    """Whether these words were said in the first `size` bytes, or are in the title."""
    untitled = {*wanted}.difference(words(title or ""))
    missing = untitled
    for offset, part in _parts(file, place, 0, size):
        for head, _, _ in _heads(file, place, offset, part):
            missing = (untitled if head.anew else missing).difference(words(head.text))
    return not missing


def _keep(place: Place, state: State) -> None:
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
        "shown": state.shown,
    }
    with disk.opened(place.now, os.O_WRONLY | os.O_CREAT) as file:
        disk.write_at(file, frames.frame(frames.pack(fields)), 0)


def _kept(place: Place, key: Key) -> State | None:
    """What is kept beside a conversation's file. None: nothing that can be believed."""
    try:
        with disk.opened(place.now) as file:
            data = os.pread(file, _SMALL, 0)
    except FileNotFoundError:
        return None
    line = data[: data.find(b"\n") + 1]  # what is behind it is left of a longer one
    try:
        [body] = frames.split(line).records
        fields = _json.loads(body)
        owner, place_shown = fields.pop("owner"), fields.pop("shown")
        return State(
            key=key,
            owner=None if owner is None else Owner(token=owner[0], process=owner[1]),
            shown=None if place_shown is None else (place_shown[0], place_shown[1]),
            **fields,
        )
    except (ValueError, TypeError, LookupError):
        return None


def _header(file: int, place: Place, size: int) -> tuple[frames.Header, int] | None:
    """The first line, and where it ends. None: it has no end."""
    length = _SMALL
    while not (end := (data := disk.read_at(file, min(length, size), 0)).find(b"\n") + 1):
        if length >= size:
            return None
        length *= 4
    try:
        return _read_header(data[:end]), end
    except ValueError as error:
        raise damaged(file, place, 0) from error


@lru_cache(maxsize=1024)
def _read_header(line: bytes) -> frames.Header:
    [body] = frames.split(line).notes
    return frames.read_header(body)


def _parts(file: int, place: Place, start: int, size: int) -> Iterator[tuple[int, frames.Split]]:
    """The lines from `start` on, part by part, with where each begins. What has no end is left out."""
    length = _PART
    while start < size:
        try:
            part = frames.split(disk.read_at(file, min(length, size - start), start))
        except frames.BadFrame as error:
            raise damaged(file, place, start + error.offset) from error
        if part.whole:
            yield start, part
            start += part.whole
        elif length < size - start:
            length *= 4
        else:
            return


def _heads(file: int, place: Place, offset: int, part: frames.Split) -> Iterator[tuple[Head, int, frames.Place]]:
    """What a list was to show, the order of that change, and where it is in the part that begins at `offset`."""
    for body, at in zip(part.notes, part.places, strict=True):
        try:
            fields = frames.read_note(body)
            if fields["k"] != "head":
                continue
            head, changed = frames.read_head(fields, part.records[: at.records]), fields["changed"]
        except (ValueError, TypeError, LookupError) as error:
            raise damaged(file, place, offset + at.offset) from error
        yield head, changed, at


def _last(file: int, place: Place, state: State, count: int) -> list[Record]:
    """The last records."""
    if count <= 0:
        return []
    length = _TAIL if count < state.count else state.size
    while length < state.size:
        start = state.size - length
        data = disk.read_at(file, length, start)
        skipped = frames.first_line(data)  # before it is the rest of what begins before
        try:
            found = frames.split(data[skipped:]).records if skipped is not None else []
        except frames.BadFrame as error:
            raise damaged(file, place, start + (skipped or 0) + error.offset) from error
        if len(found) >= count:
            return found[-count:]
        length *= 4
    found = [record for _, part in _parts(file, place, 0, state.size) for record in part.records]
    if len(found) != state.count:
        raise damaged(file, place, state.size)
    return found[-count:]


def damaged(file: int, place: Place, offset: int) -> CorruptConversation:
    """The error for a line that is not what was written. The file is copied first, so that a repair can go wrong."""
    with suppress(OSError), disk.opened(place.corrupt, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as copy:
        disk.write_at(copy, disk.read_at(file, os.fstat(file).st_size, 0), 0)
    return CorruptConversation(
        f"The conversation in {str(place.log)!r} is damaged at byte {offset}. Nothing was changed; "
        f"a copy is {place.corrupt.name!r}. See `toolnexus memory check`."
    )


def scope_folder(root: Path, scope: str) -> Path:
    """Where the conversations of a scope are."""
    return root / (f"{_slug(scope)}-{_hash(scope)}" if scope else "main")


def _slug(text: str) -> str:
    """What people recognise a name by."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:_SLUG] or "id"


def _hash(*texts: str) -> str:
    data = b"\0".join(text.encode("utf-8", "surrogatepass") for text in texts)
    return b32encode(blake2b(data, digest_size=_HASH * 5 // 8).digest()).decode("ascii").lower()


def now() -> float:
    """Seconds since the machine was started."""
    return time.clock_gettime(_CLOCK)


def boot() -> str:
    """What changes when the machine is started anew."""
    return this_process().split("|")[1]
