"""The transports that users test with."""

from __future__ import annotations

from typing import Any

import pytest

from toolnexus.client import create_client
from toolnexus.errors import ConnectionFailed
from toolnexus.testing import (
    Rewrite,
    ScriptedTransport,
    SentRequest,
    anthropic_reply,
    anthropic_stream,
    call,
    openai_reply,
    openai_stream,
)
from toolnexus.transport import Limits, Response

URL = "https://llm.example.test/v1/chat/completions"
LIMITS = Limits()


async def post(transport: Any, url: str = URL, body: bytes = b'{"n": 1}') -> Response:
    return await transport.post(url, headers={"x-title": "t"}, body=body, limits=LIMITS)


async def read(transport: Any, url: str = URL) -> tuple[int, list[bytes]]:
    async with transport.stream(url, headers={}, body=b"{}", limits=LIMITS) as answer:
        return answer.status, [chunk async for chunk in answer.chunks()]


async def test_answers_are_given_in_order_and_requests_are_kept() -> None:
    transport = ScriptedTransport({"a": 1}, Response(status=429, headers={"retry-after": "1"}, body=b"busy"))
    first, second = await post(transport), await post(transport)
    assert (first.status, first.headers["content-type"], first.body) == (200, "application/json", b'{"a": 1}')
    assert (second.status, second.headers["retry-after"], second.body) == (429, "1", b"busy")
    assert transport.requests[0] == SentRequest(url=URL, headers={"x-title": "t"}, body=b'{"n": 1}', stream=False)
    assert transport.requests[0].json == {"n": 1}
    transport.assert_finished()


async def test_streams_and_whole_answers_are_served_to_whoever_asks() -> None:
    transport = ScriptedTransport([b"a", b"b"], [b"a", b"b"], {"a": 1})
    assert (await post(transport)).body == b"ab"
    assert await read(transport) == (200, [b"a", b"b"])
    assert await read(transport) == (200, [b'{"a": 1}'])
    assert [request.stream for request in transport.requests] == [False, True, True]


async def test_errors_are_raised_where_the_script_has_them() -> None:
    broken = ConnectionFailed("gone", request_sent=True)
    transport = ScriptedTransport(broken, [b"a", broken])
    with pytest.raises(ConnectionFailed):
        await post(transport)
    async with transport.stream(URL, headers={}, body=b"{}", limits=LIMITS) as answer:
        chunks = answer.chunks()
        assert await anext(chunks) == b"a"
        with pytest.raises(ConnectionFailed):
            await anext(chunks)


async def test_a_function_answers_what_it_was_sent() -> None:
    transport = ScriptedTransport(lambda request: {"echo": request.json["n"]})
    assert (await post(transport)).body == b'{"echo": 1}'


async def test_a_request_too_many_and_a_step_left_over_fail() -> None:
    with pytest.raises(AssertionError, match="request 1 has no scripted answer"):
        await post(ScriptedTransport())
    with pytest.raises(AssertionError, match="1 of the scripted answers"):
        ScriptedTransport({}).assert_finished()


async def test_an_agent_is_tested_with_a_script() -> None:
    provider = ScriptedTransport(openai_reply(calls=[call("add", a=2, b=3)]), openai_reply("It is 5."))

    def add(a: int, b: int) -> int:
        return a + b

    async with create_client("m", base_url="https://llm.example.test", transport=provider) as client:
        result = await client.run("2 + 3?", [add])

    assert result.text == "It is 5."
    assert provider.requests[1].json["messages"][-1] == {"role": "tool", "tool_call_id": "call_1", "content": "5"}
    provider.assert_finished()


@pytest.mark.parametrize(
    ("style", "reply", "stream"),
    [("openai", openai_reply, openai_stream), ("anthropic", anthropic_reply, anthropic_stream)],
)
@pytest.mark.parametrize("streamed", [False, True])
async def test_replies_of_both_wires_are_read_back(style: str, reply: Any, stream: Any, streamed: bool) -> None:
    provider = ScriptedTransport((stream if streamed else reply)("Hello."))
    async with create_client("m", base_url="https://x.test", style=style, transport=provider) as client:
        result = await client.run("Hi")
    assert (result.text, result.finish_reason, result.model) == ("Hello.", "stop", "m")
    assert result.usage is not None
    assert (result.usage.prompt, result.usage.completion, result.usage.total) == (10, 5, 15)


@pytest.mark.parametrize(
    ("hosts", "arrived"),
    [
        ({"llm.example.test": "127.0.0.1:8123"}, "http://127.0.0.1:8123/v1/chat/completions?a=1"),
        ({"llm.example.test:443": "127.0.0.1:8123"}, "https://llm.example.test/v1/chat/completions?a=1"),
        ({"other.test": "127.0.0.1:8123"}, "https://llm.example.test/v1/chat/completions?a=1"),
    ],
)
async def test_a_host_is_rewritten_and_told_who_it_stands_in_for(hosts: dict[str, str], arrived: str) -> None:
    inner = ScriptedTransport({}, {})
    transport = Rewrite(inner, hosts)
    await post(transport, f"{URL}?a=1")
    await read(transport, f"{URL}?a=1")
    await transport.aclose()
    assert [request.url for request in inner.requests] == [arrived] * 2
    believed = None if arrived.startswith("https") else "llm.example.test"
    assert [request.headers.get("host") for request in inner.requests] == [believed] * 2


async def test_a_host_with_its_port_is_found_with_and_without_it() -> None:
    for name in ("llm.example.test", "llm.example.test:8443"):
        inner = ScriptedTransport({})
        await post(Rewrite(inner, {name: "127.0.0.1:1"}), "https://llm.example.test:8443/v1")
        assert inner.requests[0].url == "http://127.0.0.1:1/v1"
