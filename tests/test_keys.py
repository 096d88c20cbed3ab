"""Idempotency keys: the same key in a conversation is one turn, whatever became of it."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from typing import Any

import pytest
from scripts import read, scripted, told

from toolnexus import (
    ConfigurationError,
    ConversationBusy,
    Finished,
    Hooks,
    InMemoryConversationStore,
    ProviderError,
    Request,
    RunResult,
    StoreError,
    ToolContext,
    ToolOverride,
    ToolResult,
    Usage,
    define_tool,
    suspend,
)
from toolnexus.errors import KeyReused, TurnInterrupted
from toolnexus.stores.logstore import LogStore
from toolnexus.stores.memory import MemoryBackend
from toolnexus.testing import anthropic_reply, call, openai_reply
from toolnexus.testing.replies import openai_stream
from toolnexus.transport import Response

DONE = openai_reply("Done.")
PAY = openai_reply(calls=[call("pay", amount=5)])
BROKEN = Response(status=400, headers={}, body=b'{"error": {"message": "no more"}}')


class Till:
    """A tool that acts, and a note of how often."""

    def __init__(self) -> None:
        self.paid: list[int] = []
        self.began = asyncio.Event()
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def pay(self, amount: int) -> str:
        """Pay."""
        self.paid.append(amount)
        self.began.set()
        await self.go_on.wait()
        return f"paid {amount}"


def ok(request: Request, **more: Any) -> Any:
    return {"id": request["id"], "ok": True, **more}


def same(first: RunResult, again: RunResult) -> bool:
    """Whether a result is that of before, but for saying so."""
    assert not first.replayed
    assert again.replayed
    assert list(first.transcript) == list(again.transcript)
    assert dataclasses.replace(again, replayed=False, transcript=()) == dataclasses.replace(first, transcript=())
    return True


def image(what: str) -> Any:
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{what}"}}


async def rich(n: int) -> ToolResult:
    """Give everything that a result can hold."""
    return ToolResult(output=f"no {n}", is_error=True, parts=(image("AAAA"),), metadata={"code": n, "paths": ["a"]})


async def texts() -> ToolResult:
    """Give parts of text beside the text."""
    return ToolResult(output="one", parts=({"type": "text", "text": "two"},))


async def test_a_turn_that_is_done_gives_its_recorded_result() -> None:
    till = Till()
    steps = [
        openai_reply(
            "Wait.",
            reasoning="Hm.",
            calls=[call("rich", n=1), call("pay", amount=5), {"name": "pay", "arguments": "{broken"}, call("texts")],
        ),
        openai_reply("Done.", reasoning="Well.", usage=Usage(prompt=7, completion=1, total=8, cached=3, reasoning=1)),
    ]
    hooks = Hooks(before_tool=lambda e: ToolOverride(arguments={"amount": 6}) if e.tool.name == "pay" else None)
    client, model = scripted(openai_reply("Hello."), *steps, hooks=hooks)
    await client.ask("hi", id="c")
    first = await client.ask("go", [till.pay, rich, texts], id="c", key="k")
    again = await client.ask("go", [till.pay, rich, texts], id="c", key="k")

    assert same(first, again)
    assert (till.paid, first.tool_calls[1].args, first.tool_calls[0].metadata["code"]) == ([6], {"amount": 6}, 1)
    model.assert_finished()


async def test_a_stream_gives_its_recorded_result_at_once() -> None:
    client, _ = scripted(openai_stream("Do", "ne."))
    first = await read(client.stream("go", id="c", key="k"))
    again = await read(client.stream("go", id="c", key="k"))
    assert isinstance(first[-1], Finished)
    assert isinstance(again[0], Finished)
    assert len(again) == 1
    assert same(first[-1].result, again[0].result)


async def test_a_turn_at_a_limit_gives_its_recorded_result() -> None:
    client, _ = scripted(PAY, openai_reply("Half", finish_reason="length"))
    till = Till()
    steps = await client.ask("go", [till.pay], id="c", key="k1", max_steps=1)
    tokens = await client.ask("tell", id="c", key="k2")
    assert (steps.limit, tokens.limit) == ("max_steps", "max_tokens")
    assert same(steps, await client.ask("go", [till.pay], id="c", key="k1"))
    assert same(tokens, await client.ask("tell", id="c", key="k2"))


async def test_an_answer_that_the_provider_paused_is_replayed_whole() -> None:
    paused = {**anthropic_reply("First, "), "stop_reason": "pause_turn"}
    client, _ = scripted(paused, anthropic_reply("then."), base_url="https://model.test", style="anthropic")
    first = await client.ask("go", id="c", key="k")
    assert first.text == "First, then."
    assert same(first, await client.ask("go", id="c", key="k"))


async def test_metadata_that_is_no_json_is_left_out_and_hurts_nobody() -> None:
    async def odd() -> ToolResult:
        """Give odd things."""
        return ToolResult(output="ok", metadata={"set": {1}})

    client, _ = scripted(openai_reply(calls=[call("odd")]), DONE)
    first = await client.ask("go", [odd], id="c", key="k")
    again = await client.ask("go", [odd], id="c", key="k")
    assert first.tool_calls[0].metadata == {"set": {1}}
    assert again.tool_calls[0].metadata == {}


async def test_a_turn_that_runs_is_waited_for() -> None:
    till = Till()
    till.go_on.clear()
    client, model = scripted(PAY, DONE)
    first = asyncio.create_task(client.ask("go", [till.pay], id="c", key="k"))
    await till.began.wait()
    with pytest.raises(ConversationBusy):
        await client.ask("go", [till.pay], id="c", key="k", busy="raise")
    again = asyncio.create_task(client.ask("go", [till.pay], id="c", key="k"))
    await asyncio.sleep(0)
    till.go_on.set()
    assert same(await first, await again)
    assert till.paid == [5]
    model.assert_finished()


async def test_a_turn_that_runs_in_another_process_is_waited_for() -> None:
    backend, till = MemoryBackend(), Till()
    till.go_on.clear()
    here, _ = scripted(PAY, DONE, store=LogStore(backend))
    apart = Apart(backend)
    there, _ = scripted(store=LogStore(apart))
    first = asyncio.create_task(here.ask("go", [till.pay], id="c", key="k"))
    await till.began.wait()
    again = asyncio.create_task(there.ask("go", [till.pay], id="c", key="k"))
    await apart.refused.wait()
    till.go_on.set()
    assert same(await first, await again)
    assert till.paid == [5]


class Apart(MemoryBackend):
    """The same data under another object, so that it does not share this process's queue."""

    def __init__(self, backend: MemoryBackend) -> None:
        super().__init__()
        self._kept, self._lock = backend._kept, backend._lock
        self.refused = asyncio.Event()

    async def begin(self, *given: Any, **more: Any) -> Any:
        grant = await super().begin(*given, **more)
        if grant is None:
            self.refused.set()
        return grant


