"""The tool `bash`, with real commands: what the model reads, what is bounded, and that nothing is left."""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeAlias

import psutil
import pytest
from heartbeat import heartbeat

from toolnexus import ConfigurationError, ToolContext, ToolResult, create_toolkit
from toolnexus.sources.builtin import bash, kept_output, processes
from toolnexus.sources.builtin.workspace import Workspace
from toolnexus.toolkit import Toolkit
from toolnexus.tools import Tool

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there are no sessions")

Run: TypeAlias = Callable[..., Coroutine[Any, Any, ToolResult]]

_numbers = itertools.count(1)


@pytest.fixture
def forever() -> str:
    """How long a process sleeps that has to be ended; no two tests have the same, so that theirs can be told apart."""
    return f"9{os.getpid() % 100_000:05}.{next(_numbers)}"


def living(forever: str) -> list[int]:
    """The processes that sleep so long. One that has ended and that nobody collected yet is dead."""
    found: list[int] = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and f"sleep {forever}" in " ".join(process.cmdline()):
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


@pytest.fixture
async def tool(tmp_path: Path) -> AsyncIterator[Tool]:
    tool = bash.make(Workspace(tmp_path))
    yield tool
    await bash.aclose(tool)


@pytest.fixture
def run(tool: Tool) -> Run:
    async def run(command: str, ctx: ToolContext | None = None, **args: Any) -> ToolResult:
        toolkit = await create_toolkit([tool])
        return await toolkit.execute("bash", {"command": command, **args}, ctx)

    return run


def text_of(path: str | Path) -> str:
    return Path(path).read_text(encoding="utf-8")


def bytes_of(path: str | Path) -> bytes:
    return Path(path).read_bytes()


def mode_of(path: str | Path) -> int:
    return stat.S_IMODE(Path(path).stat().st_mode)


def watched(word: str) -> tuple[ToolContext, asyncio.Event]:
    """A context, and what is set when a command has written a line that is `word`."""
    loop, said = asyncio.get_running_loop(), asyncio.Event()

    def report(message: str, _: float | None) -> None:
        if message == word:
            loop.call_soon_threadsafe(said.set)

    return ToolContext(tool="bash", report=report), said


