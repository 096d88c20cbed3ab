"""The documents are true: their programs and commands run, and what they point to is there."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import inspect
import json
import os
import re
import shlex
import sys
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import local
import pytest
from wire_rules import check_anthropic, check_gemini, check_openai, check_responses

from toolnexus import Hooks, Limits, ToolContext, ToolnexusError, create_client, errors, events
from toolnexus.dialects.faults import fault
from toolnexus.options import Options
from toolnexus.sources.builtin import NAMES
from toolnexus.sources.native import ToolOptions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

ROOT = Path(__file__).parent.parent
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md"))]
TOOLNEXUS = str(Path(sys.executable).with_name("toolnexus"))


def blocks(language: str, documents: list[Path]) -> list[Any]:
    """The code blocks of one language, each named by its document and line."""
    found: list[Any] = []
    for document in documents:
        text = document.read_text(encoding="utf-8")
        for match in re.finditer(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            line = text.count("\n", 0, match.start()) + 1
            found.append(pytest.param(match[1], id=f"{document.relative_to(ROOT)}:{line}"))
    return found


FILE = re.compile(r"# ([a-z_]+\.py)\n")
"""The first line of a program that the reader is to put into a file."""


def files() -> dict[str, str]:
    """The programs of all documents that have a file name."""
    programs = [block.values[0] for block in blocks("python", DOCUMENTS)]
    return {named[1]: program for program in programs if (named := FILE.match(program))}


NEAR = {"name": "near", "in": "query", "schema": {"type": "string"}}
OPENAPI = {
    "openapi": "3.1.0",
    "info": {"title": "Piers", "version": "1"},
    "servers": [{"url": "https://piers.example"}],
    "paths": {"/piers": {"get": {"operationId": "listPiers", "parameters": [NEAR]}}},
}


def answer(seen: local.Seen) -> Any:
    """Call the first tool offered that is not built in, once, with arguments that fit its schema; otherwise repeat what
    came last. What is no model is an API of piers."""
    if seen.path == "/openapi.json":
        return OPENAPI
    if seen.path.startswith("/piers"):
        return {"pier": seen.path, "high water": "04:12"}
    if seen.path.endswith("/chat/completions"):
        return _openai(seen)
    if seen.path.endswith("enerateContent"):
        return _gemini(seen)
    return _responses(seen.body) if seen.path.endswith("/responses") else _anthropic(seen.body)


def _openai(seen: local.Seen) -> Any:
    last = seen.body["messages"][-1]
    offered = [each["function"] for each in seen.body.get("tools", ()) if each["function"]["name"] not in NAMES]
    if last["role"] == "user" and offered:
        function = offered[0]
        return local.in_kind(seen, None, (function["name"], _arguments(function["parameters"])))
    return local.in_kind(seen, f"It is {last['content']}.")


def _responses(body: dict[str, Any]) -> Any:
    last = body["input"][-1]
    item: dict[str, Any] = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
    if last["type"] == "message" and body.get("tools"):
        tool = body["tools"][0]
        given = json.dumps(_arguments(tool["parameters"]))
        item = {"type": "function_call", "call_id": "call_1", "name": tool["name"], "arguments": given}
    else:
        said = f"It is {last.get('output', last.get('content'))}."
        item["content"] = [{"type": "output_text", "text": said, "annotations": []}]
    usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
    response = {"id": "resp_1", "model": body["model"], "status": "completed", "output": [item], "usage": usage}
    if not body.get("stream"):
        return response
    done = {"type": "response.output_item.done", "output_index": 0, "item": item}
    return map(local.event, [done, {"type": "response.completed", "response": response}])


def _anthropic(body: dict[str, Any]) -> Any:
    last = body["messages"][-1]["content"]
    if body.get("tools") and not any(block["type"] == "tool_result" for block in last):
        tool = body["tools"][0]
        delta = {"type": "input_json_delta", "partial_json": json.dumps(_arguments(tool["input_schema"]))}
        reason = "tool_use"
        block: dict[str, Any] = {"type": "tool_use", "id": "toolu_1", "name": tool["name"], "input": {}}
    else:
        delta = {"type": "text_delta", "text": f"It is {json.dumps(last)}."}
        block, reason = {"type": "text", "text": ""}, "end_turn"
    usage = {"input_tokens": 10, "output_tokens": 5}
    head: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": [],
    }
    return map(
        local.event,
        [
            {"type": "message_start", "message": {**head, "stop_reason": None, "usage": usage}},
            {"type": "content_block_start", "index": 0, "content_block": block},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage},
            {"type": "message_stop"},
        ],
    )


def _gemini(seen: local.Seen) -> Any:
    [last] = seen.body["contents"][-1]["parts"]
    part = {"text": f"It is {json.dumps(last)}."}
    if seen.body.get("tools") and "functionResponse" not in last:
        [tool] = seen.body["tools"][0]["functionDeclarations"]
        call = {"name": tool["name"], "args": _arguments(tool["parameters"])}
        part = {"functionCall": call, "thoughtSignature": "c2ln"}
    candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}
    reply = {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "gemini-3-pro"}
    return [local.event(reply)] if seen.path.endswith("streamGenerateContent") else reply


def _arguments(schema: dict[str, Any]) -> dict[str, Any]:
    return {name: "Munich" if about["type"] == "string" else 2 for name, about in schema["properties"].items()}


INSTEAD = """
import sys
from toolnexus.testing import Rewrite
from toolnexus.transport import http

