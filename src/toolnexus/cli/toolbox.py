"""The tools that a command offers, as the settings name them: functions, built-in ones, skills, OpenAPI documents."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from toolnexus import ConfigurationError, create_toolkit
from toolnexus.cli import functions
from toolnexus.cli.settings import document_at, home, path_of
from toolnexus.cli.trust import Trusted, agreed

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolnexus import Tool, Toolkit
    from toolnexus.cli.approvals import Person
    from toolnexus.cli.render import Notes
    from toolnexus.cli.settings import Settings


async def with_project(settings: Settings, notes: Notes, person: Person | None) -> Settings:
    """The settings with what the project adds, if it is trusted.

    Raises:
        Untrusted: It is not, and nobody is there to be asked.
        ConfigurationError: It cannot be said whether it is.
    """
    project = settings.project
    if project is None:
        return settings
    if not await agreed(project, Trusted(trusted_file()), notes, person):
        return replace(settings, project=None)
    return replace(
        settings,
        tools=_each_once(settings.tools, project.tools),
        skills=_each_once(settings.skills, project.skills),
        openapi=_each_once(settings.openapi, project.openapi),
        builtins=settings.builtins or (project.builtins and settings.origins["builtins"].layer == "project file"),
        project=None,
    )


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
    """

    def __init__(self, settings: Settings, functions: Iterable[Tool], operations: Iterable[Tool]) -> None:
        self._skills = [path_of(each) for each in settings.skills]
        self._functions = tuple(functions)
        self._operations = _Operations(tuple(operations))
        self._root = _working_directory() if settings.builtins else None
        self._made: list[Toolkit] = []

    @classmethod
    async def load(cls, settings: Settings) -> Toolbox:
        """Load what the settings name. A project has no part in that any more; see `with_project`.

        Raises:
            ToolnexusError: Something named is not there, or cannot be a tool.
        """
        loaded = [await asyncio.to_thread(functions.load, each) for each in settings.tools]
        read = [await _operations(each) for each in settings.openapi]
        return cls(settings, itertools.chain(*loaded), itertools.chain(*read))

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
        """Close the toolkits."""
        for toolkit in self._made:
            await toolkit.aclose()


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
