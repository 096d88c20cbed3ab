"""One task for each server, which alone opens, holds and closes its connection; everybody else only asks it to.

The SDK's context managers have to be left by the task that entered them, in order. No task but this one ever does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher

from toolnexus import _workers
from toolnexus.sources.mcp import faults, http, stdio
from toolnexus.sources.mcp.listing import Call, Listing, read_tools
from toolnexus.sources.mcp.session import Era, Session
from toolnexus.sources.mcp.states import MCPServerStatus, MCPState

if TYPE_CHECKING:
    from anyio.abc import TaskStatus

    from toolnexus.sources.mcp.asking import Asked
    from toolnexus.sources.mcp.config import MCPServer, Transport

_log = logging.getLogger("toolnexus")

_STEADY = 5.0
"""Seconds after which a session counts as one that worked; a shorter one counts as a failure."""
_DELAYS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds before each attempt to connect again. After them it is given up, until somebody asks."""
_RECONNECTING = 10.0
"""Seconds that a call waits for a server that was there before."""
_EXIT = 0.5
"""Seconds between the end of a program's output and its exit code."""

Changed: TypeAlias = Callable[[str], object]


class _OtherTransport(Exception):
    """The server does not take this transport, so the older one is tried."""


class _OtherEra(Exception):
    """The server did not survive being asked for the new protocol, so the older one is tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """What holds for servers whose configuration does not say.

    Attributes:
        timeout: Seconds for a request.
        startup_timeout: Seconds until a server has to be ready.
    """

    timeout: float
    startup_timeout: float


class Link:
    """The connection to a server, as often as it has to be made. Its methods may be called from any task of its loop.

    Attributes:
        session: What to ask. None: it is not connected now.
        listing: The tools that the server listed last.
        seconds: What a request may take.
    """

    def __init__(
        self,
        server: MCPServer,
        asked: Asked,
        call: Call,
        *,
        defaults: Defaults,
        changed: Changed,
        authorisation: http.Authorisation | None,
    ) -> None:
        self._server = server
        self._asked = asked
        self._call = call
        self._changed = changed
        self._authorisation = authorisation
        self._startup = server.startup_timeout or defaults.startup_timeout
        self.seconds = server.timeout or defaults.timeout
        self.session: Session | None = None
        self.listing = Listing()
        self._state: MCPState = "connecting" if server.enabled else "disabled"
        self._reason = ""
        self._url: str | None = None
        self._transport: Transport | None = server.transport
        self._era: Era | None = None
        self._described: tuple[str | None, str] = (None, "")
        self._connected = 0
        self._news = asyncio.Event()
        self._wake = asyncio.Event()
        self._closing = False
        self._over: str | None = None
        self._again = False
        self._wants_list = False
        self._clock: asyncio.Timeout | None = None
        self._task: asyncio.Task[None] | None = None
        if server.enabled:
            self._task = asyncio.get_running_loop().create_task(self._live(), name=f"mcp {server.name}")

    def status(self) -> MCPServerStatus:
        """How it stands."""
        version, info = self._described
        return MCPServerStatus(
            name=self._server.name,
            state=self._state,
            reason=self._reason,
            url=self._url,
            transport=self._transport,
            protocol=version,
            server=info,
            tools=len(self.listing.tools),
            dropped=self.listing.dropped,
            reconnects=max(0, self._connected - 1),
        )

    def reconnect(self) -> None:
        """Connect again, also a server that was given up, or that somebody has signed in to."""
        if self.session is not None:
            self._drop(self.session, "it is connected again, as it was asked for.")
        else:
            self._again = True
            self._wake.set()

    async def ready(self) -> Session:
        """The session, when there is one. A server that was given up is tried once more."""
        seconds = self._startup
        if self._connected:
            seconds = min(seconds, _RECONNECTING)
        tried = False
        try:
            async with asyncio.timeout(seconds):
                while self.session is None:
                    if self._state not in ("connecting", "failed") or (self._state == "failed" and tried):
                        raise self._unavailable()
                    tried, news = True, self._news
                    if self._state == "failed":
                        self.reconnect()
                    await news.wait()
                return self.session
        except TimeoutError:
            raise self._unavailable() from None

    def lost_by(self, session: Session, error: faults.MCPServerError) -> bool:
        """Whether the error means that the session is over; then it is given up."""
        gone = error.why == "unreachable" or (error.why == "lost" and error.executed is False)
        if gone or (error.why == "needs_auth" and error.url is not None):
            self._drop(session, error.reason)
        return gone

    async def settled(self) -> None:
        """Wait until the first attempt to connect has come to something."""
        while self._state == "connecting" and not self._connected:
            await self._news.wait()

    async def aclose(self) -> None:
        """Close the connection, and end the server if it is a program. From any task, and more than once.

        Whoever is cancelled while it waits here does not stop the closing.
        """
        self._closing = True
        self._wake.set()
        if self._clock is not None and not self._clock.expired():
            self._clock.reschedule(asyncio.get_running_loop().time())
        if self._task is not None:
            await asyncio.wait({self._task})

    def _drop(self, session: Session, reason: str) -> None:
        if self.session is session:
            self.session = None
            self._over = reason
            self._set("connecting", reason)
            self._wake.set()

    def _unavailable(self) -> faults.MCPServerError:
        reason = self._reason or (
            "it is not connected yet." if self._state == "connecting" else f"it is {self._state}."
        )
        why: faults.FaultKind = "needs_auth" if self._state == "needs_auth" else "unavailable"
        return faults.MCPServerError(self._server.name, why, reason, executed=False, url=self._url)

    # From here on: the task of the connection.

    async def _live(self) -> None:
        failures = 0
        try:
            while not self._closing:
                began = asyncio.get_running_loop().time()
                fault = await self._attempt()
                if self._closing:
                    return
                steady = fault is None and asyncio.get_running_loop().time() - began > _STEADY
                failures = 0 if steady else failures + 1
                await self._pause(fault, failures)
        finally:
            self.session = None
            self._set("closed", "")

    async def _pause(self, fault: faults.MCPServerError | None, failures: int) -> None:
        """Wait until it is time for the next attempt."""
        gives_up = not self._connected or failures > len(_DELAYS) or (fault is not None and fault.why == "needs_auth")
        if fault is not None:
            self._url = fault.url
            if gives_up:
                self._set("needs_auth" if fault.why == "needs_auth" else "failed", fault.reason)
            else:
                self._set("connecting", fault.reason)
        elif gives_up:
            self._set("failed", self._reason)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if gives_up else _DELAYS[max(0, failures - 1)]):
                while not (self._again or self._closing):
                    self._wake.clear()
                    await self._wake.wait()
        self._again = False
        if not self._closing and self._state != "connecting":
            self._set("connecting", self._reason)

    async def _attempt(self) -> faults.MCPServerError | None:
        """Connect, and stay connected as long as it goes. What prevented it, None: it was connected."""
        first = ""
        while not self._closing:
            connected = self._connected
            try:
                await self._once()
            except _OtherEra:
                self._era = "handshake"
                continue
            except _OtherTransport as error:
                self._transport, first = "sse", f"{error} Then SSE was tried: "
                continue
            except faults.MCPServerError as error:
                if self._connected > connected:
                    self._set("connecting", error.reason)
                    return None
                if first:
                    self._transport = self._server.transport
                    return faults.MCPServerError(self._server.name, error.why, first + error.reason, url=error.url)
                return error
            return None
        return None

    async def _once(self) -> None:
        """Connect once.

        Raises:
            MCPServerError: Why it did not work, or is over.
        """
        seconds = self._startup
        self._over = None
        ended = ""
        try:
            async with asyncio.timeout(seconds) as self._clock, self._opened() as (streams, process):
                try:
                    await self._hold(streams, process)
                finally:
                    if process is not None:
                        ended = process.stderr
        except asyncio.CancelledError:
            raise
        except TimeoutError as error:
            if self._closing:
                return
            said = faults.shown(ended, self._server)
            wrote = f" It wrote: {said}" if said else ""
            reason = f"it was not ready within {seconds:g} s.{wrote} Give it more time with startup_timeout, or fix it."
            raise faults.MCPServerError(self._server.name, "timeout", reason, executed=False) from error
        except BaseException as error:
            found = faults.in_group(error)
            if isinstance(found, faults.MCPServerError | _OtherEra | _OtherTransport):
                raise found from None
            if not isinstance(found, Exception):
                raise
            _log.debug("MCP server %r: its connection failed", self._server.name, exc_info=error)
            said = faults.shown(f"{type(found).__name__}: {found}", self._server)
            raise faults.MCPServerError(self._server.name, "lost", f"its connection failed: {said}") from error
        finally:
            self._clock = None

    @contextlib.asynccontextmanager
    async def _opened(self) -> AsyncGenerator[tuple[Any, stdio.StdioStreams | None]]:
        match self._transport:
            case "stdio":
                async with stdio.running(self._server) as process:
                    yield (process.incoming, process.outgoing), process
            case "sse":
                async with http.event_stream(self._server, self._authorisation) as (streams, _):
                    yield streams, None
            case _:
                async with http.streamable(self._server, self._authorisation) as (streams, _):
                    yield streams, None

    async def _hold(self, streams: Any, process: stdio.StdioStreams | None) -> None:
        incoming, outgoing = streams
        dispatcher = JSONRPCDispatcher(incoming, outgoing)
        session = Session(self._server, dispatcher, self._asked, self._noticed)

        async def run(*, task_status: TaskStatus[None]) -> None:
            try:
                await dispatcher.run(session.on_request, session.on_notify, task_status=task_status)
            finally:
                self._over = self._over or "its connection was closed."
                self._wake.set()

        async with anyio.create_task_group() as group:
            await group.start(run)
            try:
                await self._begin(session, process)
                group.start_soon(session.watch)
                await self._serve(session, group, process)
            finally:
                if self.session is session:
                    self.session = None
                group.cancel_scope.cancel()

    async def _begin(self, session: Session, process: stdio.StdioStreams | None) -> None:
        try:
            self._era = await session.begin(self._era)
            listing = await self._listing_of(session)
        except faults.MCPServerError as error:
            if error.why == "lost" and self._era is None:
                raise _OtherEra from error
            if self._transport == "auto" and error.status is not None and _is_for_another(error.status):
                raise _OtherTransport(error.reason) from error
            if process is not None and error.why == "lost":
                raise await self._gone(process) from error
            raise
        if self._transport == "auto":
            self._transport = "http"
        if self._clock is not None:
            self._clock.reschedule(None)
        self.listing = listing
        self._described = (session.version, session.info)
        self.session = session
        self._connected += 1
        self._url = None
        self._set("ready", "")

    async def _gone(self, process: stdio.StdioStreams) -> faults.MCPServerError:
        with contextlib.suppress(TimeoutError):  # the exit code comes shortly after the end of the output
            async with asyncio.timeout(_EXIT):
                await asyncio.shield(process.exited)
        return faults.MCPServerError(self._server.name, "start", process.why_gone(ready=False), executed=False)

    async def _serve(self, session: Session, group: anyio.abc.TaskGroup, process: stdio.StdioStreams | None) -> None:
        while not self._closing and self._over is None:
            if self._wants_list:
                self._wants_list = False
                group.start_soon(self._list_again, session)
            self._wake.clear()
            await self._wake.wait()
        if self.session is session and not self._closing:
            self.session = None
            reason = self._over or ""
            if process is not None and process.incoming.ended:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_EXIT):
                        await asyncio.shield(process.exited)
                reason = process.why_gone(ready=True)
            self._set("connecting", reason)

    def _noticed(self, what: str) -> None:
        """Called when the server says that something has changed."""
        if what == "tools":
            self._wants_list = True
            self._wake.set()
        else:
            self._tell()

    async def _list_again(self, session: Session) -> None:
        try:
            self.listing = await self._listing_of(session)
        except faults.MCPServerError as error:
            _log.warning("%s; its tools stay as they were.", error)
            return
        self._tell()

    async def _listing_of(self, session: Session) -> Listing:
        try:
            given = await session.listed("tools/list", "tools", seconds=self.seconds)
        except faults.MCPServerError as error:
            if error.why != "refused" or "tools" in session.capabilities:
                raise
            given = []  # it never said that it has any
        listing = await _workers.run(
            read_tools, self._server, given, self._call, self.listing, modern=session.is_modern
        )
        for name, why in listing.dropped.items():
            if self.listing.dropped.get(name) != why:
                _log.warning("MCP server %r: the tool %r is not offered: %s", self._server.name, name, why)
        return listing

    def _set(self, state: MCPState, reason: str) -> None:
        if (state, reason) == (self._state, self._reason) and state != "ready":
            return
        self._state, self._reason = state, reason
        if state == "failed":
            _log.warning("MCP server %r is not connected: %s", self._server.name, reason)
        self._tell()

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()
        try:
            self._changed(self._server.name)
        except Exception:  # noqa: BLE001 - the host's function; the connection goes on
            _log.exception("What was to be told of a change of MCP servers failed.")


def _is_for_another(status: int) -> bool:
    return 400 <= status < 500 and status not in (401, 403, 407, 429)
