"""Which process this is, so that what a dead one held can be told from what a living one holds."""

from __future__ import annotations

import os
import socket
import sys
import time
from functools import cache
from pathlib import Path


def this_process() -> str:
    """Host, boot, process and its start time, as one text. Not the same for any two processes."""
    return _described(os.getpid())


def is_gone(process: str) -> bool:
    """Whether a process is certainly no more: it ran on this host, and does not run now.

    One of another host may live, as far as anybody can tell from here.
    """
    host, boot, pid, started = [*process.split("|"), "", "", ""][:4]
    if host != _host() or not pid.isdigit():
        return False
    if boot != _boot():
        return True
    return _start_time(int(pid)) != started


def uptime() -> tuple[str, float]:
    """Which boot of the machine this is, and seconds since it on a clock that all processes share and nobody can set.

    Where boots cannot be told apart: an empty text, and seconds since the epoch.
    """
    if sys.platform == "linux" and (boot := _boot()):
        return boot, time.clock_gettime(time.CLOCK_BOOTTIME)
    return "", time.time()


@cache
def _described(pid: int) -> str:
    return "|".join((_host(), _boot(), str(pid), _start_time(pid)))


@cache
def _host() -> str:
    """The machine, and on Linux the container: process numbers mean something within one namespace only."""
    try:
        namespace = os.readlink("/proc/self/ns/pid")  # noqa: PTH115 - it names nothing that there is a path to
    except OSError:
        namespace = ""
    return f"{socket.gethostname()}{namespace}".replace("|", "_")


@cache
def _boot() -> str:
    """Changes when the machine starts anew. Empty where that cannot be told."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _start_time(pid: int) -> str:
    """When a process started, in whatever unit; empty if there is none, or it cannot be told but it runs."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "running" if not Path("/proc/self/stat").exists() and _runs(pid) else ""
    state, *rest = stat.rpartition(")")[2].split()
    return "" if state in ("Z", "X") else rest[18]


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
