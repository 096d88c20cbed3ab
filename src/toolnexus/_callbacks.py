"""Calls the functions of a host: hooks and watchers, plain or async, which may do anything."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from toolnexus._workers import ForeignExit

_log = logging.getLogger("toolnexus")

_E = TypeVar("_E")
_A = TypeVar("_A")


async def ask(function: Callable[[_E], _A | Awaitable[_A | None] | None], event: _E, *kinds: type[_A]) -> _A | None:
    """What a hook answers to `event`.

    Args:
        kinds: What it may answer beside None. None given: anything.

    Raises:
        TypeError: It answered something else.
        ForeignExit: It called `sys.exit`, or was cancelled by somebody else than us.
        Exception: Whatever it raised.
    """
    try:
        answer: Any = function(event)
        if inspect.isawaitable(answer):
            answer = await answer
    except (asyncio.CancelledError, SystemExit) as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise
        raise ForeignExit(type(error).__name__) from error
    if kinds and not isinstance(answer, (*kinds, type(None))):
        expected = ", ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"The answer is a {type(answer).__name__}; expected None or {expected}.")
    return answer


async def tell(name: str, function: Callable[[_E], Any], event: _E) -> None:
    """Tell a watcher. What goes wrong with it is logged: it must not end the run."""
    try:
        await ask(function, event)
    except Exception as error:  # noqa: BLE001 - see above
        _log.warning("%s failed; the run goes on", name, exc_info=error)
