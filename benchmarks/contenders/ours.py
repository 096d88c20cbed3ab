"""The scenario on toolnexus. As a program, it runs it a while and then waits, for its memory to be looked at."""

from __future__ import annotations

import asyncio
import sys
from contextlib import asynccontextmanager
from itertools import count
from typing import TYPE_CHECKING

from benchmarks import wire
from benchmarks.contenders import plain_tools
from benchmarks.contenders.tools import add, weather
from toolnexus import TextDelta, create_client, create_toolkit

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from benchmarks.contenders import Read, Run
    from toolnexus.client import Client


def _client(base_url: str) -> Client:
    return create_client(wire.MODEL, base_url=base_url, style="openai", api_key=wire.API_KEY)


@asynccontextmanager
async def coroutines(base_url: str) -> AsyncGenerator[Run, None]:
    """Tools as coroutines, in a toolkit made once."""
    toolkit = await create_toolkit(tools=[weather, add])
    async with _client(base_url) as client:

        async def run() -> str:
            return (await client.run(wire.PROMPT, toolkit)).text

        yield run


@asynccontextmanager
async def threads(base_url: str) -> AsyncGenerator[Run, None]:
    """Tools as plain functions, which run in worker threads."""
    toolkit = await create_toolkit(tools=[plain_tools.weather, plain_tools.add])
    async with _client(base_url) as client:

        async def run() -> str:
            return (await client.run(wire.PROMPT, toolkit)).text

        yield run


@asynccontextmanager
async def functions(base_url: str) -> AsyncGenerator[Run, None]:
    """Tools as coroutines, handed over as a list each time."""
    async with _client(base_url) as client:

        async def run() -> str:
            return (await client.run(wire.PROMPT, [weather, add])).text

        yield run


@asynccontextmanager
async def remembered(base_url: str) -> AsyncGenerator[Run, None]:
    """Each run is the first turn of a conversation in the default store."""
    toolkit = await create_toolkit(tools=[weather, add])
    ids = count()
    async with _client(base_url) as client:

        async def run() -> str:
            return (await client.ask(wire.PROMPT, toolkit, id=f"conversation-{next(ids)}")).text

        yield run


@asynccontextmanager
async def stream(base_url: str) -> AsyncGenerator[Read, None]:
    """A streamed answer, event by event."""
    async with _client(base_url) as client:

        async def read() -> tuple[int, int]:
            deltas = length = 0
            async with client.stream(wire.PROMPT) as events:
                async for event in events:
                    if isinstance(event, TextDelta):
                        deltas += 1
                        length += len(event.text)
            return deltas, length

        yield read


async def _run_and_wait(base_url: str, runs: int) -> None:
    async with coroutines(base_url) as run:
        for _ in range(runs):
            await run()
        print("ready", flush=True)
        sys.stdin.read()  # until the parent has looked; the client stays open


if __name__ == "__main__":
    asyncio.run(_run_and_wait(sys.argv[1], int(sys.argv[2])))
