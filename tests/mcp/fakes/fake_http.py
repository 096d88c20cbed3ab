"""An MCP server over HTTP of a few lines, that does one thing wrong."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

Object = dict[str, Any]
ABOUT = {"name": "fake", "version": "1"}
ECHO = {"name": "echo", "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}}}


class Fake:
    """What happened, and what is to happen.

    Attributes:
        how: What it does wrong.
        sessions: Those that it knows.
        calls: How many calls it has executed.
        cancelled: The ids of the requests that were cancelled.
    """

    def __init__(self, how: str = "well", *, port: int = 0) -> None:
        self.how = how
        self.port = port
        self.sessions: set[str] = set()
        self.opened = 0
        self.calls = 0
        self.requests: list[Object] = []
        self.headers: list[dict[str, str]] = []
        self.cancelled: list[Any] = []
        self.called = asyncio.Event()
        self.heard = asyncio.Event()
        self.release = asyncio.Event()
        self._events: list[asyncio.Queue[Object | None]] = []
        self.listens = asyncio.Event()
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    async def start(self) -> None:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_route("*", "/mcp", self._handle)
        app.router.add_post("/messages", self._message)
        app.router.add_route("*", "/{other:.*}", self.elsewhere)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def elsewhere(self, request: web.Request) -> web.Response:
        return web.Response(status=404)

    async def stop(self) -> None:
        self.release.set()
        for events in self._events:
            events.put_nowait(None)
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        self.release = asyncio.Event()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        if self.how.isdigit():
            return web.Response(
                status=int(self.how), text="go away, key sk-verysecret", headers={"WWW-Authenticate": "Bearer"}
            )
        if self.how == "html":
            return web.Response(text="<html><body>Please log in</body></html>", content_type="text/html")
        if self.how == "sse":
            return await self._events_of(request) if request.method == "GET" else web.Response(status=405)
        if request.method == "GET":
            return await self._told(request)
        if request.method == "DELETE":
            return web.Response(status=200)
        message = await request.json()
        self.requests.append(message)
        return await self._post(request, message)

    async def _post(self, request: web.Request, message: Object) -> web.StreamResponse:
        method = message.get("method")
        if method == "notifications/cancelled":
            self.cancelled.append(message["params"]["requestId"])
            self.heard.set()
        if "id" not in message or method is None:
            return web.Response(status=202)
        if method == "server/discover":
            if self.how == "closes_probe" and request.transport is not None:
                request.transport.close()
            return web.json_response(
                {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "no session"}}, status=400
            )
        if method == "initialize":
            self.opened += 1
            session = f"session-{self.opened}"
            self.sessions.add(session)
            return self._json(
                message,
                {
                    "protocolVersion": "2025-06-18",
                    "capabilities": {"tools": {"listChanged": True}},
                    "serverInfo": {"name": "fake", "version": "1"},
                },
                session,
            )
        if request.headers.get("mcp-session-id") not in self.sessions:
            return web.json_response(
                {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "Session not found"}}, status=404
            )
        if method == "tools/list":
            return self._json(message, {"tools": [ECHO]})
        return await self._call(request, message)

    async def _call(self, request: web.Request, message: Object) -> web.StreamResponse:
        self.called.set()
        if self.how == "500":
            return web.Response(status=500, text="out of tide")
        self.calls += 1
        if self.how == "hang":
            await self.release.wait()
        if self.how == "drops":
            assert request.transport is not None
            request.transport.close()
            return web.Response()
        if self.how == "cut_json":
            response = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": "1000"})
            await response.prepare(request)
            await response.write(b'{"jsonrpc": "2.0", "id"')
            assert request.transport is not None
            request.transport.close()
            return response
        text = (
            "x" * int(message["params"]["arguments"]["text"])
            if self.how == "big"
            else str(message["params"]["arguments"].get("text"))
        )
        result = {"content": [{"type": "text", "text": text}]}
        if self.how in ("stream", "cut_stream", "big"):
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            if self.how == "cut_stream":
                assert request.transport is not None
                request.transport.close()
                return response
            await response.write(
                b"data: " + json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode() + b"\n\n"
            )
            return response
        return self._json(message, result)

    def _refused(self, status: int, message: str) -> web.Response:
        error = {"code": -32600, "message": message}
        return web.json_response({"jsonrpc": "2.0", "id": None, "error": error}, status=status)

    def _json(self, message: Object, result: Object, session: str | None = None) -> web.Response:
        headers = {} if session is None else {"Mcp-Session-Id": session}
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": result}, headers=headers)

    async def _told(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        events: asyncio.Queue[Object | None] = asyncio.Queue()
        self._events.append(events)
        self.listens.set()
        while (event := await events.get()) is not None:
            await response.write(b"data: " + json.dumps(event).encode() + b"\n\n")
        return response

    async def _events_of(self, request: web.Request) -> web.StreamResponse:
        """The older transport's stream."""
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"event: endpoint\ndata: /messages\n\n")
        events: asyncio.Queue[Object | None] = asyncio.Queue()
        self._events.append(events)
        self.listens.set()
        while (event := await events.get()) is not None:
            await response.write(b"event: message\ndata: " + json.dumps(event).encode() + b"\n\n")
        return response

    async def _message(self, request: web.Request) -> web.Response:
        message = await request.json()
        self.requests.append(message)
        if "id" not in message:
            return web.Response(status=202)
        method = message["method"]
        if method == "tools/call" and message["params"]["arguments"].get("text") == "refuse":
            return web.Response(status=500, text="no")
        result: Object | None = {
            "initialize": {
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "serverInfo": {"name": "old", "version": "1"},
            },
            "tools/list": {"tools": [ECHO]},
            "tools/call": {"content": [{"type": "text", "text": "over sse"}]},
        }.get(method)
        answer: Object = {"result": result} if result else {"error": {"code": -32601, "message": "no"}}
        self._events[-1].put_nowait({"jsonrpc": "2.0", "id": message["id"], **answer})
        return web.Response(status=202)


@asynccontextmanager
async def serving(how: str = "well") -> AsyncIterator[Fake]:
    fake = Fake(how)
    await fake.start()
    try:
        yield fake
    finally:
        await fake.stop()
