"""`fallbacks=`: who is asked when a model cannot answer, and what is never sent elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from scripts import read

from toolnexus import (
    Client,
    ConfigurationError,
    IncompleteReply,
    MissingKey,
    ProviderError,
    Retrying,
    TextDelta,
    create_client,
)
from toolnexus._stream import RunStream
from toolnexus.testing import ScriptedTransport, anthropic_reply, call, openai_reply, openai_stream
from toolnexus.transport import Response

FIRST = "https://first.test/v1"
SECOND = {"model": "b", "base_url": "https://second.test", "style": "anthropic", "api_key": "key-of-second"}


def error(status: int, message: str = "no", headers: Mapping[str, str] | None = None) -> Response:
    return Response(status=status, headers=headers or {}, body=f'{{"error": {{"message": "{message}"}}}}'.encode())


async def _note(stream: RunStream, seen: list[Any]) -> None:
    async with stream as events:
        async for event in events:
            seen.append(event)


def two(*steps: Any, **options: Any) -> tuple[Client, ScriptedTransport]:
    transport = ScriptedTransport(*steps)
    options = {"retries": 0, "fallbacks": [SECOND], **options}
    return create_client("a", base_url=FIRST, api_key="key-of-first", transport=transport, **options), transport


@pytest.mark.parametrize("status", [401, 403, 404, 429, 500, 503])
async def test_the_next_model_answers_and_the_reader_is_told(status: int) -> None:
    client, transport = two(error(status), anthropic_reply("Hello.", model="b-2"))
    async with client.stream("hi") as events:
        seen = [event async for event in events]

    [told] = [event for event in seen if isinstance(event, Retrying)]
    assert (told.model, told.delay) == ("b", 0.0)
    result = seen[-1].result  # pyright: ignore[reportAttributeAccessIssue]
    assert (result.text, result.model) == ("Hello.", "b-2")
    assert [request.json["model"] for request in transport.requests] == ["a", "b"]


async def test_neither_key_nor_headers_go_to_another_host() -> None:
    client, transport = two(error(500), anthropic_reply("Hello."), headers={"x-team": "first"})
    await client.run("hi")
    first, second = transport.requests
    assert first.headers["authorization"] == "Bearer key-of-first"
    assert second.url == "https://second.test/v1/messages"
    assert second.headers["x-api-key"] == "key-of-second"
    assert "authorization" not in second.headers
    assert "x-team" not in second.headers


async def test_a_request_that_is_wrong_is_not_sent_elsewhere() -> None:
    client, transport = two(error(400, "temperature is out of range"))
    with pytest.raises(ProviderError, match="temperature"):
        await client.run("hi")
    assert len(transport.requests) == 1


async def test_nothing_is_asked_elsewhere_once_something_was_shown() -> None:
    client, transport = two(openai_stream("Hel")[:-3])
    seen: list[Any] = []
    stream = client.stream("hi")
    with pytest.raises(IncompleteReply):
        await _note(stream, seen)
    assert [event.text for event in seen if isinstance(event, TextDelta)] == ["Hel"]
    assert len(transport.requests) == 1


async def test_who_answered_is_asked_first_for_the_rest_of_the_run() -> None:
    async def add(a: int, b: int) -> int:
        return a + b

    client, transport = two(
        error(500), anthropic_reply(calls=[call("add", a=1, b=2)]), anthropic_reply("3"), openai_reply("Hello again.")
    )
    assert (await client.run("1 + 2?", [add])).text == "3"
    assert (await client.run("hi")).text == "Hello again."
    assert [request.json["model"] for request in transport.requests] == ["a", "b", "b", "a"]


async def test_the_first_is_retried_before_the_next_is_asked() -> None:
    client, transport = two(
        error(500, headers={"retry-after": "0"}),
        error(500, headers={"retry-after": "0"}),
        anthropic_reply("Hello."),
        retries=1,
    )
    events = await read(client.stream("hi"))
    assert [event.model for event in events if isinstance(event, Retrying)] == [None, "b"]
    assert len(transport.requests) == 3


async def test_the_last_error_is_raised() -> None:
    client, _ = two(error(500, "first"), error(529, "second"))
    with pytest.raises(ProviderError, match="second"):
        await client.run("hi")


async def test_a_conversation_goes_on_with_the_first_model() -> None:
    client, transport = two(error(500), anthropic_reply("Hello."), openai_reply("Bye."))
    await client.ask("hi", id="u")
    await client.ask("bye", id="u")
    assert [message["role"] for message in transport.requests[-1].json["messages"]] == ["user", "assistant", "user"]


def test_a_fallback_without_its_key_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GROQ_API_KEY", raising=False)
    with pytest.raises(MissingKey, match="GROQ_API_KEY"):
        create_client("a", base_url=FIRST, fallbacks=["groq:llama"])


@pytest.mark.parametrize("wrong", [{"model": "b", "url": "https://second.test"}, 7])
def test_what_is_no_fallback_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="base_url"):
        create_client("a", base_url=FIRST, fallbacks=[wrong])


@pytest.mark.parametrize(
    ("wrong", "shown"), [("ollama:x", "fallbacks is 'ollama:x'; give a list"), ({"model": "b"}, "fallbacks is one obj")]
)
def test_one_fallback_is_no_list_of_them(wrong: Any, shown: str) -> None:
    with pytest.raises(ConfigurationError, match=shown):
        create_client("a", base_url=FIRST, fallbacks=wrong)


def test_a_fallback_that_is_refused_shows_no_key() -> None:
    with pytest.raises(ConfigurationError, match="A fallback has api_key, url; ") as caught:
        create_client("a", base_url=FIRST, fallbacks=[{"api_key": "sk-canary", "url": "x"}])  # type: ignore[list-item]
    assert "canary" not in str(caught.value)
