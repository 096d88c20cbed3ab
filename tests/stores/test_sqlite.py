from __future__ import annotations

import asyncio
import gc
import os
import random
import secrets
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from toolnexus.errors import (
    ConfigurationError,
    ConversationConflict,
    ConversationFenced,
    CorruptConversation,
    StoreError,
    StoreTooNew,
)
from toolnexus.stores import sqlite, sqlite_file
from toolnexus.stores.backend import NOTHING, Grant, Head, Key, Owner, Record, Version
from toolnexus.stores.process import this_process
from toolnexus.stores.sqlite import SQLiteBackend, SQLiteStore

KEY = Key("", "c")
ONE, TWO, THREE = b'{"n":1}', b'{"n":2}', b'{"n":3}'


@asynccontextmanager
async def opened(path: Path, **options: bool) -> AsyncIterator[SQLiteBackend]:
    backend = SQLiteBackend(path, **options)
    try:
        yield backend
    finally:
        await backend.aclose()


@contextmanager
def raw(path: Path) -> Iterator[sqlite3.Connection]:
    """The file as another program sees it."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        yield connection
    finally:
        connection.close()


def owner(process: str | None = None) -> Owner:
    return Owner(token=secrets.token_hex(16), process=process or this_process())


async def begun(
    backend: SQLiteBackend, *records: Record, key: Key = KEY, expect: Version = NOTHING, by: Owner | None = None
) -> Grant:
    grant = await backend.begin(key, owner=by or owner(), ttl=60, expect=expect, records=records)
    assert grant is not None
    return grant


async def turn(
    backend: SQLiteBackend, *records: Record, key: Key = KEY, expect: Version = NOTHING, head: Head | None = None
) -> Version:
    """A whole turn: where the conversation stands afterwards."""
    grant = await begun(backend, key=key, expect=expect)
    last = await backend.append(grant, records, expect=grant.version.last, head=head, release=True)
    return Version(incarnation=grant.version.incarnation, last=last)


async def stored(backend: SQLiteBackend, key: Key = KEY) -> tuple[Record, ...]:
    seen = await backend.read(key)
    return () if seen is None else seen.records


def shown(text: str = "", *, title: str | None = None, anew: bool = False) -> Head:
    return Head(title=title, updated=1.0, messages=1, status="done", preview="p", text=text, anew=anew)


def python(program: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


def started(program: str, *arguments: str | Path) -> subprocess.Popen[str]:
    """The process, with what it writes."""
    return subprocess.Popen([sys.executable, "-c", program, *map(str, arguments)], stdout=subprocess.PIPE, text=True)


def files(folder: Path) -> dict[str, int]:
    """The names in a folder, with who may do what."""
    return {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}


def protect(folder: Path, file_mode: int, mode: int) -> None:
    for file in folder.iterdir():
        file.chmod(file_mode)
    folder.chmod(mode)


def make_empty(path: Path) -> None:
    path.parent.mkdir()
    path.touch()


# Commits


async def test_a_turn_is_one_commit_each_for_taking_recording_and_ending_it(tmp_path: Path) -> None:
    async with opened(tmp_path / "c.db") as backend:
        await turn(backend, ONE)
        before = backend.commits
        grant = await begun(backend, TWO, expect=Version(incarnation=1, last=1))
        last = await backend.append(grant, [THREE, ONE], expect=2)
        await backend.append(grant, [TWO], expect=last, head=shown("said"), release=True)
        assert backend.commits - before == 3


async def test_what_is_refused_and_what_is_read_commits_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path / "c.db") as backend:
        grant = await begun(backend, ONE)
        before = backend.commits
        assert await backend.begin(KEY, owner=owner(), ttl=60, expect=NOTHING, records=[TWO]) is None
        with pytest.raises(ConversationConflict):
            await backend.append(grant, [TWO], expect=0)
        assert await stored(backend) == (ONE,)
        await backend.list("", after=None, limit=10, query=None)
        assert backend.commits == before


async def test_a_turn_makes_the_same_statements_in_a_long_conversation(tmp_path: Path) -> None:
    async with opened(tmp_path / "c.db") as backend:
        costs: list[tuple[int, int]] = []
        for key, length in ((Key("", "short"), 10), (Key("", "long"), 10_000)):
            version = await turn(backend, *[ONE] * length, key=key)
            before = backend.statements, backend.commits
            await turn(backend, TWO, THREE, key=key, expect=version, head=shown("said"))
            costs.append((backend.statements - before[0], backend.commits - before[1]))
        assert costs[0] == costs[1]


async def test_appends_at_once_share_commits(tmp_path: Path) -> None:
    async with opened(tmp_path / "c.db") as backend:
        keys = [Key("", str(number)) for number in range(64)]
        grants = [await begun(backend, ONE, key=key) for key in keys]
        before = backend.commits
        await asyncio.gather(*(backend.append(grant, [TWO], expect=1) for grant in grants))
        assert backend.commits - before < 8
        assert [await stored(backend, key) for key in keys] == [(ONE, TWO)] * 64


async def test_of_appends_at_once_only_those_fail_that_cannot_be_kept(tmp_path: Path) -> None:
    async with opened(tmp_path / "c.db") as backend:
        keys = [Key("", str(number)) for number in range(7)]
        grants = [await begun(backend, ONE, key=key) for key in keys]
        await backend.delete(keys[1])
        unfit: Any = object()  # the driver refuses it, in the records at once, in the head when they are written
        outcomes = await asyncio.gather(
            backend.append(grants[0], [TWO], expect=1),
            backend.append(grants[1], [TWO], expect=1),
            backend.append(grants[2], [TWO], expect=1),
            backend.append(grants[3], [TWO, unfit], expect=1),
            backend.append(grants[4], [TWO], expect=1, head=replace(shown(), updated=unfit)),
            backend.append(grants[5], [TWO], expect=2),
            backend.append(grants[6], [TWO], expect=1),
            return_exceptions=True,
        )
        assert [type(each) for each in outcomes] == [
            int,
            ConversationFenced,
            int,
            StoreError,
            StoreError,
            ConversationConflict,
            int,
        ]
        kept = [await stored(backend, key) for key in keys]
        assert kept == [(ONE, TWO), (), (ONE, TWO), (ONE,), (ONE,), (ONE,), (ONE, TWO)]


async def test_an_append_that_is_cancelled_while_it_runs_has_ended_when_the_cancellation_goes_on(
    tmp_path: Path,
) -> None:
    path = tmp_path / "c.db"
    async with opened(path) as backend:
        grant = await begun(backend, ONE)
        with raw(path) as blocker:
            blocker.execute("BEGIN IMMEDIATE")
            appending = asyncio.create_task(backend.append(grant, [TWO], expect=1))
            await asyncio.sleep(0)
            appending.cancel()
            done, _ = await asyncio.wait({appending}, timeout=0.05)
            assert not done
            assert await stored(backend) == (ONE,)  # reading waits for no writer
            blocker.execute("ROLLBACK")
        await asyncio.wait({appending})
        assert appending.cancelled()
        assert await stored(backend) == (ONE, TWO)


# Leases


async def test_the_lease_of_a_process_that_is_gone_is_free_at_once(tmp_path: Path) -> None:
    program = "from toolnexus.stores.process import this_process; print(this_process(), end='')"
    gone = python(program).stdout
    async with opened(tmp_path / "c.db") as backend:
        first = await begun(backend, ONE, by=owner(gone))
        seen = await backend.read(KEY)
        assert seen is not None
        assert seen.lease is not None
        assert seen.lease.left == 0
        assert (await begun(backend, expect=seen.version)).fence > first.fence


async def test_a_lease_from_before_the_machine_was_started_is_free(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    async with opened(path) as backend:
        await begun(backend, ONE, by=owner("another host"))
        assert await backend.begin(KEY, owner=owner(), ttl=60, expect=NOTHING, records=[]) is None
        with raw(path) as connection:
            connection.execute("UPDATE conversation SET boot = 'an earlier one'")
        await begun(backend)


async def test_an_incarnation_never_comes_again(tmp_path: Path) -> None:
    incarnations: list[int] = []
    for _ in range(3):
        async with opened(tmp_path / "c.db") as backend:
            incarnations.append((await turn(backend, ONE)).incarnation)
            assert await backend.delete(KEY)
    assert incarnations == sorted(set(incarnations))


# Lists


async def test_a_place_that_no_page_gave_is_refused(tmp_path: Path) -> None:
    async with opened(tmp_path / "c.db") as backend:
        for place in ("", "x", "-1", "1" * 30):
            with pytest.raises(ConfigurationError, match="not a place"):
                await backend.list("", after=place, limit=1, query=None)


@pytest.fixture(params=["with FTS5", "without FTS5"])
def search(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite as it is built with full text search, and without."""
    if request.param == "without FTS5":
        monkeypatch.setattr(sqlite, "has_full_text_search", lambda _: False)
    monkeypatch.setattr(sqlite, "_INDEXED_AT_ONCE", 2)


