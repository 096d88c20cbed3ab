"""Every store of ours through every promise of a store."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from toolnexus.stores.logstore import LogStore
from toolnexus.stores.memory import MemoryBackend
from toolnexus.testing import StoreContract

POSTGRES = "postgresql://postgres@127.0.0.1:5432/test?sslmode=disable&gssencmode=disable"
REDIS = "redis://127.0.0.1:6379/0"


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where one test keeps its conversations. The functions are the fixtures of the contract."""

    open: Callable[[], Any]
    open_expiring: Callable[[], Any] | None = None
    make_newer: Callable[[], None] | None = None


@contextmanager
def memory(folder: Path) -> Iterator[Place]:
    backend = MemoryBackend()
    yield Place(open=lambda: LogStore(backend))


@contextmanager
def sqlite(folder: Path) -> Iterator[Place]:
    from toolnexus.stores.sqlite import SQLiteStore

    path = folder / "chat.db"

    def make_newer() -> None:
        connection = sqlite3.connect(path)
        connection.execute("PRAGMA user_version = 99")
        connection.close()

    yield Place(open=lambda: SQLiteStore(path), make_newer=make_newer)


@contextmanager
def file(folder: Path) -> Iterator[Place]:
    from toolnexus.stores import frames
    from toolnexus.stores.file import FileStore

    def make_newer() -> None:
        for log in folder.glob("**/*.log"):
            header, _, rest = log.read_bytes().partition(b"\n")
            log.write_bytes(frames.note(header[9:].replace(b'"v":1', b'"v":2')) + rest)
        for order in folder.glob("**/order"):
            order.write_bytes(order.read_bytes().replace(b'"v":1', b'"v":2', 1))

    yield Place(open=lambda: FileStore(folder / "chats"), make_newer=make_newer)


@contextmanager
def postgres(folder: Path) -> Iterator[Place]:
    import psycopg

    from toolnexus.stores.postgres import PostgresStore

    schema = f"tn_{secrets.token_hex(8)}"
    with psycopg.connect(POSTGRES, autocommit=True) as admin:
        try:
            yield Place(
                open=lambda: PostgresStore(POSTGRES, schema=schema),
                make_newer=lambda: admin.execute(f"INSERT INTO {schema}.tn_schema VALUES (99)"),  # type: ignore[arg-type]
            )
        finally:
            admin.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")


@contextmanager
def redis(folder: Path) -> Iterator[Place]:
    from redis import Redis

    from toolnexus.stores.redis import RedisStore

    prefix = f"tn_{secrets.token_hex(8)}"
    admin = Redis.from_url(REDIS)
    try:
        yield Place(
            open=lambda: RedisStore(REDIS, prefix=prefix),
            open_expiring=lambda: RedisStore(REDIS, prefix=prefix, expire_after=0.5),
            make_newer=lambda: admin.set(f"{prefix}:layout", 99),
        )
    finally:
        if names := list(admin.scan_iter(f"{prefix}*", count=1_000)):
            admin.delete(*names)
        admin.close()


STORES = [
    pytest.param(memory, id="memory"),
    pytest.param(sqlite, id="sqlite"),
    pytest.param(file, id="file"),
    pytest.param(postgres, id="postgres", marks=pytest.mark.service("postgres")),
    pytest.param(redis, id="redis", marks=pytest.mark.service("redis")),
]


@pytest.fixture(params=STORES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    make: Callable[[Path], AbstractContextManager[Place]] = request.param
    with make(tmp_path) as place:
        yield place


@pytest.fixture
def open(place: Place) -> Callable[[], Any]:
    return place.open


class TestStores(StoreContract):
    @pytest.fixture
    def open_expiring(self, place: Place) -> Callable[[], Any] | None:
        return place.open_expiring

    @pytest.fixture
    def make_newer(self, place: Place) -> Callable[[], None] | None:
        return place.make_newer
