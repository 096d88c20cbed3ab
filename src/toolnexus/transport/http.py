"""The transport of this library: one keep-alive pool of connections per running loop, on aiohttp."""

from __future__ import annotations

import asyncio
import atexit
import functools
import io
import os
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.request import getproxies, proxy_bypass

import aiohttp
from yarl import URL

from toolnexus.errors import ConfigurationError, ConnectionFailed, InvalidReply, ToolnexusError
from toolnexus.transport import Limits, Response

if TYPE_CHECKING:
    from types import TracebackType

    from multidict import CIMultiDictProxy

_READ_AHEAD = 64 * 1024
"""Bytes of an answer that wait for their reader before the sender is slowed; aiohttp holds up to twice as many."""

_IDLE = 60.0
"""Seconds that an unused connection is kept. A run's tools may take as long."""

_LONGEST_HEADER = 64 * 1024
_CLOSING = 1.0
"""Seconds that another loop may take to close its connections."""

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_MOST_ROUTES = 64
_LARGE_BODY = 1024 * 1024
"""Bytes from which aiohttp wants a file, to send it in steps."""

# Whatever aiohttp raises for a failed request. Its own errors may hold the headers that were sent, so they are never
# chained: see `_failure`.
_FAULTS = (aiohttp.ClientError, OSError)


class HTTPTransport:
    """A `Transport` over HTTP/1.1. It may be used from several loops and threads at once.

    Proxies are taken from the environment (`HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY`, `NO_PROXY`), as the first
    request to a URL finds them; this machine itself is always reached directly. Connections are closed by `aclose`,
    and when their loop shuts down. Closing ends requests that are under way with `ConnectionFailed`.
    """

    def __init__(self) -> None:
        self._connections = _Connections()

    async def post(self, url: str, *, headers: Mapping[str, str], body: bytes, limits: Limits) -> Response:
        async with _Exchange(self._connections, url, headers, body, limits) as answer:
            parts = [part async for part in answer.chunks()]
        whole = parts[0] if len(parts) == 1 else b"".join(parts)
        return Response(status=answer.status, headers=answer.headers, body=whole)

    def stream(self, url: str, *, headers: Mapping[str, str], body: bytes, limits: Limits) -> _Exchange:
        return _Exchange(self._connections, url, headers, body, limits)

    async def aclose(self) -> None:
        await self._connections.aclose()


@dataclass(frozen=True, slots=True)
class _Route:
    """How a URL is reached. `proxy` is None for a direct connection."""

    url: URL
    proxy: URL | None


@dataclass(frozen=True, slots=True)
class _Pool:
    """The connections of one loop. Closing `keeper` closes them, and first the answers that are still `open`."""

    process: int
    session: aiohttp.ClientSession
    open: set[aiohttp.ClientResponse]
    keeper: AsyncGenerator[None, None]


class _Connections:
    """The pools of all loops, and how URLs are reached."""

    def __init__(self) -> None:
        self.pools: dict[asyncio.AbstractEventLoop, _Pool] = {}
        self._routes: dict[str, _Route] = {}
        _living.add(self)
        weakref.finalize(self, _let_go, self.pools).atexit = False

    def route(self, url: str) -> _Route:
        known = self._routes.get(url)
        if known is not None:
            return known
        target = _url(url)
        if target is None or not target.host:
            raise ConfigurationError("The URL of the request cannot be read. Check base_url.")
        if len(self._routes) >= _MOST_ROUTES:
            self._routes.clear()
        route = self._routes[url] = _Route(target, _proxy(target))
        return route

    async def pool(self) -> _Pool:
        """The pool of the running loop."""
        loop = asyncio.get_running_loop()
        known = self.pools.get(loop)
        if known is not None:
            return known
        for other in list(self.pools):
            if other.is_closed() and (dead := self.pools.pop(other, None)):
                _disown(dead)
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_IDLE),
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=_READ_AHEAD,
            max_line_size=_LONGEST_HEADER,
            max_field_size=_LONGEST_HEADER,
        )
        answers: set[aiohttp.ClientResponse] = set()
        pool = self.pools[loop] = _Pool(os.getpid(), session, answers, _keep(session, answers, self.pools, loop))
        await anext(pool.keeper)
        return pool

    async def aclose(self) -> None:
        here = asyncio.get_running_loop()
        for loop in list(self.pools):
            pool = self.pools.pop(loop, None)
            if pool is None:
                continue
            if loop is here:
                await pool.keeper.aclose()
            elif loop.is_running():
                closing = asyncio.run_coroutine_threadsafe(_close(pool), loop)
                with suppress(TimeoutError):
                    await asyncio.wait_for(asyncio.wrap_future(closing), _CLOSING)
            elif loop.is_closed():
                _disown(pool)
            # A loop that only rests closes a generator that nobody holds, once it runs again.


