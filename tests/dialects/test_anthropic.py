"""Anthropic's messages: what is sent, and what answers mean."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from wire_rules import check_anthropic

from toolnexus.dialects import Reading, Reply, Request, Target
from toolnexus.dialects.anthropic import Anthropic
from toolnexus.errors import IncompleteReply, InvalidReply, ProviderError
from toolnexus.events import Delta, TextDelta, Usage
from toolnexus.providers import PROVIDERS, UNKNOWN
from toolnexus.tools import Tool, ToolCall

HOST = "https://api.anthropic.com"
TARGET = Target(style="anthropic", host=HOST, provider=PROVIDERS["anthropic"])
ORIGIN = {"style": "anthropic", "model": "asked", "host": HOST}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
IMAGE_BLOCK = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
THOUGHT = {"type": "thinking", "thinking": "Hm. ", "signature": "c2ln"}
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "tide"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}


def text(said: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": said, **more}


def encode(*messages: Mapping[str, Any], to: Target = TARGET, **request: Any) -> dict[str, Any]:
    body = Anthropic().encoder(to).encode(Request(model="m", messages=list(messages), **request))  # type: ignore[arg-type]
    check_anthropic(body)
    return body


def sent(*messages: Mapping[str, Any]) -> list[Any]:
    """Role and blocks of each message."""
    return [(message["role"], message["content"]) for message in encode(*messages)["messages"]]


def user(said: Any) -> dict[str, Any]:
    return {"role": "user", "content": said}


def assistant(said: str, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": said, **fields}


def native(said: str, *blocks: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return assistant(said, origin=ORIGIN, native={"content": list(blocks)}, **fields)


def call(call_id: str, name: str = "add", arguments: str = "{}") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def use(call_id: str, name: str = "add", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def calling(*ids: str) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [call(call_id) for call_id in ids]}


def result(call_id: str, content: Any = "4", **fields: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content, **fields}


def answer(*blocks: dict[str, Any], stop: Any = "end_turn", usage: Any = None) -> dict[str, Any]:
    return {"type": "message", "model": "m", "content": list(blocks), "stop_reason": stop, "usage": usage}


def decode(body: Any, **names: str) -> Reply:
    return Anthropic().decode(body, Reading(target=TARGET, model="asked", names=names))


def stream(*events: Any) -> tuple[list[Delta], Reply]:
    decoder = Anthropic().decoder(Reading(target=TARGET, model="asked"))
    payloads = [event if isinstance(event, str) else json.dumps(event) for event in events]
    deltas = [delta for payload in payloads for delta in decoder.feed(payload)]
    return deltas, decoder.finish()


def start(index: int, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int, kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}


def ended(reason: str) -> dict[str, Any]:
    return {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 2}}


# Requests


def test_a_limit_is_always_sent_and_nothing_else_that_was_not_asked_for() -> None:
    messages = [user([text("Hi")])]
    assert encode(user("Hi")) == {"model": "m", "max_tokens": 8192, "messages": messages}
    elsewhere = Target(style="anthropic", host="http://localhost:8080", provider=UNKNOWN)
    assert encode(user("Hi"), to=elsewhere)["max_tokens"] == 8192
    assert encode(user("Hi"), max_tokens=7)["max_tokens"] == 7
    assert encode(user("Hi"), stream=True)["stream"] is True


def test_all_system_texts_are_the_system_prompt() -> None:
    stored = {"role": "system", "content": [text("Stored.")]}
    late = {"role": "system", "content": "Late."}
    body = encode(stored, user("Hi"), late, system="Composed.")
    assert body["system"] == "Composed.\n\nStored.\n\nLate."
    assert body["messages"] == [user([text("Hi")])]


def test_neighbours_of_one_role_become_one_message() -> None:
    assert sent(user("a"), user("b"), assistant("c"), assistant("d"), user("e")) == [
        ("user", [text("a"), text("b")]),
        ("assistant", [text("c"), text("d")]),
        ("user", [text("e")]),
    ]


def test_results_come_first_in_call_order_and_text_after_them() -> None:
    step = [calling("t1", "t2"), result("t2", "7"), result("t1", "no", is_error=True)]
    assert sent(user("?"), *step, user("Well?"))[1:] == [
        ("assistant", [use("t1"), use("t2")]),
        (
            "user",
            [
                {"type": "tool_result", "tool_use_id": "t1", "is_error": True, "content": "no"},
                {"type": "tool_result", "tool_use_id": "t2", "content": "7"},
                text("Well?"),
            ],
        ),
    ]


def test_blank_texts_are_left_out_but_calls_and_results_stay() -> None:
    assert sent(user(" "), user("?"), calling("t1"), result("t1", ""), assistant("\n"), user([text(""), IMAGE])) == [
        ("user", [text("?")]),
        ("assistant", [use("t1")]),
        ("user", [{"type": "tool_result", "tool_use_id": "t1"}, IMAGE_BLOCK]),
    ]


def test_an_error_is_told_in_text_and_its_images_come_after_the_results() -> None:
    results = [result("t1", [IMAGE], is_error=True), result("t2", [text("cam"), IMAGE])]
    blocks = sent(user("?"), calling("t1", "t2"), *results)[-1][1]
    assert blocks[0]["is_error"]
    assert blocks[0]["content"].strip()
    assert blocks[1] == {"type": "tool_result", "tool_use_id": "t2", "content": [text("cam"), IMAGE_BLOCK]}
    assert "t1" in blocks[2]["text"]
    assert blocks[3] == IMAGE_BLOCK


@pytest.mark.parametrize(
    ("url", "source"),
    [
        ("https://example.org/a.png", {"type": "url", "url": "https://example.org/a.png"}),
        ("data:image/png;base64,aGk=", {"type": "base64", "media_type": "image/png", "data": "aGk="}),
        ("data:image/gif;x=1;base64,aGk=", {"type": "base64", "media_type": "image/gif", "data": "aGk="}),
        ("data:image/webp,%68i", {"type": "base64", "media_type": "image/webp", "data": "aGk="}),
    ],
)
def test_images_are_sources(url: str, source: dict[str, str]) -> None:
    part = {"type": "image_url", "image_url": {"url": url, "detail": "low"}}
    assert sent(user([part])) == [("user", [{"type": "image", "source": source}])]


def test_a_part_that_it_cannot_take_is_named() -> None:
    ((_, blocks),) = sent(user([{"type": "input_audio", "input_audio": {}}]))
    assert "input_audio" in blocks[0]["text"]


def test_a_history_that_begins_with_an_assistant_gets_a_user_before_it() -> None:
    roles = [role for role, _ in sent(assistant("Hello"), user("Hi"))]
    assert roles == ["user", "assistant", "user"]


def test_only_a_neutral_text_at_the_very_end_loses_its_last_blanks() -> None:
    assert sent(user("?"), assistant("So. "))[-1] == ("assistant", [text("So.")])
    assert sent(user("?"), assistant("So. "), user("?"))[1] == ("assistant", [text("So. ")])
    own = [SEARCH, FOUND, text("So. ")]
    assert sent(user("?"), native("So. ", *own))[-1] == ("assistant", own)


def test_ids_are_unique_in_the_whole_conversation_and_the_same_for_call_and_result() -> None:
    step = [calling("call.0"), result("call.0")]
    messages = encode(user("?"), *step, user("?"), *step)["messages"]
    ids = [block["id"] for message in messages for block in message["content"] if block["type"] == "tool_use"]
    assert len(set(ids)) == 2
    assert [m["content"][0]["tool_use_id"] for m in messages[2::2]] == ids


def test_tools_have_an_object_schema_and_names_that_the_wire_takes() -> None:
    tools = [
        Tool(name="a.b", description="Does it", input_schema={"anyOf": [{"type": "object"}]}, execute=print),
        Tool(name="plain", execute=print),
    ]
    first, second = encode(user("?"), tools=tools)["tools"]
    assert first["description"] == "Does it"
    assert second == {"name": "plain", "input_schema": {"type": "object", "properties": {}}}
    reading = Anthropic().encoder(TARGET).reading(Request(model="m", messages=[], tools=tools))
    assert reading.names == {first["name"]: "a.b"}


def test_parameters_come_last_and_their_tools_after_ours() -> None:
    params = {
        "max_tokens": 9,
        "temperature": 0,
        "messages": [],
        "tools": [{"type": "web_search", "name": "web_search"}],
    }
    body = encode(user("?"), tools=[Tool(name="add", execute=print)], params=params, max_tokens=7)
    assert (body["max_tokens"], body["temperature"], len(body["messages"])) == (9, 0, 1)
    assert [tool["name"] for tool in body["tools"]] == ["add", "web_search"]


# Native blocks


def test_own_blocks_go_back_as_they_came_with_the_ids_of_the_results() -> None:
    own = [THOUGHT, text("Looking."), use("t1", a=1)]
    message = native("Looking.", *own, tool_calls=[call("t1", arguments='{"a":1}')])
    assert sent(user("?"), message, result("t1"))[1] == ("assistant", own)
    second = sent(user("?"), message, result("t1"), message, result("t1"))[3:]
    assert second[0][1][:2] == own[:2]
    assert second[0][1][2]["id"] == second[1][1][0]["tool_use_id"] != "t1"


@pytest.mark.parametrize(
    "message",
    [
        {**native("Hi", THOUGHT, text("Hi")), "origin": {**ORIGIN, "host": "https://other.example.test"}},
        {**native("Hi", THOUGHT, text("Hi")), "origin": {**ORIGIN, "style": "openai"}},
        native("Hi", THOUGHT, text("Edited since")),
        native("Hi", THOUGHT, text("Hi"), use("t1")),
        assistant("Hi", native={"content": [THOUGHT, text("Hi")]}),
        assistant("Hi", origin=ORIGIN, native="nonsense"),
    ],
)
def test_blocks_of_others_or_that_no_longer_fit_are_left_out(message: dict[str, Any]) -> None:
    assert sent(user("?"), message, user("?"))[1] == ("assistant", [text("Hi")])


def test_blank_texts_among_own_blocks_and_thinking_alone_are_left_out() -> None:
    message = native("", THOUGHT, text(""), use("t1"), tool_calls=[call("t1")])
    assert sent(user("?"), message, result("t1"))[1] == ("assistant", [THOUGHT, use("t1")])
    assert sent(user("a"), native("", THOUGHT), user("b")) == [("user", [text("a"), text("b")])]


def test_a_paused_reply_is_continued_as_it_is_and_joined_with_what_follows() -> None:
    paused = native("Searching.", text("Searching."), SEARCH)
    assert sent(user("?"), paused)[-1] == ("assistant", [text("Searching."), SEARCH])
    rest = native(" At six.", FOUND, text(" At six."))
    assert sent(user("?"), paused, rest, user("?"))[1] == (
        "assistant",
        [text("Searching."), SEARCH, FOUND, text(" At six.")],
    )


def test_a_search_that_was_never_answered_goes_when_the_user_goes_on() -> None:
    assert sent(user("a"), native("Searching.", text("Searching."), THOUGHT, SEARCH), user("b"))[1:] == [
        ("assistant", [text("Searching.")]),
        ("user", [text("b")]),
    ]
    assert sent(user("a"), native("", SEARCH), user("b")) == [("user", [text("a"), text("b")])]
    both = native("", SEARCH, use("t1"), tool_calls=[call("t1")])
    assert sent(user("a"), both, result("t1"))[1] == ("assistant", [SEARCH, use("t1")])


def test_a_body_that_was_given_out_does_not_change() -> None:
    encoder = Anthropic().encoder(TARGET)
    transcript: list[Any] = [user("a"), native("Searching.", text("Searching."), SEARCH)]
    request = Request(model="m", messages=transcript)
    first = encoder.encode(request)
    before = json.dumps(first)
    transcript += [native("Six.", FOUND, text("Six.")), user("b"), user("c")]
    second = encoder.encode(request)
    assert json.dumps(first) == before
    assert [len(message["content"]) for message in second["messages"]] == [1, 4, 2]


# Answers


def test_a_plain_answer_is_read() -> None:
    usage = {
        "input_tokens": 3,
        "cache_read_input_tokens": 10,
        "cache_creation_input_tokens": 5,
        "output_tokens": 2,
        "service_tier": "standard",
    }
    body = answer(text("Hel", citations=None), text("lo."), use("t1", "x_1", a=1), stop="tool_use", usage=usage)
    assert decode(body, x_1="x.1") == Reply(
        message={
            "role": "assistant",
            "content": "Hello.",
            "tool_calls": [call("t1", "x.1", '{"a":1}')],  # type: ignore[list-item]
            "origin": ORIGIN,  # type: ignore[typeddict-item]
        },
        text="Hello.",
        calls=(ToolCall(id="t1", name="x.1", arguments='{"a":1}'),),
        finish_reason="tool_calls",
        usage=Usage(prompt=18, completion=2, total=20, cached=10, cache_write=5),
        model="m",
    )


@pytest.mark.parametrize(
    ("block", "kept"),
    [
        (text("Hi"), False),
        (text("Hi", citations=[]), False),
        (text("Hi", citations=[{"url": "x"}]), True),
        (use("t1"), False),
        ({**use("t1"), "caller": {"type": "direct"}}, True),
        (THOUGHT, True),
        ({"type": "redacted_thinking", "data": "eA=="}, True),
        ({"type": "something_new"}, True),
        (SEARCH, True),
    ],
)
def test_blocks_are_kept_when_one_is_more_than_text_or_a_call(block: dict[str, Any], kept: bool) -> None:
    blocks = [text("So."), block]
    assert decode(answer(*blocks)).message.get("native") == ({"content": blocks} if kept else None)


@pytest.mark.parametrize(
    ("stop", "expected"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("pause_turn", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "refusal"),
        ("something_new", "unknown"),
        (None, "unknown"),
    ],
)
def test_stop_reasons_become_ours_and_a_cut_reply_has_no_calls(stop: Any, expected: str) -> None:
    reply = decode(answer(text("Hi"), stop=stop))
    assert (reply.finish_reason, reply.continues) == (expected, stop == "pause_turn")
    calling_reply = decode(answer(THOUGHT, text("Hi"), use("t1"), stop=stop))
    if expected in {"length", "refusal"}:
        assert (calling_reply.finish_reason, calling_reply.calls) == (expected, ())
        assert calling_reply.message.get("native") == {"content": [THOUGHT, text("Hi")]}
    else:
        assert (calling_reply.finish_reason, len(calling_reply.calls)) == ("tool_calls", 1)
        assert not calling_reply.continues, "the calls come first"


def test_an_empty_refusal_is_stored_and_not_sent() -> None:
    reply = decode(answer(stop="refusal", usage={"input_tokens": 30, "output_tokens": 0}))
    assert (reply.text, reply.finish_reason) == ("", "refusal")
    assert sent(user("a"), reply.message, user("b")) == [("user", [text("a"), text("b")])]


@pytest.mark.parametrize("body", [None, [], "text", {}, {"type": "message"}, {"content": "text"}, {"choices": []}])
def test_what_is_no_message_is_an_invalid_reply(body: Any) -> None:
    with pytest.raises(InvalidReply):
        decode(body)


def test_an_error_is_raised_wherever_it_comes() -> None:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    for read in (lambda: decode(error), lambda: stream(delta(0, "text_delta", text="Hi"), error)):
        with pytest.raises(ProviderError) as caught:
            read()
        assert (caught.value.kind, caught.value.retryable) == ("overloaded", True)
    with pytest.raises(ProviderError):
        stream({"type": "error"})


# Streams


def test_citations_and_server_calls_of_a_stream_are_kept() -> None:
    deltas, reply = stream(
        start(0, type="server_tool_use", id="srvtoolu_1", name="web_search", input={}),
        delta(0, "input_json_delta", partial_json='{"query": '),
        delta(0, "input_json_delta", partial_json='"tide"}'),
        start(1, **FOUND),
        start(2, type="text", text="", citations=[]),
        delta(2, "text_delta", text="Six."),
        delta(2, "citations_delta", citation={"url": "x"}),
        delta(2, "citations_delta", citation={"url": "y"}),
        delta(2, "something_new", x=1),
        ended("end_turn"),
    )
    assert deltas == [TextDelta("Six.")]
    blocks = [SEARCH, FOUND, text("Six.", citations=[{"url": "x"}, {"url": "y"}])]
    assert reply.message.get("native") == {"content": blocks}


def test_input_that_comes_with_the_start_of_a_call_counts() -> None:
    _, reply = stream(start(0, **use("t1", a=1)), ended("tool_use"))
    assert reply.calls == (ToolCall(id="t1", name="add", arguments='{"a":1}'),)


def test_input_that_cannot_be_read_is_told_raw_and_stored_as_an_object() -> None:
    _, reply = stream(
        start(0, **THOUGHT),
        start(1, **use("t1")),
        delta(1, "input_json_delta", partial_json='{"a": '),
        ended("tool_use"),
    )
    assert reply.calls[0].arguments == '{"a": '
    kept = reply.message["native"]["content"][1]["input"]  # type: ignore[typeddict-item]
    assert isinstance(kept, dict)
    encode(user("?"), reply.message, result("t1"))


def test_a_text_whose_start_was_left_out_or_that_starts_with_text_is_read() -> None:
    deltas, reply = stream(delta(0, "text_delta", text="Hi"), start(1, type="text", text=" there"), ended("end_turn"))
    assert (deltas, reply.text) == ([TextDelta("Hi"), TextDelta(" there")], "Hi there")


def test_figures_of_zero_do_not_replace_what_was_told_before() -> None:
    begun = {"type": "message_start", "message": {"model": "m", "usage": {"input_tokens": 10, "output_tokens": 1}}}
    over = {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn"},
        "usage": {"input_tokens": 0, "output_tokens": 7},
    }
    assert stream(begun, over)[1].usage == Usage(prompt=10, completion=7, total=17)


@pytest.mark.parametrize("mark", [ended("end_turn"), {"type": "message_stop"}])
def test_either_mark_is_the_end(mark: dict[str, Any]) -> None:
    assert stream(delta(0, "text_delta", text="Hi"), mark, "[DONE]")[1].text == "Hi"


def test_without_a_mark_a_stream_is_incomplete() -> None:
    with pytest.raises(IncompleteReply):
        stream(delta(0, "text_delta", text="Hi"), {"type": "content_block_stop", "index": 0}, {"type": "ping"})
    with pytest.raises(IncompleteReply):
        stream()
