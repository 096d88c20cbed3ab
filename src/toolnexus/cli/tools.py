"""`toolnexus tools`: which tools a model is offered here, and running one."""

from __future__ import annotations

import asyncio
import difflib
import json
import os
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from toolnexus import ToolContext
from toolnexus.cli import completion, exits
from toolnexus.cli.approvals import answered, replied
from toolnexus.cli.options import CONTEXT, as_json, calling, equipping
from toolnexus.cli.person import somebody
from toolnexus.cli.questions import questions_of, read_all
from toolnexus.cli.render import Lines, Notes, cut
from toolnexus.cli.settings import read
from toolnexus.cli.talk import approvals as approvals_of
from toolnexus.cli.toolbox import Toolbox, with_project
from toolnexus.errors import MissingExtra
from toolnexus.messages import shown_text

try:
    import click
except ImportError as exc:
    raise MissingExtra("The toolnexus commands", extra="cli") from exc

if TYPE_CHECKING:
    from toolnexus import Tool, Toolkit, ToolResult
    from toolnexus.cli.approvals import Approvals
    from toolnexus.cli.settings import Settings
    from toolnexus.suspension import Answer, Request

_WIDTH = 72
_MARKS = ("read_only", "exclusive", "idempotent", "needs_approval")


class Equipment(NamedTuple):
    """What a command works with."""

    toolkit: Toolkit
    approvals: Approvals


@click.group("tools", context_settings=CONTEXT)
def tools() -> None:
    """See which tools a model is offered here, and run one."""


@tools.command()
@as_json
@equipping
def ls(as_json: bool, **flags: Any) -> int:
    """List the tools: each with where it comes from, and whether it asks before it runs.

    The demo model has a few of its own beside these.
    """
    return asyncio.run(_ls(read(flags, os.environ), Notes(), as_json=as_json))


@tools.command()
@click.argument("name", shell_complete=completion.tools)
@as_json
@equipping
def show(name: str, as_json: bool, **flags: Any) -> int:
    """Write all that a model is told of a tool: its description, and the JSON Schema of its arguments."""
    return asyncio.run(_show(read(flags, os.environ), name, Notes(), as_json=as_json))


@tools.command("call")
@click.argument("name", shell_complete=completion.tools)
@click.argument("pairs", metavar="[KEY=VALUE]...", nargs=-1)
@click.option("--json", "given", metavar="JSON|-", help="The arguments as a JSON object; - reads it from stdin.")
@click.option("--answer", metavar="TEXT", help="The answer, should the tool ask something.")
@click.option("-o", "--output", type=click.Choice(("text", "json")), default="text", help="How the result is written.")
@calling
def call_tool(
    name: str, pairs: tuple[str, ...], given: str | None, answer: str | None, output: str, **flags: Any
) -> int:
    """Run the tool NAME. A value that is no text by the tool's schema is JSON: limit=5, replaceAll=true.

    Whatever would ask in a conversation asks here too. Exit code 1 if the tool fails, 2 if the arguments do not fit,
    10 if somebody has to answer and nobody is there; --yes and --answer do that in advance.
    """
    settings = read(flags, os.environ)
    return asyncio.run(_call(settings, name, Arguments(pairs, given), answer, Notes(), as_json=output == "json"))


@asynccontextmanager
async def equipped(settings: Settings, notes: Notes, answer: str | None = None) -> AsyncGenerator[Equipment]:
    """What a command on tools works with, as long as it does.

    Args:
        answer: As for `Toolbox.load`.
    """
    person = somebody(notes)
    loading = Toolbox.load(await with_project(settings, notes, person), notes, person, answer=answer)
    async with aclosing(await loading) as toolbox:
        approvals = approvals_of(settings, notes, person, toolbox)
        yield Equipment(await toolbox.toolkit(), approvals)


