"""What replies cost: what the provider told, else by a table of list prices. US dollars."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from toolnexus.dialects import Reply
    from toolnexus.events import Step, Usage

    Price: TypeAlias = Callable[[str, str, Usage], Decimal | None]

_log = logging.getLogger("toolnexus")


async def load() -> None:
    """Load the table of prices beside the event loop, which takes some 0.3 s once; without it, nothing."""
    await asyncio.to_thread(load_now)


def load_now() -> None:
    """The same, here."""
    if (price := _table()) is not None:
        from toolnexus.events import Usage

        price("gpt-5-mini", "https://api.openai.com", Usage(prompt=1))  # the first question reads the table


def of_steps(steps: Iterable[Step]) -> Decimal | None:
    """What the replies of a run cost together. None: that of one of them is unknown, or there are none."""
    total: Decimal | None = None
    for step in steps:
        cost = _cost(step.model, step.host, step.usage)
        if cost is None:
            return None
        total = cost if total is None else total + cost
    return total


def of_reply(reply: Reply) -> Decimal | None:
    """What one reply cost. None: unknown."""
    host = reply.message["origin"]["host"] if "origin" in reply.message else ""
    return _cost(reply.model, host, reply.usage)


def _cost(model: str, host: str, usage: Usage | None) -> Decimal | None:
    if usage is None:
        return None
    if usage.cost is not None:
        return Decimal(str(usage.cost))
    price = _table() if model and host else None
    return None if price is None else price(model, host, usage)


@functools.cache
def _table() -> Price | None:
    """Gives the list price of a model at an endpoint. None: the extra `prices` is not installed."""
    try:
        import genai_prices
    except ImportError:
        _log.info("Costs are unknown. For list prices: pip install 'toolnexus[prices]'")
        return None

    def price(model: str, host: str, usage: Usage) -> Decimal | None:
        counted = genai_prices.Usage(
            input_tokens=usage.prompt,
            cache_read_tokens=usage.cached,
            cache_write_tokens=usage.cache_write,
            output_tokens=usage.completion,
        )
        try:
            return genai_prices.calc_price(counted, model_ref=model, provider_api_url=host).total_price
        except (LookupError, ValueError):  # no such model there, or counts that cannot be
            return None

    return price