class _Everywhere(dict):
    def get(self, host):
        return "%s"

class _Elsewhere(Rewrite):
    def request(self, method, url, *, headers, body, limits):
        url, headers = self._rewritten(url, headers)
        return self._transport.request(method, url, headers=headers, body=body, limits=limits)

_transport = http.HTTPTransport
http.HTTPTransport = lambda: _Elsewhere(_transport(), _Everywhere())
exec(sys.argv.pop())
"""
"""Runs a program with one address in place of every other. The server is told whose place it takes, as the host."""


@dataclass
class Reader:
    """Somebody who tries what a document says: in an empty folder, with keys, and a server in place of providers."""

    folder: Path
    server: local.Server

    async def run_program(self, program: str, environ: Mapping[str, str] | None = None) -> tuple[int | None, str, str]:
        """`run` for a Python program."""
        instead = INSTEAD % urlsplit(self.server.url).netloc
        return await self.run(sys.executable, "-c", instead, program, environ=environ)

    async def run(self, *command: str, environ: Mapping[str, str] | None = None) -> tuple[int | None, str, str]:
        """The exit code, standard output and standard error of a command.

        Args:
            environ: What it has been told in the environment. None: the keys and addresses that the documents mention.
        """
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=self.folder,
            env={
                **{name: os.environ[name] for name in ("PATH", "SYSTEMROOT") if name in os.environ},
                **(self.everything() if environ is None else environ),
                "HOME": str(self.folder),
                "TOOLNEXUS_HOME": str(self.folder / "home"),
            },
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            out, err = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return process.returncode, out.decode(), err.decode()

    def everything(self) -> dict[str, str]:
        origin = self.server.url.removesuffix("/v1")
        return {
            **{f"{name}_API_KEY": "sk-local" for name in ("OPENAI", "ANTHROPIC", "MY")},
            **{f"{name}_BASE_URL": f"{origin}/v1" for name in ("OPENAI", "MY")},
            "ANTHROPIC_BASE_URL": origin,
            "AZURE_OPENAI_API_KEY": "sk-local",
            "AZURE_OPENAI_ENDPOINT": origin,
            "GEMINI_API_KEY": "sk-local",
            "OLLAMA_HOST": origin,
        }


@pytest.fixture
async def reader(tmp_path: Path) -> AsyncIterator[Reader]:
    async with local.server(answer) as server:
        yield Reader(tmp_path, server)


@pytest.mark.parametrize("program", blocks("python", DOCUMENTS))
async def test_a_program_in_a_document_runs_as_it_is(program: str, reader: Reader) -> None:
    for name, text in files().items():
        (reader.folder / name).write_text(text, encoding="utf-8")
    if (named := FILE.match(program)) and named[1].startswith("test_"):
        code, out, err = await reader.run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", named[1])
        assert (code, err) == (0, ""), out
        return
    code, out, err = await reader.run_program(program)
    assert (code, err) == (0, "")
    assert bool(out) == ("print(" in program)


QUICK_START = ROOT / "docs" / "quick-start.md"
AGENT, *THE_ONE_LINES = [block.values[0] for block in blocks("python", [QUICK_START])]
KEY = "sk-of-this-person"


@dataclass(frozen=True)
class Owner:
    """Somebody who has one way to a model, and what the server there demands.

    Attributes:
        environ: All that is in the environment.
        url: What is asked.
        auth: The one header with a key, and what it says. None: there must be none.
        check: Raises for a body that the server would refuse.
    """

    environ: Mapping[str, str]
    url: str
    auth: tuple[str, str] | None
    check: Callable[[dict[str, Any]], None]

    def serve(self, seen: local.Seen) -> Any:
        """The answer to a request, or a refusal that says what is wrong with it."""
        try:
            assert f"{seen.headers['host']}{seen.path}" == self.url
            sent = {
                name: value
                for name, value in seen.headers.items()
                if name in ("authorization", "x-api-key", "api-key", "x-goog-api-key")
            }
            assert sent == dict([self.auth] if self.auth else [])
            self.check(seen.body)
        except AssertionError as error:
            return local.Status(400, {"error": {"message": f"{type(error).__name__}: {error}"}})
        return answer(seen)


OWNERS = {
    "Ollama": Owner({}, "localhost:11434/v1/chat/completions", None, check_openai),
    "a Gemini key": Owner(
        {"GEMINI_API_KEY": KEY},
        "generativelanguage.googleapis.com/v1beta/models/gemini-3-pro:generateContent",
        ("x-goog-api-key", KEY),
        functools.partial(check_gemini, model="gemini-3-pro"),
    ),
    "an Azure resource": Owner(
        {"AZURE_OPENAI_ENDPOINT": "https://my-resource.openai.azure.com", "AZURE_OPENAI_API_KEY": KEY},
        "my-resource.openai.azure.com/openai/v1/responses",
        ("api-key", KEY),
        check_responses,
    ),
    "any URL": Owner(
        {"MY_BASE_URL": "https://llm.example/v1", "MY_API_KEY": KEY},
        "llm.example/v1/chat/completions",
        ("authorization", f"Bearer {KEY}"),
        check_openai,
    ),
    "an Anthropic key": Owner(
        {"ANTHROPIC_API_KEY": KEY}, "api.anthropic.com/v1/messages", ("x-api-key", KEY), check_anthropic
    ),
    "an OpenAI key": Owner(
        {"OPENAI_API_KEY": KEY}, "api.openai.com/v1/responses", ("authorization", f"Bearer {KEY}"), check_responses
    ),
}
"""By what the quick start says before each of its lines, in its order."""


@pytest.mark.parametrize(
    ("owner", "line"),
    [pytest.param(owner, line, id=name) for (name, owner), line in zip(OWNERS.items(), THE_ONE_LINES, strict=True)],
)
async def test_the_one_line_of_the_quick_start_is_all_that_somebody_needs(
    owner: Owner, line: str, tmp_path: Path
) -> None:
    imports, _, makes_a_client = line.partition("\n\n")
    program = re.sub(r"(?m)^client = create_client\(.*\)\n", lambda _: makes_a_client, AGENT)
    async with local.server(owner.serve) as server:
        code, out, err = await Reader(tmp_path, server).run_program(f"{imports}\n{program}", owner.environ)
    assert (code, err) == (0, "")
    first, called, second = out.splitlines()
    assert "pieces" in first
    assert "(stock was called with {'article': 2}" in called
    assert second
    asked = json.dumps(server.seen[2].body)
    assert "How many pieces of article 2 do we have?" in asked
    assert "And what did I ask?" in asked


def test_the_quick_start_says_before_each_line_who_needs_it() -> None:
    told = re.findall(r"^With (.*)", QUICK_START.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(told) == len(OWNERS)
    assert [name for name, text in zip(OWNERS, told, strict=True) if name.split()[-1] not in text] == []


async def test_without_any_key_the_demo_of_the_quick_start_answers(reader: Reader) -> None:
    [block] = blocks("console", [QUICK_START])
    told = [await reader.run(TOOLNEXUS, *command[1:], environ={}) for command in commands(block.values[0])]
    assert [code for code, _, _ in told] == [0, 0]
    assert "5" in told[0][1]
    assert "What is 2 + 3" in told[1][1]
    assert reader.server.seen == []


def commands(block: str) -> list[list[str]]:
    """The command lines of a console block, as lists of words."""
    return [shlex.split(line.removeprefix("$ "), comments=True) for line in block.splitlines() if line.startswith("$ ")]


@pytest.mark.parametrize("block", blocks("console", [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]))
async def test_the_commands_of_a_document_run(block: str, reader: Reader) -> None:
    for command in commands(block):
        match command:
            case ["python3", "dev.py", "test"]:
                continue  # is what runs this
            case ["python3", "dev.py", "run", *arguments] | ["toolnexus", *arguments]:
                pass
            case _:
                pytest.fail(f"Nobody knows how to check this command: {shlex.join(command)}")
        arguments = [reader.server.url if word.startswith("http://") else word for word in arguments]
        code, out, err = await reader.run(TOOLNEXUS, *arguments)
        assert code == 0, (command, err)
        assert out or "chat" in arguments, command  # nobody types anything


async def test_the_first_commands_of_the_readme_call_tools_and_remember(reader: Reader) -> None:
    first, again, *_ = commands(blocks("console", [ROOT / "README.md"])[0].values[0])
    _, answered, tools = await reader.run(TOOLNEXUS, *first[3:])
    _, remembered, _ = await reader.run(TOOLNEXUS, *again[3:])
    assert "5" in answered
    assert "add" in tools
    assert first[-1] in remembered


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_a_link_to_a_file_leads_to_one(document: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)", document.read_text(encoding="utf-8"))
    assert [target for target in targets if "://" not in target and not (document.parent / target).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_a_link_to_a_heading_leads_to_one(document: Path) -> None:
    def headings(page: Path) -> list[str]:
        titles = re.findall(r"(?m)^#+ (.*)$", page.read_text(encoding="utf-8"))
        return [re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles]

    links = re.findall(r"\]\(([^):]*)#([^)]+)\)", document.read_text(encoding="utf-8"))
    pages = [(document.parent / page if page else document, heading) for page, heading in links]
    assert [(page.name, heading) for page, heading in pages if heading not in headings(page)] == []


def test_the_architecture_names_every_module() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    source = ROOT / "src" / "toolnexus"
    modules = [path.relative_to(source) for path in sorted(source.rglob("*.py")) if path.stem != "__init__"]
    # Some folders are described as a whole.
    named = [{f"`{path.as_posix()}`", *(f"`{folder.as_posix()}/`" for folder in path.parents)} for path in modules]
    assert [path for path, names in zip(modules, named, strict=True) if not any(name in page for name in names)] == []


def tables(page: str) -> list[list[list[str]]]:
    """The tables of a page: rows of cells, without their heads."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    found = re.findall(r"(?m)^\|.*\n\|[-|]+\|\n((?:\|.*\n)+)", text)
    return [[re.split(r"(?<!\\) \| ", row.strip("| ")) for row in rows.splitlines()] for rows in found]


