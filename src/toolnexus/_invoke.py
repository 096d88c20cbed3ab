"""Runs one tool call: reads its arguments, checks them, and whatever the tool does, gives a result."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

from toolnexus import _workers, messages
from toolnexus._output import cut_text, encode, encode_at_once
from toolnexus._unicode import clean, clean_text
from toolnexus.suspension import Suspension, asked_by_tool
from toolnexus.tools import BrokenSchema, Execute, InvalidArguments, JSONObject, Tool, ToolContext, ToolResult

_T = TypeVar("_T")

_log = logging.getLogger("toolnexus")

_GRACE = 1.0
"""Seconds that a cancelled tool may take to clean up before nobody waits for it any more."""
_MAX_RAW = 200
_PLAIN = frozenset({str, int, float, bool, type(None), dict, list})
"""Types that nobody can await."""

_checkers: WeakKeyDictionary[Tool, Callable[[JSONObject], JSONObject]] = WeakKeyDictionary()
_broken: WeakKeyDictionary[Tool, str] = WeakKeyDictionary()
"""What is wrong with the schemas of tools, so that each is looked at once."""
_ending: set[asyncio.Task[Any]] = set()


class _TimedOut(Exception):
    """The tool's time is over."""


def read_arguments(raw: str) -> JSONObject:
    """The object that a call's raw JSON text stands for, all of it valid Unicode.

    Nothing at all (blank, `null`) is an empty object, and one that was encoded once too often is decoded.

    Raises:
        InvalidArguments: It is no object. Nothing is guessed: a tool must not run on half of what was meant.
    """
    arguments = messages.read_arguments(raw)
    if arguments is None:
        raise InvalidArguments(
            f"The arguments are not a JSON object: {_flaw(raw)}. Send one complete JSON object. "
            f"What was sent: {cut_text(raw, _MAX_RAW)}"
        )
    # Half a character can only come in as an escape or as it is.
    return arguments if "\\u" not in raw and raw.isascii() else clean(arguments)


def _flaw(raw: str) -> str:
    try:
        value = json.loads(raw)
    except json.JSONDecodeError as error:
        where = "at its end" if error.pos >= len(raw.rstrip()) else f"at character {error.pos}"
        return f"{error.msg} {where}"
    except RecursionError:
        return "it is nested too deeply"
    except ValueError as error:
        return str(error)
    match value:
        case dict():
            return "NaN and Infinity are not JSON"
        case list():
            return "it is an array"
        case str():
            return "it is a string"
        case bool():
            return "it is a boolean"
        case _:
            return "it is a number"


def prepare(tool: Tool) -> None:
    """Make ready what `check` needs, which may import a library and take some milliseconds.

    Raises:
        BrokenSchema: The tool's schema cannot be used.
    """
    if not is_prepared(tool):
        from toolnexus.sources._schemas import checker

        try:
            _checkers[tool] = checker(tool.input_schema)
        except BrokenSchema as error:
            _broken[tool] = str(error)
            raise
    if (reason := _broken.get(tool)) is not None:
        raise BrokenSchema(reason)


def is_prepared(tool: Tool) -> bool:
    """Whether `prepare` has nothing more to look at."""
    return tool.convert is not None or tool in _checkers or tool in _broken


def check(tool: Tool, args: JSONObject) -> JSONObject:
    """Check a call's arguments and turn them into what the tool's `execute` takes.

    Raises:
        InvalidArguments: They do not fit.
    """
    convert = tool.convert
    if convert is None:
        prepare(tool)
        convert = _checkers[tool]
    try:
        return convert(args)
    except InvalidArguments:
        raise
    except Exception as error:  # a validator of the tool's own may raise anything
        raise InvalidArguments(f"The arguments do not fit. {describe(error)}") from error


async def invoke(
    tool: Tool, args: JSONObject, ctx: ToolContext, *, max_output: int = 64 * 1024, own_task: bool = False
) -> ToolResult:
    """Run a tool on checked arguments. Whatever it does, there is a result; only our own cancellation is raised.

    A coroutine function runs on the loop, in a task of its own: what it does to its task (cancelling it, swallowing a
    cancellation) is then not done to the caller's. A plain function runs in a worker thread. An awaitable that comes
    back is awaited on the loop. `tool.timeout` and `ctx.deadline` hold for all of it together.

    A tool that calls `suspend` has a result with a `request`.

    `SystemExit` is a fault of the tool like any other: `sys.exit` in a library must not end a server. So is
    `KeyboardInterrupt` in a worker; on the loop it is the user's Ctrl-C, and ends the loop.

    Args:
        own_task: The caller's task is there for this call alone, and it tells a cancellation of its own from one of
            the tool's: a tool without a timeout needs no further task.
    """
    if own_task and tool.on_loop and tool.timeout is None and ctx.deadline is None:
        return await _directly(tool, args, ctx, max_output)
    began = time.monotonic()
    if tool.timeout is not None:
        ends = began + tool.timeout
        ctx = replace(ctx, deadline=ends if ctx.deadline is None else min(ends, ctx.deadline))
    try:
        if ctx.deadline is not None and ctx.deadline <= began:
            raise _TimedOut
        return await _run(tool, args, ctx, max_output)
    except _TimedOut:
        seconds = round(max(0.0, (ctx.deadline or began) - began), 3)
        return ToolResult(output=f"{tool.name} timed out after {seconds:g} s", is_error=True)
    except Exception as error:  # noqa: BLE001 - the boundary: the model is told, and the run goes on
        return _fault(tool, error, ctx, max_output)


