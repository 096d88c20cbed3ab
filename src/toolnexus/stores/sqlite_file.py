"""Opening a store's SQLite file: its mode, its journal, the layout of its tables."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from typing import TYPE_CHECKING, Any

from toolnexus.errors import StoreError, StoreTooNew
from toolnexus.stores.backend import SCHEMA
from toolnexus.stores.words import words

if TYPE_CHECKING:
    from pathlib import Path

BUSY = 10.0
"""Seconds to wait for another process's write."""

_APPLICATION = 0x746E786C  # "tnxl", in the header of the file: what made it

# `conv` is the incarnation: AUTOINCREMENT never gives a number out twice. `changed` orders a list, and is 0 as long as
# there is no head. A lease without a token was given back; its fence stays. `named` has the words of the title.
# `since` is the first row of `record` whose words can be searched.
#
# A row of `record` carries what its append added to what can be searched, because rows of a table of their own would
# cost two more pages: a text as bytes until it is indexed, then its words as text. One without a number carries that
# alone. A surrogate key and an index write half of what a table clustered by (conv, seq) does. `said` is the last
# column, so that reading a body does not pass over it.
_LAYOUT = (
    """
    CREATE TABLE conversation (
        conv INTEGER PRIMARY KEY AUTOINCREMENT,
        scope BLOB NOT NULL,
        id BLOB NOT NULL,
        changed INTEGER NOT NULL,
        fence INTEGER NOT NULL,
        token TEXT,
        process TEXT,
        boot TEXT,
        expires REAL,
        title TEXT,
        named TEXT NOT NULL DEFAULT '',
        updated REAL NOT NULL DEFAULT 0,
        messages INTEGER NOT NULL DEFAULT 0,
        status TEXT NOT NULL DEFAULT '',
        preview TEXT NOT NULL DEFAULT '',
        since INTEGER NOT NULL DEFAULT 0,
        UNIQUE (scope, id)
    )
    """,
    "CREATE INDEX listed ON conversation (scope, changed)",
    """
    CREATE TABLE record (
        n INTEGER PRIMARY KEY,
        conv INTEGER NOT NULL,
        seq INTEGER,
        body BLOB,
        said,
        UNIQUE (conv, seq)
    )
    """,
    f"PRAGMA application_id={_APPLICATION}",
    f"PRAGMA user_version={SCHEMA}",
)

_creating = threading.Lock()


class Connection(sqlite3.Connection):
    """Counts its statements."""

    statements = 0

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        self.statements += 1
        return super().execute(sql, parameters)


def connect(path: Path, *, auto_migrate: bool) -> Connection:
    """Open the file, which is made if there is none, for the owner's eyes only.

    Args:
        auto_migrate: Whether tables may be made.

    Raises:
        StoreTooNew: A newer toolnexus made the file. It was not changed.
        StoreError: It is of another program, or has no tables and may not get any. It was not changed.
        sqlite3.Error, OSError: It cannot be opened.
    """
    if auto_migrate:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Closing a file drops this process's locks on it, so nobody here may open the database between the two calls.
        # One that is there keeps the mode that its owner gave it.
        with _creating, contextlib.suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    elif not path.exists():
        raise _no_tables(path)
    connection = sqlite3.connect(path, timeout=BUSY, isolation_level=None, check_same_thread=False, factory=Connection)
    try:
        _prepare(connection, path, auto_migrate=auto_migrate)
    except BaseException:
        connection.close()
        raise
    return connection


def has_full_text_search(connection: Connection) -> bool:
    """Whether this SQLite was built with FTS5."""
    return bool(connection.execute("SELECT sqlite_compileoption_used('ENABLE_FTS5')").fetchone()[0])


def _prepare(connection: Connection, path: Path, *, auto_migrate: bool) -> None:
    if not _is_laid_out(connection, path):
        if not auto_migrate:
            raise _no_tables(path)
        _use_wal(connection)
        connection.execute("BEGIN IMMEDIATE")
        if not _is_laid_out(connection, path):  # nobody else did it meanwhile
            for statement in _LAYOUT:
                connection.execute(statement)
        connection.execute("COMMIT")
    _use_wal(connection)
    connection.execute("PRAGMA synchronous=FULL")
    connection.create_function("words", 1, _words, deterministic=True)


def _words(said: bytes | str) -> str:
    """The words of what was said, between blanks. Of those that were found before: the same."""
    return said if isinstance(said, str) else " ".join(words(said.decode("utf-8", "surrogatepass")))


def _is_laid_out(connection: Connection, path: Path) -> bool:
    """Whether the tables are there. False: there are no tables at all."""
    version, application, tables = connection.execute(
        "SELECT user_version, application_id, (SELECT count(*) FROM sqlite_master) "
        "FROM pragma_user_version, pragma_application_id"
    ).fetchone()
    if version > SCHEMA:
        raise StoreTooNew(
            f"{str(path)!r} has version {version}, and this toolnexus reads versions up to {SCHEMA}. "
            "Upgrade toolnexus, or use another file."
        )
    if application == _APPLICATION and version == SCHEMA:
        return True
    if tables or application or version:
        raise StoreError(
            f"{str(path)!r} is a database of another program, or of a toolnexus that kept no log of its conversations. "
            "It was not changed. Move it away, or use another file."
        )
    return False


def _use_wal(connection: Connection) -> None:
    """Switch to write-ahead logging. SQLite does not wait for other connections here, so we do."""
    end = time.monotonic() + BUSY
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise
            time.sleep(0.01)
        else:
            return


def _no_tables(path: Path) -> StoreError:
    return StoreError(
        f"{str(path)!r} has no conversations yet, and auto_migrate=False forbids to make the tables for them. "
        "Open it once without, or use another file."
    )
