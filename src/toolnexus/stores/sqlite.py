"""Conversations in one SQLite file, which any number of processes may use at once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from toolnexus import _json
from toolnexus.errors import ConversationConflict, CorruptConversation, StoreError
from toolnexus.messages import Message, clean_text, text_of

_T = TypeVar("_T")

_SCHEMA = 1
# A save replaces the row, so it takes a new revision. AUTOINCREMENT never gives one out twice, so a conversation that
# was deleted and made again cannot be taken for the old one. The order of revisions is the order of saves.
_CREATE = """
CREATE TABLE conversations (
    revision INTEGER PRIMARY KEY AUTOINCREMENT,
    id BLOB NOT NULL UNIQUE,
    updated REAL NOT NULL,
    messages INTEGER NOT NULL,
    preview TEXT NOT NULL,
    body BLOB NOT NULL
)
"""
_BUSY = 10.0
"""Seconds to wait for another process's write."""
_PREVIEW = 80

_creating = threading.Lock()
_inherited: list[sqlite3.Connection] = []
"""Connections of a parent process. SQLite forbids to use them after a fork, and to close them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationSummary:
    """What a list shows of a conversation.

    Attributes:
        updated: When it was last saved, in UTC.
        messages: How many messages it has.
        preview: The beginning of its first prompt, on one line. Empty: it has none.
    """

    id: str
    updated: datetime
    messages: int
    preview: str


# The store has a method called `list`, which hides the type inside the class.
_Messages: TypeAlias = list[Message]
_Summaries: TypeAlias = list[ConversationSummary]


class SQLiteStore:
    """Keeps conversations in the file at `path`, which is made on first use, for the owner's eyes only (mode 0600).

    A `save` after a `get` by the same object is refused when somebody else saved in between. A `save` without a `get`
    replaces whatever is there. The object may be made before there is an event loop, and used from several threads and
    loops, and after a fork; the file is read and written in one worker thread of its own. Call `aclose` when done.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()
        self._closed = False
        self._start()

    def _start(self) -> None:
        """Begin anew, in this process."""
        self._process = os.getpid()
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="toolnexus-sqlite")
        self._connection: sqlite3.Connection | None = None
        self._seen: dict[str, int] = {}  # id to the revision that `get` found; 0: there was none

    async def get(self, id: str) -> _Messages | None:
        """Return the conversation's messages, oldest first; None for an id never seen.

        Raises:
            CorruptConversation: What is stored cannot be read.
            StoreError: The file cannot be read.
        """
        return await self._do("read", id, lambda connection: self._get(connection, id))

    async def save(self, id: str, messages: _Messages) -> None:
        """Replace the conversation's messages, durably.

        Raises:
            ConversationConflict: Somebody else saved since this object's `get`. Nothing was stored.
            ValueError: A value is no JSON, such as NaN. Its place is named, and nothing is stored.
            StoreError: The file cannot be written.
        """
        body = _json.strict_dumps(messages)
        row = (time.time(), len(messages), _preview(messages), body)
        await self._do("saved", id, lambda connection: self._save(connection, id, row))

    async def list(self, *, limit: int = 100) -> _Summaries:
        """The `limit` conversations that were saved last, newest first.

        Raises:
            StoreError: The file cannot be read.
        """
        return await self._do("listed", None, lambda connection: _list(connection, limit))

    async def delete(self, id: str) -> bool:
        """Forget a conversation. Returns whether there was one.

        Raises:
            StoreError: The file cannot be written.
        """
        return await self._do("deleted", id, lambda connection: self._delete(connection, id))

    async def aclose(self) -> None:
        """Close the file. May be called more than once; anything else afterwards is a `StoreError`."""
        if not self._closed:
            self._leave_parent()
            self._closed = True
            await _settled(self._worker.submit(self._disconnect))
            self._worker.shutdown(wait=False)

    async def _do(self, what: str, conversation_id: str | None, work: Callable[[sqlite3.Connection], _T]) -> _T:
        if self._closed:
            raise StoreError(f"The store {str(self.path)!r} is closed.", conversation_id=conversation_id)
        self._leave_parent()
        return await _settled(self._worker.submit(self._translated, what, conversation_id, work))

    def _leave_parent(self) -> None:
        """After a fork, which takes no thread along, have a worker and a connection of our own."""
        if self._process != os.getpid():
            if self._connection is not None:
                _inherited.append(self._connection)
            self._start()

    # What follows runs in the worker thread.

    def _translated(self, what: str, conversation_id: str | None, work: Callable[[sqlite3.Connection], _T]) -> _T:
        try:
            if self._connection is None:
                self._connection = _open(self.path)
            return work(self._connection)
        except (sqlite3.Error, OSError) as error:
            subject = "Conversations" if conversation_id is None else f"Conversation {conversation_id!r}"
            raise StoreError(
                f"{subject} could not be {what} in {str(self.path)!r}: {error}.", conversation_id=conversation_id
            ) from error

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _get(self, connection: sqlite3.Connection, conversation_id: str) -> _Messages | None:
        query = "SELECT revision, body FROM conversations WHERE id = ?"
        row = connection.execute(query, (_key(conversation_id),)).fetchone()
        self._seen[conversation_id] = 0 if row is None else row[0]
        return None if row is None else _messages(conversation_id, row[1])

    def _save(self, connection: sqlite3.Connection, conversation_id: str, row: tuple[Any, ...]) -> None:
        expected = self._seen.pop(conversation_id, None)
        key = _key(conversation_id)
        with _Transaction(connection):
            found = connection.execute("SELECT revision FROM conversations WHERE id = ?", (key,)).fetchone()
            actual = 0 if found is None else found[0]
            if expected is not None and expected != actual:
                raise ConversationConflict(conversation_id, expected=expected, actual=actual)
            connection.execute(
                "REPLACE INTO conversations (id, updated, messages, preview, body) VALUES (?, ?, ?, ?, ?)", (key, *row)
            )

    def _delete(self, connection: sqlite3.Connection, conversation_id: str) -> bool:
        self._seen.pop(conversation_id, None)
        with _Transaction(connection):
            return connection.execute("DELETE FROM conversations WHERE id = ?", (_key(conversation_id),)).rowcount > 0


