"""The tool calls of one reply: started together, each recorded where it ends, reported as it ends."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from toolnexus import _invoke, _output
from toolnexus.clock import within
from toolnexus.events import CallRecord, ToolFinished, ToolProgress, ToolStarted
from toolnexus.hooks import AfterTool, BeforeTool, Deny, Hooks
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
    async def result(self, message: ToolMessage) -> None: ...


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
        self._waiting = deque(range(len(calls)))
        self._tasks: dict[asyncio.Task[None], bool] = {}
        self._events: deque[ToolStarted | ToolProgress | ToolFinished] = deque()
        self._wake: asyncio.Future[None] | None = None
        self._failure: BaseException | None = None
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
            await within(self._place.deadline, self._wake)
            await asyncio.sleep(0)  # what was started in this turn of the loop runs before it is told
        return self._events.popleft()

    async def aclose(self) -> None:
        """Cancel what still runs and wait until it is over, for a bounded time."""
        self._waiting.clear()
        if self._tasks:
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks, timeout=_CLOSING)

    def _start(self) -> None:
        """Start what may start now."""
        while self._waiting and len(self._tasks) < self._place.concurrency:
            call = self._calls[self._waiting[0]]
            tool = self._tools.get(call.name)
            alone = tool is not None and tool.exclusive
            if self._tasks and (alone or any(self._tasks.values())):
                return
            self._launch(self._waiting.popleft(), call, tool, alone=alone)

    def _launch(self, position: int, call: ToolCall, tool: Tool | None, *, alone: bool) -> None:
        arguments: JSONObject | InvalidArguments
        try:
            arguments = _invoke.read_arguments(call.arguments)
        except InvalidArguments as error:
            arguments = error
        task = self._loop.create_task(self._run(position, call, tool, arguments))
        self._tasks[task] = alone
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        if not task.cancelled() and (failure := task.exception()) is not None:
            self._failure = self._failure or failure
            self._waiting.clear()
        self._start()
        self._wake_reader()

    def _emit(self, event: ToolStarted | ToolProgress | ToolFinished) -> None:
        self._events.append(event)
        self._wake_reader()

    def _wake_reader(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def _run(
        self, position: int, call: ToolCall, tool: Tool | None, arguments: JSONObject | InvalidArguments
    ) -> None:
        began = time.perf_counter()
        shown = call.arguments if isinstance(arguments, InvalidArguments) else arguments
        self._emit(ToolStarted(id=call.id, name=call.name, args=shown))
        if tool is None:
            result = _invoke.unknown_tool(call.name, self._tools)
        elif isinstance(arguments, InvalidArguments):
            result = _failed(str(arguments))
        else:
            context = self._context(position, call)
            result, arguments = await self._decide(call, tool, arguments, context)
            result = await self._after(tool, arguments, context, result)
        record = CallRecord(
            id=call.id,
            name=call.name,
            args=call.arguments if isinstance(arguments, InvalidArguments) else arguments,
            output=result.output,
            is_error=result.is_error,
            seconds=time.perf_counter() - began,
            metadata=result.metadata,
        )
        message = _message(call, result)
        self._done[position] = (record, message)
        await self._recorder.result(message)
        self._emit(ToolFinished(call=record))

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
            report=self._reporter(call),
        )

    def _reporter(self, call: ToolCall) -> Callable[[str, float | None], None]:
        def report(message: str, fraction: float | None) -> None:
            event = ToolProgress(id=call.id, name=call.name, message=message, fraction=fraction)
            self._loop.call_soon_threadsafe(self._progress, event)

        return report

    def _progress(self, event: ToolProgress) -> None:
        if len(self._events) >= _MAX_PROGRESS:
            kept = [e for e in self._events if not (isinstance(e, ToolProgress) and e.id == event.id)]
            self._events = deque(kept)
        self._emit(event)

    async def _decide(
        self, call: ToolCall, tool: Tool, arguments: JSONObject, context: ToolContext
    ) -> tuple[ToolResult, JSONObject]:
        """Ask the hooks, check the arguments that they leave, run the tool. Gives the result and those arguments."""
        for hooks in self._place.hooks:
            if hooks.before_tool is None:
                continue
            event = BeforeTool(tool=tool, arguments=copy_json(arguments), context=context)
            try:
                answer = hooks.before_tool(event)
                if inspect.isawaitable(answer):
                    answer = await answer
            except Exception as error:  # noqa: BLE001 - policy fails closed: the call is denied, the run goes on
                _log.warning("before_tool failed, so the call to %s is denied", tool.name, exc_info=error)
                return _failed(f"denied: the check of this call failed ({type(error).__name__})"), arguments
            if isinstance(answer, Deny):
                return _failed(f"denied: {answer.reason}"), arguments
            if answer is not None:
                if answer.arguments is not None:
                    arguments = dict(answer.arguments)
                if answer.result is not None:
                    return _output.encode(answer.result, limit=self._place.max_output), arguments
        try:
            checked = _invoke.check(tool, arguments)
        except InvalidArguments as error:
            return _failed(str(error)), arguments
        self._recorder.starting(call, tool)
        return await _invoke.invoke(tool, checked, context, max_output=self._place.max_output), arguments

    async def _after(self, tool: Tool, arguments: JSONObject, context: ToolContext, result: ToolResult) -> ToolResult:
        for hooks in self._place.hooks:
            if hooks.after_tool is None:
                continue
            try:
                answer = hooks.after_tool(
                    AfterTool(tool=tool, arguments=copy_json(arguments), context=context, result=result)
                )
                if inspect.isawaitable(answer):
                    answer = await answer
            except Exception as error:  # noqa: BLE001 - watchers must not end the run
                _log.warning("after_tool failed for %s; its result stands", tool.name, exc_info=error)
            else:
                result = answer or result
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
