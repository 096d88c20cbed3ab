"""Schemas for a wire that wants an object at the top."""

from __future__ import annotations

import copy
from types import MappingProxyType
from typing import Any

import pytest

from toolnexus.dialects.schemas import object_schema

TEXT = {"type": "string"}
NUMBER = {"type": "integer"}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({}, {"type": "object"}),
        ({"type": ["object", "null"], "properties": {"a": TEXT}}, {"type": "object", "properties": {"a": TEXT}}),
        (
            {
                "description": "Either",
                "anyOf": [
                    {"type": "object", "properties": {"a": TEXT, "kind": TEXT}, "required": ["a", "kind"]},
                    {"type": "object", "properties": {"b": TEXT, "kind": NUMBER}, "required": ["kind"]},
                    {"type": "null"},
                ],
            },
            {
                "type": "object",
                "description": "Either",
                "properties": {"a": TEXT, "kind": {"anyOf": [TEXT, NUMBER]}, "b": TEXT},
            },
        ),
        (
            {
                "properties": {"c": NUMBER},
                "required": ["c"],
                "oneOf": [
                    {"properties": {"a": TEXT}, "required": ["a"]},
                    {"properties": {"a": TEXT, "b": TEXT}, "required": ["b", "a"]},
                ],
            },
            {"type": "object", "properties": {"c": NUMBER, "a": TEXT, "b": TEXT}, "required": ["c", "a"]},
        ),
        (
            {
                "allOf": [
                    {"properties": {"a": TEXT}, "required": ["a"]},
                    {"anyOf": [{"properties": {"b": TEXT}, "required": ["b"]}]},
                ]
            },
            {"type": "object", "properties": {"a": TEXT, "b": TEXT}, "required": ["a", "b"]},
        ),
        (
            {
                "$ref": "#/$defs/Node",
                "$defs": {"Node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}},
            },
            {
                "type": "object",
                "properties": {"next": {"$ref": "#/$defs/Node"}},
                "$defs": {"Node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}},
            },
        ),
        ({"$ref": "#"}, {"type": "object"}),
        (
            {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}},
            {"type": "object", "$defs": {"a": {"$ref": "#/$defs/a"}}},
        ),
        ({"$ref": "https://example.org/x"}, {"type": "object"}),
    ],
)
def test_the_top_is_an_object_without_branches(schema: dict[str, Any], expected: dict[str, Any]) -> None:
    before = copy.deepcopy(schema)
    assert object_schema(schema) == expected
    assert schema == before, "the caller's schema is not touched"


def test_branches_further_down_stay() -> None:
    schema = {"type": "object", "properties": {"a": {"anyOf": [TEXT, NUMBER]}}}
    assert object_schema(MappingProxyType(schema)) == schema
