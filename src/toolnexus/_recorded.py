"""What a log keeps of a turn's result beside its messages, and the result that it gives back. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from toolnexus.errors import ToolnexusError
from toolnexus.events import CallRecord, RunResult, Step, Usage
from toolnexus.messages import Message, read_arguments, text_of

if TYPE_CHECKING:
    from toolnexus.stores.log import Turn


def outcome(result: RunResult) -> dict[str, Any]:
    """What cannot be told from the messages of the turn."""
    steps = [
        _without_none(
            {
                "finish_reason": step.finish_reason,
                "usage": _usage(step.usage),
                "model": step.model,
                "reasoning": step.reasoning or None,
                "seconds": [round(call.seconds, 6) for call in step.calls] or None,
            }
        )
        for step in result.steps
    ]
    return _without_none(
        {
            "finish_reason": result.finish_reason,
            "limit": result.limit,
            "model": result.model,
            "usage": _usage(result.usage),
            "steps": steps,
        }
    )


def error(failure: BaseException) -> dict[str, Any]:
    """What a log says of an error. Messages of strangers' errors may hold anything, so that only ours are kept."""
    if isinstance(failure, ToolnexusError):
        return {"kind": failure.kind, "message": str(failure)}
    return {"kind": type(failure).__name__}


def result(turn: Turn, messages: Sequence[Message]) -> RunResult:
    """The result of a turn that ended well, as it was. `messages` ends with the turn's own."""
    known = turn.outcome
    steps = tuple(_steps(known.get("steps", []), messages[turn.start :]))
    return RunResult(
        text=steps[-1].text if steps else "",
        reasoning=steps[-1].reasoning if steps else "",
        status="pending" if turn.status == "suspended" else "incomplete" if turn.status == "incomplete" else "done",
        finish_reason=known.get("finish_reason"),
        limit=known.get("limit"),
        tool_calls=tuple(call for step in steps for call in step.calls),
        steps=steps,
        usage=_read_usage(known.get("usage")),
        model=known.get("model", ""),
        turn_id=turn.id,
        replayed=True,
        transcript=messages,
    )


def _steps(known: Sequence[Mapping[str, Any]], messages: Sequence[Message]) -> list[Step]:
    """The replies of a turn, each with the outcomes of its calls. A paused reply's text goes on in the next one's."""
    steps: list[Step] = []
    for message in messages:
        if message["role"] != "assistant":
            continue
        about: Mapping[str, Any] = known[len(steps)] if len(steps) < len(known) else {}
        steps.append(
            Step(
                text=text_of(message.get("content")),
                reasoning=about.get("reasoning", ""),
                finish_reason=about.get("finish_reason", "unknown"),
                usage=_read_usage(about.get("usage")),
                model=about.get("model", ""),
                calls=tuple(_calls(message, messages, about.get("seconds", []))),
            )
        )
    return steps


def _calls(reply: Message, messages: Sequence[Message], seconds: Sequence[float]) -> list[CallRecord]:
    """The calls of a reply with their results, which stand right after it, in call order."""
    first = next(index for index, message in enumerate(messages) if message is reply) + 1
    records: list[CallRecord] = []
    calls = reply.get("tool_calls", []) if reply["role"] == "assistant" else []
    for position, (call, answer) in enumerate(zip(calls, messages[first:], strict=False)):
        arguments = call["function"]["arguments"]
        read = read_arguments(arguments)
        records.append(
            CallRecord(
                id=call["id"],
                name=call["function"]["name"],
                args=arguments if read is None else read,
                output=text_of(answer.get("content")),
                is_error=bool(answer.get("is_error")),
                seconds=seconds[position] if position < len(seconds) else 0.0,
            )
        )
    return records


def _usage(usage: Usage | None) -> dict[str, int] | None:
    return None if usage is None else {name: count for name, count in dataclasses.asdict(usage).items() if count}


def _read_usage(known: Mapping[str, int] | None) -> Usage | None:
    return None if known is None else Usage(**known)


def _without_none(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}
