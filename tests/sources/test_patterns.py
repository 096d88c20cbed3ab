"""Patterns of somebody else's schema: they are kept to, and none can hold up the process."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolnexus import InvalidOutput, Tool, create_in_process_client, create_toolkit

HOSTILE = "^(a+)+$"
LONG = "a" * 5_000 + "!"


async def outcome(schema: dict[str, Any], arguments: dict[str, Any]) -> tuple[str, bool]:
    tool = Tool(name="take", execute=lambda args, ctx: "taken", input_schema={"type": "object", **schema})
    async with await create_toolkit([tool]) as toolkit:
        result = await toolkit.execute("take", arguments)
        return result.output, result.is_error


@pytest.mark.parametrize(
    ("schema", "fits", "misfits"),
    [
        ({"properties": {"x": {"pattern": "^[0-9]{3}$"}}}, {"x": "123"}, {"x": "12"}),
        ({"properties": {"x": {"pattern": "b"}}}, {"x": "abc"}, {"x": "ac"}),
        ({"properties": {"x": {"pattern": "b"}}}, {"x": 1}, {"x": ""}),
        ({"patternProperties": {"^n_": {"type": "integer"}}}, {"n_a": 1, "b": ""}, {"n_a": ""}),
        ({"patternProperties": {"^n_": {}}, "additionalProperties": False}, {"n_a": 1}, {"b": 1}),
        ({"properties": {"a": {}}, "additionalProperties": {"type": "integer"}}, {"a": "", "b": 1}, {"b": ""}),
        ({"properties": {"a": {}}, "unevaluatedProperties": False}, {"a": 1}, {"b": 1}),
    ],
)
async def test_a_pattern_is_kept_to(schema: dict[str, Any], fits: dict[str, Any], misfits: dict[str, Any]) -> None:
    assert await outcome(schema, fits) == ("taken", False)
    text, is_error = await outcome(schema, misfits)
    assert is_error
    assert "do not fit" in text


@pytest.mark.parametrize("pattern", ["(?=.*[A-Z]).{8,}", r"(a)\1", "(", "\\"])
async def test_what_cannot_be_told_in_linear_time_is_left_to_the_tool(pattern: str) -> None:
    schema = {"properties": {"x": {"pattern": pattern}}, "patternProperties": {pattern: False}}
    assert await outcome({**schema, "additionalProperties": False}, {"x": "a", "y": 1}) == ("taken", False)


@pytest.mark.parametrize(
    ("schema", "arguments"),
    [
        ({"properties": {"x": {"pattern": HOSTILE}}}, {"x": LONG}),
        ({"patternProperties": {HOSTILE: {"type": "null"}}}, {LONG: 1}),
        ({"patternProperties": {HOSTILE: {}}, "additionalProperties": False}, {LONG: 1}),
        ({"patternProperties": {HOSTILE: {}}, "unevaluatedProperties": False}, {LONG: 1}),
        ({"allOf": [{"patternProperties": {HOSTILE: {}}}], "unevaluatedProperties": False}, {LONG: 1}),
        (
            {
                "$defs": {"d": {"patternProperties": {HOSTILE: {}}}},
                "allOf": [{"$ref": "#/$defs/d"}],
                "unevaluatedProperties": False,
            },
            {LONG: 1},
        ),
    ],
)
async def test_no_pattern_holds_up_the_process(schema: dict[str, Any], arguments: dict[str, Any]) -> None:
    began = time.monotonic()
    await outcome(schema, arguments)
    assert time.monotonic() - began < 2


async def test_nor_does_one_in_a_schema_of_an_answer() -> None:
    client = create_in_process_client(generate=lambda asked: {"content": f'{{"value": "{LONG}"}}'})
    began = time.monotonic()
    with pytest.raises(InvalidOutput):
        await client.run("hi", output_type={"type": "string", "pattern": HOSTILE})
    assert time.monotonic() - began < 2


@given(st.from_regex(r"\^?[ab.]{1,3}[*+?]?(\|[ab]+)?\$?", fullmatch=True), st.text(alphabet="abc", max_size=6))
def test_patterns_mean_what_they_mean_elsewhere(pattern: str, text: str) -> None:
    from toolnexus.sources._patterns import matcher

    matches = matcher(pattern)
    assert matches is not None
    assert matches(text) == (re.search(pattern, text) is not None)