async def _ls(settings: Settings, notes: Notes, *, as_json: bool) -> int:
    out = Lines(verbatim=as_json)
    async with equipped(settings, notes) as (toolkit, approvals):
        lost = [each for each in toolkit.status() if each.state != "ready"]
        if as_json:
            told: list[dict[str, Any]] = [
                {
                    "name": each.name,
                    "source": each.source,
                    "asks": approvals.asks(each),
                    "description": each.description,
                    "state": "ready",
                    "reason": None,
                }
                for each in toolkit.tools()
            ]
            told += [
                {"name": each.name, "source": each.source, "state": each.state, "reason": each.reason} for each in lost
            ]
            out.line(json.dumps(told, ensure_ascii=False, indent=2))
        else:
            widest = max((len(each.name) for each in toolkit.tools()), default=0)
            for tool in toolkit.tools():
                asks = "asks" if approvals.asks(tool) else "    "
                out.line(f"{tool.name:{widest}}  {tool.source:7}  {asks}  {cut(tool.description, _WIDTH)}")
        out.close()
        for each in lost:
            notes.line(f"{each.name} ({each.source}) is not used: {each.reason}", style="yellow")
        if not toolkit.tools():
            notes.line("There are none. --tool, --skill, --openapi, --mcp and --builtins name some.")
    return exits.DONE


async def _show(settings: Settings, name: str, notes: Notes, *, as_json: bool) -> int:
    out = Lines(verbatim=as_json)
    async with equipped(settings, notes) as (toolkit, approvals):
        tool = _found(toolkit, name)
        marks = [mark for mark in _MARKS if getattr(tool, mark)]
        if as_json:
            told = {
                "name": tool.name,
                "source": tool.source,
                "asks": approvals.asks(tool),
                "marks": marks,
                "timeout": tool.timeout,
                "description": tool.description,
                "input_schema": tool.input_schema,
            }
            out.line(json.dumps(told, ensure_ascii=False, indent=2))
        else:
            asks = "asks before it runs" if approvals.asks(tool) else "runs without asking"
            out.line(f"{tool.name} · {tool.source} · {asks}", style="bold")
            if marks:
                out.line(f"Marked: {', '.join(marks)}")
            out.line()
            for line in tool.description.splitlines():
                out.line(line)
            out.line()
            for line in json.dumps(tool.input_schema, ensure_ascii=False, indent=2).splitlines():
                out.line(line)
        out.close()
    return exits.DONE


