"""Checks arguments against a JSON Schema that somebody else wrote."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, cast

import jsonschema
from jsonschema.validators import validator_for
from referencing import Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import EMPTY_REGISTRY, specification_with

from toolnexus import _json
from toolnexus._unicode import clean
from toolnexus.sources._patterns import linear
from toolnexus.sources._usual_schemas import is_usual
from toolnexus.tools import BrokenSchema, InvalidArguments, JSONObject

_MAX_ERRORS = 10
_REPLACED = "\N{REPLACEMENT CHARACTER}".encode()
# Patterns in JSON Schema are those of ECMAScript; Python not knowing one does not make the schema wrong.
_NO_FORMATS = jsonschema.FormatChecker(formats=())


def checker(schema: Mapping[str, Any]) -> Callable[[JSONObject], JSONObject]:
    """A function that returns arguments that fit `schema`, and raises `InvalidArguments` for others.

    References are looked up in the schema itself; nothing is ever fetched.

    Raises:
        BrokenSchema: It is no JSON Schema of an object, or refers to what it does not hold.
    """
    plain, kind = _checked(schema)
    if "object" not in plain.get("type", "object"):
        raise BrokenSchema(f"the arguments of a tool are an object, not {plain['type']!r}")
    validator = linear(kind)(plain, registry=EMPTY_REGISTRY)

    def check(arguments: JSONObject) -> JSONObject:
        try:
            errors: list[jsonschema.ValidationError] = list(islice(validator.iter_errors(arguments), _MAX_ERRORS))
        except RecursionError as error:
            raise InvalidArguments("The arguments are nested too deeply to be checked.") from error
        if errors:
            raise InvalidArguments.listing((list(error.absolute_path), error.message) for error in errors)
        return arguments

    return check


def check_form(schema: Mapping[str, Any]) -> None:
    """Refuse what the meta-schema does, and references that lead nowhere.

    Raises:
        BrokenSchema: The place is named from the top of `schema`.
    """
    _checked(schema)


def _checked(schema: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
    """A schema of the right form as JSON has it, and the class of its validators."""
    plain, usual = _plain(schema)
    kind: Any = validator_for(plain, default=jsonschema.Draft202012Validator)
    if usual:
        return plain, kind
    try:
        kind.check_schema(plain, format_checker=_NO_FORMATS)
    except jsonschema.SchemaError as error:
        place = "/".join(map(str, error.absolute_path))
        raise BrokenSchema(f"{place or 'the schema'}: {error.message[:200]}") from error
    dialect = specification_with(kind.META_SCHEMA["$schema"])
    if (reference := next(_unresolved(Resource(plain, specification=dialect)), None)) is not None:
        raise BrokenSchema(f"$ref {reference!r} is not in the schema, and schemas are never fetched")
    return plain, kind


def _plain(schema: object) -> tuple[dict[str, Any], bool]:
    """The schema as the JSON that it is meant to be, and whether it is certainly right."""
    if not isinstance(schema, Mapping):
        raise BrokenSchema(f"a schema is an object, not of the type {type(schema).__name__}")
    given = cast("Mapping[str, Any]", schema)
    try:
        data = _json.dumps(given, "the schema") if isinstance(schema, dict) else b""
        # Without a copy: a thousand tools of one API may share their definitions, and copies of those add up.
        if data and _REPLACED not in data and is_usual(given):
            return cast("dict[str, Any]", given), True
        plain: dict[str, Any] = clean(given)
        _json.dumps(plain, "the schema")
    except (ValueError, RecursionError) as error:
        raise BrokenSchema(str(error)) from error
    return plain, is_usual(plain)


def _unresolved(root: Resource[Any]) -> Iterator[str]:
    """References, in all places where there can be one, that lead nowhere."""
    waiting = [(EMPTY_REGISTRY.resolver_with_root(root), root)]
    while waiting:
        resolver, resource = waiting.pop()
        match resource.contents:
            case {"$ref": str(reference)}:
                try:
                    resolver.lookup(reference)
                except Unresolvable:
                    yield reference
            case _:
                pass
        waiting += [(resolver.in_subresource(inner), inner) for inner in resource.subresources()]
