"""A gateway on a socket, with clients of the SDK, and with peers that mean no good."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Any
from urllib.parse import urlsplit

import pytest
from gateways import ERAS, PING, post, read_reply, served
from mcp import Client

from toolnexus import ConfigurationError, ToolContext, create_toolkit
from toolnexus.gateway import http
from toolnexus.gateway.http import HTTPOptions, listening
from toolnexus.gateway.server import Gateway

TOKEN = "a-token-of-the-gateway"


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def conversation(ctx: ToolContext) -> str:
    """Says which conversation this is."""
    return str(ctx.conversation_id)


@pytest.mark.parametrize("era", ERAS)
async def test_clients_of_both_eras_list_and_call(era: str) -> None:
    async with served([add]) as url, Client(url, mode=era) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["add"]
        assert (await client.call_tool("add", {"a": 2, "b": 3})).content[0].text == "5"


async def test_a_client_that_finds_out_the_era_by_itself_gets_the_new_one() -> None:
    async with served([add]) as url, Client(url) as client:
        assert client.session.protocol_version == "2026-07-28"


async def test_each_session_is_a_conversation_of_its_own_and_its_id_stays_secret() -> None:
    async with served([conversation]) as url:
        async with Client(url, mode="legacy") as one, Client(url, mode="legacy") as other:
            first = [(await one.call_tool("conversation", {})).content[0].text for _ in range(2)]
            second = (await other.call_tool("conversation", {})).content[0].text
        opened = await post(url)
        assert first[0] == first[1] != second
        assert opened.headers["mcp-session-id"] not in first[0]
        async with Client(url, mode="2026-07-28") as client:
            assert (await client.call_tool("conversation", {})).content[0].text == "None"


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "127.0.0.1@evil.example", "", "[::1"]
)
async def test_another_host_is_refused(host: str) -> None:
    async with served([add]) as url:
        assert (await post(url, host=host)).status in (400, 421)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1", "[::1]:8765", "127.8.8.8"])
async def test_any_name_of_this_machine_is_let_in(host: str) -> None:
    async with served([add]) as url:
        assert (await post(url, host=host)).status == 200


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("https://evil.example", 403),
        ("null", 403),
        ("http://localhost.evil.example", 403),
        ("http://127.0.0.1:80@evil.example", 403),
        ("file://", 403),
        ("http://localhost:3000", 200),
        ("http://[::1]", 200),
        ("https://app.example", 200),
    ],
)
async def test_pages_of_other_origins_are_refused(origin: str, status: int) -> None:
    options = HTTPOptions(port=0, allowed_origins=("https://app.example",))
    async with served([add], options=options) as url:
        assert (await post(url, origin=origin)).status == status


@pytest.mark.parametrize(
    "sent", [None, "", "Bearer", "Bearer wrong", f"Basic {TOKEN}", f"bearer {TOKEN}x", TOKEN, "Bearer \xff\xfe"]
)
async def test_without_the_token_nothing_is_answered(sent: str | None, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with served([add], options=HTTPOptions(port=0, token=TOKEN)) as url:
        reply = await post(url, authorization=sent)
    assert reply.status == 401
    assert reply.headers["www-authenticate"].startswith("Bearer")
    assert ("invalid_token" in reply.headers["www-authenticate"]) == (sent is not None)
    assert TOKEN not in caplog.text
    assert TOKEN.encode() not in reply.body


async def test_with_the_token_everything_is() -> None:
    async with served([add], options=HTTPOptions(port=0, token=TOKEN)) as url:
        assert (await post(url, authorization=f"Bearer {TOKEN}")).status == 200
        assert (await post(url, authorization=f"bearer  {TOKEN}")).status == 200


async def test_a_gateway_for_the_network_needs_a_token() -> None:
    with pytest.raises(ConfigurationError, match="Give a token"):
        HTTPOptions(host="0.0.0.0")
    assert HTTPOptions(host="0.0.0.0", token=TOKEN).token == TOKEN


async def test_a_large_body_is_refused_whether_it_says_so_or_not() -> None:
    options = HTTPOptions(port=0, max_body=1000)
    async with served([add], options=options) as url:
        assert (await post(url, b"x" * 1001)).status == 413
        chunked = b"3e9\r\n" + b"x" * 1001 + b"\r\n0\r\n\r\n"
        assert (await post(url, chunked, content_length=None, transfer_encoding="chunked")).status == 413
        assert (await post(url, b"", content_length=str(10**30))).status in (400, 413)
        assert (await post(url)).status == 200


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"\xff\xfe", b"[]", b"null", b'{"jsonrpc": "2.0"}', b"[" * 100_000, b'{"a":' * 100_000, b"9" * 100_000],
)
@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28", "2099-01-01", "\xff"])
async def test_what_is_no_message_is_refused_and_others_are_served_on(body: bytes, version: str) -> None:
    async with served([add]) as url:
        reply = await post(url, body, mcp_protocol_version=version)
        assert 400 <= reply.status < 500
        assert b"Traceback" not in reply.body
        assert (await post(url)).status == 200


async def test_other_paths_methods_and_sessions_are_refused() -> None:
    async with served([add]) as url:
        assert (await post(url.replace("/mcp", "/"))).status == 404
        assert (await post(url.replace("/mcp", "/mcp/"))).status == 200
        assert (await post(url, b"", method="PUT")).status == 405
        assert (await post(url, PING, mcp_session_id="0" * 32)).status == 404


async def test_a_session_that_was_ended_is_gone() -> None:
    async with served([add]) as url:
        session = (await post(url)).headers["mcp-session-id"]
        assert (await post(url, PING, mcp_session_id=session)).status == 200
        assert (await post(url, b"", method="DELETE", mcp_session_id=session)).status == 200
        assert (await post(url, PING, mcp_session_id=session)).status == 404


async def test_a_head_that_never_ends_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_HEAD", 0.05)
    async with served([add]) as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(url).port)
        writer.write(b"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\n")
        await writer.drain()
        assert await reader.read() == b""
        writer.close()
        assert (await post(url)).status == 200


async def test_a_body_that_never_ends_is_not_waited_for() -> None:
    async with served([add], options=HTTPOptions(port=0, body_timeout=0.05)) as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(url).port)
        head = (
            b"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{"
        )
        writer.write(head)
        assert read_reply(await reader.read()).status == 408
        writer.close()


async def test_a_client_of_the_new_protocol_that_leaves_cancels_its_call() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        """Waits."""
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with served([wait]) as url:
        client = Client(url, mode="2026-07-28")
        async with client:
            call = asyncio.create_task(client.call_tool("wait", {}))
            await begun.wait()
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
            await ended.wait()


async def test_a_peer_that_vanishes_in_a_call_leaves_a_gateway_that_serves_on() -> None:
    begun = asyncio.Event()

    async def wait() -> None:
        """Waits."""
        begun.set()
        await asyncio.Event().wait()

    call: dict[str, Any] = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "wait"}}
    async with served([wait], options=HTTPOptions(port=0, grace=0.05)) as url:
        session = (await post(url)).headers["mcp-session-id"]
        sending = asyncio.create_task(post(url, call, mcp_session_id=session))
        await begun.wait()
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        assert (await post(url, PING, mcp_session_id=session)).status == 200


async def test_closing_waits_for_a_running_call_and_frees_the_port() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def work() -> str:
        """Works."""
        begun.set()
        await go_on.wait()
        return "done"

    toolkit = await create_toolkit([work])
    call: dict[str, Any] = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "work"}}
    async with listening(Gateway(toolkit), HTTPOptions(port=0)) as url:
        session = (await post(url)).headers["mcp-session-id"]
        sending = asyncio.create_task(post(url, call, mcp_session_id=session))
        await begun.wait()
        asyncio.get_running_loop().call_later(0.05, go_on.set)
    assert b'"done"' in (await sending).body
    with socket.socket() as free:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections that are over may still be known
        free.bind(("127.0.0.1", urlsplit(url).port or 0))
        free.listen()


@pytest.mark.parametrize("era", ERAS)
async def test_closing_does_not_wait_for_clients_that_listen(era: str) -> None:
    closed = asyncio.Event()

    async def stay(url: str, there: asyncio.Event) -> None:
        async with Client(url, mode=era) as client:
            if era == "legacy":
                there.set()
                await closed.wait()
            else:
                async with client.listen(tools_list_changed=True) as stream:
                    there.set()
                    assert [event async for event in stream] == []

    toolkit = await create_toolkit([add])
    async with asyncio.timeout(20):
        async with listening(Gateway(toolkit), HTTPOptions(port=0)) as url:
            there = asyncio.Event()
            staying = asyncio.create_task(stay(url, there))
            await there.wait()
        closed.set()
        await staying


async def test_it_may_be_closed_in_another_task_and_in_any_order() -> None:
    toolkit = await create_toolkit([add])
    first, second = (listening(Gateway(toolkit), HTTPOptions(port=0)) for _ in range(2))
    urls = [await first.__aenter__(), await second.__aenter__()]
    assert [(await post(url)).status for url in urls] == [200, 200]
    await asyncio.create_task(first.__aexit__(None, None, None))
    assert (await post(urls[1])).status == 200
    await asyncio.create_task(second.__aexit__(None, None, None))


async def test_a_port_that_is_taken_is_said() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ConfigurationError, match="cannot listen on"):
            async with served([add], options=HTTPOptions(port=taken.getsockname()[1])):
                pass


async def test_a_connection_serves_more_than_one_request() -> None:
    async with served([add]) as url:
        parts = urlsplit(url)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        for _ in range(3):
            body = b"x"
            writer.write(b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\n\r\n" + body)
            assert b" 4" in await reader.readline()
            while (line := await reader.readline()) != b"\r\n":
                if line.lower().startswith(b"content-length:"):
                    size = int(line.split(b":")[1])
            await reader.readexactly(size)
        writer.close()
