"""Interleaved rounds, so that whatever else the machine does falls on every contender alike."""

from __future__ import annotations

import asyncio
import gc
import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks import wire

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.contenders import Reader, Run, Runner

Samples = dict[str, list[float]]
"""One figure a round, by contender; the figures of one place in the lists were measured one after the other."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """How two contenders compare: the median over the rounds of the ratio within a round, and its quartiles."""

    median: float
    low: float
    high: float


def ratio(of: Sequence[float], to: Sequence[float]) -> Ratio:
    """Compare figures that were measured side by side."""
    ratios = [ours / theirs for ours, theirs in zip(of, to, strict=True)]
    low, median, high = statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3
    return Ratio(median, low, high)


async def cpu_per_run(runners: Mapping[str, Runner], base_url: str, *, rounds: int, runs: int) -> Samples:
    """CPU seconds of this process, all threads, for one run of the scenario."""
    samples: Samples = {name: [] for name in runners}
    for _ in range(rounds + 1):
        for name, runner in runners.items():
            async with runner(base_url) as run:
                await _scenario(run, 5)
                gc.collect()  # nobody pays for what another left behind
                start = time.process_time()
                await _scenario(run, runs)
                samples[name].append((time.process_time() - start) / runs)
    return _without_first(samples)


async def cpu_per_delta(readers: Mapping[str, Reader], base_url: str, *, rounds: int, runs: int) -> Samples:
    """CPU seconds of this process for one delta of a burst."""
    samples: Samples = {name: [] for name in readers}
    for _ in range(rounds + 1):
        for name, reader in readers.items():
            async with reader(base_url) as read:
                await read()
                gc.collect()
                start = time.process_time()
                for _ in range(runs):
                    count, length = await read()
                    if (count, length) != (wire.DELTAS, wire.BURST_LENGTH):
                        raise RuntimeError(f"{name} gave {count} deltas with {length} characters.")
                samples[name].append((time.process_time() - start) / (runs * wire.DELTAS))
    return _without_first(samples)


async def throughput(
    runners: Mapping[str, Runner], base_url: str, *, conversations: int, rounds: int, runs: int
) -> tuple[Samples, dict[str, int]]:
    """Runs a second of `conversations` at once, each doing `runs` in a row; and how many conversations failed."""
    samples: Samples = {name: [] for name in runners}
    errors = dict.fromkeys(runners, 0)
    for _ in range(rounds + 1):
        for name, runner in runners.items():
            async with runner(base_url) as run:
                await asyncio.gather(*(run() for _ in range(conversations)), return_exceptions=True)  # connects
                gc.collect()
                start = time.perf_counter()
                outcomes = await asyncio.gather(
                    *(_scenario(run, runs) for _ in range(conversations)), return_exceptions=True
                )
                samples[name].append(conversations * runs / (time.perf_counter() - start))
                errors[name] += sum(outcome is not None for outcome in outcomes)
    return _without_first(samples), errors


async def _scenario(run: Run, times: int) -> None:
    for _ in range(times):
        if (text := await run()) != wire.ANSWER:
            raise RuntimeError(f"The answer was {text!r}.")


def _without_first(samples: Samples) -> Samples:
    """The first round warms up: imports, caches, allocated memory."""
    return {name: figures[1:] for name, figures in samples.items()}
