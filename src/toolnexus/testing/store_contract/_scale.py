"""What does not grow with a conversation, who reads a newer layout, and what goes when a conversation expires."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from typing import TYPE_CHECKING, Any, cast

import pytest

from toolnexus.errors import StoreTooNew
from toolnexus.stores import records
from toolnexus.stores.logstore import LogStore
from toolnexus.testing.store_contract._proxies import Counting
from toolnexus.testing.store_contract._section import CALLED, GOODBYE, HELLO, Factory, Open, Section, until

if TYPE_CHECKING:
    from toolnexus.stores.backend import LogBackend

SIZES = (10, 10_000)
"""Messages of a short conversation, and of a long one."""


class Scale(Section):
    @pytest.fixture
    def open_expiring(self) -> Factory | None:
        """Like `open`, but conversations that nothing changes for 0.5 s are removed. None: the store keeps them."""
        return None

    @pytest.fixture
    def make_newer(self) -> Callable[[], None] | None:
        """Marks what `open` opens as laid out by a newer version. None: there is no layout that could be newer."""
        return None

    def counters(self, backend: LogBackend) -> Mapping[str, int]:
        """What a backend's driver has done so far, such as statements and commits. Empty: nobody counts."""
        return {
            name: found for name in ("statements", "commits") if isinstance(found := getattr(backend, name, None), int)
        }

    async def test_a_turn_costs_the_same_however_long_the_conversation_is(self, open: Open) -> None:
        backend = (await open.log()).backend
        short, long = [await self._cost(backend, size) for size in SIZES]
        assert short == long, f"a turn at {SIZES[0]} messages costs {short}, at {SIZES[1]} {long}"
        assert short["calls"] == {"begin": 1, "append": 3}
        assert short["read"] == 0, "a turn read what this instance had written itself"

    async def test_a_turn_of_another_instance_reads_only_what_it_does_not_know(self, open: Open) -> None:
        ours, theirs = await open.log(), await open.log()
        await ours.save("c", [HELLO] * SIZES[1])
        await theirs.get("c")
        await _turn(ours, "c")
        counting = Counting(theirs.backend)
        theirs.backend = counting
        assert len(await theirs.get("c") or []) == SIZES[1] + 4
        assert counting.read_records == 7, "what was known already was read again"

    async def test_a_newer_layout_is_refused(self, open: Open, make_newer: Callable[[], None] | None) -> None:
        if make_newer is None:
            pytest.skip("the fixture `make_newer` is None: no layout of this store can be newer")
        await (await open.log()).save("c", [HELLO])
        make_newer()
        store = await open.log()
        with pytest.raises(StoreTooNew):
            await store.get("c")
        with pytest.raises(StoreTooNew):
            await store.save("c", [GOODBYE])
        with pytest.raises(StoreTooNew):
            await store.list()
        with pytest.raises(StoreTooNew):
            await store.delete("c")

    async def test_a_conversation_expires_whole(self, open: Open, open_expiring: Factory | None) -> None:
        if open_expiring is None:
            pytest.skip("the fixture `open_expiring` is None: this store keeps conversations for ever")
        opened = Open(open_expiring)
        try:
            ours, theirs = await opened.log(), await opened.log()
            await ours.save("c", [HELLO])
            await _turn(ours, "c")
            await ours.rename("c", "Title")
            whole = await ours.get("c")
            assert whole is not None
            assert len(whole) == 5

            async def gone() -> bool:
                seen = await LogStore(theirs.backend).get("c")  # one that remembers nothing
                assert seen in (None, whole), f"a part of a conversation expired before the rest: {seen}"
                return seen is None

            await until(gone, "a conversation expired")
            assert (await theirs.list()).items == (), "a conversation that expired is listed"
            assert await ours.get("c") is None
            await ours.save("c", [GOODBYE])
            info = await theirs.info("c")
            assert info is not None
            assert (info.title, info.messages, info.turns) == (None, 1, 0), "a part of a conversation outlived it"
        finally:
            await opened.aclose()

    async def _cost(self, backend: LogBackend, size: int) -> dict[str, Any]:
        """What a turn with a tool costs at `size` messages, on the instance that wrote them."""
        store = LogStore(backend)
        await store.save(f"{size} messages", [HELLO] * size)
        await _turn(store, f"{size} messages")
        store.backend = counting = Counting(backend)
        before = self.counters(backend)
        await _turn(store, f"{size} messages")
        after = self.counters(backend)
        return {
            "calls": counting.calls,
            "records": counting.records,
            "bytes": counting.bytes - len(str(size)),  # the turn says how many messages it saw
            "read": counting.read_records,
            **{name: after[name] - before[name] for name in after},
        }


async def _turn(store: LogStore, id: str) -> None:
    """A turn of four messages as the driver records it."""
    turn_id = f"{next(_turn_ids):08}"
    prompt, reply, result, said = cast("list[Any]", CALLED)
    hold = await store.take(id, lambda log, _: records.opened(turn_id, prompt, at=0.0, saw=len(log.messages)), wait=20)
    await hold.add(records.message(reply), records.effect("c1"))
    await hold.add(records.message(result))
    await hold.end(
        records.message(said),
        records.ended(turn_id, "done", kept=True, outcome={}),
        head=lambda: records.head(hold.log, now=0.0, new=[prompt, reply, result, said]),
    )
    store.keep(hold)


_turn_ids = count(1)
