"""Whatever a tool or the model does at their boundary: the run goes on, and the model is told."""

from __future__ import annotations

import asyncio
import json
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from pathlib import PurePosixPath
from typing import Any
from uuid import UUID

import pytest
from heartbeat import heartbeat
from scripts import raw, read, scripted, told

from toolnexus import Client, Tool, ToolContext, ToolFinished, ToolProgress, ToolResult, define_tool
from toolnexus.testing import ScriptedTransport, call, openai_reply, openai_stream
from toolnexus.tools import InvalidArguments

DONE = openai_reply("Done.")
HELD = threading.Event()
"""Lets go of the functions that hang in threads; set at the end of the module."""


@pytest.fixture(autouse=True, scope="module")
def _let_go() -> Iterator[None]:
    yield
    HELD.set()


async def add(a: int, b: int = 0) -> int:
    return a + b


def whole(*calls: Any) -> list[Any]:
    return [openai_reply(calls=calls), DONE]


async def outcome(tool: Tool | Callable[..., Any], *, arguments: str = "{}", **options: Any) -> tuple[str, bool]:
    """What the next request tells the model of a call of `tool`, and whether the run calls it an error."""
    tool = tool if isinstance(tool, Tool) else define_tool(tool)
    client, model = scripted(*whole(raw(tool.name, arguments)), **options)
    result = await client.run("go", [tool])
    assert (result.status, result.text) == ("done", "Done.")
    assert len(told(model.requests[1])) == 1
    assert told(model.requests[1])[0] == result.tool_calls[0].output
    model.requests[1].body.decode()
    return result.tool_calls[0].output, result.tool_calls[0].is_error


# What a tool does


class Colour(Enum):
    RED = "red"


@dataclass
class Point:
    x: float
    y: Any = None


class Sly:
    def __str__(self) -> str:
        raise ValueError("no text for you")


class Odd(BaseException):
    pass


def exits() -> None:
    sys.exit("bye")


async def exits_later() -> None:
    sys.exit(3)


def raises() -> None:
    raise ValueError("no such file")


def raises_oddly() -> None:
    raise Odd("beyond Exception")


def raises_nothing_to_say() -> None:
    raise KeyError


async def raises_a_group() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.to_thread(raises))


def stops() -> None:
    raise StopIteration


def interrupts() -> None:
    raise KeyboardInterrupt


async def cancels_itself() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


async def raises_cancelled() -> None:
    raise asyncio.CancelledError


async def times_out_inside() -> None:
    async with asyncio.timeout(0):
        await asyncio.sleep(1)


def half_in_error() -> None:
    raise ValueError("half \ud83d")