async def test_a_turn_that_waits_gives_the_same_pending_result() -> None:
    async def ask(about: str, ctx: ToolContext) -> str:
        """Ask."""
        if ctx.answer is None:
            suspend("q", f"{about}?", data={"n": [1]})
        return "answered"

    till = Till()
    calls = [call("pay", amount=5), call("ask", about="tea"), call("ask", about="milk")]
    client, model = scripted(openai_reply("Hm.", calls=calls), openai_reply("Done."))
    tools = [till.pay, ask]
    first = await client.ask("go", tools, id="c", key="k")
    again = await client.ask("go", tools, id="c", key="k")
    assert first.status == "pending"
    assert same(first, again)

    await client.resume("c", tools, answers=[ok(again.pending[0])])
    less = await client.ask("go", tools, id="c", key="k")
    assert (less.status, less.pending) == ("pending", first.pending[1:])
    assert [c.output for c in less.tool_calls] == ["paid 5", "answered"]
    await client.resume("c", tools, answers=[ok(less.pending[0])])
    whole = await client.ask("go", tools, id="c", key="k")
    assert (whole.status, whole.text, len(whole.steps)) == ("done", "Done.", 2)
    assert [c.output for c in whole.tool_calls] == ["paid 5", "answered", "answered"]
    assert whole.usage == Usage(prompt=20, completion=10, total=30)
    assert all(c.seconds > 0 for c in whole.tool_calls)
    assert till.paid == [5]
    model.assert_finished()


async def test_a_turn_that_nobody_answered_is_not_pending_any_more() -> None:
    async def ask() -> str:
        """Ask."""
        suspend("q", "Well?")

    client, _ = scripted(openai_reply(calls=[call("ask")]), DONE)
    await client.ask("go", [ask], id="c", key="k")
    await client.ask("never mind", id="c")
    again = await client.ask("go", [ask], id="c", key="k")
    assert (again.status, again.pending, again.replayed) == ("incomplete", (), True)


async def test_a_turn_that_failed_without_having_acted_runs_again() -> None:
    client, model = scripted(BROKEN, DONE)
    with pytest.raises(ProviderError):
        await client.ask("go", id="c", key="k")
    result = await client.ask("go", id="c", key="k")
    assert (result.status, result.replayed) == ("done", False)
    assert same(result, await client.ask("go", id="c", key="k"))
    model.assert_finished()


async def test_an_interrupted_turn_that_did_nothing_runs_again_although_it_is_kept() -> None:
    client, _ = scripted(openai_stream("Half an ", "answer"), DONE)
    async with client.stream("go", id="c", key="k", keep_interrupted=True) as events:
        await anext(events)
    assert len(await client.conversation_store.get("c") or []) == 2  # type: ignore[misc]
    result = await client.ask("go", id="c", key="k")
    assert (result.status, result.replayed) == ("done", False)


