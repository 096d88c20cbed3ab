"""What strict servers demand of a request body, as assertions: each wire's `check_…` raises."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}").fullmatch
_GEMINI_TOOL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}").fullmatch
_GEMINI_MODEL = re.compile(r"gemini-[3-9]").match
_GEMINI_SCHEMA = {
    *("type", "format", "description", "nullable", "enum", "items", "properties", "required", "anyOf"),
    *("minItems", "maxItems", "minLength", "maxLength", "minimum", "maximum"),
}
_GEMINI_PARTS = {
    "text": {"text", "thought", "thoughtSignature"},
    "functionCall": {"functionCall", "thoughtSignature"},
    "functionResponse": {"functionResponse"},
    "inlineData": {"inlineData", "thoughtSignature"},
    "fileData": {"fileData"},
    **{
        kind: {kind, "thoughtSignature"}
        for kind in ("executableCode", "codeExecutionResult", "toolCall", "toolResponse")
    },
}
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
            assert part["type"] in {"text", "image", "document", "tool_result"}
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


def check_gemini(body: Mapping[str, Any], *, model: str) -> None:
    """generateContent, as the strictest of its servers take it.

    Args:
        model: The one that is asked. From Gemini 3 on, the first call of a step has to be signed.
    """
    _check_strict_json(body)
    assert body.keys() <= {"contents", "systemInstruction", "tools", "toolConfig", "generationConfig"}
    for tool in body.get("tools", ()):
        names = [declared["name"] for declared in tool["functionDeclarations"]]
        assert names
        assert len(set(names)) == len(names)
        assert all(map(_GEMINI_TOOL_NAME, names))
        for declared in tool["functionDeclarations"]:
            assert set(declared) <= {"name", "description", "parameters"}
            if "parameters" in declared:
                assert declared["parameters"]["type"] == "object"
                assert declared["parameters"]["properties"], "without properties there are no parameters"
                check_gemini_schema(declared["parameters"])
    if "systemInstruction" in body:
        assert all(part["text"].strip() for part in body["systemInstruction"]["parts"])
    waiting: list[Mapping[str, Any]] = []
    for position, content in enumerate(body["contents"]):
        assert set(content) == {"role", "parts"}
        assert content["role"] == ("model" if position % 2 else "user"), "roles take turns, the user first"
        parts = content["parts"]
        assert parts
        for part in parts:
            kind = next(kind for kind in _GEMINI_PARTS if kind in part)
            assert part.keys() <= _GEMINI_PARTS[kind]
            assert kind != "text" or part["text"].strip() or "thoughtSignature" in part
        if content["role"] == "user":
            _check_gemini_responses(parts, waiting)
            waiting = []
            continue
        assert not all(part.get("thought") for part in parts)
        waiting = [part["functionCall"] for part in parts if "functionCall" in part]
        assert all(isinstance(call["args"], dict) and _GEMINI_TOOL_NAME(call["name"]) for call in waiting)
        if waiting and _GEMINI_MODEL(model):
            assert any("thoughtSignature" in part for part in parts if "functionCall" in part)
    assert not waiting, f"calls without a result: {waiting}"


def _check_gemini_responses(parts: Sequence[Mapping[str, Any]], calls: Sequence[Mapping[str, Any]]) -> None:
    responses = [part["functionResponse"] for part in parts if "functionResponse" in part]
    assert len(responses) == len(calls), "each call has one response, right after it"
    assert all("functionResponse" in part for part in parts[: len(responses)]), "responses come first"
    for response, call in zip(responses, calls, strict=True):
        assert response["name"] == call["name"]
        assert response.get("id") == call.get("id")
        assert isinstance(response["response"], dict)
        assert response.keys() <= {"id", "name", "response"}


def check_gemini_schema(schema: Mapping[str, Any]) -> None:
    """A schema in the words that every server of this wire knows."""
    assert set(schema) <= _GEMINI_SCHEMA
    if "anyOf" in schema:
        assert set(schema) == {"anyOf"}, "it stands alone"
        assert len(schema["anyOf"]) > 1
        for variant in schema["anyOf"]:
            check_gemini_schema(variant)
        return
    assert schema["type"] in {"string", "number", "integer", "boolean", "array", "object"}
    assert ("items" in schema) == (schema["type"] == "array")
    if "enum" in schema:
        assert schema["type"] == "string"
        assert schema["enum"]
        assert all(isinstance(value, str) and value for value in schema["enum"])
    if schema["type"] == "string":
        assert schema.get("format") in (None, "date-time")
    properties = schema.get("properties", {})
    assert schema["type"] == "object" or not {"properties", "required"} & schema.keys()
    assert "required" not in schema or (schema["required"] and set(schema["required"]) <= set(properties))
    for inner in [*properties.values(), *([schema["items"]] if "items" in schema else [])]:
        check_gemini_schema(inner)


def check_responses(body: Mapping[str, Any]) -> None:
    """Responses, as the strictest of its servers take them, and with everything in each request."""
    _check_strict_json(body)
    _check_tools(body, [tool["name"] for tool in body.get("tools", ()) if "name" in tool])
    for tool in body.get("tools", ()):
        if tool["type"] == "function":
            assert set(tool) <= {"type", "name", "description", "parameters", "strict"}
            assert tool["strict"] is False, "left out, it rewrites the schema"
            assert tool["parameters"]["type"] == "object"
    assert not {"messages", "system", "max_tokens", "max_completion_tokens", "response_format"} & body.keys()
    assert "instructions" not in body or body["instructions"].strip()
    items: Sequence[Mapping[str, Any]] = body["input"]
    item_ids = [item["id"] for item in items if "id" in item]
    assert len(set(item_ids)) == len(item_ids), "an item stands there twice"
    call_ids = [item["call_id"] for item in items if item["type"] == "function_call"]
    assert len(set(call_ids)) == len(call_ids)
    waiting: list[str] = []
    for position, item in enumerate(items):
        assert None not in item.values(), "some servers give null and refuse it"
        kind = item["type"]
        if kind == "function_call_output":
            assert set(item) == {"type", "call_id", "output"}
            assert item["call_id"] == waiting.pop(0), "results are in call order"
            _check_responses_content(item["output"], _INPUT_PARTS)
            continue
        if kind == "function_call":
            assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", item["call_id"])
            assert _TOOL_NAME(item["name"])
            assert isinstance(_strict(item["arguments"]), dict)
            assert item.get("id", "fc_").startswith("fc_")
            waiting.append(item["call_id"])
        elif kind == "message" and item["role"] != "assistant":
            assert not waiting, f"calls without a result: {waiting}"
            assert set(item) == {"type", "role", "content"}
            assert item["role"] in {"user", "system", "developer"}
            _check_responses_content(item["content"], _INPUT_PARTS)
        elif kind == "message":
            _check_responses_content(item["content"], {"output_text", "refusal"})
            assert isinstance(item["content"], str) or {"id", "status"} <= item.keys(), "parts are an output message"
        elif kind == "reasoning":
            following = items[position + 1] if position + 1 < len(items) else {"type": "nothing"}
            assert following["type"] != "nothing", "reasoning without what it led to"
            assert not following["type"].endswith("_output")
            assert following.get("role", "assistant") == "assistant"
            assert "summary" in item
    assert not waiting, f"calls without a result: {waiting}"


_INPUT_PARTS = frozenset({"input_text", "input_image", "input_file"})


def _check_responses_content(content: Any, kinds: Collection[str]) -> None:
    if isinstance(content, str):
        assert content.strip()
        return
    assert isinstance(content, list)
    assert content
    for part in content:
        assert part["type"] in kinds
        assert part["type"] != "input_text" or part["text"].strip()
        assert part["type"] != "input_image" or {"image_url", "detail"} <= part.keys()


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
