"""Refuses numbers that cannot be meant, where they are given and not where they would do harm."""

from __future__ import annotations

import sys

from toolnexus.errors import ConfigurationError


def at_least(name: str, value: object, least: float, *, whole: bool = False, optional: bool = False) -> None:
    """Refuse what is no finite number from `least` on.

    Args:
        whole: It has to be an integer.
        optional: None passes: it was not set.

    Raises:
        ConfigurationError: It names the option and the value.
    """
    if value is None and optional:
        return
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else None
    if number is None or (whole and not isinstance(number, int)) or not least <= number <= sys.float_info.max:
        kind = "a whole number" if whole else "a number"
        raise ConfigurationError(f"{name} is {value!r:.60}; it has to be {kind} from {least} on.")
