"""Streamed and whole answers are the same reply, and how a stream is cut changes nothing."""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import arguments, json_values, texts

from toolnexus.dialects import Reading, Reply, Target, dialect
from toolnexus.dialects.sse import SSEDecoder
from toolnexus.errors import IncompleteReply, InvalidReply, ProviderError, ToolnexusError
from toolnexus.events import Delta, ReasoningDelta, TextDelta
from toolnexus.providers import UNKNOWN

STYLES = ("openai", "anthropic", "gemini", "responses")
CORPUS = Path(__file__).parents[1] / "corpus" / "wire"


def reading(style: str) -> Reading:
    return Reading(target=Target(style=style, host="https://gw.example.test", provider=UNKNOWN), model="asked")


def decoded(style: str, chunks: Sequence[bytes]) -> tuple[list[Delta], Reply | tuple[type[ToolnexusError], str]]:
    """The deltas of a stream, joined by kind, and its reply or the error that ended it."""
    events, decoder = SSEDecoder(), dialect(style).decoder(reading(style))
    deltas: list[Delta] = []
    try:
        for chunk in chunks:
            for payload in events.feed(chunk):
                deltas += decoder.feed(payload)
        for payload in events.finish():
            deltas += decoder.feed(payload)
        return deltas, decoder.finish()
    except ToolnexusError as error:
        return deltas, (type(error), error.kind)


def streams() -> Iterator[Any]:
    """The streamed answers of the corpus: style, reads, whether the connection broke, the case."""
    for path in sorted(CORPUS.glob("*.json")):
        case = json.loads(path.read_text())
        if case["style"] not in STYLES:
            continue
        given = case["given"]
        for number, answer in enumerate(given.get("turns", [given])):
            reads = [read.encode() for read in answer.get("sse", ())]
            reads += [base64.b64decode(read) for read in answer.get("sse_b64", ())]
            if reads:
                last = number == len(given.get("turns", [given])) - 1
                expected = case["expect"] if last else {}
                yield pytest.param(case["style"], reads, expected, id=f"{case['id']}-{number}")


STREAMS = list(streams())


@pytest.mark.parametrize(("style", "reads", "expected"), STREAMS)
def test_every_stream_of_the_corpus_reads_the_same_split_at_any_byte(
    style: str, reads: list[bytes], expected: dict[str, Any]
) -> None:
    wire = b"".join(reads)
    wanted = decoded(style, reads)
    assert decoded(style, [wire]) == wanted
    assert decoded(style, [wire[i : i + 1] for i in range(len(wire))]) == wanted
    for cut in range(0, len(wire), 7):
        assert decoded(style, [wire[:cut], wire[cut:]]) == wanted
    check(*wanted, expected)


def check(deltas: list[Delta], reply: Reply | tuple[type[ToolnexusError], str], expected: dict[str, Any]) -> None:
    """What the case itself expects of the stream."""
    pieces = [delta.text for delta in deltas if isinstance(delta, TextDelta)]
    if expected.get("error"):
        assert isinstance(reply, tuple)
        assert reply[1] == expected["error"]["kind"]
        assert "".join(pieces) == expected["error"].get("partial_text", "".join(pieces))
        return
    if not expected or isinstance(reply, tuple):
        assert not expected
        return
    assert pieces == expected.get("deltas", pieces)
    assert reply.text == expected.get("text", reply.text) == "".join(pieces)
    assert reply.finish_reason == expected.get("finish_reason", reply.finish_reason)
    calls = [{"id": c.id, "name": c.name, "arguments": json.loads(c.arguments or "{}")} for c in reply.calls]
    assert calls == expected.get("tool_calls", calls)
    if expected.get("usage"):
        assert reply.usage is not None
        usage = {name: getattr(reply.usage, name) for name in expected["usage"]}
        assert usage == expected["usage"]


@pytest.mark.parametrize(("style", "reads", "expected"), STREAMS)
def test_a_stream_that_stops_before_its_end_mark_is_never_a_reply(
    style: str, reads: list[bytes], expected: Any
) -> None:
    wire = b"".join(reads)
    mark = max(
        wire.rfind(b'"finish_reason":"'),
        wire.rfind(b'"stop_reason":"'),
        wire.rfind(b'"finishReason":"'),
        wire.rfind(b'"blockReason":"'),
        *(wire.rfind(b'"type":"response.%b"' % end) for end in (b"completed", b"incomplete", b"failed")),
        wire.rfind(b'"error"'),
    )
    for cut in range(0, mark if mark > 0 else len(wire), 3):
        assert decoded(style, [wire[:cut]])[1] == (IncompleteReply, "truncated_stream"), f"cut at {cut}"


