"""`toolnexus mcp`: which MCP servers there are, how they stand, and calling one."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import stat
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from toolnexus import ConfigurationError, MissingExtra
from toolnexus.cli import exits
from toolnexus.cli.files import replace as write
from toolnexus.cli.options import CONTEXT, as_json, calling, serving
from toolnexus.cli.person import somebody
from toolnexus.cli.render import Lines, Notes, cut
from toolnexus.cli.servers import WORDS, Configured, counted, read_configured
from toolnexus.cli.settings import MCP_FILES, read
from toolnexus.cli.talk import approvals as approvals_of
from toolnexus.cli.toolbox import Toolbox, with_project
from toolnexus.cli.tools import Arguments, Equipment, run
from toolnexus.sources.mcp.editing import add_server

try:
    import click
except ImportError as exc:
    raise MissingExtra("The toolnexus commands", extra="cli") from exc

if TYPE_CHECKING:
    from toolnexus import MCPServers, Tool
    from toolnexus.cli.settings import Settings
    from toolnexus.sources.mcp.connection import Connection
    from toolnexus.sources.mcp.states import MCPServerStatus

_WIDTH = 72
_MARKS = {"ready": "✓", "disabled": "-"}


class _At(NamedTuple):
    """The servers, and what a command on them works with."""

    found: Configured
    toolbox: Toolbox
    servers: MCPServers
    equipment: Equipment


@click.group("mcp", context_settings=CONTEXT)
def mcp() -> None:
    """See MCP servers, what is wrong with some, and call their tools.

    These are the servers of files that --mcp, TOOLNEXUS_MCP or a configuration file name, and those of the project:
    .mcp.json, mcp.json, .vscode/mcp.json and .cursor/mcp.json, once you trust it.
    """


@mcp.command()
@as_json
@serving
def ls(as_json: bool, **flags: Any) -> int:
    """List the servers, and how each stands."""
    return asyncio.run(_ls(read(flags, os.environ), Notes(), as_json=as_json))


@mcp.command("tools")
@click.argument("server", required=False)
@as_json
@serving
def tools_of(server: str | None, as_json: bool, **flags: Any) -> int:
    """List the tools of all servers, or of SERVER. Exit code 1 if that one is not ready."""
    return asyncio.run(_tools(read(flags, os.environ), server, Notes(), as_json=as_json))


@mcp.command("call")
@click.argument("server")
@click.argument("tool")
@click.argument("pairs", metavar="[KEY=VALUE]...", nargs=-1)
@click.option("--json", "given", metavar="JSON|-", help="The arguments as a JSON object; - reads it from stdin.")
@click.option("--answer", metavar="TEXT", help="The answer, should the server ask something.")
@click.option("-o", "--output", type=click.Choice(("text", "json")), default="text", help="How the result is written.")
@calling
def call_tool(
    server: str, tool: str, pairs: tuple[str, ...], given: str | None, answer: str | None, output: str, **flags: Any
) -> int:
    """Run TOOL of SERVER, by the name that the server gives it.

    It asks first, as in a conversation: what a server says of its tools is no consent. --yes and --approve give it.
    Exit codes are those of `toolnexus tools call`.
    """
    settings = read(flags, os.environ)
    typed = Arguments(pairs, given)
    return asyncio.run(_call(settings, server, tool, typed, answer, Notes(), as_json=output == "json"))


@mcp.command()
@as_json
@serving
def doctor(as_json: bool, **flags: Any) -> int:
    """Say for each entry what is wrong with it, and what to do. Exit code 1 if one cannot be used."""
    return asyncio.run(_doctor(read(flags, os.environ), Notes(), as_json=as_json))


@mcp.command()
@click.argument("name")
@click.argument("command", metavar="[-- COMMAND...]", nargs=-1)
@click.option("--url", metavar="URL", help="Where a remote server is, instead of a command.")
@click.option("--env", "environment", metavar="NAME=VALUE", multiple=True, help="For the command. Repeatable.")
@click.option("--header", "headers", metavar="NAME=VALUE", multiple=True, help="For the URL. Repeatable.")
@click.option("--file", type=click.Path(path_type=Path), help="Which file; else that of this folder, or .mcp.json.")
@click.option("--replace", "replacing", is_flag=True, help="In place of the server that has the name.")
def add(
    name: str,
    command: tuple[str, ...],
    url: str | None,
    environment: tuple[str, ...],
    headers: tuple[str, ...],
    file: Path | None,
    replacing: bool,
) -> int:
    """Add a server to a configuration file, and leave the rest as it is.

    \b
    toolnexus mcp add files -- npx -y @modelcontextprotocol/server-filesystem .
    toolnexus mcp add docs --url https://example.com/mcp --header 'Authorization=Bearer ${DOCS_TOKEN}'
    """
    if bool(command) == bool(url):
        raise click.UsageError("Give a command behind --, or --url: one of them.")
    if (environment and url) or (headers and command):
        raise click.UsageError("--env is for a command, --header for a --url.")
    entry: dict[str, Any] = {"type": "http", "url": url} if url else {"command": command[0], "args": [*command[1:]]}
    if pairs := _pairs(environment or headers):
        entry["env" if environment else "headers"] = pairs
    path = file or next((each for each in map(Path, MCP_FILES) if each.is_file()), Path(MCP_FILES[0]))
    written = add_server(_text(path), name, entry, source=str(path), replace=replacing)
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else None
    write(path.resolve(), written.encode(), mode=mode)
    out = Lines()
    out.line(f"{name} is in {path}. `toolnexus mcp doctor --mcp {shlex.quote(str(path))}` tries it.")
    out.close()
    return exits.DONE


@asynccontextmanager
async def _at(
    settings: Settings, notes: Notes, *, only: str | None = None, quiet: bool = True, answer: str | None = None
) -> AsyncGenerator[_At]:
    person = somebody(notes)
    equipped = await with_project(settings, notes, person)
    settings = replace(equipped, tools=(), skills=(), openapi=(), builtins=False)
    found = await read_configured(settings, only)
    loading = Toolbox.load(settings, notes, person, server=only, quiet=quiet, answer=answer)
    async with aclosing(await loading) as toolbox:
        approvals = approvals_of(settings, notes, person, toolbox)
        equipment = Equipment(await toolbox.toolkit(), approvals)
        if toolbox.servers is None:
            raise ConfigurationError("No MCP servers are named. --mcp FILE names a file with some.")
        yield _At(found, toolbox, toolbox.servers, equipment)


async def _ls(settings: Settings, notes: Notes, *, as_json: bool) -> int:
    out = Lines(verbatim=as_json)
    async with _at(settings, notes) as (found, _, servers, _):
        statuses = servers.status()
        if as_json:
            out.line(json.dumps([_told(each, found) for each in statuses], ensure_ascii=False, indent=2))
        widest = max((len(each.name) for each in statuses), default=0)
        for each in () if as_json else statuses:
            what = counted(each.tools) if each.state == "ready" else WORDS.get(each.state, each.state)
            details = each.reason or " · ".join(filter(None, [each.server, each.protocol, str(each.transport or "")]))
            out.line(f"{_MARKS.get(each.state, '✗')} {each.name:{widest}}  {what:13}  {details}")
            if each.url:
                out.line(f"  {'':{widest}}  Sign in at {each.url}")
        out.close()
        for line in found.remarks:
            notes.line(line, style="yellow")
        if not statuses:
            notes.line("The files name no servers.")
    return exits.DONE


def _told(status: MCPServerStatus, found: Configured) -> dict[str, Any]:
    return {
        "name": status.name,
        "state": status.state,
        "reason": status.reason or None,
        "url": status.url,
        "transport": status.transport,
        "protocol": status.protocol,
        "server": status.server or None,
        "tools": status.tools,
        "dropped": dict(status.dropped),
        "file": str(found.files[status.name]),
    }


async def _tools(settings: Settings, server: str | None, notes: Notes, *, as_json: bool) -> int:
    out = Lines(verbatim=as_json)
    async with _at(settings, notes, only=server, quiet=False) as (_, _, servers, equipment):
        statuses = servers.status()
        listed = [each for status in statuses if status.name in servers.config.servers for each in _of(servers, status)]
        if as_json:
            told = [
                {
                    "server": connection.name,
                    "tool": name,
                    "name": tool.name,
                    "asks": equipment.approvals.asks(tool),
                    "description": tool.description,
                    "input_schema": tool.input_schema,
                }
                for connection, name, tool in listed
            ]
            out.line(json.dumps(told, ensure_ascii=False, indent=2))
        widest = max((len(tool.name) for _, _, tool in listed), default=0)
        for _, _, tool in () if as_json else listed:
            out.line(f"{tool.name:{widest}}  {cut(tool.description, _WIDTH)}")
        out.close()
        for status in statuses:
            for name, reason in status.dropped.items():
                notes.line(f"{status.name}: the tool {name} is not used: {reason}", style="yellow")
        ready = all(status.state == "ready" for status in statuses)
    return exits.DONE if ready or server is None else exits.ERROR


def _of(servers: MCPServers, status: MCPServerStatus) -> list[tuple[Connection, str, Tool]]:
    """The tools of a server, each with the name that it has there."""
    connection = servers.get(status.name)
    names = [str(said.get("name")) for said in connection.listed_tools]
    return [(connection, name, tool) for name, tool in zip(names, connection.tools, strict=True)]


async def _call(
    settings: Settings, server: str, name: str, typed: Arguments, answer: str | None, notes: Notes, *, as_json: bool
) -> int:
    async with _at(settings, notes, only=server, answer=answer) as (_, _, servers, equipment):
        status = servers.status()[0]
        if status.state != "ready":
            notes.line(f"Error: MCP server {server} {_stands(status)}", style="red")
            return exits.ERROR
        offered = {each: tool for _, each, tool in _of(servers, status)}
        offered = {**{tool.name: tool for tool in offered.values()}, **offered}
        if name not in offered:
            reason = status.dropped.get(name)
            why = f"cannot be used: {reason}" if reason else f"is not there. `toolnexus mcp tools {server}` lists all"
            raise exits.Misused(f"The tool {name!r} of {server!r} {why}.")
        return await run(equipment, offered[name], typed, answer, notes, as_json=as_json)


async def _doctor(settings: Settings, notes: Notes, *, as_json: bool) -> int:
    out = Lines(verbatim=as_json)
    async with _at(settings, notes) as (found, _, servers, _):
        told: list[dict[str, Any]] = []
        for status in servers.status():
            warnings = [
                f"{each.key}: {each.message}" if each.key else each.message
                for each in found.config.warnings
                if each.server == status.name
            ]
            warnings += [f"the tool {name} is not used: {reason}" for name, reason in status.dropped.items()]
            do = _advice(status, wrong=status.name in found.config.errors, file=found.files[status.name])
            told.append({**_told(status, found), "warnings": warnings, "do": do or None})
        if as_json:
            out.line(json.dumps(told, ensure_ascii=False, indent=2))
        for each, status in () if as_json else zip(told, servers.status(), strict=True):
            out.line(f"{_MARKS.get(status.state, '✗')} {status.name} ({each['file']}): {_stands(status)}")
            for warning in each["warnings"]:
                out.line(f"    {warning}", style="yellow")
            if each["do"]:
                out.line(f"    {each['do']}")
        out.close()
        general = [each.message for each in found.config.warnings if each.server is None]
        for line in (*found.remarks, *general):
            notes.line(line, style="yellow")
        usable = all(status.state in ("ready", "disabled") for status in servers.status())
    return exits.DONE if usable else exits.ERROR


def _stands(status: MCPServerStatus) -> str:
    if status.state == "ready":
        return f"is ready with {counted(status.tools)}."
    word = {"connecting": "is not ready yet", "disabled": "is switched off"}.get(status.state, "")
    word = word or WORDS.get(status.state, status.state)
    return f"{word}: {status.reason.rstrip('.')}." if status.reason else f"{word}."


def _advice(status: MCPServerStatus, *, wrong: bool, file: Path) -> str:
    """What to do about a server. Empty: nothing."""
    if wrong:
        return f"Correct the entry {status.name!r} in {file}."
    match status.state:
        case "needs_auth" if status.url:
            return f"Sign in at {status.url}, or give the entry a header with a token."
        case "needs_auth":
            return "Run this at a terminal to sign in, or give the entry a header with a token."
        case "failed" if status.transport == "stdio":
            return f"Run the command of the entry in {file} yourself; it has to be there and go on running."
        case "failed":
            return f"See that the address of the entry in {file} is right and reachable, and its headers are, too."
        case "connecting":
            return "It is slow to start. A larger startup_timeout_sec in its entry gives it more time."
        case _:
            return ""


def _pairs(given: tuple[str, ...]) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for each in given:
        name, separator, value = each.partition("=")
        if not separator or not name:
            raise click.UsageError("Give NAME=VALUE.")  # without what was given, which may be a key
        found[name] = value
    return found


def _text(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return file.read()
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} is not UTF-8. Save it as UTF-8.") from error
