"""`load` and `replace`: changing a conversation only as it was seen."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from toolnexus.errors import ConversationConflict
from toolnexus.stores.backend import NOTHING
from toolnexus.testing.store_contract._section import GOODBYE, HELLO, Open, Section

if TYPE_CHECKING:
    from toolnexus.stores.logstore import LogStore


class Versions(Section):
    async def test_an_unknown_id_loads_as_nothing(self, open: Open) -> None:
        assert await (await open.log()).load("nobody") == ([], NOTHING)

    async def test_a_replace_gives_the_version_for_the_next(self, open: Open) -> None:
        store, other = await open.log(), await open.log()
        version = await store.replace("c", [HELLO], expect=NOTHING)
        assert await other.load("c") == ([HELLO], version), "another instance sees another version"
        version = await store.replace("c", [HELLO, GOODBYE], expect=version)
        await other.replace("c", [GOODBYE], expect=version)
        assert await store.get("c") == [GOODBYE]

    async def test_a_stale_writer_is_refused_and_stores_nothing(self, open: Open) -> None:
        ours, theirs = await open.log(), await open.log()
        await ours.save("c", [HELLO])
        messages, version = await ours.load("c")
        await theirs.replace("c", [*messages, GOODBYE], expect=version)
        for stale in (ours, theirs):
            with pytest.raises(ConversationConflict, match="'c'"):
                await stale.replace("c", [*messages, HELLO], expect=version)
        for store in (ours, theirs):
            assert await store.get("c") == [HELLO, GOODBYE], "a stale writer stored something"

    async def test_only_one_can_be_the_first(self, open: Open) -> None:
        stores = [await open.log() for _ in range(4)]
        done = await asyncio.gather(
            *(_replaced(store, "c", str(number)) for number, store in enumerate(stores)),
        )
        assert done.count(True) == 1, f"{done.count(True)} writers each made the conversation"
        winner = str(done.index(True))
        assert await stores[0].get("c") == [HELLO | {"by": winner}], "somebody else's messages are there"

    async def test_no_update_is_lost_between_load_and_replace(self, open: Open) -> None:
        stores = [await open.log(), await open.log()]
        await stores[0].save("c", [])

        async def add(store: LogStore, text: str) -> None:
            while True:
                messages, version = await store.load("c")
                await asyncio.sleep(0)
                try:
                    await store.replace("c", [*messages, HELLO | {"content": text}], expect=version)
                except ConversationConflict:
                    continue
                return

        texts = [f"{store}.{number}" for store in range(2) for number in range(6)]
        await asyncio.gather(*(add(stores[int(text[0])], text) for text in texts))
        kept = [str(message.get("content")) for message in await stores[0].get("c") or []]
        assert sorted(kept) == texts, "an update was lost or doubled"

    async def test_a_conversation_made_anew_is_never_taken_for_the_old_one(self, open: Open) -> None:
        ours, theirs = await open.log(), await open.log()
        await ours.save("c", [HELLO])
        _, version = await ours.load("c")
        assert await theirs.delete("c")
        with pytest.raises(ConversationConflict):
            await ours.replace("c", [GOODBYE], expect=version)
        assert await ours.get("c") is None, "a replace that was refused made a conversation"
        await theirs.save("c", [HELLO])
        with pytest.raises(ConversationConflict):
            await ours.replace("c", [GOODBYE], expect=version)
        assert await ours.get("c") == [HELLO], "a stale writer changed a conversation that was made anew"


async def _replaced(store: LogStore, id: str, by: str) -> bool:
    try:
        await store.replace(id, [HELLO | {"by": by}], expect=NOTHING)
    except ConversationConflict:
        return False
    return True
