"""What strict servers demand of a request body, as assertions: `check_openai` and `check_anthropic` raise."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}").fullmatch
_ANTHROPIC_CALL_ID = re.compile(r"[a-zA-Z0-9_-]+").fullmatch
_THINKING = ("thinking", "redacted_thinking")


def check_openai(body: Mapping[str, Any], *, call_ids: str = r"(?s).+") -> None:
    """Chat completions, as the strictest of its servers take them.

    Args:
        call_ids: Regular expression of the call ids that the server accepts.
    """
    _check_strict_json(body)
    _check_tools(body, [tool["function"]["name"] for tool in body.get("tools", ())])
    messages: Sequence[Mapping[str, Any]] = body["messages"]
    waiting: list[str] = []
    for position, message in enumerate(messages):
        role, content = message["role"], message["content"]
        if role == "tool":
            assert set(message) == {"role", "tool_call_id", "content"}
            assert waiting, f"a result without a call before it: {message}"
            assert message["tool_call_id"] == waiting.pop(0)
            assert isinstance(content, str), "results are text"
            assert content.strip()
            continue
        assert not waiting, f"calls without a result: {waiting}"
        if role == "assistant":
            waiting = _check_openai_assistant(message, call_ids)
        else:
            assert set(message) == {"role", "content"}
            assert role == "user" or (role == "system" and (position == 0 or messages[0]["role"] != "developer"))
            _check_openai_content(content)
    assert not waiting, f"calls without a result: {waiting}"


def _check_openai_assistant(message: Mapping[str, Any], call_ids: str) -> list[str]:
    content = message["content"]
    if "tool_calls" not in message:
        _check_openai_content(content)
        return []
    assert content is None or (isinstance(content, str) and content.strip()) or isinstance(content, list)
    calls = message["tool_calls"]
    assert calls, "an empty list of calls"
    for call in calls:
        assert call["type"] == "function"
        assert set(call["function"]) == {"name", "arguments"}
        assert _TOOL_NAME(call["function"]["name"])
        assert re.fullmatch(call_ids, call["id"])
        assert isinstance(_strict(call["function"]["arguments"]), dict)
    ids = [call["id"] for call in calls]
    assert len(set(ids)) == len(ids)
    return ids


def _check_openai_content(content: Any) -> None:
    if isinstance(content, str):
        assert content.strip()
        return
    assert isinstance(content, list)
    assert content
    for part in content:
        kind = part["type"]
        assert set(part) == {"type", kind}
        assert kind != "text" or part["text"].strip()


def check_anthropic(body: Mapping[str, Any]) -> None:
    """Messages, as the API takes them."""
    _check_strict_json(body)
    _check_tools(body, [tool["name"] for tool in body.get("tools", ())])
    for tool in body.get("tools", ()):
        schema = tool.get("input_schema")
        if schema is not None:
            assert schema["type"] == "object"
            assert not {"anyOf", "oneOf", "allOf", "$ref"} & schema.keys()
    assert isinstance(body["max_tokens"], int)
    assert body["max_tokens"] > 0
    assert "system" not in body or body["system"].strip()
    messages: Sequence[Mapping[str, Any]] = body["messages"]
    used: set[str] = set()
    waiting: list[str] = []
    for position, message in enumerate(messages):
        assert set(message) == {"role", "content"}
        assert message["role"] == ("assistant" if position % 2 else "user"), "roles take turns, the user first"
        blocks = message["content"]
        assert isinstance(blocks, list)
        assert blocks
        if message["role"] == "user":
            _check_user_blocks(blocks, waiting)
            waiting = []
            continue
        waiting = [block["id"] for block in blocks if block["type"] == "tool_use"]
        assert used.isdisjoint(waiting)
        assert len(set(waiting)) == len(waiting)
        used.update(waiting)
        last = position == len(messages) - 1
        _check_assistant_blocks(blocks, last=last)
    assert not waiting, f"calls without a result: {waiting}"


def _check_user_blocks(blocks: Sequence[Mapping[str, Any]], waiting: Sequence[str]) -> None:
    results = [block for block in blocks if block["type"] == "tool_result"]
    assert list(blocks[: len(results)]) == results, "results come first"
    assert [block["tool_use_id"] for block in results] == list(waiting), "results are in call order"
    for block in blocks:
        inner = block.get("content", ()) if block["type"] == "tool_result" else [block]
        if isinstance(inner, str):
            assert inner.strip()
            continue
        for part in inner:
            assert part["type"] in {"text", "image", "tool_result"}
            assert part["type"] != "text" or part["text"].strip()
            assert not block.get("is_error") or part["type"] == "text", "an error is text"
        assert not block.get("is_error") or inner, "an error says something"


def _check_assistant_blocks(blocks: Sequence[Mapping[str, Any]], *, last: bool) -> None:
    assert blocks[-1]["type"] not in _THINKING, "a message does not end in thinking"
    for block in blocks:
        if block["type"] == "text":
            assert block["text"].strip()
        elif block["type"] == "tool_use":
            assert _TOOL_NAME(block["name"])
            assert _ANTHROPIC_CALL_ID(block["id"])
            assert isinstance(block["input"], dict)
    has_native = any(block["type"] not in {"text", "tool_use"} for block in blocks)
    if last and blocks[-1]["type"] == "text" and not has_native:
        assert blocks[-1]["text"] == blocks[-1]["text"].rstrip()


def _check_tools(body: Mapping[str, Any], names: Sequence[str]) -> None:
    assert ("tools" in body) == bool(names)
    assert len(set(names)) == len(names)
    assert all(_TOOL_NAME(name) for name in names)
    assert names or not {"tool_choice", "parallel_tool_calls"} & body.keys()


def _check_strict_json(body: Mapping[str, Any]) -> None:
    json.dumps(body, allow_nan=False, ensure_ascii=False).encode()


def _strict(text: str) -> Any:
    def refuse(constant: str) -> Any:
        raise ValueError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)
