"""Lists of conversations: a table for a person, tabs for a pipe, JSON for a program."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from toolnexus.cli import exits
from toolnexus.cli.markdown import visible
from toolnexus.cli.render import Lines, fancy
from toolnexus.cli.stores import opened
from toolnexus.errors import MissingExtra

try:
    from rich.cells import cell_len, set_cell_size
except ImportError as exc:
    raise MissingExtra("The toolnexus commands", extra="cli") from exc

if TYPE_CHECKING:
    from toolnexus.cli.render import Notes
    from toolnexus.stores.backend import Listed, Page

_GAP = 2
"""Blanks between two columns."""
_LEAST = 20
"""Columns for the last one, even if the screen has less."""
_MINUTE, _HOUR, _DAY, _WEEK = 60, 3600, 86_400, 604_800


async def ls(url: str | None, notes: Notes, *, limit: int, as_json: bool) -> int:
    """List conversations, last changed first."""
    async with opened(url) as store:
        page = await store.list(limit=limit)
    _write(page, as_json=as_json)
    if not page.items:
        notes.line("Nothing is remembered yet.", style="dim")
    _more(page, notes)
    return exits.DONE


async def search(url: str | None, text: str, notes: Notes, *, limit: int, as_json: bool) -> int:
    """List the conversations in which all words of a text were said."""
    async with opened(url) as store:
        page = await store.search(text, limit=limit)
    _write(page, as_json=as_json)
    if not page.items:
        notes.line("Nothing was found.", style="dim")
    _more(page, notes)
    return exits.DONE


def _more(page: Page, notes: Notes) -> None:
    if page.after is not None:
        more = "More" if page.total is None else f"{page.total - len(page.items)} more"
        notes.line(f"{more}: -n shows as many as you like.", style="dim")


def _write(page: Page, *, as_json: bool) -> None:
    out = Lines()
    if as_json:
        out.line(json.dumps([_plain(each) for each in page.items], indent=2))
    elif not fancy(sys.stdout):
        for each in page.items:
            out.line("\t".join(map(_on_one_line, _columns(each))))
    elif page.items:
        for number, line in enumerate(table(page, now=time.time(), width=shutil.get_terminal_size().columns)):
            out.line(line, style="" if number else "bold")
    out.close()


def called(status: str) -> str:
    """What a person is told of a turn's status. Programs get the library's own word."""
    return {"open": "running", "suspended": "waiting"}.get(status, status)


def _plain(listed: Listed) -> dict[str, Any]:
    return {
        "id": listed.id,
        "title": listed.title,
        "updated": _moment(listed).isoformat(timespec="seconds"),
        "messages": listed.messages,
        "status": listed.status,
        "preview": listed.preview,
    }


def _columns(listed: Listed) -> tuple[str, ...]:
    return (
        listed.id,
        listed.title or "",
        _moment(listed).isoformat(" ", "minutes"),
        str(listed.messages),
        called(listed.status),
        listed.preview,
    )


_HEADINGS = ("ID", "UPDATED", "MESSAGES", "STATUS", "TITLE OR LAST TEXT")


def table(page: Page, *, now: float, width: int) -> Iterator[str]:
    """The lines of a list for a person. Pure.

    Args:
        now: Seconds since the epoch.
        width: Columns of the screen.
    """
    rows = [_HEADINGS, *(_row(each, now) for each in page.items)]
    widths = [max(cell_len(row[column]) for row in rows) for column in range(len(_HEADINGS) - 1)]
    room = max(width - sum(widths) - _GAP * len(widths), _LEAST)
    for *cells, last in rows:
        padded = [set_cell_size(cell, size) for cell, size in zip(cells, widths, strict=True)]
        yield (" " * _GAP).join((*padded, _chop(last, room)))


def _row(each: Listed, now: float) -> tuple[str, ...]:
    told = _on_one_line(each.title or each.preview)
    return _on_one_line(each.id), ago(each.updated, now), str(each.messages), called(each.status), told


def _chop(text: str, width: int) -> str:
    """A line, cut to so many columns of a screen, where some letters take two."""
    return text if cell_len(text) <= width else set_cell_size(text, width - 1).rstrip() + "…"


def ago(then: float, now: float) -> str:
    """How long ago something was, as people say it. Both in seconds since the epoch."""
    passed = max(now - then, 0)
    if passed < _MINUTE:
        return "just now"
    if passed < _HOUR:
        return f"{passed // _MINUTE:.0f} min ago"
    if passed < _DAY:
        return f"{passed // _HOUR:.0f} h ago"
    if passed < _WEEK:
        return f"{passed // _DAY:.0f} d ago"
    return datetime.fromtimestamp(then).astimezone().strftime("%Y-%m-%d")


def _moment(listed: Listed) -> datetime:
    return datetime.fromtimestamp(listed.updated).astimezone()


def _on_one_line(text: str) -> str:
    return " ".join(visible(text).split())
