"""Schemas of somebody else: which are right, and that those which are known as right really are."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from toolnexus.sources._schemas import checker
from toolnexus.sources._usual_schemas import is_usual
from toolnexus.tools import BrokenSchema, InvalidArguments

KINDS: list[Any] = [jsonschema.Draft202012Validator, jsonschema.Draft201909Validator, jsonschema.Draft7Validator]
KEYWORDS = [
    *sorted({*KINDS[0].VALIDATORS, *KINDS[1].VALIDATORS, *KINDS[2].VALIDATORS}),
    *("$defs", "definitions", "$id", "$schema", "$anchor", "$comment", "title", "description", "default", "examples"),
    *("example", "nullable", "deprecated", "readOnly", "writeOnly", "contentEncoding", "contentMediaType", "x-note"),
]
VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, 1.5, "", "a", "string", "strng", "#", "#/$defs/b", "#/$defs/c", "#b", "b"),
    *([], ["a"], ["a", "a"], [1], ["string"], ["string", "string"], ["string", "strng"], [[1]], [{}, True], [{}, 1]),
    *({}, {"a": {}}, {"a": True}, {"a": 1}, {"a": "b"}, {"type": "string"}, {"type": 1}, {"type": []}, {"a": ["b"]}),
    *({"a": {"type": "strng"}}, [{"type": "strng"}]),
]


@pytest.mark.parametrize("keyword", KEYWORDS)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_what_is_known_as_right_is_right_by_the_meta_schema(keyword: str, kind: Any) -> None:
    for value in VALUES:
        schema = {"properties": {"a": {"items": {keyword: value}}}, "$defs": {"b": {}}}
        if is_usual(schema):
            kind.check_schema(schema, format_checker=jsonschema.FormatChecker(formats=()))
            list(kind(schema).iter_errors({"a": [1, "x", {}, None, []]}))  # references lead somewhere


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object", "properties": {"a": {"type": ["string", "null"], "enum": ["x", None]}}, "required": ["a"]},
        {"properties": {"tree": {"$ref": "#"}}, "additionalProperties": False},
        {"$defs": {"n.1": {"minimum": 1}}, "properties": {"n": {"items": {"$ref": "#/$defs/n.1"}}}},
        {"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"n": {}}, "x-note": [1]},
    ],
)
def test_usual_schemas_are_known(schema: Any) -> None:
    assert is_usual(schema)


def test_arguments_with_an_odd_text_fit_a_schema_with_the_same() -> None:
    check = checker({"properties": {"a": {"enum": ["\ud83d"]}}})
    assert check({"a": "\ufffd"}) == {"a": "\ufffd"}
    with pytest.raises(InvalidArguments):
        check({"a": "x"})


def test_a_schema_that_holds_itself_is_broken() -> None:
    schema: dict[str, Any] = {"properties": {}}
    schema["properties"]["a"] = schema
    with pytest.raises(BrokenSchema, match="nested too deeply, or holds itself"):
        checker(schema)
