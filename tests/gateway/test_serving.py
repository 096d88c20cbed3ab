"""`serve_mcp`, and how it ends."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from typing import Any

import pytest
from gateways import post
from mcp import Client

from toolnexus import ConfigurationError, SkillDef, create_toolkit
from toolnexus.gateway.serving import serve_mcp


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def test_a_toolkit_serves_its_tools_and_its_skills_until_it_is_cancelled() -> None:
    toolkit = await create_toolkit([add], skills=SkillDef(name="told", description="Tells.", body="Tell."))
    url: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(toolkit.serve_mcp("http", port=0, on_ready=url.set_result))
    async with Client(await url, mode="legacy") as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["add", "skill"]
        assert [each.name for each in (await client.list_resources()).resources] == ["told"]
        assert (await client.call_tool("add", {"a": 1, "b": 2})).content[0].text == "3"
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    with pytest.raises(ConnectionError):
        await post(await url)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"transport": "carrier pigeon"}, "choose 'stdio' or 'http'"),
        ({"transport": "http", "host": "0.0.0.0"}, "Give a token"),
        ({"transport": "http", "path": "mcp"}, "has to begin with '/'"),
        ({"transport": "http", "token": ""}, "at least one character"),
        ({"transport": "http", "token": "ü"}, "printable ASCII"),
        ({"transport": "http", "allowed_origins": "https://app.example"}, "a list of hosts or origins"),
        ({"on_call": 3}, "give a function"),
    ],
)
async def test_what_cannot_be_meant_is_refused(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        await serve_mcp(await create_toolkit([add]), **wrong)


PROGRAM = """
import asyncio
from toolnexus import create_toolkit

async def main():
    toolkit = await create_toolkit([])
    await toolkit.serve_mcp("http", port=0, on_ready=lambda url: print(url, flush=True))
    print("ended", flush=True)

asyncio.run(main())
"""


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_order(number: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("http://127.0.0.1:")
        process.send_signal(number)
        assert process.stdout.read() == "ended\n"
        assert process.wait(60) == 0


def test_without_the_sdk_it_says_what_to_install() -> None:
    program = """
import asyncio, sys
sys.modules["mcp_types"] = None
from toolnexus import Toolkit
from toolnexus.errors import MissingExtra
try:
    asyncio.run(Toolkit().serve_mcp())
except MissingExtra as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "pip install 'toolnexus[mcp]'" in done.stdout
