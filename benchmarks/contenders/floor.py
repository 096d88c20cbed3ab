"""The scenario on plain asyncio sockets: what no HTTP client and no library can go below."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import orjson

from benchmarks import wire
from benchmarks.contenders.tools import add, weather

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from benchmarks.contenders import Run


@asynccontextmanager
async def floor(base_url: str) -> AsyncGenerator[Run, None]:
    """One connection, one run at a time."""
    url = urlsplit(base_url)
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    head = (
        f"POST {url.path}/chat/completions HTTP/1.1\r\nHost: {url.netloc}\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {wire.API_KEY}\r\nContent-Length: "
    ).encode()

    async def post(body: dict[str, Any]) -> dict[str, Any]:
        payload = orjson.dumps(body)
        writer.write(b"%b%d\r\n\r\n%b" % (head, len(payload), payload))
        answer = await reader.readuntil(b"\r\n\r\n")
        if not answer.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(answer.decode())
        _, _, rest = answer.partition(b"Content-Length: ")
        reply = orjson.loads(await reader.readexactly(int(rest.partition(b"\r\n")[0])))
        return reply["choices"][0]["message"]

    async def run() -> str:
        messages: list[dict[str, Any]] = [{"role": "user", "content": wire.PROMPT}]
        body = {"model": wire.MODEL, "messages": messages, "tools": wire.TOOLS}
        while True:
            message = await post(body)
            messages.append(message)
            if not message.get("tool_calls"):
                return message["content"]
            for call in message["tool_calls"]:
                arguments = orjson.loads(call["function"]["arguments"])
                output = await _TOOLS[call["function"]["name"]](**arguments)
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": orjson.dumps(output).decode()})

    try:
        yield run
    finally:
        writer.close()
        await writer.wait_closed()


_TOOLS: dict[str, Any] = {"weather": weather, "add": add}
