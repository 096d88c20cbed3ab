"""Processes that are killed in the middle of a turn: what was acknowledged stays, and what acted is not forgotten."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import replace
from typing import TYPE_CHECKING

from toolnexus.errors import ToolnexusError
from toolnexus.messages import INTERRUPTED, text_of
from toolnexus.testing.checker import prompt
from toolnexus.testing.torture.judge import judged
from toolnexus.testing.torture.mortal import POINTS
from toolnexus.testing.torture.processes import Told, started
from toolnexus.testing.torture.trial import Outcome, Trial
from toolnexus.testing.torture.work import CHARGED, charging, tortured
from toolnexus.testing.torture.worker import Job

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolnexus.messages import Message
    from toolnexus.stores.logstore import LogStore
    from toolnexus.testing.torture.place import Place
    from toolnexus.testing.torture.work import Ledger

_WRITERS = 3
_LEFT = {
    **dict.fromkeys(("before_begin", "after_begin", "model", "before_reply"), ()),
    **dict.fromkeys(
        ("after_reply", "in_the_tool", "after_the_charge", "before_result"), ("user", "assistant", INTERRUPTED)
    ),
    **dict.fromkeys(("after_result", "answer", "before_end"), ("user", "assistant", CHARGED)),
    "after_end": ("user", "assistant", CHARGED, "assistant"),
}
"""What a turn that was killed at a point leaves in the history: roles, and of results what they say."""


async def at_points(trial: Trial) -> Outcome:
    """A writer is killed at each point of its turn; the next ask works at once and finds what the table says."""
    place = trial.place if trial.place.local else replace(trial.place, lease=0.3)
    rounds = 3 if trial.long else 1
    together = asyncio.Semaphore(4)

    async def one(point: str, number: int) -> list[str]:
        async with together:
            return await _killed_at(trial, place, point, f"{point} {number}")

    found = await asyncio.gather(*(one(point, number) for number in range(rounds) for point in POINTS))
    return Outcome(
        f"a writer killed at each of {len(POINTS)} points, {rounds} x, then asked again",
        tuple(problem for problems in found for problem in problems),
    )


async def _killed_at(trial: Trial, place: Place, point: str, id: str) -> list[str]:
    told, ledger = Told(), trial.ledger(id)
    async with started(
        Job(place=place, id=id, name="killed", turns=2, ledger=str(ledger.path), dies=point), told
    ) as worker:
        if (code := await worker.ended()) != -signal.SIGKILL:
            return [f"{id}: the worker ended with {code} and not at its point: {' / '.join(told.broken[-3:])}"]
    store = place.open()
    try:
        asked = prompt("next", 0)
        try:
            await _ask_after(place, store, asked, id, ledger)
        except ToolnexusError as error:
            return [f"{id}: the next ask failed: {error}"]
        history = await store.get(id) or []
        found = await judged(store, id, done=[*told.done, asked], unknown=told.unknown, ledger=ledger)
        left = _outline(history[4:-4])
        if left != _LEFT[point]:
            found.append(f"{id}: the killed turn left {left}, not {_LEFT[point]}.")
        return found
    finally:
        await store.aclose()


async def _ask_after(place: Place, store: LogStore, asked: str, id: str, ledger: Ledger) -> None:
    """Ask after a kill. A local store must see that the owner is gone; elsewhere its lease runs out."""
    tools = [charging(ledger)]
    if place.local:
        await tortured(store).ask(asked, tools, id=id, busy="raise")
    else:
        await tortured(store).ask(asked, tools, id=id, busy_timeout=10 * place.lease)


def _outline(messages: Sequence[Message]) -> tuple[str, ...]:
    return tuple(
        text_of(message.get("content")) if message["role"] == "tool" else message["role"] for message in messages
    )


async def at_random(trial: Trial) -> Outcome:
    """Three writers on one id, each of which is killed at a random moment of its work and replaced by another."""
    place = trial.place if trial.place.local else replace(trial.place, lease=0.5)
    kills = 50 if trial.long else 6
    told, ledger = Told(), trial.ledger()
    numbers = iter(range(kills))
    found: list[str] = []

    async def lives() -> None:
        """Writers, one after the other."""
        for number in numbers:
            job = Job(
                place=place,
                id="deaths",
                name=f"writer {number}",
                turns=1_000_000,
                ledger=str(ledger.path),
                thinking=(0.0, 0.005),
                tells="model",
            )
            async with started(job, told) as worker:
                await worker.reached()  # from here on it is in the middle of turns
                await asyncio.sleep(trial.chance.uniform(0.0, 0.2))
                worker.send(signal.SIGKILL)
                if (code := await worker.ended()) != -signal.SIGKILL:
                    found.append(f"A worker ended with {code}: {' / '.join(told.broken[-3:])}")

    await asyncio.gather(*(lives() for _ in range(_WRITERS)))
    store = place.open()
    try:
        asked = prompt("next", 0)
        await _ask_after(place, store, asked, "deaths", ledger)
        found += await judged(store, "deaths", done=[*told.done, asked], unknown=told.unknown, ledger=ledger)
    except ToolnexusError as error:
        found.append(f"The ask after the last kill failed: {error}")
    finally:
        await store.aclose()
    failed = [error for _, error in told.failed]
    found += [f"A turn failed: {error}" for error in failed if place.local or not error.startswith("fenced:")]
    return Outcome(
        f"{kills} writers killed at random, {_WRITERS} at a time: {len(told.done)} turns done, "
        f"{len(told.unknown) - len(failed)} cut, {len(failed)} fenced",
        tuple(found),
    )
