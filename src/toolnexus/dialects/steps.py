"""Goes through a transcript step by step, once for each run, however many requests the run makes. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from toolnexus.dialects import Target
    from toolnexus.messages import AssistantMessage, CallEntry, Message, SystemMessage, ToolMessage, UserMessage

Results: TypeAlias = "list[tuple[int, ToolMessage]]"
"""The results of a message's calls, in call order: the call's position and its result."""

NO_OUTPUT = "(no output)"
"""Stands for a result without anything in it, which some servers refuse."""

Step: TypeAlias = "tuple[SystemMessage | UserMessage | AssistantMessage, Results]"


class Reader:
    """Remembers how far a transcript was read. It grows at its end only; another list is another transcript."""

    def __init__(self) -> None:
        self._source: Sequence[Message] = ()
        self._read = 0

    def is_new(self, messages: Sequence[Message]) -> bool:
        """Whether this is not the list that was read before, so that everything starts anew."""
        if messages is self._source and len(messages) >= self._read:
            return False
        self._source = messages
        self._read = 0
        return True

    def unread(self) -> Iterator[Step]:
        """Each message that was not read yet, with the results of its calls. Results without a call are skipped."""
        messages, position = self._source, self._read
        self._read = len(messages)
        while position < self._read:
            message = messages[position]
            position += 1
            if message["role"] == "tool":
                continue
            results: list[ToolMessage] = []
            while position < self._read and (result := messages[position])["role"] == "tool":
                results.append(result)
                position += 1
            yield message, _in_order(message.get("tool_calls", ()) if message["role"] == "assistant" else (), results)


def _in_order(calls: Sequence[CallEntry], results: Sequence[ToolMessage]) -> Results:
    waiting = list(results)
    ordered: Results = []
    for position, call in enumerate(calls):
        for index, result in enumerate(waiting):
            if result["tool_call_id"] == call["id"]:
                ordered.append((position, waiting.pop(index)))
                break
    return ordered


def system_text(composed: str, stored: Sequence[str]) -> str:
    """The system prompt to send: the composed one, then what the transcript begins with."""
    return "\n\n".join(part for part in (composed, *stored) if part and not part.isspace())


def may_replay(message: AssistantMessage, target: Target) -> bool:
    """Whether a message's `native` came from where the request goes, so that it may go back there."""
    origin = message.get("origin")
    if origin is None or "native" not in message or target.provider.refuses_reasoning:
        return False
    return origin["style"] == target.style and _same_place(origin["host"], target)


def _same_place(host: str, target: Target) -> bool:
    """Whether a host is the target's, or that of the target's row."""
    if host == target.host:
        return True
    row = target.provider
    homes = (row.base_url, *row.style_urls.values()) if row.name else ()
    return any(home == host or home.startswith(f"{host}/") for home in homes)
