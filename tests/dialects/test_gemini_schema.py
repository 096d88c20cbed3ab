"""Tools' schemas in the few words that Gemini knows, and answers' in nearly all of JSON Schema."""

from __future__ import annotations

import copy
from types import MappingProxyType
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import json_values
from wire_rules import check_gemini_schema

from toolnexus.dialects.gemini_schema import answer, parameters

TEXT = {"type": "string"}
ANY = {
    "anyOf": [
        TEXT,
        {"type": "number"},
        {"type": "boolean"},
        {"type": "object"},
        {"type": "array", "items": TEXT},
    ]
}


def rewritten(schema: Any, **root: Any) -> Any:
    """What becomes of a property's schema."""
    whole = {"type": "object", "properties": {"p": schema}, **root}
    before = copy.deepcopy(whole)
    declared = parameters(MappingProxyType(whole))
    assert whole == before, "the caller's schema is not touched"
    assert declared is not None
    check_gemini_schema(declared)
    return declared["properties"]["p"]


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (TEXT, TEXT),
        ({"type": "string", "title": "P", "default": "x", "$comment": "c", "examples": ["y"]}, TEXT),
        ({"type": ["string", "null"]}, {**TEXT, "nullable": True}),
        ({"type": "string", "nullable": True}, {**TEXT, "nullable": True}),
        ({"anyOf": [TEXT, {"type": "null"}], "description": "Who."}, {**TEXT, "nullable": True, "description": "Who."}),
        ({"type": "null"}, {**TEXT, "nullable": True}),
        ({"const": None}, {**TEXT, "nullable": True}),
        ({"type": ["string", "integer"]}, {"anyOf": [TEXT, {"type": "integer"}]}),
        (
            {"oneOf": [TEXT, {"type": "integer"}, {"type": "null"}], "description": "Id."},
            {
                "anyOf": [
                    {**TEXT, "nullable": True, "description": "Id."},
                    {"type": "integer", "nullable": True, "description": "Id."},
                ]
            },
        ),
        ({"anyOf": [{"anyOf": [TEXT, {"type": "integer"}]}, TEXT]}, {"anyOf": [TEXT, {"type": "integer"}]}),
        ({"allOf": [{"type": "string"}], "description": "D."}, {**TEXT, "description": "D."}),
        ({}, ANY),
        (True, ANY),
        ({"$ref": "https://example.org/x"}, ANY),
        # values
        ({"const": "cod"}, {**TEXT, "enum": ["cod"]}),
        ({"enum": ["a", "b", "a"]}, {**TEXT, "enum": ["a", "b"]}),
        ({"type": "string", "enum": ["a", None]}, {**TEXT, "enum": ["a"], "nullable": True}),
        ({"type": "string", "enum": ["", "a"]}, {**TEXT, "description": 'One of: "", "a".'}),
        ({"type": "string", "enum": []}, TEXT),
        ({"type": "integer", "enum": [1, 2]}, {"type": "integer", "description": "One of: 1, 2."}),
        ({"const": True, "description": "Yes."}, {"type": "boolean", "description": "Yes. Always true."}),
        ({"enum": ["a", 1]}, {"anyOf": [{**TEXT, "enum": ["a"]}, {"type": "integer", "description": "Always 1."}]}),
        # numbers
        ({"type": "integer", "exclusiveMinimum": 0, "maximum": 9}, {"type": "integer", "minimum": 1, "maximum": 9}),
        ({"type": "integer", "exclusiveMaximum": 2.5}, {"type": "integer", "maximum": 2}),
        (
            {"type": "number", "exclusiveMinimum": 0, "multipleOf": 0.5},
            {"type": "number", "minimum": 0, "description": "More than 0. A multiple of 0.5."},
        ),
        ({"type": "number", "minimum": 1, "exclusiveMinimum": True}, {"type": "number", "minimum": 1}),
        ({"type": "integer", "format": "int64"}, {"type": "integer", "format": "int64"}),
        # texts
        ({"type": "string", "format": "date-time"}, {**TEXT, "format": "date-time"}),
        ({"type": "string", "format": "uri"}, {**TEXT, "description": "Format: uri."}),
        (
            {"type": "string", "minLength": 1, "maxLength": -1, "pattern": "^a$"},
            {**TEXT, "minLength": 1, "description": "Pattern: ^a$"},
        ),
        # lists
        ({"type": "array"}, {"type": "array", "items": TEXT}),
        ({"type": "array", "items": {}}, {"type": "array", "items": ANY}),
        (
            {"type": "array", "items": {"type": "integer"}, "uniqueItems": True, "minItems": 1},
            {
                "type": "array",
                "items": {"type": "integer"},
                "minItems": 1,
                "description": "No two items are alike.",
            },
        ),
        (
            {"type": "array", "prefixItems": [TEXT, {"type": "integer"}], "items": False},
            {"type": "array", "items": {"anyOf": [TEXT, {"type": "integer"}]}},
        ),
        # objects
        ({"type": "object"}, {"type": "object"}),
        ({"properties": {"a": TEXT}}, {"type": "object", "properties": {"a": TEXT}}),
        (
            {"type": "object", "properties": {"a": TEXT}, "required": ["b", "a"], "additionalProperties": False},
            {"type": "object", "properties": {"a": TEXT}, "required": ["a"]},
        ),
        (
            {"type": "object", "additionalProperties": {"type": "integer"}},
            {"type": "object", "description": "It may have any keys, each with a value of type integer."},
        ),
        (
            {
                "type": "object",
                "properties": {"a": TEXT, "b": TEXT},
                "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
            },
            {"type": "object", "properties": {"a": TEXT, "b": TEXT}},
        ),
        (
            {"anyOf": [{"type": "object", "properties": {"k": {"const": kind}}} for kind in ("a", "b")]},
            {"anyOf": [{"type": "object", "properties": {"k": {**TEXT, "enum": [kind]}}} for kind in ("a", "b")]},
        ),
    ],
)
def test_a_schema_is_said_in_the_words_that_there_are(schema: Any, expected: Any) -> None:
    assert rewritten(schema) == expected


