"""What a store and its driver promise together: a turn is whole, ran on what it follows, and ends as the table says."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import pytest

from toolnexus.errors import ConversationFenced, RunTimeout, ToolnexusError
from toolnexus.events import Finished, ToolFinished
from toolnexus.in_process import create_in_process_client
from toolnexus.messages import INTERRUPTED, text_of
from toolnexus.sources.native import tool
from toolnexus.stores.backend import Key
from toolnexus.stores.logstore import LogStore
from toolnexus.testing.checker import answer, problems, prompt
from toolnexus.testing.store_contract._proxies import Deaf
from toolnexus.testing.store_contract._section import CALLED, GOODBYE, HELLO, Open, Section, get, save, until

if TYPE_CHECKING:
    from toolnexus.client import Client
    from toolnexus.stores import ConversationStore

_T = TypeVar("_T")

Model: TypeAlias = Callable[[dict[str, Any]], Awaitable[Mapping[str, Any]]]
"""Answers `{"messages": […], …}` with `{"content": …}` or `{"tool_calls": […]}`."""

SHORT = 0.1
"""Seconds of a lease that is to run out."""


async def echo(request: dict[str, Any]) -> Mapping[str, Any]:
    """Answers with the prompt and the number of messages before it; others get their turn meanwhile."""
    messages = request["messages"]
    for _ in range(3):
        await asyncio.sleep(0)
    return {"content": answer(text_of(messages[-1]["content"]), len(messages) - 1)}


@tool
def pay() -> str:
    """Does what must not be done twice."""
    return "paid"


@tool(read_only=True)
def look() -> str:
    """Changes nothing."""
    return "seen"


def _calls(*names: str) -> Mapping[str, Any]:
    return {"tool_calls": [{"id": f"c{at}", "name": name, "arguments": {}} for at, name in enumerate(names)]}


def _client(store: ConversationStore, model: Model, **options: Any) -> Client:
    return create_in_process_client(generate=model, store=store, **options)


class Turns(Section):
    async def ask(self, store: ConversationStore, id: str, prompt: str, model: Model = echo) -> str:
        """Run a turn as whoever uses the store does, and give its answer as soon as the turn is said to be finished."""
        async with _client(store, model).stream(prompt, id=id) as events:
            async for event in events:
                if isinstance(event, Finished):
                    return event.result.text
        raise AssertionError("a turn ends with Finished or an error")

    # Finished turns

    async def test_a_turn_goes_on_where_the_last_one_ended(self, open: Open) -> None:
        for number in range(4):
            said = await self.ask(await open(), "c", prompt("w", number))
            assert said == answer(prompt("w", number), 2 * number), "a turn did not run on the history before it"

    async def test_what_was_saved_by_hand_is_where_the_next_turn_starts(self, open: Open) -> None:
        store, other = await open(), await open()
        await save(store, "c", [HELLO, GOODBYE])
        assert await self.ask(store, "c", "one") == answer("one", 2)
        await save(other, "c", [HELLO])
        assert await self.ask(store, "c", "two") == answer("two", 1), "a turn ran on a history that was replaced"

    async def test_a_history_that_was_cut_in_the_middle_of_a_step_can_go_on(self, open: Open) -> None:
        sent: list[Any] = []

        async def model(request: dict[str, Any]) -> Mapping[str, Any]:
            sent.extend(request["messages"])
            return {"content": "done"}

        await save(await open(), "c", CALLED[:2])
        await self.ask(await open(), "c", "go on", model)
        assert _roles(sent) == ["user", "assistant", "tool", "user"], "a call without a result was sent"
        kept = await get(await open(), "c") or []
        assert _roles(kept) == ["user", "assistant", "tool", "user", "assistant"]

    async def test_a_turn_is_kept_before_it_is_said_to_be_finished(self, open: Open) -> None:
        ours, theirs = await open(), await open()
        for number in range(5):
            asked = prompt("w", number)
            await self.ask(ours, "c", asked)
            kept = await get(theirs, "c") or []
            found = problems(kept, finished=[prompt("w", each) for each in range(number + 1)])
            assert not found, f"a turn was said to be finished before it was kept: {found}"

    async def test_turns_at_once_on_one_store_are_all_kept_one_after_the_other(self, open: Open) -> None:
        store = await open()
        asked = [prompt(f"w{number}", 0) for number in range(10)]
        await asyncio.gather(*(self.ask(store, "c", each) for each in asked))
        found = problems(await get(store, "c") or [], finished=asked)
        assert not found, f"turns at once are not one after the other: {found}"

    async def test_turns_at_once_on_two_instances_are_all_kept_one_after_the_other(self, open: Open) -> None:
        stores = [await open.log(), await open.log()]

        async def work(worker: int) -> None:
            for number in range(4):
                await self.ask(stores[worker % 2], "c", prompt(f"w{worker}", number))

        await asyncio.gather(*(work(worker) for worker in range(4)))
        kept = await (await open.log()).get("c") or []
        found = problems(kept, finished=[prompt(f"w{worker}", number) for worker in range(4) for number in range(4)])
        assert not found, f"turns at once are not one after the other: {found}"
        turns = await stores[0].turns("c")
        wrong = [turn for turn in turns if (turn.saw, turn.count, turn.status) != (turn.start, 2, "done")]
        assert not wrong, f"these turns did not see what they follow: {wrong}"

    async def test_a_turn_that_ran_out_of_steps_is_kept(self, open: Open) -> None:
        async def model(_: dict[str, Any]) -> Mapping[str, Any]:
            return _calls("look")

        store = await open()
        result = await _client(store, model, max_steps=2).ask("go on", [look], id="c")
        assert result.status == "incomplete"
        assert _roles(await get(await open(), "c")) == ["user", "assistant", "tool", "assistant", "tool"]

    # Turns that came to no end

    @pytest.mark.parametrize("names", [(), ("look",)])
    async def test_a_turn_that_failed_before_it_acted_leaves_no_trace(self, open: Open, names: Sequence[str]) -> None:
        store = await open()
        await self.ask(store, "c", "one")
        with pytest.raises(ToolnexusError):
            await _client(store, _failing_after(*names)).ask("two", [look], id="c")
        kept = await get(await open(), "c") or []
        assert not problems(kept, finished=["one"]), f"a turn that failed left {kept}"
        assert await self.ask(await open(), "c", "three") == answer("three", 2)

    async def test_a_turn_that_failed_after_it_acted_is_kept_with_what_it_did(self, open: Open) -> None:
        store = await open()
        with pytest.raises(ToolnexusError):
            await _client(store, _failing_after("pay", "look")).ask("two", [pay, look], id="c")
        kept = await get(await open(), "c") or []
        assert _roles(kept) == ["user", "assistant", "tool", "tool"], "a turn that acted was forgotten"
        assert [message["content"] for message in kept[2:]] == ["paid", "seen"]

    @pytest.mark.parametrize("how", ["cancel", "leave", "deadline"])
    async def test_a_turn_that_was_stopped_after_it_acted_is_kept_with_what_it_did(self, open: Open, how: str) -> None:
        @tool
        async def hang() -> str:
            """Never comes back."""
            await asyncio.Event().wait()
            return ""

        async def model(_: dict[str, Any]) -> Mapping[str, Any]:
            return _calls("pay", "hang")

        store = await open()
        client = _client(store, model)

        paid = asyncio.Event()

        async def run() -> None:
            async with client.stream("go", [pay, hang], id="c", timeout=0.6 if how == "deadline" else None) as events:
                async for event in events:
                    if isinstance(event, ToolFinished):
                        paid.set()
                        if how == "leave":
                            return

        running = asyncio.create_task(run())
        running.add_done_callback(lambda _: paid.set())
        await paid.wait()
        if how == "cancel":
            running.cancel()
        [outcome] = await asyncio.gather(running, return_exceptions=True)
        expected = {"cancel": asyncio.CancelledError, "deadline": RunTimeout, "leave": type(None)}[how]
        assert isinstance(outcome, expected), f"the turn ended with {outcome!r}"
        kept = await get(await open(), "c") or []
        assert _roles(kept) == ["user", "assistant", "tool", "tool"], "a turn that acted was forgotten"
        assert [message["content"] for message in kept[2:]] == ["paid", INTERRUPTED]
        assert await self.ask(await open(), "c", "again") == answer("again", 4), "the conversation cannot go on"

    # Owners

    async def test_a_turn_that_was_taken_over_records_nothing_more(self, open: Open) -> None:
        ours, theirs = await open.log(), await open.log()
        await self.ask(theirs, "c", "zero")
        asking, go = await self._asking(LogStore(Deaf(ours.backend), lease=SHORT), "one")
        await until(lambda: _is_free(theirs, "c"), "a lease that nobody renews is over")
        assert await self.ask(theirs, "c", "two") == answer("two", 2)
        go.set()
        [outcome] = await asyncio.gather(asking, return_exceptions=True)
        assert isinstance(outcome, ConversationFenced), f"a turn that was taken over ended with {outcome!r}"
        kept = await theirs.get("c") or []
        assert not problems(kept, finished=["zero", "two"]), f"a turn that was taken over left {kept}"
        assert await self.ask(ours, "c", "three") == answer("three", 4)

    async def test_a_turn_whose_conversation_was_deleted_is_stopped(self, open: Open) -> None:
        ours, theirs = await open.log(), await open.log()
        asking, _ = await self._asking(LogStore(ours.backend, lease=SHORT), "one")
        assert await theirs.delete("c")
        [outcome] = await asyncio.gather(asking, return_exceptions=True)
        assert isinstance(outcome, ConversationFenced), f"a turn without a conversation ended with {outcome!r}"
        assert await theirs.get("c") is None, "a conversation that was deleted came back"

    async def test_a_turn_that_takes_longer_than_its_lease_keeps_it(self, open: Open) -> None:
        ours, theirs = await open.log(), await open.log()
        asking, go = await self._asking(LogStore(ours.backend, lease=1.0), "one")
        end = asyncio.get_running_loop().time() + 1.5
        while asyncio.get_running_loop().time() < end:
            assert not await _is_free(theirs, "c"), "a lease ran out although its owner lives"
            await asyncio.sleep(0.05)
        go.set()
        assert await asking == answer("one", 0)

    async def test_a_turn_that_is_cancelled_at_any_await_leaves_the_conversation_free(self, open: Open) -> None:
        ours, theirs = await open.log(), await open.log()
        for at in range(1, 200):
            id = f"c{at}"
            asking = asyncio.ensure_future(cancelled_at(at, self.ask(ours, id, "one")))
            [outcome] = await asyncio.gather(asking, return_exceptions=True)
            assert await _is_free(theirs, id), f"cancelled at await {at}, the turn's lease was left behind"
            before = await theirs.get(id) or []
            finished = [] if isinstance(outcome, BaseException) else ["one"]
            found = problems(before, finished=finished, unfinished=["one"])
            assert not found, f"cancelled at await {at}: {found}"
            said = await self.ask(theirs, id, "two")
            assert said == answer("two", len(before)), f"cancelled at await {at}, the conversation changed afterwards"
            if not isinstance(outcome, BaseException):
                break
        else:
            pytest.fail("a turn has more than 200 awaits")

    async def _asking(self, store: LogStore, text: str) -> tuple[asyncio.Task[str], asyncio.Event]:
        """A turn whose model has been asked, and answers at the event."""
        asked, go = asyncio.Event(), asyncio.Event()

        async def model(request: dict[str, Any]) -> Mapping[str, Any]:
            asked.set()
            await go.wait()
            return await echo(request)

        asking = asyncio.create_task(self.ask(store, "c", text, model))
        asking.add_done_callback(lambda _: asked.set())
        await asked.wait()
        if asking.done():
            await asking
        return asking, go


class _CancelledAt:
    """Awaits a coroutine, and has its own task cancelled when it waits for the k-th time."""

    def __init__(self, at: int, work: Coroutine[Any, Any, Any]) -> None:
        self._at = at
        self._work = work

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._work.__await__()
        resume: Callable[[], Any] = functools.partial(steps.send, None)
        waits = 0
        while True:
            try:
                awaited = resume()
            except StopIteration as end:
                return end.value
            waits += 1
            if waits == self._at and (task := asyncio.current_task()) is not None:
                task.cancel()
            try:
                sent = yield awaited
            except BaseException as error:  # noqa: BLE001 - it is for the coroutine, whatever it is
                resume = functools.partial(steps.throw, error)
            else:
                resume = functools.partial(steps.send, sent)


async def cancelled_at(at: int, work: Coroutine[Any, Any, _T]) -> _T:
    """Await `work`, cancelled when it waits for the `at`-th time, from 1."""
    return await _CancelledAt(at, work)


def _failing_after(*names: str) -> Model:
    """A model that asks for these calls first, if there are any, and then fails."""

    async def model(request: dict[str, Any]) -> Mapping[str, Any]:
        if names and request["messages"][-1]["role"] == "user":
            return _calls(*names)
        raise ToolnexusError("the model is gone")

    return model


async def _is_free(store: LogStore, id: str) -> bool:
    seen = await store.backend.read(Key(store.scope, id))
    return seen is None or seen.lease is None or seen.lease.left <= 0


def _roles(messages: Sequence[Mapping[str, Any]] | None) -> list[str]:
    return [message["role"] for message in messages or ()]
