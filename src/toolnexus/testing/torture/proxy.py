"""A TCP proxy on this machine that loses what it is told to lose."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Literal

_CHUNK = 1 << 16


class Proxy:
    """Passes bytes on between clients and one server, and cuts the connection when it is told to.

    Attributes:
        port: Where clients find it, on 127.0.0.1.
        cuts: How many connections it cut.
    """

    def __init__(self, host: str, port: int) -> None:
        self.port = 0
        self.cuts = 0
        self._server = (host, port)
        self._lose: Literal["request", "answer"] | None = None
        self._until = 0

    def lose(self, what: Literal["request", "answer"], number: int) -> None:
        """Lose one thing, and its connection with it.

        Args:
            what: A request, which the server then never gets; or the answer to one, which the server then has done.
            number: Which one, from 0, counted from now over all connections.
        """
        self._lose, self._until = what, number

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on one client's connection."""
        try:
            theirs, ours = await asyncio.open_connection(*self._server)
        except OSError:
            writer.close()
            return
        back = asyncio.get_running_loop().create_task(_copy(theirs, writer))
        try:
            while data := await reader.read(_CHUNK):
                lost = self._is_lost()
                if lost == "request":
                    break
                if lost == "answer":
                    back.cancel()
                    await asyncio.wait({back})
                    ours.write(data)
                    await theirs.read(1)  # it is done when the server begins to answer
                    break
                ours.write(data)
                await ours.drain()
        except ConnectionError:
            pass  # one side hung up, so the other does
        finally:
            back.cancel()
            for each in (ours, writer):
                each.close()

    def _is_lost(self) -> Literal["request", "answer"] | None:
        """What is lost of the request that came just now."""
        if self._lose is None:
            return None
        if self._until:
            self._until -= 1
            return None
        lost, self._lose = self._lose, None
        self.cuts += 1
        return lost


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
    writer.close()


@asynccontextmanager
async def proxied(host: str, port: int) -> AsyncGenerator[Proxy]:
    """A proxy to a server, on a port of its own."""
    proxy = Proxy(host, port)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        await server.wait_closed()
