"""What has to be true of a conversation after everything that was done to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from toolnexus.messages import repair, text_of
from toolnexus.stores.logstore import LogStore
from toolnexus.testing import checker
from toolnexus.testing.torture.work import CHARGED

if TYPE_CHECKING:
    from toolnexus.messages import Message
    from toolnexus.testing.torture.work import Charge, Ledger


async def judged(
    store: LogStore, id: str, *, done: Iterable[str], unknown: Iterable[str] = (), ledger: Ledger | None = None
) -> list[str]:
    """What is wrong with a conversation; nothing, if all is well.

    Args:
        done: The prompts whose turns were acknowledged.
        unknown: Those of which nobody knows.
        ledger: Where the tool of this conversation wrote. None: there were no tools.
    """
    done, unknown = list(done), list(unknown)
    stored = LogStore(store.backend, scope=store.scope)  # which knows nothing but what is stored
    history = await stored.get(id) or []
    found = checker.problems(history, finished=done, unfinished=unknown)
    if report := repair(history)[1]:
        found.append(f"The history is broken: {report}.")
    if ledger is not None:
        found += charged_wrongly(ledger.read(), history, done=done)
    return [f"{id}: {problem}" for problem in found]


def charged_wrongly(charges: Sequence[Charge], history: Sequence[Message], *, done: Sequence[str]) -> list[str]:
    """What is wrong with how often the tool ran."""
    keys = Counter(charge.key for charge in charges)
    prompts = Counter(charge.prompt for charge in charges)
    kept = {text_of(message.get("content")) for message in history if message["role"] == "user"}
    return [
        *(f"The call {key} ran {times} times." for key, times in keys.items() if times > 1),
        *(f"{asked!r} was charged {times} times." for asked, times in prompts.items() if times > 1),
        *(f"{asked!r} was charged and is forgotten." for asked in prompts if asked not in kept),
        *(f"{asked!r} is done and was not charged." for asked in done if not prompts[asked]),
        *(
            f"{asked!r} is done and its result is {said!r}."
            for asked, said in _results(history, done)
            if said != CHARGED
        ),
    ]


def _results(history: Sequence[Message], done: Iterable[str]) -> Iterator[tuple[str, str]]:
    """What the tool said in turns that are done."""
    asked = ""
    finished = {*done}
    for message in history:
        said = text_of(message.get("content"))
        if message["role"] == "user":
            asked = said
        elif message["role"] == "tool" and asked in finished:
            yield asked, said
