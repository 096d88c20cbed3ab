from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import redis

from toolnexus.errors import (
    ConfigurationError,
    ConversationConflict,
    ConversationFenced,
    CorruptConversation,
    StoreError,
    StoreTooNew,
)
from toolnexus.stores.backend import NOTHING, Grant, Head, Key, Owner, Version
from toolnexus.stores.redis import RedisBackend, RedisStore

pytestmark = pytest.mark.service("redis")

URL = "redis://127.0.0.1:6379/0"
KEY = Key("", "c")
SERVER = shutil.which("redis-server")


@dataclass
class Place:
    """Keys of our own on the server."""

    prefix: str
    admin: redis.Redis
    opened: list[RedisBackend] = field(default_factory=list)

    def open(self, url: str = URL, **options: Any) -> RedisBackend:
        backend = RedisBackend(url, prefix=self.prefix, **options)
        self.opened.append(backend)
        return backend

    def names(self, key: Key = KEY) -> list[str]:
        """The keys of a conversation that there are."""
        return sorted(
            name.decode() for name in RedisBackend(URL, prefix=self.prefix)._keys(key) if self.admin.exists(name)
        )

    def ranks(self, scope: str = "") -> bytes:
        return RedisBackend(URL, prefix=self.prefix)._index(scope)[0]

    def all(self) -> list[str]:
        return sorted(name.decode() for name in self.admin.scan_iter(f"{self.prefix}:*", count=1000))


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    with redis.Redis.from_url(URL) as admin:
        place = Place(f"test-{secrets.token_hex(8)}", admin)
        yield place
        for backend in place.opened:
            await backend.aclose()
        if names := place.all():
            admin.delete(*names)


def owner() -> Owner:
    return Owner(token=secrets.token_hex(16), process="host|boot|1|2")


def head(status: str = "done", text: str = "", **more: Any) -> Head:
    return Head(**{"title": None, "updated": 1.5, "messages": 2, "status": status, "preview": "", "text": text, **more})


async def begun(
    backend: RedisBackend, key: Key = KEY, records: Sequence[bytes] = (b"open",), *, ttl: float = 30
) -> Grant:
    """A turn that was free to take, on a conversation that is new."""
    grant = await backend.begin(key, owner=owner(), ttl=ttl, expect=NOTHING, records=records)
    assert grant is not None
    return grant


async def kept(backend: RedisBackend, id: str = "c", text: str = "", *, scope: str = "", **more: Any) -> None:
    """A conversation of two records, whose turn has ended."""
    grant = await begun(backend, Key(scope, id))
    await backend.append(grant, [b"end"], expect=1, head=head(text=text, **more), release=True)


async def bodies(backend: RedisBackend, key: Key = KEY) -> list[bytes] | None:
    found = await backend.read(key)
    return None if found is None else list(found.records)


async def ids(backend: RedisBackend, query: str | None = None, *, scope: str = "", limit: int = 100) -> list[str]:
    found: list[str] = []
    after = None
    while True:
        page = await backend.list(scope, after=after, limit=limit, query=query)
        found += [item.id for item in page.items]
        after = page.after
        if after is None:
            return found


# Keys


async def test_keys_of_a_conversation_share_a_hash_tag_and_the_list_of_its_scope_has_another(place: Place) -> None:
    await kept(place.open(), text="hello")
    tags = {name: name.partition("{")[2].partition("}")[0] for name in place.all() if "{" in name}
    own = {tags.pop(name) for name in place.names()}
    assert len(place.names()) == 3
    assert len(own) == 1
    assert len(set(tags.values())) == 1
    assert own.isdisjoint(tags.values())


async def test_a_scope_that_ends_in_what_an_id_begins_with_is_another_one(place: Place) -> None:
    backend = place.open()
    await kept(backend, "b\0c", scope="a")
    assert await backend.read(Key("a\0b", "c")) is None
    assert await ids(backend, scope="a\0b") == []


def test_a_prefix_with_braces_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="brace"):
        RedisStore(URL, prefix="{all}")


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("inf"), float("nan")])
def test_an_expiry_that_is_no_time_is_refused(seconds: float) -> None:
    with pytest.raises(ConfigurationError, match="expire_after"):
        RedisStore(URL, expire_after=seconds)


