"""What a wire style looks like to someone who reads its requests and has to answer them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

JSON_TYPE: Final = "application/json"
SSE_TYPE: Final = "text/event-stream"


@dataclass(frozen=True, slots=True)
class Call:
    """A replayed call. `arguments` is whatever stands there: text or an object, by style."""

    id: Any
    arguments: Any


@dataclass(frozen=True, slots=True)
class Calls:
    """An assistant message; `calls` is empty if it only speaks."""

    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True)
class Results:
    """One block of results. `late`: something else stands before one of them in their message."""

    ids: tuple[Any, ...]
    errors: frozenset[Any] = frozenset()
    late: bool = False


@dataclass(frozen=True, slots=True)
class Other:
    """Anything else: a user or system message."""


Entry: TypeAlias = Calls | Results | Other


def _tools(body: Mapping[str, Any]) -> list[Any]:
    return body.get("tools") or []


def _asks_for_stream(target: str, body: Mapping[str, Any]) -> bool:
    return body.get("stream") is True


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """One style.

    Attributes:
        base_url: The endpoint that the client believes it talks to when a case names none.
        entries: The conversation in a request body, oldest first.
        blanks: The places of blank text and of messages without content.
        tool_name: The name in one of the `offered` tools; None if it has none.
        tool_description: Its description.
        arguments_are_text: Whether arguments are JSON text rather than objects.
        marks_errors: Whether a result can say that it is an error.
        refuses_blanks: Whether servers refuse every blank text, so that no request may hold one.
        end: The plain completion `end`, whole and as a stream.
        offered: The tools that a request body declares.
        streams: Whether a request, by its target and its body, asks for a stream.
    """

    base_url: str
    entries: Callable[[Mapping[str, Any]], list[Entry]]
    blanks: Callable[[Mapping[str, Any]], list[str]]
    tool_name: Callable[[Any], str | None]
    tool_description: Callable[[Any], str | None]
    arguments_are_text: bool
    marks_errors: bool
    refuses_blanks: bool
    end: Mapping[bool, bytes]
    offered: Callable[[Mapping[str, Any]], list[Any]] = _tools
    streams: Callable[[str, Mapping[str, Any]], bool] = _asks_for_stream


def _messages(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    messages = body.get("messages")
    return [m for m in messages if isinstance(m, dict)] if isinstance(messages, list) else []


def _blocks(content: Any) -> list[dict[str, Any]]:
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _is_blank(text: Any) -> bool:
    return isinstance(text, str) and not text.strip()


def _openai_entries(body: Mapping[str, Any]) -> list[Entry]:
    entries: list[Entry] = []
    for message in _messages(body):
        match message.get("role"):
            case "assistant":
                calls = _blocks(message.get("tool_calls"))
                entries.append(
                    Calls(tuple(Call(c.get("id"), (c.get("function") or {}).get("arguments")) for c in calls))
                )
            case "tool":
                last = entries[-1] if entries else None
                if isinstance(last, Results):
                    entries[-1] = Results((*last.ids, message.get("tool_call_id")))
                else:
                    entries.append(Results((message.get("tool_call_id"),)))
            case _:
                entries.append(Other())
    return entries


def _openai_blanks(body: Mapping[str, Any]) -> list[str]:
    places: list[str] = []
    for number, message in enumerate(_messages(body)):
        content = message.get("content")
        places.extend(
            f"messages[{number}]: a blank text part"
            for part in _blocks(content)
            if part.get("type") == "text" and _is_blank(part.get("text"))
        )
        # A call may stand without a text, and a result of nothing is still a result.
        if message.get("role") != "tool" and not message.get("tool_calls") and (not content or _is_blank(content)):
            places.append(f"messages[{number}]: no content")
    return places


def _openai_function(tool: Any) -> dict[str, Any]:
    function = tool.get("function") if isinstance(tool, dict) else None
    return function if isinstance(function, dict) else {}


def _anthropic_entries(body: Mapping[str, Any]) -> list[Entry]:
    entries: list[Entry] = []
    for message in _messages(body):
        blocks = _blocks(message.get("content"))
        results = [block for block in blocks if block.get("type") == "tool_result"]
        if message.get("role") == "assistant":
            calls = [block for block in blocks if block.get("type") == "tool_use"]
            entries.append(Calls(tuple(Call(block.get("id"), block.get("input")) for block in calls)))
        elif results:
            ids = tuple(block.get("tool_use_id") for block in results)
            errors = frozenset(block.get("tool_use_id") for block in results if block.get("is_error") is True)
            entries.append(Results(ids, errors, late=blocks[: len(results)] != results))
        else:
            entries.append(Other())
    return entries


def _anthropic_blanks(body: Mapping[str, Any]) -> list[str]:
    places: list[str] = []
    for number, message in enumerate(_messages(body)):
        content = message.get("content")
        if not content or _is_blank(content):
            places.append(f"messages[{number}]: no content")
        for block in _blocks(content):
            inner = [block, *_blocks(block.get("content"))] if block.get("type") == "tool_result" else [block]
            if any(part.get("type") == "text" and _is_blank(part.get("text")) for part in inner):
                places.append(f"messages[{number}]: a blank text block")
    return places


def _gemini_contents(body: Mapping[str, Any]) -> list[tuple[Any, list[dict[str, Any]]]]:
    return [(content.get("role"), _blocks(content.get("parts"))) for content in _blocks(body.get("contents"))]


def _gemini_entries(body: Mapping[str, Any]) -> list[Entry]:
    """Calls and results without an id are known by their name."""
    entries: list[Entry] = []
    for role, parts in _gemini_contents(body):
        results = [part["functionResponse"] for part in parts if "functionResponse" in part]
        if role == "model":
            calls = [part["functionCall"] for part in parts if "functionCall" in part]
            entries.append(Calls(tuple(Call(call.get("id") or call.get("name"), call.get("args")) for call in calls)))
        elif results:
            late = any("functionResponse" not in part for part in parts[: len(results)])
            entries.append(Results(tuple(result.get("id") or result.get("name") for result in results), late=late))
        else:
            entries.append(Other())
    return entries


def _gemini_blanks(body: Mapping[str, Any]) -> list[str]:
    places: list[str] = []
    for number, (_, parts) in enumerate(_gemini_contents(body)):
        if not parts:
            places.append(f"contents[{number}]: no parts")
        places.extend(
            f"contents[{number}]: a blank text part"
            for part in parts
            if _is_blank(part.get("text")) and "thoughtSignature" not in part
        )
    return places


def _gemini_tools(body: Mapping[str, Any]) -> list[Any]:
    return [declared for tool in _tools(body) for declared in _blocks(tool.get("functionDeclarations"))]


def _responses_entries(body: Mapping[str, Any]) -> list[Entry]:
    """What the model said in one go, its items one after the other, is one entry."""
    entries: list[Entry] = []
    for item in _blocks(body.get("input")):
        last = entries[-1] if entries else None
        kind = item.get("type", "message")
        if kind == "function_call_output":
            entries[len(entries) - isinstance(last, Results) :] = [
                Results((*(last.ids if isinstance(last, Results) else ()), item.get("call_id")))
            ]
        elif kind == "message" and item.get("role") != "assistant":
            entries.append(Other())
        elif not kind.endswith("_output"):
            calls = (Call(item.get("call_id"), item.get("arguments")),) if kind == "function_call" else ()
            entries[len(entries) - isinstance(last, Calls) :] = [
                Calls((*(last.calls if isinstance(last, Calls) else ()), *calls))
            ]
    return entries


def _responses_blanks(body: Mapping[str, Any]) -> list[str]:
    places: list[str] = []
    for number, item in enumerate(_blocks(body.get("input"))):
        content = item.get("output" if item.get("type") == "function_call_output" else "content")
        if item.get("type") in {"message", "function_call_output"} and (not content or _is_blank(content)):
            places.append(f"input[{number}]: no content")
        places.extend(f"input[{number}]: a blank text part" for part in _blocks(content) if _is_blank(part.get("text")))
    return places


def _of_tool(key: str) -> Callable[[Any], str | None]:
    return lambda tool: tool.get(key) if isinstance(tool, dict) else None


def _openai_chunk(delta: Mapping[str, Any], finish: str | None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "cmp-end", "object": "chat.completion.chunk", "model": "m", "choices": [choice]}


_OPENAI_END = {
    "id": "cmp-end",
    "object": "chat.completion",
    "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "end"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}
_OPENAI_END_EVENTS = (
    _openai_chunk({"role": "assistant", "content": ""}, None),
    _openai_chunk({"content": "end"}, None),
    _openai_chunk({}, "stop"),
)
_ANTHROPIC_END = {
    "id": "msg_end",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [{"type": "text", "text": "end"}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 1, "output_tokens": 1},
}
_ANTHROPIC_END_EVENTS = (
    {"type": "message_start", "message": {**_ANTHROPIC_END, "content": [], "stop_reason": None}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "end"}},
    {"type": "content_block_stop", "index": 0},
    {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn", "stop_sequence": None},
        "usage": {"output_tokens": 1},
    },
    {"type": "message_stop"},
)


_GEMINI_END = {
    "candidates": [{"content": {"role": "model", "parts": [{"text": "end"}]}, "finishReason": "STOP", "index": 0}],
    "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
    "modelVersion": "m",
}

_RESPONSES_TEXT = {"type": "output_text", "text": "end", "annotations": []}
_RESPONSES_MESSAGE = {
    "type": "message",
    "id": "msg_end",
    "role": "assistant",
    "status": "completed",
    "content": [_RESPONSES_TEXT],
}
_RESPONSES_END = {
    "id": "resp_end",
    "object": "response",
    "status": "completed",
    "model": "m",
    "output": [_RESPONSES_MESSAGE],
    "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2},
}
_RESPONSES_END_EVENTS = (
    {"type": "response.created", "response": {**_RESPONSES_END, "status": "in_progress", "output": [], "usage": None}},
    {
        "type": "response.output_item.added",
        "output_index": 0,
        "item": {**_RESPONSES_MESSAGE, "status": "in_progress", "content": []},
    },
    {
        "type": "response.output_text.delta",
        "item_id": "msg_end",
        "output_index": 0,
        "content_index": 0,
        "delta": "end",
    },
    {"type": "response.output_item.done", "output_index": 0, "item": _RESPONSES_MESSAGE},
    {"type": "response.completed", "response": _RESPONSES_END},
)


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _named_events(events: Sequence[Mapping[str, Any]]) -> bytes:
    return b"".join(b"event: %b\ndata: %b\n\n" % (event["type"].encode(), _json(event)) for event in events)


WIRES: Final[Mapping[str, Wire]] = {
    "openai": Wire(
        base_url="https://gw.example.test/v1",
        entries=_openai_entries,
        blanks=_openai_blanks,
        tool_name=lambda tool: _openai_function(tool).get("name") or _of_tool("name")(tool),
        tool_description=lambda tool: _openai_function(tool).get("description"),
        arguments_are_text=True,
        marks_errors=False,
        refuses_blanks=False,
        end={
            False: _json(_OPENAI_END),
            True: b"".join(b"data: " + _json(event) + b"\n\n" for event in _OPENAI_END_EVENTS) + b"data: [DONE]\n\n",
        },
    ),
    "anthropic": Wire(
        base_url="https://gw.example.test",
        entries=_anthropic_entries,
        blanks=_anthropic_blanks,
        tool_name=_of_tool("name"),
        tool_description=_of_tool("description"),
        arguments_are_text=False,
        marks_errors=True,
        refuses_blanks=True,
        end={
            False: _json(_ANTHROPIC_END),
            True: _named_events(_ANTHROPIC_END_EVENTS),
        },
    ),
    "responses": Wire(
        base_url="https://gw.example.test/v1",
        entries=_responses_entries,
        blanks=_responses_blanks,
        tool_name=_of_tool("name"),
        tool_description=_of_tool("description"),
        arguments_are_text=True,
        marks_errors=False,
        refuses_blanks=True,
        end={False: _json(_RESPONSES_END), True: _named_events(_RESPONSES_END_EVENTS)},
    ),
    "gemini": Wire(
        base_url="https://gw.example.test",
        entries=_gemini_entries,
        blanks=_gemini_blanks,
        tool_name=_of_tool("name"),
        tool_description=_of_tool("description"),
        arguments_are_text=False,
        marks_errors=False,
        refuses_blanks=True,
        end={False: _json(_GEMINI_END), True: b"data: " + _json(_GEMINI_END) + b"\n\n"},
        offered=_gemini_tools,
        streams=lambda target, body: "streamGenerateContent" in target,
    ),
}
