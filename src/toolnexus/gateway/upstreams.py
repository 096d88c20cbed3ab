"""MCP servers behind a gateway, as what it passes on: prompts named as their tools are, resources by their URIs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from toolnexus.tools import JSONObject, ToolContext


class Connected(Protocol):
    """A connection to an MCP server, as `toolkit.mcp(name)` gives it."""

    @property
    def name(self) -> str: ...
    @property
    def capabilities(self) -> Mapping[str, Any]: ...
    async def list_resources(self) -> list[JSONObject]: ...
    async def list_resource_templates(self) -> list[JSONObject]: ...
    async def list_prompts(self) -> list[JSONObject]: ...
    async def read_resource(self, uri: str) -> list[JSONObject]: ...
    async def get_prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> JSONObject: ...
    async def complete(
        self, ref: Mapping[str, Any], name: str, value: str, *, context: Mapping[str, str] | None = None
    ) -> list[str]: ...


class ServerBehind:
    """An MCP server as an `Upstream`. It is asked only for what it said that it has."""

    def __init__(self, connection: Connected) -> None:
        self._connection = connection
        self._uris: frozenset[str] = frozenset()
        self._beginnings: tuple[str, ...] = ()

    async def list_resources(self) -> Sequence[JSONObject]:
        found = await self._connection.list_resources() if "resources" in self._connection.capabilities else []
        self._uris = frozenset(str(each.get("uri")) for each in found)
        return found

    async def list_resource_templates(self) -> Sequence[JSONObject]:
        found = await self._connection.list_resource_templates() if "resources" in self._connection.capabilities else []
        beginnings = (str(each.get("uriTemplate")).partition("{")[0] for each in found)
        self._beginnings = tuple(filter(None, beginnings))
        return found

    async def read_resource(self, uri: str, ctx: ToolContext) -> JSONObject | None:
        if not self._may_have(uri):
            await self.list_resources()
            await self.list_resource_templates()
            if not self._may_have(uri):
                return None
        return {"contents": await self._connection.read_resource(uri)}

    def _may_have(self, uri: str) -> bool:
        return uri in self._uris or uri.startswith(self._beginnings)

    async def list_prompts(self) -> Sequence[JSONObject]:
        found = await self._connection.list_prompts() if "prompts" in self._connection.capabilities else []
        return [{**each, "name": f"{self._connection.name}_{each.get('name')}"} for each in found]

    async def get_prompt(self, name: str, arguments: Mapping[str, str], ctx: ToolContext) -> JSONObject | None:
        own = self._own(name)
        return None if own is None else await self._connection.get_prompt(own, arguments)

    def _own(self, name: str) -> str | None:
        """The server's own name of a prompt. None: it is none of its."""
        prefix = f"{self._connection.name}_"
        if "prompts" not in self._connection.capabilities or not name.startswith(prefix):
            return None
        return name.removeprefix(prefix)

    async def complete(self, params: JSONObject) -> JSONObject | None:
        ref, argument = params["ref"], params["argument"]
        if ref["type"] == "ref/prompt":
            own = self._own(ref["name"])
            if own is None:
                return None
            ref = {"type": "ref/prompt", "name": own}
        elif not self._may_have(ref["uri"]):
            return None
        if "completions" not in self._connection.capabilities:
            return None
        context = params.get("context", {}).get("arguments")
        values = await self._connection.complete(ref, argument["name"], argument["value"], context=context)
        return {"completion": {"values": values[:_MOST_VALUES]}}

    async def watch(self, uri: str, wanted: bool) -> None:
        """Changes of single resources are not followed."""


_MOST_VALUES = 100
"""What MCP allows in one answer."""
