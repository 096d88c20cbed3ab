"""The tool calls of one reply: started together, each recorded where it ends, reported as it ends."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from toolnexus import _callbacks, _invoke, _output
from toolnexus.clock import within
from toolnexus.events import CallRecord, ToolFinished, ToolProgress, ToolStarted
from toolnexus.hooks import AfterTool, BeforeTool, Deny, Hooks, ToolOverride
from toolnexus.messages import copy_json
from toolnexus.tools import InvalidArguments, ToolContext, ToolResult

if TYPE_CHECKING:
    from toolnexus.messages import Content, ToolMessage
    from toolnexus.tools import JSONObject, Tool, ToolCall

_log = logging.getLogger("toolnexus")

_MAX_PROGRESS = 1000
"""Progress events that wait for a slow reader; older ones of the same call give way."""
_CLOSING = 5.0
"""Seconds that cancelled tools may take to clean up."""


class Recorder(Protocol):
    """Where the outcomes of calls are kept; the part of a journal that a batch needs."""

    def starting(self, call: ToolCall, tool: Tool) -> None: ...
    async def result(self, message: ToolMessage, *, ran: bool) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where in a run the calls of a batch stand, and what they must keep to."""

    turn_id: str
    conversation_id: str | None
    step: int
    deadline: float | None
    hooks: tuple[Hooks, ...]
    max_output: int
    concurrency: int


