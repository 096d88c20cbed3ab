"""Conversations in this process's memory, the client's default store."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from toolnexus.errors import ConfigurationError, ConversationConflict, ConversationFenced
from toolnexus.stores.backend import (
    NOTHING,
    Grant,
    Head,
    Key,
    Lease,
    Listed,
    LogSlice,
    Owner,
    Page,
    Record,
    Version,
)
from toolnexus.stores.logstore import LogStore
from toolnexus.stores.process import is_gone
from toolnexus.stores.words import words


class InMemoryConversationStore(LogStore):
    """Keeps conversations for as long as the process lives, as encoded JSON.

    What is read is a copy that may be changed freely, and a value that a database would refuse is refused here too.
    It may be used from several threads and event loops.

    Args:
        max_conversations: How many are kept; the least recently used one goes first. None: all.
    """

    def __init__(self, *, max_conversations: int | None = None) -> None:
        super().__init__(MemoryBackend(max_conversations=max_conversations))


@dataclass(slots=True)
class _Kept:
    """A conversation. `until` is on `time.monotonic()`; without an owner it means nothing."""

    incarnation: int
    changed: int = 0
    records: list[Record] = field(default_factory=list[Record])
    fence: int = 0
    owner: Owner | None = None
    until: float = 0.0
    head: Head | None = None
    texts: list[str] = field(default_factory=list[str])
    """What can be searched."""

    @property
    def version(self) -> Version:
        return Version(incarnation=self.incarnation, last=len(self.records))

    def stands_at(self, version: Version) -> bool:
        return len(self.records) == version.last and (version == NOTHING or version.incarnation == self.incarnation)

    def has_after(self, number: int, records: Sequence[Record]) -> bool:
        """Whether these are the records at the numbers after `number`, up to the last."""
        return len(self.records) == number + len(records) and self.records[number:] == list(records)

    def after(self, version: Version) -> tuple[Record, ...]:
        return tuple(self.records[version.last :] if version.incarnation == self.incarnation else self.records)

    def has_all(self, wanted: Sequence[str]) -> bool:
        """Whether these words were said, or are in the title."""
        if not wanted:
            return True
        title = self.head.title if self.head is not None else None
        return set(wanted) <= {*words("\n".join((title or "", *self.texts)))}

    def lease(self) -> Lease | None:
        if self.owner is None:
            return None
        left = 0.0 if is_gone(self.owner.process) else self.until - time.monotonic()
        return Lease(owner=self.owner, fence=self.fence, left=left)


class MemoryBackend:
    """A `LogBackend` in a dictionary. Whoever shares the object shares the data.

    Args:
        max_conversations: How many are kept beside those that are held. None: all.
    """

    def __init__(self, *, max_conversations: int | None = None) -> None:
        if max_conversations is not None and max_conversations < 1:
            raise ConfigurationError(
                f"max_conversations is {max_conversations}. Give at least 1, or None for no bound."
            )
        self._max = max_conversations
        self._kept: OrderedDict[Key, _Kept] = OrderedDict()  # least recently used first
        self._changes = 0
        self._lock = threading.Lock()

    async def begin(
        self, key: Key, *, owner: Owner, ttl: float, expect: Version, records: Sequence[Record]
    ) -> Grant | None:
        with self._lock:
            kept = self._used(key)
            if kept is None:
                kept = self._kept[key] = _Kept(incarnation=self._change())
            again = kept.owner is not None and kept.owner.token == owner.token
            if not again:
                if (lease := kept.lease()) is not None and lease.left > 0:
                    return None
                kept.fence += 1
            kept.owner = owner
            kept.until = time.monotonic() + ttl
            opened = kept.stands_at(expect)
            if opened:
                kept.records += records
            elif again and expect.incarnation in (NOTHING.incarnation, kept.incarnation):
                opened = kept.has_after(expect.last, records)
            self._evict()
            return Grant(
                key=key,
                owner=owner,
                fence=kept.fence,
                version=kept.version,
                opened=opened,
                newer=() if opened else kept.after(expect),
            )

    async def append(
        self, grant: Grant, records: Sequence[Record], *, expect: int, head: Head | None = None, release: bool = False
    ) -> int:
        with self._lock:
            kept = self._held(grant)
            if len(kept.records) != expect or kept.owner is None:
                if kept.has_after(expect, records):
                    return len(kept.records)  # sent again
                if kept.owner is None:
                    raise ConversationFenced(grant.key.id)
                raise ConversationConflict(grant.key.id, expected=expect, actual=len(kept.records))
            kept.records += records
            if head is not None:
                if head.anew:
                    kept.texts.clear()
                kept.texts.append(head.text)
                kept.head = head
                kept.changed = self._change()
            if release:
                kept.owner = None
                self._evict()
            return len(kept.records)

    async def renew(self, grant: Grant, *, ttl: float) -> Grant:
        with self._lock:
            kept = self._held(grant)
            if kept.owner is None:
                raise ConversationFenced(grant.key.id)
            kept.until = time.monotonic() + ttl
            return grant

    async def read(self, key: Key, *, after: Version = NOTHING) -> LogSlice | None:
        with self._lock:
            kept = self._used(key)
            if kept is None or not kept.records:
                return None
            return LogSlice(records=kept.after(after), version=kept.version, lease=kept.lease())

    async def delete(self, key: Key) -> bool:
        with self._lock:
            kept = self._kept.pop(key, None)
            return kept is not None and bool(kept.records)

    async def list(self, scope: str, *, after: str | None, limit: int, query: str | None) -> Page:
        wanted = words(query) if query is not None else []
        with self._lock:
            found = sorted(
                (
                    (kept.changed, key.id, kept.head)
                    for key, kept in self._kept.items()
                    if key.scope == scope and kept.head is not None and kept.has_all(wanted)
                ),
                reverse=True,
            )
            rest = [each for each in found if after is None or each[0] < int(after)]
            page = rest[: max(limit, 0)]
            return Page(
                items=tuple(_listed(id, head) for _, id, head in page),
                after=str(page[-1][0]) if page and len(page) < len(rest) else None,
                total=len(found),
            )

    async def aclose(self) -> None:
        """Nothing is open."""

    def _used(self, key: Key) -> _Kept | None:
        kept = self._kept.get(key)
        if kept is not None:
            self._kept.move_to_end(key)
        return kept

    def _held(self, grant: Grant) -> _Kept:
        kept = self._used(grant.key)
        if kept is None or kept.incarnation != grant.version.incarnation or kept.fence != grant.fence:
            raise ConversationFenced(grant.key.id)
        return kept

    def _change(self) -> int:
        self._changes += 1
        return self._changes

    def _evict(self) -> None:
        """Forget the least recently used ones beyond the bound, but none that is held."""
        if self._max is None or len(self._kept) <= self._max:
            return
        free = [key for key, kept in self._kept.items() if kept.owner is None]
        for key in free[: len(self._kept) - self._max]:
            del self._kept[key]


def _listed(id: str, head: Head) -> Listed:
    return Listed(
        id=id,
        title=head.title,
        updated=head.updated,
        messages=head.messages,
        status=head.status,
        preview=head.preview,
    )
