"""A real HTTP server on this machine that says what it got, or answers as a function says."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

from aiohttp import web

Answer = Callable[["Got"], Any]


@dataclass
class Got:
    """A request that arrived. `raw` is path and query as they came; header names are in lower case."""

    method: str
    raw: str
    path: str
    headers: dict[str, str]
    body: bytes
    connection: int

    @property
    def query(self) -> list[tuple[str, str]]:
        """The query, decoded, in its order."""
        return parse_qsl(self.raw.partition("?")[2], keep_blank_values=True)

    @property
    def form(self) -> list[tuple[str, str]]:
        return parse_qsl(self.body.decode(), keep_blank_values=True)


@dataclass
class EchoServer:
    url: str
    got: list[Got] = field(default_factory=list)
    parts: list[list[dict[str, Any]]] = field(default_factory=list)

    @property
    def last(self) -> Got:
        return self.got[-1]


@asynccontextmanager
async def echo_server(answer: Answer | None = None) -> AsyncIterator[EchoServer]:
    """Serve until the block ends. `answer(got)`, plain or async, gives a `web.Response`, a text, or JSON; without it
    the answer is `ok`. What is multipart is in `parts`, read by somebody else's code."""

    async def handle(request: web.Request) -> web.StreamResponse:
        if request.content_type.startswith("multipart/"):
            reader, parts = await request.multipart(), []
            async for part in reader:
                headers = {name.lower(): value for name, value in part.headers.items()}
                parts.append(
                    {"name": part.name, "filename": part.filename, "headers": headers, "data": bytes(await part.read())}
                )
            served.parts.append(parts)
            body = b""
        else:
            body = await request.read()
        headers = {name.lower(): value for name, value in request.headers.items()}
        peer = request.transport.get_extra_info("peername")[1] if request.transport else 0
        got = Got(request.method, request.raw_path, request.path, headers, body, peer)
        served.got.append(got)
        reply = "ok" if answer is None else answer(got)
        if inspect.isawaitable(reply):
            reply = await reply
        if isinstance(reply, web.StreamResponse):
            return reply
        return web.Response(text=reply) if isinstance(reply, str) else web.json_response(reply)

    served = EchoServer("")
    app = web.Application(client_max_size=1 << 30)
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    served.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield served
    finally:
        await runner.cleanup()
