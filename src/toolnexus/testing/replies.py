"""Answers as the wires spell them, whole and streamed, for scripts of a `ScriptedTransport`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from toolnexus.events import Usage

Call: TypeAlias = Mapping[str, Any]
"""`{"name", "arguments", "id"?}` as `call` makes it. Arguments are an object, or raw text to be sent as it is. Without
an id of its own a call is `call_1`, `call_2`, … by its place in the reply."""

_USAGE = Usage(prompt=10, completion=5, total=15)


def openai_reply(
    text: str = "",
    *,
    calls: Sequence[Call] = (),
    reasoning: str = "",
    finish_reason: str | None = None,
    usage: Usage | None = _USAGE,
    model: str = "m",
) -> dict[str, Any]:
    """A whole answer of the `openai` style. The finish reason, unless given, is what the calls make it."""
    message: dict[str, Any] = {"role": "assistant", "content": text or None}
    if reasoning:
        message["reasoning_content"] = reasoning
    if calls:
        message["tool_calls"] = _openai_calls(calls)
    choice = {"index": 0, "message": message, "finish_reason": finish_reason or ("tool_calls" if calls else "stop")}
    answer: dict[str, Any] = {"id": "cmp-1", "object": "chat.completion", "created": 1, "model": model}
    answer["choices"] = [choice]
    if usage:
        answer["usage"] = _openai_usage(usage)
    return answer


def openai_stream(
    *texts: str,
    calls: Sequence[Call] = (),
    reasoning: str = "",
    finish_reason: str | None = None,
    usage: Usage | None = _USAGE,
    model: str = "m",
) -> list[bytes]:
    """The same, streamed: one read for each event, one event for each of `texts`."""
    head: dict[str, Any] = {"id": "cmp-1", "object": "chat.completion.chunk", "created": 1, "model": model}
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    if reasoning:
        deltas.append({"reasoning_content": reasoning})
    deltas += [{"content": text} for text in texts]
    deltas += [{"tool_calls": [{"index": index, **entry}]} for index, entry in enumerate(_openai_calls(calls))]
    reason = finish_reason or ("tool_calls" if calls else "stop")
    ends = [(delta, None) for delta in deltas] + [(dict[str, Any](), reason)]
    chunks = [head | {"choices": [{"index": 0, "delta": delta, "finish_reason": end}]} for delta, end in ends]
    if usage:
        chunks.append(head | {"choices": [], "usage": _openai_usage(usage)})
    return [*(_event(chunk) for chunk in chunks), b"data: [DONE]\n\n"]


def anthropic_reply(
    text: str = "",
    *,
    calls: Sequence[Call] = (),
    finish_reason: str | None = None,
    usage: Usage = _USAGE,
    model: str = "m",
) -> dict[str, Any]:
    """A whole answer of the `anthropic` style. The stop reason, unless given, is what the calls make it."""
    blocks: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    blocks += [
        {"type": "tool_use", "id": each["id"], "name": each["name"], "input": each["arguments"]}
        for each in _numbered(calls)
    ]
    return {
        **_anthropic_message(model, usage.prompt, usage.completion),
        "content": blocks,
        "stop_reason": finish_reason or ("tool_use" if calls else "end_turn"),
    }


def anthropic_stream(
    *texts: str,
    calls: Sequence[Call] = (),
    finish_reason: str | None = None,
    usage: Usage = _USAGE,
    model: str = "m",
) -> list[bytes]:
    """The same, streamed: one read for each event, one text delta for each of `texts`."""
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**_anthropic_message(model, usage.prompt, 1), "content": []}}
    ]
    blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
    if texts:
        blocks.append(({"type": "text", "text": ""}, [{"type": "text_delta", "text": text} for text in texts]))
    for each in _numbered(calls):
        begun: dict[str, Any] = {"type": "tool_use", "id": each["id"], "name": each["name"], "input": {}}
        blocks.append((begun, [{"type": "input_json_delta", "partial_json": _raw(each["arguments"])}]))
    for index, (block, deltas) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    reason = finish_reason or ("tool_use" if calls else "end_turn")
    events.append(
        {
            "type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": None},
            "usage": {"output_tokens": usage.completion},
        }
    )
    events.append({"type": "message_stop"})
    return [f"event: {event['type']}\n".encode() + _event(event) for event in events]


def _numbered(calls: Sequence[Call]) -> list[Call]:
    return [{"id": f"call_{place}", **each} for place, each in enumerate(calls, 1)]


def _openai_calls(calls: Sequence[Call]) -> list[dict[str, Any]]:
    return [
        {
            "id": each["id"],
            "type": "function",
            "function": {"name": each["name"], "arguments": _raw(each["arguments"])},
        }
        for each in _numbered(calls)
    ]


def _raw(arguments: object) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def _openai_usage(usage: Usage) -> dict[str, int]:
    return {"prompt_tokens": usage.prompt, "completion_tokens": usage.completion, "total_tokens": usage.total}


def _anthropic_message(model: str, prompt: int, completion: int) -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": model,
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": prompt, "output_tokens": completion},
    }


def _event(data: object) -> bytes:
    return b"data: " + json.dumps(data, separators=(",", ":")).encode() + b"\n\n"
