"""What is PostgreSQL's own. What every store promises is in the contract."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from toolnexus import create_in_process_client
from toolnexus.errors import ConfigurationError, ConversationFenced, MissingExtra, StoreError, StoreTooNew
from toolnexus.stores import postgres
from toolnexus.stores.backend import NOTHING, Grant, Head, Key, Owner, Version
from toolnexus.stores.postgres import PostgresBackend, PostgresStore
from toolnexus.stores.postgres_sql import Statements

pytestmark = pytest.mark.service("postgres")

PORT = 5432
KEY = Key("", "c")
ONE, TWO, THREE = b"1", b"2", b"3"


def dsn(port: int = PORT) -> str:
    return f"postgresql://postgres@127.0.0.1:{port}/test?sslmode=disable&gssencmode=disable"


@pytest.fixture
def admin() -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(dsn(), autocommit=True) as connection:
        yield connection


@pytest.fixture
def schema(admin: psycopg.Connection[Any]) -> Iterator[str]:
    name = f"tn_{secrets.token_hex(8)}"
    yield name
    admin.execute(f'DROP SCHEMA IF EXISTS "{name}" CASCADE')


@contextlib.asynccontextmanager
async def backend(schema: str, *, port: int = PORT, **options: Any) -> Any:
    made = PostgresBackend(dsn(port), schema=schema, **options)
    try:
        yield made
    finally:
        await made.aclose()


def owner() -> Owner:
    return Owner(token=secrets.token_hex(16), process="p")


async def begun(store: PostgresBackend, *records: bytes, key: Key = KEY, expect: Version = NOTHING) -> Grant:
    grant = await store.begin(key, owner=owner(), ttl=60, expect=expect, records=records)
    assert grant is not None
    return grant


def head(text: str = "", *, title: str | None = None, anew: bool = False) -> Head:
    return Head(title=title, updated=1.5, messages=1, status="done", preview=text[:9], text=text, anew=anew)


async def said(store: PostgresBackend, text: str, *, key: Key = KEY, **values: Any) -> None:
    """A turn in which `text` was said."""
    seen = await store.read(key)
    grant = await begun(store, ONE, key=key, expect=seen.version if seen else NOTHING)
    await store.append(grant, [TWO], expect=grant.version.last, head=head(text, **values), release=True)


async def found(store: PostgresBackend, query: str, *, scope: str = "") -> list[str]:
    return [item.id for item in (await store.list(scope, after=None, limit=50, query=query)).items]


def backends_of(admin: psycopg.Connection[Any], schema: str) -> list[int]:
    """The server's processes that last spoke of a schema."""
    asked = admin.execute(
        "SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND position(%s IN query) > 0", (schema,)
    )
    return [pid for (pid,) in asked.fetchall()]


# Layout


@pytest.mark.parametrize("named", [True, False])
def test_many_that_come_first_at_once_make_one_set_of_tables(
    named: bool, schema: str, admin: psycopg.Connection[Any]
) -> None:
    meeting = threading.Barrier(8)
    if not named:
        admin.execute(f'CREATE SCHEMA "{schema}"')

    def first_use(number: int) -> bool:
        async def use() -> bool:
            made = (
                PostgresBackend(dsn(), schema=schema)
                if named
                else PostgresBackend(f"{dsn()}&options=-csearch_path%3D{schema}")
            )
            async with contextlib.aclosing(made) as store:
                meeting.wait(10)
                return (await begun(store, ONE, key=Key("", str(number)))).opened

        return asyncio.run(use())

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(first_use, range(8))) == [True] * 8


async def test_missing_tables_are_an_error_where_they_may_not_be_made(
    schema: str, admin: psycopg.Connection[Any]
) -> None:
    async with backend(schema, auto_migrate=False) as store:
        with pytest.raises(StoreError, match="auto_migrate=True"):
            await store.read(KEY)
        assert admin.execute("SELECT to_regnamespace(%s)", (schema,)).fetchone() == (None,)
        async with backend(schema) as other:
            await begun(other, ONE)
        assert await store.read(KEY) is not None  # it looks again


