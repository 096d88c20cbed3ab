"""Uses a gateway through version 1 of the MCP SDK: `python sdk1.py URL` or `python sdk1.py COMMAND ARGUMENT…`."""

# ruff: noqa: T201 - what it prints is what it is for

import asyncio
import json
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client
from mcp.shared.exceptions import McpError


async def use(session: ClientSession) -> dict[str, object]:
    await session.initialize()
    far: list[float] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        far.append(done)

    tools = await session.list_tools()
    text = await session.call_tool("test_simple_text", {})
    failed = await session.call_tool("test_error_handling", {})
    await session.call_tool("test_tool_with_progress", {}, progress_callback=progress)
    try:
        unknown = str((await session.call_tool("nothing_of_the_kind", {})).isError)
    except McpError as error:
        unknown = str(error.error.code)
    return {
        "listed": "test_simple_text" in [tool.name for tool in tools.tools],
        "text": text.content[0].text,
        "failed": failed.isError,
        "progress": far,
        "unknown": unknown,
    }


async def main(target: list[str]) -> None:
    if target[0].startswith("http"):
        async with streamablehttp_client(target[0]) as (read, write, _), ClientSession(read, write) as session:
            print(json.dumps(await use(session)))
    else:
        server = StdioServerParameters(command=target[0], args=target[1:])
        async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
            print(json.dumps(await use(session)))


asyncio.run(main(sys.argv[1:]))
