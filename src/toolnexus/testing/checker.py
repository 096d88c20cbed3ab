"""Whether a history that many wrote at once is one that they could have written one after the other.

Everybody asks `prompt(worker, number)`, with numbers that rise, and the model answers `answer(prompt, saw)`, where
`saw` is how many messages of history it got. `problems` then reads the history.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

from toolnexus.messages import Message, text_of


def prompt(worker: str, number: int) -> str:
    """What a worker asks in its turn of that number."""
    return f"{worker} #{number}"


def answer(asked: str, saw: int) -> str:
    """What the model answers to a prompt with `saw` messages before it."""
    return f"{asked} saw {saw}"


def problems(transcript: Sequence[Message], *, finished: Iterable[str], unfinished: Iterable[str] = ()) -> list[str]:
    """What is wrong with a history; nothing, if it is as if there had been one turn after the other.

    Args:
        finished: The prompts whose turns were reported as done. Each is there once, and followed by its own answer.
        unfinished: Those of which nobody knows: killed, cancelled. Each is there at most once.
    """
    done = Counter(finished)
    unknown = set(unfinished)
    found: list[str] = []
    asked: Counter[str] = Counter()
    last: dict[str, int] = {}
    starts = [at for at, message in enumerate(transcript) if message["role"] == "user"]
    if transcript and starts[:1] != [0]:
        found.append("The history does not begin with a prompt.")
    for start, end in pairwise([*starts, len(transcript)]):
        text = text_of(transcript[start].get("content"))
        asked[text] += 1
        if text in done or text not in unknown:
            found += _unanswered(text, start, transcript[start + 1 : end])
        worker, _, number = text.rpartition(" #")
        if number.isdigit():
            if int(number) <= last.get(worker, -1):
                found.append(f"{text!r} comes after {prompt(worker, last[worker])!r}.")
            last[worker] = int(number)
    found += [f"{text!r} is missing." for text in done if not asked[text]]
    found += [f"{text!r} is there {count} times." for text, count in asked.items() if count > 1]
    found += [f"{text!r} was asked by nobody." for text in asked if text not in done and text not in unknown]
    return found


def _unanswered(text: str, start: int, rest: Sequence[Message]) -> list[str]:
    """What is wrong with what follows a prompt: replies that call tools, their results, and at last its answer."""
    said = text_of(rest[-1].get("content")) if rest and rest[-1]["role"] == "assistant" else None
    expected = answer(text, start)
    if said == expected:
        return []
    if said is None:
        return [f"{text!r} at {start} has no answer."]
    return [f"{text!r} at {start} is answered by {said!r}, not by {expected!r}."]