# One answer in both forms.

openai_calls = st.lists(st.tuples(st.sampled_from(["add", "søk"]), arguments.map(json.dumps)), max_size=3)


def pieces(draw: st.DrawFn, text: str) -> list[str]:
    """A text cut into deltas, some of which may be empty."""
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=3)))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


@st.composite
def openai_answers(draw: st.DrawFn) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    text, thought, calls = draw(texts), draw(texts), draw(openai_calls)
    finish = draw(st.sampled_from(["stop", "tool_calls", "length", "content_filter", "new_reason"]))
    usage = draw(st.sampled_from([None, {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}]))
    extra = draw(st.dictionaries(st.sampled_from(["extra_content", "signature"]), json_values.filter(bool)))
    message: dict[str, Any] = {"role": "assistant", "content": text, "reasoning_content": thought}
    entries = [
        {"id": f"call_{i}", "type": "function", "function": {"name": name, "arguments": args}, **extra}
        for i, (name, args) in enumerate(calls)
    ]
    if entries:
        message["tool_calls"] = entries
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"reasoning_content": piece} for piece in pieces(draw, thought)]
    deltas += [{"content": piece} for piece in pieces(draw, text)]
    for index, entry in enumerate(entries):
        first, *rest = pieces(draw, entry["function"]["arguments"])
        opening = {**entry, "function": {**entry["function"], "arguments": first}}
        deltas.append({"tool_calls": [{"index": index, **opening}]})
        deltas += [{"tool_calls": [{"index": index, "function": {"arguments": piece}}]} for piece in rest]
    deltas.append({})
    choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices[-1]["finish_reason"] = finish
    events: list[dict[str, Any]] = [{"model": "m", "choices": [choice]} for choice in choices]
    events.append({"model": "m", "choices": [], "usage": usage})
    whole = {"model": "m", "choices": [{"index": 0, "message": message, "finish_reason": finish}], "usage": usage}
    return whole, events


@st.composite
def anthropic_answers(draw: st.DrawFn) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    kinds = draw(st.lists(st.sampled_from(["text", "thinking", "tool_use", "server_tool_use", "redacted"]), max_size=4))
    stop = draw(st.sampled_from(["end_turn", "tool_use", "max_tokens", "refusal", "pause_turn", "new_reason"]))
    blocks: list[dict[str, Any]] = []
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"model": "m", "usage": {"input_tokens": 3, "output_tokens": 1}}}
    ]
    for index, kind in enumerate(kinds):
        block, start, deltas = _anthropic_block(draw, kind, index)
        blocks.append(block)
        events.append({"type": "content_block_start", "index": index, "content_block": start})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    events.append({"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": 2}})
    events.append({"type": "message_stop"})
    usage = {"input_tokens": 3, "output_tokens": 2}
    return {"type": "message", "model": "m", "content": blocks, "stop_reason": stop, "usage": usage}, events


def _anthropic_block(draw: st.DrawFn, kind: str, index: int) -> tuple[dict[str, Any], dict[str, Any], list[Any]]:
    text = draw(texts)
    match kind:
        case "text":
            deltas = [{"type": "text_delta", "text": piece} for piece in pieces(draw, text)]
            return {"type": "text", "text": text}, {"type": "text", "text": ""}, deltas
        case "thinking":
            block = {"type": "thinking", "thinking": text, "signature": "c2ln"}
            deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces(draw, text)]
            deltas.append({"type": "signature_delta", "signature": "c2ln"})
            return block, {"type": "thinking", "thinking": "", "signature": ""}, deltas
        case "redacted":
            block = {"type": "redacted_thinking", "data": "b3BhcXVl"}
            return block, block, []
        case _:
            value = draw(arguments)
            start = {"type": kind, "id": f"toolu_{index}", "name": "add", "input": {}}
            given = json.dumps(value) if value or draw(st.booleans()) else ""
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces(draw, given)]
            return {**start, "input": value}, start, deltas


