"""The transport of this library: one keep-alive pool of connections per running loop, on aiohttp."""

from __future__ import annotations

import asyncio
import atexit
import functools
import io
import os
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Iterator, Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.request import getproxies, proxy_bypass

import aiohttp
from aiohttp.client_proto import ResponseHandler
from yarl import URL

from toolnexus.errors import ConfigurationError, ConnectionFailed, InvalidReply, ToolnexusError
from toolnexus.providers import THIS_MACHINE
from toolnexus.transport import Limits, Response

if TYPE_CHECKING:
    from types import TracebackType

    from multidict import CIMultiDictProxy

_T = TypeVar("_T")

_READ_AHEAD = 64 * 1024
"""Bytes of an answer that wait for their reader before the sender is slowed; aiohttp holds up to twice as many."""

_IDLE = 60.0
"""Seconds that an unused connection is kept. A run's tools may take as long."""

_STALE = 1.0
"""Seconds in which it shows that a connection was closed before a request on it was read."""

_LONGEST_HEADER = 64 * 1024
_CLOSING = 1.0
"""Seconds that another loop may take to close its connections."""

_MOST_ROUTES = 64
_OF_A_BODY = frozenset({"content-type"})
_LARGE_BODY = 1024 * 1024
"""Bytes from which aiohttp wants a file, to send it in steps."""

# Whatever aiohttp raises for a failed request. Its own errors may hold the headers that were sent, so they are never
# chained: see `_failure`.
_FAULTS = (aiohttp.ClientError, OSError, UnicodeError)  # the last one for a host that no name server could know


class HTTPTransport:
    """A `Transport` over HTTP/1.1. It may be used from several loops and threads at once.

    Proxies are taken from the environment (`HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY`, `NO_PROXY`), as the first
    request to a URL finds them; this machine itself is always reached directly. Connections are closed by `aclose`,
    and when their loop shuts down. Closing ends requests that are under way with `ConnectionFailed`.
    """

    def __init__(self) -> None:
        self._connections = _Connections()

    async def post(self, url: str, *, headers: Mapping[str, str], body: bytes, limits: Limits) -> Response:
        async with _Exchange(self._connections, "POST", url, headers, body, limits) as answer:
            return Response(status=answer.status, headers=answer.headers, body=await answer.whole())

    async def get(self, url: str, *, headers: Mapping[str, str], limits: Limits) -> Response:
        """Read what is at a URL, as `post` reads an answer."""
        async with _Exchange(self._connections, "GET", url, headers, None, limits) as answer:
            return Response(status=answer.status, headers=answer.headers, body=await answer.whole())

    def stream(self, url: str, *, headers: Mapping[str, str], body: bytes, limits: Limits) -> _Exchange:
        return _Exchange(self._connections, "POST", url, headers, body, limits)

    def request(
        self, method: str, url: str, *, headers: Mapping[str, str], body: bytes | None, limits: Limits
    ) -> _Exchange:
        """Any request, answered as by `stream`. The URL is sent as it is written: its host has to be ASCII, and what
        stands in it percent-encoded.

        Args:
            body: None: there is none.
        """
        return _Exchange(self._connections, method, url, headers, body, limits, exact=True)

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
    patience: _Patience
    open: set[aiohttp.ClientResponse]
    keeper: AsyncGenerator[None, None]


class _Line(ResponseHandler):
    """A connection that knows whether it was used before, and whether anything came since it was asked last."""

    reused = False
    used = False
    heard = True

    def data_received(self, data: bytes) -> None:
        self.heard = True
        super().data_received(data)


@dataclass(slots=True)
class _Attempt:
    """One sending of a request.

    Attributes:
        fresh: It wants a new connection.
        line: The connection that it got. None: it got none, or one of which nothing is known.
    """

    fresh: bool
    line: _Line | None = None


_attempt: ContextVar[_Attempt] = ContextVar("attempt")


