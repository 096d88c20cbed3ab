"""OpenAI's Responses: what is sent, and what answers mean."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from wire_rules import check_responses

from toolnexus.dialects import Reading, Reply, Request, ResponseSchema, Target
from toolnexus.dialects.responses import Responses
from toolnexus.errors import IncompleteReply, InvalidReply, ProviderError
from toolnexus.events import Delta, ReasoningDelta, TextDelta, Usage
from toolnexus.providers import PROVIDERS
from toolnexus.tools import Tool, ToolCall

HOST = "https://api.openai.com"
TARGET = Target(style="responses", host=HOST, provider=PROVIDERS["openai"])
ORIGIN = {"style": "responses", "model": "m", "host": HOST}
PIXEL = "data:image/png;base64,iVBORw0KGgo="
IMAGE = {"type": "image_url", "image_url": {"url": PIXEL}}
SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "tide"}}


def encode(*messages: Mapping[str, Any], model: str = "m", **request: Any) -> dict[str, Any]:
    body = Responses().encoder(TARGET).encode(Request(model=model, messages=list(messages), **request))  # type: ignore[arg-type]
    check_responses(body)
    return body


def sent(*messages: Mapping[str, Any], **request: Any) -> list[Any]:
    return encode(*messages, **request)["input"]


def user(said: Any) -> dict[str, Any]:
    return {"role": "user", "content": said}


def item(said: Any, role: str = "user") -> dict[str, Any]:
    return {"type": "message", "role": role, "content": said}


def call(call_id: str, name: str = "add", arguments: str = "{}") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def calling(*ids: str, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [call(call_id) for call_id in ids], **fields}


def result(call_id: str, content: Any = "4", **fields: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content, **fields}


def native(said: str, *items: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": said, "origin": ORIGIN, "native": {"output": list(items)}, **fields}


def use(call_id: str, arguments: str = "{}", name: str = "add", **fields: Any) -> dict[str, Any]:
    return {"type": "function_call", **fields, "call_id": call_id, "name": name, "arguments": arguments}


def output(call_id: str, said: Any = "4") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": said}


def thought(number: int, **fields: Any) -> dict[str, Any]:
    return {"type": "reasoning", "id": f"rs_{number}", "summary": [], **fields}


def message(said: str, number: int = 1, **fields: Any) -> dict[str, Any]:
    parts = [{"type": "output_text", "text": said, "annotations": []}]
    base = {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed", "content": parts}
    return {**base, **fields}


def answer(*items: Any, status: Any = "completed", **fields: Any) -> dict[str, Any]:
    base = {"id": "resp_1", "object": "response", "status": status, "model": "gpt", "error": None}
    return {**base, "output": list(items), **fields}


def decode(body: Any, **names: str) -> Reply:
    return Responses().decode(body, Reading(target=TARGET, model="m", names=names))


def stream(*events: Any) -> tuple[list[Delta], Reply]:
    decoder = Responses().decoder(Reading(target=TARGET, model="m"))
    payloads = [event if isinstance(event, str) else json.dumps(event) for event in events]
    deltas = [delta for payload in payloads for delta in decoder.feed(payload)]
    return deltas, decoder.finish()


def event(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", **fields}


def ended(*items: Any, status: str = "completed", **fields: Any) -> dict[str, Any]:
    return event(status, response=answer(*items, status=status, **fields))


def added(index: int, opened: Any) -> dict[str, Any]:
    return event("output_item.added", output_index=index, item=opened)


def done(index: int, whole: Any) -> dict[str, Any]:
    return event("output_item.done", output_index=index, item=whole)


def piece(kind: str, text: str, index: int = 0, **fields: Any) -> dict[str, Any]:
    return event(f"{kind}.delta", output_index=index, delta=text, **fields)


# Requests


def test_nothing_is_sent_that_was_not_asked_for() -> None:
    assert encode(user("Hi")) == {"model": "m", "input": [item("Hi")]}
    assert encode(user("Hi"), stream=True)["stream"] is True
    assert encode(user("Hi"), max_tokens=7)["max_output_tokens"] == 7
    assert encode(user("Hi"), max_tokens=7, params={"max_output_tokens": 9})["max_output_tokens"] == 9


def test_the_system_prompt_is_the_instructions_and_a_later_one_stays_where_it_was_said() -> None:
    stored = {"role": "system", "content": [{"type": "text", "text": "Stored."}]}
    late = {"role": "system", "content": "Late."}
    body = encode(stored, user("Hi"), late, system="Composed.")
    assert body["instructions"] == "Composed.\n\nStored."
    assert body["input"] == [item("Hi"), item("Late.", role="system")]


def test_tools_are_flat_and_their_schemas_are_meant_as_they_are() -> None:
    tools = [
        Tool(name="a.b", description="Does it", input_schema={"anyOf": [{"type": "object"}]}, execute=print),
        Tool(name="plain", execute=print),
    ]
    first, second = encode(user("?"), tools=tools)["tools"]
    assert (first["type"], first["description"], first["parameters"]["type"]) == ("function", "Does it", "object")
    empty = {"type": "object", "properties": {}}
    assert second == {"type": "function", "name": "plain", "parameters": empty, "strict": False}
    reading = Responses().encoder(TARGET).reading(Request(model="m", messages=[], tools=tools))
    assert reading.names == {first["name"]: "a.b"}


def test_parameters_come_last_and_their_tools_after_ours() -> None:
    params = {"temperature": 0, "input": "mine", "tools": [{"type": "web_search"}], "include": ["x"]}
    body = encode(user("?"), tools=[Tool(name="add", execute=print)], params=params)
    assert (body["temperature"], body["input"], body["include"]) == (0, [item("?")], ["x"])
    assert [tool["type"] for tool in body["tools"]] == ["function", "web_search"]
    assert "tool_choice" not in encode(user("?"), params={"tool_choice": "auto"})


def test_an_answer_of_a_schema_is_asked_for_beside_what_the_caller_says_of_texts() -> None:
    schema = ResponseSchema(name="tide", schema={"type": "object"})
    wanted = {"type": "json_schema", "name": "tide", "schema": {"type": "object"}}
    assert encode(user("?"), response_schema=schema)["text"] == {"format": wanted}
    body = encode(user("?"), response_schema=schema, params={"text": {"verbosity": "low"}})
    assert body["text"] == {"format": wanted, "verbosity": "low"}


@pytest.mark.parametrize(
    ("part", "wire"),
    [
        ({"type": "text", "text": "Hi"}, {"type": "input_text", "text": "Hi"}),
        (IMAGE, {"type": "input_image", "image_url": PIXEL, "detail": "auto"}),
        (
            {"type": "image_url", "image_url": {"url": "https://a.test/a.png", "detail": "low"}},
            {"type": "input_image", "image_url": "https://a.test/a.png", "detail": "low"},
        ),
        (
            {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0="}},
            {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0="},
        ),
        (
            {"type": "file", "file": {"file_data": "data:application/pdf;base64,JVBERi0="}},
            {"type": "input_file", "filename": "file", "file_data": "data:application/pdf;base64,JVBERi0="},
        ),
        (
            {"type": "file", "file": {"file_url": "https://a.test/a.pdf"}},
            {"type": "input_file", "file_url": "https://a.test/a.pdf"},
        ),
        ({"type": "file", "file": {"file_id": "file-1"}}, {"type": "input_file", "file_id": "file-1"}),
    ],
)
def test_parts_are_named_as_the_wire_names_them(part: dict[str, Any], wire: dict[str, Any]) -> None:
    assert sent(user([part, {"type": "text", "text": " "}])) == [item([wire])]


def test_a_part_that_it_cannot_take_is_named() -> None:
    (said,) = sent(user([{"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}]))
    assert "audio" in said["content"][0]["text"]


def test_calls_and_results_are_items_of_their_own_in_call_order() -> None:
    step = [calling("c1", "c2", content="Both."), result("c2", "7"), result("c1", "", is_error=True)]
    assert sent(user("?"), *step, user(" "))[1:] == [
        item("Both.", role="assistant"),
        use("c1"),
        use("c2"),
        output("c1", "(no output)"),
        output("c2", "7"),
    ]


def test_a_result_with_an_image_is_a_list() -> None:
    parts = [{"type": "text", "text": "cam"}, IMAGE]
    image = {"type": "input_image", "image_url": PIXEL, "detail": "auto"}
    step = [calling("c1", "c2"), result("c1", parts), result("c2", parts[:1])]
    assert sent(user("?"), *step)[-2:] == [
        output("c1", [{"type": "input_text", "text": "cam"}, image]),
        output("c2", "cam"),
    ]


def test_call_ids_are_short_plain_and_unique_in_the_whole_conversation() -> None:
    step = [calling("c" * 65, "c.1", "ok"), result("c" * 65), result("c.1"), result("ok")]
    items = sent(user("?"), *step, user("?"), *step)
    used = [each["call_id"] for each in items if each["type"] == "function_call"]
    assert len(set(used)) == 6
    assert used[2] == "ok"


# The items of a reply, sent back


def test_items_go_back_as_they_came_and_in_their_order() -> None:
    own = [
        thought(1, encrypted_content="c2ln"),
        message("Looking.", phase="commentary"),
        use("c1", '{"a": 1}', id="fc_1", status="completed"),
        thought(2, encrypted_content="c2ln"),
        SEARCH,
        use("c2", id="fc_2", status="completed"),
    ]
    said = native("Looking.", *own, tool_calls=[call("c1", arguments='{"a": 1}'), call("c2")])
    items = sent(user("?"), said, result("c1"), result("c2"))
    assert json.dumps(items[1:7]) == json.dumps(
        [{key: each[key] for key in original} for each, original in zip(items[1:7], own, strict=True)]
    )
    assert items[1:] == [*own, output("c1"), output("c2")]


def test_null_keys_and_ids_that_are_none_of_calls_are_left_out() -> None:
    own = [thought(1, content=None, status=None), use("c1", id="item_7", namespace=None)]
    items = sent(user("?"), native("", *own, tool_calls=[call("c1")]), result("c1"))
    assert items[1:] == [thought(1), use("c1"), output("c1")]


def test_changed_ids_and_names_are_those_of_the_results() -> None:
    own = native("", thought(1), use("c.1", name="a_b", id="fc_1"), tool_calls=[call("c.1", "a.b")])
    back, answered = sent(user("?"), own, result("c.1"))[2:]
    assert back["call_id"] == answered["call_id"] != "c.1"
    assert back["name"] not in {"a.b", "a_b"}


PLAIN = item("Hi", role="assistant")
REASONED = native("Hi", thought(1), message("Hi"))


@pytest.mark.parametrize(
    "said",
    [
        {**REASONED, "origin": {**ORIGIN, "host": "https://other.example.test"}},
        {**REASONED, "origin": {**ORIGIN, "style": "openai"}},
        {**REASONED, "origin": {**ORIGIN, "model": "another"}},
        {**REASONED, "content": "Edited", "native": {"output": [thought(1), message("Hi")]}},
        native("Hi", thought(1), message("Hi"), use("c1")),
        native("Hi", thought(1), thought(1), message("Hi")),
        native("Hi", thought(1), message("Hi"), {"type": "computer_call", "id": "cu_1", "call_id": "call_1"}),
        {"role": "assistant", "content": "Hi", "native": {"output": [thought(1), message("Hi")]}},
        {"role": "assistant", "content": "Hi", "origin": ORIGIN, "native": "nonsense"},
    ],
)
def test_items_of_others_or_that_no_longer_fit_are_sent_as_plain_text(said: dict[str, Any]) -> None:
    assert sent(user("?"), said, user("?"))[1] == item(said["content"], role="assistant")


def test_reasoning_of_another_model_goes_back_when_that_model_is_asked_again() -> None:
    encoder = Responses().encoder(TARGET)
    messages: list[Any] = [user("?"), REASONED, user("?")]
    bodies = [encoder.encode(Request(model=model, messages=messages)) for model in ("m", "other", "m")]
    assert [body["input"][1]["type"] for body in bodies] == ["reasoning", "message", "reasoning"]
    assert bodies[1]["input"][1] == PLAIN
    assert bodies[0]["input"] == bodies[2]["input"]


@pytest.mark.parametrize(
    ("reasoning", "kept"),
    [
        (thought(1), False),
        (thought(1, encrypted_content="c2ln"), True),
        (thought(1, content=[{"type": "reasoning_text", "text": "Hm."}]), True),
    ],
)
def test_what_is_not_stored_goes_back_only_if_it_holds_itself(reasoning: dict[str, Any], kept: bool) -> None:
    own = [reasoning, use("c1", id="fc_1")]
    step = [native("", *own, tool_calls=[call("c1")]), result("c1")]
    assert sent(user("?"), *step)[1:3] == own, "by default it is stored, and found by its id"
    expected = own if kept else [use("c1")]
    assert sent(user("?"), *step, params={"store": False})[1:-1] == expected


def test_an_item_stands_in_a_conversation_once() -> None:
    items = sent(user("a"), REASONED, user("b"), REASONED, user("c"))
    assert items[1:3] == [thought(1), message("Hi")]
    assert items[4] == PLAIN


def test_reasoning_that_led_to_nothing_and_blank_messages_are_left_out() -> None:
    assert sent(user("a"), native("Hi", thought(1), message("Hi"), thought(2)), user("b"))[1:3] == [
        thought(1),
        message("Hi"),
    ]
    assert sent(user("a"), native("", thought(1), message("")), user("b")) == [item("a"), item("b")]


def test_a_call_of_a_custom_tool_gets_an_answer() -> None:
    custom = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_c", "name": "sql", "input": "select 1"}
    items = sent(user("?"), native("", thought(1), custom, use("c1"), tool_calls=[call("c1")]), result("c1"))
    assert items[2] == custom
    assert items[4]["type"] == "custom_tool_call_output"
    assert items[4]["call_id"] == "call_c"
    answered = {"type": "custom_tool_call_output", "call_id": "call_c", "output": "1"}
    assert sent(user("?"), native("", custom, answered), user("!"))[1:3] == [custom, answered]


def test_a_body_that_was_given_out_does_not_change() -> None:
    encoder = Responses().encoder(TARGET)
    messages: list[Any] = [user("a")]
    request = Request(model="m", messages=messages)
    first = encoder.encode(request)
    messages += [REASONED, user("b")]
    assert len(encoder.encode(request)["input"]) == 4
    assert first["input"] == [item("a")]


# Answers


def test_a_plain_answer_is_read() -> None:
    usage = {
        "input_tokens": 18,
        "input_tokens_details": {"cached_tokens": 10},
        "output_tokens": 6,
        "output_tokens_details": {"reasoning_tokens": 4},
        "total_tokens": 24,
    }
    body = answer(message("Hello."), use("c1", '{"a": 1}', name="x_1", id="fc_1", status="completed"), usage=usage)
    assert decode(body, x_1="x.1") == Reply(
        message={
            "role": "assistant",
            "content": "Hello.",
            "tool_calls": [call("c1", "x.1", '{"a": 1}')],  # type: ignore[list-item]
            "origin": ORIGIN,  # type: ignore[typeddict-item]
        },
        text="Hello.",
        calls=(ToolCall(id="c1", name="x.1", arguments='{"a": 1}'),),
        finish_reason="tool_calls",
        usage=Usage(prompt=18, completion=6, total=24, cached=10, reasoning=4),
        model="gpt",
    )


@pytest.mark.parametrize("usage", [None, {}, [], {"input_tokens": None, "input_tokens_details": None}])
def test_usage_that_says_nothing_is_none(usage: Any) -> None:
    assert decode(answer(message("Hi"), usage=usage)).usage is None


def test_reasoning_is_shown_and_kept() -> None:
    summary = [{"type": "summary_text", "text": "First. "}, {"type": "summary_text", "text": "Then."}]
    items = [
        thought(1, summary=summary),
        thought(2, content=[{"type": "reasoning_text", "text": " Hm."}]),
        message("So."),
    ]
    reply = decode(answer(*items))
    assert (reply.reasoning, reply.text) == ("First. Then. Hm.", "So.")
    assert reply.message.get("native") == {"output": items}


@pytest.mark.parametrize(
    ("items", "kept"),
    [
        ([message("Hi")], False),
        ([message("Hi", phase=None)], False),
        ([message("Hi", phase="final_answer")], True),
        ([use("c1", id="fc_1", status="completed"), use("c2")], False),
        ([use("c1", namespace="crm")], True),
        ([use("c1"), message("Hi")], True),
        ([message("Hi"), message(" there", 2)], True),
        ([message("Hi", content=[{"type": "output_text", "text": "Hi", "annotations": [{"url": "x"}]}])], True),
        ([SEARCH, message("Hi")], True),
        ([{"type": "something_new"}], True),
    ],
)
def test_items_are_kept_when_there_is_more_to_them_than_text_and_calls(items: list[Any], kept: bool) -> None:
    assert decode(answer(*items)).message.get("native") == ({"output": items} if kept else None)


def test_reasoning_that_was_not_stored_and_not_told_is_not_kept() -> None:
    assert "native" not in decode(answer(thought(1), message("Hi"), store=False)).message
    assert "native" in decode(answer(thought(1, encrypted_content="c2ln"), message("Hi"), store=False)).message


@pytest.mark.parametrize(
    ("status", "details", "expected"),
    [
        ("completed", None, "stop"),
        ("incomplete", {"reason": "max_output_tokens"}, "length"),
        ("incomplete", {"reason": "content_filter"}, "content_filter"),
        ("incomplete", {"reason": "something_new"}, "length"),
        ("incomplete", None, "length"),
        ("something_new", None, "unknown"),
        (None, None, "unknown"),
    ],
)
def test_a_reply_that_is_incomplete_has_no_calls(status: Any, details: Any, expected: str) -> None:
    items = [thought(1), message("Hi"), thought(2), use("c1", '{"a": ')]
    reply = decode(answer(*items[:2], status=status, incomplete_details=details))
    assert reply.finish_reason == expected
    calling_reply = decode(answer(*items, status=status, incomplete_details=details))
    if status == "incomplete":
        assert (calling_reply.finish_reason, calling_reply.calls) == (expected, ())
        assert calling_reply.message.get("native") == {"output": items[:2]}
    else:
        assert (calling_reply.finish_reason, len(calling_reply.calls)) == ("tool_calls", 1)


def test_a_call_that_is_incomplete_is_not_run() -> None:
    reply = decode(answer(message("Hi"), use("c1", '{"a": 1}', status="incomplete")))
    assert (reply.finish_reason, reply.calls) == ("length", ())


def test_a_refusal_is_said_and_sent_back() -> None:
    refused = message("", content=[{"type": "refusal", "refusal": "I won't."}])
    reply = decode(answer(thought(1), refused))
    assert (reply.finish_reason, reply.text) == ("refusal", "I won't.")
    assert sent(user("?"), reply.message, user("?"))[1:3] == [thought(1), refused]


def test_own_tools_of_the_provider_are_not_run_here() -> None:
    kinds = ("code_interpreter_call", "mcp_call", "computer_call", "custom_tool_call", "image_generation_call")
    reply = decode(
        answer(*({"type": kind, "id": kind, "name": "add", "call_id": "x"} for kind in kinds), message("Hi"))
    )
    assert (reply.calls, reply.text) == ((), "Hi")


@pytest.mark.parametrize(
    ("body", "kind", "retryable"),
    [
        (answer(status="failed", error={"code": "rate_limit_exceeded", "message": "slow down"}), "rate_limit", True),
        (answer(status="failed", error={"code": "server_error", "message": "oops"}), "server", True),
        (answer(status="failed", error={"code": "invalid_image_url", "message": "no image"}), "bad_request", False),
        (answer(status="failed", error={"code": "bio_policy", "message": "no"}), "content_filter", False),
        (answer(status="failed"), "server", True),
        (answer(status="cancelled"), "server", True),
        (
            {"error": {"message": "The context window is exceeded", "code": "context_length_exceeded"}},
            "context_length",
            False,
        ),
    ],
)
def test_a_failed_response_is_the_error_that_it_names(body: Any, kind: str, retryable: bool) -> None:
    with pytest.raises(ProviderError) as caught:
        decode(body)
    assert (caught.value.kind, caught.value.retryable) == (kind, retryable)
    with pytest.raises(ProviderError) as caught:
        stream(piece("output_text", "Half"), event("failed", response={"status": "failed", **body}))
    assert caught.value.kind == kind


@pytest.mark.parametrize("body", [None, [], {}, {"output": "Hi"}, {"choices": []}, answer(status="queued")])
def test_what_is_no_response_is_said_to_be_none(body: Any) -> None:
    with pytest.raises(InvalidReply):
        decode(body)


# Streams

OPENED = use("call_1", "", id="fc_1", status="in_progress")
WHOLE = use("call_1", '{"a": 1}', id="fc_1", status="completed")


def arguments(text: str, index: int = 0, **fields: Any) -> dict[str, Any]:
    return piece("function_call_arguments", text, index, **fields)


def test_a_call_that_is_announced_three_times_is_one_call() -> None:
    whole = event("function_call_arguments.done", output_index=0, item_id="fc_1", arguments='{"a": 1}')
    pieces = [arguments('{"a"', item_id="fc_1"), arguments(": 1}", item_id="fc_1"), whole]
    deltas, reply = stream(added(0, OPENED), *pieces, done(0, WHOLE), done(0, WHOLE), ended(WHOLE), "[DONE]")
    assert deltas == []
    assert reply.calls == (ToolCall(id="call_1", name="add", arguments='{"a": 1}'),)
    assert reply == decode(answer(WHOLE))


@pytest.mark.parametrize(
    "events",
    [
        [added(0, OPENED), arguments('{"a": 1}'), ended()],
        [added(0, OPENED), event("function_call_arguments.done", output_index=0, arguments='{"a": 1}'), ended()],
        [added(0, OPENED), done(0, WHOLE), ended()],
        [done(0, WHOLE), ended()],
        [done(0, WHOLE), event("completed")],
        [added(0, OPENED), ended(WHOLE)],
        [ended(WHOLE)],
        [added(0, WHOLE), arguments('{"a": 1}'), done(0, OPENED), ended(OPENED)],
        [added(0, OPENED), arguments('{"a": 1}', item_id="other"), done(0, {**WHOLE, "id": "another"}), ended()],
        [added(0, OPENED), done(0, WHOLE), ended({**WHOLE, "id": "fc_9"})],
        [{**added(0, OPENED), "output_index": None}, {**arguments('{"a": 1}'), "output_index": None}, ended()],
        [arguments('{"a": 1}'), done(0, WHOLE), arguments('{"a": 1}'), ended()],
        [added(0, OPENED), added(0, OPENED), done(0, WHOLE), added(0, OPENED), ended()],
    ],
)
def test_a_call_is_found_wherever_it_is_told(events: list[Any]) -> None:
    _, reply = stream(*events)
    assert reply.calls == (ToolCall(id="call_1", name="add", arguments='{"a": 1}'),)


@pytest.mark.parametrize("index", [(0, 1), (0, 0), (None, None)])
@pytest.mark.parametrize("ids", [("fc_1", "fc_2"), ("", ""), ("fc_1", "fc_1")])
@pytest.mark.parametrize("told", [False, True])
def test_calls_at_once_stay_apart(index: Any, ids: Any, told: bool) -> None:
    calls = [use(f"call_{n}", f'{{"n": {n}}}', id=ids[n]) for n in (0, 1)]
    events: list[Any] = []
    for at, each in zip(index, calls, strict=True):
        events += [added(at, {**each, "arguments": ""}), arguments(each["arguments"], at, item_id=each["id"])]
        events.append(done(at, each))
    _, reply = stream(*events, ended(*calls) if told else ended())
    assert [(made.id, made.arguments) for made in reply.calls] == [("call_0", '{"n": 0}'), ("call_1", '{"n": 1}')]


def test_pieces_of_calls_at_once_may_come_in_turn() -> None:
    opened = [added(n, use(f"call_{n}", "", id=f"fc_{n}")) for n in (0, 1)]
    pieces = [arguments('{"n"', 0), arguments('{"n"', 1), arguments(": 0}", 0), arguments(": 1}", 1)]
    _, reply = stream(*opened, *pieces, ended())
    assert [made.arguments for made in reply.calls] == ['{"n": 0}', '{"n": 1}']


def test_texts_are_shown_as_they_come_and_once() -> None:
    deltas, reply = stream(
        event("created", response=answer(status="in_progress")),
        added(0, thought(1)),
        piece("reasoning_summary_text", "Hm.", summary_index=0),
        event("reasoning_summary_text.done", output_index=0, summary_index=0, text="Hm."),
        done(0, thought(1, summary=[{"type": "summary_text", "text": "Hm."}])),
        added(1, message("", content=[])),
        piece("output_text", "Hel", 1),
        event("something.new", output_index=1),
        piece("output_text", "lo", 1),
        event("output_text.done", output_index=1, text="Hello"),
        done(1, message("Hello")),
        event("output_text.done", output_index=1, text="Hello"),
        ended(thought(1, summary=[{"type": "summary_text", "text": "Hm."}]), message("Hello")),
    )
    assert deltas == [ReasoningDelta("Hm."), TextDelta("Hel"), TextDelta("lo")]
    assert (reply.text, reply.reasoning, reply.model) == ("Hello", "Hm.", "gpt")


@pytest.mark.parametrize(
    "events",
    [
        [event("output_text.done", output_index=0, text="Hello"), ended()],
        [done(0, message("Hello")), ended()],
        [ended(message("Hello"))],
        [piece("output_text", "Hello"), ended()],
        [piece("output_text", "Hel"), ended(message("Hello"))],
        [piece("output_text", "Hello"), added(0, message("", content=[])), done(0, message("Hello")), ended()],
    ],
)
def test_a_text_is_shown_wherever_it_is_told(events: list[Any]) -> None:
    deltas, reply = stream(*events)
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == reply.text == "Hello"


def test_items_that_only_the_stream_told_keep_their_place() -> None:
    reasoning = thought(1, encrypted_content="c2ln")
    _, reply = stream(added(0, thought(1, encrypted_content="c2")), done(0, reasoning), ended(WHOLE))
    assert reply.message.get("native") == {"output": [reasoning, WHOLE]}


def test_a_stream_without_its_end_is_no_reply() -> None:
    for events in ([], [done(0, WHOLE)], [done(0, WHOLE), "[DONE]"], [event("created", response=answer())]):
        with pytest.raises(IncompleteReply):
            stream(*events)


@pytest.mark.parametrize(
    "said",
    [
        {"type": "error", "code": "rate_limit_exceeded", "message": "slow down", "param": None},
        {"type": "error", "error": {"type": "tokens", "code": "rate_limit_exceeded", "message": "slow down"}},
        {"error": {"message": "Rate limit reached"}},
        {"message": "Too many requests", "code": 429},
    ],
)
def test_an_error_in_a_stream_is_the_error_that_it_names(said: Any) -> None:
    with pytest.raises(ProviderError) as caught:
        stream(piece("output_text", "Half"), said)
    assert caught.value.kind == "rate_limit"


def test_a_stream_that_ends_incomplete_runs_nothing() -> None:
    _, reply = stream(added(0, OPENED), arguments('{"a": '), ended(WHOLE, status="incomplete"))
    assert (reply.finish_reason, reply.calls) == ("length", ())


@pytest.mark.parametrize("status", ["failed", "completed", "odd", None])
def test_a_stream_that_ends_in_failure_is_an_error_whatever_its_status(status: Any) -> None:
    told = {"code": "rate_limit_exceeded", "message": "slow down"}
    with pytest.raises(ProviderError) as caught:
        stream(event("failed", response=answer(WHOLE, status=status, error=told)))
    assert caught.value.kind == "rate_limit"
    _, reply = stream(event("incomplete", response=answer(WHOLE, status=status if status != "failed" else None)))
    assert (reply.finish_reason, reply.calls) == ("length", ())


@pytest.mark.parametrize(("status", "finish"), [(None, "stop"), ("in_progress", "stop"), ("incomplete", "length")])
def test_the_end_counts_where_the_status_was_forgotten(status: Any, finish: str) -> None:
    _, reply = stream(event("completed", response=answer(message("Hi"), status=status)))
    assert reply.finish_reason == finish
