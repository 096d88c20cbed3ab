"""What a store of two methods promises: what is saved is what is read."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import pytest

from toolnexus.errors import ToolnexusError
from toolnexus.testing.nasty import NASTY_IDS, NASTY_VALUES
from toolnexus.testing.store_contract._section import (
    CALLED,
    GOODBYE,
    HELLO,
    Open,
    Section,
    exactly,
    get,
    save,
)


def _said(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


class Kept(Section):
    async def test_an_unknown_id_is_none(self, open: Open) -> None:
        assert await get(await open(), "nobody") is None, "an id never seen has a conversation"

    async def test_a_conversation_without_messages_is_known(self, open: Open) -> None:
        store = await open()
        await save(store, "empty", [])
        assert await get(store, "empty") == [], "a conversation without messages is taken for none"

    async def test_what_was_saved_is_there_for_another_instance(self, open: Open) -> None:
        ours, theirs = await open(), await open()
        assert await get(theirs, "c") is None
        await save(ours, "c", CALLED)
        for store in (ours, theirs, await open()):
            assert exactly(await get(store, "c")) == exactly(CALLED), "another instance reads something else"

    async def test_a_save_replaces_whatever_was_there(self, open: Open) -> None:
        store, other = await open(), await open()
        for messages in ([HELLO], [HELLO, *CALLED], [HELLO, GOODBYE], [GOODBYE], [], [HELLO, HELLO]):
            await save(store, "c", messages)
            assert await get(store, "c") == messages, "what was saved last is not what is read"
            assert await get(other, "c") == messages, "what was saved last is not what another instance reads"

    async def test_a_save_that_changes_only_the_type_of_a_value_is_kept(self, open: Open) -> None:
        store = await open()
        for value in (1, True, 1.0, 0, False, 0.0, -0.0):
            messages = [HELLO | {"x": value}, HELLO | {"x": [{"y": value}]}]
            await save(store, "c", messages)
            assert exactly(await get(store, "c")) == exactly(messages), f"{value!r} was not kept over its equal"

    async def test_what_is_read_is_an_independent_copy(self, open: Open) -> None:
        store = await open()
        await save(store, "c", copy.deepcopy(CALLED))
        for _ in range(2):
            read = await get(store, "c") or []
            assert exactly(read) == exactly(CALLED), "changing what was read changed what is kept"
            read[1]["tool_calls"][0]["function"]["name"] = "changed"
            read[1]["native"]["fields"].clear()
            read[0]["content"].append("changed")
            read.pop()

    async def test_what_was_saved_may_be_changed_afterwards(self, open: Open) -> None:
        store = await open()
        messages: list[Any] = [HELLO | {"x": {"y": [1]}}, dict(GOODBYE)]
        await save(store, "c", messages)
        messages[0]["x"]["y"].append(2)
        messages[1]["content"] = "changed"
        messages.append(HELLO)
        expected = [HELLO | {"x": {"y": [1]}}, GOODBYE]
        assert await get(store, "c") == expected, "changing what was saved changed what is kept"

    @pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
    async def test_what_json_does_not_have_is_refused_by_its_place(self, open: Open, value: float) -> None:
        store = await open()
        await save(store, "c", [HELLO])
        with pytest.raises((ValueError, ToolnexusError), match=r"\[1\].*score"):
            await save(store, "c", [HELLO, GOODBYE | {"native": {"scores": [{"score": value}]}}])
        with pytest.raises((ValueError, ToolnexusError), match=r"\[0\].*score"):
            await save(store, "new", [HELLO | {"score": value}])
        assert await get(store, "c") == [HELLO], "a save that was refused changed the conversation"
        assert await get(store, "new") is None, "a save that was refused made a conversation"

    async def test_half_a_character_is_replaced_or_refused_and_hurts_nothing(self, open: Open) -> None:
        store = await open()
        await save(store, "c", [HELLO])
        try:
            await save(store, "c", _said("a\ud800b"))
        except (ValueError, ToolnexusError):
            assert await get(store, "c") == [HELLO], "a save that was refused changed the conversation"
        else:
            assert await get(store, "c") == _said("a\ufffdb"), "a lone surrogate did not become U+FFFD"

    async def test_every_id_is_its_own_conversation(self, open: Open) -> None:
        store, other = await open(), await open()
        taken = [id for id in NASTY_IDS if await _taken(store, id)]
        assert not taken, f"these ids are taken for others: {taken}"
        for reader in (store, other):
            mixed = [id for id in NASTY_IDS if await get(reader, id) != _said(f"I am {id}")]
            assert not mixed, f"these ids have another's conversation: {mixed}"

    async def test_every_value_comes_back_as_it_was(self, open: Open) -> None:
        store, other = await open(), await open()
        messages = [HELLO | {"content": value if isinstance(value, str) else "x", "x": value} for value in NASTY_VALUES]
        await save(store, "c", messages)
        for reader in (store, other):
            read = await get(reader, "c") or []
            assert len(read) == len(messages), "messages were lost or doubled"
            changed = [value for value, is_ in zip(messages, read, strict=True) if exactly(is_) != exactly(value)]
            assert not changed, f"these came back changed: {str(changed)[:2000]}"

    async def test_a_long_conversation_is_kept_in_order(self, open: Open) -> None:
        store = await open()
        messages = [(HELLO if number % 2 == 0 else GOODBYE) | {"number": number} for number in range(3_000)]
        await save(store, "c", messages)
        await save(store, "c", [*messages, HELLO])
        assert await get(await open(), "c") == [*messages, HELLO], "a long conversation came back changed"

    async def test_a_reader_never_sees_a_conversation_vanish_or_torn(self, open: Open) -> None:
        writer, reader = await open(), await open()
        sizes = (5, 1, 8, 3)
        await save(writer, "c", _generation(0, sizes[0]))
        saving = True

        async def write() -> None:
            nonlocal saving
            try:
                for number in range(1, 30):
                    await save(writer, "c", _generation(number, sizes[number % len(sizes)]))
            finally:
                saving = False

        async def read() -> None:
            seen = 0
            while saving:
                read = await get(reader, "c")
                assert read, "the conversation was not there while it was saved"
                number: int = read[0]["number"]
                assert read == _generation(number, sizes[number % len(sizes)]), "a conversation was half saved"
                assert number >= seen, "an older save came back"
                seen = number
                await asyncio.sleep(0)

        await asyncio.gather(write(), read())
        assert await get(reader, "c") == _generation(29, sizes[29 % len(sizes)])

    async def test_saves_of_other_conversations_at_once_lose_nothing(self, open: Open) -> None:
        stores = [await open(), await open()]
        await asyncio.gather(*(save(stores[number % 2], f"c{number}", _said(str(number))) for number in range(20)))
        lost = [number for number in range(20) if await get(stores[0], f"c{number}") != _said(str(number))]
        assert not lost, f"these saves were lost: {lost}"

    async def test_of_saves_at_once_one_is_kept_whole(self, open: Open) -> None:
        stores = [await open(), await open()]
        await asyncio.gather(*(save(stores[number % 2], "c", _generation(number, 4)) for number in range(10)))
        read = await get(await open(), "c")
        assert read in [_generation(number, 4) for number in range(10)], "saves at once were mixed"


async def _taken(store: Any, id: str) -> bool:
    """Whether there is a conversation of this id; there is one afterwards."""
    found = await get(store, id)
    await save(store, id, _said(f"I am {id}"))
    return found is not None


def _generation(number: int, size: int) -> list[Any]:
    return [HELLO | {"number": number, "of": size, "part": part} for part in range(size)]
