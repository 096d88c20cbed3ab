"""A server of the SDK, which speaks both protocols; with a word it asks back, in the way of the new one."""

import sys
from typing import Any

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}}


async def list_tools(ctx: Any, params: Any) -> types.ListToolsResult:
    return types.ListToolsResult(tools=[types.Tool(name="echo", input_schema=SCHEMA)])


async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> Any:
    if sys.argv[1:] == ["asks"]:
        if not params.input_responses:
            asked = types.ElicitRequest(
                params=types.ElicitRequestFormParams(
                    message="Which pier?",
                    requested_schema={"type": "object", "properties": {"pier": {"type": "string"}}},
                )
            )
            return types.InputRequiredResult(input_requests={"q": asked}, request_state="state-1")
        answer = params.input_responses["q"]
        text = f"{params.request_state} {answer.model_dump(by_alias=True, exclude_none=True)}"
    else:
        text = str((params.arguments or {}).get("text"))
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)])


async def main() -> None:
    server = Server("modern", version="2", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


anyio.run(main)
