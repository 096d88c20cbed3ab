"""How long an event loop was blocked."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

BEAT = 0.002


class Heart:
    """`longest` is the longest time, in seconds, that the loop took from one beat to the next."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._last = time.perf_counter()
        self._handle = asyncio.get_running_loop().call_later(BEAT, self._beat)

    def _beat(self) -> None:
        now = time.perf_counter()
        self.longest = max(self.longest, now - self._last)
        self._last = now
        self._handle = asyncio.get_running_loop().call_later(BEAT, self._beat)

    def stop(self) -> None:
        self._handle.cancel()


@asynccontextmanager
async def heartbeat() -> AsyncIterator[Heart]:
    """Watch the loop while the block runs. What earlier tests left behind is collected before, not in between."""
    gc.collect()
    heart = Heart()
    await asyncio.sleep(3 * BEAT)
    try:
        yield heart
        await asyncio.sleep(3 * BEAT)  # the gap that the block left is seen by the next beat
    finally:
        heart.stop()
