"""Which exit code a command ends with, and what is advised after an error."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from toolnexus import (
    ConfigurationError,
    ConnectionFailed,
    ConversationBusy,
    ConversationConflict,
    CorruptConversation,
    InvalidConversationId,
    InvalidReply,
    InvalidTranscript,
    MissingKey,
    NoModelConfigured,
    ProviderError,
    RunTimeout,
    StoreError,
)
from toolnexus.errors import AlreadyAnswered, ConversationFenced, NoSuchConversation, StoreTooNew

if TYPE_CHECKING:
    from toolnexus import RunResult

DONE = 0
ERROR = 1
USAGE = 2
CONFIGURATION = 3
PROVIDER = 4
STORE = 5
LIMIT = 6
PENDING = 10
INTERRUPTED = 130


class Ending(NamedTuple):
    """The exit code of an error, and the line that says what to do. Empty: the error says it itself."""

    code: int
    advice: str


_NO_MODEL = (
    "Name one with -m or TOOLNEXUS_MODEL, such as openai:gpt-5-mini; or set OPENAI_API_KEY or ANTHROPIC_API_KEY; "
    "or start a model server on this machine. -m demo needs none of that."
)
_BY_CLASS: tuple[tuple[type[Exception], Ending], ...] = (  # the first that fits
    (InvalidConversationId, Ending(USAGE, "")),
    (MissingKey, Ending(CONFIGURATION, "Keys are read from the environment only, never from the command line.")),
    (NoModelConfigured, Ending(CONFIGURATION, _NO_MODEL)),
    (InvalidTranscript, Ending(ERROR, "")),
    (ConfigurationError, Ending(CONFIGURATION, "`toolnexus --help` lists the options.")),
    (ConnectionFailed, Ending(PROVIDER, "Is the server running, and is the address right? See -m and --base-url.")),
    (InvalidReply, Ending(PROVIDER, "Ask again, or look at the server's address and --style.")),
    (RunTimeout, Ending(LIMIT, "Ask again, or ask for less at once.")),
    (NoSuchConversation, Ending(ERROR, "`toolnexus memory ls` lists all.")),
    (AlreadyAnswered, Ending(ERROR, "`toolnexus memory show ID` tells how it went on.")),
    (CorruptConversation, Ending(STORE, "")),
    (StoreTooNew, Ending(STORE, "")),
    (StoreError, Ending(STORE, "Ask with --no-store, or keep conversations elsewhere: --store or TOOLNEXUS_HOME.")),
    (ConversationConflict, Ending(STORE, "Ask again.")),
    (ConversationFenced, Ending(STORE, "")),
    (ConversationBusy, Ending(STORE, "Ask again when the other turn is over.")),
)
_BY_KIND = {
    "auth": Ending(CONFIGURATION, "Check the key in the environment, or name another model with -m."),
    "not_found": Ending(PROVIDER, "Check the model's name (-m) and the address (--base-url)."),
    "context_length": Ending(PROVIDER, "The conversation is too long for this model: start a new one, without -c."),
    "quota": Ending(PROVIDER, "The account has no credit left: top it up, or name another model with -m."),
    "rate_limit": Ending(PROVIDER, "Ask again in a while, or name another model with -m."),
}


def ending(error: Exception) -> Ending:
    """What an error comes to."""
    if isinstance(error, ProviderError):
        return _BY_KIND.get(error.kind, Ending(PROVIDER, "Ask again, or name another model with -m."))
    return next((found for kind, found in _BY_CLASS if isinstance(error, kind)), Ending(ERROR, "-vv shows more."))


def code_of(result: RunResult) -> int:
    """The exit code of a run that ended without an error."""
    return {"done": DONE, "pending": PENDING}.get(result.status, LIMIT)
