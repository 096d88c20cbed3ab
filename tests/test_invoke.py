"""The tool boundary: whatever the model sends and whatever the tool does, there is a result."""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import functools
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from heartbeat import heartbeat

from toolnexus import _invoke
from toolnexus._invoke import check, closest, describe, invoke, read_arguments, unknown_tool
from toolnexus.sources.native import define_tool
from toolnexus.tools import InvalidArguments, Tool, ToolContext, ToolResult

CONTEXT = ToolContext(tool="t")
HELD = threading.Event()
"""Lets go of the functions that hang; set at the end of the module."""


@pytest.fixture(autouse=True, scope="module")
def _let_go() -> Any:
    yield
    HELD.set()


async def outcome(function: Callable[..., Any], **options: Any) -> tuple[str, bool]:
    """Output and `is_error` of a tool without arguments."""
    result = await invoke(define_tool(function, **options), {}, CONTEXT)
    return result.output, result.is_error


# --- reading -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "arguments"),
    [
        ("{}", {}),
        ('{"a": [1, 2.5, null, "x"]}', {"a": [1, 2.5, None, "x"]}),
        (' \n{"a": 1}\t', {"a": 1}),
        ("", {}),
        (" \n", {}),
        ("null", {}),
        ('""', {}),
        ('"{\\"a\\": 1}"', {"a": 1}),
        ('{"n": 123456789012345678901234567890}', {"n": 123456789012345678901234567890}),
        ('{"nested": "{\\"a\\": 1}"}', {"nested": '{"a": 1}'}),
        ('{"a": "\\ud83d"}', {"a": "�"}),
        ('{"\\udc00": "\\ud83d\\ude00"}', {"�": "😀"}),
        ('{"a": "\ud83d"}', {"a": "�"}),
    ],
)
def test_arguments_are_read_as_an_object_of_valid_unicode(raw: str, arguments: dict[str, Any]) -> None:
    assert read_arguments(raw) == arguments


@pytest.mark.parametrize(
    ("raw", "flaw"),
    [
        ('{"path": "log.txt", "text": "Day one: fo', "Unterminated string"),
        ('{"a": 1', "at its end"),
        ('{"a": 1}{"a": 1}', "Extra data at character 8"),
        ("{'a': 1}", "at character 1"),
        ("hello", "at character 0"),
        ("[1, 2]", "it is an array"),
        ('"hello"', "it is a string"),
        ("5", "it is a number"),
        ("true", "it is a boolean"),
        ('{"a": NaN}', "NaN and Infinity are not JSON"),
        ('{"a": -Infinity}', "NaN and Infinity are not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a": ' + "9" * 5000 + "}", "4300 digits"),
    ],
    ids=lambda text: text[:20],
)
def test_what_is_no_object_is_refused_and_the_model_is_told_why(raw: str, flaw: str) -> None:
    with pytest.raises(InvalidArguments) as told:
        read_arguments(raw)
    assert flaw in str(told.value)
    assert raw[:20] in str(told.value)
    assert len(str(told.value)) < 500


# --- checking ----------------------------------------------------------------------------------------------------

SCHEMA = {
    "type": "object",
    "properties": {"sku": {"type": "string"}, "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}}},
    "required": ["sku"],
    "$defs": {"line": {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}}},
}


def foreign(schema: Any) -> Tool:
    return Tool(name="t", input_schema=schema, execute=lambda args, ctx: args)


def test_arguments_that_fit_a_json_schema_are_passed_as_they_are() -> None:
    arguments = {"sku": "oolong", "lines": [{"n": 1, "more": True}]}
    assert check(foreign(SCHEMA), arguments) is arguments


def test_arguments_that_do_not_fit_are_listed_with_their_place() -> None:
    with pytest.raises(InvalidArguments) as told:
        check(foreign(SCHEMA), {"lines": [{"n": 0}, {"n": "x" * 1000}]})
    lines = str(told.value).splitlines()
    assert lines[0] == "The arguments do not fit."
    assert "- 'sku' is a required property" in lines
    assert "- lines[0].n: 0 is less than the minimum of 1" in lines
    assert any(line.startswith("- lines[1].n: 'xxx") and len(line) < 250 for line in lines)


def test_only_the_first_few_errors_are_listed() -> None:
    with pytest.raises(InvalidArguments) as told:
        check(foreign(SCHEMA), {"sku": "s", "lines": [{"n": 0}] * 1000})
    assert len(str(told.value).splitlines()) == 7
    assert str(told.value).endswith("- and more")


def test_a_schema_may_say_its_own_draft() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "properties": {"n": {"maximum": 3, "exclusiveMaximum": True}},
    }
    with pytest.raises(InvalidArguments):
        check(foreign(schema), {"n": 3})