async def test_a_turn_that_failed_after_it_acted_is_to_be_resumed_and_does_not_act_twice() -> None:
    till = Till()
    client, _ = scripted(PAY, BROKEN, DONE)
    with pytest.raises(ProviderError):
        await client.ask("go", [till.pay], id="c", key="k")
    with pytest.raises(TurnInterrupted) as caught:
        await client.ask("go", [till.pay], id="c", key="k")
    result = await client.resume("c", [till.pay])
    assert (result.status, result.turn_id) == ("done", caught.value.turn_id)
    again = await client.ask("go", [till.pay], id="c", key="k")
    assert (again.text, again.replayed, till.paid) == ("Done.", True, [5])


async def test_a_turn_whose_process_died_after_it_acted_does_not_act_twice() -> None:
    class Dies(MemoryBackend):
        dead = False

        async def append(self, grant: Any, records: Any, **more: Any) -> int:
            if any(json.loads(record)["k"] == "message" and b"paid 5" in record for record in records):
                self.dead = True
            if self.dead:
                raise StoreError("killed")
            return await super().append(grant, records, **more)

    backend, till = Dies(), Till()
    client, _ = scripted(PAY, store=LogStore(backend, lease=0.02))
    with pytest.raises(StoreError):
        await client.ask("go", [till.pay], id="c", key="k")
    backend.dead = False
    client, _ = scripted(store=LogStore(backend, lease=0.02))
    with pytest.raises(TurnInterrupted):
        await client.ask("go", [till.pay], id="c", key="k")
    assert till.paid == [5]


async def test_the_same_key_with_another_prompt_is_refused() -> None:
    client, model = scripted(DONE)
    await client.ask("go", id="c", key="k")
    with pytest.raises(KeyReused, match="'k'"):
        await client.ask("stop", id="c", key="k")
    with pytest.raises(KeyReused):
        await client.ask([{"type": "text", "text": "go"}], id="c", key="k")
    model.assert_finished()


async def test_a_key_belongs_to_its_conversation() -> None:
    client, model = scripted(DONE, DONE, DONE)
    await client.ask("go", id="c", key="k")
    assert not (await client.ask("go", id="d", key="k")).replayed
    assert not (await client.ask("go", id="c", key="other")).replayed
    model.assert_finished()


async def test_a_key_is_gone_when_its_turn_is_undone() -> None:
    client, model = scripted(DONE, DONE)
    store = client.conversation_store
    assert isinstance(store, InMemoryConversationStore)
    await client.ask("go", id="c", key="k")
    await store.undo("c")
    assert not (await client.ask("go", id="c", key="k")).replayed
    model.assert_finished()


async def test_a_key_outlives_a_host_that_reads_the_history_and_adds_to_it() -> None:
    store = InMemoryConversationStore()
    client, model = scripted(openai_reply(calls=[call("rich", n=1)]), DONE, store=store)
    await client.ask("go", [rich], id="c", key="k")
    note: Any = {"role": "user", "content": "thanks"}
    await store.save("c", [*(await store.get("c") or ()), note])
    again = await client.ask("go", [rich], id="c", key="k")
    assert (again.text, again.replayed) == ("Done.", True)
    model.assert_finished()


async def test_a_key_sees_what_another_process_recorded() -> None:
    backend, till = MemoryBackend(), Till()
    here, _ = scripted(PAY, BROKEN, store=LogStore(backend))
    there, _ = scripted(DONE, store=LogStore(backend))
    with pytest.raises(ProviderError):
        await here.ask("go", [till.pay], id="c", key="k")
    await there.resume("c", [till.pay])
    again = await here.ask("go", [till.pay], id="c", key="k")
    assert (again.text, again.replayed, till.paid) == ("Done.", True, [5])


async def test_a_store_of_two_methods_has_nowhere_to_keep_a_key() -> None:
    class Two:
        def get(self, id: str) -> None:
            raise AssertionError(id)

        def save(self, id: str, messages: list[Any]) -> None:
            raise AssertionError(id)

    client, model = scripted(store=Two())
    with pytest.raises(ConfigurationError, match="key= needs a log store"):
        await client.ask("go", id="c", key="k")
    assert model.requests == []


@pytest.mark.parametrize("key", ["", "x" * 513, 7])
async def test_what_is_no_key_is_refused(key: Any) -> None:
    client, _ = scripted()
    with pytest.raises(ConfigurationError, match="key"):
        await client.ask("go", id="c", key=key)


async def test_an_approved_payment_under_a_key_is_made_once_over_everything() -> None:
    till = Till()
    pay = define_tool(till.pay, needs_approval=True)
    client, model = scripted(PAY, BROKEN, DONE)
    first = await client.ask("go", [pay], id="c", key="k")
    assert same(first, await client.ask("go", [pay], id="c", key="k"))
    with pytest.raises(ProviderError):
        await client.resume("c", [pay], answers=[ok(first.pending[0])])
    with pytest.raises(TurnInterrupted):
        await client.ask("go", [pay], id="c", key="k")
    assert (await client.resume("c", [pay])).status == "done"
    assert (await client.ask("go", [pay], id="c", key="k")).text == "Done."
    assert told(model.requests[-1]) == ["paid 5"]
    assert till.paid == [5]
    model.assert_finished()
