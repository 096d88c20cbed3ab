"""What holds in every case, listed or not: the corpus's `must_not` where it can be said of all of them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from corpus_runner.invariants import INVARIANTS
from corpus_runner.server import Seen
from corpus_runner.wires import Wire

if TYPE_CHECKING:
    from toolnexus.errors import ToolnexusError
    from toolnexus.messages import Message

_EVERYWHERE: Final = (
    "tool_calls_answered",
    "tool_results_paired",
    "arguments_are_json_objects",
    "tool_names_distinct",
    "body_is_utf8",
    "body_is_strict_json",
)


def of_requests(seen: Iterable[Seen], wire: Wire) -> list[str]:
    """No request breaks the rules that every server has."""
    rules = (*_EVERYWHERE, "no_empty_text") if wire.refuses_blanks else _EVERYWHERE
    return [
        f"request {number} breaks {rule}: {problem}"
        for number, request in enumerate(seen, 1)
        for rule in rules
        for problem in INVARIANTS[rule](request.body, wire)
    ]


def of_runs(places: Iterable[tuple[int, int]]) -> list[str]:
    """No call runs twice. A call is known by its reply and its place in that reply."""
    return [f"call {place} (step, position) ran {count} times" for place, count in Counter(places).items() if count > 1]


def of_errors(error: ToolnexusError | None, key: str) -> list[str]:
    """No error shows the key."""
    return ["the error shows the API key"] if error is not None and key in f"{error!r} {error}" else []


def of_transcripts(given: Sequence[Mapping[str, Any]], messages: Sequence[Message]) -> list[str]:
    """What the caller stored is still there: its prompts, its calls by their ids, and no success made up for a call."""
    found: list[str] = []
    prompts = [turn["text"] for turn in given if turn["role"] == "user"]
    kept = [message.get("content") for message in messages if message["role"] == "user"]
    if lost := [text for text in prompts if text.isprintable() and text not in kept]:
        found.append(f"user messages are gone: {lost}")
    calls = [call["id"] for turn in given for call in turn.get("tool_calls", ())]
    ours = [
        call["id"] for message in messages if message["role"] == "assistant" for call in message.get("tool_calls", ())
    ]
    if ours[: len(calls)] != calls:
        found.append(f"the stored calls were {calls} and are {ours[: len(calls)]}")
    answered = {turn["tool_call_id"] for turn in given if turn["role"] == "tool"}
    for message in messages:
        if (
            message["role"] == "tool"
            and message["tool_call_id"] in set(calls) - answered
            and not message.get("is_error")
        ):
            found.append(f"call {message['tool_call_id']!r} had no result and now has a success")
    return found
