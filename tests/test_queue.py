"""Many turns at once: on many conversations they overlap, on one they wait for each other."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from typing import Any

import pytest
from local import Seen, said, server
from test_memory import Noting, client_of, count

from toolnexus import ConversationBusy, InMemoryConversationStore, RunTimeout, _queue


def whole_turns(messages: list[Any]) -> list[tuple[str, str]]:
    """The (prompt, answer) pairs; fails if turns interleave."""
    assert [m["role"] for m in messages] == ["user", "assistant"] * (len(messages) // 2)
    return [(q["content"], a["content"]) for q, a in zip(messages[::2], messages[1::2], strict=True)]


def check_kept(messages: list[Any], prompts: list[str]) -> None:
    pairs = whole_turns(messages)
    assert sorted(prompt for prompt, _ in pairs) == sorted(prompts)
    assert [answer for _, answer in pairs] == [str(2 * n + 1) for n in range(len(pairs))]


PROMPTS = [f"p{n}" for n in range(20)]


async def test_200_asks_on_200_ids_overlap() -> None:
    async def slow(_: Seen) -> Any:
        await asyncio.sleep(0.5)
        return said("ok")

    async with server(slow) as at, client_of(at.url) as client:
        began = time.monotonic()
        results = await asyncio.gather(*(client.ask("hi", id=f"u{n}") for n in range(200)))
        took = time.monotonic() - began

    assert [result.text for result in results] == ["ok"] * 200
    assert took < 5


@pytest.mark.parametrize("make", [InMemoryConversationStore, Noting])
async def test_20_asks_on_one_id_lose_nothing_and_never_interleave(make: Any) -> None:
    store = make()
    async with server(count) as at, client_of(at.url, store=store) as client:
        await asyncio.gather(*(client.ask(prompt, id="u1") for prompt in PROMPTS))

    check_kept(await store.get("u1"), PROMPTS)


async def test_two_clients_on_one_store_object_share_the_queue() -> None:
    store = Noting()
    async with server(count) as at, client_of(at.url, store=store) as one, client_of(at.url, store=store) as two:
        await asyncio.gather(*((one, two)[n % 2].ask(prompt, id="u1") for n, prompt in enumerate(PROMPTS)))

    check_kept(store.kept["u1"], PROMPTS)


async def test_two_threads_with_ask_sync_share_the_queue_with_a_loop() -> None:
    store = Noting()
    async with server(count) as at, client_of(at.url, store=store) as here:
        there = client_of(at.url, store=store)

        def ask(prompts: list[str]) -> None:
            for prompt in prompts:
                there.ask_sync(prompt, id="u1")

        threads = [asyncio.to_thread(ask, PROMPTS[n : n + 5]) for n in (0, 5)]
        await asyncio.gather(*threads, *(here.ask(prompt, id="u1") for prompt in PROMPTS[10:]))
        await asyncio.to_thread(there.close)

    check_kept(store.kept["u1"], PROMPTS)


async def test_busy_raise_does_not_wait() -> None:
    inside, go = asyncio.Event(), asyncio.Event()

    async def answer(_: Seen) -> Any:
        inside.set()
        await go.wait()
        return said("ok")

    async with server(answer) as at, client_of(at.url) as client:
        first = asyncio.create_task(client.ask("hi", id="u1"))
        await inside.wait()
        with pytest.raises(ConversationBusy, match="'u1'"):
            await client.ask("hi", id="u1", busy="raise")
        with pytest.raises(ConversationBusy):
            await client.ask("hi", id="u1", busy_timeout=0.05)
        with pytest.raises(RunTimeout):
            await client.ask("hi", id="u1", timeout=0.05)
        go.set()
        await first
        assert (await client.ask("hi", id="u1")).text == "ok"


async def test_a_turn_that_gives_up_waiting_lets_the_next_one_in() -> None:
    inside, go = asyncio.Event(), asyncio.Event()

    async def answer(seen: Seen) -> Any:
        inside.set()
        await go.wait()
        return said(seen.said[-1]["content"])

    async with server(answer) as at, client_of(at.url) as client:
        first = asyncio.create_task(client.ask("1", id="u1"))
        await inside.wait()
        second = asyncio.create_task(client.ask("2", id="u1"))
        third = asyncio.create_task(client.ask("3", id="u1"))
        await asyncio.sleep(0)
        second.cancel()
        go.set()
        assert (await first).text == "1"
        assert (await third).text == "3"
        with pytest.raises(asyncio.CancelledError):
            await second


async def test_a_loop_that_died_with_the_turn_does_not_hold_it_for_ever() -> None:
    store = Noting()

    def die_inside() -> None:
        loop = asyncio.new_event_loop()
        loop.run_until_complete(_queue.take(store, "u1", wait=0, deadline=None))
        loop.close()

    await asyncio.to_thread(die_inside)
    async with server(count) as at, client_of(at.url, store=store) as client:
        assert (await client.ask("hi", id="u1", busy_timeout=5)).text == "1"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
def test_a_forked_process_does_not_wait_for_the_turns_of_its_parent() -> None:
    program = """
import asyncio, os, warnings
from toolnexus import _queue
warnings.simplefilter("ignore", DeprecationWarning)
store = []
loop = asyncio.new_event_loop()
place = loop.run_until_complete(_queue.take(store, "c", wait=0, deadline=None))
if (child := os.fork()) == 0:
    asyncio.run(_queue.take(store, "c", wait=0, deadline=None))
    os._exit(7)
place.leave()
loop.close()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("7\n", "")
