"""What a provider answers: reasoning and two calls at once, then reasoning and a text, in every style and framing."""

from __future__ import annotations

import itertools
import json
from typing import Any

CALLS = [("add", {"a": 2, "b": 3}), ("look", {"where": "north"})]
THOUGHT = "I have to look first."
ANSWER = "All done."
SIGNATURE = "c2lnbmVk"

_numbers = itertools.count()


def openai(step: int, *, stream: bool, reasoning: str, call_ids: list[str]) -> Any:
    """Chat completions.

    Args:
        reasoning: Where the provider puts its reasoning: a field of the message, `parts` of its content, or empty.
        call_ids: The ids of the two calls.
    """
    message: dict[str, Any] = {"role": "assistant", "content": None if step == 1 else ANSWER}
    match reasoning:
        case "parts":
            thinking = {"type": "thinking", "thinking": [{"type": "text", "text": THOUGHT}]}
            message["content"] = [thinking, *([] if step == 1 else [{"type": "text", "text": ANSWER}])]
        case "reasoning_details":
            detail = {"type": "reasoning.text", "text": THOUGHT, "signature": SIGNATURE, "index": 0}
            message |= {"reasoning": THOUGHT, "reasoning_details": [detail]}
        case "":
            pass
        case field:
            message[field] = THOUGHT
    if step == 1:
        message["tool_calls"] = [
            {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for call_id, (name, arguments) in zip(call_ids, CALLS, strict=True)
        ]
    reason = "tool_calls" if step == 1 else "stop"
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    head = {"id": "cmp-1", "created": 1, "model": "m"}
    if not stream:
        choice = {"index": 0, "message": message, "finish_reason": reason}
        return {**head, "object": "chat.completion", "choices": [choice], "usage": usage}
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [
        {key: value} for key, value in message.items() if value is not None and key not in ("role", "tool_calls")
    ]
    deltas += [{"tool_calls": [{"index": n, **call}]} for n, call in enumerate(message.get("tool_calls", ()))]
    chunks = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}], "usage": usage})
    # Azure begins with what its filter says of the prompt.
    before: dict[str, Any] = {"choices": [], "prompt_filter_results": [{"prompt_index": 0}]}
    return [*(_event({**head, "object": "chat.completion.chunk", **chunk}) for chunk in (before, *chunks)), _DONE]


def anthropic(step: int, *, stream: bool) -> Any:
    blocks: list[dict[str, Any]] = [{"type": "thinking", "thinking": THOUGHT, "signature": SIGNATURE}]
    if step == 1:
        blocks += [
            {"type": "tool_use", "id": f"toolu_{next(_numbers)}", "name": name, "input": arguments}
            for name, arguments in CALLS
        ]
    else:
        blocks.append({"type": "text", "text": ANSWER})
    reason = "tool_use" if step == 1 else "end_turn"
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": blocks,
        "stop_reason": reason,
        "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 5},
    }
    if not stream:
        return message
    events: list[dict[str, Any]] = [{"type": "message_start", "message": {**message, "content": []}}]
    for index, block in enumerate(blocks):
        opened, deltas = _opened(block)
        events.append({"type": "content_block_start", "index": index, "content_block": opened})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    events.append({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 5}})
    return [_event(event) for event in (*events, {"type": "message_stop"})]


def _opened(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    match block["type"]:
        case "thinking":
            return {**block, "thinking": "", "signature": ""}, [
                {"type": "thinking_delta", "thinking": block["thinking"]},
                {"type": "signature_delta", "signature": block["signature"]},
            ]
        case "tool_use":
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
        case _:
            return {**block, "text": ""}, [{"type": "text_delta", "text": block["text"]}]


def responses(step: int, *, stream: bool) -> Any:
    summary = [{"type": "summary_text", "text": THOUGHT}]
    output: list[dict[str, Any]] = [{"type": "reasoning", "id": f"rs_{next(_numbers)}", "summary": summary}]
    if step == 1:
        for name, arguments in CALLS:
            number = next(_numbers)
            call = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_r{number}", "name": name}
            output.append({**call, "arguments": json.dumps(arguments), "status": "completed"})
    else:
        content = [{"type": "output_text", "text": ANSWER, "annotations": []}]
        message = {"type": "message", "id": f"msg_{next(_numbers)}", "role": "assistant", "status": "completed"}
        output.append({**message, "content": content})
    usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
    response = {"id": "resp_1", "object": "response", "status": "completed", "model": "m"}
    response |= {"output": output, "usage": usage}
    if not stream:
        return response
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": {**response, "status": "in_progress", "output": []}}
    ]
    for index, item in enumerate(output):
        at = {"output_index": index, "item_id": item["id"], "content_index": 0}
        begun = {**item, "arguments": ""} if item["type"] == "function_call" else {**item, "content": []}
        if item["type"] == "reasoning":
            begun = {**item, "summary": []}
        events.append({"type": "response.output_item.added", "output_index": index, "item": begun})
        match item["type"]:
            case "message":
                events.append({"type": "response.output_text.delta", **at, "delta": ANSWER})
            case "function_call":
                events.append({"type": "response.function_call_arguments.delta", **at, "delta": item["arguments"]})
            case _:
                events.append(
                    {"type": "response.reasoning_summary_text.delta", **at, "summary_index": 0, "delta": THOUGHT}
                )
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    return [_event(event) for event in (*events, {"type": "response.completed", "response": response})]


def gemini(step: int, *, stream: bool) -> Any:
    parts: list[dict[str, Any]] = [{"text": THOUGHT, "thought": True}]
    if step == 1:
        parts += [{"functionCall": {"name": name, "args": arguments}} for name, arguments in CALLS]
        parts[1]["thoughtSignature"] = SIGNATURE
    else:
        parts += [{"text": ANSWER}, {"text": "", "thoughtSignature": SIGNATURE}]
    if not stream:
        return _candidate(parts, "STOP")
    return [_event(_candidate([part], None)) for part in parts] + [_event(_candidate([], "STOP"))]


def _candidate(parts: list[dict[str, Any]], finish: str | None) -> dict[str, Any]:
    candidate = {"content": {"role": "model", "parts": parts}, "finishReason": finish, "index": 0}
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "gemini-3-pro"}


def _event(data: Any) -> bytes:
    kind = f"event: {data['type']}\n" if "type" in data else ""
    return f"{kind}data: {json.dumps(data)}\n\n".encode()


_DONE = b"data: [DONE]\n\n"
