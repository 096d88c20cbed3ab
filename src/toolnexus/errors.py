"""Every exception that toolnexus raises, in one tree.

The tree is split by what the caller can do about it. Each error says what happened, names the value and the next
step, and carries `.partial`, the result so far. No error holds a key, a header or the body of a request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolnexus.events import RunResult, Usage


class ToolnexusError(Exception):
    """The root of every error of this library.

    Attributes:
        kind: A stable word for what went wrong, to branch on and to count.
        retryable: Whether the same request may succeed later.
        partial: What the run had done when it failed, with status `failed`. None: nothing was done yet.
    """

    kind: str = "error"
    retryable: bool = False
    partial: RunResult | None = None


class ConfigurationError(ToolnexusError):
    """The call has to be changed: an option, a name, a value."""

    kind = "configuration"


class MissingExtra(ConfigurationError, ImportError):
    """A part of the library was used whose optional dependency is not installed."""

    def __init__(self, what: str, *, extra: str) -> None:
        super().__init__(f"{what} need an optional dependency. Install it with: pip install 'toolnexus[{extra}]'")
        self.extra = extra


class MissingKey(ConfigurationError):
    """The provider wants an API key, and none was given or found."""

    kind = "auth"


class NoModelConfigured(ConfigurationError):
    """No model was named. The library never picks one silently."""


class InvalidConversationId(ConfigurationError):
    """A conversation id is a text of 1 to 512 characters."""


class InvalidTranscript(ConfigurationError):
    """Messages that were handed in cannot be read. The message names the place."""


class ProviderError(ToolnexusError):
    """The provider answered with an error.

    Attributes:
        kind: `rate_limit`, `quota`, `overloaded`, `server`, `timeout`, `bad_request`, `context_length`, `auth`,
            `not_found`, `content_filter` or `malformed_tool_call`.
        status: The HTTP status, or the one that an error inside a 200 names. None: there was none.
        request_id: The provider's id of the request, for its support.
        retry_after: Seconds that the server asked to wait. None: it did not say.
        parameter: The request field that the provider complains about, if it names one.
        usage: What the attempt cost all the same. None: it did not say.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: str,
        retryable: bool = False,
        status: int | None = None,
        request_id: str | None = None,
        retry_after: float | None = None,
        parameter: str | None = None,
        usage: Usage | None = None,
    ) -> None:
        super().__init__(message)
        self.usage = usage
        self.kind = kind
        self.retryable = retryable
        self.status = status
        self.request_id = request_id
        self.retry_after = retry_after
        self.parameter = parameter


class ConnectionFailed(ToolnexusError):
    """The server was not reached, or the connection broke.

    Attributes:
        kind: `connection`, or `timeout` when the server stayed silent.
        request_sent: Whether the provider may have seen, and charged for, the request.
    """

    kind = "connection"
    retryable = True

    def __init__(self, message: str, *, request_sent: bool, kind: str = "connection", retryable: bool = True) -> None:
        super().__init__(message)
        self.kind = kind
        self.retryable = retryable
        self.request_sent = request_sent


class InvalidReply(ToolnexusError):
    """What came back is not a reply of the wire style that was asked for."""

    kind = "invalid_response"


class IncompleteReply(InvalidReply):
    """The reply ended before its end mark."""

    kind = "truncated_stream"
    retryable = True


class InvalidOutput(ToolnexusError):
    """The model's answer is no value of the output type, not even after it was told what is wrong.

    Ask again, or ask for less. What it said is `.partial.text`; it is not part of the conversation.

    Attributes:
        problems: Where it does not fit, and what is wrong there, a line each; without the values themselves.
    """

    kind = "invalid_output"

    def __init__(self, problems: str, *, why: str) -> None:
        super().__init__(
            f"The answer is no value of the output type, and {why}. Its text is in `.partial`.\n{problems}"
        )
        self.problems = problems


class RunTimeout(ToolnexusError):
    """The run did not end within its `timeout`."""

    kind = "timeout"
    retryable = True


