"""The documents are true: their programs and commands run, and what they point to is there."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import local
import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

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


def answer(seen: local.Seen) -> Any:
    """Call the first tool offered, once, with arguments that fit its schema; otherwise repeat what came last."""
    return _openai(seen) if seen.path.endswith("/chat/completions") else _anthropic(seen.body)


def _openai(seen: local.Seen) -> Any:
    last = seen.body["messages"][-1]
    if last["role"] == "user" and seen.body.get("tools"):
        function = seen.body["tools"][0]["function"]
        return local.in_kind(seen, None, (function["name"], _arguments(function["parameters"])))
    return local.in_kind(seen, f"It is {last['content']}.")


def _anthropic(body: dict[str, Any]) -> Any:
    last = body["messages"][-1]["content"]
    if body.get("tools") and not any(block["type"] == "tool_result" for block in last):
        tool = body["tools"][0]
        delta = {"type": "input_json_delta", "partial_json": json.dumps(_arguments(tool["input_schema"]))}
        block, reason = {"type": "tool_use", "id": "toolu_1", "name": tool["name"], "input": {}}, "tool_use"
    else:
        delta = {"type": "text_delta", "text": f"It is {json.dumps(last)}."}
        block, reason = {"type": "text", "text": ""}, "end_turn"
    usage = {"input_tokens": 10, "output_tokens": 5}
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": body["model"], "content": []}
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


def _arguments(schema: dict[str, Any]) -> dict[str, Any]:
    return {name: "Munich" if about["type"] == "string" else 2 for name, about in schema["properties"].items()}


@dataclass
class Reader:
    """Somebody who tries what a document says: in an empty folder, with keys, and a server in place of providers."""

    folder: Path
    server: local.Server

    async def run(self, *command: str) -> tuple[int | None, str, str]:
        """The exit code, standard output and standard error of a command."""
        origin = self.server.url.removesuffix("/v1")
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=self.folder,
            env={
                **{name: os.environ[name] for name in ("PATH", "SYSTEMROOT") if name in os.environ},
                **{f"{name}_API_KEY": "sk-local" for name in ("OPENAI", "ANTHROPIC", "MY")},
                **{f"{name}_BASE_URL": f"{origin}/v1" for name in ("OPENAI", "MY")},
                "ANTHROPIC_BASE_URL": origin,
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
    code, out, err = await reader.run(sys.executable, "-c", program)
    assert (code, err) == (0, "")
    assert bool(out) == ("print(" in program)


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


def test_the_architecture_names_every_module() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    source = ROOT / "src" / "toolnexus"
    modules = [path.relative_to(source) for path in sorted(source.rglob("*.py")) if path.stem != "__init__"]
    # Some folders are described as a whole.
    named = [{f"`{path.as_posix()}`", *(f"`{folder.as_posix()}/`" for folder in path.parents)} for path in modules]
    assert [path for path, names in zip(modules, named, strict=True) if not any(name in page for name in names)] == []
