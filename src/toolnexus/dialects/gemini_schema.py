"""JSON Schemas as Gemini takes them. Pure.

`parameters` of a tool are a small part of OpenAPI, refused at the first unknown keyword. What servers demand of them:
every schema has a type, or `anyOf` and nothing else; an array has items; an enum is of texts that are not empty; what
is required is there. What cannot be said in their keywords is said in the description.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias, TypeGuard, cast

from toolnexus import _json
from toolnexus._unicode import clean
from toolnexus.dialects.payloads import is_object, objects, text
from toolnexus.dialects.schemas import Schema, merged, object_schema, resolved

_Refs: TypeAlias = frozenset[str]

_TYPES = ("string", "number", "integer", "boolean", "array", "object")
_FORMATS: Mapping[str, frozenset[str]] = {
    "string": frozenset({"date-time"}),
    "number": frozenset({"float", "double"}),
    "integer": frozenset({"int32", "int64"}),
}
_KEYWORDS_OF: Mapping[str, frozenset[str]] = {
    "object": frozenset({"properties", "required", "additionalProperties", "patternProperties", "propertyNames"}),
    "array": frozenset({"items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains"}),
    "string": frozenset({"minLength", "maxLength", "pattern", "format"}),
    "number": frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}),
}
"""What a schema that names no type is about."""

_MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions"})
_LISTS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_SINGLE = frozenset({"items", "additionalProperties"})
"""Keywords that hold schemas: by name, in a list, or one."""

_SIZES: Mapping[str, tuple[str, str]] = {
    "string": ("minLength", "maxLength"),
    "array": ("minItems", "maxItems"),
}
_LARGEST_SIZE = 2**31
_DEEPEST = 16
_MOST_SCHEMAS = 1000
"""Schemas in one declaration. References that refer to each other could make any number of them."""


def parameters(schema: Mapping[str, Any]) -> Schema | None:
    """What to declare for a tool's input schema. None: the tool has no parameters.

    It is never stricter than `schema`, which arguments are checked against, but for values of any kind: of those, only
    the common ones are offered.
    """
    root: Schema = clean(schema)
    declared = _Rewriter(root).rewritten(object_schema(root), frozenset(), 0)
    return declared if declared.get("properties") else None


def answer(schema: Mapping[str, Any]) -> Schema:
    """What to ask an answer to fit. There, nearly all of JSON Schema is known, but not `const`."""
    return _without_const(clean(schema))


def _without_const(schema: object) -> Any:
    if not is_object(schema):
        return schema
    changed: Schema = {}
    for key, value in schema.items():
        if key == "const":
            changed["enum"] = [value]
        elif key in _MAPS and is_object(value):
            changed[key] = {name: _without_const(inner) for name, inner in value.items()}
        elif key in _LISTS and isinstance(value, list):
            changed[key] = [_without_const(inner) for inner in cast("list[object]", value)]
        else:
            changed[key] = _without_const(value) if key in _SINGLE else value
    return changed


class _Rewriter:
    def __init__(self, root: Schema) -> None:
        self._root = root
        self._left = _MOST_SCHEMAS

    def rewritten(self, schema: object, seen: _Refs, depth: int) -> Schema:
        """A schema in the keywords that there are. `seen`: the references that it stands in."""
        if not is_object(schema):
            return _anything("")
        schema, seen = self._flat(schema, seen)
        self._left -= 1
        if depth == _DEEPEST or self._left < 0:
            schema = _outline(schema)
        branches = objects(schema.get("anyOf")) or objects(schema.get("oneOf"))
        if branches and (schema.get("type") == "object" or "properties" in schema):
            schema, branches = merged(schema, self._root, seen), []
        own = {key: value for key, value in schema.items() if key not in ("anyOf", "oneOf")}
        types, nullable = _types(own)
        if branches:
            null = [branch for branch in branches if _is_null(branch)]
            nullable = nullable or bool(null)
            kept = [_joined(own, branch) for branch in branches if branch not in null]
            made = [self.rewritten(branch, seen, depth + 1) for branch in kept]
        elif len(types) > 1:
            made = [self.rewritten({**own, "type": kind}, seen, depth + 1) for kind in types]
        elif types:
            made = [self._of_type(types[0], own, seen, depth)]
        else:
            made = [] if nullable else [_anything(text(own.get("description")))]
        return _any_of(made or [_described({"type": "string"}, own)], nullable=nullable)

    def _flat(self, schema: Schema, seen: _Refs) -> tuple[Schema, _Refs]:
        """A schema with its references and `allOf` put in their place. One that stands in itself is cut short."""
        reference = schema.get("$ref")
        parts = objects(schema.get("allOf"))
        schema = {key: value for key, value in schema.items() if key not in ("$ref", "allOf")}
        if isinstance(reference, str) and (found := resolved(reference, self._root)) is not None:
            parts.insert(0, _outline(found) if reference in seen else found)
            seen |= {reference}
        for part in parts:
            flat, seen = self._flat(part, seen)
            schema = _joined(schema, flat)
        return schema, seen

    def _of_type(self, kind: str, schema: Schema, seen: _Refs, depth: int) -> Schema:
        made: Schema = {"type": kind}
        notes: list[str] = []
        _limit_values(kind, schema, made, notes)
        if form := text(schema.get("format")):
            if form in _FORMATS.get(kind, ()):
                made["format"] = form
            else:
                notes.append(f"Format: {form}.")
        if kind in _SIZES:
            for key in _SIZES[kind]:
                size = schema.get(key)
                if type(size) is int and 0 <= size < _LARGEST_SIZE:
                    made[key] = size
        if kind == "string" and (pattern := text(schema.get("pattern"))):
            notes.append(f"Pattern: {pattern}")
        elif kind in ("number", "integer"):
            _limit_numbers(kind, schema, made, notes)
        elif kind == "array":
            made["items"] = self._items(schema, seen, depth)
            if schema.get("uniqueItems") is True:
                notes.append("No two items are alike.")
        elif kind == "object":
            self._add_properties(schema, made, notes, seen, depth)
        return _described(made, schema, notes)

    def _items(self, schema: Schema, seen: _Refs, depth: int) -> Schema:
        items = schema.get("items")
        places = objects(schema.get("prefixItems")) or objects(items)
        if places:  # of each place its own
            items = {"anyOf": [*places, *([items] if is_object(items) else [])]}
        return {"type": "string"} if items is None else self.rewritten(items, seen, depth + 1)

    def _add_properties(self, schema: Schema, made: Schema, notes: list[str], seen: _Refs, depth: int) -> None:
        properties = schema.get("properties")
        if is_object(properties) and properties:
            made["properties"] = {name: self.rewritten(inner, seen, depth + 1) for name, inner in properties.items()}
            required = _list(schema.get("required"))
            if there := [name for name in properties if name in required]:
                made["required"] = there
        rest = schema.get("additionalProperties")
        if is_object(rest) and rest:
            values = " or ".join(_types(self._flat(rest, seen)[0])[0])
            notes.append(f"It may have any keys{f', each with a value of type {values}' if values else ''}.")


def _limit_values(kind: str, schema: Schema, made: Schema, notes: list[str]) -> None:
    """What `enum` and `const` say. Only texts can be listed, and no empty one."""
    fitting = [
        value
        for value in _values(schema)
        if _type_of(value) == kind or (kind, _type_of(value)) == ("number", "integer")
    ]
    if not fitting:
        return
    if kind == "string" and all(fitting):
        made["enum"] = list(dict.fromkeys(fitting))
    else:
        shown = ", ".join(_json.dumps(value).decode() for value in fitting)
        notes.append(f"One of: {shown}." if len(fitting) > 1 else f"Always {shown}.")


def _limit_numbers(kind: str, schema: Schema, made: Schema, notes: list[str]) -> None:
    for key, exclusive, step, words in (
        ("minimum", "exclusiveMinimum", 1, "More than"),
        ("maximum", "exclusiveMaximum", -1, "Less than"),
    ):
        limit, beyond = schema.get(key), schema.get(exclusive)
        limits: list[int | float] = [limit] if _is_number(limit) else []
        if _is_number(beyond):
            if kind == "integer":
                limits.append((math.floor(beyond) if step > 0 else math.ceil(beyond)) + step)
            else:
                limits.append(beyond)
                notes.append(f"{words} {beyond}.")
        if limits:
            made[key] = max(limits) if step > 0 else min(limits)
    if _is_number(factor := schema.get("multipleOf")):
        notes.append(f"A multiple of {factor}.")


def _any_of(made: list[Schema], *, nullable: bool) -> Schema:
    """One schema for what fits any of these."""
    flat: list[Schema] = []
    for each in made:
        for variant in each.get("anyOf", [each]):
            if nullable:
                variant = {**variant, "nullable": True}
            if variant not in flat:
                flat.append(variant)
    return flat[0] if len(flat) == 1 else {"anyOf": flat}


def _anything(description: str) -> Schema:
    said = {"description": description} if description else {}
    kinds = ("string", "number", "boolean", "object")
    return {
        "anyOf": [{"type": kind, **said} for kind in kinds] + [{"type": "array", "items": {"type": "string"}, **said}]
    }


def _described(made: Schema, schema: Schema, notes: Iterable[str] = ()) -> Schema:
    if said := " ".join(filter(None, (text(schema.get("description")), *notes))):
        made["description"] = said
    return made


def _joined(schema: Schema, other: Schema) -> Schema:
    """What two schemas say together. Where they contradict each other, the first counts."""
    both = {**other, **schema}
    if is_object(ours := schema.get("properties")) and is_object(theirs := other.get("properties")):
        both["properties"] = {**theirs, **ours}
    required = [*_list(schema.get("required")), *_list(other.get("required"))]
    if required:
        both["required"] = required
    return both


def _outline(schema: Schema) -> Schema:
    """A schema without what is inside it."""
    types, nullable = _types(schema)
    kept = {key: schema[key] for key in ("description", "enum", "const") if key in schema}
    return {**kept, "type": [*(types or ["object"]), *(["null"] if nullable else [])]}


def _types(schema: Schema) -> tuple[list[str], bool]:
    """The types that values may have, none if they may have any, and whether null is among them."""
    told = schema.get("type")
    named = [told] if isinstance(told, str) else _list(told)
    values = _values(schema)
    nullable = (
        "null" in named or schema.get("nullable") is True or _is_null(schema) or None in _list(schema.get("enum"))
    )
    types = [kind for kind in _TYPES if kind in named]
    if not types:
        found = {_type_of(value) for value in values}
        types = [kind for kind in _TYPES if kind in found]
    if not types and not named:
        types = [kind for kind, keywords in _KEYWORDS_OF.items() if not keywords.isdisjoint(schema)][:1]
    return types, nullable


def _values(schema: Schema) -> list[object]:
    """The values that a schema lists, without null."""
    listed = [schema["const"]] if "const" in schema else _list(schema.get("enum"))
    return [value for value in listed if value is not None]


def _is_null(schema: Schema) -> bool:
    return (
        schema.get("type") == "null" or schema.get("enum") == [None] or ("const" in schema and schema["const"] is None)
    )


def _type_of(value: object) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def _is_number(value: object) -> TypeGuard[int | float]:
    return (type(value) is int) or (type(value) is float and math.isfinite(value))


def _list(value: object) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []
