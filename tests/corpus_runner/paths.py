"""Path expressions into JSON: `a.b`, `[n]`, `[-1]`, `[*]` and `[key=value]`. Pure."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

MISSING: Final = object()
"""What a path finds where there is nothing; null is something."""

_TOKEN = re.compile(
    r"\.?(?P<key>[^.\[\]]+)|\[(?P<index>-?\d+)\]|(?P<every>\[\*\])|\[(?P<name>[^\[\]=*]+)=(?P<value>[^\]]*)\]"
)
_SYSTEM_ROLES = frozenset({"system", "developer"})


class BadPath(Exception):
    """The expression cannot be read."""


@dataclass(frozen=True, slots=True)
class Key:
    name: str


@dataclass(frozen=True, slots=True)
class Index:
    number: int


@dataclass(frozen=True, slots=True)
class Every:
    pass


@dataclass(frozen=True, slots=True)
class Having:
    """The elements whose `name` (a key, or keys with dots between) is `value`."""

    name: str
    value: str


Token: TypeAlias = Key | Index | Every | Having


@dataclass(frozen=True, slots=True)
class Found:
    """What a path leads to.

    Attributes:
        values: One value, or one for each element if the path has a `[*]`; `MISSING` where an element lacks it.
        every: Whether the path has a `[*]`.
    """

    values: tuple[Any, ...]
    every: bool


def parse(path: str) -> tuple[Token, ...]:
    """Take an expression apart.

    Raises:
        BadPath: It is no path.
    """
    tokens: list[Token] = []
    at = 0
    while at < len(path):
        match = _TOKEN.match(path, at)
        if match is None or (match["key"] is not None and (at == 0) is path.startswith(".", at)):
            raise BadPath(f"{path!r} is no path, from {path[at:]!r} on")
        if match["key"] is not None:
            tokens.append(Key(match["key"]))
        elif match["index"] is not None:
            tokens.append(Index(int(match["index"])))
        elif match["every"]:
            tokens.append(Every())
        else:
            tokens.append(Having(match["name"], match["value"]))
        at = match.end()
    if not tokens:
        raise BadPath("an empty path leads nowhere")
    return tuple(tokens)


def find(path: str, document: Any) -> Found:
    """Follow `path` into `document`. System messages are not counted in `messages[n]`.

    Raises:
        BadPath: It is no path.
    """
    tokens = parse(path)
    values: list[Any] = [document]
    for place, token in enumerate(tokens):
        if isinstance(token, Every):
            values = [element for value in values if isinstance(value, list) for element in value]
        elif isinstance(token, Index) and tokens[:place] == (Key("messages"),):
            values = [_step(_without_system(value), token) for value in values]
        else:
            values = [_step(value, token) for value in values]
    return Found(tuple(values), any(isinstance(token, Every) for token in tokens))


def _step(value: Any, token: Key | Index | Having) -> Any:
    match token:
        case Key(name):
            return value.get(name, MISSING) if isinstance(value, dict) else MISSING
        case Index(number):
            return value[number] if isinstance(value, list) and -len(value) <= number < len(value) else MISSING
        case Having(name, wanted):
            if not isinstance(value, list):
                return MISSING
            return [element for element in value if _has(element, name, wanted)]


def _has(element: Any, name: str, wanted: str) -> bool:
    for key in name.split("."):
        if not isinstance(element, dict) or key not in element:
            return False
        element = element[key]
    return element == wanted if isinstance(element, str) else json.dumps(element) == wanted


def _without_system(messages: Any) -> Any:
    if not isinstance(messages, list):
        return messages
    return [m for m in messages if not (isinstance(m, dict) and m.get("role") in _SYSTEM_ROLES)]
