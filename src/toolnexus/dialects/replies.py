"""What every wire's answer comes to, whole or streamed. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from toolnexus.dialects import Reading, Reply
from toolnexus.dialects.payloads import JSONObject, amount, count, is_object
from toolnexus.events import Usage
from toolnexus.messages import sendable_arguments
from toolnexus.tools import ToolCall

if TYPE_CHECKING:
    from toolnexus.events import FinishReason
    from toolnexus.messages import AssistantMessage, CallEntry

CUT: frozenset[FinishReason] = frozenset({"length", "content_filter", "refusal"})
"""Finish reasons of replies that may end in the middle of a call."""


class WireCall(NamedTuple):
    """A call as the wire spelled it. The id may be empty or taken, `arguments` any text."""

    id: str
    name: str
    arguments: str


def usage(told: JSONObject, reading: Reading, *, given: str, made: str) -> Usage | None:
    """The usage as OpenAI's wires tell it. None: it tells nothing.

    Args:
        given: What the wire calls what went in.
        made: What it calls what came out.
    """
    prompt, completion = count(told.get(f"{given}_tokens")), count(told.get(f"{made}_tokens"))
    total = count(told.get("total_tokens")) or prompt + completion
    if not total:
        return None
    before, after = told.get(f"{given}_tokens_details"), told.get(f"{made}_tokens_details")
    cached = count(before.get("cached_tokens")) if is_object(before) else 0
    return Usage(
        prompt=prompt,
        completion=completion,
        total=total,
        cached=cached or count(told.get("prompt_cache_hit_tokens")),
        cache_write=count(before.get("cache_write_tokens")) if is_object(before) else 0,
        reasoning=count(after.get("reasoning_tokens")) if is_object(after) else 0,
        cost=amount(told.get("cost")) if reading.target.provider.tells_cost else None,
    )


def build(
    reading: Reading,
    *,
    text: str,
    reasoning: str,
    calls: Sequence[WireCall],
    finish: FinishReason,
    usage: Usage | None,
    model: object,
    id: object = None,
    native: Any = None,
    paused: bool = False,
) -> Reply:
    """Put a reply together. Calls of a reply that was cut off are dropped; `native` must not hold them either."""
    if finish in CUT:
        calls = ()
    message: AssistantMessage = {"role": "assistant"}
    if text or not calls:
        message["content"] = text
    run: tuple[ToolCall, ...] = ()
    if calls:
        finish = "tool_calls"
        run = _distinct(calls, reading)
        message["tool_calls"] = [entry(call) for call in run]
    message["origin"] = {"style": reading.target.style, "model": reading.model, "host": reading.target.host}
    if native:
        message["native"] = native
    return Reply(
        message=message,
        text=text,
        reasoning=reasoning,
        calls=run,
        finish_reason=finish,
        usage=usage,
        model=model if isinstance(model, str) and model else reading.model,
        id=id if isinstance(id, str) else "",
        continues=paused and not run,
    )


def _distinct(calls: Sequence[WireCall], reading: Reading) -> tuple[ToolCall, ...]:
    """The calls under the tools' own names and with an id each."""
    taken = {call.id for call in calls}
    used: set[str] = {""}
    run: list[ToolCall] = []
    for position, call in enumerate(calls):
        call_id = call.id
        if call_id in used:
            stem = f"{call_id or 'call'}_{position}"
            call_id = stem
            while call_id in taken or call_id in used:
                call_id += "_"
        used.add(call_id)
        name = reading.names.get(call.name, call.name)
        run.append(ToolCall(id=call_id, name=name, arguments=call.arguments))
    return tuple(run)


def entry(call: ToolCall) -> CallEntry:
    function = {"name": call.name, "arguments": sendable_arguments(call.arguments)}
    return {"id": call.id, "type": "function", "function": function}  # pyright: ignore[reportReturnType]