@pytest.mark.usefixtures("search")
async def test_words_are_found_in_what_was_said_in_any_turn_and_in_the_title(tmp_path: Path) -> None:
    async with opened(tmp_path / "c.db") as backend:

        async def found(query: str) -> list[str]:
            return [each.id for each in (await backend.list("", after=None, limit=9, query=query)).items]

        a, b, other = Key("", "a"), Key("", "b"), Key("other", "a")
        version = await turn(backend, ONE, key=a, head=shown('My "favourite" colour\0 is Teal_1.'))
        await turn(backend, ONE, key=b, head=shown("A colour of the STRASSE", title="Paint"))
        await turn(backend, ONE, key=other, head=shown("colour teal_1"))
        assert await found("colour") == ["b", "a"]
        assert await found("teal_1 COLOUR") == ["a"]
        assert await found("col") == await found("teal_1 paint") == await found("1") == []
        assert await found("paint stra\u00dfe") == ["b"]
        assert await found("favourite AND is NOT*") == []
        version = await turn(backend, TWO, key=a, expect=version, head=shown("paint, and caf\u00e9"))
        assert await found("paint") == ["a", "b"]
        assert await found("cafe\u0301 favourite") == ["a"]
        await turn(backend, key=a, expect=version, head=shown("plum", anew=True))  # no record goes with it
        assert await found("favourite") == []
        assert await found("plum") == ["a"]
        await turn(backend, THREE, key=a, expect=version, head=shown("pear"))
        assert await found("plum pear") == ["a"]
        await backend.delete(a)
        assert await found("plum") == []
        await turn(backend, ONE, key=a, head=shown("quince"))  # takes the rows of what was deleted
        assert await found("plum") == []
        assert await found("quince") == ["a"]


