"""A turn that is held: its lease kept alive, its records appended in order, its end and release in one commit."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from toolnexus.clock import settled
from toolnexus.errors import ConversationFenced, StoreError, ToolnexusError
from toolnexus.stores.backend import Grant, Head, Key, LogBackend, Record, Version
from toolnexus.stores.records import encode

if TYPE_CHECKING:
    from toolnexus.stores.log import Fields, Log

_log = logging.getLogger("toolnexus")


class Hold:
    """Made by `LogStore.take`; used by one turn, on one event loop.

    Attributes:
        log: The conversation. Only this turn may fold into it while it is held.
        lost: Why the turn is not ours any more. None: it is.
    """

    def __init__(self, backend: LogBackend, grant: Grant, log: Log, *, ttl: float) -> None:
        self.log = log
        self.lost: ConversationFenced | None = None
        self._backend = backend
        self._grant = grant
        self._ttl = ttl
        self._last = grant.version.last
        self._pending: list[Fields] = []
        self._unsure: list[list[Record]] = []  # appended one after another, with an outcome that nobody knows
        self._writing: asyncio.Task[None] | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._renewed = time.monotonic()
        self._on_lost: Callable[[], None] | None = None
        self._timer = asyncio.get_running_loop().call_later(ttl / 3, self._renew)

    @property
    def key(self) -> Key:
        return self._grant.key

    @property
    def version(self) -> Version:
        """Where the conversation stands by what we know to be written."""
        return Version(incarnation=self._grant.version.incarnation, last=self._last)

    def when_lost(self, tell: Callable[[], None]) -> None:
        """Call `tell` when the turn turns out to be somebody else's."""
        self._on_lost = tell

    async def add(self, *fields: Fields) -> None:
        """Append records. What is added in one turn of the event loop shares a commit.

        The records are written although the caller is cancelled.

        Raises:
            ConversationFenced: The turn is somebody else's now.
            StoreError: The store failed.
        """
        self._pending += fields
        if not self._is_writing:
            self._writing = asyncio.get_running_loop().create_task(self._write())
        assert self._writing is not None
        await asyncio.shield(self._writing)

    def keep_back(self, *fields: Fields) -> None:
        """Append records with the end."""
        self._pending += fields

    async def end(self, *fields: Fields, head: Callable[[], Head | None]) -> None:
        """Append the last records, set what a list shows (asked for when they are folded in), and give the turn back.

        Runs to a known outcome under cancellation.
        """

        async def write() -> None:
            await self._written()
            await self._append([*self._pending, *fields], head=head, release=True)

        try:
            if self._unsure or self._is_writing:
                await settled(write())
            else:  # the backend runs this one append to its outcome, which a task of its own would only delay
                await write()
        finally:
            self.leave()

    async def give_up(self) -> None:
        """Give the turn back without recording anything more. What goes wrong is left to the lease's expiry."""

        async def release() -> None:
            await self._written()
            await self._backend.append(self._grant, (), expect=self._last, release=True)

        self.leave()
        try:
            await settled(release())
        except ToolnexusError as error:
            _log.warning("A turn could not be given back, and will expire: %s", error)

    def leave(self) -> None:
        """Stop keeping the lease alive, without giving it back."""
        self._timer.cancel()
        if self._renewing is not None:
            self._renewing.cancel()

    @property
    def _is_writing(self) -> bool:
        return self._writing is not None and not self._writing.done()

    async def _written(self) -> None:
        """Wait for what is being appended: the next append has to follow it."""
        if self._writing is not None and not self._writing.done():
            await asyncio.wait({self._writing})

    async def _write(self) -> None:
        await asyncio.sleep(0)  # what else is added now goes along
        while self._pending:
            taken, self._pending = self._pending, []
            await self._append(taken)

    async def _append(
        self, fields: Iterable[Fields], *, head: Callable[[], Head | None] | None = None, release: bool = False
    ) -> None:
        new = list(fields)
        if self.lost is not None:
            raise self.lost
        records = [encode(each) for each in new]
        self.log.fold(new)
        self._unsure.append(records)
        try:
            while self._unsure[1:]:  # the same again is recognised if it was stored
                self._last = await self._backend.append(self._grant, self._unsure[0], expect=self._last)
                del self._unsure[0]
            self._last = await self._backend.append(
                self._grant, records, expect=self._last, head=head() if head else None, release=release
            )
            self._unsure.clear()
        except ConversationFenced as error:
            self._lose(error)
            raise
        finally:
            if release:
                self._pending = []

    def _renew(self) -> None:
        self._renewing = asyncio.get_running_loop().create_task(self._renew_once())

    async def _renew_once(self) -> None:
        try:
            self._grant = await self._backend.renew(self._grant, ttl=self._ttl)
            self._renewed = time.monotonic()
        except ConversationFenced as error:
            self._lose(error)
            return
        except StoreError as error:
            _log.warning("A turn's lease could not be renewed: %s", error)
            if time.monotonic() - self._renewed > self._ttl:
                self._lose(ConversationFenced(self._grant.key.id))
                return
        self._timer = asyncio.get_running_loop().call_later(self._ttl / 3, self._renew)

    def _lose(self, error: ConversationFenced) -> None:
        if self.lost is None:
            self.lost = error
            self.leave()
            if self._on_lost is not None:
                self._on_lost()