async def _directly(tool: Tool, args: JSONObject, ctx: ToolContext, limit: int) -> ToolResult:
    try:
        value = await _contained(tool.execute(args, ctx))
        if type(value) in _PLAIN and (result := encode_at_once(value, limit=limit)) is not None:
            return result
        return await _encoded(value, None, limit)
    except Exception as error:  # noqa: BLE001 - the boundary, as in `invoke`
        return _fault(tool, error, ctx, limit)


def _fault(tool: Tool, error: Exception, ctx: ToolContext, limit: int) -> ToolResult:
    told = _told(error)
    if isinstance(told, Suspension):
        return ToolResult(output=messages.WAITING, request=asked_by_tool(told.asked, ctx.turn_id))
    _log.debug("Tool %r failed", tool.name, exc_info=error)
    return ToolResult(output=cut_text(describe(error), limit), is_error=True)


def unknown_tool(name: str, known: Iterable[str]) -> ToolResult:
    """What the model is told when it calls a tool that there is not."""
    name = name[:_MAX_RAW]
    close = closest(name, known)
    hint = f"Did you mean {' or '.join(map(repr, close))}?" if close else "There are no tools."
    return ToolResult(output=f"There is no tool {clean_text(name)!r}. {hint}", is_error=True)


def closest(name: str, known: Iterable[str]) -> list[str]:
    """The up to three of the known names that are most like `name`, best first."""
    import difflib  # only a mistaken model needs it

    by_folded = {other.casefold(): other for other in known}
    return [by_folded[found] for found in difflib.get_close_matches(name.casefold(), by_folded, n=3, cutoff=0.0)]


def describe(error: BaseException) -> str:
    """`TypeName: message`. A group of one is that one; what stands for another error is the other one."""
    error = _told(error)
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - a broken error is still an error
        message = ""
    if isinstance(error, InvalidArguments):
        return message
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def _told(error: BaseException) -> BaseException:
    """The error that says most."""
    if isinstance(error, _workers.ForeignExit) and error.__cause__ is not None:
        return _told(error.__cause__)
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return _told(group.exceptions[0]) if len(group.exceptions) == 1 else group
    return error


async def _run(tool: Tool, args: JSONObject, ctx: ToolContext, limit: int) -> ToolResult:
    deadline = ctx.deadline
    if tool.on_loop:
        return await _encoded(await _on_loop(tool.execute(args, ctx), deadline), deadline, limit)
    value = await _within(deadline, _workers.run(_call, tool.execute, args, ctx, limit))
    return value.result if isinstance(value, _Encoded) else await _encoded(value, deadline, limit)


async def _encoded(value: Any, deadline: float | None, limit: int) -> ToolResult:
    """What a tool gave back, awaited as long as there is something to await, as a result."""
    while inspect.isawaitable(value):
        value = await _on_loop(value, deadline)
    if inspect.isasyncgen(value):
        value = await _on_loop(_collected(cast("AsyncGenerator[Any, Any]", value), limit), deadline)
    result = encode_at_once(value, limit=limit)
    return await _within(deadline, _workers.run(encode, value, limit=limit)) if result is None else result


@dataclass(frozen=True, slots=True)
class _Encoded:
    result: ToolResult


def _call(execute: Execute, args: JSONObject, ctx: ToolContext, limit: int) -> Any:
    """Run a plain function in a worker. What is not for the loop to await is encoded there as well."""
    value = execute(args, ctx)
    return value if inspect.isawaitable(value) or inspect.isasyncgen(value) else _Encoded(encode(value, limit=limit))


async def _within(deadline: float | None, work: Awaitable[_T]) -> _T:
    """Await what ends at once when it is cancelled."""
    if deadline is None:
        return await work
    scope = asyncio.timeout(deadline - time.monotonic())
    try:
        async with scope:
            return await work
    except TimeoutError as error:
        if scope.expired():
            raise _TimedOut from error
        raise


async def _on_loop(awaitable: Awaitable[Any], deadline: float | None) -> Any:
    """Await a tool's own code, which may do anything to the task that it runs in."""
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()
    task = loop.create_task(_contained(awaitable))
    task.add_done_callback(lambda _: _settle(over))
    timer = None if deadline is None else loop.call_later(deadline - time.monotonic(), _settle, over)
    try:
        await over
    except asyncio.CancelledError:
        await _end(task)
        raise
    finally:
        if timer is not None:
            timer.cancel()
    if not task.done():
        await _end(task)
        raise _TimedOut
    if task.cancelled():
        raise _workers.ForeignExit from asyncio.CancelledError("the tool cancelled itself")
    return task.result()


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def _contained(awaitable: Awaitable[Any]) -> Any:
    try:
        return await awaitable
    except (Exception, asyncio.CancelledError, GeneratorExit):
        raise
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
            raise
        raise _workers.ForeignExit from error


async def _end(task: asyncio.Task[Any]) -> None:
    """Cancel a tool's task and wait for a bounded time. A result or an error that comes late is dropped."""
    task.add_done_callback(_drop)
    _ending.add(task)  # the loop itself keeps no task alive
    if task.cancel():
        done, _ = await asyncio.wait({task}, timeout=_GRACE)
        if not done:
            _log.warning("A tool ignores that it was cancelled; it is left to itself: %r", task)


def _drop(task: asyncio.Task[Any]) -> None:
    _ending.discard(task)
    if not task.cancelled():
        task.exception()


async def _collected(values: AsyncGenerator[Any, Any], limit: int) -> list[Any]:
    """What an async generator yields, as far as there can be room for it in the output."""
    items: list[Any] = []
    async with aclosing(values):
        async for item in values:
            items.append(item)
            if len(items) > limit:
                break
    return items
