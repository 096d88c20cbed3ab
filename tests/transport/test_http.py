"""The transport against real servers on this machine, well-behaved and otherwise."""

from __future__ import annotations

import asyncio
import gc
import gzip
import io
import logging
import os
import socket
import struct
import subprocess
import sys
import threading
import time
import traceback
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace

import aiohttp
import pytest

from toolnexus.errors import ConfigurationError, ConnectionFailed, InvalidReply, ToolnexusError
from toolnexus.transport import Limits
from toolnexus.transport.http import HTTPTransport

CANARY = "sk-canary-5f1c9e"
HEADERS = {"content-type": "application/json", "authorization": f"Bearer {CANARY}"}
LIMITS = Limits(connect=5, first_byte=10, silence=10)
JSON = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


def piece(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


@dataclass
class Exchange:
    """A request that arrived, and the way to answer it."""

    head: str
    body: bytes
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def hung_up(self) -> None:
        """Wait until the client has closed its side."""
        with suppress(ConnectionError):
            assert await self.reader.read() == b""

    def reset(self) -> None:
        """Break the connection as a crashed server does."""
        self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


@dataclass
class Server:
    url: str = ""
    seen: list[Exchange] = field(default_factory=list)
    connections: int = 0
    closed: asyncio.Event = field(default_factory=asyncio.Event)


@asynccontextmanager
async def serving(answer: Callable[[Exchange], Awaitable[None]]) -> AsyncIterator[Server]:
    """A server that keeps its connections. An answer that raises, or is cancelled, ends its own."""
    served = Server()
    handlers: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.connections += 1
        handlers.add(task := asyncio.current_task())
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = int(head.lower().partition("content-length:")[2].partition("\r\n")[0])
                exchange = Exchange(head, await reader.readexactly(length), reader, writer)
                served.seen.append(exchange)
                await answer(exchange)
                if writer.is_closing():
                    return
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the client is gone, or the test is over
        finally:
            handlers.discard(task)
            served.closed.set()
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, limit=1 << 24, backlog=512)
    served.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    try:
        yield served
    finally:
        server.close()
        for task in list(handlers):
            task.cancel()
        await asyncio.gather(*handlers, return_exceptions=True)


@asynccontextmanager
async def transport() -> AsyncIterator[HTTPTransport]:
    opened = HTTPTransport()
    try:
        yield opened
    finally:
        await opened.aclose()


async def post(http: HTTPTransport, url: str, body: bytes = b"{}", limits: Limits = LIMITS) -> bytes:
    return (await http.post(url, headers=HEADERS, body=body, limits=limits)).body


async def read(http: HTTPTransport, url: str, limits: Limits = LIMITS) -> list[bytes]:
    async with http.stream(url, headers=HEADERS, body=b"{}", limits=limits) as answer:
        return [chunk async for chunk in answer.chunks()]


async def failing(work: Awaitable[object]) -> ConnectionFailed:
    with pytest.raises(ConnectionFailed) as caught:
        await work
    return caught.value


def shown(error: BaseException) -> str:
    """All that a logger or an error tracker can find in an error."""
    seen: list[str] = []
    link: BaseException | None = error
    while link is not None:
        seen.append(f"{link} {link!r} {vars(link)} {link.args}")
        link = link.__cause__ or link.__context__
    return "\n".join([*seen, *traceback.format_exception(error)])


# Requests and answers


async def test_a_request_arrives_as_it_was_given_and_the_answer_comes_back_whole() -> None:
    async def answer(to: Exchange) -> None:
        await to.send(b"HTTP/1.1 201 Made\r\nX-Request-ID: r1\r\nX-Request-ID: r2\r\nContent-Length: 3\r\n\r\nabc")

    async with serving(answer) as server, transport() as http:
        answered = await http.post(f"{server.url}/x?a=b%20c", headers=HEADERS, body=b'{"q":1}', limits=LIMITS)

    assert (answered.status, answered.body) == (201, b"abc")
    assert answered.headers["x-request-id"] == "r1"
    assert dict(answered.headers) == {"x-request-id": "r1", "content-length": "3"}
    assert len(answered.headers) == 2
    assert "retry-after" not in answered.headers
    [seen] = server.seen
    assert seen.head.startswith("POST /v1/x?a=b%20c HTTP/1.1\r\n")
    assert f"authorization: Bearer {CANARY}\r\n" in seen.head
    assert seen.body == b'{"q":1}'


