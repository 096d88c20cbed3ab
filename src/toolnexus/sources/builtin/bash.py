"""The tool `bash`: runs a shell command, and leaves nothing behind when the toolkit is closed."""

from __future__ import annotations

import asyncio
import atexit
import errno
import functools
import math
import os
import shutil
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from toolnexus import _workers
from toolnexus._checks import at_least
from toolnexus.errors import ConfigurationError
from toolnexus.sources.builtin.kept_output import KeptOutput, OutputFolder, last_line
from toolnexus.sources.builtin.processes import GRACE, Command, Ended, ProcessGroup, end
from toolnexus.tools import JSONObject, Tool, ToolContext, ToolResult

if TYPE_CHECKING:
    from toolnexus.sources.builtin.workspace import Workspace

_T = TypeVar("_T")

_TIMEOUT = 60.0
_MAX_TIMEOUT = 600.0
_STOPPING = GRACE + 0.4
"""Seconds that a cancelled call waits for its command's end; whoever cancelled it waits for one."""
_CLOSING = 5.0
_BETWEEN_REPORTS = 0.2
_MOST_NAMED = 5

ENVIRONMENT = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TZ", "LANG", "LANGUAGE"),
        *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "VIRTUAL_ENV", "CONDA_PREFIX", "JAVA_HOME", "NVM_DIR"),
        *("GOPATH", "GOROOT", "CARGO_HOME", "RUSTUP_HOME", "PYENV_ROOT"),
        # Each by its name: a shell that is logged in to from afar lets other `LC_…` in, and some people send keys so.
        *("LC_ALL", "LC_COLLATE", "LC_CTYPE", "LC_MESSAGES", "LC_MONETARY", "LC_NUMERIC", "LC_TIME"),
        *("LC_ADDRESS", "LC_IDENTIFICATION", "LC_MEASUREMENT", "LC_NAME", "LC_PAPER", "LC_TELEPHONE"),
    }
)
"""The variables that commands see. None of them is known to hold a secret."""

# Programs that would ask, page or open an editor do not, as nobody could answer.
_QUIET = {
    "TERM": "dumb",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GIT_EDITOR": "true",
    "GIT_TERMINAL_PROMPT": "0",
    "DEBIAN_FRONTEND": "noninteractive",
}

_DESCRIPTION = (
    "Run a shell command. Each call is a new shell in the workspace, or in `workdir`. There is no input, so nothing "
    "can ask a question. The exit code comes last. Of long output the middle is cut, and all of it is kept in a file "
    "that is named. End a command with & to leave it running."
)


class CommandFailed(Exception):
    """A command could not be started. The text says why."""


def make(
    workspace: Workspace,
    *,
    environment: Iterable[str] = (),
    timeout: float = _TIMEOUT,
    max_timeout: float = _MAX_TIMEOUT,
) -> Tool:
    """The tool `bash`. `aclose` ends what its commands left running; otherwise that happens when the process ends.

    Args:
        workspace: Where commands begin. They can go anywhere from there: nothing confines what a command does.
        environment: Names of further environment variables that commands see.
        timeout: Seconds a command may take unless the model says otherwise.
        max_timeout: The most seconds that the model may ask for.
    """
    shell = _Shell(workspace, environment, timeout, max_timeout)
    tool = Tool(
        name="bash",
        description=_DESCRIPTION,
        input_schema=_schema(timeout, max_timeout),
        execute=shell.execute,
        source="builtin",
    )
    _shells[tool] = shell
    return tool


async def aclose(tool: Tool) -> None:
    """End what a `bash` tool runs, and what its commands left running, and remove the files of their output.

    It takes a bounded time, may be called more than once and from any event loop. Later calls of the tool fail.
    """
    shell = _shells.get(tool)
    if shell is not None:
        await _in_thread(shell.state.close)


def _schema(timeout: float, max_timeout: float) -> JSONObject:
    at_least("max_timeout", max_timeout, 1)
    if not 0 < timeout <= max_timeout:
        raise ConfigurationError(f"timeout is {timeout!r}; give seconds above 0, up to max_timeout ({max_timeout:g}).")
    return {
        "type": "object",
        "properties": {
            "command": {"type": "string", "minLength": 1, "description": "The command, for bash -c."},
            "workdir": {"type": "string", "description": "The folder to run it in. Default: the workspace's root."},
            "timeout": {
                "type": "number",
                "exclusiveMinimum": 0,
                "maximum": max_timeout,
                "default": timeout,
                "description": "Seconds until it is ended.",
            },
            "description": {"type": "string", "description": "What it does, in a few words, for people."},
        },
        "required": ["command"],
        "additionalProperties": False,
    }


_shells: weakref.WeakKeyDictionary[Tool, _Shell] = weakref.WeakKeyDictionary()


