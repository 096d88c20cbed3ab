"""What a call may choose: one definition for every verb, checked when it is made."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, TypedDict, cast

from toolnexus.errors import ConfigurationError, InvalidConversationId

_MAX_ID = 512


class RunOptions(TypedDict, total=False):
    """What every verb takes. What is left out comes from the client."""

    model: str | None
    """Another model id at the same endpoint."""
    max_steps: int | None
    """Replies of the model that one run may take."""
    max_tokens: int | None
    """Tokens that one reply may have."""
    timeout: float | None
    """Seconds for the whole run, queueing and tools included."""


class TurnOptions(RunOptions, total=False):
    """What the verbs with a conversation take."""

    busy: Literal["wait", "raise"]
    """What to do while another turn runs on the conversation."""
    busy_timeout: float
    """Seconds to wait for other turns; default 600."""
    keep_interrupted: bool
    """Keep the prompt and what was said when the turn is interrupted, marked as such."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of one call, as `TurnOptions` has them."""

    model: str | None = None
    max_steps: int | None = None
    max_tokens: int | None = None
    timeout: float | None = None
    busy: Literal["wait", "raise"] = "wait"
    busy_timeout: float = 600.0
    keep_interrupted: bool = False

    def __post_init__(self) -> None:
        at_least("max_steps", self.max_steps, 1)
        at_least("max_tokens", self.max_tokens, 1)
        at_least("timeout", self.timeout, 0)
        at_least("busy_timeout", self.busy_timeout, 0)
        if self.busy not in ("wait", "raise"):
            raise ConfigurationError(f"busy is {self.busy!r}; it can be 'wait' or 'raise'.")

    @property
    def patience(self) -> float:
        """Seconds to wait for other turns on the conversation."""
        return self.busy_timeout if self.busy == "wait" else 0.0


def chosen(options: RunOptions | TurnOptions) -> Options:
    """The options of a call, checked.

    Raises:
        TypeError: There is no such option.
        ConfigurationError: A value cannot be meant.
    """
    return Options(**cast("dict[str, Any]", options)) if options else _DEFAULTS


def at_least(name: str, value: object, least: float) -> None:
    """Refuse what is no finite number from `least` on. None passes: it was not set.

    Raises:
        ConfigurationError: It names the option and the value.
    """
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value < math.inf:
        raise ConfigurationError(f"{name} is {value!r}; it has to be a number from {least} on.")


def check_id(conversation_id: object) -> None:
    """Refuse what is no conversation id. None passes: the run is not remembered.

    Raises:
        InvalidConversationId: It is empty, too long, or no text.
    """
    if conversation_id is None:
        return
    if not isinstance(conversation_id, str) or not 1 <= len(conversation_id) <= _MAX_ID:
        shown = repr(conversation_id)
        raise InvalidConversationId(
            f"id is {shown[:60]}; a conversation id is a str of 1 to {_MAX_ID} characters. "
            "Leave it out to remember nothing."
        )


_DEFAULTS = Options()
