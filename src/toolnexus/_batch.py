"""The tool calls of one reply: started together, each recorded where it ends, reported as it ends."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, TypeAlias

from toolnexus import _invoke, _policy, suspension
from toolnexus._reopened import OpenStep, Unknown, Way
from toolnexus.clock import within
from toolnexus.events import CallRecord, Suspended, ToolFinished, ToolProgress, ToolStarted
from toolnexus.messages import INTERRUPTED, copy_json
from toolnexus.suspension import Asking, Granted, Waiting
from toolnexus.tools import InvalidArguments, ToolContext, ToolResult

if TYPE_CHECKING:
    from toolnexus.hooks import Hooks
    from toolnexus.messages import Content, ToolMessage
    from toolnexus.suspension import Request, WaitFor
    from toolnexus.telemetry.watching import WatchedRun
    from toolnexus.tools import JSONObject, Tool, ToolCall

_Emitted: TypeAlias = ToolStarted | ToolProgress | ToolFinished | Suspended
_Outcome: TypeAlias = "tuple[CallRecord, ToolMessage]"

_MAX_PROGRESS = 1000
"""Progress events that wait for a slow reader; older ones of the same call give way."""
_CLOSING = 5.0
"""Seconds that cancelled tools may take to clean up."""


class Recorder(Protocol):
    """Where the outcomes of calls are kept; the part of a journal that a batch needs."""

    def starting(self, call: ToolCall, tool: Tool) -> None: ...
    async def acting(self, call: ToolCall, tool: Tool) -> None: ...
    async def result(self, message: ToolMessage, *, ran: bool) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where in a run the calls of a batch stand, and what they must keep to."""

    turn_id: str
    conversation_id: str | None
    step: int
    deadline: float | None
    hooks: tuple[Hooks, ...]
    asking: Asking
    max_output: int
    concurrency: int
    watch: WatchedRun | None = None


