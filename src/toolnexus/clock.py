"""Time as an argument: the clock that retries use, and waiting until a deadline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import Protocol, TypeVar

from toolnexus.errors import RunTimeout

_T = TypeVar("_T")


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
