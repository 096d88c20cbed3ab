"""A store from one text, as it stands in a configuration or on a command line."""

from __future__ import annotations

import re
from collections.abc import Callable
from difflib import get_close_matches
from typing import TYPE_CHECKING
from urllib.parse import unquote

from toolnexus.errors import ConfigurationError

if TYPE_CHECKING:
    from toolnexus.stores.logstore import LogStore

_URL = re.compile(r"([A-Za-z][A-Za-z0-9.-]*)(\+[A-Za-z0-9_]+)?://(.*)", re.DOTALL)
_DATABASE = (".db", ".sqlite", ".sqlite3")


def open_store(url: str) -> LogStore:
    """The store that a text names. Nothing is connected to or made yet.

    | text | store |
    |---|---|
    | `sqlite:///chat.db`, `sqlite:////var/lib/chat.db` | `SQLiteStore`, the path relative or absolute |
    | a path that ends in `.db`, `.sqlite` or `.sqlite3` | the same |
    | `postgresql://…`, `postgres://…` | `PostgresStore` |
    | `redis://…`, `rediss://…`, `unix://…` | `RedisStore` |
    | `file:///var/lib/chats` | `FileStore`; `%20` stands for a blank, as in any URL |
    | `memory://` | `InMemoryConversationStore` |

    What SQLAlchemy writes behind the name, as in `postgresql+asyncpg://`, is left out.

    Raises:
        ConfigurationError: It names none. The message shows nothing that could be secret.
        MissingExtra: The store needs an optional dependency.
    """
    match = _URL.fullmatch(url)
    if match is None:
        if url.lower().endswith(_DATABASE):
            return _sqlite_at(url)
        raise ConfigurationError(
            f"This text names no store. A path ends in {_either(_DATABASE)}; a URL is {_FORMS}. For SQLite in a file "
            "of any name, write 'sqlite:///NAME'."
        )
    scheme, driver, rest = match[1].lower(), match[2], match[3]
    opener = _OPENERS.get(scheme)
    if opener is None or (driver and scheme not in _WITH_DRIVER):
        named = scheme + (driver or "")
        close = get_close_matches(scheme, _OPENERS, n=1)
        meant = f" Did you mean {close[0] + '://'!r}?" if close else ""
        raise ConfigurationError(f"There is no store for {named + '://'!r}.{meant} A URL is {_FORMS}.")
    return opener(f"{scheme}://{rest}", rest)


def _sqlite(_: str, rest: str) -> LogStore:
    if rest.removeprefix("/") in ("", ":memory:"):
        raise ConfigurationError("'sqlite://' without a file forgets everything. For that, use 'memory://'.")
    if not rest.startswith("/"):
        raise ConfigurationError(
            "A path has three slashes before it when it is relative, as in 'sqlite:///chat.db', and four when it is "
            "absolute."
        )
    if "?" in rest:
        raise ConfigurationError("'sqlite://' takes no options after a '?'. Make a SQLiteStore(path, …) to set some.")
    return _sqlite_at(rest[1:])


def _sqlite_at(path: str) -> LogStore:
    from toolnexus.stores.sqlite import SQLiteStore

    return SQLiteStore(path)


def _postgres(url: str, _: str) -> LogStore:
    from toolnexus.stores.postgres import PostgresStore

    return PostgresStore(url)


def _redis(url: str, _: str) -> LogStore:
    from toolnexus.stores.redis import RedisStore

    return RedisStore(url)


def _file(_: str, rest: str) -> LogStore:
    from toolnexus.stores.file import FileStore

    path = unquote(rest.removeprefix("localhost"))
    if not path.startswith("/") or not path.strip("/"):
        raise ConfigurationError("A folder is absolute and has three slashes before it, as in 'file:///var/lib/chats'.")
    return FileStore(path)


def _memory(_: str, rest: str) -> LogStore:
    from toolnexus.stores.memory import InMemoryConversationStore

    if rest.strip("/"):
        raise ConfigurationError("'memory://' has nothing behind it: it keeps conversations in this process alone.")
    return InMemoryConversationStore()


def _either(values: tuple[str, ...]) -> str:
    return f"{', '.join(values[:-1])} or {values[-1]}"


_OPENERS: dict[str, Callable[[str, str], LogStore]] = {
    "sqlite": _sqlite,
    "postgresql": _postgres,
    "postgres": _postgres,
    "redis": _redis,
    "rediss": _redis,
    "unix": _redis,
    "file": _file,
    "memory": _memory,
}
_WITH_DRIVER = ("sqlite", "postgresql", "postgres")
_FORMS = _either(tuple(f"{scheme}://" for scheme in _OPENERS))
