"""The line to a Redis server: one connection, one thread, and everything that waits goes in one round trip."""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias

from toolnexus.clock import Outcome
from toolnexus.errors import ConfigurationError, MissingExtra, StoreError, StoreTooNew
from toolnexus.stores.backend import SCHEMA
from toolnexus.stores.redis_scripts import LAYOUT, Script

try:
    import redis
    from redis.backoff import NoBackoff
    from redis.exceptions import NoScriptError
    from redis.retry import Retry
except ImportError as exc:
    raise MissingExtra("Redis stores", extra="redis") from exc

_CONNECTING = 5.0
"""Seconds that connecting may take, unless the URL says `socket_connect_timeout`."""
_ANSWERING = 5.0
"""Seconds that an answer may take, unless the URL says `socket_timeout`."""
_PAUSES = (0.0, 0.1, 0.4)
"""Seconds before the same is sent again when the connection was lost."""
_TOGETHER = 100
"""How many operations go in one round trip at most."""

Reply: TypeAlias = Any
"""What a script returned: integers, bytes and lists."""


class Call(NamedTuple):
    """A script to run. Running it twice with the same arguments must do no harm: that is how lost answers are met."""

    script: Script
    keys: Sequence[bytes]
    arguments: Sequence[bytes | str | int] = ()


class RedisLine:
    """Runs scripts on the server at `url`, from whatever thread or event loop, and after a fork.

    The client of redis-py for asyncio is bound to one loop, and costs as much as this with its thread.

    Args:
        layout: The key that says which version of our layout is there.
        auto_migrate: Whether a layout may be made.

    Raises:
        ConfigurationError: The URL cannot be read.
    """

    def __init__(self, url: str, *, layout: bytes, auto_migrate: bool) -> None:
        try:
            pool = redis.ConnectionPool.from_url(  # pyright: ignore[reportUnknownMemberType] - takes any option
                url, socket_connect_timeout=_CONNECTING, socket_timeout=_ANSWERING, retry=Retry(NoBackoff(), 0)
            )
        except (ValueError, TypeError):
            # From None: what could not be read may hold the password.
            raise ConfigurationError(
                "The Redis URL cannot be read. Write redis://host:6379/0, rediss:// for TLS, or unix:///path."
            ) from None
        pool.connection_kwargs["decode_responses"] = False  # bodies are bytes, whatever the URL says
        self._pool = pool
        self._layout = Call(LAYOUT, [layout], [SCHEMA, "1" if auto_migrate else "0"])
        self._place = _place(pool.connection_kwargs)
        self._closed = False
        self._worker = _Worker(pool, self._layout)

    async def run(
        self,
        *calls: Call,
        conversation_id: str | None = None,
        settles: bool = False,
        then: Callable[[list[Reply]], Call | None] | None = None,
    ) -> list[Reply]:
        """Run scripts in this order, in one round trip, though not in one transaction.

        Args:
            settles: Run to a known outcome when cancelled.
            then: What else to run, given the replies. Nobody is told whether that failed.

        Raises:
            StoreError: The server was not reached, or refused. Some of the calls may have been run.
            StoreTooNew: It has a newer layout.
        """
        if self._closed:
            raise StoreError(f"The store at {self._place} is closed.", conversation_id=conversation_id)
        if self._worker.process != os.getpid():  # a fork takes no thread along
            self._worker = _Worker(self._pool, self._layout)
        try:
            return await self._worker.submit(_Task(calls, then, settles=settles))
        except _OtherLayout as error:
            raise _refusal(error.found, self._place, conversation_id) from error
        except redis.RedisError as error:
            raise StoreError(
                f"Redis at {self._place} failed: {type(error).__name__}: {error}", conversation_id=conversation_id
            ) from error

    async def aclose(self) -> None:
        """Close the connection when what waits is done. May be called more than once."""
        if not self._closed:
            self._closed = True
            if self._worker.process == os.getpid():
                await asyncio.wrap_future(self._worker.close())


class _Task:
    """Calls that go together, for an event loop that waits for their replies."""

    __slots__ = ("_loop", "calls", "outcome", "then")

    def __init__(
        self, calls: Sequence[Call], then: Callable[[list[Reply]], Call | None] | None, *, settles: bool
    ) -> None:
        self.calls = calls
        self.then = then
        self._loop = asyncio.get_running_loop()
        self.outcome: asyncio.Future[list[Reply]]
        self.outcome = Outcome(loop=self._loop) if settles else self._loop.create_future()

    def answer(self, outcome: list[Reply] | BaseException) -> None:
        """Tell who waits, from the thread."""
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._tell, outcome)

    def _tell(self, outcome: list[Reply] | BaseException) -> None:
        if self.outcome.done():
            return
        if isinstance(outcome, BaseException):
            self.outcome.set_exception(outcome)
        else:
            self.outcome.set_result(outcome)


