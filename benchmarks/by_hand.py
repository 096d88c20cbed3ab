"""The raw limit of a remembered turn: the same records, index and head row, written by hand with the same driver.

Nothing here checks a version, takes a lease, or survives a lost answer.
"""

from __future__ import annotations

import contextlib
import copy
import sqlite3
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import orjson

if TYPE_CHECKING:
    from pathlib import Path

Record = bytes


class ByHand(Protocol):
    """A store written by hand. Each call but `fetch` is one commit."""

    def create(self, records: Sequence[Record]) -> int:
        """A new conversation with these records."""
        ...

    def append(self, conversation: int, last: int, records: Sequence[Record], *, head: str) -> None:
        """Add records after the number `last`, and set the head row."""
        ...

    def fetch(self, conversation: int) -> list[Any]:
        """All records, decoded."""
        ...

    def remove(self, conversation: int) -> None: ...

    def close(self) -> None: ...


class SQLiteByHand:
    """One connection, for one thread at a time."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        for statement in (
            "PRAGMA journal_mode=WAL",
            "PRAGMA synchronous=FULL",
            "CREATE TABLE head (conv INTEGER PRIMARY KEY, id TEXT UNIQUE, changed INTEGER, preview TEXT, until REAL)",
            "CREATE INDEX listed ON head (changed)",
            "CREATE TABLE record (n INTEGER PRIMARY KEY, conv INTEGER, seq INTEGER, body BLOB, UNIQUE (conv, seq))",
        ):
            self._connection.execute(statement)
        self._changes = 0
        self._last = 0

    def create(self, records: Sequence[Record]) -> int:
        self._last += 1
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        execute("INSERT INTO head (conv, id, changed) VALUES (?, ?, 0)", (self._last, f"conversation {self._last}"))
        self._insert(self._last, 0, records)
        execute("COMMIT")
        return self._last

    def append(self, conversation: int, last: int, records: Sequence[Record], *, head: str) -> None:
        self._changes += 1
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        self._insert(conversation, last, records)
        execute(
            "UPDATE head SET changed = ?, preview = ?, until = ? WHERE conv = ?",
            (self._changes, head, 0.0, conversation),
        )
        execute("COMMIT")

    def _insert(self, conversation: int, last: int, records: Sequence[Record]) -> None:
        rows = [(conversation, last + place, body) for place, body in enumerate(records, 1)]
        self._connection.executemany("INSERT INTO record (conv, seq, body) VALUES (?, ?, ?)", rows)

    def fetch(self, conversation: int) -> list[Any]:
        rows = self._connection.execute("SELECT body FROM record WHERE conv = ? ORDER BY seq", (conversation,))
        return [orjson.loads(body) for (body,) in rows.fetchall()]

    def remove(self, conversation: int) -> None:
        self._connection.execute("DELETE FROM record WHERE conv = ?", (conversation,))

    def close(self) -> None:
        self._connection.close()


def checkpoint(*files: Path) -> None:
    """Move what SQLite has in its logs into the files themselves."""
    for file in files:
        with contextlib.closing(sqlite3.connect(file)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


class PostgresByHand:
    """One statement for each commit, in a schema of its own."""

    def __init__(self, dsn: str, schema: str) -> None:
        self._dsn = dsn
        self.connect()
        self._schema = schema
        self._last = 0
        columns = "conv bigint PRIMARY KEY, id bytea UNIQUE, changed bigint, preview bytea, until timestamptz"
        for statement in (
            f"CREATE SCHEMA {schema}",
            f"CREATE TABLE {schema}.head ({columns}) WITH (fillfactor = 50)",
            f"CREATE INDEX ON {schema}.head (changed)",
            f"CREATE SEQUENCE {schema}.change",
            f"CREATE TABLE {schema}.record (conv bigint, seq bigint, body bytea NOT NULL, PRIMARY KEY (conv, seq))",
        ):
            self._connection.execute(statement.encode())

    def create(self, records: Sequence[Record]) -> int:
        self._last += 1
        self._connection.execute(
            f"INSERT INTO {self._schema}.head (conv, id, changed) VALUES (%s, %s, 0)".encode(),
            (self._last, f"conversation {self._last}".encode()),
        )
        self.append(self._last, 0, records, head="")
        return self._last

    def append(self, conversation: int, last: int, records: Sequence[Record], *, head: str) -> None:
        self._connection.execute(
            f"""
            WITH set AS (
                UPDATE {self._schema}.head SET changed = nextval('{self._schema}.change'), preview = %(head)s,
                    until = clock_timestamp() WHERE conv = %(conv)s
            )
            INSERT INTO {self._schema}.record (conv, seq, body)
            SELECT %(conv)s, %(last)s + n, body FROM unnest(%(bodies)s::bytea[]) WITH ORDINALITY AS b(body, n)
            """.encode(),
            {"head": head.encode(), "conv": conversation, "last": last, "bodies": list(records)},
            binary=True,
        )

    def fetch(self, conversation: int) -> list[Any]:
        rows = self._connection.execute(
            f"SELECT body FROM {self._schema}.record WHERE conv = %s ORDER BY seq".encode(),
            (conversation,),
            binary=True,
        )
        return [orjson.loads(body) for (body,) in rows.fetchall()]

    def remove(self, conversation: int) -> None:
        self._connection.execute(f"DELETE FROM {self._schema}.record WHERE conv = %s".encode(), (conversation,))

    def another(self) -> PostgresByHand:
        """The same tables through another connection. Call `disconnect` when done."""
        other = copy.copy(self)
        other.connect()
        return other

    def written(self) -> int:
        """Where the server's log of changes stands, in bytes: what everybody has written."""
        row = self._connection.execute(b"SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint").fetchone()
        assert row is not None
        return row[0]

    def connect(self) -> None:
        import psycopg

        self._connection = psycopg.connect(self._dsn, autocommit=True, prepare_threshold=None)

    def disconnect(self) -> None:
        self._connection.close()

    def close(self) -> None:
        self._connection.execute(f"DROP SCHEMA {self._schema} CASCADE".encode())
        self._connection.close()


