"""What the tests of MCP connections share."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from toolnexus.sources.mcp.servers import MCPServers, connect_mcp
from toolnexus.tools import ToolContext, ToolResult

FAKE = Path(__file__).with_name("fake_stdio.py")


def program(how: str, *more: object, **entry: Any) -> dict[str, Any]:
    """The entry of a fake server that is a program."""
    return {"command": sys.executable, "args": [str(FAKE), how, *map(str, more)], **entry}


@asynccontextmanager
async def connected(entry: Mapping[str, Any] | str, *more: object, **options: Any) -> AsyncIterator[MCPServers]:
    """One server, called `s`."""
    server = program(entry, *more) if isinstance(entry, str) else entry
    options = {"startup_timeout": 20.0, "timeout": 20.0, **options}
    async with await connect_mcp({"mcpServers": {"s": server}}, **options) as servers:
        yield servers


async def call(
    servers: MCPServers, name: str = "s_echo", *, ctx: ToolContext | None = None, **arguments: Any
) -> ToolResult:
    tool = next(each for each in servers.tools() if each.name == name)
    result = await tool.execute(arguments, ctx or ToolContext(tool=name))
    assert isinstance(result, ToolResult)
    return result


class Changes:
    """Waits for what `on_change` tells."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def __call__(self, name: str) -> None:
        self._event.set()

    async def until(self, what: Callable[[], object]) -> None:
        """Wait until something is so. It is looked at whenever a change is told."""
        async with asyncio.timeout(20):
            while not what():
                self._event.clear()
                await self._event.wait()


async def appears(path: Path) -> None:
    """Wait for a file that another process writes."""

    def look() -> None:
        until = time.monotonic() + 20
        while not path.exists():
            assert time.monotonic() < until, f"{path} did not appear"
            time.sleep(0.01)

    await asyncio.to_thread(look)


def size_of(path: str) -> int:
    return Path(path).stat().st_size


async def in_proportion(call: Callable[[int], Awaitable[object]], few: int, many: int, most: float) -> None:
    """Whether `many` take at most `most` times as long as `few`, at best: what else the machine does only adds."""
    taken: list[dict[int, float]] = []
    for _ in range(4):
        best = {few: 60.0, many: 60.0}
        for _ in range(5):  # in turn, so that it falls on both alike
            for size in best:
                began = time.monotonic()
                await call(size)
                best[size] = min(best[size], time.monotonic() - began)
        taken.append(best)
        if best[many] <= most * best[few]:
            return
    raise AssertionError(taken)