class _Transaction:
    """Takes the write lock at once, so that what is read inside cannot be out of date when it is written."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: object) -> None:
        try:
            if kind is None:
                self._connection.execute("COMMIT")
        finally:
            if self._connection.in_transaction:  # also when COMMIT failed
                self._connection.execute("ROLLBACK")


def _open(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Closing a file drops this process's locks on it, so nobody here may open the database between the two calls.
    # One that is there keeps the mode that its owner gave it.
    with _creating, contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    connection = sqlite3.connect(path, timeout=_BUSY, isolation_level=None)
    try:
        _prepare(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    _check_version(connection, path)
    _use_wal(connection)
    connection.execute("PRAGMA synchronous=FULL")
    if _version(connection) == 0:
        with _Transaction(connection):
            if _version(connection) == 0:
                connection.execute(_CREATE)
                connection.execute(f"PRAGMA user_version={_SCHEMA}")
    _check_version(connection, path)


def _version(connection: sqlite3.Connection) -> int:
    return connection.execute("PRAGMA user_version").fetchone()[0]


def _check_version(connection: sqlite3.Connection, path: Path) -> None:
    if (version := _version(connection)) > _SCHEMA:
        raise StoreError(
            f"{str(path)!r} has version {version}, and this toolnexus reads versions up to {_SCHEMA}. "
            "Upgrade toolnexus, or use another file."
        )


def _use_wal(connection: sqlite3.Connection) -> None:
    """Switch to write-ahead logging. SQLite does not wait for other connections here, so we do."""
    end = time.monotonic() + _BUSY
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise
            time.sleep(0.01)
        else:
            return


def _list(connection: sqlite3.Connection, limit: int) -> list[ConversationSummary]:
    query = "SELECT id, updated, messages, preview FROM conversations ORDER BY revision DESC LIMIT ?"
    rows = connection.execute(query, (min(max(limit, 0), sys.maxsize),))
    return [
        ConversationSummary(
            id=key.decode("utf-8", "surrogatepass"),
            updated=datetime.fromtimestamp(updated, UTC),
            messages=messages,
            preview=preview,
        )
        for key, updated, messages, preview in rows
    ]


def _key(conversation_id: str) -> bytes:
    """Bytes, because SQLite's text ends at NUL for some of its functions and cannot hold a lone surrogate."""
    return conversation_id.encode("utf-8", "surrogatepass")


def _messages(conversation_id: str, body: bytes) -> list[Message]:
    try:
        messages = _json.loads(body)
    except ValueError as error:
        raise _corrupt(conversation_id) from error
    if not isinstance(messages, list):
        raise _corrupt(conversation_id)
    return messages  # pyright: ignore[reportUnknownVariableType] - read by `normalise`, which checks it


def _corrupt(conversation_id: str) -> CorruptConversation:
    return CorruptConversation(
        f"What is stored as conversation {conversation_id!r} is not a list of messages. "
        "Restore it from a backup, or delete it.",
        conversation_id=conversation_id,
    )


def _preview(messages: Sequence[Message]) -> str:
    for message in messages:
        if message.get("role") == "user":
            text = " ".join(clean_text(text_of(message.get("content"))).split())
            return text if len(text) <= _PREVIEW else text[: _PREVIEW - 1] + "…"
    return ""


async def _settled(submitted: Any) -> Any:
    """Await to a known outcome, also when cancelled meanwhile; then be cancelled."""
    future = asyncio.wrap_future(submitted)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        await asyncio.wait([future])
        if not future.cancelled():
            future.exception()  # seen: the cancellation goes on in its place
        raise
