"""Groups of processes as other sources use them: started by somebody else, and ended with all that they started."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from toolnexus import create_toolkit
from toolnexus.sources.builtin import bash
from toolnexus.sources.builtin.processes import MARK, ProcessGroup, end, marked
from toolnexus.sources.builtin.workspace import Workspace

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="without /proc only groups are known")


RUN = 'import os; os.open("ready", os.O_WRONLY); os.execv("./s) R 1 (x", ["sleep", "300"])'
"""Opens a pipe, which is closed in the moment in which the other program takes over."""


def start(script: str) -> tuple[subprocess.Popen[bytes], ProcessGroup]:
    environment, mark = marked({"PATH": os.environ["PATH"]})
    process = subprocess.Popen(
        ["sh", "-c", script], env=environment, stdout=subprocess.PIPE, stdin=subprocess.PIPE, start_new_session=True
    )
    return process, ProcessGroup(process.pid, mark)


def finish(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    process.stdout.close()
    process.wait(10)


def test_several_groups_end_together_and_others_live_on() -> None:
    script = "trap '' TERM; setsid sh -c 'echo $$; exec sleep 300' & sleep 300 & wait"
    ours, other = [start(script) for _ in range(3)], start(script)
    escaped = [int(process.stdout.readline()) for process, _ in ours if process.stdout is not None]
    try:
        end([group for _, group in ours], grace=0.1)
        assert [group.living() for _, group in ours] == [[], [], []]
        assert not any(
            psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE for pid in escaped
        )
        assert other[0].poll() is None
        assert len(other[1].living()) == 3
    finally:
        end([other[1]])
        for process, _ in (*ours, other):
            finish(process)


def test_who_is_left_is_known_after_the_leader_was_collected() -> None:
    process, group = start("setsid sleep 300 & env -i sleep 300 & echo; read line")
    assert process.stdout is not None
    process.stdout.readline()
    before = group.living()
    finish(process)
    assert {each.pid for each in group.living()} == {each.pid for each in before} - {process.pid}
    assert len(before) == 3
    end([group])
    assert group.living() == []


def test_ending_a_group_that_has_ended_does_nothing() -> None:
    process, group = start("exit 0")
    finish(process)
    end([group])
    group.kill()
    assert group.living() == []


def test_marks_of_outer_commands_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MARK, "outer")
    environment, mark = marked({})
    assert environment == {MARK: f"outer {mark}"}


async def test_a_name_may_look_like_anything(tmp_path: Path) -> None:
    sleep = shutil.which("sleep")
    assert sleep is not None
    shutil.copy(sleep, tmp_path / "s) R 1 (x")
    tool = bash.make(Workspace(tmp_path))
    toolkit = await create_toolkit([tool])
    # The shell ends when the pipe does, which the program inherits until it runs and no longer.
    os.mkfifo(tmp_path / "ready")
    command = f"{sys.executable} -c '{RUN}' & read line < ready; true"
    result = await toolkit.execute("bash", {"command": command})
    assert "(s) R 1 (x)" in result.output
    await bash.aclose(tool)


def test_a_tool_may_be_closed_on_another_loop(tmp_path: Path) -> None:
    tool = bash.make(Workspace(tmp_path))

    async def use() -> list[int]:
        toolkit = await create_toolkit([tool])
        return (await toolkit.execute("bash", {"command": "sleep 300 &"})).metadata["background"]

    [pid] = asyncio.run(use())
    asyncio.run(bash.aclose(tool))
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_the_module_can_be_imported_without_anything_heavy() -> None:
    program = (
        "import sys, toolnexus.sources.builtin.processes; print('aiohttp' in sys.modules, 'asyncio' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
