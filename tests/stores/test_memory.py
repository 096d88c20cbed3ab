from __future__ import annotations

import asyncio
import threading

import pytest

from toolnexus import ConfigurationError, InMemoryConversationStore, InvalidTranscript
from toolnexus.stores import records
from toolnexus.stores.backend import NOTHING, Key, Owner
from toolnexus.stores.memory import MemoryBackend
from toolnexus.stores.process import this_process

HELLO = {"role": "user", "content": "hello"}
CALLED = {
    "role": "assistant",
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 2}'}}],
}


async def test_an_unknown_id_is_none_and_an_empty_conversation_is_not() -> None:
    store = InMemoryConversationStore()
    await store.save("empty", [])
    assert await store.get("nobody") is None
    assert await store.get("empty") == []


async def test_changing_what_was_saved_or_read_never_reaches_the_store() -> None:
    store = InMemoryConversationStore()
    messages = [HELLO, {**CALLED, "tool_calls": [{**CALLED["tool_calls"][0], "function": {"name": "add"}}]}]
    await store.save("c", messages)
    messages[1]["tool_calls"][0]["function"]["name"] = "changed"
    read = await store.get("c")
    read[1]["tool_calls"][0]["function"]["name"] = "changed too"
    read.clear()
    assert (await store.get("c"))[1]["tool_calls"][0]["function"]["name"] == "add"


async def test_values_that_no_json_has_are_refused_with_their_place_and_nothing_is_stored() -> None:
    store = InMemoryConversationStore()
    await store.save("c", [HELLO])
    with pytest.raises(InvalidTranscript, match=r"messages\[1\].native\.score"):
        await store.save("c", [HELLO, {"role": "assistant", "content": "x", "native": {"score": float("nan")}}])
    assert await store.get("c") == [HELLO]


async def test_big_integers_and_nul_survive_and_lone_surrogates_are_replaced() -> None:
    store = InMemoryConversationStore()
    await store.save("c", [{"role": "user", "content": "a\0b\ud800", "x": 2**70}])
    assert await store.get("c") == [{"role": "user", "content": "a\0b�", "x": 2**70}]


async def test_a_bounded_store_forgets_the_least_recently_used_conversation() -> None:
    store = InMemoryConversationStore(max_conversations=2)
    await store.save("a", [HELLO])
    await store.save("b", [HELLO])
    await store.get("a")
    await store.save("c", [HELLO])
    assert [await store.get(id) is not None for id in "abc"] == [True, False, True]


async def test_a_conversation_that_is_held_is_not_forgotten() -> None:
    store = InMemoryConversationStore(max_conversations=1)
    hold = await store.take("held", lambda _log, _version: [records.meta({"title": "mine"})], wait=0)
    await store.save("a", [HELLO])
    await store.save("b", [HELLO])
    await hold.end(head=lambda: None)
    assert [await store.get(id) for id in ("held", "a", "b")] == [[], None, None]


async def test_the_turn_of_a_process_that_is_gone_is_free_at_once() -> None:
    backend = MemoryBackend()
    gone = Owner(token="1" * 32, process=f"{this_process().rpartition('|')[0]}|0")
    here = Owner(token="2" * 32, process=this_process())
    key = Key("", "c")
    first = await backend.begin(key, owner=gone, ttl=60, expect=NOTHING, records=[b"{}"])
    seen = await backend.read(key)
    assert (seen.lease.owner, seen.lease.left) == (gone, 0)
    second = await backend.begin(key, owner=here, ttl=60, expect=first.version, records=())
    assert second.fence > first.fence
    assert await backend.begin(key, owner=gone, ttl=60, expect=NOTHING, records=()) is None


def test_a_bound_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="at least 1"):
        InMemoryConversationStore(max_conversations=0)


def test_several_loops_in_several_threads_share_one_store() -> None:
    store = InMemoryConversationStore(max_conversations=8)

    async def use(name: str) -> None:
        for turn in range(50):
            await store.save(f"{name}{turn % 4}", [HELLO] * turn)
            await store.get(name)

    threads = [threading.Thread(target=lambda name=name: asyncio.run(use(name))) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    async def kept() -> int:
        return sum([await store.get(f"{name}{turn}") is not None for name in "abcd" for turn in range(4)])

    assert asyncio.run(kept()) == 8
