"""What `client.stream` gives: the events of a run, and the ways to leave it early."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from typing import TYPE_CHECKING, cast

from toolnexus.errors import ReaderGone

if TYPE_CHECKING:
    from types import AsyncGeneratorType, TracebackType

    from toolnexus.events import Event

_NEVER = 86_400.0
_LOOKS = 4
"""How often, within its timeout, it is looked whether a reader still reads."""


class RunStream:
    """The events of one run, while they happen.

    Nothing is sent before the first event is asked for. Leaving `async with`, or `aclose`, ends the run at once:
    socket closed, tools cancelled, turn ended. Without `async with`, a `for` that is left by `break` ends the run when
    the stream is collected. A reader that asks for nothing for `reader_timeout` seconds ends it too.
    """

    def __init__(self, events: AsyncGenerator[Event, None], *, reader_timeout: float | None) -> None:
        self._events = cast("AsyncGeneratorType[Event, None]", events)
        self._timeout = reader_timeout
        self._reads = 0
        self._watch: asyncio.TimerHandle | None = None
        self._gone: ReaderGone | None = None
        self._ending: asyncio.Task[None] | None = None

    async def __aenter__(self) -> RunStream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.aclose()

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    def __anext__(self) -> Awaitable[Event]:
        self._reads += 1
        if self._watch is None:
            self._start_watching()
        elif self._gone is not None:
            raise self._gone
        return self._events.__anext__()

    async def aclose(self) -> None:
        """End the run if it has not ended. May be called more than once."""
        if self._watch is not None:
            self._watch.cancel()
        await self._events.aclose()

    def _start_watching(self) -> None:
        self._look_again(reads=0, idle=0)

    def _look(self, reads: int, idle: int) -> None:
        """See whether anybody has read since the last look, `idle` looks after somebody last did."""
        if self._events.ag_frame is None:
            return  # it has ended
        waiting = self._reads == reads and not self._events.ag_running
        idle = idle + 1 if waiting else 0
        if self._timeout is not None and idle >= _LOOKS:
            self._gone = ReaderGone(f"Nobody read the stream for {self._timeout:g} s, so its run was ended.")
            self._ending = asyncio.get_running_loop().create_task(self._leave(self._gone))
        else:
            self._look_again(self._reads, idle)

    def _look_again(self, reads: int, idle: int) -> None:
        me: weakref.ref[RunStream] = weakref.ref(self)  # the timer must not keep the stream alive
        every = _NEVER if self._timeout is None else self._timeout / _LOOKS
        self._watch = asyncio.get_running_loop().call_later(every, _look, me, reads, idle)

    async def _leave(self, reason: ReaderGone) -> None:
        try:
            await self._events.athrow(reason)
        except (ReaderGone, StopAsyncIteration):
            await self._events.aclose()


def _look(stream: weakref.ref[RunStream], reads: int, idle: int) -> None:
    if (live := stream()) is not None:
        live._look(reads, idle)  # pyright: ignore[reportPrivateUsage] # noqa: SLF001 - of this module
