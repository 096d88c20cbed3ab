"""What is left of a turn whose owner died, and of one that is cancelled anywhere."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest

from toolnexus.errors import CorruptConversation, StoreTooNew, ToolnexusError
from toolnexus.messages import INTERRUPTED
from toolnexus.stores import records
from toolnexus.stores.backend import Key
from toolnexus.stores.logstore import LogStore
from toolnexus.testing.store_contract._leases import SHORT, begun
from toolnexus.testing.store_contract._proxies import Deaf
from toolnexus.testing.store_contract._section import GOODBYE, HELLO, Open, Section
from toolnexus.testing.store_contract._turns import cancelled_at

if TYPE_CHECKING:
    from toolnexus.stores.log import Fields, Log

PROMPT: Any = {"role": "user", "content": "pay for both"}
REPLY: Any = {
    "role": "assistant",
    "tool_calls": [
        {"id": call, "type": "function", "function": {"name": "pay", "arguments": "{}"}} for call in ("c1", "c2")
    ],
}


def result(call: str, content: str = "paid") -> Any:
    return {"role": "tool", "tool_call_id": call, "content": content}


SAID: Any = {"role": "assistant", "content": "done"}
UNKNOWN: Any = {"is_error": True}


class Crashes(Section):
    @pytest.mark.parametrize(
        ("recorded", "kept"),
        [
            pytest.param([], [], id="before it acted"),
            pytest.param([records.message(REPLY)], [], id="no call may change anything"),
            pytest.param(
                [records.message(REPLY), records.effect("c1"), records.effect("c2")],
                [PROMPT, REPLY, UNKNOWN | result("c1", INTERRUPTED), UNKNOWN | result("c2", INTERRUPTED)],
                id="while its calls ran",
            ),
            pytest.param(
                [
                    records.message(REPLY),
                    records.effect("c1"),
                    records.effect("c2"),
                    records.message(result("c2")),
                ],
                [PROMPT, REPLY, UNKNOWN | result("c1", INTERRUPTED), result("c2")],
                id="one call was done",
            ),
            pytest.param(
                [
                    records.message(REPLY),
                    records.effect("c1"),
                    records.message(result("c2", "refused"), ran=False),
                    records.message(result("c1", "refused"), ran=False),
                ],
                [],
                id="no call ran at all",
            ),
        ],
    )
    async def test_the_next_turn_ends_what_a_dead_owner_left_open(
        self, open: Open, recorded: Sequence[Fields], kept: Sequence[Any]
    ) -> None:
        ours, theirs = await open.log(), await open.log()
        await theirs.save("c", [HELLO, GOODBYE])
        await _died(ours, "c", recorded)
        before = [HELLO, GOODBYE]
        assert await theirs.get("c") == before, "a turn that runs, or whose owner died, is history already"
        assert [turn.status for turn in await theirs.turns("c")] == ["open"]
        taken = await theirs.take("c", lambda log, _: _opening(log, "next"), wait=20)
        assert taken.log.messages == [*before, *kept], "the next turn does not run on what the dead owner had done"
        await taken.end(
            records.message(SAID),
            records.ended("next", "done", kept=True, outcome={}),
            head=lambda: records.head(taken.log, now=0.0, new=[]),
        )
        after = [*before, *kept, PROMPT, SAID]
        for store in (ours, theirs, await open.log()):
            assert await store.get("c") == after, "instances disagree on what the dead owner had done"
            assert [turn.status for turn in await store.turns("c")] == ["interrupted", "done"]

    async def test_a_first_turn_whose_owner_died_leaves_a_conversation_that_can_go_on(self, open: Open) -> None:
        ours, theirs = await open.log(), await open.log()
        await _died(ours, "c", [])
        assert await theirs.get("c") is None, "a turn that was never finished made a conversation"
        assert (await theirs.list()).items == (), "a turn that was never finished is listed"
        await theirs.save("c", [HELLO])
        assert await ours.get("c") == [HELLO]

    async def test_a_turn_cancelled_while_it_is_taken_or_recorded_leaves_no_lease_behind(self, open: Open) -> None:
        ours, theirs = await open.log(), await open.log()
        for at in range(1, 100):
            id = f"c{at}"
            await theirs.save(id, [HELLO])
            await ours.get(id)
            running = asyncio.ensure_future(cancelled_at(at, _turn(ours, id)))
            [outcome] = await asyncio.gather(running, return_exceptions=True)
            seen = await theirs.backend.read(Key(theirs.scope, id))
            assert seen is not None
            assert seen.lease is None, f"cancelled at await {at}, a lease was left behind"
            before = await theirs.get(id)
            taken = await theirs.take(id, lambda log, _: _opening(log, "next"), wait=0)
            assert taken.log.messages in ([HELLO], [HELLO, PROMPT, SAID]), f"cancelled at await {at}"
            assert taken.log.messages == before, f"cancelled at await {at}, the conversation changed afterwards"
            await taken.give_up()
            if not isinstance(outcome, BaseException):
                break
        else:
            pytest.fail("a turn of the store has more than 100 awaits")

    # Records that nobody can read

    @pytest.mark.parametrize("record", [b'{"v":1,"k":"mess', b"[]", b'{"v":1}', b'{"v":1,"k":"unheard of"}'])
    async def test_a_record_that_cannot_be_read_is_an_error_and_never_left_out(self, open: Open, record: bytes) -> None:
        store = await open.log()
        await store.save("c", [HELLO])
        await _append(store, record)
        for reader in (store, await open.log()):
            with pytest.raises(CorruptConversation, match="'c'"):
                await reader.get("c")
            with pytest.raises(CorruptConversation, match="'c'"):
                await reader.save("c", [GOODBYE])
        seen = await store.backend.read(Key(store.scope, "c"))
        assert seen is not None
        assert seen.records[-1] == record, "a conversation that could not be read was changed"
        assert await store.delete("c"), "it cannot be deleted"
        assert await store.get("c") is None

    async def test_a_record_of_a_newer_version_is_refused(self, open: Open) -> None:
        store = await open.log()
        await store.save("c", [HELLO])
        await _append(store, b'{"v":2,"k":"message","m":{"role":"user","content":"x"}}')
        for reader in (store, await open.log()):
            with pytest.raises(StoreTooNew, match="'c'"):
                await reader.get("c")

    async def test_a_name_that_is_no_text_to_keep_is_refused_or_its_own(self, open: Open) -> None:
        store = await open.log()
        try:
            await store.save("a\ud800", [HELLO])
        except ToolnexusError:
            return
        assert await store.get("a\ud800") == [HELLO]
        for other in ("a", "a\ufffd", "a?", "a\\ud800", "a\ud801"):
            assert await store.get(other) is None, f"{other!r} is taken for another id"


def _opening(log: Log, turn: str) -> Sequence[Fields]:
    return records.opened(turn, PROMPT, at=0.0, saw=len(log.messages))


async def _died(store: LogStore, id: str, recorded: Sequence[Fields]) -> None:
    """Run a turn up to here, and be gone."""
    dying = LogStore(Deaf(store.backend), scope=store.scope, lease=SHORT)
    hold = await dying.take(id, lambda log, _: _opening(log, "dead"), wait=0)
    if recorded:
        await hold.add(*recorded)
    hold.leave()


async def _turn(store: LogStore, id: str) -> None:
    """A turn that ends as the driver ends it, whatever happens."""
    hold = await store.take(id, lambda log, _: _opening(log, "t"), wait=0)
    try:
        await hold.add(records.message(SAID))
    except BaseException:
        await hold.end(
            records.ended("t", "interrupted", kept=False, outcome={}),
            head=lambda: records.head(hold.log, now=0.0, new=[]),
        )
        raise
    await hold.end(
        records.ended("t", "done", kept=True, outcome={}), head=lambda: records.head(hold.log, now=0.0, new=[])
    )


async def _append(store: LogStore, record: bytes) -> None:
    backend, key = store.backend, Key(store.scope, "c")
    grant = await begun(backend, key=key)
    await backend.append(grant, [record], expect=grant.version.last, release=True)
