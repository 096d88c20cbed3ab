"""From the type that an answer is to have to its schema, and from an answer's text to a value of the type."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

from pydantic import TypeAdapter, ValidationError

from toolnexus import _answer_json, _json, _workers
from toolnexus._answer_json import Misfit
from toolnexus._unicode import clean
from toolnexus.dialects import ResponseSchema
from toolnexus.errors import ConfigurationError
from toolnexus.sources import _schemas, _types
from toolnexus.tools import BrokenSchema, InvalidArguments

_VALUE = "value"
"""The key under which an answer stands that is no object: every way to ask for a schema wants one at its top."""

_BRANCHES = ("anyOf", "oneOf", "allOf", "if", "not", "enum", "const")
_DEFINITIONS = ("$defs", "definitions")
_KEPT = 64
"""Types whose schema and validator are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerType:
    """What the answer of a run has to be.

    Attributes:
        schema: What the model is told, with an object at its top.
    """

    schema: ResponseSchema
    _wrapped: bool
    _validate: Callable[[Any], Any]

    async def read(self, text: str) -> Any:
        """The value of the type that an answer is.

        In a worker thread, because answers may be large, and validators are the caller's own code.

        Raises:
            Misfit: It is none.
        """
        try:
            return await _workers.run(self._read, text)
        except Misfit:
            raise
        except Exception as error:
            said = f"A validator of the output type raised {type(error).__name__}."
            raise Misfit(said, shown=said, repairable=False) from error

    def _read(self, text: str) -> Any:
        try:
            value: Any = _answer_json.read(text)
            if self._wrapped and isinstance(value, dict) and cast("dict[str, Any]", value).keys() == {_VALUE}:
                value = cast("dict[str, Any]", value)[_VALUE]  # models forget the key, and then it is the value
            return self._validate(value)
        except Misfit:
            bare = _answer_json.bare(text) if self._wrapped else None
            if bare is None:
                raise
            with suppress(Misfit):
                return self._validate(bare)  # they forget the quotes as well: yes, red
            raise  # of what is no JSON, it is said that it is none


async def answer_type(given: Any) -> AnswerType:
    """Read what the caller gave as `output_type`: a type that pydantic knows, or a JSON Schema as a mapping.

    Raises:
        ConfigurationError: It is neither, or there is no schema for it.
    """
    return await _workers.run(_read, given)


def _read(given: Any) -> AnswerType:
    if isinstance(given, Mapping):
        return _of_schema(_encoded(cast("Mapping[str, Any]", given)))
    if inspect.isroutine(given):  # pydantic would take it for the types of its parameters
        raise ConfigurationError(f"output_type is the function {given.__qualname__}; give a type.")
    try:
        hash(given)
    except TypeError:  # as that of an annotation with a note that has none
        return _of_type.__wrapped__(given)
    return _of_type(given)


def _encoded(schema: Mapping[str, Any]) -> bytes:
    try:
        return _json.dumps(clean(schema), "output_type")
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"output_type is no JSON Schema: {error}") from error


@functools.lru_cache(_KEPT)
def _of_schema(encoded: bytes) -> AnswerType:
    own: dict[str, Any] = _json.loads(encoded)
    try:
        _schemas.check_form(own)  # by itself, so that what is wrong is said to be where the caller wrote it
        schema, wrapped = _with_object(own)
        check = _schemas.checker(schema)
    except BrokenSchema as error:
        raise ConfigurationError(f"output_type is no JSON Schema that can be used: {error}") from error

    def validate(value: Any) -> Any:
        try:
            checked = check({_VALUE: value} if wrapped else value)
        except InvalidArguments as error:
            places = "".join(f"\n- {place or 'the answer as a whole'}" for place in error.places)
            raise Misfit(_lines(error), shown=f"It does not fit the schema at:{places}") from None
        return checked[_VALUE] if wrapped else checked

    title = own.get("title")
    return _made(schema, title if isinstance(title, str) else "", wrapped, validate)