def test_references_are_put_in_place_with_what_is_said_beside_them() -> None:
    defs = {"Port": {"type": "string", "enum": ["north", "south"], "title": "Port"}}
    assert rewritten({"$ref": "#/$defs/Port"}, **{"$defs": defs}) == {**TEXT, "enum": ["north", "south"]}
    for beside in ({"$ref": "#/$defs/Port"}, {"allOf": [{"$ref": "#/$defs/Port"}]}):
        schema = {**beside, "description": "From.", "default": "north"}
        expected = {**TEXT, "enum": ["north", "south"], "description": "From."}
        assert rewritten(schema, **{"$defs": defs}) == expected


def test_a_schema_that_holds_itself_is_cut_short() -> None:
    tree = {
        "type": "object",
        "description": "A branch.",
        "properties": {"name": TEXT, "twigs": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}},
    }
    stub = {"type": "object", "description": "A branch."}
    whole = {**tree, "properties": {"name": TEXT, "twigs": {"type": "array", "items": stub}}}
    assert rewritten({"$ref": "#/$defs/Tree"}, **{"$defs": {"Tree": tree}}) == whole
    assert rewritten({"$ref": "#/$defs/A"}, **{"$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}}})


def test_references_that_multiply_do_not_make_a_request_of_any_size() -> None:
    names = [f"D{number}" for number in range(24)]
    defs: dict[str, Any] = {
        name: {"type": "object", "properties": {side: {"$ref": f"#/$defs/{after}"} for side in "lr"}}
        for name, after in zip(names, [*names[1:], "none"], strict=True)
    }
    assert str(rewritten({"$ref": "#/$defs/D0"}, **{"$defs": defs})).count("type") < 5000


def test_properties_that_are_called_like_keywords_stay() -> None:
    names = ["const", "$ref", "$defs", "additionalProperties", "anyOf", "enum", "required", "type", "properties"]
    schema = {"type": "object", "properties": dict.fromkeys(names, TEXT), "required": names}
    assert parameters(schema) == schema


@pytest.mark.parametrize("schema", [{}, {"type": "object"}, {"type": "object", "properties": {}}, {"$ref": "#"}])
def test_without_properties_there_are_no_parameters(schema: Any) -> None:
    assert parameters(schema) is None


def test_branches_at_the_top_are_merged() -> None:
    schema = {"anyOf": [{"properties": {"a": TEXT}, "required": ["a"]}, {"properties": {"b": TEXT}}]}
    assert parameters(schema) == {"type": "object", "properties": {"a": TEXT, "b": TEXT}}


def test_an_answer_may_have_all_of_json_schema_but_const() -> None:
    schema = {
        "type": "object",
        "properties": {"const": {"const": "x"}, "list": {"type": "array", "items": {"anyOf": [{"const": 1}, TEXT]}}},
        "$defs": {"D": {"const": True}},
        "additionalProperties": False,
        "default": {"const": 1},
    }
    before = copy.deepcopy(schema)
    assert answer(MappingProxyType(schema)) == {
        **schema,
        "properties": {"const": {"enum": ["x"]}, "list": {"type": "array", "items": {"anyOf": [{"enum": [1]}, TEXT]}}},
        "$defs": {"D": {"enum": [True]}},
    }
    assert schema == before


# For any schema

simple = st.one_of(
    st.fixed_dictionaries(
        {"type": st.just("string")},
        optional={"minLength": st.integers(0, 3), "enum": st.lists(st.sampled_from(["", "a", "bb"]), min_size=1)},
    ),
    st.fixed_dictionaries(
        {"type": st.sampled_from(["integer", "number"])},
        optional={
            "minimum": st.integers(-3, 3),
            "exclusiveMinimum": st.integers(-3, 3),
            "exclusiveMaximum": st.integers(-3, 3) | st.floats(-3, 3),
            "enum": st.lists(st.integers(-3, 3), min_size=1),
        },
    ),
    st.sampled_from(
        [
            {"type": "boolean"},
            {"type": "null"},
            {"type": ["integer", "null"]},
            {"const": "a"},
            {"enum": ["a", 1, None]},
            {"$ref": "#/$defs/D"},
            {"$ref": "#"},
        ]
    ),
)
names = st.sampled_from(["a", "const", "$ref"])
typed = st.recursive(
    simple,
    lambda inner: st.one_of(
        st.builds(lambda items: {"type": "array", "items": items}, inner),
        st.builds(lambda branches: {"anyOf": branches}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda branches: {"oneOf": branches}, st.lists(inner, min_size=1, max_size=2)),
        st.builds(lambda part: {"allOf": [part], "description": "D."}, inner),
        st.builds(
            lambda properties, required: {"type": "object", "properties": properties, "required": required},
            st.dictionaries(names, inner, max_size=2),
            st.lists(names, max_size=2, unique=True),
        ),
    ),
    max_leaves=8,
)


@given(inner=typed | st.just({}), shared=typed | st.just({}))
def test_what_is_declared_is_in_words_that_every_server_knows(inner: Any, shared: Any) -> None:
    schema = {"type": "object", "properties": {"p": inner}, "$defs": {"D": shared}}
    before = copy.deepcopy(schema)
    declared = parameters(schema)
    assert declared is not None
    check_gemini_schema(declared)
    assert schema == before


@given(
    inner=typed,
    value=st.recursive(
        st.sampled_from([None, True, "", "a", 1, 2.5]) | st.integers(-3, 3),
        lambda deeper: st.lists(deeper, max_size=2) | st.dictionaries(names, deeper, max_size=2),
        max_leaves=5,
    ),
)
def test_what_fits_a_tools_schema_fits_what_is_declared(inner: Any, value: Any) -> None:
    schema = {"type": "object", "properties": {"p": inner}, "$defs": {"D": {"type": "string"}}}
    arguments = {"p": value}
    if not jsonschema.Draft202012Validator(schema).is_valid(arguments):
        return
    assert jsonschema.Draft202012Validator(_nulls_told(parameters(schema))).is_valid(arguments)


def _nulls_told(schema: Any) -> Any:
    """An OpenAPI schema as JSON Schema."""
    if "anyOf" in schema:
        return {"anyOf": [_nulls_told(variant) for variant in schema["anyOf"]]}
    told = dict(schema)
    if "properties" in told:
        told["properties"] = {name: _nulls_told(inner) for name, inner in told["properties"].items()}
    if "items" in told:
        told["items"] = _nulls_told(told["items"])
    return {"anyOf": [told, {"type": "null"}]} if told.pop("nullable", False) else told


@given(inner=json_values)
def test_whatever_stands_in_a_schema_is_survived(inner: Any) -> None:
    for key in ("items", "type", "enum", "anyOf", "required", "$ref", "properties", "format", "minimum"):
        declared = parameters({"type": "object", "properties": {"p": {"type": "array", key: inner}}})
        assert declared is not None
        check_gemini_schema(declared)