async def test_a_deleted_conversation_leaves_no_key_and_no_place(place: Place) -> None:
    backend = place.open()
    await kept(backend, text="hello")
    assert await backend.delete(KEY)
    assert place.names() == []
    assert place.admin.zcard(place.ranks()) == 0


async def test_thousands_of_records_in_one_append_are_kept_and_recognised(place: Place) -> None:
    backend = place.open()
    grant = await begun(backend)
    records = [b"%d" % number for number in range(2500)]
    assert await backend.append(grant, records, expect=1) == 2501
    assert await backend.append(grant, records, expect=1) == 2501
    with pytest.raises(ConversationConflict):
        await backend.append(grant, [*records[:-1], b"another"], expect=1)
    assert await bodies(backend) == [b"open", *records]


# Lists


async def test_a_lease_alone_is_not_listed_and_goes_by_itself(place: Place) -> None:
    backend = place.open()
    await begun(backend, records=())
    assert await ids(backend) == []
    [name] = place.names()
    assert 0 < place.admin.pttl(name) <= 24 * 3600_000 + 30_000
    assert place.admin.zcard(place.ranks()) == 0


async def test_a_refused_append_leaves_the_order_of_the_list(place: Place) -> None:
    backend = place.open()
    first = await begun(backend, Key("", "first"))
    await backend.append(first, [b"more"], expect=1, head=head())
    await kept(backend, "second")
    with pytest.raises(ConversationConflict):
        await backend.append(first, [b"x"], expect=7, head=head())
    assert await ids(backend) == ["second", "first"]


async def test_a_refused_append_leaves_the_order_of_the_list_also_when_it_is_cancelled(place: Place) -> None:
    backend = place.open()
    first = await begun(backend, Key("", "first"))
    await backend.append(first, [b"more"], expect=1, head=head())
    await kept(backend, "second")
    refused = asyncio.create_task(backend.append(first, [b"x"], expect=7, head=head()))
    await asyncio.sleep(0)
    refused.cancel()
    await asyncio.wait({refused})
    assert refused.cancelled()
    assert await ids(backend) == ["second", "first"]


async def test_a_refused_append_to_a_deleted_conversation_leaves_no_place(place: Place) -> None:
    backend = place.open()
    grant = await begun(backend)
    await backend.append(grant, [b"more"], expect=1, head=head())
    await backend.delete(KEY)
    with pytest.raises(ConversationFenced):
        await backend.append(grant, [b"x"], expect=1, head=head())
    assert place.admin.zcard(place.ranks()) == 0


async def test_a_conversation_that_lost_its_place_is_listed_again_from_its_next_change_on(place: Place) -> None:
    backend = place.open()
    grant = await begun(backend)
    await backend.append(grant, [b"more"], expect=1, head=head())
    place.admin.zrem(place.ranks(), "c")  # as if the server had failed between the two writes
    assert await ids(backend) == []
    await backend.append(grant, [b"end"], expect=2, head=head(), release=True)
    assert await ids(backend) == ["c"]


async def test_a_place_without_a_conversation_is_not_shown_and_is_removed_by_the_list(place: Place) -> None:
    backend = place.open()
    for number in range(5):
        await kept(backend, f"c{number}")
    place.admin.delete(*place.names(Key("", "c1")), *place.names(Key("", "c4")))  # as expiry does
    assert await ids(backend, limit=2) == ["c3", "c2", "c0"]
    assert place.admin.zcard(place.ranks()) == 3


async def test_a_list_goes_on_beyond_places_of_what_has_expired(place: Place) -> None:
    backend = place.open(expire_after=100)
    for number in range(6):
        await kept(backend, f"c{number}")
    for number in range(1, 5):
        place.admin.delete(*place.names(Key("", f"c{number}")))
    page = await backend.list("", after=None, limit=1, query=None)
    assert [item.id for item in page.items] == ["c5"]
    assert page.total is None
    page = await backend.list("", after=page.after, limit=1, query=None)
    assert [item.id for item in page.items] == ["c0"]
    assert page.after is None