class _OtherLayout(Exception):
    """There is another layout than ours."""

    def __init__(self, found: bytes) -> None:
        super().__init__(f"found version {found!r}")
        self.found = found


class _Worker:
    """One thread of one process, with its connection."""

    def __init__(self, pool: redis.ConnectionPool, layout: Call) -> None:
        self.process = os.getpid()
        self._pool = pool
        self._layout = layout
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="toolnexus-redis")
        self._waiting = deque[_Task]()
        self._connection: Any = None

    def submit(self, task: _Task) -> asyncio.Future[list[Reply]]:
        self._waiting.append(task)
        self._thread.submit(self._take)
        return task.outcome

    def close(self) -> Future[None]:
        closed = self._thread.submit(self._disconnect)
        self._thread.shutdown(wait=False)
        return closed

    # What follows runs in the thread.

    def _take(self) -> None:
        """Do what waits. Every submission comes here once, so what is over the bound is taken the next time."""
        tasks: list[_Task] = []
        while self._waiting and len(tasks) < _TOGETHER:
            task = self._waiting.popleft()
            if not task.outcome.cancelled():
                tasks.append(task)
        if not tasks:
            return
        try:
            replies = iter(self._run([call for task in tasks for call in task.calls]))
        except BaseException as error:  # noqa: BLE001 - handed to those who wait
            for task in tasks:
                task.answer(error)
            return
        for task in tasks:
            answered = [next(replies) for _ in task.calls]
            refused = next((reply for reply in answered if isinstance(reply, Exception)), None)
            if refused is None and task.then is not None and (call := task.then(answered)) is not None:
                with suppress(Exception):  # the outcome of the calls is known, and others wait for theirs
                    self._run([call])
            task.answer(refused or answered)

    def _run(self, calls: Sequence[Call]) -> list[Reply]:
        """The replies, errors of the server among them. When the connection is lost, all is sent again."""
        for pause in (*_PAUSES, None):
            try:
                return self._exchange(calls)
            except redis.AuthenticationError:
                self._disconnect()
                raise
            except redis.ConnectionError:
                self._disconnect()
                if pause is None:
                    raise
                time.sleep(pause)
            except BaseException:
                self._disconnect()  # the rest of the replies must not be taken for those of the next calls
                raise
        raise AssertionError("the last attempt returns or raises")

    def _exchange(self, calls: Sequence[Call]) -> list[Reply]:
        if self._connection is None:
            # Not `make_connection`, which counts and refuses the hundredth: each follows a lost one.
            self._connection = self._pool.connection_class(**self._pool.connection_kwargs)
            [found] = self._send([self._layout])
            if isinstance(found, Exception):
                raise found
            if int(found) != SCHEMA:
                raise _OtherLayout(found)
        replies = self._send(calls)
        if any(isinstance(reply, redis.ReadOnlyError) for reply in replies):
            self._disconnect()  # it is a replica now; the name may lead to the new primary
        return replies

    def _send(self, calls: Sequence[Call]) -> list[Reply]:
        replies = self._talk([_command(call, b"EVALSHA", call.script.sha) for call in calls])
        unknown = [number for number, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
        if unknown:
            commands = [_command(calls[number], b"EVAL", calls[number].script.text) for number in unknown]
            for number, reply in zip(unknown, self._talk(commands), strict=True):
                replies[number] = reply
        return replies

    def _talk(self, commands: Sequence[bytes]) -> list[Reply]:
        connection = self._connection
        connection.send_packed_command([b"".join(commands)], check_health=False)
        return [_reply(connection) for _ in commands]

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.disconnect()
            self._connection = None


def _command(call: Call, name: bytes, script: str) -> bytes:
    """A command as the server reads it: an array of byte strings. redis-py takes twice as long to say it."""
    words = (name, script, len(call.keys), *call.keys, *call.arguments)
    said = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n%b" % (len(said), b"".join([b"$%d\r\n%b\r\n" % (len(word), word) for word in said]))


def _reply(connection: Any) -> Reply:
    try:
        return connection.read_response()
    except redis.ResponseError as error:
        return error


def _refusal(found: bytes, place: str, conversation_id: str | None) -> StoreError:
    if found == b"0":
        return StoreError(
            f"Redis at {place} holds no conversations yet, and auto_migrate=False forbids to begin. "
            "Use the store once with auto_migrate=True.",
            conversation_id=conversation_id,
        )
    return StoreTooNew(
        f"Redis at {place} holds conversations in layout {found.decode(errors='replace')}; this toolnexus knows "
        f"layout {SCHEMA}. Update toolnexus, or use another prefix.",
        conversation_id=conversation_id,
    )


def _place(options: dict[str, Any]) -> str:
    """Where the server is, without who asks."""
    where = options.get("path") or f"{options.get('host', 'localhost')}:{options.get('port', 6379)}"
    return f"{where}/{options.get('db', 0)}"
