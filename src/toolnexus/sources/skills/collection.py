"""The skills of a toolkit, from files, data and functions: one tool, one list for the prompt, one inventory."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from toolnexus import _workers
from toolnexus.errors import ConfigurationError
from toolnexus.sources.skills import SkillDef, SkillInfo, SkillProvider

if TYPE_CHECKING:
    from toolnexus.sources.skills.usable import Skill
    from toolnexus.tools import Tool

_log = logging.getLogger("toolnexus")

_MAX_PROVIDED = 1000
"""Skills of one function."""

Path: TypeAlias = str | os.PathLike[str]


class Skills:
    """Skills by name. The first of a name keeps it; what could not be taken is in `list()`. From `discover_skills`."""

    def __init__(self, skills: Sequence[Skill], inventory: Sequence[SkillInfo]) -> None:
        from toolnexus.sources.skills.loading import skill_tool

        self._skills = tuple(skills)
        self._inventory = tuple(inventory)
        self._tool = skill_tool(skills) if skills else None

    def __repr__(self) -> str:
        return f"<toolnexus.Skills {', '.join(self.names()) or 'without skills'}>"

    def __len__(self) -> int:
        return len(self._skills)

    def names(self) -> list[str]:
        """The names of the skills that a model can load, in their order."""
        return [skill.definition.name for skill in self._skills]

    def get(self, name: str) -> Skill | None:
        """The skill of this name. None: a model cannot load one."""
        return next((skill for skill in self._skills if skill.definition.name == name), None)

    def tool(self) -> Tool | None:
        """The tool `skill`, always the same one. None: there are no skills."""
        return self._tool

    def prompt(self) -> str:
        """The list of names and descriptions for a system prompt. Empty: there are no skills."""
        from toolnexus.sources.skills.catalogue import catalogue

        return catalogue([skill.definition for skill in self._skills])

    def list(self) -> list[SkillInfo]:
        """Every skill that was found or given, and every place that was skipped, with the reason."""
        return [*self._inventory]

    def select(self, wanted: Callable[[str], bool]) -> Skills:
        """Only the skills whose name is wanted. The others are `disabled` in the inventory."""
        kept = [skill for skill in self._skills if wanted(skill.definition.name)]
        names = {skill.definition.name for skill in kept}
        return Skills(kept, [info if info.name in names else _disabled(info) for info in self._inventory])


def _disabled(info: SkillInfo) -> SkillInfo:
    return replace(info, state="disabled", reason="The host left it out.") if info.state == "ready" else info


async def discover_skills(
    roots: Path | Iterable[Path] = (),
    extra: SkillDef | SkillProvider | Iterable[SkillDef | SkillProvider] = (),
    *,
    timeout: float = 30.0,
) -> Skills:
    """Find skills. Nothing here blocks the event loop.

    What is wrong with one skill, folder or function costs only that one; `Skills.list()` says what and why.

    Args:
        roots: Folders to look through for SKILL.md files.
        extra: Skills as data, and functions that give some. They come before those in files, so they win their names.
        timeout: Seconds that a function may take.

    Raises:
        ConfigurationError: Something given can be no skill.
        MissingExtra: There are roots, and PyYAML is not installed.
    """
    roots = [roots] if isinstance(roots, str | os.PathLike) else [*roots]
    given = [extra] if isinstance(extra, SkillDef) or callable(extra) else [*extra]
    for each in given:
        if not isinstance(each, SkillDef) and not callable(each):
            raise ConfigurationError(f"There is a {type(each).__name__} among the skills; give SkillDefs or functions.")
    provided = await asyncio.gather(*(_given(each, timeout) for each in given))
    return await _workers.run(merge, [item for items in provided for item in items], roots)


async def _given(source: SkillDef | SkillProvider, timeout: float) -> list[SkillDef | SkillInfo]:
    if isinstance(source, SkillDef):
        return [source]
    name = getattr(source, "__name__", type(source).__name__)
    try:
        async with asyncio.timeout(timeout):
            return await _provided(source, name)
    except TimeoutError:
        reason = f"The function did not give its skills within {timeout:g} s."
    except Exception as error:  # noqa: BLE001 - a function of the host may raise anything, and costs only its own skills
        reason = f"The function failed. {type(error).__name__}: {error}"
    return [SkillInfo(name=name, source="data", state="skipped", reason=reason)]


async def _provided(provider: SkillProvider, name: str) -> list[SkillDef | SkillInfo]:
    if inspect.iscoroutinefunction(provider):
        items = await _workers.run(_listed, await provider())
    else:
        result = await _workers.run(_called, provider)
        items = result if isinstance(result, list) else await _workers.run(_listed, await result)
    return [item if isinstance(item, SkillDef) else _no_skill(name, item) for item in items]


def _called(provider: SkillProvider) -> list[Any] | Awaitable[Iterable[Any]]:
    result = provider()
    return cast("Awaitable[Any]", result) if inspect.isawaitable(result) else _listed(result)


def _listed(items: Iterable[Any]) -> list[Any]:
    return list(islice(items, _MAX_PROVIDED))


def _no_skill(provider: str, item: object) -> SkillInfo:
    reason = f"The function gave a {type(item).__name__}, which is no SkillDef."
    return SkillInfo(name=provider, source="data", state="skipped", reason=reason)


def merge(given: Iterable[SkillDef | SkillInfo], roots: Iterable[Path]) -> Skills:
    """The skills that were given, then those under the roots; each name goes to the first that has it.

    Raises:
        MissingExtra: There are roots, and PyYAML is not installed.
    """
    found = [*map(_from_data, given)]
    if roots:
        from toolnexus.sources.skills.discovery import find_skills

        found += find_skills(roots)
    by_name: dict[str, Skill] = {}
    inventory: list[SkillInfo] = []
    for item in found:
        info = item if isinstance(item, SkillInfo) else item.info
        if not isinstance(item, SkillInfo):
            first = by_name.setdefault(info.name, item)
            if first is not item:
                where = "data that was given" if first.info.path is None else repr(str(first.info.path))
                info = replace(info, state="clash", reason=f"{where} has the name.")
        if info.reason:
            _log.warning("The skill %r (%s) is not used: %s", info.name, info.path or info.source, info.reason)
        inventory.append(info)
    return Skills([*by_name.values()], inventory)


def _from_data(item: SkillDef | SkillInfo) -> Skill | SkillInfo:
    from toolnexus.sources.skills.usable import Skill, flaw

    if isinstance(item, SkillInfo):
        return item
    reason = flaw(item)
    info = SkillInfo(
        name=item.name,
        description=item.description,
        source="data",
        state="skipped" if reason else "ready",
        reason=reason,
        metadata=item.metadata,
    )
    return info if reason else Skill(item, info)
