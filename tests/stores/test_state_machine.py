"""Random work on conversations leaves what a model of sixty lines says that it leaves."""

from __future__ import annotations

import asyncio
import secrets
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from toolnexus import ConversationConflict, ToolnexusError, create_in_process_client, tool
from toolnexus.errors import NoSuchConversation
from toolnexus.messages import INTERRUPTED
from toolnexus.stores import records
from toolnexus.stores.backend import Grant, Key, Owner, Record, Version
from toolnexus.stores.logstore import LogStore
from toolnexus.stores.memory import MemoryBackend
from toolnexus.stores.process import this_process
from toolnexus.stores.sqlite import SQLiteStore
from toolnexus.testing.store_contract._proxies import Proxy

IDS = ("a", "A", "b ", "\0\U0001f38f")
ids = st.sampled_from(IDS)
instances = st.integers(0, 1)


@dataclass
class Kept:
    """A conversation: its messages, the places where its turns begin and end, and its title.

    Attributes:
        dying: The messages of a turn whose owner died and that acted; history as soon as somebody takes the turn.
        seen: Whether there is more than a turn that never ended.
    """

    messages: list[Any] = field(default_factory=list)
    turns: list[tuple[int, int]] = field(default_factory=list)
    title: str | None = None
    dying: list[Any] = field(default_factory=list)
    seen: bool = False

    def take(self) -> None:
        """Somebody takes the turn."""
        self.add(self.dying)
        self.seen = self.seen or bool(self.dying)
        self.dying = []

    def add(self, messages: Sequence[Any]) -> None:
        """A turn with these messages ends."""
        if messages:
            self.turns.append((len(self.messages), len(self.messages) + len(messages)))
            self.messages += messages

    def change(self, messages: Sequence[Any]) -> None:
        """Make these the history."""
        pairs = zip([*self.messages, None], [*messages, 0], strict=False)
        keep = next(at for at, (old, new) in enumerate(pairs) if old != new)
        self.turns = [turn for turn in self.turns if turn[1] <= keep]
        self.messages = list(messages)


class Reference:
    """What is kept, by id."""

    def __init__(self) -> None:
        self.kept: dict[str, Kept] = {}

    def changed(self, id: str) -> Kept:
        """A conversation that changes; made if there is none."""
        found = self.kept.setdefault(id, Kept())
        found.take()
        found.seen = True
        return found

    def taken(self, id: str) -> None:
        """Somebody takes the turn, and changes nothing."""
        if id in self.kept:
            self.kept[id].take()

    def undo(self, id: str, turns: int) -> int:
        kept = self.changed(id)
        undone = kept.turns[-turns:]
        if undone:
            kept.change(kept.messages[: undone[0][0]])
        return len(undone)


class Gone(Proxy):
    """Takes turns in the name of a process that is no more."""

    async def begin(
        self, key: Key, *, owner: Owner, ttl: float, expect: Version, records: Sequence[Record]
    ) -> Grant | None:
        gone = replace(owner, process=f"{this_process().rpartition('|')[0]}|0")
        return await super().begin(key, owner=gone, ttl=ttl, expect=expect, records=records)


