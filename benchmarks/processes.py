"""What fresh processes cost: CPU time of an import, memory of the scenario."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.measure import Samples

_LIBRARIES = "import asyncio, aiohttp, pydantic, orjson, jsonschema"
_WAIT = "import sys; print('ready', flush=True); sys.stdin.read()"


def cpu_of_programs(programs: Mapping[str, str], *, rounds: int) -> Samples:
    """CPU seconds, start of the interpreter included, of a fresh process for each program, interleaved."""
    samples: Samples = {name: [] for name in programs}
    for _ in range(rounds + 1):
        for name, program in programs.items():
            samples[name].append(_cpu_of(program))
    return {name: figures[1:] for name, figures in samples.items()}  # the first round may write bytecode


def _cpu_of(program: str) -> float:
    pid = os.posix_spawn(sys.executable, [sys.executable, "-c", program], os.environ)
    _, status, usage = os.wait4(pid, 0)
    if status:
        raise RuntimeError(f"{program!r} ended with {os.waitstatus_to_exitcode(status)}.")
    return usage.ru_utime + usage.ru_stime


def memory_of_scenario(base_url: str, *, runs: int) -> float:
    """Resident bytes of a process that has run the scenario and still holds its client."""
    return _memory_of(["-m", "benchmarks.contenders.ours", base_url, str(runs)])


def memory_of_libraries() -> float:
    """Resident bytes of a process that has imported what we build on, and does nothing."""
    return _memory_of(["-c", f"{_LIBRARIES}; {_WAIT}"])


def _memory_of(arguments: Sequence[str]) -> float:
    command = [sys.executable, *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        if process.stdout.readline().strip() != "ready":
            raise RuntimeError(f"{' '.join(arguments)} did not get ready.")
        return float(psutil.Process(process.pid).memory_info().rss)
