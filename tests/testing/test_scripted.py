from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolnexus import ProviderError, create_in_process_client
from toolnexus.testing import ScriptedModel
from toolnexus.testing.scripted import Heard, call, returned, said


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def requested(*messages: dict[str, Any]) -> dict[str, Any]:
    return {"messages": list(messages), "tools": [], "model": "m"}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


async def pieces_of(model: ScriptedModel, request: dict[str, Any]) -> list[Any]:
    return [piece async for piece in model(request)]


async def test_a_sequence_answers_one_request_after_the_other() -> None:
    model = ScriptedModel([{"tool_calls": [call("add", a=2, b=3), call("add", a=4, b=5)]}, "They are 5 and 9."])
    async with create_in_process_client(model="scripted", generate=model) as client:
        result = await client.run("Add them.", [add])
    assert result.text == "They are 5 and 9."
    assert [message["content"] for message in model.requests[1]["messages"][-2:]] == ["5", "9"]
    assert [tool["function"]["name"] for tool in model.requests[0]["tools"]] == ["add"]
    model.assert_finished()


async def test_a_request_is_kept_as_it_was() -> None:
    model = ScriptedModel(["one", "two"])
    async with create_in_process_client(generate=model) as client:
        await client.ask("first", id="c")
        await client.ask("second", id="c")
    assert [len(request["messages"]) for request in model.requests] == [1, 3]


async def test_a_used_up_script_fails_the_run_and_the_check() -> None:
    model = ScriptedModel(["one"])
    async with create_in_process_client(generate=model) as client:
        await client.run("Hi")
        with pytest.raises(ProviderError, match=r"no answer to request 2 \('Again'\): the script has 1 answer\."):
            await client.run("Again")
    with pytest.raises(AssertionError, match="no answer to request 2"):
        model.assert_finished()


def test_answers_that_were_not_asked_for_fail_the_check() -> None:
    with pytest.raises(AssertionError, match="2 more answers, next 'one'"):
        ScriptedModel(["one", "two"]).assert_finished()


@pytest.mark.parametrize("answers", ["hello", {"content": "hello"}])
def test_one_answer_is_no_list_of_them(answers: Any) -> None:
    with pytest.raises(TypeError, match="as a list"):
        ScriptedModel(answers)


async def test_the_first_rule_that_applies_answers() -> None:
    model = ScriptedModel(
        rules=[
            said(r"add (\d+) to (?P<b>\d+)", lambda heard: {"tool_calls": [call("add", a=heard[1], b=heard["b"])]}),
            returned("add", lambda heard: f"It is {heard.results[-1].output}."),
            said("", "I can add."),
        ]
    )
    async with create_in_process_client(generate=model) as client:
        assert (await client.run("Please ADD 2 to 3", [add])).text == "It is 5."
        assert (await client.run("Hello", [add])).text == "I can add."
    model.assert_finished()


async def test_a_request_that_no_rule_fits_fails_loudly() -> None:
    model = ScriptedModel(rules=[said("hello", "Hi."), returned("other", "x")])
    with pytest.raises(AssertionError, match="no rule applies"):
        await pieces_of(model, requested(user("bye")))
    called = {
        "role": "assistant",
        "tool_calls": [{"id": "c", "type": "function", "function": {"name": "add", "arguments": "{}"}}],
    }
    with pytest.raises(AssertionError, match=r"results of \['add'\]"):
        await pieces_of(model, requested(user("hello"), called, {"role": "tool", "tool_call_id": "c", "content": "5"}))


async def test_a_rule_may_be_a_predicate_and_an_answer_any_function() -> None:
    heard: list[Heard] = []

    async def answer(what: Heard) -> Any:
        heard.append(what)
        return lambda _: "later"

    model = ScriptedModel(rules=[said(lambda prompt: len(prompt) > 3, answer), said("", "short")])
    assert await pieces_of(model, requested(user("long enough"))) == ["later", {"content": "later"}]
    assert await pieces_of(model, requested(user("hi"))) == ["short", {"content": "short"}]
    assert (heard[0].prompt, heard[0].results, heard[0].match, heard[0][1]) == ("long enough", (), None, "")


async def test_an_exception_in_the_script_is_raised() -> None:
    model = ScriptedModel([ProviderError("Busy.", kind="overloaded", retryable=True), "fine"])
    async with create_in_process_client(generate=model) as client:
        with pytest.raises(ProviderError, match="Busy"):
            await client.run("Hi")
        assert (await client.run("Hi")).text == "fine"


@given(text=st.text())
def test_the_pieces_of_a_text_are_the_text(text: str) -> None:
    *pieces, reply = asyncio.run(pieces_of(ScriptedModel([text]), requested(user("Hi"))))
    assert "".join(pieces) == text
    assert reply == {"content": text}


def test_a_script_has_answers_or_rules() -> None:
    with pytest.raises(ValueError, match="not both"):
        ScriptedModel(["x"], rules=[said("", "y")])
