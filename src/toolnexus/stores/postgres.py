"""Conversations in PostgreSQL, which any number of processes on any number of machines may use at once."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from struct import Struct
from typing import Any, TypeAlias, TypeVar

from toolnexus.errors import (
    ConfigurationError,
    ConversationConflict,
    ConversationFenced,
    MissingExtra,
    StoreError,
    StoreTooNew,
)
from toolnexus.stores.backend import (
    NOTHING,
    SCHEMA,
    Grant,
    Head,
    Key,
    Lease,
    Listed,
    LogSlice,
    Owner,
    Page,
    Record,
    Version,
)
from toolnexus.stores.connections import Connections, Seat
from toolnexus.stores.logstore import LogStore
from toolnexus.stores.postgres_sql import LOOKED_UP, NEVER, Statements, searchable
from toolnexus.stores.words import words

try:
    import psycopg
    from psycopg.adapt import Dumper
    from psycopg.conninfo import conninfo_to_dict, make_conninfo
except ImportError as error:
    raise MissingExtra("Conversations in PostgreSQL", extra="postgres") from error

_T = TypeVar("_T")
_Connection: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"

_DDL_LOCK = 0x746F6F6C6E657875
"""The number of the advisory lock under which tables are made. Whoever makes them has to take the same."""
_ATTEMPTS = 5
"""How often a transaction is tried that the server gave up in favour of another."""
_INDEXED_AT_ONCE = 200
"""Turns that are moved into the index in one transaction."""
_INDEXING = 1.0
"""Seconds after which a search leaves it at that, and reads through what is not in the index yet."""
_CONNECTING: Mapping[str, int | str] = {
    "connect_timeout": 5,
    # A server that is gone without a word is noticed within about half a minute.
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
    "client_encoding": "UTF8",
    "fallback_application_name": "toolnexus",
}
"""How to connect where the DSN does not say."""


class PostgresStore(LogStore):
    """Keeps conversations in a PostgreSQL database (13 or newer), in tables that are made on first use.

    Every operation is one short transaction, nearly always one statement, and no connection is held between two. There
    is no session state, so a pooler such as pgbouncer may stand between, also one that pools by transaction. A user who
    may only read the tables can read, list and search. The object may be made before there is an event loop, and used
    from several loops and threads, and after a fork. Call `aclose` when done.

    Args:
        dsn: Where the database is: a `postgresql://` URL or `host=… dbname=…`. What it leaves out comes from the `PG…`
            variables of the environment.
        pool_size: How many connections there are at most. They open when they are needed and close when idle.
        schema: Where the tables are; made if there is none. None: the first of the server's `search_path`.
        auto_migrate: Whether to make the tables, and to bring older ones up to date. False: that they are missing or
            older is an error.
        scope: Whose conversations these are; see `scoped`.
        lease: Seconds until the turn of a process that died is free.

    Raises:
        ConfigurationError: The DSN cannot be read, or the pool has no connection.
    """

    def __init__(
        self,
        dsn: str,
        *,
        pool_size: int = 4,
        schema: str | None = None,
        auto_migrate: bool = True,
        scope: str = "",
        lease: float = 30.0,
    ) -> None:
        backend = PostgresBackend(dsn, pool_size=pool_size, schema=schema, auto_migrate=auto_migrate)
        super().__init__(backend, scope=scope, lease=lease)


class PostgresBackend:
    """A `LogBackend` in PostgreSQL. For the arguments see `PostgresStore`."""

    def __init__(self, dsn: str, *, pool_size: int = 4, schema: str | None = None, auto_migrate: bool = True) -> None:
        if pool_size < 1:
            raise ConfigurationError(f"pool_size is {pool_size}. Give at least 1.")
        if schema is not None and (not schema or "\0" in schema):
            raise ConfigurationError(f"{schema!r} cannot be the name of a schema.")
        self._conninfo = make_conninfo("", **{**_CONNECTING, **_read_dsn(dsn)})
        self._sql = Statements(schema)
        self._auto_migrate = auto_migrate
        self._prepared = False
        self._connections: Connections[_Connection] = Connections(self._connect, _close, size=pool_size)

    async def begin(
        self, key: Key, *, owner: Owner, ttl: float, expect: Version, records: Sequence[Record]
    ) -> Grant | None:
        values = {
            **_place(key),
            "scope": _encode(key.scope),
            "id": _encode(key.id),
            "incarnation": expect.incarnation,
            "last": expect.last,
            "bodies": _Bodies(records),
            "token": _encode(owner.token),
            "process": _encode(owner.process),
            "ttl": float(ttl),
        }

        def take(connection: _Connection) -> Grant | None:
            while True:
                row = _one(connection, self._sql.begin, values)
                if row is None:
                    return None
                if row[3]:
                    version = Version(incarnation=row[0], last=row[1])
                    return Grant(key=key, owner=owner, fence=row[2], version=version, opened=True)
                seen = self._seen(connection, key, after=expect)
                if seen is not None:
                    break  # else it was deleted just now, and is made anew
            if seen.lease is None or seen.lease.owner.token != owner.token:
                return None
            same_place = expect.incarnation in (NOTHING.incarnation, seen.version.incarnation)
            opened = same_place and seen.records == tuple(records) and _adds_up(seen, expect.last)
            return Grant(
                key=key,
                owner=owner,
                fence=seen.lease.fence,
                version=seen.version,
                opened=opened,
                newer=() if opened else seen.records,
            )

        return await self._do("begin a turn of", key, take)

    async def append(
        self, grant: Grant, records: Sequence[Record], *, expect: int, head: Head | None = None, release: bool = False
    ) -> int:
        values: dict[str, Any] = {
            **_held(grant),
            "last": expect,
            "count": len(records),
            "bodies": _Bodies(records),
            "release": release,
        }
        statement = self._sql.append
        if head is not None:
            statement = self._sql.append_head
            values |= _shown(head)

        def write(connection: _Connection) -> int:
            if _one(connection, statement, values) != (True,):
                self._check_repeated(connection, grant, values)
            return expect + len(records)

        return await self._do("append to", grant.key, write)

    async def renew(self, grant: Grant, *, ttl: float) -> Grant:
        values = {**_held(grant), "ttl": float(ttl)}

        def write(connection: _Connection) -> Grant:
            if _one(connection, self._sql.renew, values) is None:
                raise ConversationFenced(grant.key.id)
            return grant

        return await self._do("keep the turn of", grant.key, write)

    async def read(self, key: Key, *, after: Version = NOTHING) -> LogSlice | None:
        seen = await self._do("read", key, lambda connection: self._seen(connection, key, after=after))
        return seen if seen is not None and seen.version.last else None

    async def delete(self, key: Key) -> bool:
        there_was = False

        def remove(connection: _Connection) -> bool:
            nonlocal there_was
            with connection.transaction():
                row = _one(connection, self._sql.delete, _place(key))
                if row is not None:
                    there_was = there_was or row[1] > 0  # also if the commit is not acknowledged and this is repeated
                    for statement in (self._sql.forget, self._sql.delete_records):
                        connection.execute(statement, {"incarnation": row[0]})
            return there_was

        return await self._do("delete", key, remove)

    async def list(self, scope: str, *, after: str | None, limit: int, query: str | None) -> Page:
        if after is not None and not after.isdecimal():
            raise ConfigurationError(f"{after!r} is no place in a list. Give the `after` of the page before.")
        wanted = words(query or "")
        if limit < 1 or ((query or "").strip() and not wanted):
            return Page(items=(), after=None)  # what has no word occurs nowhere
        values = {
            "tenant": _hash(_encode(scope)),
            "before": NEVER if after is None else int(after),
            "limit": limit + 1,
            **{f"word{n}": word for n, word in enumerate(wanted[:LOOKED_UP])},
            "others": wanted[LOOKED_UP:],
        }
        statement = self._sql.list(len(wanted))

        def look(connection: _Connection) -> list[tuple[Any, ...]]:
            if wanted:
                self._index(connection)
            return connection.execute(statement, values, binary=True).fetchall()

        rows = await self._do("list", None, look)
        return Page(
            items=tuple(_listed(row) for row in rows[:limit]),
            after=str(rows[limit - 1][6]) if len(rows) > limit else None,
        )

    async def aclose(self) -> None:
        """Close the connections. May be called more than once; anything else afterwards is a `StoreError`."""
        await self._connections.aclose()

    async def _do(self, what: str, key: Key | None, work: Callable[[_Connection], _T]) -> _T:
        """Do a piece of work with a connection, which is a transaction or nothing but reads."""
        conversation_id = None if key is None else key.id
        try:
            return await self._connections.run(lambda seat: self._attempted(seat, work))
        except psycopg.Error as error:
            where = "conversations" if conversation_id is None else f"conversation {conversation_id!r}"
            raise StoreError(
                f"PostgreSQL could not {what} {where}: {_said(error)}", conversation_id=conversation_id
            ) from error

    # What follows runs in the threads of the connections.

    def _attempted(self, seat: Seat[_Connection], work: Callable[[_Connection], _T]) -> _T:
        """Do the work, and once more where that tells its outcome, or where the server asks for it.

        A connection that broke may have broken after the commit. Every operation recognises what it did before.
        """
        broke = False
        attempt = 0
        while True:
            connection = seat.take()
            attempt += 1
            try:
                if not self._prepared:
                    self._prepare(connection)
                    self._prepared = True
                return work(connection)
            except psycopg.Error as error:
                if connection.closed:
                    seat.drop()
                    if broke:
                        raise
                    broke = True
                elif (error.sqlstate or "")[:2] != "40" or attempt == _ATTEMPTS:  # 40: rolled back for another's sake
                    raise

    def _connect(self) -> _Connection:
        connection = psycopg.connect(self._conninfo, autocommit=True, prepare_threshold=None)
        connection.adapters.register_dumper(_Bodies, _BodiesDumper)
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED  # of transactions of several statements
        return connection

    def _prepare(self, connection: _Connection) -> None:
        """See that the tables are there, in the layout that we know."""
        if self._layout(connection) == SCHEMA:
            return
        if not self._auto_migrate:
            raise StoreError(
                "The database has no tables for conversations, or older ones. Open it once with auto_migrate=True, "
                "as a user who may create tables."
            )
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_DDL_LOCK,))
            schema = self._sql.schema
            if schema is not None and _missing(connection, "to_regnamespace", schema):
                connection.execute(f"CREATE SCHEMA {schema}".encode())
            found = self._layout(connection)
            for layout in self._sql.layouts()[found:]:
                connection.execute(layout)
            if found < SCHEMA:
                connection.execute(self._sql.set_version, {"version": SCHEMA})

    def _layout(self, connection: _Connection) -> int:
        """The version of the tables; 0: there are none.

        Raises:
            StoreTooNew: It is newer than ours.
        """
        if _missing(connection, "to_regclass", self._sql.version_table):
            return 0
        row = _one(connection, self._sql.version, {})
        found: int = row[0] if row is not None and row[0] is not None else 0
        if found > SCHEMA:
            raise StoreTooNew(
                f"The tables in the database have layout {found}, and this toolnexus knows {SCHEMA}. Update toolnexus."
            )
        return found

    def _seen(self, connection: _Connection, key: Key, *, after: Version) -> LogSlice | None:
        """What `read` gives, also of a conversation without records."""
        values = {"key": _hash_key(key), "incarnation": after.incarnation, "last": after.last}
        row = _one(connection, self._sql.read, values)
        if row is None:
            return None
        incarnation, last, fence, token, process, left, bodies = row
        return LogSlice(
            records=tuple(bodies),
            version=Version(incarnation=incarnation, last=last),
            lease=None
            if token is None
            else Lease(owner=Owner(token=_decode(token), process=_decode(process)), fence=fence, left=left),
        )

    def _index(self, connection: _Connection) -> None:
        """Move what was said into the index, or the first part. What is not there yet is found too, but slower."""
        end = time.monotonic() + _INDEXING
        with contextlib.suppress(psycopg.errors.InsufficientPrivilege, psycopg.errors.ReadOnlySqlTransaction):
            while connection.execute(self._sql.index, {"most": _INDEXED_AT_ONCE}).rowcount == _INDEXED_AT_ONCE:
                if time.monotonic() >= end:
                    return

    def _check_repeated(self, connection: _Connection, grant: Grant, values: Mapping[str, Any]) -> None:
        """Raise what kept an append from being done, unless it is that it had been done before."""
        row = _one(connection, self._sql.look, values)
        if row is None or row[1] != grant.fence:
            raise ConversationFenced(grant.key.id)
        last, _, token, bodies = row
        if last == values["last"] + values["count"] and bodies == values["bodies"]:
            return
        if token is None:
            raise ConversationFenced(grant.key.id)
        raise ConversationConflict(grant.key.id, expected=values["last"], actual=last)


class _Bodies(list[Record]):
    """Records that are sent as one array."""


class _BodiesDumper(Dumper):
    """Writes such an array at once. The driver's own for lists of anything takes ten times as long."""

    format = psycopg.pq.Format.BINARY
    oid = psycopg.postgres.types["bytea"].array_oid
    _HEADER = Struct("!5I")
    _LENGTH = Struct("!I")

    def dump(self, obj: _Bodies) -> bytes:
        one_dimension, no_null, from_one = 1, 0, 1
        header = self._HEADER.pack(one_dimension, no_null, psycopg.postgres.types["bytea"].oid, len(obj), from_one)
        return b"".join([header, *[part for body in obj for part in (self._LENGTH.pack(len(body)), body)]])


