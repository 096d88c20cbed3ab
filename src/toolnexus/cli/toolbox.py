"""The tools that a command offers, as the settings name them: functions, built-in ones, skills, of servers, of APIs."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from toolnexus import ConfigurationError, create_toolkit
from toolnexus.cli import functions
from toolnexus.cli.approvals import answered, denied
from toolnexus.cli.servers import WAIT, connected, read_configured
from toolnexus.cli.settings import document_at, home, path_of
from toolnexus.cli.trust import Trusted, agreed

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolnexus import Answer, MCPServers, Request, Tool, Toolkit
    from toolnexus.cli.approvals import Person
    from toolnexus.cli.render import Notes
    from toolnexus.cli.servers import Ask, Watched
    from toolnexus.cli.settings import Project, Settings


async def with_project(settings: Settings, notes: Notes, person: Person | None) -> Settings:
    """The settings with what the project adds, if it is trusted.

    Raises:
        Untrusted: It is not, and nobody is there to be asked.
        ConfigurationError: It cannot be said whether it is.
    """
    project = settings.project
    if project is None or (project.found and _all_named(project, settings)):
        return replace(settings, project=None)
    if not await agreed(project, Trusted(trusted_file()), notes, person):
        return replace(settings, project=None)
    return replace(
        settings,
        tools=_each_once(settings.tools, project.tools),
        skills=_each_once(settings.skills, project.skills),
        openapi=_each_once(settings.openapi, project.openapi),
        mcp=_each_once(settings.mcp, project.mcp),
        mcp_folders={each: project.folder for each in project.mcp if each not in settings.mcp},
        builtins=settings.builtins or (project.builtins and settings.origins["builtins"].layer == "project file"),
        project=None,
    )


def _all_named(project: Project, settings: Settings) -> bool:
    """Whether the person named all that was found, so that nobody has to be asked about it."""
    named = {path_of(each).absolute() for each in settings.mcp}
    return all(Path(each) in named for each in project.mcp)


def trusted_file() -> Path | None:
    """Where it is kept which projects are trusted. None: there is no place for it."""
    try:
        return home(os.environ) / "trusted.json"
    except ConfigurationError:
        return None


class Toolbox:
    """Makes toolkits of what the settings name; code and documents are loaded once.

    Args:
        functions: Those that a person named.
        operations: Those of OpenAPI documents. They come last, so that none takes the place of another tool.

    Attributes:
        ask: Asks a person what a server wants to know. None: nobody can be asked now.
    """

    def __init__(self, settings: Settings, functions: Iterable[Tool], operations: Iterable[Tool]) -> None:
        self.ask: Ask | None = None
        self._servers: Watched | None = None
        self._said: str | None = None
        self._skills = [path_of(each) for each in settings.skills]
        self._functions = tuple(functions)
        self._operations = _Operations(tuple(operations))
        self._root = _working_directory() if settings.builtins else None
        self._made: list[Toolkit] = []

    @classmethod
    async def load(
        cls,
        settings: Settings,
        notes: Notes,
        person: Person | None,
        *,
        wait: float = WAIT,
        server: str | None = None,
        quiet: bool = False,
        answer: str | None = None,
    ) -> Toolbox:
        """Load what the settings name. A project has no part in that any more; see `with_project`.

        Args:
            person: Who is asked to sign in, and what servers want to know. None: nobody is there.
            wait: Seconds to wait for all MCP servers together. Those that are not ready by then come later.
            server: The only MCP server that is wanted. None: all are.
            quiet: How MCP servers stand is not told.
            answer: What MCP servers are told that ask something, without asking the person. None: nothing was said.

        Raises:
            ToolnexusError: Something named is not there, or cannot be a tool. An MCP server that cannot be reached is
                only told of.
        """
        loaded = [await asyncio.to_thread(functions.load, each) for each in settings.tools]
        read = [await _operations(each) for each in settings.openapi]
        toolbox = cls(settings, itertools.chain(*loaded), itertools.chain(*read))
        if settings.mcp:
            found = await read_configured(settings, server)
            toolbox._said = answer
            ask = None if person is None and answer is None else partial(toolbox._answer, notes)
            toolbox._servers = await connected(found, notes, wait=wait, ask=ask, quiet=quiet)
        return toolbox

    @property
    def servers(self) -> MCPServers | None:
        """The MCP servers. None: no file with some is named."""
        return None if self._servers is None else self._servers.servers

    async def toolkit(self, first: Iterable[Callable[..., object]] = ()) -> Toolkit:
        """A toolkit of all of it. It is closed with the toolbox.

        Args:
            first: Functions before all others.

        Raises:
            ToolnexusError: As for `create_toolkit`.
        """
        toolkit = await create_toolkit(
            [*first, *self._functions],
            builtins=self._root is not None,
            root=self._root,
            skills_dir=self._skills,
            mcp_config=self.servers,
            sources=[self._operations],
        )
        self._made.append(toolkit)
        return toolkit

    def vouched(self, tool: Tool) -> bool:
        """Whether what a tool says of itself was said by us, and not in code that somebody else may have written."""
        return tool not in self._functions

    def root_of(self, name: str) -> Path | None:
        """Where the built-in tool of a name works, in the last toolkit. None: there is none of that name."""
        tool = self._made[-1].get(name) if self._made else None
        return self._root if tool is not None and tool.source == "builtin" else None

    async def aclose(self) -> None:
        """Close the toolkits and the servers."""
        if self._servers is not None:
            await self._servers.aclose()
        for toolkit in self._made:
            await toolkit.aclose()

    async def _answer(self, notes: Notes, request: Request) -> Answer | None:
        """What a server is told by a person."""
        if request["kind"] == "authorization":  # the browser brings the answer
            notes.line(request["prompt"], style="bold yellow")
            notes.line(request.get("url", ""))
            return None
        if self._said is None:
            return None if self.ask is None else await self.ask(request)
        try:
            return answered(request, self._said)
        except ValueError as error:
            notes.line(f"{request['prompt']} --answer does not fit. {error}", style="yellow")
            return denied(request, "")


class _Operations:
    """The operations of OpenAPI documents, as a source of a toolkit."""

    def __init__(self, tools: tuple[Tool, ...]) -> None:
        self._tools = tools

    def tools(self) -> tuple[Tool, ...]:
        return self._tools

    async def aclose(self) -> None:
        """They hold nothing open."""


async def _operations(given: str) -> list[Tool]:
    from toolnexus import http_tools_from_openapi

    document = document_at(given)
    try:
        return await http_tools_from_openapi(document.path or document.source, base_url=document.server)
    except ConfigurationError as error:
        said = re.sub(r"Give base_url=\.", f"Say it: {document.source}#https://…", str(error))
        raise ConfigurationError(said) from error


def _working_directory() -> Path | None:
    """Where built-in tools can work. None: it was removed, or nothing on this platform keeps them inside it."""
    if os.open not in os.supports_dir_fd:
        return None
    try:
        return Path.cwd()
    except OSError:
        return None


def _each_once(own: Iterable[str], added: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*own, *added)))
