"""The corpus's stored turns as a transcript of ours."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from corpus_runner.cases import BadCase
from corpus_runner.wires import WIRES
from toolnexus._endpoint import Endpoint, resolve
from toolnexus.dialects import Dialect, Reading
from toolnexus.dialects.anthropic import Anthropic
from toolnexus.dialects.openai import OpenAI

_DIALECTS: Mapping[str, Dialect] = {"openai": OpenAI(), "anthropic": Anthropic()}


def history(turns: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Messages as a host that wrote them by hand would hold them; replies of a named wire as that wire left them."""
    return [_message(turn) for turn in turns]


def content(value: Any) -> Any:
    """A text, or content parts in our shape."""
    return value if isinstance(value, str) else [_part(part) for part in value]


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    if part["type"] == "text":
        return {"type": "text", "text": part["text"]}
    return {"type": "image_url", "image_url": {"url": f"data:{part['media_type']};base64,{part['data']}"}}


def _message(turn: Mapping[str, Any]) -> dict[str, Any]:
    match turn["role"]:
        case "assistant":
            return _by_wire(turn) if "wire" in turn else _by_hand(turn)
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


def _by_wire(turn: Mapping[str, Any]) -> dict[str, Any]:
    """The message that the library keeps of a reply with this turn's content, from the endpoint that it names."""
    style, endpoint = _endpoint(turn["wire"])
    body = _anthropic_reply(turn) if style == "anthropic" else _openai_reply(turn)
    reply = _DIALECTS[style].decode(body, Reading(target=endpoint.target, model="m"))
    return dict(reply.message)


def _endpoint(wire: Any) -> tuple[str, Endpoint]:
    """A wire is named by a base URL, a style, or a row of the provider table."""
    if not isinstance(wire, str):
        raise BadCase(f"the wire is {wire!r}")
    if "://" in wire:
        url = urlsplit(wire)
        style = "anthropic" if "anthropic" in f"{url.hostname}{url.path}" else "openai"
        return style, resolve("m", base_url=wire, style=style, api_key="k", headers=None, environ={})
    if wire in WIRES:
        return wire, resolve("m", base_url=WIRES[wire].base_url, style=wire, api_key="k", headers=None, environ={})
    endpoint = resolve(f"{wire}:m", base_url=None, style=None, api_key="k", headers=None, environ={})
    return endpoint.target.style, endpoint


def _openai_call(call: Mapping[str, Any]) -> dict[str, Any]:
    arguments = call["arguments"]
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return {"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": text}}


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