async def test_a_newer_layout_is_refused(schema: str, admin: psycopg.Connection[Any]) -> None:
    async with backend(schema) as store:
        await begun(store, ONE)
    admin.execute(f"INSERT INTO {schema}.tn_schema VALUES (99)")
    async with backend(schema) as store:
        with pytest.raises(StoreTooNew, match="99"):
            await store.read(KEY)


async def test_a_schema_may_have_any_name(admin: psycopg.Connection[Any]) -> None:
    name = f"a \"b' %s {secrets.token_hex(4)}"
    try:
        async with backend(name) as store:
            await said(store, "hello", title="t")
            assert await found(store, "hello") == ["c"]
            assert await store.delete(KEY)
    finally:
        admin.execute('DROP SCHEMA "{}" CASCADE'.format(name.replace('"', '""')))


@pytest.mark.parametrize("options", [{"pool_size": 0}, {"schema": ""}, {"schema": "a\0"}])
def test_what_cannot_be_meant_is_refused_when_the_store_is_made(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        PostgresStore(dsn(), **options)


def test_without_the_driver_it_is_said_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.delitem(sys.modules, "toolnexus.stores.postgres")
    with pytest.raises(MissingExtra, match=r"toolnexus\[postgres\]"):
        importlib.import_module("toolnexus.stores.postgres")


# Keys and what lists show


async def test_any_text_may_be_shown_and_comes_back_as_it_was(schema: str) -> None:
    nasty = "a\0b\ud800 \\' %s \U0001f600"
    shown = Head(title=nasty, updated=2.5, messages=2**40, status=nasty, preview=nasty, text=nasty)
    async with backend(schema) as store:
        grant = await begun(store, ONE, key=Key(nasty, nasty))
        await store.append(grant, [], expect=1, head=shown, release=True)
        (item,) = (await store.list(nasty, after=None, limit=9, query=None)).items
        assert (item.id, item.title, item.status, item.preview) == (nasty, nasty, nasty, nasty)
        assert (item.updated, item.messages) == (2.5, 2**40)


async def test_names_longer_than_an_index_takes_are_told_apart(schema: str) -> None:
    long = "".join(chr(0x10000 + secrets.randbelow(0x10000)) for _ in range(512))
    async with backend(schema) as store:
        for key in (Key(long, long), Key(long, long[:-1]), Key(long[:-1], long), Key("", long + long)):
            assert (await begun(store, ONE, key=key)).opened


async def test_where_the_scope_ends_and_the_id_begins_makes_a_difference(schema: str) -> None:
    async with backend(schema) as store:
        for key in (Key("a", "bc"), Key("ab", "c"), Key("", "abc"), Key("1:a", "b")):
            assert (await begun(store, ONE, key=key)).opened


async def test_a_list_is_read_page_by_page_last_changed_first(schema: str) -> None:
    async with backend(schema) as store:
        for number in (*range(5), 1):
            await said(store, "x", key=Key("", str(number)))
        await said(store, "x", key=Key("other", "9"))
        pages: list[list[str]] = []
        after: str | None = None
        while True:
            page = await store.list("", after=after, limit=2, query=None)
            pages.append([item.id for item in page.items])
            if (after := page.after) is None:
                break
        assert pages == [["1", "4"], ["3", "2"], ["0"]]
        with pytest.raises(ConfigurationError, match="no place"):
            await store.list("", after="x", limit=2, query=None)


# Search


async def test_all_words_have_to_occur_wherever_they_were_said(schema: str) -> None:
    async with backend(schema) as store:
        await said(store, "The kettle is on.", title="Tea time")
        await said(store, "Two CUPS, please", title="Tea time")
        await said(store, "a kettle", key=Key("", "d"))
        await said(store, "kettle cups tea", key=Key("other", "e"))
        assert await found(store, "kettle") == ["d", "c"]
        assert await found(store, "cups, KETTLE; tea") == ["c"]
        assert await found(store, "kettle saucer") == []
        assert await found(store, "?!") == []
        assert await found(store, " ") == ["d", "c"]


async def test_a_search_may_have_any_number_of_words(schema: str) -> None:
    many = [f"w{number}" for number in range(3000)]
    async with backend(schema) as store:
        await said(store, " ".join(many[:1500]))
        await said(store, " ".join(many[1500:-1]), title=many[-1])
        assert await found(store, " ".join(many)) == ["c"]
        assert await found(store, " ".join([*many, "another"])) == []


async def test_history_that_was_edited_is_searched_as_it_is_now(schema: str) -> None:
    async with backend(schema) as store:
        await said(store, "before", title="old")
        await said(store, "after", title="new", anew=True)
        assert [await found(store, query) for query in ("before", "old", "after", "new")] == [[], [], ["c"], ["c"]]


async def test_a_text_with_more_words_than_one_index_row_takes_is_searched(schema: str) -> None:
    wide = "\U00010428" * 9
    async with backend(schema) as store:
        await said(store, " ".join(f"{number:x}{wide}" for number in range(40_000)))
        await said(store, "y" * 3_000_000, key=Key("", "d"))
        assert await found(store, f"9c3f{wide} 0{wide}") == ["c"]
        assert await found(store, "y" * 3_000_000) == ["d"]


async def test_what_was_said_is_indexed_when_somebody_searches_and_found_before_that(
    schema: str, admin: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "_INDEXED_AT_ONCE", 2)
    monkeypatch.setattr(postgres, "_INDEXING", 0.0)

    def rows(table: str) -> int:
        row = admin.execute(f"SELECT count(*) FROM {schema}.{table}").fetchone()
        assert row is not None
        return row[0]

    async with backend(schema) as store:
        for number in range(5):
            await said(store, f"one_{number} all", key=Key("", str(number)))
        counts = [(rows("tn_said"), rows("tn_text"))]
        for _ in range(4):
            assert [await found(store, query) for query in ("?", " ")] == [[], ["4", "3", "2", "1", "0"]]
            assert await found(store, "all") == ["4", "3", "2", "1", "0"]
            counts.append((rows("tn_said"), rows("tn_text")))
        assert counts == [(5, 0), (3, 2), (1, 4), (0, 5), (0, 5)]
        await said(store, "two all", key=Key("", "0"))
        assert await found(store, "one_0 two all") == ["0"]  # some of it is indexed and some is not
        assert [await found(store, word) for word in ("one", "al", "one%0")] == [[], [], []]


async def test_searches_and_turns_at_once_miss_nothing(schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "_INDEXED_AT_ONCE", 3)
    async with backend(schema) as store, backend(schema) as other:
        for number in range(40):
            await said(store, "all", key=Key("", str(number)))
        more = (said(store, "all", key=Key("", str(number))) for number in range(40, 50))
        answers = await asyncio.gather(*(found(each, "all") for _ in range(20) for each in (store, other)), *more)
        for answer in answers[:40]:
            assert answer is not None
            assert {str(number) for number in range(40)} <= set(answer)
        assert len(await found(store, "all")) == 50


async def test_what_is_forgotten_while_it_is_being_indexed_is_forgotten(
    schema: str, admin: psycopg.Connection[Any]
) -> None:
    gone = Key("", "d")
    async with backend(schema) as store:
        await said(store, "before")
        await said(store, "before", key=gone)
        with admin.transaction():
            admin.execute(Statements(schema).index, {"most": 9})
            assert await found(store, "before") == ["d", "c"]  # without waiting
            edited = asyncio.ensure_future(said(store, "after", anew=True))
            deleted = asyncio.ensure_future(store.delete(gone))
            await waits_for_a_lock(schema, sessions=2)
        await edited
        assert await deleted
        assert [await found(store, query) for query in ("before", "after")] == [[], ["c"]]
        assert admin.execute(f"SELECT count(*) FROM {schema}.tn_text").fetchone() == (1,)


async def test_who_may_only_read_can_search_and_is_told_why_nothing_is_written(
    schema: str, admin: psycopg.Connection[Any]
) -> None:
    reader = f"{schema}_reader"
    async with backend(schema) as store:
        await said(store, "hello")
    admin.execute(f"CREATE ROLE {reader} LOGIN")
    try:
        admin.execute(f"GRANT USAGE ON SCHEMA {schema} TO {reader}")
        admin.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {reader}")
        for options, why in (
            (f"-crole%3D{reader}", "permission denied"),
            ("-cdefault_transaction_read_only%3Don", "read-only transaction"),
        ):
            async with contextlib.aclosing(PostgresBackend(f"{dsn()}&options={options}", schema=schema)) as store:
                seen = await store.read(KEY)
                assert seen is not None
                assert seen.records == (ONE, TWO)
                assert await found(store, "hello") == ["c"]
                with pytest.raises(StoreError, match=why):
                    await store.begin(KEY, owner=owner(), ttl=60, expect=seen.version, records=[THREE])
    finally:
        admin.execute(f"DROP OWNED BY {reader}")
        admin.execute(f"DROP ROLE {reader}")


async def test_nothing_of_a_deleted_conversation_is_left(schema: str, admin: psycopg.Connection[Any]) -> None:
    async with backend(schema) as store:
        await said(store, "hello", title="t")
        await found(store, "hello")
        await said(store, "hello, not indexed yet", title="t")
        assert await store.delete(KEY)
    for table in ("tn_conversation", "tn_record", "tn_said", "tn_text"):
        assert admin.execute(f"SELECT count(*) FROM {schema}.{table}").fetchone() == (0,), table


# Connections


async def test_connections_that_the_server_ended_are_replaced_unnoticed(
    schema: str, admin: psycopg.Connection[Any]
) -> None:
    async with backend(schema, pool_size=1) as store:
        grant = await begun(store, ONE)
        for last in (1, 2):
            (pid,) = backends_of(admin, schema)
            admin.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))
            assert await store.append(grant, [TWO], expect=last) == last + 1


