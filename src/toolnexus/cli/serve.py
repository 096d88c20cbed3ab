"""`toolnexus serve`: the tools of the settings for MCP clients."""

from __future__ import annotations

import asyncio
import os
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from toolnexus.cli import exits
from toolnexus.cli.options import CONTEXT, offering
from toolnexus.cli.person import somebody
from toolnexus.cli.render import Notes
from toolnexus.cli.servers import counted, depth
from toolnexus.cli.settings import read
from toolnexus.cli.toolbox import Toolbox, with_project
from toolnexus.errors import MissingExtra

try:
    import click
except ImportError as exc:
    raise MissingExtra("The toolnexus commands", extra="cli") from exc

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolnexus.cli.settings import Settings
    from toolnexus.gateway import ServedCall

_VARIABLE = "TOOLNEXUS_SERVE_TOKEN"
"""The variable with what requests over HTTP have to carry."""
_DEEPEST = 3


@click.command("serve", context_settings=CONTEXT)
@click.option("--http", metavar="HOST:PORT", help="Over streamable HTTP, at /mcp there; else over stdin and stdout.")
@offering
def serve(http: str | None, **flags: Any) -> int:
    """Be an MCP server with the tools that are named here, for Claude Desktop and other MCP clients.

    --mcp alone says so, too; --mcp FILE passes on the servers of a file; those of a project are not. The built-in tools
    are only offered with --builtins. The client's person has to agree to calls that need it; with --yes these run at
    once.

    Who can reach the address can run the tools, so any address but that of this machine needs a token, which requests
    carry as `Authorization: Bearer …`: it is read from TOOLNEXUS_SERVE_TOKEN.
    """
    flags["mcp"] = tuple(each for each in flags["mcp"] if each)
    if depth() > _DEEPEST:
        raise exits.Misused("This server was started by itself: a file names `toolnexus serve`, which reads that file.")
    settings = read(flags, os.environ)
    if settings.project is not None and settings.project.found:
        settings = replace(settings, project=None)
    if settings.origins.get("builtins") is None:
        settings = replace(settings, builtins=False)
    return asyncio.run(_serve(settings, Notes(), http))


async def _serve(settings: Settings, notes: Notes, http: str | None) -> int:
    host, port = ("127.0.0.1", 0) if http is None else _address(http)
    person = None if http is None else somebody(notes)  # over stdin the client speaks, and nobody can be asked
    equipped = await with_project(settings, notes, person)
    # A project's file may well have this server in it, which would start itself.
    equipped = replace(equipped, mcp=tuple(each for each in equipped.mcp if each not in equipped.mcp_folders))
    async with aclosing(await Toolbox.load(equipped, notes, None)) as toolbox:
        toolkit = await toolbox.toolkit()
        if not toolkit.tools():
            notes.line("There are no tools yet. --tool, --skill, --openapi, --mcp FILE and --builtins name some.")

        def ready(url: str) -> None:
            notes.line(f"Serving {counted(len(toolkit.tools()))} at {url}. Ctrl-C ends it.")

        await toolkit.serve_mcp(
            "stdio" if http is None else "http",
            host=host,
            port=port,
            token=os.environ.get(_VARIABLE) or None,
            client_approves=settings.yes,
            on_call=_told(notes) if settings.verbose else None,
            on_ready=ready,
        )
    return exits.DONE


def _told(notes: Notes) -> Callable[[ServedCall], None]:
    def told(call: ServedCall) -> None:
        how = "failed" if call.is_error else "done"
        notes.line(f"{call.client or 'A client'} called {call.name}: {how} after {call.seconds:.2f} s", style="dim")

    return told


def _address(given: str) -> tuple[str, int]:
    """The host and port that were named."""
    wrong = exits.Misused(f"--http is {given!r:.200}; give an address as 127.0.0.1:8765.")
    try:
        parts = urlsplit(f"//{given}")
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise wrong from error
    if host is None or port is None or parts.netloc != given or "@" in given:
        raise wrong
    return host, port
