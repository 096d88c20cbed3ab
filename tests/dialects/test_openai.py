"""Chat completions: what is sent, and what answers mean."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

import pytest

from toolnexus.dialects import Reading, Reply, Request, Target
from toolnexus.dialects.openai import OpenAI
from toolnexus.errors import IncompleteReply, InvalidReply, ProviderError
from toolnexus.events import Delta, ReasoningDelta, TextDelta, Usage
from toolnexus.providers import PROVIDERS, UNKNOWN, Provider
from toolnexus.tools import Tool, ToolCall

HOST = "https://gw.example.test"
TARGET = Target(style="openai", host=HOST, provider=UNKNOWN)
READING = Reading(target=TARGET, model="asked")
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}


def tool(name: str, **schema: Any) -> Tool:
    return Tool(
        name=name, description=f"Does {name}", input_schema=schema or {"type": "object"}, execute=lambda a, _: a
    )


def encode(*messages: Mapping[str, Any], to: Target = TARGET, **request: Any) -> dict[str, Any]:
    return OpenAI().encoder(to).encode(Request(model="m", messages=list(messages), **request))  # type: ignore[arg-type]


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def call(call_id: str, name: str = "add", arguments: str = "{}") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def calling(*calls: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": list(calls), **fields}


def result(call_id: str, content: Any = "4") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def answer(finish: Any = "stop", usage: Any = None, **message: Any) -> dict[str, Any]:
    return {"model": "m", "choices": [{"index": 0, "message": message, "finish_reason": finish}], "usage": usage}


def decode(body: Any, **names: str) -> Reply:
    return OpenAI().decode(body, Reading(target=TARGET, model="asked", names=names))


def stream(*events: Any) -> tuple[list[Delta], Reply]:
    decoder = OpenAI().decoder(READING)
    deltas = [
        delta for event in events for delta in decoder.feed(event if isinstance(event, str) else json.dumps(event))
    ]
    return deltas, decoder.finish()


def chunk(finish: Any = None, **delta: Any) -> dict[str, Any]:
    return {"model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def pieces(*entries: dict[str, Any]) -> list[ToolCall]:
    """The calls of a stream whose deltas bring these elements of `tool_calls`, one each."""
    _, reply = stream(*(chunk(tool_calls=[entry]) for entry in entries), chunk("tool_calls"))
    return list(reply.calls)


def piece(index: int | None = None, id: str | None = None, name: str | None = None, args: Any = None) -> dict[str, Any]:
    entry: dict[str, Any] = {"index": index, "id": id, "function": {"name": name, "arguments": args}}
    return {key: value for key, value in entry.items() if value is not None}


# Requests


def test_nothing_is_sent_that_was_not_asked_for() -> None:
    assert encode(user("Hi")) == {"model": "m", "messages": [user("Hi")]}


def test_the_composed_system_prompt_comes_before_the_stored_one() -> None:
    stored = {"role": "system", "content": "Stored."}
    assert encode(stored, user("Hi"), system="Composed.")["messages"][0] == {
        "role": "system",
        "content": "Composed.\n\nStored.",
    }
    assert encode(stored, user("Hi"))["messages"] == [stored, user("Hi")]
    assert encode(user("Hi"), stored, user("Ho"))["messages"] == [user("Hi"), stored, user("Ho")]


def test_tools_are_declared_and_streams_ask_for_usage() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    body = encode(user("Hi"), tools=[tool("add", **schema)], stream=True, max_tokens=7)
    assert body["tools"] == [
        {"type": "function", "function": {"name": "add", "description": "Does add", "parameters": schema}}
    ]
    assert (body["stream"], body["stream_options"], body["max_tokens"]) == (True, {"include_usage": True}, 7)


def test_the_limit_goes_under_the_row_s_name_and_once() -> None:
    to = Target(style="openai", host="https://api.openai.com", provider=PROVIDERS["openai"])
    assert encode(user("Hi"), to=to, max_tokens=7)["max_completion_tokens"] == 7
    body = encode(user("Hi"), to=to, max_tokens=7, params={"max_tokens": 9})
    assert (body["max_tokens"], "max_completion_tokens" in body) == (9, False)


def test_parameters_come_last_but_for_what_is_ours() -> None:
    params = {"temperature": 0, "messages": [], "stream": True, "model": "other", "tools": [{"type": "web_search"}]}
    body = encode(user("Hi"), tools=[tool("add")], params={**params, "tool_choice": "auto"})
    assert (body["temperature"], body["model"], body["tool_choice"]) == (0, "other", "auto")
    assert (body["messages"], "stream" in body) == ([user("Hi")], False)
    assert [entry["type"] for entry in body["tools"]] == ["function", "web_search"]


def test_parameters_that_only_go_with_tools_or_streams_go_without() -> None:
    params = {"tools": [], "tool_choice": "auto", "parallel_tool_calls": False, "stream_options": {"x": 1}}
    assert encode(user("Hi"), params=params) == {"model": "m", "messages": [user("Hi")]}
    assert encode(user("Hi"), params=params, stream=True)["stream_options"] == {"x": 1}


def test_blank_texts_are_left_out_but_calls_and_results_stay() -> None:
    body = encode(
        user(" "),
        {"role": "user", "content": [{"type": "text", "text": ""}, IMAGE]},
        {"role": "assistant", "content": "  "},
        calling(call("c1"), content=""),
        result("c1", ""),
    )
    assert body["messages"] == [
        {"role": "user", "content": [IMAGE]},
        {"role": "assistant", "content": None, "tool_calls": [call("c1")]},
        {"role": "tool", "tool_call_id": "c1", "content": "(no output)"},
    ]


def test_unknown_keys_are_never_sent() -> None:
    body = encode(
        {"role": "user", "content": [{"type": "text", "text": "Hi", "cache": 1}], "name": "x", "interrupted": True},
        {**calling({**call("c1"), "extra": 1}), "reasoning_content": "Hm.", "request": {}},
        {**result("c1"), "is_error": True, "request": {}},
    )
    assert body["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
        {"role": "assistant", "content": None, "tool_calls": [call("c1")]},
        result("c1"),
    ]


def test_images_of_results_come_in_one_message_after_all_results() -> None:
    picture = [{"type": "text", "text": "cam 2"}, IMAGE]
    messages = encode(user("?"), calling(call("c1", "snap"), call("c2")), result("c1", picture), result("c2"))[
        "messages"
    ]
    assert messages[2:4] == [result("c1", "cam 2"), result("c2")]
    label, image = messages[4]["content"]
    assert messages[4]["role"] == "user"
    assert "snap" in label["text"]
    assert "c1" in label["text"]
    assert image == IMAGE
    only = encode(user("?"), calling(call("c1")), result("c1", [IMAGE]))["messages"]
    assert only[2]["content"].strip()


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ('{"a": 1}', {"a": 1}),
        ("", {}),
        ('"{\\"a\\":1}"', {"a": 1}),
        ("null", {}),
        ('{"a": ', None),
        ("[1]", None),
        ('{"a": NaN}', None),
    ],
)
def test_the_arguments_of_a_reply_are_always_sent_back_as_an_object(given: str, sent: dict[str, Any] | None) -> None:
    reply = decode(answer("tool_calls", tool_calls=[call("c1", arguments=given)]))
    body = encode(user("?"), reply.message, result("c1"))
    read = json.loads(body["messages"][1]["tool_calls"][0]["function"]["arguments"])
    assert isinstance(read, dict)
    assert sent is None or read == sent


def test_a_history_s_tool_names_are_mapped_like_the_declared_ones() -> None:
    body = encode(user("?"), calling(call("c1", "notes.search")), result("c1"), tools=[tool("notes.search")])
    declared = body["tools"][0]["function"]["name"]
    assert declared.startswith("notes_search_")
    assert body["messages"][1]["tool_calls"][0]["function"]["name"] == declared
    reading = OpenAI().encoder(TARGET).reading(Request(model="m", messages=[], tools=[tool("notes.search")]))
    assert reading.names == {declared: "notes.search"}


NATIVE = {"fields": {"reasoning": "Hm."}, "calls": [{"extra_content": {"s": 1}}]}


@pytest.mark.parametrize(
    ("origin_host", "style", "host", "row", "replayed"),
    [
        (HOST, "openai", HOST, UNKNOWN, True),
        ("https://other.example.test", "openai", HOST, UNKNOWN, False),
        (HOST, "anthropic", HOST, UNKNOWN, False),
        ("https://api.deepseek.com", "openai", "https://proxy.example.test", PROVIDERS["deepseek"], True),
        ("https://api.deepseek.co", "openai", "https://api.deepseek.com", PROVIDERS["deepseek"], False),
        (HOST, "openai", HOST, Provider(name="strict", base_url=HOST, refuses_reasoning=True), False),
    ],
)
def test_native_goes_back_only_where_it_came_from(
    origin_host: str, style: str, host: str, row: Provider, replayed: bool
) -> None:
    origin = {"style": style, "model": "m", "host": origin_host}
    message = calling(call("c1"), origin=origin, native=NATIVE)
    sent = encode(user("?"), message, result("c1"), to=Target(style="openai", host=host, provider=row))["messages"][1]
    assert ("reasoning" in sent) == replayed
    assert ("extra_content" in sent["tool_calls"][0]) == replayed


def test_native_that_no_longer_fits_its_message_is_left_out() -> None:
    origin = {"style": "openai", "model": "m", "host": HOST}
    thinking = [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "Before."}]
    edited = {"role": "assistant", "content": "After.", "origin": origin, "native": {"fields": {"content": thinking}}}
    assert encode(user("?"), edited)["messages"][1] == {"role": "assistant", "content": "After."}
    fewer = calling(call("c1"), origin=origin, native={"calls": [{"x": 1}, {"x": 2}]})
    assert encode(user("?"), fewer, result("c1"))["messages"][1]["tool_calls"] == [call("c1")]


# Answers


def test_a_plain_answer_is_read() -> None:
    usage = {
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 3},
    }
    assert decode(answer(role="assistant", content="Hello.", usage=usage)) == Reply(
        message={
            "role": "assistant",
            "content": "Hello.",
            "origin": {"style": "openai", "model": "asked", "host": HOST},
        },
        text="Hello.",
        finish_reason="stop",
        usage=Usage(prompt=10, completion=5, total=15, cached=4, reasoning=3),
        model="m",
    )


def test_server_chatter_is_not_kept_but_what_is_unknown_is() -> None:
    reply = decode(answer(content="Hi", annotations=[1], refusal=None, audio=None, thought=None, signature="c2ln"))
    assert reply.message.get("native") == {"fields": {"signature": "c2ln"}}


@pytest.mark.parametrize(
    ("finish", "calls", "expected"),
    [
        ("stop", 0, "stop"),
        ("STOP", 0, "stop"),
        ("eos", 0, "stop"),
        (None, 0, "unknown"),
        ("tool_calls", 1, "tool_calls"),
        ("stop", 1, "tool_calls"),
        (None, 1, "tool_calls"),
        ("length", 0, "length"),
        ("length", 1, "length"),
        ("content_filter", 1, "content_filter"),
    ],
)
def test_finish_reasons_become_ours_and_calls_decide(finish: Any, calls: int, expected: str) -> None:
    reply = decode(answer(finish, content="Hi", tool_calls=[{**call("c1"), "extra": 1}] * calls))
    assert reply.finish_reason == expected
    runs = calls and expected == "tool_calls"
    assert len(reply.calls) == bool(runs)
    assert ("tool_calls" in reply.message) == bool(runs)
    assert ("native" in reply.message) == bool(runs)


def test_a_refusal_is_its_own_text_and_reason() -> None:
    reply = decode(answer(content=None, refusal="I cannot."))
    assert (reply.text, reply.finish_reason, reply.message.get("content")) == ("I cannot.", "refusal", "I cannot.")
    deltas, streamed = stream(chunk(refusal="I "), chunk(refusal="cannot."), chunk("stop"))
    assert (deltas, streamed) == ([TextDelta("I "), TextDelta("cannot.")], reply)


def test_calls_get_ids_of_their_own_and_the_tools_own_names() -> None:
    reply = decode(answer(tool_calls=[call("", "x_1"), call("a"), call("a"), call("a_2"), call("")]), x_1="x.1")
    ids = [made.id for made in reply.calls]
    assert len(set(ids)) == 5
    assert all(ids)
    assert (ids[1], ids[3]) == ("a", "a_2")
    assert reply.calls[0].name == "x.1"
    assert [entry["id"] for entry in reply.message.get("tool_calls", ())] == ids


def test_a_call_keeps_its_raw_arguments_and_the_transcript_an_object() -> None:
    reply = decode(answer(tool_calls=[call("c1", arguments='{"a": '), call("c2", arguments="")]))
    assert [made.arguments for made in reply.calls] == ['{"a": ', ""]
    stored = [json.loads(entry["function"]["arguments"]) for entry in reply.message.get("tool_calls", ())]
    assert all(isinstance(arguments, dict) for arguments in stored)
    assert stored[1] == {}


def test_arguments_as_an_object_and_the_old_function_call_are_read() -> None:
    as_object = {"id": "c1", "function": {"name": "add", "arguments": {"a": 1}}}
    assert decode(answer(tool_calls=[as_object])).calls == (ToolCall(id="c1", name="add", arguments='{"a":1}'),)
    old = decode(answer("function_call", function_call={"name": "add", "arguments": "{}"}))
    assert [(made.name, made.arguments) for made in old.calls] == [("add", "{}")]
    _, streamed = stream(
        chunk(function_call={"name": "add", "arguments": ""}),
        chunk(function_call={"arguments": "{}"}),
        chunk("function_call"),
    )
    assert [(made.name, made.arguments) for made in streamed.calls] == [("add", "{}")]


def test_content_in_parts_is_text_and_reasoning_and_goes_back_as_it_came() -> None:
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "Hm. "}, {"type": "text", "text": "So."}]},
        {"type": "text", "text": "Hello."},
    ]
    reply = decode(answer(content=parts))
    assert (reply.text, reply.reasoning) == ("Hello.", "Hm. So.")
    assert encode(user("?"), reply.message)["messages"][1]["content"] == parts
    deltas, streamed = stream(
        chunk(content=""),
        chunk(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "Hm. "}]}]),
        chunk(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "So."}]}]),
        chunk(content="Hel"),
        chunk(content="lo."),
        chunk("stop"),
    )
    assert deltas == [ReasoningDelta("Hm. "), ReasoningDelta("So."), TextDelta("Hel"), TextDelta("lo.")]
    assert (streamed.text, streamed.reasoning) == (reply.text, reply.reasoning)
    assert streamed.message.get("native") == {
        "fields": {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm. So."}]}, parts[1]]}
    }


def test_reasoning_that_comes_in_two_fields_is_shown_once_and_both_go_back() -> None:
    details = [{"type": "reasoning.text", "text": "Hm.", "index": 0}]
    reply = decode(answer(content="Hi", reasoning="Hm.", reasoning_details=details))
    assert reply.reasoning == "Hm."
    assert reply.message.get("native") == {"fields": {"reasoning": "Hm.", "reasoning_details": details}}


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({"choices": None, "error": {"message": "no", "code": 429}}, "rate_limit"),
        ({"error": "no"}, "server"),
        ({"object": "error", "message": "no", "code": 404}, "not_found"),
        (answer("error", content="Ha"), "server"),
        (
            {"choices": [{"finish_reason": "error", "error": {"message": "no", "code": 503}, "message": {}}]},
            "overloaded",
        ),
        (answer("function_call_filter: MALFORMED_FUNCTION_CALL"), "malformed_tool_call"),
    ],
)
def test_an_error_in_an_answer_is_raised(body: dict[str, Any], kind: str) -> None:
    with pytest.raises(ProviderError) as caught:
        decode(body)
    assert caught.value.kind == kind
    with pytest.raises(ProviderError) as streamed:
        stream(body)
    assert streamed.value.kind == kind


@pytest.mark.parametrize(
    "body", [None, [], "text", {}, {"choices": []}, {"choices": [{}]}, {"choices": [{"text": "x"}]}]
)
def test_what_is_no_completion_is_an_invalid_reply(body: Any) -> None:
    with pytest.raises(InvalidReply):
        decode(body)


# Streams


@pytest.mark.parametrize("events", [[], ["[DONE]"], [chunk(content="Hi")], [{"choices": [], "usage": {}}, "[DONE]"]])
def test_a_stream_without_its_end_or_without_anything_is_incomplete(events: list[Any]) -> None:
    with pytest.raises(IncompleteReply):
        stream(*events)


def test_done_alone_is_an_end_and_ends_it_whatever_the_reason() -> None:
    _, reply = stream(chunk(content="Hi"), "[DONE]")
    assert (reply.text, reply.finish_reason) == ("Hi", "unknown")


@pytest.mark.parametrize("event", ["nonsense", '{"a": }', "[1]", "3", "null"])
def test_an_event_that_cannot_be_read_is_an_invalid_reply(event: str) -> None:
    with pytest.raises(InvalidReply) as caught:
        stream(chunk(content="Hi"), event)
    assert not isinstance(caught.value, IncompleteReply)


@pytest.mark.parametrize("cut", range(1, 60))
def test_an_event_that_was_cut_is_an_incomplete_reply(cut: int) -> None:
    whole = '{"choices":[{"index":0,"delta":{"content":"a \\"}{ b"},"x":[1]}]}'
    with pytest.raises(IncompleteReply):
        stream(whole[:cut])


def test_only_the_first_choice_is_read() -> None:
    other = {"index": 1, "delta": {"content": "other"}, "finish_reason": None}
    both = chunk(content="Hi")
    both["choices"].insert(0, other)
    deltas, reply = stream({"choices": [other]}, both, chunk("stop"))
    assert (deltas, reply.text) == ([TextDelta("Hi")], "Hi")


def test_a_whole_message_in_a_stream_is_read_but_not_twice() -> None:
    whole = {
        "choices": [{"index": 0, "message": {"content": "Hi", "tool_calls": [call("c1")]}, "finish_reason": "stop"}]
    }
    deltas, reply = stream(whole)
    assert (deltas, reply.text, len(reply.calls)) == ([TextDelta("Hi")], "Hi", 1)
    again = {"choices": [{"index": 0, "delta": {}, "message": {"content": "Hi"}, "finish_reason": "stop"}]}
    deltas, reply = stream(chunk(content="Hi"), again)
    assert (deltas, reply.text) == ([TextDelta("Hi")], "Hi")


def test_usage_is_taken_from_wherever_it_stands_and_the_last_one_counts() -> None:
    early, late = ({"prompt_tokens": 1, "completion_tokens": n, "total_tokens": 1 + n} for n in (1, 2))
    wanted = Usage(prompt=1, completion=2, total=3)
    assert (
        stream({**chunk(content="Hi"), "usage": early}, chunk("stop"), {"choices": [], "usage": late})[1].usage
        == wanted
    )
    assert stream({**chunk("stop"), "usage": late}, {"choices": [], "usage": None})[1].usage == wanted
    assert stream({**chunk("stop"), "x_groq": {"usage": late}})[1].usage == wanted
    in_choice = chunk("stop")
    in_choice["choices"][0]["usage"] = late
    assert stream(in_choice)[1].usage == wanted
    assert stream(chunk("stop"), {"choices": [], "usage": {"prompt_tokens": None}})[1].usage is None


def test_fragments_of_reasoning_details_become_one_block_each() -> None:
    def details(*fragments: dict[str, Any]) -> list[dict[str, Any]]:
        _, reply = stream(*(chunk(reasoning_details=[fragment]) for fragment in fragments), chunk("stop", content="x"))
        return reply.message["native"]["fields"]["reasoning_details"]  # type: ignore[typeddict-item]

    text, opaque = {"type": "reasoning.text"}, {"type": "reasoning.encrypted"}
    assert details(
        {**text, "index": 0, "text": "a"}, {**text, "index": 1, "text": "b"}, {**text, "index": 0, "text": "c"}
    ) == [
        {**text, "index": 0, "text": "ac"},
        {**text, "index": 1, "text": "b"},
    ]
    assert details({**text, "text": "a", "signature": None}, {**text, "text": "b"}, {**text, "signature": "s"}) == [
        {**text, "text": "ab", "signature": "s"}
    ]
    assert details({**opaque, "data": "a"}, {**opaque, "data": "b"}) == [
        {**opaque, "data": "a"},
        {**opaque, "data": "b"},
    ]
    assert details({**text, "index": 0, "text": "a"}, {**opaque, "index": 0, "data": "b"}) == [
        {**text, "index": 0, "text": "a"},
        {**opaque, "index": 0, "data": "b"},
    ]


@pytest.mark.parametrize(
    ("entries", "calls"),
    [
        pytest.param(
            [
                piece(0, "a", "f", ""),
                piece(1, "b", "g", ""),
                piece(0, args='{"x":'),
                piece(1, args="{}"),
                piece(0, args="1}"),
            ],
            [("a", "f", '{"x":1}'), ("b", "g", "{}")],
            id="interleaved by index",
        ),
        pytest.param(
            [piece(None, "a", "f", "{}"), piece(None, "b", "g", '{"x":'), piece(None, args="1}")],
            [("a", "f", "{}"), ("b", "g", '{"x":1}')],
            id="no index",
        ),
        pytest.param(
            [piece(0, "a", "f", "{"), piece(0, "b", "f", "{"), piece(0, "a", "f", "}"), piece(0, "b", "f", "}")],
            [("a", "f", "{}"), ("b", "f", "{}")],
            id="all index 0, ids repeated",
        ),
        pytest.param(
            [piece(0, "a", "f", '{"x'), piece(0, "z1", None, '":'), piece(0, "z2", None, "1}")],
            [("a", "f", '{"x":1}')],
            id="another id in each piece",
        ),
        pytest.param(
            [piece(0, "a", "f", "{}"), piece(1, "a", "g", "{}")],
            [("a", "f", "{}"), ("a_1", "g", "{}")],
            id="one id for two indexes",
        ),
        pytest.param(
            [piece(0, None, "f", '{"x":1}'), piece(0, None, "f", '{"x":2}')],
            [("call_0", "f", '{"x":1}'), ("call_1", "f", '{"x":2}')],
            id="no ids, all index 0",
        ),
        pytest.param(
            [piece(None, None, "f", '{"x":'), piece(None, None, "f", "1}"), piece(None, None, "g", "{}")],
            [("call_0", "f", '{"x":1}'), ("call_1", "g", "{}")],
            id="neither ids nor indexes, names repeated",
        ),
        pytest.param(
            [piece(0, "", "f"), piece(0, "a", ""), piece(0, "", "", "{}")],
            [("a", "f", "{}")],
            id="the id comes late",
        ),
        pytest.param(
            [piece(0, "a", "tea_"), piece(0, None, "stock"), piece(0, args="{}")],
            [("a", "tea_stock", "{}")],
            id="the name in pieces",
        ),
        pytest.param(
            [piece(0, "a", "tea"), piece(0, "a", "tea_stock", "{}")],
            [("a", "tea_stock", "{}")],
            id="the name grows",
        ),
        pytest.param(
            [piece(0, "a", "f", {"x": 1})],
            [("a", "f", '{"x":1}')],
            id="arguments as an object",
        ),
        pytest.param(
            [piece(0, "a", "f", '{"x":'), piece(1, args="1}")],
            [("a", "f", '{"x":1}')],
            id="an index that nobody opened",
        ),
        pytest.param([{}, {"index": 0}, piece(0, "a", "f", "{}")], [("a", "f", "{}")], id="empty elements"),
    ],
)
def test_calls_are_put_together_whatever_tells_them_apart(
    entries: list[dict[str, Any]], calls: list[tuple[str, str, str]]
) -> None:
    assert pieces(*entries) == [ToolCall(id=i, name=n, arguments=a) for i, n, a in calls]


def test_many_calls_cost_what_they_are_many() -> None:
    began = time.process_time()
    calls = pieces(*(piece(n, id=f"c{n}", name="f", args="{}") for n in range(30_000)))
    assert len(calls) == 30_000
    assert time.process_time() - began < 4, "it took more than ten times as long when each one looked at all others"
