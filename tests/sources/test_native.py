"""Functions as tools: what a model is shown, and what the function gets."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import decimal
import enum
import functools
import gc
import ipaddress
import json
import pathlib
import re
import uuid
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    Optional,
    TypedDict,
    TypeVar,
    Union,
)

import jsonschema
import pydantic
import pytest
from anthropic.types.message_create_params import MessageCreateParamsNonStreaming
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming
from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming
from pydantic import Field
from sdk_types import misfit
from typing_extensions import TypeAliasType
from wire_rules import check_anthropic, check_gemini, check_openai, check_responses

from toolnexus import create_client
from toolnexus._invoke import check, invoke
from toolnexus.errors import ConfigurationError
from toolnexus.sources.native import define_tool, tool
from toolnexus.testing import ScriptedTransport, anthropic_reply, call, openai_reply
from toolnexus.tools import InvalidArguments, Tool, ToolContext, ToolResult

if TYPE_CHECKING:
    from toolnexus.nowhere import Unknown

    from toolnexus import ToolContext as Context


class Colour(enum.Enum):
    RED = "red"


class Size(enum.IntEnum):
    BIG = 3


@dataclasses.dataclass
class Point:
    x: int
    day: datetime.date | None = None


class Model(pydantic.BaseModel):
    """A model of its own."""

    a: int
    points: list[Point] = []


class Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)

    day: datetime.date
    n: int


class Entry(TypedDict):
    a: int
    note: NotRequired[str]


class Loose(TypedDict, total=False):
    entries: list[Entry]


class Tree(pydantic.BaseModel):
    value: int
    children: list[Tree] = []


class Letter(enum.StrEnum):
    A = "a"


class Mixed(enum.Enum):
    ONE = 1
    TWO = "two"


class Place(NamedTuple):
    x: int
    name: str = ""


class Cat(pydantic.BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(pydantic.BaseModel):
    kind: Literal["dog"]
    name: str


DOG: Any = {"kind": "dog", "name": "Rex"}


@dataclasses.dataclass
class Node:
    value: int
    next: Node | None = None


class Renamed(pydantic.BaseModel):
    origin: str = Field(alias="from")


UserId = NewType("UserId", int)
Nested = TypeAliasType("Nested", "list[int | Nested]")

T = TypeVar("T")
U = TypeVar("U")


class Pair(TypedDict, Generic[T, U]):
    one: T
    other: NotRequired[list[U]]


@dataclasses.dataclass
class Crate(Generic[T]):
    content: T


class Box(pydantic.BaseModel, Generic[T]):
    content: T


def called(made: Tool, arguments: dict[str, Any]) -> Any:
    """What the tool's function returns for these arguments."""
    return made.execute(check(made, arguments), ToolContext(tool=made.name, call_id="c1"))


def properties(function: Callable[..., Any]) -> dict[str, Any]:
    return dict(define_tool(function).input_schema["properties"])


INTEGER = {"type": "integer"}
STRING = {"type": "string"}
NULL = {"type": "null"}
ENTRY = {
    "type": "object",
    "properties": {"a": INTEGER, "note": STRING},
    "required": ["a"],
    "additionalProperties": False,
}

