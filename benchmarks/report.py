"""The table: one row a figure, with its target and whether it is met."""

from __future__ import annotations

import dataclasses
import os
import platform
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

Verdict: TypeAlias = Literal["ok", "MISSED", "SKIPPED", ""]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table.

    Attributes:
        what: What was measured.
        ours: Our figure, with its unit.
        beside: What it is compared with.
        ratio: How they compare, with the quartiles over the rounds where there are rounds.
        target: Empty: none, the row is for information.
        verdict: Empty where there is no target.
        samples: What the row was made from, in base units, for the JSON file.
    """

    what: str
    ours: str = ""
    beside: str = ""
    ratio: str = ""
    target: str = ""
    verdict: Verdict = ""
    samples: dict[str, Any] = field(default_factory=dict[str, Any])


def judged(met: bool) -> Verdict:
    """The verdict on a target."""
    return "ok" if met else "MISSED"


_COLUMNS = ("what", "ours", "beside", "ratio", "target", "verdict")
_HEADINGS = ("", "toolnexus", "beside", "ratio (quartiles)", "target", "")


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpus": os.cpu_count(),
        "load": list(os.getloadavg()),
    }


def table(rows: Sequence[Row]) -> str:
    """Lay the rows out as text."""
    lines = [_HEADINGS, *(tuple(str(getattr(row, column)) for column in _COLUMNS) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_COLUMNS))]
    return "\n".join(_laid_out(line, widths) for line in lines)


def as_json(rows: Sequence[Row]) -> dict[str, Any]:
    """The same for programs, with every sample."""
    return {"machine": machine(), "rows": [dataclasses.asdict(row) for row in rows]}


def _laid_out(line: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
