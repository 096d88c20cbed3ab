"""What the built-in tools cost beside programs that do the same work."""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import report, skills
from benchmarks.measure import Samples, ratio
from benchmarks.report import Row, judged
from toolnexus.sources.builtin import builtin_tools
from toolnexus.sources.builtin.workspace import Workspace
from toolnexus.toolkit import Toolkit, create_toolkit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_MS = 1e3
_FOLDERS, _FILES, _LINES = 400, 50, 80
PATTERNS = {
    "a word that is nowhere": "needle_in_no_file",
    "an expression that is in some": "w1f[0-9a-f] return",
    "either case": "(?i)needle_in_no_file",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How often each contender searches."""

    rounds: int


FULL = Effort(rounds=15)
QUICK = Effort(rounds=5)


def make_tree(root: Path) -> int:
    """Write 20,000 files of about 3.5 kB into 400 folders, the same ones each time. Returns how many."""
    chance = random.Random(1)
    words = [*(f"w{number:x}" for number in range(3000)), "def", "return", "import", "self", "class", "value"]
    pages = ["".join(" ".join(chance.choices(words, k=8)) + "\n" for _ in range(_LINES)) for _ in range(10 * _FILES)]
    for number in range(_FOLDERS):
        folder = root / f"d{number % 20}" / f"e{number}"
        folder.mkdir(parents=True)
        for file in range(_FILES):
            (folder / f"f{file}.py").write_text(pages[(number * 7 + file) % len(pages)])
    return _FOLDERS * _FILES


def _by_grep(root: Path, pattern: str) -> int:
    """`grep -rn`, and how many lines it found."""
    case, expression = (["-i"], pattern.removeprefix("(?i)")) if pattern.startswith("(?i)") else ([], pattern)
    done = subprocess.run(
        ["grep", "-rnE", *case, "-e", expression, "."], cwd=root, capture_output=True, check=False, text=True
    )
    return len(done.stdout.splitlines())


def _by_us(runner: asyncio.Runner, toolkit: Toolkit, pattern: str) -> int:
    result = runner.run(toolkit.execute("grep", {"pattern": pattern, "limit": 1_000_000}))
    if result.is_error:
        raise RuntimeError(result.output)
    return int(result.metadata["matches"])


def _seconds(search: Callable[[], int]) -> tuple[float, int]:
    start = time.perf_counter()
    found = search()
    return time.perf_counter() - start, found


def _searches(root: Path, effort: Effort) -> Iterator[Row]:
    files = make_tree(root)
    tools = builtin_tools(Workspace(root), {"grep": True})
    with asyncio.Runner() as runner:
        toolkit = runner.run(create_toolkit(tools=tools))
        for what, pattern in PATTERNS.items():
            samples: Samples = {"grep -rn": [], "toolnexus": []}
            for _ in range(effort.rounds + 1):
                theirs, their_lines = _seconds(lambda: _by_grep(root, pattern))  # noqa: B023 - called at once
                ours, our_lines = _seconds(lambda: _by_us(runner, toolkit, pattern))  # noqa: B023
                if our_lines != their_lines:
                    raise RuntimeError(f"grep found {their_lines} lines, and toolnexus {our_lines}.")
                samples["grep -rn"].append(theirs)
                samples["toolnexus"].append(ours)
            samples = {name: figures[1:] for name, figures in samples.items()}  # the first fills the page cache
            found = ratio(samples["toolnexus"], samples["grep -rn"])
            yield Row(
                what=f"grep over {files:,} files, {what}",
                ours=f"{statistics.median(samples['toolnexus']) * _MS:.0f} ms",
                beside=f"{statistics.median(samples['grep -rn']) * _MS:.0f} ms grep -rn",
                ratio=f"{found.median:.2f} ({found.low:.2f}-{found.high:.2f})",
                target="<= 3 x",
                verdict=judged(found.median <= 3.0),
                samples=samples,
            )


def _measure(effort: Effort) -> Iterator[Row]:
    yield skills.row(effort.rounds)
    if shutil.which("grep") is None:
        yield Row(what="grep over 20,000 files", ours="grep is not installed", target="<= 3 x", verdict="SKIPPED")
        return
    with tempfile.TemporaryDirectory(prefix="toolnexus-benchmark-") as folder:
        yield from _searches(Path(folder), effort)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks tools", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds: a first impression")
    options = parser.parse_args(arguments)
    rows: list[Row] = []
    for row in _measure(QUICK if options.quick else FULL):
        rows.append(row)
        print(f"measured: {row.what.strip()}", file=sys.stderr)
    about = report.machine()
    print(f"Python {about['python']}, {about['system']}, {about['cpus']} CPUs, load {about['load'][0]:.1f}\n")
    print(report.table(rows))