class Conversations(RuleBasedStateMachine):
    """Two instances on the same data."""

    open: Callable[[], LogStore]

    @initialize()
    def start(self) -> None:
        self.runner = asyncio.Runner()
        self.reference = Reference()
        self.numbers = count()
        self.stores = [self.open(), self.open()]
        self.seen: dict[str, tuple[list[Any], Version]] = {}

    def teardown(self) -> None:
        if hasattr(self, "runner"):
            for store in self.stores:
                self.do(store.aclose())
            self.runner.close()

    def do(self, work: Any) -> Any:
        async def bounded() -> Any:
            async with asyncio.timeout(20):
                return await work

        return self.runner.run(bounded())

    def said(self, role: str = "user") -> dict[str, Any]:
        return {"role": role, "content": f"said {next(self.numbers)}"}

    # Turns

    @rule(at=instances, id=ids)
    def turn(self, at: int, id: str) -> None:
        """A turn that is done."""
        prompt, answer = self.said(), self.said("assistant")

        async def model(request: Mapping[str, Any]) -> Mapping[str, Any]:
            known = self.reference.kept.get(id, Kept())
            assert len(request["messages"]) == len(known.messages) + len(known.dying) + 1
            return {"content": answer["content"]}

        self.do(create_in_process_client(generate=model, store=self.stores[at]).ask(prompt["content"], id=id))
        origin = {"style": "in_process", "model": "in-process", "host": "in-process"}
        self.reference.changed(id).add([prompt, {**answer, "origin": origin}])

    @rule(at=instances, id=ids, acts=st.booleans())
    def turn_that_fails(self, at: int, id: str, acts: bool) -> None:
        """A turn whose model fails, before or after it acted."""
        prompt, paid = self.said(), self.said()["content"]

        async def model(request: Mapping[str, Any]) -> Mapping[str, Any]:
            if acts and request["messages"][-1]["role"] == "user":
                return {"tool_calls": [{"id": "c1", "name": "pay", "arguments": {}}]}
            raise ToolnexusError("gone")

        @tool
        def pay() -> str:
            """Pays."""
            return paid

        client = create_in_process_client(generate=model, store=self.stores[at])
        with pytest.raises(ToolnexusError, match="gone"):
            self.do(client.ask(prompt["content"], [pay], id=id))
        if not acts and id not in self.reference.kept:
            return
        kept = self.reference.changed(id)
        if acts:
            written = self.do(self.stores[at].get(id))[len(kept.messages) :]
            assert [message["role"] for message in written] == ["user", "assistant", "tool"]
            assert (written[0], written[2]["content"]) == (prompt, paid)
            kept.add(written)

    @rule(at=instances, id=ids, acts=st.booleans())
    def turn_whose_owner_dies(self, at: int, id: str, acts: bool) -> None:
        """A turn that is never ended."""
        prompt, turn = self.said(), secrets.token_hex(8)
        call = {"id": "c1", "type": "function", "function": {"name": "pay", "arguments": "{}"}}
        reply: Any = {"role": "assistant", "tool_calls": [call]}

        async def die() -> None:
            dying = LogStore(Gone(self.stores[at].backend))
            hold = await dying.take(
                id, lambda log, _: records.opened(turn, prompt, at=0.0, saw=len(log.messages)), wait=20
            )
            await hold.add(records.message(reply), *([records.effect("c1")] if acts else []))
            hold.leave()

        self.do(die())
        if acts or id in self.reference.kept:
            known = self.reference.kept.setdefault(id, Kept())
            known.take()
            result = {"role": "tool", "tool_call_id": "c1", "content": INTERRUPTED, "is_error": True}
            known.dying = [prompt, reply, result] if acts else []

    # People's changes

    @rule(at=instances, id=ids, data=st.data())
    def save(self, at: int, id: str, data: st.DataObject) -> None:
        new = self._edited(id, data)
        self.do(self.stores[at].save(id, new))
        self.reference.changed(id).change(new)

    @rule(at=instances, id=ids)
    def load(self, at: int, id: str) -> None:
        self.seen[id] = self.do(self.stores[at].load(id))
        assert self.seen[id][0] == self.reference.kept.get(id, Kept()).messages

    @precondition(lambda self: self.seen)
    @rule(at=instances, data=st.data())
    def replace(self, at: int, data: st.DataObject) -> None:
        """A replace of what was loaded once; it is refused if anything happened since."""
        id = data.draw(st.sampled_from(sorted(self.seen)))
        _, version = self.seen[id]
        _, current = self.do(self.stores[1 - at].load(id))
        new = self._edited(id, data)
        if version == current:
            self.do(self.stores[at].replace(id, new, expect=version))
            self.reference.changed(id).change(new)
        else:
            with pytest.raises(ConversationConflict):
                self.do(self.stores[at].replace(id, new, expect=version))
            self.reference.taken(id)

    def _edited(self, id: str, data: st.DataObject) -> list[Any]:
        """The beginning of what is there, whole turns or not, and something new."""
        known = self.reference.kept.get(id, Kept())
        cuts = [0, len(known.messages), *(end for _, end in known.turns)]
        kept = known.messages[: data.draw(st.sampled_from(cuts))]
        return [*kept, *(self.said() for _ in range(data.draw(st.integers(0, 2))))]

    @rule(at=instances, id=ids, title=st.none() | st.text(max_size=5))
    def rename(self, at: int, id: str, title: str | None) -> None:
        if not self._known(id, lambda: self.stores[at].rename(id, title)):
            return
        self.reference.changed(id).title = None if title is None else title.encode("utf-8", "replace").decode()

    @rule(at=instances, id=ids, turns=st.integers(1, 3))
    def undo(self, at: int, id: str, turns: int) -> None:
        undone: list[int] = []

        async def undo() -> None:
            undone.append(await self.stores[at].undo(id, turns))

        if self._known(id, undo):
            assert undone == [self.reference.undo(id, turns)]

    @rule(at=instances, id=ids, new=ids)
    def fork(self, at: int, id: str, new: str) -> None:
        if id not in self._seen_by_people():
            with pytest.raises(NoSuchConversation):
                self.do(self.stores[at].fork(id, new))
            return
        self.reference.taken(new)
        if new in self._seen_by_people():
            with pytest.raises(ConversationConflict):
                self.do(self.stores[at].fork(id, new))
            return
        self.do(self.stores[at].fork(id, new))
        known, forked = self.reference.kept[id], self.reference.changed(new)
        forked.messages, forked.turns, forked.title = list(known.messages), list(known.turns), known.title

    @rule(at=instances, id=ids)
    def delete(self, at: int, id: str) -> None:
        self.do(self.stores[at].delete(id))
        self.reference.kept.pop(id, None)

    def _known(self, id: str, work: Callable[[], Any]) -> bool:
        """Do what is refused for a conversation that is not known."""
        if id in self._seen_by_people():
            self.do(work())
            return True
        with pytest.raises(NoSuchConversation):
            self.do(work())
        return False

    def _seen_by_people(self) -> set[str]:
        """Conversations that more than a turn that never ended was recorded of."""
        return {id for id, kept in self.reference.kept.items() if kept.seen}

    @rule(at=instances)
    def reopen(self, at: int) -> None:
        self.do(self.stores[at].aclose())
        self.stores[at] = self.open()

    @invariant()
    def both_instances_see_what_the_model_says(self) -> None:
        if not hasattr(self, "stores"):
            return
        seen = self._seen_by_people()
        for store in self.stores:
            for id in IDS:
                info = self.do(store.info(id))
                if id not in seen:
                    assert (info, self.do(store.get(id))) == (None, None)
                    continue
                kept = self.reference.kept[id]
                assert self.do(store.get(id)) == kept.messages
                assert (info.messages, info.turns, info.title) == (len(kept.messages), len(kept.turns), kept.title)


class InMemory(Conversations):
    def __init__(self) -> None:
        super().__init__()
        backend = MemoryBackend()
        self.open = lambda: LogStore(backend)


class OnSQLite(Conversations):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.open = lambda: SQLiteStore(Path(self.folder.name) / "chat.db")

    def teardown(self) -> None:
        super().teardown()
        self.folder.cleanup()


TestInMemory = InMemory.TestCase
TestInMemory.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestOnSQLite = OnSQLite.TestCase
TestOnSQLite.settings = settings(max_examples=12, stateful_step_count=25, deadline=None)
