"""MCP servers in a toolkit: beside other tools, between runs, and closed with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers import Changes, program
from scripts import scripted

from toolnexus import ConfigurationError, create_toolkit
from toolnexus.sources.mcp.servers import connect_mcp
from toolnexus.testing import call, openai_reply

CONFIG: dict[str, Any] = {"mcpServers": {"s": program("well"), "gone": {"command": "/nowhere/at/all"}}}


def s_echo(text: str) -> str:
    return "mine"


async def test_a_run_calls_the_tools_of_servers_beside_those_of_the_host() -> None:
    def add(a: int, b: int) -> int:
        return a + b

    steps = [openai_reply(calls=[call("add", a=1, b=2), call("s_echo", text="hi")]), openai_reply("Done.")]
    client, _ = scripted(*steps)
    async with client, await create_toolkit([add], mcp_config=CONFIG) as toolkit:
        result = await client.run("Go.", toolkit)
        assert [each.output for each in result.tool_calls] == ["3", "hi"]
        assert [(each.name, each.state) for each in toolkit.mcp_status()] == [("s", "ready"), ("gone", "failed")]
        assert toolkit.mcp("s").name == "s"
        with pytest.raises(ConfigurationError, match=r"There is no MCP server 'x'\. There are: 's', 'gone'"):
            toolkit.mcp("x")
    assert toolkit.mcp_status()[0].state == "closed"


async def test_a_server_does_not_replace_a_function_of_the_host() -> None:
    async with await create_toolkit([s_echo], mcp_config=CONFIG) as toolkit:
        assert (await toolkit.execute("s_echo", {"text": "hi"})).output == "mine"
        [clash] = [each for each in toolkit.status() if each.name == "s_echo" and each.source == "mcp"]
        assert (clash.state, clash.reason) == ("clash", "a tool of the source 'native' has the name")


async def test_servers_may_be_connected_by_the_host_and_what_they_offer_may_change(tmp_path: Path) -> None:
    changes = Changes()
    flag = tmp_path / "changed"
    servers = await connect_mcp({"mcpServers": {"s": program("changing", flag)}}, on_change=changes)
    async with await create_toolkit(mcp_config=servers) as toolkit:
        before = toolkit.tools()
        await toolkit.execute("s_echo", {"text": "hi"})
        await changes.until(lambda: toolkit.tools() != before)
        assert {each.name for each in toolkit.tools()} != {each.name for each in before}
    assert servers.status()[0].state == "closed"


async def test_without_a_configuration_there_are_no_servers() -> None:
    toolkit = await create_toolkit()
    assert toolkit.mcp_status() == []
    with pytest.raises(ConfigurationError, match="was made without mcp_config"):
        toolkit.mcp("s")


async def test_a_configuration_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"mcp\.json"):
        await create_toolkit(mcp_config=tmp_path / "mcp.json")