class _State:
    """What has to be ended: running commands, what they left behind, and the files of their output."""

    def __init__(self) -> None:
        self.folder = OutputFolder()
        self.closed = threading.Event()
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._groups: set[ProcessGroup] = set()
        self._left: set[ProcessGroup] = set()
        self._threads: set[threading.Thread] = set()
        _states.add(self)

    def enter(self) -> None:
        with self._lock:
            self._threads.add(threading.current_thread())

    def leave(self) -> None:
        with self._lock:
            self._threads.discard(threading.current_thread())

    def add(self, group: ProcessGroup) -> None:
        with self._lock:
            self._groups.add(group)

    def ended(self, group: ProcessGroup, *, left: bool) -> None:
        """The command itself has ended. `left`: something that it started goes on."""
        with self._lock:
            (self._left.add if left else self._groups.discard)(group)

    def forget_ended(self) -> None:
        """Drop the groups of which nobody lives, before their numbers are somebody else's."""
        with self._lock:
            left = list(self._left)
        over = {group for group in left if not group.living()}
        with self._lock:
            self._left -= over
            self._groups -= over

    def close(self) -> None:
        self.closed.set()
        until = time.monotonic() + _CLOSING
        with self._lock:
            threads = list(self._threads)
        for thread in threads:  # each ends its own command, and says so
            thread.join(max(0.0, until - time.monotonic()))
        with self._lock:
            groups = list(self._groups)
        end(groups)
        self.folder.remove()

    def abandon(self) -> None:
        """The same without waiting, for the end of the process. A fork of it has nothing to end."""
        if os.getpid() == self._process:
            self.closed.set()
            for group in list(self._groups):
                group.kill()
            self.folder.remove()
        _states.discard(self)


_states: set[_State] = set()
"""Those that may have something to end. A tool may be collected in a daemon thread, which the end of the process stops
in the middle of it, so `weakref.finalize` alone would not do."""


@atexit.register
def _abandon_all() -> None:
    for state in list(_states):
        state.abandon()


class _Shell:
    def __init__(self, workspace: Workspace, environment: Iterable[str], timeout: float, max_timeout: float) -> None:
        if isinstance(environment, str):
            raise ConfigurationError(f"environment is {environment!r}; give a list of names.")
        self._workspace = workspace
        self._names = ENVIRONMENT | frozenset(environment)
        self._timeout = timeout
        self._max_timeout = max_timeout
        self.state = _State()
        weakref.finalize(self, self.state.abandon).atexit = False

    async def execute(self, args: JSONObject, ctx: ToolContext) -> ToolResult:
        stopped = threading.Event()
        return await _in_thread(functools.partial(self._run, args, ctx, stopped), stopped)

    def _run(self, args: JSONObject, ctx: ToolContext, stopped: threading.Event) -> ToolResult:
        state = self.state
        state.enter()
        try:
            if state.closed.is_set():
                raise CommandFailed("The toolkit is closed, so no command can run.")
            if stopped.is_set():
                raise CommandFailed("The call was stopped before its command was started.")
            folder = self._folder(args.get("workdir", "."))
            ctx.progress(args.get("description") or args["command"].strip().partition("\n")[0][:200])
            return self._watched(args, folder, ctx, lambda: stopped.is_set() or state.closed.is_set())
        finally:
            state.leave()
            state.forget_ended()

    def _watched(self, args: JSONObject, folder: str, ctx: ToolContext, stopped: Callable[[], bool]) -> ToolResult:
        state = self.state
        timeout = float(args.get("timeout", self._timeout))
        kept = KeptOutput(state.folder)
        reports = _Reports(kept, ctx)
        began = time.monotonic()
        command = self._started(args["command"], folder, reports)
        state.add(command.group)
        follower: threading.Thread | None = None
        try:
            ended = command.wait(began + timeout, stopped)
            state.ended(command.group, left=bool(ended.left))
            if ended.left:
                kept.to_file()
                follower = threading.Thread(target=_follow, args=(command, kept, state.closed), daemon=True)
            return _result(ended, kept, timeout=timeout, seconds=time.monotonic() - began)
        finally:
            reports.end()
            if follower is None:
                kept.close()
            else:
                follower.start()

    def _folder(self, workdir: str) -> str:
        with self._workspace.place(workdir) as place:
            if place.status() is None:
                raise CommandFailed(f"There is no folder {place.shown} to run a command in.")
            os.close(place.open_folder())
            return os.fspath(self._workspace.root / place.path)

    def _started(self, line: str, folder: str, take: Callable[[bytes], None]) -> Command:
        try:
            return Command([*_shell(), "-c", line], environment=self._environment(), folder=folder, take=take)
        except UnicodeError as error:
            raise CommandFailed("The command has half a character in it, which no program can be given.") from error
        except ValueError as error:
            raise CommandFailed("The command has a NUL character in it, which no program can be given.") from error
        except OSError as error:
            if error.errno == errno.E2BIG:
                told = f"The command could not be started: {error.strerror}. Write it to a file, and run that."
                raise CommandFailed(told) from error
            raise CommandFailed(f"The command could not be started: {error.strerror or error}.") from error

    def _environment(self) -> dict[str, str]:
        ours = {name: value for name, value in os.environ.items() if name in self._names}
        return {**_QUIET, **ours}


