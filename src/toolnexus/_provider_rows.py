"""Reads rows of the provider table that a user wrote. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast, get_args

from toolnexus._endpoint import parsed_url, suggestion
from toolnexus.dialects import DIALECTS
from toolnexus.errors import ConfigurationError
from toolnexus.providers import PROVIDERS, Auth, Provider, SchemaMode

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_FIELD = re.compile(r"\{\w+\}")

_FROM_ENVIRONMENT = frozenset({"keys", "bearer_keys", "base_url_variable", "url_fields", "header_variables"})
"""Fields that name environment variables, whose values are then sent somewhere."""

_HARMLESS = frozenset(
    {
        *("max_tokens_field", "default_max_tokens", "call_id_form", "schema_mode", "parts", "note"),
        *("takes_stream_options", "refuses_reasoning", "wants_reasoning", "tells_cost"),
    }
)
"""Fields that change neither where requests go nor whose they are."""


def table(given: Mapping[str, Provider | Mapping[str, Any]]) -> Mapping[str, Provider]:
    """The provider table with further rows, which stand for the built-in ones of the same names.

    Args:
        given: Name to row, or to the fields of one as `provider_from` takes them; trusted.

    Raises:
        ConfigurationError: As for `provider_from`.
    """
    return {**PROVIDERS, **{name: _row(name, row) for name, row in given.items()}}


def provider_from(name: str, fields: Mapping[str, object], *, trusted: bool) -> Provider:
    """A row from the fields of a `Provider`, as TOML and JSON have them: lists for tuples and sets.

    A row with the name of a built-in one is that with other values in these fields. Any other needs a `base_url`, and
    wants a key if it names one.

    Args:
        name: What stands before the colon in `name:model`.
        trusted: Whether the user wrote it, and not the author of a folder that the user works in. Who is not trusted
            names no environment variables, since their values would be sent where the row says, and changes no
            address, headers or credentials of a built-in row.

    Raises:
        ConfigurationError: The name or a field cannot be used. The message shows no header.
    """
    where = f"the provider {name!r}"
    if _NAME.fullmatch(name) is None:
        raise ConfigurationError(f"No provider can be called {name!r}: use letters, digits and any of _ . -")
    read = {field: _read(where, field, value) for field, value in fields.items()}
    built_in = PROVIDERS.get(name)
    if not trusted:
        _refuse_untrusted(where, read, built_in)
    row = replace(built_in or Provider(name=name, key_required=bool(read.get("keys"))), **read)
    _check(where, row)
    return row


def _row(name: str, given: Provider | Mapping[str, Any]) -> Provider:
    if isinstance(given, Mapping):
        return provider_from(name, given, trusted=True)
    if not isinstance(given, Provider):  # pyright: ignore[reportUnnecessaryIsInstance] - callers without a type checker
        raise ConfigurationError(
            f"The provider {name!r} is of the type {type(given).__name__}; give a Provider, or its fields as a mapping."
        )
    row = replace(given, name=name)
    _check(f"the provider {name!r}", row)
    return row


def _refuse_untrusted(where: str, fields: Collection[str], built_in: Provider | None) -> None:
    named = sorted(_FROM_ENVIRONMENT.intersection(fields))
    if named:
        raise ConfigurationError(
            f"{named[0]} of {where} names environment variables, which a project may not send anywhere. Put the "
            "provider into your own configuration file."
        )
    moved = sorted(set(fields) - _HARMLESS)
    if built_in is not None and moved:
        raise ConfigurationError(
            f"{moved[0]} of {where} cannot be changed by a project, because your key for {built_in.name} would go "
            "with it. Put it into your own configuration file, or choose another name."
        )


def _check(where: str, row: Provider) -> None:
    if not row.base_url:
        raise ConfigurationError(f"base_url of {where} is missing.")
    for url in (row.base_url, *row.style_urls.values()):
        parsed_url(_FIELD.sub("x", url), f"A base URL of {where}")
    if not row.styles:
        raise ConfigurationError(f"styles of {where} is empty; name one of {', '.join(DIALECTS)}.")
    for style in (*row.styles, *row.style_urls, *row.style_auth):
        if style not in DIALECTS:
            raise ConfigurationError(
                f"There is no style {style!r}, which {where} names.{suggestion(style, DIALECTS)} "
                f"Choose among {', '.join(DIALECTS)}."
            )
    if unknown := sorted(set(row.bearer_keys) - set(row.keys)):
        raise ConfigurationError(f"bearer_keys of {where} has {unknown[0]!r}, which is none of its keys.")


def _read(where: str, field: str, value: object) -> Any:
    reader = _READERS.get(field)
    if reader is None:
        raise ConfigurationError(
            f"There is no field {field!r}, which {where} has.{suggestion(field, _READERS)} "
            f"Choose among {', '.join(_READERS)}."
        )
    expected, read = reader
    try:
        return read(value)
    except (TypeError, ValueError):
        shown = repr(value) if isinstance(value, str | bool | int) and field not in _SECRET else type(value).__name__
        raise ConfigurationError(f"{field} of {where} is {shown:.60}; give {expected}.") from None


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _texts(value: object) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise TypeError
    return tuple(_text(each) for each in cast("Sequence[object]", value))


def _text_map(value: object) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise TypeError
    return {_text(key): _text(each) for key, each in cast("Mapping[object, object]", value).items()}


def _headers(value: object) -> dict[str, str]:
    return {name.lower(): each for name, each in _text_map(value).items()}


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError
    return value


def _expression(value: object) -> str:
    text = _text(value)
    try:
        re.compile(text)
    except re.error:
        raise ValueError from None
    return text


def _path(value: object) -> str:
    text = _text(value)
    if text and re.fullmatch(r"/[!-~]*", text) is None:
        raise ValueError
    return text


def _one_of(*choices: str) -> tuple[str, Callable[[object], str]]:
    def read(value: object) -> str:
        if value not in choices:
            raise ValueError
        return _text(value)

    return f"one of {', '.join(choices)}", read


_A_TEXT = ("a text", _text)
_TEXTS = ("a list of texts", _texts)
_MAP = ("names and texts", _text_map)
_HEADERS = ("header names and texts", _headers)
_FLAG = ("true or false", _flag)
_PATH = ("a path that begins with /, or an empty text", _path)
_AUTHS: tuple[str, ...] = get_args(Auth)
_AUTH = _one_of(*_AUTHS)
_SECRET = frozenset({"headers"})

_READERS: Mapping[str, tuple[str, Callable[[object], Any]]] = {
    "base_url": _A_TEXT,
    "style_urls": _MAP,
    "url_fields": _MAP,
    "styles": _TEXTS,
    "keys": _TEXTS,
    "base_url_variable": _A_TEXT,
    "auth": _AUTH,
    "style_auth": (
        f"a style and {_AUTH[0]} each",
        lambda value: {style: _AUTH[1](auth) for style, auth in _text_map(value).items()},
    ),
    "bearer_keys": _TEXTS,
    "key_required": _FLAG,
    "headers": _HEADERS,
    "header_variables": _HEADERS,
    "max_tokens_field": _one_of("max_tokens", "max_completion_tokens"),
    "default_max_tokens": ("a whole number from 1 on", _count),
    "call_id_form": ("a regular expression", _expression),
    "schema_mode": _one_of(*get_args(SchemaMode)),
    "parts": ("a list of texts", lambda value: frozenset(_texts(value))),
    "takes_stream_options": _FLAG,
    "refuses_reasoning": _FLAG,
    "wants_reasoning": _FLAG,
    "tells_cost": _FLAG,
    "models_path": _PATH,
    "probe": _PATH,
    "lists_instead": _A_TEXT,
    "local": _FLAG,
    "start": _A_TEXT,
    "get_model": _A_TEXT,
    "note": _A_TEXT,
}
"""What each field of a row has to be, in words, and how it is read."""
