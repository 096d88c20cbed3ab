"""Many processes that ask on one conversation at once, and one that stops in the middle for longer than its lease."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import replace

from toolnexus.testing.checker import prompt
from toolnexus.testing.torture.judge import judged
from toolnexus.testing.torture.processes import Told, started
from toolnexus.testing.torture.trial import Outcome, Trial
from toolnexus.testing.torture.work import charging, tortured
from toolnexus.testing.torture.worker import Job

_PROCESSES = 6


async def race(trial: Trial) -> Outcome:
    """Six processes ask on one id, each turn with a tool: all turns are kept, whole, one after the other."""
    turns = 40 if trial.long else 4
    told, ledger = Told(), trial.ledger()

    async def one(name: str) -> int:
        job = Job(place=trial.place, id="race", name=name, turns=turns, ledger=str(ledger.path), thinking=(0.0, 0.002))
        async with started(job, told) as worker:
            return await worker.ended()

    codes = await asyncio.gather(*(one(f"racer {number}") for number in range(_PROCESSES)))
    store = trial.place.open()
    try:
        found = await judged(store, "race", done=told.done, ledger=ledger)
    finally:
        await store.aclose()
    found += [f"{asked!r} failed: {error}" for asked, error in told.failed]
    found += [f"A worker ended with {code}: {' / '.join(told.broken[-3:])}" for code in codes if code]
    return Outcome(f"{_PROCESSES} processes x {turns} turns on one id: {len(told.done)} done", tuple(found))


async def freeze(trial: Trial) -> Outcome:
    """A process stops while its model thinks and goes on after its lease: by then the turn is somebody else's."""
    place = replace(trial.place, lease=0.5)
    told, ledger = Told(), trial.ledger()
    rounds = 5 if trial.long else 1
    store = place.open()
    client = tortured(store)
    try:
        for number in range(rounds):
            job = Job(
                place=place,
                id="freeze",
                name=f"frozen {number}",
                turns=1,
                ledger=str(ledger.path),
                thinking=(10.0, 10.0),
                tells="model",
            )
            async with started(job, told) as worker:
                await worker.reached()
                worker.send(signal.SIGSTOP)
                asked = prompt("awake", number)
                await client.ask(asked, [charging(ledger)], id="freeze", busy_timeout=20.0)
                told.done.append(asked)
                worker.send(signal.SIGCONT)
                await worker.ended()
        found = [f"A turn that was taken over failed otherwise: {error}" for error in _but_fenced(told)]
        found += [f"{asked!r} was taken over and is done." for asked in told.done if asked.startswith("frozen")]
        found += await judged(store, "freeze", done=told.done, unknown=told.unknown, ledger=ledger)
    finally:
        await store.aclose()
    return Outcome(f"{rounds} owners stopped for longer than their lease: {len(told.failed)} fenced", tuple(found))


def _but_fenced(told: Told) -> list[str]:
    return [error for _, error in told.failed if not error.startswith("fenced:")]
