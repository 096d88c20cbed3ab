"""What a scenario gets, and what it gives back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from toolnexus.testing.torture.work import Ledger

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from toolnexus.testing.torture.place import Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One run of a scenario on one store.

    Attributes:
        place: Of this trial alone.
        folder: An empty folder, of this trial alone.
        chance: Where everything that is left to chance comes from, but for what the machine leaves to it.
        long: Whether to take minutes rather than seconds.
    """

    place: Place
    folder: Path
    chance: random.Random
    long: bool

    def ledger(self, name: str = "ledger") -> Ledger:
        """A ledger of this trial."""
        return Ledger(self.folder / name)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was done, in one line, and what was found to be wrong."""

    did: str
    findings: tuple[str, ...] = ()


Scenario: TypeAlias = Callable[[Trial], Awaitable[Outcome]]
