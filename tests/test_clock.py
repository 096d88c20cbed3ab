from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

import pytest

from toolnexus.clock import Outcome, settled

Waiting: TypeAlias = Callable[[], tuple[asyncio.Future[str], Coroutine[Any, Any, str]]]
"""A future, and what waits for it to a known outcome."""


def _settling() -> tuple[asyncio.Future[str], Coroutine[Any, Any, str]]:
    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    return future, settled(future)


def _settled() -> tuple[asyncio.Future[str], Coroutine[Any, Any, str]]:
    outcome: Outcome[str] = Outcome(loop=asyncio.get_running_loop())

    async def wait() -> str:
        return await outcome

    return outcome, wait()


@pytest.fixture(params=[_settling, _settled], ids=["settled", "an outcome"])
def waiting(request: pytest.FixtureRequest) -> Waiting:
    return request.param


async def test_what_is_not_cancelled_is_as_if_it_was_awaited(waiting: Waiting) -> None:
    future, work = waiting()
    future.get_loop().call_soon(future.set_result, "done")
    assert await work == "done"
    future, work = waiting()
    future.get_loop().call_soon(future.set_exception, ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        await work


async def test_a_cancellation_waits_for_the_outcome_however_often_it_comes(waiting: Waiting) -> None:
    future, work = waiting()
    task = asyncio.create_task(work)
    for _ in range(3):
        await asyncio.sleep(0)
        task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    future.set_result("done")
    await asyncio.wait({task})
    assert task.cancelled()


async def test_a_cancellation_that_came_before_waits_too(waiting: Waiting) -> None:
    future, work = waiting()

    async def cancelled() -> str:
        current = asyncio.current_task()
        assert current is not None
        current.cancel()
        return await work

    task = asyncio.create_task(cancelled())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not task.done()
    future.set_result("done")
    await asyncio.wait({task})
    assert task.cancelled()


async def test_a_cancellation_does_not_wait_for_ever(
    waiting: Waiting, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("toolnexus.clock.ENDING", 0.0)
    future, work = waiting()
    task = asyncio.create_task(work)
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task}, timeout=10)
    assert task.cancelled()
    assert future.cancelled()
    assert [record.message for record in caplog.records] == [
        "A store did not answer within 0 s of a cancellation; what it did is unknown."
    ]


async def test_an_error_that_nobody_waits_for_any_more_is_logged(
    waiting: Waiting, caplog: pytest.LogCaptureFixture
) -> None:
    future, work = waiting()
    task = asyncio.create_task(work)
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    future.set_exception(ValueError("disk full"))
    await asyncio.wait({task})
    assert task.cancelled()
    assert [record.message for record in caplog.records] == ["A store failed while the run was cancelled: disk full"]


async def test_a_timeout_waits_for_the_outcome_and_is_one(waiting: Waiting) -> None:
    future, work = waiting()
    future.get_loop().call_later(0.05, future.set_result, "done")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await work
    assert future.result() == "done"
