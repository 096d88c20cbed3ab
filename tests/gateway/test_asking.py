"""Tools that have to know something first, and clients whose person can be asked or not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from gateways import ERAS, connected
from mcp import MCPError, types

from toolnexus import Tool, ToolContext, suspend
from toolnexus.gateway import ServedCall
from toolnexus.gateway.peers import ask_client
from toolnexus.sources.builtin.question import make as question_tool

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def greet(ctx: ToolContext) -> str:
    """Greets a person."""
    if ctx.answer is None:
        suspend("elicitation", "What is your name?", data={"schema": SCHEMA})
    return f"Hello, {ctx.answer['data']['name']}!"


class Person:
    """Answers what is asked, in order."""

    def __init__(self, *answers: types.ElicitResult) -> None:
        self.answers = list(answers)
        self.asked: list[Any] = []

    async def __call__(self, _: Any, params: Any) -> types.ElicitResult:
        self.asked.append(params)
        return self.answers.pop(0)


def accept(**content: Any) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content=content)


@pytest.mark.parametrize("era", ERAS)
async def test_a_person_is_asked_and_the_tool_goes_on_with_the_answer(era: str) -> None:
    person, events = Person(accept(name="Ada")), list[ServedCall]()
    async with connected(era, [greet], elicitation_callback=person, on_call=events.append) as (client, _):
        result = await client.call_tool("greet", {})
    assert (result.content[0].text, result.is_error) == ("Hello, Ada!", False)
    assert person.asked[0].message == "What is your name?"
    assert person.asked[0].requested_schema == SCHEMA
    assert [event.name for event in events] == ["greet"]


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(("action", "told"), [("decline", "declined"), ("cancel", "declined: nobody answered")])
async def test_a_person_who_does_not_answer_ends_the_call(era: str, action: Any, told: str) -> None:
    person = Person(types.ElicitResult(action=action))
    async with connected(era, [greet], elicitation_callback=person) as (client, _):
        result = await client.call_tool("greet", {})
    assert (result.is_error, result.content[0].text) == (True, told)


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_that_cannot_ask_is_told_what_would_be_asked(era: str) -> None:
    async with connected(era, [greet]) as (client, _):
        result = await client.call_tool("greet", {})
    assert result.is_error
    assert "What is your name?" in result.content[0].text
    assert "elicitation" in result.content[0].text


@pytest.mark.parametrize("era", ERAS)
async def test_a_tool_may_ask_more_than_once(era: str) -> None:
    def two(ctx: ToolContext) -> str:
        """Asks twice."""
        if ctx.answer is None:
            suspend("elicitation", "First?", data={"schema": SCHEMA})
        if ctx.answer["data"]["name"] == "one":
            suspend("elicitation", "Second?", data={"schema": SCHEMA})
        return ctx.answer["data"]["name"]

    person = Person(accept(name="one"), accept(name="two"))
    async with connected(era, [two], elicitation_callback=person) as (client, _):
        assert (await client.call_tool("two", {})).content[0].text == "two"
    assert [params.message for params in person.asked] == ["First?", "Second?"]


def dangerous(ran: list[str]) -> Tool:
    def execute(args: Any, ctx: ToolContext) -> str:
        ran.append(args["what"])
        return "gone"

    schema = {"type": "object", "properties": {"what": {"type": "string"}}}
    return Tool(name="delete", description="Deletes.", input_schema=schema, execute=execute, needs_approval=True)


@pytest.mark.parametrize("era", ERAS)
async def test_a_tool_that_needs_approval_runs_only_after_it(era: str) -> None:
    ran: list[str] = []
    person = Person(accept(), types.ElicitResult(action="decline"))
    async with connected(era, [dangerous(ran)], elicitation_callback=person) as (client, _):
        allowed = await client.call_tool("delete", {"what": "a"})
        denied = await client.call_tool("delete", {"what": "b"})
    assert (allowed.content[0].text, denied.content[0].text, denied.is_error) == ("gone", "denied", True)
    assert ran == ["a"]
    assert "delete" in person.asked[0].message


@pytest.mark.parametrize("era", ERAS)
async def test_a_tool_that_needs_approval_does_not_run_where_nobody_can_be_asked(era: str) -> None:
    ran: list[str] = []
    async with connected(era, [dangerous(ran)]) as (client, _):
        assert (await client.call_tool("delete", {"what": "a"})).is_error
    assert ran == []


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_that_asks_by_itself_is_trusted_when_the_host_says_so(era: str) -> None:
    ran: list[str] = []
    async with connected(era, [dangerous(ran)], client_approves=True) as (client, _):
        assert not (await client.call_tool("delete", {"what": "a"})).is_error
    assert ran == ["a"]


@pytest.mark.parametrize("era", ERAS)
async def test_the_questions_of_the_question_tool_are_a_form(era: str) -> None:
    questions = [
        {"question": "Which?", "header": "Colour", "options": ["red", "blue"]},
        {"question": "How many?"},
        {"question": "Which ones?", "options": ["a", "b"], "multiple": True},
    ]
    person = Person(accept(answer_1="red", answer_3=["a", "b"]))
    async with connected(era, [question_tool(None)], elicitation_callback=person) as (client, _):  # type: ignore[arg-type]
        result = await client.call_tool("question", {"questions": questions})
    assert person.asked[0].requested_schema["properties"] == {
        "answer_1": {"title": "Colour", "description": "Which?", "type": "string", "enum": ["red", "blue"]},
        "answer_2": {"description": "How many?", "type": "string"},
        "answer_3": {
            "description": "Which ones?",
            "type": "array",
            "items": {"type": "string", "enum": ["a", "b"]},
        },
    }
    assert "- red" in result.content[0].text
    assert "(skipped)" in result.content[0].text


@pytest.mark.parametrize("era", ERAS)
async def test_a_request_of_another_kind_takes_a_text(era: str) -> None:
    def ask(ctx: ToolContext) -> str:
        """Asks."""
        if ctx.answer is None:
            suspend("code", "Which code was sent to you?")
        return f"code {ctx.answer['data']}"

    async with connected(era, [ask], elicitation_callback=Person(accept(answer="1234"))) as (client, _):
        assert (await client.call_tool("ask", {})).content[0].text == "code 1234"


@pytest.mark.parametrize("era", ERAS)
async def test_a_model_and_folders_are_asked_of_the_client(era: str) -> None:
    def ask(ctx: ToolContext) -> str:
        """Asks twice."""
        if ctx.answer is None:
            asked = {"messages": [{"role": "user", "content": {"type": "text", "text": "Hi"}}], "maxTokens": 5}
            suspend("sampling", "A model is needed.", data=asked)
        if "roots" not in ctx.answer["data"]:
            suspend("roots", "Folders are needed.")
        return ctx.answer["data"]["roots"][0]["uri"]

    async def sample(_: Any, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
        assert params.max_tokens == 5
        return types.CreateMessageResult(role="assistant", content=types.TextContent(text="Hello"), model="m")

    async def roots(_: Any) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri="file:///work")])

    async with connected(era, [ask], sampling_callback=sample, list_roots_callback=roots) as (client, _):
        assert (await client.call_tool("ask", {})).content[0].text == "file:///work"


async def test_what_only_the_client_has_is_a_protocol_error_where_it_did_not_declare_it() -> None:
    def ask() -> str:
        """Asks."""
        suspend("roots", "Folders are needed.")

    async with connected("2026-07-28", [ask]) as (client, _):
        with pytest.raises(MCPError) as raised:
            await client.call_tool("ask", {})
    assert raised.value.data == {"requiredCapabilities": {"roots": {}}}


async def test_several_questions_are_asked_in_one_result() -> None:
    def ask(ctx: ToolContext) -> Any:
        """Asks."""
        if ctx.answer is None:
            each = {"kind": "elicitation", "prompt": "Name?", "data": {"schema": SCHEMA}}
            suspend("elicitation", "Two names.", data={"questions": {"a": each, "b": {**each, "prompt": "And?"}}})
        return {name: value["name"] for name, value in ctx.answer["data"]["answers"].items()}

    person = Person(accept(name="x"), accept(name="y"))
    async with connected("2026-07-28", [ask], elicitation_callback=person) as (client, _):
        result = await client.call_tool("ask", {})
    assert sorted(result.structured_content.values()) == ["x", "y"]


async def test_state_that_somebody_else_wrote_is_refused() -> None:
    async with connected("2026-07-28", [greet], elicitation_callback=Person()) as (client, _):
        first = await client.session.call_tool("greet", {}, allow_input_required=True)
        assert isinstance(first, types.InputRequiredResult)
        for state in (f"{first.request_state}x", '{"request": {"id": "x", "kind": "elicitation", "prompt": ""}}'):
            with pytest.raises(MCPError, match="requestState"):
                await client.session.call_tool(
                    "greet",
                    {},
                    input_responses={"elicitation": accept(name="Eve")},
                    request_state=state,
                    allow_input_required=True,
                )


async def test_a_request_that_has_an_address_is_shown_as_one() -> None:
    def log_in(ctx: ToolContext) -> str:
        """Logs in."""
        if ctx.answer is None:
            suspend("authorization", "Log in.", url="https://example.org/login")
        return "in"

    person = Person(accept())
    async with connected("legacy", [log_in], elicitation_callback=person) as (client, _):
        result = await client.call_tool("log_in", {})
    assert result.content[0].text == "in"
    assert person.asked[0].url == "https://example.org/login"


async def test_what_runs_inside_of_a_call_can_ask_its_client_while_it_waits() -> None:
    answers: list[Any] = []

    async def wait() -> str:
        """Asks without suspending."""
        data = {"schema": SCHEMA}
        answers.append(await ask_client({"id": "1", "kind": "elicitation", "prompt": "Name?", "data": data}))
        return "ok"

    async with connected("legacy", [wait], elicitation_callback=Person(accept(name="Ada"))) as (client, _):
        await client.call_tool("wait", {})
    async with connected("2026-07-28", [wait], elicitation_callback=Person()) as (client, _):
        await client.call_tool("wait", {})
    assert answers == [{"id": "1", "ok": True, "data": {"name": "Ada"}}, None]
    assert await ask_client({"id": "2", "kind": "elicitation", "prompt": "Name?"}) is None


async def test_a_request_that_expires_is_not_waited_for() -> None:
    def ask() -> str:
        """Asks."""
        suspend("elicitation", "Name?", data={"schema": SCHEMA}, expires_at="2000-01-01T00:00:00Z")

    async def never(_: Any, params: Any) -> Any:
        await asyncio.Event().wait()

    async with connected("legacy", [ask], elicitation_callback=never) as (client, _):
        result = await client.call_tool("ask", {})
    assert (result.is_error, result.content[0].text) == (True, "declined: the request expired")
