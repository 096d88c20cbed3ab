"""Keeps what sign-ins gave, in one file for each issuer, which nobody but this user can read. It blocks.

A file holds `{"issuer", "metadata", "servers": {url: {"client", "tokens", "expires_at"}}}`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from toolnexus import _json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from toolnexus.tools import JSONObject

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_UNSAFE = re.compile(r"[^A-Za-z0-9.-]+")


class Tokens:
    """What sign-ins gave. It may be used from several threads.

    Args:
        folder: Where the files are; it is made when it is needed. None: nothing outlives this object.
    """

    def __init__(self, folder: str | os.PathLike[str] | None) -> None:
        self._folder = None if folder is None else Path(folder)
        self._lock = threading.Lock()
        self._memory: dict[str, JSONObject] = {}

    def find(self, url: str) -> JSONObject | None:
        """What is known for a server. None: nobody signed in to it."""
        with self._lock:
            return next((each for each in self._all() if url in _servers(each)), None)

    def keep(self, issuer: str, url: str, *, client: Any, metadata: Any, tokens: Any, expires_at: float | None) -> None:
        """Keep what a sign-in, or a refresh, gave. None of `tokens`: nobody signed in yet, but the client is known.

        Raises:
            OSError: It cannot be written.
        """
        with self._lock:
            # Read again: another process may have signed in to another server of the issuer meanwhile.
            old = next((each for each in self._all() if each.get("issuer") == issuer), None)
            servers = {} if old is None else _servers(old)
            here = {"client": client, "tokens": tokens, "expires_at": expires_at}
            self._write({"issuer": issuer, "metadata": metadata, "servers": {**servers, url: here}})
            for each in list(self._all()):  # it may have had another issuer before
                if each.get("issuer") != issuer and url in _servers(each):
                    others = {name: kept for name, kept in _servers(each).items() if name != url}
                    self._write({**each, "servers": others})

    def _all(self) -> Iterator[JSONObject]:
        if self._folder is None:
            yield from self._memory.values()
            return
        try:
            paths = sorted(self._folder.glob("*.json"))
        except OSError:
            return
        for path in paths:
            with contextlib.suppress(OSError, ValueError):
                value = _json.loads(path.read_bytes())
                if isinstance(value, dict):
                    yield cast("JSONObject", value)

    def _write(self, value: JSONObject) -> None:
        issuer = value["issuer"]
        if self._folder is None:
            self._memory[issuer] = value
            return
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        digest = hashlib.sha256(issuer.encode()).hexdigest()[:12]
        shown = _UNSAFE.sub("-", issuer.partition("://")[2])[:40].strip("-.")
        path = self._folder / f"{shown}-{digest}.json"
        temporary = self._folder / f".{path.name}.{secrets.token_hex(4)}"
        descriptor = os.open(temporary, _NEW, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(_json.dumps(value, "the tokens"))
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def _servers(kept: JSONObject) -> JSONObject:
    servers = kept.get("servers")
    return cast("JSONObject", servers) if isinstance(servers, dict) else {}
