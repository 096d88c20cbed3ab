"""What a person sees of a call before they agree to it: a command as it is typed, a change as a diff."""

from __future__ import annotations

import difflib
import json
import stat
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

_MOST_READ = 1024 * 1024
"""Bytes of a file that is looked at, to tell what would change in it."""
_AROUND = 3
"""Lines around a change."""


class Line(NamedTuple):
    """A line, and how it looks."""

    text: str
    style: str = ""


def shown(tool: str, arguments: Mapping[str, Any], *, root: Path | None) -> list[Line]:
    """A call, all of it: nobody can consent to what was cut off. It may read the file that would be changed.

    Args:
        root: Where the built-in tools work. None: the tool is none of them.
    """
    rest = dict(arguments)
    lines = list(_of_builtin(tool, rest, root)) if root is not None else []
    return [*lines, *_as_json(rest)] if rest or not lines else lines


def _of_builtin(tool: str, rest: dict[str, Any], root: Path) -> Iterator[Line]:
    """What one of ours would do. Arguments that are shown are taken out of `rest`."""
    match tool, rest:
        case "bash", {"command": str(command)}:
            del rest["command"]
            yield from _command(command)
        case "edit", {"path": str(path), "oldString": str(old), "newString": str(new)}:
            del rest["path"], rest["oldString"], rest["newString"]
            everywhere = rest.pop("replaceAll", False) is True
            yield Line(f"{path}, wherever it is there" if everywhere else path)
            yield from _diff(old, new)
        case "write", {"path": str(path), "content": str(content)}:
            del rest["path"], rest["content"]
            before = _content(root / path)
            yield Line(path if before is not None else f"{path}, in place of whatever is there")
            yield from _diff(before or "", content)
        case "apply_patch", {"patchText": str(patch)}:
            del rest["patchText"]
            yield from map(_coloured, patch.splitlines())
        case _:
            return


def _command(command: str) -> Iterator[Line]:
    first, *more = command.split("\n")
    yield Line(f"$ {first}", "bold")
    for line in more:
        yield Line(f"  {line}", "bold")


def _diff(before: str, after: str) -> Iterator[Line]:
    compared = difflib.unified_diff(before.splitlines(), after.splitlines(), n=_AROUND, lineterm="")
    for number, line in enumerate(compared):
        if number > 1:  # above are the names of two files
            yield _coloured(line)
    if before.splitlines() == after.splitlines() and before != after:
        yield Line("Only the ends of lines change.", "dim")


def _coloured(line: str) -> Line:
    if line.startswith(("@@", "***")):
        return Line(line, "cyan")
    return Line(line, {"+": "green", "-": "red"}.get(line[:1], ""))


def _content(path: Path) -> str | None:
    """What is in a file now; empty where there is none. None: that cannot be told."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return None
        with path.open("rb") as file:
            data = file.read(_MOST_READ + 1)
        return data.decode() if len(data) <= _MOST_READ else None
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, ValueError):
        return None


def _as_json(arguments: Mapping[str, Any]) -> Iterator[Line]:
    for line in json.dumps(arguments, ensure_ascii=False, indent=2).split("\n"):
        yield Line(line)
