"""Models without tool calls of their own: text that is a call, and answers that have to fit a schema."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripts import read, scripted

from toolnexus import ConfigurationError, TextDelta, Tool, create_client
from toolnexus._constrained import ReplyText
from toolnexus._text_calls import Held, find
from toolnexus.testing import ScriptedTransport, call, openai_reply, openai_stream

LOCAL = "http://127.0.0.1:11434/v1"
ADD = json.dumps({"name": "add", "arguments": {"a": 2, "b": 3}})
DONE = openai_reply("Five.")


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def deltas(events: list[Any]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


# Text that is a call


@pytest.mark.parametrize(
    "text",
    [
        ADD,
        f"[{ADD}]",
        f"```json\n{ADD}\n```",
        f"I will add them.\n\n```json\n{ADD}\n```\n",
        f"```\n{ADD}\n```",
        f"<tool_call>\n{ADD}\n</tool_call>",
        f"<tool_call>\n{ADD}\n",
        f"<think>Add.</think>\n{ADD}",
        f"Sure.\n<tool_call>{ADD}</tool_call>",
        f"[TOOL_CALLS] [{ADD}]",
        f"<|python_tag|>{ADD}",
        '<function=add>{"a": 2, "b": 3}</function>',
        '{"tool": "add", "parameters": {"a": 2, "b": 3}}',
        '{"function": {"name": "add", "arguments": "{\\"a\\": 2, \\"b\\": 3}"}, "type": "function", "id": "x"}',
        '{"tool_calls": [{"name": "add", "arguments": {"a": 2, "b": 3}}]}',
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_call_that_a_local_model_writes_as_text_is_run(text: str, stream: bool) -> None:
    answer = openai_stream(*(text[i : i + 3] for i in range(0, len(text), 3))) if stream else openai_reply(text)
    client, model = scripted(answer, openai_stream("Five.") if stream else DONE, base_url=LOCAL)
    if stream:
        events = await read(client.stream("2 + 3?", [add]))
        result = events[-1].result
        assert "arguments" not in deltas(events)
    else:
        result = await client.run("2 + 3?", [add])

    assert [(record.name, record.args, record.output) for record in result.tool_calls] == [
        ("add", {"a": 2, "b": 3}, "5")
    ]
    assert result.text == "Five."
    said, answered = model.requests[1].json["messages"][-2:]
    assert [entry["function"]["name"] for entry in said["tool_calls"]] == ["add"]
    assert answered == {"role": "tool", "tool_call_id": said["tool_calls"][0]["id"], "content": "5"}


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "subtract", "arguments": {"a": 2, "b": 3}}',  # no such tool
        '{"name": "add", "arguments": {"a": "two"}}',  # arguments that do not fit
        '{"name": "add", "arguments": {"a": 2, "b": 3}, "colour": "red"}',  # something else
        '{"name": "Ada", "born": 1815}',
        f"You call it like this:\n```json\n{ADD}\n```\nShall I?",  # it went on to talk
        f"```python\nprint('{ADD}')\n```",
        "[1] a footnote",
        "{not json",
        "a < b and `code`",
        "<tool_call>nothing</tool_call>",
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_any_other_text_stays_what_it_is(text: str, stream: bool) -> None:
    client, model = scripted(openai_stream(*text) if stream else openai_reply(text), base_url=LOCAL)
    if stream:
        events = await read(client.stream("hi", [add]))
        assert deltas(events) == text
        result = events[-1].result
    else:
        result = await client.run("hi", [add])

    assert result.text == text
    assert result.tool_calls == ()
    assert len(model.requests) == 1


async def test_text_of_a_remote_model_is_never_a_call() -> None:
    client, model = scripted(openai_reply(ADD))
    assert (await client.run("2 + 3?", [add])).text == ADD
    assert len(model.requests) == 1


async def test_a_call_in_a_text_that_was_cut_off_is_not_run() -> None:
    client, _ = scripted(openai_reply(ADD, finish_reason="length"), base_url=LOCAL)
    result = await client.run("2 + 3?", [add])
    assert (result.status, result.tool_calls) == ("incomplete", ())


async def test_calls_of_the_wire_are_left_alone_and_so_is_the_text_beside_them() -> None:
    client, _ = scripted(openai_stream(ADD, calls=[call("add", a=1, b=1)]), openai_stream("Two."), base_url=LOCAL)
    events = await read(client.stream("1 + 1?", [add]))
    assert deltas(events) == ADD + "Two."
    assert [record.args for record in events[-1].result.tool_calls] == [{"a": 1, "b": 1}]


async def test_ids_of_such_calls_do_not_come_twice_in_a_conversation() -> None:
    client, model = scripted(openai_reply(f"[{ADD}, {ADD}]"), openai_reply(ADD), DONE, base_url=LOCAL)
    await client.run("2 + 3?", [add])
    calls = [entry for message in model.requests[-1].json["messages"] for entry in message.get("tool_calls", ())]
    assert len({entry["id"] for entry in calls}) == 3


@given(
    st.lists(st.sampled_from([*'{}[]<>`\n:, "', "tool_call", "```", "json", '"name"', "<tool_call>", "</", ADD, "a"]))
)
def test_nothing_of_a_text_is_lost_or_changed_while_it_is_held(pieces: list[str]) -> None:
    held = Held()
    shown = "".join(held.add(piece) for piece in pieces)
    assert shown + held.rest() == "".join(pieces)


@given(st.text(alphabet=st.sampled_from([*'<>/`{}[]":, \n', *"toolcafjsnme_"])), st.integers(1, 5))
def test_a_text_that_ends_in_calls_is_held_from_where_they_begin(before: str, size: int) -> None:
    text = f"{before}\n<tool_call>{ADD}</tool_call>"
    held = Held()
    shown = "".join(held.add(text[start : start + size]) for start in range(0, len(text), size))
    found = find(text)
    assert found is not None
    assert len(shown) <= len(before) + 1


@pytest.mark.parametrize(
    "text",
    [
        f"```json\n{ADD}\n```\n" * 5000,
        "```" * 80_000,
        "[" * 240_000,
        "{\n" * 120_000 + "}",
        "</think>x" * 25_000 + "}",
        "<tool_call>" * 20_000 + "]",
        " " * 240_000 + "x",
        f"```json\n{ADD}\n```" + " " * 240_000 + "x",
    ],
    ids=lambda text: repr(text[:12]),
)
@pytest.mark.parametrize("size", [40, 1_000_000])
def test_a_text_of_any_length_and_form_is_read_once(text: str, size: int) -> None:
    begun = time.process_time()
    held = Held()
    shown = "".join(held.add(text[start : start + size]) for start in range(0, len(text), size))
    assert shown + held.rest() == text
    found = find(text)
    assert found is None or len(found.calls) == 5000
    assert time.process_time() - begun < 10


def test_a_text_beyond_all_measure_is_no_call() -> None:
    assert find(f"{'x' * 400_000}\n<tool_call>{ADD}</tool_call>") is None


# Answers that have to fit a schema


def constrained(*answers: Any) -> tuple[Any, ScriptedTransport]:
    return scripted(*answers, base_url=LOCAL, tool_mode="constrained")


USE = json.dumps({"tool": "add", "arguments": {"a": 2, "b": 3}})


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_is_a_call_or_a_reply(stream: bool) -> None:
    reply = '{"reply": "F\\u00fcnf \\ud83d\\ude00 \\"5\\".\\n"}'
    client, model = constrained(
        *((openai_stream(*USE), openai_stream(*reply)) if stream else map(openai_reply, (USE, reply)))
    )
    if stream:
        events = await read(client.stream("2 + 3?", [add]))
        assert deltas(events) == 'Fünf 😀 "5".\n'
        assert len([event for event in events if isinstance(event, TextDelta)]) > 5
        result = events[-1].result
    else:
        result = await client.run("2 + 3?", [add])

    assert result.text == 'Fünf 😀 "5".\n'
    assert [(record.name, record.output) for record in result.tool_calls] == [("add", "5")]
    assert [message["role"] for message in result.messages] == ["user", "assistant", "tool", "assistant"]
    assert result.messages[1]["tool_calls"][0]["function"]["name"] == "add"
    assert result.messages[-1]["content"] == 'Fünf 😀 "5".\n'

    first, second = (request.json for request in model.requests)
    assert "tools" not in first
    form = first["response_format"]
    assert form["type"] == "json_schema"
    call_form, reply_form = form["json_schema"]["schema"]["anyOf"]
    assert call_form["properties"]["tool"] == {"const": "add"}
    assert call_form["properties"]["arguments"]["required"] == ["a", "b"]
    assert reply_form["properties"]["reply"] == {"type": "string"}
    assert "Add two numbers." in first["messages"][0]["content"]
    assert second["messages"][-2:] == [
        {"role": "assistant", "content": '{"tool":"add","arguments":{"a":2,"b":3}}'},
        {"role": "user", "content": "Result of add:\n5"},
    ]


async def test_earlier_replies_are_spelled_as_the_model_writes_them() -> None:
    client, model = constrained(openai_reply('{"reply": "Hello."}'), openai_reply('{"reply": "Bye."}'))
    await client.ask("hi", [add], id="u")
    await client.ask("bye", [add], id="u")
    assert model.requests[1].json["messages"][2] == {"role": "assistant", "content": '{"reply":"Hello."}'}


async def test_without_tools_nothing_is_constrained() -> None:
    client, model = constrained(openai_reply("Hello."))
    assert (await client.run("hi")).text == "Hello."
    assert "response_format" not in model.requests[0].json


@pytest.mark.parametrize("text", ["Hello.", '{"answer": 1}', "[1]"])
async def test_a_server_that_does_not_keep_to_the_schema_is_taken_at_its_word(text: str) -> None:
    client, _ = constrained(openai_stream(*text))
    events = await read(client.stream("hi", [add]))
    assert (deltas(events), events[-1].result.text) == (text, text)


async def test_a_reply_that_was_cut_off_is_what_was_said_of_it() -> None:
    client, _ = constrained(openai_stream('{"reply": "Once upon', finish_reason="length"))
    events = await read(client.stream("a story", [add]))
    assert deltas(events) == "Once upon"
    assert (events[-1].result.text, events[-1].result.status) == ("Once upon", "incomplete")


async def test_what_schemas_define_keeps_its_own_names() -> None:
    def schema(kind: str) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": {"x": {"$ref": "#/$defs/X"}},
            "$defs": {"X": {"type": kind}, "Y": {"$ref": "#/$defs/X"}},
        }

    tools = [Tool(name=name, execute=add, input_schema=schema(name)) for name in ("string", "integer")]
    client, model = constrained(openai_reply('{"reply": ""}'))
    await client.run("hi", tools)
    form = model.requests[0].json["response_format"]["json_schema"]["schema"]
    for branch, kind in zip(form["anyOf"], ("string", "integer"), strict=False):
        reference = branch["properties"]["arguments"]["properties"]["x"]["$ref"]
        assert form["$defs"][reference.removeprefix("#/$defs/")] == {"type": kind}


def test_another_mode_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="'forced'"):
        create_client("m", base_url=LOCAL, tool_mode="forced")  # pyright: ignore[reportArgumentType]


@given(st.text(st.characters(exclude_categories=["Cs"])), st.integers(1, 4), st.booleans())
def test_a_reply_comes_as_it_was_said_however_it_is_written_and_cut(said: str, size: int, escaped: bool) -> None:
    text = json.dumps({"reply": said}, ensure_ascii=escaped)
    reply = ReplyText()
    assert "".join(reply.add(text[i : i + size]) for i in range(0, len(text), size)) == said
