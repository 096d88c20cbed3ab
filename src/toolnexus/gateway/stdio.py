"""Standard input and output as the two streams of an MCP server.

What tools print must not get between the messages: while a gateway is served, standard output is standard error for
everybody else, and standard input is empty. Both are read and written in threads, as they may be anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import threading
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from toolnexus import _workers
from toolnexus.gateway.sdk import SessionMessage, anyio, types

if TYPE_CHECKING:
    from toolnexus.gateway.server import Gateway

_log = logging.getLogger("toolnexus")

_PIECE = 1 << 16
_LONGEST_LINE = 64 * 1024 * 1024
_NO_JSON = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}\n'

_Item: TypeAlias = "SessionMessage | Exception"


async def serve_streams(gateway: Gateway, reading: int, writing: int, *, grace: float) -> None:
    """Serve one client until it closes its side.

    Args:
        reading: The file descriptor to read from.
        writing: The one to write to.
        grace: Seconds that running calls have to end when the client has closed its side.
    """
    async with _streams(reading, writing, grace) as (received, to_send):
        await gateway.server.run(received, to_send, gateway.server.create_initialization_options())


async def serve_standard(gateway: Gateway, *, grace: float) -> None:
    """Serve the client that started this process, until it closes its side."""
    with _claimed() as (reading, writing):
        await serve_streams(gateway, reading, writing, grace=grace)


@contextmanager
def _claimed() -> Generator[tuple[int, int]]:
    """Standard input and output for the caller alone."""
    with contextlib.suppress(AttributeError, ValueError):
        sys.stdout.flush()
    reading, writing = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    try:
        yield reading, writing
    finally:
        os.dup2(reading, 0)
        os.dup2(writing, 1)
        # `reading` stays open: a thread may still wait for input, and would then read from another file of the number.
        os.close(writing)


@asynccontextmanager
async def _streams(reading: int, writing: int, grace: float) -> AsyncGenerator[tuple[Any, Any]]:
    to_server, received = anyio.create_memory_object_stream[_Item](0)
    to_send, from_server = anyio.create_memory_object_stream[SessionMessage](0)
    unanswered = _Unanswered()
    out = _Out(writing)
    arriving = _arriving(reading)

    async def read() -> None:
        async with to_server:
            while (line := await arriving.get()) is not None:
                try:
                    message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
                except ValueError:
                    await out.write(_NO_JSON)
                    continue
                unanswered.asked(message)
                await to_server.send(SessionMessage(message))
            await unanswered.none(grace)

    async def write() -> None:
        async with from_server:
            async for sent in from_server:
                text = sent.message.model_dump_json(by_alias=True, exclude_unset=True)
                await out.write(f"{text}\n".encode())
                unanswered.answered(sent.message)

    async with anyio.create_task_group() as group:
        group.start_soon(read)
        group.start_soon(write)
        try:
            yield received, to_send
        finally:
            group.cancel_scope.cancel()


class _Unanswered:
    """Which requests have no answer yet."""

    def __init__(self) -> None:
        self._ids: set[Any] = set()
        self._none = asyncio.Event()
        self._none.set()

    def asked(self, message: Any) -> None:
        if isinstance(message, types.JSONRPCRequest):
            self._ids.add(message.id)
            self._none.clear()

    def answered(self, message: Any) -> None:
        if isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
            self._ids.discard(message.id)
            if not self._ids:
                self._none.set()

    async def none(self, seconds: float) -> None:
        """Wait until all are answered, or for so many seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._none.wait()


class _Out:
    def __init__(self, writing: int) -> None:
        self._writing = writing
        self._turn = asyncio.Lock()

    async def write(self, data: bytes) -> None:
        async with self._turn:
            await _workers.run(_write_all, self._writing, data)


def _write_all(writing: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(writing, left) :]


def _arriving(reading: int) -> asyncio.Queue[bytes | None]:
    """The lines that arrive, None at the end. A few at most wait; the thread does not keep the process alive."""
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[bytes | None] = asyncio.Queue(16)

    def read() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody reads any more
            for line in _lines(reading):
                asyncio.run_coroutine_threadsafe(lines.put(line), loop).result()
            asyncio.run_coroutine_threadsafe(lines.put(None), loop).result()

    threading.Thread(target=read, name="toolnexus-mcp-stdin", daemon=True).start()
    return lines


def _lines(reading: int) -> Iterator[bytes]:
    """Lines without blank ones. One that is too long is given as its beginning, which is no JSON."""
    pieces: list[bytes] = []
    size = 0
    while piece := _read(reading):
        *ends, rest = piece.split(b"\n")
        for end in ends:
            line = b"".join([*pieces, end])
            pieces, size = [], 0
            if line.strip():
                yield line
        if size < _LONGEST_LINE:
            pieces.append(rest)
            size += len(rest)
    if last := b"".join(pieces).strip():
        yield last


def _read(reading: int) -> bytes:
    try:
        return os.read(reading, _PIECE)
    except OSError as error:
        _log.debug("Standard input cannot be read any more", exc_info=error)
        return b""