@pytest.mark.usefixtures("search")
async def test_a_search_finds_all_that_was_said_since_the_last_one(tmp_path: Path) -> None:
    async with opened(tmp_path / "c.db") as backend:
        version = NOTHING
        for number in range(9):
            version = await turn(backend, ONE, expect=version, head=shown(f"word{number}"))
        for number in (8, 0):
            page = await backend.list("", after=None, limit=1, query=f"word{number}")
            assert [each.id for each in page.items] == ["c"]


@pytest.mark.usefixtures("search")
async def test_a_search_passes_over_records_with_which_nothing_was_said(tmp_path: Path) -> None:
    async with opened(tmp_path / "c.db") as backend:
        version = await turn(backend, ONE, TWO)
        version = await turn(backend, THREE, expect=version, head=shown("!?"))
        await turn(backend, ONE, TWO, expect=version, head=shown("pear \ud800 plum\0"))
        for word, found in (("pear", ["c"]), ("plum", ["c"]), ("none", [])):
            assert [each.id for each in (await backend.list("", after=None, limit=1, query=word)).items] == found


async def test_words_that_were_indexed_are_forgotten_although_others_would_be_found_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path / "c.db") as backend:

        async def found(query: str) -> int:
            return len((await backend.list("", after=None, limit=1, query=query)).items)

        await turn(backend, ONE, head=shown("plum"))
        assert await found("plum") == 1
        monkeypatch.setattr(sqlite_file, "words", lambda text: [text + "s"])  # as with the Unicode of another Python
        await backend.delete(KEY)
        await turn(backend, ONE, head=shown("pear"))  # takes the row of what was deleted
        assert await found("plum") == await found("plums") == 0
        assert await found("pears") == 1


