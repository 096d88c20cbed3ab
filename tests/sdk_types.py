"""Whether a JSON value is what a type of an official SDK describes, with no key that it does not know."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, NotRequired, Required, TypeVar, Union, get_args, get_origin

import typing_extensions
from pydantic import BaseModel

_REQUIRED = (Required, typing_extensions.Required)
_WRAPPERS = (Required, NotRequired, typing_extensions.Required, typing_extensions.NotRequired)


def misfit(value: Any, expected: Any, place: str = "body") -> str | None:
    """Why `value` is not an `expected`. None: it is."""
    origin, args = get_origin(expected), get_args(expected)
    if expected is Any or expected is object or isinstance(expected, TypeVar):
        return None
    if origin is Annotated or origin in _WRAPPERS:
        return misfit(value, args[0], place)
    if origin is typing_extensions.TypeAliasType or isinstance(expected, typing_extensions.TypeAliasType):
        return misfit(value, expected.__value__, place)
    if origin in (Union, types.UnionType):
        return _in_union(value, args, place)
    if origin is Literal:
        return None if value in args else f"{place} is {value!r}, none of {args}"
    if typing_extensions.is_typeddict(expected):
        return _in_fields(value, expected, place)
    if origin in (list, Sequence, Iterable, typing.Iterable) or getattr(expected, "__name__", "") == "SequenceNotStr":
        return _in_items(value, args[0], place)
    if origin in (dict, Mapping):
        if not isinstance(value, dict):
            return f"{place} is no object"
        return _first(misfit(item, args[1], f"{place}.{key}") for key, item in value.items())
    if origin is not None:
        return _in_items(value, args[0], place)
    if expected in (None, type(None)):
        return None if value is None else f"{place} is not null"
    if expected is float:
        return None if isinstance(value, int | float) and not isinstance(value, bool) else f"{place} is no number"
    if expected is int:
        return None if isinstance(value, int) and not isinstance(value, bool) else f"{place} is no integer"
    if isinstance(expected, type) and issubclass(expected, BaseModel):
        return f"{place} should be a {expected.__name__}"
    return None if isinstance(value, expected) else f"{place} is no {expected.__name__}"


def _in_union(value: Any, options: Sequence[Any], place: str) -> str | None:
    reasons = [misfit(value, option, place) for option in options]
    if None in reasons:
        return None
    # The reason of the option that names the same kind tells most: it got furthest.
    return max((reason for reason in reasons if reason), key=lambda reason: reason.partition(" ")[0].count("."))


def _in_fields(value: Any, expected: Any, place: str) -> str | None:
    if not isinstance(value, dict):
        return f"{place} is no object"
    hints = typing_extensions.get_type_hints(expected, include_extras=True)
    # What the class says of its keys does not know the marks in annotations that are texts.
    origins = {key: get_origin(hint) for key, hint in hints.items()}
    required = {key for key in expected.__required_keys__ if origins[key] not in _WRAPPERS}
    required |= {key for key, origin in origins.items() if origin in _REQUIRED}
    if missing := sorted(required - value.keys()):
        return f"{place} lacks {missing} of {expected.__name__}"
    if unknown := sorted(value.keys() - hints.keys()):
        return f"{place} has {unknown}, which {expected.__name__} does not know"
    return _first(misfit(item, hints[key], f"{place}.{key}") for key, item in value.items())


def _in_items(value: Any, kind: Any, place: str) -> str | None:
    if not isinstance(value, list):
        return f"{place} is no list"
    return _first(misfit(item, kind, f"{place}[{position}]") for position, item in enumerate(value))


def _first(reasons: Iterable[str | None]) -> str | None:
    return next((reason for reason in reasons if reason is not None), None)
