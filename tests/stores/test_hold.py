"""Turns on a store that fails now and then: what was recorded is what is remembered, here and elsewhere."""

from __future__ import annotations

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
