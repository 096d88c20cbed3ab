"""A backend whose process ends at a named point: the moment before or after one of a turn's transactions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from toolnexus.stores.backend import NOTHING

if TYPE_CHECKING:
    from toolnexus.stores.backend import Grant, Head, Key, LogBackend, LogSlice, Owner, Page, Record, Version

POINTS = (
    "before_begin",
    "after_begin",
    "model",
    "before_reply",
    "after_reply",
    "in_the_tool",
    "after_the_charge",
    "before_result",
    "after_result",
    "answer",
    "before_end",
    "after_end",
)
"""Where a turn with one call can be stopped, in the order of the turn. `after_…`: committed, and not yet told."""


class MortalBackend:
    """Tells when a turn with one call reaches a point, and otherwise does what the backend under it does.

    Args:
        reached: Called with the point's name. Whoever wants the process to end there, ends it.
    """

    def __init__(self, backend: LogBackend, reached: Callable[[str], None]) -> None:
        self._backend = backend
        self._reached = reached
        self._appends: list[str] = []
        """What the next appends are: the opening, if it was not let in with the lease, the reply, its result."""

    async def begin(
        self, key: Key, *, owner: Owner, ttl: float, expect: Version, records: Sequence[Record]
    ) -> Grant | None:
        self._reached("before_begin")
        grant = await self._backend.begin(key, owner=owner, ttl=ttl, expect=expect, records=records)
        if grant is not None:
            self._reached("after_begin")
            self._appends = ["reply", "result"] if grant.opened else ["opening", "reply", "result"]
        return grant

    async def append(
        self, grant: Grant, records: Sequence[Record], *, expect: int, head: Head | None = None, release: bool = False
    ) -> int:
        step = "end" if release or not self._appends else self._appends.pop(0)
        self._reached(f"before_{step}")
        last = await self._backend.append(grant, records, expect=expect, head=head, release=release)
        self._reached(f"after_{step}")
        return last

    async def renew(self, grant: Grant, *, ttl: float) -> Grant:
        return await self._backend.renew(grant, ttl=ttl)

    async def read(self, key: Key, *, after: Version = NOTHING) -> LogSlice | None:
        return await self._backend.read(key, after=after)

    async def delete(self, key: Key) -> bool:
        return await self._backend.delete(key)

    async def list(self, scope: str, *, after: str | None, limit: int, query: str | None) -> Page:
        return await self._backend.list(scope, after=after, limit=limit, query=query)

    async def aclose(self) -> None:
        await self._backend.aclose()