class Proxy:
    """Between a client and the server. After the client said `last_words`, the answer is kept and all is cut."""

    def __init__(self) -> None:
        self.last_words: bytes | None = None
        self.cut = 0
        self._armed = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._sockets: list[socket.socket] = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", PORT))
                self._sockets += [client, server]
                for source, target, cuts in ((client, server, False), (server, client, True)):
                    threading.Thread(target=self._pass, args=(source, target, cuts), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, cuts: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if cuts and self._armed:
                    self._armed = False
                    self.cut += 1
                    break
                if not cuts and self.last_words is not None and self.last_words in data:
                    self.last_words, self._armed = None, True
                target.sendall(data)
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    made = Proxy()
    yield made
    made.close()


async def test_an_operation_whose_acknowledgement_is_lost_is_done_once(schema: str, proxy: Proxy) -> None:
    async with backend(schema) as direct, backend(schema, port=proxy.port, pool_size=1) as store:
        await store.read(KEY)  # connects and makes the tables

        proxy.last_words = b"tn_begin"
        grant = await begun(store, ONE)
        assert (grant.opened, grant.version.last, grant.fence) == (True, 1, 1)

        proxy.last_words = b"tn_append"
        assert await store.append(grant, [TWO], expect=1) == 2

        proxy.last_words = b"UPDATE"
        assert await store.renew(grant, ttl=60) == grant

        proxy.last_words = b"tn_append"
        assert await store.append(grant, [THREE], expect=2, head=head("word"), release=True) == 3

        seen = await direct.read(KEY)
        assert seen is not None
        assert (seen.records, seen.lease) == ((ONE, TWO, THREE), None)

        proxy.last_words = b"COMMIT\0"  # READ COMMITTED was said before
        assert await store.delete(KEY) is True
        assert await direct.read(KEY) is None
        assert proxy.cut == 5


async def test_a_server_that_is_gone_is_an_error_and_comes_back_by_itself(schema: str, proxy: Proxy) -> None:
    port = proxy.port
    async with backend(schema, port=port, pool_size=1) as store:
        grant = await begun(store, ONE)
        proxy.close()
        began = time.monotonic()
        with pytest.raises(StoreError, match="'c'") as caught:
            await store.append(grant, [TWO], expect=1)
        assert time.monotonic() - began < 5
        assert isinstance(caught.value.__cause__, psycopg.Error)
        assert caught.value.conversation_id == "c"
        with socket.create_server(("127.0.0.1", port)) as listener:
            back = threading.Thread(target=_forward_one, args=(listener,), daemon=True)
            back.start()
            assert await store.append(grant, [TWO], expect=1) == 2
    back.join(10)


def _forward_one(listener: socket.socket) -> None:
    """A server that is there again, for one connection."""
    client, _ = listener.accept()
    with client, socket.create_connection(("127.0.0.1", PORT)) as server:

        def back() -> None:
            while data := server.recv(65536):
                client.sendall(data)

        answers = threading.Thread(target=back, daemon=True)
        answers.start()
        while data := client.recv(65536):
            server.sendall(data)
        server.shutdown(socket.SHUT_WR)
        answers.join(10)


async def test_no_password_is_told(unused_port: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    told: list[str] = []
    for broken in (
        f"postgresql://u:hunter2@127.0.0.1:{unused_port}/d",
        f"host=127.0.0.1 port={unused_port} password=hunter2",
    ):
        store = PostgresStore(broken)
        told += [repr(store), repr(store.backend)]
        with pytest.raises(StoreError) as refused:
            await store.get("c")
        told += [str(refused.value), repr(refused.value.__cause__)]
        await store.aclose()
    for unreadable in (
        "host=127.0.0.1 hunter2",
        "postgresql://u:hunter2@[::1/d",
        "postgresql://u:a@hunter2@127.0.0.1/d",
        "postgres://u:hunter2/b@127.0.0.1/d",
        "postgresql://u:a?b@hunter2@127.0.0.1/d",
    ):
        with pytest.raises(ConfigurationError) as wrong:
            PostgresStore(unreadable)
        told.append(str(wrong.value))
        assert wrong.value.__suppress_context__
    assert "hunter2" not in "".join([*told, caplog.text])


@pytest.fixture
def unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@pytest.mark.parametrize(
    "rest",
    ["/test", "127.0.0.1/test", "postgres@127.0.0.1:5432/test", "u:a?b%40c@127.0.0.1/d", "127.0.0.1/d?user=a@b", "@/d"],
)
def test_a_url_that_can_only_mean_one_thing_is_read(rest: str) -> None:
    PostgresStore(f"postgresql://{rest}")


async def test_a_closed_store_says_so(schema: str) -> None:
    store = PostgresStore(dsn(), schema=schema)
    await store.save("c", [])
    await store.aclose()
    await store.aclose()
    with pytest.raises(StoreError, match="closed"):
        await store.get("c")


async def test_twenty_turns_share_one_connection_because_none_is_held_while_the_model_thinks(schema: str) -> None:
    thinking = 0
    all_think = asyncio.Event()

    async def generate(request: dict[str, Any]) -> dict[str, Any]:
        nonlocal thinking
        thinking += 1
        if thinking == 20:
            all_think.set()
        await all_think.wait()
        return {"content": request["messages"][-1]["content"]}

    store = PostgresStore(dsn(), schema=schema, pool_size=1)
    async with create_in_process_client(generate=generate, store=store) as client:
        results = await asyncio.gather(*(client.ask(f"{number}", id=f"c{number}") for number in range(20)))
    assert [result.text for result in results] == [f"{number}" for number in range(20)]
    await store.aclose()


def test_it_is_made_before_there_is_a_loop_and_used_from_several(schema: str) -> None:
    store = PostgresStore(dsn(), schema=schema, pool_size=2)

    def save(number: int) -> None:
        asyncio.run(store.save(f"c{number}", [{"role": "user", "content": f"{number}"}]))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(save, range(8)))
    assert len(asyncio.run(store.list()).items) == 8
    asyncio.run(store.aclose())


def test_it_is_used_after_a_fork_by_parent_and_child(schema: str) -> None:
    program = f"""
import asyncio, os, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # threads of ours run when we fork
from toolnexus.stores.postgres import PostgresStore
store = PostgresStore({dsn()!r}, schema={schema!r}, pool_size=1)
asyncio.run(store.save("c", [{{"role": "user", "content": "parent"}}]))
child = os.fork()
if child == 0:
    asyncio.run(store.save("d", [{{"role": "user", "content": "child"}}]))
    asyncio.run(store.aclose())
    os._exit(0)
status = os.waitpid(child, 0)[1]
asyncio.run(store.save("e", [{{"role": "user", "content": "parent again"}}]))
print(status, [item.id for item in asyncio.run(store.list()).items])
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=50)
    assert (done.stdout, done.stderr) == ("0 ['e', 'd', 'c']\n", "")


async def test_an_append_that_is_cancelled_while_it_waits_for_the_server_is_done_first(
    schema: str, admin: psycopg.Connection[Any]
) -> None:
    async with backend(schema) as store:
        grant = await begun(store, ONE)
        with admin.transaction():
            admin.execute(f"SELECT FROM {schema}.tn_conversation FOR UPDATE")
            writing = asyncio.ensure_future(store.append(grant, [TWO], expect=1))
            await waits_for_a_lock(schema)
            writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
        seen = await store.read(KEY)
        assert seen is not None
        assert seen.records == (ONE, TWO)


async def waits_for_a_lock(schema: str, *, sessions: int = 1) -> None:
    """Return when so many sessions wait for a lock on a table of a schema."""

    def look() -> None:
        asked = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND position(%s IN query) > 0"
        with psycopg.connect(dsn(), autocommit=True) as connection:
            while len(connection.execute(asked, (schema,)).fetchall()) < sessions:
                pass

    await asyncio.to_thread(look)


async def test_an_append_that_waited_for_a_new_owner_is_fenced_and_stores_nothing(
    schema: str, admin: psycopg.Connection[Any]
) -> None:
    async with backend(schema) as store:
        grant = await begun(store, ONE)
        with admin.transaction():
            admin.execute(f"UPDATE {schema}.tn_conversation SET fence = fence + 1, token = 'another'")
            writing = asyncio.ensure_future(store.append(grant, [TWO], expect=1, head=head("text")))
            await waits_for_a_lock(schema)
        with pytest.raises(ConversationFenced):
            await writing
        seen = await store.read(KEY)
        assert seen is not None
        assert seen.records == (ONE,)
        assert await found(store, "text") == []


async def test_a_write_that_a_serializable_server_gives_up_is_done_again(
    schema: str, admin: psycopg.Connection[Any]
) -> None:
    store = PostgresBackend(dsn() + "&options=-c%20default_transaction_isolation%3Dserializable", schema=schema)
    grant = await begun(store, ONE)
    with admin.transaction():
        admin.execute(f"UPDATE {schema}.tn_conversation SET process = 'q'")
        writing = asyncio.ensure_future(store.append(grant, [TWO], expect=1))
        await waits_for_a_lock(schema)
    assert await writing == 2
    await store.aclose()


# Cost


async def test_a_turn_costs_as_many_statements_at_any_length(schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
    executed: list[Any] = []
    execute: Callable[..., Any] = psycopg.Connection.execute
    monkeypatch.setattr(
        psycopg.Connection,
        "execute",
        lambda self, query, *a, **k: executed.append(query) or execute(self, query, *a, **k),
    )
    store = PostgresStore(dsn(), schema=schema)
    fresh = PostgresStore(dsn(), schema=schema)
    message = {"role": "user", "content": "x"}
    counts: list[tuple[int, int]] = []
    async with (
        create_in_process_client(generate=lambda _: {"content": "y"}, store=store) as client,
        create_in_process_client(generate=lambda _: {"content": "y"}, store=fresh) as cold,
    ):
        await fresh.get("nobody")  # looks at the tables
        for length in (10, 10_000):
            await store.save(f"c{length}", [message] * length)
            executed.clear()
            await client.ask("x", id=f"c{length}")
            warm = len(executed)
            await cold.ask("x", id=f"c{length}")
            counts.append((warm, len(executed) - warm))
    assert counts == [(2, 3), (2, 3)]
    await store.aclose()
    await fresh.aclose()