class _Exchange:
    """One request and its answer, as a context manager."""

    __slots__ = ("_body", "_connections", "_headers", "_limits", "_pool", "_response", "_url")

    def __init__(
        self, connections: _Connections, url: str, headers: Mapping[str, str], body: bytes, limits: Limits
    ) -> None:
        self._connections = connections
        self._url = url
        self._headers = headers
        self._body = body
        self._limits = limits

    async def __aenter__(self) -> _Answer:
        route = self._connections.route(self._url)
        self._pool = pool = await self._connections.pool()
        body, limits = self._body, self._limits
        try:
            async with asyncio.timeout(limits.connect + limits.first_byte):
                response = await pool.session.post(
                    route.url,
                    data=body if len(body) < _LARGE_BODY else io.BytesIO(body),
                    headers=self._headers,
                    allow_redirects=False,
                    proxy=route.proxy,
                    timeout=_timeout(limits.connect),
                )
        except _FAULTS as error:
            failure = _failure(error, route.url)
        else:
            self._response = response
            pool.open.add(response)
            _bound_silence(response, limits.silence)
            return _Answer(response, limits)
        raise failure

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._pool.open.discard(self._response)
        self._response.close()  # at once; a connection whose answer was read to its end is already back in the pool


class _Answer:
    """The answer of an exchange."""

    __slots__ = ("_limits", "_response", "headers", "status")

    def __init__(self, response: aiohttp.ClientResponse, limits: Limits) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = _Headers(response.headers)
        self._response = response
        self._limits = limits

    def chunks(self) -> AsyncIterator[bytes]:
        return _Chunks(self._response, self._limits)


class _Chunks:
    """The body as it arrives. What came before a connection broke is given out before the error."""

    __slots__ = ("_failure", "_left", "_response")

    def __init__(self, response: aiohttp.ClientResponse, limits: Limits) -> None:
        self._response = response
        self._left = limits.reply_bytes
        self._failure: ToolnexusError | None = None

    def __aiter__(self) -> _Chunks:
        return self

    async def __anext__(self) -> bytes:
        if self._failure is not None:
            raise self._failure
        content = self._response.content
        try:
            chunk = await content.readany()
        except _FAULTS as error:
            self._failure = _failure(error, self._response.url)
            chunk = _unread(content)
        if chunk:
            self._left -= len(chunk)
            if self._left < 0:
                raise InvalidReply("The answer is larger than Limits.reply_bytes allows.")
            return chunk
        if self._failure is not None:
            raise self._failure
        raise StopAsyncIteration


class _Headers(Mapping[str, str]):
    """A view of headers under lower-case names; of a repeated one the first value."""

    __slots__ = ("_headers",)

    def __init__(self, headers: CIMultiDictProxy[str]) -> None:
        self._headers = headers

    def __getitem__(self, name: str) -> str:
        return self._headers[name]

    def __iter__(self) -> Iterator[str]:
        return iter({name.lower(): None for name in self._headers})

    def __len__(self) -> int:
        return len({name.lower() for name in self._headers})


@functools.lru_cache(maxsize=8)
def _timeout(connect: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=None, connect=connect)


def _unread(content: aiohttp.StreamReader) -> bytes:
    """What was received before the connection broke. aiohttp would raise the break instead of giving it out."""
    content.set_exception(None)  # pyright: ignore[reportArgumentType] - the only way to it that is public
    return content.read_nowait()


def _bound_silence(response: aiohttp.ClientResponse, seconds: float) -> None:
    """Let aiohttp's own timer watch the body, which costs no timer of ours for each read."""
    connection = response.connection
    protocol = connection.protocol if connection is not None else None
    if protocol is None:
        return  # the whole body is there
    protocol.read_timeout = seconds
    transport = protocol.transport
    if transport is not None and transport.is_reading():  # else the reader is slow, not the server
        protocol.start_timeout()