class RedisByHand:
    """One transaction of redis-py for each commit."""

    def __init__(self, url: str, prefix: str) -> None:
        import redis

        self._client: Any = redis.Redis.from_url(url)
        self._prefix = prefix
        self._last = 0
        self._changes = 0

    def create(self, records: Sequence[Record]) -> int:
        self._last += 1
        self.append(self._last, 0, records, head="")
        return self._last

    def append(self, conversation: int, last: int, records: Sequence[Record], *, head: str) -> None:
        del last
        self._changes += 1
        with self._client.pipeline(transaction=True) as pipe:
            pipe.rpush(f"{self._prefix}:{conversation}:log", *records)
            pipe.hset(f"{self._prefix}:{conversation}:head", mapping={"preview": head, "until": "0"})
            pipe.zadd(f"{self._prefix}:list", {str(conversation): self._changes})
            pipe.execute()

    def fetch(self, conversation: int) -> list[Any]:
        return [orjson.loads(body) for body in self._client.lrange(f"{self._prefix}:{conversation}:log", 0, -1)]

    def remove(self, conversation: int) -> None:
        self._client.delete(f"{self._prefix}:{conversation}:log", f"{self._prefix}:{conversation}:head")

    def close(self) -> None:
        self._client.delete(f"{self._prefix}:list")
        self._client.close()


class FileByHand:
    """A line for each record, in a file for each conversation; a head of fixed length in a file beside it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self._last = 0

    def create(self, records: Sequence[Record]) -> int:
        self._last += 1
        self.append(self._last, 0, records, head="")
        return self._last

    def append(self, conversation: int, last: int, records: Sequence[Record], *, head: str) -> None:
        import fcntl
        import os

        del last
        file = os.open(self._folder / f"{conversation}.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            os.write(file, b"".join([record + b"\n" for record in records]))
            os.fdatasync(file)
            beside = os.open(self._folder / f"{conversation}.head", os.O_WRONLY | os.O_CREAT, 0o600)
            os.write(beside, head.encode().ljust(512))
            os.close(beside)
        finally:
            os.close(file)

    def fetch(self, conversation: int) -> list[Any]:
        data = (self._folder / f"{conversation}.log").read_bytes()
        return [orjson.loads(line) for line in data.splitlines()]

    def remove(self, conversation: int) -> None:
        (self._folder / f"{conversation}.log").unlink()

    def close(self) -> None:
        """Nothing is open."""
