"""Threads that use a SQLite file for event loops: one that reads, and one that writes all that waits in one commit."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from toolnexus.clock import Outcome, settled
from toolnexus.errors import CorruptConversation, StoreError, ToolnexusError

if TYPE_CHECKING:
    from toolnexus.stores.sqlite_file import Connection

_T = TypeVar("_T")

_inherited: list[Connection] = []
"""Connections of a parent process. SQLite forbids to use them after a fork, and to close them."""


class Job(Generic[_T]):
    """Something to do with the file, for an event loop that waits for what comes of it.

    Args:
        what: What is done, for an error: "read", "deleted".
        conversation_id: None: it is about several conversations.
        work: Gets the connection of the thread. Raises a `ToolnexusError` only before it writes anything.
    """

    __slots__ = ("conversation_id", "error", "future", "loop", "result", "what", "work")

    def __init__(self, what: str, conversation_id: str | None, work: Callable[[Connection], _T]) -> None:
        self.what = what
        self.conversation_id = conversation_id
        self.work = work
        self.loop = asyncio.get_running_loop()
        self.future: Outcome[_T] = Outcome(loop=self.loop)
        self.result: _T | None = None
        self.error: Exception | None = None

    def do(self, connection: Connection) -> None:
        """Do it. What the file's state forbids is an outcome too."""
        self.result = self.error = None
        try:
            self.result = self.work(connection)
        except ToolnexusError as error:
            self.error = error

    def fail(self, error: Exception, path: str) -> None:
        """Fail with an error of the file, in our words."""
        self.error = error
        if isinstance(error, (sqlite3.Error, OSError)):
            self.error = _translated(error, f"{self.what} in {path!r}", self.conversation_id)

    def answer(self) -> None:
        """Tell who waits. On the event loop."""
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)  # pyright: ignore[reportArgumentType] - it is there: there is no error


class Worker:
    """A thread with a connection of its own, both made for the first job. The process may end without waiting for it.

    Attributes:
        connection: None: it is not open.
    """

    def __init__(self, name: str, path: str, connect: Callable[[], Connection]) -> None:
        self.connection: Connection | None = None
        self.path = path
        self._name = name
        self._connect = connect
        self._queue: SimpleQueue[Job[Any] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._stopped = False
        self._ended: Future[None] | None = None  # None: the thread has not been started

    async def run(self, job: Job[_T]) -> _T:
        """Have a job done, to a known outcome also when we are cancelled meanwhile.

        Raises:
            StoreError: The worker was stopped, or the file's own error.
        """
        with self._lock:
            if self._stopped:
                raise StoreError(f"The store {self.path!r} is closed.", conversation_id=job.conversation_id)
            if self._ended is None:
                self._ended = Future()
                self._ended.set_running_or_notify_cancel()
                threading.Thread(target=self._serve, args=(self._ended,), name=self._name, daemon=True).start()
            self._queue.put(job)
        return await job.future

    def stop(self) -> None:
        """Close the connection and end the thread when all that waits is done."""
        with self._lock:
            self._stopped = True
            self._queue.put(None)

    async def aclose(self) -> None:
        """`stop`, and wait for it."""
        self.stop()
        if self._ended is not None:
            await settled(asyncio.wrap_future(self._ended))

    def leave_behind(self) -> None:
        """In the child of a fork: leave the connection alone from now on."""
        if self.connection is not None:
            _inherited.append(self.connection)

    def do(self, jobs: Sequence[Job[Any]]) -> None:
        """Do these jobs, one after the other."""
        for job in jobs:
            try:
                job.do(self.connected())
            except Exception as error:  # noqa: BLE001 - who waits is told, and the thread serves the others
                job.fail(error, self.path)

    def connected(self) -> Connection:
        """The connection, opened if it is not."""
        if self.connection is None:
            self.connection = self._connect()
        return self.connection

    def disconnect(self) -> None:
        """Close the connection, so that the next job opens another one."""
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def _serve(self, ended: Future[None]) -> None:
        try:
            while self._serve_once():
                pass
            self.disconnect()
        finally:
            ended.set_result(None)

    def _serve_once(self) -> bool:
        """Do all that waits, and hold on to nothing of it afterwards. False: it was the last."""
        waiting = [self._queue.get()]
        while not self._queue.empty():
            waiting.append(self._queue.get_nowait())
        jobs = [job for job in waiting if job is not None and not job.future.cancelled()]
        if jobs:
            self.do(jobs)
            _answer(jobs)
        return None not in waiting


class Writer(Worker):
    """Writes all that waits in one transaction.

    Attributes:
        commits: How many transactions changed something.
    """

    commits = 0

    def do(self, jobs: Sequence[Job[Any]]) -> None:
        """Do these jobs in one transaction; if that fails, each in its own, so that none fails for another."""
        try:
            connection = self.connected()
            connection.execute("BEGIN IMMEDIATE")
        except Exception as error:  # noqa: BLE001 - who waits is told, and the thread serves the others
            for job in jobs:
                job.fail(error, self.path)
            return
        before = connection.total_changes
        try:
            for job in jobs:
                job.do(connection)
            connection.execute("COMMIT")
            self.commits += connection.total_changes != before
        except Exception as error:  # noqa: BLE001 - the same
            self._undo(connection)
            if len(jobs) == 1:
                jobs[0].fail(error, self.path)
            else:
                for job in jobs:
                    self.do([job])

    def _undo(self, connection: Connection) -> None:
        try:
            if connection.in_transaction:  # not if SQLite has rolled back by itself
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            self.disconnect()


def _answer(jobs: Sequence[Job[Any]]) -> None:
    """Wake each event loop once."""
    loops: dict[asyncio.AbstractEventLoop, list[Job[Any]]] = {}
    for job in jobs:
        loops.setdefault(job.loop, []).append(job)
    for loop, done in loops.items():
        with contextlib.suppress(RuntimeError):  # it is closed: nobody waits any more
            loop.call_soon_threadsafe(_answer_all, done)


def _answer_all(jobs: Sequence[Job[Any]]) -> None:
    for job in jobs:
        job.answer()


def _translated(error: Exception, what: str, conversation_id: str | None) -> StoreError:
    subject = "Conversations" if conversation_id is None else f"Conversation {conversation_id!r}"
    # Errors of Python's own binding have no code.
    corrupt = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_CORRUPT
    kind = CorruptConversation if corrupt else StoreError
    translated = kind(f"{subject} could not be {what}: {error}.", conversation_id=conversation_id)
    translated.__cause__ = error
    return translated
