"""The protocol without a handshake, spoken with a server of the SDK."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
import uvicorn
from helpers import Changes, call, connected
from mcp.server.lowlevel import Server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged

from toolnexus.suspension import Suspension
from toolnexus.tools import ToolContext

SERVER = Path(__file__).parent / "fakes" / "fake_sdk.py"


def modern(*more: str) -> dict[str, Any]:
    return {"command": sys.executable, "args": [str(SERVER), *more]}


async def test_the_new_protocol_is_found_and_spoken() -> None:
    async with connected(modern()) as servers:
        [status] = servers.status()
        assert (status.state, status.protocol, status.server) == ("ready", "2026-07-28", "modern 2")
        assert (await call(servers, text="hi")).output == "hi"


async def test_a_call_that_needs_input_is_made_again_with_it() -> None:
    def wait_for(request: Any) -> Any:
        assert request["data"]["schema"]["properties"] == {"pier": {"type": "string"}}
        return {"id": request["id"], "ok": True, "data": {"pier": "north"}}

    async with connected(modern("asks"), wait_for=wait_for) as servers:
        result = await call(servers)
        assert result.output == "state-1 {'action': 'accept', 'content': {'pier': 'north'}}"


async def test_without_anybody_to_ask_the_run_waits_and_the_call_goes_on_with_the_answer() -> None:
    async with connected(modern("asks")) as servers:
        with pytest.raises(Suspension) as raised:
            await call(servers)
        asked = raised.value.asked
        assert (asked["kind"], asked["prompt"]) == ("elicitation", "s asks: Which pier?")
        ctx = ToolContext(tool="s_echo", answer={"id": "a", "ok": True, "data": {"pier": "south"}})
        result = await call(servers, ctx=ctx)
        assert result.output == "state-1 {'action': 'accept', 'content': {'pier': 'south'}}"


class Served:
    """A server of the SDK at a URL, in this process."""

    def __init__(self) -> None:
        self.bus = InMemorySubscriptionBus()
        self.listened = asyncio.Event()
        self.started, self.cancelled = asyncio.Event(), asyncio.Event()
        self.names = ["echo"]
        self.headers: list[dict[str, str]] = []
        listen = ListenHandler(self.bus)

        async def on_listen(ctx: Any, params: Any) -> Any:
            asyncio.get_running_loop().call_later(0.05, self.listened.set)
            return await listen(ctx, params)

        self.server = Server(
            "modern",
            version="2",
            on_list_tools=self._list,
            on_call_tool=self._call,
            on_subscriptions_listen=on_listen,
        )

    async def _list(self, ctx: Any, params: Any) -> types.ListToolsResult:
        schema = {"type": "object", "properties": {"pier": {"type": "string", "x-mcp-header": "Pier"}}}
        broken = {"type": "object", "properties": {"pier": {"type": "number", "x-mcp-header": "Pier"}}}
        tools = [types.Tool(name=name, input_schema=schema) for name in self.names]
        return types.ListToolsResult(tools=[*tools, types.Tool(name="broken", input_schema=broken)])

    async def _call(self, ctx: Any, params: Any) -> types.CallToolResult:
        self.headers.append(dict(ctx.request.headers))
        if (params.arguments or {}).get("pier") == "wait":
            self.started.set()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
        return types.CallToolResult(content=[types.TextContent(type="text", text="done")])


@pytest.fixture
async def served() -> AsyncIterator[tuple[Served, str]]:
    served = Served()
    app = served.server.streamable_http_app()
    web = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, lifespan="on", timeout_graceful_shutdown=1))
    task = asyncio.create_task(web.serve())
    while not web.started:  # noqa: ASYNC110 - it tells nobody
        await asyncio.sleep(0.01)
    yield served, f"http://127.0.0.1:{web.servers[0].sockets[0].getsockname()[1]}/mcp"
    web.should_exit = True
    await task


async def test_the_new_protocol_over_http(served: tuple[Served, str]) -> None:
    server, url = served
    changes = Changes()
    async with connected({"url": url}, on_change=changes) as servers:
        [status] = servers.status()
        assert (status.state, status.protocol, status.transport) == ("ready", "2026-07-28", "http")
        assert "x-mcp-header" in status.dropped["broken"]
        assert (await call(servers, pier="north")).output == "done"
        sent = server.headers[-1]
        assert (sent["mcp-method"], sent["mcp-name"], sent["mcp-param-pier"]) == ("tools/call", "echo", "north")

        running = asyncio.ensure_future(call(servers, pier="wait"))
        await server.started.wait()
        running.cancel()
        await asyncio.wait({running})
        await server.cancelled.wait()

        await server.listened.wait()
        server.names.append("new")
        await server.bus.publish(ToolsListChanged())
        await changes.until(lambda: [each.name for each in servers.tools()] == ["s_echo", "s_new"])
