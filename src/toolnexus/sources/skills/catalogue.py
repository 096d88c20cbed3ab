"""The list of skills in a system prompt: enough for a model to know when to load which."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolnexus.sources.skills import SkillDef

TOOL_NAME = "skill"
MAX_CATALOGUE = 32_000
"""Characters of the whole list."""
_DESCRIPTION_LIMITS = (1024, 512, 256, 128, 64, 0)
"""Characters of one description: the most of these with which all skills have room."""

_BEFORE = (
    f"Skills are instructions for kinds of tasks. When a task fits one of these, call the tool `{TOOL_NAME}` with its "
    "name before you begin, and follow what it says.\n<available_skills>\n"
)
_AFTER = "</available_skills>"
_NOTE = 100
"""Room for the line that says how many are left out."""


def catalogue(skills: Sequence[SkillDef]) -> str:
    """The list, at most `MAX_CATALOGUE` characters. Empty if there are no skills."""
    if not skills:
        return ""
    limits = iter(_DESCRIPTION_LIMITS)
    entries = _entries(skills, next(limits))
    while _room_for(entries) < 0 and (limit := next(limits, None)) is not None:
        entries = _entries(skills, limit)
    left_out = 0
    while _room_for(entries) < 0:
        entries.pop()
        left_out += 1
    note = f"And {left_out} more, named in the schema of the tool `{TOOL_NAME}`.\n" if left_out else ""
    return f"{_BEFORE}{''.join(entries)}{note}{_AFTER}"


def _room_for(entries: Iterable[str]) -> int:
    return MAX_CATALOGUE - len(_BEFORE) - len(_AFTER) - _NOTE - sum(map(len, entries))


def _entries(skills: Iterable[SkillDef], limit: int) -> list[str]:
    return [_entry(skill, limit) for skill in skills]


def _entry(skill: SkillDef, limit: int) -> str:
    line = " ".join(skill.description.split())
    line = line if len(line) <= limit else f"{line[:limit]}…"
    return f'<skill name="{escape(skill.name)}">{escape(line, quote=False)}</skill>\n'