@functools.lru_cache(_KEPT)
def _of_type(given: Any) -> AnswerType:
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(_types.portable(given))
        own = adapter.json_schema(schema_generator=_ForAnswers)
        _json.dumps(own, "its schema")
    except _types.REFUSALS as error:
        raise ConfigurationError(
            f"output_type is {given!r:.100}, which cannot be described to a model ({_types.told(error)}). Give a "
            "pydantic model, a dataclass, a TypedDict, a plain type such as list[str], or a JSON Schema as a dict."
        ) from error
    own.pop("title", None)
    _types.drop_titles(own.get("$defs", {}))
    schema, wrapped = _with_object(own)
    above = (_VALUE,) if wrapped else ()

    def validate(value: Any) -> Any:
        try:
            # As JSON, so that a date or a strict model reads what a model can write.
            return adapter.validate_json(_json.dumps(value))
        except ValidationError as error:
            raise _misfit(error, above) from None

    return _made(schema, getattr(given, "__name__", "") if isinstance(given, type) else "", wrapped, validate)


class _ForAnswers(_types.WithoutTitles):
    # A default that JSON cannot carry is left out of what the model sees; it is no fault of the caller.
    ignored_warning_kinds = frozenset({"skipped-choice", "non-serializable-default"})  # pyright: ignore[reportAssignmentType] - is only looked into


def _made(schema: dict[str, Any], name: str, wrapped: bool, validate: Callable[[Any], Any]) -> AnswerType:
    name = re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:64]
    return AnswerType(schema=ResponseSchema(name=name or "answer", schema=schema), _wrapped=wrapped, _validate=validate)


def _misfit(error: ValidationError, above: Sequence[str]) -> Misfit:
    problems = cast("list[Mapping[str, Any]]", error.errors(include_url=False, include_context=False))

    def lines(said: Callable[[Mapping[str, Any]], str]) -> str:
        return _lines(InvalidArguments.listing(((*above, *each["loc"]), said(each)) for each in problems))

    return Misfit(lines(_types.problem), shown=lines(lambda each: str(each["msg"])))


def _lines(error: InvalidArguments) -> str:
    """What is wrong, without the sentence that calls the answer arguments."""
    return str(error).partition("\n")[2] or str(error)


def _with_object(schema: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """A schema with nothing but an object at its top, and whether what it was stands under a key of it."""
    if schema.keys() <= {"$ref", "$defs"} and (found := _definition(schema)) is not None:
        schema = {**found, "$defs": schema["$defs"]}  # a class that refers to itself
    if schema.get("type") == "object" and "$ref" not in schema and not any(key in schema for key in _BRANCHES):
        return schema, False
    inner = dict(schema)
    top: dict[str, Any] = {key: inner.pop(key) for key in ("$schema",) if key in inner}
    if "$id" not in inner:  # else its references are its own matter, wherever it stands
        lifted = {key: inner.pop(key) for key in _DEFINITIONS if key in inner}
        inner, lifted = _moved(inner), _moved(lifted)
    else:
        lifted = {}
    top |= {
        "type": "object",
        "properties": {_VALUE: inner},
        "required": [_VALUE],
        "additionalProperties": False,
        **lifted,
    }
    return top, True


def _definition(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    name = str(schema.get("$ref")).removeprefix("#/$defs/")
    return schema.get("$defs", {}).get(name.replace("~1", "/").replace("~0", "~"))


def _moved(value: Any) -> Any:
    """A schema whose references follow it to its place under the key."""
    if isinstance(value, list):
        return [_moved(each) for each in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    fields = cast("dict[str, Any]", value)
    return {key: _target(each) if key == "$ref" else _moved(each) for key, each in fields.items()}


def _target(reference: Any) -> Any:
    if not isinstance(reference, str):  # a property may have this name
        return _moved(reference)
    if not reference.startswith("#") or reference[1:2] not in ("", "/"):  # to elsewhere, or an anchor
        return reference
    if reference.startswith(tuple(f"#/{key}/" for key in _DEFINITIONS)):
        return reference
    return f"#/properties/{_VALUE}{reference[1:]}"