def test_a_pattern_that_python_cannot_read_is_left_to_the_tool() -> None:
    schema = {"type": "object", "properties": {"s": {"type": "string", "pattern": "\\p{L}+"}}}
    assert check(foreign(schema), {"s": "x"}) == {"s": "x"}


def test_a_schema_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tool = foreign(SCHEMA)
    check(tool, {"sku": "s"})
    monkeypatch.setattr("toolnexus.sources._schemas.checker", None)
    check(tool, {"sku": "s"})


def test_an_error_of_a_converter_of_the_tools_own_is_told_like_any_other() -> None:
    def convert(args: dict[str, Any]) -> dict[str, Any]:
        return {"n": args["n"]}

    with pytest.raises(InvalidArguments, match=r"The arguments do not fit\. KeyError: 'n'"):
        check(Tool(name="t", execute=print, convert=convert), {})


# --- misbehaving tools -------------------------------------------------------------------------------------------


def returns_nothing() -> None:
    pass


async def returns_a_result() -> ToolResult:
    return ToolResult(output="no such city", is_error=True)


def raises() -> None:
    raise ValueError("no such city")


async def raises_on_the_loop() -> None:
    raise ValueError("no such city")


async def raises_without_words() -> None:
    raise LookupError


async def raises_a_timeout() -> None:
    raise TimeoutError("the other side")


async def raises_a_group() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(raises_on_the_loop())


def raises_what_cannot_be_said() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    raise Mute


def raises_half_a_character() -> None:
    raise ValueError("odd \ud83d")


def exits() -> None:
    raise SystemExit(3)


async def exits_on_the_loop() -> None:
    raise SystemExit(3)


def interrupts() -> None:
    raise KeyboardInterrupt


def stops() -> None:
    raise StopIteration("early")


def cancels() -> None:
    raise asyncio.CancelledError("by hand")


async def cancels_by_raising() -> None:
    raise asyncio.CancelledError


async def cancels_its_task() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


async def cancels_its_task_and_returns() -> str:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    return "done"


def gives_a_coroutine() -> Any:
    return returns_a_result()


def gives_a_coroutine_that_gives_a_coroutine() -> Any:
    async def outer() -> Any:
        return returns_a_result()

    return outer()


async def gives_a_coroutine_unawaited() -> Any:
    return returns_a_result()


def gives_an_awaitable_object() -> Any:
    class Later:
        def __await__(self) -> Any:
            yield from asyncio.sleep(0).__await__()
            return "later"

    return Later()


async def gives_a_future() -> Any:
    future = asyncio.get_running_loop().create_future()
    future.set_result("set")
    return future


async def yields() -> AsyncIterator[int]:
    yield 1
    await asyncio.sleep(0)
    yield 2


def yields_plainly() -> Any:
    yield 1
    yield 2


def yields_and_raises() -> Any:
    yield 1
    raise ValueError("in the middle")


@pytest.mark.parametrize(
    ("function", "output", "is_error"),
    [
        (returns_nothing, "null", False),
        (returns_a_result, "no such city", True),
        (raises, "ValueError: no such city", True),
        (raises_on_the_loop, "ValueError: no such city", True),
        (raises_without_words, "LookupError", True),
        (raises_a_timeout, "TimeoutError: the other side", True),
        (raises_a_group, "ValueError: no such city", True),
        (raises_what_cannot_be_said, "Mute", True),
        (raises_half_a_character, "ValueError: odd �", True),
        (exits, "SystemExit: 3", True),
        (exits_on_the_loop, "SystemExit: 3", True),
        (interrupts, "KeyboardInterrupt", True),
        (stops, "StopIteration: early", True),
        (cancels, "CancelledError: by hand", True),
        (cancels_by_raising, "CancelledError: the tool cancelled itself", True),
        (cancels_its_task, "CancelledError: the tool cancelled itself", True),
        (cancels_its_task_and_returns, "CancelledError: the tool cancelled itself", True),
        (gives_a_coroutine, "no such city", True),
        (gives_a_coroutine_that_gives_a_coroutine, "no such city", True),
        (gives_a_coroutine_unawaited, "no such city", True),
        (gives_an_awaitable_object, "later", False),
        (gives_a_future, "set", False),
        (yields, "[1,2]", False),
        (yields_plainly, "[1,2]", False),
        (yields_and_raises, "ValueError: in the middle", True),
        (lambda: float("nan"), "NaN", False),
        (lambda: "half \ud83d", "half �", False),
        (lambda: {"a": {1}}, '{"a":[1]}', False),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
@pytest.mark.parametrize("options", [{}, {"timeout": 30}], ids=["no timeout", "timeout"])
async def test_a_misbehaving_tool_gives_a_result(
    function: Any, output: str, is_error: bool, options: dict[str, Any]
) -> None:
    assert await outcome(function, name="t", **options) == (output, is_error)


async def test_a_task_that_a_tool_cancels_is_not_the_callers() -> None:
    await outcome(cancels_its_task_and_returns)
    await asyncio.sleep(0)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_an_error_is_cut() -> None:
    def long() -> None:
        raise ValueError("x" * 1000)

    result = await invoke(define_tool(long), {}, CONTEXT, max_output=30)
    assert result.output == f"ValueError: {'x' * 18}\n[cut here: 982 more characters were left out]"


async def test_a_failure_is_logged_for_the_host(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "toolnexus"):
        await outcome(raises)
    [record] = caplog.records
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], ValueError)


