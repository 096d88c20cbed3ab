"""Tools that are named on the command line, and the commands that list and run them."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import py_compile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import BaseTestServer, TestServer
from click.testing import Result

from toolnexus.sources.builtin import NAMES

Cli = Callable[..., Result]

HARBOUR = '''
from toolnexus import ToolResult, image, suspend, tool


def tide(pier: str, hours: int = 0) -> str:
    """The tide at a pier."""
    return f"{pier} in {hours + 1} h"


@tool(read_only=True)
def depth() -> dict[str, int]:
    """The depth, in metres."""
    return {"metres": 4}


def code(ctx) -> str:
    """Ask for a code."""
    if ctx.answer is None:
        suspend("code", "Which code?")
    return f"The code is {ctx.answer['data']}."


def picture() -> ToolResult:
    return ToolResult(output="A pier.", parts=(image(bytes.fromhex("89504e470d0a1a0a") + b"0" * 100),))


def _helper() -> None: ...


BOTH = [tide, depth]
NUMBER = 3
print("loaded")
'''


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a file of functions and a folder of skills."""
    folder = tmp_path / "here"
    (folder / "skills" / "piers").mkdir(parents=True)
    (folder / "skills" / "piers" / "SKILL.md").write_text("---\nname: piers\ndescription: On piers.\n---\nGo slowly.\n")
    (folder / "harbour.py").write_text(HARBOUR)
    monkeypatch.chdir(folder)
    return folder


def listed(cli: Cli, *args: str) -> dict[str, Any]:
    done = cli("tools", "ls", "--json", *args)
    assert done.exit_code == 0, done.stderr
    return {each["name"]: each for each in json.loads(done.stdout)}


def test_the_built_in_tools_are_offered_unless_they_are_switched_off(cli: Cli, here: Path, own: Path) -> None:
    asking = {name for name, each in listed(cli).items() if each["asks"]}
    assert list(listed(cli)) == [*NAMES]
    assert asking == {"bash", "write", "edit", "webfetch", "apply_patch"}
    assert listed(cli, "--no-builtins") == {}
    own.write_text("builtins = false\n")
    assert listed(cli) == {}
    assert list(listed(cli, "--builtins")) == [*NAMES]


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ("harbour.py", ["tide", "depth", "code", "picture"]),
        ("harbour.py:depth", ["depth"]),
        ("harbour.py:BOTH", ["tide", "depth"]),
        ("harbour:tide", ["tide"]),
        ("os.path:basename", ["basename"]),
    ],
)
def test_a_function_is_named_by_its_file_or_module(cli: Cli, here: Path, given: str, names: list[str]) -> None:
    found = listed(cli, "--no-builtins", "-t", given)
    assert list(found) == names
    assert all(each["asks"] for each in found.values()), "its own word that it only reads does not count"


@pytest.mark.parametrize(
    ("given", "code", "told"),
    [
        ("harbour", 2, "file.py, file.py:function or module:function"),
        ("nothere.py", 2, "'nothere.py' cannot be read: No such file"),
        ("harbour.py:tid", 2, "There is no 'tid' in 'harbour.py'. Did you mean 'tide'?"),
        ("harbour.py:NUMBER", 2, "'harbour.py:NUMBER' is no function, but of the type int"),
        ("nosuchmodule:x", 3, "nosuchmodule failed when it was loaded: ModuleNotFoundError"),
        ("broken.py", 3, "broken.py failed when it was loaded: SyntaxError"),
        ("exits.py", 3, "exits.py failed when it was loaded: SystemExit: 7"),
        ("empty.py", 2, "There is no function in 'empty.py'"),
    ],
)
def test_what_cannot_be_a_tool_is_said_before_anything_is_asked(
    cli: Cli, here: Path, given: str, code: int, told: str
) -> None:
    (here / "broken.py").write_text("def f(:\n")
    (here / "exits.py").write_text("raise SystemExit(7)\n")
    (here / "empty.py").write_text("_x = 1\n")
    done = cli("-m", "demo", "-t", given, "hello")
    assert (done.exit_code, done.stdout) == (code, "")
    assert told in done.stderr.replace("\n", "")