def test_the_index_has_every_page_once() -> None:
    [rows] = tables("README.md")
    pages = sorted(path.name for path in (ROOT / "docs").glob("*.md"))
    assert sorted(re.findall(r"\(([a-z-]+\.md)\)", str(rows))) == [page for page in pages if page != "README.md"]


def test_the_table_of_errors_is_the_tree() -> None:
    shown: list[list[str]] = []
    above: list[str] = []
    for name, kind, retryable, _ in tables("errors.md")[0]:
        above[name.count("·") :] = [name.strip("· `")]
        shown.append([*above[-2:], kind.strip("`"), retryable])
    kinds = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, ToolnexusError)]
    told: list[list[str]] = []
    for each in kinds:
        kind, retryable = each.kind, "yes" if each.retryable else "no"
        if each is errors.ProviderError:
            kind, retryable = "(see below)", "by kind"
        parent = [] if each is ToolnexusError else [each.__bases__[0].__name__]
        told.append([*parent, each.__name__, kind, retryable])
    assert sorted(shown) == sorted(told)


@pytest.mark.parametrize("row", tables("errors.md")[1], ids=lambda row: row[0].strip("`"))
def test_what_the_page_says_of_a_kind_is_what_such_an_answer_comes_to(row: list[str]) -> None:
    status, _, code = row[1].replace("`", "").partition(" ")
    error = fault(int(status), {}, {"error": {"message": "…", "code": code or None}}, now=0.0)
    assert error is not None
    assert (f"`{error.kind}`", "yes" if error.retryable else "no") == (row[0], row[2])


