"""A mock model on a local port, in a process of its own, that costs as little as it can.

It reads of a request what it needs to choose one of a few answers, which are encoded when it starts.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from benchmarks import wire

if TYPE_CHECKING:
    from collections.abc import Generator

_HEAD_END = b"\r\n\r\n"
_MAX_HEAD = 65536


def _whole(body: bytes, status: str = "200 OK") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def _streamed(events: list[bytes]) -> bytes:
    """One HTTP chunk for each event, as model servers send them, all in one write."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunks = [b"%x\r\n%b\r\n" % (len(event), event) for event in events]
    return b"".join([head, *chunks, b"0\r\n\r\n"])


_WHOLE = (_whole(wire.whole_calls()), _whole(wire.whole_answer()))
_STREAMED = (_streamed(wire.streamed_calls()), _streamed(wire.streamed_answer()))
_BURST = _streamed(wire.burst())
_REFUSED = _whole(b'{"error":{"message":"not a request of the scenario"}}', "400 Bad Request")


def answer(path: bytes, body: bytes) -> bytes:
    """Choose the whole HTTP answer. The tool results after the last user message say how far the scenario is."""
    streams = b'"stream":true' in body
    if path.startswith(wire.BURST.encode()):
        return _BURST if streams else _REFUSED
    results = body.count(b'"tool_call_id"', body.rfind(b'"user"'))
    if results not in (0, len(wire.CALLS)) or (results and not all(result in body for result in wire.RESULTS)):
        return _REFUSED
    return (_STREAMED if streams else _WHOLE)[results > 0]


class _Connection(asyncio.Protocol):
    """Requests of one keep-alive connection, one after the other. Only `Content-Length` bodies are understood."""

    _transport: asyncio.Transport

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._pending = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._pending += data
        end = self._pending.find(_HEAD_END)
        if end < 0:
            if len(self._pending) > _MAX_HEAD:
                self._transport.abort()
            return
        head = self._pending[:end]
        _, _, rest = head.lower().partition(b"\r\ncontent-length:")
        start = end + len(_HEAD_END)
        stop = start + int(rest.partition(b"\r\n")[0] or b"0")
        if len(self._pending) < stop:
            return
        body, self._pending = self._pending[start:stop], self._pending[stop:]
        path = head.split(b" ", 2)[1]
        reply = answer(path, body)
        if path.startswith(wire.SLOW.encode()):
            self._loop.call_later(wire.DELAY, self._send, reply)
        else:
            self._send(reply)

    def _send(self, reply: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(reply)


@contextmanager
def running() -> Generator[str, None, None]:
    """Start the server in a process of its own and give its origin, such as `http://127.0.0.1:4711`."""
    command = [sys.executable, "-m", "benchmarks.server"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            port = process.stdout.readline().strip()
            if not port:
                raise RuntimeError("The mock server did not start.")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.stdin.close()
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(partial(_Connection, loop), "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)

    stopped = asyncio.Event()

    def wait_for_parent() -> None:
        sys.stdin.read()  # ends when the parent closes it, or is gone
        loop.call_soon_threadsafe(stopped.set)

    threading.Thread(target=wait_for_parent, daemon=True).start()
    await stopped.wait()
    server.close()


if __name__ == "__main__":
    asyncio.run(_serve())
