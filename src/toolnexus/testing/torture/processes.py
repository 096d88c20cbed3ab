"""Starting workers, hearing what they tell, and ending them."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio.subprocess import Process

    from toolnexus.testing.torture.worker import Job


@dataclass(slots=True)
class Told:
    """What workers told. Prompts, in the order in which they were told.

    Attributes:
        failed: With the kind and the text of the error.
        broken: What else was written: the end of a worker that broke.
    """

    asked: list[str] = field(default_factory=list[str])
    done: list[str] = field(default_factory=list[str])
    failed: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    broken: list[str] = field(default_factory=list[str])

    @property
    def unknown(self) -> set[str]:
        """The prompts of which nobody was told that they are done."""
        return {*self.asked} - {*self.done}


class Worker:
    """A running worker. Made by `started`."""

    def __init__(self, process: Process, told: Told) -> None:
        self._process = process
        self._told = told
        self._reached = asyncio.Event()
        self._hearing = asyncio.get_running_loop().create_task(self._hear())

    async def reached(self) -> None:
        """Wait until it tells that it reached its point, or has ended."""
        await self._reached.wait()

    def send(self, signal: int) -> None:
        with suppress(ProcessLookupError):
            self._process.send_signal(signal)

    async def ended(self) -> int:
        """Wait for its end. The exit code; of a process that was killed, the signal's number below zero."""
        await self._hearing
        return await self._process.wait()

    async def kill(self) -> None:
        """End it at once, wherever it is."""
        with suppress(ProcessLookupError):
            self._process.kill()
        await self.ended()

    async def _hear(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            try:
                what, about, error = json.loads(line)
            except ValueError:
                self._told.broken.append(line.decode(errors="replace").rstrip())
                continue
            if what == "reached":
                self._reached.set()
            elif what == "failed":
                self._told.failed.append((about, error))
            else:
                getattr(self._told, what).append(about)
        self._reached.set()


@asynccontextmanager
async def started(job: Job, told: Told) -> AsyncGenerator[Worker]:
    """A worker, which is ended with the block if it has not ended by then."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "toolnexus.testing.torture.worker",
        job.to_text(),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    worker = Worker(process, told)
    try:
        yield worker
    finally:
        await worker.kill()
