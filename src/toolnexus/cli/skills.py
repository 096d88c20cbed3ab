"""`toolnexus skills`: which skills there are, and what is wrong with some."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolnexus.cli import exits
from toolnexus.cli.options import CONTEXT, as_json, equipping
from toolnexus.cli.person import somebody
from toolnexus.cli.render import Lines, Notes, cut
from toolnexus.cli.settings import path_of, read
from toolnexus.cli.toolbox import with_project
from toolnexus.errors import MissingExtra

try:
    import click
except ImportError as exc:
    raise MissingExtra("The toolnexus commands", extra="cli") from exc

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolnexus.sources.skills import SkillInfo

_WIDTH = 100


@click.group("skills", context_settings=CONTEXT)
def skills() -> None:
    """See which skills a model is offered, and check some."""


@skills.command()
@as_json
@equipping
def ls(as_json: bool, **flags: Any) -> int:
    """List the skills that are set here, and why some cannot be used."""
    notes = Notes()
    settings = read(flags, os.environ)

    async def found() -> list[SkillInfo]:
        from toolnexus.sources.skills.collection import discover_skills

        equipped = await with_project(settings, notes, somebody(notes))
        return (await discover_skills(path_of(each) for each in equipped.skills)).list()

    infos = asyncio.run(found())
    _write(infos, notes, as_json=as_json)
    if not infos:
        notes.line("There are none. --skill DIR names a folder with skills, or `skills` in a configuration file.")
    return exits.DONE


@skills.command()
@click.argument("path", metavar="PATH", type=click.Path(exists=True, path_type=Path))
@as_json
def check(path: Path, as_json: bool) -> int:
    """Say what is wrong with the skills in PATH: a folder of them, one skill's folder, or its SKILL.md.

    Exit code 1 if one of them cannot be used. What only other programs may refuse is a warning.
    """
    from toolnexus.sources.skills.checks import check_skills

    notes = Notes()
    infos = asyncio.run(check_skills(path))
    _write(infos, notes, as_json=as_json)
    if not infos:
        notes.line(f"Error: There is no SKILL.md in {str(path)!r}.", style="red")
    return exits.DONE if infos and all(info.state == "ready" for info in infos) else exits.ERROR


def _write(infos: Sequence[SkillInfo], notes: Notes, *, as_json: bool) -> None:
    out = Lines(verbatim=as_json)
    if as_json:
        out.line(json.dumps([_told(info) for info in infos], ensure_ascii=False, indent=2))
    for info in () if as_json else infos:
        if info.state == "ready":
            out.line(f"✓ {info.name}: {cut(info.description, _WIDTH)}")
        else:
            out.line(f"✗ {info.name} ({info.path or info.source}): {info.reason}", style="red")
        for warning in info.warnings:
            out.line(f"    {warning}", style="yellow")
    out.close()


def _told(info: SkillInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "description": info.description,
        "path": None if info.path is None else str(info.path),
        "state": info.state,
        "reason": info.reason or None,
        "warnings": list(info.warnings),
    }