@pytest.mark.parametrize(
    ("tool", "says"),
    [
        (raises, "ValueError: no such file"),
        (raises_nothing_to_say, "KeyError"),
        (raises_oddly, "Odd: beyond Exception"),
        (raises_a_group, "ValueError: no such file"),
        (exits, "SystemExit: bye"),
        (exits_later, "SystemExit: 3"),
        (stops, "StopIteration"),
        (interrupts, "KeyboardInterrupt"),
        (cancels_itself, "CancelledError: the tool cancelled itself"),
        (raises_cancelled, "CancelledError: the tool cancelled itself"),
        (times_out_inside, "TimeoutError"),
        (half_in_error, "ValueError: half �"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_a_tool_that_fails_is_an_error_result(tool: Callable[..., Any], says: str) -> None:
    assert await outcome(tool) == (says, True)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (None, "null"),
        ("text", "text"),
        (True, "true"),
        (7, "7"),
        (2**70, str(2**70)),
        (math.nan, "NaN"),
        ([1.5, math.inf, -math.inf, math.nan], '[1.5,"Infinity","-Infinity","NaN"]'),
        ({"a": [1, None]}, '{"a":[1,null]}'),
        ({1: "x", None: "y"}, '{"1":"x","null":"y"}'),
        ((1, 2), "[1,2]"),
        ({3}, "[3]"),
        (b"bytes", "bytes"),
        (b"\xff", "data:application/octet-stream;base64,/w=="),
        ("half \ud83d", "half �"),
        ({"\udc00": "\ud83d"}, '{"�":"�"}'),
        ("nul \0", "nul \0"),
        (Colour.RED, "red"),
        (Point(math.nan, Point(1)), '{"x":"NaN","y":{"x":1,"y":null}}'),
        (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00+00:00"),
        (PurePosixPath("a/b"), "a/b"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Sly(), "<Sly object>"),
        (iter([1, 2]), "[1,2]"),
        (ToolResult(output="no", is_error=True), "no"),
        (ToolResult(output=5), "5"),  # type: ignore[arg-type]
        (ValueError("returned, not raised"), "returned, not raised"),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("is_async", [False, True])
async def test_a_tool_may_return_anything(value: Any, says: str, is_async: bool) -> None:
    def give() -> Any:
        return iter([1, 2]) if isinstance(value, Iterator) else value

    async def give_later() -> Any:
        return give()

    text, is_error = await outcome(give_later if is_async else give)
    assert text == says
    assert is_error == (isinstance(value, ToolResult) and value.is_error)


async def test_a_value_that_holds_itself_is_cut_there() -> None:
    def knot() -> Any:
        items: list[Any] = [1]
        items.append(items)
        return items

    assert await outcome(knot) == ('[1,"(a value that holds itself)"]', False)


async def test_an_empty_output_is_sent_as_something_that_strict_servers_take() -> None:
    client, model = scripted(*whole(call("nothing")))
    result = await client.run("go", [define_tool(lambda: "", name="nothing")])

    assert result.tool_calls[0].output == ""
    assert told(model.requests[1]) == ["(no output)"]


async def test_an_awaitable_behind_a_plain_function_is_awaited() -> None:
    async def later() -> str:
        return "at last"

    def twice() -> Any:
        async def outer() -> Any:
            return later()

        return outer()

    def future() -> Any:
        return asyncio.run_coroutine_threadsafe(later(), loop).result()

    loop = asyncio.get_running_loop()
    assert await outcome(define_tool(lambda: later(), name="wrapped")) == ("at last", False)
    assert await outcome(twice) == ("at last", False)
    assert await outcome(future) == ("at last", False)


async def test_generators_are_read_to_their_end() -> None:
    def numbers() -> Iterator[int]:
        yield from range(3)

    async def letters() -> Any:
        yield "a"
        yield "b"

    def breaks() -> Iterator[int]:
        yield 1
        raise OSError("pipe broke")

    assert await outcome(numbers) == ("[0,1,2]", False)
    assert await outcome(letters) == ('["a","b"]', False)
    assert (await outcome(breaks))[0] == "OSError: pipe broke"


async def hangs() -> None:
    await asyncio.Event().wait()


async def hangs_stubbornly() -> None:
    while not HELD.is_set():
        try:
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            return


def hangs_in_a_thread() -> None:
    HELD.wait()


def hangs_behind_a_function() -> Any:
    return hangs()


@pytest.mark.parametrize("tool", [hangs, hangs_stubbornly, hangs_in_a_thread, hangs_behind_a_function])
async def test_a_tool_that_hangs_is_ended_by_its_own_timeout_and_its_siblings_are_not(tool: Any) -> None:
    hanging = define_tool(tool, timeout=0.1)
    client, model = scripted(*whole(call(hanging.name), call("add", a=1, b=1)))
    began = time.monotonic()
    async with heartbeat() as heart:
        result = await client.run("go", [hanging, add])

    assert told(model.requests[1]) == [f"{hanging.name} timed out after 0.1 s", "2"]
    assert [record.is_error for record in result.tool_calls] == [True, False]
    assert time.monotonic() - began < 3
    assert heart.longest < 0.05


def big_text() -> Any:
    return TEXT


def big_unicode() -> Any:
    return UNICODE


def big_bytes() -> Any:
    return BYTES


def big_list() -> Any:
    return BIG


async def big_on_the_loop() -> Any:
    return BIG


async def big_result() -> Any:
    return ToolResult(output=TEXT)


# Made beforehand: making one takes all threads up to 75 ms on a busy machine, which is nobody's fault but the tool's.
TEXT = "x" * 50_000_000
UNICODE = "é" * 25_000_000
BYTES = b"\xff" * 50_000_000
BIG: list[Any] = [{"n": 1, "text": TEXT[:50]}] * 400_000


@pytest.mark.parametrize("tool", [big_text, big_unicode, big_bytes, big_list, big_on_the_loop, big_result])
async def test_50_mb_are_cut_and_said_to_be_and_the_loop_goes_on(tool: Any) -> None:
    warm, _ = scripted(*whole(call("add", a=1)))
    await warm.run("go", [add])
    async with heartbeat() as heart:
        text, is_error = await outcome(tool)

    assert 60_000 < len(text.encode()) < 70_000
    assert "[cut here" in text
    assert not is_error
    assert heart.longest < 0.05


async def test_max_output_is_the_callers_to_choose() -> None:
    text, _ = await outcome(define_tool(lambda: "é" * 1000, name="long"), max_output=100)
    assert text == "é" * 50 + "\n[cut here: 950 more characters were left out]"


async def test_parts_of_a_result_are_shown_and_nonsense_in_them_is_said_as_text() -> None:
    image = {"type": "image_url", "image_url": {"url": "https://pictures.test/a.png"}}
    strange = {"type": "hologram", "nan": math.nan}

    async def see() -> ToolResult:
        return ToolResult(output="a cat", parts=(image, strange))  # type: ignore[arg-type]

    client, model = scripted(*whole(call("see")))
    result = await client.run("go", [see])

    sent = model.requests[1].json["messages"]
    assert sent[-2]["content"] == 'a cat{"type":"hologram","nan":"NaN"}'
    assert sent[-1]["role"] == "user"
    assert image in sent[-1]["content"]
    assert result.tool_calls[0].output == "a cat"


async def test_a_tool_that_changes_its_arguments_changes_no_record() -> None:
    async def spoil(items: list[int]) -> str:
        items.clear()
        return "spoilt"

    keen = Tool(name="keen", execute=lambda args, ctx: args.clear())
    client, model = scripted(*whole(call("spoil", items=[1, 2]), call("keen", a=1)))
    result = await client.run("go", [spoil, keen])

    assert [record.args for record in result.tool_calls] == [{"items": [1, 2]}, {"a": 1}]
    sent = model.requests[1].json["messages"][1]["tool_calls"]
    assert [json.loads(entry["function"]["arguments"]) for entry in sent] == [{"items": [1, 2]}, {"a": 1}]


async def test_all_of_them_at_once_do_not_hurt_each_other() -> None:
    tools = [raises, exits, exits_later, cancels_itself, raises_oddly, define_tool(hangs, timeout=0.1), big_text, add]
    names = ["raises", "exits", "exits_later", "cancels_itself", "raises_oddly", "hangs", "big_text"]
    client, model = scripted(
        openai_stream(calls=[*map(call, names), call("add", a=2, b=3)]), openai_stream("Done."), concurrency=20
    )
    async with heartbeat() as heart:
        events = await read(client.stream("go", tools))

    assert [output[:11] for output in told(model.requests[1])] == [
        "ValueError:",
        "SystemExit:",
        "SystemExit:",
        "CancelledEr",
        "Odd: beyond",
        "hangs timed",
        "xxxxxxxxxxx",
        "5",
    ]
    assert sum(isinstance(event, ToolFinished) for event in events) == 8
    assert heart.longest < 0.05


async def test_progress_that_cannot_be_told_is_no_reason_to_fail() -> None:
    kept: list[ToolContext] = []

    async def boast(ctx: ToolContext) -> str:
        kept.append(ctx)
        ctx.progress("half \ud83d", math.nan)
        return "ok"

    def broken(event: Any) -> None:
        if isinstance(event, ToolProgress):
            raise OSError("sink is full")

    client, model = scripted(*whole(call("boast")), on_event=broken)
    await client.run("go", [boast])
    kept[0].progress("much too late")
    await asyncio.sleep(0)

    assert told(model.requests[1]) == ["ok"]


# What the model sends


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ('{"a": 1, "b": "tw', "not a JSON object"),
        ('{"a": 1', "not a JSON object"),
        ("[1, 2]", "it is an array"),
        ("7", "it is a number"),
        ('"two"', "it is a string"),
        ('{"a": NaN}', "NaN and Infinity are not JSON"),
        ("[" * 50_000, "nested too deeply"),
        ("add 1 and 2", "not a JSON object"),
        ('{"b": 1}', "The arguments do not fit"),
        ('{"a": "one"}', "The arguments do not fit"),
        ('{"a": 1, "c": 2}', "The arguments do not fit"),
        ("", "The arguments do not fit"),
        ("null", "The arguments do not fit"),
    ],
    ids=lambda text: text[:12],
)
@pytest.mark.parametrize("make", [openai_reply, openai_stream])
async def test_arguments_that_cannot_be_used_are_not_run_and_the_model_may_mend_them(
    make: Any, arguments: str, says: str
) -> None:
    ran: list[int] = []

    async def step(a: int, b: int = 0) -> int:
        ran.append(a)
        return a + b

    client, model = scripted(make(calls=[raw("step", arguments)]), make(calls=[raw("step", '{"a": 5}')]), make("Done."))
    result = await client.run("go", [step])

    assert says in told(model.requests[1])[0]
    assert (ran, told(model.requests[2])) == ([5], ["5"])
    assert [record.is_error for record in result.tool_calls] == [True, False]
    assert isinstance(result.tool_calls[0].args, str if "fit" not in says else dict)
    for request in model.requests[1:]:
        sent = request.json["messages"][1]["tool_calls"][0]["function"]["arguments"]
        assert isinstance(json.loads(sent), dict), "what is sent back is an object"


async def test_arguments_that_cannot_be_read_are_told_cut() -> None:
    text, _ = await outcome(add, arguments='{"a": "' + "x" * 100_000)
    assert len(text) < 500
    assert '{"a": "xxx' in text


@pytest.mark.parametrize(
    "arguments", ['{"a": 1, "b": 2}', '"{\\"a\\": 1, \\"b\\": 2}"', json.dumps(json.dumps('{"a": 1, "b": 2}'))]
)
@pytest.mark.parametrize("make", [openai_reply, openai_stream])
async def test_arguments_that_were_encoded_too_often_are_decoded_and_run(make: Any, arguments: str) -> None:
    client, model = scripted(make(calls=[raw("add", arguments)]), make("Done."))
    result = await client.run("go", [add])

    assert told(model.requests[1]) == ["3"]
    assert result.tool_calls[0].args == {"a": 1, "b": 2}


@pytest.mark.parametrize("arguments", ["", "  ", "{}", "null", '""'])
async def test_no_arguments_are_no_arguments_however_they_are_spelled(arguments: str) -> None:
    assert await outcome(define_tool(lambda: "ok", name="plain"), arguments=arguments) == ("ok", False)


async def test_arguments_for_a_json_schema_are_checked_and_so_is_what_a_converter_says() -> None:
    ran: list[Any] = []
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}

    def convert(args: dict[str, Any]) -> dict[str, Any]:
        if args.get("n") == 2:
            raise InvalidArguments("two is taken")
        raise RuntimeError("the converter is broken")

    strict = Tool(name="strict", input_schema=schema, execute=lambda args, ctx: ran.append(args))
    picky = Tool(name="picky", execute=lambda args, ctx: ran.append(args), convert=convert)
    client, model = scripted(*whole(call("strict", n="x"), call("strict", n=1), call("picky", n=2), call("picky", n=3)))
    await client.run("go", [strict, picky])

    outputs = told(model.requests[1])
    assert "n: 'x' is not of type 'integer'" in outputs[0]
    assert outputs[1] == "null"
    assert outputs[2] == "two is taken"
    assert "RuntimeError: the converter is broken" in outputs[3]
    assert ran == [{"n": 1}]


async def test_unknown_tools_beside_known_ones_are_answered_in_their_place() -> None:
    client, model = scripted(*whole(call("sub", a=1), call("add", a=1, b=1), call("", a=1), call("x" * 5000)))
    result = await client.run("go", [add])

    outputs = told(model.requests[1])
    assert outputs[0].startswith("There is no tool 'sub'.")
    assert outputs[1] == "2"
    assert all("There is no tool" in output and len(output) < 400 for output in outputs[2:])
    assert [record.is_error for record in result.tool_calls] == [True, False, True, True]


def ids(client: Client, model: ScriptedTransport) -> tuple[list[str], list[str]]:
    messages = model.requests[1].json["messages"]
    asked = [entry["id"] for entry in messages[1]["tool_calls"]]
    return asked, [message["tool_call_id"] for message in messages[2:]]


@pytest.mark.parametrize("given", [["", "", ""], [None, None, None], ["same", "same", "same"], ["a", "", "a"]])
@pytest.mark.parametrize("stream", [False, True])
async def test_missing_and_repeated_ids_are_made_distinct(given: list[Any], stream: bool) -> None:
    entries = [
        {"index": n, "id": call_id, "type": "function", "function": {"name": "add", "arguments": f'{{"a": {n}}}'}}
        for n, call_id in enumerate(given)
    ]
    reply: Any = openai_reply()
    reply["choices"][0]["message"]["tool_calls"] = entries
    if stream:
        chunks = [{"choices": [{"index": 0, "delta": {"tool_calls": [entry]}}]} for entry in entries]
        end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
        reply = [f"data: {json.dumps(chunk)}\n\n".encode() for chunk in [*chunks, end]] + [b"data: [DONE]\n\n"]
    client, model = scripted(reply, openai_stream("Done.") if stream else DONE)
    result = await client.run("go", [add])

    asked, answered = ids(client, model)
    assert asked == answered
    assert len(set(asked)) == 3
    assert all(asked)
    assert told(model.requests[1]) == ["0", "1", "2"]
    assert [record.id for record in result.tool_calls] == asked


async def test_providers_that_number_from_zero_in_each_reply_are_served() -> None:
    step = openai_reply(calls=[raw("add", '{"a": 1}', id="0"), raw("add", '{"a": 2}', id="1")])
    client, model = scripted(step, step, DONE)
    result = await client.run("go", [add])

    assert [record.output for record in result.tool_calls] == ["1", "2", "1", "2"]
    assert told(model.requests[2]) == ["1", "2"]


async def test_a_thousand_calls_in_one_reply_are_all_answered_in_order() -> None:
    client, model = scripted(*whole(*(call("add", a=n) for n in range(1000))))
    async with heartbeat() as heart:
        await client.run("go", [add])

    assert told(model.requests[1]) == [str(n) for n in range(1000)]
    assert heart.longest < 0.1