def _read_dsn(dsn: str) -> Mapping[str, Any]:
    try:
        if dsn.startswith(("postgresql://", "postgres://")) and _is_ambiguous(dsn):
            raise psycopg.ProgrammingError
        return conninfo_to_dict(dsn)
    except psycopg.Error:
        # Not "from": what cannot be read is quoted there, and may be a password.
        raise ConfigurationError(
            "The DSN of the PostgreSQL database cannot be read. Give postgresql://user:password@host:port/database, "
            "with special characters as %XX, or host=… dbname=…."
        ) from None


def _is_ambiguous(url: str) -> bool:
    """Whether a password with a bare @ or / in it would be taken for a host or a port, and be told in errors."""
    before, _, after = url.partition("://")[2].partition("@")
    return ("/" in before and "?" not in before and after != "") or "@" in after.partition("?")[0]


def _said(error: psycopg.Error) -> str:
    """What the driver or the server said, on one line. Neither quotes a password."""
    return " ".join(str(error).split("\n", 1)[0].split()) or type(error).__name__


def _close(connection: _Connection) -> None:
    connection.close()


def _one(connection: _Connection, statement: bytes, values: Mapping[str, Any]) -> tuple[Any, ...] | None:
    return connection.execute(statement, values, binary=True).fetchone()