async def test_places_of_what_has_expired_are_removed_by_later_writes(place: Place) -> None:
    backend = place.open(expire_after=100)
    for number in range(20):
        await kept(backend, f"c{number}")
    for number in range(20):
        place.admin.delete(*place.names(Key("", f"c{number}")))
    grant = await begun(backend, Key("", "new"))
    for number in range(1, 17):
        await backend.append(grant, [b"x"], expect=number, head=head())
    assert place.admin.zrange(place.ranks(), 0, -1) == [b"new"]


async def test_a_search_finds_what_is_far_down_the_list(place: Place) -> None:
    backend = place.open()
    await kept(backend, "oldest", "The WEISSE Straße")
    await asyncio.gather(*(kept(backend, f"c{number}", "nothing") for number in range(210)))
    assert await ids(backend, "strasse weiße") == ["oldest"]
    assert len(await ids(backend, "nothing", limit=7)) == 210


async def test_a_search_looks_at_titles_and_at_all_turns_until_history_is_edited(place: Place) -> None:
    backend = place.open()
    grant = await begun(backend)
    await backend.append(grant, [b"1"], expect=1, head=head(text="Teal\0!", title="Colours"))
    await backend.append(grant, [b"2"], expect=2, head=head(text="ocean", title="Colours"))
    assert await ids(backend, "TEAL, ocean colours") == ["c"]
    assert await ids(backend, "teal oce") == []
    await backend.append(grant, [b"3"], expect=3, head=head(text="ocean", anew=True))
    assert await ids(backend, "teal") == []
    assert await ids(backend, "ocean") == ["c"]


async def test_a_foreign_place_in_a_list_is_refused(place: Place) -> None:
    with pytest.raises(ConfigurationError, match="after"):
        await place.open().list("", after="(1 2", limit=5, query=None)


# Expiry


def lives(place: Place, key: Key = KEY) -> set[int]:
    """Seconds that the keys of a conversation still live. -1: for ever."""
    return {-1 if (left := place.admin.pttl(name)) == -1 else round(left / 1000) for name in place.names(key)}


async def test_all_keys_of_a_conversation_expire_together_after_its_last_turn(place: Place) -> None:
    backend = place.open(expire_after=1000)
    await kept(backend, text="hello")
    assert len(place.names()) == 3
    assert lives(place) == {1000}


async def test_every_turn_makes_a_conversation_live_longer(place: Place) -> None:
    backend = place.open(expire_after=1000)
    await kept(backend, text="hello")
    for name in place.names():
        place.admin.pexpire(name, 5000)
    version = (await backend.read(KEY)).version  # pyright: ignore[reportOptionalMemberAccess]
    assert lives(place) == {5}
    grant = await backend.begin(KEY, owner=owner(), ttl=30, expect=version, records=[b"open"])
    assert grant is not None
    assert lives(place) == {-1}
    await backend.append(grant, [b"end"], expect=3, head=head(), release=True)
    assert lives(place) == {1000}


async def test_what_is_held_lives_longer_than_its_lease(place: Place) -> None:
    backend = place.open(expire_after=1000)
    await kept(backend)
    grant = await backend.begin(KEY, owner=owner(), ttl=30, expect=NOTHING, records=[b"behind"])
    assert grant is not None
    assert lives(place) == {1030}
    await backend.renew(grant, ttl=60)
    assert lives(place) == {1060}


async def test_a_turn_that_runs_does_not_expire_even_when_its_lease_has(place: Place) -> None:
    await begun(place.open(expire_after=1000), ttl=0)
    assert lives(place) == {-1}


async def test_a_turn_that_waits_for_a_person_does_not_expire(place: Place) -> None:
    backend = place.open(expire_after=1000)
    grant = await begun(backend)
    await backend.append(grant, [b"end"], expect=1, head=head("suspended", "hello"), release=True)
    assert lives(place) == {-1}
    grant = await backend.begin(KEY, owner=owner(), ttl=30, expect=grant.version, records=[])
    assert grant is not None
    await backend.append(grant, [b"open", b"end"], expect=2, head=head(), release=True)
    assert lives(place) == {1000}


