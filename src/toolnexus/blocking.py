"""The same client for callers without an event loop: everything runs on one background loop."""

from __future__ import annotations

import asyncio
import functools
import os
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar

from toolnexus.errors import ConfigurationError

if TYPE_CHECKING:
    from types import TracebackType

    from toolnexus._stream import RunStream
    from toolnexus.events import Event

_P = ParamSpec("_P")
_S = TypeVar("_S")
_T = TypeVar("_T")

_STOPPING = 6.0
"""Seconds that an interrupted call may take to end its turn."""

_guard = threading.Lock()
_background: tuple[int, asyncio.AbstractEventLoop] | None = None


def blocking(method: Callable[Concatenate[_S, _P], Coroutine[Any, Any, _T]]) -> Callable[Concatenate[_S, _P], _T]:
    """The blocking form of a coroutine method."""

    @functools.wraps(method)
    def call(self: _S, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return run(functools.partial(method, self, *args, **kwargs))

    return call


def run(begin: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
    """Run a coroutine on the background loop and wait for it. Ctrl-C cancels it and waits for its end.

    Args:
        begin: Makes the coroutine. It is called on that loop, so that a Ctrl-C finds none that nobody has started.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        raise ConfigurationError(
            "An event loop is running in this thread, and a blocking call would stop it. "
            "Await the form without `_sync` instead."
        )
    call = _Call(begin, _loop())
    try:
        call.submit()
        return call.outcome.result()
    except KeyboardInterrupt:
        call.stop()
        raise


class _Call(Generic[_T]):
    """A coroutine on the background loop, and what comes of it.

    `asyncio.run_coroutine_threadsafe` does not do: its future cannot be cancelled without being over at once, although
    the coroutine still ends its turn, and a Ctrl-C within it leaves nothing to cancel.
    """

    def __init__(self, begin: Callable[[], Coroutine[Any, Any, _T]], loop: asyncio.AbstractEventLoop) -> None:
        self.outcome: Future[_T] = Future()
        self._begin = begin
        self._loop = loop
        self._task: asyncio.Task[_T] | None = None

    def submit(self) -> None:
        self._loop.call_soon_threadsafe(self._start)

    def stop(self) -> None:
        """Cancel it, and wait for its end for a bounded time."""
        self._loop.call_soon_threadsafe(self._cancel)
        with suppress(CancelledError, TimeoutError):
            self.outcome.exception(_STOPPING)

    def _start(self) -> None:
        try:
            work = self._begin()
        except Exception as error:  # noqa: BLE001 - such as arguments that the method does not take: for the caller
            self.outcome.set_exception(error)
            return
        self._task = self._loop.create_task(work)
        self._task.add_done_callback(self._end)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
        else:  # it was never submitted
            self.outcome.cancel()

    def _end(self, task: asyncio.Task[_T]) -> None:
        if task.cancelled():
            self.outcome.cancel()
        elif (error := task.exception()) is not None:
            self.outcome.set_exception(error)
        else:
            self.outcome.set_result(task.result())


def _loop() -> asyncio.AbstractEventLoop:
    """The background loop of this process, made at first use and anew after a fork."""
    global _background
    with _guard:
        if _background is None or _background[0] != os.getpid():
            loop = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="toolnexus-loop", daemon=True).start()
            _background = (os.getpid(), loop)
        return _background[1]


class BlockingStream:
    """A stream of events for code without an event loop. Use it as a context manager, or read it to its end."""

    def __init__(self, stream: RunStream) -> None:
        self._stream = stream

    def __enter__(self) -> BlockingStream:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        event = run(self._next)
        if event is None:
            raise StopIteration
        return event

    def close(self) -> None:
        """End the run if it has not ended: socket closed, turn ended."""
        run(self._stream.aclose)

    async def _next(self) -> Event | None:
        return await anext(self._stream, None)
