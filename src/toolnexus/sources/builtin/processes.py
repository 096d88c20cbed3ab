"""Runs a command in a session of its own, and ends it with everything that it started.

What a command started is found by its session, by who started whom, by a mark in the environment, which those that
left the session (`setsid`, a daemon) still carry, and by the pipe that it writes to. Only one is not found that leaves,
clears its environment, writes elsewhere, and whose parent has ended. Without `/proc`, as on macOS, a command's process
group is all that is known.

All of it blocks, and belongs into a thread.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import IO, Literal

from toolnexus.errors import ConfigurationError

MARK = "TOOLNEXUS_PROCESS_OF"
"""The environment variable that holds the marks of all commands that a process belongs to."""

GRACE = 0.5
"""Seconds between asking a command to end and ending it; less than a cancelled tool is waited for."""
_KILLING = 2.0
"""Seconds until a process that was killed counts as one that cannot be: it hangs in the kernel, or is not ours."""
_LOOKING = 0.01
_TICK = 0.05
"""Seconds between looks at whether a command has to be stopped."""
_PIECE = 64 * 1024
_LEFT_IN_PIPE = 2 * _PIECE
"""Bytes that may wait in a pipe when the command ends. What comes after them is written by something else."""

_PROC = Path("/proc")
_HAS_PROC = Path("/proc/self/stat").exists()


@dataclass(frozen=True, slots=True)
class Process:
    """A living process. No two have the same `pid` and `started`.

    Attributes:
        started: When, in clock ticks since the machine started.
        name: What it runs now, cut by the system to 15 characters.
    """

    pid: int
    started: int
    name: str = field(compare=False)


@dataclass(frozen=True)
class _Row:
    """What the system says of a process. A zombie is dead, but holds its number."""

    process: Process
    parent: int
    session: int
    zombie: bool

    @cached_property
    def marks(self) -> bytes:
        """What `MARK` is in its environment. Empty also if it has ended, or is another user's."""
        with contextlib.suppress(OSError), open(f"{_PROC}/{self.process.pid}/environ", "rb") as environment:  # noqa: PTH123 - a Path is slow
            return environment.read().partition(f"{MARK}=".encode())[2].partition(b"\0")[0]
        return b""

    @cached_property
    def outputs(self) -> tuple[str, ...]:
        """What it writes to."""
        with contextlib.suppress(OSError):
            return tuple(os.readlink(f"{_PROC}/{self.process.pid}/fd/{number}") for number in (1, 2))  # noqa: PTH115
        return ()


