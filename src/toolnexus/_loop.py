"""The only loop: steps until an answer. It knows no provider, no store and no HTTP."""

from __future__ import annotations

import itertools
import time
from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from toolnexus import _callbacks
from toolnexus._answer_json import Misfit
from toolnexus._batch import Place, ToolBatch
from toolnexus.clock import within
from toolnexus.dialects import Reply, Request
from toolnexus.errors import HookFailed, InvalidOutput, ToolnexusError
from toolnexus.events import Finished, Retrying, StepFinished, TextDelta
from toolnexus.hooks import AfterLLM, BeforeLLM, Hooks, LLMOverride
from toolnexus.messages import copy_messages, normalise, repair

if TYPE_CHECKING:
    from toolnexus._answer_type import AnswerType
    from toolnexus._model import Model
    from toolnexus._reopened import OpenStep
    from toolnexus._tally import Tally
    from toolnexus.events import Event
    from toolnexus.messages import Message, ToolMessage
    from toolnexus.suspension import Asking
    from toolnexus.telemetry.watching import WatchedRun
    from toolnexus.tools import Tool, ToolCall


class Journal(Protocol):
    """Keeps what happens where it happens, whether or not anybody reads the events."""

    async def reply(self, reply: Reply, acting: list[ToolCall]) -> None:
        """The model replied and the run goes on. No call has started yet; those `acting` may change something."""
        ...

    def starting(self, call: ToolCall, tool: Tool) -> None:
        """A call is about to run."""
        ...

    async def acting(self, call: ToolCall, tool: Tool) -> None:
        """A call is about to run after all that waited, or runs again. What was recorded as its result is void."""
        ...

    async def result(self, message: ToolMessage, *, ran: bool) -> None:
        """A call ended, or waits; `ran` is false if the tool never started. Awaited inside the call's own task."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What one run works with.

    Attributes:
        deadline: In seconds on `time.monotonic()`. None: no bound.
        replies: How many replies the turn had before this run.
        answer_type: What the answer has to be. None: any text.
        watch: Who watches it. None: nobody.
    """

    model: Model
    model_id: str
    system: str
    tools: tuple[Tool, ...]
    hooks: tuple[Hooks, ...]
    asking: Asking
    params: Mapping[str, Any]
    stream: bool
    max_steps: int
    max_tokens: int | None
    max_output: int
    concurrency: int
    deadline: float | None
    turn_id: str
    conversation_id: str | None
    replies: int = 0
    answer_type: AnswerType | None = None
    watch: WatchedRun | None = None


async def steps(
    run: Run, tally: Tally, journal: Journal, opened: OpenStep | None = None
) -> AsyncGenerator[Event, None]:
    """Drive the transcript of `tally` until the model is done. A run that ends well ends with `Finished`.

    Args:
        opened: The calls that the last reply of the transcript still waits for. None: there are none.

    Raises:
        ToolnexusError: With `.partial`, when the model had said anything.
    """
    rejected = 0  # replies that are not part of the transcript, and are no steps of the turn
    objection: list[Message] = []  # what only the next request has
    try:
        batch: ToolBatch | None = None
        if opened is not None:
            batch = ToolBatch(opened.calls, _by_name(run.tools), _place(run, run.replies - 1), journal, opened)
        for step in itertools.count(run.replies):
            if batch is not None:
                try:
                    async for event in batch:
                        yield event
                finally:
                    await batch.aclose()
                    tally.settle(batch.records, batch.messages)
                if pending := batch.pending:
                    yield Finished(result=tally.result("pending", pending=pending))
                    return
                batch = None
            if step == run.replies + run.max_steps:
                yield Finished(result=tally.result("incomplete", "max_steps"))
                return
            request = _request(run, tally, objection)
            objection = []
            if run.hooks:
                request = await _before(run, request, step)
            if run.watch is not None:
                run.watch.request(request)
            began = time.perf_counter()
            first_chunk: float | None = None
            reply: Reply | None = None
            parts = run.model.reply(request, deadline=run.deadline)
            try:
                async for part in parts:
                    if isinstance(part, Reply):
                        reply = part
                        continue
                    if first_chunk is None and request.stream and part and type(part[0]) is not Retrying:
                        first_chunk = time.perf_counter() - began
                    for event in part:
                        if type(event) is TextDelta:
                            tally.show(event.text)
                        yield event
            finally:
                await parts.aclose()
            assert reply is not None, "a model's parts end with its reply"
            finished = StepFinished(
                usage=reply.usage,
                finish_reason=reply.finish_reason,
                model=reply.model,
                seconds=time.perf_counter() - began,
                first_chunk=first_chunk,
            )
            tally.reply(reply)
            if run.watch is not None:
                run.watch.reply(reply, finished)
            if run.hooks:
                await _after(run, reply, step)
            yield finished
            if reply.calls:
                tools = _by_name(request.tools)
                await journal.reply(reply, _acting(reply, tools))
                batch = ToolBatch(reply.calls, tools, _place(run, step - rejected), journal)
            elif reply.continues:
                await journal.reply(reply, [])
            elif reply.finish_reason == "length":
                yield Finished(result=tally.result("incomplete", "max_tokens"))
                return
            elif run.answer_type is None:
                yield Finished(result=tally.result("done"))
                return
            else:
                try:
                    output = await within(run.deadline, run.answer_type.read(tally.text))
                except Misfit as misfit:
                    tally.reject()
                    rejected += 1
                    objection = _objection(
                        misfit, reply, again=rejected > 1, last=step + 1 == run.replies + run.max_steps
                    )
                else:
                    yield Finished(result=tally.result("done", output=output))
                    return
    except ToolnexusError as error:
        tally.explain(error)
        raise


