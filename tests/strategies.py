"""Transcripts for property tests: whole ones, as the library leaves them, and broken ones, as accidents do."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

IMAGE = "data:image/png;base64,iVBORw0KGgo="
ANTHROPIC = {"style": "anthropic", "model": "claude-sonnet-5", "host": "https://api.anthropic.com"}
OPENAI = {"style": "openai", "model": "gpt-5-mini", "host": "https://api.openai.com"}
GEMINI = {"style": "gemini", "model": "gemini-3-pro", "host": "https://generativelanguage.googleapis.com"}
RESPONSES = {
    "style": "responses",
    "model": GEMINI["model"],
    "host": "https://api.openai.com",
}  # the model that is asked
DEEPSEEK = {"style": "openai", "model": "deepseek-reasoner", "host": "https://api.deepseek.com"}

texts = st.one_of(
    st.sampled_from(["Hello", "", " ", "Grüße aus 東京 🎏", 'a "quoted" \\ud83d', "\x00"]), st.text(max_size=12)
)
scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), texts)
json_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
"""Any value that strict JSON can hold."""

arguments = st.dictionaries(st.sampled_from(["a", "city", "größe", ""]), scalars, max_size=2)
names = st.sampled_from(["add", "weather", "files.read", "søk"])
ids = st.sampled_from(["call_0", "call_1", "call_2", "toolu_01AbCdEfGh", "é"])
"""Few, so that the calls of different turns often share one."""

text_parts = st.builds(lambda text: {"type": "text", "text": text}, texts)
image_parts = st.sampled_from(
    [
        {"type": "image_url", "image_url": {"url": IMAGE}},
        {"type": "image_url", "image_url": {"url": "https://example.org/pier.png", "detail": "low"}},
    ]
)
media_parts = st.sampled_from(
    [
        {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0="}},
        {"type": "file", "file": {"filename": "a.csv", "file_data": "data:text/csv;base64,YSxi"}},
        {"type": "file", "file": {"file_data": "data:application/zip;base64,UEsDBA=="}},
        {"type": "file", "file": {"file_url": "https://example.org/a.pdf"}},
        {"type": "file", "file": {"file_id": "file_1"}},
    ]
)
contents = st.one_of(texts, st.lists(text_parts | image_parts | media_parts, min_size=1, max_size=3))


@st.composite
def replies(draw: st.DrawFn, *, calls: bool) -> dict[str, Any]:
    """An assistant message, with its `native` part where it has an `origin` and showed its reasoning."""
    call_ids = draw(st.lists(ids, min_size=1, max_size=3, unique=True)) if calls else []
    given = [(call_id, draw(names), draw(arguments)) for call_id in call_ids]
    text = draw(texts)
    message: dict[str, Any] = {"role": "assistant"}
    if text or not given or draw(st.booleans()):
        message["content"] = text
    if given:
        message["tool_calls"] = [
            {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(values)}}
            for call_id, name, values in given
        ]
    origin = draw(st.sampled_from([None, ANTHROPIC, OPENAI, DEEPSEEK, GEMINI, RESPONSES]))
    if origin is not None:
        message["origin"] = dict(origin)
        if draw(st.booleans()):
            message["native"] = _native(draw, origin["style"], text, given)
    return message


def _native(draw: st.DrawFn, style: str, text: str, calls: list[tuple[str, str, dict[str, Any]]]) -> dict[str, Any]:
    match style:
        case "responses":
            return _responses_native(draw, text, calls)
        case "anthropic":
            return _anthropic_native(text, calls)
        case "gemini":
            return _gemini_native(text, calls)
        case _:
            return _openai_native(calls)


def _anthropic_native(text: str, calls: list[tuple[str, str, dict[str, Any]]]) -> dict[str, Any]:
    thinking = {"type": "thinking", "thinking": "Let me see.", "signature": "c2ln"}
    said = [{"type": "text", "text": text}] if text.strip() else []
    used = [{"type": "tool_use", "id": call_id, "name": name, "input": values} for call_id, name, values in calls]
    return {"content": [thinking, *said, *used]}


def _gemini_native(text: str, calls: list[tuple[str, str, dict[str, Any]]]) -> dict[str, Any]:
    said = [{"text": text, "thoughtSignature": "c2ln"}] if text else []
    used = [{"functionCall": {"id": call_id, "name": name, "args": values}} for call_id, name, values in calls]
    return {"parts": [{"text": "Let me see.", "thought": True}, *said, *used, {"text": "", "thoughtSignature": "ZW5k"}]}


def _responses_native(draw: st.DrawFn, text: str, calls: list[tuple[str, str, dict[str, Any]]]) -> dict[str, Any]:
    number = draw(st.integers(0, 20))  # some servers number the items of each reply from 0
    thought = {"type": "reasoning", "id": f"rs_{number}", "summary": [], "content": None, "encrypted_content": "c2ln"}
    search = {"type": "web_search_call", "id": f"ws_{number}", "status": "completed", "action": {"type": "search"}}
    patch = {"type": "apply_patch_call", "id": f"apc_{number}", "call_id": "call_p", "status": "completed"}
    parts = [{"type": "output_text", "text": text, "annotations": []}]
    message = {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed", "content": parts}
    used = [
        {
            "type": "function_call",
            "id": draw(st.sampled_from([f"fc_{number}_{place}", f"item_{number}_{place}", None])),
            "call_id": call_id,
            "name": name,
            "arguments": json.dumps(values),
        }
        for place, (call_id, name, values) in enumerate(calls)
    ]
    extra = draw(st.sampled_from([[], [search], [search, patch]]))
    return {
        "output": [thought, *extra, *draw(st.permutations([message, *used])), *draw(st.sampled_from([[], [thought]]))]
    }


def _openai_native(calls: list[tuple[str, str, dict[str, Any]]]) -> dict[str, Any]:
    signed = [{"extra_content": {"google": {"thought_signature": f"sig{index}"}}} for index in range(len(calls))]
    return {"fields": {"reasoning_content": "Let me see."}, **({"calls": signed} if signed else {})}


@st.composite
def results(draw: st.DrawFn, call_id: str) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "tool", "tool_call_id": call_id, "content": draw(contents)}
    is_error = draw(st.sampled_from([None, False, True]))
    return message if is_error is None else {**message, "is_error": is_error}


@st.composite
def transcripts(draw: st.DrawFn, max_turns: int = 3) -> list[dict[str, Any]]:
    """A valid transcript in our own shape: up to `max_turns` turns, the last of which may still be going on.

    It may begin with a system message. Turns have up to two steps with one to three calls each, whose ids may come
    again in later steps; texts may be blank; images stand in prompts and in results.
    """
    transcript: list[dict[str, Any]] = []
    if draw(st.booleans()):
        transcript.append({"role": "system", "content": draw(texts)})
    for _ in range(draw(st.integers(0, max_turns))):
        transcript.append({"role": "user", "content": draw(contents)})
        for _ in range(draw(st.integers(0, 2))):
            reply = draw(replies(calls=True))
            transcript.append(reply)
            transcript.extend(draw(results(call["id"])) for call in reply["tool_calls"])
        transcript.append(draw(replies(calls=False)))
    return transcript[: len(transcript) - 1] if transcript and draw(st.booleans()) else transcript


@st.composite
def broken_transcripts(draw: st.DrawFn) -> list[dict[str, Any]]:
    """A transcript that was cut at both ends, of which messages are lost, repeated, or stand where they should not."""
    transcript = draw(transcripts())
    start = draw(st.integers(0, len(transcript)))
    transcript = transcript[start : draw(st.integers(start, len(transcript)))]
    lost = draw(st.sets(st.integers(0, 30), max_size=4))
    transcript = [message for index, message in enumerate(transcript) if index not in lost]
    for _ in range(draw(st.integers(0, 3))):
        if transcript:
            places = st.integers(0, len(transcript) - 1)
            message = transcript[draw(places)]
            if draw(st.booleans()):
                transcript.remove(message)
            transcript.insert(draw(places), message)
    return transcript
