"""From the text of a SKILL.md to the skill that it describes."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping

from toolnexus.sources.skills import SkillDef
from toolnexus.sources.skills.front_matter import BrokenFrontMatter, Field, read_fields
from toolnexus.sources.skills.skill_md import Unreadable, split
from toolnexus.sources.skills.usable import flaw

_KNOWN = frozenset({"name", "description", "license", "compatibility", "metadata", "allowed-tools"})
_SPECIFIED_NAME, _SPECIFIED_DESCRIPTION, _SPECIFIED_COMPATIBILITY = 64, 1024, 500
"""Characters that the specification allows."""
_MAX_UNKNOWN_TOLD = 10


def describe(text: str, folder: str) -> tuple[SkillDef, list[str]]:
    """The skill without its body, and what other readers may refuse of it.

    Args:
        folder: The name of the folder that it is in.

    Raises:
        Unreadable: It has no description, no usable name, or its front matter is broken.
    """
    parts = split(text)
    try:
        fields, warnings = read_fields(parts.front, first_line=parts.front_line)
    except BrokenFrontMatter as error:
        raise Unreadable(str(error)) from error
    name = _text(fields, "name")
    if not name:
        warnings.append(f"It has no name, so it has that of its folder, {folder!r}.")
    skill = SkillDef(
        name=name or folder,
        description=_text(fields, "description"),
        metadata={key: value for key, value in fields.items() if key not in ("name", "description")},
    )
    if reason := flaw(skill):
        raise Unreadable(" ".join([reason, *warnings]))
    return skill, [*warnings, *_warnings(skill, folder)]


def _text(fields: Mapping[str, Field], key: str) -> str:
    value = fields.get(key, "")
    if not isinstance(value, str):
        raise Unreadable(f"Its {key} is not a text but a {'list' if isinstance(value, list) else 'mapping'}.")
    return value.strip()


def _warnings(skill: SkillDef, folder: str) -> list[str]:
    """Where a readable skill is not what the specification says."""
    found: list[str] = []
    if not _is_specified(skill.name):
        found.append(
            f"The name {skill.name!r} should be lower-case letters and digits with single hyphens between them, "
            f"up to {_SPECIFIED_NAME} characters."
        )
    if unicodedata.normalize("NFKC", skill.name) != unicodedata.normalize("NFKC", folder):
        found.append(f"The name {skill.name!r} should be that of its folder, {folder!r}.")
    if len(skill.description) > _SPECIFIED_DESCRIPTION:
        found.append(f"The description should have up to {_SPECIFIED_DESCRIPTION} characters.")
    compatibility = skill.metadata.get("compatibility", "")
    if not isinstance(compatibility, str) or len(compatibility) > _SPECIFIED_COMPATIBILITY:
        found.append(f"The compatibility should be a text of up to {_SPECIFIED_COMPATIBILITY} characters.")
    if unknown := sorted(skill.metadata.keys() - _KNOWN):
        told = ", ".join(f"{key!r:.60}" for key in unknown[:_MAX_UNKNOWN_TOLD])
        found.append(f"The specification does not know: {told}{', …' if len(unknown) > _MAX_UNKNOWN_TOLD else ''}.")
    return found


def _is_specified(name: str) -> bool:
    name = unicodedata.normalize("NFKC", name)
    parts = name.split("-")
    return len(name) <= _SPECIFIED_NAME and name == name.lower() and all(part.isalnum() for part in parts)