class _Connector(aiohttp.TCPConnector):
    """Never uses a connection again on which something came that nobody asked for: it would be read as an answer."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(limit=0, keepalive_timeout=_IDLE)  # pyright: ignore[reportUnknownMemberType]
        self._factory = functools.partial(_Line, loop=loop)  # if aiohttp asks it no more, nothing is sent again

    async def connect(
        self, req: aiohttp.ClientRequest, traces: list[aiohttp.tracing.Trace], timeout: aiohttp.ClientTimeout
    ) -> aiohttp.connector.Connection:
        while True:
            connection = await super().connect(req, traces, timeout)
            line, attempt = connection.protocol, _attempt.get()
            if not isinstance(line, _Line):
                attempt.line = None
            elif not line.should_close and not (attempt.fresh and line.used):
                line.reused, line.used, line.heard = line.used, True, False
                attempt.line = line
            else:
                connection.close()
                continue
            return connection


class _Connections:
    """The pools of all loops, and how URLs are reached."""

    def __init__(self) -> None:
        self.pools: dict[asyncio.AbstractEventLoop, _Pool] = {}
        self._routes: dict[str, _Route] = {}
        _living.add(self)
        weakref.finalize(self, _let_go, self.pools).atexit = False

    def route(self, url: str, *, exact: bool = False) -> _Route:
        known = self._routes.get(url)
        if known is not None and not exact:
            return known
        target = _url(url, exact=exact)
        if target is None or not target.host:
            raise ConfigurationError("The URL of the request cannot be read. Check base_url.")
        if exact:  # a tool's, and rarely the same twice
            return _Route(target, _proxy(target))
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
            connector=_Connector(loop),
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=_READ_AHEAD,
            max_line_size=_LONGEST_HEADER,
            max_field_size=_LONGEST_HEADER,
        )
        patience = _Patience(loop)
        answers: set[aiohttp.ClientResponse] = set()
        keeper = _keep(session, patience, answers, self.pools, loop)
        pool = self.pools[loop] = _Pool(os.getpid(), session, patience, answers, keeper)
        await anext(pool.keeper)
        return pool

    async def aclose(self) -> None:
        here = asyncio.get_running_loop()
        for loop in list(self.pools):
            pool = self.pools.pop(loop, None)
            if pool is None or pool.process != os.getpid():
                continue  # somebody else has closed it, or it is our parent's, who needs it
            if loop is here:
                await pool.keeper.aclose()
            elif loop.is_running():
                closing = asyncio.run_coroutine_threadsafe(_close(pool), loop)
                with suppress(TimeoutError):
                    await asyncio.wait_for(asyncio.wrap_future(closing), _CLOSING)
            elif loop.is_closed():
                _disown(pool)
            # A loop that only rests closes a generator that nobody holds, once it runs again.


class _Patience:
    """Ends the waits of one loop that last too long.

    All of them share a timer. Nearly every wait ends long before its time, and a timer of its own would cost it more
    than all else that we add to a request.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._ends: dict[asyncio.Task[Any], float | None] = {}  # on the loop's clock; None: it was ended
        self._timer: asyncio.TimerHandle | None = None

    async def wait(self, seconds: float, work: Awaitable[_T]) -> _T:
        """Await `work` in the running task, as within `asyncio.timeout`: raises `TimeoutError` when it is too late."""
        task = asyncio.current_task(self._loop)
        assert task is not None, "requests are sent by tasks"
        cancelling = task.cancelling()
        self._ends[task] = ends = self._loop.time() + seconds
        if self._timer is None or ends < self._timer.when():
            self._look_at(ends)
        try:
            return await work
        except BaseException as error:
            # The task is cancelled once for our sake; if it is cancelled once more, somebody else wants it to end.
            ours = self._ends[task] is None and task.uncancel() <= cancelling
            if ours and isinstance(error, asyncio.CancelledError):
                raise TimeoutError from error
            raise
        finally:
            del self._ends[task]

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look_at(self, time: float) -> None:
        self.close()
        self._timer = self._loop.call_at(time, self._look)

    def _look(self) -> None:
        """End what is too late, and look again when the next one may be."""
        self._timer = None
        now = self._loop.time()
        for task, ends in self._ends.items():
            if ends is not None and ends <= now:
                self._ends[task] = None
                task.cancel()
        waiting = [ends for ends in self._ends.values() if ends is not None]
        if waiting:
            self._look_at(min(waiting))


