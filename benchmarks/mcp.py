"""What MCP servers cost: a call beside the SDK's own, a run with its tools behind one, and the start of many."""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
import sys
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from mcp import ClientSession, StdioServerParameters, stdio_client

from benchmarks import report, server, wire
from benchmarks.contenders import ours
from benchmarks.measure import Samples, cpu_per_run, ratio
from benchmarks.report import Row, judged
from toolnexus import create_client, create_toolkit
from toolnexus.sources.mcp.servers import connect_mcp

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence

    from benchmarks.contenders import Run

_MS, _US = 1e3, 1e6
_ARGUMENTS = {"a": 17, "b": 25}
_FLOOR_OF_FRAMEWORKS = 19e-3
"""CPU seconds of the fastest framework for one run of the scenario with its tools behind a server, as once measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How long to measure."""

    rounds: int
    calls: int
    runs: int


FULL = Effort(rounds=15, calls=500, runs=100)
QUICK = Effort(rounds=5, calls=200, runs=50)


def _entry(seconds: float = 0.0) -> dict[str, Any]:
    return {"command": sys.executable, "args": ["-m", "benchmarks.contenders.mcp_server", str(seconds)]}


async def _calls(effort: Effort) -> Iterator[Row]:
    """One call after the other: CPU of this process, and the time it takes."""
    cpu: Samples = {"toolnexus": [], "SDK": []}
    wall: Samples = {"toolnexus": [], "SDK": []}
    parameters = StdioServerParameters(**_entry())
    async with (
        await connect_mcp({"mcpServers": {"b": _entry()}}) as servers,
        stdio_client(parameters) as streams,
        ClientSession(*streams) as session,
    ):
        await session.initialize()
        toolkit = await create_toolkit(servers.tools())

        async def by_us() -> str:
            return (await toolkit.execute("b_add", _ARGUMENTS)).output

        async def by_sdk() -> str:
            [block] = (await session.call_tool("add", _ARGUMENTS)).content
            return getattr(block, "text", "")

        for _ in range(effort.rounds + 1):
            for name, call in (("toolnexus", by_us), ("SDK", by_sdk)):
                await _repeated(call, 20)
                gc.collect()
                used, began = time.process_time(), time.perf_counter()
                await _repeated(call, effort.calls)
                cpu[name].append((time.process_time() - used) / effort.calls)
                wall[name].append((time.perf_counter() - began) / effort.calls)
    return iter([_beside("CPU per call", cpu), _beside("  time per call", wall)])


async def _repeated(call: Callable[[], Awaitable[str]], times: int) -> None:
    for _ in range(times):
        if (text := await call()) != "42":
            raise RuntimeError(f"The sum was {text!r}.")


def _beside(what: str, samples: Samples) -> Row:
    ours_, theirs = ({name: figures[1:] for name, figures in samples.items()}[each] for each in ("toolnexus", "SDK"))
    found = ratio(ours_, theirs)
    return Row(
        what=what,
        ours=f"{statistics.median(ours_) * _US:.0f} us",
        beside=f"{statistics.median(theirs) * _US:.0f} us the SDK's call_tool",
        ratio=f"{found.median:.2f} ({found.low:.2f}-{found.high:.2f})",
        target="<= 1.3 x",
        verdict=judged(found.median <= 1.3),
        samples={"toolnexus": ours_, "SDK": theirs},
    )


@asynccontextmanager
async def behind_a_server(base_url: str) -> AsyncGenerator[Run, None]:
    """The scenario with its tools behind a server, under the names that the model calls."""
    async with await connect_mcp({"mcpServers": {"b": _entry()}}) as servers:
        tools = [replace(each, name=each.name.removeprefix("b_")) for each in servers.tools()]
        toolkit = await create_toolkit(tools)
        async with create_client(wire.MODEL, base_url=base_url, style="openai", api_key=wire.API_KEY) as client:

            async def run() -> str:
                return (await client.run(wire.PROMPT, toolkit)).text

            yield run


async def _runs(origin: str, effort: Effort) -> Row:
    runners = {"behind a server": behind_a_server, "in this process": ours.coroutines}
    samples = await cpu_per_run(runners, origin + wire.PLAIN, rounds=effort.rounds, runs=effort.runs)
    behind = statistics.median(samples["behind a server"])
    share = behind / _FLOOR_OF_FRAMEWORKS
    return Row(
        what="CPU per run, tools behind a server",
        ours=f"{behind * _MS:.2f} ms",
        beside=f"{statistics.median(samples['in this process']) * _MS:.2f} ms with the tools in this process",
        ratio=f"{share:.2f} of {_FLOOR_OF_FRAMEWORKS * _MS:.0f} ms",
        target="<= 0.2 x",
        verdict=judged(share <= 0.2),
        samples=samples,
    )


async def _start(rounds: int) -> Row:
    """Ten servers that take a second each."""
    taken: list[float] = []
    for _ in range(rounds):
        began = time.perf_counter()
        async with await connect_mcp({"mcpServers": {f"s{number}": _entry(1.0) for number in range(10)}}) as servers:
            taken.append(time.perf_counter() - began)
            if len(servers.tools()) != 20:
                raise RuntimeError(f"There are {len(servers.tools())} tools.")
    median = statistics.median(taken)
    return Row(
        what="start of ten servers of 1 s each",
        ours=f"{median:.2f} s",
        target="<= 1.5 s",
        verdict=judged(median <= 1.5),
        samples={"toolnexus": taken},
    )


def _measure(effort: Effort) -> Iterator[Row]:
    yield from asyncio.run(_calls(effort))
    with server.running() as origin:
        yield asyncio.run(_runs(origin, effort))
    yield asyncio.run(_start(3))


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks mcp", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds: a first impression")
    options = parser.parse_args(arguments)
    rows: list[Row] = []
    for row in _measure(QUICK if options.quick else FULL):
        rows.append(row)
        print(f"measured: {row.what.strip()}", file=sys.stderr)
    about = report.machine()
    print(f"Python {about['python']}, {about['system']}, {about['cpus']} CPUs, load {about['load'][0]:.1f}\n")
    print(report.table(rows))
