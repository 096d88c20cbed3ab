"""The tools of a toolkit through a client of the SDK, in both eras of the protocol."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from gateways import ERAS, connected
from mcp import MCPError, types

from toolnexus import Tool, ToolContext, create_toolkit
from toolnexus.gateway import ServedCall

pytestmark = pytest.mark.parametrize("era", ERAS)


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def test_names_descriptions_and_schemas_are_told_as_they_are(era: str) -> None:
    schema = {"type": "object", "properties": {"x": {"anyOf": [{"type": "string"}, {"type": "null"}]}}, "$defs": {}}
    odd = Tool(
        name="söme tool/1", description="Odd.", input_schema=schema, execute=lambda args, ctx: "", read_only=True
    )
    async with connected(era, [add, odd]) as (client, _):
        first, second = (await client.list_tools()).tools
    assert (first.name, first.description) == ("add", "Add two numbers.")
    assert (second.name, second.input_schema) == ("söme tool/1", schema)
    assert second.annotations is not None
    assert second.annotations.read_only_hint is True


async def test_a_tool_without_a_type_in_its_schema_is_served_and_one_that_cannot_be_is_left_out(era: str) -> None:
    bare = Tool(name="bare", input_schema={"properties": {}}, execute=lambda args, ctx: "ok")
    listed = Tool(name="listed", input_schema={"type": "array"}, execute=lambda args, ctx: "ok")
    anything = Tool(name="anything", input_schema={"properties": {"x": True}}, execute=lambda args, ctx: "ok")
    async with connected(era, [bare, listed, anything, add]) as (client, _):
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert [name for name in names if name != "anything"] == ["bare", "add"]
        assert (await client.call_tool("anything", {"x": 1})).content[0].text == "ok"
        assert (await client.call_tool("bare", {})).content[0].text == "ok"


async def test_a_call_gives_text_and_structure(era: str) -> None:
    def place() -> dict[str, Any]:
        """A place."""
        return {"city": "Oslo"}

    async with connected(era, [add, place]) as (client, _):
        number = await client.call_tool("add", {"a": 2, "b": 3})
        city = await client.call_tool("place", {})
    assert (number.content[0].text, number.is_error) == ("5", False)
    assert (city.content[0].text, city.structured_content) == ('{"city":"Oslo"}', {"city": "Oslo"})


async def test_a_tool_that_fails_is_a_result_and_a_tool_that_is_not_there_an_error(era: str) -> None:
    def fail() -> None:
        """Fails."""
        raise ValueError("no luck")

    async with connected(era, [fail, add]) as (client, _):
        failed = await client.call_tool("fail", {})
        wrong = await client.call_tool("add", {"a": "x"})
        with pytest.raises(MCPError, match="Did you mean 'add'"):
            await client.call_tool("ad", {})
    assert (failed.is_error, failed.content[0].text) == (True, "ValueError: no luck")
    assert wrong.is_error
    assert "do not fit" in wrong.content[0].text


async def test_progress_arrives_in_order_and_before_the_result(era: str) -> None:
    seen: list[tuple[float, float | None, str | None]] = []

    def work(ctx: ToolContext) -> str:  # in a thread
        """Works."""
        ctx.progress("begun", 0.0)
        ctx.progress("half", 0.5)
        ctx.progress("again", 0.5)
        ctx.progress("done", 1.0)
        return "ok"

    async def progress(far: float, whole: float | None, message: str | None) -> None:
        seen.append((far, whole, message))

    async with connected(era, [work]) as (client, _):
        await client.call_tool("work", {}, progress_callback=progress)
    assert [message for _, _, message in seen] == ["begun", "half", "again", "done"]
    assert [far for far, _, _ in seen] == sorted({far for far, _, _ in seen})
    assert (seen[0][0], seen[1][0], seen[-1][:2]) == (0.0, 0.5, (1.0, 1.0))


async def test_a_client_that_gives_up_cancels_the_tool(era: str) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        """Waits."""
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    events: list[ServedCall] = []
    async with connected(era, [wait, add], on_call=events.append) as (client, gateway):
        call = asyncio.create_task(client.call_tool("wait", {}))
        await begun.wait()
        call.cancel()
        await ended.wait()
        assert await gateway.idle(10)
        await asyncio.gather(call, return_exceptions=True)
        assert (await client.call_tool("add", {"a": 1, "b": 1})).content[0].text == "2"
    assert [(event.name, event.is_error) for event in events] == [("wait", True), ("add", False)]


async def test_who_watches_is_told_of_calls_without_arguments(era: str) -> None:
    events: list[ServedCall] = []

    async def watch(event: ServedCall) -> None:
        events.append(event)
        raise RuntimeError("which changes nothing")

    info = types.Implementation(name="tester", version="1")
    async with connected(era, [add], on_call=watch, client_info=info) as (client, _):
        await client.call_tool("add", {"a": 1, "b": 2})
        await client.call_tool("add", {"a": "secret"})
    assert [(event.name, event.is_error, event.client) for event in events] == [
        ("add", False, "tester"),
        ("add", True, "tester"),
    ]
    assert all(0 <= event.seconds < 10 for event in events)
    assert "secret" not in repr(events)


async def test_arguments_are_told_when_asked_for(era: str) -> None:
    events: list[ServedCall] = []
    async with connected(era, [add], on_call=events.append, with_arguments=True) as (client, _):
        await client.call_tool("add", {"a": 1, "b": 2})
    assert events[0].arguments == {"a": 1, "b": 2}


async def test_what_a_tool_says_is_a_log_message_where_nobody_asked_for_progress(era: str) -> None:
    said: list[Any] = []

    def work(ctx: ToolContext) -> str:
        """Works."""
        ctx.progress("working")
        return "ok"

    async def logged(params: types.LoggingMessageNotificationParams) -> None:
        said.append((params.level, params.logger, params.data))

    async with connected(era, [work], logging_callback=logged, log_level="info") as (client, _):
        await client.call_tool("work", {})
    assert said == [("info", "work", "working")]


async def test_a_client_is_told_when_there_is_another_tool(era: str) -> None:
    toolkit = await create_toolkit([add])

    def grow() -> str:
        """Adds a tool."""
        toolkit.register(Tool(name="new", execute=lambda args, ctx: "new"))
        return "ok"

    toolkit.register(grow)
    changed = asyncio.Event()

    async def heard(message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            changed.set()

    async with connected(era, toolkit, message_handler=heard) as (client, _):
        if era == "legacy":
            await client.call_tool("grow", {})
            await changed.wait()
        else:
            async with client.listen(tools_list_changed=True) as stream:
                await client.call_tool("grow", {})
                await anext(aiter(stream))
        assert "new" in [tool.name for tool in (await client.list_tools()).tools]
        assert (await client.call_tool("new", {})).content[0].text == "new"


async def test_calls_run_side_by_side(era: str) -> None:
    both = asyncio.Barrier(2)

    async def meet() -> str:
        """Meets."""
        await both.wait()
        return "met"

    async with connected(era, [meet]) as (client, _):
        results = await asyncio.gather(client.call_tool("meet", {}), client.call_tool("meet", {}))
    assert [result.content[0].text for result in results] == ["met", "met"]