async def test_a_turn_that_was_given_back_without_an_end_does_not_expire(place: Place) -> None:
    backend = place.open(expire_after=1000)
    grant = await begun(backend)
    await backend.append(grant, [], expect=1, release=True)
    assert lives(place) == {-1}


async def test_a_store_that_keeps_for_ever_keeps_what_was_to_expire(place: Place) -> None:
    await kept(place.open(expire_after=1000))
    grant = await place.open().begin(KEY, owner=owner(), ttl=30, expect=NOTHING, records=[])
    assert grant is not None
    assert lives(place) == {-1}


async def test_what_has_expired_is_as_if_it_had_never_been(place: Place) -> None:
    backend = place.open(expire_after=1000)
    old = await begun(backend)
    await backend.append(old, [b"end"], expect=1, head=head(), release=True)
    place.admin.delete(*place.names())
    assert await backend.read(KEY, after=old.version) is None
    assert not await backend.delete(KEY)
    new = await backend.begin(
        KEY, owner=owner(), ttl=30, expect=Version(incarnation=old.version.incarnation, last=2), records=[b"x"]
    )
    assert new is not None
    assert (new.opened, new.version.last, new.newer) == (False, 0, ())
    assert new.version.incarnation != old.version.incarnation


# What the server lost


@pytest.mark.parametrize("part", ["head", "log"])
async def test_a_conversation_of_which_a_key_was_evicted_is_corrupt_and_can_be_deleted(place: Place, part: str) -> None:
    backend = place.open()
    grant = await begun(backend)
    [name] = [name for name in place.names() if name.endswith(part)]
    place.admin.delete(name)
    left = [place.admin.dump(name) for name in place.names()]
    with pytest.raises(CorruptConversation, match="evict"):
        await backend.read(KEY)
    with pytest.raises(CorruptConversation):
        await backend.append(grant, [b"x"], expect=1, head=head())
    with pytest.raises(CorruptConversation):
        await begun(backend)
    assert [place.admin.dump(name) for name in place.names()] == left
    await backend.delete(KEY)
    assert await backend.read(KEY) is None


async def test_losing_confirmed_records_is_told_and_not_taken_for_a_shorter_history(place: Place) -> None:
    backend = place.open()
    grant = await begun(backend)
    await backend.append(grant, [b"end"], expect=1, head=head(), release=True)
    name = next(name for name in place.names() if name.endswith("log"))
    place.admin.rpop(name)  # as a replica that had not heard of the last append
    place.admin.hset(name.removesuffix("log") + "head", "last", 1)
    known = Version(incarnation=grant.version.incarnation, last=2)
    with pytest.raises(StoreError, match="confirmed"):
        await backend.read(KEY, after=known)
    with pytest.raises(StoreError, match="confirmed"):
        await backend.begin(KEY, owner=owner(), ttl=30, expect=known, records=[b"x"])
    assert await bodies(backend) == [b"open"]


# Layout


async def test_a_newer_layout_is_refused_and_left_alone(place: Place) -> None:
    place.admin.set(f"{place.prefix}:layout", 2)
    backend = place.open()
    for _ in range(2):
        with pytest.raises(StoreTooNew, match="layout 2"):
            await begun(backend)
    assert place.all() == [f"{place.prefix}:layout"]
    place.admin.set(f"{place.prefix}:layout", 1)
    await begun(backend)


async def test_without_auto_migrate_the_layout_has_to_be_there(place: Place) -> None:
    backend = place.open(auto_migrate=False)
    with pytest.raises(StoreError, match="auto_migrate"):
        await backend.read(KEY)
    assert place.all() == []
    await kept(place.open())
    assert await bodies(backend) == [b"open", b"end"]


# Connections


@dataclass
class Proxy:
    """A relay before the server. It can swallow the next answer and hang up, as when a network fails."""

    port: int = 0
    swallow: bool = False
    swallowed: int = 0

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"


