"""The scenario, and what the mock model answers, encoded once.

A prompt asks for two things. The model's first reply calls two tools at once; when both results are there, its second
reply is the answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from collections.abc import Mapping

MODEL = "mock-1"
API_KEY = "not-a-secret"
PROMPT = "What is the weather in Munich, and what is 17 + 25?"
ANSWER = "It is sunny in Munich, 21 degrees, and 17 + 25 is 42."

DELAY = 0.02
"""Seconds that the slow model takes for an answer."""

DELTAS = 1000
"""Text deltas in one burst."""

_WORD = "lorem "
BURST_LENGTH = DELTAS * len(_WORD)

PLAIN, SLOW, BURST = "/v1", "/slow/v1", "/burst/v1"
"""Paths of the base URLs: at once, after `DELAY`, and with a long streamed text and no calls."""

RESULTS = (b"sunny", b"42")
"""What the second request has to hold: the tools really ran."""

_DECLARED: tuple[tuple[str, str, Mapping[str, str]], ...] = (
    ("weather", "The weather of a city.", {"city": "string"}),
    ("add", "The sum of two numbers.", {"a": "integer", "b": "integer"}),
)

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {
                "type": "object",
                "properties": {key: {"type": kind} for key, kind in arguments.items()},
                "required": list(arguments),
            },
        },
    }
    for name, description, arguments in _DECLARED
]

CALLS: list[dict[str, Any]] = [
    {
        "id": f"call_{number}",
        "type": "function",
        "function": {"name": name, "arguments": orjson.dumps(arguments).decode()},
    }
    for number, (name, arguments) in enumerate([("weather", {"city": "Munich"}), ("add", {"a": 17, "b": 25})])
]

_USAGE = {"prompt_tokens": 120, "completion_tokens": 24, "total_tokens": 144}


def whole_calls() -> bytes:
    """The first reply."""
    return _whole({"role": "assistant", "content": None, "tool_calls": CALLS}, "tool_calls")


def whole_answer() -> bytes:
    """The second reply."""
    return _whole({"role": "assistant", "content": ANSWER}, "stop")


def streamed_calls() -> list[bytes]:
    """The first reply as events, each call's arguments in two pieces."""
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": None}]
    for index, call in enumerate(CALLS):
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        opening = {"index": index, "id": call["id"], "type": "function", "function": {"name": name, "arguments": ""}}
        deltas.append({"tool_calls": [opening]})
        for piece in (arguments[:6], arguments[6:]):
            deltas.append({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    return _streamed(deltas, "tool_calls")


def streamed_answer() -> list[bytes]:
    """The second reply as events, a word each."""
    return _streamed([{"content": word + " "} for word in ANSWER.split(" ")], "stop")


def burst() -> list[bytes]:
    """`DELTAS` text deltas with together `BURST_LENGTH` characters."""
    return _streamed([{"content": _WORD} for _ in range(DELTAS)], "stop")


def _whole(message: Mapping[str, Any], finish_reason: str) -> bytes:
    return orjson.dumps(
        {
            "id": "chatcmpl-0123456789",
            "object": "chat.completion",
            "created": 1760000000,
            "model": MODEL,
            "choices": [{"index": 0, "message": message, "finish_reason": finish_reason}],
            "usage": _USAGE,
        }
    )


def _streamed(deltas: list[dict[str, Any]], finish_reason: str) -> list[bytes]:
    chunks = [_chunk([{"index": 0, "delta": delta, "finish_reason": None}]) for delta in deltas]
    chunks.append(_chunk([{"index": 0, "delta": {}, "finish_reason": finish_reason}]))
    chunks.append(_chunk([]) | {"usage": _USAGE})
    return [b"data: " + orjson.dumps(chunk) + b"\n\n" for chunk in chunks] + [b"data: [DONE]\n\n"]


def _chunk(choices: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": "chatcmpl-0123456789",
        "object": "chat.completion.chunk",
        "created": 1760000000,
        "model": MODEL,
        "choices": choices,
    }
