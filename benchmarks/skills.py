"""What finding skills costs beside reading and parsing their files by hand."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from benchmarks.measure import Samples, ratio
from benchmarks.report import Row, judged
from toolnexus.sources.skills.collection import discover_skills

if TYPE_CHECKING:
    from collections.abc import Callable

_MS = 1e3
_SKILLS = 200
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TEXT = """\
---
name: {name}
description: Does {name}. Use it when somebody asks for {name}, or for anything that is like it.
license: MIT
metadata:
  author: us
  version: "1.0"
---

# {name}

"""


def _make(root: Path) -> None:
    """Write the skills into ten folders, 4 kB each, with a file beside each."""
    for number in range(_SKILLS):
        name = f"skill-{number}"
        folder = root / f"group-{number % 10}" / name
        (folder / "scripts").mkdir(parents=True)
        (folder / "SKILL.md").write_text(_TEXT.format(name=name) + "A line of the instructions.\n" * 140)
        (folder / "scripts" / "run.py").write_text("print('done')\n")


def _by_hand(root: Path) -> set[str]:
    found: set[str] = set()
    for path in sorted(root.rglob("SKILL.md")):
        _, front, _ = path.read_text(encoding="utf-8").split("---\n", 2)
        found.add(yaml.load(front, Loader=_LOADER)["name"])
    return found


def _seconds(find: Callable[[], set[str]]) -> float:
    start = time.perf_counter()
    found = find()
    seconds = time.perf_counter() - start
    if len(found) != _SKILLS:
        raise RuntimeError(f"{len(found)} of {_SKILLS} skills were found.")
    return seconds


def row(rounds: int) -> Row:
    """Discovery, and the same by hand with the fastest loader that PyYAML has."""
    samples: Samples = {"by hand": [], "toolnexus": []}
    with tempfile.TemporaryDirectory(prefix="toolnexus-benchmark-") as folder, asyncio.Runner() as runner:
        root = Path(folder)
        _make(root)
        for _ in range(rounds + 1):
            samples["by hand"].append(_seconds(lambda: _by_hand(root)))
            samples["toolnexus"].append(_seconds(lambda: set(runner.run(discover_skills(root)).names())))
    samples = {name: figures[1:] for name, figures in samples.items()}  # the first fills the page cache
    found = ratio(samples["toolnexus"], samples["by hand"])
    return Row(
        what=f"find {_SKILLS} skills",
        ours=f"{statistics.median(samples['toolnexus']) * _MS:.1f} ms",
        beside=f"{statistics.median(samples['by hand']) * _MS:.1f} ms by hand",
        ratio=f"{found.median:.2f} ({found.low:.2f}-{found.high:.2f})",
        target="<= 2 x",
        verdict=judged(found.median <= 2.0),
        samples=samples,
    )
