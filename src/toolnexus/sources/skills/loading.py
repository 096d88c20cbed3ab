"""The `skill` tool: gives a model the instructions of a skill."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from toolnexus._unicode import clean_text
from toolnexus.sources.skills.catalogue import TOOL_NAME
from toolnexus.sources.skills.files import FileRefused, Version, list_files, read_start, resolve
from toolnexus.sources.skills.skill_md import HEAD, Unreadable, decode, split
from toolnexus.tools import JSONObject, Tool, ToolContext, ToolResult

if TYPE_CHECKING:
    from pathlib import Path

    from toolnexus.sources.skills.usable import Skill, SkillFile

MAX_BODY = 48 * 1024
"""Bytes of instructions that are given at once. With what stands around them, a tool's result has room for it."""
_MAX_FILES = 10
_MAX_CONVERSATIONS = 1000

_DESCRIPTION = (
    "Load a skill: the full instructions for a kind of task, and the files that come with them. Load it when a task "
    "fits its description, before you begin the task."
)


class SkillUnavailable(Exception):
    """A skill cannot be read any more. The model is told the text."""


@dataclass(frozen=True, slots=True)
class _Body:
    """The instructions of a skill.

    Attributes:
        rest: What is said if that is not all. Empty: it is.
        version: Of the file. None: there is none.
    """

    text: str
    rest: str = ""
    version: Version | None = None


class _Loaded:
    """Which skills a conversation has been given, so that it need not be given them again. Bounded.

    It is an economy, and never certain: a turn that failed may have left no trace, or old messages may be gone. So a
    model that asks once more after it was referred to what it has is given the skill in full.
    """

    def __init__(self) -> None:
        self._conversations: OrderedDict[str, dict[str, Version | None]] = OrderedDict()
        self._lock = threading.Lock()

    def is_known(self, conversation: str, name: str, version: Version | None) -> bool:
        """Whether this very text was given. Every other time it was, it is taken as not given any more."""
        if not conversation:
            return False
        with self._lock:
            names = self._conversations.setdefault(conversation, {})
            self._conversations.move_to_end(conversation)
            if len(self._conversations) > _MAX_CONVERSATIONS:
                self._conversations.popitem(last=False)
            if name in names and names[name] == version:
                del names[name]
                return True
            names[name] = version
            return False


def skill_tool(skills: Sequence[Skill]) -> Tool:
    """The tool that loads one of some skills, of which there has to be at least one."""
    by_name = {skill.definition.name: skill for skill in skills}
    loaded = _Loaded()

    def execute(args: JSONObject, ctx: ToolContext) -> ToolResult:
        return _load(by_name[args["name"]], loaded, ctx.conversation_id or ctx.turn_id)

    return Tool(
        name=TOOL_NAME,
        description=_DESCRIPTION,
        input_schema={
            "type": "object",
            "properties": {"name": {"type": "string", "enum": list(by_name), "description": "Which skill."}},
            "required": ["name"],
            "additionalProperties": False,
        },
        execute=execute,
        source="skill",
        read_only=True,
    )


def _load(skill: Skill, loaded: _Loaded, conversation: str) -> ToolResult:
    name, directory = skill.definition.name, skill.definition.directory
    body = _body_of_text(skill.definition.body) if skill.file is None else _body_of_file(skill.file)
    metadata: Mapping[str, object] = {"skill": name, "directory": None if directory is None else os.fspath(directory)}
    if loaded.is_known(conversation, name, body.version):
        again = (
            "This skill was loaded before in this conversation; follow those instructions. If you do not have them any "
            f"more, call {TOOL_NAME} once more."
        )
        return ToolResult(output=_framed(name, again), metadata={**metadata, "again": True})
    # The files first: should a host allow less output than we count on, the end of the body is what is lost.
    parts = [*_place(directory), body.text.strip("\n"), body.rest]
    return ToolResult(output=_framed(name, "\n\n".join(filter(None, parts))), metadata={**metadata, "again": False})


def _framed(name: str, text: str) -> str:
    text = clean_text(text).replace("</skill_content", "&lt;/skill_content").strip("\n")
    return f'<skill_content name="{escape(name)}">\n{text}\n</skill_content>'


def _place(directory: Path | None) -> list[str]:
    if directory is None:
        return []
    lines = [f"Base directory: {directory}", "Relative paths in these instructions start there."]
    files, more = list_files(directory, _MAX_FILES)
    if files:
        shown = (path if path.isprintable() else repr(path) for path in files)
        lines += ["Files there:", *(f"- {path}" for path in shown), *(["- and more"] if more else [])]
    return ["\n".join(lines)]


def _body_of_text(text: str) -> _Body:
    shown = cut_body(text)
    left_out = len(text) - len(shown)
    return _Body(shown, f"[cut here: {left_out:,} more characters are left out]" if left_out else "")


def _body_of_file(file: SkillFile) -> _Body:
    path = os.fspath(file.path)
    real = resolve(file.path, file.root)
    if real is None:
        raise SkillUnavailable(f"{path!r} now leads out of the folder that skills are in.")
    try:
        start = read_start(real, HEAD + MAX_BODY)
        parts = split(_decoded(start.data, whole=start.whole))
    except (FileRefused, Unreadable) as error:
        raise SkillUnavailable(f"{path!r} has changed since it was found. {error}") from error
    shown = cut_body(parts.body)
    if len(shown) == len(parts.body) and start.whole:
        return _Body(shown, version=start.version)
    line = parts.body_line + shown.count("\n")
    rest = f"[cut here: of {start.size:,} bytes this is the first part; the rest is in {path}, from line {line} on]"
    return _Body(shown, rest, start.version)


def _decoded(data: bytes, *, whole: bool) -> str:
    try:
        return decode(data, whole=whole)
    except Unreadable:  # only the first bytes were looked at when it was found
        return decode(data.decode(errors="replace").encode(), whole=True)


def cut_body(text: str) -> str:
    """As much of some instructions as is given at once: whole lines, if they are not very long."""
    head = text[:MAX_BODY].encode("utf-8", "replace")[:MAX_BODY].decode(errors="ignore")
    if len(head) == len(text):
        return text
    return head[: head.rfind("\n") + 1] or head