@pytest.mark.parametrize("status", [302, 400, 404, 429, 500, 529])
async def test_an_answer_is_handed_over_whatever_its_status(status: int) -> None:
    async def answer(to: Exchange) -> None:
        await to.send(b"HTTP/1.1 %d X\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 2\r\n\r\nno" % status)

    async with serving(answer) as server, transport() as http:
        answered = await http.post(server.url, headers=HEADERS, body=b"{}", limits=LIMITS)
        async with http.stream(server.url, headers=HEADERS, body=b"{}", limits=LIMITS) as streamed:
            assert streamed.status == status
            assert [chunk async for chunk in streamed.chunks()] == [b"no"]

    assert (answered.status, answered.body) == (status, b"no")
    assert len(server.seen) == 2, "no redirect was followed"


async def test_cookies_are_not_kept() -> None:
    async def answer(to: Exchange) -> None:
        await to.send(JSON.replace(b"\r\n\r\n", b"\r\nSet-Cookie: session=canary\r\n\r\n"))

    async with serving(answer) as server, transport() as http:
        for _ in range(2):
            await post(http, server.url)
    assert "cookie" not in server.seen[1].head.lower()


async def test_a_large_body_is_sent_whole() -> None:
    body = bytes(range(256)) * 20_000

    async def answer(to: Exchange) -> None:
        await to.send(JSON)

    async with serving(answer) as server, transport() as http:
        assert await post(http, server.url, body) == b"{}"
    assert server.seen[0].body == body


async def test_a_connection_is_used_again() -> None:
    async def answer(to: Exchange) -> None:
        await to.send(STREAM + piece(b"data: 1\n\n") + END if b"stream" in to.body else JSON)

    async with serving(answer) as server, transport() as http:
        for _ in range(3):
            await post(http, server.url)
            async with http.stream(server.url, headers=HEADERS, body=b"stream", limits=LIMITS) as answered:
                assert [chunk async for chunk in answered.chunks()] == [b"data: 1\n\n"]
    assert (len(server.seen), server.connections) == (6, 1)


async def test_many_requests_run_at_once() -> None:
    waiting = asyncio.Barrier(150)

    async def answer(to: Exchange) -> None:
        await waiting.wait()  # passes only once all of them are there
        await to.send(JSON)

    async with serving(answer) as server, transport() as http:
        assert await asyncio.gather(*(post(http, server.url) for _ in range(150))) == [b"{}"] * 150


@pytest.mark.parametrize("size", [1, 7])
async def test_pieces_arrive_in_order_however_small_they_are(size: int) -> None:
    body = bytes(range(256))
    wire = STREAM + b"".join(piece(body[at : at + size]) for at in range(0, len(body), size)) + END

    async def answer(to: Exchange) -> None:
        for at in range(0, len(wire), size):
            await to.send(wire[at : at + size])
            await asyncio.sleep(0)

    async with serving(answer) as server, transport() as http:
        assert b"".join(await read(http, server.url)) == body
        assert await post(http, server.url) == body


async def test_a_piece_is_given_out_before_the_next_one_is_sent() -> None:
    heard = asyncio.Event()

    async def answer(to: Exchange) -> None:
        await to.send(STREAM + piece(b"one"))
        await heard.wait()
        await to.send(piece(b"two") + END)

    async with (
        serving(answer) as server,
        transport() as http,
        http.stream(server.url, headers=HEADERS, body=b"{}", limits=LIMITS) as answered,
    ):
        chunks = answered.chunks()
        assert await anext(chunks) == b"one"
        heard.set()
        assert [chunk async for chunk in chunks] == [b"two"]


async def test_an_answer_without_length_ends_with_its_connection() -> None:
    async def answer(to: Exchange) -> None:
        await to.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nall of it")
        to.writer.close()

    async with serving(answer) as server, transport() as http:
        assert await post(http, server.url) == b"all of it"


async def test_compressed_answers_are_read() -> None:
    data = gzip.compress(b"squeezed" * 1000)

    async def answer(to: Exchange) -> None:
        await to.send(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(data) + data)

    async with serving(answer) as server, transport() as http:
        assert await post(http, server.url) == b"squeezed" * 1000
        assert b"".join(await read(http, server.url)) == b"squeezed" * 1000


