"""What answers cost: tokens, and money where a price is known. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from toolnexus import Usage

if TYPE_CHECKING:
    from toolnexus.stores.log import Turn

_SMALLEST = Decimal("0.0001")


@dataclass(slots=True)
class Spent:
    """What was spent so far.

    Attributes:
        answers: How many there were.
        usage: None: nobody said.
        cost: US dollars, of those answers whose cost is known.
        priced: How many these are.
    """

    answers: int = 0
    usage: Usage | None = None
    cost: Decimal | None = None
    priced: int = 0

    def add(self, usage: Usage | None, cost: Decimal | None) -> None:
        """Another answer, or what there was of one. None: nobody says."""
        self.answers += 1
        if usage is not None:
            self.usage = usage if self.usage is None else self.usage + usage
        if cost is not None:
            self.cost = cost if self.cost is None else self.cost + cost
            self.priced += 1

    def told(self) -> str:
        """It, on one line."""
        parts = ["1 answer" if self.answers == 1 else f"{self.answers} answers", tokens(self.usage)]
        if self.cost is not None:
            only = "" if self.priced == self.answers else f" for {self.priced} of them"
            parts.append(dollars(self.cost) + only)
        return " · ".join(part for part in parts if part)


def spent_on(turns: Iterable[Turn]) -> Spent:
    """What the turns of a conversation took, as far as it is recorded. Prices are not."""
    names = {each.name for each in fields(Usage)}
    spent = Spent()
    for turn in turns:
        recorded: Mapping[str, Any] = turn.outcome.get("usage") or {}
        if turn.count or recorded:
            known = {name: count for name, count in recorded.items() if name in names}
            spent.add(Usage(**known) if known else None, None)
    return spent


def tokens(usage: Usage | None) -> str:
    """Tokens in and out, such as `1200 + 80 tokens (1024 cached)`. Empty: nobody counted them."""
    if not usage:
        return ""
    cached = f" ({usage.cached} cached)" if usage.cached else ""
    return f"{usage.prompt} + {usage.completion} tokens{cached}"


def dollars(cost: Decimal) -> str:
    """US dollars, with as many digits as tell something."""
    if cost >= 1 or not cost:
        return f"${cost:.2f}"
    return f"${cost:.4f}" if cost >= _SMALLEST else f"<${_SMALLEST}"