async def test_a_title_that_was_taken_away_is_not_found_any_more(tmp_path: Path) -> None:
    async with opened(tmp_path / "c.db") as backend:
        version = await turn(backend, ONE, head=shown(title="Paint \ud800"))
        page = await backend.list("", after=None, limit=1, query="paint")
        assert [each.title for each in page.items] == ["Paint \ufffd"]
        await turn(backend, expect=version, head=shown())
        assert (await backend.list("", after=None, limit=1, query="paint")).items == ()


# The file


async def test_only_the_owner_may_read_the_file(tmp_path: Path) -> None:
    path = tmp_path / "home" / "c.db"
    async with opened(path) as backend:
        await turn(backend, ONE)
        assert files(path.parent) == dict.fromkeys(("c.db", "c.db-wal", "c.db-shm"), 0o600)
        assert files(tmp_path) == {"home": 0o700}


async def test_a_file_of_a_newer_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    async with opened(path) as backend:
        await turn(backend, ONE)
    with raw(path) as connection:
        connection.execute("PRAGMA user_version=99")
    before = path.read_bytes()
    async with opened(path) as backend:
        with pytest.raises(StoreTooNew, match=r"version 99.*Upgrade toolnexus"):
            await backend.read(KEY)
        with pytest.raises(StoreTooNew):
            await begun(backend, ONE)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "statements",
    [
        ["CREATE TABLE conversations (revision INTEGER PRIMARY KEY, id BLOB)", "PRAGMA user_version=1"],
        ["CREATE TABLE bookmarks (url TEXT)"],
        ["PRAGMA application_id=1"],
    ],
    ids=["a toolnexus without a log", "another program", "another program without tables"],
)
async def test_a_database_that_is_not_ours_is_refused_and_left_alone(tmp_path: Path, statements: Sequence[str]) -> None:
    path = tmp_path / "c.db"
    with raw(path) as connection:
        for statement in statements:
            connection.execute(statement)
    before = path.read_bytes()
    async with opened(path) as backend:
        with pytest.raises(StoreError, match="Move it away, or use another file"):
            await begun(backend, ONE)
    assert path.read_bytes() == before
    assert [*files(tmp_path)] == ["c.db"]


async def test_without_migration_no_tables_are_made_and_those_that_are_there_are_used(tmp_path: Path) -> None:
    path = tmp_path / "home" / "c.db"
    async with opened(path, auto_migrate=False) as backend:
        with pytest.raises(StoreError, match="auto_migrate=False"):
            await begun(backend, ONE)
        assert files(tmp_path) == {}
        make_empty(path)
        with pytest.raises(StoreError, match="auto_migrate=False"):
            await backend.read(KEY)
        assert path.read_bytes() == b""
        async with opened(path) as other:
            await turn(other, ONE)
        assert await stored(backend) == (ONE,)


async def test_a_new_file_that_somebody_locks_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    async with opened(path) as backend:
        with raw(path) as blocker:
            blocker.execute("BEGIN IMMEDIATE")
            waiting = asyncio.create_task(turn(backend, ONE))
            done, _ = await asyncio.wait({waiting}, timeout=0.1)
            assert not done
            blocker.execute("ROLLBACK")
        await waiting
        assert await stored(backend) == (ONE,)


