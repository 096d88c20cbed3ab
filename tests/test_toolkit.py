"""Toolkits: what is in them, what became of the rest, and calls for a loop of somebody else."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from echo import echo_server
from heartbeat import heartbeat
from scripts import scripted

from toolnexus import _workers
from toolnexus.errors import ConfigurationError
from toolnexus.sources import _schemas
from toolnexus.sources.builtin import NAMES
from toolnexus.sources.builtin.workspace import Workspace
from toolnexus.sources.skills import SkillDef
from toolnexus.testing import call, openai_reply
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


@pytest.mark.parametrize("arguments", [{}, {"builtins": False}, {"builtins": {}}, {"tools": []}, {"skills": []}])
async def test_a_toolkit_may_be_empty(arguments: Any) -> None:
    toolkit = await create_toolkit(**arguments)
    assert toolkit.tools() == ()
    assert (toolkit.to_openai(), toolkit.to_anthropic(), toolkit.status()) == ([], [], [])
    assert (toolkit.to_responses(), toolkit.to_gemini()) == ([], [])
    assert (toolkit.skills_prompt(), toolkit.list_skills()) == ("", [])


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


# --- built-in tools, skills and other sources ------------------------------------------------------------------------

POEMS = SkillDef(name="poems", description="Write poems. Use it for verse.", body="Rhyme.")
BILLS = SkillDef(name="bills", description="Write bills.", body="Add up.")


class Changing:
    """A source whose tools the test sets. It notes how often it was closed."""

    def __init__(self, *tools: Tool, fault: Exception | None = None) -> None:
        self.now: tuple[Tool, ...] = tools
        self.closed = 0
        self._fault = fault

    def tools(self) -> Sequence[Tool]:
        return self.now

    async def aclose(self) -> None:
        await asyncio.sleep(0)
        self.closed += 1
        if self._fault is not None:
            raise self._fault


def names(toolkit: Toolkit) -> list[str]:
    return [tool.name for tool in toolkit.tools()]


async def test_yours_come_first_then_the_built_in_tools_the_skills_and_other_sources(tmp_path: Path) -> None:
    async with await create_toolkit(
        [add], builtins={"read": True, "bash": True}, root=tmp_path, skills=POEMS, sources=[Changing(foreign("search"))]
    ) as toolkit:
        assert names(toolkit) == ["add", "bash", "read", "skill", "search"]
        assert [each.source for each in toolkit.status()] == ["native", "builtin", "builtin", "skill", "mcp"]


async def test_nothing_from_outside_replaces_a_tool_of_the_host(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def read(path: str) -> str:
        return "mine"

    theirs = Changing(*map(foreign, ("add", "bash", "read", "skill", "theirs")))
    async with await create_toolkit(
        [add, read], builtins={"bash": True, "read": True}, root=tmp_path, skills=[POEMS], sources=[theirs]
    ) as toolkit:
        assert {tool.name: tool.source for tool in toolkit.tools()} == {
            "add": "native",
            "read": "native",
            "bash": "builtin",
            "skill": "skill",
            "theirs": "mcp",
        }
        assert [(each.name, each.source, each.reason) for each in toolkit.status() if each.state == "clash"] == [
            ("read", "builtin", "a tool of the source 'native' has the name"),
            ("add", "mcp", "a tool of the source 'native' has the name"),
            ("bash", "mcp", "a tool of the source 'builtin' has the name"),
            ("read", "mcp", "a tool of the source 'native' has the name"),
            ("skill", "mcp", "a tool of the source 'skill' has the name"),
        ]
        assert (await toolkit.execute("read", {"path": "x"})).output == "mine"
    assert caplog.text.count("is not used") == 5


async def test_a_tool_that_the_host_registers_later_comes_before_those_of_sources() -> None:
    toolkit = await create_toolkit(sources=[Changing(foreign("add"))])
    assert toolkit.register(add).state == "ready"
    assert [(each.source, each.state) for each in toolkit.status()] == [("native", "ready"), ("mcp", "clash")]


async def test_a_source_whose_tools_change_is_seen_by_the_next_run_and_not_by_one_that_has_begun() -> None:
    source = Changing(foreign("one"))
    toolkit = await create_toolkit([add], sources=[source])

    async def swap() -> str:
        source.now = (foreign("two"), foreign("add"), foreign("broken", {"type": "string"}))
        return "swapped"

    toolkit.register(swap)
    client, transport = scripted(
        *(openai_reply(calls=[call("swap")]), openai_reply(calls=[call("one", a=1)]), openai_reply("Done.")),
        openai_reply("Again."),
    )
    async with client:
        result = await client.run("Go.", toolkit)
        await client.run("Go.", toolkit)
    assert [each.output for each in result.tool_calls] == ["swapped", '{"a":1}']
    offered = [[each["function"]["name"] for each in request.json["tools"]] for request in transport.requests]
    assert offered == [["add", "swap", "one"]] * 3 + [["add", "swap", "two"]]
    assert [(each.name, each.state) for each in toolkit.status()][2:] == [
        ("two", "ready"),
        ("add", "clash"),
        ("broken", "dropped"),
    ]


async def test_tools_are_the_same_object_until_they_change() -> None:
    source = Changing(foreign("one"))
    toolkit = await create_toolkit(sources=[source])
    before = toolkit.tools()
    assert toolkit.tools() is before
    source.now = (foreign("two"),)
    assert [tool.name for tool in toolkit.tools()] == ["two"]
    assert [tool.name for tool in before] == ["one"]


@pytest.mark.parametrize(
    ("arguments", "left"),
    [
        ({}, ["a", "b", "c"]),
        ({"tool_filter": {}}, ["a", "b", "c"]),
        ({"tool_filter": {"b": False}}, ["a", "c"]),
        ({"tool_filter": {"b": True}}, ["b"]),
        ({"tool_filter": {"b": True, "c": False}}, ["b"]),
        ({"disable_tools": ["a"]}, ["b", "c"]),
        ({"disable_tools": {"a"}, "tool_filter": {"a": True, "b": True}}, ["b"]),
    ],
)
async def test_tools_are_chosen_by_name(arguments: Any, left: list[str]) -> None:
    toolkit = await create_toolkit(map(foreign, "abc"), **arguments)
    assert names(toolkit) == left
    states = {each.name: each.state for each in toolkit.status()}
    assert states == {name: "ready" if name in left else "disabled" for name in "abc"}


async def test_what_is_chosen_holds_for_tools_that_come_later() -> None:
    toolkit = await create_toolkit([add], disable_tools=["weather"])
    assert toolkit.register(weather) == ToolStatus(
        name="weather", source="native", state="disabled", reason="the host left it out"
    )
    assert (await toolkit.execute("weather", {"city": "Munich"})).is_error


@pytest.mark.parametrize(
    ("chosen", "left"),
    [
        ({"bash": True, "todowrite": True}, ["bash", "todowrite"]),
        ({"bash": True, "read": False}, ["bash"]),
        ({name: False for name in NAMES if name != "glob"}, ["glob"]),
        (dict.fromkeys(NAMES, False), []),
        (False, []),
        (True, [*NAMES]),
    ],
)
async def test_built_in_tools_are_chosen_by_name(chosen: Any, left: list[str], tmp_path: Path) -> None:
    async with await create_toolkit(builtins=chosen, root=tmp_path) as toolkit:
        assert names(toolkit) == left


async def test_names_that_there_are_not_are_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    await create_toolkit(
        [add],
        builtins={"glob": True, "grab": False},
        root=tmp_path,
        skills=[POEMS],
        disable_tools=["ad"],
        tool_filter={"sub": False},
        disable_skills=["poem"],
        skill_filter={"bill": False},
    )
    assert [record.getMessage() for record in caplog.records] == [
        f"There are no built-in tools ['grab'], which were chosen or left out. There are: {', '.join(NAMES)}.",
        "There are no tools ['ad', 'sub'], which were chosen or left out. There are: add, glob, skill.",
        "There are no skills ['bill', 'poem'], which were chosen or left out. There are: poems.",
    ]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"disable_tools": "bash"}, "leave out are 'bash'; give a list"),
        ({"disable_skills": "poems"}, "leave out are 'poems'; give a list"),
        ({"tool_filter": ["bash"]}, r"tool_filter is \['bash'\]; give a mapping"),
        ({"skill_filter": {"x": "no"}}, r"skill_filter\['x'\] is 'no'; give True or False"),
        ({"builtins": {"bash": 0}}, r"builtins\['bash'\] is 0; give True or False"),
        ({"builtins": ["bash"]}, r"builtins is \['bash'\]; give a mapping"),
        ({"builtins": True, "root": "/nowhere/at/all"}, "The workspace '/nowhere/at/all' cannot be used"),
        ({"skills": [5]}, "There is a int among the skills"),
    ],
)
async def test_a_choice_that_cannot_be_meant_is_refused(arguments: Any, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        await create_toolkit(**arguments)


async def test_built_in_tools_work_in_the_current_folder_unless_told_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside.txt"
    inside.mkdir()
    (inside / "note.txt").write_text("hello\n")
    outside.write_text("secret\n")
    monkeypatch.chdir(inside)
    chosen = {"read": True}
    confined = await create_toolkit(builtins=chosen)
    assert "hello" in (await confined.execute("read", {"path": "note.txt"})).output
    for toolkit, refused in [
        (confined, True),
        (await create_toolkit(builtins=chosen, root=str(inside)), True),
        (await create_toolkit(builtins=chosen, root=Workspace(inside)), True),
        (await create_toolkit(builtins=chosen, confine=False), False),
        (await create_toolkit(builtins=chosen, root=Workspace(inside, confine=False)), False),
        (await create_toolkit(builtins=chosen, root=tmp_path), False),
    ]:
        result = await toolkit.execute("read", {"path": str(outside)})
        assert result.is_error is refused
        assert ("secret" in result.output) is not refused


async def test_private_addresses_can_be_fetched_from_only_if_the_host_says_so() -> None:
    async with echo_server(lambda got: "the intranet") as server:
        for allowed in (False, True):
            toolkit = await create_toolkit(builtins={"webfetch": True}, allow_private_addresses=allowed)
            result = await toolkit.execute("webfetch", {"url": server.url})
            assert result.is_error is not allowed
            assert ("the intranet" in result.output) is allowed


# --- skills ----------------------------------------------------------------------------------------------------------


async def test_skills_come_from_folders_data_and_functions(tmp_path: Path) -> None:
    for number, name in enumerate(("one", "two")):
        folder = tmp_path / str(number) / name
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text(f"---\nname: {name}\ndescription: Does {name}.\n---\nDo {name}.\n")
    toolkit = await create_toolkit(skills_dir=[tmp_path / "0", str(tmp_path / "1")], skills=[POEMS, lambda: [BILLS]])
    assert [each.name for each in toolkit.list_skills()] == ["poems", "bills", "one", "two"]
    assert "Do two." in (await toolkit.execute("skill", {"name": "two"})).output
    assert [each.name for each in (await create_toolkit(skills_dir=tmp_path)).list_skills()] == ["one", "two"]


async def test_skills_that_are_left_out_are_neither_told_nor_loaded() -> None:
    for arguments in ({"disable_skills": ["bills"]}, {"skill_filter": {"poems": True}}):
        toolkit = await create_toolkit(skills=[POEMS, BILLS], **arguments)
        assert [each.state for each in toolkit.list_skills()] == ["ready", "disabled"]
        assert ("poems" in toolkit.skills_prompt(), "bills" in toolkit.skills_prompt()) == (True, False)
        assert (await toolkit.execute("skill", {"name": "bills"})).is_error
    none_left = await create_toolkit(skills=[POEMS], disable_skills=["poems"])
    assert (none_left.tools(), none_left.skills_prompt()) == ((), "")


@pytest.mark.parametrize("own", ["", "Be brief."])
async def test_the_skills_are_told_in_the_system_prompt_of_a_run_and_never_stored(own: str) -> None:
    toolkit = await create_toolkit([add], skills=[POEMS])
    prompt = toolkit.skills_prompt()
    assert POEMS.description in prompt
    client, transport = scripted(openai_reply("Hello."), openai_reply("Hello."), system_prompt=own)
    async with client:
        await client.ask("Hi.", toolkit, id="c")
        await client.ask("Hi.", [add], id="c")
        stored = await client.conversation_store.get("c")
    with_skills, without = (request.json["messages"] for request in transport.requests)
    assert with_skills[0] == {"role": "system", "content": f"{own}\n\n{prompt}" if own else prompt}
    assert [each["content"] for each in without if each["role"] == "system"] == ([own] if own else [])
    assert stored is not None
    assert "poems" not in json.dumps(stored)


@pytest.mark.parametrize("arguments", [{"tools": [foreign("skill")]}, {"disable_tools": ["skill"]}])
async def test_skills_that_cannot_be_loaded_are_not_told(arguments: Any) -> None:
    toolkit = await create_toolkit(skills=[POEMS], **arguments)
    assert toolkit.skills_prompt() == ""
    assert [each.name for each in toolkit.list_skills()] == ["poems"]


# --- closing ---------------------------------------------------------------------------------------------------------


async def test_closing_may_be_repeated_and_happens_at_the_end_of_a_block() -> None:
    source = Changing()
    async with await create_toolkit([add], sources=[source]) as toolkit:
        assert isinstance(toolkit, Toolkit)
    assert source.closed == 1
    await asyncio.gather(toolkit.aclose(), asyncio.create_task(toolkit.aclose()))
    assert (await toolkit.execute("add", {"a": 1})).output == "2", "a function holds nothing that could be closed"


async def test_a_source_that_cannot_be_closed_keeps_no_other_from_it(caplog: pytest.LogCaptureFixture) -> None:
    sources = [Changing(), Changing(fault=OSError("no")), Changing()]
    await (await create_toolkit(sources=sources)).aclose()
    assert [source.closed for source in sources] == [1, 1, 1]
    assert "A source of tools could not be closed: OSError: no" in caplog.text


async def test_what_commands_left_running_ends_with_the_toolkit(tmp_path: Path) -> None:
    async with await create_toolkit(builtins={"bash": True}, root=tmp_path) as toolkit:
        result = await toolkit.execute("bash", {"command": "sleep 300 & echo started"})
        [pid] = result.metadata["background"]
        assert psutil.pid_exists(pid)
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    assert (await toolkit.execute("bash", {"command": "true"})).is_error


def test_a_toolkit_outlives_the_event_loop_that_it_was_made_on(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("hello\n")
    toolkit = asyncio.run(create_toolkit([add], builtins={"read": True, "bash": True}, root=tmp_path))
    assert asyncio.run(toolkit.execute("add", {"a": 1})).output == "2"
    assert "hello" in asyncio.run(toolkit.execute("read", {"path": "note.txt"})).output
    assert "hello" in asyncio.run(toolkit.execute("bash", {"command": "cat note.txt"})).output
    asyncio.run(toolkit.aclose())
    asyncio.run(toolkit.aclose())


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


async def test_tools_are_declared_for_responses_and_for_gemini() -> None:
    toolkit = await create_toolkit([add, weather])
    assert toolkit.to_responses()[0] == {
        "type": "function",
        "name": "add",
        "description": "Add two numbers.",
        "parameters": ADD,
        "strict": False,
    }
    [declarations] = toolkit.to_gemini()
    assert declarations["functionDeclarations"][1] == {
        "name": "weather",
        "description": "The weather.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "Where."}},
            "required": ["city"],
        },
    }


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


async def test_a_call_by_the_name_that_gemini_was_told_is_run() -> None:
    toolkit = await create_toolkit([foreign("3d-view")])
    [declared] = toolkit.to_gemini()[0]["functionDeclarations"]
    assert declared["name"] != "3d-view"
    assert (await toolkit.execute(declared["name"], {"a": 1})).output == '{"a":1}'


class Unreadable(Mapping[str, Any]):
    def __getitem__(self, key: str) -> Any:
        raise OSError("gone")

    def __iter__(self) -> Iterator[str]:
        yield "a"

    def __len__(self) -> int:
        return 1


ITSELF: dict[str, Any] = {}
ITSELF["a"] = ITSELF


@pytest.mark.parametrize(
    ("name", "args", "output"),
    [
        ("add", Unreadable(), "The arguments cannot be read. OSError: gone"),
        ("add", ITSELF, "The arguments cannot be read. RecursionError: "),
        ("add", {"a": object()}, "The arguments do not fit. "),
        ("add", 5, "The arguments are not a JSON object but of the type int."),
        (None, {}, "There is no tool 'None'."),
        (["add"], {}, "There is no tool \"['add']\"."),
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


async def test_a_call_that_needs_a_person_goes_on_with_the_answer(tmp_path: Path) -> None:
    toolkit = await create_toolkit(builtins={"question": True}, root=tmp_path)
    asked = {"questions": [{"question": "Tea?"}]}
    first = await toolkit.execute("question", asked)
    assert first.request is not None
    answered = ToolContext(tool="question", answer={"id": first.request["id"], "ok": True, "data": "Yes."})
    assert "Yes." in (await toolkit.execute("question", asked, answered)).output


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


@pytest.mark.parametrize(("tool", "hops"), [("plain", 1), ("coroutine", 0), ("large", 1)])
async def test_a_call_costs_at_most_one_hop_to_a_thread(tool: str, hops: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def plain(a: int) -> dict[str, int]:
        return {"a": a}

    async def coroutine(a: int) -> dict[str, int]:
        return {"a": a}

    def large(a: int) -> list[str]:
        return ["a" * 1000] * 1000

    toolkit = await create_toolkit([plain, coroutine, large])
    taken: list[Any] = []
    run = _workers.run

    def counted(function: Any, *args: Any, **kwargs: Any) -> Any:
        taken.append(function)
        return run(function, *args, **kwargs)

    monkeypatch.setattr(_workers, "run", counted)
    client, _ = scripted(openai_reply(calls=[call(tool, a=1)]), openai_reply("Done."))
    async with client:
        assert not (await client.run("Go.", toolkit)).tool_calls[0].is_error
    assert len(taken) == hops
    taken.clear()
    assert not (await toolkit.execute(tool, {"a": 1})).is_error
    assert len(taken) == hops


def definitions(count: int) -> dict[str, Any]:
    """Schemas that refer to each other, as in a large API."""
    return {
        f"S{n}": {
            "type": "object",
            "properties": {"next": {"$ref": f"#/$defs/S{(n + 1) % count}"}}
            | {f"p{i}": {"type": ["string", "null"], "description": "A field."} for i in range(10)},
            "required": ["p1"],
        }
        for n in range(count)
    }


async def test_a_thousand_tools_with_many_definitions_are_taken_at_once() -> None:
    shared = definitions(30)
    schema = {"type": "object", "properties": {"s": {"$ref": "#/$defs/S0"}}, "$defs": shared}
    tools = [foreign(f"t{n}", schema) for n in range(1000)]
    broken = foreign("broken", {**schema, "$defs": {**shared, "S7": {"type": "strng"}}})
    await create_toolkit([foreign("warm", {})])
    began = time.perf_counter()
    async with heartbeat() as heart:
        toolkit = await create_toolkit([*tools, broken])
    assert time.perf_counter() - began < 10, "each asked the meta-schema it takes minutes"
    assert heart.longest < 0.25
    assert len(toolkit.tools()) == 1000
    assert toolkit.status()[-1].reason.startswith("$defs/S7/type: 'strng'")


async def test_a_broken_schema_is_looked_at_once_and_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[bool] = []
    checker = _schemas.checker

    def counted(schema: Any) -> Any:
        looked.append(threading.current_thread() is threading.main_thread())
        return checker(schema)

    monkeypatch.setattr(_schemas, "checker", counted)
    broken = foreign("broken", {"type": "strng"})
    for _ in range(3):
        toolkit = await create_toolkit([broken])
        assert toolkit.status()[0].state == "dropped"
    assert looked == [False]


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
