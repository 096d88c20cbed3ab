"""What is known, below the SDK's dispatcher, of the request that is being sent: set above it, found in the context."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from toolnexus.sources.mcp.faults import MCPServerError


@dataclass(slots=True, eq=False)
class Exchange:
    """A request on its way.

    Attributes:
        sent: Whether any of it may have reached the server.
        fault: Why there will be no answer.
        clock: What ends it when its time is over.
        seconds: Its time, from the last sign of life on. None: without end.
        held: How many people are being asked something, which costs it no time.
    """

    method: str
    seconds: float | None
    sent: bool = False
    fault: MCPServerError | None = None
    clock: asyncio.Timeout | None = None
    held: int = 0

    def fail(self, fault: MCPServerError) -> None:
        """There will be no answer."""
        if self.fault is None:
            self.fault = fault

    def stop(self) -> None:
        """Stop waiting, for a transport that cannot answer in place of the server."""
        self._move(0.0)

    def alive(self) -> None:
        """There was a sign of life: its time begins again."""
        if not self.held and self.fault is None:
            self._move(self.seconds)

    def hold(self) -> None:
        """A person is asked."""
        self.held += 1
        self._move(None)

    def go_on(self) -> None:
        """The person has answered."""
        self.held -= 1
        self.alive()

    def _move(self, seconds: float | None) -> None:
        if self.clock is None or self.clock.expired():
            return
        import asyncio  # loaded long ago

        loop = asyncio.get_running_loop()
        self.clock.reschedule(None if seconds is None else loop.time() + seconds)


_current: ContextVar[Exchange | None] = ContextVar("toolnexus_mcp_exchange", default=None)


def current() -> Exchange | None:
    """The request that this code serves. None: it serves none."""
    return _current.get()


def set_current(exchange: Exchange | None) -> None:
    """What is sent from here on is this request's."""
    _current.set(exchange)
