"""Skills: instructions that a model loads when a task wants them. Here is what one is, and what is told of it.

A skill in a file follows the Agent Skills specification (agentskills.io/specification), and is read leniently.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillDef:
    """A skill as data.

    Attributes:
        name: What the model calls it.
        description: What it does and when to use it. The model decides by it whether to load the skill.
        body: The instructions, as a rule in Markdown.
        directory: Where relative paths in the body start, and the skill's other files are. None: it is text alone.
        metadata: Whatever else is known of it, such as `license` and `allowed-tools`: texts, lists and dicts.
    """

    name: str
    description: str
    body: str = ""
    directory: Path | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])


SkillProvider: TypeAlias = Callable[[], Iterable[SkillDef] | Awaitable[Iterable[SkillDef]]]
"""A plain or coroutine function that gives skills. A plain one is called in a worker thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillInfo:
    """What became of one skill, or of one place where skills were looked for.

    Attributes:
        name: The skill's name, or its folder's where that is not known.
        description: Empty where it could not be read.
        source: `file`, or `data` for what the host gave or provided.
        path: The SKILL.md, or the folder that was not looked into. None: it is data.
        state: `ready`; `skipped`: it cannot be used; `clash`: another skill had the name first; `disabled`: the host
            left it out.
        reason: Why it cannot be used. Empty: it can.
        warnings: What was read leniently; other readers may refuse it.
        metadata: As in `SkillDef`.
    """

    name: str
    description: str = ""
    source: Literal["file", "data"] = "file"
    path: Path | None = None
    state: Literal["ready", "skipped", "clash", "disabled"] = "ready"
    reason: str = ""
    warnings: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