@contextmanager
def proxy() -> Iterator[Proxy]:
    relay = Proxy()
    listener = socket.create_server(("127.0.0.1", 0))
    relay.port = listener.getsockname()[1]
    threads: list[threading.Thread] = []
    open_ones: list[socket.socket] = []

    def pump(source: socket.socket, target: socket.socket, *, answers: bool) -> None:
        try:
            while data := source.recv(65536):
                if answers and relay.swallow:
                    relay.swallow = False
                    relay.swallowed += 1
                    break
                target.sendall(data)
        except OSError:
            pass
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def accept() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", 6379))
            open_ones.extend((client, server))
            for source, target, answers in ((client, server, False), (server, client, True)):
                threads.append(threading.Thread(target=pump, args=(source, target), kwargs={"answers": answers}))
                threads[-1].start()

    accepting = threading.Thread(target=accept)
    accepting.start()
    try:
        yield relay
    finally:
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        accepting.join()
        for each in open_ones:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join()
        for each in open_ones:
            each.close()


async def test_an_operation_whose_answer_is_lost_is_sent_again_and_recognised(place: Place) -> None:
    with proxy() as relay:
        backend = place.open(relay.url)
        await backend.read(KEY)
        me = owner()

        relay.swallow = True
        grant = await backend.begin(KEY, owner=me, ttl=30, expect=NOTHING, records=[b"open", b"prompt"])
        assert grant is not None
        assert (grant.opened, grant.fence, grant.version.last) == (True, 1, 2)

        relay.swallow = True
        assert await backend.append(grant, [b"reply"], expect=2) == 3

        relay.swallow = True
        await backend.renew(grant, ttl=30)

        relay.swallow = True
        assert await backend.append(grant, [b"end"], expect=3, head=head(text="once"), release=True) == 4

        relay.swallow = True
        assert await bodies(backend) == [b"open", b"prompt", b"reply", b"end"]
        assert relay.swallowed == 5
        assert place.admin.get(next(name for name in place.names() if name.endswith("words"))) == b" once "
        await backend.aclose()


async def test_a_connection_that_was_killed_is_replaced(place: Place) -> None:
    backend = place.open(f"{URL}?client_name={place.prefix}")
    grant = await begun(backend)
    for number in range(1, 6):
        [client] = [each["id"] for each in place.admin.client_list() if each["name"] == place.prefix]
        place.admin.client_kill_filter(_id=client)
        assert await backend.append(grant, [b"x"], expect=number) == number + 1


async def test_killing_connections_all_the_time_loses_and_doubles_nothing(place: Place) -> None:
    backend = place.open(f"{URL}?client_name={place.prefix}")
    grant = await begun(backend)
    stop = threading.Event()

    def kill() -> None:
        with redis.Redis.from_url(URL) as admin:
            while not stop.wait(0.001):
                for each in admin.client_list():
                    if each["name"] == place.prefix:
                        admin.client_kill_filter(_id=each["id"])

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        last = 1
        while last < 200:
            try:
                last = await backend.append(grant, [b"%d" % last], expect=last)
            except StoreError:
                continue
    finally:
        stop.set()
        killer.join()
    assert await bodies(backend) == [b"open", *(b"%d" % number for number in range(1, 200))]


async def test_a_line_that_is_lost_again_and_again_is_made_anew_each_time(place: Place) -> None:
    backend = place.open(f"{URL}?client_name={place.prefix}")
    await begun(backend)
    with redis.Redis.from_url(URL) as admin:
        for _ in range(120):  # drivers' pools count to 100
            ids = [each["id"] for each in admin.client_list() if each["name"] == place.prefix]
            assert [admin.client_kill_filter(_id=each) for each in ids] == [1]
            assert await bodies(backend) == [b"open"]


