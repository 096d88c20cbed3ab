"""Patterns of schemas that somebody else wrote, in linear time: none can hold up the process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, cast

from jsonschema import ValidationError
from jsonschema.validators import extend  # pyright: ignore[reportUnknownVariableType] - it has no types
from pydantic_core import SchemaError, SchemaValidator, core_schema
from pydantic_core import ValidationError as Misfit

_KEPT = 512
"""Patterns that are kept compiled."""


def linear(kind: Any) -> Any:
    """A jsonschema validator class whose patterns are matched by an engine that never goes back.

    What that engine cannot say, such as look-ahead, is not checked: it is then the tool's to check.
    """
    if kind not in _CLASSES:
        given: Mapping[str, Any] = kind.VALIDATORS
        changed = {
            "pattern": _pattern,
            "patternProperties": _pattern_properties,
            "additionalProperties": _additional_properties,
            "unevaluatedProperties": _unevaluated(given.get("unevaluatedProperties")),
        }
        _CLASSES[kind] = extend(kind, {name: rule for name, rule in changed.items() if name in given})
    return _CLASSES[kind]


_CLASSES: dict[Any, Any] = {}


@lru_cache(_KEPT)
def matcher(pattern: str) -> Callable[[str], bool] | None:
    """Whether a text has a part that matches. None: it cannot be told in linear time."""
    try:
        validator = SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
    except SchemaError:
        return None

    def matches(text: str) -> bool:
        try:
            validator.validate_python(text)
        except Misfit:
            return False
        return True

    return matches


def _named(patterns: Mapping[str, Any], name: str) -> Iterator[Any]:
    """The schemas of the patterns that a property's name matches."""
    for pattern, schema in patterns.items():
        matches = matcher(pattern)
        if matches is not None and matches(name):
            yield schema


def _pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, str) and (matches := matcher(pattern)) is not None and not matches(instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(
    validator: Any, patterns: Mapping[str, Any], instance: Any, schema: Any
) -> Iterator[ValidationError]:
    for name, value in _properties(instance).items():
        for inner in _named(patterns, name):
            yield from validator.descend(value, inner, path=name, schema_path="patternProperties")


def _additional_properties(
    validator: Any, additional: Any, instance: Any, schema: Mapping[str, Any]
) -> Iterator[ValidationError]:
    declared: Mapping[str, Any] = schema.get("properties", {})
    patterns: Mapping[str, Any] = schema.get("patternProperties", {})
    if any(matcher(pattern) is None for pattern in patterns):
        return  # what is left over is not known
    extra = [
        name for name in _properties(instance) if name not in declared and next(_named(patterns, name), None) is None
    ]
    if additional is False and extra:
        yield ValidationError(f"Additional properties are not allowed: {', '.join(map(repr, extra))}")
    elif isinstance(additional, Mapping):
        for name in extra:
            yield from validator.descend(instance[name], additional, path=name)


def _unevaluated(rule: Any) -> Any:
    def check(validator: Any, unevaluated: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        if not _may_have_patterns(schema):
            yield from rule(validator, unevaluated, instance, schema) or ()

    return check


def _may_have_patterns(schema: object) -> bool:
    """Whether the library would look for what was evaluated with patterns of its own engine, here or elsewhere."""
    if isinstance(schema, list):
        return any(map(_may_have_patterns, cast("list[object]", schema)))
    if not isinstance(schema, dict):
        return False
    fields = cast("dict[str, object]", schema)
    return "patternProperties" in fields or "$ref" in fields or any(map(_may_have_patterns, fields.values()))


def _properties(instance: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", instance) if isinstance(instance, dict) else {}
