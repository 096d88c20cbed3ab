"""How providers spell things: the seam between the loop and a wire.

A dialect is pure: no sockets, clocks or environment. Whole and streamed answers become the same `Reply`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from toolnexus.events import Delta, FinishReason, Usage
    from toolnexus.messages import AssistantMessage, Message
    from toolnexus.providers import Provider
    from toolnexus.tools import Tool, ToolCall


_FILES = frozenset({"pdf", "file_url", "file_id"})
"""What a provider takes that takes files, as far as its wire can say it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Who is spoken to. An encoder and a decoder are made for one target.

    Attributes:
        style: The dialect's name.
        host: Scheme and host (and port, if given), as it goes into a message's `origin`.
        provider: The table's row for the host; unknown hosts have one without a name.
    """

    style: str
    host: str
    provider: Provider

    def takes(self, parts: frozenset[str]) -> frozenset[str]:
        """Which of the kinds of parts that the wire can say are taken here: those of the provider's row."""
        taken = self.provider.parts
        if taken is None:
            return parts
        return frozenset(kind for kind in parts if kind in taken or ("file" in taken and kind in _FILES))


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseSchema:
    """What the text of an answer has to be: JSON that fits a schema.

    Attributes:
        name: What the schema is called, 1 to 64 ASCII letters, digits, `_` or `-`.
        schema: A JSON Schema with an object at its top.
    """

    name: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request to a model, in neutral terms.

    Attributes:
        model: The model id, sent exactly as given.
        messages: The transcript, valid as `repair` leaves it. The same list object grows during a run.
        system: The composed system prompt. Empty: none.
        tools: What the model may call. Empty: no tool key is sent at all.
        max_tokens: None: what the wire requires, else nothing.
        stream: Whether the answer is asked for piece by piece.
        params: Further request fields of the caller, merged last but for `messages` and `stream`; its `tools` are
            appended to ours.
        response_schema: The answer has to fit it; calls may come before it. None: any text. A dialect spells it as the
            wire's own option. Where a provider has none, others have taken it from the request before.
    """

    model: str
    messages: Sequence[Message]
    system: str = ""
    tools: Sequence[Tool] = ()
    max_tokens: int | None = None
    stream: bool = False
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])
    response_schema: ResponseSchema | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a model answered, whole or streamed.

    Attributes:
        message: The assistant message for the transcript, with `origin`, and `native` where the neutral shape cannot
            carry something. Calls that were cut off are not in it.
        text: The visible text, empty if there is none.
        reasoning: The reasoning text that the provider shows, empty if there is none.
        calls: What is to be run, in order, under the tools' own names. Empty when the reply was cut off.
        usage: None: the provider did not say.
        model: As the provider names it; what was asked for if it names none.
        id: What the provider calls this reply. Empty: nothing. It is no part of what the reply says.
        continues: The provider paused its own work: send the history again as it is, and it goes on.
    """

    message: AssistantMessage
    text: str
    reasoning: str = ""
    calls: tuple[ToolCall, ...] = ()
    finish_reason: FinishReason
    usage: Usage | None = None
    model: str = ""
    id: str = field(default="", compare=False)
    continues: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a decoder has to know of the request that it reads the answer to.

    Attributes:
        model: The model that was asked.
        names: Wire name to tool name, for the names that the wire could not take. Usually empty.
    """

    target: Target
    model: str
    names: Mapping[str, str] = field(default_factory=dict[str, str])


class Encoder(Protocol):
    """Requests of one run to one target. It encodes each message once, however many requests the run makes."""

    def encode(self, request: Request) -> dict[str, Any]:
        """Return the body of `request`, a JSON object. It is new at the top level; inner values may be shared."""
        ...

    def reading(self, request: Request) -> Reading:
        """What the decoder of the answer to `request` needs."""
        ...


class ReplyDecoder(Protocol):
    """One streamed answer.

    Attributes:
        done: Whether the end mark has come: nothing that follows belongs to the answer.
    """

    done: bool

    def feed(self, payload: str) -> list[Delta]:
        """Take the next event's data and return what it adds for the reader.

        Raises:
            ProviderError: The event is an error.
            InvalidReply: The event cannot be read.
        """
        ...

    def finish(self) -> Reply:
        """Return the reply, when the connection has ended.

        Raises:
            IncompleteReply: The provider never said that it was done.
        """
        ...


class Dialect(Protocol):
    """One wire style."""

    style: str
    path: str
    """What is appended to a base URL, such as `/chat/completions`; `{model}` stands for the model's id."""
    stream_path: str
    """The same for requests whose answer is streamed."""
    parts: frozenset[str]
    """The kinds of content parts that a user's message may have on this wire: `text`, `image_url`, `input_audio`, and
    `file` (any file, by its bytes), `pdf` (of files by their bytes only such), `file_url`, `file_id`."""

    def encoder(self, target: Target) -> Encoder: ...

    def decode(self, body: object, reading: Reading) -> Reply:
        """Read a whole answer.

        Args:
            body: The decoded JSON.

        Raises:
            ProviderError: The body is an error, whatever the HTTP status said.
            InvalidReply: The body is no answer of this style.
        """
        ...

    def decoder(self, reading: Reading) -> ReplyDecoder: ...


DIALECTS: Mapping[str, tuple[str, str]] = {
    "openai": ("toolnexus.dialects.openai", "OpenAI"),
    "anthropic": ("toolnexus.dialects.anthropic", "Anthropic"),
    "responses": ("toolnexus.dialects.responses", "Responses"),
    "gemini": ("toolnexus.dialects.gemini", "Gemini"),
}
"""The styles that are built: each one's module and class."""


def dialect(style: str) -> Dialect:
    """The dialect of a style that is in `DIALECTS`."""
    module, name = DIALECTS[style]
    made: Dialect = getattr(importlib.import_module(module), name)()
    return made
