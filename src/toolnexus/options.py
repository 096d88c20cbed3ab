"""What a call may choose: one definition for every verb, checked when it is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, cast

from toolnexus._checks import MAX_ID, at_least
from toolnexus.errors import ConfigurationError

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    T = TypeVar("T", default=Any)
else:
    from typing import TypeVar

    T = TypeVar("T")

OutputType: TypeAlias = "type[T] | object | None"
"""What a verb takes as `output_type`: a type, or what type checkers do not see as one (`int | None`, `Literal["a"]`, a
JSON Schema as a mapping). Of a type they tell the result's `output`; of the others it is Any."""


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


class ResumeOptions(RunOptions, total=False):
    """What the verbs with a turn of a conversation take."""

    busy: Literal["wait", "raise"]
    """What to do while another turn runs on the conversation."""
    busy_timeout: float
    """Seconds to wait for other turns; default 600."""
    keep_interrupted: bool
    """Keep the prompt and what was said when the turn is interrupted, marked as such."""
    durability: Literal["step", "turn"]
    """On log stores: record replies and results as they happen (default), or all at the end of the turn."""


class TurnOptions(ResumeOptions, total=False):
    """What the verbs with a new turn of a conversation take."""

    key: str | None
    """An idempotency key in the conversation: the same key with the same prompt runs once. Log stores only."""


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
    key: str | None = None
    durability: Literal["step", "turn"] = "step"
    output_type: object | None = None

    def __post_init__(self) -> None:
        at_least("max_steps", self.max_steps, 1, whole=True, optional=True)
        at_least("max_tokens", self.max_tokens, 1, whole=True, optional=True)
        at_least("timeout", self.timeout, 0, optional=True)
        at_least("busy_timeout", self.busy_timeout, 0)
        if self.busy not in ("wait", "raise"):
            raise ConfigurationError(f"busy is {self.busy!r}; it can be 'wait' or 'raise'.")
        if self.durability not in ("step", "turn"):
            raise ConfigurationError(f"durability is {self.durability!r}; it can be 'step' or 'turn'.")
        if self.key is not None and (not isinstance(self.key, str) or not 1 <= len(self.key) <= MAX_ID):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(f"key is {self.key!r:.60}; it has to be a text of 1 to {MAX_ID} characters.")

    @property
    def patience(self) -> float:
        """Seconds to wait for other turns on the conversation."""
        return self.busy_timeout if self.busy == "wait" else 0.0


def chosen(
    options: RunOptions | ResumeOptions | TurnOptions, kind: type[Any], output_type: object | None = None
) -> Options:
    """The options of a call, checked.

    Args:
        kind: Which of the three the verb takes.
        output_type: It is no key of theirs, since type checkers read the result's type from it.

    Raises:
        TypeError: There is no such option.
        ConfigurationError: A value cannot be meant.
    """
    if not options:
        return _DEFAULTS if output_type is None else Options(output_type=output_type)
    known: frozenset[str] = kind.__optional_keys__
    for name in options:
        if name not in known:
            hint = "Only `ask` and `stream` remember." if name == "id" else f"There are {', '.join(sorted(known))}."
            raise TypeError(f"There is no option {name!r} here. {hint}")
    return Options(**cast("dict[str, Any]", options), output_type=output_type)


_DEFAULTS = Options()
