"""Which exit code a command ends with, and what is advised after an error."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, NamedTuple

from toolnexus import (
    ConfigurationError,
    ConnectionFailed,
    ConversationBusy,
    ConversationConflict,
    CorruptConversation,
    InvalidConversationId,
    InvalidOutput,
    InvalidReply,
    InvalidTranscript,
    MissingKey,
    NoModelConfigured,
    ProviderError,
    RunTimeout,
    StoreError,
)
from toolnexus.cli.layers import BrokenConfiguration
from toolnexus.cli.settings import KEY
from toolnexus.cli.trust import Untrusted
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


class Misused(ConfigurationError):
    """What a command was given does not fit what it is for."""


class ModelNotNamed(NoModelConfigured):
    """No model is named, and none is taken of what was found.

    Attributes:
        advice: How to name one of what was found. Empty: nothing was found.
    """

    def __init__(self, message: str, *, advice: str) -> None:
        super().__init__(message)
        self.advice = advice


class Ending(NamedTuple):
    """The exit code of an error, and the line that says what to do. Empty: the error says it itself."""

    code: int
    advice: str


NO_KEY = f"No key was sent; set {KEY}. OPENAI_API_KEY and the like belong to their own providers, as api.openai.com."
"""What is advised when an address wants a key and got none."""
_ELSEWHERE = "Conversations may be kept elsewhere: --store or TOOLNEXUS_HOME."
NO_MODEL = (
    "Name one with -m or TOOLNEXUS_MODEL, such as openai:gpt-5-mini; or set OPENAI_API_KEY or ANTHROPIC_API_KEY; "
    "or start a model server on this machine. -m demo needs none of that."
)
"""What is advised when there is no model."""
_BY_CLASS: tuple[tuple[type[Exception], Ending], ...] = (  # the first that fits
    (InvalidConversationId, Ending(USAGE, "")),
    (Misused, Ending(USAGE, "")),
    (MissingKey, Ending(CONFIGURATION, "Keys are read from the environment only, never from the command line.")),
    (NoModelConfigured, Ending(CONFIGURATION, NO_MODEL)),
    (InvalidTranscript, Ending(ERROR, "")),
    (Untrusted, Ending(CONFIGURATION, "")),
    (BrokenConfiguration, Ending(CONFIGURATION, "`toolnexus doctor` looks at all of the configuration.")),
    (ConfigurationError, Ending(CONFIGURATION, "`toolnexus --help` lists the options.")),
    (ConnectionFailed, Ending(PROVIDER, "Is the server running, and is the address right? See -m and --base-url.")),
    (InvalidOutput, Ending(ERROR, "Ask again, ask for less, or name another model with -m.")),
    (InvalidReply, Ending(PROVIDER, "Ask again, or look at the server's address and --style.")),
    (RunTimeout, Ending(LIMIT, "Ask again, or ask for less at once.")),
    (NoSuchConversation, Ending(ERROR, "`toolnexus memory ls` lists all.")),
    (CorruptConversation, Ending(STORE, "")),
    (StoreTooNew, Ending(STORE, "")),
    (StoreError, Ending(STORE, _ELSEWHERE)),
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


# What the library calls its options, and what they are here. One that cannot be given here is left out.
_SPOKEN = (
    (r",? (?:or )?give api_key=", ""),
    (r"(?:Give )?api_key= or headers= instead", f"Set {KEY} instead"),
    (r"\bgive base_url=(?: as well)?", "give its address with --base-url"),
    (r"\bbase_url=?", "--base-url"),
    (r"\bstyle=", "--style "),
    (r"\bapi_key\b=?", KEY),
    (r" Leave it out to remember nothing\.", ""),
    (r"\Aprompt\[\d+\] is (.*?), which", r"The question has \1, which"),
    (r"\boutput_type is no JSON Schema", "--schema is no JSON Schema"),
    (r", give the URL of it, or raise max_bytes= if your provider takes more", ", or give the URL of it with --attach"),
    (r"; in that case give media_type=", "; then give it a suffix that says so"),
    (r"Give media_type=, such as '[^']*'", "Give it a suffix that tells"),
    (r"Read it yourself, and give the bytes", "Copy it to a file first"),
    (r"Of anything else, give a path or the bytes", "Of anything else, give a path"),
    (r"Give the bytes instead", "Download it, and give its path"),
    (r"\Aid is (.*); a conversation id is a str of (.*)", r"The ID is \1; an ID has \2"),
)

_ADVISED = ((", or give api_key=", ""), ("Give api_key=", f"Set {KEY}"), ("api_key=", KEY), ("base_url=", "--base-url"))
"""The same in what the library adds to errors of a server."""


def told(error: Exception) -> str:
    """What an error says, in the words of the command line."""
    if isinstance(error, AlreadyAnswered):
        where = f" in conversation {error.conversation_id!r}" if error.conversation_id else ""
        return f"Nothing waits{where} any more: its last turn is over."
    if isinstance(error, InvalidOutput):
        return f"The answer does not fit the schema, not even after the model was told:\n{error.problems}"
    text = str(error)
    if isinstance(error, ConnectionFailed) or (isinstance(error, ProviderError) and error.kind == "auth"):
        for ours, here in _ADVISED:
            text = text.replace(ours, here)
    if not isinstance(error, ConfigurationError) or isinstance(error, BrokenConfiguration):
        return text  # of a server, say, which calls its things as it likes; files have the library's names
    for ours, here in _SPOKEN:
        text = re.sub(ours, here, text)
    return text


def ending(error: Exception, *, asked: bool = False) -> Ending:
    """What an error comes to.

    Args:
        asked: Whether it was a question, which could do without a store.
    """
    if isinstance(error, AlreadyAnswered) and error.conversation_id:
        return Ending(ERROR, f"`toolnexus memory show {shlex.quote(error.conversation_id)}` tells how it went on.")
    if isinstance(error, ModelNotNamed):
        return Ending(CONFIGURATION, error.advice or NO_MODEL)
    if isinstance(error, ProviderError):
        return _BY_KIND.get(error.kind, Ending(PROVIDER, "Ask again, or name another model with -m."))
    found = next((found for kind, found in _BY_CLASS if isinstance(error, kind)), Ending(ERROR, "-vv shows more."))
    return (
        found._replace(advice=f"{_ELSEWHERE} --no-store asks without.")
        if asked and found.advice is _ELSEWHERE
        else found
    )


def code_of(result: RunResult) -> int:
    """The exit code of a run that ended without an error."""
    return {"done": DONE, "pending": PENDING}.get(result.status, LIMIT)