class _Exchange:
    """One request and its answer, as a context manager."""

    __slots__ = ("_body", "_connections", "_exact", "_headers", "_limits", "_method", "_pool", "_response", "_url")

    def __init__(
        self,
        connections: _Connections,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes | None,
        limits: Limits,
        *,
        exact: bool = False,
    ) -> None:
        self._connections = connections
        self._method = method
        self._url = url
        self._exact = exact
        self._headers = headers
        self._body = body
        self._limits = limits

    async def __aenter__(self) -> _Answer:
        route = self._connections.route(self._url, exact=self._exact)
        self._pool = pool = await self._connections.pool()
        limits = self._limits
        attempt = _Attempt(fresh=False)
        while True:
            begun = asyncio.get_running_loop().time()
            token = _attempt.set(attempt)
            try:
                response = await pool.patience.wait(limits.connect + limits.first_byte, self._sent(pool, route))
            except _FAULTS as error:
                if self._was_stale(error, attempt, begun, pool):
                    attempt = _Attempt(fresh=True)
                    continue
                failure = _failure(error, route.url)
                break
            finally:
                _attempt.reset(token)
            self._response = response
            pool.open.add(response)
            _bound_silence(response, limits.silence)
            return _Answer(response, limits)
        raise failure

    def _sent(self, pool: _Pool, route: _Route) -> Awaitable[aiohttp.ClientResponse]:
        body = self._body
        return pool.session.request(
            self._method,
            route.url,
            data=body if body is None or len(body) < _LARGE_BODY else io.BytesIO(body),
            headers=self._headers,
            skip_auto_headers=_OF_A_BODY if body is None else None,
            allow_redirects=False,
            proxy=route.proxy,
            timeout=_timeout(self._limits.connect),
        )

    def _was_stale(self, error: Exception, attempt: _Attempt, begun: float, pool: _Pool) -> bool:
        """Whether a request met a connection that its server had closed already, so that nobody read it.

        Some servers close connections that they promised to keep, as llama.cpp after each stream, and all close those
        that were idle for long. What was sent then is answered by the closing alone, at once and without a byte, and
        asks for nothing to be paid twice when it is sent again on a new connection. A server that reads a request and
        breaks while it works on it takes longer, or has begun to answer. The requests of tools (`request`) are left
        to those who send them: they may act, and nobody but their API can tell what they did.
        """
        line = attempt.line
        return (
            isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientOSError)
            and line is not None
            and line.reused
            and not line.heard
            and not self._exact
            and not pool.session.closed
            and asyncio.get_running_loop().time() - begun < _STALE
        )

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

    async def whole(self) -> bytes:
        content = self._response.content
        if content.is_eof() and content.exception() is None and content.total_bytes <= self._limits.reply_bytes:
            return content.read_nowait()  # all of it came along with the headers
        return b"".join([chunk async for chunk in self.chunks()])


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
    if isinstance(error, aiohttp.InvalidURL | aiohttp.NonHttpUrlClientError | UnicodeError):
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
        if isinstance(cause, ConnectionRefusedError):
            reason = "nothing listens there"  # asyncio shows a Python tuple
        else:
            reason = cause.strerror or str(cause) or type(cause).__name__
        failure = ConnectionFailed(f"{server} could not be reached: {reason}.", request_sent=False)
    # Where in aiohttp and asyncio it arose says nothing, in fifty lines.
    cause.__cause__ = cause.__context__ = None
    failure.__cause__ = cause.with_traceback(None)
    return failure


def _url(text: str, *, exact: bool = False) -> URL | None:
    """None: it is none. What yarl says about it may show a key, so it is not kept.

    Args:
        exact: Nothing in it is encoded in another way, such as `%2C` as a comma.
    """
    try:
        return URL(text, encoded=exact)
    except ValueError:
        return None


def _proxy(url: URL) -> URL | None:
    """The proxy that the environment wants for a URL."""
    host = url.host or ""
    if host in THIS_MACHINE or proxy_bypass(host):
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
    patience: _Patience,
    answers: set[aiohttp.ClientResponse],
    pools: dict[asyncio.AbstractEventLoop, _Pool],
    loop: asyncio.AbstractEventLoop,
) -> AsyncGenerator[None, None]:
    """Close the session when the loop shuts down: a loop closes the generators that were begun on it."""
    try:
        yield
    finally:
        pools.pop(loop, None)
        patience.close()
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
