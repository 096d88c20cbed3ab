"""What the author of a skill wants to know of it before a model does."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import unquote

from toolnexus import _workers

if TYPE_CHECKING:
    import os
    from pathlib import Path

    from toolnexus.sources.skills import SkillInfo

_MAX_READ = 8 * 1024 * 1024
_MAX_LINES = 500
"""Lines that the specification recommends at most."""
_MAX_LINKS_TOLD = 10
_CODE = re.compile(r"^(```|~~~).*?^\1|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(<?([^)<>\s]{1,500})>?(?:\s+[\"'][^)\n]{0,200})?\)")
_ADDRESS = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:|#|/")


async def check_skills(path: str | os.PathLike[str]) -> list[SkillInfo]:
    """What is wrong with the skills in a folder, which may be that of one skill, or its SKILL.md.

    Returns:
        Each skill. One that is `skipped` or a `clash` cannot be used, and `reason` says why; `warnings` are what other
        readers may refuse, and what the instructions refer to in vain.

    Raises:
        MissingExtra: PyYAML is not installed.
    """
    return await _workers.run(_checked, path)


def _checked(path: str | os.PathLike[str]) -> list[SkillInfo]:
    from toolnexus.sources.skills.collection import merge

    return [_with_advice(info) if info.state == "ready" else info for info in merge([], [path]).list()]


def _with_advice(info: SkillInfo) -> SkillInfo:
    from toolnexus.sources.skills.files import FileRefused, read_start, real_path
    from toolnexus.sources.skills.skill_md import Unreadable, decode, split

    assert info.path is not None, "skills under a folder are files"
    try:
        start = read_start(real_path(info.path), _MAX_READ)
        body = split(decode(start.data, whole=start.whole)).body
    except (FileRefused, Unreadable) as error:
        return replace(info, warnings=(*info.warnings, str(error)))
    return replace(info, warnings=(*info.warnings, *_advice(body, info.path.parent)))


def _advice(body: str, folder: Path) -> list[str]:
    from toolnexus.sources.skills.loading import MAX_BODY, cut_body

    if not body.strip():
        return ["It has no instructions below the front matter."]
    found: list[str] = []
    if len(cut_body(body)) < len(body):
        found.append(f"A model is given the first {MAX_BODY // 1024} KiB at once. Move parts into files beside it.")
    elif (lines := body.count("\n") + 1) > _MAX_LINES:
        found.append(f"It has {lines} lines; up to {_MAX_LINES} are recommended. Move parts into files beside it.")
    missing = [target for target in _relative_links(body) if not (folder / target).exists()]
    found += [f"It links to {target!r}, which is not there." for target in missing[:_MAX_LINKS_TOLD]]
    if len(missing) > _MAX_LINKS_TOLD:
        found.append(f"It has {len(missing) - _MAX_LINKS_TOLD} more links to what is not there.")
    return found


def _relative_links(body: str) -> list[str]:
    """The files that Markdown links lead to, each once, without what stands in code."""
    targets = _LINK.findall(_CODE.sub("", body))
    return list(dict.fromkeys(unquote(re.split(r"[#?]", each)[0]) for each in targets if not _ADDRESS.match(each)))
