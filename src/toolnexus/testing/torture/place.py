"""Where the conversations are that are tortured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from toolnexus.stores.logstore import LogStore
from toolnexus.stores.opening import open_store

if TYPE_CHECKING:
    from toolnexus.stores.backend import LogBackend

Kind: TypeAlias = Literal["sqlite", "file", "postgres", "redis", "memory"]

_KINDS: dict[str, Kind] = {
    "sqlite": "sqlite",
    "file": "file",
    "memory": "memory",
    "postgres": "postgres",
    "postgresql": "postgres",
    "redis": "redis",
    "rediss": "redis",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A store, and the part of it that belongs to one scenario.

    Attributes:
        url: As `open_store` takes it.
        scope: Of this scenario alone, so that it neither sees nor disturbs what else is there.
        lease: Seconds that a turn's lease lasts.
    """

    url: str
    scope: str
    lease: float = 30.0

    @property
    def kind(self) -> Kind:
        return _KINDS[self.url.partition("://")[0].partition("+")[0].lower()]

    @property
    def local(self) -> bool:
        """Whether the store sees that a process is gone, so that what it held is free at once."""
        return self.kind in ("sqlite", "file", "memory")

    def open(self, around: Callable[[LogBackend], LogBackend] | None = None) -> LogStore:
        """A new, independent store on the same data.

        Args:
            around: Puts something between the store and its backend.
        """
        backend = open_store(self.url).backend
        return LogStore(backend if around is None else around(backend), scope=self.scope, lease=self.lease)

    async def remove(self) -> None:
        """Remove all that the scenario left."""
        store = self.open()
        try:
            while (page := await store.list(limit=100)).items:
                for listed in page.items:
                    await store.delete(listed.id)
        finally:
            await store.aclose()