class ToolBatch:
    """Owns the tasks of its calls. Iterate over it for what happens; close it whatever happens.

    Calls run concurrently, at most `concurrency` at once; a tool marked `exclusive` runs alone, in its place.
    """

    def __init__(self, calls: Sequence[ToolCall], tools: Mapping[str, Tool], place: Place, recorder: Recorder) -> None:
        self._calls = calls
        self._tools = tools
        self._place = place
        self._recorder = recorder
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._waiting = deque(range(len(calls)))
        self._tasks: dict[asyncio.Task[None], bool] = {}
        self._events: deque[ToolStarted | ToolProgress | ToolFinished] = deque()
        self._wake: asyncio.Future[None] | None = None
        self._failure: BaseException | None = None
        self._closing = False
        self._ran: set[int] = set()
        self._done: list[tuple[CallRecord, ToolMessage] | None] = [None] * len(calls)
        self._start()

    @property
    def records(self) -> list[CallRecord]:
        """Outcomes in call order, once all calls are done."""
        return [done[0] for done in self._done if done]

    @property
    def messages(self) -> list[ToolMessage]:
        """The results for the transcript, in call order, once all calls are done."""
        return [done[1] for done in self._done if done]

    def __aiter__(self) -> ToolBatch:
        return self

    async def __anext__(self) -> ToolStarted | ToolProgress | ToolFinished:
        while not self._events:
            if self._failure is not None:
                raise self._failure
            if not self._tasks:
                raise StopAsyncIteration
            self._wake = self._loop.create_future()
            if self._place.deadline is None:
                await self._wake
            else:
                await within(self._place.deadline, self._wake)
        return self._events.popleft()

    async def aclose(self) -> None:
        """Cancel what still runs and wait until it is over, for a bounded time."""
        self._waiting.clear()
        self._closing = True
        if self._tasks:
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks, timeout=_CLOSING)

    def _start(self) -> None:
        """Start what may start now."""
        started = False
        while self._waiting and len(self._tasks) < self._place.concurrency:
            call = self._calls[self._waiting[0]]
            tool = self._tools.get(call.name)
            alone = tool is not None and tool.exclusive
            if self._tasks and (alone or any(self._tasks.values())):
                break
            task = self._loop.create_task(self._run(self._waiting.popleft(), call, tool))
            self._tasks[task] = alone
            started = True
        if started:
            self._loop.call_soon(self._wake_reader)  # after the first steps of what was started here

    def _emit(self, event: ToolStarted | ToolProgress | ToolFinished) -> None:
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
            self._done[position] = done = await self._outcome(position, call, tool, task)
            await self._recorder.result(done[1], ran=position in self._ran)
            self._events.append(ToolFinished(call=done[0]))
        except Exception as error:  # noqa: BLE001 - what the recorder raises is for whoever reads the batch
            self._failure = self._failure or error
            self._waiting.clear()
        finally:
            del self._tasks[task]
            self._start()
            self._wake_reader()

    async def _outcome(
        self, position: int, call: ToolCall, tool: Tool | None, task: asyncio.Task[None]
    ) -> tuple[CallRecord, ToolMessage]:
        began = time.perf_counter()
        arguments: JSONObject | str
        try:
            arguments = _invoke.read_arguments(call.arguments)
        except InvalidArguments as error:
            arguments, result = call.arguments, _failed(str(error))
            self._events.append(ToolStarted(id=call.id, name=call.name, args=arguments))
        else:
            self._events.append(ToolStarted(id=call.id, name=call.name, args=arguments))
            if tool is None:
                result = _invoke.unknown_tool(call.name, self._tools)
            else:
                context = self._context(position, call)
                decided = arguments
                if self._place.hooks:
                    decided = await self._decide(tool, arguments, context)
                if isinstance(decided, ToolResult):
                    result = decided
                else:
                    arguments = decided
                    result = await self._invoke(call, tool, arguments, context, task)
                if self._place.hooks:
                    result = await self._after(tool, arguments, context, result)
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

    async def _decide(self, tool: Tool, arguments: JSONObject, context: ToolContext) -> JSONObject | ToolResult:
        """What the hooks make of a call: the arguments to run it with, or a result in its place."""
        for hooks in self._place.hooks:
            if hooks.before_tool is None:
                continue
            event = BeforeTool(tool=tool, arguments=copy_json(arguments), context=context)
            try:
                answer = await _callbacks.ask(hooks.before_tool, event, ToolOverride, Deny)
                if isinstance(answer, ToolOverride) and answer.arguments is not None:
                    arguments = dict(answer.arguments)
            except Exception as error:  # noqa: BLE001 - policy fails closed: the call is denied, the run goes on
                _log.warning("before_tool failed, so the call to %s is denied", tool.name, exc_info=error)
                return _failed(f"denied: the check of this call failed ({type(error).__name__})")
            if isinstance(answer, Deny):
                return _failed(f"denied: {answer.reason}")
            if answer is not None and answer.result is not None:
                return _output.encode(answer.result, limit=self._place.max_output)
        return arguments

    async def _invoke(
        self, call: ToolCall, tool: Tool, arguments: JSONObject, context: ToolContext, task: asyncio.Task[None]
    ) -> ToolResult:
        """Run the tool. Only we cancel our tasks, so that any other cancellation is the tool's own doing."""
        try:
            checked = _invoke.check(tool, copy_json(arguments))  # a tool may change what it gets, the record stays
        except InvalidArguments as error:
            return _failed(str(error))
        self._ran.add(context.position)
        self._recorder.starting(call, tool)
        try:
            result = await _invoke.invoke(tool, checked, context, max_output=self._place.max_output, own_task=True)
            if task.cancelling() and not self._closing:
                await asyncio.sleep(0)  # lets a cancellation that is still to come, come
        except asyncio.CancelledError:
            if self._closing:
                raise
            result = _failed("CancelledError: the tool cancelled itself")
        while not self._closing and task.cancelling():
            task.uncancel()
        return result

    async def _after(self, tool: Tool, arguments: JSONObject, context: ToolContext, result: ToolResult) -> ToolResult:
        for hooks in self._place.hooks:
            if hooks.after_tool is None:
                continue
            event = AfterTool(tool=tool, arguments=copy_json(arguments), context=context, result=result)
            try:
                answer = await _callbacks.ask(hooks.after_tool, event, ToolResult)
            except Exception as error:  # noqa: BLE001 - watchers must not end the run
                _log.warning("after_tool failed for %s; its result stands", tool.name, exc_info=error)
            else:
                result = result if answer is None else _output.encode(answer, limit=self._place.max_output)
        return result


def _failed(reason: str) -> ToolResult:
    return ToolResult(output=reason, is_error=True)


def _message(call: ToolCall, result: ToolResult) -> ToolMessage:
    content: Content = result.output
    if result.parts:
        text = [{"type": "text", "text": result.output}] if result.output else []
        content = [*text, *result.parts]  # pyright: ignore[reportAssignmentType]
    message: ToolMessage = {"role": "tool", "tool_call_id": call.id, "content": content}
    if result.is_error:
        message["is_error"] = True
    return message
