"""The tool `todowrite`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from toolnexus import ToolResult, create_toolkit
from toolnexus.sources.builtin import todo
from toolnexus.sources.builtin.workspace import Workspace


async def write(tmp_path: Path, *todos: Any) -> ToolResult:
    toolkit = await create_toolkit([todo.make(Workspace(tmp_path))])
    return await toolkit.execute("todowrite", {"todos": list(todos)})


async def test_the_list_is_rendered_and_in_the_metadata(tmp_path: Path) -> None:
    given = [{"id": "a", "text": "Look\n around", "completed": True}, {"id": "b", "text": "Leave", "completed": False}]
    result = await write(tmp_path, *given)
    assert result == ToolResult(
        output="[x] a. Look around\n[ ] b. Leave\n(1 of 2 done)",
        metadata={"todos": [{**given[0], "text": "Look around"}, given[1]]},
    )


async def test_items_without_an_id_get_numbers_that_are_free(tmp_path: Path) -> None:
    result = await write(tmp_path, {"text": "a"}, {"id": "1", "text": "b"}, {"id": "", "text": "c"})
    assert [item["id"] for item in result.metadata["todos"]] == ["2", "1", "3"]
    assert not any(item["completed"] for item in result.metadata["todos"])


async def test_an_empty_list_says_so(tmp_path: Path) -> None:
    assert (await write(tmp_path)).output == "(nothing to do)"


@pytest.mark.parametrize(
    ("todos", "told"),
    [
        ([{"id": "a", "text": "x"}, {"id": "a", "text": "y"}], "todos[1].id: 'a' is the id of todos[0]"),
        ([{"id": "a"}], "todos[0]"),
        ([{"text": "x", "completed": "yes"}], "todos[0].completed"),
        ([{"text": "x"}] * 201, "todos"),
    ],
)
async def test_a_list_that_cannot_be_meant_is_an_error(tmp_path: Path, todos: list[Any], told: str) -> None:
    result = await write(tmp_path, *todos)
    assert result.is_error
    assert told in result.output