@st.composite
def gemini_answers(draw: st.DrawFn) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Each part comes at once, or a plain text in pieces; several parts may come in one event."""
    kinds = draw(st.lists(st.sampled_from(["text", "thought", "call", "signed call", "end", "code"]), max_size=5))
    parts: list[dict[str, Any]] = []
    streamed: list[dict[str, Any]] = []
    for index, kind in enumerate(kinds):
        text = draw(texts)
        match kind:
            case "text" | "thought":
                plain = {"thought": True} if kind == "thought" else {}
                parts.append({"text": text, **plain})
                streamed += [{"text": piece, **plain} for piece in pieces(draw, text)]
                continue
            case "call":
                part: dict[str, Any] = {"functionCall": {"name": "add", "args": draw(arguments)}}
            case "signed call":
                call = {"id": f"fc-{index}", "name": "default_api:add", "args": draw(arguments)}
                part = {"functionCall": call, "thoughtSignature": "c2ln"}
            case "end":
                part = {"text": draw(st.sampled_from(["", text])), "thoughtSignature": "ZW5k"}
            case _:
                part = {"executableCode": {"language": "PYTHON", "code": text}}
        parts.append(part)
        streamed.append(part)
    reason = draw(st.sampled_from(["STOP", "MAX_TOKENS", "SAFETY", "NEW_REASON"]))
    usage = {"promptTokenCount": 3, "candidatesTokenCount": 2, "thoughtsTokenCount": 4, "totalTokenCount": 9}
    sources = draw(st.sampled_from([{}, {"groundingMetadata": {"webSearchQueries": ["tides"]}}]))
    events: list[dict[str, Any]] = []
    while streamed:
        taken = draw(st.integers(1, 3))
        candidate = {"content": {"role": "model", "parts": streamed[:taken]}, "index": 0}
        events.append({"candidates": [candidate], "usageMetadata": {"promptTokenCount": 3}, "modelVersion": "m"})
        streamed = streamed[taken:]
    last = {"finishReason": reason, "index": 0, **sources}
    if events and draw(st.booleans()):
        events[-1]["candidates"][0] |= last
        events[-1]["usageMetadata"] = usage
    else:
        events.append({"candidates": [{"content": {"role": "model"}, **last}], "usageMetadata": usage})
    candidate = {"content": {"role": "model", "parts": parts}, **last}
    model = {"modelVersion": "m"} if len(events) > 1 or "modelVersion" in events[0] else {}
    return {"candidates": [candidate], "usageMetadata": usage, **model}, events


@st.composite
def responses_answers(draw: st.DrawFn) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Servers leave out ids or places, change ids, send no deltas, or tell the items only when each or all are done."""
    kinds = draw(st.lists(st.sampled_from(["message", "refusal", "summary", "thought", "call", "search"]), max_size=4))
    ids, indexed = draw(st.sampled_from(["kept", "left out", "changed"])), draw(st.booleans())
    pieced, done, told = draw(st.booleans()), draw(st.booleans()), draw(st.sampled_from([[], None, "all"]))
    done, ends = done or told != "all", draw(st.booleans())
    output: list[dict[str, Any]] = []
    events: list[dict[str, Any]] = [{"type": "response.created", "response": {"status": "in_progress", "output": []}}]
    for index, kind in enumerate(kinds):
        item, opened, deltas = _response_item(draw, kind, index, ends=ends)
        output.append(item)
        at: dict[str, Any] = {"output_index": index} if indexed else {}
        if ids == "changed":
            opened["id"] = f"opened_{index}"
        by = {"kept": {"item_id": item["id"]}, "left out": {}, "changed": {"item_id": f"piece_{index}"}}[ids]
        events.append({"type": "response.output_item.added", **at, "item": opened})
        events += [{**delta, **at, **by} for delta in deltas if pieced or delta["type"].endswith(".done")]
        if done:
            events.append({"type": "response.output_item.done", **at, "item": item})
    reason = draw(st.sampled_from([None, None, "max_output_tokens", "content_filter", "new_reason"]))
    response: dict[str, Any] = {
        "model": "m",
        "status": "incomplete" if reason else "completed",
        "incomplete_details": {"reason": reason} if reason else None,
        "error": None,
        "output": output,
        "usage": draw(st.sampled_from([None, {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}])),
        "store": draw(st.booleans()),
    }
    last = {**response, "output": output if told == "all" else told}
    events.append({"type": f"response.{response['status']}", "response": last})
    return response, events


