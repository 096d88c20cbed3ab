"""A gateway for tests, and clients of the SDK that talk to it in both eras of the protocol."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from mcp import Client

from toolnexus import create_toolkit
from toolnexus.gateway.http import HTTPOptions, listening
from toolnexus.gateway.server import Gateway

ERAS = ["legacy", "2026-07-28"]


@asynccontextmanager
async def connected(era: str, tools: Any, *, skills: Any = None, upstreams: Any = (), **options: Any):
    """A client on a gateway in this process, and the gateway.

    Args:
        options: Of the client, but `on_call`, `with_arguments` and `client_approves`.
    """
    of_gateway = {
        name: options.pop(name) for name in ("on_call", "with_arguments", "client_approves") if name in options
    }
    toolkit = tools if hasattr(tools, "tools") else await create_toolkit(tools)
    gateway = Gateway(toolkit, skills=skills, upstreams=upstreams, **of_gateway)
    async with Client(gateway.server, mode=era, cache=None, **options) as client:
        yield client, gateway


@asynccontextmanager
async def served(tools: Any, *, options: HTTPOptions | None = None, **of_gateway: Any) -> AsyncGenerator[str]:
    """The URL of a gateway that listens on a free port."""
    toolkit = tools if hasattr(tools, "tools") else await create_toolkit(tools)
    gateway = Gateway(toolkit, **of_gateway)
    async with listening(gateway, options or HTTPOptions(port=0)) as url:
        yield url


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
START = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}},
}


async def post(url: str, body: Any = START, *, method: str = "POST", **headers: str | None) -> Reply:
    """Send one request as it is, and read the answer until the connection is closed.

    Args:
        headers: `_` stands for `-`; None leaves a header out that would be there.
    """
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    parts = urlsplit(url)
    all_headers: dict[str, str | None] = {
        "host": parts.netloc,
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "content-length": str(len(data)),
        "connection": "close",
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    lines = [f"{method} {parts.path} HTTP/1.1", *(f"{k}: {v}" for k, v in all_headers.items() if v is not None), "", ""]
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        writer.write("\r\n".join(lines).encode("latin-1") + data)
        await writer.drain()
        return read_reply(await reader.read())
    finally:
        writer.close()


def read_reply(raw: bytes) -> Reply:
    head, _, body = raw.partition(b"\r\n\r\n")
    first, *rest = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
    return Reply(int(first.split()[1]), headers, body)
