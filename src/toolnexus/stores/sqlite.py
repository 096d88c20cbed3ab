"""Conversations in one SQLite file, which any number of processes may use at once."""

from __future__ import annotations

import os
import re
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from toolnexus.errors import ConfigurationError, ConversationConflict, ConversationFenced, CorruptConversation
from toolnexus.messages import clean_text
from toolnexus.stores.backend import (
    NOTHING,
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
from toolnexus.stores.logstore import LogStore
from toolnexus.stores.process import is_gone, uptime
from toolnexus.stores.sqlite_file import Connection, connect, has_full_text_search
from toolnexus.stores.sqlite_threads import Job, Worker, Writer
from toolnexus.stores.words import words

_T = TypeVar("_T")

_AT_ONCE = 200
"""Records in one statement: SQLite has taken 999 parameters since ever."""
_INDEXED_AT_ONCE = 1000
"""Texts that are made searchable in one transaction, so that others can write between two."""


class SQLiteStore(LogStore):
    """Keeps conversations in the file at `path`, which is made on first use, for the owner's eyes only (mode 0600).

    Any number of processes may use the file, on one machine. What a method has returned survives the loss of power.
    The object may be used after a fork. Call `aclose` when done; a process may also just end.

    Args:
        scope: See `scoped`.
        lease: Seconds that a turn stays reserved when its owner hangs. That of a process that is gone is free at once.
        auto_migrate: Whether tables may be made and changed; otherwise a file without ours is a `StoreError`.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, scope: str = "", lease: float = 30.0, auto_migrate: bool = True
    ) -> None:
        super().__init__(SQLiteBackend(path, auto_migrate=auto_migrate), scope=scope, lease=lease)


class SQLiteBackend:
    """A `LogBackend` in a SQLite file. Writes that wait together share a commit; reads wait for no write.

    What is said becomes searchable at the next search, and not in a turn's commits, which it would make three times
    as large and, for finding its words, half as long again.
    """

    def __init__(self, path: str | os.PathLike[str], *, auto_migrate: bool = True) -> None:
        if os.fspath(path) == ":memory:":
            raise ConfigurationError(
                "':memory:' is no file. For conversations in memory take InMemoryConversationStore."
            )
        self.path = Path(path).absolute()
        self._auto_migrate = auto_migrate
        self._start()

    def _start(self) -> None:
        """Begin anew, in this process."""
        self._process = os.getpid()
        opened = partial(connect, self.path, auto_migrate=self._auto_migrate)
        self._writer = Writer("toolnexus-sqlite-writer", str(self.path), opened)
        self._reader = Worker("toolnexus-sqlite-reader", str(self.path), opened)
        self._abandoned = [weakref.finalize(self, worker.stop) for worker in (self._writer, self._reader)]
        for each in self._abandoned:
            each.atexit = False  # the process may end at once

    @property
    def commits(self) -> int:
        """How many transactions changed the file."""
        return self._writer.commits

    @property
    def statements(self) -> int:
        """How many statements were made of the file."""
        return sum(each.connection.statements for each in (self._writer, self._reader) if each.connection is not None)

    async def begin(
        self, key: Key, *, owner: Owner, ttl: float, expect: Version, records: Sequence[Record]
    ) -> Grant | None:
        work = partial(_begin, key=key, owner=owner, ttl=ttl, expect=expect, records=tuple(records))
        return await self._write("taken", key.id, work)

    async def append(
        self, grant: Grant, records: Sequence[Record], *, expect: int, head: Head | None = None, release: bool = False
    ) -> int:
        work = partial(_append, grant=grant, records=tuple(records), expect=expect, head=head, release=release)
        return await self._write("recorded", grant.key.id, work)

    async def renew(self, grant: Grant, *, ttl: float) -> Grant:
        await self._write("held", grant.key.id, partial(_renew, grant=grant, ttl=ttl))
        return grant

    async def read(self, key: Key, *, after: Version = NOTHING) -> LogSlice | None:
        return await self._read("read", key.id, partial(_read, key=key, after=after))

    async def delete(self, key: Key) -> bool:
        return await self._write("deleted", key.id, partial(_delete, key=key))

    async def list(self, scope: str, *, after: str | None, limit: int, query: str | None) -> Page:
        wanted = words(query) if query is not None else []
        while wanted and await self._write("searched", None, _make_searchable):
            pass
        work = partial(_list, scope=scope, before=_place(after), limit=limit, wanted=wanted)
        return await self._read("listed", None, work)

    async def aclose(self) -> None:
        """Close the file. May be called more than once; anything else afterwards is a `StoreError`."""
        self._leave_parent()
        await self._reader.aclose()
        await self._writer.aclose()  # the last one to close tidies the file up

    async def _write(self, what: str, conversation_id: str | None, work: Callable[[Connection], _T]) -> _T:
        self._leave_parent()
        return await self._writer.run(Job(what, conversation_id, work))

    async def _read(self, what: str, conversation_id: str | None, work: Callable[[Connection], _T]) -> _T:
        self._leave_parent()
        return await self._reader.run(Job(what, conversation_id, partial(_in_snapshot, work=work)))

    def _leave_parent(self) -> None:
        """After a fork, which takes no thread along, have workers of our own."""
        if self._process != os.getpid():
            for each in self._abandoned:
                each.detach()
            self._writer.leave_behind()
            self._reader.leave_behind()
            self._start()


class _Found(NamedTuple):
    """A conversation's row. `last` is the number of its last record."""

    conv: int
    fence: int
    token: str | None
    process: str | None
    boot: str | None
    expires: float | None
    last: int

    @property
    def version(self) -> Version:
        return Version(incarnation=self.conv, last=self.last)

    def lease(self) -> Lease | None:
        if self.token is None or self.process is None or self.expires is None:
            return None
        boot, now = uptime()
        gone = self.boot != boot or is_gone(self.process)
        return Lease(
            owner=Owner(token=self.token, process=self.process),
            fence=self.fence,
            left=0.0 if gone else self.expires - now,
        )


_FIND = """
SELECT conv, fence, token, process, boot, expires,
    coalesce((SELECT max(seq) FROM record WHERE record.conv = conversation.conv), 0)
FROM conversation WHERE
"""
_MOVED_UP = "changed = (SELECT max(c.changed) + 1 FROM conversation AS c WHERE c.scope = conversation.scope)"
_SAID_ANEW = "since = (SELECT coalesce(max(n), 0) + 1 FROM record)"  # set before the row that it names is there


def _find(connection: Connection, key: Key) -> _Found | None:
    row = connection.execute(f"{_FIND} scope = ? AND id = ?", (_bytes(key.scope), _bytes(key.id))).fetchone()
    return None if row is None else _Found(*row)


def _begin(
    connection: Connection, *, key: Key, owner: Owner, ttl: float, expect: Version, records: Sequence[Record]
) -> Grant | None:
    found = _find(connection, key)
    again = found is not None and found.token == owner.token
    if found is not None and not again and (lease := found.lease()) is not None and lease.left > 0:
        return None
    found = found or _made(connection, key)
    fits = expect == found.version or (expect == NOTHING and not found.last)
    newer = () if fits else _bodies(connection, found, expect, key.id)
    stands = again and expect.incarnation in (NOTHING.incarnation, found.conv) and newer == records
    fence = found.fence if again else found.fence + 1
    _set(connection, found.conv, {"fence": fence, **_held_by(owner, ttl)})
    if fits:
        _insert(connection, found, records)
    return Grant(
        key=key,
        owner=owner,
        fence=fence,
        version=Version(incarnation=found.conv, last=found.last + (len(records) if fits else 0)),
        opened=fits or stands,
        newer=() if stands else newer,
    )


def _append(
    connection: Connection, *, grant: Grant, records: Sequence[Record], expect: int, head: Head | None, release: bool
) -> int:
    found = _granted(connection, grant)
    if found.token is None or found.last != expect:
        seen = Version(incarnation=found.conv, last=expect)
        stands = found.last == expect + len(records) and _bodies(connection, found, seen, grant.key.id) == records
        if found.token is None:
            if not stands:
                raise ConversationFenced(grant.key.id)
            return found.last  # sent again: the first one gave the turn back
        if not stands:
            raise ConversationConflict(grant.key.id, expected=expect, actual=found.last)
        records = ()
    if head is not None:
        moved = (_MOVED_UP, _SAID_ANEW) if head.anew else (_MOVED_UP,)
        _set(connection, found.conv, {**_shown(head), **(_FREE if release else {})}, *moved)
    elif release:
        _set(connection, found.conv, _FREE)
    _insert(connection, found, records, head)
    return found.last + len(records)


def _renew(connection: Connection, *, grant: Grant, ttl: float) -> None:
    found = _granted(connection, grant)
    if found.token is None:
        raise ConversationFenced(grant.key.id)
    _set(connection, found.conv, _held_by(grant.owner, ttl))


def _read(connection: Connection, *, key: Key, after: Version) -> LogSlice | None:
    found = _find(connection, key)
    if found is None or not found.last:
        return None
    return LogSlice(records=_bodies(connection, found, after, key.id), version=found.version, lease=found.lease())


def _delete(connection: Connection, *, key: Key) -> bool:
    found = _find(connection, key)
    if found is None:
        return False
    if has_full_text_search(connection) and _is_searchable(connection):
        connection.execute(_FORGET, (found.conv,))
    connection.execute("DELETE FROM record WHERE conv = ?", (found.conv,))
    connection.execute("DELETE FROM conversation WHERE conv = ?", (found.conv,))
    return found.last > 0


# The index's own table `search_docsize` has the rows that it knows. They are all up to its last, because a new row
# comes after all that there are, and they are indexed in order. Words that were indexed are kept: to forget them takes
# the same ones, and what is a word may change with the Unicode of another Python.
_NOT_INDEXED = """
FROM record WHERE n > (SELECT coalesce(max(id), 0) FROM search_docsize) AND said IS NOT NULL ORDER BY n LIMIT ?
"""
_FIND_WORDS = f"UPDATE record SET said = words(said) WHERE n IN (SELECT n {_NOT_INDEXED})"  # noqa: S608 - made of constants
_INDEX = f"INSERT INTO search (rowid, said) SELECT n, said {_NOT_INDEXED}"
_FORGET = """
INSERT INTO search (search, rowid, said) SELECT 'delete', n, said FROM record
WHERE conv = ? AND n <= (SELECT coalesce(max(id), 0) FROM search_docsize) AND said IS NOT NULL
"""


def _make_searchable(connection: Connection) -> bool:
    """Index what was said since the last time, or the first part of it. Returns whether there is more."""
    if not has_full_text_search(connection):
        return False
    connection.execute(
        "CREATE VIRTUAL TABLE IF NOT EXISTS search USING fts5 "
        "(said, content = 'record', content_rowid = 'n', detail = none, tokenize = \"ascii tokenchars '_'\")"
    )
    connection.execute(_FIND_WORDS, (_INDEXED_AT_ONCE,))
    return connection.execute(_INDEX, (_INDEXED_AT_ONCE,)).rowcount == _INDEXED_AT_ONCE


def _list(connection: Connection, *, scope: str, before: int, limit: int, wanted: Sequence[str]) -> Page:
    total = None
    where, values = "scope = ? AND changed > 0", [_bytes(scope)]
    if not wanted:
        (total,) = connection.execute(_COUNT, values).fetchone()
    said = _INDEX_SAYS if wanted and has_full_text_search(connection) else _SAYS
    for word in wanted:
        where += f" AND (conv IN ({said}) OR {_NAMED})"
        values += [f'"{word}"' if said is _INDEX_SAYS else word, word]
    asked = min(max(limit, 0), sys.maxsize - 1)
    rows = connection.execute(
        "SELECT id, title, updated, messages, status, preview, changed FROM conversation "  # noqa: S608 - made of constants
        f"WHERE {where} AND changed < ? ORDER BY changed DESC LIMIT ?",
        (*values, before, asked + 1),
    ).fetchall()
    return Page(
        items=tuple(
            Listed(
                id=id.decode("utf-8", "surrogatepass"),
                title=title,
                updated=updated,
                messages=messages,
                status=status,
                preview=preview,
            )
            for id, title, updated, messages, status, preview, _ in rows[:asked]
        ),
        after=str(rows[asked - 1][-1]) if 0 < asked < len(rows) else None,
        total=total,
    )


_COUNT = "SELECT count(*) FROM conversation WHERE scope = ? AND changed > 0"
_SAYS = """
SELECT record.conv FROM record JOIN conversation AS c ON c.conv = record.conv
WHERE record.n >= c.since AND instr(' ' || words(coalesce(record.said, '')) || ' ', ' ' || ? || ' ')
"""
_INDEX_SAYS = """
SELECT record.conv FROM search JOIN record ON record.n = search.rowid JOIN conversation AS c ON c.conv = record.conv
WHERE search MATCH ? AND record.n >= c.since
"""
_NAMED = "instr(' ' || named || ' ', ' ' || ? || ' ')"


def _place(after: str | None) -> int:
    if after is None:
        return sys.maxsize
    if re.fullmatch(r"[0-9]{1,18}", after) is None:
        raise ConfigurationError(f"{after!r} is not a place in this list. Give `Page.after`.")
    return int(after)


def _granted(connection: Connection, grant: Grant) -> _Found:
    """The row of a conversation that is held by a grant, or was until it was given back."""
    row = connection.execute(f"{_FIND} conv = ?", (grant.version.incarnation,)).fetchone()
    if row is None:
        raise ConversationFenced(grant.key.id)
    found = _Found(*row)
    if found.fence != grant.fence or found.token not in (None, grant.owner.token):
        raise ConversationFenced(grant.key.id)
    return found


def _made(connection: Connection, key: Key) -> _Found:
    """A new conversation. It stands at number 0, and nobody sees it."""
    connection.execute(
        "INSERT INTO conversation (scope, id, changed, fence) VALUES (?, ?, 0, 0)", (_bytes(key.scope), _bytes(key.id))
    )
    found = _find(connection, key)
    assert found is not None
    return found


def _set(connection: Connection, conv: int, values: Mapping[str, Any], *computed: str) -> None:
    """Change a conversation's row.

    Args:
        computed: Further columns, as SQL that says what to set them to.
    """
    connection.execute(_update(tuple(values), computed), (*values.values(), conv))


@cache
def _update(columns: tuple[str, ...], computed: tuple[str, ...]) -> str:
    changes = ", ".join([*computed, *(f"{column} = ?" for column in columns)])
    return f"UPDATE conversation SET {changes} WHERE conv = ?"  # noqa: S608 - our own names


def _held_by(owner: Owner, ttl: float) -> dict[str, Any]:
    boot, now = uptime()
    return {"token": owner.token, "process": owner.process, "boot": boot, "expires": now + ttl}


_FREE: Mapping[str, Any] = dict.fromkeys(("token", "process", "boot", "expires"))


def _shown(head: Head) -> dict[str, Any]:
    return {
        "title": None if head.title is None else clean_text(head.title),
        "named": " ".join(words(head.title or "")),
        "updated": head.updated,
        "messages": head.messages,
        "status": head.status,
        "preview": clean_text(head.preview),
    }


def _insert(connection: Connection, found: _Found, records: Sequence[Record], head: Head | None = None) -> None:
    """Add records after the last one, and beside the last of them what can be searched from now on."""
    said = _bytes(head.text) or None if head is not None else None
    values: list[int | bytes | None] = []
    for number, body in enumerate(records, found.last + 1):
        values += (found.conv, number, body, None)
    if values:
        values[-1] = said
    elif head is not None and (said or head.anew):  # `since` names a row that there is
        values = [found.conv, None, None, said]
    for start in range(0, len(values), 4 * _AT_ONCE):
        part = values[start : start + 4 * _AT_ONCE]
        connection.execute(_insertion(len(part) // 4), part)


@cache
def _insertion(rows: int) -> str:
    """One statement, because a thread may have to wait for the interpreter after each."""
    return f"INSERT INTO record (conv, seq, body, said) VALUES {', '.join(['(?, ?, ?, ?)'] * rows)}"  # noqa: S608 - made of constants


def _bodies(connection: Connection, found: _Found, after: Version, conversation_id: str) -> tuple[Record, ...]:
    """The records after those that are known; all of them if these are of another incarnation."""
    known = after.last if after.incarnation == found.conv else 0
    if known >= found.last:
        return ()
    rows = connection.execute("SELECT body FROM record WHERE conv = ? AND seq > ? ORDER BY seq", (found.conv, known))
    bodies = tuple([body for (body,) in rows.fetchall()])
    if len(bodies) != found.last - known or set(map(type, bodies)) != {bytes}:
        raise CorruptConversation(
            f"Conversation {conversation_id!r} lacks records between number {known} and {found.last}. "
            "Nothing was changed. See `toolnexus memory check`.",
            conversation_id=conversation_id,
        )
    return bodies


def _in_snapshot(connection: Connection, *, work: Callable[[Connection], _T]) -> _T:
    """Read everything from one state of the file."""
    connection.execute("BEGIN")
    try:
        return work(connection)
    finally:
        if connection.in_transaction:
            connection.execute("COMMIT")


def _is_searchable(connection: Connection) -> bool:
    return bool(connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'search'").fetchone()[0])


def _bytes(text: str) -> bytes:
    """Bytes, because SQLite's text ends at NUL for some of its functions and cannot hold a lone surrogate."""
    return text.encode("utf-8", "surrogatepass")
