"""A server at a URL: an HTTP client of which every fault is an answer, and the SDK's transports over it.

The SDK's transports end as a whole when a connection breaks, which cancels whoever waits, and forget the status of an
answer. Here a fault is noted with the request it belongs to, and the transport gets an answer that it understands.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import httpx2
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CONNECTION_CLOSED

from toolnexus import _json
from toolnexus.sources.mcp import faults
from toolnexus.sources.mcp.exchange import Exchange, current

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams
    from mcp.shared._httpx_utils import McpHttpClientFactory

    from toolnexus.sources.mcp.config import MCPServer
    from toolnexus.sources.mcp.faults import MCPServerError

_LARGEST = 64 * 1024 * 1024
"""Bytes of one message."""
_LARGEST_FAULT = 16 * 1024
"""Bytes of the answer to a request that failed which are read."""
_CONNECTING = 10.0
_TELLING = 10.0
"""Seconds for what is only told to a server, such as that a call is cancelled."""
_LEAVING = 2.0
"""Seconds for telling it that the session is over."""

_REQUEST = re.compile(rb'\{"jsonrpc":"2\.0","id":(?:-?\d+|"[^"]*"),"method":')
"""How the SDK writes a message that is answered. Others are sent in the same context."""

SESSION_LOST = "the server does not know the session any more (it was restarted, or the session expired)"


class Authorisation(Protocol):
    """Gives requests the token of somebody who signed in."""

    async def prepare(self, request: httpx2.Request) -> None:
        """Add the token, if there is one."""
        ...

    async def renew(self, request: httpx2.Request, refusal: httpx2.Response) -> bool:
        """Get a new token, as the server refused this one. Whether there is one.

        Raises:
            MCPServerError: Somebody has to sign in.
        """
        ...


class AnsweringClient(httpx2.AsyncClient):
    """An HTTP client that answers in place of a server that does not.

    Args:
        authorisation: None: requests are sent as they are.
        streamable: Whether an answer to a POST answers the request in it. Otherwise it comes on another connection.
    """

    def __init__(self, server: MCPServer, authorisation: Authorisation | None, *, streamable: bool) -> None:
        super().__init__(
            headers=dict(server.headers),
            timeout=httpx2.Timeout(None, connect=_CONNECTING),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=20),
        )
        self._server = server
        self._authorisation = authorisation
        self._streamable = streamable
        self.refused: MCPServerError | None = None
        """Why the stream for what the server tells by itself is not there. None: it is, or was never asked for."""

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a request. What the SDK's transports send, with `stream=True`, is always answered."""
        if not options.get("stream"):
            return await super().send(request, **options)
        exchange = current() if request.method == "POST" and _REQUEST.match(request.content) else None
        if exchange is None:
            _bound(request)
        else:
            exchange.sent = True
        try:
            response = await self._authorised(request, options)
            return await self._usable(request, response, exchange)
        except faults.MCPServerError as fault:
            return self._failed(request, exchange, fault)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.UnsupportedProtocol, httpx2.ProxyError) as error:
            return self._failed(request, exchange, self._unreachable(error))
        except (httpx2.TransportError, httpx2.StreamError, httpx2.DecodingError) as error:
            return self._failed(request, exchange, self._lost(error, exchange))

    async def _authorised(self, request: httpx2.Request, options: Mapping[str, Any]) -> httpx2.Response:
        authorisation = self._authorisation
        if authorisation is None:
            return await super().send(request, **options)
        await authorisation.prepare(request)
        response = await super().send(request, **options)
        wants_more = response.status_code == 403 and "insufficient_scope" in response.headers.get(
            "www-authenticate", ""
        )
        if response.status_code != 401 and not wants_more:
            return response
        await _read(response, _LARGEST_FAULT)
        if not await authorisation.renew(request, response):
            return response
        return await super().send(request, **options)

    async def _usable(
        self, request: httpx2.Request, response: httpx2.Response, exchange: Exchange | None
    ) -> httpx2.Response:
        status = response.status_code
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if 300 <= status < 400 and _stays(request, response):
            return response
        if status >= 300:
            body = await _read(response, _LARGEST_FAULT)
            fault = self._of_status(request, response, body)
            if exchange is None or not _is_rpc_error(kind, body):
                return self._failed(request, exchange, fault)
            if fault.why == "lost" or status == 401:
                exchange.fail(fault)
            return _rebuilt(request, response, body)
        if request.method == "GET" and kind != "text/event-stream":
            await response.aclose()
            return self._failed(request, None, faults.of_page(self._server, kind))
        if exchange is None or status == 202 or not self._streamable or kind == "text/event-stream":
            return response
        if kind != "application/json":
            await response.aclose()
            return self._failed(request, exchange, faults.of_page(self._server, kind))
        return _rebuilt(request, response, await _read(response, _LARGEST))

    def _of_status(self, request: httpx2.Request, response: httpx2.Response, body: bytes) -> MCPServerError:
        status = response.status_code
        text = body.decode("utf-8", "replace")
        in_session = "mcp-session-id" in request.headers
        if in_session and (status == 404 or (status == 400 and "session" in text.lower())):
            return faults.MCPServerError(self._server.name, "lost", SESSION_LOST, executed=False, status=status)
        if status < 400:
            text = f"redirected to {response.headers.get('location', 'nowhere').partition('?')[0]}"
        return faults.of_status(self._server, status, response.reason_phrase, text)

    def _failed(self, request: httpx2.Request, exchange: Exchange | None, fault: MCPServerError) -> httpx2.Response:
        """What the transport gets in place of an answer."""
        status = fault.status if fault.status is not None and fault.status >= 400 else 502
        if request.method == "DELETE":  # a session that cannot be ended is over as well
            return httpx2.Response(204, request=request)
        if exchange is None:
            if request.method == "GET":
                self.refused = fault
            return httpx2.Response(status, request=request)
        exchange.fail(fault)
        if not self._streamable:
            exchange.stop()
            return httpx2.Response(202, request=request)
        error = {"jsonrpc": "2.0", "id": None, "error": {"code": CONNECTION_CLOSED, "message": "no answer"}}
        return httpx2.Response(status, request=request, json=error)

    def _unreachable(self, error: Exception) -> MCPServerError:
        said = faults.shown(str(error) or type(error).__name__, self._server)
        reason = f"{self._server.shown_url} cannot be reached: {said}. Check the address, and whether it runs."
        return faults.MCPServerError(self._server.name, "unreachable", reason, executed=False)

    def _lost(self, error: Exception, exchange: Exchange | None) -> MCPServerError:
        said = faults.shown(str(error) or type(error).__name__, self._server)
        reason = f"the connection broke: {said}{faults.may_have(exchange.method) if exchange else ''}"
        return faults.MCPServerError(self._server.name, "lost", reason)


