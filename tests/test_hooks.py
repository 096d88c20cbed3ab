"""Hooks: what a host may see and change before and after each request and each call."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest
from scripts import raw, read, scripted, told

from toolnexus import (
    AfterLLM,
    AfterTool,
    BeforeLLM,
    BeforeTool,
    Deny,
    HookFailed,
    Hooks,
    InvalidTranscript,
    LLMOverride,
    RunTimeout,
    TextDelta,
    ToolnexusError,
    ToolOverride,
    ToolResult,
    define_tool,
)
from toolnexus.testing import call, openai_reply, openai_stream

DONE = openai_reply("Done.")
ADD = call("add", a=2, b=3)

Form = Callable[[Callable[[Any], Any]], Callable[[Any], Any]]


def plain(hook: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return hook


def asynchronous(hook: Callable[[Any], Any]) -> Callable[[Any], Any]:
    async def later(event: Any) -> Any:
        await asyncio.sleep(0)
        return hook(event)

    return later


def future(hook: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A plain function that gives something to await."""
    return lambda event: asyncio.ensure_future(asynchronous(hook)(event))


FORMS = pytest.mark.parametrize("form", [plain, asynchronous, future])


class Adder:
    """A tool, and what it was called with."""

    def __init__(self) -> None:
        self.got: list[tuple[int, int]] = []

    async def add(self, a: int, b: int) -> int:
        self.got.append((a, b))
        return a + b


def fails(event: Any) -> Any:
    raise OSError("the policy server is down")


def cancelled(event: Any) -> Any:
    """What a hook raises that waits for something which another cancels."""
    raise asyncio.CancelledError


# Before and after the model


@FORMS
async def test_every_hook_sees_what_happens(form: Form) -> None:
    seen: list[Any] = []
    hooks = Hooks(
        before_llm=form(seen.append),
        after_llm=form(seen.append),
        before_tool=form(seen.append),
        after_tool=form(seen.append),
    )
    adder = Adder()
    client, _ = scripted(openai_reply("Adding.", calls=[ADD]), DONE, hooks=hooks)
    result = await client.run("2 + 3?", [adder.add])

    assert [type(event) for event in seen] == [BeforeLLM, AfterLLM, BeforeTool, AfterTool, BeforeLLM, AfterLLM]
    first, reply, before, after, second, _ = seen
    assert (first.model, first.step, [t.name for t in first.tools]) == ("m", 0, ["add"])
    assert first.messages == [{"role": "user", "content": "2 + 3?"}]
    assert (reply.reply.text, reply.step) == ("Adding.", 0)
    assert (before.tool.name, before.arguments, before.context.call_id) == ("add", {"a": 2, "b": 3}, "call_1")
    assert (after.arguments, after.result.output, after.context) == ({"a": 2, "b": 3}, "5", before.context)
    assert (len(second.messages), second.step) == (3, 1)
    assert result.text == "Done."


@FORMS
async def test_a_request_may_be_replaced_for_once_and_the_transcript_stays(form: Form) -> None:
    def replace(event: BeforeLLM) -> LLMOverride | None:
        if event.step:
            return None
        return LLMOverride(messages=[{"role": "user", "content": "3 + 4?"}], tools=(), model="small")

    client, model = scripted(openai_reply(calls=[ADD]), DONE, hooks=Hooks(before_llm=form(replace)))
    result = await client.ask("2 + 3?", [Adder().add], id="u1")

    first, second = (request.json for request in model.requests)
    assert first == {"model": "small", "messages": [{"role": "user", "content": "3 + 4?"}]}
    assert (second["model"], second["messages"][0]["content"], len(second["tools"])) == ("m", "2 + 3?", 1)
    assert told(model.requests[1]) == ["There is no tool 'add'. There are no tools."], "it was not offered"
    assert result.messages[0]["content"] == "2 + 3?"
    assert (await client.conversation_store.get("u1"))[0]["content"] == "2 + 3?"  # type: ignore[index]


