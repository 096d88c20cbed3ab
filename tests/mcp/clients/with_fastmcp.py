"""Uses a gateway through fastmcp: `python with_fastmcp.py URL` or `python with_fastmcp.py COMMAND ARGUMENT…`."""

# ruff: noqa: T201 - what it prints is what it is for

import asyncio
import json
import sys

from fastmcp import Client
from fastmcp.client.transports import StdioTransport


async def main(target: list[str]) -> None:
    http = target[0].startswith("http")
    far: list[float] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        far.append(done)

    async with Client(target[0] if http else StdioTransport(command=target[0], args=target[1:])) as client:
        tools = await client.list_tools()
        text = await client.call_tool("test_simple_text", {})
        failed = await client.call_tool("test_error_handling", {}, raise_on_error=False)
        await client.call_tool("test_tool_with_progress", {}, progress_handler=progress)
        try:
            unknown = str((await client.call_tool("nothing_of_the_kind", {}, raise_on_error=False)).is_error)
        except Exception as error:
            unknown = str(getattr(error, "code", None) or getattr(getattr(error, "error", None), "code", error))
    told = {
        "listed": "test_simple_text" in [tool.name for tool in tools],
        "text": text.content[0].text,
        "failed": failed.is_error,
        "progress": far,
        "unknown": unknown,
    }
    print(json.dumps(told))


asyncio.run(main(sys.argv[1:]))
