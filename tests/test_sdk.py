"""The official SDKs of OpenAI and Anthropic accept what we send, and read streams as we do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import openai
import pytest
from anthropic.types import message_create_params as messages_params
from corpus_runner.cases import read
from hypothesis import given
from openai.types.chat import completion_create_params as chat_params
from openai.types.responses import response_create_params as responses_params
from sdk_types import misfit
from strategies import transcripts

from toolnexus import Tool
from toolnexus.dialects import Reading, Reply, Request, ResponseSchema, Target, dialect
from toolnexus.dialects.sse import SSEDecoder
from toolnexus.messages import repair
from toolnexus.providers import PROVIDERS, UNKNOWN

CASES = sorted((Path(__file__).parent / "corpus" / "wire").glob("*.json"))
BODIES: Mapping[str, tuple[Any, Any]] = {
    "openai": (chat_params.CompletionCreateParamsNonStreaming, chat_params.CompletionCreateParamsStreaming),
    "anthropic": (messages_params.MessageCreateParamsNonStreaming, messages_params.MessageCreateParamsStreaming),
    "responses": (responses_params.ResponseCreateParamsNonStreaming, responses_params.ResponseCreateParamsStreaming),
}
TARGETS = {
    # Of OpenAI's own types only that host's messages can be asked for: others add fields of their own.
    "openai": Target(style="openai", host="https://model.test", provider=UNKNOWN),
    "anthropic": Target(style="anthropic", host="https://api.anthropic.com", provider=PROVIDERS["anthropic"]),
    "responses": Target(style="responses", host="https://api.openai.com", provider=PROVIDERS["openai"]),
}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [Tool(name="weather", description="Weather.", input_schema=SCHEMA, execute=print)]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("style", BODIES)
@given(messages=transcripts())
def test_our_requests_are_what_the_sdks_would_send(style: str, stream: bool, messages: list[Any]) -> None:
    request = Request(
        model="m",
        messages=repair(messages)[0] or [{"role": "user", "content": "Hi"}],
        system="Be brief.",
        tools=TOOLS,
        max_tokens=100,
        stream=stream,
        response_schema=ResponseSchema(name="answer", schema=SCHEMA),
    )
    body = dialect(style).encoder(TARGETS[style]).encode(request)
    assert misfit(body, BODIES[style][stream]) is None


def test_a_request_that_is_wrong_would_be_found() -> None:
    right = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    chat = BODIES["openai"][0]
    assert misfit(right, chat) is None
    assert "lacks" in str(misfit({"model": "m"}, chat))
    assert "colour" in str(misfit({**right, "colour": 1}, chat))
    assert misfit({**right, "messages": [{"role": "user", "content": [{"type": "txt", "text": "Hi"}]}]}, chat)
    assert misfit({**right, "max_tokens": "7"}, chat)


# Streams


def streams() -> list[Any]:
    """The streams of the corpus that end well, of a style that an SDK reads."""
    found: list[Any] = []
    for path in CASES:
        for number, play in enumerate(read(path)):
            if play.style not in SDKS:
                continue
            for place, answer in enumerate(play.script.answers):
                name = f"{path.stem}-{number}-{place}"
                if "event-stream" in answer.headers.get("content-type", "") and not answer.abort and name not in QUIRKS:
                    found.append(pytest.param(play.style, b"".join(answer.reads), id=name))
    return found


def ours(style: str, stream: bytes) -> Reply:
    target = TARGETS[style]
    decoder = dialect(style).decoder(Reading(target=target, model="m"))
    sse = SSEDecoder()
    for payload in [*sse.feed(stream), *sse.finish()]:
        if not decoder.done:
            decoder.feed(payload)
    return decoder.finish()


def of_openai(stream: bytes) -> tuple[str, list[tuple[str, str]], int | None]:
    with openai.OpenAI(
        api_key="k", base_url="https://model.test/v1", http_client=_client(stream), max_retries=0
    ) as sdk:
        text, calls, total = "", dict[int, list[str]](), None
        for chunk in sdk.chat.completions.create(model="m", messages=[], stream=True):
            total = chunk.usage.total_tokens if chunk.usage else total
            for choice in chunk.choices:
                text += choice.delta.content or ""
                for call in choice.delta.tool_calls or ():
                    known = calls.setdefault(call.index, ["", ""])
                    known[0] = (call.function and call.function.name) or known[0]
                    known[1] += (call.function and call.function.arguments) or ""
        return text, [(name, arguments) for name, arguments in calls.values()], total


def of_anthropic(stream: bytes) -> tuple[str, list[tuple[str, Any]], int | None]:
    with (
        anthropic.Anthropic(
            api_key="k", base_url="https://model.test", http_client=_client(stream), max_retries=0
        ) as sdk,
        sdk.messages.stream(model="m", max_tokens=10, messages=[]) as events,
    ):
        message = events.get_final_message()
        text = "".join(block.text for block in message.content if block.type == "text")
        calls = [(block.name, block.input) for block in message.content if block.type == "tool_use"]
        return text, calls, None


def of_responses(stream: bytes) -> tuple[str, list[tuple[str, str]], int | None]:
    with openai.OpenAI(
        api_key="k", base_url="https://model.test/v1", http_client=_client(stream), max_retries=0
    ) as sdk:
        for event in sdk.responses.create(model="m", input=[], stream=True):
            if event.type in ("response.completed", "response.incomplete"):
                response = event.response
                calls = [(item.name, item.arguments) for item in response.output if item.type == "function_call"]
                return response.output_text, calls, response.usage.total_tokens if response.usage else None
    raise AssertionError("the stream has no end")


def _client(stream: bytes) -> httpx2.Client:
    def answer(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=stream)

    return httpx2.Client(transport=httpx2.MockTransport(answer))


SDKS: Mapping[str, Callable[[bytes], Any]] = {
    "openai": of_openai,
    "anthropic": of_anthropic,
    "responses": of_responses,
}
QUIRKS: Mapping[str, str] = {
    "anthropic-sse-max-tokens-mid-tool-0-0": "a call that was cut off, which the SDK hands out all the same",
    "anthropic-sse-overloaded-after-text-0-0": "an error",
    "oai-http-framing-swapped-2-0": "ends without its end mark",
    "oai-sse-comment-keepalive-0-0": "events without data, which the SDK reads as JSON",
    "oai-sse-error-in-200-0-0": "an error",
    "oai-sse-silent-cut-0-0": "ends without its end mark",
    "oai-sse-tool-index-all-zero-0-0": "calls that all have the index 0",
    "oai-sse-tool-index-missing-0-0": "calls without an index",
    "responses-sse-call-only-in-done-0-0": "items that are not told again at the end",
    "responses-sse-call-only-in-done-0-1": "items that are not told again at the end",
    "responses-sse-error-after-text-0-0": "an error",
    "responses-sse-failed-rate-limit-0-0": "an error",
    "responses-sse-incomplete-whole-call-0-0": "a call that was cut off, which the SDK hands out all the same",
    "responses-sse-parallel-interleaved-0-0": "items that are not told again at the end",
    "responses-sse-refusal-delta-0-0": "a refusal, which the SDK does not count as text",
    "responses-sse-silent-cut-after-call-0-0": "ends without its end mark",
}
"""Streams that are not well-formed, which is what their cases are about."""


@pytest.mark.parametrize(("style", "stream"), streams())
def test_the_sdk_reads_the_same_out_of_a_stream(style: str, stream: bytes) -> None:
    text, calls, total = SDKS[style](stream)
    reply = ours(style, stream)
    assert reply.text == text
    assert [call.name for call in reply.calls] == [name for name, _ in calls]
    if total is not None:
        assert reply.usage is not None
        assert reply.usage.total == total


def test_the_streams_that_are_left_out_are_there() -> None:
    names = {
        f"{path.stem}-{n}-{place}"
        for path in CASES
        for n, play in enumerate(read(path))
        for place in range(len(play.script.answers))
    }
    assert names >= QUIRKS.keys()