def _stays(request: httpx2.Request, response: httpx2.Response) -> bool:
    """Whether a redirection is one that the SDK follows: to the same server, with the same method."""
    if response.next_request is None or response.next_request.method != request.method:
        return False
    here, there = request.url, response.next_request.url
    return (here.scheme, here.host, here.port) == (there.scheme, there.host, there.port)


def _bound(request: httpx2.Request) -> None:
    """Give a time to requests that nobody waits for."""
    seconds = {"POST": _TELLING, "DELETE": _LEAVING}.get(request.method)
    if seconds is not None:
        request.extensions = {**request.extensions, "timeout": httpx2.Timeout(seconds).as_dict()}


async def _read(response: httpx2.Response, most: int) -> bytes:
    """The body, as far as `most` bytes go."""
    pieces: list[bytes] = []
    size = 0
    async with contextlib.aclosing(_pieces(response)) as body:
        async for piece in body:
            pieces.append(piece)
            size += len(piece)
            if size > most:
                break
    await response.aclose()
    return b"".join(pieces)


async def _pieces(response: httpx2.Response) -> AsyncGenerator[bytes]:
    stream: AsyncIterator[bytes] = response.aiter_bytes()
    async for piece in stream:
        yield piece


def _rebuilt(request: httpx2.Request, response: httpx2.Response, body: bytes) -> httpx2.Response:
    """A response whose body has been read."""
    headers = [
        (name, value)
        for name, value in response.headers.multi_items()
        if name.lower() not in ("content-encoding", "content-length", "transfer-encoding")
    ]
    return httpx2.Response(response.status_code, headers=headers, content=body, request=request)


def _is_rpc_error(kind: str, body: bytes) -> bool:
    if kind != "application/json":
        return False
    try:
        value = _json.loads(body)
    except ValueError:
        return False
    match value:
        case {"jsonrpc": "2.0", "error": {"code": int(), "message": str()}}:
            return True
        case _:
            return False


def _factory(client: AnsweringClient) -> McpHttpClientFactory:
    """What gives the SDK this client, which it enters and leaves."""

    def make(
        headers: dict[str, str] | None = None, timeout: httpx2.Timeout | None = None, auth: httpx2.Auth | None = None
    ) -> httpx2.AsyncClient:
        del headers, timeout, auth
        return client

    return make


@contextlib.asynccontextmanager
async def streamable(
    server: MCPServer, authorisation: Authorisation | None
) -> AsyncGenerator[tuple[TransportStreams, AnsweringClient]]:
    """Streamable HTTP. It connects with the first request."""
    async with (
        AnsweringClient(server, authorisation, streamable=True) as client,
        streamable_http_client(server.url or "", http_client=client, max_sse_event_size=_LARGEST) as streams,
    ):
        yield streams, client


@contextlib.asynccontextmanager
async def event_stream(
    server: MCPServer, authorisation: Authorisation | None
) -> AsyncGenerator[tuple[TransportStreams, AnsweringClient]]:
    """The older transport: one stream of events, beside POSTs.

    Raises:
        MCPServerError: There is no such stream.
    """
    client = AnsweringClient(server, authorisation, streamable=False)
    try:
        async with sse_client(server.url or "", httpx_client_factory=_factory(client)) as streams:
            yield streams, client
    except (httpx2.HTTPError, httpx2.SSEError, httpx2.InvalidURL) as error:
        if client.refused is not None:
            raise client.refused from error
        raise faults.MCPServerError(
            server.name, "protocol", f"{server.shown_url} gives no event stream: {faults.shown(str(error), server)}"
        ) from error