async def test_what_a_hook_does_to_its_copies_changes_nothing() -> None:
    def spoil(event: Any) -> None:
        if isinstance(event, BeforeLLM):
            event.messages[0]["content"] = "spoilt"
            event.messages.append({"role": "user", "content": "more"})
        else:
            event.arguments["a"] = 100

    client, model = scripted(
        openai_reply(calls=[ADD]), DONE, hooks=Hooks(before_llm=spoil, before_tool=spoil, after_tool=spoil)
    )
    result = await client.run("2 + 3?", [Adder().add])

    assert [m.get("content") for m in result.messages] == ["2 + 3?", None, "5", "Done."]
    assert len(model.requests[1].json["messages"]) == 3
    assert result.tool_calls[0].args == {"a": 2, "b": 3}


@pytest.mark.parametrize(
    ("kept", "sent"),
    [
        ((0, 1, 3), [("user", "go"), ("assistant", None), ("tool", "interrupted: outcome unknown"), ("tool", "2")]),
        ((0, 2, 3), [("user", "go")]),
        ((1, 2, 3), [("assistant", None), ("tool", "5"), ("tool", "2")]),
    ],
)
async def test_a_window_that_cuts_through_a_step_is_made_whole(kept: tuple[int, ...], sent: list[Any]) -> None:
    def window(event: BeforeLLM) -> LLMOverride | None:
        return LLMOverride(messages=[event.messages[n] for n in kept]) if event.step else None

    two = openai_reply(calls=[ADD, call("add", a=1, b=1)])
    client, model = scripted(two, DONE, hooks=Hooks(before_llm=window))
    result = await client.run("go", [Adder().add])

    assert [(m["role"], m["content"]) for m in model.requests[1].json["messages"]] == sent
    assert [m.get("content") for m in result.messages] == ["go", None, "5", "2", "Done."]


async def test_messages_of_a_hook_may_be_of_any_shape_that_a_history_may_have() -> None:
    def replace(_: BeforeLLM) -> LLMOverride:
        return LLMOverride(messages=[{"role": "user", "content": [{"type": "text", "text": "half \ud83d"}]}])  # type: ignore[list-item]

    client, model = scripted(DONE, hooks=Hooks(before_llm=replace))
    await client.run("go")
    assert model.requests[0].json["messages"][0]["content"][0]["text"] == "half �"

    client, model = scripted(DONE, hooks=Hooks(before_llm=lambda _: LLMOverride(messages=[{"role": 7}])))  # type: ignore[list-item]
    with pytest.raises(InvalidTranscript, match=r"messages\[0\]"):
        await client.run("go")
    assert model.requests == []


async def test_hooks_compose_in_their_order() -> None:
    def appending(text: str) -> Hooks:
        def before(event: BeforeLLM) -> LLMOverride:
            return LLMOverride(
                messages=[{"role": "user", "content": f"{event.messages[-1]['content']}{text}"}],  # type: ignore[typeddict-item]
                model=event.model + text,
            )

        return Hooks(before_llm=before)

    client, model = scripted(DONE, hooks=[appending("a"), Hooks(), appending("b")])
    await client.run("hi ")

    assert (model.requests[0].json["model"], model.requests[0].json["messages"][0]["content"]) == ("mab", "hi ab")


@FORMS
@pytest.mark.parametrize("wrong", [fails, lambda _: {"messages": []}, lambda _: True], ids=["raises", "dict", "bool"])
async def test_a_before_llm_that_fails_ends_the_run_and_nothing_is_sent(form: Form, wrong: Any) -> None:
    client, model = scripted(hooks=Hooks(before_llm=form(wrong)))
    with pytest.raises(HookFailed, match="before_llm") as caught:
        await client.run("go")

    assert model.requests == []
    assert caught.value.partial is None
    if wrong is fails:
        assert isinstance(caught.value.__cause__, OSError)


@FORMS
async def test_a_before_llm_that_fails_later_carries_what_was_done(form: Form) -> None:
    def second(event: BeforeLLM) -> None:
        if event.step:
            fails(event)

    client, model = scripted(openai_reply("Adding.", calls=[ADD]), hooks=Hooks(before_llm=form(second)))
    with pytest.raises(HookFailed) as caught:
        await client.run("2 + 3?", [Adder().add])

    assert len(model.requests) == 1
    assert caught.value.partial is not None
    assert (caught.value.partial.status, caught.value.partial.text) == ("failed", "Adding.")
    assert [record.output for record in caught.value.partial.tool_calls] == ["5"]