async def test_an_endless_async_generator_is_read_as_far_as_there_is_room() -> None:
    closed = asyncio.Event()

    async def endless() -> AsyncIterator[int]:
        try:
            while True:
                yield 1
        finally:
            closed.set()

    result = await invoke(define_tool(endless), {}, CONTEXT, max_output=10)
    assert result.output.startswith("[1,1,1,1,1\n[cut here: ")
    assert closed.is_set()


# --- time --------------------------------------------------------------------------------------------------------


async def hangs() -> None:
    await asyncio.get_running_loop().create_future()


def hangs_in_a_thread() -> None:
    HELD.wait(60)


def hangs_behind_a_plain_function() -> Any:
    return hangs()


def hangs_while_it_is_encoded() -> Any:
    yield HELD.wait(60)


@pytest.mark.parametrize(
    "function", [hangs, hangs_in_a_thread, hangs_behind_a_plain_function, hangs_while_it_is_encoded]
)
async def test_a_tool_that_hangs_is_ended_by_its_timeout(function: Callable[..., Any]) -> None:
    assert await outcome(function, name="slow", timeout=0.02) == ("slow timed out after 0.02 s", True)


@pytest.mark.parametrize("function", [hangs, hangs_in_a_thread])
async def test_the_deadline_of_the_run_ends_a_tool_too(function: Callable[..., Any]) -> None:
    context = dataclasses.replace(CONTEXT, deadline=time.monotonic() + 0.02)
    result = await invoke(define_tool(function, name="slow", timeout=60), {}, context)
    assert result.is_error
    assert result.output.startswith("slow timed out after 0.0")


async def test_a_tool_does_not_begin_when_its_time_is_over() -> None:
    ran: list[int] = []
    tool = Tool(name="late", execute=lambda args, ctx: ran.append(1))
    result = await invoke(tool, {}, dataclasses.replace(CONTEXT, deadline=time.monotonic() - 1))
    assert (result.output, result.is_error, ran) == ("late timed out after 0 s", True, [])


async def test_a_tool_knows_its_own_deadline() -> None:
    async def now(ctx: ToolContext) -> float:
        assert ctx.deadline is not None
        return ctx.deadline - time.monotonic()

    near = dataclasses.replace(CONTEXT, deadline=time.monotonic() + 5)
    assert 55 < float((await invoke(define_tool(now, timeout=60), {}, CONTEXT)).output) <= 60
    assert 0 < float((await invoke(define_tool(now, timeout=60), {}, near)).output) <= 5


