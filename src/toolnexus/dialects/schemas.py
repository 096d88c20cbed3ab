"""A tool's schema for wires that want an object at its top and nothing else. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from toolnexus._unicode import clean
from toolnexus.dialects.payloads import is_object, objects

Schema: TypeAlias = dict[str, Any]

_BRANCHES = ("allOf", "anyOf", "oneOf")


def object_schema(schema: Mapping[str, Any]) -> Schema:
    """A copy of `schema` with `type: object` and without references or branches at its top.

    Branches are merged: all their properties are offered, and those are required that every branch demands. That is
    wider than the schema says; arguments are checked against the original.
    """
    copy: Schema = clean(schema)
    if "$ref" in copy or any(key in copy for key in _BRANCHES):
        copy = merged(copy, copy)
    copy["type"] = "object"
    return copy


def merged(schema: Schema, root: Schema, seen: frozenset[str] = frozenset()) -> Schema:
    """`schema` with what it refers to and branches into put in its place.

    Args:
        root: What its references refer into.
        seen: References that are not followed again.
    """
    reference = schema.get("$ref")
    if isinstance(reference, str):
        rest = {key: value for key, value in schema.items() if key != "$ref"}
        found = None if reference in seen else resolved(reference, root)
        whole = rest if found is None else {**merged(found, root, seen | {reference}), **rest}
        return merged(whole, root, seen | {reference})
    flat = {key: value for key, value in schema.items() if key not in _BRANCHES}
    properties: Schema = dict(flat.get("properties") or {})
    required: list[str] = list(flat.get("required") or ())
    for kind in _BRANCHES:
        branches = [merged(branch, root, seen) for branch in objects(schema.get(kind))]
        for name, variants in _variants(branches):
            if name not in properties:
                properties[name] = variants[0] if len(variants) == 1 else {"anyOf": variants}
        demands = [set[str](branch.get("required") or ()) for branch in branches]
        if demands:
            shared = set[str]().union(*demands) if kind == "allOf" else set[str].intersection(*demands)
            required += sorted(shared.difference(required))
    if properties:
        flat["properties"] = properties
    if required:
        flat["required"] = required
    return flat


def _variants(branches: list[Schema]) -> Iterator[tuple[str, list[Any]]]:
    """Each property of the branches, with its different schemas."""
    found: dict[str, list[Any]] = {}
    for branch in branches:
        properties: Schema = branch.get("properties") or {}
        for name, schema in properties.items():
            known = found.setdefault(name, [])
            if schema not in known:
                known.append(schema)
    yield from found.items()


def resolved(reference: str, root: Schema) -> Schema | None:
    """What a reference inside the schema points to. None: nothing that is there."""
    if not reference.startswith("#"):
        return None
    found: object = root
    for step in reference[1:].split("/")[1:]:
        found = found.get(step.replace("~1", "/").replace("~0", "~")) if is_object(found) else None
    return found if is_object(found) else None
