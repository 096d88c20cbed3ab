"""Turns that go on: after a person answered, after an interruption, in another process, on every kind of store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from scripts import read, scripted, told

from toolnexus import (
    Client,
    ConfigurationError,
    Deny,
    Finished,
    Hooks,
    InvalidConversationId,
    ProviderError,
    Request,
    RunResult,
    RunTimeout,
    StoreError,
    Suspended,
    TextDelta,
    Tool,
    ToolContext,
    ToolFinished,
    ToolOverride,
    Usage,
    create_client,
    define_tool,
    suspend,
)
from toolnexus.errors import AlreadyAnswered, NoSuchConversation
from toolnexus.messages import INTERRUPTED, NOT_ANSWERED, WAITING
from toolnexus.stores import records
from toolnexus.stores.file import FileStore
from toolnexus.stores.logstore import LogStore
from toolnexus.stores.memory import MemoryBackend
from toolnexus.stores.sqlite import SQLiteStore
from toolnexus.testing import ScriptedTransport, call, openai_reply
from toolnexus.testing.replies import openai_stream
from toolnexus.transport import Response

Open: TypeAlias = Callable[[], Any]

DONE = openai_reply("Done.")
BROKEN = Response(status=400, headers={}, body=b'{"error": {"message": "no more"}}')


class Plain:
    """A store of two methods on a shelf of JSON texts, as another process would find them."""

    def __init__(self, shelf: dict[str, str]) -> None:
        self.shelf = shelf
        self.calls: list[str] = []

    async def get(self, id: str) -> list[Any] | None:
        self.calls.append("get")
        return json.loads(self.shelf[id]) if id in self.shelf else None

    async def save(self, id: str, messages: list[Any]) -> None:
        self.calls.append("save")
        self.shelf[id] = json.dumps(messages)


def plain(_: Path) -> Open:
    shelf: dict[str, str] = {}
    return lambda: Plain(shelf)


def memory(_: Path) -> Open:
    backend = MemoryBackend()
    return lambda: LogStore(backend)


def sqlite(folder: Path) -> Open:
    return lambda: SQLiteStore(folder / "chat.db")


def file(folder: Path) -> Open:
    return lambda: FileStore(folder / "chats")


LOGS = [memory, sqlite, file]


class World:
    """Stores on the same data, each with a client of its own, as in so many processes."""

    def __init__(self, open: Open) -> None:
        self.open = open
        self._stores: list[Any] = []

    def process(self, *steps: Any, **options: Any) -> tuple[Client, ScriptedTransport]:
        self._stores.append(self.open())
        return scripted(*steps, store=self._stores[-1], **options)

    async def history(self, id: str = "c") -> list[Any]:
        self._stores.append(self.open())
        return await self._stores[-1].get(id) or []

    async def aclose(self) -> None:
        for store in self._stores:
            if hasattr(store, "aclose"):
                await store.aclose()


@pytest.fixture(params=[plain, *LOGS], ids=lambda make: make.__name__)
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    world = World(request.param(tmp_path))
    yield world
    await world.aclose()


@pytest.fixture(params=LOGS, ids=lambda make: make.__name__)
async def logged(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    world = World(request.param(tmp_path))
    yield world
    await world.aclose()


class Shop:
    """Tools that act, and a note of what they did."""

    def __init__(self) -> None:
        self.paid: list[int] = []
        self.keys: list[str] = []
        self.looked = 0
        self.hanging = asyncio.Event()
        self.hang = False
        self.idempotent = False
        self.marked = False

    async def pay(self, amount: int, ctx: ToolContext) -> str:
        """Pay."""
        self.paid.append(amount)
        self.keys.append(ctx.idempotency_key)
        if self.hang:
            self.hanging.set()
            await asyncio.Event().wait()
        return f"paid {amount}"

    async def look(self) -> str:
        """Look."""
        self.looked += 1
        return "seen"

    async def ask(self, about: str, ctx: ToolContext) -> str:
        """Ask."""
        if ctx.answer is None:
            suspend("question", f"{about}?")
        return f"{about}: {ctx.answer.get('data')}"

    @property
    def tools(self) -> list[Any]:
        pay = define_tool(self.pay, idempotent=self.idempotent, needs_approval=self.marked)
        return [pay, define_tool(self.look, read_only=True), self.ask]


def asks(*calls: Any, **more: Any) -> Any:
    return openai_reply(calls=calls, **more)


def ok(request: Request, **more: Any) -> Any:
    return {"id": request["id"], "ok": True, **more}


def no(request: Request, **more: Any) -> Any:
    return {"id": request["id"], "ok": False, **more}


PAY = call("pay", amount=5)
TEA = call("ask", about="tea")
MILK = call("ask", about="milk")


async def suspended(world: World, *calls: Any, shop: Shop | None = None, **options: Any) -> RunResult:
    """A turn that waits, in a process that is gone."""
    client, model = world.process(asks(*calls), **options)
    async with client:
        result = await client.ask("go", (shop or Shop()).tools, id="c")
    assert result.status == "pending"
    model.assert_finished()
    return result


# Answers


async def test_a_turn_goes_on_in_another_process_with_the_answer(world: World) -> None:
    shop = Shop()
    first = await suspended(world, call("look"), TEA, shop=shop)
    client, model = world.process(DONE)
    async with client:
        result = await client.resume("c", shop.tools, answers=[ok(first.pending[0], data="green")])

    assert told(model.requests[0]) == ["seen", "tea: green"]
    assert (result.status, result.text, result.pending) == ("done", "Done.", ())
    assert (result.turn_id, result.conversation_id) == (first.turn_id, "c")
    assert [c.name for c in result.tool_calls] == ["ask"]
    assert shop.looked == 1
    history = await world.history()
    assert history == result.messages
    assert [m["role"] for m in history] == ["user", "assistant", "tool", "tool", "assistant"]
    assert not any({"request", "arguments", "unfinished"} & m.keys() for m in history)


async def test_a_turn_that_waits_is_stored_with_its_placeholder(world: World) -> None:
    first = await suspended(world, TEA)
    history = await world.history()

    assert history == first.messages
    assert history[-1] == {
        "role": "tool",
        "tool_call_id": "call_1",
        "content": WAITING,
        "request": first.pending[0],
    }


async def test_what_is_not_answered_stays_pending(world: World) -> None:
    first = await suspended(world, TEA, MILK)
    tea, milk = first.pending
    client, model = world.process()
    async with client:
        second = await client.resume("c", Shop().tools, answers=[ok(milk, data="oat")])
        third = await client.resume("c", Shop().tools)
    model.assert_finished()

    assert (second.status, second.pending, second.text) == ("pending", (tea,), "")
    assert [c.output for c in second.tool_calls] == ["milk: oat"]
    assert (third.status, third.pending, third.tool_calls) == ("pending", (tea,), ())
    client, model = world.process(DONE)
    async with client:
        fourth = await client.resume("c", Shop().tools, answers=[ok(tea)])
    assert fourth.status == "done"
    assert told(model.requests[0]) == ["tea: None", "milk: oat"]


async def test_an_approved_call_runs_once_with_exactly_what_was_shown(world: World) -> None:
    shop, hooked = Shop(), []

    def before_tool(event: Any) -> ToolOverride:
        hooked.append(event.arguments)
        return ToolOverride(arguments={"amount": event.arguments["amount"] + 1})

    options = {"require_approval": ["pay"], "hooks": Hooks(before_tool=before_tool)}
    first = await suspended(world, PAY, shop=shop, **options)
    assert (shop.paid, first.pending[0].get("data")) == ([], {"tool": "pay", "arguments": {"amount": 6}})

    client, model = world.process(DONE, **options)
    async with client:
        result = await client.resume("c", shop.tools, answers=[ok(first.pending[0])])
    assert (shop.paid, len(hooked)) == ([6], 1)
    assert result.tool_calls[0].args == {"amount": 6}
    assert told(model.requests[0]) == ["paid 6"]


async def test_a_person_may_change_the_arguments(world: World) -> None:
    shop = Shop()
    first = await suspended(world, PAY, shop=shop, require_approval="*")
    client, _ = world.process(DONE)
    async with client:
        await client.resume("c", shop.tools, answers=[ok(first.pending[0], data={"arguments": {"amount": 1}})])
    assert shop.paid == [1]


async def test_a_tool_goes_on_with_what_the_hooks_made_of_its_arguments(world: World) -> None:
    hooks = Hooks(before_tool=lambda _: ToolOverride(arguments={"about": "coffee"}))
    first = await suspended(world, TEA, hooks=hooks)
    client, model = world.process(DONE)
    async with client:
        await client.resume("c", Shop().tools, answers=[ok(first.pending[0])])
    assert told(model.requests[0]) == ["coffee: None"]


async def test_a_denied_call_never_runs_and_the_model_is_told_why(world: World) -> None:
    shop = Shop()
    first = await suspended(world, PAY, TEA, shop=shop, require_approval=["pay"])
    client, model = world.process(DONE)
    async with client:
        answers = [no(first.pending[0], reason="too dear"), no(first.pending[1])]
        result = await client.resume("c", shop.tools, answers=answers)

    assert told(model.requests[0]) == ["denied: too dear", "declined"]
    assert (shop.paid, [c.is_error for c in result.tool_calls]) == ([], [True, True])


async def test_wait_for_is_asked_when_the_turn_goes_on(world: World) -> None:
    first = await suspended(world, TEA, MILK)
    client, model = world.process(DONE, wait_for=lambda request: ok(request, data="asked"))
    async with client:
        result = await client.resume("c", Shop().tools, answers=[ok(first.pending[0], data="given")])

    assert result.status == "done"
    assert told(model.requests[0]) == ["tea: given", "milk: asked"]


class Then:
    """A clock that stands."""

    def __init__(self, text: str) -> None:
        self.text = text

    def now(self) -> float:
        return datetime.fromisoformat(self.text).timestamp()

    async def sleep(self, seconds: float) -> None: ...


async def test_an_expired_request_is_declined_whatever_the_answer(world: World) -> None:
    async def hurry(n: int, ctx: ToolContext) -> str:
        if ctx.answer is None:
            suspend("q", "Quick?", expires_at=datetime(2030, 1, n, tzinfo=UTC))
        return f"{n} in time"

    client, _ = world.process(asks(*(call("hurry", n=n) for n in (1, 2, 3))), clock=Then("2029-01-01T00:00:00Z"))
    async with client:
        first = await client.ask("go", [hurry], id="c")
    client, model = world.process(DONE, clock=Then("2030-01-02T12:00:00Z"))
    async with client:
        result = await client.resume("c", [hurry], answers=[ok(first.pending[0]), ok(first.pending[2])])

    assert result.status == "done"
    assert told(model.requests[0]) == ["declined: the request expired", "declined: the request expired", "3 in time"]


# Wrong answers


async def test_a_wrong_id_is_an_error_that_names_those_that_wait_and_changes_nothing(world: World) -> None:
    first = await suspended(world, TEA)
    client, _ = world.process(DONE)
    async with client:
        with pytest.raises(ConfigurationError, match=first.pending[0]["id"]):
            await client.resume("c", Shop().tools, answers=[{"id": "nonsense", "ok": True}])
        assert await world.history() == first.messages
        assert (await client.resume("c", Shop().tools, answers=[ok(first.pending[0])])).status == "done"


@pytest.mark.parametrize(
    "answers",
    [
        [{"ok": True}],
        [{"id": "a"}],
        [{"id": "a", "ok": 1}],
        [{"id": "a", "ok": True}, {"id": "a", "ok": False}],
        [{"id": "a", "ok": True, "data": {"arguments": [1]}}],
        [{"id": "a", "ok": True, "reason": 7}],
        [{"id": "a", "ok": True, "data": {1, 2}}],
        {"id": "a", "ok": True},
        "yes",
        ["yes"],
    ],
)
async def test_what_is_no_list_of_answers_is_refused_before_anything_is_read(answers: Any) -> None:
    store = Plain({})
    client, _ = scripted(store=store)
    with pytest.raises(ConfigurationError):
        await client.resume("c", answers=answers)
    assert store.calls == []


async def test_a_tool_that_is_missing_is_named_and_nothing_is_lost(world: World) -> None:
    first = await suspended(world, TEA)
    client, _ = world.process(DONE)
    async with client:
        with pytest.raises(ConfigurationError, match="ask"):
            await client.resume("c", answers=[ok(first.pending[0])])
        assert (await client.resume("c", Shop().tools, answers=[ok(first.pending[0])])).status == "done"


async def test_what_was_answered_cannot_be_answered_again(world: World) -> None:
    shop = Shop()
    first = await suspended(world, PAY, TEA, shop=shop, require_approval=["pay"])
    pay, tea = map(ok, first.pending)
    client, _ = world.process(DONE)
    async with client:
        assert (await client.resume("c", shop.tools, answers=[pay])).status == "pending"
        with pytest.raises(AlreadyAnswered):
            await client.resume("c", shop.tools, answers=[pay])
        assert (await client.resume("c", shop.tools, answers=[tea])).status == "done"
        for answers in ([pay], [tea], [], None):
            with pytest.raises(AlreadyAnswered):
                await client.resume("c", shop.tools, answers=answers)
    assert shop.paid == [5]


async def test_of_two_who_resume_at_once_one_wins(world: World) -> None:
    shop = Shop()
    first = await suspended(world, PAY, shop=shop, require_approval=["pay"])
    client, model = world.process(DONE)
    other = client if isinstance(client.conversation_store, Plain) else world.process()[0]
    async with client, other:
        outcomes = await asyncio.gather(
            *(c.resume("c", shop.tools, answers=[ok(first.pending[0])]) for c in (client, other)),
            return_exceptions=True,
        )
    # Whichever wins has to have the model's reply.
    if isinstance(outcomes[0], RunResult):
        assert isinstance(outcomes[1], AlreadyAnswered)
        model.assert_finished()
    else:
        assert isinstance(outcomes[0], AlreadyAnswered)
    assert shop.paid == [5]


async def test_a_conversation_that_nobody_knows_cannot_be_resumed(world: World) -> None:
    client, _ = world.process()
    async with client:
        with pytest.raises(NoSuchConversation):
            await client.resume("c", answers=[{"id": "a", "ok": True}])
        with pytest.raises(InvalidConversationId):
            await client.resume("")
        with pytest.raises(InvalidConversationId):
            client.stream_resume(None)  # type: ignore[arg-type]


async def test_a_turn_that_has_its_answer_has_nothing_to_resume(world: World) -> None:
    client, _ = world.process(DONE)
    async with client:
        await client.ask("go", id="c")
        with pytest.raises(AlreadyAnswered):
            await client.resume("c")


async def test_a_new_ask_goes_on_without_the_answer(world: World) -> None:
    shop = Shop()
    first = await suspended(world, TEA, PAY, shop=shop, require_approval=["pay"])
    client, model = world.process(DONE, openai_reply("Well."))
    async with client:
        await client.ask("never mind", shop.tools, id="c")
        with pytest.raises(AlreadyAnswered):
            await client.resume("c", shop.tools, answers=[ok(first.pending[0])])

    said = [(m["role"], m.get("content")) for m in model.requests[0].json["messages"]]
    assert said[2:] == [("tool", NOT_ANSWERED), ("tool", NOT_ANSWERED), ("user", "never mind")]
    history = await world.history()
    assert [m.get("is_error") for m in history[2:4]] == [True, True]
    assert "request" not in history[2]
    assert shop.paid == []


async def test_a_new_ask_that_fails_leaves_the_question_open(world: World) -> None:
    shop = Shop()
    first = await suspended(world, PAY, shop=shop, require_approval=["pay"])
    before = await world.history()
    client, _ = world.process(BROKEN)
    with pytest.raises(ProviderError):
        await client.ask("never mind", shop.tools, id="c")
    assert await world.history() == before
    client, _ = world.process(DONE)
    result = await client.resume("c", shop.tools, answers=[ok(first.pending[0])])
    assert (result.status, result.turn_id, shop.paid) == ("done", first.turn_id, [5])
    assert await world.history() == result.messages


async def test_a_turn_keeps_its_key_when_it_goes_on_after_an_edit(logged: World) -> None:
    shop = Shop()
    client, _ = logged.process(asks(PAY, usage=Usage(prompt=3, completion=1, total=4)), require_approval=["pay"])
    first = await client.ask("go", shop.tools, id="c", key="k")
    store = logged.open()
    await store.save("c", first.messages)
    client, _ = logged.process(DONE)
    await client.resume("c", shop.tools, answers=[ok(first.pending[0])])
    again = await client.ask("go", shop.tools, id="c", key="k")
    assert (again.text, again.replayed, shop.paid) == ("Done.", True, [5])
    await store.aclose()


# Interruptions


async def test_a_provider_that_fails_after_the_payment_does_not_make_it_twice(world: World) -> None:
    shop = Shop()
    client, _ = world.process(asks(PAY), BROKEN)
    async with client:
        with pytest.raises(ProviderError) as caught:
            await client.ask("go", shop.tools, id="c")
    client, model = world.process(DONE)
    async with client:
        result = await client.resume("c", shop.tools)

    assert (result.status, result.text, shop.paid) == ("done", "Done.", [5])
    assert caught.value.partial is not None
    assert result.turn_id == caught.value.partial.turn_id
    assert told(model.requests[0]) == ["paid 5"]
    assert await world.history() == result.messages


async def test_a_turn_that_fails_again_when_it_goes_on_can_go_on_again(world: World) -> None:
    shop = Shop()
    first = await suspended(world, PAY, shop=shop, require_approval=["pay"])
    client, _ = world.process(BROKEN, BROKEN, DONE)
    async with client:
        with pytest.raises(ProviderError):
            await client.resume("c", shop.tools, answers=[ok(first.pending[0])])
        with pytest.raises(ProviderError):
            await client.resume("c", shop.tools)
        result = await client.resume("c", shop.tools)

    assert (result.status, result.turn_id, shop.paid) == ("done", first.turn_id, [5])
    assert result.messages == await world.history()


async def test_a_deadline_after_the_payment_does_not_make_it_twice(world: World) -> None:
    shop = Shop()

    async def stare() -> str:
        """Stare."""
        await asyncio.Event().wait()
        return "never"

    tools = [*shop.tools, define_tool(stare, read_only=True)]
    client, _ = world.process(asks(PAY, call("stare")))
    async with client:
        with pytest.raises(RunTimeout):
            await client.ask("go", tools, id="c", timeout=0.2)

    async def blink() -> str:
        """Blink."""
        return "blinked"

    client, model = world.process(DONE)
    async with client:
        await client.resume("c", [*shop.tools, define_tool(blink, name="stare", read_only=True)])
    assert told(model.requests[0]) == ["paid 5", "blinked"]
    assert shop.paid == [5]


async def interrupted(world: World, shop: Shop) -> None:
    """Cancel an ask while the payment runs."""
    shop.hang = True
    client, _ = world.process(asks(call("look"), PAY))
    async with client:
        task = asyncio.create_task(client.ask("go", shop.tools, id="c"))
        await shop.hanging.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    shop.hang = False


async def test_a_call_whose_outcome_is_unknown_is_asked_about_and_repeated_under_the_same_key(world: World) -> None:
    shop = Shop()
    await interrupted(world, shop)
    client, model = world.process(DONE)
    async with client:
        result = await client.resume("c", shop.tools)
        [request] = result.pending
        assert (request["kind"], request.get("data")) == ("retry", {"tool": "pay", "arguments": {"amount": 5}})
        assert (result.status, shop.paid) == ("pending", [5])
        assert (await world.history())[-1]["content"] == INTERRUPTED
        result = await client.resume("c", shop.tools, answers=[ok(request)])

    assert (result.status, shop.paid, shop.looked) == ("done", [5, 5], 1)
    assert shop.keys[0] == shop.keys[1]
    assert told(model.requests[0]) == ["seen", "paid 5"]


async def test_a_call_that_nobody_wants_to_be_repeated_stays_unknown(world: World) -> None:
    shop = Shop()
    await interrupted(world, shop)
    client, model = world.process(BROKEN, DONE)
    async with client:
        [request] = (await client.resume("c", shop.tools)).pending
        with pytest.raises(ProviderError):
            await client.resume("c", shop.tools, answers=[no(request, reason="I see it on the bill")])
        result = await client.resume("c", shop.tools)

    assert (result.status, shop.paid) == ("done", [5])
    assert told(model.requests[1]) == ["seen", INTERRUPTED]


async def test_an_idempotent_call_is_repeated_without_a_question(world: World) -> None:
    shop = Shop()
    shop.idempotent = True
    await interrupted(world, shop)
    client, model = world.process(DONE)
    async with client:
        result = await client.resume("c", shop.tools)

    assert (result.status, shop.paid) == ("done", [5, 5])
    assert shop.keys[0] == shop.keys[1]
    assert told(model.requests[0]) == ["seen", "paid 5"]


async def test_a_new_ask_after_an_interruption_leaves_the_outcome_unknown(world: World) -> None:
    shop = Shop()
    await interrupted(world, shop)
    client, model = world.process(DONE)
    async with client:
        await client.resume("c", shop.tools)  # now a person is asked
        await client.ask("and?", shop.tools, id="c")

    said = [m.get("content") for m in model.requests[0].json["messages"]]
    assert said[-2:] == [INTERRUPTED, "and?"]
    assert not any({"request", "unfinished"} & m.keys() for m in await world.history())


async def test_hooks_see_the_call_before_a_person_decides_whether_it_is_repeated(world: World) -> None:
    shop = Shop()
    await interrupted(world, shop)
    hooks = Hooks(before_tool=lambda event: ToolOverride(arguments={"amount": event.arguments["amount"] - 1}))
    client, _ = world.process(DONE, hooks=hooks)
    async with client:
        [request] = (await client.resume("c", shop.tools)).pending
        await client.resume("c", shop.tools, answers=[ok(request)])
    assert shop.paid == [5, 4]


async def test_a_hook_that_denies_a_call_now_does_not_say_what_happened_then(world: World) -> None:
    shop = Shop()
    await interrupted(world, shop)
    client, model = world.process(DONE, hooks=Hooks(before_tool=lambda _: Deny(reason="never")))
    async with client:
        assert (await client.resume("c", shop.tools)).status == "done"
    assert told(model.requests[0]) == ["seen", INTERRUPTED]


async def test_the_key_of_a_call_is_the_same_before_and_after_approval(world: World) -> None:
    keys: list[str] = []

    async def twice(ctx: ToolContext) -> str:
        """Twice."""
        keys.append(ctx.idempotency_key)
        if ctx.answer is None:
            suspend("q", "Again?")
        return "ok"

    client, _ = world.process(DONE, DONE, asks(call("twice")))
    async with client:
        await client.ask("one", id="c")
        await client.ask("two", id="c")
        first = await client.ask("go", [twice], id="c")
    client, _ = world.process(asks(call("twice")), DONE)
    async with client:
        second = await client.resume("c", [twice], answers=[ok(first.pending[0])])
        await client.resume("c", [twice], answers=[ok(second.pending[0])])

    assert keys[0] == keys[1]
    assert keys[2] == keys[3]
    assert keys[0] != keys[2]


async def test_an_interrupted_turn_without_open_calls_just_goes_on(logged: World) -> None:
    thinking = asyncio.Event()

    async def generate(_: Any) -> Any:
        thinking.set()
        await asyncio.Event().wait()

    from toolnexus import create_in_process_client

    async with create_in_process_client(generate=generate, store=logged.open()) as client:
        task = asyncio.create_task(client.ask("go", id="c"))
        await thinking.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await client.conversation_store.aclose()  # type: ignore[attr-defined]
    assert await logged.history() == []
    client, model = logged.process(DONE)
    async with client:
        result = await client.resume("c")
    assert result.text == "Done."
    assert model.requests[0].json["messages"] == [{"role": "user", "content": "go"}]
    assert await logged.history() == result.messages


@pytest.mark.parametrize("make", [plain, memory], ids=lambda make: make.__name__)
async def test_an_answer_that_was_cut_off_is_said_anew(make: Any, tmp_path: Path) -> None:
    world = World(make(tmp_path))
    cut = openai_stream("Half an ", "answer")[:-3]
    client, _ = world.process(asks(PAY), [*cut, asyncio.CancelledError()])
    shop = Shop()
    events = client.stream("go", shop.tools, id="c", keep_interrupted=True)
    async with events:
        async for event in events:
            if isinstance(event, TextDelta):
                break
    assert (await world.history())[-1] == {"role": "assistant", "content": "Half an ", "interrupted": True}
    client, model = world.process(DONE)
    result = await client.resume("c", shop.tools)
    assert told(model.requests[0]) == ["paid 5"]
    assert [m["role"] for m in result.messages] == ["user", "assistant", "tool", "assistant"]
    assert result.messages == await world.history()


# The forms of the verb


async def test_a_resumed_turn_streams(world: World) -> None:
    first = await suspended(world, TEA, MILK)
    client, _ = world.process(openai_stream("Do", "ne."))
    async with client:
        events = await read(client.stream_resume("c", Shop().tools, answers=[ok(first.pending[0])]))
        assert [type(e) for e in events if isinstance(e, Suspended | ToolFinished)] == [Suspended, ToolFinished]
        assert isinstance(events[-1], Finished)
        assert events[-1].result.status == "pending"
        pieces: list[str] = []
        await client.resume("c", Shop().tools, answers=[ok(first.pending[1])], on_text=pieces.append)
    assert pieces == ["Do", "ne."]


def test_resuming_works_without_an_event_loop() -> None:
    client, _ = scripted(asks(TEA), DONE, asks(TEA), DONE)
    shop = Shop()
    first = client.ask_sync("go", shop.tools, id="c")
    assert client.resume_sync("c", shop.tools, answers=[ok(first.pending[0])]).status == "done"
    second = client.run_sync("go", shop.tools)
    assert client.resume_run_sync(second.messages, [ok(second.pending[0])], shop.tools).status == "done"
    client.close()


async def test_a_run_that_nobody_remembers_goes_on_from_its_messages() -> None:
    keys: list[str] = []

    async def twice(ctx: ToolContext) -> str:
        """Twice."""
        keys.append(ctx.idempotency_key)
        if ctx.answer is None:
            suspend("q", "Again?")
        return f"again {ctx.answer.get('data')}"

    client, model = scripted(asks(call("twice")), DONE)
    first = await client.run("go", [twice])
    history = json.loads(json.dumps(first.messages))
    result = await client.resume_run(history, [ok(first.pending[0], data=1)], [twice])

    assert (result.status, result.turn_id, result.conversation_id) == ("done", first.turn_id, None)
    assert told(model.requests[1]) == ["again 1"]
    assert keys[0] == keys[1]
    assert history == first.messages


@pytest.mark.parametrize("history", [[], [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]])
async def test_a_history_that_is_over_cannot_go_on(history: list[Any]) -> None:
    client, _ = scripted()
    with pytest.raises(ConfigurationError, match="nothing to resume"):
        await client.resume_run(history)


async def test_a_history_of_somebody_else_is_asked_about() -> None:
    client, _ = scripted()
    shop = Shop()
    entry = {"id": "x", "type": "function", "function": {"name": "pay", "arguments": '{"amount": 3}'}}
    history = [{"role": "user", "content": "go"}, {"role": "assistant", "tool_calls": [entry]}]
    result = await client.resume_run(history, None, shop.tools)
    assert [request["kind"] for request in result.pending] == ["retry"]
    assert shop.paid == []


async def test_arguments_that_could_not_be_read_are_not_run_later() -> None:
    client, model = scripted(DONE)
    shop = Shop()
    entry = {"id": "x", "type": "function", "function": {"name": "anything", "arguments": '{"amount": 3'}}
    history = [{"role": "user", "content": "go"}, {"role": "assistant", "tool_calls": [entry]}]
    anything = Tool(name="anything", execute=lambda arguments, _: shop.paid.append(1))
    await client.resume_run(history, None, [anything])
    assert told(model.requests[0]) == [INTERRUPTED]
    assert shop.paid == []


@pytest.mark.parametrize(
    ("change", "results"),
    [
        ({"expiresAt": "some day"}, ["declined: the request expired"]),
        ({"expiresAt": "2030-01-31T12:00:00"}, ["declined: the request expired"]),
        ({"data": None}, ["paid 5"]),
        ({"data": {"arguments": "all"}}, ["paid 5"]),
    ],
)
async def test_a_placeholder_that_was_tampered_with_does_no_harm(change: Any, results: Any) -> None:
    client, model = scripted(asks(PAY), DONE, require_approval=["pay"])
    shop = Shop()
    first = await client.run("go", shop.tools)
    history = first.messages
    history[-1]["request"] |= change  # type: ignore[typeddict-item]
    await client.resume_run(history, [ok(first.pending[0])], shop.tools)
    assert told(model.requests[1]) == results


@pytest.mark.parametrize("request_", [None, 7, {}, {"id": 1, "kind": "q", "prompt": "?"}])
async def test_what_is_no_request_is_a_result_like_any_other(request_: Any) -> None:
    client, model = scripted(DONE)
    entry = {"id": "x", "type": "function", "function": {"name": "pay", "arguments": "{}"}}
    history = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "tool_calls": [entry]},
        {"role": "tool", "tool_call_id": "x", "content": WAITING, "request": request_},
    ]
    assert (await client.resume_run(history)).status == "done"
    assert told(model.requests[0]) == [WAITING]


@pytest.mark.parametrize("own", [True, False])
async def test_a_conversation_object_resumes(own: bool) -> None:
    client, model = scripted(asks(TEA), DONE)
    conversation = client.conversation(Shop().tools, None if own else "c")
    first = await conversation.send("go")
    result = await conversation.resume(answers=[ok(first.pending[0], data="green")])
    assert (result.status, told(model.requests[1])) == ("done", ["tea: green"])
    assert await conversation.messages() == result.messages


async def test_a_step_limit_counts_the_replies_of_each_run(world: World) -> None:
    first = await suspended(world, TEA)
    client, _ = world.process(asks(call("look")), asks(call("look")), DONE)
    async with client:
        result = await client.resume("c", Shop().tools, answers=[ok(first.pending[0])], max_steps=1)
        assert (result.status, result.limit) == ("incomplete", "max_steps")


async def test_resuming_on_two_methods_is_one_get_and_one_save() -> None:
    shelf: dict[str, str] = {}
    client, _ = scripted(asks(TEA), store=Plain(shelf))
    first = await client.ask("go", Shop().tools, id="c")
    store = Plain(shelf)
    client, _ = scripted(DONE, store=store)
    await client.resume("c", Shop().tools, answers=[ok(first.pending[0])])
    assert store.calls == ["get", "save"]


# What only a log can do


async def test_the_turns_tell_of_the_whole_turn(logged: World) -> None:
    first = await suspended(logged, TEA, shop=Shop())
    client, _ = logged.process(openai_reply("Done.", usage=Usage(prompt=1, completion=2, total=3)))
    async with client:
        await client.resume("c", Shop().tools, answers=[ok(first.pending[0])])
        [turn] = await client.conversation_store.turns("c")  # type: ignore[attr-defined]
    assert (turn.id, turn.status) == (first.turn_id, "done")
    assert turn.outcome["usage"] == {"prompt": 11, "completion": 7, "total": 18}
    assert len(turn.outcome["steps"]) == 2


class Killed(MemoryBackend):
    """A backend whose process dies before some append."""

    def __init__(self) -> None:
        super().__init__()
        self.dies: Callable[[list[dict[str, Any]]], bool] = lambda _: False
        self.dead = False

    async def append(self, grant: Any, records: Any, *, expect: int, head: Any = None, release: bool = False) -> int:
        self.dead = self.dead or self.dies([json.loads(record) for record in records])
        if self.dead:
            raise StoreError("killed")
        return await super().append(grant, records, expect=expect, head=head, release=release)

    def next_process(self) -> LogStore:
        self.dead, self.dies = False, lambda _: False
        return LogStore(self, lease=0.02)


def told_by(kind: str, **fields: Any) -> Callable[[list[dict[str, Any]]], bool]:
    def dies(records: list[dict[str, Any]]) -> bool:
        return any(r["k"] == kind and fields.items() <= r.items() for r in records)

    return dies


async def test_a_process_killed_after_the_payment_was_recorded_does_not_make_it_twice() -> None:
    shop, backend = Shop(), Killed()
    client, _ = scripted(asks(PAY), BROKEN, store=LogStore(backend, lease=0.02))
    backend.dies = told_by("turn", status="failed")
    with pytest.raises(ProviderError):
        await client.ask("go", shop.tools, id="c")
    client, model = scripted(DONE, store=backend.next_process())
    result = await client.resume("c", shop.tools)
    assert (result.status, shop.paid, told(model.requests[0])) == ("done", [5], ["paid 5"])
    [turn] = await client.conversation_store.turns("c")  # type: ignore[attr-defined]
    assert [step.get("finish_reason") for step in turn.outcome["steps"]] == [None, "stop"]


async def test_a_process_killed_while_it_pays_leaves_a_question() -> None:
    shop, backend = Shop(), Killed()
    client, _ = scripted(asks(PAY), store=LogStore(backend, lease=0.02))
    backend.dies = told_by("message", m={"role": "tool", "tool_call_id": "call_1", "content": "paid 5"})
    with pytest.raises(StoreError):
        await client.ask("go", shop.tools, id="c")
    client, _ = scripted(DONE, store=backend.next_process())
    [request] = (await client.resume("c", shop.tools)).pending
    assert request["kind"] == "retry"
    await client.resume("c", shop.tools, answers=[ok(request)])
    assert shop.keys[0] == shop.keys[1]


async def test_a_process_killed_while_it_pays_what_was_approved_leaves_a_question_and_no_approval() -> None:
    shop, backend = Shop(), Killed()
    client, _ = scripted(asks(PAY), store=LogStore(backend, lease=0.02), require_approval=["pay"])
    first = await client.ask("go", shop.tools, id="c")
    client, _ = scripted(store=backend.next_process())
    backend.dies = told_by("message", m={"role": "tool", "tool_call_id": "call_1", "content": "paid 5"})
    with pytest.raises(StoreError):
        await client.resume("c", shop.tools, answers=[ok(first.pending[0])])
    client, _ = scripted(DONE, store=backend.next_process())
    with pytest.raises(AlreadyAnswered):
        await client.resume("c", shop.tools, answers=[ok(first.pending[0])])
    [request] = (await client.resume("c", shop.tools)).pending
    assert (request["kind"], shop.paid) == ("retry", [5])
    assert (await client.resume("c", shop.tools, answers=[no(request)])).status == "done"
    assert shop.paid == [5]


async def test_a_process_killed_before_an_approved_call_began_leaves_the_approval_open() -> None:
    shop, backend = Shop(), Killed()
    client, _ = scripted(asks(PAY), store=LogStore(backend, lease=0.02), require_approval=["pay"])
    first = await client.ask("go", shop.tools, id="c")
    client, _ = scripted(store=backend.next_process())
    backend.dies = told_by("effect", call="call_1")
    with pytest.raises(StoreError):
        await client.resume("c", shop.tools, answers=[ok(first.pending[0])])
    store = backend.next_process()
    client, _ = scripted(DONE, store=store)
    assert shop.paid == []
    assert await store.get("c") == []  # a turn that is open is not shown
    assert (await client.resume("c", shop.tools, answers=[ok(first.pending[0])])).status == "done"
    assert shop.paid == [5]


async def test_a_turn_that_waits_survives_a_process_that_was_killed_while_it_went_on() -> None:
    shop, backend = Shop(), Killed()
    client, _ = scripted(asks(PAY), store=LogStore(backend, lease=0.02), require_approval=["pay"])
    await client.ask("go", shop.tools, id="c")
    client, _ = scripted(store=backend.next_process())
    backend.dies = told_by("turn", status="suspended")
    with pytest.raises(StoreError):
        await client.resume("c", shop.tools)
    client, model = scripted(DONE, store=backend.next_process())
    await client.ask("and?", shop.tools, id="c")
    assert [m.get("content") for m in model.requests[0].json["messages"]][-2:] == [NOT_ANSWERED, "and?"]


async def test_a_process_killed_while_it_pays_what_was_approved_at_once_is_not_forgotten() -> None:
    shop, backend = Shop(), Killed()
    options: dict[str, Any] = {"wait_for": ok, "require_approval": ["pay"]}
    client, _ = scripted(asks(PAY), store=LogStore(backend, lease=0.02), **options)
    backend.dies = told_by("message", m={"role": "tool", "tool_call_id": "call_1", "content": "paid 5"})
    with pytest.raises(StoreError):
        await client.ask("go", shop.tools, id="c")
    client, model = scripted(DONE, store=backend.next_process())
    await client.ask("and?", shop.tools, id="c")
    assert [m.get("content") for m in model.requests[0].json["messages"]][-2:] == [INTERRUPTED, "and?"]


async def test_a_turn_that_waited_and_fails_when_it_goes_on_is_not_forgotten(world: World) -> None:
    first = await suspended(world, PAY, require_approval=["pay"])
    client, _ = world.process(BROKEN)
    async with client:
        with pytest.raises(ProviderError):
            await client.resume("c", Shop().tools, answers=[no(first.pending[0])])
    assert [m.get("content") for m in await world.history()] == ["go", None, "denied"]


async def test_a_history_from_elsewhere_is_not_forgotten_when_its_process_is_killed() -> None:
    shop, backend = Shop(), Killed()
    client, _ = scripted(asks(PAY), store=Plain({}), require_approval=["pay"])
    first = await client.ask("go", shop.tools, id="c")
    store = LogStore(backend, lease=0.02)
    await store.save("c", first.messages)
    client, _ = scripted(store=store)
    backend.dies = told_by("turn", status="failed")
    with pytest.raises(AssertionError, match="script"):
        await client.resume("c", shop.tools, answers=[no(first.pending[0])])
    client, model = scripted(DONE, store=backend.next_process())
    await client.ask("and?", shop.tools, id="c")
    assert [m.get("content") for m in model.requests[0].json["messages"]][-2:] == ["denied", "and?"]


async def test_what_a_person_is_asked_is_recorded_before_they_are_asked(logged: World) -> None:
    shop, asked = Shop(), asyncio.Event()

    async def wait_for(request: Request) -> Any:
        asked.set()
        await asyncio.Event().wait()

    client, _ = logged.process(asks(PAY), wait_for=wait_for, require_approval=["pay"])
    async with client:
        task = asyncio.create_task(client.ask("go", shop.tools, id="c"))
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert await logged.history() == []  # nothing was done
    client, model = logged.process(DONE)
    async with client:
        [request] = (await client.resume("c", shop.tools)).pending
        assert request["kind"] == "approval"
        assert (await client.resume("c", shop.tools, answers=[ok(request)])).status == "done"
    assert (shop.paid, told(model.requests[0])) == ([5], ["paid 5"])


async def test_a_history_that_was_brought_from_elsewhere_goes_on(logged: World) -> None:
    shop = Shop()
    client, _ = scripted(openai_reply("Hello."), asks(TEA), store=Plain({}))
    await client.ask("hi", shop.tools, id="c")
    first = await client.ask("go", shop.tools, id="c")
    store = logged.open()
    await store.save("c", first.messages)
    await store.aclose()
    client, model = logged.process(DONE)
    async with client:
        result = await client.resume("c", shop.tools, answers=[ok(first.pending[0], data="green")])
        [turn] = await client.conversation_store.turns("c")  # type: ignore[attr-defined]
    assert (result.status, result.turn_id, turn.id) == ("done", first.turn_id, first.turn_id)
    assert told(model.requests[0]) == ["tea: green"]
    assert await logged.history() == result.messages
    assert len(result.messages) == 6


async def test_a_history_that_was_brought_from_elsewhere_is_not_forgotten_when_it_fails(logged: World) -> None:
    shop = Shop()
    client, _ = scripted(asks(PAY), store=Plain({}), require_approval=["pay"])
    first = await client.ask("go", shop.tools, id="c")
    store = logged.open()
    await store.save("c", first.messages)
    await store.aclose()
    client, _ = logged.process(BROKEN)
    async with client:
        with pytest.raises(ProviderError):
            await client.resume("c", shop.tools, answers=[no(first.pending[0])])
    assert [m.get("content") for m in await logged.history()] == ["go", None, "denied"]


class Heads(MemoryBackend):
    """A backend that notes what a list shows."""

    def __init__(self) -> None:
        super().__init__()
        self.heads: list[Any] = []

    async def append(self, grant: Any, records: Any, *, expect: int, head: Any = None, release: bool = False) -> int:
        if head is not None:
            self.heads.append(head)
        return await super().append(grant, records, expect=expect, head=head, release=release)


async def test_a_turn_that_goes_on_adds_to_the_search_what_is_new() -> None:
    backend = Heads()
    client, _ = scripted(openai_reply("Hm.", calls=[TEA]), DONE, store=LogStore(backend))
    first = await client.ask("go", Shop().tools, id="c")
    await client.resume("c", Shop().tools, answers=[ok(first.pending[0], data="green")])
    assert [(head.text, head.status) for head in backend.heads] == [
        (f"go\nHm.\n{WAITING}", "suspended"),
        ("tea: green\nDone.", "done"),
    ]

    await LogStore(backend).save("d", first.messages)
    client, _ = scripted(DONE, store=LogStore(backend))
    await client.resume("d", Shop().tools, answers=[ok(first.pending[0], data="black")])
    assert (backend.heads[-1].text, backend.heads[-1].anew) == ("go\nHm.\ntea: black\nDone.", True)


async def test_what_a_dead_process_left_can_be_searched_after_the_next_turn() -> None:
    backend = MemoryBackend()
    store = LogStore(backend, lease=0.0)
    hold = await store.take(
        "c", lambda *_: records.opened("t1", {"role": "user", "content": "teal"}, at=1.0, saw=0, kept=True), wait=0
    )
    hold.leave()
    client, _ = scripted(DONE, store=LogStore(backend))
    await client.ask("go", id="c")
    assert [found.id for found in (await store.search("teal")).items] == ["c"]


async def test_a_hook_that_fails_with_a_run_of_its_own_does_not_spoil_the_record(logged: World) -> None:
    shop = Shop()
    inner, _ = scripted(asks(call("look")), BROKEN)

    async def before_llm(event: Any) -> None:
        if event.step:
            await inner.run("check", shop.tools)

    client, _ = logged.process(DONE, asks(PAY), hooks=Hooks(before_llm=before_llm))
    async with client:
        await client.ask("hi", id="c")
        with pytest.raises(ProviderError):
            await client.ask("go", shop.tools, id="c")
        [_, turn] = await client.conversation_store.turns("c")  # type: ignore[attr-defined]
    assert (turn.status, turn.outcome["error"]["kind"]) == ("failed", "bad_request")
    assert len(await logged.history()) == 5


async def test_a_fork_goes_on_by_itself(logged: World) -> None:
    first = await suspended(logged, TEA)
    client, _ = logged.process(DONE, openai_reply("Other."))
    async with client:
        await client.conversation_store.fork("c", "d")  # type: ignore[attr-defined]
        answers = [ok(first.pending[0])]
        assert (await client.resume("c", Shop().tools, answers=answers)).text == "Done."
        assert (await client.resume("d", Shop().tools, answers=answers)).text == "Other."


async def test_a_turn_recorded_at_its_end_alone_can_go_on_too(logged: World) -> None:
    shop = Shop()
    client, _ = logged.process(asks(PAY), DONE, require_approval=["pay"])
    async with client:
        first = await client.ask("go", shop.tools, id="c", durability="turn")
        result = await client.resume("c", shop.tools, answers=[ok(first.pending[0])], durability="turn")
    assert (result.status, shop.paid) == ("done", [5])
    assert await logged.history() == result.messages


def test_nothing_of_a_request_is_sent_to_a_model() -> None:
    for style, base in (("openai", "https://model.test/v1"), ("anthropic", "https://model.test")):
        from toolnexus.testing import anthropic_reply

        reply = DONE if style == "openai" else anthropic_reply("Done.")
        transport = ScriptedTransport(reply)
        client = create_client("m", transport=transport, base_url=base, style=style, retries=0)
        entry = {"id": "x", "type": "function", "function": {"name": "pay", "arguments": "{}"}}
        history: list[Any] = [
            {"role": "user", "content": "go"},
            {"role": "assistant", "tool_calls": [entry], "unfinished": "secret"},
            {"role": "tool", "tool_call_id": "x", "content": WAITING, "request": {"id": "secret"}, "arguments": {}},
        ]
        client.run_sync("and?", history=history)
        client.close()
        assert "secret" not in json.dumps(transport.requests[0].json)
