"""Threads for plain functions: results come back, whatever the function does and whoever has gone."""

from __future__ import annotations

import asyncio
import contextvars
import os
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from toolnexus._workers import ForeignExit, Workers, run

PLACE: contextvars.ContextVar[str] = contextvars.ContextVar("PLACE", default="nowhere")
SECONDS = 10


async def test_a_function_runs_in_another_thread_and_returns_its_value() -> None:
    assert await run(threading.current_thread) is not threading.current_thread()
    assert await run(divmod, 7, 2) == (3, 1)
    assert await run(int, "ff", base=16) == 255


async def test_a_function_sees_the_context_and_cannot_change_it() -> None:
    def move() -> str:
        before = PLACE.get()
        PLACE.set("away")
        return before

    PLACE.set("home")
    assert await run(move) == "home"
    assert PLACE.get() == "home"


@pytest.mark.parametrize("error", [ValueError("no"), TimeoutError(), LookupError()])
async def test_an_error_is_raised_to_the_caller(error: Exception) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        await run(fail)
    assert caught.value is error


@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyboardInterrupt(), StopIteration(1), asyncio.CancelledError(), GeneratorExit()]
)
async def test_what_is_no_ordinary_error_becomes_one_with_it_as_the_cause(error: BaseException) -> None:
    workers = Workers(limit=1)

    def leave() -> None:
        raise error

    with pytest.raises(ForeignExit) as caught:
        await workers.run(leave)
    assert caught.value.__cause__ is error
    assert await workers.run(str, 1) == "1", "the only thread lives on"


async def test_functions_run_at_the_same_time() -> None:
    workers = Workers(limit=4)
    together = threading.Barrier(4)
    await asyncio.gather(*(workers.run(together.wait, SECONDS) for _ in range(4)))


async def test_no_more_threads_are_started_than_allowed_and_the_rest_wait() -> None:
    workers = Workers(limit=2)
    seen: set[int] = set()

    def note() -> None:
        seen.add(threading.get_ident())

    await asyncio.gather(*(workers.run(note) for _ in range(50)))
    assert 1 <= len(seen) <= 2


async def test_a_thread_is_used_again_when_it_is_free() -> None:
    workers = Workers(limit=8)
    threads = [await workers.run(threading.get_ident) for _ in range(20)]
    assert len(set(threads)) == 1


async def test_a_hung_function_makes_room_for_another_thread_when_its_caller_has_gone() -> None:
    workers = Workers(limit=1)
    release = threading.Event()
    started = asyncio.Event()
    loop = asyncio.get_running_loop()

    def hang() -> None:
        loop.call_soon_threadsafe(started.set)
        release.wait(SECONDS)

    hung = asyncio.create_task(workers.run(hang))
    await started.wait()
    waiting = asyncio.create_task(workers.run(str, 1))
    await asyncio.sleep(0)
    hung.cancel()
    assert await waiting == "1"
    assert hung.cancelled()
    release.set()


async def test_a_function_whose_caller_went_before_it_began_never_runs() -> None:
    workers = Workers(limit=1)
    release = threading.Event()
    ran: list[str] = []
    first = asyncio.create_task(workers.run(release.wait, SECONDS))
    second = asyncio.create_task(workers.run(ran.append, "second"))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.sleep(0)
    release.set()
    await first
    assert await workers.run(str, 1) == "1"
    assert not ran


async def test_a_written_off_thread_comes_back_when_its_function_does() -> None:
    workers = Workers(limit=1)
    release, back = threading.Event(), threading.Event()
    started = asyncio.Event()
    loop = asyncio.get_running_loop()

    def hang() -> int:
        loop.call_soon_threadsafe(started.set)
        release.wait(SECONDS)
        back.set()
        return threading.get_ident()

    hung = asyncio.create_task(workers.run(hang))
    await started.wait()
    hung.cancel()
    await asyncio.sleep(0)
    release.set()
    assert back.wait(SECONDS)
    idents = {await workers.run(threading.get_ident) for _ in range(5)}
    assert len(idents) <= 2


async def test_results_that_are_ready_together_wake_the_loop_once(monkeypatch: pytest.MonkeyPatch) -> None:
    workers = Workers(limit=8)
    loop = asyncio.get_running_loop()
    ready = threading.Barrier(9)
    wakeups: list[Any] = []

    def wake(callback: Any, *args: Any, context: Any = None) -> Any:
        wakeups.append(callback)
        return type(loop).call_soon_threadsafe(loop, callback, *args, context=context)

    monkeypatch.setattr(loop, "call_soon_threadsafe", wake)
    jobs = [asyncio.create_task(workers.run(ready.wait, SECONDS)) for _ in range(8)]
    await asyncio.sleep(0)
    ready.wait(SECONDS)
    finished = workers._inboxes[loop]._finished
    ends = time.monotonic() + SECONDS
    while len(finished) < 8 and time.monotonic() < ends:
        time.sleep(0.001)  # noqa: ASYNC251 - the loop has to stand still
    await asyncio.gather(*jobs)
    assert len(wakeups) == 1


def test_several_loops_in_several_threads_share_the_threads() -> None:
    workers = Workers(limit=4)
    results: list[int] = []

    async def work(start: int) -> None:
        results.extend(await asyncio.gather(*(workers.run(abs, -number) for number in range(start, start + 100))))

    threads = [threading.Thread(target=lambda n=n: asyncio.run(work(n * 100))) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    assert sorted(results) == list(range(400))


def test_a_loop_that_is_closed_before_the_function_ends_is_no_problem() -> None:
    workers = Workers(limit=1)
    release = threading.Event()

    async def leave() -> None:
        task = asyncio.create_task(workers.run(release.wait, SECONDS))
        await asyncio.sleep(0)
        task.cancel()

    asyncio.run(leave())
    release.set()
    assert asyncio.run(workers.run(str, 1)) == "1"


def test_a_hung_function_does_not_keep_the_process_alive() -> None:
    program = """
import asyncio, time
from toolnexus import _workers
async def main():
    task = asyncio.create_task(_workers.run(time.sleep, 600))
    await asyncio.sleep(0)
    task.cancel()
asyncio.run(main())
print("done")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
def test_a_forked_process_starts_threads_of_its_own() -> None:
    program = """
import asyncio, os
from toolnexus import _workers
asyncio.run(_workers.run(str, 1))
child = os.fork()
if child == 0:
    asyncio.run(_workers.run(str, 1))
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("7\n", "")
