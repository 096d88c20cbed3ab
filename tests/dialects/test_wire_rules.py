"""For any transcript, however it was broken: what is sent after `repair` is what strict servers take."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import ANTHROPIC, DEEPSEEK, GEMINI, OPENAI, RESPONSES, broken_transcripts, transcripts
from wire_rules import check_anthropic, check_gemini, check_openai, check_responses

from toolnexus import _json
from toolnexus.dialects import Dialect, Request, Target, dialect
from toolnexus.messages import normalise, repair
from toolnexus.providers import PROVIDERS, UNKNOWN, Provider
from toolnexus.tools import Tool


def target(style: str, host: str, provider: Provider = UNKNOWN) -> Target:
    return Target(style=style, host=host, provider=provider)


TARGETS = {
    "openai": target("openai", OPENAI["host"], PROVIDERS["openai"]),
    "deepseek": target("openai", DEEPSEEK["host"], PROVIDERS["deepseek"]),
    "groq": target("openai", "https://api.groq.com", PROVIDERS["groq"]),
    "mistral": target("openai", "https://api.mistral.ai", PROVIDERS["mistral"]),
    "anthropic": target("anthropic", ANTHROPIC["host"], PROVIDERS["anthropic"]),
    "a local server": target("anthropic", "http://localhost:8080"),
    "gemini": target("gemini", GEMINI["host"], PROVIDERS["gemini"]),
    "responses": target("responses", RESPONSES["host"], PROVIDERS["openai"]),
    "a local responses server": target("responses", "http://localhost:1234"),
    "a relay": target("gemini", "https://gw.example.test"),
}
MODEL = "gemini-3-pro"  # the one family of models whose names matter on the wire
TOOLS = tuple(Tool(name=name, execute=lambda arguments, _: arguments) for name in ("add", "files.read", "søk"))


def body_for(to: Target, transcript: list[Any], tools: tuple[Tool, ...] = TOOLS) -> dict[str, Any]:
    request = Request(model=MODEL, messages=transcript, system="Be brief.", tools=tools)
    return dialect(to.style).encoder(to).encode(request)


def check(to: Target, body: dict[str, Any]) -> None:
    if to.style == "anthropic":
        check_anthropic(body)
    elif to.style == "responses":
        check_responses(body)
    elif to.style == "gemini":
        check_gemini(body, model=MODEL)
    else:
        check_openai(body, call_ids=to.provider.call_id_form or r"(?s).+")


@pytest.mark.parametrize("name", TARGETS)
@given(transcript=transcripts() | broken_transcripts())
def test_a_repaired_transcript_is_what_strict_servers_take(name: str, transcript: list[Any]) -> None:
    repaired, _ = repair(normalise(transcript))
    before = copy.deepcopy(repaired)

    body = body_for(TARGETS[name], repaired)

    check(TARGETS[name], body)
    assert repaired == before, "the stored transcript is never changed"


@pytest.mark.parametrize("name", TARGETS)
@given(transcript=transcripts(), data=st.data())
def test_a_growing_transcript_is_encoded_as_a_whole_one(name: str, transcript: list[Any], data: st.DataObject) -> None:
    to = TARGETS[name]
    repaired, _ = repair(normalise(transcript))
    encoder = dialect(to.style).encoder(to)
    growing: list[Any] = []
    bodies: list[tuple[dict[str, Any], bytes]] = []
    for position, message in enumerate(repaired):
        growing.append(message)
        ends = position + 1 == len(repaired) or repaired[position + 1]["role"] != "tool"
        if ends and (not message.get("tool_calls") or message["role"] == "tool") and data.draw(st.booleans()):
            body = encoder.encode(Request(model=MODEL, messages=growing, tools=TOOLS, system="Be brief."))
            bodies.append((body, _json.dumps(body)))

    body = encoder.encode(Request(model=MODEL, messages=growing, tools=TOOLS, system="Be brief."))

    assert body == body_for(to, repaired)
    assert all(_json.dumps(earlier) == sent for earlier, sent in bodies), "a body that was given out does not change"


@given(transcript=transcripts())
def test_another_list_is_another_transcript(transcript: list[Any]) -> None:
    repaired, _ = repair(normalise(transcript))
    for to in TARGETS.values():
        encoder = dialect(to.style).encoder(to)
        encoder.encode(Request(model="m", messages=[{"role": "user", "content": "Something else"}], tools=TOOLS))
        encoder.encode(Request(model=MODEL, messages=repaired, tools=TOOLS, system="Be brief."))
        body = encoder.encode(Request(model=MODEL, messages=list(repaired), tools=TOOLS, system="Be brief."))
        assert body == body_for(to, repaired)


IMAGE = "data:image/png;base64,iVBORw0KGgo="

OPENAI_REPLY = {
    "model": "gpt-5-mini",
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "message": {
                "role": "assistant",
                "content": "Looking.",
                "reasoning_content": "Two look-ups.\n",
                "reasoning_details": [{"type": "reasoning.encrypted", "index": 0, "data": "b3BhcXVl"}],
                "tool_calls": [
                    {
                        "id": "call_1",
                        "type": "function",
                        "function": {"name": "snap", "arguments": '{"cam": 2}'},
                        "extra_content": {"google": {"thought_signature": "c2ln"}},
                    },
                    {"id": "call_2", "type": "function", "function": {"name": "times", "arguments": "{}"}},
                ],
            },
        }
    ],
}
ANTHROPIC_REPLY = {
    "type": "message",
    "model": "claude-sonnet-5",
    "stop_reason": "tool_use",
    "content": [
        {"type": "thinking", "thinking": "Once more. ", "signature": "c2lnbmVk"},
        {"type": "text", "text": "Again."},
        {"type": "tool_use", "id": "toolu_1", "name": "snap", "input": {"cam": 1}},
        {"type": "tool_use", "id": "toolu_2", "name": "times", "input": {}},
    ],
}


GEMINI_REPLY = {
    "modelVersion": MODEL,
    "candidates": [
        {
            "index": 0,
            "finishReason": "STOP",
            "content": {
                "role": "model",
                "parts": [
                    {"text": "Two more look-ups. ", "thought": True},
                    {"text": "A third time."},
                    {"functionCall": {"id": "fc-1", "name": "snap", "args": {"cam": 3}}, "thoughtSignature": "Z2Vt"},
                    {"functionCall": {"id": "fc-2", "name": "times", "args": {}}},
                ],
            },
        }
    ],
}


RESPONSES_REPLY = {
    "model": MODEL,
    "status": "completed",
    "output": [
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Two at once. "}]},
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "phase": "commentary",
            "content": [{"type": "output_text", "text": "At once.", "annotations": []}],
        },
        {"type": "function_call", "id": "fc_1", "call_id": "call_r1", "name": "snap", "arguments": '{"cam": 4}'},
        {"type": "function_call", "id": "fc_2", "call_id": "call_r2", "name": "times", "arguments": "{}"},
    ],
}


def continued(by: Dialect, to: Target, answer: dict[str, Any], transcript: list[Any]) -> None:
    """Ask, let the model call its two tools, one of which gives an image, and answer in words."""
    transcript.append({"role": "user", "content": [{"type": "text", "text": "Like this?"}, image()]})
    reading = by.encoder(to).reading(Request(model=MODEL, messages=transcript))
    reply = by.decode(answer, reading)
    transcript.append(reply.message)
    picture, words = reply.calls
    transcript.append({"role": "tool", "tool_call_id": picture.id, "content": [image()]})
    transcript.append({"role": "tool", "tool_call_id": words.id, "content": "09:40"})
    transcript.append({"role": "assistant", "content": "It is foggy."})


def image() -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": IMAGE}}


@pytest.mark.parametrize(
    "order", list(itertools.permutations(["openai", "anthropic", "gemini", "responses"])), ids="-".join
)
def test_a_conversation_goes_on_with_other_providers_and_back(order: tuple[str, ...]) -> None:
    answers: dict[str, Any] = {
        "openai": OPENAI_REPLY,
        "anthropic": ANTHROPIC_REPLY,
        "gemini": GEMINI_REPLY,
        "responses": RESPONSES_REPLY,
    }
    transcript: list[Any] = []
    for style in (*order, order[0]):
        continued(dialect(style), TARGETS[style], answers[style], transcript)
        for to in TARGETS.values():
            check(to, body_for(to, transcript))
    assert repair(normalise(transcript)) == (transcript, repair([])[1]), "it is stored and loaded unchanged"

    back = body_for(TARGETS["openai"], transcript)["messages"]
    ours = next(message for message in back if message.get("reasoning_content"))
    sent = OPENAI_REPLY["choices"][0]["message"]
    assert _json.dumps(ours) == _json.dumps(
        {"role": "assistant", "content": "Looking."} | sent | {"tool_calls": ours["tool_calls"]}
    )
    assert ours["tool_calls"][0]["extra_content"] == {"google": {"thought_signature": "c2ln"}}
    assert (
        "signature"
        not in _json.dumps([m for m in back if m.get("tool_calls") and m["tool_calls"][0]["id"] == "toolu_1"]).decode()
    )

    back = body_for(TARGETS["anthropic"], transcript)["messages"]
    theirs = next(message["content"] for message in back if message["content"][0]["type"] == "thinking")
    assert _json.dumps(theirs) == _json.dumps(ANTHROPIC_REPLY["content"])
    assert "Two look-ups" not in _json.dumps(back).decode()

    back = body_for(TARGETS["gemini"], transcript)["contents"]
    theirs = [content["parts"] for content in back if "thoughtSignature" in _json.dumps(content).decode()]
    assert _json.dumps(GEMINI_REPLY["candidates"][0]["content"]["parts"]) in map(_json.dumps, theirs)
    assert sum("skip_thought_signature_validator" in str(parts) for parts in theirs) == len(theirs) - (
        2 if order[0] == "gemini" else 1
    ), "calls of others stand without a signature of their own"
    assert "Once more" not in str(back)

    back = body_for(TARGETS["responses"], transcript)["input"]
    start = next(place for place, item in enumerate(back) if item["type"] == "reasoning")
    assert _json.dumps(back[start : start + 4]) == _json.dumps(RESPONSES_REPLY["output"])
    assert "Once more" not in str(back)


def test_reasoning_is_not_sent_where_it_is_refused() -> None:
    origin = {"style": "openai", "model": "m", "host": "https://api.groq.com"}
    message = {"role": "assistant", "content": "Hi", "origin": origin, "native": {"fields": {"reasoning": "Hm."}}}
    assert body_for(TARGETS["groq"], [{"role": "user", "content": "Hi"}, message])["messages"][-1] == {
        "role": "assistant",
        "content": "Hi",
    }
