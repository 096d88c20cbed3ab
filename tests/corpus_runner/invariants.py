"""What `request_must` may ask of a whole request, by name. Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from corpus_runner.wires import Calls, Results, Wire


@dataclass(frozen=True)
class Body:
    """One request's body: the bytes that came, and what a lenient reader makes of them."""

    raw: bytes

    @cached_property
    def json(self) -> Any:
        """The value; a `ValueError` if it is none."""
        return json.loads(self.raw.decode("utf-8", "replace"))


def _calls_answered(body: Body, wire: Wire) -> list[str]:
    entries = wire.entries(body.json)
    found: list[str] = []
    for place, entry in enumerate(entries):
        if not isinstance(entry, Calls) or not entry.calls:
            continue
        following = entries[place + 1] if place + 1 < len(entries) else None
        calls = [call.id for call in entry.calls]
        results = list(following.ids) if isinstance(following, Results) else []
        if Counter(map(repr, calls)) != Counter(map(repr, results)):
            found.append(f"the calls {calls} are followed by the results {results}")
        elif isinstance(following, Results) and following.late:
            found.append(f"the results {results} do not come first in their message")
    return found


def _results_paired(body: Body, wire: Wire) -> list[str]:
    entries = wire.entries(body.json)
    found: list[str] = []
    for place, entry in enumerate(entries):
        if isinstance(entry, Results):
            before = entries[place - 1] if place else None
            known = {repr(call.id) for call in before.calls} if isinstance(before, Calls) else set[str]()
            found.extend(f"the result {id_!r} has no call before it" for id_ in entry.ids if repr(id_) not in known)
    return found


def _arguments_are_objects(body: Body, wire: Wire) -> list[str]:
    calls = [call for entry in wire.entries(body.json) if isinstance(entry, Calls) for call in entry.calls]
    return [
        f"the arguments of {call.id!r} are {call.arguments!r}"
        for call in calls
        if not _is_object(call.arguments, as_text=wire.arguments_are_text)
    ]


def _is_object(arguments: Any, *, as_text: bool) -> bool:
    if not as_text:
        return isinstance(arguments, dict)
    try:
        return isinstance(arguments, str) and isinstance(_strict(arguments), dict)
    except ValueError:
        return False


def _strict(text: str) -> Any:
    def refuse(constant: str) -> Any:
        raise ValueError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def _names_distinct(body: Body, wire: Wire) -> list[str]:
    names = Counter(name for tool in wire.offered(body.json) if (name := wire.tool_name(tool)) is not None)
    return [f"{count} tools are called {name!r}" for name, count in names.items() if count > 1]


def _is_utf8(body: Body, wire: Wire) -> list[str]:
    try:
        body.raw.decode()
    except UnicodeDecodeError as error:
        return [str(error)]
    return []


def _is_strict_json(body: Body, wire: Wire) -> list[str]:
    try:
        _strict(body.raw.decode("utf-8", "replace"))
    except ValueError as error:
        return [str(error)]
    return []


INVARIANTS: Final[Mapping[str, Callable[[Body, Wire], list[str]]]] = {
    "tool_calls_answered": _calls_answered,
    "tool_results_paired": _results_paired,
    "arguments_are_json_objects": _arguments_are_objects,
    "tool_names_distinct": _names_distinct,
    "no_empty_text": lambda body, wire: wire.blanks(body.json),
    "body_is_utf8": _is_utf8,
    "body_is_strict_json": _is_strict_json,
}
