"""A process that asks, tells what it did line by line on its standard output, and may end in the middle of it.

Started as `python -m toolnexus.testing.torture.worker JOB`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import random
import signal
import sys
from dataclasses import dataclass
from typing import Any

from toolnexus.errors import ToolnexusError
from toolnexus.testing.checker import prompt
from toolnexus.testing.torture.mortal import MortalBackend
from toolnexus.testing.torture.place import Place
from toolnexus.testing.torture.work import Ledger, charging, tortured


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a worker does.

    Attributes:
        id: The conversation.
        name: The worker's, of this job alone: it stands in its prompts.
        turns: How many it asks, one after the other.
        ledger: Where its tool writes.
        thinking: Seconds that a reply takes, at least and at most; how many is chosen at random.
        dies: The point of its last turn at which it kills itself. None: it does not.
        tells: A point that it tells about.
        answers: It resumes the conversation's last turn with these, and asks nothing itself. None: it asks.
    """

    place: Place
    id: str
    name: str
    turns: int
    ledger: str
    thinking: tuple[float, float] = (0.0, 0.0)
    dies: str | None = None
    tells: str | None = None
    answers: list[dict[str, Any]] | None = None

    def to_text(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Job:
        fields = json.loads(text)
        return cls(**(fields | {"place": Place(**fields["place"])}))


def tell(what: str, about: str, error: str = "") -> None:
    """Write a line. It is there for the reader although the process ends right after."""
    os.write(sys.stdout.fileno(), (json.dumps([what, about, error]) + "\n").encode())


async def work(job: Job) -> None:
    """Do a job, telling `asked`, then `done` or `failed` with the kind and the text of the error, for each prompt."""
    asked = ""

    def reached(point: str) -> None:
        if point == job.tells:
            tell("reached", point)
        if point == job.dies and asked == prompt(job.name, job.turns - 1):
            os.kill(os.getpid(), signal.SIGKILL)

    store = job.place.open(lambda backend: MortalBackend(backend, reached))
    ledger = Ledger(job.ledger)
    client = tortured(store, thinking=lambda: random.uniform(*job.thinking), reached=reached)
    tools = [charging(ledger, reached=reached)]
    for number in range(job.turns if job.answers is None else 1):
        asked = prompt(job.name, number)
        tell("asked", asked)
        try:
            if job.answers is None:
                await client.ask(asked, tools, id=job.id)
            else:
                await client.resume(job.id, tools, answers=job.answers)
        except ToolnexusError as error:
            tell("failed", asked, f"{error.kind}: {error}")
        else:
            tell("done", asked)
    await store.aclose()


if __name__ == "__main__":
    asyncio.run(work(Job.from_text(sys.argv[1])))
