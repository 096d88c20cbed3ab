"""One request to one reply: framings, errors, retries, deadlines, secrets."""

from __future__ import annotations

import asyncio
import base64
import json
import time
import traceback
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolnexus._endpoint import resolve
from toolnexus._model import HTTPModel, Learned, ReplyPart
from toolnexus.dialects import Reply, Request, dialect
from toolnexus.errors import (
    ConfigurationError,
    ConnectionFailed,
    HookFailed,
    IncompleteReply,
    InvalidReply,
    ProviderError,
    RunTimeout,
    ToolnexusError,
)
from toolnexus.events import ReasoningDelta, Retrying, TextDelta
from toolnexus.messages import Message
from toolnexus.testing import (
    ScriptedTransport,
    anthropic_reply,
    anthropic_stream,
    call,
    openai_reply,
    openai_stream,
)
from toolnexus.transport import Limits, Response, StreamedResponse, Transport

URL = "https://gw.example.test/v1"
CANARY = "sk-canary-5f/1c+9e"
PROMPT: list[Message] = [{"role": "user", "content": "Hi"}]
JSON = {"content-type": "application/json"}
SSE = {"content-type": "text/event-stream"}
CUT = ConnectionFailed("The connection broke.", request_sent=True)


class Clock:
    """Time that passes only by sleeping."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def now(self) -> float:
        return 1_800_000_000.0

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


class Asked:
    """A model on a scripted transport, and what came of asking it."""

    def __init__(
        self, *steps: Any, style: str = "openai", model: str = "m", base_url: str = URL, **options: Any
    ) -> None:
        self.transport = ScriptedTransport(*steps)
        self.clock = Clock()
        self.parts: list[ReplyPart] = []
        self._model = model
        endpoint = resolve(model, base_url=base_url, style=style, api_key=CANARY, headers=None, environ={})
        self.line = HTTPModel(
            endpoint,
            dialect(style),
            options.pop("transport", self.transport),
            **{
                "limits": Limits(),
                "retries": 2,
                "max_retry_wait": 60.0,
                "clock": self.clock,
                "jitter": lambda: 1.0,
                **options,
            },
        )

    async def reply(self, *, stream: bool = False, deadline: float | None = None, **request: Any) -> Reply:
        request = {"model": self._model, "messages": PROMPT, "stream": stream, **request}
        async with aclosing(self.line.reply(Request(**request), deadline=deadline)) as parts:
            async for part in parts:
                self.parts.append(part)
        reply = self.parts.pop()
        assert isinstance(reply, Reply)
        self.transport.assert_finished()
        return reply

    async def fails(self, **request: Any) -> ToolnexusError:
        with pytest.raises(ToolnexusError) as caught:
            await self.reply(**request)
        return caught.value

    @property
    def events(self) -> list[Any]:
        return [event for part in self.parts if not isinstance(part, Reply) for event in part]

    @property
    def bodies(self) -> list[Any]:
        return [request.json for request in self.transport.requests]


def refusal(status: int, message: str = "no", headers: Mapping[str, str] | None = None, **error: Any) -> Response:
    body = json.dumps({"error": {"message": message, **error}}).encode()
    return Response(status=status, headers={**JSON, **(headers or {})}, body=body)


def answer(body: bytes | str, headers: Mapping[str, str] = JSON, status: int = 200) -> Response:
    return Response(status=status, headers=headers, body=body.encode() if isinstance(body, str) else body)


BUSY = refusal(429, "busy")

# Whole and streamed


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_is_one_body_to_one_url(stream: bool) -> None:
    asked = Asked(openai_stream("Hello.") if stream else openai_reply("Hello."))
    reply = await asked.reply(stream=stream, max_tokens=5, params={"seed": 1})
    assert (reply.text, reply.finish_reason) == ("Hello.", "stop")
    [sent] = asked.transport.requests
    assert sent.url == f"{URL}/chat/completions"
    assert sent.stream is stream
    assert sent.headers["authorization"] == f"Bearer {CANARY}"
    assert sent.json["messages"] == PROMPT
    assert (sent.json["max_tokens"], sent.json["seed"]) == (5, 1)


async def test_a_whole_reply_is_one_batch_of_one_delta_a_kind() -> None:
    asked = Asked(openai_reply("Hello.", reasoning="Hm."))
    await asked.reply()
    assert asked.parts == [[ReasoningDelta("Hm."), TextDelta("Hello.")]]


async def test_a_reply_without_text_has_no_batch() -> None:
    asked = Asked(openai_reply(calls=[call("add", a=2)]))
    reply = await asked.reply()
    assert asked.parts == []
    assert [(each.id, each.name, each.arguments) for each in reply.calls] == [("call_1", "add", '{"a": 2}')]


async def test_the_deltas_of_one_read_are_one_batch() -> None:
    events = openai_stream("a", "b", "c")
    asked = Asked([b"".join(events[:3]), b"".join(events[3:])])
    await asked.reply(stream=True)
    assert asked.parts == [[TextDelta("a"), TextDelta("b")], [TextDelta("c")]]


@pytest.mark.parametrize(
    ("style", "whole", "streamed"),
    [
        (
            "openai",
            openai_reply("Hello.", calls=[call("add", a=2, b=3)]),
            openai_stream("Hel", "lo.", calls=[call("add", a=2, b=3)]),
        ),
        (
            "anthropic",
            anthropic_reply("Hello.", calls=[call("add", a=2, b=3)]),
            anthropic_stream("Hel", "lo.", calls=[call("add", a=2, b=3)]),
        ),
    ],
)
async def test_whole_and_streamed_answers_in_either_framing_are_the_same_reply(
    style: str, whole: dict[str, Any], streamed: list[bytes]
) -> None:
    replies = [
        await Asked(answers, style=style).reply(stream=stream) for answers in (whole, streamed) for stream in (0, 1)
    ]
    assert [reply.text for reply in replies] == ["Hello."] * 4
    assert [reply.usage for reply in replies] == [replies[0].usage] * 4
    assert [[(each.name, json.loads(each.arguments)) for each in reply.calls] for reply in replies] == [
        [("add", {"a": 2, "b": 3})]
    ] * 4


@pytest.mark.parametrize("headers", [JSON, SSE, {}, {"content-type": "text/plain"}])
@pytest.mark.parametrize("blank", [b"", b"\xef\xbb\xbf", b"\r\n \n"])
@pytest.mark.parametrize("stream", [False, True])
async def test_the_body_shows_its_framing_whatever_the_content_type_says(
    headers: Mapping[str, str], blank: bytes, stream: bool
) -> None:
    for body in (json.dumps(openai_reply("Ahoy.")).encode(), b"".join(openai_stream("Ahoy."))):
        asked = Asked(answer(blank + body, headers))
        assert (await asked.reply(stream=stream)).text == "Ahoy."
        assert asked.events == [TextDelta("Ahoy.")]


@given(st.data())
def test_how_a_stream_is_cut_into_reads_never_matters(data: st.DataObject) -> None:
    wire = b": hello\n\n" + b"".join(openai_stream("Grüße", ", ", "☃", calls=[call("add", a=2)]))
    cuts = sorted(data.draw(st.sets(st.integers(1, len(wire) - 1), max_size=30)))
    reads = [wire[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(wire)], strict=True)]
    asked = Asked(reads)
    reply = asyncio.run(asked.reply(stream=True))
    assert asked.events == [TextDelta("Grüße"), TextDelta(", "), TextDelta("☃")]
    assert (reply.text, len(reply.calls)) == ("Grüße, ☃", 1)


async def test_a_stream_that_arrives_byte_by_byte_is_read() -> None:
    wire = b"".join(anthropic_stream("Hel", "lo."))
    asked = Asked([wire[at : at + 1] for at in range(len(wire))], style="anthropic")
    assert (await asked.reply(stream=True)).text == "Hello."


async def test_the_last_event_may_lack_its_blank_line() -> None:
    events = openai_stream("Hi.", usage=None)[:-1]
    asked = Asked([*events[:-1], events[-1].rstrip(b"\n")])
    assert (await asked.reply(stream=True)).finish_reason == "stop"


# What is no reply


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "page",
    [
        answer("<!doctype html><title>Console</title>", {"content-type": "text/html; charset=utf-8"}),
        answer("<html>", {"content-type": "text/plain"}),
        answer("Welcome!", {"content-type": "text/html"}),
    ],
)
async def test_a_page_is_no_reply_and_not_asked_for_again(stream: bool, page: Response) -> None:
    asked = Asked(page, base_url=f"{URL}?key=canary-query")
    error = await asked.fails(stream=stream)
    assert type(error) is InvalidReply
    assert page.headers["content-type"].partition(";")[0] in str(error)
    assert f"{URL}/chat/completions" in str(error)
    assert "base_url" in str(error)
    assert "canary" not in str(error)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("body", ["Not found", '"text"', "[1, 2]", '{"cut": ', "{}", "null", "\xff\xfe"])
async def test_what_cannot_be_read_is_an_invalid_reply(stream: bool, body: str) -> None:
    error = await Asked(answer(body)).fails(stream=stream)
    assert isinstance(error, InvalidReply)
    assert error.kind == "invalid_response"


@pytest.mark.parametrize("stream", [False, True])
async def test_nothing_at_all_is_an_incomplete_reply_that_is_asked_for_again(stream: bool) -> None:
    asked = Asked(answer(b""), answer(b" \n"), openai_reply("There."))
    assert (await asked.reply(stream=stream)).text == "There."
    assert [event.kind for event in asked.events[:2]] == ["truncated_stream"] * 2


async def test_a_stream_without_its_end_mark_is_incomplete() -> None:
    asked = Asked(openai_stream("half", usage=None)[:-2])
    error = await asked.fails(stream=True)
    assert isinstance(error, IncompleteReply)
    assert asked.events == [TextDelta("half")]


async def test_a_connection_that_breaks_after_the_end_mark_changes_nothing() -> None:
    assert (await Asked([*openai_stream("All."), CUT]).reply(stream=True)).text == "All."
    assert (await Asked([*anthropic_stream("All."), CUT], style="anthropic").reply(stream=True)).text == "All."


async def test_a_connection_that_breaks_before_the_end_mark_is_an_error_after_what_was_shown() -> None:
    asked = Asked([*openai_stream("half")[:2], CUT])
    assert await asked.fails(stream=True) is CUT
    assert asked.events == [TextDelta("half")]


async def test_what_stands_before_an_error_in_the_same_read_is_shown() -> None:
    begun = b"".join(openai_stream("half")[:2])
    asked = Asked([begun + b'data: {"error": {"message": "Overloaded", "code": 529}}\n\n'])
    error = await asked.fails(stream=True)
    assert (error.kind, error.retryable) == ("overloaded", True)
    assert asked.events == [TextDelta("half")]


# Refusals


@pytest.mark.parametrize("stream", [False, True])
async def test_a_refusal_is_the_providers_error(stream: bool) -> None:
    asked = Asked(refusal(404, "no such model", {"x-request-id": "req-1"}))
    error = await asked.fails(stream=stream)
    assert isinstance(error, ProviderError)
    assert (error.kind, error.status, error.request_id) == ("not_found", 404, "req-1")
    assert "no such model" in str(error)
    assert f"{URL}/chat/completions" in str(error)


async def test_a_refusal_counts_even_if_its_body_breaks_off() -> None:
    class Cut(ScriptedTransport):
        @asynccontextmanager
        async def stream(self, url: str, **sent: Any) -> AsyncIterator[StreamedResponse]:
            async with super().stream(url, **sent) as answered:
                answered.status = 401
                yield answered

    error = await Asked(transport=Cut([b'{"error": {"message": "bad key"', CUT])).fails(stream=True)
    assert (error.kind, getattr(error, "status", None)) == ("auth", 401)


async def test_an_endless_refusal_is_not_read_to_its_end() -> None:
    read = 0

    class Endless:
        status = 500
        headers: Mapping[str, str] = {}

        async def chunks(self) -> AsyncIterator[bytes]:
            nonlocal read
            while True:
                read += 1
                yield bytes(1 << 16)

    class Source(ScriptedTransport):
        @asynccontextmanager
        async def stream(self, url: str, **sent: Any) -> AsyncIterator[StreamedResponse]:
            yield Endless()

    assert (await Asked(transport=Source(), retries=0).fails(stream=True)).kind == "server"
    assert read <= 17


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("location", "place"),
    [
        ("https://evil.test:8443/steal?key=1", "https://evil.test:8443."),
        ("//evil.test/x", "evil.test."),
        ("/login", "another path"),
        ("http://[::1", "another path"),
        ("", "another path"),
    ],
)
async def test_a_redirect_is_not_followed_and_says_where_to(stream: bool, location: str, place: str) -> None:
    asked = Asked(Response(status=307, headers={"location": location}, body=b""))
    error = await asked.fails(stream=stream)
    assert isinstance(error, ProviderError)
    assert (error.status, error.retryable) == (307, False)
    assert place in str(error)
    assert "Redirects are not followed" in str(error)
    assert "key=1" not in str(error)


async def test_the_rows_note_helps_with_a_400() -> None:
    asked = Asked(refusal(400, "tool choice requires a parser"), base_url="http://localhost:8000")
    assert "--enable-auto-tool-choice" in str(await asked.fails())


async def endpoint_error(
    *steps: Any, model: str = "m", environ: Mapping[str, str] | None = None, **options: Any
) -> str:
    """What a run with these options of a client ends with."""
    endpoint = resolve(model, environ=environ or {}, **options)
    transport = ScriptedTransport(*steps)
    line = HTTPModel(
        endpoint, dialect("openai"), transport, limits=Limits(), retries=0, max_retry_wait=1.0, clock=Clock()
    )
    request = Request(model=endpoint.model, messages=PROMPT, stream=False)
    async with aclosing(line.reply(request, deadline=None)) as parts:
        with pytest.raises(ToolnexusError) as caught:
            await anext(parts)
    assert CANARY not in "".join(traceback.format_exception(caught.value))
    return str(caught.value)


KEYS = {"GROQ_API_KEY": CANARY, "MOONSHOT_API_KEY": CANARY}


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize(
    ("options", "whose"),
    [
        ({"model": "groq:m"}, " The key is that of GROQ_API_KEY."),
        ({"model": "moonshot:m"}, " The key is that of MOONSHOT_API_KEY."),
        ({"model": "groq:m", "api_key": CANARY}, " The key is that of api_key=."),
        ({"base_url": URL, "headers": {"Authorization": CANARY}}, " The key is that of headers=."),
        ({"base_url": URL}, " No key was sent. Give api_key=."),
        ({"base_url": "http://localhost:8000/v1"}, " No key was sent. Set VLLM_API_KEY, or give api_key=."),
    ],
)
async def test_a_refused_key_is_said_by_where_it_came_from(options: Any, whose: str, status: int) -> None:
    shown = CANARY if "key is" in whose else "none"
    said = await endpoint_error(refusal(status, f"Incorrect API key provided: {shown}"), environ=KEYS, **options)
    assert said.endswith(whose)


@pytest.mark.parametrize(
    ("options", "way"),
    [
        ({"model": "ollama:m"}, " Start it with `ollama serve`, or say with OLLAMA_HOST where it is."),
        ({"model": "lmstudio:m"}, " Start it with `lms server start`, or say with base_url= where it is."),
        ({"base_url": "http://127.0.0.1:9/v1"}, " Start the server, or say with base_url= where it is."),
        ({"base_url": URL}, " Check the network, whether it wants a proxy (HTTPS_PROXY), and base_url=."),
        ({"model": "ollama:m", "environ": {"OLLAMA_HOST": "http://gpu.test"}}, "(HTTPS_PROXY), and OLLAMA_HOST."),
    ],
)
async def test_a_server_that_is_not_reached_is_said_with_the_next_step(options: Any, way: str) -> None:
    failure = ConnectionFailed("It could not be reached.", request_sent=False)
    said = await endpoint_error(failure, **options)
    assert said.startswith("It could not be reached. ")
    assert said.endswith(way)


@pytest.mark.parametrize(
    "failure",
    [
        ConnectionFailed("It broke.", request_sent=True),
        ConnectionFailed("It is not trusted.", request_sent=False, retryable=False),
    ],
)
async def test_a_server_that_was_reached_is_not_to_be_started(failure: ConnectionFailed) -> None:
    assert (await endpoint_error(failure, model="ollama:m")).endswith((" broke.", " trusted."))


async def test_a_model_that_a_server_can_get_is_said_with_how() -> None:
    missing = refusal(404, 'model "qwen3" not found, try pulling it first')
    assert (await endpoint_error(missing, model="ollama:qwen3")).endswith(" Get the model with `ollama pull qwen3`.")
    assert "Get the model" not in await endpoint_error(missing, base_url=URL)


# Retries


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "failure",
    [
        *(refusal(status) for status in (408, 409, 429, 500, 502, 503, 504, 529)),
        answer('{"error": {"message": "Upstream refused", "code": 429}, "choices": null}'),
        ConnectionFailed("gone", request_sent=True),
        ConnectionFailed("not there", request_sent=False),
        ConnectionFailed("not there in time", request_sent=False, kind="timeout"),
    ],
    ids=lambda failure: str(getattr(failure, "status", "connection")),
)
async def test_what_may_pass_is_tried_again(stream: bool, failure: Any) -> None:
    asked = Asked(failure, failure, openai_reply("There."))
    assert (await asked.reply(stream=stream)).text == "There."
    assert len(asked.transport.requests) == 3
    assert asked.bodies[0] == asked.bodies[2]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "failure",
    [
        *(refusal(status) for status in (400, 401, 402, 403, 404, 413, 422)),
        refusal(429, "Quota used up", code="insufficient_quota"),
        ConnectionFailed("bad certificate", request_sent=False, retryable=False),
    ],
    ids=lambda failure: str(getattr(failure, "status", "connection")),
)
async def test_what_cannot_pass_is_not_tried_again(stream: bool, failure: Any) -> None:
    asked = Asked(failure)
    assert not (await asked.fails(stream=stream)).retryable
    assert asked.events == []


async def test_a_timeout_waiting_for_a_whole_reply_is_not_tried_again() -> None:
    silent = ConnectionFailed("silent", request_sent=True, kind="timeout")
    assert await Asked(silent).fails() is silent
    assert (await Asked(silent, openai_stream("There.")).reply(stream=True)).text == "There."


async def test_nothing_is_tried_again_once_something_was_shown() -> None:
    asked = Asked([*openai_stream("half")[:2], CUT], openai_reply("not asked for"))
    assert await asked.fails(stream=True) is CUT
    assert len(asked.transport.requests) == 1


async def test_a_stream_that_fails_before_it_shows_anything_is_tried_again() -> None:
    asked = Asked([openai_stream("x")[0], CUT], [b'data: {"error": {"code": 503}}\n\n'], openai_stream("Ready."))
    assert (await asked.reply(stream=True)).text == "Ready."


async def test_every_retry_is_told_before_it_is_waited_for() -> None:
    asked = Asked(BUSY, ConnectionFailed("gone", request_sent=True), openai_reply("There."))
    slept: list[list[float]] = []
    async with aclosing(asked.line.reply(Request(model="m", messages=PROMPT), deadline=None)) as parts:
        async for part in parts:
            asked.parts.append(part)
            slept.append(list(asked.clock.slept))
    first, second, *_ = asked.events
    assert (first.attempt, first.delay, first.kind) == (1, 0.5, "rate_limit")
    assert "busy" in first.reason
    assert (second.attempt, second.delay, second.kind, second.reason) == (2, 1.0, "connection", "gone")
    assert slept[:2] == [[], [0.5]]
    assert all(isinstance(event, Retrying) for event in (first, second))


async def test_the_last_failure_is_raised_when_the_retries_are_used_up() -> None:
    asked = Asked(BUSY, BUSY, refusal(503, "down"))
    error = await asked.fails()
    assert (error.kind, error.retryable) == ("overloaded", True)
    assert len(asked.transport.requests) == 3


async def test_retries_can_be_switched_off() -> None:
    asked = Asked(BUSY, retries=0)
    assert (await asked.fails()).kind == "rate_limit"
    assert asked.events == []


async def test_waits_grow_and_are_bounded_and_scattered() -> None:
    asked = Asked(*[BUSY] * 6, openai_reply("There."), retries=6, max_retry_wait=5.0)
    await asked.reply()
    assert asked.clock.slept == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0]
    scattered = Asked(BUSY, openai_reply("There."), jitter=lambda: 0.25)
    await scattered.reply()
    assert scattered.clock.slept == [0.125]


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after-ms": "350", "retry-after": "1"}, 0.35),
        ({"retry-after": "Fri, 15 Jan 2027 08:00:30 GMT"}, 30.0),
        ({"retry-after": "Fri, 15 Jan 2027 07:00:00 GMT"}, 0.0),
        ({"retry-after": "60"}, 60.0),
        ({"retry-after": "soon"}, 0.5),
    ],
)
async def test_a_server_is_waited_for_as_long_as_it_asks(headers: Mapping[str, str], seconds: float) -> None:
    asked = Asked(refusal(429, "busy", headers), openai_reply("There."))
    await asked.reply()
    assert asked.clock.slept == [seconds]


async def test_a_server_that_asks_for_too_long_a_wait_is_not_waited_for() -> None:
    asked = Asked(refusal(429, "busy", {"retry-after": "3600"}))
    error = await asked.fails()
    assert isinstance(error, ProviderError)
    assert error.retry_after == 3600
    assert "The server asked to wait 3600 s, but max_retry_wait is 60 s." in str(error)
    assert asked.clock.slept == []


async def test_no_wait_goes_beyond_the_deadline() -> None:
    asked = Asked(refusal(429, "busy", {"retry-after": "30"}))
    error = await asked.fails(deadline=time.monotonic() + 10)
    assert error.kind == "rate_limit"
    assert "asked to wait 30 s, but the run's timeout comes first" in str(error)
    plain = Asked(BUSY, jitter=lambda: 1.0)
    assert (await plain.fails(deadline=time.monotonic() + 0.2)).kind == "rate_limit"


# The token limit's two names

RENAMED = refusal(
    400,
    "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
    param="max_tokens",
    code="unsupported_parameter",
)


async def test_the_token_limit_is_sent_under_the_name_that_the_model_takes() -> None:
    learned = Learned()
    asked = Asked(RENAMED, openai_reply("There."), learned=learned, retries=0)
    await asked.reply(max_tokens=256)
    assert [body.get("max_tokens") for body in asked.bodies] == [256, None]
    assert asked.bodies[1]["max_completion_tokens"] == 256
    assert asked.events == [TextDelta("There.")], "it is no retry"

    again = Asked(openai_reply("There."), learned=learned)
    await again.reply(max_tokens=16)
    assert again.bodies[0]["max_completion_tokens"] == 16
    other = Asked(openai_reply("There."), learned=learned, model="another")
    await other.reply(max_tokens=16)
    assert other.bodies[0]["max_tokens"] == 16


@pytest.mark.parametrize(
    "refused",
    [
        refusal(400, "Unrecognized request argument supplied: max_completion_tokens"),
        refusal(422, "body.max_completion_tokens: Extra inputs are not permitted"),
    ],
)
async def test_the_newer_name_is_taken_back_where_a_server_does_not_know_it(refused: Response) -> None:
    asked = Asked(refused, openai_reply("There."), base_url="https://api.openai.com")
    await asked.reply(max_tokens=256)
    assert asked.bodies[0]["max_completion_tokens"] == 256
    assert asked.bodies[1]["max_tokens"] == 256
    assert "max_completion_tokens" not in asked.bodies[1]


async def test_a_server_that_refuses_both_names_is_not_asked_for_ever() -> None:
    asked = Asked(RENAMED, refusal(400, "Unsupported parameter: max_completion_tokens. Use max_tokens instead."))
    assert (await asked.fails(max_tokens=256)).kind == "bad_request"


@pytest.mark.parametrize(
    "refused", [refusal(400, "max_tokens is too large: 999"), refusal(400, "Unsupported parameter: 'logprobs'")]
)
async def test_other_complaints_do_not_rename_the_limit(refused: Response) -> None:
    await Asked(refused).fails(max_tokens=999)
    await Asked(RENAMED).fails()


# The body


async def test_a_transform_gets_the_final_body_fresh_each_time_and_may_change_or_replace_it() -> None:
    seen: list[Any] = []

    def change(body: dict[str, Any]) -> None:
        seen.append(json.loads(json.dumps(body)))
        body["messages"][0]["content"] = "changed"
        body["extra"] = 1

    asked = Asked(openai_reply("1"), openai_reply("2"), body_transform=change)
    for _ in range(2):
        async with aclosing(
            asked.line.reply(Request(model="m", messages=PROMPT, params={"seed": 7}), deadline=None)
        ) as parts:
            assert [part async for part in parts]
    assert [body["messages"][0]["content"] for body in seen] == ["Hi", "Hi"]
    assert [body["seed"] for body in seen] == [7, 7]
    assert [body["messages"][0]["content"] for body in asked.bodies] == ["changed", "changed"]
    assert PROMPT[0]["content"] == "Hi"

    replaced = Asked(openai_reply("1"), body_transform=lambda body: {"only": body["model"]})
    await replaced.reply()
    assert replaced.bodies == [{"only": "m"}]


async def test_a_transform_that_raises_stops_the_request() -> None:
    def refuse(body: dict[str, Any]) -> None:
        raise LookupError(body["model"])

    asked = Asked(body_transform=refuse)
    error = await asked.fails()
    assert isinstance(error, HookFailed)
    assert isinstance(error.__cause__, LookupError)
    assert asked.transport.requests == []


@pytest.mark.parametrize("value", [float("nan"), {1, 2}, b"x"])
async def test_a_parameter_that_is_no_json_is_named(value: Any) -> None:
    error = await Asked().fails(params={"metadata": {"x": value}})
    assert isinstance(error, ConfigurationError)
    assert "metadata.x" in str(error)


async def test_text_that_is_not_valid_unicode_can_be_sent() -> None:
    asked = Asked(openai_reply("There."))
    await asked.reply(messages=[{"role": "user", "content": "a\ud800b"}])
    assert asked.bodies[0]["messages"][0]["content"] == "a\ufffdb"


# Deadlines and leaving


class Hanging(ScriptedTransport):
    """Answers with `begun` and then with nothing any more."""

    def __init__(self, *begun: bytes, enter: bool = True) -> None:
        super().__init__()
        self._begun = begun
        self._enter = enter
        self.left = asyncio.Event()
        self.hanging = asyncio.Event()

    async def post(self, url: str, **sent: Any) -> Response:
        try:
            await self._hang()
        finally:
            self.left.set()
        raise AssertionError

    @asynccontextmanager
    async def stream(self, url: str, **sent: Any) -> AsyncIterator[StreamedResponse]:
        try:
            if not self._enter:
                await self._hang()
            yield self
        finally:
            self.left.set()

    status = 200
    headers: Mapping[str, str] = SSE

    async def chunks(self) -> AsyncIterator[bytes]:
        for read in self._begun:
            yield read
        await self._hang()

    async def _hang(self) -> None:
        self.hanging.set()
        await asyncio.Event().wait()


BEGUN = b"".join(openai_stream("half")[:2])


@pytest.mark.parametrize(
    ("transport", "stream"),
    [
        (lambda: Hanging(), False),
        (lambda: Hanging(enter=False), True),
        (lambda: Hanging(), True),
        (lambda: Hanging(BEGUN), True),
    ],
    ids=["whole", "entering", "first-read", "next-read"],
)
async def test_a_deadline_bounds_every_wait(transport: Any, stream: bool) -> None:
    hanging: Hanging = transport()
    asked = Asked(transport=hanging)
    begun = time.monotonic()
    error = await asked.fails(stream=stream, deadline=time.monotonic() + 0.05)
    assert isinstance(error, RunTimeout)
    assert time.monotonic() - begun < 5
    assert hanging.left.is_set()
    assert all(isinstance(event, TextDelta) for event in asked.events), "it was not tried again"


async def test_a_deadline_bounds_the_wait_for_a_retry() -> None:
    class Stuck(Clock):
        async def sleep(self, seconds: float) -> None:
            await asyncio.Event().wait()

    asked = Asked(BUSY, clock=Stuck(), jitter=lambda: 0.0)
    assert isinstance(await asked.fails(deadline=time.monotonic() + 0.05), RunTimeout)


async def test_a_deadline_that_is_not_reached_changes_nothing() -> None:
    asked = Asked(openai_stream("a", "b"))
    assert (await asked.reply(stream=True, deadline=time.monotonic() + 60)).text == "ab"
    assert asked.events == [TextDelta("a"), TextDelta("b")]


async def test_closing_the_generator_leaves_the_connection_at_once() -> None:
    hanging = Hanging(BEGUN)
    parts: AsyncGenerator[ReplyPart, None] = Asked(transport=hanging).line.reply(
        Request(model="m", messages=PROMPT, stream=True), deadline=None
    )
    assert await anext(parts) == [TextDelta("half")]
    assert not hanging.left.is_set()
    await parts.aclose()
    assert hanging.left.is_set()


@pytest.mark.parametrize("stream", [False, True])
async def test_cancelling_leaves_the_connection_at_once(stream: bool) -> None:
    hanging = Hanging()
    task = asyncio.ensure_future(Asked(transport=hanging).reply(stream=stream))
    await hanging.hanging.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert hanging.left.is_set()


async def test_nothing_is_sent_before_the_first_part_is_asked_for() -> None:
    asked = Asked()
    parts = asked.line.reply(Request(model="m", messages=PROMPT), deadline=None)
    await parts.aclose()
    assert asked.transport.requests == []


# Secrets


def shown(error: BaseException) -> str:
    """All that a logger or an error tracker can find in an error."""
    seen: list[str] = []
    link: BaseException | None = error
    while link is not None:
        seen.append(f"{link} {link!r} {vars(link)}")
        link = link.__cause__ or link.__context__
    return "\n".join([*seen, *traceback.format_exception(error)])


ECHOES = [
    CANARY,
    f"{CANARY}\n",
    f"Bearer {CANARY}",
    quote(CANARY, safe=""),
    json.dumps(CANARY)[1:-1].replace("/", "\\/"),
    base64.b64encode(f"Bearer {CANARY}".encode()).decode(),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("echo", ECHOES)
@pytest.mark.parametrize(
    "form",
    [
        lambda echo: refusal(400, f"Bad key: {echo}", {"x-request-id": echo}, param=echo),
        lambda echo: answer(f"Bad key: {echo}", {"content-type": "text/plain"}, 401),
        lambda echo: answer(f"<html><title>{echo}</title>", {"content-type": "text/html"}, 500),
        lambda echo: Response(status=302, headers={"location": f"https://{echo}.evil.test/{echo}"}, body=b""),
        lambda echo: answer(f'{{"error": {{"message": {json.dumps(echo)}, "code": 400}}}}'),
        lambda echo: answer(f"{{not json: {echo}", {"content-type": f"application/json; {echo}"}),
        lambda echo: answer(f"<p>{echo}", {"content-type": f"text/html; {echo}"}),
        lambda echo: answer(f"data: {{not json {echo}\n\n", SSE),
        lambda echo: answer(f"data: {echo}\n\n", SSE),
        lambda echo: ConnectionFailed(f"A careless transport: {echo}", request_sent=True, retryable=False),
    ],
)
async def test_a_server_that_echoes_the_key_cannot_make_us_show_it(form: Any, echo: str, stream: bool) -> None:
    asked = Asked(form(echo), retries=0)
    text = shown(await asked.fails(stream=stream))
    assert "canary" not in text
    assert base64.b64encode(b"canary").decode()[2:7] not in text
    assert quote(CANARY, safe="")[-6:] not in text


async def test_a_retry_shows_no_key() -> None:
    asked = Asked(refusal(503, f"The key {CANARY} is tired"), openai_reply("There."))
    await asked.reply()
    assert asked.events[0].reason.count("[redacted]") == 1
    assert "canary" not in repr(asked.events)


async def test_the_cause_of_an_error_is_kept_where_it_shows_nothing() -> None:
    error = await Asked(answer("{not json")).fails()
    assert isinstance(error.__cause__, ValueError)


def test_a_transport_for_tests_is_a_transport() -> None:
    transport: Transport = ScriptedTransport()
    assert transport


@pytest.mark.parametrize(
    "trouble",
    [CUT, InvalidReply("What the server sent is no HTTP answer."), InvalidReply("The answer is too large.")],
    ids=["cut", "garbage", "flood"],
)
async def test_what_goes_wrong_after_the_end_mark_takes_nothing_from_the_reply(trouble: Exception) -> None:
    asked = Asked([*openai_stream("whole"), trouble])
    assert (await asked.reply(stream=True)).text == "whole"


async def test_a_deadline_takes_nothing_from_a_reply_whose_connection_stays_open() -> None:
    asked = Asked(transport=Hanging(b"".join(openai_stream("whole"))))
    assert (await asked.reply(stream=True, deadline=time.monotonic() + 0.05)).text == "whole"


@pytest.mark.parametrize("together", [True, False], ids=["one read", "many reads"])
async def test_nothing_after_the_end_mark_belongs_to_the_reply(together: bool) -> None:
    reads = [*openai_stream("one"), *openai_stream("two")]
    asked = Asked([b"".join(reads)] if together else reads)
    assert (await asked.reply(stream=True)).text == "one"
