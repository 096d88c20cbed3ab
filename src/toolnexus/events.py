"""What a run emits while it happens, and what it leaves: a closed union of frozen values."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from toolnexus.messages import Message, copy_messages

if TYPE_CHECKING:
    from toolnexus.suspension import Request

FinishReason: TypeAlias = Literal["stop", "tool_calls", "length", "content_filter", "refusal", "error", "unknown"]
Status: TypeAlias = Literal["done", "pending", "incomplete", "failed"]
Limit: TypeAlias = Literal["max_steps", "max_tokens"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens, as the provider counted them. `cached` and `reasoning` are parts of the others, not added to them."""

    prompt: int = 0
    completion: int = 0
    total: int = 0
    cached: int = 0
    reasoning: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            prompt=self.prompt + other.prompt,
            completion=self.completion + other.completion,
            total=self.total + other.total,
            cached=self.cached + other.cached,
            reasoning=self.reasoning + other.reasoning,
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
    """One reply of the model. `usage` is None when the provider did not say; `calls` pairs with the outcomes."""

    text: str
    reasoning: str
    finish_reason: FinishReason
    usage: Usage | None
    model: str
    calls: tuple[CallRecord, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """What a run came to.

    Attributes:
        text: What this run answered, nothing older.
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
    """The model's reply is complete; its calls, if any, come next."""

    type: ClassVar[Literal["step_finished"]] = "step_finished"
    usage: Usage | None
    finish_reason: FinishReason
    model: str

    def to_dict(self) -> dict[str, Any]:
        return _to_dict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrying:
    """A request failed before anything was shown and is sent again after `delay` seconds."""

    type: ClassVar[Literal["retrying"]] = "retrying"
    attempt: int
    delay: float
    kind: str
    reason: str

    def to_dict(self) -> dict[str, Any]:
        return _to_dict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The run ended well and, with a conversation id, is stored. Always the last event."""

    type: ClassVar[Literal["finished"]] = "finished"
    result: RunResult

    def to_dict(self) -> dict[str, Any]:
        return _to_dict(self)


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