def _failure(error: Exception, url: URL) -> ToolnexusError:
    """Say what a failed request means. Only the system's own error becomes the cause: it holds no header and no URL."""
    server = str(url.origin())
    if isinstance(error, aiohttp.InvalidURL | aiohttp.NonHttpUrlClientError):
        return ConfigurationError("The URL of the request cannot be called. Check base_url.")
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return ConnectionFailed(f"The proxy refused to reach {server}: {error.status}.", request_sent=False)
    if isinstance(error, aiohttp.ClientConnectorError):
        return _unreached(error, server)
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return ConnectionFailed(f"{server} could not be reached in time.", request_sent=False, kind="timeout")
    if isinstance(error, aiohttp.SocketTimeoutError):
        return ConnectionFailed(f"{server} fell silent within its answer.", request_sent=True, kind="timeout")
    if isinstance(error, TimeoutError):
        return ConnectionFailed(f"{server} did not begin to answer in time.", request_sent=True, kind="timeout")
    if isinstance(error, aiohttp.ClientResponseError):
        return InvalidReply(f"What {server} sent is no HTTP answer.")
    return ConnectionFailed(f"The connection to {server} broke before the answer was complete.", request_sent=True)


def _unreached(error: aiohttp.ClientConnectorError, server: str) -> ConnectionFailed:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        cause: Exception = error.certificate_error
        failure = ConnectionFailed(
            f"The certificate of {server} is not trusted: {cause}", request_sent=False, retryable=False
        )
    else:
        cause = error.os_error
        reason = cause.strerror or str(cause) or type(cause).__name__
        failure = ConnectionFailed(f"{server} could not be reached: {reason}.", request_sent=False)
    failure.__cause__ = cause
    return failure


def _url(text: str) -> URL | None:
    """None: it is none. What yarl says about it may show a key, so it is not kept."""
    try:
        return URL(text)
    except ValueError:
        return None


def _proxy(url: URL) -> URL | None:
    """The proxy that the environment wants for a URL."""
    host = url.host or ""
    if host in _LOOPBACK or proxy_bypass(host):
        return None
    proxies = getproxies()
    address = proxies.get(url.scheme) or proxies.get("all")
    if not address:
        return None
    proxy = _url(address if "://" in address else f"http://{address}")
    if proxy is None or proxy.scheme not in ("http", "https") or not proxy.host:
        raise ConfigurationError(
            f"The proxy that the environment names for {url.scheme} is no HTTP proxy. "
            "Name another one, list the host in NO_PROXY, or give a transport= of your own."
        )
    return proxy


async def _keep(
    session: aiohttp.ClientSession,
    answers: set[aiohttp.ClientResponse],
    pools: dict[asyncio.AbstractEventLoop, _Pool],
    loop: asyncio.AbstractEventLoop,
) -> AsyncGenerator[None, None]:
    """Close the session when the loop shuts down: a loop closes the generators that were begun on it."""
    try:
        yield
    finally:
        pools.pop(loop, None)
        for answer in list(answers):
            answer.close()  # else its reader would wait for ever
        await session.close()


async def _close(pool: _Pool) -> None:
    await pool.keeper.aclose()


def _disown(pool: _Pool) -> None:
    """Close a pool whose loop has ended. Nothing in it can wait any more, so one step does it."""
    with suppress(StopIteration):
        pool.session.close().send(None)


def _let_go(pools: dict[asyncio.AbstractEventLoop, _Pool]) -> None:
    """Close what a transport that nobody holds any more has left open."""
    for loop, pool in list(pools.items()):
        if loop.is_closed():
            _disown(pool)
    pools.clear()  # the other loops close generators that nobody holds


_living: weakref.WeakSet[_Connections] = weakref.WeakSet()


@atexit.register
def _at_exit() -> None:
    """Close what is still open at the end of the process, so that nobody complains about it."""
    for connections in list(_living):
        for loop, pool in list(connections.pools.items()):
            if pool.process != os.getpid():
                continue  # inherited by a fork: its loop runs in the parent only
            if loop.is_closed():
                _disown(pool)
            elif loop.is_running():  # in a daemon thread
                with suppress(TimeoutError):
                    asyncio.run_coroutine_threadsafe(_close(pool), loop).result(_CLOSING)
            else:
                loop.run_until_complete(_close(pool))
