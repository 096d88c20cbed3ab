"""A gateway in front of a real MCP server, which is another gateway."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from gateways import ERAS, served
from mcp import Client, types

from toolnexus import ToolContext, create_toolkit, suspend
from toolnexus.gateway.upstreams import ServerBehind

PNG = "iVBORw0KGgo="
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"name": {"type": "string"}}}


def greet(ctx: ToolContext) -> str:
    """Greets a person."""
    if ctx.answer is None:
        suspend("elicitation", "What is your name?", data={"schema": SCHEMA})
    return f"Hello, {ctx.answer['data']['name']}!"


def picture() -> dict[str, Any]:
    """A picture."""
    return {"type": "image", "data": PNG, "mimeType": "image/png"}


def fail() -> None:
    """Fails."""
    raise ValueError("no luck")


async def work(ctx: ToolContext) -> dict[str, int]:
    """Works."""
    for done in (0.0, 0.5, 1.0):
        ctx.progress("", done)
    return {"done": 3}


class Papers:
    async def list_resources(self) -> list[dict[str, Any]]:
        return [{"uri": "papers://a", "name": "a"}]

    async def list_resource_templates(self) -> list[dict[str, Any]]:
        return []

    async def read_resource(self, uri: str, ctx: ToolContext) -> dict[str, Any] | None:
        return {"contents": [{"uri": uri, "text": "paper a"}]} if uri == "papers://a" else None

    async def list_prompts(self) -> list[dict[str, Any]]:
        return [{"name": "review"}]

    async def get_prompt(self, name: str, arguments: Mapping[str, str], ctx: ToolContext) -> dict[str, Any] | None:
        return {"messages": [{"role": "user", "content": {"type": "text", "text": f"Review {arguments['what']}"}}]}

    async def complete(self, params: dict[str, Any]) -> dict[str, Any] | None:
        return None

    async def watch(self, uri: str, wanted: bool) -> None:
        return None


@pytest.mark.parametrize("era", ERAS)
async def test_tools_prompts_resources_and_questions_of_a_server_behind_reach_the_client(era: str) -> None:
    asked: list[str] = []
    far: list[float] = []

    async def person(_: Any, params: Any) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={"name": "Ada"})

    async def progress(done: float, total: float | None, message: str | None) -> None:
        far.append(done)

    async with (
        served([greet, picture, fail, work], upstreams=[Papers()]) as behind,
        await create_toolkit(mcp_config={"mcpServers": {"far": {"url": behind}}}) as toolkit,
        served(toolkit, upstreams=[ServerBehind(toolkit.mcp("far"))]) as url,
        Client(url, mode=era, elicitation_callback=person) as client,
    ):
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert names == ["far_greet", "far_picture", "far_fail", "far_work"]
        failed = await client.call_tool("far_fail", {})
        assert (failed.is_error, failed.content[0].text) == (True, "ValueError: no luck")
        shown = await client.call_tool("far_picture", {})
        assert [block.data for block in shown.content if block.type == "image"] == [PNG]
        worked = await client.call_tool("far_work", {}, progress_callback=progress)
        assert worked.structured_content == {"done": 3}
        assert (await client.read_resource("papers://a")).contents[0].text == "paper a"
        prompt = await client.get_prompt("far_review", {"what": "it"})
        assert prompt.messages[0].content.text == "Review it"
        greeted = await client.call_tool("far_greet", {})
        assert greeted.content[0].text == "Hello, Ada!"
    assert far[-1] == 1.0
    assert len(asked) == 1
    assert "What is your name?" in asked[0]
