"""A conversation with tools and reasoning goes through at every provider of the table, in each of its styles."""

from __future__ import annotations

import json
from typing import Any

import pytest
from scripts import read

from providers.replies import ANSWER, THOUGHT
from providers.servers import FOREIGN_THOUGHT, KEY, LIMIT, SERVERS, Strict, thoughts
from toolnexus import Finished, ProviderError, RunResult, create_client
from toolnexus.providers import PROVIDERS
from toolnexus.testing import ScriptedTransport, SentRequest
from toolnexus.transport import Response

EVERY_STYLE = [pytest.param(name, style, id=f"{name}-{style}") for name in SERVERS for style in SERVERS[name].styles]
MODELS = {"gemini": "gemini-3-pro"}

LONG_ID = "chatcmpl-tool-" + "4f0c1c2f" * 7
ELSEWHERE = {"style": "openai", "host": "https://elsewhere.test", "model": "other"}
HISTORY: list[dict[str, Any]] = [
    {"role": "user", "content": "What is 1 and 1?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": call_id, "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 1}'}}
            for call_id in (LONG_ID, "0")
        ],
        "origin": ELSEWHERE,
        "native": {"fields": {"reasoning_content": FOREIGN_THOUGHT, "reasoning_text": FOREIGN_THOUGHT}},
    },
    {"role": "tool", "tool_call_id": LONG_ID, "content": "2"},
    {"role": "tool", "tool_call_id": "0", "content": "2"},
    {"role": "assistant", "content": "It is 2.", "origin": ELSEWHERE},
]
"""What another provider said before, with long ids, and with reasoning that is nobody else's business."""


async def add(a: int, b: int) -> int:
    return a + b


async def look(where: str) -> str:
    return f"seen {where}"


def test_every_row_has_a_strict_server_for_each_of_its_styles() -> None:
    assert {name: list(server.styles) for name, server in SERVERS.items()} == {
        name: list(row.styles) for name, row in PROVIDERS.items()
    }


def model_of(name: str, style: str) -> str:
    return MODELS.get(style, f"{name}-model:tag")


def steps(server: Strict, name: str, style: str) -> list[Any]:
    """Two turns: calls and an answer, twice."""
    model = model_of(name, style)

    def answer(step: int) -> Any:
        return lambda request: server.answer(style, model, step, request)

    return [answer(1), answer(2), answer(1), answer(2)]


def environment(monkeypatch: pytest.MonkeyPatch, server: Strict) -> None:
    for row in PROVIDERS.values():
        for variable in (*row.keys, row.base_url_variable, *row.url_fields.values(), *row.header_variables.values()):
            if variable:
                monkeypatch.delenv(variable, raising=False)
    for variable, value in server.environ.items():
        monkeypatch.setenv(variable, value)


async def talk(transport: ScriptedTransport, name: str, style: str, *, stream: bool, **options: Any) -> RunResult:
    """Two turns, on top of a conversation that was held elsewhere."""
    history: Any = HISTORY
    result: RunResult | None = None
    async with create_client(
        f"{name}:{model_of(name, style)}", style=style, transport=transport, system_prompt="Be brief.", **options
    ) as client:
        for prompt in ("What is there?", "And now?"):
            if stream:
                last = (await read(client.stream(prompt, [add, look], history=history, **LIMIT)))[-1]
                assert isinstance(last, Finished)
                result = last.result
            else:
                result = await client.run(prompt, [add, look], history=history, **LIMIT)
            assert result.text == ANSWER
            assert [call.output for call in result.tool_calls] == ["5", "seen north"]
            assert result.usage.total == 30
            history = result.messages
    assert result is not None
    transport.assert_finished()
    return result


