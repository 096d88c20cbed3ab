"""The table of how turns end, on a store of two methods: both outcomes of every row; and what differs on a log."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from local import Seen, Status, delta, in_kind, said, server
from test_memory import Noting, client_of

from toolnexus import (
    Event,
    InMemoryConversationStore,
    ProviderError,
    RunTimeout,
    TextDelta,
    ToolnexusError,
    define_tool,
)
from toolnexus._stream import RunStream
from toolnexus.errors import ConversationFenced
from toolnexus.stores.logstore import LogStore
from toolnexus.stores.memory import MemoryBackend

UNKNOWN = "interrupted: outcome unknown"


class Shop:
    """Tools that act, and a note of what they did."""

    def __init__(self) -> None:
        self.charged: list[int] = []
        self.began = asyncio.Event()
        self.tools = [
            define_tool(self.charge),
            define_tool(self.look, read_only=True),
            define_tool(self.hang),
            define_tool(self.stare, read_only=True),
        ]

    async def charge(self, amount: int) -> str:
        self.charged.append(amount)
        return f"charged {amount}"

    async def look(self) -> str:
        return "seen"

    async def hang(self) -> str:
        self.began.set()
        await asyncio.Event().wait()
        return "never"

    async def stare(self) -> str:
        self.began.set()
        await asyncio.Event().wait()
        return "never"


def first(*calls: tuple[str, dict[str, Any]], then: Any) -> Any:
    """Ask for the calls first, and answer `then` afterwards."""

    def answer(seen: Seen) -> Any:
        return in_kind(seen, "Working.", *calls) if seen.number == 1 else then

    return answer


def shapes(messages: list[Any]) -> list[Any]:
    return [(message["role"], message.get("content")) for message in messages]


async def read(stream: RunStream) -> list[Event]:
    async with stream as events:
        return [event async for event in events]


FAILURE = Status(400, {"error": {"message": "no more"}})
CHARGE = ("charge", {"amount": 3})
LOOK = ("look", {})


async def test_done_is_one_get_and_one_save() -> None:
    store = Noting()
    async with server(first(CHARGE, then=said("Paid."))) as at, client_of(at.url, store=store) as client:
        result = await client.ask("pay", Shop().tools, id="u1")

    assert store.calls == ["get:u1", "save:u1"]
    assert result.status == "done"
    assert shapes(store.kept["u1"]) == [
        ("user", "pay"),
        ("assistant", "Working."),
        ("tool", "charged 3"),
        ("assistant", "Paid."),
    ]


async def test_a_step_limit_is_incomplete_and_saved_with_only_this_runs_text() -> None:
    store = Noting()
    await store.save("u1", [{"role": "user", "content": "old"}, {"role": "assistant", "content": "older words"}])
    store.calls.clear()
    async with server(first(CHARGE, then=said("Paid."))) as at, client_of(at.url, store=store) as client:
        result = await client.ask("pay", Shop().tools, id="u1", max_steps=1)

    assert store.calls == ["get:u1", "save:u1"]
    assert (result.status, result.limit, result.text) == ("incomplete", "max_steps", "Working.")
    assert shapes(store.kept["u1"])[-1] == ("tool", "charged 3")


async def test_an_output_limit_is_incomplete_and_saved() -> None:
    store = Noting()

    def cut(_: Seen) -> Any:
        return said("Half an ans", finish="length")

    async with server(cut) as at, client_of(at.url, store=store) as client:
        result = await client.ask("tell", id="u1")

    assert (result.status, result.limit, result.finish_reason) == ("incomplete", "max_tokens", "length")
    assert store.calls == ["get:u1", "save:u1"]


async def test_an_error_before_any_tool_saves_nothing() -> None:
    store = Noting()
    async with server(lambda _: FAILURE) as at, client_of(at.url, store=store) as client:
        with pytest.raises(ProviderError) as caught:
            await client.ask("pay", Shop().tools, id="u1")

    assert store.calls == ["get:u1"]
    assert caught.value.partial is None


async def test_an_error_after_a_tool_that_only_read_saves_nothing() -> None:
    store = Noting()
    async with server(first(LOOK, then=FAILURE)) as at, client_of(at.url, store=store) as client:
        with pytest.raises(ProviderError) as caught:
            await client.ask("look", Shop().tools, id="u1")

    assert store.calls == ["get:u1"]
    assert caught.value.partial is not None
    assert [call.output for call in caught.value.partial.tool_calls] == ["seen"]


async def test_an_error_after_a_tool_that_acted_is_exactly_one_save_with_call_and_result() -> None:
    store, shop = Noting(), Shop()
    async with server(first(CHARGE, then=FAILURE)) as at, client_of(at.url, store=store) as client:
        with pytest.raises(ProviderError) as caught:
            await client.ask("pay", shop.tools, id="u1")

    assert store.calls == ["get:u1", "save:u1"]
    assert shapes(store.kept["u1"]) == [("user", "pay"), ("assistant", "Working."), ("tool", "charged 3")]
    assert shop.charged == [3]
    assert caught.value.partial is not None
    assert (caught.value.partial.status, caught.value.partial.text) == ("failed", "Working.")


async def cancelled_while(tool: str, store: Noting, **options: Any) -> list[Any]:
    """Cancel an ask while `charge` is done and `tool` runs; then what the next request says."""
    shop = Shop()

    def answer(seen: Seen) -> Any:
        return said(None, CHARGE if tool == "hang" else LOOK, (tool, {})) if seen.number == 1 else said("Well.")

    async with server(answer) as at, client_of(at.url, store=store) as client:
        task = asyncio.create_task(client.ask("pay", shop.tools, id="u1", **options))
        await shop.began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await client.ask("and?", shop.tools, id="u1")
        return at.seen[1].said


async def test_a_cancel_while_a_tool_acts_says_so_in_the_next_request() -> None:
    store = Noting()
    sent = await cancelled_while("hang", store)

    assert store.calls == ["get:u1", "save:u1", "get:u1", "save:u1"]
    assert [(m["role"], m.get("content")) for m in sent] == [
        ("user", "pay"),
        ("assistant", sent[1].get("content")),
        ("tool", "charged 3"),
        ("tool", UNKNOWN),
        ("user", "and?"),
    ]


async def test_a_cancel_while_only_reading_leaves_no_trace() -> None:
    store = Noting()
    sent = await cancelled_while("stare", store)

    assert store.calls == ["get:u1", "get:u1", "save:u1"]
    assert [m["content"] for m in sent] == ["and?"]


async def test_a_deadline_after_a_tool_acted_keeps_the_turn() -> None:
    store, shop = Noting(), Shop()
    forever = asyncio.Event()

    async def answer(seen: Seen) -> Any:
        if seen.number == 1:
            return said(None, CHARGE)
        await forever.wait()
        return said("late")

    async with server(answer) as at, client_of(at.url, store=store) as client:
        with pytest.raises(RunTimeout) as caught:
            await client.ask("pay", shop.tools, id="u1", timeout=0.3)

    assert store.calls == ["get:u1", "save:u1"]
    assert caught.value.partial is not None
    assert caught.value.partial.tool_calls[0].output == "charged 3"


async def test_a_deadline_before_anything_acted_saves_nothing() -> None:
    store = Noting()
    forever = asyncio.Event()

    async def answer(_: Seen) -> Any:
        await forever.wait()

    async with server(answer) as at, client_of(at.url, store=store) as client:
        with pytest.raises(RunTimeout):
            await client.ask("pay", id="u1", timeout=0.2)

    assert store.calls == ["get:u1"]


@pytest.mark.parametrize("acts", [True, False])
async def test_a_reader_that_leaves_a_stream_ends_the_turn_as_the_table_says(acts: bool) -> None:
    store, shop = Noting(), Shop()
    endless = asyncio.Event()

    async def babble() -> Any:
        yield delta("Wel")
        await endless.wait()

    def answer(seen: Seen) -> Any:
        return in_kind(seen, None, CHARGE if acts else LOOK) if seen.number == 1 else babble()

    async with server(answer) as at, client_of(at.url, store=store) as client:
        async with client.stream("pay", shop.tools, id="u1") as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    break
        await asyncio.wait_for(at.seen[1].gone.wait(), 5)

    assert store.calls == (["get:u1", "save:u1"] if acts else ["get:u1"])


async def test_text_that_was_still_streaming_is_in_partial_and_not_in_history() -> None:
    store = Noting()

    def answer(_: Seen) -> Any:
        return [delta("The tide "), delta("ta")]

    async with server(answer) as at, client_of(at.url, store=store, retries=0) as client:
        with pytest.raises(ToolnexusError) as caught:
            await read(client.stream("tide?", id="u1"))

    assert caught.value.partial is not None
    assert caught.value.partial.text == "The tide ta"
    assert store.calls == ["get:u1"]


async def test_keep_interrupted_keeps_the_prompt_and_what_was_said() -> None:
    store = Noting()
    endless = asyncio.Event()

    async def babble() -> Any:
        yield delta("Wel")
        await endless.wait()

    async with (
        server(lambda _: babble()) as at,
        client_of(at.url, store=store) as client,
        client.stream("talk", id="u1", keep_interrupted=True) as events,
    ):
        await anext(events)

    assert store.kept["u1"] == [
        {"role": "user", "content": "talk"},
        {"role": "assistant", "content": "Wel", "interrupted": True},
    ]


async def test_keep_interrupted_keeps_a_prompt_that_got_no_word() -> None:
    store = Noting()
    asked, forever = asyncio.Event(), asyncio.Event()

    async def answer(_: Seen) -> Any:
        asked.set()
        await forever.wait()

    async with server(answer) as at, client_of(at.url, store=store) as client:
        task = asyncio.create_task(client.ask("talk", id="u1", keep_interrupted=True))
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    assert store.kept["u1"] == [{"role": "user", "content": "talk", "interrupted": True}]


async def test_keep_interrupted_marks_such_a_prompt_on_a_log_store_too() -> None:
    store = InMemoryConversationStore()
    asked, forever = asyncio.Event(), asyncio.Event()

    async def answer(_: Seen) -> Any:
        asked.set()
        await forever.wait()

    async with server(answer) as at, client_of(at.url, store=store) as client:
        task = asyncio.create_task(client.ask("talk", id="u1", keep_interrupted=True))
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    assert await store.get("u1") == [{"role": "user", "content": "talk", "interrupted": True}]


async def test_a_turn_that_is_taken_over_carries_what_it_had_come_to() -> None:
    shop = Shop()
    backend = MemoryBackend()
    answer = first(CHARGE, ("hang", {}), then="never")
    async with server(answer) as at, client_of(at.url, store=LogStore(backend, lease=0.03)) as client:
        task = asyncio.create_task(client.ask("charge", shop.tools, id="u1"))
        await shop.began.wait()
        await LogStore(backend).delete("u1")
        with pytest.raises(ConversationFenced) as caught:
            await task

    assert caught.value.partial is not None
    assert (caught.value.partial.status, caught.value.partial.text) == ("failed", "Working.")
    assert [call.output for call in caught.value.partial.tool_calls] == ["charged 3"]


async def test_a_cancel_during_the_save_waits_for_the_save_and_goes_on() -> None:
    saving, saved = asyncio.Event(), asyncio.Event()

    class Slow(Noting):
        async def save(self, id: str, messages: list[Any]) -> None:
            saving.set()
            await saved.wait()
            await super().save(id, messages)

    store = Slow()
    async with server(lambda _: said("ok")) as at, client_of(at.url, store=store) as client:
        task = asyncio.create_task(client.ask("hi", id="u1"))
        await saving.wait()
        task.cancel()
        await asyncio.sleep(0)
        saved.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    assert len(store.kept["u1"]) == 2


async def test_what_goes_wrong_while_a_failed_turn_is_kept_is_added_to_the_first_error() -> None:
    class Broken(Noting):
        async def save(self, id: str, messages: list[Any]) -> None:
            raise OSError("disk full")

    async with server(first(CHARGE, then=FAILURE)) as at, client_of(at.url, store=Broken()) as client:
        with pytest.raises(ProviderError, match="no more") as caught:
            await client.ask("pay", Shop().tools, id="u1")

    assert any("could not be saved" in note for note in caught.value.__notes__)
