"""Messages as the GenAI conventions write them, for those who asked to see what was said."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from toolnexus.messages import text_of

if TYPE_CHECKING:
    from toolnexus.messages import Message


def messages(said: Iterable[Message]) -> str:
    """Messages as JSON. Of images, sounds and files it only says that they are there."""
    return as_json([{"role": message["role"], "parts": _parts(message)} for message in said])


def text(said: str) -> str:
    """A text alone, as JSON."""
    return as_json([_text(said)])


def as_json(value: object) -> str:
    """Any value as JSON; what has no JSON form as Python shows it."""
    return json.dumps(value, ensure_ascii=False, default=str)


def _text(said: str) -> dict[str, Any]:
    return {"type": "text", "content": said}


def _parts(message: Message) -> list[dict[str, Any]]:
    content = message.get("content")
    said = text_of(content)
    if message["role"] == "tool":
        return [{"type": "tool_call_response", "id": message["tool_call_id"], "response": said}]
    parts = [_text(said)] if said else []
    if content is not None and not isinstance(content, str):
        parts += [{"type": part["type"]} for part in content if part["type"] != "text"]
    if message["role"] == "assistant":
        for call in message.get("tool_calls", ()):
            function = call["function"]
            asked = {"id": call["id"], "name": function["name"], "arguments": function["arguments"]}
            parts.append({"type": "tool_call", **asked})
    return parts
