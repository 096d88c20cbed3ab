"""Connections are opened, used and closed from any task, in any order, also when somebody is cancelled meanwhile."""

from __future__ import annotations

import asyncio
import sys

import psutil
import pytest
from helpers import call, program

from toolnexus.sources.mcp._watchdog import Watchdog
from toolnexus.sources.mcp.servers import MCPServers, connect_mcp

CONFIG = {"mcpServers": {"s": program("well"), "t": program("well")}}
STUBBORN = {"mcpServers": {"s": program("stubborn")}}


async def test_opened_in_one_task_used_in_another_closed_in_a_third() -> None:
    servers = await asyncio.create_task(connect_mcp(CONFIG))
    assert (await asyncio.create_task(call(servers, text="hi"))).output == "hi"
    await asyncio.create_task(servers.aclose())
    assert [each.state for each in servers.status()] == ["closed", "closed"]
    await servers.aclose()


async def test_two_are_closed_in_the_order_in_which_they_were_opened() -> None:
    first, second = await connect_mcp(CONFIG), await connect_mcp(CONFIG)
    await first.aclose()
    assert (await call(second, text="hi")).output == "hi"
    await second.aclose()


async def test_a_call_after_the_end_says_so() -> None:
    servers = await connect_mcp(CONFIG)
    tools = servers.tools()
    await servers.aclose()
    result = await call(servers, text="hi")
    assert result.is_error
    assert "it is closed" in result.output
    assert servers.tools() == tools


async def test_closing_under_wait_for_goes_on_beyond_it() -> None:
    servers = await connect_mcp(STUBBORN)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(servers.aclose(), 0.05)
    await servers.aclose()
    assert servers.status()[0].state == "closed"


async def test_closing_after_a_cancelled_call() -> None:
    servers = await connect_mcp({"mcpServers": {"s": program("hang_call")}})
    running = asyncio.create_task(call(servers))
    await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait({running})
    await servers.aclose()
    assert servers.status()[0].state == "closed"


async def test_closing_ends_calls_that_are_under_way() -> None:
    servers = await connect_mcp({"mcpServers": {"s": program("hang_call")}})
    running = asyncio.create_task(call(servers))
    await asyncio.sleep(0.05)
    await servers.aclose()
    result = await running
    assert result.is_error
    assert "lost" in result.output


@pytest.mark.parametrize("how", ["hang_connect", "silent_probe", "hang_list"])
async def test_closing_while_it_connects(how: str) -> None:
    servers = await connect_mcp({"mcpServers": {"s": program(how)}}, startup_budget=0.2)
    async with asyncio.timeout(10):
        await servers.aclose()
    assert servers.status()[0].state == "closed"


async def test_a_cancelled_start_leaves_nothing() -> None:
    starting = asyncio.create_task(connect_mcp({"mcpServers": {"s": program("hang_connect")}}))
    await asyncio.sleep(0.3)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting


async def test_many_close_at_once() -> None:
    async with await connect_mcp(CONFIG) as servers:
        await asyncio.gather(*(servers.aclose() for _ in range(5)))


def test_a_loop_that_ends_takes_its_servers_along() -> None:
    async def main() -> MCPServers:
        return await connect_mcp(CONFIG)

    servers = asyncio.run(main())
    assert [each.state for each in servers.status()] == ["closed", "closed"]


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such processes there")
def test_a_watchdog_that_does_not_answer_is_let_go_all_the_same() -> None:
    before = set(psutil.Process().children())
    watchdog = Watchdog(psutil.Process().pid, "no such mark")
    [process] = set(psutil.Process().children()) - before
    process.suspend()
    watchdog.release()
    assert not process.is_running()
