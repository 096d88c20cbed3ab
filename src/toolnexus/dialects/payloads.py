"""Reads JSON that a server wrote, of which nothing is certain. Pure."""

from __future__ import annotations

import math
import re
from typing import Any, TypeAlias, TypeGuard, cast

from toolnexus import _json
from toolnexus.errors import IncompleteReply, InvalidReply

JSONObject: TypeAlias = dict[str, Any]

_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)


def read_event(payload: str) -> JSONObject:
    """Decode one event's data.

    Raises:
        IncompleteReply: The stream was cut in the middle of it.
        InvalidReply: It is not a JSON object.
    """
    try:
        value = _json.loads(payload)
    except ValueError as error:
        if _is_cut(payload):
            raise IncompleteReply("The stream was cut in the middle of an event.") from error
        raise InvalidReply("The stream holds an event that is not JSON.") from error
    if not is_object(value):
        raise InvalidReply("The stream holds an event that is not a JSON object.")
    return value


def _is_cut(payload: str) -> bool:
    """Whether a text that is no JSON object is the beginning of one."""
    bare = _TEXT.sub("", payload)
    opened = bare.count("{") + bare.count("[") - bare.count("}") - bare.count("]")
    return bare.lstrip().startswith("{") and (opened > 0 or '"' in bare)


def is_object(value: object) -> TypeGuard[JSONObject]:
    """Whether a JSON value is an object."""
    return type(value) is dict


def objects(value: object) -> list[JSONObject]:
    """The objects of a JSON list; whatever else is there is left out."""
    return [item for item in cast("list[object]", value) if is_object(item)] if isinstance(value, list) else []


def text(value: object) -> str:
    """A JSON value that should be a text; empty if it is none."""
    return value if isinstance(value, str) else ""


def count(value: object) -> int:
    """A JSON value that should be a number of tokens; 0 if it is none."""
    return int(value) if isinstance(value, (int, float)) and value > 0 else 0


def amount(value: object) -> float | None:
    """A JSON value that should be a sum of money; None if it is none."""
    known = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < math.inf
    return float(cast("float", value)) if known else None


def as_text(arguments: object) -> str:
    """A call's arguments as text: some servers send the object itself."""
    if isinstance(arguments, str):
        return arguments
    return "" if arguments is None else _json.dumps(arguments).decode()
