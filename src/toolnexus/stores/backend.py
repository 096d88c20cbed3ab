"""The seam under every log store: keeps the records of conversations, in order, and knows nothing of what they mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

Record: TypeAlias = bytes
"""One JSON object as UTF-8 without a line end. What it means is decided in `log.py` alone."""

SCHEMA = 1
"""The version of what backends lay out: tables, keys, frames. A store of a newer one is refused (`StoreTooNew`)."""


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """A conversation. Scopes keep tenants and remote peers apart; both texts are opaque and any text is allowed."""

    scope: str
    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """Where a conversation stands: the number of its last record, counted from 1, in its incarnation.

    An incarnation is a positive number that the backend gives when a conversation is first written, and never again:
    a conversation that was deleted and made anew has another one. `NOTHING` stands for no conversation.
    """

    incarnation: int
    last: int


NOTHING = Version(incarnation=0, last=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Who holds a turn. The token is the turn's own: random, and the same when a lost `begin` is repeated.

    Attributes:
        token: 32 hexadecimal digits.
        process: Host, boot, process and its start time, as one text (see `_process.py`). A backend on local files
            frees the lease of a process that is gone; others store it only.
    """

    token: str
    process: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """Somebody's hold on a conversation, as `read` sees it.

    Attributes:
        left: Seconds until it expires, by the store's own clock. Not above 0: it has expired, and is free.
    """

    owner: Owner
    fence: int
    left: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A lease that `begin` gave.

    Attributes:
        fence: Higher than that of any grant before it on this conversation's incarnation.
        version: Where the conversation stands now, the opening records included if `opened`.
        opened: Whether the opening records were appended.
        newer: If not `opened`: the records after the expected ones, up to `version`; all of them if the incarnation
            is another than expected.
    """

    key: Key
    owner: Owner
    fence: int
    version: Version
    opened: bool
    newer: tuple[Record, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSlice:
    """Records and lease, from one consistent snapshot.

    Attributes:
        records: Those after the number that was asked for, oldest first.
        version: Where the conversation stands; `records` ends there.
        lease: None: nobody has held the conversation, or it was given back.
    """

    records: tuple[Record, ...]
    version: Version
    lease: Lease | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What a list shows of a conversation; all that a backend may index.

    Attributes:
        title: None: it has none.
        updated: Seconds since the epoch when it last changed. For people: no order depends on it.
        messages: How many there are.
        status: How its last turn ended; empty when there is none.
        preview: The beginning of its last text, on one line.
        text: Text to add to what can be searched: this turn's alone.
        anew: Forget what could be searched before, because history was edited; `text` is then all of it.
    """

    title: str | None
    updated: float
    messages: int
    status: str
    preview: str
    text: str = ""
    anew: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A conversation in a list. `title` to `preview` are those of its `Head`."""

    id: str
    title: str | None
    updated: float
    messages: int
    status: str
    preview: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Part of a list, newest first.

    Attributes:
        after: What to ask for the next part with. None: this is the last.
        total: How many there are in all, where the backend knows it cheaply. None: unknown.
    """

    items: tuple[Listed, ...]
    after: str | None
    total: int | None = None


class LogBackend(Protocol):
    """Keeps records. Every call is one transaction that happens whole or not at all, and that runs to a known outcome
    when its caller is cancelled. A backend object may be made before there is an event loop, and be used from several
    loops and threads at once.

    Errors of the driver are raised as `StoreError`, from the driver's own; `StoreTooNew` for a newer layout.
    """

    async def begin(
        self, key: Key, *, owner: Owner, ttl: float, expect: Version, records: Sequence[Record]
    ) -> Grant | None:
        """Take the turn, and append the opening records if the conversation stands at `expect`.

        A conversation that does not exist gets an incarnation, also when something else was expected: it then stands
        at number 0, which nobody but the holder sees (`read` gives None, lists leave it out). Taking a free or expired
        lease raises its fence by at least one. Called again with the same token, as after a lost answer, it gives the
        same grant again: same fence, and `opened` if the records stand at the numbers after `expect`.

        Args:
            ttl: Seconds until the lease expires unless it is renewed, by the store's own clock.

        Returns:
            None: somebody else holds it. Nothing was written.
        """
        ...

    async def append(
        self, grant: Grant, records: Sequence[Record], *, expect: int, head: Head | None = None, release: bool = False
    ) -> int:
        """Add records to the end of a conversation, or nothing at all.

        The fence is checked in the same transaction as the write. An expired lease that nobody else took is still
        good. Sent again after a lost answer, it is recognised by its fence and the equal records at those numbers,
        also when the first one released the lease and nobody took it since.

        Args:
            expect: The number of the last record seen.
            head: What a list shows; None leaves it.
            release: Give the turn back in the same transaction.

        Returns:
            The number of the last record.

        Raises:
            ConversationConflict: Someone appended since `expect`. Nothing was stored.
            ConversationFenced: Someone else holds the turn now, or the conversation was deleted. Nothing was stored.
        """
        ...

    async def renew(self, grant: Grant, *, ttl: float) -> Grant:
        """Let the lease last `ttl` seconds from now.

        Raises:
            ConversationFenced: Someone else holds it now, or it was given back.
        """
        ...

    async def read(self, key: Key, *, after: Version = NOTHING) -> LogSlice | None:
        """Read without taking the turn and without writing anything.

        Args:
            after: What is known already. Of another incarnation, all records are read.

        Returns:
            None: there is no such conversation (a lease alone makes none).
        """
        ...

    async def delete(self, key: Key) -> bool:
        """Remove a conversation and all that belongs to it, whoever holds it. Its fence never comes again.

        Returns:
            Whether there was one.
        """
        ...

    async def list(self, scope: str, *, after: str | None, limit: int, query: str | None) -> Page:
        """List the conversations of a scope that have a head, the one whose head was set last first (no clock counts).

        Args:
            after: `Page.after` of the part before. None: from the start.
            query: Words that must all occur in what can be searched or in the title. None: all conversations.
        """
        ...

    async def aclose(self) -> None:
        """Close what is open. May be called more than once."""
        ...
