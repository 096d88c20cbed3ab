"""What the gateway uses of the MCP SDK, in one place."""

from __future__ import annotations

from toolnexus.errors import MissingExtra

try:
    import anyio
    import mcp_types as types
    from mcp.server.caching import CacheHint
    from mcp.server.connection import allowed_log_levels
    from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
    from mcp.server.lowlevel.server import NotificationOptions, Server
    from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
    from mcp.server.session import ServerSession
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
    from mcp.server.subscriptions import (
        InMemorySubscriptionBus,
        ListenHandler,
        PromptsListChanged,
        ResourcesListChanged,
        ResourceUpdated,
        ServerEvent,
        ToolsListChanged,
    )
    from mcp.server.transport_security import TransportSecuritySettings
    from mcp.shared.exceptions import MCPError
    from mcp.shared.message import ServerMessageMetadata, SessionMessage
    from mcp_types.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, MISSING_REQUIRED_CLIENT_CAPABILITY
    from mcp_types.methods import serialize_server_result
    from mcp_types.version import MODERN_PROTOCOL_VERSIONS
except ImportError as error:
    raise MissingExtra("Gateways for MCP clients", extra="mcp") from error

__all__ = [
    "INTERNAL_ERROR",
    "INVALID_PARAMS",
    "MISSING_REQUIRED_CLIENT_CAPABILITY",
    "MODERN_PROTOCOL_VERSIONS",
    "CacheHint",
    "CallNext",
    "HandlerResult",
    "InMemorySubscriptionBus",
    "ListenHandler",
    "MCPError",
    "NotificationOptions",
    "PromptsListChanged",
    "RequestStateBoundary",
    "RequestStateSecurity",
    "ResourceUpdated",
    "ResourcesListChanged",
    "Server",
    "ServerEvent",
    "ServerMessageMetadata",
    "ServerRequestContext",
    "ServerSession",
    "SessionMessage",
    "StreamableHTTPSessionManager",
    "ToolsListChanged",
    "TransportSecuritySettings",
    "allowed_log_levels",
    "anyio",
    "serialize_server_result",
    "types",
]
