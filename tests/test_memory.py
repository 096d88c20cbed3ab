"""What a conversation id is worth: memory through the client, on any store of two methods."""

from __future__ import annotations

from typing import Any

import pytest
from local import Seen, Status, in_kind, server

from toolnexus import (
    Client,
    Finished,
    InMemoryConversationStore,
    InvalidConversationId,
    StoreError,
    create_client,
)


def count(seen: Seen) -> Any:
    """Answers with the number of messages that it got."""
    return in_kind(seen, str(len(seen.said)))


def client_of(url: str, **options: Any) -> Client:
    return create_client("m", base_url=url, **options)


class Noting:
    """A store of two methods that notes what is asked of it."""

    def __init__(self) -> None:
        self.kept: dict[str, list[Any]] = {}
        self.calls: list[str] = []

    async def get(self, id: str) -> list[Any] | None:
        self.calls.append(f"get:{id}")
        return self.kept.get(id)

    async def save(self, id: str, messages: list[Any]) -> None:
        self.calls.append(f"save:{id}")
        self.kept[id] = messages


class NotingPlainly:
    """The same with plain functions."""

    def __init__(self) -> None:
        self.kept: dict[str, list[Any]] = {}
        self.calls: list[str] = []

    def get(self, id: str) -> list[Any] | None:
        self.calls.append(f"get:{id}")
        return self.kept.get(id)

    def save(self, id: str, messages: list[Any]) -> str:
        self.calls.append(f"save:{id}")
        self.kept[id] = messages
        return "ignored"


async def test_each_conversation_counts_its_own_messages() -> None:
    async with server(count) as at, client_of(at.url) as client:
        answers = [(await client.ask("hi", id="u1")).text for _ in range(3)]
        other = (await client.ask("hi", id="u2")).text
        forgotten = [(await client.ask("hi")).text for _ in range(2)]

    assert answers == ["1", "3", "5"]
    assert other == "1"
    assert forgotten == ["1", "1"]


async def test_a_stream_remembers_as_ask_does() -> None:
    answers: list[str] = []
    async with server(count) as at, client_of(at.url) as client:
        for _ in range(3):
            async with client.stream("hi", id="u1") as events:
                async for event in events:
                    if isinstance(event, Finished):
                        answers.append(event.result.text)

    assert answers == ["1", "3", "5"]


async def test_the_default_store_is_in_memory_and_a_given_one_is_the_very_object() -> None:
    store = Noting()
    async with client_of("http://127.0.0.1:1") as client:
        assert isinstance(client.conversation_store, InMemoryConversationStore)
    async with client_of("http://127.0.0.1:1", store=store) as client:
        assert client.conversation_store is store


@pytest.mark.parametrize("make", [Noting, NotingPlainly])
async def test_a_turn_is_one_get_and_one_save(make: type[Noting]) -> None:
    asked, streamed = make(), make()
    async with server(count) as at:
        async with client_of(at.url, store=asked) as client:
            await client.ask("hi", id="u1")
        async with client_of(at.url, store=streamed) as client, client.stream("hi", id="u1") as events:
            async for event in events:
                if isinstance(event, Finished):
                    assert streamed.calls == ["get:u1", "save:u1"]

    assert asked.calls == ["get:u1", "save:u1"]
    assert streamed.calls == ["get:u1", "save:u1"]


async def test_without_an_id_the_store_is_not_touched() -> None:
    store = Noting()
    async with server(count) as at, client_of(at.url, store=store) as client:
        await client.ask("hi")
        await client.run("hi")

    assert store.calls == []


async def test_a_fresh_client_on_the_same_store_continues() -> None:
    store = InMemoryConversationStore()
    async with server(count) as at:
        async with client_of(at.url, store=store) as client:
            await client.ask("one", id="u1")
            await client.ask("two", id="u1")
        async with client_of(at.url, store=store) as client:
            assert (await client.ask("three", id="u1")).text == "5"


async def test_a_store_seeded_by_hand_is_continued_in_order() -> None:
    store = InMemoryConversationStore()
    await store.save("c3", [{"role": "user", "content": "first"}, {"role": "assistant", "content": "second"}])
    async with server(count) as at, client_of(at.url, store=store) as client:
        await client.ask("third", id="c3")

    assert [message["content"] for message in at.seen[0].said] == ["first", "second", "third"]


async def test_a_host_that_rewinds_is_obeyed() -> None:
    store = InMemoryConversationStore()
    async with server(count) as at, client_of(at.url, store=store) as client:
        await client.ask("one", id="u1")
        await client.ask("two", id="u1")
        messages = await store.get("u1")
        assert messages is not None
        await store.save("u1", messages[:2])
        assert (await client.ask("three", id="u1")).text == "3"


async def test_a_conversation_without_messages_is_known_and_empty() -> None:
    store = Noting()
    store.kept["u1"] = []
    async with server(count) as at, client_of(at.url, store=store) as client:
        assert (await client.ask("hi", id="u1")).text == "1"


