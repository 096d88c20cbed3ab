"""Backends that stand before another one and do one thing differently."""

from __future__ import annotations

from collections.abc import Sequence

from toolnexus.stores.backend import NOTHING, Grant, Head, Key, LogBackend, LogSlice, Owner, Page, Record, Version


class Proxy:
    """Does as the other does."""

    def __init__(self, backend: LogBackend) -> None:
        self.backend = backend

    async def begin(
        self, key: Key, *, owner: Owner, ttl: float, expect: Version, records: Sequence[Record]
    ) -> Grant | None:
        return await self.backend.begin(key, owner=owner, ttl=ttl, expect=expect, records=records)

    async def append(
        self, grant: Grant, records: Sequence[Record], *, expect: int, head: Head | None = None, release: bool = False
    ) -> int:
        return await self.backend.append(grant, records, expect=expect, head=head, release=release)

    async def renew(self, grant: Grant, *, ttl: float) -> Grant:
        return await self.backend.renew(grant, ttl=ttl)

    async def read(self, key: Key, *, after: Version = NOTHING) -> LogSlice | None:
        return await self.backend.read(key, after=after)

    async def delete(self, key: Key) -> bool:
        return await self.backend.delete(key)

    async def list(self, scope: str, *, after: str | None, limit: int, query: str | None) -> Page:
        return await self.backend.list(scope, after=after, limit=limit, query=query)

    async def aclose(self) -> None:
        """The other is not ours to close."""


class Deaf(Proxy):
    """Never renews a lease, and does not say so."""

    async def renew(self, grant: Grant, *, ttl: float) -> Grant:
        return grant


class Counting(Proxy):
    """Counts calls, and the records and bytes that were written."""

    def __init__(self, backend: LogBackend) -> None:
        super().__init__(backend)
        self.calls: dict[str, int] = {}
        self.records = 0
        self.bytes = 0
        self.read_records = 0

    async def begin(
        self, key: Key, *, owner: Owner, ttl: float, expect: Version, records: Sequence[Record]
    ) -> Grant | None:
        grant = await super().begin(key, owner=owner, ttl=ttl, expect=expect, records=records)
        self._count("begin", records if grant is not None and grant.opened else ())
        self.read_records += len(grant.newer) if grant is not None else 0
        return grant

    async def append(
        self, grant: Grant, records: Sequence[Record], *, expect: int, head: Head | None = None, release: bool = False
    ) -> int:
        self._count("append", records)
        return await super().append(grant, records, expect=expect, head=head, release=release)

    async def read(self, key: Key, *, after: Version = NOTHING) -> LogSlice | None:
        seen = await super().read(key, after=after)
        self._count("read", ())
        self.read_records += len(seen.records) if seen is not None else 0
        return seen

    def _count(self, call: str, records: Sequence[Record]) -> None:
        self.calls[call] = self.calls.get(call, 0) + 1
        self.records += len(records)
        self.bytes += sum(map(len, records))
