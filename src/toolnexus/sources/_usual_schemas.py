"""Recognises JSON Schemas that are certainly right, as nearly all are. A meta-schema takes milliseconds for each."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast

_Is: TypeAlias = Callable[[Any], bool]

_DIALECTS = (
    "https://json-schema.org/draft/2020-12/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "http://json-schema.org/draft-07/schema#",
    "http://json-schema.org/draft-07/schema",
)
_TYPES = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})
_DEFINITION = re.compile(r"#/(\$defs|definitions)/([\w.-]+)", re.ASCII).fullmatch


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_size(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_anything(value: Any) -> bool:
    return True


def _is_scalar(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float)


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and bool(cast("list[Any]", value))


def _are_scalars(value: Any) -> bool:
    return _is_list(value) and all(map(_is_scalar, value))


def _are_names(value: Any) -> bool:
    names = cast("list[Any]", value) if isinstance(value, list) else None
    return names is not None and all(map(_is_text, names)) and len(set(names)) == len(names)


def _is_type(value: Any) -> bool:
    return value in _TYPES if isinstance(value, str) else bool(value) and _are_names(value) and _TYPES.issuperset(value)


_VALUES: Mapping[str, _Is] = {
    "type": _is_type,
    "required": _are_names,
    "enum": _are_scalars,
    "const": _is_scalar,
    "examples": _is_list,
    **dict.fromkeys(("default", "example", "nullable"), _is_anything),
    **dict.fromkeys(("title", "description", "format", "pattern", "$comment", "$schema"), _is_text),
    **dict.fromkeys(("contentEncoding", "contentMediaType"), _is_text),
    **dict.fromkeys(("uniqueItems", "deprecated", "readOnly", "writeOnly"), _is_flag),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _is_number),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), _is_size),
}
"""What the value of a keyword has to be, in each of the dialects."""
_ONE = frozenset({"additionalProperties", "items", "not", "propertyNames"})
_SOME = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_NAMED = frozenset({"$defs", "definitions", "patternProperties", "properties"})
"""Keywords that hold schemas: one, in a list, or by name."""


def is_usual(root: Mapping[str, Any]) -> bool:
    """Whether a schema is valid and has all that it refers to. False: it may be nevertheless; ask a library.

    What is usual is made of dicts and lists, but for examples and defaults, which nothing is checked against.
    """
    if root.get("$schema", _DIALECTS[0]) not in _DIALECTS:
        return False
    waiting: list[Any] = [root]
    while waiting:
        schema = waiting.pop()
        if not isinstance(schema, dict):
            if not isinstance(schema, bool):
                return False
            continue
        for keyword, value in cast("dict[str, Any]", schema).items():
            if (is_right := _VALUES.get(keyword)) is not None:
                if not is_right(value):
                    return False
            elif keyword in _ONE:
                waiting.append(value)
            elif keyword in _SOME and _is_list(value):
                waiting += value
            elif keyword in _NAMED and isinstance(value, dict):
                waiting += cast("dict[str, Any]", value).values()
            elif not (_leads_somewhere(value, root) if keyword == "$ref" else keyword.startswith("x-")):
                return False
    return True


def _leads_somewhere(reference: Any, root: Mapping[str, Any]) -> bool:
    if reference == "#":
        return True
    named = _DEFINITION(reference) if isinstance(reference, str) else None
    if named is None:
        return False
    definitions = root.get(named[1])
    return isinstance(definitions, dict) and named[2] in definitions
