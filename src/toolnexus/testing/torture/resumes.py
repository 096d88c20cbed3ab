"""Turns that were killed and are resumed by two processes at once: one wins, and nothing runs twice unasked."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from toolnexus.errors import ToolnexusError
from toolnexus.testing.checker import prompt
from toolnexus.testing.torture.judge import judged
from toolnexus.testing.torture.processes import Told, started
from toolnexus.testing.torture.trial import Outcome, Trial
from toolnexus.testing.torture.work import charging, tortured
from toolnexus.testing.torture.worker import Job

if TYPE_CHECKING:
    from toolnexus.testing.torture.place import Place

_FINISHED = ("after_result", "answer", "before_end")
"""Where a kill leaves a call that is known to have finished."""
_UNKNOWN = ("after_reply", "in_the_tool", "after_the_charge", "before_result")
"""Where it leaves one of which nobody knows."""
_RESUMERS = 2


async def resume(trial: Trial) -> Outcome:
    """A writer is killed after its turn acted; then two processes resume the turn at once, with the same answers."""
    place = trial.place if trial.place.local else replace(trial.place, lease=0.5)
    together = asyncio.Semaphore(2)

    async def one(point: str, ok: bool | None, number: int) -> list[str]:
        async with together:
            return await _Resumed(place, trial, point, ok, number).problems()

    rounds = 3 if trial.long else 1
    ways = [*((point, None) for point in _FINISHED), *((point, ok) for point in _UNKNOWN for ok in (True, False))]
    chosen = ways if trial.long else [ways[1], *trial.chance.sample(ways[3:], 2)]
    found = await asyncio.gather(*(one(*way, number) for number in range(rounds) for way in chosen))
    return Outcome(
        f"{rounds * len(chosen)} killed turns, each resumed by {_RESUMERS} processes at once",
        tuple(problem for problems in found for problem in problems),
    )


class _Resumed:
    """One turn that is killed at a point and resumed.

    Args:
        ok: What a person says when asked whether a call may run again. None: nobody is to be asked.
    """

    def __init__(self, place: Place, trial: Trial, point: str, ok: bool | None, number: int) -> None:
        self._id = f"resumed {point} {ok} {number}"
        self._ledger = trial.ledger(self._id)
        self._place = place
        self._point = point
        self._ok = ok

    async def problems(self) -> list[str]:
        """Do it. What is wrong."""
        told = Told()
        job = Job(place=self._place, id=self._id, name="killed", turns=2, ledger=str(self._ledger.path))
        async with started(replace(job, dies=self._point), told) as worker:
            if (code := await worker.ended()) != -signal.SIGKILL:
                return [f"{self._id}: the worker ended with {code}: {' / '.join(told.broken[-3:])}"]
        charged = len(self._ledger.read())
        try:
            answers = await self._asked()
        except ToolnexusError as error:
            return [f"{self._id}: asking what is unknown failed: {type(error).__name__}: {error}"]
        resumed = Told()
        await asyncio.gather(
            *(self._race(replace(job, name=f"resumer {n}", answers=answers), resumed) for n in range(_RESUMERS))
        )
        found = [f"{self._id}: {problem}" for problem in self._wrong(resumed, charged)]
        store = self._place.open()
        try:
            return found + await judged(store, self._id, done=[prompt("killed", 0), prompt("killed", 1)])
        finally:
            await store.aclose()

    async def _asked(self) -> list[dict[str, Any]]:
        """What is answered to what is asked of the turn."""
        if self._ok is None:
            return []
        store = self._place.open()
        try:
            tools = [charging(self._ledger)]
            result = await tortured(store).resume(self._id, tools, busy_timeout=20.0)
            return [{"id": request["id"], "ok": self._ok, "reason": "no"} for request in result.pending]
        finally:
            await store.aclose()

    async def _race(self, job: Job, told: Told) -> None:
        async with started(job, told) as worker:
            await worker.ended()

    def _wrong(self, resumed: Told, charged: int) -> list[str]:
        """What is wrong with what the resumers told, and with how often the tool ran."""
        won, lost = len(resumed.done), [error for _, error in resumed.failed if error.startswith("already_answered:")]
        more = len(self._ledger.read()) - charged
        wrong: list[str] = []
        if won != 1 or len(lost) != _RESUMERS - 1:
            wrong.append(f"{won} resumers won, and the others: {resumed.failed or resumed.broken[-3:]}")
        if more != (1 if self._ok else 0):
            wrong.append(f"The tool ran {more} times more.")
        if len({charge.key for charge in self._ledger.read() if charge.prompt == prompt("killed", 1)}) > 1:
            wrong.append("The call that was repeated has another key.")
        return wrong
