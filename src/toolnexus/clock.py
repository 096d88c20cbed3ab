"""Time as an argument: the clock that retries use, and waiting until a deadline."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Coroutine
from typing import Any, Protocol, TypeVar

from toolnexus.errors import RunTimeout

_T = TypeVar("_T")

_log = logging.getLogger("toolnexus")


class Clock(Protocol):
    """What `create_client(clock=…)` takes, so that tests wait for nothing."""

    def now(self) -> float:
        """Seconds since the epoch."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The machine's own time."""

    def now(self) -> float:
        return time.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def within(deadline: float | None, awaitable: Awaitable[_T]) -> _T:
    """Await, but not beyond `deadline` (seconds on `time.monotonic()`; None: no bound).

    Raises:
        RunTimeout: The deadline passed; what was awaited is cancelled.
    """
    if deadline is None:
        return await awaitable
    scope = asyncio.timeout_at(deadline)
    try:
        async with scope:
            return await awaitable
    except TimeoutError as error:
        if not scope.expired():
            raise
        raise RunTimeout("The run did not end in time. Give it more with timeout=, or fewer steps.") from error


ENDING = 5.0
"""Seconds that recording the end of something may take once it is cancelled."""


class Outcome(asyncio.Future[_T]):
    """A future that is `settled` by itself, without the task and the rounds of the event loop that this takes.

    Who awaits it and is cancelled meanwhile is cancelled once it is done, at most `ENDING` seconds later.
    """

    _ending: asyncio.TimerHandle | None = None

    def cancel(self, msg: Any | None = None) -> bool:
        """Called by the task that awaits it. False: it goes on waiting."""
        if self._ending is None and not self.done():
            self._ending = self.get_loop().call_later(ENDING, self._give_up)
            self.add_done_callback(self._known)
        return False

    def _give_up(self) -> None:
        _log_unseen(self)
        super().cancel()

    def _known(self, _: asyncio.Future[_T]) -> None:
        assert self._ending is not None, "it was cancelled"
        self._ending.cancel()
        _log_unseen(self)


async def settled(work: Coroutine[Any, Any, _T] | asyncio.Future[_T]) -> _T:
    """Await to a known outcome, at most `ENDING` seconds longer if we are cancelled meanwhile; then be cancelled.

    For what must not be left half done, such as a save. An outcome that nobody waits for any more is logged if it is
    an error.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if task.cancelled():
            raise
        end = time.monotonic() + ENDING
        while not task.done() and (left := end - time.monotonic()) > 0:
            try:
                await asyncio.wait({task}, timeout=left)
            except asyncio.CancelledError:
                continue  # cancelled again: the outcome is still to be known first
        _log_unseen(task)
        task.cancel()
        raise


def _log_unseen(work: asyncio.Future[Any]) -> None:
    """Log the outcome of what nobody waits for any more, if it is an error, or unknown."""
    if not work.done():
        _log.error("A store did not answer within %g s of a cancellation; what it did is unknown.", ENDING)
    elif not work.cancelled() and (error := work.exception()) is not None:
        _log.error("A store failed while the run was cancelled: %s", error)
