"""The corpus's stored turns as a transcript of ours."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from corpus_runner.cases import BadCase
from corpus_runner.wires import WIRES
from toolnexus._endpoint import Endpoint, resolve
from toolnexus.dialects import Dialect, Reading
from toolnexus.dialects.anthropic import Anthropic
from toolnexus.dialects.gemini import Gemini
from toolnexus.dialects.openai import OpenAI
from toolnexus.dialects.responses import Responses

_DIALECTS: Mapping[str, Dialect] = {
    "openai": OpenAI(),
    "anthropic": Anthropic(),
    "gemini": Gemini(),
    "responses": Responses(),
}


def history(turns: Sequence[Mapping[str, Any]], model: str = "m") -> list[dict[str, Any]]:
    """Messages as a host that wrote them by hand would hold them; replies of a named wire as that wire left them.

    Args:
        model: Whose replies they are.
    """
    return [_message(turn, model) for turn in turns]


def content(value: Any) -> Any:
    """A text, or content parts in our shape."""
    return value if isinstance(value, str) else [_part(part) for part in value]


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    if part["type"] == "text":
        return {"type": "text", "text": part["text"]}
    return {"type": "image_url", "image_url": {"url": f"data:{part['media_type']};base64,{part['data']}"}}


def _message(turn: Mapping[str, Any], model: str) -> dict[str, Any]:
    match turn["role"]:
        case "assistant":
            return _by_wire(turn, model) if "wire" in turn else _by_hand(turn)
        case "tool":
            result = {"role": "tool", "tool_call_id": turn["tool_call_id"], "content": content(turn["content"])}
            return {**result, "is_error": turn["is_error"]} if "is_error" in turn else result
        case role:
            return {"role": role, "content": turn["text"]}


def _by_hand(turn: Mapping[str, Any]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": turn.get("text", "")}
    if "tool_calls" in turn:
        message["tool_calls"] = [_openai_call(call) for call in turn["tool_calls"]]
    if "reasoning" in turn:
        message["reasoning_content"] = turn["reasoning"]
    return message


def _by_wire(turn: Mapping[str, Any], model: str) -> dict[str, Any]:
    """The message that the library keeps of a reply with this turn's content, from the endpoint that it names."""
    style, endpoint = _endpoint(turn["wire"])
    reply = _DIALECTS[style].decode(_REPLIES[style](turn), Reading(target=endpoint.target, model=model))
    return dict(reply.message)


def _endpoint(wire: Any) -> tuple[str, Endpoint]:
    """A wire is named by a base URL, a style, or a row of the provider table."""
    if not isinstance(wire, str):
        raise BadCase(f"the wire is {wire!r}")
    if "://" in wire:
        url = urlsplit(wire)
        style = "anthropic" if "anthropic" in f"{url.hostname}{url.path}" else "openai"
        if url.hostname == "generativelanguage.googleapis.com" and "/openai" not in url.path:
            style = "gemini"
        return style, resolve("m", base_url=wire, style=style, api_key="k", headers=None, environ={})
    if wire in WIRES:
        return wire, resolve("m", base_url=WIRES[wire].base_url, style=wire, api_key="k", headers=None, environ={})
    endpoint = resolve(f"{wire}:m", base_url=None, style=None, api_key="k", headers=None, environ={})
    return endpoint.target.style, endpoint


def _openai_call(call: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": call["id"],
        "type": "function",
        "function": {"name": call["name"], "arguments": _text(call["arguments"])},
    }


def _text(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def _openai_reply(turn: Mapping[str, Any]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": turn.get("text", "")}
    if "reasoning" in turn:
        message["reasoning_content"] = turn["reasoning"]
    calls = [_openai_call(call) for call in turn.get("tool_calls", ())]
    if calls:
        message["tool_calls"] = calls
    finish = "tool_calls" if calls else "stop"
    return {"id": "cmp-0", "model": "m", "choices": [{"index": 0, "message": message, "finish_reason": finish}]}


def _anthropic_reply(turn: Mapping[str, Any]) -> dict[str, Any]:
    blocks: list[dict[str, Any]] = []
    if "reasoning" in turn:
        blocks.append({"type": "thinking", "thinking": turn["reasoning"], "signature": "c2lnbmF0dXJl"})
    if turn.get("text"):
        blocks.append({"type": "text", "text": turn["text"]})
    calls = turn.get("tool_calls", ())
    blocks += [{"type": "tool_use", "id": c["id"], "name": c["name"], "input": c["arguments"]} for c in calls]
    stop = "tool_use" if calls else "end_turn"
    usage = {"input_tokens": 1, "output_tokens": 1}
    reply = {"id": "msg_0", "type": "message", "role": "assistant", "model": "m", "content": blocks}
    return {**reply, "stop_reason": stop, "stop_sequence": None, "usage": usage}


def _gemini_reply(turn: Mapping[str, Any]) -> dict[str, Any]:
    parts: list[dict[str, Any]] = []
    if "reasoning" in turn:
        parts.append({"text": turn["reasoning"], "thought": True})
    if turn.get("text"):
        parts.append({"text": turn["text"]})
    calls = [
        {"functionCall": {"id": call["id"], "name": call["name"], "args": call["arguments"]}}
        for call in turn.get("tool_calls", ())
    ]
    if calls:
        calls[0]["thoughtSignature"] = "c2lnbmF0dXJl"
    candidate = {"content": {"role": "model", "parts": [*parts, *calls]}, "finishReason": "STOP", "index": 0}
    return {"candidates": [candidate], "modelVersion": "m"}


def _responses_reply(turn: Mapping[str, Any]) -> dict[str, Any]:
    output: list[dict[str, Any]] = []
    if "reasoning" in turn:
        summary = [{"type": "summary_text", "text": turn["reasoning"]}]
        output.append({"type": "reasoning", "id": "rs_0", "summary": summary, "encrypted_content": "c2VhbGVk"})
    if turn.get("text"):
        content = [{"type": "output_text", "text": turn["text"], "annotations": []}]
        output.append(
            {"type": "message", "id": "msg_0", "role": "assistant", "status": "completed", "content": content}
        )
    output += [
        {"type": "function_call", "call_id": call["id"], "name": call["name"], "arguments": _text(call["arguments"])}
        for call in turn.get("tool_calls", ())
    ]
    return {"id": "resp_0", "object": "response", "status": "completed", "model": "m", "output": output}


_REPLIES: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "openai": _openai_reply,
    "anthropic": _anthropic_reply,
    "gemini": _gemini_reply,
    "responses": _responses_reply,
}
