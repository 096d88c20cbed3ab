"""Connections of a driver that blocks while it waits: each in a thread of its own, for callers on any event loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Generic, TypeAlias, TypeVar

from toolnexus.clock import settled
from toolnexus.errors import StoreError

_C = TypeVar("_C")
_T = TypeVar("_T")

_IDLE = 60.0
"""Seconds without work after which a thread closes its connection and ends."""
_PATIENCE = 30.0
"""Seconds that a caller waits for an outcome."""
_CLOSING = 5.0
"""Seconds that closing waits for what still runs."""


class Seat(Generic[_C]):
    """A thread's place for a connection, which is opened when it is needed."""

    def __init__(self, open: Callable[[], _C], close: Callable[[_C], None]) -> None:
        self._open = open
        self._close = close
        self._connection: _C | None = None

    def take(self) -> _C:
        """The connection. Whatever opening it raises goes to the caller."""
        if self._connection is None:
            self._connection = self._open()
        return self._connection

    def drop(self) -> None:
        """Close the connection; the next `take` opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._close(connection)


_Job: TypeAlias = tuple["asyncio.Future[Any]", Callable[[Seat[Any]], Any]]
"""Work, and who waits for it: a future of the caller's own loop."""


class Connections(Generic[_C]):
    """At most `size` connections. A job goes to whichever is free, and the first that waits is the first to go.

    It may be made before there is an event loop, used from several loops and threads, and after a fork, which takes
    neither threads nor connections along. The threads are daemons: a server that does not answer keeps no process from
    ending.

    Args:
        open: Opens a connection. Called in the thread that will use it.
        close: Closes one, in the same thread. It must not raise.
        size: How many at most.
    """

    def __init__(self, open: Callable[[], _C], close: Callable[[_C], None], *, size: int) -> None:
        self._open = open
        self._close = close
        self._size = size
        self._closed = False
        self._start()

    async def run(self, work: Callable[[Seat[_C]], _T]) -> _T:
        """Call `work` in a thread with a connection. Runs to a known outcome when cancelled.

        Raises:
            StoreError: There was no answer in time, and what happened is unknown; or all is closed.
        """
        outcome = self._submit(work)
        scope = asyncio.timeout(_PATIENCE)
        try:
            async with scope:
                return await settled(outcome)
        except TimeoutError as error:
            if not scope.expired():
                raise
            raise StoreError(f"The store's server did not answer within {_PATIENCE:g} s.") from error

    async def aclose(self) -> None:
        """Finish what was asked for, and close. May be called more than once."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            ended = list(self._ended) if self._process == os.getpid() else []
            for _ in ended:
                self._jobs.put(None)
        if ended:
            await asyncio.wait([asyncio.wrap_future(each) for each in ended], timeout=_CLOSING)

    def _start(self) -> None:
        """Begin anew, in this process."""
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._ended: set[Future[None]] = set()  # of the threads that run
        self._free = 0  # threads that wait, less jobs that wait for one

    def _submit(self, work: Callable[[Seat[_C]], _T]) -> asyncio.Future[_T]:
        if self._process != os.getpid():
            self._start()
        future: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
        with self._lock:
            if self._closed:
                raise StoreError("The store is closed.")
            if self._free <= 0 and len(self._ended) < self._size:
                ended: Future[None] = Future()
                threading.Thread(target=self._work, args=(ended,), name="toolnexus-store", daemon=True).start()
                self._ended.add(ended)
                self._free += 1
            self._free -= 1
            self._jobs.put((future, work))
        return future

    def _work(self, ended: Future[None]) -> None:
        seat = Seat(self._open, self._close)
        try:
            while self._work_once(seat, ended):
                pass
            seat.drop()
        finally:
            ended.set_result(None)

    def _work_once(self, seat: Seat[_C], ended: Future[None]) -> bool:
        """Do one job, holding on to nothing of it afterwards. False: this thread is not needed any more."""
        try:
            job = self._jobs.get(timeout=_IDLE)
        except queue.Empty:
            with self._lock:
                if self._free <= 0:
                    return True  # a job came just now, and counts on us
                self._free -= 1
                self._ended.discard(ended)
                return False
        if job is None:
            return False
        future, work = job
        outcome: Any = None
        error: BaseException | None = None
        if wanted := not future.cancelled():
            try:
                outcome = work(seat)
            except BaseException as raised:  # noqa: BLE001 - the caller is told, and the thread lives on
                error = raised
        with self._lock:
            self._free += 1  # first, so that a caller who comes straight back finds this thread free
        if wanted:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                future.get_loop().call_soon_threadsafe(_tell, future, outcome, error)
        return True


def _tell(future: asyncio.Future[Any], outcome: Any, error: BaseException | None) -> None:
    """Tell the outcome to who waits for it, on their loop."""
    if future.done():
        return  # they gave up
    if error is None:
        future.set_result(outcome)
    else:
        future.set_exception(error)