@pytest.mark.parametrize(("name", "style"), EVERY_STYLE)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_strict_server_takes_every_request_of_a_conversation_with_tools(
    name: str, style: str, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = SERVERS[name]
    environment(monkeypatch, server)
    transport = ScriptedTransport(*steps(server, name, style))
    await talk(transport, name, style, stream=stream)

    bodies = [request.json for request in transport.requests]
    assert all(FOREIGN_THOUGHT not in request.body.decode() for request in transport.requests)
    replayed = style != "openai" or bool(server.takes_back) or server.reasoning == "parts"
    seen = [thoughts(body) for body in bodies]
    # One field of these replies has the text, or two of them.
    each = 2 if style == "openai" and server.reasoning == "reasoning_details" else 1
    assert seen == [each * count * replayed for count in range(4)]


@pytest.mark.parametrize("name", SERVERS)
async def test_the_best_style_of_a_row_is_asked_when_none_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    server = SERVERS[name]
    environment(monkeypatch, server)
    style = next(iter(server.styles))
    model = model_of(name, style)
    transport = ScriptedTransport(lambda request: server.answer(style, model, 2, request))
    async with create_client(f"{name}:{model}", transport=transport) as client:
        result = await client.run("Hi", **LIMIT)
    assert result.text == ANSWER


@pytest.mark.parametrize("name", [name for name, server in SERVERS.items() if not server.keyless])
async def test_a_wrong_key_is_an_error_that_does_not_show_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    server = SERVERS[name]
    environment(monkeypatch, server)
    style = next(iter(server.styles))
    model = model_of(name, style)
    transport = ScriptedTransport(lambda request: server.answer(style, model, 2, request))
    async with create_client(f"{name}:{model}", api_key="sk-canary", transport=transport) as client:
        with pytest.raises(ProviderError) as caught:
            await client.run("Hi", **LIMIT)
    assert caught.value.kind == "auth"
    assert "canary" not in f"{caught.value} {caught.value!r}"


@pytest.mark.parametrize("version", ["2023-06-01", "2026-10-21"])
async def test_the_version_of_the_messages_api_is_a_setting(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    server = SERVERS["anthropic"]
    environment(monkeypatch, server)
    by_header: dict[str, Any] = {"headers": {"anthropic-version": version}}
    by_row: dict[str, Any] = {"providers": {"anthropic": {"headers": {"Anthropic-Version": version}}}}
    for options in (by_header, by_row):
        transport = ScriptedTransport(*steps(server, "anthropic", "anthropic"))
        await talk(transport, "anthropic", "anthropic", stream=False, **options)
        assert {request.headers["anthropic-version"] for request in transport.requests} == {version}


async def test_a_bearer_token_for_anthropic_goes_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    environment(monkeypatch, Strict(home="", environ={"ANTHROPIC_AUTH_TOKEN": KEY}))
    server = Strict(home="https://api.anthropic.com", styles={"anthropic": "/v1/messages"})
    transport = ScriptedTransport(*steps(server, "anthropic", "anthropic"))
    await talk(transport, "anthropic", "anthropic", stream=True)


async def test_the_optional_headers_of_openrouter_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    server = SERVERS["openrouter"]
    environment(monkeypatch, server)
    given = {"HTTP-Referer": "https://app.test", "X-Title": "My app"}
    transport = ScriptedTransport(*steps(server, "openrouter", "openai"))
    await talk(transport, "openrouter", "openai", stream=False, headers=given)
    assert all(
        (request.headers["http-referer"], request.headers["x-title"]) == ("https://app.test", "My app")
        for request in transport.requests
    )


async def test_a_call_without_reasoning_goes_back_to_where_reasoning_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Strict(
        home="https://api.deepseek.com",
        environ={"DEEPSEEK_API_KEY": KEY},
        takes_back=frozenset({"reasoning_content"}),
        demands="reasoning_content",
    )
    environment(monkeypatch, server)
    transport = ScriptedTransport(*steps(server, "deepseek", "openai"))
    await talk(transport, "deepseek", "openai", stream=True)
    assert THOUGHT not in transport.requests[-1].body.decode()


async def test_what_a_vllm_server_needs_is_said_when_it_refuses_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    environment(monkeypatch, SERVERS["vllm"])
    refusal = b'{"object": "error", "message": "\\"auto\\" tool choice requires a parser", "code": 400}'
    transport = ScriptedTransport(Response(status=400, headers={}, body=refusal))
    async with create_client("vllm:qwen", transport=transport) as client:
        with pytest.raises(ProviderError, match="--enable-auto-tool-choice"):
            await client.run("Hi", [add])


def test_a_server_that_is_asked_wrongly_says_so() -> None:
    """The servers can fail, so that passing them means something."""
    server = SERVERS["mistral"]
    messages = [
        {"role": "user", "content": "Hi"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": LONG_ID, "type": "function", "function": {"name": "add", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": LONG_ID, "content": "2"},
    ]
    plain = {"model": "m", "messages": messages[:1], "max_tokens": 77}
    for body, path, key in (
        ({**plain, "messages": messages}, "/chat/completions", KEY),
        ({**plain, "stream_options": {}}, "/chat/completions", KEY),
        ({**plain, "max_completion_tokens": 77}, "/chat/completions", KEY),
        (plain, "/completions", KEY),
        (plain, "/chat/completions", ""),
    ):
        with pytest.raises(AssertionError):
            server.answer("openai", "m", 1, request_of(server, path, body, key))
    assert server.answer("openai", "m", 2, request_of(server, "/chat/completions", plain, KEY))["choices"]
    refusal = server.answer("openai", "m", 2, request_of(server, "/chat/completions", plain, "sk-other"))
    assert refusal.status == 401


def request_of(server: Strict, path: str, body: Any, key: str) -> SentRequest:
    headers = {"content-type": "application/json", **({"authorization": f"Bearer {key}"} if key else {})}
    return SentRequest(url=server.home + path, headers=headers, body=json.dumps(body).encode(), stream=False)