class _Looks:
    """Looks at all processes. Threads that ask while one looks share the next look.

    Each on its own would leave too little time to an event loop's thread when many commands end at once.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._began = 0.0
        self._rows: Mapping[int, _Row] = {}

    def now(self) -> Mapping[int, _Row]:
        """The processes by their numbers, looked at after this was called."""
        asked = time.monotonic()
        alone = self._lock.acquire(timeout=_KILLING)  # in a fork that was made during a look it is never released
        try:
            if self._began < asked:
                began = time.monotonic()
                self._rows = {row.process.pid: row for row in _rows()}
                self._began = began
            return self._rows
        finally:
            if alone:
                self._lock.release()


_looks = _Looks()


class ProcessGroup:
    """A command and everything that it started.

    Args:
        pid: The command, which leads a session of its own (`start_new_session=True`).
        mark: What `marked` put into its environment.
        output: A pipe that only it writes to, either end. None: there is none.
    """

    def __init__(self, pid: int, mark: str, *, output: int | None = None) -> None:
        self.pid = pid
        self._mark = mark.encode()
        self._pipe = None if output is None else f"pipe:[{os.fstat(output).st_ino}]"
        row = _row(pid)
        self._leader = row.process if row else None
        self._since = row.process.started if row else 0
        self._known: set[Process] = set()

    def living(self) -> list[Process]:
        """Who of them lives now. Without `/proc`, only the command itself stands for all."""
        if not _HAS_PROC:
            return [Process(self.pid, 0, "")] if _group_lives(self.pid) else []
        rows = _looks.now()
        leader = rows.get(self.pid)
        # Once the leader is gone for good, its number may be that of somebody else's session.
        ours = {self.pid} if leader is not None and leader.process == self._leader else set[int]()
        session = self.pid if ours else None
        newer = [row for row in rows.values() if row.process.started >= self._since]
        for row in newer:
            if row.session == session or row.process in self._known or self._belongs(row):
                ours.add(row.process.pid)
        _add_children(ours, newer)
        living = [row.process for row in newer if row.process.pid in ours and not row.zombie]
        self._known = set(living)
        return living

    def _belongs(self, row: _Row) -> bool:
        """Whether a process carries the mark, or writes to the pipe."""
        # A child of our own that has not begun its program yet has our end of the pipe.
        return self._mark in row.marks or (row.parent != os.getpid() and self._pipe in row.outputs)

    def send(self, *numbers: int) -> list[Process]:
        """Send signals to all of them, and say to whom."""
        living = self.living()
        send = os.kill if _HAS_PROC else os.killpg
        for process in living:
            with contextlib.suppress(OSError):  # it has ended, or is another user's
                for number in numbers:
                    send(process.pid, number)
        return living

    def kill(self) -> None:
        """End them without waiting, as far as that goes: for a process that is about to end itself."""
        told: set[Process] = set()
        while (living := set(self.send(signal.SIGKILL))) - told:
            told |= living


def _add_children(ours: set[int], rows: Collection[_Row]) -> None:
    """Add who was started by one of ours, by one of those, and so on."""
    before = -1
    while len(ours) != before:
        before = len(ours)
        ours.update(row.process.pid for row in rows if row.parent in ours)


def _rows() -> Iterator[_Row]:
    for name in os.listdir(_PROC):  # noqa: PTH208 - names are wanted, and there may be thousands
        if name.isdigit() and (row := _row(int(name))) is not None:
            yield row


def _row(pid: int) -> _Row | None:
    try:
        with open(f"{_PROC}/{pid}/stat", encoding="utf-8", errors="replace") as opened:  # noqa: PTH123 - as above
            stat = opened.read()
    except OSError:
        return None
    # proc(5): the name stands in parentheses and may hold some itself.
    head, _, rest = stat.rpartition(")")
    state, parent, _, session, *more = rest.split()
    process = Process(pid, int(more[15]), head.partition("(")[2])
    return _Row(process, int(parent), int(session), zombie=state in ("Z", "X"))


def _group_lives(pid: int) -> bool:
    try:
        os.killpg(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # macOS, of a group of zombies only
        return False
    return True


def marked(environment: Mapping[str, str]) -> tuple[dict[str, str], str]:
    """The environment for a command, and the mark in it, which its `ProcessGroup` is told."""
    mark = secrets.token_hex(8)
    return {**environment, MARK: f"{os.environ.get(MARK, '')} {mark}".strip()}, mark


def end(groups: Sequence[ProcessGroup], *, grace: float = GRACE, reap: Callable[[], object] = lambda: None) -> None:
    """End groups of processes: first they are asked, after `grace` seconds they are killed.

    Args:
        reap: Collects those that have ended, of whom somebody else is the parent; only needed without `/proc`.

    Returns when all are gone, or `grace` and two seconds later.
    """
    for group in groups:
        group.send(signal.SIGTERM, signal.SIGCONT)  # one that is stopped could not end
    if not _gone(groups, time.monotonic() + grace, reap):
        until = time.monotonic() + _KILLING
        while time.monotonic() < until and not _gone(groups, time.monotonic() + _LOOKING, reap):
            for group in groups:
                group.send(signal.SIGKILL)


def _gone(groups: Sequence[ProcessGroup], until: float, reap: Callable[[], object]) -> bool:
    while True:
        if not _HAS_PROC:
            reap()
        if not any(group.living() for group in groups):
            return True
        if time.monotonic() >= until:
            return False
        time.sleep(_LOOKING)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command came to its end.

    Attributes:
        how: `exit`: by itself; `timeout`, `stopped`: it was ended.
        code: Its exit code; negative: the signal that ended it. None: it cannot be ended, and still runs.
        left: Who of what it started goes on.
    """

    how: Literal["exit", "timeout", "stopped"]
    code: int | None
    left: tuple[Process, ...]


