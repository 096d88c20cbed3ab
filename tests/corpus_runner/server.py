"""A model server on 127.0.0.1 that says what a script says, every listed read as a write of its own."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from corpus_runner.assertions import problems
from corpus_runner.cases import Answer, Script, ToolSpec
from corpus_runner.invariants import Body
from corpus_runner.wires import JSON_TYPE, SSE_TYPE, Wire

MOST_REQUESTS: Final = 100
"""A client that asks more often is going round in circles; it is refused from there on."""

_WIRE_NAME = re.compile(rb"\$WIRE_NAME\(([^)]*)\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A request as it came, and whether it got a listed answer or the `end` after them."""

    target: str
    headers: Mapping[str, str]
    body: Body
    listed: bool


class Server:
    """Answers as its script says and keeps what it was asked.

    Attributes:
        seen: The requests, oldest first.
        port: Where it listens; 0 until then.
    """

    def __init__(self, wire: Wire, script: Script, *, tools: tuple[ToolSpec, ...] = (), cut: int | None = None) -> None:
        """`tools` are those of the case, for `$WIRE_NAME`; `cut` is the size of all reads, None: as listed."""
        self._wire = wire
        self._tools = tools
        self._cut = cut
        self._given = 0
        self._script = script
        self.seen: list[Seen] = []
        self.port = 0

    def end_from_here(self) -> None:
        """Forget the script: whatever is asked now is answered with `end`."""
        self._script = Script()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, kept alive."""
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            while (request := await _read_request(reader)) is not None:
                target, headers, raw = request
                body = Body(raw)
                answer, listed = self._answer(target, body)
                self.seen.append(Seen(target=target, headers=headers, body=body, listed=listed))
                await self._send(answer, body, writer)
                if answer.abort:
                    return
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client left, as it may
        finally:
            writer.transport.abort()

    def _answer(self, target: str, body: Body) -> tuple[Answer, bool]:
        if len(self.seen) >= MOST_REQUESTS:
            return _plain(400, JSON_TYPE, b'{"error":{"message":"too many requests for one case","code":"loop"}}'), True
        for rule in self._script.rules:
            if rule.condition is None or self._holds(rule.condition, body):
                return rule.answer, True
        answers = self._script.answers
        if self._given < len(answers):
            self._given += 1
            return answers[self._given - 1], True
        if self._script.repeat and answers:
            return answers[-1], True
        streamed = isinstance(body.json, dict) and self._wire.streams(target, body.json)
        return _plain(200, SSE_TYPE if streamed else JSON_TYPE, self._wire.end[streamed]), False

    def _holds(self, condition: Mapping[str, Any], body: Body) -> bool:
        turn = condition.get("turn", len(self.seen) + 1)
        return turn in ("last", len(self.seen) + 1) and not problems(condition, body, self._wire)

    async def _send(self, answer: Answer, body: Body, writer: asyncio.StreamWriter) -> None:
        """Head, then each read in a write (and a chunk) of its own, given time to arrive alone."""
        writer.write(_head(answer))
        for part in self._reads(answer, body):
            await _let_it_arrive(writer)
            writer.write(b"%x\r\n%b\r\n" % (len(part), part))
        await _let_it_arrive(writer)
        if answer.abort:
            writer.transport.abort()
        else:
            writer.write(b"0\r\n\r\n")
            await writer.drain()

    def _reads(self, answer: Answer, body: Body) -> Iterator[bytes]:
        reads = [_WIRE_NAME.sub(lambda match: self._wire_name(match[1].decode(), body), read) for read in answer.reads]
        if self._cut is None:
            yield from reads
            return
        whole = b"".join(reads)
        for start in range(0, len(whole), self._cut):
            yield whole[start : start + self._cut]

    def _wire_name(self, name: str, body: Body) -> bytes:
        """The name that the request uses for a tool: told by its description, or its place if that is not its own."""
        offered = self._wire.offered(body.json)
        wanted = next(tool for tool in self._tools if tool.name == name)
        same = [tool for tool in offered if self._wire.tool_description(tool) == wanted.description]
        found = same[0] if len(same) == 1 else offered[self._tools.index(wanted)]
        return json.dumps(self._wire.tool_name(found)).encode()[1:-1]


@asynccontextmanager
async def serving(server: Server) -> AsyncIterator[Server]:
    """Listen on a free port of 127.0.0.1 until the block ends."""
    connections: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections.add(task)
        try:
            await server.serve(reader, writer)
        except asyncio.CancelledError:
            pass  # the listener below ends what is still open
        finally:
            connections.discard(task)

    listener = await asyncio.start_server(connected, "127.0.0.1", 0)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()
        for task in tuple(connections):
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)


def _plain(status: int, kind: str, body: bytes) -> Answer:
    return Answer(status=status, headers={"content-type": kind}, reads=(body,))


def _head(answer: Answer) -> bytes:
    try:
        phrase = HTTPStatus(answer.status).phrase
    except ValueError:
        phrase = "Unknown"
    framing = {"transfer-encoding", "content-length", "connection"}
    lines = [f"{name}: {value}" for name, value in answer.headers.items() if name.lower() not in framing]
    head = "\r\n".join([f"HTTP/1.1 {answer.status} {phrase}", *lines, "transfer-encoding: chunked", "\r\n"])
    return head.encode("latin-1", "replace")


async def _let_it_arrive(writer: asyncio.StreamWriter) -> None:
    """Let the peer, on the same loop, read what was written: one turn to see it, one to take it, one to work on it."""
    await writer.drain()
    for _ in range(3):
        await asyncio.sleep(0)


async def _read_request(reader: asyncio.StreamReader) -> tuple[str, dict[str, str], bytes] | None:
    """Target, headers (names in lower case) and body of the next request; None when the client has hung up."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    request_line, *lines = head.decode("latin-1").split("\r\n")
    headers = {
        name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines) if name
    }
    return request_line.split(" ")[1], headers, await _read_body(reader, headers)


async def _read_body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
    if headers.get("transfer-encoding", "").lower() != "chunked":
        return await reader.readexactly(int(headers.get("content-length", "0")))
    body = b""
    while size := int((await reader.readline()).partition(b";")[0], 16):
        body += await reader.readexactly(size)
        await reader.readline()
    await reader.readline()
    return body
