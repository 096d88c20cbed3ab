from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

import pytest

from toolnexus.errors import StoreError
from toolnexus.stores import connections
from toolnexus.stores.connections import Connections, Seat

T = TypeVar("T")


class Wire:
    """A connection that remembers who used it."""

    def __init__(self) -> None:
        self.opened_in = threading.get_ident()
        self.closed = threading.Event()

    def close(self) -> None:
        assert threading.get_ident() == self.opened_in
        self.closed.set()


class Pool:
    def __init__(self, size: int) -> None:
        self.wires: list[Wire] = []
        self.connections = Connections(self._open, Wire.close, size=size)

    def _open(self) -> Wire:
        self.wires.append(Wire())
        return self.wires[-1]


async def test_a_connection_is_opened_once_and_kept() -> None:
    pool = Pool(4)
    used = [await pool.connections.run(Seat.take) for _ in range(5)]
    assert used == pool.wires * 5
    await pool.connections.aclose()
    assert pool.wires[0].closed.is_set()


async def test_there_are_never_more_connections_than_the_size() -> None:
    pool = Pool(3)
    meeting = threading.Barrier(3)

    def work(seat: Seat[Wire]) -> Wire:
        meeting.wait(10)  # passes only when three work at once
        return seat.take()

    await asyncio.gather(*(pool.connections.run(work) for _ in range(12)))
    assert len(pool.wires) == 3
    await pool.connections.aclose()


async def test_a_dropped_connection_is_replaced() -> None:
    pool = Pool(1)

    def work(seat: Seat[Wire]) -> tuple[Wire, Wire]:
        first = seat.take()
        seat.drop()
        return first, seat.take()

    first, second = await pool.connections.run(work)
    assert first is not second
    assert (first.closed.is_set(), second.closed.is_set()) == (True, False)
    await pool.connections.aclose()


async def test_an_error_goes_to_the_caller_and_the_thread_lives_on() -> None:
    pool = Pool(1)

    def fail(seat: Seat[Wire]) -> None:
        raise LookupError(seat.take())

    with pytest.raises(LookupError):
        await pool.connections.run(fail)
    assert await pool.connections.run(Seat.take) is pool.wires[0]
    await pool.connections.aclose()


async def test_what_was_asked_for_before_closing_is_done_and_nothing_after_it() -> None:
    pool = Pool(1)
    asked = [asyncio.ensure_future(pool.connections.run(Seat.take)) for _ in range(3)]
    await asyncio.sleep(0)  # they are handed over
    await pool.connections.aclose()
    await pool.connections.aclose()
    assert await asyncio.gather(*asked) == pool.wires * 3
    with pytest.raises(StoreError, match="closed"):
        await pool.connections.run(Seat.take)


async def test_an_idle_thread_closes_its_connection_and_another_starts_when_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "_IDLE", 0.01)
    pool = Pool(1)
    first = await pool.connections.run(Seat.take)
    assert await asyncio.to_thread(first.closed.wait, 10)
    assert await pool.connections.run(Seat.take) is not first
    await pool.connections.aclose()


async def test_jobs_that_come_while_threads_go_idle_are_all_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_IDLE", 0.0)
    pool = Pool(2)
    for number in range(300):
        assert await pool.connections.run(lambda _, number=number: number) == number
    await pool.connections.aclose()


async def test_a_server_that_does_not_answer_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_PATIENCE", 0.01)
    monkeypatch.setattr("toolnexus.clock.ENDING", 0.0)
    pool = Pool(1)
    answer = threading.Event()
    with pytest.raises(StoreError, match="did not answer"):
        await pool.connections.run(lambda _: answer.wait(10))
    answer.set()
    await pool.connections.aclose()


def test_an_outcome_that_comes_after_its_event_loop_is_gone_harms_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolnexus.clock.ENDING", 0.0)
    pool = Pool(1)
    answer = threading.Event()
    with monkeypatch.context() as impatient:
        impatient.setattr(connections, "_PATIENCE", 0.01)
        with pytest.raises(StoreError, match="did not answer"):
            asyncio.run(pool.connections.run(lambda _: answer.wait(10)))
    answer.set()
    assert asyncio.run(pool.connections.run(Seat.take)) is pool.wires[0]
    asyncio.run(pool.connections.aclose())


async def test_a_cancelled_caller_waits_for_the_outcome() -> None:
    pool = Pool(1)
    started, answer = threading.Event(), threading.Event()
    done: list[bool] = []

    def work(_: Seat[Wire]) -> None:
        started.set()
        done.append(answer.wait(10))

    caller = asyncio.ensure_future(pool.connections.run(work))
    await asyncio.to_thread(started.wait, 10)
    caller.cancel()
    await asyncio.sleep(0)
    assert not caller.done()
    answer.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert done == [True]
    await pool.connections.aclose()


def test_several_event_loops_share_the_connections() -> None:
    pool = Pool(1)

    def in_a_loop(work: Callable[[Seat[Wire]], T]) -> T:
        return asyncio.run(pool.connections.run(work))

    assert in_a_loop(Seat.take) is in_a_loop(Seat.take)
    asyncio.run(pool.connections.aclose())
