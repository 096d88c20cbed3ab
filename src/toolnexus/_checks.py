"""Refuses values that cannot be meant, where they are given and not where they would do harm."""

from __future__ import annotations

import sys

from toolnexus.errors import ConfigurationError, InvalidConversationId

MAX_ID = 512
"""Characters of a conversation id, at most."""


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


def check_id(conversation_id: object, *, optional: bool = True) -> None:
    """Refuse what is no conversation id. None passes if it is `optional`: the run is not remembered.

    Raises:
        InvalidConversationId: It is empty, too long, or no text.
    """
    if conversation_id is None and optional:
        return
    if not isinstance(conversation_id, str) or not 1 <= len(conversation_id) <= MAX_ID:
        shown = repr(conversation_id)
        shown = shown if len(shown) <= 60 else f"{shown[:59]}…"
        raise InvalidConversationId(
            f"id is {shown}; a conversation id is a str of 1 to {MAX_ID} characters."
            + (" Leave it out to remember nothing." if optional else "")
        )
