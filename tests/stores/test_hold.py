"""Turns on a store that fails now and then: what was recorded is what is remembered, here and elsewhere."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from toolnexus.errors import StoreError
from toolnexus.stores import records
from toolnexus.stores.logstore import LogStore
from toolnexus.stores.memory import MemoryBackend


class Flaky(MemoryBackend):
    """Fails the next appends, before or after they are stored."""

    def __init__(self, *, stores: bool) -> None:
        super().__init__()
        self.fails = 0
        self._stores = stores

    async def append(self, *args: Any, **more: Any) -> int:
        fails, self.fails = self.fails > 0, max(self.fails - 1, 0)
        if fails and not self._stores:
            raise StoreError("no connection")
        last = await super().append(*args, **more)
        if fails:
            raise StoreError("no answer")
        return last


@pytest.mark.parametrize("stores", [False, True], ids=["lost", "unacknowledged"])
async def test_what_a_failed_append_held_is_recorded_with_the_end(stores: bool) -> None:
    backend = Flaky(stores=stores)
    store = LogStore(backend)
    prompt: Any = {"role": "user", "content": "pay"}
    answer: Any = {"role": "assistant", "content": "paid"}
    more: Any = {"role": "assistant", "content": "twice"}
    hold = await store.take("c", lambda *_: records.opened("t1", prompt, at=1.0, saw=0), wait=0)
    backend.fails = 2
    for message in (answer, more):
        with pytest.raises(StoreError):
            await hold.add(records.message(message))
    await hold.end(records.ended("t1", "failed", kept=True, outcome={}), head=lambda: None)
    store.keep(hold)

    assert await store.get("c") == await LogStore(backend).get("c") == [prompt, answer, more]
    assert await store.check("c") == []


class Slow(Flaky):
    """Answers after some rounds of the event loop, and gives up when cancelled."""

    async def append(self, *args: Any, **more: Any) -> int:
        for _ in range(3):
            await asyncio.sleep(0)
        return await super().append(*args, **more)


@pytest.mark.parametrize("rounds", range(1, 6))
async def test_an_end_that_has_to_follow_other_records_is_recorded_although_it_is_cancelled(rounds: int) -> None:
    backend = Slow(stores=False)
    store = LogStore(backend)
    prompt: Any = {"role": "user", "content": "pay"}
    answer: Any = {"role": "assistant", "content": "paid"}
    hold = await store.take("c", lambda *_: records.opened("t1", prompt, at=1.0, saw=0), wait=0)
    backend.fails = 1
    with pytest.raises(StoreError):
        await hold.add(records.message(answer))
    ending = asyncio.create_task(
        hold.end(records.ended("t1", "failed", kept=True, outcome={}), head=lambda: None),
    )
    for _ in range(rounds):
        await asyncio.sleep(0)
    ending.cancel()
    await asyncio.wait({ending})

    assert ending.cancelled()
    elsewhere = LogStore(backend)
    assert await elsewhere.get("c") == [prompt, answer]
    await (await elsewhere.take("c", lambda *_: [], wait=0)).give_up()
