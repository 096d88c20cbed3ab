"""The built-in tools and the skills, as sources of a toolkit."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from toolnexus import _workers

if TYPE_CHECKING:
    from toolnexus.sources.builtin.workspace import Workspace
    from toolnexus.sources.skills import SkillDef, SkillProvider
    from toolnexus.sources.skills.collection import Skills
    from toolnexus.tools import Tool

AnyPath: TypeAlias = str | os.PathLike[str]


class Builtins:
    """The tools that come with the library. It imports what they need, so make it beside an event loop.

    Args:
        names: Which ones.
        root: The folder that they work in, or a `Workspace` with its own rules. None: the current folder.
        confine: As in `Workspace`.
        allow_private: As in `webfetch.make`.

    Raises:
        ConfigurationError: There is no such folder.
        MissingExtra: A tool needs an optional dependency.
    """

    def __init__(
        self, names: Iterable[str], root: AnyPath | Workspace | None, *, confine: bool, allow_private: bool
    ) -> None:
        from toolnexus.sources.builtin import builtin_tools
        from toolnexus.sources.builtin.workspace import Workspace

        workspace = root if isinstance(root, Workspace) else Workspace(root or Path.cwd(), confine=confine)
        made = builtin_tools(workspace, dict.fromkeys(names, True))
        self._tools = [_unguarded(workspace) if allow_private and tool.name == "webfetch" else tool for tool in made]

    def tools(self) -> Sequence[Tool]:
        return self._tools

    async def aclose(self) -> None:
        for tool in self._tools:
            if tool.name == "bash":
                from toolnexus.sources.builtin import bash

                await bash.aclose(tool)


def _unguarded(workspace: Workspace) -> Tool:
    from toolnexus.sources.builtin import webfetch

    return webfetch.make(workspace, allow_private=True)


class LoadedSkills:
    """Skills, with the tool that loads them and what a system prompt says of them.

    Attributes:
        skills: All of them, with what became of the others.
        prompt: Empty: there are no skills.
        tool: None: there are no skills.
    """

    def __init__(self, skills: Skills) -> None:
        self.skills = skills
        self.prompt = skills.prompt()
        self.tool = skills.tool()
        self._tools = () if self.tool is None else (self.tool,)

    def tools(self) -> Sequence[Tool]:
        return self._tools

    async def aclose(self) -> None:
        """Skills hold nothing open."""


async def load_skills(
    roots: AnyPath | Iterable[AnyPath] | None,
    given: SkillDef | SkillProvider | Iterable[SkillDef | SkillProvider],
    wanted: Callable[[str], bool],
) -> LoadedSkills | None:
    """The skills under some folders, and those that were given. None: nothing was.

    Raises:
        ConfigurationError: Something given can be no skill.
        MissingExtra: There are folders, and PyYAML is not installed.
    """
    places = () if roots is None else [roots] if isinstance(roots, str | os.PathLike) else [*roots]
    if not places and not given:
        return None
    from toolnexus.sources.skills.collection import discover_skills

    found = await discover_skills(places, given)
    return await _workers.run(lambda: LoadedSkills(found.select(wanted)))
