"""Connects to the servers of a configuration, all at once, so that one that hangs costs no other."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from toolnexus import _workers
from toolnexus._checks import at_least
from toolnexus.errors import ConfigurationError, MissingExtra
from toolnexus.sources.builtin.kept_output import OutputFolder
from toolnexus.sources.mcp.config import MCPConfig, MCPServer
from toolnexus.sources.mcp.loading import load_mcp_config
from toolnexus.sources.mcp.parsing import parse_mcp_config
from toolnexus.sources.mcp.states import MCPServerStatus
from toolnexus.sources.mcp.tokens import Tokens

if TYPE_CHECKING:
    from types import TracebackType

    from toolnexus.sources.mcp.asking import Roots, Sampling
    from toolnexus.sources.mcp.connection import Connection
    from toolnexus.suspension import WaitFor
    from toolnexus.tools import Tool

MCPSource: TypeAlias = "MCPConfig | str | os.PathLike[str] | Mapping[str, Any]"
"""A configuration, the path of one, or what such a file holds."""

_CONNECTION = "toolnexus.sources.mcp.connection"


class MCPServers:
    """The servers of a configuration. Made by `connect_mcp`; to be closed, in whatever task."""

    def __init__(self, config: MCPConfig, folder: OutputFolder) -> None:
        self.config = config
        self._folder = folder
        self._connections: dict[str, Connection] = {}

    def __repr__(self) -> str:
        return f"<toolnexus.MCPServers {', '.join(self._connections) or 'without servers'}>"

    async def __aenter__(self) -> MCPServers:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def add(self, connection: Connection) -> None:
        """Take a server in."""
        self._connections[connection.name] = connection

    def tools(self) -> tuple[Tool, ...]:
        """The tools of all servers as they are now, named `{server}_{tool}`, in the configuration's order."""
        return tuple(tool for each in self._connections.values() for tool in each.tools)

    def status(self) -> list[MCPServerStatus]:
        """How each server stands; those that the configuration got wrong are `failed`."""
        wrong = [
            MCPServerStatus(name=name, state="failed", reason=error.message)
            for name, error in self.config.errors.items()
        ]
        return [*(each.status() for each in self._connections.values()), *wrong]

    def get(self, name: str) -> Connection:
        """A server: its resources and prompts, its state, and what it says of its tools.

        Raises:
            ConfigurationError: There is none of this name.
        """
        try:
            return self._connections[name]
        except KeyError:
            if name in self.config.errors:
                raise ConfigurationError(f"MCP server {name!r}: {self.config.errors[name].message}") from None
            there = ", ".join(map(repr, self._connections)) or "none"
            raise ConfigurationError(f"There is no MCP server {name!r}. There are: {there}.") from None

    async def settled(self) -> None:
        """Wait until each server is connected, or is not going to be."""
        await asyncio.gather(*(each.settled() for each in self._connections.values()))

    async def aclose(self) -> None:
        """Close all connections and end all programs. From any task, more than once, also after a cancellation."""
        closing = [asyncio.ensure_future(each.aclose()) for each in self._connections.values()]
        if closing:
            await asyncio.wait(closing)
        await _workers.run(self._folder.remove)


async def connect_mcp(
    config: MCPSource,
    *,
    wait_for: WaitFor | None = None,
    on_change: Callable[[str], object] | None = None,
    sampling: Sampling | None = None,
    roots: Roots | None = None,
    tokens_dir: str | os.PathLike[str] | None = None,
    client_metadata_url: str | None = None,
    startup_budget: float = 30.0,
    startup_timeout: float = 30.0,
    timeout: float = 60.0,
) -> MCPServers:
    """Connect to the servers of a configuration, all at once. What fails is in `status()` and costs nothing else.

    Args:
        config: A configuration, the path of one, or what such a file holds.
        wait_for: Asks a person what a server wants to know (a request of the kind `elicitation`, whose `data` holds a
            `schema`; the answer's `data` are the values), or to sign in (`authorization`, with a `url`). None: there is
            nobody: a server that asks is declined, or the call suspends where the protocol allows it, and one that
            wants a sign-in has the state `needs_auth`.
        on_change: Called with a server's name when its state, tools, prompts or resources have changed.
        sampling: Asks a model for servers. None: they are not offered one.
        roots: The folders that servers are told of. None: they are not told.
        tokens_dir: Where the tokens of sign-ins are kept, in files that only this user can read. None: in memory.
        client_metadata_url: Where a document about this program is, as some servers want it for a sign-in.
        startup_budget: Seconds that this waits for all servers together. Those that are not ready then go on by
            themselves. 0: it does not wait.
        startup_timeout: Seconds that one server has, if the configuration does not say.
        timeout: Seconds for one request, from the last progress on, if the configuration does not say.

    Raises:
        MCPConfigError: The file cannot be read as a whole.
        MissingExtra: The SDK is not installed.
    """
    at_least("startup_budget", startup_budget, 0)
    at_least("startup_timeout", startup_timeout, 0.001)
    at_least("timeout", timeout, 0.001)
    known = await _config(config)
    await _loaded()
    from toolnexus.sources.mcp.asking import Asked
    from toolnexus.sources.mcp.connection import Connection
    from toolnexus.sources.mcp.link import Defaults
    from toolnexus.sources.mcp.oauth import SignIn

    tokens = Tokens(tokens_dir)
    folder = OutputFolder()
    servers = MCPServers(known, folder)
    defaults = Defaults(timeout=timeout, startup_timeout=startup_timeout)
    for name, server in known.servers.items():
        asked = Asked(name, wait_for=wait_for, sampling=sampling, roots=roots)
        sign_in = None
        if _may_sign_in(server):
            sign_in = partial(SignIn, server, tokens, wait_for=wait_for, client_metadata_url=client_metadata_url)
        servers.add(
            Connection(server, asked, defaults=defaults, folder=folder, changed=on_change or _nobody, sign_in=sign_in)
        )
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(startup_budget):
                await servers.settled()
    except BaseException:
        await servers.aclose()
        raise
    return servers


async def list_mcp_tools(config: MCPSource, **options: Any) -> tuple[tuple[Tool, ...], list[MCPServerStatus]]:
    """Connect, list, and disconnect: the tools, which cannot be called any more, and how each server stood.

    Args:
        config: As for `connect_mcp`.
        options: Those of `connect_mcp`.

    Raises:
        MCPConfigError: The file cannot be read as a whole.
        MissingExtra: The SDK is not installed.
    """
    async with await connect_mcp(config, **options) as servers:
        return servers.tools(), servers.status()


def _may_sign_in(server: MCPServer) -> bool:
    """Whether a sign-in may be started: not where the configuration says no, or brings its own credentials."""
    return (
        server.url is not None
        and server.oauth is not False
        and not any(name.lower() == "authorization" for name in server.headers)
    )


def _nobody(_: str) -> None:
    return None


async def _config(given: MCPSource) -> MCPConfig:
    if isinstance(given, MCPConfig):
        return given
    if isinstance(given, Mapping):
        home = str(await _workers.run(_home)) or None
        workspace = await _workers.run(os.getcwd)
        return parse_mcp_config(given, env=os.environ, home=home, workspace=workspace)
    return await _workers.run(load_mcp_config, given)


def _home() -> str:
    return os.path.expanduser("~")  # noqa: PTH111 - it never raises


async def _loaded() -> None:
    """Load the SDK beside the event loop: it takes a good part of a second."""
    try:
        await _workers.run(importlib.import_module, _CONNECTION)
    except ImportError as error:
        raise MissingExtra("MCP servers", extra="mcp") from error