# Limits


def bomb(megabytes: int) -> bytes:
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb") as file:
        for _ in range(megabytes):
            file.write(bytes(1 << 20))
    return packed.getvalue()


async def test_a_small_answer_that_unpacks_to_a_huge_one_is_refused_before_it_fills_the_memory() -> None:
    data = bomb(100)
    assert len(data) < 200_000

    async def answer(to: Exchange) -> None:
        await to.send(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(data) + data)

    limits = replace(LIMITS, reply_bytes=4 << 20)
    async with serving(answer) as server, transport() as http:
        tracemalloc.start()
        try:
            for work in (post(http, server.url, limits=limits), read(http, server.url, limits=limits)):
                with pytest.raises(InvalidReply, match="reply_bytes"):
                    await work
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < 20 << 20


async def test_an_answer_may_be_as_large_as_the_limit_and_no_larger() -> None:
    async def answer(to: Exchange) -> None:
        await to.send(STREAM + piece(b"x" * 1000) + piece(b"y" * 1000) + END)

    async with serving(answer) as server, transport() as http:
        assert len(await post(http, server.url, limits=replace(LIMITS, reply_bytes=2000))) == 2000
        with pytest.raises(InvalidReply):
            await post(http, server.url, limits=replace(LIMITS, reply_bytes=1999))


async def never(to: Exchange) -> None:
    await to.hung_up()


async def test_a_server_that_never_begins_to_answer_is_given_up() -> None:
    limits = Limits(connect=0.05, first_byte=0.05, silence=10)
    async with serving(never) as server, transport() as http:
        for work in (post(http, server.url, limits=limits), read(http, server.url, limits=limits)):
            error = await failing(work)
            assert (error.kind, error.request_sent) == ("timeout", True)
        await asyncio.wait_for(server.closed.wait(), 5)


async def test_a_short_patience_does_not_wait_for_a_longer_one() -> None:
    async with serving(never) as server, transport() as http:
        longer = asyncio.create_task(failing(post(http, server.url, limits=Limits(connect=0.1, first_byte=0.3))))
        shorter = asyncio.create_task(failing(post(http, server.url, limits=Limits(connect=0.05, first_byte=0.05))))
        done, _ = await asyncio.wait([longer, shorter], return_when=asyncio.FIRST_COMPLETED)
        assert done == {shorter}
        assert (await longer).kind == "timeout"
        error = await failing(post(http, server.url, limits=Limits(connect=0.05, first_byte=0.05)))
        assert error.kind == "timeout"


async def test_whoever_cancels_a_request_that_is_given_up_is_still_heard() -> None:
    arrived = asyncio.Event()

    async def answer(to: Exchange) -> None:
        arrived.set()
        await to.hung_up()

    loop = asyncio.get_running_loop()
    async with serving(answer) as server, transport() as http:
        waiting = asyncio.create_task(post(http, server.url, limits=Limits(connect=0.05, first_byte=0.25)))
        await arrived.wait()
        [pool] = http._connections.pools.values()
        timer = pool.patience._timer
        assert timer is not None
        loop.call_at(timer.when(), waiting.cancel)  # with the timer, before the request hears of either
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert waiting.cancelling() == 1, "only the other one's is left"


async def test_a_transport_leaves_no_timer_behind() -> None:
    async def answer(to: Exchange) -> None:
        await to.send(JSON)

    async with serving(answer) as server:
        async with transport() as http:
            await post(http, server.url)
            [pool] = http._connections.pools.values()
        timer = pool.patience._timer
        assert timer is not None
        assert timer.cancelled()


async def test_a_server_that_falls_silent_is_given_up_and_what_came_before_is_kept() -> None:
    async def answer(to: Exchange) -> None:
        await to.send(STREAM + piece(b"begun"))
        await to.hung_up()

    limits = Limits(connect=5, first_byte=10, silence=0.1)
    async with serving(answer) as server, transport() as http:
        async with http.stream(server.url, headers=HEADERS, body=b"{}", limits=limits) as answered:
            chunks = answered.chunks()
            assert await anext(chunks) == b"begun"
            error = await failing(anext(chunks))
        assert (error.kind, error.request_sent) == ("timeout", True)
        assert (await failing(post(http, server.url, limits=limits))).kind == "timeout"


