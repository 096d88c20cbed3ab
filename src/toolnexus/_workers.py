"""Runs plain functions in daemon threads of our own and hands their results back to the event loop that asked."""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

_P = ParamSpec("_P")
_R = TypeVar("_R")

_WAITING, _RUNNING, _DONE, _ABANDONED = range(4)


class ForeignExit(Exception):
    """A function raised what is no ordinary error (`SystemExit`, `StopIteration`, …). That is the cause."""


class _Inbox:
    """The finished jobs of one event loop. However many there are, one wake-up delivers them."""

    __slots__ = ("_finished", "_woken")

    def __init__(self) -> None:
        self._finished: deque[_Job] = deque()
        self._woken = False

    def put(self, job: _Job) -> None:
        """Called in a worker."""
        self._finished.append(job)
        if not self._woken:
            self._woken = True
            try:
                job.loop.call_soon_threadsafe(self._deliver)
            except RuntimeError:  # the loop was closed: nobody waits any more
                self._finished.clear()

    def _deliver(self) -> None:
        # First the flag, then the queue: a job that comes in between costs a wake-up too many, but is never lost.
        self._woken = False
        while self._finished:
            self._finished.popleft().deliver()


class _Job:
    """One call of a function, and the future that waits for it."""

    __slots__ = ("_arguments", "_context", "_error", "_function", "_inbox", "_value", "future", "loop", "state")

    def __init__(self, function: Callable[..., Any], arguments: Any, inbox: _Inbox) -> None:
        self._function = function
        self._arguments: tuple[tuple[Any, ...], dict[str, Any]] = arguments
        self._context: Context = copy_context()
        self._inbox = inbox
        self._value: Any = None
        self._error: Exception | None = None
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()
        self.state = _WAITING

    def run(self) -> None:
        positional, named = self._arguments
        try:
            self._value = self._context.run(self._function, *positional, **named)
        except BaseException as error:  # noqa: BLE001 - the caller is told, and the worker lives on
            self._error = _as_ordinary(error)

    def post(self) -> None:
        """Send the outcome to the loop that waits for it."""
        self._inbox.put(self)

    def deliver(self) -> None:
        if self.future.done():
            return
        if self._error is None:
            self.future.set_result(self._value)
        else:
            self.future.set_exception(self._error)


def _as_ordinary(error: BaseException) -> Exception:
    """`error`, or what stands for it where a future cannot carry it or would end a loop by it."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    exit_ = ForeignExit()
    exit_.__cause__ = error
    return exit_


class Workers:
    """A pool of threads that start when they are needed, at most `limit` that are of use.

    A thread whose caller has gone (a timeout, a cancellation) is written off: it counts no longer, so another may
    start in its place, and it rejoins when its function comes back. The threads are daemons: a function that hangs
    does not keep the process from ending.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._inboxes: WeakKeyDictionary[asyncio.AbstractEventLoop, _Inbox] = WeakKeyDictionary()
        self.reset()

    def reset(self) -> None:
        """Forget all threads, as after a fork, which does not take them along."""
        self._lock = threading.Lock()
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._useful = 0
        self._spare = 0  # threads that are free, less jobs that wait for one
        self._inboxes.clear()

    async def run(self, function: Callable[_P, _R], /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        """Call `function` in a thread, in a copy of this context, and return what it returns.

        Cancelling this does not stop the function; its outcome is then dropped.

        Raises:
            ForeignExit: The function raised something that is no ordinary error.
        """
        loop = asyncio.get_running_loop()
        inbox = self._inboxes.get(loop)
        if inbox is None:
            inbox = self._inboxes[loop] = _Inbox()
        job = _Job(function, (args, kwargs), inbox)
        with self._lock:
            self._spare -= 1
            self._start_if_needed()
        self._jobs.put(job)
        try:
            return await job.future
        finally:
            if job.future.cancelled():
                self._abandon(job)

    def _start_if_needed(self) -> None:
        if self._spare < 0 and self._useful < self._limit:
            threading.Thread(target=self._work, name="toolnexus-worker", daemon=True).start()
            self._useful += 1
            self._spare += 1

    def _abandon(self, job: _Job) -> None:
        with self._lock:
            if job.state == _RUNNING:
                self._useful -= 1
                self._start_if_needed()
            if job.state != _DONE:
                job.state = _ABANDONED

    def _work(self) -> None:
        while self._work_once():
            pass

    def _work_once(self) -> bool:
        """Do one job, holding on to nothing of it afterwards. False: this thread is not needed any more."""
        job = self._jobs.get()
        with self._lock:
            if job.state == _ABANDONED:
                self._spare += 1
                return True
            job.state = _RUNNING
        job.run()
        with self._lock:
            if job.state == _ABANDONED:
                if self._useful >= self._limit:
                    return False
                self._useful += 1
                self._spare += 1
                return True
            job.state = _DONE
            self._spare += 1
        job.post()  # only now, so that a caller who comes straight back finds this thread free
        return True


_workers = Workers(limit=32)
run = _workers.run
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_workers.reset)
