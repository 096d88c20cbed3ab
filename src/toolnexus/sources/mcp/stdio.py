"""A server that is a program on this machine: its processes, and the two streams that the SDK's dispatcher takes.

The SDK's own transport reads a large message in quadratic time, and ends for ever on what is no UTF-8.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections import deque
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import (
    INVALID_REQUEST,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
)
from pydantic import ValidationError

from toolnexus import _json, _workers
from toolnexus.errors import ConfigurationError
from toolnexus.sources.builtin.bash import ENVIRONMENT
from toolnexus.sources.builtin.processes import ProcessGroup, end, marked
from toolnexus.sources.mcp import faults
from toolnexus.sources.mcp._watchdog import Watchdog
from toolnexus.sources.mcp.exchange import current

if TYPE_CHECKING:
    from types import TracebackType

    from toolnexus.sources.mcp.config import MCPServer

_LARGEST = 64 * 1024 * 1024
"""Bytes of one message. A server that writes more on one line is ended."""
_STDERR_KEPT = 4096
_PIPE = 1024 * 1024
_INDENTED = 64
"""Bytes in which a message has to begin."""
_MANY = 1000
_FEW = 100
"""Messages that may wait to be read: from so many on the server has to wait, until so few are left."""
_LEAVING = 1.0
"""Seconds that a server has to end by itself once its input is closed."""


class StdioStreams:
    """What a server writes, message by message, and what is written to it. Made by `running`."""

    def __init__(self, server: MCPServer) -> None:
        self._server = server
        self.incoming = _Incoming(self._resume)
        self.outgoing = _Outgoing(self)
        self.exited = asyncio.get_running_loop().create_future()
        self.transport: asyncio.SubprocessTransport | None = None
        self._lines = _Lines()
        self._stderr = bytearray()
        self._paused = False
        self._writable: asyncio.Future[None] | None = None
        self.flood = ""

    @property
    def stderr(self) -> str:
        """The end of what the server wrote there."""
        return self._stderr.decode("utf-8", "replace")

    def why_gone(self, *, ready: bool) -> str:
        """Why the server is not there any more."""
        code = None if self.transport is None else self.transport.get_returncode()
        return self.flood or faults.of_exit(self._server, code, self.stderr, ready=ready)

    def take(self, descriptor: int, data: bytes) -> None:
        """Called with what the server wrote."""
        if descriptor != 1:
            self._stderr += data
            del self._stderr[:-_STDERR_KEPT]
            return
        for line in self._lines.feed(data):
            for message in _messages(line):
                self.incoming.put(message)
        if self._lines.held > _LARGEST and not self.flood:
            self.flood = f"it wrote more than {_LARGEST // 1024 // 1024} MiB on one line, and was ended."
            self._lines.clear()
            self.close_output()
        if len(self.incoming) > _MANY and not self._paused:
            self._paused = True
            self._pipe(1).pause_reading()

    def _resume(self) -> None:
        if self._paused and len(self.incoming) < _FEW:
            self._paused = False
            self._pipe(1).resume_reading()

    def _pipe(self, descriptor: int) -> Any:
        return None if self.transport is None else self.transport.get_pipe_transport(descriptor)

    def close_output(self) -> None:
        """Nothing more will be read."""
        self.incoming.end()
        if (pipe := self._pipe(1)) is not None:
            pipe.close()

    def hold(self, *, full: bool) -> None:
        """Called when the pipe to the server is full, and when it is not any more."""
        if full and self._writable is None:
            self._writable = asyncio.get_running_loop().create_future()
        elif not full and self._writable is not None:
            if not self._writable.done():
                self._writable.set_result(None)
            self._writable = None

    async def write(self, data: bytes) -> None:
        """Write to the server, and wait as long as it does not read.

        Raises:
            anyio.ClosedResourceError: It is gone, and got nothing of it.
        """
        pipe = self._pipe(0)
        if pipe is None or pipe.is_closing() or self.incoming.ended:
            raise anyio.ClosedResourceError
        pipe.write(data)
        if pipe.is_closing():  # the first write to a program that has ended
            raise anyio.ClosedResourceError
        if (exchange := current()) is not None:
            if exchange.sent:  # that it is cancelled, for example: nobody has time to wait for that
                return
            exchange.sent = True
        while (writable := self._writable) is not None:
            await asyncio.shield(writable)


class _Protocol(asyncio.SubprocessProtocol):
    def __init__(self, streams: StdioStreams) -> None:
        self._streams = streams

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self._streams.take(fd, data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == 1:
            self._streams.incoming.end()
        self._streams.hold(full=False)

    def process_exited(self) -> None:
        if not self._streams.exited.done():
            self._streams.exited.set_result(None)

    def pause_writing(self) -> None:
        self._streams.hold(full=True)

    def resume_writing(self) -> None:
        self._streams.hold(full=False)


class _Lines:
    """Bytes in, whole lines out. A long line costs no more than its length, and is in memory once."""

    def __init__(self) -> None:
        self._begun = bytearray()

    @property
    def held(self) -> int:
        """Bytes of the line that is not whole yet."""
        return len(self._begun)

    def feed(self, data: bytes) -> Iterator[bytes | bytearray]:
        first, *rest = data.split(b"\n")
        self._begun += first
        if rest:
            line, self._begun = self._begun, bytearray(rest[-1])
            yield line
            yield from rest[:-1]

    def clear(self) -> None:
        self._begun.clear()


class _Incoming:
    """The messages of a server, in order. It ends when its output does."""

    def __init__(self, taken: Any) -> None:
        self._taken = taken
        self._messages: deque[SessionMessage] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self.ended = False

    def __len__(self) -> int:
        return len(self._messages)

    def put(self, message: SessionMessage) -> None:
        self._messages.append(message)
        self._wake()

    def end(self) -> None:
        self.ended = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def __aiter__(self) -> _Incoming:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        while not self._messages:
            if self.ended:
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        message = self._messages.popleft()
        self._taken()
        return message

    async def receive(self) -> SessionMessage | Exception:
        try:
            return await self.__anext__()
        except StopAsyncIteration:
            raise anyio.EndOfStream from None

    async def aclose(self) -> None:
        self.end()

    async def __aenter__(self) -> _Incoming:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class _Outgoing:
    """What is sent to a server."""

    def __init__(self, streams: StdioStreams) -> None:
        self._streams = streams

    async def send(self, item: SessionMessage, /) -> None:
        await self._streams.write(_json.dumps(_plain(item.message), "the message") + b"\n")

    async def aclose(self) -> None:
        """The program is ended by whoever started it."""

    async def __aenter__(self) -> _Outgoing:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


def _plain(message: JSONRPCMessage) -> dict[str, Any]:
    match message:
        case JSONRPCRequest() | JSONRPCNotification():
            head: dict[str, Any] = {"jsonrpc": "2.0"}
            if isinstance(message, JSONRPCRequest):
                head["id"] = message.id
            head["method"] = message.method
            return head if message.params is None else {**head, "params": message.params}
        case JSONRPCResponse():
            return {"jsonrpc": "2.0", "id": message.id, "result": message.result}
        case JSONRPCError():
            error = message.error.model_dump(by_alias=True, exclude_none=True, mode="json")
            return {"jsonrpc": "2.0", "id": message.id, "error": error}


def _messages(line: bytes | bytearray) -> Iterator[SessionMessage]:
    """The messages on a line. What is none is noise: programs print things."""
    if not line[:_INDENTED].lstrip().startswith((b"{", b"[")):
        return
    try:
        value = _json.loads(cast("bytes", line))
    except ValueError:
        try:  # a byte that is no text, or a NaN, must not cost the answer
            value = json.loads(line.decode("utf-8", "replace"), parse_constant=str)
        except (ValueError, RecursionError):
            return
    for each in cast("list[Any]", value) if isinstance(value, list) else [value]:
        if isinstance(each, dict) and (message := _message(cast("dict[str, Any]", each))) is not None:
            yield SessionMessage(message)


def _message(value: dict[str, Any]) -> JSONRPCMessage | None:
    number, method = value.get("id"), value.get("method")
    has_id = isinstance(number, str | int) and not isinstance(number, bool)
    try:
        if isinstance(method, str):
            params: Any = value.get("params")
            if params is not None and not isinstance(params, dict):
                return None
            params = cast("dict[str, Any] | None", params)
            if "id" not in value:
                return JSONRPCNotification(jsonrpc="2.0", method=method, params=params)
            return JSONRPCRequest(jsonrpc="2.0", id=cast("int", number), method=method, params=params)
        if not has_id:
            return None
        if isinstance(value.get("result"), dict):
            return JSONRPCResponse(jsonrpc="2.0", id=cast("int", number), result=value["result"])
        if "error" in value:
            return JSONRPCError(jsonrpc="2.0", id=cast("int", number), error=_error(value["error"]))
    except ValidationError:
        return None
    if "result" in value:
        error = ErrorData(code=INVALID_REQUEST, message="the server's result is no object")
        return JSONRPCError(jsonrpc="2.0", id=cast("int", number), error=error)
    return None


def _error(given: Any) -> ErrorData:
    """A server's error, however it wrote it."""
    fields = cast("dict[str, Any]", given) if isinstance(given, dict) else {"message": given}
    code, message = fields.get("code"), fields.get("message")
    return ErrorData(
        code=code if isinstance(code, int) else 0,
        message=message if isinstance(message, str) else "",
        data=fields.get("data"),
    )