def test_what_a_file_prints_is_no_answer_and_what_was_compiled_before_does_not_run(cli: Cli, here: Path) -> None:
    (here / "other.py").write_text("def tide(pier: str) -> str:\n    return 'from elsewhere'\n")
    py_compile.compile(
        str(here / "other.py"),
        cfile=importlib.util.cache_from_source(str(here / "harbour.py")),
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )
    done = cli("tools", "call", "-y", "-t", "harbour.py", "tide", "pier=old pier", "hours=2")
    assert (done.exit_code, done.stdout) == (0, "old pier in 3 h\n")
    assert "loaded" in done.stderr


def test_a_function_of_the_person_comes_before_a_built_in_tool_and_the_clash_is_told(cli: Cli, here: Path) -> None:
    (here / "mine.py").write_text('def read(path: str) -> str:\n    """Mine."""\n    return "mine"\n')
    found = cli("tools", "ls", "-t", "mine.py")
    assert "read (builtin) is not used: a tool of the source 'native' has the name" in found.stderr
    assert cli("tools", "call", "read", "path=x", "-t", "mine.py").exit_code == 10
    assert cli("tools", "call", "read", "path=x", "-t", "mine.py", "-y").stdout == "mine\n"


def test_show_tells_what_a_model_is_told(cli: Cli, here: Path) -> None:
    done = cli("tools", "show", "tide", "-t", "harbour.py")
    assert done.stdout.startswith("tide · native · asks before it runs\n\nThe tide at a pier.\n\n{\n")
    told = json.loads(cli("tools", "show", "read", "--json").stdout)
    assert (told["source"], told["asks"], told["marks"]) == ("builtin", False, ["read_only"])
    assert told["input_schema"]["required"] == ["path"]
    done = cli("tools", "show", "raed")
    assert (done.exit_code, "Did you mean 'read'?" in done.stderr) == (2, True)


def test_each_built_in_tool_runs(cli: Cli, here: Path) -> None:
    (here / "notes.txt").write_text("alpha\nbeta\n")
    patch = "*** Begin Patch\n*** Update File: notes.txt\n-gamma\n+delta\n*** End Patch\n"
    for args, text, told in (
        (["read", "path=notes.txt", "limit=1"], None, "1\talpha"),
        (["glob", "pattern=*.txt"], None, "notes.txt"),
        (["grep", "pattern=^b"], None, "notes.txt:2:beta"),
        (["edit", "path=notes.txt", "oldString=beta", "newString=gamma", "--yes"], None, "Replaced 1 occurrence"),
        (["apply_patch", "--json", "-", "--approve", "apply_*"], json.dumps({"patchText": patch}), "Updated 'notes"),
        (["write", "path=new.txt", "content=1", "-y"], None, "Made 'new.txt'"),
        (["bash", "command=echo $((1 + 1))", "-y"], None, "2"),
        (["todowrite", 'todos=[{"id": "1", "text": "rest", "completed": false}]'], None, "rest"),
        (["question", 'questions=[{"question": "Which?", "options": ["a", "b"]}]', "--answer", "2"], None, "- b"),
    ):
        done = cli("tools", "call", *args, text=text)
        assert done.exit_code == 0, done.stderr
        assert told in done.stdout
    assert (here / "notes.txt").read_text() == "alpha\ndelta\n"
    assert (here / "new.txt").read_text() == "1"
    done = cli("tools", "call", "webfetch", "url=http://127.0.0.1:1/", "-y")
    assert (done.exit_code, "not a public address" in done.stdout) == (1, True)


