"""A skill that a model can be offered, and why some cannot be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from toolnexus.sources.skills import SkillDef, SkillInfo

_MAX_NAME = 128


@dataclass(frozen=True, slots=True)
class SkillFile:
    """Where a skill's text is.

    Attributes:
        root: The root that it must not leave, links followed.
    """

    path: Path
    root: Path


@dataclass(frozen=True, slots=True)
class Skill:
    """A skill that can be loaded.

    Attributes:
        definition: Without its body where that is in a file.
        file: None: it is data.
    """

    definition: SkillDef
    info: SkillInfo
    file: SkillFile | None = None


def flaw(skill: SkillDef) -> str:
    """Why a model cannot be offered a skill. Empty: it can."""
    # Half a character and a line end are no printable ones, and neither can stand in a request or in a list.
    if not skill.name.strip() or len(skill.name) > _MAX_NAME or not skill.name.isprintable():
        return f"The name {skill.name!r:.200} cannot be used: it has to be one line of up to {_MAX_NAME} characters."
    if not skill.description.strip():
        return "It has no description, so a model cannot know when to use it."
    return ""
