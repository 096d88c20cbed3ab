"""What a run emits while it happens, and what it leaves: a closed union of frozen values."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeAlias

from toolnexus.messages import Message, copy_messages

if TYPE_CHECKING:
    from decimal import Decimal

    from typing_extensions import TypeVar  # with a default, so that `RunResult` alone says nothing of its output

    from toolnexus.suspension import Request

    T_co = TypeVar("T_co", covariant=True, default=Any)
else:
    from typing import TypeVar

    T_co = TypeVar("T_co", covariant=True)

FinishReason: TypeAlias = Literal["stop", "tool_calls", "length", "content_filter", "refusal", "error", "unknown"]
Status: TypeAlias = Literal["done", "pending", "incomplete", "failed"]
Limit: TypeAlias = Literal["max_steps", "max_tokens"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens, as the provider counted them.

    Attributes:
        cached: Tokens of the prompt that the provider had kept from before.
        cache_write: Tokens of the prompt that it kept for later, where it says so.
        reasoning: Tokens of the completion that are reasoning.
        cost: US dollars that the provider says it charged. None: it says nothing, as most do; see `RunResult.cost`.
    """

    prompt: int = 0
    completion: int = 0
    total: int = 0
    cached: int = 0
    cache_write: int = 0
    reasoning: int = 0
    cost: float | None = None

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            prompt=self.prompt + other.prompt,
            completion=self.completion + other.completion,
            total=self.total + other.total,
            cached=self.cached + other.cached,
            cache_write=self.cache_write + other.cache_write,
            reasoning=self.reasoning + other.reasoning,
            cost=None if self.cost is None or other.cost is None else self.cost + other.cost,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord:
    """One tool call of a run and how it went.

    Attributes:
        args: What the tool was called with; the raw text when it could not be read as an object.
        output: What the model was told.
        seconds: How long it ran.
    """

    id: str
    name: str
    args: Mapping[str, Any] | str
    output: str
    is_error: bool
    seconds: float
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One reply of the model.

    Attributes:
        usage: None: the provider did not say.
        host: Scheme and host of the endpoint that gave it. Empty: unknown.
        calls: Its calls, each with its outcome.
        rejected: It was to be the answer and did not fit the `output_type`. It is not part of the transcript.
    """

    text: str
    reasoning: str
    finish_reason: FinishReason
    usage: Usage | None
    model: str
    host: str = ""
    calls: tuple[CallRecord, ...] = ()
    rejected: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult(Generic[T_co]):
    """What a run came to.

    Attributes:
        text: What this run answered, nothing older.
        output: The answer as a value of the call's `output_type`. None if the call had none, and whenever the status is
            not `done`.
        reasoning: The reasoning text of the last reply, where the provider shows it.
        status: `done`; `incomplete` (a limit was reached, see `limit`); `pending` (a person has to answer);
            `failed` only as `.partial` of an error.
        finish_reason: The provider's reason for the last reply. None: there was no reply.
        limit: Which limit made it incomplete. None: none did.
        pending: What a person has to answer before the turn can go on, in the order of the calls that wait; see
            `Client.resume`.
        tool_calls: All calls that ended in the run, in the order of the transcript.
        steps: Each reply of the model.
        usage: Sum over the replies; None when no reply had any.
        model: The model that answered last, as the provider names it.
        conversation_id: None: the run was not remembered.
        replayed: Whether this is the recorded result of an earlier run.
    """

    text: str
    output: T_co = None  # pyright: ignore[reportAssignmentType] - see above; what is done has one
    reasoning: str = ""
    status: Status
    finish_reason: FinishReason | None = None
    limit: Limit | None = None
    pending: tuple[Request, ...] = ()
    tool_calls: tuple[CallRecord, ...] = ()
    steps: tuple[Step, ...] = ()
    usage: Usage | None = None
    model: str = ""
    conversation_id: str | None = None
    turn_id: str = ""
    replayed: bool = False
    transcript: Sequence[Message] = field(default=(), repr=False)

    @property
    def messages(self) -> list[Message]:
        """The whole transcript without the composed system prompt, as a copy that is yours to change."""
        return copy_messages(self.transcript)

    @property
    def cost(self) -> Decimal | None:
        """US dollars that the replies of this run cost: what the provider told, else by a table of list prices.

        None: unknown, since that table (the extra `prices`) is not installed or does not know a model at the endpoint
        that answered, or a provider counted no tokens. It is worked out when it is asked for. The first one loads the
        table, which takes some 0.3 s; `toolnexus.telemetry.prices.load` does that beside the event loop.
        """
        from toolnexus.telemetry import prices

        return prices.of_steps(self.steps)


@dataclass(frozen=True, slots=True)
class TextDelta:
    """The next piece of the answer."""

    type: ClassVar[Literal["text_delta"]] = "text_delta"
    text: str

    def to_dict(self) -> dict[str, Any]:
        return _to_dict(self)


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """The next piece of the model's reasoning."""

    type: ClassVar[Literal["reasoning_delta"]] = "reasoning_delta"
    text: str

    def to_dict(self) -> dict[str, Any]:
        return _to_dict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStarted:
    """A call was handed to its tool. `args` is the raw text when it could not be read as an object."""

    type: ClassVar[Literal["tool_started"]] = "tool_started"
    id: str
    name: str
    args: Mapping[str, Any] | str

    def to_dict(self) -> dict[str, Any]:
        return _to_dict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolProgress:
    """A running tool told how far it is. `fraction` is 0.0 to 1.0; None: unknown."""

    type: ClassVar[Literal["tool_progress"]] = "tool_progress"
    id: str
    name: str
    message: str
    fraction: float | None = None

    def to_dict(self) -> dict[str, Any]:
        return _to_dict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFinished:
    """A call ended. Calls of one step arrive as they end."""

    type: ClassVar[Literal["tool_finished"]] = "tool_finished"
    call: CallRecord

    def to_dict(self) -> dict[str, Any]:
        return _to_dict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspended:
    """A call waits for a person. It has not ended, and that is no error of it."""

    type: ClassVar[Literal["suspended"]] = "suspended"
    id: str
    name: str
    request: Request

    def to_dict(self) -> dict[str, Any]:
        return _to_dict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFinished:
    """The model's reply is complete; its calls, if any, come next.

    Attributes:
        seconds: From when the model was asked until its reply was complete, with what was sent again meanwhile.
        first_chunk: Seconds until the first piece of it came. None: it was not streamed, or nothing but calls came.
    """

    type: ClassVar[Literal["step_finished"]] = "step_finished"
    usage: Usage | None
    finish_reason: FinishReason
    model: str
    # How long it took does not make it another event.
    seconds: float = field(default=0.0, compare=False)
    first_chunk: float | None = field(default=None, compare=False)

    def to_dict(self) -> dict[str, Any]:
        return _to_dict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrying:
    """A request failed before anything was shown and is sent again after `delay` seconds.

    Attributes:
        kind: The `kind` of the error.
        model: The model that is asked instead, one of `fallbacks=`. None: the same again.
    """

    type: ClassVar[Literal["retrying"]] = "retrying"
    attempt: int
    delay: float
    kind: str
    reason: str
    model: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return _to_dict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The run ended well and, with a conversation id, is stored. Always the last event."""

    type: ClassVar[Literal["finished"]] = "finished"
    result: RunResult

    def to_dict(self) -> dict[str, Any]:
        told = _to_dict(self)
        if self.result.output is not None:
            import pydantic_core  # what made the output has loaded it

            told["result"]["output"] = pydantic_core.to_jsonable_python(self.result.output)
        return told


Delta: TypeAlias = TextDelta | ReasoningDelta
Event: TypeAlias = (
    TextDelta
    | ReasoningDelta
    | ToolStarted
    | ToolProgress
    | ToolFinished
    | Suspended
    | StepFinished
    | Retrying
    | Finished
)


def _to_dict(event: Event) -> dict[str, Any]:
    """The event as plain JSON data, with its `type` first."""
    return {"type": event.type, **{name: _plain(getattr(event, name)) for name in event.__dataclass_fields__}}


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {name: _plain(getattr(value, name)) for name, about in value.__dataclass_fields__.items() if about.repr}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    return value