async def test_an_error_of_ours_from_before_llm_is_raised_as_it_is() -> None:
    class TooExpensive(ToolnexusError):
        pass

    def refuse(_: BeforeLLM) -> None:
        raise TooExpensive("over budget")

    client, _ = scripted(hooks=Hooks(before_llm=refuse))
    with pytest.raises(TooExpensive, match="over budget"):
        await client.run("go")


async def test_a_before_llm_that_is_cancelled_by_others_fails_like_any_other() -> None:
    client, model = scripted(hooks=Hooks(before_llm=cancelled))
    with pytest.raises(HookFailed):
        await client.run("go")

    assert model.requests == []


@pytest.mark.parametrize("name", ["before_llm", "after_llm", "before_tool", "after_tool"])
async def test_a_hook_that_hangs_is_bounded_by_the_runs_timeout(name: str) -> None:
    async def hang(_: Any) -> None:
        await asyncio.Event().wait()

    client, _ = scripted(openai_reply(calls=[ADD]), DONE, hooks=Hooks(**{name: hang}))
    with pytest.raises(RunTimeout):
        await asyncio.wait_for(client.run("go", [Adder().add], timeout=0.1), 5)


# Before and after a tool


@FORMS
async def test_arguments_may_be_rewritten_and_are_checked_again(form: Form) -> None:
    def rewrite(event: BeforeTool) -> ToolOverride:
        return ToolOverride(
            arguments={"a": event.arguments["a"] * 10, "b": "not a number" if event.context.step else 1}
        )

    adder = Adder()
    client, model = scripted(
        openai_reply(calls=[ADD]), openai_reply(calls=[ADD]), DONE, hooks=Hooks(before_tool=form(rewrite))
    )
    result = await client.run("go", [adder.add])

    assert adder.got == [(20, 1)]
    assert told(model.requests[1]) == ["21"]
    assert "The arguments do not fit" in told(model.requests[2])[0]
    assert [record.args for record in result.tool_calls] == [{"a": 20, "b": 1}, {"a": 20, "b": "not a number"}]
    sent = model.requests[1].json["messages"][1]["tool_calls"][0]["function"]["arguments"]
    assert sent == '{"a": 2, "b": 3}', "the transcript says what the model asked for"


async def test_a_hook_may_mend_arguments_that_do_not_fit() -> None:
    def mend(event: BeforeTool) -> ToolOverride:
        return ToolOverride(arguments={"a": 1, "b": 2, **event.arguments})

    client, model = scripted(openai_reply(calls=[call("add", a=5)]), DONE, hooks=Hooks(before_tool=mend))
    await client.run("go", [Adder().add])

    assert told(model.requests[1]) == ["7"]


@FORMS
async def test_a_call_may_be_answered_in_the_tools_place(form: Form) -> None:
    adder = Adder()
    cached = ToolResult(output="42", metadata={"cached": True})
    client, model = scripted(
        openai_reply(calls=[ADD]), DONE, hooks=Hooks(before_tool=form(lambda _: ToolOverride(result=cached)))
    )
    result = await client.run("go", [adder.add])

    assert adder.got == []
    assert told(model.requests[1]) == ["42"]
    assert (result.tool_calls[0].is_error, result.tool_calls[0].metadata) == (False, {"cached": True})


@FORMS
async def test_the_first_denial_wins_and_later_hooks_are_not_asked(form: Form) -> None:
    asked: list[str] = []

    def watch(event: BeforeTool) -> None:
        asked.append("watch")

    def deny(reason: str) -> Callable[[Any], Any]:
        def decide(event: BeforeTool) -> Deny:
            asked.append(reason)
            return Deny(reason=reason)

        return form(decide)

    adder = Adder()
    hooks = [Hooks(before_tool=form(watch)), Hooks(before_tool=deny("not today")), Hooks(before_tool=deny("never"))]
    client, model = scripted(openai_reply(calls=[ADD]), DONE, hooks=hooks)
    result = await client.run("go", [adder.add])

    assert (asked, adder.got) == (["watch", "not today"], [])
    assert told(model.requests[1]) == ["denied: not today"]
    assert result.tool_calls[0].is_error
    assert result.text == "Done."


