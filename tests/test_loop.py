"""The rules of the loop, seen from outside: what a run sends, what it runs, and what it leaves."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from typing import Any

import pytest
from local import Seen, event, server, streamed
from scripts import raw, read, scripted, told
from test_memory import client_of

from toolnexus import (
    ConfigurationError,
    Finished,
    IncompleteReply,
    ProviderError,
    RunTimeout,
    StepFinished,
    TextDelta,
    ToolContext,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    Usage,
    define_tool,
    tool,
)
from toolnexus.testing import anthropic_reply, call, openai_reply, openai_stream
from toolnexus.transport import Response

DONE = openai_reply("Done.")
ADD = call("add", a=2, b=3)
REFUSED = Response(status=400, headers={}, body=b'{"error": {"message": "no more"}}')
PIXEL = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}


async def add(a: int, b: int) -> int:
    return a + b


class Noted:
    """A tool that notes that it ran."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    async def act(self, what: str = "") -> str:
        self.ran.append(what)
        return f"did {what}"


# What is sent


async def test_nothing_is_sent_that_the_caller_did_not_set() -> None:
    client, model = scripted(DONE, openai_stream("Done."))
    await client.run("hi")
    await read(client.stream("hi"))

    said = [{"role": "user", "content": "hi"}]
    assert model.requests[0].json == {"model": "m", "messages": said}
    assert model.requests[1].json == {
        "model": "m",
        "messages": said,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


async def test_the_anthropic_style_sends_only_the_limit_that_its_wire_requires() -> None:
    client, model = scripted(anthropic_reply("Done."), base_url="https://model.test", style="anthropic")
    await client.run("hi")

    assert model.requests[0].json == {
        "model": "m",
        "max_tokens": 8192,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
    }


async def test_request_params_are_merged_last_but_for_messages_and_stream_and_their_tools_come_after_ours() -> None:
    theirs = {"type": "web_search"}
    params = {"model": "other", "temperature": 0, "messages": [], "stream": True, "tools": [theirs]}
    client, model = scripted(DONE, DONE, request_params=params)
    await client.run("hi", [add])
    await client.run("hi")

    body = model.requests[0].json
    assert (body["model"], body["temperature"], "stream" in body) == ("other", 0, False)
    assert body["messages"] == [{"role": "user", "content": "hi"}]
    assert [entry.get("function", entry).get("name") for entry in body["tools"]] == ["add", None]
    assert body["tools"][1] == theirs
    assert model.requests[1].json["tools"] == [theirs]


async def test_a_body_transform_sees_the_final_body_of_every_request_and_changes_no_other() -> None:
    seen: list[Any] = []

    def transform(body: dict[str, Any]) -> dict[str, Any]:
        seen.append([message["role"] for message in body["messages"]])
        body["messages"][0]["content"] = "changed"
        return {**body, "seed": 7}

    client, model = scripted(
        openai_reply(calls=[ADD]), DONE, body_transform=transform, request_params={"temperature": 0}
    )
    result = await client.run("hi", [add])

    assert seen == [["user"], ["user", "assistant", "tool"]]
    assert [(r.json["seed"], r.json["temperature"]) for r in model.requests] == [(7, 0), (7, 0)]
    assert [r.json["messages"][0]["content"] for r in model.requests] == ["changed", "changed"]
    assert result.messages[0]["content"] == "hi"


async def test_a_system_prompt_leads_every_request_and_is_in_no_transcript() -> None:
    client, model = scripted(openai_reply(calls=[ADD]), DONE, system_prompt="Be brief.")
    result = await client.run("hi", [add])

    assert [r.json["messages"][0] for r in model.requests] == [{"role": "system", "content": "Be brief."}] * 2
    assert [message["role"] for message in result.messages] == ["user", "assistant", "tool", "assistant"]


async def test_model_and_max_tokens_of_a_call_are_its_own() -> None:
    client, model = scripted(DONE, DONE, max_tokens=100)
    await client.run("hi", model="other:7b", max_tokens=5)
    await client.run("hi")

    assert [(r.json["model"], r.json["max_tokens"]) for r in model.requests] == [("other:7b", 5), ("m", 100)]


@pytest.mark.parametrize("verb", ["run", "ask", "stream"])
async def test_an_unknown_option_is_a_type_error(verb: str) -> None:
    client, model = scripted()
    with pytest.raises(TypeError, match="temperature"):
        await getattr(client, verb)("hi", temperature=0)

    assert model.requests == []


@pytest.mark.parametrize(
    "option", [{"max_steps": 0}, {"max_tokens": -1}, {"timeout": -1}, {"max_steps": True}, {"timeout": "1"}]
)
async def test_an_option_that_is_out_of_range_is_refused_by_name(option: dict[str, Any]) -> None:
    client, model = scripted()
    with pytest.raises(ConfigurationError, match=next(iter(option))):
        await client.run("hi", **option)

    assert model.requests == []


# Prompt and history


async def test_a_prompt_of_parts_is_sent_as_it_is() -> None:
    client, model = scripted(DONE)
    parts = [{"type": "text", "text": "What is this?"}, PIXEL]
    result = await client.run(parts)

    assert model.requests[0].json["messages"] == [{"role": "user", "content": parts}]
    assert result.messages[0]["content"] == parts


@pytest.mark.parametrize("prompt", ["", "  \n", [], [{"type": "text", "text": " "}], 7, [{"type": "video"}], b"hi"])
async def test_a_prompt_that_says_nothing_is_refused(prompt: Any) -> None:
    client, model = scripted()
    with pytest.raises(ConfigurationError, match="prompt"):
        await client.run(prompt)

    assert model.requests == []


async def test_a_history_is_continued_and_never_modified() -> None:
    history = [
        {"role": "user", "content": "one", "extra": {"kept": [1]}},
        {"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": {"name": "add"}}]},
    ]
    before = json.dumps(history)
    client, model = scripted(DONE)
    result = await client.run("two", history=history)
    result.messages[0]["extra"]["kept"].append(2)

    assert json.dumps(history) == before
    assert [message["role"] for message in model.requests[0].json["messages"]] == ["user", "assistant", "tool", "user"]
    assert result.text == "Done."
    assert result.messages[0]["extra"] == {"kept": [1]}


