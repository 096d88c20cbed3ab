"""Calls the functions of a host: hooks and watchers, plain or async, which may do anything."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from toolnexus import _workers
from toolnexus._workers import ForeignExit
from toolnexus.suspension import Suspension

_log = logging.getLogger("toolnexus")

_E = TypeVar("_E")
_A = TypeVar("_A")


async def ask(function: Callable[[_E], _A | Awaitable[_A | None] | None], event: _E, *kinds: type[_A]) -> _A | None:
    """What a hook answers to `event`.

    Args:
        kinds: What it may answer beside None. None given: anything.

    Raises:
        TypeError: It answered something else.
        ForeignExit: It called `sys.exit` or `suspend`, or was cancelled by somebody else than us.
        Exception: Whatever it raised.
    """
    try:
        answer: Any = function(event)
        if inspect.isawaitable(answer):
            answer = await answer
    except (asyncio.CancelledError, SystemExit, Suspension) as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise
        raise ForeignExit(type(error).__name__) from error
    if kinds and not isinstance(answer, (*kinds, type(None))):
        expected = ", ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"The answer is a {type(answer).__name__}; expected None or {expected}.")
    return answer


async def patiently(function: Callable[[_E], Any], event: _E) -> Any:
    """`ask` for a function that may take its time: in a worker thread, unless it says that it is async."""
    if is_async(function):
        return await ask(function, event)
    answer = await _workers.run(function, event)
    return await ask(lambda _: answer, None) if inspect.isawaitable(answer) else answer


def is_async(function: Callable[..., Any]) -> bool:
    """Whether a function says of itself that it does not block."""
    plain: Any = function
    while isinstance(plain, functools.partial):
        plain = cast("functools.partial[Any]", plain).func
    target = plain if inspect.isroutine(plain) else type(plain).__call__
    return inspect.iscoroutinefunction(target) or inspect.isasyncgenfunction(target)


async def tell(name: str, function: Callable[[_E], Any], event: _E) -> None:
    """Tell a watcher. What goes wrong with it is logged: it must not end the run."""
    try:
        await ask(function, event)
    except Exception as error:  # noqa: BLE001 - see above
        _log.warning("%s failed; the run goes on", name, exc_info=error)