class Command:
    """A command that runs, with its output in one pipe and nothing to read.

    Args:
        take: Gets what it writes, in pieces of up to 64 KiB.

    Raises:
        OSError: It cannot be started.
        ValueError: There is a NUL in it.
        ConfigurationError: There are no sessions on Windows.
    """

    def __init__(
        self, argv: Sequence[str], *, environment: Mapping[str, str], folder: str, take: Callable[[bytes], object]
    ) -> None:
        if sys.platform == "win32":
            raise ConfigurationError("Commands run on Linux and macOS only. On Windows, use WSL.")
        environment, mark = marked(environment)
        self._take = take
        self._process: subprocess.Popen[bytes] = subprocess.Popen(  # noqa: S603 - running commands is what it is for
            argv,
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._output: IO[bytes] | None = self._process.stdout
        output = None if self._output is None else self._output.fileno()
        if output is not None:
            os.set_blocking(output, False)
        self.group = ProcessGroup(self._process.pid, mark, output=output)

    def wait(self, deadline: float, stopped: Callable[[], bool]) -> Ended:
        """Read until the command ends. What it leaves in the background is not waited for.

        Args:
            deadline: On `time.monotonic()`; it is ended then.
            stopped: Whether it has to end at once; asked 20 times a second.
        """
        try:
            how = self._watch(deadline, stopped)
            if how != "exit":
                end([self.group], reap=self._process.poll)
            self._read(_LEFT_IN_PIPE)
            left = self.group.living() if how == "exit" or self._process.poll() is None else []
            code = self._process.wait() if how == "exit" else self._process.poll()
        except BaseException:
            self.group.kill()
            self.close()
            raise
        if not left:
            self.close()
        return Ended(how, code, tuple(left))

    def _watch(self, deadline: float, stopped: Callable[[], bool]) -> Literal["exit", "timeout", "stopped"]:
        with selectors.DefaultSelector() as selector, _exit_descriptor(self._process.pid) as exits:
            if self._output is not None:
                selector.register(self._output, selectors.EVENT_READ)
            if exits is not None:
                selector.register(exits, selectors.EVENT_READ)
            while True:
                if stopped():
                    return "stopped"
                left = deadline - time.monotonic()
                if left <= 0:
                    return "timeout"
                ready = {key.fileobj for key, _ in selector.select(min(_TICK, left))}
                if self._output in ready and not self._read(_PIECE):
                    selector.unregister(self._output)
                    self._close_output()
                ended = self._process.poll() is not None if exits is None else exits in ready
                if ended:
                    return "exit"

    def _read(self, most: int) -> bool:
        """Hand on what is there now. False: nothing will follow."""
        while self._output is not None and most > 0:
            try:
                data = os.read(self._output.fileno(), min(most, _PIECE))
            except BlockingIOError:
                return True
            if not data:
                return False
            self._take(data)
            most -= len(data)
        return self._output is not None

    def follow(self, stopped: Callable[[], bool]) -> None:
        """Go on reading what the background writes, until all of it has ended or `stopped`.

        One that writes without end is slowed down to some 6 MB a second.
        """
        try:
            if self._output is None:
                return
            with selectors.DefaultSelector() as selector:
                selector.register(self._output, selectors.EVENT_READ)
                while not stopped():
                    if selector.select(_TICK):
                        if not self._read(_PIECE):
                            return
                        time.sleep(_LOOKING)
        finally:
            self.close()

    def close(self) -> None:
        """Close the reading end. Whoever still writes is told so by the system."""
        self._close_output()

    def _close_output(self) -> None:
        if self._output is not None:
            self._output.close()
            self._output = None


@contextlib.contextmanager
def _exit_descriptor(pid: int) -> Generator[int | None]:
    """What becomes readable when the process ends, which does not collect it. None: the system has no such thing."""
    opened: int | None = None
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            opened = os.pidfd_open(pid)
    try:
        yield opened
    finally:
        if opened is not None:
            os.close(opened)
