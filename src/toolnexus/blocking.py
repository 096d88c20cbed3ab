"""The same client for callers without an event loop: everything runs on one background loop."""

from __future__ import annotations

import asyncio
import functools
import os
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

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
        return run(method(self, *args, **kwargs))

    return call


def run(work: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine on the background loop and wait for it. Ctrl-C cancels it and waits for its end."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        work.close()
        raise ConfigurationError(
            "An event loop is running in this thread, and a blocking call would stop it. "
            "Await the form without `_sync` instead."
        )
    done = asyncio.run_coroutine_threadsafe(work, _loop())
    try:
        return done.result()
    except KeyboardInterrupt:
        ended = threading.Event()
        done.add_done_callback(lambda _: ended.set())
        done.cancel()
        ended.wait(_STOPPING)
        raise


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
        event = run(self._next())
        if event is None:
            raise StopIteration
        return event

    def close(self) -> None:
        """End the run if it has not ended: socket closed, turn ended."""
        run(self._stream.aclose())

    async def _next(self) -> Event | None:
        return await anext(self._stream, None)
