"""Reads the single values of an entry, and says which of them cannot be used. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from toolnexus.sources.mcp._text import kind_of
from toolnexus.sources.mcp.config import EntryErrorKind, MCPWarning

if TYPE_CHECKING:
    from toolnexus.sources.mcp._expansion import Variables


class Refused(Exception):
    """An entry cannot be used. The text holds no value of its variables, headers or credentials."""

    def __init__(self, kind: EntryErrorKind, message: str) -> None:
        super().__init__(message)
        self.kind: EntryErrorKind = kind


class Values:
    """The values of one entry.

    Attributes:
        name: The server's name.
        given: The entry as written.
        variables: What the variables in it stand for.
        warnings: What was noticed so far.
    """

    def __init__(self, name: str, given: Mapping[str, Any], variables: Variables) -> None:
        self.name = name
        self.given = given
        self.variables = variables
        self.warnings: list[MCPWarning] = []

    def warn(self, key: str, message: str) -> None:
        """Note what is not followed."""
        self.warnings.append(MCPWarning(self.name, key, f"{key} of the server {self.name!r}: {message}"))

    def invalid(self, key: str, expected: str) -> Refused:
        """The error for a value of the wrong kind. It does not show the value."""
        return Refused("invalid_entry", f"{key} of the server {self.name!r} cannot be used; give {expected}.")

    def has(self, key: str) -> bool:
        """Whether there is something that is not empty."""
        value = self.given.get(key)
        return bool(value.strip()) if isinstance(value, str) else value not in (None, [], ())

    def first(self, keys: Sequence[str]) -> str | None:
        """The first of the keys that has something."""
        return next((key for key in keys if self.has(key)), None)

    def text(self, key: str) -> str | None:
        """A text as written. None: there is none."""
        if not self.has(key):
            return None
        value = self.given[key]
        if not isinstance(value, str):
            raise self.invalid(key, "a text")
        return value

    def flag(self, key: str) -> bool | None:
        """A truth value, which may also be written as a text."""
        value = self.given.get(key)
        if isinstance(value, str) and value.strip().lower() in {"true", "false"}:
            return value.strip().lower() == "true"
        if value is not None and not isinstance(value, bool):
            raise self.invalid(key, "true or false")
        return value

    def items(self, key: str) -> Sequence[object]:
        """A list. Empty: there is none."""
        value = self.given.get(key)
        if value is None:
            return ()
        if not isinstance(value, list | tuple):
            raise self.invalid(key, "a list")
        return cast("Sequence[object]", value)

    def names(self, *keys: str) -> tuple[str, ...]:
        """The names in the lists of these keys, each once."""
        found: dict[str, None] = {}
        for key in keys:
            for each in self.items(key):
                if not isinstance(each, str):
                    raise self.invalid(key, "a list of texts")
                found[each] = None
        return tuple(found)

    def mapping(self, key: str) -> Mapping[str, object]:
        """An object. Empty: there is none."""
        value = self.given.get(key)
        if value is None or value == []:  # PHP writes an empty object as a list
            return {}
        if not isinstance(value, Mapping):
            raise self.invalid(key, "names and texts")
        return cast("Mapping[str, object]", value)

    def texts(self, key: str) -> dict[str, str | None]:
        """Names and texts with their variables replaced; numbers and truth values as JSON writes them."""
        return dict(self._each_text(key))

    def _each_text(self, key: str) -> Iterator[tuple[str, str | None]]:
        for name, value in self.mapping(key).items():
            text = _as_text(value)
            if text is None and value is not None:
                raise Refused("invalid_entry", f"{name!r} in {key} of the server {self.name!r} is {kind_of(value)}.")
            yield name, None if text is None else self.variables.expanded(text)

    def arguments(self, key: str) -> list[str]:
        """A list of texts as written; numbers and truth values as JSON writes them."""
        given = self.given.get(key)
        if given is None:
            return []
        if not isinstance(given, list | tuple):
            raise Refused(
                "invalid_args",
                f"{key} of the server {self.name!r} is {kind_of(given)}; it has to be a list, with a text for each "
                "argument.",
            )
        texts: list[str] = []
        for number, each in enumerate(cast("Sequence[object]", given), 1):
            text = _as_text(each)
            if text is None:
                raise Refused(
                    "invalid_args", f"{key} of the server {self.name!r} has {kind_of(each)} at place {number}, no text."
                )
            texts.append(text)
        return texts


def _as_text(value: object) -> str | None:
    """A scalar as JSON writes it, without quotes. None: it is none."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float) and math.isfinite(value):
        return str(value)
    return None
