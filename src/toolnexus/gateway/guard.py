"""Who may speak to a gateway over HTTP: checks each request before anything of it is read by anybody else.

A page in a browser may send requests to this machine, and with a name that resolves to it even read the answers. So
on loopback only a `Host` and an `Origin` of loopback are let in, whoever else listens.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Any, TypeAlias
from urllib.parse import urlsplit

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

_LOCAL_NAMES = frozenset({"localhost", "localhost."})


def is_loopback(host: str) -> bool:
    """Whether a name or an address, without a port, is this machine for itself alone."""
    if host.casefold() in _LOCAL_NAMES:
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def host_of(authority: str) -> str | None:
    """The host in what a `Host` header says, in lower case and without brackets. None: it says none."""
    if any(sign in authority for sign in "/@?#\\ \t,"):
        return None
    try:
        parts = urlsplit(f"//{authority}")
        _ = parts.port  # which has to be a number
    except ValueError:
        return None
    return parts.hostname


class Guard:
    """Lets requests through to `app`.

    Args:
        path: Where the MCP endpoint is.
        token: What every request has to carry as `Authorization: Bearer …`. None: nothing.
        hosts: Hosts that may stand in `Host` beside those of loopback. None: any may.
        origins: Values of `Origin` that are let in beside those of loopback.
        most: Bytes of a request's body.
        patience: Seconds that a body may take to arrive.
    """

    def __init__(
        self,
        app: App,
        *,
        path: str,
        token: str | None,
        hosts: Iterable[str] | None,
        origins: Iterable[str],
        most: int,
        patience: float,
    ) -> None:
        self._app = app
        self._path = path
        self._token = None if token is None else token.encode()
        self._hosts = None if hosts is None else frozenset(host.casefold() for host in hosts)
        self._origins = frozenset(origin.casefold().rstrip("/") for origin in origins)
        self._most = most
        self._patience = patience

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        refused = self._refused(scope)
        if refused is None and scope["method"] == "POST":
            body = await self._body(scope, receive)
            if isinstance(body, bytes):
                await self._app(scope, _replayed(body, receive), send)
                return
            refused = body
        if refused is None:
            await self._app(scope, receive, send)
            return
        if refused[0]:
            await answer(send, *refused)

    def _refused(self, scope: Scope) -> tuple[int, str, Mapping[str, str]] | None:
        """Status, text and headers for a request that is not let in. None: it is."""
        headers = _Headers(scope)
        host = headers.one("host")
        named = None if host is None else host_of(host)
        if named is None or not (self._hosts is None or is_loopback(named) or named in self._hosts):
            return 421, "The Host header names another machine.", {}
        if not self._may_come_from(headers.all("origin")):
            return 403, "Pages of this origin may not use this server.", {}
        if self._token is not None and (why := self._unauthorized(headers.all("authorization"))):
            return 401, why[0], {"www-authenticate": why[1]}
        if scope["path"].rstrip("/") != self._path.rstrip("/"):
            return 404, f"The MCP endpoint is {self._path}.", {}
        return None

    def _may_come_from(self, origins: list[str]) -> bool:
        for origin in origins:
            if origin.casefold().rstrip("/") in self._origins:
                continue
            scheme, separator, authority = origin.partition("://")
            host = host_of(authority) if separator and scheme in ("http", "https") else None
            if host is None or not is_loopback(host):
                return False
        return True

    def _unauthorized(self, sent: list[str]) -> tuple[str, str] | None:
        """What is wrong with the token, and the challenge. None: it is the right one."""
        if not sent:
            return "A bearer token is needed.", 'Bearer realm="mcp"'
        scheme, _, token = sent[0].partition(" ")
        given = token.strip().encode("utf-8", "surrogateescape")
        fits = hmac.compare_digest(given, self._token or b"")
        if len(sent) == 1 and scheme.casefold() == "bearer" and fits:
            return None
        return "The bearer token is not the right one.", 'Bearer realm="mcp", error="invalid_token"'

    async def _body(self, scope: Scope, receive: Receive) -> bytes | tuple[int, str, Mapping[str, str]]:
        """The whole body, or status, text and headers for one that is not taken. Status 0: nobody is there any more."""
        told = _Headers(scope).one("content-length")
        too_large = 413, f"The body is larger than {self._most} bytes.", {"connection": "close"}
        if told is not None and told.isdecimal() and int(told) > self._most:
            return too_large
        body = bytearray()
        try:
            async with asyncio.timeout(self._patience):
                while True:
                    message = await receive()
                    if message["type"] != "http.request":
                        return 0, "", {}
                    body += message.get("body", b"")
                    if len(body) > self._most:
                        return too_large
                    if not message.get("more_body", False):
                        return bytes(body)
        except TimeoutError:
            return 408, f"The body did not arrive within {self._patience:g} s.", {"connection": "close"}


class _Headers:
    def __init__(self, scope: Scope) -> None:
        self._pairs: list[tuple[bytes, bytes]] = list(scope["headers"])

    def all(self, name: str) -> list[str]:
        return [value.decode("latin-1") for key, value in self._pairs if key.decode("latin-1").lower() == name]

    def one(self, name: str) -> str | None:
        """The header's value. None: it is not there, or more than once."""
        found = self.all(name)
        return found[0] if len(found) == 1 else None


def _replayed(body: bytes, receive: Receive) -> Receive:
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return waiting.pop() if waiting else await receive()

    return again


async def answer(send: Send, status: int, text: str, headers: Mapping[str, str]) -> None:
    """Answer a request with a line of text."""
    body = f"{text}\n".encode()
    about = {"content-type": "text/plain; charset=utf-8", "content-length": str(len(body)), **headers}
    pairs = [(name.encode(), value.encode()) for name, value in about.items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})
