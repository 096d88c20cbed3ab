"""Hands on what a running tool reports, in order, from whatever thread it reports."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeAlias

_MOST_WAITING = 256
"""Reports that wait to be sent. When a client reads slowly, the oldest are dropped."""
_STEP = 1e-6

Send: TypeAlias = Callable[[float, float | None, str], Awaitable[None]]
"""Sends how far a tool is, of how much in all (None: unknown), and a text."""


class Progress:
    """Reports of one call. `report` is for `ToolContext`. `aclose` sends what is left; what comes later is dropped."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[tuple[str, float | None]] = deque(maxlen=_MOST_WAITING)
        self._wake = asyncio.Event()
        self._over = False
        self._far = -_STEP
        self._in_fractions = False
        self._task: asyncio.Task[None] | None = None

    def report(self, message: str, fraction: float | None) -> None:
        """How far the tool is. From any thread."""
        if self._over:
            return
        self._waiting.append((message, fraction))
        with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody listens any more
            self._loop.call_soon_threadsafe(self._arrived)

    def _arrived(self) -> None:
        if self._task is None and not self._over:
            self._task = asyncio.create_task(self._run())
        self._wake.set()

    async def _run(self) -> None:
        while not (self._over and not self._waiting):
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                message, fraction = self._waiting.popleft()
                far, whole = self._next(fraction)
                await self._send(far, whole, message)

    def _next(self, fraction: float | None) -> tuple[float, float | None]:
        """The next two numbers. The first has to grow each time, whatever a tool says."""
        if fraction is not None and math.isfinite(fraction):
            self._in_fractions = True
            self._far = max(fraction, self._far + _STEP)
            return self._far, max(1.0, self._far)
        if self._in_fractions:
            self._far += _STEP
            return self._far, max(1.0, self._far)
        self._far = math.floor(self._far) + 1.0
        return self._far, None

    async def aclose(self) -> None:
        """Send what was reported, and nothing more."""
        self._over = True
        if self._waiting and self._task is None:
            self._task = asyncio.create_task(self._run())
        self._wake.set()
        if self._task is not None:
            try:
                await self._task
            finally:
                self._task.cancel()
