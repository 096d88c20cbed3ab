"""Declarations of tools that many runs share."""

from __future__ import annotations

from typing import Any

import pytest

from toolnexus.dialects import Request, Target, dialect
from toolnexus.messages import Message
from toolnexus.providers import Provider
from toolnexus.tools import Tool


def tool(name: str) -> Tool:
    return Tool(name=name, execute=lambda args, ctx: None)


def calling(name: str) -> list[Message]:
    call: Any = {"id": "c", "type": "function", "function": {"name": name, "arguments": "{}"}}
    return [{"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "c", "content": "1"}]


@pytest.mark.parametrize("style", ["openai", "anthropic"])
def test_runs_with_the_same_tools_share_their_declarations_and_nothing_else(style: str) -> None:
    of, target = dialect(style), Target(style=style, host="", provider=Provider())
    tools = (tool("notes.search"),)
    first, second = of.encoder(target), of.encoder(target)
    hostile = Request(model="m", messages=calling("files.read"), tools=tools)
    plain = Request(model="m", messages=[{"role": "user", "content": "?"}], tools=tools)

    declared = first.encode(hostile)["tools"]

    assert second.encode(plain)["tools"] is declared
    assert set(first.reading(hostile).names.values()) == {"notes.search", "files.read"}
    assert set(second.reading(plain).names.values()) == {"notes.search"}


@pytest.mark.parametrize("style", ["openai", "anthropic"])
def test_tools_that_change_within_a_run_do_not_change_those_of_the_next(style: str) -> None:
    of, target = dialect(style), Target(style=style, host="", provider=Provider())
    tools, others = (tool("notes.search"),), (tool("notes_search"), tool("notes.search"))
    asked: list[Message] = [{"role": "user", "content": "?"}]
    run = of.encoder(target)

    def names(tools: tuple[Tool, ...]) -> list[str]:
        declared = run.encode(Request(model="m", messages=asked, tools=tools))["tools"]
        return [entry.get("function", entry)["name"] for entry in declared]

    before = names(tools)
    assert names(others) == ["notes_search", *before]
    assert names(tools) == before
    run = of.encoder(target)
    assert names(tools) == before
