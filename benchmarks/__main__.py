"""Measure everything and print the table."""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from benchmarks import install, memory, processes, report, server, tools, wire
from benchmarks.contenders import floor, handwritten, ours
from benchmarks.measure import Samples, cpu_per_delta, cpu_per_run, ratio, throughput
from benchmarks.report import Row, judged

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_MS, _US, _MB = 1e3, 1e6, 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How long to measure: rounds, and how much each contender does in a round."""

    rounds: int
    runs: int
    reads: int
    loads: int
    starts: int


FULL = Effort(rounds=21, runs=200, reads=30, loads=9, starts=21)
QUICK = Effort(rounds=5, runs=100, reads=10, loads=3, starts=15)


def _compared(
    what: str, samples: Samples, of: str, to: str, *, scale: float, unit: str, most: float | None = None
) -> Row:
    """A row for a cost."""
    found = ratio(samples[of], samples[to])
    return Row(
        what=what,
        ours=f"{statistics.median(samples[of]) * scale:.3f} {unit}",
        beside=f"{statistics.median(samples[to]) * scale:.3f} {unit} {to}",
        ratio=f"{found.median:.2f} ({found.low:.2f}-{found.high:.2f})",
        target="" if most is None else f"<= {most} x",
        verdict="" if most is None else judged(found.median <= most),
        samples={of: samples[of], to: samples[to]},
    )


async def _runs(origin: str, effort: Effort) -> Iterator[Row]:
    samples = await cpu_per_run(
        {
            "sockets": floor.floor,
            "hand-written": handwritten.coroutines,
            "hand-written, threads": handwritten.threads,
            "toolnexus": ours.coroutines,
            "toolnexus, threads": ours.threads,
            "toolnexus, list": ours.functions,
            "toolnexus, remembered": ours.remembered,
        },
        origin + wire.PLAIN,
        rounds=effort.rounds,
        runs=effort.runs,
    )

    def row(what: str, of: str, to: str = "hand-written", most: float | None = None) -> Row:
        return _compared(what, samples, of, to, scale=_MS, unit="ms", most=most)

    return iter(
        [
            row("CPU per run, coroutine tools", "toolnexus", most=1.4),
            row("CPU per run, plain tools", "toolnexus, threads", most=1.6),
            row("  the same, beside threads", "toolnexus, threads", "hand-written, threads"),
            row("  a list of functions each time", "toolnexus, list", "toolnexus"),
            row("  a remembered turn (ask)", "toolnexus, remembered", "toolnexus"),
            row("  [hand-written loop, beside sockets]", "hand-written", "sockets"),
        ]
    )


async def _deltas(origin: str, effort: Effort) -> Row:
    samples = await cpu_per_delta(
        {"hand-written": handwritten.stream, "toolnexus": ours.stream},
        origin + wire.BURST,
        rounds=effort.rounds,
        runs=effort.reads,
    )
    return _compared(
        f"CPU per delta, {wire.DELTAS} in a burst", samples, "toolnexus", "hand-written", scale=_US, unit="us", most=2.0
    )


async def _load(origin: str, effort: Effort, *, conversations: int, runs: int, least: float) -> Row:
    samples, errors = await throughput(
        {"hand-written": handwritten.coroutines, "toolnexus": ours.coroutines},
        origin + wire.SLOW,
        conversations=conversations,
        rounds=effort.loads,
        runs=runs,
    )
    found = ratio(samples["toolnexus"], samples["hand-written"])
    return Row(
        what=f"throughput, {conversations} conversations",
        ours=f"{statistics.median(samples['toolnexus']):.0f} runs/s",
        beside=f"{statistics.median(samples['hand-written']):.0f} runs/s hand-written",
        ratio=f"{found.median:.2f} ({found.low:.2f}-{found.high:.2f})",
        target=f">= {least} x, no errors",
        verdict=judged(found.median >= least and not any(errors.values())),
        samples=samples | {"errors": errors},
    )


def _imports(effort: Effort) -> Iterator[Row]:
    programs = {
        "bare": "pass",
        "toolnexus": "import toolnexus",
        "asyncio": "import asyncio",
        "create_client": "from toolnexus import create_client",
    }
    samples = processes.cpu_of_programs(programs, rounds=effort.starts)
    bare = statistics.median(samples["bare"])
    over = {name: statistics.median(figures) - bare for name, figures in samples.items()}
    yield Row(
        what="import toolnexus",
        ours=f"{over['toolnexus'] * _MS:.1f} ms",
        beside=f"{bare * _MS:.1f} ms bare interpreter, left out",
        target="<= 15 ms",
        verdict=judged(over["toolnexus"] <= 0.015),
        samples=samples,
    )
    share = over["create_client"] / over["asyncio"]
    yield Row(
        what="from toolnexus import create_client",
        ours=f"{over['create_client'] * _MS:.1f} ms",
        beside=f"{over['asyncio'] * _MS:.1f} ms import asyncio",
        ratio=f"{share:.2f}",
        target="<= 2 x",
        verdict=judged(share <= 2.0),
    )


def _memory(origin: str) -> Row:
    libraries = [processes.memory_of_libraries() for _ in range(3)]
    scenario = [processes.memory_of_scenario(origin + wire.PLAIN, runs=200) for _ in range(3)]
    share = statistics.median(scenario) / statistics.median(libraries)
    return Row(
        what="memory in use",
        ours=f"{statistics.median(scenario) * _MB:.1f} MB",
        beside=f"{statistics.median(libraries) * _MB:.1f} MB the libraries imported",
        ratio=f"{share:.2f}",
        target="<= 1.3 x",
        verdict=judged(share <= 1.3),
        samples={"libraries": libraries, "toolnexus": scenario},
    )


def _install() -> Row:
    what, target = "core install", "<= 21 packages, 28 MB"
    try:
        found = install.installed()
    except install.NotMeasured as exc:
        return Row(what=what, ours=str(exc), target=target, verdict="SKIPPED")
    return Row(
        what=what,
        ours=f"{found.packages} packages, {found.size * _MB:.1f} MB",
        target=target,
        verdict=judged(found.packages <= 21 and found.size <= 28_000_000),
        samples={"packages": found.packages, "bytes": found.size},
    )


def _measure(effort: Effort) -> Iterator[Row]:
    with server.running() as origin:
        yield from asyncio.run(_runs(origin, effort))
        yield asyncio.run(_deltas(origin, effort))
        yield asyncio.run(_load(origin, effort, conversations=64, runs=10, least=0.8))
        yield asyncio.run(_load(origin, effort, conversations=512, runs=4, least=0.7))
        yield from _imports(effort)
        yield _memory(origin)
    yield _install()


def main(arguments: Sequence[str] | None = None) -> None:
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["memory"]:
        memory.main(arguments[1:])
        return
    if arguments[:1] == ["tools"]:
        tools.main(arguments[1:])
        return
    if arguments[:1] == ["mcp"]:
        from benchmarks import mcp  # which needs the extra of this name

        mcp.main(arguments[1:])
        return
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        epilog="`python -m benchmarks memory`: remembered turns. `… tools`: the built-in tools. `… mcp`: MCP servers.",
    )
    parser.add_argument("--quick", action="store_true", help="fewer rounds: a first impression")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write every sample to FILE")
    options = parser.parse_args(arguments)

    rows: list[Row] = []
    for row in _measure(QUICK if options.quick else FULL):
        rows.append(row)
        print(f"measured: {row.what.strip()}", file=sys.stderr)
    about = report.machine()
    print(f"Python {about['python']}, {about['system']}, {about['cpus']} CPUs, load {about['load'][0]:.1f}\n")
    print(report.table(rows))
    if options.json is not None:
        options.json.write_bytes(orjson.dumps(report.as_json(rows), option=orjson.OPT_INDENT_2))


if __name__ == "__main__":
    main()