async def test_a_slow_server_that_keeps_talking_is_not_given_up() -> None:
    async def answer(to: Exchange) -> None:
        await to.send(STREAM)
        for _ in range(8):
            await asyncio.sleep(0.05)  # together longer than the limit, each shorter
            await to.send(piece(b"."))
        await to.send(END)

    async with serving(answer) as server, transport() as http:
        assert await post(http, server.url, limits=replace(LIMITS, silence=0.3)) == b"." * 8


async def test_a_server_that_does_not_accept_is_given_up() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        with socket.socket() as first, socket.socket() as second:  # these fill its queue
            for waiting in (first, second):
                waiting.setblocking(False)
                waiting.connect_ex(full.getsockname())
            async with transport() as http:
                url = f"http://127.0.0.1:{full.getsockname()[1]}/v1"
                error = await failing(post(http, url, limits=replace(LIMITS, connect=0.1)))
    assert (error.kind, error.request_sent, error.retryable) == ("timeout", False, True)


# Failures


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def test_a_server_that_is_not_there_was_not_sent_anything() -> None:
    url = f"http://127.0.0.1:{free_port()}/v1"
    async with transport() as http:
        for work in (post(http, url), read(http, url)):
            error = await failing(work)
            assert (error.kind, error.request_sent, error.retryable) == ("connection", False, True)
            assert url.removesuffix("/v1") in str(error)
            assert isinstance(error.__cause__, OSError)
            assert "site-packages" not in "".join(traceback.format_exception(error.__cause__)), "the fact, not its way"


