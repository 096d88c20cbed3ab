"""The MCP servers that the settings name: read from their files, connected, and what becomes of them told."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

from toolnexus import ConfigurationError, connect_mcp, load_mcp_config
from toolnexus.cli import exits
from toolnexus.cli.settings import home, path_of
from toolnexus.sources.mcp.config import MCPConfig, MCPEntryError, MCPServer, MCPWarning

if TYPE_CHECKING:
    from pathlib import Path

    from toolnexus import Answer, MCPServers, Request
    from toolnexus.cli.render import Notes
    from toolnexus.cli.settings import Settings
    from toolnexus.sources.mcp.states import MCPServerStatus

_log = logging.getLogger("toolnexus")

WAIT = 30.0
"""Seconds that all servers together have before a question is asked without those that are not ready."""
CHAT_WAIT = 2.0
"""The same before a chat begins, where those that come later are there for the next question."""
PYTHON = "TOOLNEXUS_PYTHON"
"""A variable of configuration files: the Python that this command runs in, unless the environment has its own."""

_DEPTH = "TOOLNEXUS_DEPTH"

Ask: TypeAlias = "Callable[[Request], Awaitable[Answer | None]]"

WORDS: Mapping[str, str] = MappingProxyType({"needs_auth": "needs a sign-in"})
"""States that are called otherwise where people read them."""


@dataclass(frozen=True, slots=True)
class Configured:
    """What the files say together.

    Attributes:
        config: All servers. Of a name that several files have, the first.
        files: Which file each name comes from.
        remarks: What is to be known of the files, one line each.
    """

    config: MCPConfig
    files: Mapping[str, Path]
    remarks: tuple[str, ...] = ()


def configured(settings: Settings, only: str | None = None) -> Configured:
    """Read the files. It reads from the disk, so call it beside an event loop.

    Args:
        only: The only server that is wanted. None: all are.

    Raises:
        MCPConfigError: A file cannot be read as a whole.
        Misused: There is no server of the name that is wanted.
    """
    servers: dict[str, MCPServer] = {}
    errors: dict[str, MCPEntryError] = {}
    files: dict[str, Path] = {}
    warnings: list[MCPWarning] = []
    remarks: list[str] = []
    environ = {PYTHON: sys.executable, **os.environ}
    for given in settings.mcp:
        path = path_of(given)
        folder = settings.mcp_folders.get(given)
        found = load_mcp_config(path, env=environ, workspace=folder)
        taken = {name: files[name] for name in (*found.servers, *found.errors) if name in files}
        remarks += [f"{path}: {name!r} is not used, as {first} has one too." for name, first in taken.items()]
        errors.update({name: error for name, error in found.errors.items() if name not in taken})
        for name, server in found.servers.items():
            if name not in taken:
                servers[name] = _placed(server, folder)
        warnings += [each for each in found.warnings if each.server not in taken]
        files.update({name: path for name in (*found.servers, *found.errors) if name not in taken})
    if only is not None:
        if only not in files:
            raise exits.Misused(f"There is no MCP server {only!r}. There are: {_listed(files)}.")
        servers = {name: server for name, server in servers.items() if name == only}
        errors = {name: error for name, error in errors.items() if name == only}
    return Configured(MCPConfig(servers=servers, errors=errors, warnings=tuple(warnings)), files, tuple(remarks))


def depth() -> int:
    """How many of us are above: servers that are this command line, started by one another."""
    return int(text) if (text := os.environ.get(_DEPTH, "")).isdecimal() else 0


def _placed(server: MCPServer, folder: Path | None) -> MCPServer:
    """A server as it is started from here: in its project, and knowing how deep it is."""
    if server.command is None:
        return server
    cwd = server.cwd if server.cwd is not None or folder is None else str(folder)
    return replace(server, cwd=cwd, env={_DEPTH: str(depth() + 1), **server.env})


async def connected(found: Configured, notes: Notes, *, wait: float, ask: Ask | None, quiet: bool = False) -> Watched:
    """Connect to the servers, and tell of those that are not ready.

    Args:
        wait: Seconds to wait for all of them together.
        ask: Asks a person. None: nobody can be asked.
        quiet: The caller tells itself how they stand.

    Raises:
        MissingExtra: The SDK is not installed.
    """
    for line in () if quiet else found.remarks:
        notes.line(line, style="yellow")
    watched = Watched(notes, quiet=quiet)
    try:
        tokens = home(os.environ) / "mcp-tokens"
    except ConfigurationError:
        tokens = None
    watched.servers = await connect_mcp(
        found.config, wait_for=ask, on_change=watched.changed, startup_budget=wait, tokens_dir=tokens
    )
    watched.begin()
    return watched


def _other(record: logging.LogRecord) -> bool:
    """Whether a line of the log says what is not told here anyway."""
    return not str(record.msg).startswith("MCP server %r is not connected")


class Watched:
    """Connected servers, and what is told of them: those that are lost, that are back, and that are ready at last."""

    servers: MCPServers

    def __init__(self, notes: Notes, *, quiet: bool) -> None:
        self._notes = notes
        self._silent = quiet
        self._known: dict[str, str] | None = None
        _log.addFilter(_other)

    def begin(self) -> None:
        """Tell how they stand now, and from now on what changes."""
        self._known = {}
        for status in self.servers.status():
            self._known[status.name] = status.state
            if status.state == "connecting":
                self._say(status, "is not ready yet. Its tools come when it is")
            elif status.state in ("failed", "needs_auth"):
                self._trouble(status)

    def changed(self, name: str) -> None:
        """Something about a server has changed."""
        if self._known is None:
            return
        status = self.servers.get(name).status()
        before = self._known.get(name)
        self._known[name] = status.state
        if status.state == before:
            return
        if status.state == "connecting":
            self._say(status, f"was lost and is being connected again{_why(status)}")
        elif status.state == "ready":
            self._say(status, "is connected again" if status.reconnects else f"is ready: {counted(status.tools)}")
        elif status.state in ("failed", "needs_auth"):
            self._trouble(status)

    async def aclose(self) -> None:
        """Close them."""
        self._silent = True
        _log.removeFilter(_other)
        await self.servers.aclose()

    def _trouble(self, status: MCPServerStatus) -> None:
        self._say(status, f"{WORDS.get(status.state, status.state)}{_why(status)}")
        if status.url:
            self._say(status, f"sign in at {status.url}")

    def _say(self, status: MCPServerStatus, what: str) -> None:
        if not self._silent:
            self._notes.line(f"MCP server {status.name}: {what.rstrip('.')}.", style="yellow")


def counted(tools: int) -> str:
    """A number of tools in words."""
    return f"{tools} tool{'' if tools == 1 else 's'}"


def _why(status: MCPServerStatus) -> str:
    return f": {status.reason}" if status.reason else ""


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names)) or "none; --mcp FILE names a file with some"


async def read_configured(settings: Settings, only: str | None = None) -> Configured:
    """`configured`, beside the event loop."""
    return await asyncio.to_thread(configured, settings, only)
