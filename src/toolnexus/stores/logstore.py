"""A conversation store over a log of records: what people hold, whatever the backend is."""

from __future__ import annotations

import asyncio
import copy
import logging
import random
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

from toolnexus import _queue
from toolnexus._checks import check_id
from toolnexus.clock import settled
from toolnexus.errors import (
    ConfigurationError,
    ConversationBusy,
    ConversationConflict,
    CorruptConversation,
    NoSuchConversation,
    StoreError,
    ToolnexusError,
)
from toolnexus.messages import Message, copy_messages, normalise, repair
from toolnexus.stores import records, transfer
from toolnexus.stores.backend import NOTHING, Grant, Key, LogBackend, LogSlice, Owner, Page, Record, Version
from toolnexus.stores.hold import Hold
from toolnexus.stores.log import Fields, Log, Turn
from toolnexus.stores.process import this_process

_log = logging.getLogger("toolnexus")

_TTL = 30.0
"""Seconds that a lease lasts without being renewed."""
_WAIT = 600.0
"""Seconds that an edit waits for a running turn."""
_POLL = (0.02, 0.5)
"""Seconds between two looks at a conversation that another process holds: the first, and the longest."""
_FEW = 2_000
"""Records that are folded in on the event loop, in some 10 ms."""
_CACHED = 200_000
"""Messages of all conversations together that are kept in memory."""