class ToolBatch:
    """Owns the tasks of its calls. Iterate over it for what happens; close it whatever happens.

    Calls run concurrently, at most `concurrency` at once; a tool marked `exclusive` runs alone, in its place. A call
    that waits for a person takes no place: it is asked about at once, and goes on when it is answered. The batch is
    done when no call runs and nobody is being asked.

    Args:
        opened: How the calls go on, if they began in an earlier run. None: none of them has begun.
    """

    def __init__(
        self,
        calls: Sequence[ToolCall],
        tools: Mapping[str, Tool],
        place: Place,
        recorder: Recorder,
        opened: OpenStep | None = None,
    ) -> None:
        self._calls = calls
        self._tools = tools
        self._place = place
        self._recorder = recorder
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._queued = deque(range(len(calls)))
        self._tasks: dict[asyncio.Task[None], bool] = {}
        self._asking: set[asyncio.Task[None]] = set()
        self._events: deque[_Emitted] = deque()
        self._wake: asyncio.Future[None] | None = None
        self._failure: BaseException | None = None
        self._closing = False
        self._ran: set[int] = set()
        self._done: list[_Outcome | None] = [None] * len(calls)
        self._known: dict[int, ToolMessage] = {}
        """Results of an earlier run, and placeholders: what stands in the transcript until a call is done."""
        self._waits: dict[int, Waiting] = {}
        self._ways: dict[int, Way] = {}
        if opened is not None:
            self._go_on(opened)
        self._start()

    @property
    def records(self) -> list[CallRecord]:
        """Outcomes in call order, once all calls are done."""
        return [done[0] for done in self._done if done]

    @property
    def messages(self) -> list[ToolMessage]:
        """The results for the transcript, in call order, once all calls are done or wait."""
        if not self._known:
            return [done[1] for done in self._done if done]
        results = [done[1] if done else self._known.get(position) for position, done in enumerate(self._done)]
        return [result for result in results if result is not None]

    @property
    def pending(self) -> tuple[Request, ...]:
        """What has to be answered, in call order, once all calls are done or wait."""
        return tuple(self._waits[position].request for position in sorted(self._waits)) if self._waits else ()

    def __aiter__(self) -> ToolBatch:
        return self

    async def __anext__(self) -> _Emitted:
        while not self._events:
            if self._failure is not None:
                raise self._failure
            if not self._tasks and not self._asking:
                raise StopAsyncIteration
            self._wake = self._loop.create_future()
            if self._place.deadline is None:
                await self._wake
            else:
                await within(self._place.deadline, self._wake)
        return self._events.popleft()

    async def aclose(self) -> None:
        """Cancel what still runs and wait until it is over, for a bounded time."""
        self._queued.clear()
        self._closing = True
        if tasks := [*self._tasks, *self._asking]:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=_CLOSING)

    def _go_on(self, opened: OpenStep) -> None:
        """Begin with calls that began in an earlier run."""
        self._known.update(opened.results)
        self._ways.update(opened.ways)
        self._queued = deque(position for position, way in opened.ways.items() if not isinstance(way, Waiting))
        for position, way in opened.ways.items():
            call = self._calls[position]
            if not isinstance(way, Unknown):
                args = _arguments(call) if isinstance(way, ToolResult) else way.arguments
                self._events.append(ToolStarted(id=call.id, name=call.name, args=args))
            if isinstance(way, Waiting):
                del self._ways[position]
                self._suspend(position, way)

    def _start(self) -> None:
        """Start what may start now."""
        started = False
        while self._queued and len(self._tasks) < self._place.concurrency:
            call = self._calls[self._queued[0]]
            tool = self._tools.get(call.name)
            alone = tool is not None and tool.exclusive
            if self._tasks and (alone or any(self._tasks.values())):
                break
            task = self._loop.create_task(self._run(self._queued.popleft(), call, tool))
            self._tasks[task] = alone
            started = True
        if started:
            self._loop.call_soon(self._wake_reader)  # after the first steps of what was started here

    def _emit(self, event: _Emitted) -> None:
        self._events.append(event)
        self._wake_reader()

    def _wake_reader(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def _run(self, position: int, call: ToolCall, tool: Tool | None) -> None:
        """One call, in its own task."""
        task = asyncio.current_task()
        assert task is not None, "a call runs in a task"
        try:
            way = self._ways.pop(position, None) if self._ways else None
            if way is None:
                work = self._outcome(position, call, tool, task)
            else:
                work = self._continued(position, call, tool, way, task)
            if self._place.watch is None:
                outcome = await work
            else:
                with self._place.watch.tool(call, tool) as watched:
                    outcome = await work
                    watched.record = None if isinstance(outcome, Waiting) else outcome[0]
            if isinstance(outcome, Waiting):
                await self._hold(position, call, outcome)
            else:
                self._done[position] = outcome
                await self._recorder.result(outcome[1], ran=position in self._ran)
                self._events.append(ToolFinished(call=outcome[0]))
        except Exception as error:  # noqa: BLE001 - what the recorder raises is for whoever reads the batch
            self._failure = self._failure or error
            self._queued.clear()
        finally:
            del self._tasks[task]
            self._start()
            self._wake_reader()

    async def _outcome(
        self, position: int, call: ToolCall, tool: Tool | None, task: asyncio.Task[None]
    ) -> _Outcome | Waiting:
        """What a call comes to that has not begun yet."""
        began = time.perf_counter()
        arguments: JSONObject | str
        try:
            arguments = _invoke.read_arguments(call.arguments)
        except InvalidArguments as error:
            arguments, result = call.arguments, _policy.failed(str(error))
            self._events.append(ToolStarted(id=call.id, name=call.name, args=arguments))
        else:
            self._events.append(ToolStarted(id=call.id, name=call.name, args=arguments))
            if tool is None:
                result = _invoke.unknown_tool(call.name, self._tools)
            else:
                context = self._context(position, call)
                place = self._place
                decided = arguments
                if place.hooks:
                    decided = await _policy.before(place.hooks, tool, arguments, context, max_output=place.max_output)
                if (tool.needs_approval or place.asking.approval is not None) and not isinstance(decided, ToolResult):
                    decided = await _policy.approve(place.asking.approval, tool, decided, context)
                if isinstance(decided, Waiting):
                    return decided
                if isinstance(decided, ToolResult):
                    result = decided
                else:
                    arguments = decided
                    result = await self._invoke(call, tool, arguments, context, task)
                    if result.request is not None:
                        return Waiting(request=result.request, arguments=arguments)
                if place.hooks:
                    result = await _policy.after(
                        place.hooks, tool, arguments, context, result, max_output=place.max_output
                    )
        return _ended(call, arguments, result, began)

    async def _continued(
        self, position: int, call: ToolCall, tool: Tool | None, way: Way, task: asyncio.Task[None]
    ) -> _Outcome | Waiting:
        """What a call comes to that began before."""
        began = time.perf_counter()
        self._waits.pop(position, None)
        context = self._context(position, call)
        if isinstance(way, Unknown):
            if tool is not None and (tool.read_only or tool.idempotent):
                return await self._outcome(position, call, tool, task)
            way = await self._ask_to_retry(call, tool, context)
        if isinstance(way, Waiting):
            return way
        arguments = way.arguments if isinstance(way, Granted) else _arguments(call)
        if isinstance(way, ToolResult):
            result = way
        elif tool is None:
            result = _invoke.unknown_tool(call.name, self._tools)
        else:
            result = await self._invoke(call, tool, way.arguments, replace(context, answer=way.answer), task)
            if result.request is not None:
                return Waiting(request=result.request, arguments=way.arguments)
        if result.output == INTERRUPTED:
            record, message = _ended(call, arguments, result, began)
            return record, {**message, "retried": False}
        place = self._place
        if place.hooks and tool is not None and not isinstance(arguments, str):
            result = await _policy.after(place.hooks, tool, arguments, context, result, max_output=place.max_output)
        return _ended(call, arguments, result, began)

    async def _ask_to_retry(self, call: ToolCall, tool: Tool | None, context: ToolContext) -> Waiting | ToolResult:
        """What to do with a call of which nobody knows whether it ran: a person decides, unless it never could run."""
        arguments = _arguments(call)
        self._events.append(ToolStarted(id=call.id, name=call.name, args=arguments))
        if tool is None:
            return _invoke.unknown_tool(call.name, self._tools)
        if isinstance(arguments, str):
            return _policy.failed(INTERRUPTED)
        place = self._place
        decided = await _policy.before(place.hooks, tool, arguments, context, max_output=place.max_output)
        if isinstance(decided, ToolResult):
            # A denial now says nothing of what happened then.
            return _policy.failed(INTERRUPTED) if decided.is_error else decided
        return _policy.consent("retry", tool, decided, context)

    async def _hold(self, position: int, call: ToolCall, waiting: Waiting) -> None:
        """Let a call wait. What is asked is recorded before anybody is asked."""
        self._known[position] = message = suspension.placeholder(call.id, waiting, _arguments(call))
        await self._recorder.result(message, ran=position in self._ran)
        self._suspend(position, waiting)

    def _suspend(self, position: int, waiting: Waiting) -> None:
        self._waits[position] = waiting
        self._events.append(
            Suspended(id=self._calls[position].id, name=self._calls[position].name, request=waiting.request)
        )
        if self._place.asking.wait_for is not None:
            task = self._loop.create_task(self._ask(position, waiting, self._place.asking.wait_for))
            self._asking.add(task)

    async def _ask(self, position: int, waiting: Waiting, wait_for: WaitFor) -> None:
        """Ask a person, in a task beside those of the calls."""
        task = asyncio.current_task()
        assert task is not None, "somebody is asked in a task"
        try:
            answer = await _policy.reach(wait_for, waiting.request, now=self._place.asking.now())
            way = suspension.answered(waiting, answer, now=self._place.asking.now())
            if way is not None and self._failure is None:
                self._ways[position] = way
                self._queued.append(position)
        finally:
            self._asking.discard(task)
            self._start()
            self._wake_reader()

    def _context(self, position: int, call: ToolCall) -> ToolContext:
        place = self._place
        return ToolContext(
            tool=call.name,
            call_id=call.id,
            turn_id=place.turn_id,
            step=place.step,
            position=position,
            conversation_id=place.conversation_id,
            deadline=place.deadline,
            report=self._reporter(position, call),
        )

    def _reporter(self, position: int, call: ToolCall) -> Callable[[str, float | None], None]:
        def report(message: str, fraction: float | None) -> None:
            event = ToolProgress(id=call.id, name=call.name, message=message, fraction=fraction)
            if threading.get_ident() == self._thread:
                self._progress(position, event)  # at once, or the call may have ended before it is told
            else:
                self._loop.call_soon_threadsafe(self._progress, position, event)

        return report

    def _progress(self, position: int, event: ToolProgress) -> None:
        if self._done[position] is not None:
            return  # from something that the tool left running
        if len(self._events) >= _MAX_PROGRESS:
            kept = [e for e in self._events if not (isinstance(e, ToolProgress) and e.id == event.id)]
            self._events = deque(kept)
        self._emit(event)

    async def _invoke(
        self, call: ToolCall, tool: Tool, arguments: JSONObject, context: ToolContext, task: asyncio.Task[None]
    ) -> ToolResult:
        """Run the tool. Only we cancel our tasks, so that any other cancellation is the tool's own doing."""
        try:
            checked = _invoke.check(tool, copy_json(arguments))  # a tool may change what it gets, the record stays
        except InvalidArguments as error:
            return _policy.failed(str(error))
        self._ran.add(context.position)
        if self._known.pop(context.position, None) is not None:
            await self._recorder.acting(call, tool)
        self._recorder.starting(call, tool)
        try:
            result = await _invoke.invoke(tool, checked, context, max_output=self._place.max_output, own_task=True)
            if task.cancelling() and not self._closing:
                await asyncio.sleep(0)  # lets a cancellation that is still to come, come
        except asyncio.CancelledError:
            if self._closing:
                raise
            result = _policy.failed("CancelledError: the tool cancelled itself")
        while not self._closing and task.cancelling():
            task.uncancel()
        return result


def _arguments(call: ToolCall) -> JSONObject | str:
    """The arguments of a call; the raw text where they cannot be read."""
    try:
        return _invoke.read_arguments(call.arguments)
    except InvalidArguments:
        return call.arguments


def _ended(call: ToolCall, arguments: JSONObject | str, result: ToolResult, began: float) -> _Outcome:
    record = CallRecord(
        id=call.id,
        name=call.name,
        args=arguments,
        output=result.output,
        is_error=result.is_error,
        seconds=time.perf_counter() - began,
        metadata=result.metadata,
    )
    return record, _message(call, result)


def _message(call: ToolCall, result: ToolResult) -> ToolMessage:
    content: Content = result.output
    if result.parts:
        text = [{"type": "text", "text": result.output}] if result.output else []
        content = [*text, *result.parts]  # pyright: ignore[reportAssignmentType]
    message: ToolMessage = {"role": "tool", "tool_call_id": call.id, "content": content}
    if result.is_error:
        message["is_error"] = True
    return message