async def test_rewritten_arguments_are_what_the_next_hook_sees() -> None:
    seen: list[Any] = []
    hooks = [
        Hooks(before_tool=lambda _: ToolOverride(arguments={"a": 7, "b": 8})),
        Hooks(before_tool=lambda event: seen.append(event.arguments)),
    ]
    client, model = scripted(openai_reply(calls=[ADD]), DONE, hooks=hooks)
    await client.run("go", [Adder().add])

    assert seen == [{"a": 7, "b": 8}]
    assert told(model.requests[1]) == ["15"]


WRONG = [
    fails,
    cancelled,
    lambda _: True,
    lambda _: "yes",
    lambda _: ToolResult(output="42"),
    lambda _: ToolOverride(arguments=7),  # type: ignore[arg-type]
]


@FORMS
@pytest.mark.parametrize("wrong", WRONG, ids=["raises", "cancelled", "bool", "str", "result", "arguments"])
async def test_a_before_tool_that_fails_denies_the_call_and_the_model_is_told(
    form: Form, wrong: Any, caplog: pytest.LogCaptureFixture
) -> None:
    adder = Adder()

    def first(event: BeforeTool) -> Any:
        return wrong(event) if event.arguments["a"] == 2 else None

    client, model = scripted(
        openai_reply(calls=[ADD, call("add", a=1, b=1)]), DONE, hooks=Hooks(before_tool=form(first))
    )
    with caplog.at_level(logging.WARNING, "toolnexus"):
        result = await client.run("go", [adder.add])

    assert adder.got == [(1, 1)]
    assert told(model.requests[1])[0].startswith("denied: the check of this call failed")
    assert told(model.requests[1])[1] == "2"
    assert [record.is_error for record in result.tool_calls] == [True, False]
    assert "before_tool" in caplog.text


async def test_a_denied_call_has_not_acted() -> None:
    saved: list[str] = []

    class Store:
        def get(self, id: str) -> None: ...
        def save(self, id: str, messages: list[Any]) -> None:
            saved.append(id)

    client, _ = scripted(openai_reply(calls=[ADD]), hooks=Hooks(before_tool=lambda _: Deny(reason="no")), store=Store())
    with pytest.raises(AssertionError, match="no scripted answer"):
        await client.ask("go", [Adder().add], id="u1")

    assert saved == []


@FORMS
async def test_a_result_may_be_transformed_one_hook_after_the_other(form: Form) -> None:
    def louder(event: AfterTool) -> ToolResult:
        return ToolResult(output=f"{event.result.output}!", metadata={"from": event.result.output})

    hooks = [Hooks(after_tool=form(louder)), Hooks(after_tool=form(lambda _: None)), Hooks(after_tool=form(louder))]
    client, model = scripted(openai_reply(calls=[ADD]), DONE, hooks=hooks)
    result = await client.run("go", [Adder().add])

    assert told(model.requests[1]) == ["5!!"]
    assert (result.tool_calls[0].output, result.tool_calls[0].metadata) == ("5!!", {"from": "5!"})


async def test_what_a_hook_makes_of_a_result_is_as_safe_as_a_tools_own() -> None:
    huge = ToolResult(output="half \ud83d " + "x" * 10_000)
    client, model = scripted(openai_reply(calls=[ADD]), DONE, hooks=Hooks(after_tool=lambda _: huge), max_output=1000)
    await client.run("go", [Adder().add])

    assert told(model.requests[1])[0].startswith("half � xxx")
    assert "[cut here" in told(model.requests[1])[0]


