"""Answers of which one value is something else: a reply that every wire takes back, or an error of ours."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from toolnexus.dialects import DIALECTS, Reading, Reply, Request, Target, dialect, replies
from toolnexus.errors import ToolnexusError
from toolnexus.messages import normalise, repair
from toolnexus.providers import UNKNOWN

ODD = (None, True, 0, -1, 1.7e308, 10**400, "", "odd", [], [[]], ["odd"], {}, {"odd": 1}, [{"odd": []}])

USAGE = {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}
RESPONSE = {
    "id": "resp_1",
    "object": "response",
    "status": "completed",
    "model": "m",
    "error": None,
    "incomplete_details": None,
    "output": [
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "Hm."}],
            "status": "completed",
        },
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}},
        {"type": "custom_tool_call", "id": "ct_1", "call_id": "c0", "name": "note", "input": "i"},
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "Hi.", "annotations": [{"type": "url_citation", "url": "u"}]}],
        },
        {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{}", "status": "completed"},
    ],
    "usage": {**USAGE, "input_tokens_details": {"cached_tokens": 1}, "output_tokens_details": {"reasoning_tokens": 1}},
}
CUT_RESPONSE = {**RESPONSE, "status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
CANDIDATE = {
    "content": {
        "role": "model",
        "parts": [
            {"text": "Hm.", "thought": True},
            {"text": "Hi.", "thoughtSignature": "c2ln"},
            {"functionCall": {"id": "1", "name": "f", "args": {"a": 1}}, "thoughtSignature": "c2ln"},
            {"functionCall": {"name": "g", "args": {}}},
            {"inlineData": {"mimeType": "image/png", "data": "AA=="}},
        ],
    },
    "index": 0,
    "finishReason": "STOP",
    "groundingMetadata": {"queries": ["q"]},
}
CHUNK = {
    "candidates": [CANDIDATE],
    "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 2, "totalTokenCount": 3},
    "promptFeedback": {"safetyRatings": []},
    "modelVersion": "m",
    "responseId": "r",
}
CUT_CHUNK = {**CHUNK, "candidates": [{**CANDIDATE, "finishReason": "MAX_TOKENS", "finishMessage": "full"}]}
MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [
        {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
        {"type": "server_tool_use", "id": "st_1", "name": "web_search", "input": {"query": "q"}},
        {"type": "web_search_tool_result", "tool_use_id": "st_1", "content": [{"type": "web_search_result"}]},
        {"type": "text", "text": "Hi.", "citations": [{"type": "char_location"}]},
        {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": 1}},
    ],
    "stop_reason": "tool_use",
    "usage": USAGE,
}
CHOICE = {
    "index": 0,
    "message": {
        "role": "assistant",
        "content": "Hi.",
        "reasoning_content": "Hm.",
        "reasoning_details": [{"type": "reasoning.text", "text": "Hm.", "index": 0}],
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
    },
    "finish_reason": "tool_calls",
}
COMPLETION = {
    "id": "cmp-1",
    "object": "chat.completion",
    "model": "m",
    "choices": [CHOICE],
    "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
}

ANSWERS = [
    ("responses", RESPONSE),
    ("responses", CUT_RESPONSE),
    ("gemini", CHUNK),
    ("gemini", CUT_CHUNK),
    ("anthropic", MESSAGE),
    ("openai", COMPLETION),
]


def target(style: str) -> Target:
    return Target(style=style, host="https://gw.example.test", provider=UNKNOWN)


def spoiled(body: Any) -> Iterator[Any]:
    """`body` with each of its values replaced by each odd one, or left out."""

    def places(value: Any, way: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
        inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, item in inner:
            yield (*way, key)
            yield from places(item, (*way, key))

    for *way, last in places(body, ()):
        for odd in (*ODD, KeyError):
            changed = place = copy.deepcopy(body)
            for step in way:
                place = place[step]
            if odd is KeyError:
                del place[last]
            else:
                place[last] = odd
            yield changed


@pytest.mark.parametrize(("style", "body"), ANSWERS, ids=lambda value: value if isinstance(value, str) else "")
def test_an_odd_value_makes_a_reply_that_can_be_sent_back_or_an_error(style: str, body: Any) -> None:
    made = 0
    for changed in spoiled(body):
        try:
            reply = dialect(style).decode(changed, Reading(target=target(style), model="m"))
        except ToolnexusError:
            continue
        made += 1
        assert not (reply.calls and reply.finish_reason in replies.CUT)
        assert all(call.id and isinstance(call.arguments, str) for call in reply.calls)
        transcript = following(reply)
        for other in DIALECTS:
            for params in ({}, {"store": False}):
                request = Request(model="m", messages=transcript, params=params)
                json.dumps(dialect(other).encoder(target(other)).encode(request), allow_nan=False)
    assert made > 100


def following(reply: Reply) -> Any:
    """A conversation with the reply in it, as it was kept."""
    results = [{"role": "tool", "tool_call_id": call.id, "content": "ok"} for call in reply.calls]
    said = [{"role": "user", "content": "Hi"}, reply.message, *results, {"role": "user", "content": "And?"}]
    return repair(normalise(json.loads(json.dumps(said))))[0]
