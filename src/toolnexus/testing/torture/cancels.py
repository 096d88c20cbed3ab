"""Turns that are cancelled at each of their awaits, and streams that are left at each of their events."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Callable, Coroutine, Generator
from itertools import count
from typing import TYPE_CHECKING, Any, Unpack

from toolnexus.errors import ToolnexusError
from toolnexus.events import Finished
from toolnexus.testing.checker import prompt
from toolnexus.testing.torture.judge import judged
from toolnexus.testing.torture.trial import Outcome, Trial
from toolnexus.testing.torture.work import charging, tortured

if TYPE_CHECKING:
    from toolnexus.client import Client
    from toolnexus.options import TurnOptions

_MOST = 200
"""Awaits of a turn; beyond, something does not end."""


async def cancel(trial: Trial) -> Outcome:
    """A turn is cancelled at its k-th await, for every k, once and twice: the next ask works at once."""
    store = trial.place.open()
    client = tortured(store)
    found: list[str] = []
    cancelled = 0
    try:
        for again in (0, 1, 2, 3) if trial.long else (0, 1):
            for k in range(1, _MOST):
                cut = _Cut(client, f"cancelled at {k}{f', then at {k + again}' if again else ''}", trial)
                found += await cut.ask("first")
                reached = await cut.cancelled({k, k + again})
                found += await cut.ask("next", busy="raise")
                found += cut.problems + await judged(
                    store, cut.id, done=cut.done, unknown=cut.unknown, ledger=cut.ledger
                )
                if not reached:
                    break
                cancelled += 1
            else:
                found.append(f"A turn has more than {_MOST} awaits.")
    finally:
        await store.aclose()
    return Outcome(f"a turn cancelled at each of its awaits: {cancelled} cancelled, each asked again", tuple(found))


async def leave(trial: Trial) -> Outcome:
    """A stream is left after its k-th event, for every k: the next ask works at once."""
    store = trial.place.open()
    client = tortured(store)
    found: list[str] = []
    left = 0
    try:
        for k in range(_MOST):
            cut = _Cut(client, f"left after event {k}", trial)
            finished = await cut.left(k)
            found += await cut.ask("next", busy="raise")
            found += await judged(store, cut.id, done=cut.done, unknown=cut.unknown, ledger=cut.ledger)
            if finished:
                break
            left += 1
        else:
            found.append(f"A turn has more than {_MOST} events.")
    finally:
        await store.aclose()
    return Outcome(f"a stream left at each of its events: {left} left, each asked again", tuple(found))


class _Cut:
    """A conversation with one turn that is cut."""

    def __init__(self, client: Client, id: str, trial: Trial) -> None:
        self.id = id
        self.done: list[str] = []
        self.unknown: list[str] = []
        self.problems: list[str] = []
        self.ledger = trial.ledger(id)
        self._client = client
        self._tools = [charging(self.ledger)]

    async def ask(self, name: str, **options: Unpack[TurnOptions]) -> list[str]:
        """Ask. What is wrong if that does not work."""
        asked = prompt(name, 0)
        try:
            await self._client.ask(asked, self._tools, id=self.id, **options)
        except ToolnexusError as error:
            return [f"{self.id}: {asked!r} fails: {type(error).__name__}: {error}"]
        self.done.append(asked)
        return []

    async def cancelled(self, awaits: set[int]) -> bool:
        """Ask in a task that is cancelled at these of its awaits. Whether it got as far as the first of them."""
        asked = prompt("cut", 0)
        reached = False

        def before(number: int) -> None:
            nonlocal reached
            if number in awaits and (task := asyncio.current_task()) is not None:
                reached = True
                task.cancel()

        async def ask() -> None:
            await _stepping(self._client.ask(asked, self._tools, id=self.id), before)

        try:
            await asyncio.get_running_loop().create_task(ask())
        except asyncio.CancelledError:
            self.unknown.append(asked)
        except ToolnexusError as error:
            self.unknown.append(asked)
            self.problems.append(f"{self.id}: it raised {error!r}.")
        else:
            self.done.append(asked)
            if reached:
                self.problems.append(f"{self.id}: the cancellation was swallowed.")
        return reached

    async def left(self, k: int) -> bool:
        """Read the first events of a stream, `k` and one more, and leave it. Whether that was all of it."""
        asked = prompt("cut", 0)
        seen = 0
        async with self._client.stream(asked, self._tools, id=self.id) as events:
            async for event in events:
                seen += 1
                if isinstance(event, Finished):
                    self.done.append(asked)
                    return True
                if seen > k:
                    break
        self.unknown.append(asked)
        return False


@types.coroutine
def _stepping(work: Coroutine[Any, Any, Any], before: Callable[[int], None]) -> Generator[Any, Any, None]:
    """Await some work, and call `before` with the number of each of its awaits, from 1, when it is about to wait."""
    steps = work.__await__()
    step: Callable[[Any], Any] = steps.send
    value: Any = None
    for number in count(1):
        try:
            awaited = step(value)
        except StopIteration:
            return
        before(number)
        try:
            value = yield awaited
            step = steps.send
        except BaseException as error:  # noqa: BLE001 - all of it goes on into the work
            step, value = steps.throw, error
