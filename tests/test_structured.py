"""`output_type`: an answer is a value of a type, or the run says why not."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from dataclasses import dataclass, field, replace
from datetime import date
from enum import Enum
from typing import Annotated, Any, Literal, TypedDict, assert_type

import pytest
from annotated_types import Ge
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field, field_validator
from pydantic_core import to_jsonable_python
from scripts import read, scripted

from toolnexus import (
    Client,
    ConfigurationError,
    ConversationStore,
    Finished,
    InMemoryConversationStore,
    InvalidOutput,
    RunResult,
    TextDelta,
    TurnInterrupted,
    create_client,
    create_in_process_client,
    suspend,
)
from toolnexus.providers import PROVIDERS, Provider
from toolnexus.testing import (
    ScriptedModel,
    ScriptedTransport,
    anthropic_reply,
    call,
    openai_reply,
    openai_stream,
)


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    x: int
    y: int = 0


class Trip(BaseModel):
    """A journey."""

    city: str
    days: int = Field(ge=1)
    on: date | None = None
    colours: list[Colour] = Field(default_factory=list)


class Node(BaseModel):
    value: int
    below: list[Node] = Field(default_factory=list)


class Film(TypedDict):
    title: str
    year: int


@dataclass
class Line:
    points: list[Point] = field(default_factory=list)


TYPES: list[Any] = [
    *(int, float, bool, str, Colour, Point, Line, Trip, Node, Film),
    *(list[str], dict[str, int], int | str, int | None, Literal["a", "b"], Literal[1, "one"], tuple[int, str]),
    *(list[Point], dict[str, list[Trip]], Point | Colour, Annotated[int, Ge(-5)], set[int], list[Film], date),
]
"""One of each kind of type that an answer may have."""


def native(mode: Any = "native", style: str = "openai") -> Provider:
    """A row of the provider table for tests, with a host that only they know."""
    return Provider(name="row", base_url="https://row.test/v1", styles=(style,), key_required=False, schema_mode=mode)


@pytest.fixture
def row(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.setitem(PROVIDERS, "row", request.param)


def row_client(*steps: Any, **options: Any) -> tuple[Client, ScriptedTransport]:
    transport = ScriptedTransport(*steps)
    return create_client("row:m", transport=transport, retries=0, **options), transport


def in_words(*answers: Any, **options: Any) -> tuple[Client, ScriptedModel]:
    model = ScriptedModel(answers)
    return create_in_process_client(generate=model, **options), model


def final(**arguments: Any) -> dict[str, Any]:
    """A reply that gives the answer by the tool for it."""
    return openai_reply(calls=[call("final_result", **arguments)])


def schema_of(request: dict[str, Any]) -> dict[str, Any]:
    """The schema that a model was told in words."""
    return json.loads(request["messages"][0]["content"].partition("\n")[2])


def add(a: int, b: int) -> int:
    return a + b


# What comes back


async def test_an_answer_is_a_value_of_the_type() -> None:
    client, transport = scripted(final(city="Munich", days=3, on="2031-05-04", colours=["red"]))

    result = await client.run("Plan it.", output_type=Trip)

    assert result.output == Trip(city="Munich", days=3, on=date(2031, 5, 4), colours=[Colour.RED])
    assert result.status == "done"
    assert json.loads(result.text)["city"] == "Munich"
    transport.assert_finished()


TRIPS = st.builds(Trip, days=st.integers(1), on=st.none() | st.dates())
STRATEGIES: dict[Any, st.SearchStrategy[Any]] = {
    float: st.floats(allow_nan=False, allow_infinity=False),
    Trip: TRIPS,
    dict[str, list[Trip]]: st.dictionaries(st.text(), st.lists(TRIPS)),
}
"""For the types whose values JSON cannot all carry, or that Hypothesis does not know well enough."""


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@pytest.mark.parametrize("kind", TYPES, ids=str)
@given(data=st.data())
def test_any_value_of_a_type_that_a_model_answers_comes_back_equal(kind: Any, data: st.DataObject) -> None:
    value = data.draw(STRATEGIES[kind] if kind in STRATEGIES else st.from_type(kind))
    written = to_jsonable_python(value)
    # Under the key that what is no object gets, and without it: models forget it.
    for answer in [{"value": written}, written] if wants_key(kind) else [written]:
        client, _ = in_words(json.dumps(answer))
        assert client.run_sync("?", output_type=kind).output == value


def wants_key(kind: Any) -> bool:
    return kind not in (Point, Line, Trip, Node, Film, dict[str, int], dict[str, list[Trip]])


async def test_a_json_schema_gives_the_json_value() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    client, transport = scripted(final(n=5), openai_reply(calls=[call("final_result", value=[1, 2])]))

    assert (await client.run("?", output_type=schema)).output == {"n": 5}
    assert (await client.run("?", output_type={"type": "array", "items": {"type": "integer"}})).output == [1, 2]
    offered = transport.requests[0].json["tools"][0]["function"]
    assert (offered["name"], offered["parameters"]) == ("final_result", schema)


async def test_references_of_a_json_schema_follow_it_under_its_key() -> None:
    tree = {
        "$defs": {"leaf": {"type": "integer"}},
        "anyOf": [{"$ref": "#/$defs/leaf"}, {"type": "array", "items": {"$ref": "#"}}],
    }
    client, _ = in_words('{"value": [1, [2, [3]]]}', '{"value": [1, ["x"]]}', '{"value": [1]}')

    assert (await client.run("?", output_type=tree)).output == [1, [2, [3]]]
    assert (await client.run("?", output_type=tree)).output == [1]


@pytest.mark.parametrize(
    "said",
    [
        '{"x": 1, "y": 2}',
        ' \n{"x": 1, "y": 2}\n',
        'Here it is:\n```json\n{"x": 1, "y": 2}\n```\nAnything else?',
        '~~~\n{"x": 1, "y": 2}\n~~~',
        'Sure! {"x": 1, "y": 2} is it.',
        '<think>{"x": 9} or a set {x}?</think> {"x": 1, "y": 2}',
    ],
)
async def test_words_around_an_answer_do_no_harm(said: str) -> None:
    client, _ = in_words(said)
    assert (await client.run("?", output_type=Point)).output == Point(1, 2)


@pytest.mark.parametrize("said", ["", '{"x": NaN}', '{"a": {"x": 1}', '{"x": 1, oops {"x": 2}}', "{" * 100_000])
async def test_what_is_no_json_is_not_guessed_at(said: str) -> None:
    client, _ = in_words(said, said)
    with pytest.raises(InvalidOutput):
        await client.run("?", output_type=Point)


class Grade(Enum):
    GOOD = "good enough"
    ONE = "1"


@pytest.mark.parametrize(
    ("kind", "said", "value"),
    [
        (Literal["yes", "no"], "yes", "yes"),
        (Literal["yes", "no"], "  no\n", "no"),
        (Literal["1", "2"], "2", "2"),
        (Grade, "good enough", Grade.GOOD),
        (Grade, "1", Grade.ONE),
        (int, "5", 5),
        (bool, "True", True),
        (date, "2031-05-04", date(2031, 5, 4)),
        (str, "It rains.", "It rains."),
        (str, "5", "5"),
        (str | None, "null", None),
        (int | str, "five", "five"),
        (Point | Colour, "red", Colour.RED),
        ({"enum": ["yes", "no"]}, "yes", "yes"),
        ({"type": "string"}, "null", "null"),
    ],
    ids=str,
)
async def test_a_plain_value_may_be_said_bare(kind: Any, said: str, value: Any) -> None:
    client, _ = in_words(said)
    assert (await client.run("?", output_type=kind)).output == value


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Literal["yes", "no"], "Yes, of course."),
        (Colour, "It is red."),
        (int, "five"),
        (list[str], "red"),
        (Point, "red"),
        (str, '{"value": 5}'),
        (str, '{"value": "cut o'),
        (str, '"cut o'),
        (str, 'Here: {"value": 5}'),
        (str, "```\n5\n```"),
        (str, " \n"),
        (Colour, "[red]"),
    ],
    ids=str,
)
async def test_a_bare_answer_is_not_guessed_at(kind: Any, said: str) -> None:
    client, _ = in_words(said, said)
    with pytest.raises(InvalidOutput):
        await client.run("?", output_type=kind)


@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        ({"type": "obj"}, ": type: 'obj' is not"),
        ({"anyOf": [{"type": "strin"}]}, ": anyOf/0/type: 'strin' is not"),
        ({"type": "array", "items": {"$ref": "#/$defs/x"}}, "'#/$defs/x'"),
        ({"$ref": "#/items"}, "'#/items'"),
        ({"$ref": "#/$defs/x", "$defs": []}, "$defs"),
    ],
)
async def test_what_is_wrong_with_a_schema_is_said_of_the_place_where_it_was_written(wrong: Any, place: str) -> None:
    client, _ = in_words()
    with pytest.raises(ConfigurationError) as caught:
        await client.run("?", output_type=wrong)
    assert place in str(caught.value)
    assert "properties" not in str(caught.value)


def test_type_checkers_know_the_output() -> None:
    async def never(client: Client) -> None:
        assert_type(await client.run("?", output_type=Trip), RunResult[Trip])
        assert_type((await client.ask("?", id="c", output_type=list[int])).output, list[int])
        assert_type(client.run_sync("?", output_type=int), RunResult[int])
        assert_type(await client.resume("c", output_type=Film), RunResult[Film])
        assert_type(await client.conversation().send("?", output_type=Point), RunResult[Point])
        assert_type(await client.run("?", output_type=Literal["a"]), RunResult[Any])
        assert_type(await client.run("?"), RunResult)

    assert callable(never)


def test_the_forms_for_code_without_an_event_loop_have_it_too() -> None:
    client, _ = scripted(final(x=1), final(x=2), final(x=3))
    assert client.run_sync("?", output_type=Point).output == Point(1)
    assert client.ask_sync("?", id="c", output_type=Point).output == Point(2)
    with client.stream_sync("?", output_type=Point) as events:
        *_, last = events
    assert isinstance(last, Finished)
    assert last.result.output == Point(3)
    client.close()


async def test_a_run_without_a_type_has_no_output_and_asks_as_ever() -> None:
    client, transport = scripted(openai_reply("Hi."))
    assert (await client.run("Hi?")).output is None
    assert transport.requests[0].json == {"model": "m", "messages": [{"role": "user", "content": "Hi?"}]}


def test_a_run_without_a_type_loads_nothing_for_one() -> None:
    program = (
        "import sys; from toolnexus import create_in_process_client as c;"
        "c(generate=lambda request: {'content': 'x'}).run_sync('?');"
        "print([m for m in ('pydantic', 'jsonschema', 'toolnexus._answer_type', 'toolnexus._answer_schema')"
        " if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


# How a model is asked


@pytest.mark.parametrize("row", [native()], indirect=True)
@pytest.mark.usefixtures("row")
async def test_a_provider_with_an_option_for_it_is_asked_by_it() -> None:
    client, transport = row_client(openai_reply('{"x": 1}'))

    assert (await client.run("?", [add], output_type=Point)).output == Point(1)

    body = transport.requests[0].json
    assert [tool["function"]["name"] for tool in body["tools"]] == ["add"]
    assert body["response_format"] == {
        "type": "json_schema",
        "json_schema": {
            "name": "Point",
            "schema": {
                "type": "object",
                "properties": {"x": {"type": "integer"}, "y": {"type": "integer", "default": 0}},
                "required": ["x"],
            },
        },
    }


@pytest.mark.parametrize("row", [native(style="anthropic")], indirect=True)
@pytest.mark.usefixtures("row")
async def test_the_anthropic_wire_gets_closed_objects_and_limits_in_words() -> None:
    client, transport = row_client(
        anthropic_reply('{"city": "Rome", "days": 2}'), request_params={"output_config": {"effort": "low"}}
    )

    assert (await client.run("?", output_type=Trip)).output == Trip(city="Rome", days=2)

    assert transport.requests[0].json["output_config"] == {
        "effort": "low",
        "format": {
            "type": "json_schema",
            "schema": {
                "type": "object",
                "description": "A journey.",
                "properties": {
                    "city": {"type": "string"},
                    "days": {"type": "integer", "description": "minimum: 1"},
                    "on": {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}], "default": None},
                    "colours": {"type": "array", "items": {"$ref": "#/$defs/Colour"}},
                },
                "required": ["city", "days"],
                "additionalProperties": False,
                "$defs": {"Colour": {"type": "string", "enum": ["red", "blue"]}},
            },
        },
    }


@pytest.mark.parametrize("kind", [Node, dict[str, int], list[Any], tuple[int, str], {"type": "object"}], ids=str)
@pytest.mark.parametrize("row", [native(style="anthropic")], indirect=True)
@pytest.mark.usefixtures("row")
async def test_what_the_anthropic_option_cannot_say_is_asked_by_a_tool(kind: Any) -> None:
    client, transport = row_client(anthropic_reply("no"), anthropic_reply("no"))
    with pytest.raises(InvalidOutput):
        await client.run("?", output_type=kind)
    body = transport.requests[0].json
    assert "output_config" not in body
    assert [tool["name"] for tool in body["tools"]] == ["final_result"]


@pytest.mark.parametrize("kind", TYPES, ids=str)
async def test_a_schema_is_an_object_without_the_noise_of_titles(kind: Any) -> None:
    client, model = in_words("{", "{")
    with pytest.raises(InvalidOutput):
        await client.run("?", output_type=kind)
    schema = schema_of(model.requests[0])
    assert schema["type"] == "object"
    assert not {"$ref", "anyOf", "allOf", "oneOf"} & schema.keys()
    assert not [each for each in json.dumps(schema).split('"') if each == "title"] or kind in (Film, list[Film])


async def test_a_recursive_type_has_its_definitions_at_the_top() -> None:
    client, model = in_words('{"value": 1, "below": [{"value": 2, "below": []}]}')
    result = await client.run("?", output_type=Node)
    assert result.output == Node(value=1, below=[Node(value=2)])
    schema = schema_of(model.requests[0])
    assert schema["properties"]["below"]["items"] == {"$ref": "#/$defs/Node"}
    assert schema["$defs"]["Node"]["type"] == "object"


async def test_the_tool_for_the_answer_takes_a_name_that_is_free() -> None:
    def final_result() -> str:
        """Tell how it ended."""
        return "2:1"

    client, transport = scripted(
        openai_reply(calls=[call("final_result")]),
        openai_reply(calls=[call("final_result_3", value="2:1")]),
        request_params={"tools": [{"type": "function", "function": {"name": "final_result_2"}}]},
    )
    result = await client.run("?", [final_result], output_type=str)

    assert result.output == "2:1"
    assert [record.output for record in result.tool_calls] == ["2:1"]
    transport.assert_finished()


async def test_no_transcript_and_no_wire_ever_sees_that_tool() -> None:
    client, transport = scripted(final(x=1), openai_reply("ok"))
    await client.ask("?", id="c", output_type=Point)
    result = await client.ask("Thanks.", id="c")

    assert [{key: message.get(key) for key in ("role", "content")} for message in result.messages] == [
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": '{"x": 1}'},
        {"role": "user", "content": "Thanks."},
        {"role": "assistant", "content": "ok"},
    ]
    assert b"final_result" not in transport.requests[1].body


async def test_calls_beside_the_answer_run_and_the_model_is_asked_again() -> None:
    early = openai_reply(calls=[call("add", a=1, b=2), {**call("final_result", x=0), "id": "early"}])
    client, transport = scripted(early, final(x=3))

    result = await client.run("1 + 2?", [add], output_type=Point)

    assert result.output == Point(3)
    assert [record.output for record in result.tool_calls] == ["3"]
    assert b'"early"' not in transport.requests[1].body
    assert [message["role"] for message in result.messages] == ["user", "assistant", "tool", "assistant"]


async def test_a_model_may_say_the_answer_instead_of_calling_the_tool() -> None:
    client, transport = scripted(openai_reply('```\n{"x": 4}\n```'))
    assert (await client.run("?", output_type=Point)).output == Point(4)
    transport.assert_finished()


async def test_streamed_by_a_tool_an_answer_is_one_delta_at_the_end() -> None:
    client, _ = scripted(openai_stream("Let me ", "see.", calls=[call("final_result", x=1)]))
    events = await read(client.stream("?", output_type=Point))

    assert [event.text for event in events if isinstance(event, TextDelta)] == ['{"x": 1}']
    last = events[-1]
    assert isinstance(last, Finished)
    assert last.result.output == Point(1)
    assert last.to_dict()["result"]["output"] == {"x": 1, "y": 0}
    json.dumps(last.to_dict())


@pytest.mark.parametrize("row", [native()], indirect=True)
@pytest.mark.usefixtures("row")
async def test_streamed_by_the_option_it_is_json_piece_by_piece() -> None:
    client, _ = row_client(openai_stream('{"x"', ": 1}"))
    events = await read(client.stream("?", output_type=Point))
    assert [event.text for event in events if isinstance(event, TextDelta)] == ['{"x"', ": 1}"]


async def test_prose_beside_calls_is_shown_although_an_answer_is_awaited() -> None:
    client, _ = scripted(openai_stream("Adding.", calls=[call("add", a=1, b=2)]), openai_stream(calls=[final_call(3)]))
    events = await read(client.stream("?", [add], output_type=Point))
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["Adding.", '{"x": 3}']


def final_call(x: int) -> Any:
    return call("final_result", x=x)


async def test_constrained_models_get_the_tool_as_a_schema() -> None:
    client, transport = scripted(
        openai_reply('{"tool": "final_result", "arguments": {"x": 1}}'), tool_mode="constrained"
    )
    assert (await client.run("?", [add], output_type=Point)).output == Point(1)
    assert "tools" not in transport.requests[0].json


async def test_each_fallback_is_asked_in_its_own_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PROVIDERS, "row", native())
    down = {"error": {"message": "down", "type": "server_error"}}
    transport = ScriptedTransport(down, openai_reply('{"x": 2}'))
    client = create_client(
        "m", base_url="https://model.test/v1", transport=transport, retries=0, fallbacks=["row:other"]
    )
    assert (await client.run("?", output_type=Point)).output == Point(2)
    first, second = (request.json for request in transport.requests)
    assert ("tools" in first, "response_format" in first) == (True, False)
    assert ("tools" in second, "response_format" in second) == (False, True)


# What does not fit


async def test_a_wrong_answer_is_repaired_once_and_leaves_no_trace() -> None:
    client, transport = scripted(final(city="Rome", days=0), final(city="Rome", days=2))

    result = await client.ask("?", id="c", output_type=Trip)

    assert result.output == Trip(city="Rome", days=2)
    assert [message.get("content") for message in result.messages] == ["?", '{"city": "Rome", "days": 2}']
    assert [step.rejected for step in result.steps] == [True, False]
    assert result.usage is not None
    assert result.usage.total == 30
    *_, attempt, objection = transport.requests[1].json["messages"]
    assert attempt == {"role": "assistant", "content": '{"city": "Rome", "days": 0}'}
    assert objection["role"] == "user"
    assert "days: Input should be greater than or equal to 1, not 0" in objection["content"]


async def test_a_repair_may_call_tools_first() -> None:
    client, transport = scripted(openai_reply("Let me think."), openai_reply(calls=[call("add", a=1, b=2)]), final(x=3))
    result = await client.run("?", [add], output_type=Point)

    assert result.output == Point(3)
    assert [step.rejected for step in result.steps] == [True, False, False]
    assert [message["role"] for message in result.messages] == ["user", "assistant", "tool", "assistant"]
    assert b"Let me think." in transport.requests[1].body
    assert b"Let me think." not in transport.requests[2].body


async def test_a_second_wrong_answer_is_an_error_with_what_there_is() -> None:
    client, transport = scripted(final(x="sk-secret"), final(x="sk-secret"), openai_reply("ok"))

    with pytest.raises(InvalidOutput) as raised:
        await client.ask("?", id="c", output_type=Point)

    error = raised.value
    assert error.problems == "- x: Input should be a valid integer, unable to parse string as an integer"
    assert "sk-secret" not in f"{error}{error!r}"
    assert error.kind == "invalid_output"
    assert error.partial is not None
    assert (error.partial.status, error.partial.text, error.partial.output) == ("failed", '{"x": "sk-secret"}', None)
    assert [step.rejected for step in error.partial.steps] == [True, True]
    # It did not act, so it left nothing.
    assert len((await client.ask("Hi", id="c")).messages) == 2
    transport.assert_finished()


async def test_a_json_schema_says_where_an_answer_does_not_fit_without_the_value() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "integer"}}}}
    client, model = in_words('{"a": [1, "secret"]}', '{"a": [1, "secret"]}')
    with pytest.raises(InvalidOutput) as raised:
        await client.run("?", output_type=schema)
    assert "a[1]" in str(raised.value)
    assert "secret" not in str(raised.value)
    assert "'secret' is not of type 'integer'" in model.requests[1]["messages"][-1]["content"]


async def test_what_the_model_is_told_is_bounded() -> None:
    wrong = json.dumps({"value": ["x" * 10_000] * 1000})
    client, model = in_words(wrong, wrong)
    with pytest.raises(InvalidOutput) as raised:
        await client.run("?", output_type=list[int])
    assert len(model.requests[1]["messages"][-1]["content"]) < 2000
    assert len(str(raised.value)) < 2000


async def test_the_step_limit_holds_for_a_repair() -> None:
    client, transport = scripted(final(x="no"))
    with pytest.raises(InvalidOutput, match="max_steps"):
        await client.run("?", output_type=Point, max_steps=1)
    transport.assert_finished()


async def test_an_answer_that_was_cut_off_is_incomplete() -> None:
    client, transport = scripted(openai_reply('{"x": 1', finish_reason="length"))
    result = await client.run("?", output_type=Point)
    assert (result.status, result.limit, result.output) == ("incomplete", "max_tokens", None)
    transport.assert_finished()


async def test_a_refusal_is_not_argued_with() -> None:
    client, transport = scripted(openai_reply("I cannot.", finish_reason="content_filter"))
    with pytest.raises(InvalidOutput, match="content_filter"):
        await client.run("?", output_type=Point)
    transport.assert_finished()


async def test_a_validator_that_fails_is_not_the_models_fault() -> None:
    class Broken(BaseModel):
        x: int

        @field_validator("x")
        @classmethod
        def check(cls, value: int) -> int:
            raise KeyError(value)

    client, _ = in_words('{"x": 1}')
    with pytest.raises(InvalidOutput, match="KeyError") as raised:
        await client.run("?", output_type=Broken)
    assert isinstance(raised.value.__cause__, KeyError)


async def test_validators_run_off_the_event_loop() -> None:
    where: list[threading.Thread] = []

    class Slow(BaseModel):
        x: int

        @field_validator("x")
        @classmethod
        def check(cls, value: int) -> int:
            where.append(threading.current_thread())
            return value

    client, _ = in_words('{"x": 1}')
    await client.run("?", output_type=Slow)
    assert where[0] is not threading.current_thread()


@pytest.mark.parametrize("wrong", [lambda: 1, 5, {"type": "no such"}, {"$ref": "#/$defs/gone"}, {"a": object()}])
async def test_a_type_that_cannot_be_described_is_refused_before_anything_is_sent(wrong: Any) -> None:
    client, transport = scripted()
    with pytest.raises(ConfigurationError, match="output_type"):
        await client.ask("?", id="c", output_type=wrong)
    assert transport.requests == []


# What a conversation keeps


async def test_a_result_that_is_replayed_has_its_output_again() -> None:
    client, transport = scripted(openai_reply("Hm."), openai_reply(calls=[call("add", a=1, b=2)]), final(x=3))
    first = await client.ask("?", [add], id="c", key="k", output_type=Point)
    again = await client.ask("?", [add], id="c", key="k", output_type=Point)

    assert again.output == Point(3)
    assert again.replayed
    assert again.steps == first.steps
    assert [step.rejected for step in again.steps] == [True, False, False]
    assert again.usage == first.usage
    assert (await client.ask("?", [add], id="c", key="k")).output is None
    with pytest.raises(InvalidOutput) as raised:
        await client.ask("?", [add], id="c", key="k", output_type=Trip)
    assert raised.value.partial == replace(again, output=None)
    transport.assert_finished()


class Plain:
    """A store of two methods."""

    def __init__(self) -> None:
        self.kept: dict[str, list[Any]] = {}

    def get(self, id: str) -> Any:
        return self.kept.get(id)

    def save(self, id: str, messages: list[Any]) -> None:
        self.kept[id] = messages


@pytest.mark.parametrize("kind", [InMemoryConversationStore, Plain])
async def test_a_turn_that_waits_goes_on_to_its_output(kind: Any) -> None:
    keys: list[str] = []

    def ask_user(ctx: Any) -> str:
        keys.append(ctx.idempotency_key)
        return str(ctx.answer["data"]) if ctx.answer else suspend("question", "Which one?")

    store: ConversationStore = kind()
    client, transport = scripted(
        openai_reply("Hm."), openai_reply(calls=[call("ask_user")]), openai_reply("Hm."), final(x=7), store=store
    )
    waits = await client.ask("?", [ask_user], id="c", output_type=Point)
    assert (waits.status, waits.output) == ("pending", None)

    answer = {"id": waits.pending[0]["id"], "ok": True, "data": 7}
    result = await client.resume("c", [ask_user], answers=[answer], output_type=Point)

    assert result.output == Point(7)
    assert [message["role"] for message in result.messages] == ["user", "assistant", "tool", "assistant"]
    assert keys[0] == keys[1]
    transport.assert_finished()


async def test_the_replies_of_two_runs_of_a_turn_are_replayed_in_their_order() -> None:
    def ask_user(ctx: Any) -> str:
        return "7" if ctx.answer else suspend("question", "Which one?")

    client, _ = scripted(
        openai_reply("A."), openai_reply("B.", calls=[call("ask_user")]), openai_reply("C."), final(x=7)
    )
    waits = await client.ask("?", [ask_user], id="c", key="k", output_type=Point)
    await client.resume("c", [ask_user], answers=[{"id": waits.pending[0]["id"], "ok": True}], output_type=Point)

    again = await client.ask("?", [ask_user], id="c", key="k", output_type=Point)
    assert [(step.text, step.rejected) for step in again.steps] == [
        ("A.", True),
        ("B.", False),
        ("C.", True),
        ('{"x": 7}', False),
    ]


async def test_a_turn_that_acted_and_found_no_answer_keeps_what_it_did() -> None:
    client, transport = scripted(
        openai_reply(calls=[call("add", a=1, b=2)]), openai_reply("A."), openai_reply("B."), final(x=3)
    )
    with pytest.raises(InvalidOutput):
        await client.ask("?", [add], id="c", key="k", output_type=Point)
    kept = await client.conversation(id="c").messages()
    assert [message["role"] for message in kept] == ["user", "assistant", "tool"]
    with pytest.raises(TurnInterrupted):
        await client.ask("?", [add], id="c", key="k", output_type=Point)
    assert (await client.resume("c", [add], output_type=Point)).output == Point(3)
    transport.assert_finished()


async def test_a_conversation_object_gives_outputs() -> None:
    client, _ = scripted(final(x=1), final(x=2))
    conversation = client.conversation()
    assert (await conversation.send("?", output_type=Point)).output == Point(1)
    events = await read(conversation.stream("?", output_type=Point))
    assert isinstance(events[-1], Finished)
    assert events[-1].result.output == Point(2)
    assert len(await conversation.messages()) == 4


async def test_a_stream_tells_the_answer_that_did_not_fit_from_the_one_that_did() -> None:
    client, _ = in_words("no", '{"x":1}')
    events = await read(client.stream("?", output_type=Point))
    shown = [event.text if isinstance(event, TextDelta) else event.type for event in events]
    assert shown == ["no", "step_finished", '{"x":1}', "step_finished", "finished"]
