"""The MCP server that a toolkit is, whatever its clients are connected by."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

from toolnexus import _callbacks, _workers
from toolnexus.errors import ConfigurationError, ToolnexusError
from toolnexus.gateway import OnCall, ServedCall, Upstream
from toolnexus.gateway.audience import LEVELS, SAID_AT, Audience, Changed, Context, Line, session_id
from toolnexus.gateway.content import call_result, error_result
from toolnexus.gateway.peers import Asks, MoreInput, NotAsked, Peer, peer_of, until_answered
from toolnexus.gateway.progress import Progress
from toolnexus.gateway.sdk import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    MODERN_PROTOCOL_VERSIONS,
    CacheHint,
    MCPError,
    NotificationOptions,
    RequestStateBoundary,
    RequestStateSecurity,
    Server,
    allowed_log_levels,
    anyio,
    serialize_server_result,
    types,
)
from toolnexus.gateway.skills import EXTENSION, SCHEME, SkillShelf, UnknownSkill
from toolnexus.suspension import Suspension, asked_by_policy, asked_by_tool
from toolnexus.tools import InvalidArguments, JSONObject, Tool, ToolContext, ToolResult

if TYPE_CHECKING:
    from toolnexus.sources.skills.collection import Skills
    from toolnexus.suspension import Answer
    from toolnexus.toolkit import Toolkit

_log = logging.getLogger("toolnexus")

_MOST_WATCHED = 1000
"""Resources that one session may watch."""
_GRACE = 2.0
"""Seconds that a cancelled call may take to end."""


class Gateway:
    """A toolkit as an MCP server.

    Args:
        toolkit: Its tools are served under their names. Those that it gets later are served as well.
        skills: Served as resources. None: there are none.
        upstreams: What has resources and prompts. Of two with the same name or URI the first is served.
        name: What the server is called.
        version: Its version.
        instructions: What clients may tell their model about it.
        on_call: Is told of every call.
        with_arguments: Whether it is told what a tool was called with.
        client_approves: Whether the client asks its person before each call, as most do: then tools that need
            approval run at once. Otherwise the client's person is asked, if the client can be asked, or the call fails.

    Raises:
        MissingExtra: The MCP SDK is not installed.
    """

    def __init__(
        self,
        toolkit: Toolkit,
        *,
        skills: Skills | None = None,
        upstreams: Sequence[Upstream] = (),
        name: str = "toolnexus",
        version: str | None = None,
        instructions: str | None = None,
        on_call: OnCall | None = None,
        with_arguments: bool = False,
        client_approves: bool = False,
    ) -> None:
        if on_call is not None and not callable(on_call):
            raise ConfigurationError(f"on_call is {on_call!r:.100}; give a function.")
        self._toolkit = toolkit
        self._shelf = SkillShelf(skills) if skills is not None and len(skills) else None
        self._upstreams = tuple(upstreams)
        self._on_call = on_call
        self._with_arguments = with_arguments
        self._client_approves = client_approves
        self._audience = Audience(toolkit.tools)
        self._listed: WeakKeyDictionary[Tool, dict[str, types.Tool | None]] = WeakKeyDictionary()
        self._running = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self.server = self._made(name, version, instructions)
        """The SDK's server, for a transport of your own."""

    def _made(self, name: str, version: str | None, instructions: str | None) -> Server[Line]:
        from toolnexus import __version__

        server = _Server(
            name,
            version=__version__ if version is None else version,
            instructions=instructions,
            lifespan=self._audience.line,
            get_tool_input_schema=self._schema_of,
            cache_hints=_NOTHING_STAYS_FRESH,
            on_list_tools=self._list_tools,
            on_subscriptions_listen=self._audience.listen,
        )

        def add(method: str, params: type[Any], handler: Callable[[Context, Any], Awaitable[JSONObject]]) -> None:
            server.add_request_handler(method, params, _completed(handler))

        add("tools/call", types.CallToolRequestParams, self._call_tool)
        server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, self._set_level)
        if self._shelf or self._upstreams:
            add("resources/list", types.PaginatedRequestParams, self._list_resources)
            add("resources/templates/list", types.PaginatedRequestParams, self._list_templates)
            add("resources/read", types.ReadResourceRequestParams, self._read_resource)
            server.add_request_handler("resources/subscribe", types.SubscribeRequestParams, self._subscribe)
            server.add_request_handler("resources/unsubscribe", types.UnsubscribeRequestParams, self._unsubscribe)
        if self._upstreams:
            add("prompts/list", types.PaginatedRequestParams, self._list_prompts)
            add("prompts/get", types.GetPromptRequestParams, self._get_prompt)
            add("completion/complete", types.CompleteRequestParams, self._complete)
        if self._shelf:
            server.extensions[EXTENSION] = {"directoryRead": True}
            add("skills/list", types.PaginatedRequestParams, self._list_skills)
            add("skills/get", _named_by_uri(), self._get_skill)
            add("resources/directory/read", _named_by_uri(), self._read_folder)
        server.middleware.append(RequestStateBoundary(RequestStateSecurity.ephemeral(), default_audience=name))
        server.middleware.append(self._audience.see)
        return server

    # What the gateway is told, and waits for.

    async def changed(self, what: Changed) -> None:
        """Tell the clients that there are other tools, prompts or resources. Other tools are noticed by themselves."""
        await self._audience.changed(what)

    async def resource_updated(self, uri: str) -> None:
        """Tell the clients that watch a resource that it changed."""
        await self._audience.resource_updated(uri)

    async def idle(self, seconds: float) -> bool:
        """Wait until no call is running, or for so many seconds. Whether none is."""
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    def end_listening(self) -> None:
        """End the streams on which clients of the new protocol wait for changes."""
        self._audience.listen.close()

    def forget(self, session_id: str) -> None:
        """Forget a session that a client ended."""
        self._audience.forget(session_id)

    # Tools.

    def _schema_of(self, name: str) -> Mapping[str, Any] | None:
        tool = self._toolkit.get(name)
        return None if tool is None else tool.input_schema

    async def _list_tools(self, ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        told = (self._declared(tool, ctx.protocol_version) for tool in self._toolkit.tools())
        return types.ListToolsResult(tools=[each for each in told if each is not None])

    def _declared(self, tool: Tool, version: str) -> types.Tool | None:
        """How a tool is listed. None: it cannot be, and the others still can."""
        known = self._listed.setdefault(tool, {})
        if version not in known:
            known[version] = _declared(tool, version)
        return known[version]

    async def _call_tool(self, ctx: Context, params: types.CallToolRequestParams) -> JSONObject:
        tool = self._toolkit.get(params.name)
        if tool is None:
            close = self._toolkit.closest(params.name)
            hint = f" Did you mean {' or '.join(map(repr, close))}?" if close else ""
            raise MCPError(INVALID_PARAMS, f"There is no tool {params.name[:200]!r}.{hint}")
        peer = peer_of(ctx, params)
        arguments = params.arguments or {}
        began = time.monotonic()
        self._running += 1
        self._idle.clear()
        try:
            told = await self._called(ctx, tool, arguments, peer)
        except MoreInput as more:
            return more.result
        except BaseException:
            await self._tell_of_call(tool, arguments, peer, began, is_error=True)
            raise
        finally:
            self._running -= 1
            if self._running == 0:
                self._idle.set()
        await self._tell_of_call(tool, arguments, peer, began, is_error=bool(told["isError"]))
        ctx.lifespan_context.look.set()
        return told

    async def _tell_of_call(
        self, tool: Tool, arguments: JSONObject, peer: Peer, began: float, *, is_error: bool
    ) -> None:
        if self._on_call is None:
            return
        event = ServedCall(
            name=tool.name,
            seconds=max(0.0, time.monotonic() - began - peer.waited),
            is_error=is_error,
            client=peer.name,
            arguments=dict(arguments) if self._with_arguments else None,
        )
        with anyio.move_on_after(_GRACE, shield=True):  # also when the client cancelled the call
            await _callbacks.tell("on_call", self._on_call, event)

    async def _called(self, ctx: Context, tool: Tool, arguments: JSONObject, peer: Peer) -> JSONObject:
        progress = Progress(lambda far, whole, text: self._tell_progress(ctx, tool.name, far, whole, text))
        context = self._tool_context(ctx, tool.name, progress.report)
        pending = (
            asked_by_policy("approval", context, arguments)
            if tool.needs_approval and not self._client_approves
            else None
        )

        async def step(answer: Answer | None) -> ToolResult | Asks[ToolResult]:
            made = replace(context, answer=answer)
            result = await _alone(self._toolkit.execute(tool.name, arguments, made))
            return result if result.request is None else Asks(result.request)

        try:
            result = await until_answered(peer, step, pending)
        except NotAsked as reason:
            return error_result(str(reason))
        finally:
            with contextlib.suppress(Exception):  # a client that left is not told
                await progress.aclose()
        return call_result(result, any_structure=ctx.protocol_version in MODERN_PROTOCOL_VERSIONS)

    def _tool_context(
        self, ctx: Context, tool: str, report: Callable[[str, float | None], None] | None = None
    ) -> ToolContext:
        return ToolContext(
            tool=tool,
            call_id=str(ctx.request_id),
            turn_id=secrets.token_hex(16),
            conversation_id=_conversation(ctx),
            report=report,
        )

    async def _tell_progress(self, ctx: Context, tool: str, far: float, whole: float | None, text: str) -> None:
        """As progress if the client wants to know of it, else as a log message, if it wants those."""
        await ctx.session.report_progress(far, whole, text or None)  # which sends nothing to a client that did not ask
        if not text or (ctx.meta is not None and ctx.meta.get("progress_token") is not None):
            return
        line: Line = ctx.lifespan_context
        modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
        if SAID_AT not in allowed_log_levels(ctx.protocol_version, ctx.meta):
            return
        if not modern and LEVELS.index(line.session(ctx).level) > LEVELS.index(SAID_AT):
            return
        said = types.LoggingMessageNotificationParams(level=SAID_AT, logger=tool, data=text)
        await ctx.session.send_notification(types.LoggingMessageNotification(params=said), ctx.request_id)

    async def _set_level(self, ctx: Context, params: types.SetLevelRequestParams) -> types.EmptyResult:
        line: Line = ctx.lifespan_context
        line.session(ctx).level = params.level
        return types.EmptyResult()

    # Resources and prompts.

    async def _list_resources(self, ctx: Context, params: types.PaginatedRequestParams) -> JSONObject:
        shelf = self._shelf
        ours = [] if shelf is None else await _workers.run(shelf.resources)
        return {"resources": _firsts("uri", [ours, *await self._all(lambda each: each.list_resources())])}

    async def _list_templates(self, ctx: Context, params: types.PaginatedRequestParams) -> JSONObject:
        theirs = await self._all(lambda each: each.list_resource_templates())
        return {"resourceTemplates": _firsts("uriTemplate", theirs)}

    async def _list_prompts(self, ctx: Context, params: types.PaginatedRequestParams) -> JSONObject:
        return {"prompts": _firsts("name", await self._all(lambda each: each.list_prompts()))}

    async def _all(self, listed: Callable[[Upstream], Awaitable[Sequence[JSONObject]]]) -> list[Sequence[JSONObject]]:
        """What all have. One that cannot be asked has nothing."""
        found = await asyncio.gather(*(listed(each) for each in self._upstreams), return_exceptions=True)
        for each in found:
            if isinstance(each, BaseException):
                _log.warning("A server behind the gateway did not say what it has", exc_info=each)
        return [each for each in found if not isinstance(each, BaseException)]

    async def _read_resource(self, ctx: Context, params: types.ReadResourceRequestParams) -> JSONObject:
        uri = str(params.uri)
        if self._shelf is not None and uri.startswith(SCHEME):
            found = await _workers.run(self._shelf.read, uri)
            if found is not None:
                return found
        context = self._tool_context(ctx, "resources/read")
        found = await self._asked(ctx, params, context, lambda each, made: each.read_resource(uri, made))
        if found is None:
            raise MCPError(INVALID_PARAMS, "Resource not found", data={"uri": uri})
        return found

    async def _get_prompt(self, ctx: Context, params: types.GetPromptRequestParams) -> JSONObject:
        name, arguments = params.name, params.arguments or {}
        context = self._tool_context(ctx, "prompts/get")
        found = await self._asked(ctx, params, context, lambda each, made: each.get_prompt(name, arguments, made))
        if found is None:
            raise MCPError(INVALID_PARAMS, f"There is no prompt {name[:200]!r}.")
        return found

    async def _asked(
        self,
        ctx: Context,
        params: types.InputResponseRequestParams,
        context: ToolContext,
        ask: Callable[[Upstream, ToolContext], Awaitable[JSONObject | None]],
    ) -> JSONObject | None:
        """What the first answers that has it."""

        async def step(answer: Answer | None) -> JSONObject | Asks[JSONObject | None] | None:
            made = replace(context, answer=answer)
            try:
                for each in self._upstreams:
                    if (found := await ask(each, made)) is not None:
                        return found
            except Suspension as suspended:
                return Asks(asked_by_tool(suspended.asked, context.turn_id))
            return None

        try:
            return await until_answered(peer_of(ctx, params), step)
        except MoreInput as more:
            return more.result
        except (NotAsked, InvalidArguments) as reason:
            raise MCPError(INVALID_PARAMS, str(reason)) from reason
        except ToolnexusError as error:
            raise MCPError(INTERNAL_ERROR, str(error)) from error

    async def _complete(self, ctx: Context, params: types.CompleteRequestParams) -> JSONObject:
        asked = params.model_dump(by_alias=True, mode="json", exclude_none=True)
        for each in self._upstreams:
            if (found := await each.complete(asked)) is not None:
                return found
        return {"completion": {"values": []}}

    async def _subscribe(self, ctx: Context, params: types.SubscribeRequestParams) -> types.EmptyResult:
        line: Line = ctx.lifespan_context
        watched = line.session(ctx).watched
        if len(watched) >= _MOST_WATCHED:
            raise MCPError(
                INVALID_PARAMS, f"A client may watch {_MOST_WATCHED} resources; unsubscribe from some first."
            )
        watched.add(str(params.uri))
        await self._tell_watched(str(params.uri), wanted=True)
        return types.EmptyResult()

    async def _unsubscribe(self, ctx: Context, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
        line: Line = ctx.lifespan_context
        uri = str(params.uri)
        line.session(ctx).watched.discard(uri)
        if not self._audience.is_watched(uri):
            await self._tell_watched(uri, wanted=False)
        return types.EmptyResult()

    async def _tell_watched(self, uri: str, *, wanted: bool) -> None:
        for each in self._upstreams:
            await each.watch(uri, wanted)

    # The skills extension.

    async def _list_skills(self, ctx: Context, params: types.PaginatedRequestParams) -> JSONObject:
        shelf = cast("SkillShelf", self._shelf)
        return {"skills": await _workers.run(shelf.entries), **_STALE}

    async def _get_skill(self, ctx: Context, params: Any) -> JSONObject:
        shelf = cast("SkillShelf", self._shelf)
        return {"skill": await _of_skills(shelf.entry, params.uri), **_STALE}

    async def _read_folder(self, ctx: Context, params: Any) -> JSONObject:
        shelf = cast("SkillShelf", self._shelf)
        return {"resources": await _of_skills(shelf.folder, params.uri)}


class _Server(Server[Line]):
    """The SDK's server, which tells clients of every connection that it says when something changes."""

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> Any:
        changes = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)
        return super().create_initialization_options(
            notification_options or changes, experimental_capabilities, extensions
        )


_STALE: JSONObject = {"ttlMs": 0, "cacheScope": "private"}
_NOTHING_STAYS_FRESH: Any = {
    method: CacheHint(ttl_ms=0, scope="private")
    for method in ("tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read")
}


def _completed(handler: Callable[[Context, Any], Awaitable[JSONObject]]) -> Callable[[Context, Any], Awaitable[Any]]:
    """A handler whose result says that it is one, where the protocol wants that."""

    async def handle(ctx: Context, params: Any) -> JSONObject:
        result = await handler(ctx, params)
        return {"resultType": "complete", **result} if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS else result

    return handle


def _named_by_uri() -> Any:
    class ByURI(types.PaginatedRequestParams):
        uri: str

    return ByURI


def _conversation(ctx: Context) -> str | None:
    """What is a conversation to tools. None: each request of the client stands for itself.

    The session's id lets anybody speak in it, so tools are not given it, but what follows from it.
    """
    if ctx.request is None:
        return f"mcp.{ctx.lifespan_context.id}"
    session = session_id(ctx)
    return f"mcp.{hashlib.sha256(session.encode()).hexdigest()[:32]}" if session else None


def _declared(tool: Tool, version: str) -> types.Tool | None:
    about = types.ToolAnnotations(
        read_only_hint=True if tool.read_only else None, idempotent_hint=True if tool.idempotent else None
    )
    try:
        told = types.Tool(
            name=tool.name,
            description=tool.description or None,
            input_schema={"type": "object", **tool.input_schema},
            annotations=about if tool.read_only or tool.idempotent else None,
        )
        wire = told.model_dump(by_alias=True, mode="json", exclude_none=True)
        serialize_server_result("tools/list", version, {**_STALE, "resultType": "complete", "tools": [wire]})
    except ValueError as error:
        _log.warning("The tool %r is not served to clients of %s: %s", tool.name, version, error)
        return None
    return told


def _firsts(key: str, lists: Iterable[Sequence[JSONObject]]) -> list[JSONObject]:
    """All of them, but of those with the same key only the first."""
    found: dict[Any, JSONObject] = {}
    for each in lists:
        for item in each:
            found.setdefault(item.get(key), item)
    return [*found.values()]


async def _of_skills(function: Callable[[str], Any], uri: str) -> Any:
    try:
        return await _workers.run(function, uri)
    except UnknownSkill as error:
        raise MCPError(INVALID_PARAMS, str(error)) from error


async def _alone(call: Any) -> ToolResult:
    """Run a call in a task of its own, which is cancelled once, as tools expect it, and waited for a bounded time."""
    task: asyncio.Task[ToolResult] = asyncio.create_task(call)
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError:
        task.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait({task}, timeout=_GRACE)
        raise
    return task.result()
