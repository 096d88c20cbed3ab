"""Calls that wait for a person, in one run: what is asked, who is asked, and what an answer means."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from scripts import read, scripted, told

from toolnexus import (
    Answer,
    ConfigurationError,
    Deny,
    Finished,
    Hooks,
    Request,
    RunTimeout,
    Suspended,
    ToolContext,
    ToolFinished,
    ToolOverride,
    ToolResult,
    ToolStarted,
    create_toolkit,
    define_tool,
    suspend,
    tool,
)
from toolnexus._batch import Place, ToolBatch
from toolnexus.messages import WAITING
from toolnexus.suspension import Asking
from toolnexus.testing import call, openai_reply
from toolnexus.testing.replies import openai_stream
from toolnexus.tools import ToolCall

DONE = openai_reply("Done.")


def asks(*calls: Any) -> Any:
    return openai_reply(calls=calls)


class Desk:
    """Tools that wait for a person, and a note of how they were called."""

    def __init__(self) -> None:
        self.called: list[Any] = []
        self.paid: list[int] = []

    async def question(self, about: str, ctx: ToolContext) -> str:
        """Ask something."""
        self.called.append((about, ctx.answer))
        if ctx.answer is None:
            suspend("question", f"What about {about}?", data={"about": about})
        return f"{about}: {ctx.answer.get('data')}"

    def plainly(self, about: str, ctx: ToolContext) -> str:
        """Ask something, in a worker thread."""
        self.called.append((about, ctx.answer))
        if ctx.answer is None:
            suspend("question", f"What about {about}?", url="https://ask.test/?a=b")
        return f"{about}: {ctx.answer.get('data')}"

    async def pay(self, amount: int) -> str:
        """Pay."""
        self.paid.append(amount)
        return f"paid {amount}"

    async def look(self) -> str:
        """Look."""
        return "seen"

    @property
    def tools(self) -> list[Any]:
        return [self.question, self.plainly, self.pay, define_tool(self.look, read_only=True)]


def ok(request: Request, **more: Any) -> Answer:
    return {"id": request["id"], "ok": True, **more}


def no(request: Request, **more: Any) -> Answer:
    return {"id": request["id"], "ok": False, **more}


ASK = call("question", about="tea")


# Suspending


@pytest.mark.parametrize("name", ["question", "plainly"])
async def test_a_tool_that_suspends_ends_the_run_pending_with_a_placeholder(name: str) -> None:
    desk = Desk()
    client, model = scripted(asks(call(name, about="tea")))
    result = await client.run("go", desk.tools)

    assert (result.status, result.text, result.tool_calls) == ("pending", "", ())
    [request] = result.pending
    assert (request["kind"], request["prompt"]) == ("question", "What about tea?")
    assert result.messages[-1] == {"role": "tool", "tool_call_id": "call_1", "content": WAITING, "request": request}
    assert json.loads(json.dumps(request)) == request
    model.assert_finished()


async def test_a_request_says_only_what_the_tool_said() -> None:
    @tool
    def sign() -> str:
        suspend("sign", "Sign here.", url="https://sign.test", data={"n": [1, None]}, expires_at="2030-01-31T12:00:00Z")

    client, _ = scripted(asks(call("sign")))
    [request] = (await client.run("go", [sign])).pending

    assert {**request, "id": ""} == {
        "id": "",
        "kind": "sign",
        "prompt": "Sign here.",
        "url": "https://sign.test",
        "data": {"n": [1, None]},
        "expiresAt": "2030-01-31T12:00:00Z",
    }


async def test_a_tool_that_handles_its_own_errors_still_suspends() -> None:
    @tool
    async def careful() -> str:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.to_thread(suspend, "question", "Well?"))
        except Exception:
            return "handled"
        return "never"

    client, _ = scripted(asks(call("careful")))
    assert (await client.run("go", [careful])).status == "pending"


async def test_a_call_that_waits_is_suspended_and_neither_finished_nor_an_error() -> None:
    client, _ = scripted(openai_stream(calls=[ASK, call("look")]))
    events = await read(client.stream("go", Desk().tools))

    [suspended] = [event for event in events if isinstance(event, Suspended)]
    [finished] = [event for event in events if isinstance(event, ToolFinished)]
    assert (suspended.id, suspended.name, suspended.request["kind"]) == ("call_1", "question", "question")
    assert suspended.to_dict()["type"] == "suspended"
    assert (finished.call.name, finished.call.is_error) == ("look", False)
    assert isinstance(events[-1], Finished)
    assert [c.name for c in events[-1].result.tool_calls] == ["look"]


async def test_several_calls_of_a_step_wait_in_their_order_beside_those_that_ended() -> None:
    desk = Desk()
    client, _ = scripted(asks(call("plainly", about="milk"), call("look"), ASK))
    result = await client.run("go", desk.tools)

    assert [request["prompt"] for request in result.pending] == ["What about milk?", "What about tea?"]
    assert [m.get("content") for m in result.messages[-3:]] == [WAITING, "seen", WAITING]


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ({"data": {1, 2}}, "data is no JSON"),
        ({"data": float("nan")}, "data is no JSON"),
        ({"expires_at": "soon"}, "RFC 3339"),
        ({"expires_at": "2030-01-31T12:00:00"}, "time zone"),
    ],
)
async def test_what_is_no_request_is_the_tools_error(wrong: dict[str, Any], what: str) -> None:
    @tool
    def sign() -> str:
        suspend("sign", "Sign here.", **wrong)

    client, model = scripted(asks(call("sign")), DONE)
    assert (await client.run("go", [sign])).status == "done"
    assert what in told(model.requests[1])[0]


def test_a_datetime_becomes_rfc_3339() -> None:
    with pytest.raises(BaseException, match="Well") as caught:
        suspend("q", "Well?", expires_at=datetime(2030, 1, 31, 13, tzinfo=timezone(timedelta(hours=1))))
    assert caught.value.asked["expiresAt"] == "2030-01-31T12:00:00Z"  # type: ignore[attr-defined]


async def test_a_loop_of_ones_own_is_told_of_the_request() -> None:
    toolkit = await create_toolkit([Desk().question])
    result = await toolkit.execute("question", {"about": "tea"})

    assert result.request is not None
    assert (result.request["kind"], result.output, result.is_error) == ("question", WAITING, False)


async def test_a_hook_cannot_suspend() -> None:
    desk = Desk()
    client, model = scripted(
        asks(call("pay", amount=1)), DONE, hooks=Hooks(before_tool=lambda _: suspend("q", "Well?"))
    )
    await client.run("go", desk.tools)

    assert "denied" in told(model.requests[1])[0]
    assert desk.paid == []


# Asking in the run


async def test_wait_for_is_asked_and_the_tool_is_called_once_more_with_the_answer() -> None:
    desk, asked = Desk(), []

    async def wait_for(request: Request) -> Answer:
        asked.append(request)
        return ok(request, data=["green"])

    client, model = scripted(asks(ASK), DONE, wait_for=wait_for)
    result = await client.run("go", desk.tools)

    answer = ok(asked[0], data=["green"])
    assert desk.called == [("tea", None), ("tea", answer)]
    assert told(model.requests[1]) == ["tea: ['green']"]
    assert (result.status, result.pending, len(result.tool_calls)) == ("done", (), 1)


async def test_a_plain_wait_for_may_take_its_time() -> None:
    threads: list[threading.Thread] = []

    def wait_for(request: Request) -> Answer:
        threads.append(threading.current_thread())
        return ok(request)

    client, _ = scripted(asks(ASK), DONE, wait_for=wait_for)
    assert (await client.run("go", Desk().tools)).status == "done"
    assert threads[0] is not threading.main_thread()


async def test_all_calls_of_a_step_are_asked_about_at_once_however_few_may_run() -> None:
    desk, everybody, asked = Desk(), asyncio.Event(), []

    async def wait_for(request: Request) -> Answer:
        asked.append(request["prompt"])
        if len(asked) == 3:
            everybody.set()
        await everybody.wait()
        return ok(request, data=request["prompt"][11:-1])

    calls = [call("question", about=about) for about in ("a", "b", "c")]
    client, model = scripted(asks(*calls), DONE, wait_for=wait_for, concurrency=1)
    await client.run("go", desk.tools)

    assert told(model.requests[1]) == ["a: a", "b: b", "c: c"]


async def test_other_calls_run_while_a_person_thinks() -> None:
    desk, looked = Desk(), asyncio.Event()

    async def look() -> str:
        looked.set()
        return "seen"

    async def wait_for(request: Request) -> Answer:
        await looked.wait()
        return ok(request)

    alone = define_tool(look, exclusive=True)
    client, model = scripted(asks(ASK, call("look")), DONE, wait_for=wait_for)
    await client.run("go", [desk.question, alone])
    assert told(model.requests[1]) == ["tea: None", "seen"]


async def test_a_tool_may_ask_again() -> None:
    rounds: list[str] = []

    @tool
    async def haggle(ctx: ToolContext) -> str:
        offer = 0 if ctx.answer is None else ctx.answer["data"]
        if offer < 3:
            suspend("offer", f"More than {offer}?")
        return f"sold for {offer}"

    async def wait_for(request: Request) -> Answer:
        rounds.append(request["id"])
        return ok(request, data=len(rounds))

    client, model = scripted(asks(call("haggle")), DONE, wait_for=wait_for)
    await client.run("go", [haggle])

    assert told(model.requests[1]) == ["sold for 3"]
    assert len(set(rounds)) == 3


async def test_a_declined_tool_is_not_called_again_and_the_model_is_told_why() -> None:
    desk = Desk()
    client, model = scripted(asks(ASK), DONE, wait_for=lambda request: no(request, reason="not now"))
    result = await client.run("go", desk.tools)

    assert told(model.requests[1]) == ["declined: not now"]
    assert desk.called == [("tea", None)]
    assert result.tool_calls[0].is_error


def nobody(_: Request) -> None:
    return None


def breaks(_: Request) -> Answer:
    raise OSError("no terminal")


def of_another(_: Request) -> Answer:
    return {"id": "other", "ok": True}


def vaguely(request: Request) -> Any:
    return {"id": request["id"], "ok": "yes"}


async def cancels(_: Request) -> Answer:
    raise asyncio.CancelledError


@pytest.mark.parametrize("wait_for", [nobody, breaks, of_another, vaguely, cancels])
async def test_what_is_no_answer_leaves_the_call_pending(wait_for: Any) -> None:
    desk = Desk()
    client, model = scripted(asks(ASK, call("look")), wait_for=wait_for)
    result = await client.run("go", desk.tools)

    assert (result.status, len(result.pending)) == ("pending", 1)
    assert desk.called == [("tea", None)]
    model.assert_finished()


async def test_a_person_who_is_asked_is_bounded_by_the_deadline() -> None:
    forgotten = asyncio.Event()

    async def wait_for(request: Request) -> Answer:
        try:
            await asyncio.Event().wait()
        finally:
            forgotten.set()
        return ok(request)

    client, _ = scripted(asks(ASK), wait_for=wait_for)
    with pytest.raises(RunTimeout) as caught:
        await client.run("go", Desk().tools, timeout=0.1)

    assert forgotten.is_set()
    assert caught.value.partial is not None


async def test_cancelling_the_run_forgets_who_is_being_asked() -> None:
    asked, forgotten = asyncio.Event(), asyncio.Event()

    async def wait_for(request: Request) -> Answer:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            forgotten.set()
        return ok(request)

    client, _ = scripted(asks(ASK), wait_for=wait_for)
    task = asyncio.create_task(client.run("go", Desk().tools))
    await asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert forgotten.is_set()


async def test_nothing_goes_on_once_an_outcome_could_not_be_recorded() -> None:
    answered, recorded = asyncio.Event(), asyncio.Event()
    desk = Desk()

    class Broken:
        def starting(self, call: Any, tool: Any) -> None: ...

        async def acting(self, call: Any, tool: Any) -> None: ...

        async def result(self, message: Any, *, ran: bool) -> None:
            if "request" not in message:
                recorded.set()
                raise OSError("disk full")

    async def wait_for(request: Request) -> Answer:
        await recorded.wait()
        answered.set()
        return ok(request)

    place = Place(
        turn_id="t",
        conversation_id=None,
        step=0,
        deadline=None,
        hooks=(),
        asking=Asking(approval=None, wait_for=wait_for, now=time.time),
        max_output=1000,
        concurrency=8,
    )
    calls = [
        ToolCall(id="a", name="question", arguments='{"about": "tea"}'),
        ToolCall(id="b", name="look", arguments=""),
    ]
    toolkit = await create_toolkit(desk.tools)
    batch = ToolBatch(calls, {each.name: each for each in toolkit.tools()}, place, Broken())
    await answered.wait()
    for _ in range(3):
        await asyncio.sleep(0)  # for what would go on now
    with pytest.raises(OSError, match="disk full"):
        async for _ in batch:
            pass
    await batch.aclose()
    assert desk.called == [("tea", None)]


@pytest.mark.parametrize("seconds", [-5, 0.05])
async def test_a_request_that_expires_is_declined(seconds: float) -> None:
    @tool
    async def hurry() -> str:
        suspend("q", "Quick?", expires_at=datetime.now(UTC) + timedelta(seconds=seconds))

    async def wait_for(request: Request) -> Answer:
        await asyncio.Event().wait()
        return ok(request)

    client, model = scripted(asks(call("hurry")), DONE, wait_for=wait_for)
    await client.run("go", [hurry])
    assert told(model.requests[1]) == ["declined: the request expired"]


# Approval


def approving(*approved: Any) -> tuple[Callable[[Request], Awaitable[Answer]], list[Request]]:
    asked: list[Request] = []

    async def wait_for(request: Request) -> Answer:
        asked.append(request)
        return ok(request)

    return wait_for, asked


async def test_a_marked_tool_runs_once_it_is_approved_and_is_not_told_of_it() -> None:
    seen: list[Any] = []

    async def pay(amount: int, ctx: ToolContext) -> str:
        seen.append((amount, ctx.answer))
        return "paid"

    wait_for, asked = approving()
    client, model = scripted(asks(call("pay", amount=5)), DONE, wait_for=wait_for)
    await client.run("go", [define_tool(pay, needs_approval=True)])

    assert seen == [(5, None)]
    assert [(r["kind"], r.get("data")) for r in asked] == [("approval", {"tool": "pay", "arguments": {"amount": 5}})]
    assert told(model.requests[1]) == ["paid"]


async def is_dear(_: Any, arguments: dict[str, Any]) -> bool:
    return arguments.get("amount", 0) > 10


@pytest.mark.parametrize("policy", [["pay"], "p?y", ("question", "p*"), lambda tool, _: tool.name == "pay", is_dear])
async def test_names_patterns_and_predicates_say_what_needs_approval(policy: Any) -> None:
    desk = Desk()
    client, _ = scripted(asks(call("pay", amount=50), call("look")), require_approval=policy)
    result = await client.run("go", desk.tools)

    assert (result.status, desk.paid) == ("pending", [])
    assert [request["kind"] for request in result.pending] == ["approval"]
    assert [c.output for c in result.tool_calls] == ["seen"]


async def test_what_the_predicate_lets_pass_runs_at_once() -> None:
    desk = Desk()
    client, model = scripted(asks(call("pay", amount=5)), DONE, require_approval=is_dear)
    await client.run("go", desk.tools)
    assert told(model.requests[1]) == ["paid 5"]


def raising(*_: Any) -> bool:
    raise LookupError("policy is down")


def silent(*_: Any) -> Any:
    return None


def wordy(*_: Any) -> Any:
    return "no"


@pytest.mark.parametrize("policy", [raising, silent, wordy])
async def test_a_predicate_that_does_not_decide_denies(policy: Any) -> None:
    desk = Desk()
    client, model = scripted(asks(call("pay", amount=5)), DONE, require_approval=policy)
    result = await client.run("go", desk.tools)

    assert "denied" in told(model.requests[1])[0]
    assert (result.status, desk.paid) == ("done", [])


async def test_a_person_sees_what_the_hooks_made_of_the_arguments_and_exactly_that_runs() -> None:
    desk, hooked = Desk(), []

    def before_tool(event: Any) -> ToolOverride:
        hooked.append(event.arguments)
        return ToolOverride(arguments={"amount": event.arguments["amount"] * 2})

    wait_for, asked = approving()
    client, _ = scripted(
        asks(call("pay", amount=5)),
        DONE,
        wait_for=wait_for,
        require_approval="pay",
        hooks=Hooks(before_tool=before_tool),
    )
    result = await client.run("go", desk.tools)

    assert asked[0].get("data") == {"tool": "pay", "arguments": {"amount": 10}}
    assert (desk.paid, len(hooked)) == ([10], 1)
    assert result.tool_calls[0].args == {"amount": 10}


async def test_a_call_that_a_hook_denies_or_answers_is_no_question_for_a_person() -> None:
    desk = Desk()
    wait_for, asked = approving()

    def before_tool(event: Any) -> Any:
        return (
            Deny(reason="never")
            if event.arguments["amount"] == 1
            else ToolOverride(result=ToolResult(output="dry run"))
        )

    client, model = scripted(
        asks(call("pay", amount=1), call("pay", amount=2)),
        DONE,
        wait_for=wait_for,
        require_approval="pay",
        hooks=Hooks(before_tool=before_tool),
    )
    await client.run("go", desk.tools)

    assert told(model.requests[1]) == ["denied: never", "dry run"]
    assert (asked, desk.paid) == ([], [])


async def test_arguments_that_a_hook_made_of_something_else_than_json_deny_the_call() -> None:
    desk = Desk()
    hooks = Hooks(before_tool=lambda _: ToolOverride(arguments={"amount": {5}}))
    client, model = scripted(asks(call("pay", amount=5)), DONE, hooks=hooks)
    await client.run("go", desk.tools)

    assert "denied" in told(model.requests[1])[0]
    assert desk.paid == []


async def test_arguments_that_do_not_fit_are_no_question_for_a_person() -> None:
    wait_for, asked = approving()
    client, model = scripted(asks(call("pay", amount="much")), DONE, wait_for=wait_for, require_approval="*")
    await client.run("go", Desk().tools)

    assert "do not fit" in told(model.requests[1])[0]
    assert asked == []


async def test_a_person_may_change_the_arguments_and_they_are_checked() -> None:
    desk = Desk()

    async def wait_for(request: Request) -> Answer:
        amount = request.get("data", {})["arguments"]["amount"]
        return ok(request, data={"arguments": {"amount": 1 if amount == 5 else "none"}})

    client, model = scripted(
        asks(call("pay", amount=5), call("pay", amount=6)), DONE, wait_for=wait_for, require_approval="pay"
    )
    result = await client.run("go", desk.tools)

    assert desk.paid == [1]
    assert told(model.requests[1])[0] == "paid 1"
    assert "do not fit" in told(model.requests[1])[1]
    assert result.tool_calls[0].args == {"amount": 1}


async def test_a_denial_is_an_error_result_with_the_reason() -> None:
    desk = Desk()

    def wait_for(request: Request) -> Answer:
        return no(request, reason="too much") if request.get("data", {})["arguments"]["amount"] == 6 else no(request)

    client, model = scripted(
        asks(call("pay", amount=5), call("pay", amount=6)), DONE, wait_for=wait_for, require_approval=["pay"]
    )
    result = await client.run("go", desk.tools)

    assert told(model.requests[1]) == ["denied", "denied: too much"]
    assert (desk.paid, [record.is_error for record in result.tool_calls]) == ([], [True, True])


async def test_a_tool_that_was_approved_may_suspend_and_gets_its_own_answer_alone() -> None:
    answers: list[Any] = []

    async def pay(amount: int, ctx: ToolContext) -> str:
        answers.append(ctx.answer)
        if ctx.answer is None:
            suspend("approval", "Which card?", data={"tool": "pay", "arguments": {"amount": 99}})
        return f"paid {amount} by {ctx.answer['data']}"

    async def wait_for(request: Request) -> Answer:
        return ok(request, data="visa" if request["prompt"] == "Which card?" else {"arguments": {"amount": 7}})

    client, model = scripted(asks(call("pay", amount=5)), DONE, wait_for=wait_for)
    await client.run("go", [define_tool(pay, needs_approval=True)])

    assert told(model.requests[1]) == ["paid 7 by visa"]
    assert answers[0] is None


async def test_after_tool_sees_the_end_of_a_call_and_not_that_it_waits() -> None:
    seen: list[str] = []
    client, _ = scripted(
        asks(ASK),
        DONE,
        wait_for=lambda request: ok(request, data=1),
        hooks=Hooks(after_tool=lambda event: seen.append(event.result.output)),
    )
    await client.run("go", Desk().tools)
    assert seen == ["tea: 1"]


async def test_a_call_starts_once_for_whoever_watches() -> None:
    events: list[Any] = []
    wait_for, _ = approving()
    client, _ = scripted(
        asks(call("pay", amount=5)), DONE, wait_for=wait_for, require_approval="pay", on_event=events.append
    )
    await client.run("go", Desk().tools)

    kinds = [type(event) for event in events if isinstance(event, ToolStarted | Suspended | ToolFinished)]
    assert kinds == [ToolStarted, Suspended, ToolFinished]


@pytest.mark.parametrize("wrong", [[1], ["pay", None]])
async def test_what_is_no_policy_is_refused_when_the_client_is_made(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="require_approval"):
        scripted(require_approval=wrong)
