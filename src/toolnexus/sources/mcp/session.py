"""One session with a server: its handshake in either era, requests and lists read leniently, and what it asks back.

It stands on the SDK's dispatcher, not on its session, which refuses a whole list for one tool and results for details.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    NAME_BEARING_METHODS,
    encode_header_value,
)
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    CONNECTION_CLOSED,
    METHOD_NOT_FOUND,
    PROTOCOL_VERSION_META_KEY,
    SERVER_INFO_META_KEY,
    UNSUPPORTED_PROTOCOL_VERSION,
)
from mcp_types.version import (
    HANDSHAKE_PROTOCOL_VERSIONS,
    LATEST_HANDSHAKE_VERSION,
    LATEST_MODERN_VERSION,
    MODERN_PROTOCOL_VERSIONS,
)

import toolnexus
from toolnexus.sources.mcp import faults
from toolnexus.sources.mcp.exchange import Exchange, set_current

if TYPE_CHECKING:
    from mcp.shared.dispatcher import CallOptions, DispatchContext, ProgressFnT
    from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
    from mcp.shared.transport_context import TransportContext

    from toolnexus.sources.mcp.asking import Asked
    from toolnexus.sources.mcp.config import MCPServer
    from toolnexus.tools import JSONObject

_log = logging.getLogger("toolnexus")

Era: TypeAlias = Literal["modern", "handshake"]

_PROBING = 2.0
"""Seconds that a server has to say whether it speaks the new protocol."""
_LISTEN = "subscriptions/listen"
_SHORT = 5.0
_LISTENING_AGAIN = 1.0
"""Seconds between the end of what tells of changes and its next beginning."""
_MOST_PAGES = 1_000
_MOST_ITEMS = 10_000

Progress: TypeAlias = Callable[[float, float | None, str | None], None]


class Session:
    """A session that lasts until the streams end.

    Attributes:
        version: The revision that is spoken.
        info: The name and version that the server gives itself.
        capabilities: What it says it can do.
        instructions: What it wants a model to know. Empty: nothing.
    """

    def __init__(
        self, server: MCPServer, dispatcher: JSONRPCDispatcher, asked: Asked, noticed: Callable[[str], None]
    ) -> None:
        self._server = server
        self._dispatcher = dispatcher
        self._asked = asked
        self._noticed = noticed
        self._open: set[Exchange] = set()
        self._stamp: dict[str, Any] | None = None
        self.version: str | None = None
        self.info = ""
        self.capabilities: Mapping[str, Any] = {}
        self.instructions = ""

    @property
    def is_modern(self) -> bool:
        """Whether the server speaks the protocol without a handshake."""
        return self.version in MODERN_PROTOCOL_VERSIONS

    async def begin(self, era: Era | None) -> Era:
        """Agree on a protocol.

        Args:
            era: What the server spoke last time. None: it has to be found out.

        Raises:
            MCPServerError: There is none in common, or no answer.
        """
        if era != "handshake" and await self._probe(LATEST_MODERN_VERSION):
            return "modern"
        try:
            await self._shake_hands()
        except faults.MCPServerError as error:
            # A slow server may have heard the probe after all, and then expects the new protocol.
            mutual = _mutual(error)
            if mutual is None or not await self._probe(mutual):
                raise
            return "modern"
        return "handshake"

    async def _probe(self, version: str, *, again: bool = True) -> bool:
        params = {"_meta": self._meta(version)}
        headers = {MCP_PROTOCOL_VERSION_HEADER: version}
        try:
            found = await self._send("server/discover", params, headers, seconds=_PROBING)
        except faults.MCPServerError as error:
            if error.code == UNSUPPORTED_PROTOCOL_VERSION and again:
                mutual = _mutual(error)
                if mutual is not None:
                    return await self._probe(mutual, again=False)
            if error.why in ("unreachable", "lost", "unavailable", "needs_auth"):
                raise
            return False
        versions = found.get("supportedVersions")
        supported = cast("list[Any]", versions) if isinstance(versions, list) else []
        mutual = [each for each in MODERN_PROTOCOL_VERSIONS if each in supported]
        if not mutual:
            return False
        self.version = mutual[-1]
        self._stamp = self._meta(self.version)
        self._know(found, _object(found.get("_meta")).get(SERVER_INFO_META_KEY))
        return True

    async def _shake_hands(self) -> None:
        params = {
            "protocolVersion": LATEST_HANDSHAKE_VERSION,
            "capabilities": self._asked.capabilities(modern=False),
            "clientInfo": _us(),
        }
        result = await self._send("initialize", params, {}, seconds=None)
        version = result.get("protocolVersion")
        if version not in HANDSHAKE_PROTOCOL_VERSIONS:
            spoken = ", ".join((*HANDSHAKE_PROTOCOL_VERSIONS, *MODERN_PROTOCOL_VERSIONS))
            reason = f"it speaks the protocol {version!r:.40}, and here are spoken {spoken}. Update one of the two."
            raise faults.MCPServerError(self._server.name, "protocol", reason)
        self.version = cast("str", version)
        self._know(result, result.get("serverInfo"))
        await self.notify("notifications/initialized")

    def _know(self, said: Mapping[str, Any], info: object) -> None:
        self.capabilities = _object(said.get("capabilities"))
        instructions = said.get("instructions")
        self.instructions = instructions if isinstance(instructions, str) else ""
        self.info = " ".join(str(_object(info).get(key) or "") for key in ("name", "version")).strip()[:200]

    def _meta(self, version: str) -> dict[str, Any]:
        return {
            PROTOCOL_VERSION_META_KEY: version,
            CLIENT_INFO_META_KEY: _us(),
            CLIENT_CAPABILITIES_META_KEY: self._asked.capabilities(modern=True),
        }

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Tell the server something."""
        set_current(None)
        opts: CallOptions = {"headers": {MCP_PROTOCOL_VERSION_HEADER: self.version or LATEST_HANDSHAKE_VERSION}}
        await self._dispatcher.notify(method, params, opts)

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        seconds: float | None,
        progress: Progress | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> JSONObject:
        """Ask the server, and wait for its answer. Cancelling this cancels it there.

        Args:
            seconds: From the last sign of progress on. None: without end.
            headers: Further ones, for HTTP.

        Raises:
            MCPServerError: There is no answer, or it is an error. `executed` says whether it may have been done.
        """
        sent: dict[str, Any] = {**params} if params else {}
        stamped: dict[str, str] = {MCP_PROTOCOL_VERSION_HEADER: self.version or LATEST_HANDSHAKE_VERSION}
        if self._stamp is not None:
            sent["_meta"] = {**_object(sent.get("_meta")), **self._stamp}
            stamped[MCP_METHOD_HEADER] = method
            key = NAME_BEARING_METHODS.get(method)
            if key is not None and isinstance(name := sent.get(key), str):
                stamped[MCP_NAME_HEADER] = encode_header_value(name)
            stamped.update(headers or {})
        return await self._send(method, sent, stamped, seconds=seconds, progress=progress)

    async def _send(
        self,
        method: str,
        params: Mapping[str, Any],
        headers: dict[str, str],
        *,
        seconds: float | None,
        progress: Progress | None = None,
        request_id: str | None = None,
    ) -> JSONObject:
        exchange = Exchange(method, seconds)
        opts: CallOptions = {"headers": headers}
        if method in ("initialize", "server/discover"):
            opts["cancel_on_abandon"] = False
            if method == "server/discover":
                headers[MCP_METHOD_HEADER] = method
        if progress is not None:
            opts["on_progress"] = _listener(exchange, progress)
        if request_id is not None:
            opts["request_id"] = request_id
        set_current(exchange)
        self._open.add(exchange)
        try:
            async with asyncio.timeout(seconds) as exchange.clock:
                return await self._dispatcher.send_raw_request(method, params, opts)
        except TimeoutError as error:
            raise exchange.fault or faults.of_timeout(self._server, method, seconds or 0.0) from error
        except MCPError as error:
            raise self._fault(exchange, error) from error
        except RuntimeError as error:  # the dispatcher has never run, or not yet
            raise self._gone(exchange) from error
        finally:
            exchange.clock = None
            self._open.discard(exchange)
            set_current(None)

    def _fault(self, exchange: Exchange, error: MCPError) -> faults.MCPServerError:
        if exchange.fault is not None:
            return exchange.fault
        if error.code == CONNECTION_CLOSED:
            return self._gone(exchange)
        return faults.of_answer(self._server, exchange.method, error.code, error.message, error.data)

    def _gone(self, exchange: Exchange) -> faults.MCPServerError:
        if not exchange.sent:
            return faults.MCPServerError(self._server.name, "lost", "the connection is closed.", executed=False)
        reason = f"the connection was lost during {exchange.method}.{faults.may_have(exchange.method)}"
        return faults.MCPServerError(self._server.name, "lost", reason)

    async def listed(self, method: str, key: str, *, seconds: float | None) -> list[Any]:
        """All pages of a list. A server that cannot give one has an empty one.

        Raises:
            MCPServerError: As `request`.
        """
        items: list[Any] = []
        cursors: set[str] = set()
        params: dict[str, Any] = {}
        for _ in range(_MOST_PAGES):
            try:
                page = await self.request(method, params, seconds=seconds)
            except faults.MCPServerError as error:
                if error.code == METHOD_NOT_FOUND and not items:
                    return []
                raise
            items += _items(page.get(key))
            cursor = page.get("nextCursor")
            if not isinstance(cursor, str) or not cursor:
                return items
            if cursor in cursors or len(items) >= _MOST_ITEMS:
                break
            cursors.add(cursor)
            params = {"cursor": cursor}
        _log.warning("MCP server %r: %s does not end; %d items were read.", self._server.name, method, len(items))
        return items[:_MOST_ITEMS]

    async def watch(self) -> None:
        """Hear of changes, from servers that have to be asked for that. It lasts as long as the session."""
        wanted = {f"{what}ListChanged": True for what in ("tools", "prompts", "resources") if self._tells(what)}
        if not self.is_modern or not wanted:
            return
        headers = {MCP_PROTOCOL_VERSION_HEADER: self.version or "", MCP_METHOD_HEADER: _LISTEN}
        params = {"notifications": wanted, "_meta": self._stamp}
        for number in count():
            began = time.monotonic()
            try:
                await self._send(_LISTEN, params, headers, seconds=None, request_id=f"toolnexus-listen-{number}")
            except faults.MCPServerError as error:
                _log.debug("MCP server %r tells of no changes: %s", self._server.name, error)
                if error.why not in ("lost", "unreachable"):
                    return
            if time.monotonic() - began < _SHORT:  # the server ends it at once, and would do so again
                return
            await asyncio.sleep(_LISTENING_AGAIN)
            self._noticed("tools")  # what happened meanwhile nobody told

    def _tells(self, what: str) -> bool:
        return bool(_object(self.capabilities.get(what)).get("listChanged"))

    async def on_request(
        self, context: DispatchContext[TransportContext], method: str, params: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        """Called with what the server asks."""
        del context
        if method == "ping":
            return {}
        if not self._asked.knows(method):
            raise MCPError(METHOD_NOT_FOUND, "Method not found", method)
        waiting = tuple(self._open)
        for exchange in waiting:
            exchange.hold()
        try:
            return await self._asked.answer(method, params or {})
        finally:
            for exchange in waiting:
                exchange.go_on()

    async def on_notify(
        self, context: DispatchContext[TransportContext], method: str, params: Mapping[str, Any] | None
    ) -> None:
        """Called with what the server tells."""
        del context
        if method == "notifications/message":
            said = _object(params)
            _log.debug("MCP server %r says: %.500r", self._server.name, said.get("data"))
        elif method.endswith("/list_changed"):
            self._noticed(method.split("/")[-2])


def _listener(exchange: Exchange, heard: Progress) -> ProgressFnT:
    async def hear(progress: float, total: float | None, message: str | None) -> None:
        exchange.alive()
        heard(progress, total, message)

    return hear


def _us() -> dict[str, Any]:
    return {"name": "toolnexus", "version": toolnexus.__version__}


def _mutual(error: faults.MCPServerError) -> str | None:
    """The newest protocol without handshake that a refusal names and we speak."""
    if error.code != UNSUPPORTED_PROTOCOL_VERSION:
        return None
    supported = _items(_object(error.data).get("supported"))
    return next((each for each in reversed(MODERN_PROTOCOL_VERSIONS) if each in supported), None)


def _object(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _items(value: object) -> Iterable[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else ()
