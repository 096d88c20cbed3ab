"""Waits on this machine for the browser that comes back from a sign-in."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from urllib.parse import urlsplit

_LINES = 100
_READING = 10.0
_PAGE = b"""<!doctype html><meta charset="utf-8"><title>Signed in</title><p>You can close this page and go back.</p>"""
_HOSTS = frozenset({"127.0.0.1", "localhost", "::1"})


class Callback:
    """A place that a browser comes back to.

    Attributes:
        uri: Its address.
        arrived: The whole address that the browser came with.
    """

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.arrived: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request."""
        with contextlib.suppress(OSError, ValueError, TimeoutError):
            async with asyncio.timeout(_READING):
                target = (await reader.readline()).decode("ascii", "replace").split(" ")[1:2]
                for _ in range(_LINES):
                    if not (await reader.readline()).strip():
                        break
                found = bool(target) and urlsplit(target[0]).path == urlsplit(self.uri).path
                if found and not self.arrived.done():
                    self.arrived.set_result(target[0])
                status, page = (b"200 OK", _PAGE) if found else (b"404 Not Found", b"")
                head = b"HTTP/1.1 %b\r\nContent-Type: text/html\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
                writer.write(head % (status, len(page)) + page)
                await writer.drain()
        writer.close()


@contextlib.asynccontextmanager
async def listening(wanted: str | None, port: int | None) -> AsyncGenerator[Callback]:
    """Listen for a browser.

    Args:
        wanted: The address to listen at. One that is not on this machine is only kept. None: one of our own.
        port: The port, of an address of our own. None, or taken: any.
    """
    if wanted is not None and (urlsplit(wanted).hostname not in _HOSTS or urlsplit(wanted).scheme != "http"):
        yield Callback(wanted)
        return
    callback = Callback(wanted or "")
    port = (urlsplit(wanted).port or 80) if wanted is not None else port
    try:
        server = await asyncio.start_server(callback.serve, "127.0.0.1", port or 0)
    except OSError:
        if wanted is not None:  # somebody else listens there, and the person may still give the address by hand
            yield callback
            return
        server = await asyncio.start_server(callback.serve, "127.0.0.1", 0)
    if wanted is None:
        callback.uri = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/callback"
    try:
        yield callback
    finally:
        server.close()
        if not callback.arrived.done():
            callback.arrived.cancel()