class _Reports:
    """Keeps output, and tells whoever watches the last line of it, not too often."""

    def __init__(self, kept: KeptOutput, ctx: ToolContext) -> None:
        self._kept = kept
        self._ctx = ctx
        self._next = 0.0

    def end(self) -> None:
        """Only keep from now on: the call is over."""
        self._next = math.inf

    def __call__(self, data: bytes) -> None:
        self._kept.write(data)
        now = time.monotonic()
        if now >= self._next and (line := last_line(data)):
            self._next = now + _BETWEEN_REPORTS
            self._ctx.progress(line)


def _follow(command: Command, kept: KeptOutput, closed: threading.Event) -> None:
    """Keep what goes on being written in the background, so that its writer neither stops nor ends for it."""
    try:
        command.follow(closed.is_set)
    finally:
        kept.close()


@functools.cache
def _shell() -> list[str]:
    bash = shutil.which("bash")
    return [bash, "--noprofile", "--norc"] if bash else ["/bin/sh"]


def _result(ended: Ended, kept: KeptOutput, *, timeout: float, seconds: float) -> ToolResult:
    notes = [_how(ended, timeout)]
    left = [process for process in ended.left if process.name]
    if ended.left:
        notes.append(_goes_on(ended, kept))
    metadata: dict[str, Any] = {
        "exit_code": ended.code,
        "signal": _signal(ended.code),
        "timed_out": ended.how == "timeout",
        "seconds": round(seconds, 3),
        "output_bytes": kept.total,
        "output_path": None if kept.path is None else os.fspath(kept.path),
        "background": [process.pid for process in left],
    }
    text = kept.text().rstrip() or "(no output)"
    return ToolResult(
        output="\n".join([text, *(f"[{note}]" for note in notes)]),
        is_error=ended.how != "exit" or ended.code != 0,
        metadata=metadata,
    )


def _how(ended: Ended, timeout: float) -> str:
    unending = "" if ended.code is not None else "; it cannot be ended and still runs"
    if ended.how == "timeout":
        return f"timed out after {timeout:g} s: the command and what it started were ended{unending}"
    if ended.how == "stopped":
        return f"stopped: the command and what it started were ended{unending}"
    name = _signal(ended.code)
    if ended.code is not None and ended.code < 0:
        return f"ended by {name}"
    return f"exit code {ended.code}{f', as after {name}' if name else ''}"


def _signal(code: int | None) -> str | None:
    """The signal that an exit code stands for. None: none. A shell adds 128 to that of its command."""
    number = 0 if code is None else -code if code < 0 else code - 128
    if number <= 0:
        return None
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}" if code is not None and code < 0 else None


def _goes_on(ended: Ended, kept: KeptOutput) -> str:
    first = ended.left[:_MOST_NAMED]
    named = ", ".join(f"{process.pid}{f' ({process.name})' if process.name else ''}" for process in first)
    more = f" and {len(ended.left) - len(first)} more" if len(ended.left) > len(first) else ""
    where = "" if kept.path is None else f" Its output goes on in {kept.path}."
    return f"still running in the background: process {named}{more}. It is ended with the toolkit.{where}"


async def _in_thread(work: Callable[[], _T], stopped: threading.Event | None = None) -> _T:
    """Do blocking work in a thread of its own, which may take long. Cancelled, it is told to stop, and waited for."""
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[_T] = loop.create_future()

    def settle(value: Any, error: Exception | None) -> None:
        if outcome.cancelled():
            return
        if error is None:
            outcome.set_result(value)
        else:
            outcome.set_exception(error)

    def run() -> None:
        value, fault = None, None
        try:
            value = work()
        except Exception as error:  # noqa: BLE001 - whoever waits for the thread is told
            fault = error
        if not loop.is_closed():
            try:
                loop.call_soon_threadsafe(settle, value, fault)
            except RuntimeError:  # it was closed just now: nobody waits any more
                return

    thread = threading.Thread(target=run, name="toolnexus-command", daemon=True)
    try:
        await _workers.run(thread.start)  # which waits for it, and among many threads that may take long
        await asyncio.wait({outcome})  # unlike the future itself, this can be cancelled and waited for once more
    except asyncio.CancelledError:
        if stopped is not None:
            stopped.set()
            if thread.ident is not None:
                await asyncio.wait({outcome}, timeout=_STOPPING)
        if outcome.done() and not outcome.cancelled():
            outcome.exception()  # looked at: a fault that comes with a cancellation is nobody's
        else:
            outcome.cancel()
        raise
    return outcome.result()
