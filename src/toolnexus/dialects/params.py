"""What the caller adds to a request body. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolnexus.dialects import Request

_OURS = frozenset({"messages", "contents", "input", "stream"})
_JOINED = frozenset({"generationConfig", "text"})
"""Objects that hold fields of ours and of the caller; where both name one, the caller's counts."""


def add(body: dict[str, Any], request: Request) -> dict[str, Any]:
    """Merge `request.params` into `body`, last but for what is ours; its tools come after our own.

    Fields that servers refuse without their counterpart go when it is not there: a client's parameters hold for all
    of its requests, with tools and without, streamed and whole.
    """
    for key, value in request.params.items():
        if key == "tools":
            body[key] = [*body.get(key, ()), *value]
        elif key in _JOINED and isinstance(value, Mapping):
            body[key] = {**body.get(key, {}), **value}
        elif key not in _OURS:
            body[key] = value
    if not body.get("tools"):
        for key in ("tools", "tool_choice", "toolConfig", "parallel_tool_calls"):
            body.pop(key, None)
    if not request.stream:
        body.pop("stream_options", None)
    return body
