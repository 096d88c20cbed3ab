"""What the last turn of a transcript still has to do, and what answers make of it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from toolnexus.errors import AlreadyAnswered, ConfigurationError
from toolnexus.messages import INTERRUPTED, declined, given_arguments, read_arguments, unsaid
from toolnexus.suspension import Granted, Waiting, answered, kept, turn_of
from toolnexus.tools import ToolCall, ToolResult

if TYPE_CHECKING:
    from toolnexus.messages import Message, ToolMessage
    from toolnexus.suspension import Answer


@dataclass(frozen=True, slots=True)
class Unknown:
    """A call that may have run, or not: nobody knows."""


Way: TypeAlias = Granted | Waiting | Unknown | ToolResult
"""How a call goes on that began in an earlier run. A `ToolResult`: it does not, this is its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenStep:
    """The last reply of a turn that goes on, with calls that are not over.

    Attributes:
        calls: All calls of the reply, in order.
        results: What the transcript says of them, by position: results and placeholders.
        ways: How those go on that are not over, by position.
    """

    calls: tuple[ToolCall, ...]
    results: Mapping[int, ToolMessage]
    ways: Mapping[int, Way]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfinished:
    """A turn that has not come to its end.

    Attributes:
        turn_id: None: the transcript does not say.
        start: Where its prompt stands.
        messages: The transcript up to its last reply, without the results of that.
        replies: How many there are in the turn.
        results: What the transcript says of the calls of the last reply, in call order.
    """

    turn_id: str | None
    start: int
    messages: list[Message]
    replies: int
    results: tuple[ToolMessage, ...]

    @property
    def transcript(self) -> list[Message]:
        """All of it, with results and placeholders."""
        return [*self.messages, *self.results]

    def opened(
        self,
        answers: Mapping[str, Answer],
        tools: Collection[str],
        *,
        now: float,
        conversation_id: str | None = None,
        turns: Collection[str] = (),
    ) -> OpenStep | None:
        """How the calls of the last reply go on. None: all are over.

        Args:
            now: Seconds since the epoch, for requests that expire.
            turns: Other turns of the conversation, as far as they are known.

        Raises:
            AlreadyAnswered: An answer is for a request of this conversation that waits no more.
            ConfigurationError: An answer is for a request that never was, or a tool is missing that is to be called.
        """
        calls = self._calls()
        waiting: dict[int, Waiting] = {}
        ways: dict[int, Way] = {}
        for position, (call, result) in enumerate(zip(calls, self.results, strict=True)):
            if (found := kept(result, read_arguments(call.arguments) or {})) is not None:
                waiting[position] = found
            elif result.get("content") == INTERRUPTED and result.get("is_error") and "retried" not in result:
                ways[position] = Unknown()
        for request_id in answers.keys() - {each.request["id"] for each in waiting.values()}:
            turn = turn_of(request_id)
            if turn is not None and (turn == self.turn_id or turn in turns):
                raise AlreadyAnswered(conversation_id)
            open_ids = ", ".join(repr(each.request["id"]) for each in waiting.values()) or "none"
            raise ConfigurationError(f"No request {request_id!r:.200} waits for an answer. Those that do: {open_ids}.")
        for position, each in waiting.items():
            ways[position] = answered(each, answers.get(each.request["id"]), now=now) or each
        missing = {calls[position].name for position, way in ways.items() if isinstance(way, Granted | Unknown)}
        if missing := sorted(missing.difference(tools)):
            raise ConfigurationError(f"The turn goes on with tools that it was not given: {', '.join(missing)}.")
        if not ways:
            return None
        return OpenStep(calls=calls, results=dict(enumerate(self.results)), ways=dict(sorted(ways.items())))

    def _calls(self) -> tuple[ToolCall, ...]:
        last = self.messages[-1]
        entries = last.get("tool_calls", ()) if last["role"] == "assistant" else ()
        return tuple(
            ToolCall(id=entry["id"], name=entry["function"]["name"], arguments=given_arguments(entry))
            for entry in entries
        )


def unfinished(messages: Sequence[Message], *, start: int | None = None) -> Unfinished | None:
    """What is still to be done at the end of a valid transcript. None: its last turn has its answer, or there is none.

    Args:
        start: Where the last turn begins. None: with the last message of the user.
    """
    if start is None:
        users = (position for position in reversed(range(len(messages))) if messages[position]["role"] == "user")
        start = next(users, 0)
    turn = unsaid(messages[start:])
    if not turn or (turn[-1]["role"] not in ("user", "tool")):
        return None
    end = len(turn)
    while end and turn[end - 1]["role"] == "tool":
        end -= 1
    results = [message for message in turn[end:] if message["role"] == "tool"]
    return Unfinished(
        turn_id=_turn_id(turn),
        start=start,
        messages=[*messages[:start], *declined(turn[:end])],
        replies=sum(message["role"] == "assistant" for message in turn),
        results=tuple(results),
    )


def _turn_id(turn: Sequence[Message]) -> str | None:
    for message in reversed(turn):
        if message["role"] == "tool" and (waiting := kept(message, {})) is not None:
            found = turn_of(waiting.request["id"])
        else:
            found = message.get("unfinished")
        if isinstance(found, str):
            return found
    return None


def marked(messages: Sequence[Message], turn_id: str) -> list[Message]:
    """A transcript whose last turn was interrupted, with the turn's id at its last reply, so that it can go on."""
    for position in reversed(range(len(messages))):
        message = messages[position]
        if message["role"] == "user":
            break
        if message["role"] == "assistant" and not message.get("interrupted"):
            return [*messages[:position], {**message, "unfinished": turn_id}, *messages[position + 1 :]]
    return list(messages)
