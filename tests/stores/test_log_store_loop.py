"""A long conversation that is loaded keeps nobody waiting."""

from __future__ import annotations

import asyncio

import pytest
from heartbeat import heartbeat

from toolnexus.errors import CorruptConversation
from toolnexus.stores import records
from toolnexus.stores.backend import NOTHING, Key, Owner
from toolnexus.stores.logstore import LogStore
from toolnexus.stores.memory import MemoryBackend

MESSAGES = 20_000


async def filled(backend: MemoryBackend, *, broken: bool = False) -> None:
    """A conversation of many turns, written record by record."""
    bodies: list[bytes] = []
    for number in range(MESSAGES // 2):
        turn = f"{number:032x}"
        fields = records.opened(turn, {"role": "user", "content": "x" * 200}, at=1.0, saw=2 * number)
        answer = records.message({"role": "assistant", "content": "y" * 200})
        ended = records.ended(turn, "done", kept=True, outcome={})
        bodies += [records.encode(each) for each in (*fields, answer, ended)]
    if broken:
        bodies[-1] = b'{"v": 1, "k": "none"}'
    owner = Owner(token="0" * 32, process="test")
    grant = await backend.begin(Key("", "c"), owner=owner, ttl=60, expect=NOTHING, records=bodies)
    assert grant is not None
    await backend.append(grant, (), expect=len(bodies), release=True)


async def test_the_event_loop_goes_on_while_a_long_conversation_is_loaded() -> None:
    backend = MemoryBackend()
    await filled(backend)
    async with heartbeat() as heart:
        loaded = await LogStore(backend).load("c")
    assert len(loaded[0]) == MESSAGES
    assert heart.longest < 0.15  # some 30 ms; all at once takes twice the bound


async def test_a_turn_whose_conversation_cannot_be_read_is_given_back() -> None:
    backend = MemoryBackend()
    await filled(backend, broken=True)
    with pytest.raises(CorruptConversation):
        await LogStore(backend).take("c", lambda log, version: (), wait=0)
    seen = await backend.read(Key("", "c"))
    assert seen is not None
    assert seen.lease is None


async def test_a_turn_that_is_cancelled_while_it_is_loaded_is_given_back() -> None:
    backend = MemoryBackend()
    await filled(backend)
    taking = asyncio.create_task(LogStore(backend).take("c", lambda log, version: (), wait=0))
    await asyncio.sleep(0)
    taking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await taking
    seen = await backend.read(Key("", "c"))
    assert seen is not None
    assert seen.lease is None