@pytest.mark.parametrize(
    ("args", "code", "told"),
    [
        (["write", "path=x", "content=x"], 10, "write asks before it runs"),
        (["webfetch", "url=https://example.org"], 10, "--yes lets it run"),
        (["question", 'questions=[{"question": "Which?"}]'], 10, "--answer TEXT"),
        (["read", "path=nothere"], 1, "There is no file"),
        (["bash", "command=exit 3", "-y"], 1, "[exit code 3]"),
        (["read"], 2, "'path' is a required property"),
        (["read", "path=x", "limit=many"], 2, "limit"),
        (["read", "path"], 2, "'path' is no argument"),
        (["read", "--json", "[1]"], 2, "no JSON object"),
        (["read", "--json", "{"], 2, "--json is no JSON"),
        (["question", "--json", '{"questions": [{"question": "A"}, {"question": "B"}]}', "--answer", "x"], 2, "list"),
    ],
    ids=str,
)
def test_how_a_call_ended_is_its_exit_code(cli: Cli, here: Path, args: list[str], code: int, told: str) -> None:
    done = cli("tools", "call", *args)
    assert (done.exit_code, told in done.stdout + done.stderr) == (code, True), done.stdout + done.stderr
    assert not (here / "x").exists()


def test_what_a_tool_asks_is_answered_by_an_option(cli: Cli, here: Path) -> None:
    done = cli("tools", "call", "code", "-t", "harbour.py", "-y", "--answer", "42")
    assert (done.exit_code, done.stdout) == (0, "The code is 42.\n")


def test_parts_are_described_and_programs_get_all_of_a_result(cli: Cli, here: Path) -> None:
    done = cli("tools", "call", "picture", "-t", "harbour.py", "-y")
    assert done.stdout == "A pier.\n[an image, image/png, 108 B]\n"
    told = json.loads(cli("tools", "call", "depth", "-t", "harbour.py", "-y", "-o", "json").stdout)
    assert (told["structured"], told["is_error"], told["parts"]) == ({"metres": 4}, False, [])


def test_a_conversation_has_the_tools_that_were_named(cli: Cli, here: Path) -> None:
    done = cli("-m", "demo", "--skill", "skills", "load the skill piers")
    assert (done.exit_code, "Go slowly." in done.stdout) == (0, True)
    assert "I was not given" in cli("-m", "demo", "load the skill piers").stdout
    assert "I was not given" in cli("-m", "demo", "--no-builtins", "list the files").stdout
    assert "I was not given" in cli("--no-builtins", "ask", "-m", "demo", "list the files").stdout


def test_what_waits_is_resumed_with_the_tools_that_were_named(cli: Cli, here: Path) -> None:
    (here / "mine.py").write_text("def edit(path: str, oldString: str, newString: str) -> str:\n    return path\n")
    question = 'replace "a" with "b" in x.txt'
    done = cli("-m", "demo", "-C", "c", "-t", "mine.py", "--skill", "skills", "--no-builtins", question)
    assert done.exit_code == 10
    told = "toolnexus resume c --model demo --tool mine.py --skill skills --no-builtins --approve"
    assert told in done.stderr
    assert "x.txt" in cli(*told.split()[1:]).stdout


def test_questions_without_a_terminal_wait_and_are_answered_by_resume(cli: Cli, here: Path) -> None:
    done = cli("-m", "demo", "-C", "c", "ask me a question")
    assert (done.exit_code, done.stdout) == (10, "")
    assert "Which colour do you like best?" in done.stderr
    assert "toolnexus resume c --model demo --answer TEXT" in done.stderr
    assert "- amber" in cli("resume", "c", "--answer", "2").stdout


def test_the_demo_changes_a_file_once_that_was_approved(cli: Cli, here: Path) -> None:
    (here / "notes.txt").write_text("alpha\nbeta\n")
    done = cli("-m", "demo", "-C", "c", 'replace "beta" with "gamma" in notes.txt')
    assert (done.exit_code, (here / "notes.txt").read_text()) == (10, "alpha\nbeta\n")
    assert cli("resume", "c", "--approve").exit_code == 0
    assert (here / "notes.txt").read_text() == "alpha\ngamma\n"


def test_skills_are_listed_with_what_is_wrong_with_some(cli: Cli, here: Path) -> None:
    (here / "skills" / "mute").mkdir()
    (here / "skills" / "mute" / "SKILL.md").write_text("---\nname: mute\n---\nNothing.\n")
    done = cli("skills", "ls", "--skill", "skills")
    assert (done.exit_code, "✓ piers: On piers.\n" in done.stdout, "✗ mute" in done.stdout) == (0, True, True)
    told = json.loads(cli("skills", "ls", "--skill", "skills", "--json").stdout)
    assert {each["name"]: each["state"] for each in told} == {"piers": "ready", "mute": "skipped"}
    assert "There are none." in cli("skills", "ls").stderr


