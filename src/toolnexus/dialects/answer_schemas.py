"""An answer's schema for wires that want every object closed and know few words of JSON Schema. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias, cast

from toolnexus.dialects.payloads import is_object, objects

_Schema: TypeAlias = dict[str, Any]

_DEFINITIONS = ("$defs", "definitions")
_KEPT = frozenset({"type", "enum", "const", "default", "description", "title", "required"})
_FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"})
_TOLD = (
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    *("minLength", "maxLength", "pattern", "format"),
    *("minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties"),
)
"""What such a wire refuses, and the model is told in words instead."""


def closed(schema: Mapping[str, Any]) -> _Schema | None:
    """`schema` in those few words. It may be wider: answers are checked against the original.

    None: it cannot be said. It refers to itself, or has objects of any keys, or values of any kind.
    """
    try:
        whole = _closed(dict(schema))
        for key in _DEFINITIONS:
            if key in schema:
                whole[key] = {name: _closed(inner) for name, inner in schema[key].items()}
        _refuse_circles(whole)
    except _Unsayable:
        return None
    return whole


class _Unsayable(Exception):
    """A part of a schema that such a wire has no words for."""


def _closed(schema: object) -> _Schema:
    if not is_object(schema):
        raise _Unsayable
    if "$ref" in schema:
        if not str(schema["$ref"]).startswith(tuple(f"#/{key}/" for key in _DEFINITIONS)):
            raise _Unsayable
        return {"$ref": schema["$ref"]}
    kind = schema.get("type")
    if isinstance(kind, list):
        return {"anyOf": [_closed({**schema, "type": each}) for each in cast("list[Any]", kind)]}
    new: _Schema = {key: value for key, value in schema.items() if key in _KEPT}
    told = dict(_told(schema))
    if schema.get("format") in _FORMATS:
        new["format"] = told.pop("format")
    if told.get("minItems") in (0, 1):
        new["minItems"] = told.pop("minItems")
    if told:
        said = ", ".join(f"{key}: {value}" for key, value in told.items())
        new["description"] = f"{new['description']} ({said})" if "description" in new else said
    branches = [_closed(branch) for key in ("anyOf", "oneOf") for branch in objects(schema.get(key))]
    if branches:
        new["anyOf"] = branches
    if "allOf" in schema:
        new["allOf"] = [_closed(branch) for branch in objects(schema["allOf"])]
        if any("$ref" in branch for branch in new["allOf"]):
            raise _Unsayable
    if kind == "object":
        _close(new, schema)
    elif kind == "array":
        if "prefixItems" in schema:
            raise _Unsayable
        new["items"] = _closed(schema.get("items"))
    elif new.keys().isdisjoint({"type", "enum", "const", "anyOf", "allOf"}):
        raise _Unsayable
    if any(isinstance(value, (dict, list)) for value in [*schema.get("enum", ()), schema.get("const")]):
        raise _Unsayable
    return new


def _close(new: _Schema, schema: _Schema) -> None:
    properties: _Schema = schema.get("properties") or {}
    others = schema.get("additionalProperties", not properties)  # an object of which nothing is said may hold anything
    if others is not False or "patternProperties" in schema:
        raise _Unsayable
    new["properties"] = {name: _closed(inner) for name, inner in properties.items()}
    new["additionalProperties"] = False


def _told(schema: _Schema) -> list[tuple[str, Any]]:
    return [(key, schema[key]) for key in _TOLD if key in schema]


def _refuse_circles(whole: _Schema) -> None:
    """Refuse a schema that refers to itself, or to what it does not hold."""
    definitions = {f"#/{key}/{name}": inner for key in _DEFINITIONS for name, inner in whole.get(key, {}).items()}
    uses = {name: _references(inner) for name, inner in definitions.items()}
    done: set[str] = set()
    for start in _references({key: value for key, value in whole.items() if key not in _DEFINITIONS}):
        _visit(start, uses, (), done)


def _visit(name: str, uses: Mapping[str, set[str]], above: tuple[str, ...], done: set[str]) -> None:
    if name in above or name not in uses:
        raise _Unsayable
    if name in done:
        return
    for other in uses[name]:
        _visit(other, uses, (*above, name), done)
    done.add(name)


def _references(value: object) -> set[str]:
    found: set[str] = set()
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if is_object(item):
            if isinstance(reference := item.get("$ref"), str):
                found.add(reference)
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(cast("list[object]", item))
    return found
