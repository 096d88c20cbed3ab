"""The scenario as a careful programmer writes it for one program: aiohttp, orjson and a loop. The yardstick."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import aiohttp
import orjson

from benchmarks import wire
from benchmarks.contenders import plain_tools
from benchmarks.contenders.tools import add, weather

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from benchmarks.contenders import Read, Run

_MAX_STEPS = 20


_COROUTINES: Mapping[str, Any] = {"weather": weather, "add": add}
_THREADS: Mapping[str, Any] = {
    "weather": partial(asyncio.to_thread, plain_tools.weather),
    "add": partial(asyncio.to_thread, plain_tools.add),
}


def _session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        headers={"Authorization": f"Bearer {wire.API_KEY}", "Content-Type": "application/json"},
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=600),
    )


async def _call(tools: Mapping[str, Any], call: dict[str, Any]) -> dict[str, Any]:
    """Run one call and return its message. What goes wrong is told to the model."""
    function = call["function"]
    try:
        output = orjson.dumps(await tools[function["name"]](**orjson.loads(function["arguments"]))).decode()
    except Exception as exc:  # noqa: BLE001 - whatever the tool raises
        output = f"{type(exc).__name__}: {exc}"
    return {"role": "tool", "tool_call_id": call["id"], "content": output}


async def _run(session: aiohttp.ClientSession, url: str, tools: Mapping[str, Any]) -> str:
    messages: list[dict[str, Any]] = [{"role": "user", "content": wire.PROMPT}]
    for _ in range(_MAX_STEPS):
        body = orjson.dumps({"model": wire.MODEL, "messages": messages, "tools": wire.TOOLS})
        async with session.post(url, data=body) as response:
            payload = await response.read()
        if response.status != 200:
            raise RuntimeError(f"The model answered {response.status}.")
        message = orjson.loads(payload)["choices"][0]["message"]
        messages.append(message)
        calls = message.get("tool_calls")
        if not calls:
            return message["content"]
        messages.extend(await asyncio.gather(*(_call(tools, call) for call in calls)))
    raise RuntimeError("The model did not come to an end.")


async def _deltas(session: aiohttp.ClientSession, url: str) -> AsyncGenerator[str, None]:
    body = orjson.dumps(
        {"model": wire.MODEL, "messages": [{"role": "user", "content": wire.PROMPT}], "stream": True},
    )
    async with session.post(url, data=body) as response:
        if response.status != 200:
            raise RuntimeError(f"The model answered {response.status}.")
        tail = b""
        while chunk := await response.content.readany():
            *lines, tail = (tail + chunk).split(b"\n")
            for line in lines:
                if not line.startswith(b"data:"):
                    continue
                data = line[5:].strip()
                if data == b"[DONE]":
                    return
                for choice in orjson.loads(data)["choices"]:
                    if text := choice["delta"].get("content"):
                        yield text
    raise RuntimeError("The stream broke off.")


@asynccontextmanager
async def coroutines(base_url: str) -> AsyncGenerator[Run, None]:
    """Tools as coroutines."""
    async with _session() as session:
        yield lambda: _run(session, f"{base_url}/chat/completions", _COROUTINES)


@asynccontextmanager
async def threads(base_url: str) -> AsyncGenerator[Run, None]:
    """Tools as plain functions, each call in a worker thread."""
    async with _session() as session:
        yield lambda: _run(session, f"{base_url}/chat/completions", _THREADS)


@asynccontextmanager
async def stream(base_url: str) -> AsyncGenerator[Read, None]:
    """A streamed answer, delta by delta."""
    async with _session() as session:

        async def read() -> tuple[int, int]:
            count = length = 0
            async with aclosing(_deltas(session, f"{base_url}/chat/completions")) as deltas:
                async for text in deltas:
                    count += 1
                    length += len(text)
            return count, length

        yield read
