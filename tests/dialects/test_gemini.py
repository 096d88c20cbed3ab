"""Gemini's generateContent: what is sent, and what answers mean."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from wire_rules import check_gemini

from toolnexus import create_client
from toolnexus.dialects import Reading, Reply, Request, ResponseSchema, Target
from toolnexus.dialects.gemini import Gemini
from toolnexus.errors import IncompleteReply, InvalidReply, ProviderError
from toolnexus.events import Delta, ReasoningDelta, TextDelta, Usage
from toolnexus.providers import PROVIDERS, UNKNOWN
from toolnexus.testing import ScriptedTransport
from toolnexus.tools import Tool, ToolCall
from toolnexus.transport import Response

HOST = "https://generativelanguage.googleapis.com"
TARGET = Target(style="gemini", host=HOST, provider=PROVIDERS["gemini"])
ORIGIN = {"style": "gemini", "model": "asked", "host": HOST}
OLD, NEW = "gemini-2.5-flash", "gemini-3-pro"
DUMMY = "skip_thought_signature_validator"
PIXEL = "iVBORw0KGgo="
IMAGE = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
IMAGE_PART = {"inlineData": {"mimeType": "image/png", "data": PIXEL}}
BEGINNING = {"role": "user", "parts": [{"text": "(The beginning of this conversation is left out.)"}]}


def encode(*messages: Mapping[str, Any], to: Target = TARGET, model: str = OLD, **request: Any) -> dict[str, Any]:
    body = Gemini().encoder(to).encode(Request(model=model, messages=list(messages), **request))  # type: ignore[arg-type]
    check_gemini(body, model=model)
    return body


def sent(*messages: Mapping[str, Any], **request: Any) -> list[Any]:
    """Role and parts of each content."""
    return [(content["role"], content["parts"]) for content in encode(*messages, **request)["contents"]]


def user(said: Any) -> dict[str, Any]:
    return {"role": "user", "content": said}


def assistant(said: str, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": said, **fields}


def native(said: str, *parts: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return assistant(said, origin=ORIGIN, native={"parts": list(parts)}, **fields)


def call(call_id: str, name: str = "add", arguments: str = "{}") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def calling(*ids: str) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [call(call_id) for call_id in ids]}


def result(call_id: str, content: Any = "4", **fields: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content, **fields}


def use(name: str = "add", call_id: str | None = None, **arguments: Any) -> dict[str, Any]:
    return {"functionCall": {**({"id": call_id} if call_id else {}), "name": name, "args": arguments}}


def response(value: Any, name: str = "add", **fields: Any) -> dict[str, Any]:
    return {"functionResponse": {**fields, "name": name, "response": value}}


def answer(*parts: dict[str, Any], finish: str | None = "STOP", **more: Any) -> dict[str, Any]:
    candidate = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    return {"candidates": [{**candidate, **({"finishReason": finish} if finish else {})}], **more}


def decode(body: Any, **names: str) -> Reply:
    return Gemini().decode(body, Reading(target=TARGET, model="asked", names=names))


def stream(*events: Any) -> tuple[list[Delta], Reply]:
    decoder = Gemini().decoder(Reading(target=TARGET, model="asked"))
    payloads = [event if isinstance(event, str) else json.dumps(event) for event in events]
    deltas = [delta for payload in payloads for delta in decoder.feed(payload)]
    return deltas, decoder.finish()


# Requests


def test_the_model_and_the_framing_are_not_in_the_body_and_nothing_is_sent_that_was_not_asked_for() -> None:
    assert encode(user("Hi"), stream=True) == {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]}


def test_all_system_texts_are_the_system_instruction() -> None:
    body = encode({"role": "system", "content": "One."}, user("Hi"), {"role": "system", "content": "Two."}, system="S.")
    assert body["systemInstruction"] == {"parts": [{"text": "S.\n\nOne.\n\nTwo."}]}
    assert len(body["contents"]) == 1


def test_neighbours_of_one_role_become_one_content() -> None:
    assert sent(user("a"), user("b"), assistant("c"), assistant("d"), user("e")) == [
        ("user", [{"text": "a"}, {"text": "b"}]),
        ("model", [{"text": "c"}, {"text": "d"}]),
        ("user", [{"text": "e"}]),
    ]


def test_a_history_that_begins_with_the_model_gets_a_user_before_it() -> None:
    assert encode(assistant("Hi"), user("Ho"))["contents"][0] == BEGINNING


def test_blank_texts_are_left_out_but_calls_and_results_stay() -> None:
    assert sent(user(" "), user([{"type": "text", "text": ""}]), assistant("\n"), user("a")) == [
        ("user", [{"text": "a"}])
    ]
    assert sent(user("a"), calling("x"), result("x", " ")) == [
        ("user", [{"text": "a"}]),
        ("model", [use()]),
        ("user", [response({"output": "(no output)"})]),
    ]


def test_results_come_first_in_call_order_under_the_names_of_their_calls() -> None:
    message = {"role": "assistant", "tool_calls": [call("x", "add", '{"a": 1}'), call("y", "look")]}
    assert sent(user("?"), message, result("y", "b"), result("x", "a"), user("Well?"))[1:] == [
        ("model", [use(a=1), use("look")]),
        ("user", [response({"output": "a"}), response({"output": "b"}, "look"), {"text": "Well?"}]),
    ]


@pytest.mark.parametrize(
    ("content", "fields", "expected"),
    [
        ("4", {}, {"output": "4"}),
        ('{"tins": 4}', {}, {"tins": 4}),
        (' {"a": {"b": [1.5, null]}}', {}, {"a": {"b": [1.5, None]}}),
        ("{}", {}, {}),
        ("[1]", {}, {"output": "[1]"}),
        ("{not json}", {}, {"output": "{not json}"}),
        ('{"id": 9007199254740993}', {}, {"output": '{"id": 9007199254740993}'}),
        ('{"ids": [{"id": -9007199254740993}]}', {}, {"output": '{"ids": [{"id": -9007199254740993}]}'}),
        ('{"a":' * 99 + "1" + "}" * 99, {}, {"output": '{"a":' * 99 + "1" + "}" * 99}),
        ('{"a":' * 1000 + "1" + "}" * 1000, {}, {"output": '{"a":' * 1000 + "1" + "}" * 1000}),
        ("gone", {"is_error": True}, {"error": "gone"}),
        ('{"a": 1}', {"is_error": True}, {"error": '{"a": 1}'}),
        ("", {"is_error": True}, {"error": "(no output)"}),
    ],
)
def test_a_result_is_an_object(content: str, fields: Any, expected: Any) -> None:
    assert sent(user("?"), calling("x"), result("x", content, **fields))[2] == ("user", [response(expected)])


def test_media_of_results_come_after_all_results() -> None:
    look = {"role": "assistant", "tool_calls": [call("x", "look"), call("y", "add")]}
    seen = [{"type": "text", "text": "north"}, IMAGE]
    assert sent(user("?"), look, result("x", seen), result("y", [IMAGE]))[2] == (
        "user",
        [
            response({"output": "north"}, "look"),
            response({"output": "(see below)"}),
            {"text": "Output of look, call 1:"},
            IMAGE_PART,
            {"text": "Output of add, call 2:"},
            IMAGE_PART,
        ],
    )


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (IMAGE, IMAGE_PART),
        (
            {"type": "image_url", "image_url": {"url": "https://a.test/b.webp?x=1", "detail": "low"}},
            {"fileData": {"mimeType": "image/webp", "fileUri": "https://a.test/b.webp?x=1"}},
        ),
        (
            {"type": "image_url", "image_url": {"url": "https://a.test/b"}},
            {"fileData": {"mimeType": "image/jpeg", "fileUri": "https://a.test/b"}},
        ),
        (
            {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
            {"inlineData": {"mimeType": "audio/wav", "data": "UklGRg=="}},
        ),
        (
            {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0="}},
            {"inlineData": {"mimeType": "application/pdf", "data": "JVBERi0="}},
        ),
        (
            {"type": "file", "file": {"file_url": "https://a.test/b.csv"}},
            {"fileData": {"mimeType": "text/csv", "fileUri": "https://a.test/b.csv"}},
        ),
        (
            {"type": "file", "file": {"filename": "talk.mp4", "file_id": f"{HOST}/v1beta/files/abc"}},
            {"fileData": {"mimeType": "video/mp4", "fileUri": f"{HOST}/v1beta/files/abc"}},
        ),
        ({"type": "hologram", "hologram": {}}, {"text": "(Here is hologram, which cannot be shown.)"}),
    ],
)
def test_a_users_parts(part: Any, expected: Any) -> None:
    assert sent(user([part])) == [("user", [expected])]


def test_tools_are_declared_in_the_words_and_under_the_names_that_the_wire_takes() -> None:
    schema = {"type": "object", "properties": {"n": {"type": ["integer", "null"]}}, "additionalProperties": False}
    names = ["add", "files.read", "2nd", "-x", "clock"]
    tools = [Tool(name=name, execute=lambda _, __: None, input_schema=schema) for name in names[:-1]]
    tools.append(Tool(name="clock", description="The time.", execute=lambda _, __: None))
    request = Request(model=OLD, messages=[user("?")], tools=tools)  # type: ignore[list-item]
    encoder = Gemini().encoder(TARGET)

    (declared,) = encoder.encode(request)["tools"]

    add, files, second, x, clock = declared["functionDeclarations"]
    parameters = {"type": "object", "properties": {"n": {"type": "integer", "nullable": True}}}
    assert add == {"name": "add", "parameters": parameters}
    assert clock == {"name": "clock", "description": "The time."}
    assert files["name"].startswith("files_read_")
    assert second["name"].startswith("_2nd_")
    assert x["name"].startswith("_-x_")
    names_of = encoder.reading(request).names
    assert [names_of[each["name"]] for each in (files, second, x)] == ["files.read", "2nd", "-x"]
    assert decode(answer(use(second["name"])), **names_of).calls[0].name == "2nd"


def test_parameters_come_last_join_our_generation_config_and_leave_the_contents_alone() -> None:
    tool = Tool(name="add", execute=lambda _, __: None)
    params = {
        "generationConfig": {"temperature": 0, "maxOutputTokens": 7},
        "contents": [],
        "tools": [{"googleSearch": {}}],
        "safetySettings": [],
    }
    request: Any = {"max_tokens": 5, "params": params}
    body = Gemini().encoder(TARGET).encode(Request(model=OLD, messages=[user("?")], tools=[tool], **request))  # type: ignore[list-item]
    assert body["generationConfig"] == {"maxOutputTokens": 7, "temperature": 0}
    assert body["contents"] == [{"role": "user", "parts": [{"text": "?"}]}]
    assert body["tools"] == [{"functionDeclarations": [{"name": "add"}]}, {"googleSearch": {}}]
    assert body["safetySettings"] == []
    assert encode(user("?"), max_tokens=5)["generationConfig"] == {"maxOutputTokens": 5}
    assert "toolConfig" not in encode(user("?"), params={"toolConfig": {"functionCallingConfig": {"mode": "ANY"}}})


def test_an_answers_schema_is_asked_for_as_json() -> None:
    schema = {"type": "object", "properties": {"n": {"const": "x"}}}
    body = encode(user("?"), response_schema=ResponseSchema(name="answer", schema=schema))
    assert body["generationConfig"] == {
        "responseMimeType": "application/json",
        "responseJsonSchema": {"type": "object", "properties": {"n": {"enum": ["x"]}}},
    }


# What goes back

SIGNED = {**use(call_id="fc-1"), "thoughtSignature": "c2ln"}
THOUGHT = {"text": "Hm.", "thought": True}
END = {"text": "", "thoughtSignature": "ZW5k"}


def test_own_parts_go_back_as_they_came_and_results_have_the_ids_of_their_calls() -> None:
    parts = [THOUGHT, {"text": "See:"}, SIGNED, use("look", "fc-2"), {"executableCode": {"code": "1"}}]
    message = native("See:", *parts, tool_calls=[call("fc-1"), call("fc-2", "look")])
    assert sent(user("?"), message, result("fc-1"), result("fc-2"), model=NEW)[1:] == [
        ("model", parts),
        ("user", [response({"output": "4"}, id="fc-1"), response({"output": "4"}, "look", id="fc-2")]),
    ]


def test_a_signature_at_the_very_end_goes_back_and_blank_texts_do_not() -> None:
    assert sent(user("?"), native("Hi", {"text": "Hi"}, {"text": " "}, END), user("!"))[1] == (
        "model",
        [{"text": "Hi"}, END],
    )


def test_nothing_is_sent_of_a_reply_that_only_thought() -> None:
    assert sent(user("?"), native("", THOUGHT, END), user("!")) == [("user", [{"text": "?"}, {"text": "!"}])]


@pytest.mark.parametrize(
    "message",
    [
        native("Edited", {"text": "Hi"}, SIGNED, tool_calls=[call("fc-1")]),
        native("Hi", {"text": "Hi"}, SIGNED, use(), tool_calls=[call("fc-1")]),
        {**native("Hi", {"text": "Hi"}, SIGNED, tool_calls=[call("fc-1")]), "origin": {**ORIGIN, "style": "openai"}},
        {
            **native("Hi", {"text": "Hi"}, SIGNED, tool_calls=[call("fc-1")]),
            "origin": {**ORIGIN, "host": "https://b.test"},
        },
    ],
)
def test_parts_of_others_or_that_no_longer_fit_are_left_out_with_their_ids(message: Any) -> None:
    assert sent(user("?"), message, result("fc-1"))[1:] == [
        ("model", [{"text": message["content"]}, use()]),
        ("user", [response({"output": "4"})]),
    ]


def test_a_call_goes_back_under_the_name_that_its_tool_has_now() -> None:
    message = native("", {**use("default_api:add", "fc-1"), "thoughtSignature": "c2ln"}, tool_calls=[call("fc-1")])
    assert sent(user("?"), message, result("fc-1"))[1] == ("model", [SIGNED])


@pytest.mark.parametrize(
    ("model", "signs"),
    [
        ("gemini-3-pro-preview", True),
        ("models/gemini-3.8-flash", True),
        ("google/Gemini-12-ultra", True),
        ("gemini-flash-latest", True),
        ("gemini-flash-lite-latest", True),
        ("gemini-2.5-pro", False),
        ("gemini-1.5-pro-latest", False),
        ("gemma-3-27b", False),
        ("m", False),
    ],
)
def test_the_first_call_that_another_model_made_stands_without_a_signature_where_one_is_demanded(
    model: str, signs: bool
) -> None:
    first = {**use(), "thoughtSignature": DUMMY} if signs else use()
    contents = sent(user("?"), calling("x", "y"), result("x"), result("y"), model=model)
    assert contents[1] == ("model", [first, use()])


def test_calls_of_an_older_model_of_the_same_host_are_not_signed_either() -> None:
    message = native("", THOUGHT, use(call_id="fc-1"), tool_calls=[call("fc-1")])
    assert sent(user("?"), message, result("fc-1"), model=NEW)[1] == (
        "model",
        [THOUGHT, {**use(call_id="fc-1"), "thoughtSignature": DUMMY}],
    )


def test_a_run_that_changes_its_model_is_encoded_for_the_new_one() -> None:
    messages: list[Any] = [user("?"), calling("x"), result("x")]
    encoder = Gemini().encoder(TARGET)
    old = encoder.encode(Request(model=OLD, messages=messages))
    new = encoder.encode(Request(model=NEW, messages=messages))
    check_gemini(new, model=NEW)
    assert DUMMY not in json.dumps(old)
    assert DUMMY in json.dumps(new)
    assert encoder.encode(Request(model=OLD, messages=messages)) == old


# Answers


def test_a_plain_answer_is_read() -> None:
    usage = {
        "promptTokenCount": 10,
        "toolUsePromptTokenCount": 2,
        "candidatesTokenCount": 3,
        "thoughtsTokenCount": 5,
        "cachedContentTokenCount": 4,
        "totalTokenCount": 20,
    }
    reply = decode(answer({"text": "Hi"}, {"text": " there"}, usageMetadata=usage, modelVersion="gemini-3-pro-001"))
    assert reply == Reply(
        message={"role": "assistant", "content": "Hi there", "origin": ORIGIN},  # type: ignore[typeddict-item]
        text="Hi there",
        finish_reason="stop",
        usage=Usage(prompt=12, completion=8, total=20, cached=4, reasoning=5),
        model="gemini-3-pro-001",
    )


def test_calls_are_read_with_the_ids_that_they_came_with_or_ones_of_ours() -> None:
    reply = decode(answer(use(a=1), use("look", "fc-2"), {"functionCall": {"name": "fail"}}))
    assert reply.finish_reason == "tool_calls"
    assert reply.calls == (
        ToolCall(id="call_0", name="add", arguments='{"a":1}'),
        ToolCall(id="fc-2", name="look", arguments="{}"),
        ToolCall(id="call_2", name="fail", arguments=""),
    )


@pytest.mark.parametrize(
    ("part", "kept"),
    [
        ({"text": "x"}, False),
        (use(), False),
        ({"functionCall": {"name": "add"}}, False),
        (SIGNED, True),
        (use(call_id="fc-1"), True),
        (THOUGHT, True),
        (END, True),
        ({"text": "x", "thoughtSignature": "c2ln"}, True),
        ({"inlineData": {"mimeType": "image/png", "data": PIXEL}}, True),
        ({"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}}, True),
        ({"toolCall": {"toolType": "GOOGLE_SEARCH_WEB", "id": "s-1"}}, True),
    ],
)
def test_parts_are_kept_when_one_is_more_than_text_or_a_call(part: Any, kept: bool) -> None:
    reply = decode(answer({"text": "Hi"}, part))
    assert (reply.message.get("native") is not None) is kept
    if kept:
        assert reply.message["native"]["parts"] == [{"text": "Hi"}, part]


def test_what_an_answer_is_grounded_on_is_kept_and_not_sent() -> None:
    body = answer({"text": "Hi"})
    body["candidates"][0] |= {"groundingMetadata": {"webSearchQueries": ["tides"]}, "citationMetadata": {}}
    message: Any = decode(body).message
    assert message["native"] == {"candidate": {"groundingMetadata": {"webSearchQueries": ["tides"]}}}
    assert sent(user("?"), message, user("!"))[1] == ("model", [{"text": "Hi"}])


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("STOP", "tool_calls"),
        ("stop", "tool_calls"),
        ("OTHER", "tool_calls"),
        ("MAX_TOKENS", "length"),
        *((reason, "content_filter") for reason in ("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII")),
        *((reason, "content_filter") for reason in ("IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "MODEL_ARMOR")),
    ],
)
def test_finish_reasons_become_ours_and_a_cut_reply_has_no_calls(reason: str, expected: str) -> None:
    reply = decode(answer({"text": "Hi"}, SIGNED, finish=reason))
    assert reply.finish_reason == expected
    assert bool(reply.calls) is (expected == "tool_calls")
    assert ("functionCall" in json.dumps(reply.message)) is (expected == "tool_calls")


@pytest.mark.parametrize("reason", [None, "LANGUAGE", "OTHER", "FINISH_REASON_UNSPECIFIED", "NEW_ONE"])
def test_other_reasons_are_unknown(reason: str | None) -> None:
    assert decode(answer({"text": "Hi"}, finish=reason)).finish_reason == "unknown"


USAGE = {"promptTokenCount": 15, "totalTokenCount": 15}


@pytest.mark.parametrize(
    ("reason", "kind", "retryable"),
    [
        ("MALFORMED_FUNCTION_CALL", "malformed_tool_call", True),
        ("UNEXPECTED_TOOL_CALL", "malformed_tool_call", True),
        ("TOO_MANY_TOOL_CALLS", "malformed_tool_call", True),
        ("MALFORMED_RESPONSE", "server", True),
        ("MISSING_THOUGHT_SIGNATURE", "bad_request", False),
    ],
)
def test_an_answer_that_was_thrown_away_is_an_error_that_tells_what_it_cost(
    reason: str, kind: str, retryable: bool
) -> None:
    body = {"candidates": [{"content": {}, "finishReason": reason, "finishMessage": "why"}], "usageMetadata": USAGE}
    for read in (decode, stream):
        with pytest.raises(ProviderError) as caught:
            read(body)
        assert (caught.value.kind, caught.value.retryable) == (kind, retryable)
        assert caught.value.usage == Usage(prompt=15, completion=0, total=15)


def test_a_blocked_prompt_is_an_error() -> None:
    body = {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": USAGE}
    for read in (decode, stream):
        with pytest.raises(ProviderError, match="blocked \\(PROHIBITED_CONTENT\\)") as caught:
            read(body)
        assert (caught.value.kind, caught.value.retryable) == ("content_filter", False)
        assert caught.value.usage is not None


def test_an_answer_that_is_blocked_while_it_comes_was_filtered() -> None:
    deltas, reply = stream(answer({"text": "Hi"}, finish=None), {"promptFeedback": {"blockReason": "OTHER"}})
    assert deltas == [TextDelta("Hi")]
    assert (reply.text, reply.finish_reason) == ("Hi", "content_filter")


@pytest.mark.parametrize(
    "body", [None, "x", [], [1], {}, {"candidates": []}, {"choices": []}, {"usageMetadata": USAGE}]
)
def test_what_is_no_answer_is_an_invalid_reply(body: Any) -> None:
    with pytest.raises(InvalidReply):
        decode(body)


def test_an_error_is_raised_wherever_it_comes() -> None:
    error = {"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}}
    for read in (
        lambda: decode(error),
        lambda: decode([error]),
        lambda: decode([answer({"text": "Hi"}, finish=None), error]),
        lambda: stream(error),
        lambda: stream(answer({"text": "Hi"}, finish=None), error),
    ):
        with pytest.raises(ProviderError) as caught:
            read()
        assert (caught.value.kind, caught.value.status) == ("overloaded", 503)


def test_chunks_in_a_list_are_the_stream_that_they_would_have_been() -> None:
    chunks = [answer({"text": "Hi"}, finish=None), answer({"text": " there"}, usageMetadata=USAGE)]
    assert decode(chunks) == stream(*chunks)[1]
    with pytest.raises(IncompleteReply):
        decode(chunks[:1])


def client_of(*steps: Any, **options: Any) -> tuple[Any, ScriptedTransport]:
    transport = ScriptedTransport(*steps)
    return create_client(f"gemini:{NEW}", api_key="k", transport=transport, **options), transport


async def test_the_model_is_in_the_url_and_the_key_in_googles_header() -> None:
    client, transport = client_of(
        answer({"text": "Hi"}), [f"data: {json.dumps(answer({'text': 'Ho'}))}\r\n\r\n".encode()]
    )
    async with client:
        assert (await client.run("?")).text == "Hi"
        async with client.stream("?") as events:
            *_, finished = [event async for event in events]
    assert finished.result.text == "Ho"
    whole, streamed = transport.requests
    assert whole.url == f"{HOST}/v1beta/models/{NEW}:generateContent"
    assert streamed.url == f"{HOST}/v1beta/models/{NEW}:streamGenerateContent?alt=sse"
    for request in transport.requests:
        assert request.headers["x-goog-api-key"] == "k"
        assert "authorization" not in request.headers
        assert set(request.json) == {"contents"}


async def test_a_server_that_streams_a_list_is_read_as_well() -> None:
    chunks = json.dumps([answer({"text": "Hi"}, finish=None), answer({"text": " there"})]).encode()
    client, _ = client_of(Response(status=200, headers={"content-type": "application/json"}, body=chunks))
    async with client, client.stream("?") as events:
        *_, finished = [event async for event in events]
    assert finished.result.text == "Hi there"


async def test_what_a_reply_cost_that_was_thrown_away_is_in_the_partial_result() -> None:
    async def add(a: int, b: int) -> int:
        return a + b

    lost = {"candidates": [{"content": {}, "finishReason": "MALFORMED_FUNCTION_CALL"}], "usageMetadata": USAGE}
    asked = answer(use("add", "fc-1", a=2, b=3), usageMetadata=USAGE)
    client, _ = client_of(lost, asked, lost, retries=0)
    async with client:
        for cost in (15, 30):
            with pytest.raises(ProviderError) as caught:
                await client.run("?", [add])
            assert caught.value.partial is not None
            assert caught.value.partial.usage == Usage(prompt=cost, completion=0, total=cost)


# Streams


def test_a_stream_is_put_together() -> None:
    deltas, reply = stream(
        answer({"text": "H", "thought": True}, finish=None, usageMetadata={"promptTokenCount": 15}),
        answer({"text": "m.", "thought": True}, finish=None),
        answer({"text": "Hel"}, finish=None),
        answer({"text": "lo"}, {"text": ""}, finish=None),
        answer(SIGNED, use("look", "fc-2"), finish=None),
        answer(END, usageMetadata={**USAGE, "thoughtsTokenCount": 3, "totalTokenCount": 18}, modelVersion="v"),
    )
    assert deltas == [ReasoningDelta("H"), ReasoningDelta("m."), TextDelta("Hel"), TextDelta("lo")]
    assert (reply.text, reply.reasoning, reply.model) == ("Hello", "Hm.", "v")
    assert [each.id for each in reply.calls] == ["fc-1", "fc-2"]
    assert reply.usage == Usage(prompt=15, completion=3, total=18, reasoning=3)
    assert reply.message["native"] == {"parts": [THOUGHT, {"text": "Hello"}, SIGNED, use("look", "fc-2"), END]}


def test_a_reason_in_an_earlier_event_does_not_end_a_stream() -> None:
    """Servers have stamped it on every event."""
    assert stream(answer(), answer({"text": "Hi"}), answer({"text": "!"}))[1].text == "Hi!"


def test_usage_may_come_after_the_reason() -> None:
    assert stream(answer({"text": "Hi"}), {"usageMetadata": USAGE})[1].usage == Usage(prompt=15, completion=0, total=15)


@pytest.mark.parametrize("events", [[], [answer({"text": "Hi"}, finish=None)], [{"usageMetadata": USAGE}]])
def test_without_a_reason_a_stream_is_incomplete(events: list[Any]) -> None:
    with pytest.raises(IncompleteReply):
        stream(*events)


def test_the_mark_that_relays_add_is_an_end_too() -> None:
    assert stream(answer({"text": "Hi"}, finish=None), "[DONE]")[1].finish_reason == "unknown"


def test_a_call_whose_arguments_are_streamed_is_put_together() -> None:
    def piece(**fields: Any) -> dict[str, Any]:
        return answer({"functionCall": fields}, finish=None)

    begun = {"functionCall": {"name": "look", "id": "fc-1", "willContinue": True}, "thoughtSignature": "c2ln"}
    events = [
        answer({"text": "See:"}, begun, finish=None),
        piece(partialArgs=[{"jsonPath": "$.where", "stringValue": "no", "willContinue": True}], willContinue=True),
        piece(partialArgs=[{"jsonPath": "$.where", "stringValue": "rth"}], willContinue=True),
        piece(),
        answer(use("add", "fc-2", a=1), finish=None),
        answer(),
    ]
    reply = stream(*events)[1]
    assert [(each.name, each.arguments) for each in reply.calls] == [("look", '{"where":"north"}'), ("add", '{"a":1}')]
    whole = {**use("look", "fc-1", where="north"), "thoughtSignature": "c2ln"}
    assert reply.message["native"]["parts"] == [{"text": "See:"}, whole, use("add", "fc-2", a=1)]
    with pytest.raises(IncompleteReply, match="middle of a call"):
        stream(*events[:3], answer())


def test_arguments_that_are_no_object_are_told_raw_and_stored_as_one() -> None:
    part = {"functionCall": {"name": "add", "args": "{oops"}, "thoughtSignature": "c2ln"}
    reply = decode(answer(part))
    assert reply.calls[0].arguments == "{oops"
    assert reply.message["native"]["parts"][0]["functionCall"]["args"] == {"_unreadable": "{oops"}


def test_an_unknown_host_is_served_as_well() -> None:
    to = Target(style="gemini", host="https://gw.example.test", provider=UNKNOWN)
    assert encode(user("Hi"), to=to) == encode(user("Hi"))