def test_skills_are_checked(cli: Cli, here: Path) -> None:
    assert cli("skills", "check", "skills/piers").exit_code == 0
    (here / "skills" / "piers" / "SKILL.md").write_text("---\nname: piers\ndescription: x\n---\n[more](gone.md)\n")
    done = cli("skills", "check", "skills/piers/SKILL.md")
    assert (done.exit_code, "It links to 'gone.md', which is not there." in done.stdout) == (0, True)
    (here / "skills" / "piers" / "SKILL.md").write_text("no front matter\n")
    assert cli("skills", "check", "skills").exit_code == 1
    (here / "none").mkdir()
    assert (cli("skills", "check", "none").exit_code, cli("skills", "check", "nothere").exit_code) == (1, 2)


@pytest.fixture
async def piers() -> AsyncIterator[BaseTestServer]:
    """An API with an OpenAPI document of its own, on a loop that only serves."""

    async def answer(request: web.Request) -> web.Response:
        if request.path == "/openapi.json":
            return web.json_response(DOCUMENT)
        return web.json_response({"method": request.method, "path": request.path, **request.query})

    application = web.Application()
    application.router.add_route("*", "/{tail:.*}", answer)
    async with TestServer(application) as server:
        yield server


DOCUMENT = {
    "openapi": "3.1.0",
    "info": {"title": "Piers", "version": "1"},
    "servers": [{"url": "/"}],
    "paths": {
        "/piers": {
            "get": {
                "operationId": "listPiers",
                "parameters": [{"name": "near", "in": "query", "schema": {"type": "string"}}],
            },
            "post": {"operationId": "addPier"},
        },
        "/read": {"get": {"operationId": "read"}},
    },
}


async def test_the_operations_of_an_openapi_document_are_tools(
    piers: BaseTestServer, command: Callable[..., Any], tmp_path: Path
) -> None:
    url = str(piers.make_url("/openapi.json"))
    done = await asyncio.to_thread(command, "tools", "ls", "--json", "--openapi", url)
    told = {(each["name"], each["source"]): each for each in json.loads(done.stdout)}
    assert told["listPiers", "http"]["asks"] is False
    assert told["addPier", "http"]["asks"] is True
    assert told["read", "http"]["state"] == "clash", "no document replaces a built-in tool"
    done = await asyncio.to_thread(command, "tools", "call", "listPiers", "near=the mill", "--openapi", url)
    assert (done.returncode, json.loads(done.stdout)["near"]) == (0, "the mill"), done.stderr
    assert (await asyncio.to_thread(command, "tools", "call", "addPier", "--openapi", url)).returncode == 10
    file = tmp_path / "piers.json"
    file.write_text(json.dumps({**DOCUMENT, "servers": [{"url": str(piers.make_url("/"))}]}))
    done = await asyncio.to_thread(command, "tools", "call", "addPier", "-y", "--openapi", str(file))
    assert (done.returncode, json.loads(done.stdout)["method"]) == (0, "POST"), done.stderr


async def test_where_the_server_is_can_be_said(
    piers: BaseTestServer, command: Callable[..., Any], tmp_path: Path
) -> None:
    file = tmp_path / "piers.json"
    file.write_text(json.dumps({**DOCUMENT, "servers": []}))
    done = await asyncio.to_thread(command, "tools", "ls", "--openapi", str(file))
    assert (done.returncode, f"Say it: {file}#https://…" in done.stderr) == (3, True)
    server = str(piers.make_url("/v2"))
    done = await asyncio.to_thread(command, "tools", "call", "listPiers", "--openapi", f"{file}#{server}")
    assert (done.returncode, json.loads(done.stdout)["path"]) == (0, "/v2/piers"), done.stderr


def test_an_openapi_document_that_is_not_there_is_said(cli: Cli, here: Path) -> None:
    done = cli("-m", "demo", "--openapi", "nothere.yaml", "hello")
    assert (done.exit_code, "nothere.yaml" in done.stderr) == (3, True)
