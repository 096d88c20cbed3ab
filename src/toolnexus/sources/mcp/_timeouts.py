"""How long an entry lets a request and the start of its server take, in seconds. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from toolnexus.sources.mcp._values import Values

_MILLISECONDS = 1000.0
# Each key with the number of its units in a second. None: seconds or milliseconds, as the file's program has it.
REQUEST: Mapping[str, float | None] = {
    "tool_timeout_sec": 1.0,
    "timeout_sec": 1.0,
    "tool_timeout_ms": _MILLISECONDS,
    "timeout_ms": _MILLISECONDS,
    "timeout": None,
}
STARTUP: Mapping[str, float | None] = {
    "startup_timeout_sec": 1.0,
    "startup_timeout_ms": _MILLISECONDS,
    "startup_timeout": None,
    "startupTimeout": None,
}
_IN_SECONDS = ("autoApprove", "alwaysAllow", "transportType")
"""Keys of programs whose timeouts are in seconds."""


def timeouts(values: Values, *, seconds: bool, default: object) -> tuple[float | None, float | None]:
    """Seconds for one request, and until the server is ready. None: nothing is said.

    What is no time above 0 is warned of and not used; the server works without it.

    Args:
        seconds: The file's program has its timeouts in seconds.
        default: What holds for servers without a timeout, as written.
    """
    unit = 1.0 if seconds or any(key in values.given for key in _IN_SECONDS) else _MILLISECONDS
    request = _first(values, REQUEST, unit)
    startup = _first(values, STARTUP, unit)
    for given in (values.given.get("timeout"), default):
        if isinstance(given, Mapping):  # as in opencode 2
            parts = cast("Mapping[str, object]", given)
            request = request or _duration(values, "timeout", parts.get("execution", parts.get("request")), unit)
            startup = startup or _duration(values, "timeout", parts.get("startup"), unit)
    return request, startup


def _first(values: Values, keys: Mapping[str, float | None], unit: float) -> float | None:
    for key, units in keys.items():
        given = values.given.get(key)
        if not isinstance(given, Mapping):
            seconds = _duration(values, key, given, unit if units is None else units)
            if seconds is not None:
                return seconds
    return None


def _duration(values: Values, key: str, given: object, units: float) -> float | None:
    if given is None:
        return None
    number = given
    if isinstance(given, str):
        try:
            number = float(given)
        except ValueError:
            number = None
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 < number < math.inf:
        values.warn(key, "it is no time above 0, so it is not used.")
        return None
    try:
        return float(number) / units
    except OverflowError:
        values.warn(key, "it is too long, so it is not used.")
        return None
