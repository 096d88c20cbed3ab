"""A real model server on this machine, scripted by a function of the request."""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Answer = Callable[["Seen"], Any]


@dataclass
class Seen:
    """A request that arrived. `number` counts from 1."""

    number: int
    path: str
    body: dict[str, Any]
    headers: dict[str, str]
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the client has hung up, if the answer was still being written."""

    @property
    def said(self) -> list[dict[str, Any]]:
        """The messages, without system ones."""
        return [message for message in self.body["messages"] if message["role"] != "system"]


@dataclass
class Server:
    url: str
    seen: list[Seen] = field(default_factory=list)

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [seen.body for seen in self.seen]


@dataclass
class Status:
    """An answer with a status, JSON or text, and headers."""

    status: int
    body: Any
    headers: dict[str, str] = field(default_factory=dict)


@asynccontextmanager
async def server(answer: Answer) -> AsyncIterator[Server]:
    """Serve until the block ends. `answer(seen)`, plain or async, gives a JSON value, a `Status`, or an (async)
    iterable of byte chunks that are streamed as server-sent events."""
    running: list[asyncio.Task[Any]] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        body = json.loads(await request.read() or b"null")
        seen = Seen(len(served.seen) + 1, request.path, body, {k.lower(): v for k, v in request.headers.items()})
        served.seen.append(seen)
        reply = answer(seen)
        if inspect.isawaitable(reply):
            reply = await reply
        if isinstance(reply, Status):
            text = reply.body if isinstance(reply.body, str) else json.dumps(reply.body)
            kind = "text/plain" if isinstance(reply.body, str) else "application/json"
            return web.Response(status=reply.status, text=text, headers={"content-type": kind, **reply.headers})
        if isinstance(reply, dict):
            return web.json_response(reply)
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        try:
            async for chunk in _aiter(reply):
                await response.write(chunk)
            await response.write_eof()
        except (ConnectionError, asyncio.CancelledError):
            seen.gone.set()
            raise
        return response

    served = Server("")
    app = web.Application(client_max_size=1 << 30)
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    served.url = f"http://127.0.0.1:{port}/v1"
    try:
        yield served
    finally:
        for task in running:
            task.cancel()
        await runner.cleanup()


@contextmanager
def serving(answer: Answer) -> Iterator[Server]:
    """A model server in a thread of its own, for callers that block."""
    started, over = threading.Event(), threading.Event()
    found: list[Server] = []

    async def serve() -> None:
        async with server(answer) as served:
            found.append(served)
            started.set()
            await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert started.wait(30)
    try:
        yield found[0]
    finally:
        over.set()
        thread.join()


async def _aiter(chunks: Any) -> AsyncIterator[bytes]:
    if hasattr(chunks, "__aiter__"):
        async for chunk in chunks:
            yield chunk
    else:
        for chunk in chunks:
            yield chunk


def said(text: str | None = None, *calls: tuple[str, dict[str, Any]], finish: str | None = None) -> dict[str, Any]:
    """A whole OpenAI-style reply."""
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = [
            {"id": f"call_{n}", "type": "function", "function": {"name": name, "arguments": json.dumps(args)}}
            for n, (name, args) in enumerate(calls)
        ]
    reason = finish or ("tool_calls" if calls else "stop")
    return {
        "id": "r",
        "object": "chat.completion",
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
    }


def event(payload: Any) -> bytes:
    return b"data: " + json.dumps(payload).encode() + b"\n\n"


def delta(text: str) -> bytes:
    return event(
        {"id": "r", "model": "m", "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]}
    )


def streamed(*texts: str, calls: tuple[tuple[str, dict[str, Any]], ...] = ()) -> list[bytes]:
    """A streamed OpenAI-style reply, one chunk a piece."""
    asked = [
        event(
            {
                "choices": [
                    {
                        "index": 0,
                        "delta": {
                            "tool_calls": [
                                {
                                    "index": n,
                                    "id": f"call_{n}",
                                    "type": "function",
                                    "function": {"name": name, "arguments": json.dumps(args)},
                                }
                            ]
                        },
                    }
                ]
            }
        )
        for n, (name, args) in enumerate(calls)
    ]
    reason = "tool_calls" if calls else "stop"
    end = event({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
    return [*map(delta, texts), *asked, end, b"data: [DONE]\n\n"]


def in_kind(seen: Seen, text: str | None = None, *calls: tuple[str, dict[str, Any]]) -> Any:
    """An answer in the framing that was asked for."""
    if seen.body.get("stream"):
        return streamed(*([text] if text else []), calls=calls)
    return said(text, *calls)
