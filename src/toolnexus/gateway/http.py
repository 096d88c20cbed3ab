"""Serves a gateway over streamable HTTP, in both eras of the protocol."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import AsyncGenerator, Generator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from toolnexus.errors import ConfigurationError, MissingExtra
from toolnexus.gateway.guard import App, Guard, Message, Receive, Scope, Send, answer, is_loopback
from toolnexus.gateway.sdk import StreamableHTTPSessionManager, TransportSecuritySettings

try:
    import uvicorn
    from uvicorn.protocols.http.h11_impl import H11Protocol
except ImportError as error:
    raise MissingExtra("Gateways for MCP clients over HTTP", extra="mcp") from error

if TYPE_CHECKING:
    from toolnexus.gateway.server import Gateway

_log = logging.getLogger("toolnexus")

_HEAD = 10.0
"""Seconds that a request's head may take, and that a connection may be there without one."""
_MOST_CONNECTIONS = 1000
_MOST_SESSIONS = 1000
_WATCHER = "_shutdown_watcher"
_CLOSING = 2
"""Whole seconds that open connections have to end, once all calls have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HTTPOptions:
    """How a gateway is served over HTTP.

    Attributes:
        host: The address to listen on.
        port: 0: any that is free.
        path: Where the endpoint is.
        token: What every request has to carry, as `Authorization: Bearer …`. None: nothing, on loopback alone.
        allowed_hosts: Hosts, without ports, that may stand in `Host` beside those of loopback. Where a token is needed
            and none are given, any may.
        allowed_origins: Origins of web pages that may use it, beside those of loopback: `https://app.example`.
        max_body: Bytes of a request.
        body_timeout: Seconds that a request's body may take to arrive.
        session_timeout: Seconds after which a session without requests is forgotten.
        grace: Seconds that running calls have to end when the gateway is closed.
    """

    host: str = "127.0.0.1"
    port: int = 8765
    path: str = "/mcp"
    token: str | None = None
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    max_body: int = 4 * 1024 * 1024
    body_timeout: float = 30.0
    session_timeout: float = 1800.0
    grace: float = 5.0

    def __post_init__(self) -> None:
        if self.token is not None and (len(self.token) < 1 or not self.token.isascii() or not self.token.isprintable()):
            raise ConfigurationError(
                "The token of the gateway has to be printable ASCII text of at least one character."
            )
        if not self.path.startswith("/"):
            raise ConfigurationError(f"The path of the gateway is {self.path!r:.200}; it has to begin with '/'.")
        if self.token is None and not is_loopback(self.host):
            raise ConfigurationError(
                f"The gateway would listen on {self.host!r:.200} for everybody who can reach it, and whoever does can "
                "run its tools. Give a token, or listen on 127.0.0.1."
            )


@asynccontextmanager
async def application(gateway: Gateway, options: HTTPOptions) -> AsyncGenerator[App]:
    """The ASGI application of a gateway, for a server of your own. It answers as long as the block runs."""
    manager = StreamableHTTPSessionManager(
        gateway.server,
        security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),  # the guard's part
        max_request_body_size=options.max_body,
        session_idle_timeout=options.session_timeout,
        max_sessions=_MOST_SESSIONS,
    )

    requests = _Requests(gateway, manager.handle_request)
    hosts = None if options.token is not None and not options.allowed_hosts else options.allowed_hosts
    guard = Guard(
        requests,
        path=options.path,
        token=options.token,
        hosts=() if hosts is None and is_loopback(options.host) else hosts,
        origins=options.allowed_origins,
        most=options.max_body,
        patience=options.body_timeout,
    )
    ready, stop = asyncio.Event(), asyncio.Event()
    running = asyncio.create_task(_running(manager, ready, stop))
    try:
        await asyncio.wait({running, waiting := asyncio.create_task(ready.wait())}, return_when="FIRST_COMPLETED")
        waiting.cancel()
        if running.done():
            await running
        yield guard
    finally:
        gateway.end_listening()
        await requests.end(options.grace)
        stop.set()
        await running


async def _running(manager: StreamableHTTPSessionManager, ready: asyncio.Event, stop: asyncio.Event) -> None:
    """Run the SDK's sessions. Its cancel scopes belong to one task, and whoever serves may close in another."""
    others = _watchers()
    try:
        async with manager.run():
            ready.set()
            await stop.wait()
    finally:
        for watcher in _watchers() - others:
            watcher.cancel()


