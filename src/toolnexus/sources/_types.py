"""Python types as pydantic reads them: their schema for a model, and what to say when there is none."""

from __future__ import annotations

import re
import sys
import types
import typing
from collections import abc
from collections.abc import Mapping
from typing import Annotated, Any, cast, get_args, get_origin

import pydantic_core
import typing_extensions
from pydantic import PydanticUserError
from pydantic.json_schema import GenerateJsonSchema

_MAX_INPUT = 60

REFUSALS = (PydanticUserError, pydantic_core.SchemaError, NameError, TypeError, ValueError)
"""What pydantic raises for a type that it cannot read, or that has no schema."""


def told(error: Exception) -> str:
    """What one of `REFUSALS` says."""
    return error.message if isinstance(error, PydanticUserError) else str(error)


def problem(error: Mapping[str, Any]) -> str:
    """What a model is told of one entry of `ValidationError.errors()`. Of the value that was wrong, the beginning."""
    if error["type"] == "missing":
        return "is missing"
    given = repr(error["input"])
    return f"{error['msg']}, not {given if len(given) <= _MAX_INPUT else given[:_MAX_INPUT] + '…'}"


class WithoutTitles(GenerateJsonSchema):
    """A schema without the titles that only repeat the names of fields."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def drop_titles(definitions: Mapping[str, dict[str, Any]]) -> None:
    """Take the titles that only repeat a class's name out of `$defs`."""
    for name, inner in definitions.items():
        title = inner.get("title")
        if title and name.endswith(re.sub(r"\W", "_", title)):  # the class's name, from which the key is made as well
            del inner["title"]


_LISTS = frozenset({abc.Iterable, abc.Collection})
"""What pydantic does not read, or reads lazily, so that a wrong item would be found in the middle of a call."""


def portable(hint: Any, above: tuple[Any, ...] = ()) -> Any:
    """`hint` in types that pydantic can read: `Iterable` and `Collection` as lists; on Python 3.11, each
    `typing.TypedDict` in the form that it demands there."""
    if hint in above:
        return hint
    origin: Any = get_origin(hint)
    kind = origin or hint
    parts = get_args(hint)
    if sys.version_info < (3, 12) and type(kind).__module__ == "typing" and typing.is_typeddict(kind):
        variables = kind.__parameters__ if parts else ()
        return _portable_dict(kind, dict(zip(variables, parts, strict=True)), (*above, hint))
    new = tuple(portable(part, above) for part in parts)
    if isinstance(kind, type) and kind in _LISTS:
        return list[new] if new else list
    if all(one is other for one, other in zip(parts, new, strict=True)):
        return hint
    if origin is Annotated:
        return Annotated[(new[0], *hint.__metadata__)]
    return typing.Union[new] if origin is types.UnionType else origin[new]  # noqa: UP007 - made from values


typed_dict: Any = typing_extensions.TypedDict
"""Called to make such types, which type checkers know for literal fields only."""


def _portable_dict(hint: Any, arguments: Mapping[Any, Any], above: tuple[Any, ...]) -> Any:
    fields: dict[str, Any] = {}
    for name, annotation in typing.get_type_hints(hint, include_extras=True).items():
        wrapper = get_origin(annotation)
        if wrapper not in (typing.Required, typing.NotRequired):
            wrapper = typing.Required if name in hint.__required_keys__ else typing.NotRequired
        else:
            (annotation,) = get_args(annotation)
        fields[name] = wrapper[portable(_filled(annotation, arguments), above)]
    made = typed_dict(hint.__name__, fields)
    made.__doc__ = hint.__doc__
    if config := getattr(hint, "__pydantic_config__", None):
        made.__pydantic_config__ = config
    return made


def _filled(annotation: Any, arguments: Mapping[Any, Any]) -> Any:
    """An annotation with the arguments of a generic class in place of its type variables."""
    if isinstance(annotation, typing.TypeVar):
        return arguments.get(annotation, annotation)
    if isinstance(annotation, type):
        return cast("Any", annotation)
    variables = getattr(annotation, "__parameters__", ())
    return annotation[tuple(arguments.get(each, each) for each in variables)] if variables else annotation