def _response_item(
    draw: st.DrawFn, kind: str, index: int, *, ends: bool
) -> tuple[dict[str, Any], dict[str, Any], list[Any]]:
    """An item, as its stream begins it, and its pieces, after which the whole text may be said as well."""
    said = draw(texts)
    status = {"status": "completed"}

    def of(name: str, key: str) -> list[dict[str, Any]]:
        at = {"content_index": 0, "summary_index": 0}
        deltas = [{"type": f"response.{name}.delta", "delta": piece, **at} for piece in pieces(draw, said)]
        return [*deltas, {"type": f"response.{name}.done", key: said, **at}] if ends else deltas

    match kind:
        case "message" | "refusal":
            key = "text" if kind == "message" else "refusal"
            part = {"type": f"output_{key}" if kind == "message" else key, key: said}
            item = {"type": "message", "id": f"msg_{index}", "role": "assistant", **status, "content": [part]}
            return item, {**item, "content": []}, of("output_text" if kind == "message" else "refusal", key)
        case "summary":
            parts = [{"type": "summary_text", "text": said}]
            item = {"type": "reasoning", "id": f"rs_{index}", "summary": parts, "encrypted_content": "c2ln"}
            return item, {**item, "summary": [], "encrypted_content": "c2"}, of("reasoning_summary_text", "text")
        case "thought":
            parts = [{"type": "reasoning_text", "text": said}]
            item = {"type": "reasoning", "id": f"rs_{index}", "summary": [], "content": parts}
            return item, {**item, "content": None}, of("reasoning_text", "text")
        case "call":
            said = json.dumps(draw(arguments))
            item = {"type": "function_call", "id": f"fc_{index}", **status, "call_id": f"call_{index}", "name": "add"}
            whole = {**item, "arguments": said}
            return whole, {**item, "arguments": ""}, of("function_call_arguments", "arguments")
        case _:
            item = {
                "type": "web_search_call",
                "id": f"ws_{index}",
                **status,
                "action": {"type": "search", "query": said},
            }
            return item, {"type": "web_search_call", "id": f"ws_{index}", "status": "in_progress"}, []


ANSWERS = {
    "openai": openai_answers(),
    "anthropic": anthropic_answers(),
    "gemini": gemini_answers(),
    "responses": responses_answers(),
}


@pytest.mark.parametrize("style", STYLES)
@given(data=st.data())
def test_a_streamed_answer_is_the_reply_that_the_whole_one_is(style: str, data: st.DataObject) -> None:
    whole, events = data.draw(ANSWERS[style])
    wire = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)

    deltas, streamed = decoded(style, [wire])

    reply = dialect(style).decode(json.loads(json.dumps(whole)), reading(style))
    assert streamed == reply
    assert "".join(d.text for d in deltas if isinstance(d, TextDelta)) == reply.text
    assert "".join(d.text for d in deltas if isinstance(d, ReasoningDelta)) == reply.reasoning
    assert all(delta.text for delta in deltas), "no delta is empty"


@pytest.mark.parametrize("style", STYLES)
@given(value=json_values, data=st.data())
def test_whatever_json_a_server_sends_is_a_reply_or_an_error_of_ours(
    style: str, value: Any, data: st.DataObject
) -> None:
    whole, events = data.draw(ANSWERS[style])
    spoiled = _spoil(data.draw, data.draw(st.sampled_from([whole, *events])), value)
    for read in (lambda: dialect(style).decode(spoiled, reading(style)), lambda: _feed(style, spoiled)):
        with contextlib.suppress(ProviderError, InvalidReply):
            read()


def _feed(style: str, event: Any) -> Reply:
    decoder = dialect(style).decoder(reading(style))
    decoder.feed(json.dumps(event))
    return decoder.finish()


def _spoil(draw: st.DrawFn, body: Any, value: Any) -> Any:
    """`body` with something inside replaced by `value`."""
    if isinstance(body, dict) and body:
        key = draw(st.sampled_from(sorted(body)))
        return {**body, key: _spoil(draw, body[key], value)}
    if isinstance(body, list) and body:
        position = draw(st.integers(0, len(body) - 1))
        return [*body[:position], _spoil(draw, body[position], value), *body[position + 1 :]]
    return value