class Arguments(NamedTuple):
    """Arguments as they were typed.

    Attributes:
        pairs: Each `key=value`.
        given: A JSON object; `-`: on stdin. None: none was.
    """

    pairs: tuple[str, ...]
    given: str | None

    def read(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """What they come to. Those of `key=value` win.

        Raises:
            Misused: They cannot be read.
        """
        arguments: dict[str, Any] = {}
        if self.given is not None:
            text = sys.stdin.read() if self.given == "-" else self.given
            try:
                value: Any = json.loads(text)
            except (ValueError, RecursionError) as error:
                raise exits.Misused(f"--json is no JSON: {error}.") from error
            if not isinstance(value, dict):
                raise exits.Misused("--json is no JSON object. Arguments look like " + '{"path": "README.md"}.')
            arguments |= cast("dict[str, Any]", value)
        properties = schema.get("properties")
        known = cast("Mapping[str, Any]", properties if isinstance(properties, Mapping) else {})
        for pair in self.pairs:
            name, separator, text = pair.partition("=")
            if not separator or not name:
                raise exits.Misused(f"{pair!r} is no argument. Give key=value, or --json with an object.")
            arguments[name] = _value(text, known.get(name))
        return arguments


def _value(text: str, schema: Any) -> Any:
    """A text where the schema wants one; else what it is as JSON, or a text."""
    wanted: Any = cast("Mapping[str, Any]", schema).get("type") if isinstance(schema, Mapping) else None
    if wanted == "string":
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


async def _call(
    settings: Settings, name: str, typed: Arguments, answer: str | None, notes: Notes, *, as_json: bool
) -> int:
    async with equipped(settings, notes, answer) as equipment:
        return await run(equipment, _found(equipment.toolkit, name), typed, answer, notes, as_json=as_json)


async def run(
    equipment: Equipment, tool: Tool, typed: Arguments, answer: str | None, notes: Notes, *, as_json: bool
) -> int:
    """Run one call as a person typed it, write what came of it, and return the exit code.

    Args:
        answer: The answer, should the tool ask something. None: a person is asked.

    Raises:
        Misused: The arguments, or the answer, cannot be read.
    """
    toolkit, approvals = equipment
    arguments = await asyncio.to_thread(typed.read, tool.input_schema)
    if approvals.needed(tool, arguments):
        allowed = await _allowed(tool, arguments, approvals, notes)
        if isinstance(allowed, int):
            return allowed
        arguments = allowed
    result = await _run(toolkit, tool, arguments, answer, approvals, notes)
    if isinstance(result, int):
        return result
    _write(result, as_json=as_json)
    if result.is_error and result.output.startswith("The arguments do not fit"):
        return exits.USAGE
    return exits.ERROR if result.is_error else exits.DONE


async def _allowed(tool: Tool, arguments: dict[str, Any], approvals: Approvals, notes: Notes) -> dict[str, Any] | int:
    """The arguments that a person agrees to; or the exit code, if nobody does."""
    data = {"tool": tool.name, "arguments": arguments}
    request: Request = {"id": "call", "kind": "approval", "prompt": f"Allow {tool.name} to run?", "data": data}
    answer = await approvals.answer(request)
    if answer is None:
        notes.line(f"{tool.name} asks before it runs, and nobody has answered. --yes lets it run.", style="yellow")
        return exits.PENDING
    if not answer["ok"]:
        notes.line(f"{tool.name} was not run.", style="yellow")
        return exits.ERROR
    changed = answer.get("data")
    return cast("dict[str, Any]", changed["arguments"]) if isinstance(changed, dict) else arguments


async def _run(
    toolkit: Toolkit,
    tool: Tool,
    arguments: Mapping[str, Any],
    typed: str | None,
    approvals: Approvals,
    notes: Notes,
) -> ToolResult | int:
    """What a call comes to, with what a person says to it; or the exit code, if they do not."""
    about = ToolContext(tool=tool.name, call_id="call", turn_id="call")
    result = await toolkit.execute(tool.name, arguments, about)
    while (request := result.request) is not None:
        answer = await approvals.answer(request) if typed is None else _typed(request, typed)
        typed = None
        if answer is None:
            notes.line(request["prompt"])
            notes.line(f"{tool.name} asks this, and nobody has answered. --answer TEXT does.", style="yellow")
            return exits.PENDING
        if not answer["ok"]:
            notes.line(f"{tool.name} was not answered.", style="yellow")
            return exits.ERROR
        answered = ToolContext(tool=tool.name, call_id="call", turn_id="call", answer=answer)
        result = await toolkit.execute(tool.name, arguments, answered)
    return result


def _typed(request: Request, text: str) -> Answer:
    """The answer that an option gives."""
    if not (questions := questions_of(request)):
        try:
            return answered(request, text)
        except ValueError as error:
            raise exits.Misused(f"--answer does not fit. {error}") from error
    if (answers := read_all(questions, text)) is None:
        raise exits.Misused(f"{len(questions)} questions are answered with a JSON list of {len(questions)}.")
    return replied(request, answers)


def _found(toolkit: Toolkit, name: str) -> Tool:
    if (tool := toolkit.get(name)) is not None:
        return tool
    known = [each.name for each in toolkit.tools()]
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
    meant = f"Did you mean {' or '.join(map(repr, close))}?" if close else "`toolnexus tools ls` lists all."
    raise exits.Misused(f"There is no tool {name!r}. {meant}")


def _write(result: ToolResult, *, as_json: bool) -> None:
    out = Lines(verbatim=as_json)
    parts = [shown_text([part]) for part in result.parts]  # what each is, and how large
    if as_json:
        told = {
            "output": result.output,
            "is_error": result.is_error,
            "parts": parts,
            "structured": result.structured,
            "metadata": dict(result.metadata),
        }
        out.line(json.dumps(told, ensure_ascii=False, indent=2, default=str))
    else:
        for line in result.output.splitlines():
            out.line(line)
        for part in parts:
            out.line(part)
    out.close()