async def test_without_a_prompt_a_history_that_waits_for_the_model_goes_on() -> None:
    asked = {"role": "user", "content": "2 + 3?"}
    calls = [{"id": "c", "type": "function", "function": {"name": "add", "arguments": "{}"}}]
    answered = [
        asked,
        {"role": "assistant", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c", "content": "5"},
    ]
    client, model = scripted(DONE, DONE)
    await client.run(None, history=[asked])
    await client.run(None, history=answered)

    assert [len(r.json["messages"]) for r in model.requests] == [1, 3]


@pytest.mark.parametrize(
    "history", [None, [], [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]]
)
async def test_without_a_prompt_there_has_to_be_something_to_answer(history: Any) -> None:
    client, model = scripted()
    with pytest.raises(ConfigurationError, match="prompt=None"):
        await client.run(None, history=history)
    with pytest.raises(ConfigurationError, match="prompt"):
        await client.ask(None, id="u1")  # type: ignore[arg-type]

    assert model.requests == []


async def test_messages_of_a_result_are_copies_each_time() -> None:
    client, _ = scripted(openai_reply(calls=[ADD]), DONE)
    result = await client.run("hi", [add])
    result.messages[1]["tool_calls"][0]["function"]["name"] = "changed"

    assert result.messages[1]["tool_calls"][0]["function"]["name"] == "add"
    assert result.messages is not result.messages


# Calls drive the loop


@pytest.mark.parametrize("reason", ["stop", "end_turn", "function_call", "nonsense"])
@pytest.mark.parametrize("make", [openai_reply, openai_stream])
async def test_calls_are_run_whatever_the_finish_reason_says(make: Any, reason: str) -> None:
    client, model = scripted(make(calls=[ADD], finish_reason=reason), make("5"))
    result = await client.run("2 + 3?", [add])

    assert told(model.requests[1]) == ["5"]
    assert (result.status, result.text) == ("done", "5")


@pytest.mark.parametrize("make", [openai_reply, openai_stream])
async def test_a_reply_that_announces_calls_and_has_none_is_the_answer(make: Any) -> None:
    client, _ = scripted(make("Nothing to do.", finish_reason="tool_calls"))
    result = await client.run("hi", [add])

    assert (result.status, result.text, result.tool_calls) == ("done", "Nothing to do.", ())


@pytest.mark.parametrize("make", [openai_reply, openai_stream])
@pytest.mark.parametrize("reason", ["length", "content_filter"])
async def test_a_reply_that_was_cut_off_never_runs_its_calls(make: Any, reason: str) -> None:
    noted = Noted()
    client, _ = scripted(make("Let me", calls=[call("act", what="x")], finish_reason=reason))
    result = await client.run("go", [noted.act])

    assert noted.ran == []
    assert result.finish_reason == reason
    assert (result.status, result.limit) == (("incomplete", "max_tokens") if reason == "length" else ("done", None))
    assert "tool_calls" not in result.messages[-1]


async def test_a_stream_that_breaks_never_runs_its_calls() -> None:
    noted = Noted()
    whole = openai_stream("Let me", calls=[call("act", what="x")])
    client, _ = scripted(whole[:-3])
    with pytest.raises(IncompleteReply) as caught:
        await read(client.stream("go", [noted.act]))

    assert noted.ran == []
    assert caught.value.partial is not None
    assert (caught.value.partial.status, caught.value.partial.text) == ("failed", "Let me")
    assert caught.value.partial.messages == [{"role": "user", "content": "go"}]


async def test_a_tool_that_there_is_not_is_answered_with_the_closest_and_the_run_goes_on() -> None:
    client, model = scripted(openai_reply(calls=[call("ad", a=1, b=2)]), openai_reply(calls=[ADD]), DONE)
    result = await client.run("go", [add, Noted().act])

    assert told(model.requests[1])[0].startswith("There is no tool 'ad'. Did you mean 'add'")
    assert [(record.name, record.is_error) for record in result.tool_calls] == [("ad", True), ("add", False)]


async def test_a_call_without_any_tools_is_answered_too() -> None:
    client, model = scripted(openai_reply(calls=[ADD]), DONE)
    await client.run("go")

    assert told(model.requests[1]) == ["There is no tool 'add'. There are no tools."]


# Calls of one step


class Gate:
    """Tools that wait for each other, and a note of how many ran at once."""

    def __init__(self) -> None:
        self.open: dict[int, asyncio.Event] = {}
        self.running: set[int] = set()
        self.most = 0
        self.alone: list[bool] = []
        self.order: list[int] = []

    async def wait(self, n: int) -> int:
        self.running.add(n)
        self.order.append(n)
        self.most = max(self.most, len(self.running))
        await self.open.setdefault(n, asyncio.Event()).wait()
        self.running.discard(n)
        return n

    @tool(exclusive=True)
    async def lone(self) -> str:
        self.alone.append(not self.running)
        await asyncio.sleep(0)
        self.alone.append(not self.running)
        return "alone"


async def test_calls_run_at_once_and_are_recorded_in_their_order_whatever_order_they_end_in() -> None:
    gate = Gate()

    async def last(n: int) -> int:
        for earlier in reversed(range(n)):
            gate.open.setdefault(earlier, asyncio.Event()).set()
        return n

    calls = [call("wait", n=0), call("wait", n=1), call("last", n=2)]
    client, model = scripted(openai_stream(calls=calls), openai_stream("Done."))
    events = await read(client.stream("go", [gate.wait, last]))

    assert gate.most == 2
    assert next(event.call.output for event in events if isinstance(event, ToolFinished)) == "2"
    assert told(model.requests[1]) == ["0", "1", "2"]
    result = events[-1].result  # type: ignore[union-attr]
    assert [record.output for record in result.tool_calls] == ["0", "1", "2"]
    assert [m["tool_call_id"] for m in result.messages if m["role"] == "tool"] == ["call_1", "call_2", "call_3"]


async def test_no_more_calls_run_at_once_than_concurrency_allows() -> None:
    running = most = 0

    async def step(n: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(5):
            await asyncio.sleep(0)
        running -= 1
        return n

    client, model = scripted(openai_reply(calls=[call("step", n=n) for n in range(7)]), DONE, concurrency=3)
    await client.run("go", [step])

    assert most == 3
    assert told(model.requests[1]) == [str(n) for n in range(7)]


async def test_an_exclusive_tool_runs_alone_in_its_place() -> None:
    gate = Gate()

    def release() -> str:
        for n in (0, 1):
            loop.call_soon_threadsafe(gate.open.setdefault(n, asyncio.Event()).set)
        return "released"

    loop = asyncio.get_running_loop()
    calls = [call("wait", n=0), call("wait", n=1), call("release"), call("lone"), call("wait", n=2)]
    gate.open[2] = asyncio.Event()
    gate.open[2].set()
    client, model = scripted(openai_reply(calls=calls), DONE)
    await client.run("go", [gate.wait, gate.lone, release])

    assert gate.alone == [True, True]
    assert gate.order == [0, 1, 2]
    assert told(model.requests[1]) == ["0", "1", "released", "alone", "2"]


async def test_cancelling_a_run_ends_all_calls_of_the_step_before_the_run_ends() -> None:
    began, ended = asyncio.Event(), list[int]()

    async def hang(n: int) -> None:
        if n == 1:
            began.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(n)

    client, _ = scripted(openai_reply(calls=[call("hang", n=0), call("hang", n=1)]))
    run = asyncio.create_task(client.run("go", [hang]))
    await began.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run

    assert sorted(ended) == [0, 1]


# Limits, failures, counting


async def test_a_step_limit_is_incomplete_with_the_text_of_this_run_only() -> None:
    client, model = scripted(*[openai_reply(f"Step {n}.", calls=[ADD]) for n in range(3)])
    history = [{"role": "user", "content": "old"}, {"role": "assistant", "content": "older words"}]
    result = await client.run("go", [add], history=history, max_steps=3)

    assert (result.status, result.limit, result.finish_reason) == ("incomplete", "max_steps", "tool_calls")
    assert result.text == "Step 2."
    assert [step.text for step in result.steps] == ["Step 0.", "Step 1.", "Step 2."]
    assert [record.output for record in result.tool_calls] == ["5", "5", "5"]
    assert len(model.requests) == 3
    assert result.messages[-1]["role"] == "tool"


async def test_a_failing_run_carries_what_it_came_to() -> None:
    client, _ = scripted(openai_reply("Let me add.", calls=[ADD, call("nope")]), REFUSED)
    with pytest.raises(ProviderError, match="no more") as caught:
        await client.run("go", [add])

    partial = caught.value.partial
    assert partial is not None
    assert (partial.status, partial.text, partial.finish_reason) == ("failed", "Let me add.", "tool_calls")
    assert [(record.name, record.is_error) for record in partial.tool_calls] == [("add", False), ("nope", True)]
    assert [len(step.calls) for step in partial.steps] == [2]
    assert [message["role"] for message in partial.messages] == ["user", "assistant", "tool", "tool"]
    assert partial.usage == Usage(prompt=10, completion=5, total=15)


async def test_a_run_that_fails_before_the_model_said_anything_has_nothing_to_carry() -> None:
    client, _ = scripted(REFUSED)
    with pytest.raises(ProviderError) as caught:
        await client.run("go", [add])

    assert caught.value.partial is None


async def test_usage_counts_once_for_each_reply_whatever_the_stream_repeats() -> None:
    def usage(completion: int) -> bytes:
        told = {"prompt_tokens": 10, "completion_tokens": completion, "total_tokens": 10 + completion}
        return event({"choices": [{"index": 0, "delta": {"content": ""}}], "usage": told})

    def answer(seen: Seen) -> Any:
        chunks = streamed("a", "b", calls=(("add", {"a": 2, "b": 3}),) if seen.number == 1 else ())
        return [chunks[0], usage(1), chunks[1], usage(2), *chunks[2:-1], usage(3), usage(3), chunks[-1]]

    async with server(answer) as at, client_of(at.url) as client:
        events = await read(client.stream("go", [add]))

    assert [event.usage for event in events if isinstance(event, StepFinished)] == [
        Usage(prompt=10, completion=3, total=13)
    ] * 2
    assert events[-1].result.usage == Usage(prompt=20, completion=6, total=26)  # type: ignore[union-attr]


async def test_usage_that_nobody_told_is_none_and_not_zero() -> None:
    client, _ = scripted(openai_reply("Done.", usage=None))
    assert (await client.run("go")).usage is None


async def test_a_provider_that_pauses_is_sent_the_history_again_but_not_beyond_max_steps() -> None:
    paused = anthropic_reply("Looking. ", finish_reason="pause_turn")
    options: dict[str, Any] = {"base_url": "https://model.test", "style": "anthropic"}
    client, model = scripted(paused, anthropic_reply("Found."), **options)
    result = await client.run("look")
    assert (result.status, result.text, len(model.requests)) == ("done", "Looking. Found.", 2)

    client, model = scripted(*[paused] * 3, **options)
    result = await client.run("look", max_steps=3)
    assert (result.status, result.limit, len(model.requests)) == ("incomplete", "max_steps", 3)


async def test_a_deadline_bounds_a_tool_and_carries_what_was_done() -> None:
    async def hang() -> None:
        await asyncio.Event().wait()

    client, _ = scripted(openai_reply("Let me.", calls=[call("hang")]))
    with pytest.raises(RunTimeout) as caught:
        await client.run("go", [hang], timeout=0.1)

    assert caught.value.partial is not None
    assert caught.value.partial.text == "Let me."


async def test_the_timeout_of_a_call_replaces_the_clients() -> None:
    forever = asyncio.Event()

    async def answer(seen: Seen) -> Any:
        await forever.wait()

    async with server(answer) as at, client_of(at.url, timeout=60) as client:
        began = time.monotonic()
        with pytest.raises(RunTimeout):
            await client.run("go", timeout=0.1)
        assert time.monotonic() - began < 5


# Events and what a tool knows


async def test_a_step_is_told_in_the_order_in_which_it_happens() -> None:
    client, _ = scripted(openai_stream("Let me ", "add.", calls=[ADD]), openai_stream("5"))
    events = await read(client.stream("2 + 3?", [add]))

    assert [type(event) for event in events] == [
        TextDelta,
        TextDelta,
        StepFinished,
        ToolStarted,
        ToolFinished,
        TextDelta,
        StepFinished,
        Finished,
    ]
    assert [event.to_dict()["type"] for event in events][3:5] == ["tool_started", "tool_finished"]
    json.dumps([event.to_dict() for event in events])


async def test_run_and_stream_come_to_the_same_result_in_either_framing() -> None:
    async def outcome(first: Any, second: Any, *, stream: bool) -> Any:
        client, _ = scripted(first, second)
        if stream:
            result = (await read(client.stream("go", [add])))[-1].result  # type: ignore[union-attr]
        else:
            result = await client.run("go", [add])
        calls = [(record.id, record.name, record.args, record.output) for record in result.tool_calls]
        return result.text, result.status, result.usage, result.messages, calls

    whole = openai_reply("Let me.", calls=[ADD]), openai_reply("5")
    pieces = openai_stream("Let", " me.", calls=[ADD]), openai_stream("5")
    outcomes = [await outcome(*steps, stream=stream) for steps in (whole, pieces) for stream in (False, True)]

    assert all(each == outcomes[0] for each in outcomes)


async def test_a_tool_knows_its_run() -> None:
    seen: list[ToolContext] = []

    async def look(ctx: ToolContext) -> str:
        seen.append(ctx)
        return "ok"

    two = openai_reply(calls=[raw("look", "{}", id="mine"), call("look")])
    client, _ = scripted(two, openai_reply(calls=[call("look")]), DONE)
    began = time.monotonic()
    result = await client.ask("go", [look], id="u1", timeout=30)

    assert [(ctx.tool, ctx.call_id, ctx.step, ctx.position) for ctx in seen] == [
        ("look", "mine", 0, 0),
        ("look", "call_2", 0, 1),
        ("look", "call_1", 1, 0),
    ]
    assert {ctx.conversation_id for ctx in seen} == {"u1"}
    assert {ctx.turn_id for ctx in seen} == {result.turn_id}
    assert all(ctx.deadline is not None and began + 29 < ctx.deadline < began + 31 for ctx in seen)


async def test_an_idempotency_key_is_the_calls_own_and_stays_the_same() -> None:
    keys: list[str] = []

    async def pay(ctx: ToolContext) -> str:
        keys.append(ctx.idempotency_key)
        assert ctx.idempotency_key == ctx.idempotency_key
        return "paid"

    steps = [openai_reply(calls=[call("pay"), call("pay")]), openai_reply(calls=[call("pay")]), DONE]
    client, _ = scripted(*steps, *steps)
    await client.ask("go", [pay], id="u1")
    await client.ask("go", [pay], id="u1")

    assert len(set(keys)) == len(keys) == 6


async def test_a_run_without_conversation_or_timeout_says_so_to_its_tools() -> None:
    seen: list[ToolContext] = []

    def look(ctx: ToolContext) -> None:
        seen.append(ctx)

    client, _ = scripted(openai_reply(calls=[call("look")]), DONE)
    await client.run("go", [look])

    assert (seen[0].conversation_id, seen[0].deadline) == (None, None)
    assert seen[0].turn_id


async def test_a_tools_own_timeout_is_its_deadline_if_it_comes_first() -> None:
    seen: list[float | None] = []

    async def look(ctx: ToolContext) -> None:
        seen.append(ctx.deadline)

    client, _ = scripted(openai_reply(calls=[call("look")]), DONE)
    began = time.monotonic()
    await client.run("go", [define_tool(look, timeout=10)], timeout=60)

    assert seen[0] is not None
    assert seen[0] < began + 20


async def test_progress_is_told_from_a_coroutine_and_from_a_thread_before_the_call_ends() -> None:
    threads: set[int] = set()

    async def fly(ctx: ToolContext) -> str:
        ctx.progress("taking off", 0.1)
        return "there"

    def dig(ctx: ToolContext) -> str:
        threads.add(threading.get_ident())
        ctx.progress("digging")
        return "dug"

    client, _ = scripted(openai_stream(calls=[call("fly"), call("dig")]), openai_stream("Done."))
    events = await read(client.stream("go", [fly, dig]))

    told = [(event.name, event.message, event.fraction) for event in events if isinstance(event, ToolProgress)]
    assert sorted(told) == [("dig", "digging", None), ("fly", "taking off", 0.1)]
    for name in ("fly", "dig"):
        assert [
            type(event)
            for event in events
            if isinstance(event, ToolStarted | ToolProgress | ToolFinished)
            and (event.call.name if isinstance(event, ToolFinished) else event.name) == name
        ] == [ToolStarted, ToolProgress, ToolFinished]
    assert threading.get_ident() not in threads


async def test_progress_of_what_a_tool_left_running_is_told_to_nobody() -> None:
    left: list[ToolContext] = []
    ended = asyncio.Event()

    async def leave(ctx: ToolContext) -> str:
        left.append(ctx)
        return "left"

    async def wait() -> str:
        await ended.wait()
        left[0].progress("late")
        await asyncio.to_thread(left[0].progress, "later")
        return "waited"

    def watch(event: Any) -> None:
        if isinstance(event, ToolFinished):
            ended.set()

    client, _ = scripted(openai_stream(calls=[call("leave"), call("wait")]), openai_stream("Done."), on_event=watch)
    events = await read(client.stream("go", [leave, wait]))

    assert sum(isinstance(event, ToolFinished) for event in events) == 2
    assert not [event for event in events if isinstance(event, ToolProgress)]


async def test_a_tool_that_tells_more_than_anybody_reads_is_bounded_and_nothing_else_is_lost() -> None:
    async def chat(ctx: ToolContext) -> str:
        for n in range(50_000):
            ctx.progress(str(n))
        return "told"

    client, model = scripted(openai_stream(calls=[call("chat"), ADD]), openai_stream("Done."))
    events = await read(client.stream("go", [chat, add]))

    assert sum(isinstance(event, ToolFinished) for event in events) == 2
    assert [event.message for event in events if isinstance(event, ToolProgress)][-1] == "49999"
    assert told(model.requests[1]) == ["told", "5"]


async def test_tools_start_although_nobody_reads_on() -> None:
    noted = Noted()
    client, _ = scripted(openai_stream(calls=[call("act", what="x")]), openai_stream("Done."))
    async with client.stream("go", [noted.act]) as events:
        async for event in events:
            if isinstance(event, ToolStarted):
                break
        for _ in range(20):
            await asyncio.sleep(0)
        assert noted.ran == ["x"]


async def test_one_client_serves_many_runs_at_once() -> None:
    def answer(seen: Seen) -> Any:
        return streamed(seen.said[0]["content"])

    async with server(answer) as at, client_of(at.url) as client:
        results = await asyncio.gather(*(client.run(f"run {n}") for n in range(50)))

    assert [result.text for result in results] == [f"run {n}" for n in range(50)]
    assert len({result.turn_id for result in results}) == 50
