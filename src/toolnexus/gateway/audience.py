"""Who is connected to a gateway, and is told when something changes."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from toolnexus.gateway.sdk import (
    CallNext,
    HandlerResult,
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    Server,
    ServerEvent,
    ServerRequestContext,
    ServerSession,
    ToolsListChanged,
    types,
)

if TYPE_CHECKING:
    from toolnexus.tools import Tool

_MOST_SESSIONS = 10_000
"""Sessions that are told of changes; more than the transport keeps open."""
_LOOK_AGAIN = 1.0
"""Seconds between two looks at whether there are other tools now."""
_PATIENCE = 2.0
"""Seconds that a client may take to be told something."""

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
SAID_AT = "info"
"""The level at which clients are told what tools say."""

Context: TypeAlias = ServerRequestContext[Any, Any]
Changed = Literal["tools", "prompts", "resources"]

_CHANGES: dict[Changed, tuple[Callable[[], ServerEvent], Callable[[], types.ServerNotification]]] = {
    "tools": (ToolsListChanged, types.ToolListChangedNotification),
    "prompts": (PromptsListChanged, types.PromptListChangedNotification),
    "resources": (ResourcesListChanged, types.ResourceListChangedNotification),
}


def session_id(ctx: Context) -> str:
    """The session that a request belongs to. Empty: its connection is for one client alone, or for one request."""
    headers = getattr(ctx.request, "headers", None)
    return "" if headers is None else headers.get("mcp-session-id", "")


class Session:
    """What is kept of a client that is connected for more than one request."""

    def __init__(self, session: ServerSession) -> None:
        self.session = session
        self.level: str = SAID_AT
        """The lowest level of log messages that it wants."""
        self.watched: set[str] = set()
        """The URIs of resources of whose changes it wants to be told."""


class Line:
    """What one run of the server serves: all of HTTP, or one client on standard input and output."""

    def __init__(self) -> None:
        self.id = secrets.token_hex(8)
        self.sessions: OrderedDict[str, Session] = OrderedDict()
        self.look = asyncio.Event()
        """Set when the tools may be others now."""

    def session(self, ctx: Context) -> Session:
        """What is kept of the client that made a request."""
        key = session_id(ctx)
        if key not in self.sessions:
            self.sessions[key] = Session(ctx.session)
            if len(self.sessions) > _MOST_SESSIONS:
                self.sessions.popitem(last=False)
        self.sessions.move_to_end(key)
        return self.sessions[key]


class Audience:
    """All who are connected.

    Args:
        tools: The tools that there are now. They are looked at after each call, and now and then.
    """

    def __init__(self, tools: Callable[[], tuple[Tool, ...]]) -> None:
        self._tools = tools
        self._seen = tools()
        self._bus = InMemorySubscriptionBus()
        self._lines: set[Line] = set()
        self.listen = ListenHandler(self._bus)
        """Answers `subscriptions/listen`, with which clients of the new protocol wait for changes."""

    @asynccontextmanager
    async def line(self, _: Server[Line]) -> AsyncGenerator[Line]:
        """What the server's own lifespan is."""
        line = Line()
        self._lines.add(line)
        looking = asyncio.create_task(self._look_for_changes(line))
        try:
            yield line
        finally:
            self._lines.discard(line)
            looking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await looking

    async def see(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """A middleware that remembers who is there."""
        if ctx.method == "notifications/initialized":
            line: Line = ctx.lifespan_context
            line.session(ctx).session = ctx.session
        return await call_next(ctx)

    async def changed(self, what: Changed) -> None:
        """Tell all that there are other tools, prompts or resources."""
        event, notification = _CHANGES[what]
        await self._publish(event(), lambda _: notification())

    async def resource_updated(self, uri: str) -> None:
        """Tell those who watch a resource that it changed."""
        told = types.ResourceUpdatedNotification(params=types.ResourceUpdatedNotificationParams(uri=uri))
        await self._publish(ResourceUpdated(uri), lambda session: told if uri in session.watched else None)

    def is_watched(self, uri: str) -> bool:
        """Whether anybody watches a resource."""
        return any(uri in session.watched for line in self._lines for session in line.sessions.values())

    def forget(self, session: str) -> None:
        """Forget a session that its client ended."""
        for line in self._lines:
            line.sessions.pop(session, None)

    async def _publish(
        self, event: ServerEvent, notification: Callable[[Session], types.ServerNotification | None]
    ) -> None:
        await self._bus.publish(event)
        telling = [
            self._tell(line, key, session, told)
            for line in self._lines
            for key, session in line.sessions.items()
            if (told := notification(session)) is not None
        ]
        await asyncio.gather(*telling)

    async def _tell(self, line: Line, key: str, session: Session, told: types.ServerNotification) -> None:
        try:
            async with asyncio.timeout(_PATIENCE):
                await session.session.send_notification(told)
        except Exception:  # noqa: BLE001 - a client that left cannot be told, or does not listen
            line.sessions.pop(key, None)

    async def _look_for_changes(self, line: Line) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_AGAIN):
                    await line.look.wait()
            line.look.clear()
            tools = self._tools()
            if tools != self._seen:
                self._seen = tools
                await self.changed("tools")