def _by_name(tools: Iterable[Tool]) -> dict[str, Tool]:
    return {tool.name: tool for tool in tools}


def _acting(reply: Reply, tools: Mapping[str, Tool]) -> list[ToolCall]:
    return [call for call in reply.calls if (tool := tools.get(call.name)) is not None and not tool.read_only]


def _place(run: Run, step: int) -> Place:
    return Place(
        turn_id=run.turn_id,
        conversation_id=run.conversation_id,
        step=step,
        deadline=run.deadline,
        hooks=run.hooks,
        asking=run.asking,
        max_output=run.max_output,
        concurrency=run.concurrency,
        watch=run.watch,
    )


_AGAIN = (
    "Your answer is not what was asked for:\n{told}\nGive the whole answer again, corrected, in the form asked for."
)


def _objection(misfit: Misfit, reply: Reply, *, again: bool, last: bool) -> list[Message]:
    """The answer that does not fit, and what the model is told of it.

    Args:
        again: It was told before.
        last: No further reply is allowed.

    Raises:
        InvalidOutput: There is no point in telling it.
    """
    if again:
        why = "neither was the one before"
    elif not misfit.repairable:
        why = "that is not for the model to repair"
    elif reply.finish_reason in ("refusal", "content_filter"):
        why = f"the model did not answer ({reply.finish_reason})"
    elif last:
        why = "max_steps allowed no further reply"
    else:
        return [reply.message, {"role": "user", "content": _AGAIN.format(told=misfit.told)}]
    raise InvalidOutput(misfit.shown, why=why) from misfit.__cause__


def _request(run: Run, tally: Tally, objection: list[Message]) -> Request:
    return Request(
        model=run.model_id,
        messages=[*tally.transcript, *objection] if objection else tally.transcript,
        system=run.system,
        tools=run.tools,
        max_tokens=run.max_tokens,
        stream=run.stream,
        params=run.params,
        response_schema=None if run.answer_type is None else run.answer_type.schema,
    )


async def _before(run: Run, request: Request, step: int) -> Request:
    """The request of the next step, as the hooks leave it."""
    for hooks in run.hooks:
        if hooks.before_llm is None:
            continue
        event = BeforeLLM(
            messages=copy_messages(request.messages), tools=tuple(request.tools), model=request.model, step=step
        )
        try:
            override = await within(run.deadline, _callbacks.ask(hooks.before_llm, event, LLMOverride))
            if override is not None:
                request = _overridden(request, override)
        except ToolnexusError:
            raise
        except Exception as error:
            raise HookFailed(f"before_llm raised {type(error).__name__}, so nothing was sent.") from error
    return request


def _overridden(request: Request, override: LLMOverride) -> Request:
    """The request with what a hook wants of it. Messages come from outside, so they are made sendable."""
    messages, tools = override.messages, override.tools
    return replace(
        request,
        messages=request.messages if messages is None else repair(normalise(messages))[0],
        tools=request.tools if tools is None else tuple(tools),
        model=override.model or request.model,
    )


async def _after(run: Run, reply: Reply, step: int) -> None:
    for hooks in run.hooks:
        if hooks.after_llm is not None:
            event = AfterLLM(reply=reply, step=step)
            await within(run.deadline, _callbacks.tell("after_llm", hooks.after_llm, event))