def _missing(connection: _Connection, lookup: str, name: str) -> bool:
    # From a table, any: only then the server looks at what others have made since our transaction began to wait.
    query = f"SELECT {lookup}(%(name)s) IS NULL FROM pg_catalog.pg_class LIMIT 1"  # noqa: S608 - our own word
    row = _one(connection, query.encode(), {"name": name})
    return row is None or row[0]


def _adds_up(seen: LogSlice, last: int) -> bool:
    """Whether the records that were seen are those after the number `last`."""
    return seen.version.last == last + len(seen.records)


def _encode(text: str) -> bytes:
    """Bytes, because the server's text holds neither NUL nor lone surrogates."""
    return text.encode("utf-8", "surrogatepass")


def _decode(text: bytes) -> str:
    return text.decode("utf-8", "surrogatepass")


def _hash(text: bytes) -> bytes:
    return blake2b(text, digest_size=20).digest()


def _hash_key(key: Key) -> bytes:
    scope = _encode(key.scope)
    return _hash(b"%d:%b%b" % (len(scope), scope, _encode(key.id)))


def _place(key: Key) -> dict[str, bytes]:
    return {"key": _hash_key(key), "tenant": _hash(_encode(key.scope))}


def _held(grant: Grant) -> dict[str, Any]:
    return {
        "incarnation": grant.version.incarnation,
        "fence": grant.fence,
        "token": _encode(grant.owner.token),
    }


def _shown(head: Head) -> dict[str, Any]:
    title = words(head.title) if head.title is not None else []
    return {
        "updated": float(head.updated),
        "messages": head.messages,
        "status": _encode(head.status),
        "title": None if head.title is None else _encode(head.title),
        "preview": _encode(head.preview),
        "title_words": searchable(title)[0] if title else None,
        "words": "\n".join(searchable(words(head.text))),
        "anew": head.anew,
    }


def _listed(row: tuple[Any, ...]) -> Listed:
    id, title, updated, messages, status, preview, _ = row
    return Listed(
        id=_decode(id),
        title=None if title is None else _decode(title),
        updated=updated,
        messages=messages,
        status=_decode(status),
        preview=_decode(preview),
    )