Opening: TypeAlias = Callable[[Log, Version], Sequence[Fields]]
"""What to append to a conversation as it stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationInfo:
    """What is known of a conversation without its messages.

    Attributes:
        title: None: it has none.
        turns: How many turns its history has.
        messages: How many messages.
        status: How the last turn ended; `open` while it runs, `suspended` while one waits; empty when there was none.
        meta: Everything that was set, title and tags among it.
    """

    id: str
    title: str | None
    turns: int
    messages: int
    status: str
    meta: Mapping[str, Any]


class LogStore:
    """Conversations as append-only logs, with turns that have one owner.

    It has the two methods of a `ConversationStore`, and the client drives it by its log: a turn costs what it adds, is
    recorded where it happens, and survives the end of the process. It may be made before there is an event loop, and
    used from several loops and threads. Subclasses choose the backend; one that overrides `get` or `save` is driven as
    a store of two methods.

    Raises:
        InvalidConversationId: From every method with an id: it is not a text of 1 to 512 characters.
        StoreError: From every method: the backend failed. The conversation is as it was, or as it was to be.
    """

    def __init__(self, backend: LogBackend, *, scope: str = "", lease: float = _TTL) -> None:
        self.backend = backend
        self.scope = scope
        self._lease = lease
        self._cache = _Cache()

    @property
    def driven_by_log(self) -> bool:
        """Whether the client records turns as they happen. A subclass with a `get` or `save` of its own gets those."""
        return type(self).get is LogStore.get and type(self).save is LogStore.save

    def scoped(self, scope: str) -> Self:
        """The same store for another scope: a tenant, a remote peer. Its ids are apart from all others.

        It shares the backend, and is closed with it.
        """
        view = copy.copy(self)
        view.scope = scope
        return view

    async def get(self, id: str, /) -> list[Message] | None:
        """The history: finished turns, and one that waits for a person with what it waits for; never a running one.

        Returns:
            Independent copies, oldest first. None: an id never seen.
        """
        found = await self._read(id)
        return copy_messages(found[0].messages) if found is not None and found[0].seen else None

    async def save(self, id: str, messages: Iterable[Mapping[str, Any]], /) -> None:
        """Make these the history, whatever it was. Waits for a running turn.

        Raises:
            InvalidTranscript: The messages cannot be read, or hold what JSON does not have.
            ConversationBusy: A turn ran for too long.
        """
        new = repair(normalise(messages))[0]
        await self._edit(id, lambda log, _: [records.edited(log.messages, new)])

    async def load(self, id: str) -> tuple[list[Message], Version]:
        """History and version, for `replace`. An id never seen has no messages, and the version `NOTHING`."""
        found = await self._read(id)
        return ([], NOTHING) if found is None else (copy_messages(found[0].messages), found[1])

    async def replace(self, id: str, messages: Iterable[Mapping[str, Any]], *, expect: Version) -> Version:
        """Make these the history if nothing was recorded since `expect`.

        Raises:
            ConversationConflict: Something was. Nothing was changed.
        """
        new = repair(normalise(messages))[0]
        return await self._edit(id, lambda log, _: [records.edited(log.messages, new)], expect=expect)

    async def list(self, *, limit: int = 50, after: str | None = None) -> Page:
        """Conversations, last changed first."""
        return await self.backend.list(self.scope, after=after, limit=limit, query=None)

    async def search(self, text: str, *, limit: int = 50, after: str | None = None) -> Page:
        """Conversations in which all of these words were said, last changed first."""
        return await self.backend.list(self.scope, after=after, limit=limit, query=text)

    async def info(self, id: str) -> ConversationInfo | None:
        """What is known of a conversation. None: an id never seen."""
        found = await self._read(id)
        if found is None or not found[0].seen:
            return None
        log = found[0]
        return ConversationInfo(
            id=id,
            title=log.meta.get("title"),
            turns=sum(turn.count > 0 for turn in log.turns),
            messages=len(log.messages),
            status=log.status,
            meta=dict(log.meta),
        )

    async def turns(self, id: str) -> list[Turn]:
        """All turns, oldest first, those that left no trace and one that runs included. An id never seen has none."""
        found = await self._read(id)
        if found is None:
            return []
        return [*found[0].turns, *([found[0].open.turn] if found[0].open else [])]

    async def rename(self, id: str, title: str | None) -> None:
        """Give a conversation a title. None takes it away.

        Raises:
            NoSuchConversation: There is none of this id.
        """
        await self._known(id)
        await self._edit(id, lambda _log, _version: [records.meta({"title": title})], added=())

    async def delete(self, id: str) -> bool:
        """Remove a conversation with all that belongs to it. A turn that runs on it cannot be recorded any more.

        Returns:
            Whether there was one.
        """
        key = self._key(id)
        self._cache.take(key)
        return await self.backend.delete(key)

    async def undo(self, id: str, turns: int = 1) -> int:
        """Take back the last turns.

        Returns:
            How many there were to take back, at most `turns`.

        Raises:
            NoSuchConversation: There is none of this id.
        """
        await self._known(id)
        undone: list[Turn] = []

        def back(log: Log, _: Version) -> list[Fields]:
            undone[:] = [turn for turn in log.turns if turn.count][-turns:] if turns > 0 else []
            return [records.edited(log.messages, log.messages[: undone[0].start])] if undone else []

        await self._edit(id, back)
        return len(undone)

    async def fork(self, id: str, new_id: str, *, at: str | None = None) -> None:
        """Begin another conversation with the history of this one. Idempotency keys stay behind.

        Args:
            at: The turn after which to part, by its id. None: the last.

        Raises:
            NoSuchConversation: There is none of this id.
            ConversationConflict: There is one of the new id already.
            ConfigurationError: There is no such turn.
        """
        log, _ = await self._known(id)
        until = len(log.messages)
        if at is not None:
            turn = next((turn for turn in log.turns if turn.id == at), None)
            if turn is None:
                raise ConfigurationError(f"Conversation {id!r} has no turn {at!r}. See `turns`.")
            until = turn.start + turn.count
        fields = records.snapshot(log, until=until)

        def part(new: Log, version: Version) -> Sequence[Fields]:
            if new.seen:
                raise ConversationConflict(new_id, expected=NOTHING.last, actual=version.last)
            return [fields]

        await self._edit(new_id, part)

    def export(self, id: str) -> AsyncGenerator[bytes]:
        """All that is recorded of a conversation, attempts that left no trace included: what a file store would have in
        the conversation's file. Write the pieces one after another.

        Raises:
            NoSuchConversation: There is none of this id.
        """
        return transfer.export(self, id)

    async def import_(
        self,
        lines: Iterable[bytes] | AsyncIterable[bytes],
        *,
        id: str | None = None,
        replace: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> str:
        """Make a conversation of an export, whole or not at all. A turn that ran when it was exported was interrupted.

        Args:
            lines: The bytes of the export, in pieces of any size.
            id: What to call it. None: as it was called.
            replace: Put it in the place of a conversation of that id. False: refuse if there is one.
            progress: Called with the number of bytes read so far.

        Returns:
            Its id.

        Raises:
            ConversationConflict: There is one of that id already.
            InvalidTranscript: It is no export, or not all of it, or it was changed.
            StoreTooNew: A newer toolnexus exported it.
        """
        return await transfer.import_(self, lines, id=id, replace=replace, progress=progress)

    async def check(self, id: str) -> Sequence[str]:
        """Read a conversation anew and say what is wrong with it. Empty: nothing is. Nothing is changed.

        Raises:
            NoSuchConversation: There is none of this id.
        """
        seen = await self.backend.read(self._key(id))
        if seen is None:
            raise NoSuchConversation(id)
        log = Log()
        try:
            log.apply(seen.records, conversation_id=id)
        except StoreError as error:
            return [str(error)]
        report = repair(log.messages)[1]
        return [f"The history is not what every provider takes: {report}."] if report else []

    async def aclose(self) -> None:
        """Close the backend. May be called more than once."""
        await self.backend.aclose()

    async def take(self, id: str, opening: Opening, *, wait: float, fresh: bool = False) -> Hold:
        """Take the turn of a conversation, end what a dead owner left open, and append what opens the new one.

        Args:
            opening: What to append, given the conversation as it stands. It may raise, and then nothing is written; it
                is asked again when the conversation changed meanwhile.
            wait: Seconds to wait for another owner.
            fresh: Look at what others recorded before `opening` is asked, because it may raise over what it sees.

        Raises:
            ConversationBusy: Somebody else still holds it.
        """
        key = self._key(id)
        owner = Owner(token=secrets.token_hex(16), process=this_process())
        known = self._cache.take(key)
        log, version = known if known is not None and not fresh else await self._fresh(key, known)
        began = time.monotonic()
        pause = _POLL[0]
        while True:
            # An open turn is one that runs, or that a dead owner left: that is known once the turn is ours.
            fields = opening(log, version) if log.open is None else ()
            opening_records = [records.encode(each) for each in fields]
            try:
                grant = await self.backend.begin(
                    key, owner=owner, ttl=self._lease, expect=version, records=opening_records
                )
            except asyncio.CancelledError:
                await self._untake(key, owner)
                raise
            if grant is not None:
                return await self._held(key, grant, log, version, fields, opening)
            while True:
                waited = time.monotonic() - began
                if waited >= wait:
                    raise ConversationBusy(id, waited=waited)
                await asyncio.sleep(min(pause * (0.5 + random.random()), wait - waited))
                pause = min(2 * pause, _POLL[1])
                seen = await self.backend.read(key, after=version)
                if seen is None:
                    log, version = Log(), NOTHING
                    break
                log, version = await _followed(log, version, seen, id)
                if seen.lease is None or seen.lease.left <= 0:
                    break

    async def _untake(self, key: Key, owner: Owner) -> None:
        """Give back what a cancelled `begin` may have taken: it is asked for again, as after a lost answer."""

        async def untake() -> None:
            grant = await self.backend.begin(key, owner=owner, ttl=self._lease, expect=NOTHING, records=())
            if grant is not None:
                await self.backend.append(grant, (), expect=grant.version.last, release=True)

        try:
            await settled(untake())
        except ToolnexusError as error:
            _log.warning("A turn that was cancelled could not be given back, and will expire: %s", error)

    async def _held(
        self,
        key: Key,
        grant: Grant,
        log: Log,
        version: Version,
        fields: Sequence[Fields],
        opening: Opening,
    ) -> Hold:
        """The hold of a grant, with its opening appended if it was not.

        What was recorded meanwhile is folded in first, and what a dead owner left open is ended.
        """
        if grant.opened and log.open is None:
            log.fold(fields)
            return Hold(self.backend, grant, log, ttl=self._lease)
        if not grant.opened and grant.version.incarnation != version.incarnation:
            log = Log()
        hold = Hold(self.backend, grant, log, ttl=self._lease)
        stands = NOTHING if grant.version.last == 0 else grant.version
        try:
            await _apply(log, grant.newer, key.id)
            if log.open is not None:
                await hold.add(records.closed(log.open))
            await hold.add(*opening(log, stands))
        except BaseException:
            await hold.give_up()
            raise
        return hold

    def keep(self, hold: Hold) -> None:
        """Keep in memory what a turn left, for the next one, when its hold has ended well."""
        self._cache.put(hold.key, hold.log, hold.version)

    @asynccontextmanager
    async def queued(self, id: str, *, wait: float, deadline: float | None = None) -> AsyncGenerator[None]:
        """Wait for the other turns on a conversation in this process."""
        place = await _queue.take(self.backend, id, wait=wait, deadline=deadline, scope=self.scope)
        try:
            yield
        finally:
            place.leave()

    async def _edit(
        self, id: str, change: Opening, *, expect: Version | None = None, added: Sequence[Message] | None = None
    ) -> Version:
        """Change a conversation between two turns.

        Args:
            added: The messages that this adds. None: it changes those that were there.
        """

        def opening(log: Log, version: Version) -> Sequence[Fields]:
            if expect is not None and version != expect:
                raise ConversationConflict(id, expected=expect.last, actual=version.last)
            return change(log, version)

        async with self.queued(id, wait=_WAIT):
            if expect is not None:
                await self._read(id)  # what we remember may be older than what is expected
            hold = await self.take(id, opening, wait=_WAIT)
            await hold.end(head=lambda: records.head(hold.log, now=time.time(), new=added))
            self.keep(hold)
            return hold.version

    async def _known(self, id: str) -> tuple[Log, Version]:
        found = await self._read(id)
        if found is None or not found[0].seen:
            raise NoSuchConversation(id)
        return found

    async def _read(self, id: str) -> tuple[Log, Version] | None:
        """A conversation as it stands. It is shared, to be read at once and not to be changed."""
        key = self._key(id)
        log, version = self._cache.take(key) or (Log(), NOTHING)
        seen = await self.backend.read(key, after=version)
        if seen is None:
            return None
        log, version = await _followed(log, version, seen, id)
        self._cache.put(key, log, version)
        return log, version

    async def _fresh(self, key: Key, known: tuple[Log, Version] | None) -> tuple[Log, Version]:
        log, version = known or (Log(), NOTHING)
        seen = await self.backend.read(key, after=version)
        return (Log(), NOTHING) if seen is None else await _followed(log, version, seen, key.id)

    def _key(self, id: str) -> Key:
        check_id(id)
        return Key(self.scope, id)


class _Cache:
    """Conversations as they stood last, until there are too many messages of them. Taking one removes it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[Key, tuple[Log, Version]] = OrderedDict()
        self._messages = 0

    def take(self, key: Key) -> tuple[Log, Version] | None:
        with self._lock:
            found = self._kept.pop(key, None)
            if found is not None:
                self._messages -= len(found[0].messages)
            return found

    def put(self, key: Key, log: Log, version: Version) -> None:
        self.take(key)
        with self._lock:
            self._kept[key] = (log, version)
            self._messages += len(log.messages)
            while self._messages > _CACHED and len(self._kept) > 1:
                _, (old, _) = self._kept.popitem(last=False)
                self._messages -= len(old.messages)


async def _followed(log: Log, version: Version, seen: LogSlice, conversation_id: str) -> tuple[Log, Version]:
    """The conversation with what was read folded in."""
    if seen.version.incarnation != version.incarnation:
        log, version = Log(), NOTHING
    if len(seen.records) != seen.version.last - version.last:
        raise CorruptConversation(
            f"Conversation {conversation_id!r} stands at record {seen.version.last}, but "
            f"{len(seen.records)} came after record {version.last}: some are lost. Nothing was changed.",
            conversation_id=conversation_id,
        )
    await _apply(log, seen.records, conversation_id)
    return log, seen.version


async def _apply(log: Log, records: Sequence[Record], conversation_id: str) -> None:
    """Fold records in that were read: many of them in a thread, so that others go on meanwhile."""
    if len(records) > _FEW:
        await asyncio.to_thread(log.apply, records, conversation_id=conversation_id)
    else:
        log.apply(records, conversation_id=conversation_id)
