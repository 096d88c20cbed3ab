"""Uses a server through our client, as the conformance suite asks: `python conformance_client.py URL`.

It signs in where that is wanted, and uses whatever there is: each tool, each resource, each prompt. Which scenario it
is does not matter; what has to be known beforehand is in the environment.
"""

# ruff: noqa: T201 - what it prints is what it is for

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

import httpx2

from toolnexus.errors import ToolnexusError
from toolnexus.sources.mcp.servers import MCPServers, connect_mcp
from toolnexus.tools import Tool, ToolContext, ToolResult

CONTEXT: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
ABOUT_US = "https://conformance-test.local/client-metadata.json"
SIGNING_IN = 5.0
MOST_ATTEMPTS = 3
SAMPLES: dict[str, Any] = {"string": "text", "integer": 1, "number": 1.5, "boolean": True, "array": [], "object": {}}


class Changes:
    """Waits for a server to be ready."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def __call__(self, name: str) -> None:
        self._event.set()

    async def ready(self, servers: MCPServers) -> None:
        async with asyncio.timeout(SIGNING_IN):
            while servers.status()[0].state != "ready":
                self._event.clear()
                await self._event.wait()


def sample(schema: Any) -> dict[str, Any]:
    """Values for the properties that have no default: an `object` is whatever SAMPLES holds then."""
    properties = schema.get("properties", {}) if isinstance(schema, dict) else {}
    return {
        name: each["enum"][0] if "enum" in each else SAMPLES.get(each.get("type"), "text")
        for name, each in properties.items()
        if isinstance(each, dict) and "default" not in each
    }


async def answer(request: Any) -> Any:
    """Somebody who signs in and agrees."""
    if request["kind"] == "authorization":
        async with httpx2.AsyncClient() as browser:
            sent_back = await browser.get(request["url"])
        return {"id": request["id"], "ok": True, "data": {"url": sent_back.headers["location"]}}
    return {"id": request["id"], "ok": True, "data": sample(request["data"]["schema"])}


async def call(servers: MCPServers, changes: Changes, tool: Tool, arguments: dict[str, Any]) -> None:
    """Call a tool; if somebody has to sign in for it first, again, but not for ever."""
    for _ in range(MOST_ATTEMPTS):
        result = await tool.execute(arguments, ToolContext(tool=tool.name))
        assert isinstance(result, ToolResult)
        print(f"{tool.name}: {result.output}")
        if result.metadata.get("fault") != "needs_auth":
            return
        await changes.ready(servers)
    sys.exit(f"{tool.name} wants a sign-in again and again.")


async def main(url: str) -> None:
    entry: dict[str, Any] = {"type": "http", "url": url}
    if "client_id" in CONTEXT:
        entry["oauth"] = {"clientId": CONTEXT["client_id"], "clientSecret": CONTEXT.get("client_secret")}
    changes = Changes()
    config = {"mcpServers": {"s": entry}}
    options: dict[str, Any] = {"wait_for": answer, "on_change": changes, "client_metadata_url": ABOUT_US}
    async with await connect_mcp(config, startup_timeout=20.0, timeout=20.0, **options) as servers:
        try:
            await changes.ready(servers)
        except TimeoutError:
            sys.exit(str(servers.status()))
        print(servers.status())
        wanted = CONTEXT.get("toolCalls")
        tools = {str(tool.name).removeprefix("s_"): tool for tool in servers.tools()}
        if wanted is None:
            SAMPLES["object"] = next((tool.input_schema for tool in tools.values()), {})  # it is to come back unchanged
            wanted = [{"name": name, "arguments": sample(tool.input_schema)} for name, tool in tools.items()]
        for each in wanted:
            await call(servers, changes, tools[each["name"]], each["arguments"])
        server = servers.get("s")
        try:
            for resource in await server.list_resources():
                print(await server.read_resource(resource["uri"]))
            for prompt in await server.list_prompts():
                given = {each["name"]: "text" for each in prompt.get("arguments", [])}
                print(await server.get_prompt(prompt["name"], given))
        except ToolnexusError as error:
            print(error)


asyncio.run(main(sys.argv[1]))
