"""The schemas of an OpenAPI document as JSON Schema 2020-12 of what a caller sends."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

from toolnexus.sources.openapi_document import BrokenReference

if TYPE_CHECKING:
    from toolnexus.sources.openapi_document import Document
    from toolnexus.tools import JSONObject

_NAMED = frozenset({"properties", "patternProperties", "dependentSchemas"})
_LISTED = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_SINGLE = frozenset(
    {"items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else"}
    | {"unevaluatedItems", "unevaluatedProperties"}
)
_DROPPED = frozenset(
    {"xml", "externalDocs", "discriminator", "example", "nullable", "readOnly", "writeOnly", "$schema", "$id"}
    | {
        "$anchor",
        "$dynamicAnchor",
        "$dynamicRef",
        "$recursiveAnchor",
        "$recursiveRef",
        "$comment",
        "$defs",
        "definitions",
        "$ref",
    }
)
"""What says nothing to a caller, what is translated, and what is found through references instead."""
_BOUNDS = {"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}
_LONGEST_NAME = 60


class Schemas:
    """Translates the schemas of one document. Each schema that is referred to is translated once, whoever refers to it.

    OpenAPI 3.0 has words of its own (`nullable`, `exclusiveMinimum: true`, `example`), which some documents of 3.1
    use as well; they are translated in both. Properties that only answers have (`readOnly`) are left out.
    """

    def __init__(self, document: Document) -> None:
        self._document = document
        self._siblings = not document.version.startswith("3.0")
        self._names: dict[str, str] = {}  # of what is referred to, by its absolute reference
        self._schemas: dict[str, Any] = {}
        self._uses: dict[str, set[str]] = {}
        self._waiting: list[tuple[str, Any, str]] = []

    def translate(self, schema: Any, base: str, uses: set[str]) -> Any:
        """A schema that stands in the document at `base`. The definitions that it needs are added to `uses`."""
        if not isinstance(schema, dict):
            return schema if isinstance(schema, bool) else {}
        given = cast("JSONObject", schema)
        reference = given.get("$ref")
        if isinstance(reference, str):
            return self._referring(given, reference, base, uses)
        return self._own(given, base, uses)

    def definitions(self, uses: Iterable[str]) -> JSONObject:
        """The definitions of these names, and what they need."""
        found: JSONObject = {}
        wanted = sorted(uses)
        while wanted:
            name = wanted.pop()
            if name in found:
                continue
            self._translate_waiting()
            found[name] = self._schemas[name]
            wanted += self._uses[name] - found.keys()
        return dict(sorted(found.items()))

    def is_read_only(self, schema: Any, base: str) -> bool:
        """Whether only answers have a property of this schema."""
        if isinstance(schema, dict) and "readOnly" not in schema and "$ref" in schema:
            try:
                schema, _ = self._document.follow(schema, base)
            except BrokenReference:
                return False
        return isinstance(schema, dict) and cast("JSONObject", schema).get("readOnly") is True

    def _translate_waiting(self) -> None:
        while self._waiting:
            name, schema, base = self._waiting.pop()
            uses = self._uses[name] = set()
            self._schemas[name] = self.translate(schema, base, uses)

    def _referring(self, given: JSONObject, reference: str, base: str, uses: set[str]) -> Any:
        """A reference to a definition, which recursive schemas need and large ones are better off with."""
        beside = {key: value for key, value in given.items() if self._siblings or key in ("description", "nullable")}
        own = self._own(beside, base, uses)
        name = self._name(reference, base)
        # One that leads nowhere stays as it is, so that whoever checks the schema says so.
        target = {"$ref": reference if name is None else f"#/$defs/{name}"}
        if name is not None:
            uses.add(name)
        if given.get("nullable") is True:
            return {**{key: value for key, value in own.items() if key != "anyOf"}, "anyOf": [target, {"type": "null"}]}
        return {**target, **own}

    def _name(self, reference: str, base: str) -> str | None:
        """The name of the definition that a reference leads to. None: it leads nowhere."""
        absolute = self._document.absolute(reference, base)
        known = self._names.get(absolute)
        if known is not None:
            return known
        try:
            schema, inside = self._document.look_up(reference, base)
        except BrokenReference:
            return None
        last = unquote(reference).rstrip("/").rpartition("/")[2].replace("~1", "/").replace("~0", "~")
        stem = re.sub(r"[^A-Za-z0-9._-]+", "_", last).strip("_")[:_LONGEST_NAME] or "schema"
        name = unused(stem, self._uses)
        self._names[absolute] = name
        self._uses[name] = set()  # it is taken from now on
        self._waiting.append((name, schema, inside))
        return name

    def _own(self, given: Mapping[str, Any], base: str, uses: set[str]) -> JSONObject:
        """What a schema says itself."""
        out: JSONObject = {}
        hidden: set[str] = set()
        for key, value in given.items():
            if key in _DROPPED or key.startswith("x-"):
                continue
            if key in _NAMED and isinstance(value, dict):
                inner = cast("JSONObject", value)
                if key == "properties":
                    hidden = {name for name, each in inner.items() if self.is_read_only(each, base)}
                out[key] = {
                    name: self.translate(each, base, uses) for name, each in inner.items() if name not in hidden
                }
            elif key in _LISTED and isinstance(value, list):
                out[key] = [self.translate(each, base, uses) for each in cast("list[Any]", value)]
            elif key in _SINGLE:
                out[key] = self.translate(value, base, uses)
            else:
                out[key] = value
        _fix_bounds(out)
        _fix_required(out, hidden)
        if "example" in given and "examples" not in out:
            out["examples"] = [given["example"]]
        if isinstance(out.get("examples"), dict):
            del out["examples"]
        return _nullable(out) if given.get("nullable") is True and "$ref" not in given else out


def _fix_bounds(schema: JSONObject) -> None:
    """OpenAPI 3.0: `exclusiveMinimum: true` makes `minimum` the bound that is not reached."""
    for exclusive, bound in _BOUNDS.items():
        if isinstance(schema.get(exclusive), bool) and schema.pop(exclusive) and bound in schema:
            schema[exclusive] = schema.pop(bound)


def _fix_required(schema: JSONObject, hidden: set[str]) -> None:
    required = schema.get("required")
    if required is None:
        return
    # `required: true` at a property is an old mistake; it says nothing about that property's own value.
    schema["required"] = [name for name in dict.fromkeys(texts(required)) if name not in hidden]
    if not schema["required"]:
        del schema["required"]


def _nullable(schema: JSONObject) -> JSONObject:
    """OpenAPI 3.0: `nullable` lets null in as well."""
    kind = schema.get("type")
    if kind is not None:
        kinds = cast("list[Any]", kind) if isinstance(kind, list) else [kind]
        schema["type"] = kinds if "null" in kinds else [*kinds, "null"]
        if isinstance(schema.get("enum"), list) and None not in schema["enum"]:
            schema["enum"] = [*schema["enum"], None]
        return schema
    if not schema.keys() & {"enum", "const", "allOf", "anyOf", "oneOf"}:
        return schema  # it takes null anyway
    outside = {key: schema.pop(key) for key in ("title", "description", "default", "examples") if key in schema}
    return {**outside, "anyOf": [schema, {"type": "null"}]}


def texts(value: Any) -> list[str]:
    """The texts in a list; none if it is no list."""
    return [each for each in cast("list[Any]", value) if isinstance(each, str)] if isinstance(value, list) else []


def unused(name: str, taken: Container[str]) -> str:
    """`name`, or the first of `name_2`, `name_3`, … that is not taken."""
    number, candidate = 1, name
    while candidate in taken:
        number += 1
        candidate = f"{name}_{number}"
    return candidate