@pytest.mark.parametrize("toolkit", [None, [], ()])
async def test_no_tools_are_no_tool_key(toolkit: Any) -> None:
    async with server(count) as at, client_of(at.url) as client:
        await client.ask("hi", toolkit, id="u1")

    assert "tools" not in at.bodies[0]


async def test_a_system_prompt_is_sent_but_neither_stored_nor_counted() -> None:
    store = InMemoryConversationStore()
    async with server(count) as at:
        async with client_of(at.url, store=store, system_prompt="Be brief.") as client:
            assert (await client.ask("hi", id="u1")).text == "1"
        async with client_of(at.url, store=store, system_prompt="Be kind.") as client:
            result = await client.ask("hi", id="u1")

    assert result.text == "3"
    assert [m["role"] for m in result.messages] == ["user", "assistant", "user", "assistant"]
    assert [body["messages"][0] for body in at.bodies] == [
        {"role": "system", "content": "Be brief."},
        {"role": "system", "content": "Be kind."},
    ]
    assert all(message["role"] != "system" for message in await store.get("u1") or [])


async def test_a_stored_system_message_stays_first_and_is_sent_after_the_composed_one() -> None:
    store = InMemoryConversationStore()
    await store.save("u1", [{"role": "system", "content": "You are Ada."}])
    async with server(count) as at, client_of(at.url, store=store, system_prompt="Be brief.") as client:
        await client.ask("hi", id="u1")

    sent = at.bodies[0]["messages"]
    assert "".join(str(m["content"]) for m in sent).index("Be brief.") < str(sent).index("You are Ada.")
    assert (await store.get("u1") or [])[0] == {"role": "system", "content": "You are Ada."}


@pytest.mark.parametrize("bad", ["", 7, b"u1", ["u1"], "x" * 513])
async def test_an_id_that_is_no_id_is_refused_before_anything_else(bad: Any) -> None:
    store = Noting()
    async with server(count) as at, client_of(at.url, store=store) as client:
        with pytest.raises(InvalidConversationId, match="1 to 512"):
            await client.ask("hi", id=bad)
        with pytest.raises(InvalidConversationId):
            client.stream("hi", id=bad)

    assert (store.calls, at.seen) == ([], [])


async def test_a_get_that_raises_stops_the_ask_before_any_token() -> None:
    class Broken(Noting):
        async def get(self, id: str) -> list[Any] | None:
            raise OSError("disk on fire")

    async with server(count) as at, client_of(at.url, store=Broken()) as client:
        with pytest.raises(StoreError, match="'u1' could not be read") as caught:
            await client.ask("hi", id="u1")

    assert at.seen == []
    assert isinstance(caught.value.__cause__, OSError)


async def test_a_save_that_raises_carries_the_paid_answer() -> None:
    class Broken(Noting):
        async def save(self, id: str, messages: list[Any]) -> None:
            raise OSError("disk full")

    async with server(count) as at, client_of(at.url, store=Broken()) as client:
        with pytest.raises(StoreError, match="'u1' could not be saved") as caught:
            await client.ask("hi", id="u1")

    assert len(at.seen) == 1
    assert caught.value.partial is not None
    assert (caught.value.partial.status, caught.value.partial.text) == ("done", "1")


async def test_results_are_copies_of_what_is_kept() -> None:
    async with server(count) as at, client_of(at.url) as client:
        result = await client.ask("hi", id="u1")
        result.messages[0]["content"] = "changed"
        mine = await client.conversation_store.get("u1")  # type: ignore[misc]
        mine[0]["content"] = "changed too"
        kept = await client.conversation_store.get("u1")  # type: ignore[misc]

    assert kept[0]["content"] == "hi"
    assert result.messages[0]["content"] == "hi"


async def test_a_conversation_object_keeps_its_own_list_and_touches_no_store() -> None:
    store = Noting()
    async with server(count) as at, client_of(at.url, store=store) as client:
        talk = client.conversation()
        assert (await talk.send("one")).text == "1"
        second = await talk.send("two")
        assert second.text == "3"
        assert second.conversation_id is None
        assert len(await talk.messages()) == 4
        await talk.reset()
        assert (await talk.send("three")).text == "1"

    assert store.calls == []


async def test_a_conversation_object_with_an_id_is_that_conversation() -> None:
    async with server(count) as at, client_of(at.url) as client:
        await client.ask("one", id="u1")
        assert (await client.conversation(id="u1").send("two")).text == "3"


async def test_a_provider_error_leaves_no_trace() -> None:
    store = Noting()

    def refuse(_: Seen) -> Any:
        return Status(400, {"error": {"message": "no"}})

    async with server(refuse) as at, client_of(at.url, store=store) as client:
        with pytest.raises(Exception, match="no"):
            await client.ask("hi", id="u1")

    assert store.calls == ["get:u1"]
