"""A toolkit as an MCP server, for programs that are MCP clients. Here is what it serves beside the tools, and tells.

`serve_mcp` is where to begin.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from toolnexus.tools import JSONObject, ToolContext


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedCall:
    """One call of a tool that a client made, after it ended.

    Attributes:
        name: The tool's name.
        seconds: How long it took, without the time that the client's person took to answer.
        is_error: Whether the client was told that it failed. A call that the client cancelled failed.
        client: What the client says it is called. Empty: it does not say.
        arguments: What the tool was called with. None: nobody asked for them, as they may hold anything.
    """

    name: str
    seconds: float
    is_error: bool
    client: str = ""
    arguments: Mapping[str, Any] | None = None


OnCall: TypeAlias = Callable[[ServedCall], Any]
"""Is told of every call. May be a coroutine function; what goes wrong in it is logged and changes nothing."""


class Upstream(Protocol):
    """What has resources and prompts for a gateway to pass on: an MCP server behind it, or anything else.

    All values are JSON objects as MCP spells them (`uri`, `mimeType`, …). A method may call `suspend`, as a tool may:
    it is then called once more with `ctx.answer`.
    """

    async def list_resources(self) -> Sequence[JSONObject]:
        """Its resources, each with `uri` and `name`."""
        ...

    async def list_resource_templates(self) -> Sequence[JSONObject]:
        """Its resource templates, each with `uriTemplate` and `name`."""
        ...

    async def read_resource(self, uri: str, ctx: ToolContext) -> JSONObject | None:
        """`{"contents": [...]}`. None: it has no such resource."""
        ...

    async def list_prompts(self) -> Sequence[JSONObject]:
        """Its prompts, each with `name`."""
        ...

    async def get_prompt(self, name: str, arguments: Mapping[str, str], ctx: ToolContext) -> JSONObject | None:
        """`{"messages": [...]}`. None: it has no such prompt."""
        ...

    async def complete(self, params: JSONObject) -> JSONObject | None:
        """`{"completion": {"values": [...]}}` for the `params` of `completion/complete`. None: it does not know."""
        ...

    async def watch(self, uri: str, wanted: bool) -> None:
        """Whether anybody wants to be told when a resource changes: `Gateway.resource_updated` says that it did."""
        ...