class ReaderGone(ToolnexusError):
    """Nobody asked a stream for its next event for `reader_timeout` seconds, so the run was ended."""

    kind = "reader_timeout"


class HookFailed(ToolnexusError):
    """A hook that decides what may happen raised, so the run stopped. The hook's error is the cause."""

    kind = "hook"


class StoreError(ToolnexusError):
    """A conversation store failed. The store's own error is the cause.

    Attributes:
        conversation_id: The conversation that was read or written.
    """

    kind = "store"

    def __init__(self, message: str, *, conversation_id: str | None = None) -> None:
        super().__init__(message)
        self.conversation_id = conversation_id


class CorruptConversation(StoreError):
    """What is stored under this id cannot be read. Nothing was changed."""

    kind = "corrupt"


class StoreTooNew(StoreError):
    """A newer toolnexus wrote this. Nothing was changed; update toolnexus to read it."""

    kind = "store_too_new"


class NoSuchConversation(StoreError):
    """There is no conversation of this id."""

    kind = "not_found"

    def __init__(self, conversation_id: str) -> None:
        super().__init__(
            f"There is no conversation {conversation_id!r}. The store's `list` shows those that there are.",
            conversation_id=conversation_id,
        )


class ConversationConflict(ToolnexusError):
    """Someone else changed the conversation since it was read. Nothing was stored."""

    kind = "conflict"
    retryable = True

    def __init__(self, conversation_id: str, *, expected: int, actual: int) -> None:
        super().__init__(
            f"Conversation {conversation_id!r} is at version {actual}, not {expected}: "
            "another run changed it. Load it again and retry."
        )
        self.conversation_id = conversation_id
        self.expected = expected
        self.actual = actual


class ConversationBusy(ToolnexusError):
    """Another run holds the conversation. Wait, or come back later."""

    kind = "busy"
    retryable = True

    def __init__(self, conversation_id: str, *, waited: float) -> None:
        super().__init__(
            f"Conversation {conversation_id!r} is busy with another turn (waited {waited:g} s). "
            "Try again later, or raise busy_timeout."
        )
        self.conversation_id = conversation_id
        self.waited = waited


class ConversationFenced(ToolnexusError):
    """The turn is not ours any more: its lease was lost and taken over, or the conversation was deleted.

    Nothing of what was to be recorded then was stored. What was recorded before stands, and the next turn closes it.
    """

    kind = "fenced"

    def __init__(self, conversation_id: str) -> None:
        super().__init__(
            f"The turn on conversation {conversation_id!r} was taken over by somebody else, or the conversation was "
            "deleted. Ask again; what was recorded so far is in the history."
        )
        self.conversation_id = conversation_id


class KeyReused(ConfigurationError):
    """An idempotency key was used with another prompt before."""

    def __init__(self, conversation_id: str, key: str) -> None:
        super().__init__(
            f"The key {key!r} was used with another prompt in conversation {conversation_id!r}. "
            "Take a new key for a new prompt."
        )
        self.conversation_id = conversation_id
        self.key = key


class TurnInterrupted(ToolnexusError):
    """A turn acted and did not come to its end. `resume` continues it without repeating what finished.

    Attributes:
        turn_id: The turn.
    """

    kind = "interrupted"

    def __init__(self, conversation_id: str, turn_id: str) -> None:
        super().__init__(
            f"Turn {turn_id!r} of conversation {conversation_id!r} was interrupted after a tool had started. "
            "Continue it with `resume`; asking again could repeat what it did."
        )
        self.conversation_id = conversation_id
        self.turn_id = turn_id


class AlreadyAnswered(ToolnexusError):
    """What the answers are for does not wait any more: somebody else answered, or the conversation went on."""

    kind = "already_answered"

    def __init__(self, conversation_id: str | None) -> None:
        where = f"in conversation {conversation_id!r} " if conversation_id else ""
        super().__init__(f"Nothing {where}waits for these answers any more. Look at its last turn.")
        self.conversation_id = conversation_id