@FORMS
@pytest.mark.parametrize("wrong", [fails, cancelled], ids=["raises", "cancelled"])
@pytest.mark.parametrize("name", ["after_llm", "after_tool"])
async def test_an_after_hook_that_fails_is_logged_and_ignored(
    form: Form, wrong: Any, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    client, model = scripted(openai_reply(calls=[ADD]), DONE, hooks=Hooks(**{name: form(wrong)}))
    with caplog.at_level(logging.WARNING, "toolnexus"):
        result = await client.run("go", [Adder().add])

    assert told(model.requests[1]) == ["5"]
    assert result.text == "Done."
    assert name in caplog.text


async def test_an_after_tool_that_gives_no_result_is_logged_and_ignored(caplog: pytest.LogCaptureFixture) -> None:
    client, model = scripted(openai_reply(calls=[ADD]), DONE, hooks=Hooks(after_tool=lambda _: "five"))  # type: ignore[arg-type, return-value]
    with caplog.at_level(logging.WARNING, "toolnexus"):
        await client.run("go", [Adder().add])

    assert told(model.requests[1]) == ["5"]
    assert "after_tool" in caplog.text


async def test_hooks_are_not_asked_about_calls_that_cannot_run() -> None:
    seen: list[Any] = []
    client, model = scripted(
        openai_reply(calls=[call("nope"), raw("add", '{"a": 1,')]), DONE, hooks=Hooks(before_tool=seen.append)
    )
    await client.run("go", [Adder().add])

    assert seen == []
    assert ["There is no tool" in output or "not a JSON object" in output for output in told(model.requests[1])] == [
        True,
        True,
    ]


# Sinks


@FORMS
async def test_on_event_gets_every_event_and_may_raise(form: Form, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[Any] = []

    def sink(event: Any) -> None:
        seen.append(event)
        fails(event)

    client, _ = scripted(openai_stream("Ad", "ding.", calls=[ADD]), openai_stream("Done."), on_event=form(sink))
    with caplog.at_level(logging.WARNING, "toolnexus"):
        events = await read(client.stream("go", [Adder().add]))

    assert seen == events
    assert "on_event" in caplog.text


@pytest.mark.parametrize("remembered", [None, "u1"])
async def test_run_and_ask_tell_the_same_sink(remembered: str | None) -> None:
    seen: list[str] = []
    client, _ = scripted(openai_reply("Hi", calls=[ADD]), DONE, on_event=lambda event: seen.append(event.type))
    await client.ask("go", [Adder().add], id=remembered)

    assert seen == [
        "text_delta",
        "step_finished",
        "tool_started",
        "tool_finished",
        "text_delta",
        "step_finished",
        "finished",
    ]


@FORMS
async def test_on_text_gets_each_piece_as_it_arrives(form: Form) -> None:
    said: list[str] = []
    client, model = scripted(openai_stream("Do", "ne", "."))
    result = await client.ask("go", on_text=form(said.append))

    assert (said, result.text) == (["Do", "ne", "."], "Done.")
    assert model.requests[0].json["stream"] is True


@FORMS
@pytest.mark.parametrize("wrong", [fails, cancelled], ids=["raises", "cancelled"])
async def test_an_on_text_that_fails_is_logged_and_ignored(
    form: Form, wrong: Any, caplog: pytest.LogCaptureFixture
) -> None:
    client, _ = scripted(openai_stream("Do", "ne."))
    with caplog.at_level(logging.WARNING, "toolnexus"):
        result = await client.ask("go", on_text=form(wrong), id="u1")

    assert result.text == "Done."
    assert "on_text" in caplog.text


async def test_cancelling_a_run_reaches_a_hook_that_waits() -> None:
    waiting, ended = asyncio.Event(), asyncio.Event()

    async def wait(_: Any) -> None:
        waiting.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    for name in ("before_llm", "after_llm", "before_tool", "after_tool"):
        waiting.clear()
        ended.clear()
        client, _ = scripted(openai_reply(calls=[ADD]), DONE, hooks=Hooks(**{name: wait}))
        run = asyncio.create_task(client.run("go", [define_tool(Adder().add, read_only=True)]))
        await waiting.wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert ended.is_set()


async def test_a_stream_shows_text_although_after_llm_fails() -> None:
    client, _ = scripted(openai_stream("Done."), hooks=Hooks(after_llm=fails))
    events = await read(client.stream("go"))

    assert [event.text for event in events if isinstance(event, TextDelta)] == ["Done."]
