from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from toolnexus import (
    InvalidReply,
    ProviderError,
    Retrying,
    RunTimeout,
    StepFinished,
    TextDelta,
    Usage,
    create_in_process_client,
)
from toolnexus.tools import Tool


class FakeClock:
    def __init__(self) -> None:
        self.slept: list[float] = []

    def now(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


def adder() -> Tool:
    return Tool(
        name="add numbers!",  # no wire takes this name as it is
        description="Adds.",
        input_schema={"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
        execute=lambda args, ctx: args.get("a", 0) + args.get("b", 0),
        read_only=True,
    )


async def answer_of(generate: Any, **options: Any) -> str:
    async with create_in_process_client(generate=generate, **options) as client:
        return (await client.run("Hi")).text


async def test_generate_may_be_plain_async_a_partial_an_object_or_return_an_awaitable() -> None:
    async def later(request: dict[str, Any], text: str = "async") -> dict[str, Any]:
        return {"content": text}

    class Engine:
        async def __call__(self, request: dict[str, Any]) -> dict[str, Any]:
            return {"content": "object"}

    assert await answer_of(lambda request: {"content": "plain"}) == "plain"
    assert await answer_of(later) == "async"
    assert await answer_of(functools.partial(later, text="partial")) == "partial"
    assert await answer_of(Engine()) == "object"
    assert await answer_of(lambda request: later(request, "awaitable")) == "awaitable"


async def test_a_plain_generate_runs_in_a_worker_thread_and_an_async_one_on_the_loop() -> None:
    threads: list[int] = []

    def plain(request: dict[str, Any]) -> dict[str, Any]:
        threads.append(threading.get_ident())
        return {"content": "x"}

    async def pieces(request: dict[str, Any]) -> AsyncIterator[Any]:
        threads.append(threading.get_ident())
        yield {"content": "x"}

    await answer_of(plain)
    await answer_of(pieces)
    here = threading.get_ident()
    assert [each == here for each in threads] == [False, True]


async def test_generate_gets_messages_tools_and_model_with_the_system_prompt_first() -> None:
    requests: list[dict[str, Any]] = []

    async def generate(request: dict[str, Any]) -> dict[str, Any]:
        requests.append(request)
        if len(requests) == 1:
            return {"content": "Adding.", "tool_calls": [{"name": "add numbers!", "arguments": {"a": 2, "b": 3}}]}
        return {"content": "It is 5."}

    async with create_in_process_client(model="tiny", generate=generate, system_prompt="Be brief.") as client:
        result = await client.run("2 + 3?", [adder()])
    schema = adder().input_schema
    assert requests[0] == {
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2 + 3?"}],
        "tools": [
            {
                "type": "function",
                "function": {"name": "add numbers!", "description": "Adds.", "parameters": schema},
            }
        ],
        "model": "tiny",
    }
    assert requests[1]["messages"][2:] == [
        {
            "role": "assistant",
            "content": "Adding.",
            "tool_calls": [
                {
                    "id": "call_1_0",
                    "type": "function",
                    "function": {"name": "add numbers!", "arguments": '{"a":2,"b":3}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "call_1_0", "content": "5"},
    ]
    assert (result.text, result.model, result.tool_calls[0].output) == ("It is 5.", "tiny", "5")


async def test_what_generate_changes_in_its_request_reaches_nothing() -> None:
    async def generate(request: dict[str, Any]) -> dict[str, Any]:
        for message in request["messages"]:
            message["content"] = "changed"
        request["messages"].append({"role": "user", "content": "more"})
        return {"content": "done"}

    async with create_in_process_client(generate=generate) as client:
        await client.ask("one", id="c")
        result = await client.ask("two", id="c")
    assert [message["content"] for message in result.messages] == ["one", "done", "two", "done"]


async def test_messages_say_which_model_of_this_process_wrote_them() -> None:
    async with create_in_process_client(model="tiny", generate=lambda request: {"content": "x"}) as client:
        result = await client.run("Hi")
    assert result.messages[-1] == {
        "role": "assistant",
        "content": "x",
        "origin": {"style": "in_process", "model": "tiny", "host": "in-process"},
    }


async def test_pieces_of_text_become_deltas_as_they_come() -> None:
    gate = asyncio.Event()

    async def generate(request: dict[str, Any]) -> AsyncIterator[Any]:
        yield "Hel"
        await gate.wait()
        yield "lo\ud800"
        yield ""
        yield {"usage": {"prompt": 3, "completion": 2}}

    seen: list[Any] = []
    async with create_in_process_client(generate=generate) as client, client.stream("Hi") as events:
        async for event in events:
            seen.append(event)
            gate.set()
    assert seen[:3] == [
        TextDelta("Hel"),
        TextDelta("lo�"),
        StepFinished(usage=Usage(prompt=3, completion=2, total=5), finish_reason="stop", model="in-process"),
    ]
    assert seen[3].result.text == "Hello�"


async def test_content_after_pieces_is_the_whole_text_and_its_rest_is_shown() -> None:
    async def generate(request: dict[str, Any]) -> AsyncIterator[Any]:
        yield "Hello"
        yield {"content": "Hello there"}

    texts: list[str] = []
    async with create_in_process_client(generate=generate) as client:
        result = await client.ask("Hi", on_text=texts.append)
    assert (texts, result.text) == (["Hello", " there"], "Hello there")


async def test_usage_may_have_the_words_of_the_chat_api() -> None:
    usage = {"prompt_tokens": 7, "completion_tokens": 4, "total_tokens": 11}
    async with create_in_process_client(generate=lambda request: {"content": "x", "usage": usage}) as client:
        result = await client.run("Hi")
    assert result.usage == Usage(prompt=7, completion=4, total=11)


@pytest.mark.parametrize("arguments", [{"a": 1}, '{"a": 1}', None, "", {}])
async def test_arguments_are_a_dict_json_text_or_nothing(arguments: object) -> None:
    answers = iter([{"tool_calls": [{"name": "add numbers!", "arguments": arguments, "id": "mine"}]}, {"content": "x"}])
    async with create_in_process_client(generate=lambda request: next(answers)) as client:
        result = await client.run("Hi", [adder()])
    assert [(call.id, call.is_error, call.output) for call in result.tool_calls] == [
        ("mine", False, "1" if arguments else "0")
    ]


async def test_arguments_that_cannot_be_read_are_told_to_the_model_and_not_run() -> None:
    answers = iter([{"tool_calls": [{"name": "add numbers!", "arguments": '{"a": '}]}, {"content": "x"}])
    async with create_in_process_client(generate=lambda request: next(answers)) as client:
        result = await client.run("Hi", [adder()])
    assert result.tool_calls[0].is_error


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (None, "NoneType"),
        ("text", "str: 'text'"),
        ({}, "neither content nor tool_calls"),
        ({"text": "x"}, "'text'"),
        ({"content": 5}, "content is a int"),
        ({"tool_calls": "add"}, "tool_calls is a str"),
        ({"tool_calls": ["add"]}, "tool call is 'add'"),
        ({"tool_calls": [{"arguments": {}}]}, "tool call is"),
        ({"tool_calls": [{"name": "add", "arguments": 5}]}, "arguments of a call of 'add'"),
        ({"tool_calls": [{"name": "add", "arguments": {"a": float("nan")}}]}, r"arguments\.a is nan"),
        ({"content": "x", "usage": 5}, "usage is 5"),
        ({"content": "x", "usage": {"tokens": 5}}, "completion"),
        ({"content": "x", "usage": {"prompt": "many"}}, "whole numbers"),
    ],
)
async def test_an_answer_of_another_shape_says_what_came_and_what_is_expected(given: object, named: str) -> None:
    with pytest.raises(InvalidReply, match=named):
        await answer_of(lambda request: given)


@pytest.mark.parametrize(
    ("pieces", "named"),
    [
        (["Hello"], "ended after 1 piece of"),
        ([], "ended after 0 pieces"),
        ([{"content": "x"}, "more"], "went on after its reply"),
        (["Hello", 5], "gave a int"),
        (["Hello", {"content": "Bye"}], "pieces before it were 'Hello'"),
    ],
)
async def test_pieces_that_do_not_end_in_one_reply_are_no_answer(pieces: list[Any], named: str) -> None:
    async def generate(request: dict[str, Any]) -> AsyncIterator[Any]:
        for piece in pieces:
            yield piece

    with pytest.raises(InvalidReply, match=named):
        await answer_of(generate)


async def test_what_generate_raises_is_a_provider_error_with_its_cause_and_not_retried() -> None:
    calls = 0

    def generate(request: dict[str, Any]) -> dict[str, Any]:
        nonlocal calls
        calls += 1
        raise KeyError("weights")

    with pytest.raises(ProviderError, match="generate raised KeyError: 'weights'") as caught:
        await answer_of(generate, retries=3)
    assert (caught.value.kind, caught.value.retryable, calls) == ("server", False, 1)
    assert isinstance(caught.value.__cause__, KeyError)


async def test_an_error_that_says_that_it_is_retryable_is_retried_when_asked_for() -> None:
    calls = 0

    async def generate(request: dict[str, Any]) -> dict[str, Any]:
        nonlocal calls
        calls += 1
        if calls % 3:
            raise ProviderError("Busy.", kind="overloaded", retryable=True)
        return {"content": "x"}

    with pytest.raises(ProviderError, match="Busy"):
        await answer_of(generate)
    calls, clock = 0, FakeClock()
    seen: list[Any] = []
    async with (
        create_in_process_client(generate=generate, retries=2, clock=clock) as client,
        client.stream("Hi") as events,
    ):
        async for event in events:
            seen.append(event)
    retries = [event for event in seen if isinstance(event, Retrying)]
    assert [(retry.attempt, retry.kind, retry.reason) for retry in retries] == [
        (1, "overloaded", "Busy."),
        (2, "overloaded", "Busy."),
    ]
    assert [retry.delay for retry in retries] == clock.slept
    assert seen[-1].result.text == "x"


async def test_nothing_is_retried_once_text_was_shown() -> None:
    async def generate(request: dict[str, Any]) -> AsyncIterator[Any]:
        yield "Hel"
        raise ProviderError("Busy.", kind="overloaded", retryable=True)

    async with create_in_process_client(generate=generate, retries=2, clock=FakeClock()) as client:
        with pytest.raises(ProviderError) as caught:
            await client.run("Hi")
    assert caught.value.partial is not None
    assert caught.value.partial.text == "Hel"


async def test_a_deadline_ends_a_generate_that_hangs() -> None:
    closed = asyncio.Event()

    async def generate(request: dict[str, Any]) -> AsyncIterator[Any]:
        try:
            yield "Hel"
            await asyncio.Event().wait()
        finally:
            closed.set()

    async with create_in_process_client(generate=generate, timeout=0.05) as client:
        with pytest.raises(RunTimeout):
            await client.run("Hi")
    assert closed.is_set()


async def test_leaving_a_stream_closes_the_iterator_of_generate() -> None:
    closed = asyncio.Event()

    async def generate(request: dict[str, Any]) -> AsyncIterator[Any]:
        try:
            while True:
                yield "more "
        finally:
            closed.set()

    async with create_in_process_client(generate=generate) as client:
        async with client.stream("Hi") as events:
            async for _ in events:
                break
        assert closed.is_set()
