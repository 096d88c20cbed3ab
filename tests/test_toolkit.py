"""Toolkits: what is in them, what became of the rest, and calls for a loop of somebody else."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import Any

import pytest
from heartbeat import heartbeat

from toolnexus.errors import ConfigurationError
from toolnexus.toolkit import Toolkit, ToolStatus, as_toolkit, create_toolkit
from toolnexus.tools import Tool, ToolContext


def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


async def weather(city: str, ctx: ToolContext) -> dict[str, str]:
    """The weather.

    Args:
        city: Where.
    """
    return {"city": city, "call": ctx.call_id}


def foreign(name: str, schema: Any = None, source: str = "mcp", **options: Any) -> Tool:
    """A tool that gives its arguments back."""
    if schema is not None:
        options["input_schema"] = schema
    return Tool(name=name, source=source, execute=lambda args, ctx: args, **options)


# --- what is in it -------------------------------------------------------------------------------------------------


async def test_a_toolkit_has_the_tools_it_was_given_in_their_order() -> None:
    search = foreign("search")
    toolkit = await create_toolkit(tools=[add, search, weather])
    assert [tool.name for tool in toolkit.tools()] == ["add", "search", "weather"]
    assert toolkit.get("search") is search
    assert toolkit.get("nothing") is None
    assert [each.state for each in toolkit.status()] == ["ready", "ready", "ready"]
    assert repr(toolkit) == "<toolnexus.Toolkit add, search, weather>"


@pytest.mark.parametrize("arguments", [{}, {"builtins": False}, {"builtins": {"bash": False}}, {"tools": []}])
async def test_a_toolkit_may_be_empty(arguments: Any) -> None:
    toolkit = await create_toolkit(**arguments)
    assert toolkit.tools() == ()
    assert (toolkit.to_openai(), toolkit.to_anthropic(), toolkit.status()) == ([], [], [])


@pytest.mark.parametrize("builtins", [True, {"bash": True}, {"bash": False, "read": True}])
async def test_a_built_in_tool_cannot_be_had_in_this_version(builtins: Any) -> None:
    with pytest.raises(ConfigurationError, match="Built-in tools are not part of this version"):
        await create_toolkit(builtins=builtins)


@pytest.mark.parametrize("tools", [add, foreign("one"), 5])
async def test_tools_come_as_a_list(tools: Any) -> None:
    with pytest.raises(ConfigurationError, match="give a list of functions or tools"):
        await create_toolkit(tools)


@pytest.mark.parametrize("tool", ["add", None, 5, {"name": "add"}])
async def test_what_is_no_tool_is_refused(tool: Any) -> None:
    with pytest.raises(ConfigurationError, match="cannot be a tool"):
        await create_toolkit([tool])


async def test_the_first_tool_of_a_name_wins_and_the_clash_is_told(caplog: pytest.LogCaptureFixture) -> None:
    theirs = foreign("add")
    toolkit = await create_toolkit([add, theirs, add])
    [mine] = toolkit.tools()
    assert mine.source == "native"
    clash = "a tool of the source 'native' has the name"
    assert toolkit.status() == [
        ToolStatus(name="add", source="native"),
        ToolStatus(name="add", source="mcp", state="clash", reason=clash),
        ToolStatus(name="add", source="native", state="clash", reason=clash),
    ]
    assert clash in caplog.text


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "object", "properties": {"n": {"type": "integr"}}}, "properties/n/type: 'integr' is not valid"),
        ({"type": "object", "required": "n"}, "required: 'n' is not of type 'array'"),
        ({"type": "string"}, "the arguments of a tool are an object, not 'string'"),
        ("nothing", "a schema is an object, not of the type str"),
        (
            {"properties": {"n": {"$ref": "https://example.com/n.json"}}},
            "'https://example.com/n.json' is not in the schema",
        ),
        ({"properties": {"n": {"items": {"$ref": "#/$defs/gone"}}}}, "'#/$defs/gone' is not in the schema"),
        ({"properties": {"n": {"default": float("nan")}}}, "nan, which JSON does not have"),
        ({"properties": {"n": {"default": object()}}}, "of the type object, which JSON does not have"),
    ],
)
async def test_a_tool_with_a_broken_schema_is_dropped_alone(schema: Any, reason: str) -> None:
    toolkit = await create_toolkit([foreign("broken", schema), foreign("fine")])
    assert [tool.name for tool in toolkit.tools()] == ["fine"]
    broken, fine = toolkit.status()
    assert (broken.name, broken.state, fine.state) == ("broken", "dropped", "ready")
    assert reason in broken.reason


async def test_a_name_whose_tool_was_dropped_is_free() -> None:
    toolkit = await create_toolkit([foreign("n", {"type": "string"}), foreign("n")])
    assert [each.state for each in toolkit.status()] == ["dropped", "ready"]
    assert toolkit.get("n") is not None


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": ["object", "null"]},
        {"properties": {"$ref": {"type": "string"}}},
        {"$defs": {"n": {"type": "integer"}}, "properties": {"n": {"$ref": "#/$defs/n"}}},
        {"properties": {"tree": {"$ref": "#"}}},
        {"$id": "https://example.com/a", "properties": {"n": {"$ref": "a#/$defs/n"}}, "$defs": {"n": {}}},
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "definitions": {"n": {}},
            "properties": {"n": {"$ref": "#/definitions/n"}},
        },
        {"$schema": "https://example.com/own", "type": "object"},
        {"properties": {"s": {"pattern": "\\p{L}"}}},
    ],
)
async def test_a_schema_that_is_only_unusual_is_kept(schema: Any) -> None:
    assert (await create_toolkit([foreign("n", schema)])).status() == [ToolStatus(name="n", source="mcp")]


async def test_a_tool_can_be_registered_later() -> None:
    toolkit = await create_toolkit([add])
    before = toolkit.tools()
    assert toolkit.register(weather) == ToolStatus(name="weather", source="native")
    assert toolkit.register(foreign("add")).state == "clash"
    assert [tool.name for tool in toolkit.tools()] == ["add", "weather"]
    assert len(before) == 1, "a run that has begun keeps the tools that it has"


async def test_what_a_run_takes_as_its_tools() -> None:
    toolkit = await create_toolkit([add])
    assert await as_toolkit(None) is None
    assert await as_toolkit(toolkit) is toolkit
    for given in ([add], (add,), iter([add]), {"add": add}.values()):
        made = await as_toolkit(given)
        assert made is not None
        assert [tool.name for tool in made.tools()] == ["add"]


async def test_closing_may_be_repeated_and_happens_at_the_end_of_a_block() -> None:
    async with await create_toolkit([add]) as toolkit:
        assert isinstance(toolkit, Toolkit)
    await toolkit.aclose()
    await toolkit.aclose()


# --- for a loop of somebody else -------------------------------------------------------------------------------------

ADD = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "default": 1}},
    "required": ["a"],
    "additionalProperties": False,
}


async def test_tools_are_declared_as_a_chat_completions_request_wants_them() -> None:
    toolkit = await create_toolkit([add])
    function = {"name": "add", "description": "Add two numbers.", "parameters": ADD}
    assert toolkit.to_openai() == [{"type": "function", "function": function}]


async def test_tools_are_declared_as_a_messages_request_wants_them() -> None:
    toolkit = await create_toolkit([add])
    assert toolkit.to_anthropic() == [{"name": "add", "description": "Add two numbers.", "input_schema": ADD}]


async def test_a_call_is_run_from_an_object_or_from_what_the_model_wrote() -> None:
    toolkit = await create_toolkit([add, weather, foreign("plain")])
    assert (await toolkit.execute("add", {"a": "1", "b": 2})).output == "3"
    assert (await toolkit.execute("add", '{"a": 1}')).output == "2"
    assert (await toolkit.execute("plain")).output == "{}"
    context = ToolContext(tool="weather", call_id="c1")
    assert (await toolkit.execute("weather", {"city": "Munich"}, context)).output == '{"city":"Munich","call":"c1"}'


async def test_a_call_by_the_name_that_was_declared_is_run() -> None:
    toolkit = await create_toolkit([foreign("files.read/all")])
    [declared] = toolkit.to_openai()
    assert declared["function"]["name"] != "files.read/all"
    assert (await toolkit.execute(declared["function"]["name"], {"a": 1})).output == '{"a":1}'


@pytest.mark.parametrize(
    ("name", "args", "output"),
    [
        ("ad", {}, "There is no tool 'ad'. Did you mean 'add'"),
        ("", {}, "There is no tool ''."),
        ("add", '{"a": 1', "The arguments are not a JSON object: "),
        ("add", [1], "The arguments are not a JSON object but of the type list."),
        ("add", {}, "The arguments do not fit.\n- a: is missing"),
        ("strict", {"n": "x"}, "The arguments do not fit.\n- n: 'x' is not of type 'integer'"),
        ("fails", {}, "ZeroDivisionError: division by zero"),
    ],
)
async def test_whatever_goes_wrong_is_in_the_result(name: str, args: Any, output: str) -> None:
    def fails() -> float:
        return 1 / 0

    strict = foreign("strict", {"properties": {"n": {"type": "integer"}}})
    result = await (await create_toolkit([add, strict, fails])).execute(name, args)
    assert result.is_error
    assert result.output.startswith(output)


async def test_arguments_are_copied_and_made_valid_unicode() -> None:
    toolkit = await create_toolkit([foreign("plain")])
    given = {"text": "\ud83d", "list": [1]}
    result = await toolkit.execute("plain", given)
    assert result.structured == {"text": "�", "list": [1]}
    assert result.structured["list"] is not given["list"]


async def test_the_closest_names_are_known() -> None:
    toolkit = await create_toolkit([add, weather, foreign("search")])
    assert toolkit.closest("wether")[0] == "weather"


async def test_our_own_cancellation_passes_through() -> None:
    started = asyncio.Event()

    async def hang() -> None:
        started.set()
        await asyncio.get_running_loop().create_future()

    task = asyncio.create_task((await create_toolkit([hang])).execute("hang"))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


# --- costs -----------------------------------------------------------------------------------------------------------


async def test_many_tools_do_not_block_the_loop() -> None:
    def numbered(number: int) -> Any:
        def function(a: int, b: list[str] | None = None) -> None: ...

        function.__name__ = f"function_{number}"
        return function

    schema = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(20)}}
    tools = [numbered(n) for n in range(100)] + [foreign(f"f{n}", schema) for n in range(100)]
    async with heartbeat() as heart:
        toolkit = await create_toolkit(tools)
    assert len(toolkit.tools()) == 200
    assert heart.longest < 0.25


def test_libraries_are_loaded_beside_the_loop_and_only_for_what_needs_them() -> None:
    program = """
import asyncio, json, sys, threading
from toolnexus.toolkit import create_toolkit
from toolnexus.tools import Tool

importing = {}

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name in ("pydantic", "jsonschema"):
            importing[name] = threading.current_thread() is threading.main_thread()

sys.meta_path.insert(0, Watch())

def add(a: int) -> int:
    return a

async def main():
    await create_toolkit()
    before = dict(importing)
    await create_toolkit([add])
    native = dict(importing)
    await create_toolkit([Tool(name="t", execute=print)])
    print(json.dumps([before, native, importing]))

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [{}, {"pydantic": False}, {"pydantic": False, "jsonschema": False}]