class _Requests:
    """Requests on their way to the SDK: those that want an answer are waited for when the gateway is closed."""

    def __init__(self, gateway: Gateway, app: App) -> None:
        self._gateway = gateway
        self._app = app
        self._open = 0
        self._none = asyncio.Event()
        self._none.set()
        self._closing = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._closing:
            await answer(send, 503, "The gateway is being closed.", {"connection": "close"})
        elif scope["method"] == "POST":
            await self._counted(scope, receive, send)
        elif scope["method"] == "DELETE":
            await self._deleted(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _counted(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._open += 1
        self._none.clear()
        try:
            await self._app(scope, receive, send)
        finally:
            self._open -= 1
            if not self._open:
                self._none.set()

    async def _deleted(self, scope: Scope, receive: Receive, send: Send) -> None:
        session = next((value.decode("latin-1") for key, value in scope["headers"] if key == b"mcp-session-id"), "")

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] < 300:
                self._gateway.forget(session)
            await send(message)

        await self._app(scope, receive, sent)

    async def end(self, grace: float) -> None:
        """Take no more, and wait for those that are open, for so many seconds."""
        self._closing = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await self._none.wait()


def _watchers() -> set[asyncio.Task[Any]]:
    """Tasks of this loop in which the SDK's library for event streams waits for the end of the process.

    It starts one with the first stream and never ends it.
    """
    return {task for task in asyncio.all_tasks() if getattr(task.get_coro(), "__qualname__", "") == _WATCHER}


@asynccontextmanager
async def listening(gateway: Gateway, options: HTTPOptions) -> AsyncGenerator[str]:
    """Serve a gateway over HTTP as long as the block runs. The URL of its endpoint.

    At the end no connection is accepted any more, running calls have some seconds, and then all is closed.

    Raises:
        ConfigurationError: The address cannot be listened on.
    """
    opened = _opened(options)
    server: _Quiet | None = None
    serving: asyncio.Task[None] | None = None
    try:
        async with application(gateway, options) as app:
            server = _Quiet(_config(app))
            serving = asyncio.create_task(server.serve(sockets=[opened]))
            try:
                yield _url(opened, options)
            finally:
                for each in server.servers:
                    each.close()
    finally:
        if server is not None and serving is not None:
            server.should_exit = True  # it looks ten times a second
            await serving
        opened.close()


def _opened(options: HTTPOptions) -> socket.socket:
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    opened = socket.socket(family, socket.SOCK_STREAM)
    try:
        if os.name == "posix":  # elsewhere it lets others take the port as well
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind((options.host, options.port))
        opened.listen(128)
        opened.setblocking(False)
    except OSError as error:
        opened.close()
        raise ConfigurationError(
            f"The gateway cannot listen on {options.host}:{options.port}: {error.strerror}. Choose another port."
        ) from error
    return opened


def _url(opened: socket.socket, options: HTTPOptions) -> str:
    host = f"[{options.host}]" if ":" in options.host else options.host
    return f"http://{host}:{opened.getsockname()[1]}{options.path}"


def _config(app: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=_Protocol,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_graceful_shutdown=_CLOSING,
    )


class _Quiet(uvicorn.Server):
    """uvicorn's server in somebody else's process: it leaves signals alone."""

    servers: list[asyncio.Server] = []  # noqa: RUF012 - until it has started

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


class _Protocol(H11Protocol):
    """uvicorn's HTTP/1.1, which by itself waits for ever for the rest of a request's head."""

    _overdue: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._overdue is not None:
            self._overdue.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._wait_for_head()

    def _wait_for_head(self) -> None:
        if self._overdue is not None:
            self._overdue.cancel()
        self._overdue = self.loop.call_later(_HEAD, self._look_at_head)

    def _look_at_head(self) -> None:
        cycle: Any = self.cycle
        if (cycle is None or cycle.response_complete) and not self.transport.is_closing():
            self.transport.close()


def options_of(given: Iterable[str]) -> tuple[str, ...]:
    """Hosts or origins as a tuple.

    Raises:
        ConfigurationError: It is one text.
    """
    if isinstance(given, str):
        raise ConfigurationError(f"There is one text, {given!r:.200}, where a list of hosts or origins is expected.")
    return tuple(given)