# annotation, its schema (None: it is long), what a model sends, what the function gets
FORMS: list[tuple[Any, Any, Any, Any]] = [
    (int, INTEGER, 5, 5),
    (int, INTEGER, "5", 5),
    (float, {"type": "number"}, 5, 5.0),
    (bool, {"type": "boolean"}, True, True),
    (str, STRING, "x", "x"),
    (None, NULL, None, None),
    (Any, {}, {"a": [1]}, {"a": [1]}),
    (object, {}, [1], [1]),
    (Optional[int], {"anyOf": [INTEGER, NULL]}, None, None),  # noqa: UP045
    (int | None, {"anyOf": [INTEGER, NULL]}, 5, 5),
    (Union[int, str], {"anyOf": [INTEGER, STRING]}, "x", "x"),  # noqa: UP007
    ("int | str", {"anyOf": [INTEGER, STRING]}, 5, 5),
    (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}, "b", "b"),
    (Literal[1], {"type": "integer", "const": 1}, 1, 1),
    (Colour, {"$ref": "#/$defs/Colour"}, "red", Colour.RED),
    (Size, {"$ref": "#/$defs/Size"}, 3, Size.BIG),
    (list[int], {"type": "array", "items": INTEGER}, ["1", 2], [1, 2]),
    (list, {"type": "array", "items": {}}, [1, "x"], [1, "x"]),
    (Sequence[int], {"type": "array", "items": INTEGER}, [1], [1]),
    (set[int], {"type": "array", "items": INTEGER, "uniqueItems": True}, [1, 1], {1}),
    (
        tuple[int, str],
        {"type": "array", "prefixItems": [INTEGER, STRING], "minItems": 2, "maxItems": 2},
        [1, "x"],
        (1, "x"),
    ),
    (tuple[int, ...], {"type": "array", "items": INTEGER}, [1, 2], (1, 2)),
    (dict[str, int], {"type": "object", "additionalProperties": INTEGER}, {"a": 1}, {"a": 1}),
    (dict, {"type": "object", "additionalProperties": True}, {"a": 1}, {"a": 1}),
    (Point, {"$ref": "#/$defs/Point"}, {"x": 1, "day": "2024-01-02"}, Point(1, datetime.date(2024, 1, 2))),
    (Model, {"$ref": "#/$defs/Model"}, {"a": 1, "points": [{"x": 2}]}, Model(a=1, points=[Point(2)])),
    (Strict, {"$ref": "#/$defs/Strict"}, {"day": "2024-01-02", "n": 1}, Strict(day=datetime.date(2024, 1, 2), n=1)),
    (list[Model], {"type": "array", "items": {"$ref": "#/$defs/Model"}}, [{"a": 1}], [Model(a=1)]),
    (Tree, {"$ref": "#/$defs/Tree"}, {"value": 1, "children": [{"value": 2}]}, Tree(value=1, children=[Tree(value=2)])),
    (Box[int], {"$ref": "#/$defs/Box_int_"}, {"content": "1"}, Box[int](content=1)),
    (Entry, {"$ref": "#/$defs/Entry"}, {"a": "1"}, {"a": 1}),
    (
        list[Entry],
        {"type": "array", "items": {"$ref": "#/$defs/Entry"}},
        [{"a": 1, "note": "x"}],
        [{"a": 1, "note": "x"}],
    ),
    (Entry | None, {"anyOf": [{"$ref": "#/$defs/Entry"}, NULL]}, {"a": 1}, {"a": 1}),
    (Annotated[Entry, "a note"], {"$ref": "#/$defs/Entry"}, {"a": 1}, {"a": 1}),
    (Loose, {"$ref": "#/$defs/Loose"}, {"entries": [{"a": 1}]}, {"entries": [{"a": 1}]}),
    (datetime.date, {"type": "string", "format": "date"}, "2024-01-02", datetime.date(2024, 1, 2)),
    (
        datetime.datetime,
        {"type": "string", "format": "date-time"},
        "2024-01-02T03:04:05Z",
        datetime.datetime(2024, 1, 2, 3, 4, 5, tzinfo=datetime.UTC),
    ),
    (datetime.timedelta, {"type": "string", "format": "duration"}, "PT1H", datetime.timedelta(hours=1)),
    (uuid.UUID, {"type": "string", "format": "uuid"}, str(uuid.UUID(int=1)), uuid.UUID(int=1)),
    (pathlib.Path, {"type": "string", "format": "path"}, "/tmp", pathlib.Path("/tmp")),
    (bytes, {"type": "string", "format": "binary"}, "abc", b"abc"),
    (
        Annotated[int, Field(ge=1, description="at least one")],
        {**INTEGER, "minimum": 1, "description": "at least one"},
        1,
        1,
    ),
    (Annotated[str, Field(title="Kept", max_length=3)], {**STRING, "title": "Kept", "maxLength": 3}, "x", "x"),
    (Annotated[int | None, Field(gt=0)], {"anyOf": [{**INTEGER, "exclusiveMinimum": 0}, NULL]}, None, None),
    (frozenset[int], {"type": "array", "items": INTEGER, "uniqueItems": True}, [1], frozenset({1})),
    (Set[int], {"type": "array", "items": INTEGER, "uniqueItems": True}, [1], frozenset({1})),
    (Iterable[int], {"type": "array", "items": INTEGER}, ["1"], [1]),
    (Collection[Entry], {"type": "array", "items": {"$ref": "#/$defs/Entry"}}, [{"a": 1}], [{"a": 1}]),
    (Iterable, {"type": "array", "items": {}}, [1, "x"], [1, "x"]),
    (tuple, {"type": "array", "items": {}}, [1, "x"], (1, "x")),
    (list[list[int]], {"type": "array", "items": {"type": "array", "items": INTEGER}}, [[1], []], [[1], []]),
    (dict[int, str], {"type": "object", "additionalProperties": STRING}, {"1": "x"}, {1: "x"}),
    (Mapping[str, Any], {"type": "object", "additionalProperties": True}, {"a": [1]}, {"a": [1]}),
    (dict[Letter, int], None, {"a": 1}, {Letter.A: 1}),
    (Letter, {"$ref": "#/$defs/Letter"}, "a", Letter.A),
    (Mixed, {"$ref": "#/$defs/Mixed"}, 1, Mixed.ONE),
    (Literal["a", 1, None], {"enum": ["a", 1, None]}, None, None),
    (Literal[Letter.A], {"type": "string", "const": "a"}, "a", Letter.A),
    (Literal[True], {"type": "boolean", "const": True}, True, True),
    (int | str | bool | None, {"anyOf": [INTEGER, STRING, {"type": "boolean"}, NULL]}, True, True),
    (Place, None, [1, "home"], Place(1, "home")),
    (Cat | Dog, {"anyOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}]}, DOG, Dog(**DOG)),
    (Annotated[Cat | Dog, Field(discriminator="kind")], None, DOG, Dog(**DOG)),
    (Node, {"$ref": "#/$defs/Node"}, {"value": 1, "next": {"value": 2}}, Node(1, Node(2))),
    (dict[str, list[Node]], None, {"a": [{"value": 1}]}, {"a": [Node(1)]}),
    (Pair[int, str], {"$ref": "#/$defs/Pair"}, {"one": "1", "other": ["x"]}, {"one": 1, "other": ["x"]}),
    (Crate[int], {"$ref": "#/$defs/Crate_int_"}, {"content": "1"}, Crate(1)),
    (Nested, {"$ref": "#/$defs/Nested"}, [1, [2, []]], [1, [2, []]]),
    (UserId, INTEGER, "1", 1),
    (Renamed, {"$ref": "#/$defs/Renamed"}, {"from": "here"}, Renamed.model_validate({"from": "here"})),
    (decimal.Decimal, None, "1.10", decimal.Decimal("1.10")),
    (datetime.time, {"type": "string", "format": "time"}, "10:20:00", datetime.time(10, 20)),
    (pydantic.AnyUrl, None, "https://example.com/", pydantic.AnyUrl("https://example.com/")),
    (ipaddress.IPv4Address, {"type": "string", "format": "ipv4"}, "10.0.0.1", ipaddress.IPv4Address("10.0.0.1")),
    (re.Pattern, {"type": "string", "format": "regex"}, "a+", re.compile("a+")),
    (pydantic.JsonValue, {"$ref": "#/$defs/JsonValue"}, {"a": [1, None]}, {"a": [1, None]}),
    (Annotated[list[int], Field(min_length=1)], {"type": "array", "items": INTEGER, "minItems": 1}, [1], [1]),
]


@pytest.mark.parametrize(("annotation", "schema", "sent", "received"), FORMS, ids=lambda value: str(value)[:40])
def test_an_annotation_is_shown_to_the_model_and_converts_what_it_sends(
    annotation: Any, schema: Any, sent: Any, received: Any
) -> None:
    def function(value: Any) -> Any:
        return value

    function.__annotations__["value"] = annotation
    made = define_tool(function)
    if schema is not None:
        assert made.input_schema["properties"] == {"value": schema}
    assert made.input_schema["required"] == ["value"]
    got = called(made, {"value": sent})
    assert got == received
    assert type(got) is type(received)


REPLIES: dict[str, Callable[[Any], Any]] = {
    "openai": lambda sent: openai_reply(calls=[call("function", value=sent)]),
    "anthropic": lambda sent: anthropic_reply(calls=[call("function", value=sent)]),
    "responses": lambda sent: {
        "id": "resp_1",
        "status": "completed",
        "model": "m",
        "output": [
            {"type": "function_call", "call_id": "c1", "name": "function", "arguments": json.dumps({"value": sent})}
        ],
    },
    "gemini": lambda sent: {
        "candidates": [
            {
                "content": {"parts": [{"functionCall": {"name": "function", "args": {"value": sent}}}]},
                "finishReason": "STOP",
            }
        ]
    },
}
LAST: dict[str, Any] = {
    "openai": openai_reply("Done."),
    "anthropic": anthropic_reply("Done."),
    "responses": {
        "id": "resp_2",
        "status": "completed",
        "model": "m",
        "output": [
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Done."}]},
        ],
    },
    "gemini": {"candidates": [{"content": {"parts": [{"text": "Done."}]}, "finishReason": "STOP"}]},
}
RULES: dict[str, Callable[[Any], None]] = {
    "openai": check_openai,
    "anthropic": check_anthropic,
    "responses": check_responses,
    "gemini": functools.partial(check_gemini, model="m"),
}
SDK_TYPES = {
    "openai": CompletionCreateParamsNonStreaming,
    "anthropic": MessageCreateParamsNonStreaming,
    "responses": ResponseCreateParamsNonStreaming,
}
HOSTS = {"openai": "https://model.test/v1", "responses": "https://api.openai.com/v1"}


def declared(style: str, body: dict[str, Any]) -> dict[str, Any]:
    """The schema of the arguments in a request."""
    [tool] = body["tools"]
    about = tool["function"] if style == "openai" else tool
    return about["input_schema" if style == "anthropic" else "parameters"]


def accepts(schema: Any, sent: Any) -> bool:
    return jsonschema.Draft202012Validator(schema).is_valid({"value": sent})


@pytest.mark.parametrize("style", REPLIES)
@pytest.mark.parametrize(("annotation", "schema", "sent", "received"), FORMS, ids=lambda value: str(value)[:40])
async def test_each_wire_can_say_an_annotation_and_its_argument_arrives(
    annotation: Any, schema: Any, sent: Any, received: Any, style: str
) -> None:
    got: list[Any] = []

    def function(value: Any) -> str:
        got.append(value)
        return "done"

    function.__annotations__["value"] = annotation
    transport = ScriptedTransport(REPLIES[style](sent), LAST[style])
    base_url = HOSTS.get(style, "https://model.test")
    async with create_client("m", base_url=base_url, style=style, api_key="k", transport=transport) as client:
        result = await client.run("Go.", [function])

    assert (result.text, result.tool_calls[0].output) == ("Done.", "done")
    assert got == [received]
    assert type(got[0]) is type(received)
    for request in transport.requests:
        body = request.json
        RULES[style](body)
        if style in SDK_TYPES:
            assert misfit(body, SDK_TYPES[style]) is None
            assert accepts(declared(style, body), sent) or not accepts(define_tool(function).input_schema, sent)


def test_the_whole_schema_of_a_function() -> None:
    def book(flight: str, seats: int = 1, *, day: datetime.date = datetime.date(2024, 1, 2), entry: Entry) -> None:
        """Book a flight.

        Args:
            flight: Its number.
        """

    made = define_tool(book)
    assert made.description == "Book a flight."
    assert made.input_schema == {
        "type": "object",
        "properties": {
            "flight": {"type": "string", "description": "Its number."},
            "seats": {"type": "integer", "default": 1},
            "day": {"type": "string", "format": "date", "default": "2024-01-02"},
            "entry": {"$ref": "#/$defs/Entry"},
        },
        "required": ["flight", "entry"],
        "additionalProperties": False,
        "$defs": {"Entry": ENTRY},
    }


def test_classes_bring_no_generated_titles() -> None:
    def paint(model: Model, colour: Colour, box: Box[int]) -> None: ...

    assert '"title"' not in json.dumps(define_tool(paint).input_schema)


def test_a_parameter_may_be_called_title() -> None:
    def name(title: str) -> str:
        return title

    made = define_tool(name)
    assert made.input_schema["properties"] == {"title": STRING}
    assert called(made, {"title": "x"}) == "x"


def test_a_function_without_parameters() -> None:
    def now() -> str:
        return "now"

    made = define_tool(now)
    assert made.input_schema == {"type": "object", "properties": {}, "additionalProperties": False}
    assert called(made, {}) == "now"


def test_what_is_not_annotated_can_be_anything() -> None:
    def echo(value, other=5):
        return value, other

    assert properties(echo) == {"value": {}, "other": {"default": 5}}
    assert called(define_tool(echo), {"value": [1]}) == ([1], 5)


def test_names_that_pydantic_uses_itself_are_just_names() -> None:
    def odd(_hidden: int, model_config: str, schema: str, copy: int, json: int, __dunder: int = 1) -> Any:
        return _hidden, model_config, schema, copy, json, __dunder

    sent = {"_hidden": 1, "model_config": "a", "schema": "b", "copy": 2, "json": 3}
    assert called(define_tool(odd), sent) == (1, "a", "b", 2, 3, 1)


def test_defaults_are_the_functions_own() -> None:
    marker = object()

    def search(text: str, where: Any = marker, tags: list[str] | None = None) -> Any:
        return text, where, tags

    assert properties(search)["where"] == {}, "what JSON cannot say is not shown"
    assert properties(search)["tags"]["default"] is None
    assert called(define_tool(search), {"text": "x"}) == ("x", marker, None)


def test_a_field_as_the_default_gives_its_default_and_its_limits() -> None:
    def search(limit: int = Field(5, ge=1, description="how many"), need: int = Field(le=3)) -> Any:
        return limit, need

    made = define_tool(search)
    assert made.input_schema["properties"]["limit"] == {
        "type": "integer",
        "default": 5,
        "minimum": 1,
        "description": "how many",
    }
    assert made.input_schema["required"] == ["need"]
    assert called(made, {"need": 1}) == (5, 1)


def test_an_alias_is_what_the_model_sees() -> None:
    def travel(from_: Annotated[str, Field(alias="from")]) -> str:
        return from_

    made = define_tool(travel)
    assert made.input_schema["required"] == ["from"]
    assert called(made, {"from": "here"}) == "here"


def test_positional_only_parameters_are_filled_in_order() -> None:
    def place(a: int, b: int = 2, c: int = 3, /, d: int = 4) -> Any:
        return a, b, c, d

    assert called(define_tool(place), {"a": 1, "c": 9}) == (1, 2, 9, 4)


def test_further_keywords_are_taken_and_converted() -> None:
    def tag(name: str, **values: int) -> Any:
        return name, values

    made = define_tool(tag)
    assert made.input_schema["additionalProperties"] == INTEGER
    assert made.input_schema["required"] == ["name"]
    assert called(made, {"name": "n", "a": "1", "b": 2}) == ("n", {"a": 1, "b": 2})
    with pytest.raises(InvalidArguments, match="- a: Input should be a valid integer"):
        check(made, {"name": "n", "a": "x"})


def test_further_keywords_of_any_type() -> None:
    def tag(**values):
        return values

    made = define_tool(tag)
    assert made.input_schema["additionalProperties"] is True
    assert called(made, {"a": [1]}) == {"a": [1]}


# --- what cannot be a tool -----------------------------------------------------------------------------------------


def variable(*values: int) -> None: ...
def calling(callback: Callable[[int], int]) -> None: ...
def unknown(value: Unknown) -> None: ...
def misspelt(value: list[Itn]) -> None: ...  # noqa: F821  # pyright: ignore[reportUndefinedVariable]


class Opaque:
    def method(self, value: int) -> int:
        return value


def opaque(fine: int, value: Opaque) -> None: ...


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (variable, r"variable: .* cannot fill \*values.* Take a list"),
        (calling, r"calling: a model cannot fill the parameter 'callback' of the type .*Callable.* functools.partial"),
        (opaque, r"opaque: a model cannot fill the parameter 'value' of the type .*Opaque"),
        (unknown, r"unknown: the annotation 'Unknown' of 'value' cannot be resolved .* not for type checkers only"),
        (misspelt, r"misspelt: the annotation 'list\[Itn\]' of 'value'"),
        (Opaque.method, r"method is a method without its object. Give it bound: object.method"),
        (Opaque, r"Opaque'> cannot be a tool"),
        (5, r"5 cannot be a tool"),
        (lambda: 1, r"A lambda has no name"),
        (max, r"max: its signature cannot be read. Wrap it"),
    ],
)
def test_what_a_model_cannot_call_is_refused_with_the_next_step(function: Any, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        define_tool(function)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"readonly": True}, "no option 'readonly'. There are: name, description, read_only"),
        ({"timeout": 0}, "timeout is 0"),
        ({"timeout": -1.5}, "timeout is -1.5"),
        ({"name": ""}, "name is empty"),
    ],
)
@pytest.mark.parametrize("make", [lambda o: define_tool(variable, **o), lambda o: tool(**o)], ids=["define", "mark"])
def test_a_wrong_option_is_refused(make: Any, options: Any, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        make(options)


# --- kinds of functions ----------------------------------------------------------------------------------------------


class Account:
    def __init__(self) -> None:
        self.balance = 0

    @tool(exclusive=True)
    def deposit(self, amount: int) -> int:
        """Pay in."""
        self.balance += amount
        return self.balance

    @tool
    @classmethod
    def open(cls, owner: str) -> str:
        return f"{cls.__name__} of {owner}"

    @tool(read_only=True)
    @staticmethod
    def fee(amount: int) -> int:
        return amount // 100

    def __call__(self, amount: int) -> int:
        """Take out."""
        self.balance -= amount
        return self.balance


def test_a_bound_method_works_on_its_object() -> None:
    first, second = Account(), Account()
    made = define_tool(first.deposit)
    assert (made.name, made.description, made.exclusive) == ("deposit", "Pay in.", True)
    assert called(made, {"amount": "5"}) == 5
    assert called(define_tool(second.deposit), {"amount": 1}) == 1
    assert (first.balance, second.balance) == (5, 1)


def test_class_methods_and_static_methods() -> None:
    assert called(define_tool(Account.open), {"owner": "me"}) == "Account of me"
    made = define_tool(Account.fee)
    assert (called(made, {"amount": 500}), made.read_only) == (5, True)


def test_an_object_that_can_be_called() -> None:
    made = define_tool(Account())
    assert (made.name, made.description) == ("Account", "Take out.")
    assert called(made, {"amount": 5}) == -5


def test_a_partial_hides_what_it_fixes() -> None:
    @tool(needs_approval=True)
    def transfer(user: int, to: str, amount: int = 1) -> Any:
        """Move money."""
        return user, to, amount

    made = define_tool(functools.partial(transfer, 7, amount=3))
    assert (made.name, made.description, made.needs_approval) == ("transfer", "Move money.", True)
    assert list(made.input_schema["properties"]) == ["to"]
    assert called(made, {"to": "me"}) == (7, "me", 3)
    with pytest.raises(InvalidArguments, match="- amount: there is no such parameter"):
        check(made, {"to": "me", "amount": 1000})


def test_a_decorated_function_keeps_its_signature() -> None:
    def logged(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return wrapper

    @logged
    def add(a: int, point: Point) -> int:
        return a + point.x

    assert called(define_tool(add), {"a": "1", "point": {"x": 2}}) == 3


def test_types_of_the_function_around_are_found_while_it_runs() -> None:
    class Local(pydantic.BaseModel):
        n: int

    def use(local: Local) -> int:
        return local.n

    assert called(define_tool(use), {"local": {"n": 4}}) == 4


def test_decorated_functions_are_shown_as_what_they_wrap() -> None:
    def logged(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return wrapper

    @logged
    def add(a: int, b: int = 1) -> int:
        """Add."""
        return a + b

    @functools.cache
    def double(a: int) -> int:
        """Double."""
        return a * 2

    class Scale:
        def by(self, a: int, factor: int) -> int:
            """Scale."""
            return a * factor

        ten = functools.partialmethod(by, factor=10)

    for function, described in [(add, "Add."), (double, "Double."), (Scale().ten, "Scale.")]:
        made = define_tool(function)
        assert (made.description, made.input_schema["properties"]["a"]) == (described, INTEGER)
    assert called(define_tool(add), {"a": "2"}) == 3
    assert called(define_tool(double), {"a": "2"}) == 4
    assert called(define_tool(functools.partial(Scale().by, factor=10)), {"a": "2"}) == 20


async def test_coroutine_functions_stay_coroutine_functions() -> None:
    class Adder:
        async def __call__(self, a: int) -> int:
            return a + 1

    async def add(a: int, b: int) -> int:
        return a + b

    for function, sent in [(add, {"a": 1, "b": 2}), (functools.partial(add, b=2), {"a": 1}), (Adder(), {"a": 2})]:
        made = define_tool(function)
        assert asyncio.iscoroutinefunction(made.execute)
        assert await called(made, sent) == 3


# --- context -------------------------------------------------------------------------------------------------------


def by_name(a: int, ctx) -> Any:
    return a, ctx.call_id


def by_type(context: ToolContext, a: int) -> Any:
    return a, context.call_id


def by_type_if_any(a: int, context: ToolContext | None = None) -> Any:
    return a, context and context.call_id


def by_position(context: ToolContext, a: int, /) -> Any:
    return a, context.call_id


def by_name_for_type_checkers(a: int, *, ctx: Context) -> Any:
    return a, ctx.call_id


@pytest.mark.parametrize("function", [by_name, by_type, by_type_if_any, by_position, by_name_for_type_checkers])
def test_the_context_is_given_and_not_shown(function: Callable[..., Any]) -> None:
    made = define_tool(function)
    assert made.input_schema["properties"] == {"a": INTEGER}
    assert called(made, {"a": 1}) == (1, "c1")
    with pytest.raises(InvalidArguments):
        check(made, {"a": 1, "ctx": {}, "context": {}})


# --- marks ---------------------------------------------------------------------------------------------------------


def test_a_marked_function_stays_the_function_that_it_is() -> None:
    @tool
    def add(a: int, b: int) -> int:
        return a + b

    @tool(name="sum", description="Sums.", read_only=True, idempotent=True, timeout=2)
    def total(a: int, b: int) -> int:
        return a + b

    assert (add(1, 2), total(1, b=2)) == (3, 3)
    made = define_tool(total)
    assert (made.name, made.description, made.source) == ("sum", "Sums.", "native")
    assert (made.read_only, made.idempotent, made.exclusive, made.needs_approval) == (True, True, False, False)
    assert made.timeout == 2


def test_what_is_said_when_defining_wins() -> None:
    @tool(name="one", timeout=5, read_only=True)
    def add() -> None:
        """Words."""

    made = define_tool(add, name="two", timeout=None, description="")
    assert (made.name, made.timeout, made.read_only, made.description) == ("two", None, True, "")
    assert define_tool(add).name == "one"


# --- telling the model ------------------------------------------------------------------------------------------------


def test_wrong_arguments_are_listed_shortly_with_their_place() -> None:
    def order(
        item: Literal["tea"], points: list[Point], note: str = "", n: Annotated[int, Field(ge=1)] = 1
    ) -> None: ...

    with pytest.raises(InvalidArguments) as told:
        check(define_tool(order), {"points": [{"x": 1}, {"x": "a" * 1000}], "n": 0, "wrong": 1, "note": None})
    lines = str(told.value).splitlines()
    assert lines[:2] == ["The arguments do not fit.", "- item: is missing"]
    assert lines[2].startswith("- points[1].x: Input should be a valid integer")
    assert lines[2].endswith("aaa…")
    assert lines[3:] == [
        "- note: Input should be a valid string, not None",
        "- n: Input should be greater than or equal to 1, not 0",
        "- wrong: there is no such parameter",
    ]
    assert "pydantic" not in str(told.value)
    assert len(str(told.value)) < 600


async def test_what_a_validator_raises_is_told_to_the_model() -> None:
    class Even(pydantic.BaseModel):
        n: int

        @pydantic.field_validator("n")
        @classmethod
        def even(cls, n: int) -> int:
            if n % 2:
                raise ValueError("odd")
            return {0: 0}[n]

    def use(value: Even) -> int:
        return value.n

    made = define_tool(use)
    with pytest.raises(InvalidArguments, match=r"value\.n: Value error, odd, not 1"):
        check(made, {"value": {"n": 1}})
    with pytest.raises(InvalidArguments, match="KeyError: 2"):
        check(made, {"value": {"n": 2}})
    assert (await invoke(made, check(made, {"value": {"n": 0}}), ToolContext(tool="use"))) == ToolResult(
        output="0", structured=0
    )


# --- docstrings ----------------------------------------------------------------------------------------------------


def google(a: int, b: int = 1, **rest: int) -> None:
    """Add two numbers.

    It adds: nothing else.

    Args:
        a: The first one,
            which goes on.
        b (dict[str, list(int)], optional): The second one: a note.
        **rest: Others.

    Returns:
        a: not a parameter
    """


def numpy(a: int, b: int = 1, **rest: int) -> None:
    """Add two numbers.

    It adds: nothing else.

    Parameters
    ----------
    a : int
        The first one,
        which goes on.
    b : dict of str, optional
        The second one: a note.
    **rest
        Others.

    Returns
    -------
    a : int
        not a parameter
    """


def sphinx(a: int, b: int = 1, **rest: int) -> None:
    """
    Add two numbers.

    It adds: nothing else.

    :param a: The first one,
        which goes on.
    :param dict b: The second one: a note.
    :type b: dict
    :param rest: Others.
    :returns: not a parameter
    :raises ValueError: never
    """


@pytest.mark.parametrize("function", [google, numpy, sphinx])
def test_the_docstring_describes_the_tool_and_its_parameters(function: Callable[..., Any]) -> None:
    made = define_tool(function)
    assert made.description == "Add two numbers.\n\nIt adds: nothing else."
    told = {name: schema.get("description") for name, schema in made.input_schema["properties"].items()}
    assert told == {"a": "The first one, which goes on.", "b": "The second one: a note."}


def test_words_in_the_annotation_win_over_the_docstring() -> None:
    def add(a: Annotated[int, Field(description="mine")]) -> None:
        """Add.

        Args:
            a: not mine
        """

    assert properties(add)["a"]["description"] == "mine"


def test_numpy_entries_may_share_a_line() -> None:
    def add(a: int, b: int) -> None:
        """Add.

        Parameters
        ----------
        a, b : int
            Numbers.
        """

    assert {schema["description"] for schema in properties(add).values()} == {"Numbers."}


def test_a_function_without_words_has_none() -> None:
    def bare(a: int) -> None: ...

    assert define_tool(bare).description == ""
    assert properties(bare) == {"a": INTEGER}


# --- costs ---------------------------------------------------------------------------------------------------------


def test_a_function_that_is_given_again_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def add(a: int) -> int:
        return a

    account = Account()
    first = define_tool(add)
    define_tool(account.deposit)
    monkeypatch.setattr("toolnexus.sources.native._read", None)
    assert define_tool(add, name="other").input_schema is first.input_schema
    assert called(define_tool(Account().deposit), {"amount": 3}) == 3


def test_a_function_is_not_kept_alive() -> None:
    def given_once() -> weakref.ref[Any]:
        def add(a: int) -> int:
            return a

        define_tool(add)
        return weakref.ref(add)

    gone = given_once()
    gc.collect()
    assert gone() is None
