"""Puts a call together whose arguments Gemini streams value by value. Pure.

Each piece names the place of its value as a JSON Path (`$.order.items[0]['unit price']`). Pieces of one text are
appended to each other.
"""

from __future__ import annotations

import re
from typing import Any, cast

from toolnexus.dialects.payloads import JSONObject, is_object, objects, text
from toolnexus.errors import InvalidReply

_STEP = re.compile(
    r"""\.?(?P<key>[^.\[\]]+)|\[(?P<index>\d{1,6})\]|\[(?P<quote>['"])(?P<name>(?:\\.|[^\\])*?)(?P=quote)\]"""
)
_ESCAPE = re.compile(r"\\(.)")


class PartialCall:
    """A call that is still coming."""

    def __init__(self, part: JSONObject) -> None:
        """
        Args:
            part: The part that begins it.
        """
        self._part = part
        self._call: JSONObject = {}
        self._arguments: JSONObject = {}
        self.add(part["functionCall"])

    def add(self, call: JSONObject) -> None:
        """Take the next piece.

        Raises:
            InvalidReply: It names no place, or one inside a value that has no places.
        """
        for key in ("id", "name"):
            if call.get(key):
                self._call[key] = call[key]
        given = call.get("args")
        if is_object(given):
            self._arguments.update(given)
        for piece in objects(call.get("partialArgs")):
            _put(self._arguments, _path(text(piece.get("jsonPath"))), _value(piece))

    def whole(self) -> JSONObject:
        """The part as it would have come at once."""
        return {**self._part, "functionCall": {**self._call, "args": self._arguments}}


def goes_on(call: JSONObject) -> bool:
    """Whether a call is only the beginning of one, or a further piece but not the last."""
    return call.get("willContinue") is True


def _value(piece: JSONObject) -> Any:
    for key in ("stringValue", "numberValue", "boolValue"):
        if key in piece:
            return piece[key]
    return None


def _path(path: str) -> list[str | int]:
    steps: list[str | int] = []
    at = 1
    while at < len(path):
        match = _STEP.match(path, at)
        if match is None:
            raise _invalid(path)
        if match["index"] is not None:
            steps.append(int(match["index"]))
        else:
            steps.append(match["key"] or _ESCAPE.sub(r"\1", match["name"] or ""))
        at = match.end()
    if not path.startswith("$") or not steps:
        raise _invalid(path)
    return steps


def _put(place: Any, steps: list[str | int], value: Any) -> None:
    *way, last = steps
    for step, following in zip(way, steps[1:], strict=True):
        place = _at(place, step, [] if isinstance(following, int) else {})
    before = _at(place, last, None)
    place[last] = before + value if isinstance(before, str) and isinstance(value, str) else value


def _at(place: object, step: str | int, default: Any) -> Any:
    """What is in a place. Where there is nothing, `default` is put."""
    if isinstance(step, str):
        if not is_object(place):
            raise _invalid(step)
        return place.setdefault(step, default)
    items = cast("list[Any]", place) if isinstance(place, list) else None
    if items is None or step > len(items):
        raise _invalid(str(step))
    if step == len(items):
        items.append(default)
    return items[step]


def _invalid(place: str) -> InvalidReply:
    return InvalidReply(f"The stream holds a piece of a call's arguments for a place that there is not: {place!r}.")