@dataclass
class Server:
    """A Redis of our own, that keeps nothing when it ends."""

    port: int
    folder: Path
    options: Sequence[str]
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        assert SERVER is not None
        command = [SERVER, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", str(self.folder)]
        self.process = subprocess.Popen([*command, *self.options], stdout=subprocess.DEVNULL)
        end = time.monotonic() + 10
        while time.monotonic() < end:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                time.sleep(0.01)  # until it listens: there is nothing else to wait for
            else:
                return
        raise AssertionError("the server does not listen")

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


@contextmanager
def server(folder: Path, *options: str) -> Iterator[Server]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    own = Server(port, folder, options)
    own.start()
    try:
        yield own
    finally:
        own.stop()


needs_server = pytest.mark.skipif(SERVER is None, reason="there is no redis-server here to start and stop")


@needs_server
async def test_a_server_that_lost_everything_is_an_empty_one(tmp_path: Path) -> None:
    with server(tmp_path) as own:
        backend = RedisBackend(own.url)
        old = await begun(backend)
        own.stop()
        own.start()

        assert await backend.read(KEY, after=old.version) is None
        with pytest.raises(ConversationFenced):
            await backend.append(old, [b"x"], expect=1, head=head())
        with pytest.raises(ConversationFenced):
            await backend.renew(old, ttl=30)
        assert await ids(backend) == []
        new = await backend.begin(KEY, owner=owner(), ttl=30, expect=old.version, records=[b"x"])
        assert new is not None
        assert new.version.incarnation != old.version.incarnation
        assert (new.opened, new.newer) == (False, ())
        await backend.aclose()


@needs_server
async def test_a_server_that_is_away_is_a_store_error_and_comes_back(tmp_path: Path) -> None:
    with server(tmp_path) as own:
        backend = RedisBackend(own.url)
        await kept(backend)
        own.stop()
        began = time.monotonic()
        with pytest.raises(StoreError, match=rf"127\.0\.0\.1:{own.port}") as failed:
            await backend.read(KEY)
        assert time.monotonic() - began < 5
        assert failed.value.conversation_id == "c"
        assert isinstance(failed.value.__cause__, redis.ConnectionError)
        own.start()
        assert await backend.read(KEY) is None
        await backend.aclose()


@needs_server
async def test_a_restart_in_the_middle_is_waited_for(tmp_path: Path) -> None:
    with server(tmp_path) as own:
        backend = RedisBackend(own.url)
        await kept(backend)
        own.stop()
        reading = asyncio.create_task(backend.read(KEY))
        await asyncio.to_thread(own.start)
        assert await reading is None
        await backend.aclose()


@needs_server
async def test_passwords_are_in_no_error_and_no_repr(tmp_path: Path) -> None:
    with server(tmp_path, "--requirepass", "right-secret") as own:
        store = RedisStore(f"redis://somebody:wrong-secret@127.0.0.1:{own.port}/0")
        with pytest.raises(StoreError) as failed:
            await store.get("c")
        error: BaseException | None = failed.value
        while error is not None:
            assert "secret" not in f"{error} {error!r}"
            error = error.__cause__
        assert "secret" not in f"{store!r} {store.backend!r} {vars(store.backend)!r}"
        await store.aclose()

        store = RedisStore(f"redis://:right-secret@127.0.0.1:{own.port}/0")
        assert await store.get("c") is None
        await store.aclose()


@needs_server
async def test_a_server_that_became_a_replica_is_left_for_the_new_primary(tmp_path: Path) -> None:
    with server(tmp_path) as own, redis.Redis(port=own.port) as admin:
        backend = RedisBackend(own.url)
        await kept(backend)
        admin.replicaof("127.0.0.1", "1")
        with pytest.raises(StoreError, match="ReadOnlyError"):
            await begun(backend, Key("", "d"))
        admin.replicaof("NO", "ONE")
        assert (await begun(backend, Key("", "d"))).opened
        await backend.aclose()


@pytest.mark.parametrize(
    "url",
    ["http://:top-secret@host", "redis://me:top/secret@host:6379", "redis://:top-secret@host/0?socket_timeout=x", ""],
)
def test_a_url_that_cannot_be_read_is_not_repeated(url: str) -> None:
    with pytest.raises(ConfigurationError) as failed:
        RedisStore(url)
    assert "secret" not in f"{failed.value} {failed.value.__cause__}"
    assert failed.value.__suppress_context__


async def test_a_closed_store_says_so(place: Place) -> None:
    backend = place.open()
    await begun(backend)
    await backend.aclose()
    await backend.aclose()
    with pytest.raises(StoreError, match="closed"):
        await backend.read(KEY)


async def test_options_of_the_url_cannot_turn_bodies_into_text(place: Place) -> None:
    backend = place.open(f"{URL}?decode_responses=true")
    await begun(backend, records=[b"\xff\x00"])
    assert await bodies(backend) == [b"\xff\x00"]


# Threads, loops, processes, cancellation


def test_a_store_made_before_any_loop_is_used_by_several(place: Place) -> None:
    backend = place.open()
    failed: list[BaseException] = []

    async def many(thread: int) -> None:
        await asyncio.gather(*(kept(backend, f"{thread}-{number}") for number in range(20)))

    def use(thread: int) -> None:
        try:
            asyncio.run(many(thread))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert len(asyncio.run(ids(backend))) == 80


@pytest.mark.parametrize("ticks", range(6))
async def test_a_cancelled_append_has_a_known_outcome(place: Place, ticks: int) -> None:
    backend = place.open()
    grant = await begun(backend)
    writing = asyncio.create_task(backend.append(grant, [b"x"], expect=1, head=head(), release=True))
    for _ in range(ticks):
        await asyncio.sleep(0)
    if writing.cancel():
        with pytest.raises(asyncio.CancelledError):
            await writing
    else:  # the answer was there already
        assert await writing == 2
    stored = await bodies(backend)
    assert stored == ([b"open", b"x"] if ticks else [b"open"])
    lease = await backend.read(KEY)
    assert lease is not None
    assert (lease.lease is None) == (ticks > 0)


async def test_a_failing_operation_does_not_harm_those_it_shares_a_round_trip_with(place: Place) -> None:
    backend = place.open()
    grant = await begun(backend)
    keys = [Key("", f"c{number}") for number in range(64)]
    name = next(name for name in place.names() if name.endswith("log"))
    place.admin.delete(name)
    place.admin.set(name, "no list")
    first, failed, *others = await asyncio.gather(
        begun(backend, Key("", "first")),
        backend.append(grant, [b"x"], expect=1),
        *(begun(backend, key) for key in keys),
        return_exceptions=True,
    )
    assert isinstance(failed, StoreError)
    assert all(isinstance(other, Grant) and other.opened for other in [first, *others])


IN_A_CHILD = """
import asyncio, os, sys, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of forks beside threads
from toolnexus.stores.redis import RedisStore

store = RedisStore(sys.argv[1], prefix=sys.argv[2])
asyncio.run(store.save("parent", [{"role": "user", "content": "before"}]))
if (child := os.fork()) == 0:
    asyncio.run(store.save("child", [{"role": "user", "content": "in the child"}]))
    asyncio.run(store.aclose())
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert asyncio.run(store.get("child")) == [{"role": "user", "content": "in the child"}]
asyncio.run(store.aclose())
"""

FIRST_USE = """
import asyncio, sys
from toolnexus.stores.redis import RedisStore

async def main():
    store = RedisStore(sys.argv[1], prefix=sys.argv[2])
    sys.stdin.readline()
    await store.save("one", [{"role": "user", "content": "x"}])
    await store.aclose()

asyncio.run(main())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
def test_a_store_can_be_used_on_both_sides_of_a_fork(place: Place) -> None:
    subprocess.run([sys.executable, "-W", "error", "-c", IN_A_CHILD, URL, place.prefix], check=True, timeout=30)


def test_four_processes_may_use_an_empty_server_first_at_once(place: Place) -> None:
    command = [sys.executable, "-W", "error", "-c", FIRST_USE, URL, place.prefix]
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE) for _ in range(4)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.close()
    assert [process.wait(30) for process in processes] == [0] * 4


def test_without_redis_py_it_is_said_what_to_install() -> None:
    code = """
import sys
sys.modules["redis"] = None
from toolnexus.errors import MissingExtra
try:
    import toolnexus.stores.redis
except MissingExtra as error:
    assert "toolnexus[redis]" in str(error)
else:
    raise AssertionError
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)


async def test_the_store_is_a_log_store_with_a_scope(place: Place) -> None:
    store = RedisStore(URL, prefix=place.prefix, scope="tenant", expire_after=1000)
    message = {"role": "user", "content": "hello"}
    await store.save("c", [message])
    assert await store.get("c") == [message]
    assert [item.id for item in (await store.list()).items] == ["c"]
    assert lives(place, Key("tenant", "c")) == {1000}
    assert await store.scoped("other").get("c") is None
    await store.aclose()