@pytest.fixture(params=["proc", "groups"])
def known_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How processes are found: as on Linux, and as where there is no `/proc`."""
    if request.param == "groups":
        monkeypatch.setattr(processes, "_HAS_PROC", False)
    elif not Path("/proc/self/stat").exists():
        pytest.skip("there is no /proc")
    return request.param


async def test_output_and_exit_code_are_told(run: Run) -> None:
    result = await run("echo out; echo err >&2; exit 3")
    assert result.output == "out\nerr\n[exit code 3]"
    assert result.is_error
    assert result.metadata["exit_code"] == 3
    assert result.metadata["signal"] is None


async def test_a_command_that_succeeds_is_no_error_even_if_it_says_nothing(run: Run) -> None:
    result = await run("true")
    assert (result.output, result.is_error) == ("(no output)\n[exit code 0]", False)


@pytest.mark.parametrize(
    ("command", "told", "name"),
    [
        ("kill -SEGV $$", "[ended by SIGSEGV]", "SIGSEGV"),
        ("sh -c 'kill -KILL $$'; exit $?", "[exit code 137, as after SIGKILL]", "SIGKILL"),
    ],
)
async def test_a_signal_has_its_name(run: Run, command: str, told: str, name: str) -> None:
    result = await run(command)
    assert result.output.endswith(told)
    assert result.metadata["signal"] == name


async def test_a_command_begins_in_the_workspace_or_in_a_folder_of_it(run: Run, tmp_path: Path) -> None:
    (tmp_path / "inner folder").mkdir()
    assert (await run("pwd")).output == f"{tmp_path}\n[exit code 0]"
    assert (await run("pwd", workdir="inner folder")).output == f"{tmp_path}/inner folder\n[exit code 0]"


@pytest.mark.parametrize("workdir", ["..", "/", "out", "missing", "file"])
async def test_a_folder_that_cannot_be_used_is_an_error(run: Run, tmp_path: Path, workdir: str) -> None:
    (tmp_path / "out").symlink_to("/")
    (tmp_path / "file").write_text("")
    result = await run("touch ran", workdir=workdir)
    assert result.is_error
    assert workdir in result.output
    assert not (tmp_path / "ran").exists()


async def test_there_is_nothing_to_read_and_no_terminal(run: Run) -> None:
    result = await run("cat; read -p 'Name? ' name || echo none; (exec 3</dev/tty) 2>/dev/null || echo no terminal")
    assert result.output == "none\nno terminal\n[exit code 0]"


async def test_secrets_of_the_environment_are_not_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "s3cr3t-value"
    for name in ("OPENAI_API_KEY", "GITHUB_TOKEN", "MY_SECRET", "DB_PASSWORD", "AWS_CREDENTIALS", "AWS_PROFILE"):
        monkeypatch.setenv(name, secret)
    monkeypatch.setenv("DATABASE_URL", f"postgres://u:{secret}@h/d")
    monkeypatch.setenv("LC_TIME", "C")
    monkeypatch.setenv("BUILD_NUMBER", "17")
    monkeypatch.setenv("BASH_ENV", "/dev/stdin")
    toolkit = await create_toolkit([bash.make(Workspace(tmp_path), environment=["BUILD_NUMBER"])])
    seen = (await toolkit.execute("bash", {"command": "env"})).output
    assert secret not in seen
    assert {"LC_TIME=C", "BUILD_NUMBER=17", f"HOME={os.environ['HOME']}", "GIT_TERMINAL_PROMPT=0"} <= set(
        seen.split("\n")
    )
    assert "BASH_ENV" not in seen


async def test_nothing_outlives_a_timeout(run: Run, forever: str, known_by: str) -> None:
    result = await run(f"echo before; sleep {forever} & sleep {forever}", timeout=0.3)
    assert result.output == "before\n[timed out after 0.3 s: the command and what it started were ended]"
    assert result.is_error
    assert result.metadata["timed_out"]
    assert living(forever) == []


async def test_what_ignores_being_asked_is_killed(run: Run, forever: str, known_by: str) -> None:
    began = time.monotonic()
    result = await run(f"trap '' TERM; sleep {forever} & while :; do sleep {forever}; done", timeout=0.2)
    assert result.metadata["signal"] == "SIGKILL"
    assert time.monotonic() - began < 5
    assert living(forever) == []


async def test_a_stopped_child_is_ended_as_well(run: Run, forever: str) -> None:
    await run(f"sleep {forever} & kill -STOP $!; wait", timeout=0.2)
    assert living(forever) == []


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="without /proc only the process group is known")
@pytest.mark.parametrize(
    "escape",
    [
        "setsid --wait sleep {}",
        "setsid sleep {} & sleep {}",
        "(setsid sleep {} >/dev/null 2>&1 &); sleep {}",
        "setsid --fork sleep {} >/dev/null 2>&1; sleep {}",
        "env -i setsid sleep {} & sleep {}",
        "setsid sh -c 'setsid sleep {} & setsid sleep {} & wait' & sleep {}",
    ],
)
async def test_nothing_that_left_the_session_outlives_a_timeout(run: Run, forever: str, escape: str) -> None:
    await run(escape.replace("{}", forever), timeout=0.5)
    assert living(forever) == []


async def test_a_background_child_holds_nothing_and_ends_with_the_toolkit(
    run: Run, tool: Tool, forever: str, known_by: str
) -> None:
    began = time.monotonic()
    result = await run(f"echo started; sleep {forever} &")
    assert time.monotonic() - began < 10
    assert result.output.startswith("started\n[exit code 0]\n[still running in the background: process ")
    assert not result.is_error
    assert len(living(forever)) == 1
    await bash.aclose(tool)
    assert living(forever) == []


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="without /proc only the process group is known")
@pytest.mark.parametrize("escape", ["setsid sleep {}", "setsid --fork sleep {} >/dev/null 2>&1"])
async def test_one_that_left_the_session_ends_with_the_toolkit(run: Run, tool: Tool, forever: str, escape: str) -> None:
    result = await run(escape.replace("{}", forever))
    assert "still running in the background" in result.output
    await bash.aclose(tool)
    assert living(forever) == []


async def test_what_the_background_writes_goes_on_into_the_file(run: Run, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "go")
    os.mkfifo(tmp_path / "done")
    result = await run("echo one; (cat go; echo two; echo over > done) &")
    path = result.metadata["output_path"]
    assert path in result.output
    assert text_of(path) == "one\n"

    def let_go() -> str:
        (tmp_path / "go").write_text("three\n")
        (tmp_path / "done").read_text()
        until = time.monotonic() + 10
        while text_of(path) != "one\nthree\ntwo\n" and time.monotonic() < until:
            time.sleep(0.01)  # its writer has written; the reader tells nobody
        return text_of(path)

    assert await asyncio.to_thread(let_go) == "one\nthree\ntwo\n"


async def test_a_cancelled_call_leaves_no_process(run: Run, forever: str) -> None:
    ctx, ready = watched("ready")
    task = asyncio.create_task(run(f"setsid sleep {forever} & echo ready; sleep {forever}", ctx))
    await ready.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert living(forever) == []


async def test_closing_ends_what_runs_and_later_calls_fail(run: Run, tool: Tool, forever: str) -> None:
    ctx, ready = watched("ready")
    task = asyncio.create_task(run(f"echo ready; sleep {forever}", ctx))
    await ready.wait()
    await bash.aclose(tool)
    assert (await task).output == "ready\n[stopped: the command and what it started were ended]"
    assert living(forever) == []
    assert (await run("echo more")).output == "CommandFailed: The toolkit is closed, so no command can run."
    await bash.aclose(tool)


async def test_60_mb_of_output_are_cut_and_kept_whole(run: Run) -> None:
    size = 60_000_000
    before = psutil.Process().memory_info().rss
    async with heartbeat() as heart:
        result = await run(f"echo first; yes '0123456789' | head -c {size}; echo; echo last")
    assert psutil.Process().memory_info().rss - before < 30_000_000
    assert heart.longest < 0.25
    head, _, tail = result.output.partition("[cut here: ")
    path = Path(result.metadata["output_path"])
    assert head.startswith("first\n0123456789\n")
    assert tail.startswith(f"60.0 MB of 60.0 MB left out; all of it is in {path}")
    assert tail.endswith("\nlast\n[exit code 0]")
    assert len(result.output.encode()) < 64 * 1024
    whole = text_of(path)
    assert len(whole) == result.metadata["output_bytes"] == size + len("first\n\nlast\n")
    assert whole == "first\n" + ("0123456789\n" * (size // 11 + 1))[:size] + "\nlast\n"
    assert (mode_of(path), mode_of(path.parent)) == (0o600, 0o700)


async def test_output_without_lines_or_text_is_cut_between_characters(run: Run) -> None:
    result = await run(f"{sys.executable} -c \"print('€' * 20_000, end='')\"")
    assert "\ufffd" not in result.output
    binary = await run("head -c 100000 /dev/urandom")
    assert len(binary.output.encode()) < 64 * 1024
    assert len(bytes_of(binary.metadata["output_path"])) == 100_000


async def test_files_of_output_are_bounded_and_go_with_the_toolkit(
    run: Run, tool: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_output, "MAX_FILE", 30_000)
    monkeypatch.setattr(kept_output, "MAX_FILES", 3)
    paths = [Path((await run("yes | head -c 50000")).metadata["output_path"]) for _ in range(5)]
    assert [path.exists() for path in paths] == [False, False, True, True, True]
    assert {path.stat().st_size for path in paths[2:]} == {30_000}
    assert "its first 30.0 kB are in" in (await run("yes | head -c 50000")).output
    await bash.aclose(tool)
    assert not paths[0].parent.exists()


async def test_a_full_disk_holds_no_command_up(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(kept_output.OutputFolder):
        def new(self) -> tuple[int, Path]:
            return os.open("/dev/full", os.O_WRONLY), Path("/dev/full")

    def on_a_full_disk(_: kept_output.OutputFolder) -> kept_output.KeptOutput:
        return kept_output.KeptOutput(Full())

    monkeypatch.setattr(bash, "KeptOutput", on_a_full_disk)
    result = await run("yes | head -c 50000")
    assert result.output.endswith("y\n[exit code 0]")
    assert "could not be kept in a file (No space left on device)" in result.output


async def test_what_is_meant_for_a_terminal_is_left_out(run: Run) -> None:
    result = await run(r"printf '\033[1;31mred\033[0m \033]0;title\007\0 10%%\r 99%%\r\nend\r\n\377\n'")
    assert result.output == " 99%\nend\n\ufffd\n[exit code 0]"


async def test_progress_is_told_at_a_bounded_rate(run: Run) -> None:
    told: list[str] = []
    ctx = ToolContext(tool="bash", report=lambda text, _: told.append(text))
    result = await run("seq 100000", ctx, description="Count")
    assert told[0] == "Count"
    assert 2 <= len(told) <= 3 + result.metadata["seconds"] / 0.2


@pytest.mark.parametrize(
    ("args", "told"),
    [
        ({"command": "true", "timeout": 60_000}, "timeout"),
        ({"command": "true", "timeout": 0}, "timeout"),
        ({"command": ""}, "command"),
        ({"workdir": "."}, "command"),
        ({"command": "true\0"}, "NUL"),
        ({"command": "#" * 3_000_000}, "Argument list too long"),
    ],
)
async def test_what_cannot_run_is_an_error_that_says_why(tool: Tool, args: dict[str, Any], told: str) -> None:
    result = await (await create_toolkit([tool])).execute("bash", args)
    assert result.is_error
    assert told in result.output


def test_options_that_cannot_be_meant_are_refused(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    with pytest.raises(ConfigurationError, match="timeout is 700"):
        bash.make(workspace, timeout=700)
    with pytest.raises(ConfigurationError, match="list of names"):
        bash.make(workspace, environment="HOME")


async def test_commands_run_side_by_side(run: Run, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reads, writes = await asyncio.gather(run("cat pipe"), run("echo met > pipe"))
    assert reads.output == "met\n[exit code 0]"
    assert writes.output == "(no output)\n[exit code 0]"


def test_it_works_on_a_loop_in_another_thread(tmp_path: Path, forever: str) -> None:
    outcome: list[ToolResult] = []

    async def use() -> None:
        tool = bash.make(Workspace(tmp_path))
        toolkit = await create_toolkit([tool])
        outcome.append(await toolkit.execute("bash", {"command": f"echo here; sleep {forever} &"}))
        await bash.aclose(tool)

    thread = threading.Thread(target=lambda: asyncio.run(use()))
    thread.start()
    thread.join(30)
    assert outcome[0].output.startswith("here\n")
    assert living(forever) == []


PROGRAM = """
import asyncio, sys
from toolnexus import create_toolkit
from toolnexus.sources.builtin import bash
from toolnexus.sources.builtin.workspace import Workspace