async def test_a_name_that_does_not_resolve_was_not_sent_anything() -> None:
    async with transport() as http:
        error = await failing(post(http, "http://no-such-host.invalid/v1"))
    assert (error.kind, error.request_sent) == ("connection", False)


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_a_connection_that_ends_without_an_answer_may_have_been_seen(how: str) -> None:
    async def answer(to: Exchange) -> None:
        to.reset() if how == "reset" else to.writer.close()

    async with serving(answer) as server, transport() as http:
        for work in (post(http, server.url), read(http, server.url)):
            error = await failing(work)
            assert (error.kind, error.request_sent, error.retryable) == ("connection", True, True)
    assert len(server.seen) == 2, "a transport makes one attempt"


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize(
    "begun", [STREAM + piece(b"half"), b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"], ids=["chunked", "length"]
)
async def test_an_answer_that_is_cut_is_an_error_after_what_came_of_it(how: str, begun: bytes) -> None:
    read_it = asyncio.Event()

    async def answer(to: Exchange) -> None:
        await to.send(begun)
        await read_it.wait()
        to.reset() if how == "reset" else to.writer.close()

    async with serving(answer) as server, transport() as http:
        async with http.stream(server.url, headers=HEADERS, body=b"{}", limits=LIMITS) as answered:
            chunks = answered.chunks()
            assert await anext(chunks) == b"half"
            read_it.set()
            error = await failing(anext(chunks))
        assert (error.kind, error.request_sent) == ("connection", True)
        await failing(post(http, server.url))


async def test_a_slow_reader_gets_all_that_came_before_the_cut() -> None:
    async def answer(to: Exchange) -> None:
        await to.send(STREAM + piece(b"one") + piece(b"two"))
        to.writer.close()

    async with (
        serving(answer) as server,
        transport() as http,
        http.stream(server.url, headers=HEADERS, body=b"{}", limits=LIMITS) as answered,
    ):
        await server.closed.wait()
        with pytest.raises(aiohttp.ClientPayloadError):  # the cut has arrived here as well
            await answered._response.content.wait_eof()
        chunks = answered.chunks()
        assert await anext(chunks) == b"onetwo"
        for _ in range(2):
            await failing(anext(chunks))


@pytest.mark.parametrize(
    "wire",
    [
        b"SSH-2.0-OpenSSH_9\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 200_000 + b"\r\n\r\n",
    ],
    ids=["not-http", "bad-length", "endless-header"],
)
async def test_what_is_no_http_is_said_to_be_none(wire: bytes) -> None:
    async def answer(to: Exchange) -> None:
        await to.send(wire)
        to.writer.close()

    async with serving(answer) as server, transport() as http:
        with pytest.raises(InvalidReply) as caught:
            await post(http, server.url)
    assert "canary" not in shown(caught.value)


async def test_a_body_that_is_not_as_encoded_as_it_says_is_an_error() -> None:
    async def answer(to: Exchange) -> None:
        await to.send(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\nplain")

    async with serving(answer) as server, transport() as http:
        with pytest.raises(ToolnexusError) as caught:
            await post(http, server.url)
    assert "canary" not in shown(caught.value)


@pytest.mark.parametrize("url", ["http://[::1/v1", "http://127.1/v1", "ftp://127.0.0.1/v1", "/v1"])
async def test_a_url_that_cannot_be_called_is_a_matter_of_configuration(url: str) -> None:
    async with transport() as http:
        with pytest.raises(ConfigurationError) as caught:
            await post(http, f"{url}?key={CANARY}")
    assert "canary" not in shown(caught.value)


async def test_no_failure_and_no_log_shows_what_was_sent(caplog: pytest.LogCaptureFixture) -> None:
    async def answer(to: Exchange) -> None:
        match len(server.seen):
            case 1:
                to.writer.close()
            case 2:
                to.reset()
            case 3:
                await to.send(b"HTTP/1.1 nonsense\r\n\r\n")
            case 4:
                await to.send(STREAM + b"not a length\r\n")
            case 5:
                await to.send(STREAM + piece(b"half"))
                to.writer.close()
            case _:
                await to.hung_up()

    caplog.set_level(logging.DEBUG)
    query = f"?key={CANARY}"
    limits = Limits(connect=5, first_byte=0.1, silence=0.1)
    async with serving(answer) as server, transport() as http:
        errors: list[ToolnexusError] = []
        for _ in range(6):
            with pytest.raises(ToolnexusError) as caught:
                await post(http, server.url + query, limits=replace(limits, connect=0.1))
            errors.append(caught.value)
        with pytest.raises(ConnectionFailed) as caught:
            await post(http, f"http://127.0.0.1:{free_port()}/v1{query}")
    assert "canary" not in "\n".join(shown(error) for error in [*errors, caught.value])
    assert "canary" not in caplog.text


# Connections that their server closed


def once_each(how: str, begun: bytes = b"") -> Callable[[Exchange], Awaitable[None]]:
    """Answers the first request of a connection, as a stream, and ends the connection when a second one comes."""
    used: list[asyncio.StreamWriter] = []

    async def answer(to: Exchange) -> None:
        if to.writer not in used:
            used.append(to.writer)
            await to.send(STREAM + piece(b"answer") + END)
        elif how == "reset":
            to.reset()
        else:
            await to.send(begun)
            to.writer.close()

    return answer


async def post_and_read(http: HTTPTransport, url: str) -> list[bytes]:
    return [await post(http, url), *await read(http, url), await post(http, url, bytes(2 << 20))]


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_a_request_on_a_connection_that_was_closed_is_sent_again_on_a_new_one(how: str) -> None:
    async with serving(once_each(how)) as server, transport() as http:
        assert await post_and_read(http, server.url) == [b"answer"] * 3
    assert server.connections == 3
    assert len(server.seen) == 5


async def test_a_new_connection_is_taken_although_others_that_were_closed_rest() -> None:
    together = asyncio.Barrier(2)
    used: list[asyncio.StreamWriter] = []

    async def answer(to: Exchange) -> None:
        if to.writer in used:
            to.writer.close()
            return
        used.append(to.writer)
        if len(used) <= 2:
            await together.wait()
        await to.send(JSON)

    async with serving(answer) as server, transport() as http:
        await asyncio.gather(post(http, server.url), post(http, server.url))
        assert await post(http, server.url) == b"{}"
        assert (server.connections, len(server.seen)) == (3, 4)


async def test_a_request_is_not_sent_again_once_an_answer_has_begun() -> None:
    async with serving(once_each("close", b"HTTP/1.1 2")) as server, transport() as http:
        await post(http, server.url)
        assert (await failing(post(http, server.url))).request_sent
    assert len(server.seen) == 2


async def test_a_request_is_sent_again_once_at_most() -> None:
    async def answer(to: Exchange) -> None:
        if len(server.seen) == 1:
            await to.send(JSON)
        else:
            to.writer.close()

    async with serving(answer) as server, transport() as http:
        await post(http, server.url)
        assert (await failing(post(http, server.url))).request_sent
    assert len(server.seen) == 3


async def test_what_a_server_may_have_worked_on_is_not_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolnexus.transport.http._STALE", 0.0)  # as if the connection had lasted longer
    async with serving(once_each("close")) as server, transport() as http:
        await post(http, server.url)
        assert (await failing(post(http, server.url))).request_sent
    assert len(server.seen) == 2


async def test_the_request_of_a_tool_is_not_sent_again() -> None:
    async def act(http: HTTPTransport, url: str) -> bytes:
        async with http.request("POST", url, headers=HEADERS, body=b"{}", limits=LIMITS) as answered:
            return await answered.whole()

    async with serving(once_each("close")) as server, transport() as http:
        assert await act(http, server.url) == b"answer"
        assert (await failing(act(http, server.url))).request_sent
    assert len(server.seen) == 2


async def test_closing_ends_a_request_on_a_connection_that_was_used_before() -> None:
    waits = asyncio.Event()

    async def answer(to: Exchange) -> None:
        if len(server.seen) == 1:
            await to.send(JSON)
        else:
            waits.set()
            await to.hung_up()

    async with serving(answer) as server, transport() as http:
        await post(http, server.url)
        waiting = asyncio.create_task(failing(post(http, server.url)))
        await waits.wait()
        await http.aclose()
        assert (await waiting).request_sent
    assert len(server.seen) == 2


# Leaving


async def test_a_stream_that_is_left_early_is_closed_at_once() -> None:
    async def answer(to: Exchange) -> None:
        await to.send(STREAM + piece(b"begun"))
        await to.hung_up()

    async with serving(answer) as server, transport() as http:
        async with http.stream(server.url, headers=HEADERS, body=b"{}", limits=LIMITS) as answered:
            assert await anext(answered.chunks()) == b"begun"
            assert not server.closed.is_set()
        await asyncio.wait_for(server.closed.wait(), 2)


@pytest.mark.parametrize("begin", [b"", STREAM, STREAM + piece(b"begun")], ids=["nothing", "headers", "a-piece"])
@pytest.mark.parametrize("call", [post, read])
async def test_a_request_that_is_cancelled_is_closed_at_once(
    begin: bytes, call: Callable[[HTTPTransport, str], Awaitable[object]]
) -> None:
    begun = asyncio.Event()

    async def answer(to: Exchange) -> None:
        await to.send(begin)
        begun.set()
        await to.hung_up()

    async with serving(answer) as server, transport() as http:
        task = asyncio.ensure_future(call(http, server.url))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(server.closed.wait(), 2)


async def test_a_large_upload_that_is_cancelled_is_closed_at_once() -> None:
    gone = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        arrived.set()
        with suppress(ConnectionError):
            while await reader.read(1 << 20):
                pass
        gone.set()
        writer.close()

    arrived = asyncio.Event()
    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server, transport() as http:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        task = asyncio.ensure_future(post(http, url, bytes(50 << 20)))
        await arrived.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(gone.wait(), 2)


async def test_a_reader_that_pauses_slows_the_server() -> None:
    sent = 0
    size = 64 << 20
    done = asyncio.Event()

    async def answer(to: Exchange) -> None:
        nonlocal sent
        await to.send(STREAM)
        block = piece(bytes(1 << 16))
        while sent < size:
            await to.send(block)
            sent += 1 << 16
        await to.send(END)
        done.set()

    async with serving(answer) as server, transport() as http:
        async with http.stream(server.url, headers=HEADERS, body=b"{}", limits=LIMITS) as answered:
            before = -1
            while before != sent:  # until the server cannot write any more
                before = sent
                await asyncio.sleep(0.1)
            assert sent < size / 2
            received = 0
            largest = 0
            async for chunk in answered.chunks():
                received += len(chunk)
                largest = max(largest, len(chunk))
        await done.wait()
    assert received == sent == size
    assert largest <= 1 << 19


async def test_a_reader_that_pauses_longer_than_a_server_may_be_silent_loses_nothing() -> None:
    size = 16 << 20

    async def answer(to: Exchange) -> None:
        await to.send(STREAM + piece(bytes(size)) + END)

    async with serving(answer) as server, transport() as http:
        limits = replace(LIMITS, silence=0.1)
        async with http.stream(server.url, headers=HEADERS, body=b"{}", limits=limits) as answered:
            await asyncio.sleep(0.3)
            assert sum([len(chunk) async for chunk in answered.chunks()]) == size


# Loops, threads and the end


async def test_closing_ends_the_requests_that_are_under_way() -> None:
    begun = asyncio.Semaphore(0)

    async def answer(to: Exchange) -> None:
        if len(server.seen) > 1:
            await to.send(STREAM + piece(b"begun"))
        begun.release()
        await to.hung_up()

    async with serving(answer) as server:
        http = HTTPTransport()
        works = [asyncio.ensure_future(read(http, server.url)) for _ in range(2)]
        for _ in works:
            await begun.acquire()
        await http.aclose()
        for work in works:
            assert (await failing(asyncio.wait_for(work, 2))).kind == "connection"
        await http.aclose()


async def test_a_transport_that_was_closed_opens_again() -> None:
    async def answer(to: Exchange) -> None:
        await to.send(JSON)

    async with serving(answer) as server, transport() as http:
        await post(http, server.url)
        await http.aclose()
        assert await post(http, server.url) == b"{}"
    assert server.connections == 2


async def test_a_transport_that_was_forgotten_closes_its_connections() -> None:
    async def answer(to: Exchange) -> None:
        await to.send(JSON)

    async with serving(answer) as server:
        http = HTTPTransport()
        http.itself = http  # type: ignore[attr-defined] - a cycle, as callbacks make them
        await post(http, server.url)
        del http
        gc.collect()
        await asyncio.wait_for(server.closed.wait(), 2)


class Background:
    """A server on a loop in a thread of its own."""

    def __enter__(self) -> str:
        started: asyncio.Future[str] | threading.Event = threading.Event()
        self.url = ""

        async def answer(to: Exchange) -> None:
            await to.send(JSON)

        async def main() -> None:
            self.loop = asyncio.get_running_loop()
            self.stop = asyncio.Event()
            async with serving(answer) as server:
                self.url = server.url
                started.set()
                await self.stop.wait()

        self.thread = threading.Thread(target=lambda: asyncio.run(main()))
        self.thread.start()
        assert started.wait(5)
        return self.url

    def __exit__(self, *_: object) -> None:
        self.loop.call_soon_threadsafe(self.stop.set)
        self.thread.join(5)


def test_loops_one_after_the_other_leave_nothing_open() -> None:
    with Background() as url:
        http = HTTPTransport()
        for _ in range(3):
            assert asyncio.run(post(http, url)) == b"{}"
        gc.collect()
    assert http._connections.pools == {}


def test_threads_with_loops_of_their_own_share_a_transport() -> None:
    results: list[bytes] = []
    together = threading.Barrier(4)

    async def many(http: HTTPTransport, url: str) -> None:
        together.wait(5)
        results.extend(await asyncio.gather(*(post(http, url) for _ in range(25))))

    with Background() as url:
        http = HTTPTransport()
        threads = [threading.Thread(target=lambda: asyncio.run(many(http, url))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
    assert results == [b"{}"] * 100
    assert http._connections.pools == {}


def test_closing_from_one_loop_closes_the_connections_of_another() -> None:
    with Background() as url:
        http = HTTPTransport()
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        assert asyncio.run_coroutine_threadsafe(post(http, url), loop).result(5) == b"{}"
        session = http._connections.pools[loop].session
        asyncio.run(http.aclose())
        assert session.closed
        loop.call_soon_threadsafe(loop.stop)
        thread.join(5)
        loop.close()


@pytest.mark.parametrize(
    "end",
    [
        "asyncio.run(ask())",
        "loop = asyncio.new_event_loop(); loop.run_until_complete(ask())",
        """loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()
asyncio.run_coroutine_threadsafe(ask(), loop).result(5)""",
    ],
    ids=["run", "resting-loop", "daemon-thread"],
)
def test_a_process_that_closes_nothing_ends_at_once_and_silently(end: str) -> None:
    program = f"""
import asyncio, sys, threading
from toolnexus.transport import Limits
from toolnexus.transport.http import HTTPTransport
http = HTTPTransport()
async def ask():
    answer = await http.post(sys.argv[1], headers={{}}, body=b"[]", limits=Limits())
    print(answer.status)
{end}
"""
    with Background() as url:
        begun = time.monotonic()
        run = subprocess.run([sys.executable, "-c", program, url], capture_output=True, timeout=30, text=True)
        took = time.monotonic() - begun
    assert (run.returncode, run.stdout, run.stderr) == (0, "200\n", "")
    assert took < 10


# Proxies


async def test_a_proxy_of_the_environment_is_used_but_not_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    async def answer(to: Exchange) -> None:
        await to.send(JSON)

    async with serving(answer) as proxy, serving(answer) as local:
        address = proxy.url.removeprefix("http://").removesuffix("/v1")
        monkeypatch.setenv("http_proxy", f"http://user:canary-password@{address}")
        monkeypatch.setenv("no_proxy", "direct.test")
        async with transport() as http:
            await post(http, "http://model.test/v1")
            await post(http, local.url)
            error = await failing(post(http, "http://direct.test:1/v1", limits=replace(LIMITS, connect=2)))
    assert [seen.head.partition("\r\n")[0] for seen in proxy.seen] == ["POST http://model.test/v1 HTTP/1.1"]
    assert "proxy-authorization: basic" in proxy.seen[0].head.lower()
    assert len(local.seen) == 1
    assert not error.request_sent


async def test_a_proxy_that_refuses_or_is_not_there_is_named_without_its_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 407 Sign in\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    async with server:
        for port in (server.sockets[0].getsockname()[1], free_port()):
            monkeypatch.setenv("https_proxy", f"http://user:canary-password@127.0.0.1:{port}")
            async with transport() as http:
                error = await failing(post(http, "https://model.test/v1"))
            assert not error.request_sent
            assert "canary" not in shown(error)


async def test_a_proxy_that_speaks_no_http_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("all_proxy", "socks5://user:canary-password@127.0.0.1:1080")
    async with transport() as http:
        with pytest.raises(ConfigurationError, match="NO_PROXY") as caught:
            await post(http, "http://model.test/v1")
    assert "canary" not in shown(caught.value)


async def test_what_comes_unasked_is_not_the_answer_to_the_next_request() -> None:
    read = asyncio.Event()
    arrived = asyncio.Event()

    async def answer(exchange: Exchange) -> None:
        await exchange.send(JSON.replace(b"{}", b"%02d" % len(served.seen)))
        await read.wait()
        await exchange.send(JSON.replace(b"{}", b"99"))
        arrived.set()

    async def other(exchange: Exchange) -> None:
        await exchange.send(JSON)

    async with serving(answer) as served, serving(other) as elsewhere, transport() as http:
        assert await post(http, served.url) == b"01"
        read.set()
        await arrived.wait()
        await post(http, elsewhere.url)  # a whole exchange later, it has been received
        assert await post(http, served.url) == b"02"
        assert served.connections == 2


@pytest.mark.parametrize("host", ["a..example", "a" * 64 + ".example"])
async def test_a_host_that_no_name_can_be_is_a_configuration_error(host: str) -> None:
    async with transport() as http:
        with pytest.raises(ConfigurationError, match="base_url"):
            await post(http, f"http://{host}/v1")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
def test_a_forked_process_does_not_wait_for_a_loop_that_runs_in_its_parent() -> None:
    program = """
import asyncio, contextlib, os, threading, time, warnings
from toolnexus import ConnectionFailed, Limits
from toolnexus.transport.http import HTTPTransport
warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of forks beside threads
http, loop = HTTPTransport(), asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()
with contextlib.suppress(ConnectionFailed):  # nobody listens there, but there is a pool now
    work = http.post("http://127.0.0.1:9/", headers={}, body=b"", limits=Limits())
    asyncio.run_coroutine_threadsafe(work, loop).result()
if (child := os.fork()) == 0:
    began = time.monotonic()
    asyncio.run(http.aclose())
    os._exit(7 if time.monotonic() - began < 0.9 else 3)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("7\n", "")


async def test_a_port_where_nothing_listens_is_said_in_words() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
    async with aclosing(HTTPTransport()) as transport:
        with pytest.raises(ConnectionFailed, match=r"could not be reached: nothing listens there\.$"):
            await transport.post(url, headers={}, body=b"{}", limits=Limits())
