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
        if not task.done():
            task.cancel()
            _log.error("A store did not answer within %g s of a cancellation; what it did is unknown.", ENDING)
        elif not task.cancelled() and (error := task.exception()) is not None:
            _log.error("A store failed while the run was cancelled: %s", error)
        raise