async def main():
    toolkit = await create_toolkit([bash.make(Workspace("."))])
    result = await toolkit.execute("bash", {"command": "yes | head -c 50000; sleep %s &"})
    print(result.metadata["output_path"])
    if "running" in sys.argv:
        asyncio.ensure_future(toolkit.execute("bash", {"command": "sleep %s"}))
        await asyncio.sleep(0)

asyncio.run(main())
"""


@pytest.mark.parametrize("how", ["idle", "running"])
def test_a_program_that_ends_without_closing_leaves_nothing(tmp_path: Path, forever: str, how: str) -> None:
    program = [sys.executable, "-c", PROGRAM.replace("%s", forever), how]
    done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    assert not Path(done.stdout.strip()).parent.exists()
    assert living(forever) == []


async def test_a_toolkit_that_nobody_holds_leaves_nothing(tmp_path: Path, forever: str) -> None:
    toolkit: Toolkit | None = await create_toolkit([bash.make(Workspace(tmp_path))])
    assert toolkit is not None
    result = await toolkit.execute("bash", {"command": f"sleep {forever} &"})
    assert len(living(forever)) == 1
    folder = Path(result.metadata["output_path"]).parent
    del toolkit
    gc.collect()
    assert folder not in set(folder.parent.iterdir())
    assert living(forever) == []


async def test_a_variable_is_not_let_in_for_how_its_name_begins(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_API_KEY", "hunter2")
    monkeypatch.setenv("LC_TIME", "C")
    output = (await run("env")).output
    assert "hunter2" not in output
    assert "LC_TIME=C" in output


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it is found through /proc")
async def test_one_that_leaves_and_forgets_where_it_came_from_is_found_by_its_output(run: Run, forever: str) -> None:
    result = await run(f"(env -i setsid sh -c 'sleep {forever}; true' &); sleep {forever}", timeout=1)
    assert result.metadata["timed_out"]
    assert not living(forever)


async def test_many_commands_at_once_neither_wait_for_each_other_nor_stop_the_loop(run: Run, forever: str) -> None:
    await run("true")
    began = time.monotonic()
    async with heartbeat() as heart:
        results = await asyncio.gather(
            *(run("true") for _ in range(40)), *(run(f"sleep {forever}", timeout=0.5) for _ in range(20))
        )
    assert [result.metadata["exit_code"] for result in results[:40]] == [0] * 40
    assert not living(forever)
    assert time.monotonic() - began < 10
    assert heart.longest < 0.4
