"""What a log keeps of a turn's result beside its messages, and the result that it gives back. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from toolnexus import _strict
from toolnexus.errors import ToolnexusError
from toolnexus.events import CallRecord, RunResult, Step, Usage
from toolnexus.messages import copy_json, read_arguments, text_of, waits

if TYPE_CHECKING:
    from toolnexus.messages import Message
    from toolnexus.stores.log import Turn

_OF_A_STEP = ("text", "reasoning", "finish_reason", "model")
_OF_A_CALL = ("args", "output", "is_error", "seconds", "metadata")


def outcome(result: RunResult, messages: Sequence[Message], earlier: Mapping[str, Any]) -> dict[str, Any]:
    """What cannot be told from the messages of a turn.

    Args:
        result: Of the turn's last run.
        messages: Of the whole turn.
        earlier: The outcome of its runs before; empty if there were none.
    """
    told = _steps((), messages)
    own = [step for step in result.steps if not step.rejected]
    rejected: list[dict[str, Any]] = [*earlier.get("rejected", ())]
    before = len(told) - len(own)
    known: list[dict[str, Any]] = [*earlier.get("steps", ())][:before]
    known += [{} for _ in range(before - len(known))]
    if known:
        # Calls that waited, of a reply that an earlier run got.
        ended = result.tool_calls[: len(result.tool_calls) - sum(len(step.calls) for step in own)]
        calls = {**known[-1].get("calls", {}), **_calls_about(ended, told[before - 1].calls)}
        known[-1] = {**known[-1], **({"calls": calls} if calls else {})}
    usages = [usage for usage in (_read_usage(earlier.get("usage")), result.usage) if usage is not None]
    paused = result.text if result.steps and result.text != result.steps[-1].text else None
    return _without_none(
        {
            "finish_reason": result.finish_reason or earlier.get("finish_reason"),
            "limit": result.limit,
            "model": result.model or earlier.get("model"),
            "usage": _usage(sum(usages[1:], usages[0])) if usages else None,
            "text": paused if result.status != "failed" else None,
            "steps": [*known, *(_step_about(*pair) for pair in zip(own, told[before:], strict=True))],
            "rejected": [*rejected, *_rejected(result.steps, before + len(rejected))] or None,
        }
    )


def error(failure: BaseException) -> dict[str, Any]:
    """What a log says of an error. Messages of strangers' errors may hold anything, so that only ours are kept."""
    if isinstance(failure, ToolnexusError):
        return {"kind": failure.kind, "message": str(failure)}
    return {"kind": type(failure).__name__}


def result(turn: Turn, messages: Sequence[Message]) -> RunResult:
    """The result of a turn that ended well, or waits, as it was. `messages` ends with the turn's own."""
    known = turn.outcome
    own = messages[turn.start :]
    steps = tuple(_with_rejected(_steps(known.get("steps", ()), own), known.get("rejected", ())))
    pending = tuple(copy_json(message.get("request")) for message in own if waits(message))
    return RunResult(
        text=known.get("text", steps[-1].text if steps else ""),
        reasoning=steps[-1].reasoning if steps else "",
        # A turn that nobody answered before the conversation went on waits no more.
        status="pending" if pending else "done" if turn.status == "done" else "incomplete",
        finish_reason=known.get("finish_reason"),
        limit=known.get("limit"),
        pending=pending,
        tool_calls=tuple(call for step in steps for call in step.calls),
        steps=steps,
        usage=_read_usage(known.get("usage")),
        model=known.get("model", ""),
        turn_id=turn.id,
        replayed=True,
        transcript=messages,
    )


def _steps(known: Sequence[Mapping[str, Any]], messages: Sequence[Message]) -> list[Step]:
    """The replies of a turn, each with the outcomes of its calls, from its messages and what is known beside them."""
    steps: list[Step] = []
    for position, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        about: Mapping[str, Any] = known[len(steps)] if len(steps) < len(known) else {}
        steps.append(
            Step(
                text=about.get("text", text_of(message.get("content"))),
                reasoning=about.get("reasoning", ""),
                finish_reason=about.get("finish_reason", "unknown"),
                usage=_read_usage(about.get("usage")),
                model=about.get("model", ""),
                host=message["origin"]["host"] if "origin" in message else "",
                calls=tuple(_calls(message, messages[position + 1 :], about.get("calls", {}))),
            )
        )
    return steps


def _rejected(steps: Sequence[Step], before: int) -> Iterator[dict[str, Any]]:
    """The replies that no message tells of, each with its place among all of the turn.

    Args:
        before: How many there were before these.
    """
    for place, step in enumerate(steps, before):
        if step.rejected:
            about = {name: getattr(step, name) for name in _OF_A_STEP}
            yield _without_none({"place": place, **about, "host": step.host or None, "usage": _usage(step.usage)})


def _with_rejected(steps: list[Step], known: Sequence[Mapping[str, Any]]) -> list[Step]:
    for about in known:
        fields = {name: about[name] for name in _OF_A_STEP}
        usage, host = _read_usage(about.get("usage")), about.get("host", "")
        steps.insert(about["place"], Step(**fields, usage=usage, host=host, rejected=True))
    return steps


def _calls(reply: Message, after: Sequence[Message], known: Mapping[str, Mapping[str, Any]]) -> Iterable[CallRecord]:
    """The calls of a reply that have ended, with their results, which stand right after it, in call order."""
    calls = reply.get("tool_calls", ()) if reply["role"] == "assistant" else ()
    for call, answer in zip(calls, after, strict=False):
        if waits(answer):
            continue
        arguments = call["function"]["arguments"]
        read = read_arguments(arguments)
        told = CallRecord(
            id=call["id"],
            name=call["function"]["name"],
            args=arguments if read is None else read,
            output=text_of(answer.get("content")),
            is_error=bool(answer.get("is_error")),
            seconds=0.0,
        )
        yield dataclasses.replace(told, **known.get(call["id"], {}))


def _step_about(step: Step, told: Step) -> dict[str, Any]:
    about = {name: getattr(step, name) for name in _OF_A_STEP if getattr(step, name) != getattr(told, name)}
    return about | _without_none({"usage": _usage(step.usage), "calls": _calls_about(step.calls, told.calls) or None})


def _calls_about(calls: Iterable[CallRecord], told: Iterable[CallRecord]) -> dict[str, dict[str, Any]]:
    """What is not told of calls, by their ids."""
    known = {call.id: call for call in told}
    return {call.id: _call_about(call, known[call.id]) for call in calls if call.id in known}


def _call_about(call: CallRecord, told: CallRecord) -> dict[str, Any]:
    about = {name: getattr(call, name) for name in _OF_A_CALL if getattr(call, name) != getattr(told, name)}
    return {name: value for name, value in about.items() if name == "seconds" or _is_json(value)}


def _is_json(value: object) -> bool:
    """Whether a value can be kept. Metadata is the tool's own, and may be anything."""
    try:
        _strict.encode(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _usage(usage: Usage | None) -> dict[str, Any] | None:
    if usage is None:
        return None
    told = ((about.name, getattr(usage, about.name), about.default) for about in dataclasses.fields(usage))
    return {name: value for name, value, default in told if value != default}


def _read_usage(known: Mapping[str, Any] | None) -> Usage | None:
    return None if known is None else Usage(**known)


def _without_none(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}
