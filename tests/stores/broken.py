"""Stores and drivers that each make one classic mistake. The contract has to fail every one of them."""

from __future__ import annotations

import asyncio
import json
import posixpath
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from toolnexus.errors import ConversationFenced
from toolnexus.messages import copy_messages
from toolnexus.stores import ConversationStore, records
from toolnexus.stores.backend import NOTHING, Grant, Head, Key, LogSlice, Page, Record, Version
from toolnexus.stores.logstore import LogStore
from toolnexus.stores.memory import MemoryBackend
from toolnexus.testing import StoreContract
from toolnexus.testing.store_contract._proxies import Proxy
from toolnexus.testing.store_contract._turns import Model, echo

# Stores


class NoVersionCheck(MemoryBackend):
    """Appends wherever the end is."""

    async def append(
        self, grant: Grant, records: Sequence[Record], *, expect: int, head: Head | None = None, release: bool = False
    ) -> int:
        seen = await self.read(grant.key)
        last = seen.version.last if seen is not None else 0
        return await super().append(grant, records, expect=last, head=head, release=release)


class Aliasing:
    """Keeps the very objects that it was given, and hands them out."""

    def __init__(self) -> None:
        self.kept: dict[str, list[Any]] = {}

    def get(self, id: str) -> list[Any] | None:
        return self.kept.get(id)

    def save(self, id: str, messages: list[Any]) -> None:
        self.kept[id] = messages


class DeleteThenInsert:
    """Replaces in two transactions."""

    def __init__(self) -> None:
        self.kept: dict[str, list[Any]] = {}

    async def get(self, id: str) -> list[Any] | None:
        return None if id not in self.kept else copy_messages(self.kept[id])

    async def save(self, id: str, messages: list[Any]) -> None:
        self.kept.pop(id, None)
        await asyncio.sleep(0)
        self.kept[id] = copy_messages(messages)


class OrderByTime(MemoryBackend):
    """Lists by what the clocks of the writers said."""

    async def list(self, scope: str, *, after: str | None, limit: int, query: str | None) -> Page:
        page = await super().list(scope, after=None, limit=1_000_000, query=query)
        return replace(page, items=tuple(sorted(page.items, key=lambda item: item.updated, reverse=True)))


class UnescapedId:
    """Makes the name of a file of an id, as it is."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}

    def get(self, id: str) -> list[Any] | None:
        found = self.files.get(self._path(id))
        return None if found is None else json.loads(found)

    def save(self, id: str, messages: list[Any]) -> None:
        self.files[self._path(id)] = json.dumps(messages)

    def _path(self, id: str) -> str:
        return posixpath.normpath(f"chats/{id}.json")


class ExpiryByRecord(MemoryBackend):
    """Lets each record expire by itself, the older ones first."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[Key, list[float]] = {}

    async def read(self, key: Key, *, after: Version = NOTHING) -> LogSlice | None:
        seen = await super().read(key, after=NOTHING)
        if seen is None or after != NOTHING:
            return await super().read(key, after=after)
        born = self._seen.setdefault(key, [])
        now = time.monotonic()
        born += [now] * (len(seen.records) - len(born))
        left = tuple(record for at, record in enumerate(seen.records) if now - born[at] < 0.05 * (at + 1))
        return replace(seen, records=left) if left else None


class SkipsCorrupt(MemoryBackend):
    """Leaves out what it cannot read."""

    async def read(self, key: Key, *, after: Version = NOTHING) -> LogSlice | None:
        seen = await super().read(key, after=after)
        if seen is None:
            return None
        kept = tuple(filter(_is_json, seen.records))
        last = seen.version.last - len(seen.records) + len(kept)  # so that nobody notices
        return replace(seen, records=kept, version=replace(seen.version, last=last))


def _is_json(record: Record) -> bool:
    try:
        return json.loads(record)["k"] in ("turn", "message", "effect", "edit", "meta", "snapshot")
    except (ValueError, LookupError, TypeError):
        return False


class LockWithoutToken(MemoryBackend):
    """Gives a lease back whoever it belongs to."""

    async def append(
        self, grant: Grant, records: Sequence[Record], *, expect: int, head: Head | None = None, release: bool = False
    ) -> int:
        try:
            return await super().append(grant, records, expect=expect, head=head, release=release)
        except ConversationFenced:
            if release and (kept := self._kept.get(grant.key)) is not None:
                kept.owner = None
            raise


# Drivers


class AppendsBeforeItAcquires(StoreContract):
    """Writes the prompt down, and takes the turn then."""

    async def ask(self, store: ConversationStore, id: str, prompt: str, model: Model = echo) -> str:
        assert isinstance(store, LogStore)
        history = [*(await store.get(id) or []), {"role": "user", "content": prompt}]
        await store.save(id, history)
        hold = await store.take(id, lambda _log, _version: [], wait=20)
        said = (await model({"messages": history}))["content"]
        answered = [*hold.log.messages, {"role": "assistant", "content": said}]
        await hold.end(records.edited(hold.log.messages, answered), head=lambda: None)
        return said


class SendsNoFence(StoreContract):
    """Writes under whatever lease it can get when it writes."""

    async def ask(self, store: ConversationStore, id: str, prompt: str, model: Model = echo) -> str:
        assert isinstance(store, LogStore)
        return await super().ask(LogStore(_Unfenced(store.backend), lease=store._lease), id, prompt, model)


class _Unfenced(Proxy):
    async def append(
        self, grant: Grant, records: Sequence[Record], *, expect: int, head: Head | None = None, release: bool = False
    ) -> int:
        current = await self.backend.begin(grant.key, owner=grant.owner, ttl=20, expect=NOTHING, records=())
        assert current is not None
        last = current.version.last
        return await super().append(current, records, expect=last, head=head, release=release)


class FinishesBeforeItSaves(StoreContract):
    """Says that the turn is finished, and saves it then."""

    async def ask(self, store: ConversationStore, id: str, prompt: str, model: Model = echo) -> str:
        assert isinstance(store, LogStore)
        history = [*(await store.get(id) or []), {"role": "user", "content": prompt}]
        said = (await model({"messages": history}))["content"]
        self.saving = asyncio.ensure_future(store.save(id, [*history, {"role": "assistant", "content": said}]))
        return said


class ReleasesBeforeItAppends(StoreContract):
    """Gives the turn back, and writes down what came of it then."""

    async def ask(self, store: ConversationStore, id: str, prompt: str, model: Model = echo) -> str:
        assert isinstance(store, LogStore)
        hold = await store.take(id, lambda _log, _version: [], wait=20)
        history = [*hold.log.messages, {"role": "user", "content": prompt}]
        said = (await model({"messages": history}))["content"]
        await hold.give_up()
        await asyncio.sleep(0.03)  # a slow disk
        await store.save(id, [*history, {"role": "assistant", "content": said}])
        return said