async def test_a_tool_that_ignores_its_timeout_is_left_to_itself(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(_invoke, "_GRACE", 0.02)
    release = asyncio.Event()
    over = asyncio.Event()

    async def stubborn() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        over.set()
        raise ValueError("nobody hears this")

    assert await outcome(stubborn, timeout=0.01) == ("stubborn timed out after 0.01 s", True)
    assert "ignores that it was cancelled" in caplog.text
    release.set()
    await over.wait()


async def test_a_tool_may_clean_up_when_its_time_is_over() -> None:
    cleaned: list[int] = []

    async def careful() -> None:
        try:
            await hangs()
        finally:
            await asyncio.sleep(0)
            cleaned.append(1)

    await outcome(careful, timeout=0.01)
    assert cleaned


async def test_a_timeout_inside_a_tool_is_the_tools_own() -> None:
    async def impatient() -> str:
        try:
            async with asyncio.timeout(0.01):
                await hangs()
        except TimeoutError:
            return "gave up"
        return "never"

    assert await outcome(impatient) == ("gave up", False)


# --- cancellation ------------------------------------------------------------------------------------------------


async def cancelled_while(function: Callable[..., Any], started: asyncio.Event, **options: Any) -> asyncio.Task[Any]:
    task = asyncio.create_task(invoke(define_tool(function, **options), {}, CONTEXT))
    await started.wait()
    task.cancel()
    await asyncio.wait({task}, timeout=10)
    return task


@pytest.mark.parametrize("options", [{}, {"timeout": 30}], ids=["no timeout", "timeout"])
async def test_our_own_cancellation_passes_through_and_ends_the_tool(options: dict[str, Any]) -> None:
    started = asyncio.Event()
    ended: list[BaseException] = []

    async def patient() -> None:
        started.set()
        try:
            await hangs()
        except asyncio.CancelledError as error:
            ended.append(error)
            raise

    assert (await cancelled_while(patient, started, **options)).cancelled()
    assert len(ended) == 1


async def test_our_own_cancellation_passes_through_a_tool_that_swallows_it() -> None:
    started = asyncio.Event()

    async def swallows() -> str:
        started.set()
        try:
            await hangs()
        except asyncio.CancelledError:
            return "here I am"
        return "never"

    assert (await cancelled_while(swallows, started)).cancelled()


async def test_our_own_cancellation_does_not_wait_for_a_thread() -> None:
    started = asyncio.Event()
    loop = asyncio.get_running_loop()

    def hangs_on() -> None:
        loop.call_soon_threadsafe(started.set)
        HELD.wait(60)

    began = time.monotonic()
    assert (await cancelled_while(hangs_on, started)).cancelled()
    assert time.monotonic() - began < 5


async def test_an_error_after_our_own_cancellation_is_dropped() -> None:
    started = asyncio.Event()

    async def fails_late() -> None:
        started.set()
        try:
            await hangs()
        finally:
            raise ValueError("too late")

    assert (await cancelled_while(fails_late, started)).cancelled()


# --- where it runs -----------------------------------------------------------------------------------------------


async def test_coroutines_run_on_the_loop_and_plain_functions_do_not() -> None:
    async def on_loop() -> bool:
        return threading.current_thread() is threading.main_thread()

    def plain() -> bool:
        return threading.current_thread() is threading.main_thread()

    assert await outcome(on_loop) == ("true", False)
    assert await outcome(functools.partial(on_loop)) == ("true", False)
    assert await outcome(plain) == ("false", False)


async def test_both_see_the_context_of_the_run() -> None:
    place = contextvars.ContextVar("place", default="nowhere")
    place.set("here")

    async def on_loop() -> str:
        return place.get()

    assert await outcome(on_loop) == ("here", False)
    assert await outcome(lambda: place.get(), name="plain") == ("here", False)


BIG = 50_000_000


async def returns_50_mb() -> str:
    return "x" * BIG


def returns_50_mb_plainly() -> str:
    return "é" * (BIG // 2)


async def returns_50_mb_of_bytes() -> bytes:
    return bytes(BIG)


def raises_50_mb() -> None:
    raise ValueError("x" * BIG)


def blocks() -> str:
    HELD.wait(0.3)
    return "unblocked"


@pytest.mark.parametrize(
    "function", [returns_50_mb, returns_50_mb_plainly, returns_50_mb_of_bytes, raises_50_mb, blocks]
)
async def test_the_loop_is_not_blocked_by_what_a_tool_does_or_returns(
    function: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "toolnexus")  # writing 50 MB to a log is the log's own matter
    tool = define_tool(function)
    async with heartbeat() as heart:
        result = await invoke(tool, {}, CONTEXT)
    assert len(result.output.encode()) < 64 * 1024 + 100
    assert heart.longest < 0.25


@pytest.mark.parametrize("is_async", [True, False])
async def test_the_loop_is_not_blocked_by_50_mb_of_nested_data(is_async: bool) -> None:
    nested = {f"key {n}": {"a": ["some text"] * 10, "b": n} for n in range(150_000)}

    async def on_loop() -> Any:
        return nested

    tool = define_tool(on_loop if is_async else lambda: nested, name="nested")
    async with heartbeat() as heart:
        result = await invoke(tool, {}, CONTEXT)
    assert "of 150,000 items, the rest was left out" in result.output
    assert heart.longest < 0.25


# --- words -------------------------------------------------------------------------------------------------------


def test_an_unknown_tool_is_answered_with_the_closest_names() -> None:
    result = unknown_tool("get_wether", ["get_weather", "set_weather", "add", "list_files"])
    assert result.is_error
    assert (
        result.output == "There is no tool 'get_wether'. Did you mean 'get_weather' or 'set_weather' or 'list_files'?"
    )


def test_an_unknown_tool_where_there_are_none() -> None:
    assert unknown_tool("add", []).output == "There is no tool 'add'. There are no tools."


def test_case_is_no_difference_for_being_close() -> None:
    assert closest("GETWEATHER", ["add", "get_weather"])[0] == "get_weather"


def test_an_error_is_described_by_its_type_and_message() -> None:
    assert describe(ValueError("x")) == "ValueError: x"
    assert describe(ExceptionGroup("two", [ValueError("x"), KeyError("y")])).startswith("ExceptionGroup: two")


def test_a_name_without_end_is_not_compared_as_a_whole() -> None:
    began = time.process_time()
    output = unknown_tool("add" + "x" * 20_000_000, ["add", "sub"]).output
    assert "'add'" in output
    assert len(output) < 500
    assert time.process_time() - began < 0.5
