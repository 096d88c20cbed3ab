"""Does to conversation stores what the world does to them, and looks for what that breaks.

    python -m toolnexus.testing.torture sqlite:////tmp/torture.db redis://127.0.0.1:6379/0 --long

It runs on whatever `open_store` takes. In a store it uses scopes of its own, and removes what it left there. From a
server it ends no connections but its own; what needs a server to be killed starts one of its own.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from toolnexus.errors import ToolnexusError
from toolnexus.testing.torture import cancels, deaths, lines, race, resumes, tails
from toolnexus.testing.torture.place import Place
from toolnexus.testing.torture.trial import Outcome, Scenario, Trial

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolnexus.testing.torture.place import Kind

__all__ = ["SCENARIOS", "Outcome", "scenarios", "torture"]

_ALL: Sequence[Kind] = ("sqlite", "file", "postgres", "redis", "memory")
_SHARED: Sequence[Kind] = ("sqlite", "file", "postgres", "redis")

SCENARIOS: Mapping[str, tuple[Scenario, Sequence[Kind]]] = {
    "race": (race.race, _SHARED),
    "freeze": (race.freeze, _SHARED),
    "points": (deaths.at_points, _SHARED),
    "kills": (deaths.at_random, _SHARED),
    "resume": (resumes.resume, _SHARED),
    "cancel": (cancels.cancel, _ALL),
    "leave": (cancels.leave, _ALL),
    "pool": (lines.pool, ("postgres",)),
    "cut": (lines.cut, ("postgres", "redis")),
    "sever": (lines.sever, ("postgres", "redis")),
    "restart": (lines.restart, ("redis",)),
    "tails": (tails.tails, ("file",)),
}
"""By name: what is done, and on which stores."""


def scenarios(url: str) -> list[str]:
    """The names of the scenarios for a store.

    Raises:
        KeyError: The URL names no store.
    """
    kind = Place(url=url, scope="").kind
    return [name for name, (_, kinds) in SCENARIOS.items() if kind in kinds]


async def torture(url: str, name: str, *, long: bool = False, seed: int = 0) -> Outcome:
    """Run a scenario on a store, and remove what it left.

    Args:
        url: As `open_store` takes it.
        name: Of the scenario; see `scenarios`.
        long: Whether to take minutes rather than seconds.
        seed: What is left to chance is chosen by it, but for what the machine leaves to it.
    """
    place = Place(url=url, scope=f"torture-{name}-{uuid4().hex[:12]}")
    run, _ = SCENARIOS[name]
    with tempfile.TemporaryDirectory(prefix="torture-") as folder:
        trial = Trial(place=place, folder=Path(folder), chance=random.Random(f"{seed} {url} {name}"), long=long)
        try:
            return await run(trial)
        except ToolnexusError as error:
            return Outcome("broken off", (f"{type(error).__name__}: {error}",))
        finally:
            await place.remove()
