"""Merges tools: who has a name, and what became of the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from toolnexus.tools import Tool


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStatus:
    """What became of a tool that was given to a toolkit.

    Attributes:
        state: `ready`; `clash`: another tool had the name first; `dropped`: its schema is broken; `disabled`: the host
            left it out.
        reason: Why it cannot be called. Empty: it can.
    """

    name: str
    source: str
    state: Literal["ready", "clash", "dropped", "disabled"] = "ready"
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Assembly:
    """Merged tools.

    Attributes:
        status: Of each tool that was given, in that order.
    """

    by_name: Mapping[str, Tool]
    tools: tuple[Tool, ...]
    status: tuple[ToolStatus, ...]


def assemble(given: Iterable[Tool], wanted: Callable[[str], bool], flaw: Callable[[Tool], str]) -> Assembly:
    """Merge tools: the first of a name that can be used has it.

    Args:
        wanted: Whether the host wants a tool of this name.
        flaw: What is wrong with a tool. Empty: nothing.
    """
    by_name: dict[str, Tool] = {}
    status: list[ToolStatus] = []
    for tool in given:
        status.append(_judged(tool, by_name, wanted, flaw))
        if status[-1].state == "ready":
            by_name[tool.name] = tool
    return Assembly(by_name, tuple(by_name.values()), tuple(status))


def _judged(
    tool: Tool, taken: Mapping[str, Tool], wanted: Callable[[str], bool], flaw: Callable[[Tool], str]
) -> ToolStatus:
    name, source = tool.name, tool.source
    if not wanted(name):
        return ToolStatus(name=name, source=source, state="disabled", reason="the host left it out")
    if (first := taken.get(name)) is not None:
        reason = f"a tool of the source {first.source!r} has the name"
        return ToolStatus(name=name, source=source, state="clash", reason=reason)
    if reason := flaw(tool):
        return ToolStatus(name=name, source=source, state="dropped", reason=reason)
    return ToolStatus(name=name, source=source)