def test_the_page_has_every_kind_that_an_answer_can_come_to() -> None:
    codes = range(400, 600)
    by_status = {error.kind for status in codes if (error := fault(status, {}, b"", now=0.0)) is not None}
    shown = {row[0].strip("`") for row in tables("errors.md")[1]}
    assert by_status <= shown
    told = set(re.findall(r"`(\w+)`", (errors.ProviderError.__doc__ or "").partition("status:")[0]))
    assert told - {"kind"} == shown, "a refusal is an answer"


def test_the_table_of_events_is_the_union() -> None:
    shown = [(row[0].strip("`"), re.findall(r"`(\w+)`", row[1])) for row in tables("streaming.md")[0]]
    known = [
        (kind.__name__, [each.name for each in dataclasses.fields(kind)]) for kind in typing.get_args(events.Event)
    ]
    assert sorted(shown) == sorted(known)


def test_the_defaults_in_the_tables_are_those_of_the_code() -> None:
    options = {name: each.default for name, each in inspect.signature(create_client).parameters.items()}
    options |= {**dataclasses.asdict(Limits()), "busy_timeout": Options().busy_timeout}
    units = {"KiB": 1024, "MiB": 1024**2}
    rows = [*tables("streaming.md")[1], *tables("errors.md")[2]]
    assert len(rows) > 10
    for row in rows:
        [name] = re.findall(r"(\w+)=", row[0])
        number, _, unit = row[1].partition(" ")
        told = None if number == "none" else float(number) * units.get(unit, 1)
        assert options[name] == told, name


def test_the_marks_of_a_tool_are_those_that_there_are() -> None:
    marks = re.findall(r"(\w+)=", str([row[0] for row in tables("tools.md")[0]]))
    assert sorted(marks) == sorted(ToolOptions.__annotations__)


def test_what_a_tool_may_know_is_told_in_full() -> None:
    about = {name for name in dir(ToolContext) if not name.startswith("_")} - {"report"}
    assert set(re.findall(r"`(?:ctx\.)?(\w+)(?:\(.*?\))?`", str([row[0] for row in tables("tools.md")[1]]))) == about


def test_the_hooks_are_told_in_full() -> None:
    assert {row[0].strip("`") for row in tables("tools.md")[3]} == {each.name for each in dataclasses.fields(Hooks)}