async def test_a_file_that_is_no_database_is_a_store_error_with_its_cause(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    path.write_text("This is a text, and a longer one than any header of a database.\n" * 100)
    async with opened(path) as backend:
        with pytest.raises(StoreError, match=r"'c' could not be read in .*c\.db") as caught:
            await backend.read(KEY)
    assert isinstance(caught.value.__cause__, sqlite3.Error)
    assert caught.value.conversation_id == "c"


async def test_a_folder_that_cannot_be_made_is_a_store_error_until_it_can(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    async with opened(tmp_path / "home" / "c.db") as backend:
        with pytest.raises(StoreError, match="could not be taken"):
            await begun(backend, ONE)
        (tmp_path / "home").unlink()
        await begun(backend, ONE)


def test_a_store_in_memory_is_another_one() -> None:
    with pytest.raises(ConfigurationError, match="InMemoryConversationStore"):
        SQLiteStore(":memory:")


async def test_records_that_are_missing_or_are_no_records_are_corruption_and_change_nothing(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    async with opened(path) as backend:
        version = await turn(backend, ONE, TWO, THREE)
        for damage in (
            "DELETE FROM record WHERE seq = 2",
            "UPDATE record SET body = NULL WHERE seq = 2",
            "UPDATE record SET body = 'text' WHERE seq = 2",
        ):
            with raw(path) as connection:
                connection.execute("BEGIN IMMEDIATE")
                kept = connection.execute("SELECT * FROM record").fetchall()
                connection.execute(damage)
                connection.execute("COMMIT")
                before = backend.commits
                for attempt in (
                    backend.read(KEY),
                    backend.begin(KEY, owner=owner(), ttl=60, expect=NOTHING, records=[ONE]),
                ):
                    with pytest.raises(CorruptConversation) as caught:
                        await attempt
                    assert caught.value.conversation_id == "c"
                assert backend.commits == before
                connection.execute("DELETE FROM record")
                connection.executemany("INSERT INTO record VALUES (?, ?, ?, ?, ?)", kept)
        assert await stored(backend) == (ONE, TWO, THREE)
        assert (await begun(backend, ONE, expect=version)).opened


async def test_a_damaged_page_is_corruption(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    async with opened(path) as backend:
        await turn(backend, *[b'"%s"' % (b"x" * 3000)] * 100)
    damaged = bytearray(path.read_bytes())
    damaged[8 * 4096 : -2 * 4096] = b"\xff" * (len(damaged) - 10 * 4096)
    path.write_bytes(damaged)
    async with opened(path) as backend:
        with pytest.raises(CorruptConversation, match="'c' could not be read") as caught:
            await backend.read(KEY)
        assert isinstance(caught.value.__cause__, sqlite3.DatabaseError)
    assert path.read_bytes() == damaged


@pytest.mark.skipif(not hasattr(os, "seteuid"), reason="there are no users on this system")
async def test_a_file_that_may_not_be_written_is_read_and_refuses_writes() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "c.db"
        async with opened(path) as ours:  # keeps the log beside the file
            version = await turn(ours, ONE, head=shown("said"))
            protect(path.parent, 0o444, 0o555)
            us = os.geteuid()
            try:
                if us == 0:
                    os.seteuid(65534)
                async with opened(path) as theirs:
                    assert await stored(theirs) == (ONE,)
                    assert len((await theirs.list("", after=None, limit=9, query=None)).items) == 1
                    with pytest.raises(StoreError, match="readonly"):
                        await begun(theirs, TWO, expect=version)
                    assert await stored(theirs) == (ONE,)
            finally:
                os.seteuid(us)
                protect(path.parent, 0o600, 0o700)


FULL = """
import asyncio, resource, sys
from toolnexus.errors import StoreError
from toolnexus.stores.backend import NOTHING, Key, Owner
from toolnexus.stores.process import this_process
from toolnexus.stores.sqlite import SQLiteBackend

async def main():
    backend = SQLiteBackend(sys.argv[1])
    owner = Owner(token="t", process=this_process())
    grants = [
        await backend.begin(Key("", str(at)), owner=owner, ttl=60, expect=NOTHING, records=[b"1"]) for at in range(3)
    ]
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))
    big = b'"%s"' % (b"x" * 1_200_000)
    outcomes = await asyncio.gather(
        backend.append(grants[0], [b"2"], expect=1),
        backend.append(grants[1], [big], expect=1),
        backend.append(grants[1], [b"2"], expect=1),  # a conflict, if the one before had been kept
        backend.append(grants[2], [b"2"], expect=1),
        return_exceptions=True,
    )
    print([type(outcome).__name__ for outcome in outcomes])
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    print(await backend.append(grants[1], [big], expect=2, release=True))
    await backend.aclose()

asyncio.run(main())
"""


async def test_on_a_full_disk_what_fits_is_kept_and_the_rest_is_a_store_error_until_there_is_room(
    tmp_path: Path,
) -> None:
    path = tmp_path / "c.db"
    done = python(FULL, path)
    assert (done.stdout, done.stderr) == ("['int', 'StoreError', 'int', 'int']\n3\n", "")
    async with opened(path) as backend:
        assert [len(await stored(backend, Key("", str(at)))) for at in range(3)] == [2, 3, 2]


async def test_a_file_that_somebody_locks_for_too_long_is_a_store_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_file, "BUSY", 0.05)
    path = tmp_path / "c.db"
    async with opened(path) as backend:
        grant = await begun(backend, ONE)
        with raw(path) as blocker:
            blocker.execute("BEGIN IMMEDIATE")
            outcomes = await asyncio.gather(
                *(backend.append(grant, [TWO], expect=1) for _ in range(50)), return_exceptions=True
            )
            assert {str(each).rpartition(": ")[2] for each in outcomes} == {"database is locked."}
            blocker.execute("ROLLBACK")
        assert await backend.append(grant, [TWO], expect=1) == 2


# Threads and processes


async def test_a_closed_store_says_so(tmp_path: Path) -> None:
    unused, used = SQLiteBackend(tmp_path / "u.db"), SQLiteBackend(tmp_path / "c.db")
    await turn(used, ONE)
    for backend in (unused, used):
        await backend.aclose()
        await backend.aclose()
        with pytest.raises(StoreError, match="closed"):
            await backend.read(KEY)
        with pytest.raises(StoreError, match="closed"):
            await begun(backend, ONE)
    assert [*files(tmp_path)] == ["c.db"]


async def test_the_threads_of_a_store_that_nobody_has_any_more_end(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    backend = SQLiteBackend(tmp_path / "c.db")
    await turn(backend, ONE)
    await stored(backend)
    threads = set(threading.enumerate()) - before
    assert {thread.name for thread in threads} == {"toolnexus-sqlite-writer", "toolnexus-sqlite-reader"}
    del backend
    gc.collect()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()


def test_several_loops_in_several_threads_share_one_backend(tmp_path: Path) -> None:
    backend = SQLiteBackend(tmp_path / "c.db")

    async def use(key: Key) -> None:
        version = NOTHING
        for _ in range(10):
            version = await turn(backend, ONE, key=key, expect=version)

    keys = [Key("", name) for name in "abcd"]
    threads = [threading.Thread(target=lambda key=key: asyncio.run(use(key))) for key in keys]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    async def lengths() -> list[int]:
        found = [len(await stored(backend, key)) for key in keys]
        await backend.aclose()
        return found

    assert asyncio.run(lengths()) == [10] * 4


WRITER = """
import asyncio, secrets, sys
from toolnexus.stores.backend import NOTHING, Key, Owner
from toolnexus.stores.process import this_process
from toolnexus.stores.sqlite import SQLiteBackend

async def main(path, name, turns):
    backend = SQLiteBackend(path)
    for turn in range(int(turns)):
        grant = None
        while grant is None:
            owner = Owner(token=secrets.token_hex(16), process=this_process())
            grant = await backend.begin(Key("", "c"), owner=owner, ttl=60, expect=NOTHING, records=[])
        last = await backend.append(grant, [b'"%s %d open"' % (name.encode(), turn)], expect=grant.version.last)
        await backend.append(grant, [b'"%s %d end"' % (name.encode(), turn)], expect=last, release=True)
        print(turn, flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


async def test_eight_processes_that_start_together_on_a_new_file_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "new" / "c.db"
    writers = [started(WRITER, path, name, "5") for name in "abcdefgh"]
    assert [writer.communicate(timeout=60)[0] for writer in writers] == ["0\n1\n2\n3\n4\n"] * 8
    async with opened(path) as backend:
        said = [record.decode().strip('"').split() for record in await stored(backend)]
    assert len(said) == 80
    for opening, end in zip(said[::2], said[1::2], strict=True):
        assert (opening[:2], opening[2], end[2]) == (end[:2], "open", "end")
    for name in "abcdefgh":
        assert [turn for by, turn, what in said if by == name and what == "end"] == list("01234")


async def test_what_a_killed_writer_was_told_is_there_and_its_turn_is_free(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    async with opened(path) as backend:
        for killed in range(6):
            name = str(killed)
            writer = started(WRITER, path, name, "100000")
            assert writer.stdout is not None
            told = [writer.stdout.readline() for _ in range(random.randint(1, 40))]
            writer.send_signal(signal.SIGKILL)
            told += writer.stdout.readlines()
            writer.wait()
            writer.stdout.close()
            acknowledged = sum(line.endswith("\n") for line in told)
            said = [record.decode().strip('"').split() for record in await stored(backend)]
            ends = [int(turn) for by, turn, what in said if by == name and what == "end"]
            assert ends == list(range(len(ends)))
            assert acknowledged <= len(ends) <= acknowledged + 1
            version = await turn(backend, b'"check 0 end"')  # at once
            assert version.last == len(said) + 1
    with raw(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


async def test_a_process_may_end_without_closing_also_while_a_write_waits(tmp_path: Path) -> None:
    program = """
import asyncio, sqlite3, sys
from toolnexus.stores.backend import NOTHING, Key, Owner
from toolnexus.stores.process import this_process
from toolnexus.stores.sqlite import SQLiteBackend
backend = SQLiteBackend(sys.argv[1])
async def main():
    owner = Owner(token="t", process=this_process())
    grant = await backend.begin(Key("", "c"), owner=owner, ttl=60, expect=NOTHING, records=[b"1"])
    blocker = sqlite3.connect(sys.argv[1], isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    asyncio.get_running_loop().call_later(0.05, sys.exit, 7)
    await backend.append(grant, [b"2"], expect=1)
loop = asyncio.new_event_loop()
task = loop.create_task(main())
try:
    loop.run_until_complete(task)
finally:
    task._log_destroy_pending = False
"""
    path = tmp_path / "c.db"
    done = python(program, path)
    assert (done.returncode, done.stderr) == (7, "")
    async with opened(path) as backend:
        assert await stored(backend) == (b"1",)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
def test_a_store_can_be_used_on_both_sides_of_a_fork(tmp_path: Path) -> None:
    program = """
import asyncio, gc, os, sys, warnings
from toolnexus.stores.sqlite import SQLiteStore
warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of forks beside threads
store = SQLiteStore(sys.argv[1])
asyncio.run(store.save("c", [{"role": "user", "content": "parent"}]))
async def child():
    messages = await store.get("c")
    await store.save("c", [*messages, {"role": "user", "content": "child"}])
    await store.aclose()
if (pid := os.fork()) == 0:
    asyncio.run(child())
    del store
    gc.collect()
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
print([message["content"] for message in asyncio.run(store.get("c"))])
asyncio.run(store.save("c", []))
asyncio.run(store.aclose())
"""
    done = python(program, tmp_path / "c.db")
    assert (done.stdout, done.stderr) == ("['parent', 'child']\n", "")
