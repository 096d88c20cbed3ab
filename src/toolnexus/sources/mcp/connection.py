"""A server as its users see it: its tools, resources and prompts, asked for over a link that may be made again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

from mcp_types import URL_ELICITATION_REQUIRED

from toolnexus.sources.mcp import faults
from toolnexus.sources.mcp.asking import UnknownQuestion
from toolnexus.sources.mcp.link import Changed, Defaults, Link
from toolnexus.sources.mcp.results import progress_text, read_result
from toolnexus.tools import JSONObject, Tool, ToolContext, ToolResult

if TYPE_CHECKING:
    from toolnexus.sources.builtin.kept_output import OutputFolder
    from toolnexus.sources.mcp.asking import Asked
    from toolnexus.sources.mcp.config import MCPServer
    from toolnexus.sources.mcp.listing import Listed
    from toolnexus.sources.mcp.oauth import SignIn
    from toolnexus.sources.mcp.session import Progress, Session
    from toolnexus.sources.mcp.states import MCPServerStatus

_MOST_ROUNDS = 10
_STATE_ONLY_DELAY = 0.1
"""Seconds before a call that has nothing to answer is made again, as the server wants it."""

_T = TypeVar("_T")


class Connection:
    """A server. Its methods may be used from any task of the event loop that it was made on."""

    def __init__(
        self,
        server: MCPServer,
        asked: Asked,
        *,
        defaults: Defaults,
        folder: OutputFolder,
        changed: Changed,
        sign_in: Callable[[Callable[[], object]], SignIn] | None = None,
    ) -> None:
        self.server = server
        self._asked = asked
        self._folder = folder
        self._sign_in = None if sign_in is None else sign_in(self.reconnect)
        self._link = Link(server, asked, self.call, defaults=defaults, changed=changed, authorisation=self._sign_in)

    def __repr__(self) -> str:
        return f"<MCP server {self.name!r}: {self.status().state}>"

    @property
    def name(self) -> str:
        """The server's name in the configuration."""
        return self.server.name

    @property
    def instructions(self) -> str:
        """What the server wants a model to know. Empty: nothing, or it is not connected."""
        return "" if self._link.session is None else self._link.session.instructions

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """What the server says it can do. Empty: nothing, or it is not connected."""
        return {} if self._link.session is None else self._link.session.capabilities

    @property
    def tools(self) -> tuple[Tool, ...]:
        """Its tools, as they are now. They stay while it is connected again."""
        return tuple(each.tool for each in self._link.listing.tools)

    @property
    def listed_tools(self) -> tuple[JSONObject, ...]:
        """All that the server says of them, annotations included, which are claims of the server."""
        return tuple(each.said for each in self._link.listing.tools)

    def status(self) -> MCPServerStatus:
        """How it stands."""
        return self._link.status()

    async def list_resources(self) -> list[JSONObject]:
        """Its resources, as the server describes them.

        Raises:
            MCPServerError: It cannot be asked, or refuses.
        """
        return await self._listed("resources/list", "resources")

    async def list_resource_templates(self) -> list[JSONObject]:
        """Its templates of resources. Raises as `list_resources`."""
        return await self._listed("resources/templates/list", "resourceTemplates")

    async def list_prompts(self) -> list[JSONObject]:
        """Its prompts, with their arguments. Raises as `list_resources`."""
        return await self._listed("prompts/list", "prompts")

    async def read_resource(self, uri: str) -> list[JSONObject]:
        """The contents of a resource: `{uri, mimeType?, text}` or `{…, blob}` in base64. Raises as `list_resources`."""
        answer = await self._in_rounds("resources/read", {"uri": uri}, None)
        return _objects(answer.get("contents"))

    async def get_prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> JSONObject:
        """A prompt: `{description?, messages: [{role, content}]}`. Raises as `list_resources`."""
        params: JSONObject = {"name": name}
        if arguments:
            params["arguments"] = dict(arguments)
        return await self._in_rounds("prompts/get", params, None)

    async def complete(
        self, ref: Mapping[str, Any], name: str, value: str, *, context: Mapping[str, str] | None = None
    ) -> list[str]:
        """What an argument could be. Raises as `list_resources`.

        Args:
            ref: `{"type": "ref/prompt", "name": …}` or `{"type": "ref/resource", "uri": …}`.
            name: The argument.
            value: What of it is written so far.
            context: The arguments that are known already.
        """
        params: JSONObject = {"ref": dict(ref), "argument": {"name": name, "value": value}}
        if context:
            params["context"] = {"arguments": dict(context)}
        answer = await self.request("completion/complete", params)
        completion = answer.get("completion")
        values = cast("JSONObject", completion).get("values") if isinstance(completion, dict) else None
        return [each for each in cast("list[Any]", values or []) if isinstance(each, str)]

    def reconnect(self) -> None:
        """Connect again, also a server that was given up."""
        self._link.reconnect()

    def signed_in(self, address: str) -> bool:
        """Take the address that a browser came back to after somebody signed in elsewhere than on this machine.

        False: no sign-in is under way.
        """
        return self._sign_in is not None and self._sign_in.give(address)

    async def settled(self) -> None:
        """Wait until the first attempt to connect has come to something."""
        await self._link.settled()

    async def aclose(self) -> None:
        """Close the connection, and end the server if it is a program. From any task, and more than once.

        Whoever is cancelled while it waits here does not stop the closing.
        """
        await self._link.aclose()
        if self._sign_in is not None:
            await self._sign_in.aclose()

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        progress: Progress | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> JSONObject:
        """Ask the server. What certainly did not reach it is asked once more, over a new connection.

        Raises:
            MCPServerError: There is no answer, or the server refuses. `executed` says whether it may have been done.
        """
        seconds = self._link.seconds
        return await self._over_a_link(
            lambda session: session.request(method, params, seconds=seconds, progress=progress, headers=headers)
        )

    async def _over_a_link(self, ask: Callable[[Session], Awaitable[_T]]) -> _T:
        session = self._link.session or await self._link.ready()
        try:
            return await ask(session)
        except faults.MCPServerError as error:
            if not self._link.lost_by(session, error) or error.executed is None:
                raise
        session = await self._link.ready()
        try:
            return await ask(session)
        except faults.MCPServerError as error:
            self._link.lost_by(session, error)
            raise

    async def call(self, listed: Listed, arguments: JSONObject, ctx: ToolContext) -> ToolResult:
        """Call a tool. Whatever goes wrong with the server is in the result.

        Raises:
            Suspension: The server has to know something that only a person can say.
        """

        def progress(done: float, total: float | None, message: str | None) -> None:
            ctx.progress(*progress_text(done, total, message))

        params: JSONObject = {"name": listed.name, "arguments": arguments}
        try:
            answer = await self._in_rounds("tools/call", params, ctx, progress, listed.headers(arguments))
        except faults.MCPServerError as error:
            metadata: JSONObject = {**listed.metadata, "fault": error.why}
            if error.code is not None:
                metadata["code"] = error.code
            return ToolResult(output=str(error), is_error=True, metadata=metadata)
        return await read_result(answer, listed.metadata, self._folder)

    async def _in_rounds(
        self,
        method: str,
        params: JSONObject,
        ctx: ToolContext | None,
        progress: Progress | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> JSONObject:
        """Ask, and as long as the server wants to know something first, answer that and ask again."""
        said: JSONObject = {}
        answer = None if ctx is None else ctx.answer
        for _ in range(_MOST_ROUNDS):
            wanted: JSONObject = {}
            try:
                found = await self.request(method, {**params, **said}, progress=progress, headers=headers)
            except faults.MCPServerError as error:
                wanted = _urls_wanted(error)
                if not wanted:
                    raise
                found = {"resultType": "input_required", "inputRequests": wanted}
            if found.get("resultType") != "input_required":
                return found
            requests, state = found.get("inputRequests"), found.get("requestState")
            said = {} if state is None else {"requestState": state}
            if not requests:
                await asyncio.sleep(_STATE_ONLY_DELAY)
                continue
            try:
                answers = await self._asked.round(cast("JSONObject", requests), answer)
            except UnknownQuestion as error:
                raise faults.MCPServerError(self.name, "protocol", f"{error}.", executed=False) from error
            answer = None
            if not wanted:
                said["inputResponses"] = answers
            elif any(each.get("action") != "accept" for each in answers.values()):
                reason = f"{method} did not go on: what the server wants done first was declined."
                raise faults.MCPServerError(self.name, "refused", reason, executed=False)
        reason = f"{method} wants to know more and more; it was given up after {_MOST_ROUNDS} rounds."
        raise faults.MCPServerError(self.name, "protocol", reason)

    async def _listed(self, method: str, key: str) -> list[JSONObject]:
        seconds = self._link.seconds
        return _objects(await self._over_a_link(lambda session: session.listed(method, key, seconds=seconds)))


def _objects(value: object) -> list[JSONObject]:
    return [each for each in cast("list[Any]", value) if isinstance(each, dict)] if isinstance(value, list) else []


def _urls_wanted(error: faults.MCPServerError) -> JSONObject:
    """What has to be done elsewhere before a call can be made, as an error says it."""
    if error.code != URL_ELICITATION_REQUIRED or not isinstance(error.data, dict):
        return {}
    given = _objects(cast("JSONObject", error.data).get("elicitations"))
    return {str(at): {"method": "elicitation/create", "params": each} for at, each in enumerate(given)}