@contextlib.asynccontextmanager
async def running(server: MCPServer) -> AsyncGenerator[StdioStreams]:
    """Start a server, and at the end stop it with everything that it started.

    Raises:
        MCPServerError: It does not start.
        ConfigurationError: This is Windows, which has no process groups.
    """
    if sys.platform == "win32":
        raise ConfigurationError("MCP servers that are programs run on Linux and macOS only. On Windows, use WSL.")
    streams = StdioStreams(server)
    environment, mark = marked(_environment(server))
    starting = asyncio.ensure_future(_start(server, streams, environment))
    try:
        transport = await asyncio.shield(starting)
    except asyncio.CancelledError:
        with contextlib.suppress(faults.MCPServerError):
            transport = await starting
            await _ended(streams, transport, ProcessGroup(transport.get_pid(), mark), None)
        raise
    group = ProcessGroup(transport.get_pid(), mark)
    watching = asyncio.ensure_future(_workers.run(Watchdog, group.pid, mark))
    try:
        await asyncio.shield(watching)
        yield streams
    finally:
        await _whatever_comes(asyncio.ensure_future(_ended(streams, transport, group, watching)))


async def _start(server: MCPServer, streams: StdioStreams, environment: dict[str, str]) -> asyncio.SubprocessTransport:
    try:
        streams.transport, _ = await asyncio.get_running_loop().subprocess_exec(
            lambda: _Protocol(streams),
            server.command or "",
            *server.args,
            env=environment,
            cwd=server.cwd,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        missing = server.cwd is not None and not await _workers.run(Path(server.cwd).is_dir)
        raise faults.of_start(server, error, folder_missing=missing) from error
    _widen(streams.transport)
    return streams.transport


def _widen(transport: asyncio.SubprocessTransport) -> None:
    """Let the server write more at once than the 64 KiB of a pipe, which is a change of processes each time."""
    if sys.platform == "linux" and (pipe := transport.get_pipe_transport(1)) is not None:
        import fcntl  # there is none on Windows

        with contextlib.suppress(OSError):  # more than one user may have of it
            fcntl.fcntl(pipe.get_extra_info("pipe").fileno(), fcntl.F_SETPIPE_SZ, _PIPE)


async def _whatever_comes(task: asyncio.Task[None]) -> None:
    """Wait for a task that is bounded, and that a cancellation of ours must not cut short."""
    cancelled = False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            cancelled = True
    task.result()
    if cancelled:
        raise asyncio.CancelledError


async def _ended(
    streams: StdioStreams,
    transport: asyncio.SubprocessTransport,
    group: ProcessGroup,
    watching: asyncio.Future[Watchdog] | None,
) -> None:
    if (pipe := transport.get_pipe_transport(0)) is not None:
        pipe.close()
    if not streams.flood:
        await _exited(streams)
    try:
        await _workers.run(end, [group])
        await _exited(streams)  # the loop has to see the exit before it may be closed
    finally:
        streams.incoming.end()
        transport.close()
        if watching is not None:
            with contextlib.suppress(OSError):  # it never started, which whoever waited for it was told
                await _workers.run((await watching).release)


async def _exited(streams: StdioStreams) -> None:
    """Wait for the exit of a server, for a bounded time."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_LEAVING):
            await asyncio.shield(streams.exited)


def _environment(server: MCPServer) -> dict[str, str]:
    """What a server gets to see: what is known to hold no secret, and what is configured for it."""
    names = ENVIRONMENT | {"TERM"}
    ours = {name: value for name, value in os.environ.items() if name in names or name.startswith("LC_")}
    return {**ours, **server.env}
