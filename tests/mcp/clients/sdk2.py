"""Uses a gateway through version 2 of the MCP SDK: `python sdk2.py URL` or `python sdk2.py COMMAND ARGUMENT…`."""

# ruff: noqa: T201 - what it prints is what it is for

import asyncio
import json
import sys

from mcp import Client, MCPError, StdioServerParameters


async def main(target: list[str]) -> None:
    http = target[0].startswith("http")
    far: list[float] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        far.append(done)

    async with Client(target[0] if http else StdioServerParameters(command=target[0], args=target[1:])) as client:
        tools = await client.list_tools()
        text = await client.call_tool("test_simple_text", {})
        failed = await client.call_tool("test_error_handling", {})
        await client.call_tool("test_tool_with_progress", {}, progress_callback=progress)
        try:
            unknown = str((await client.call_tool("nothing_of_the_kind", {})).is_error)
        except MCPError as error:
            unknown = str(error.code)
    told = {
        "listed": "test_simple_text" in [tool.name for tool in tools.tools],
        "text": text.content[0].text,
        "failed": failed.is_error,
        "progress": far,
        "unknown": unknown,
    }
    print(json.dumps(told))


asyncio.run(main(sys.argv[1:]))
