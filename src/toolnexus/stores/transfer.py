"""Conversations on their way from one store to another: as what a file store would have in the conversation's file."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolnexus import _json
from toolnexus._checks import check_id
from toolnexus.errors import ConversationConflict, CorruptConversation, InvalidTranscript, NoSuchConversation
from toolnexus.stores import frames, records
from toolnexus.stores.backend import Key, LogSlice, Version
from toolnexus.stores.log import Fields, Log

if TYPE_CHECKING:
    from toolnexus.stores.logstore import LogStore

_PIECE = 1 << 16
"""Bytes of a piece of an export, at most."""
_WAIT = 600.0
"""Seconds to wait for a running turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What an export holds.

    Attributes:
        key: Which conversation it was.
        fields: What its records say, oldest first, up to the end of its last turn.
    """

    key: Key
    fields: Sequence[Fields]


async def export(store: LogStore, id: str) -> AsyncGenerator[bytes]:
    """`LogStore.export`."""
    check_id(id)
    key = Key(store.scope, id)
    seen = await store.backend.read(key)
    if seen is None:
        raise NoSuchConversation(id)
    for piece in written(key, seen):
        yield piece


async def import_(
    store: LogStore,
    lines: Iterable[bytes] | AsyncIterable[bytes],
    *,
    id: str | None = None,
    replace: bool = False,
    progress: Callable[[int], None] | None = None,
) -> str:
    """`LogStore.import_`."""
    exported = read(await _joined(lines, progress))
    id = exported.key.id if id is None else id

    def opening(_: Log, version: Version) -> Sequence[Fields]:
        if not version.last:
            return exported.fields
        if not replace:
            raise ConversationConflict(id, expected=0, actual=version.last)
        return [records.snapshot(Log(), until=0), *exported.fields]

    async with store.queued(id, wait=_WAIT):
        await store.load(id)  # what is remembered may be older
        hold = await store.take(id, opening, wait=_WAIT)
        await hold.end(head=lambda: records.head(hold.log, now=time.time(), new=None))
        store.keep(hold)
    return id


def written(key: Key, seen: LogSlice) -> Iterator[bytes]:
    """The lines of a conversation, in pieces, as if all were written together: what is cut off is noticed. Pure.

    Args:
        seen: All of its records.
    """
    log = Log()
    log.apply(seen.records, conversation_id=key.id)
    changed = log.turns[-1].started if log.turns else 0.0
    head = records.head(log, now=changed, new=None)
    end = frames.write_head(head, after=seen.records) if head else b""
    header = frames.write_header(frames.Header(key=key, incarnation=seen.version.incarnation))
    data = header + frames.batch(seen.records, end)
    for start in range(0, len(data), _PIECE):
        yield data[start : start + _PIECE]


def read(data: bytes) -> Exported:
    """Take an export apart, or a file of a file store. Pure.

    Raises:
        InvalidTranscript: It is neither, or not all of it, or it was changed.
        StoreTooNew: It is of a newer version.
    """
    try:
        found = frames.split(data)
        if not found.notes:
            raise InvalidTranscript("This is no export of a conversation: its first line says nothing of one.")
        header = frames.read_header(found.notes[0])
    except ValueError as error:
        raise InvalidTranscript(f"This is no export of a conversation, or it was changed: {error}.") from error
    if found.whole < len(data):
        raise InvalidTranscript(
            f"The export ends {len(data) - found.whole} bytes into something that was not written to its end. "
            "Export it again; or open the folder that it is from as a FileStore, which leaves them out."
        )
    log = Log()
    try:
        log.apply(found.records, conversation_id=header.key.id)
    except CorruptConversation as error:
        raise InvalidTranscript(f"The export has a record that cannot be read or does not follow: {error}") from error
    fields: list[Fields] = [_json.loads(record) for record in found.records]
    if log.open is not None:
        fields.append(records.closed(log.open))
    return Exported(key=header.key, fields=fields)


async def _joined(lines: Iterable[bytes] | AsyncIterable[bytes], progress: Callable[[int], None] | None) -> bytes:
    pieces: list[bytes] = []
    size = 0

    def take(piece: bytes) -> None:
        nonlocal size
        pieces.append(piece)
        size += len(piece)
        if progress is not None:
            progress(size)

    if isinstance(lines, AsyncIterable):
        async for piece in lines:
            take(piece)
    else:
        for piece in lines:
            take(piece)
    return b"".join(pieces)
