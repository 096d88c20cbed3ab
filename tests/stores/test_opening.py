from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from toolnexus.errors import ConfigurationError
from toolnexus.stores import postgres, redis, sqlite
from toolnexus.stores.file import FileStore
from toolnexus.stores.memory import InMemoryConversationStore
from toolnexus.stores.opening import open_store

HELLO = {"role": "user", "content": "hello"}


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Which stores were made, and with what."""
    made: list[tuple[str, str]] = []
    for module, name in ((sqlite, "SQLiteStore"), (postgres, "PostgresStore"), (redis, "RedisStore")):
        monkeypatch.setattr(module, name, lambda argument, name=name: made.append((name, argument)))
    return made


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///chat.db", "chat.db"),
        ("sqlite:///a/b c.x", "a/b c.x"),
        ("sqlite:////var/lib/chat.db", "/var/lib/chat.db"),
        ("sqlite:///C:/chat.db", "C:/chat.db"),
        ("SQLite+aiosqlite:///50%25.db", "50%25.db"),
        ("chat.db", "chat.db"),
        ("/var/lib/chat.sqlite", "/var/lib/chat.sqlite"),
        ("./Chat.SQLITE3", "./Chat.SQLITE3"),
    ],
)
def test_a_file_of_sqlite_is_named_as_people_are_used_to(url: str, path: str, made: list[Any]) -> None:
    open_store(url)
    assert made == [("SQLiteStore", path)]


@pytest.mark.parametrize(
    ("url", "store", "given"),
    [
        ("postgresql://u:p@h:5432/db?sslmode=require", "PostgresStore", "postgresql://u:p@h:5432/db?sslmode=require"),
        ("postgres://h/db", "PostgresStore", "postgres://h/db"),
        ("postgresql+asyncpg://h/db", "PostgresStore", "postgresql://h/db"),
        ("redis://h:6379/1", "RedisStore", "redis://h:6379/1"),
        ("rediss://:p@h", "RedisStore", "rediss://:p@h"),
        ("unix:///run/redis.sock?db=1", "RedisStore", "unix:///run/redis.sock?db=1"),
    ],
)
def test_a_server_is_named_by_its_url(url: str, store: str, given: str, made: list[Any]) -> None:
    open_store(url)
    assert made == [(store, given)]


@pytest.mark.parametrize("url", ["memory://", "memory:///", "MEMORY://"])
def test_memory_needs_no_more_than_its_name(url: str) -> None:
    assert type(open_store(url)) is InMemoryConversationStore


@pytest.mark.parametrize("host", ["", "localhost"])
async def test_a_folder_is_named_by_its_url(host: str, tmp_path: Path) -> None:
    folder = tmp_path / "my chats"
    store = open_store(f"file://{host}{str(folder).replace(' ', '%20')}")
    assert type(store) is FileStore
    await store.save("c", [HELLO])
    assert await FileStore(folder).get("c") == [HELLO]


@pytest.mark.parametrize(
    ("url", "hint"),
    [
        ("sqlte:///chat.db", "Did you mean 'sqlite://'"),
        ("postgress://h/db", "Did you mean 'postgres"),
        ("mysql://h/db", "There is no store for 'mysql://'"),
        ("redis+tls://h", r"There is no store for 'redis\+tls://'"),
        ("chat", "A path ends in .db, .sqlite or .sqlite3"),
        ("", "A path ends in"),
        ("postgres", "a URL is sqlite://"),
        ("sqlite://chat.db", "sqlite:///chat.db"),
        ("sqlite://", "memory://"),
        ("sqlite:///:memory:", "memory://"),
        ("sqlite:///chat.db?timeout=5", "no options"),
        ("file://chats", "three slashes"),
        ("file://host/chats", "three slashes"),
        ("file:///", "three slashes"),
        ("memory://chats", "nothing behind it"),
    ],
)
def test_what_names_no_store_is_refused_with_what_to_write_instead(url: str, hint: str, made: list[Any]) -> None:
    with pytest.raises(ConfigurationError, match=hint):
        open_store(url)
    assert made == []


@pytest.mark.parametrize(
    "url", ["mysql://u:hunter2@h/db", "sqlite://u:hunter2@h/db", "file://hunter2@h/db", "memory://hunter2", "hunter2@h"]
)
def test_no_secret_is_shown(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        open_store(url)
    assert "hunter2" not in str(caught.value)


def test_only_the_store_that_is_chosen_is_loaded() -> None:
    program = (
        "import sys; from toolnexus.stores.opening import open_store; open_store('memory://');"
        "print(*[name for name in ('sqlite3', 'psycopg', 'redis', 'toolnexus.stores.file') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.split() == []
