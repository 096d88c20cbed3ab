"""From what a server lists to tools. One that cannot be used is left out with a reason, and costs no other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from mcp.shared.inbound import find_invalid_x_mcp_header, mcp_param_headers, x_mcp_header_map

from toolnexus import _invoke
from toolnexus._unicode import clean, clean_text
from toolnexus.tools import BrokenSchema, JSONObject, Tool, ToolContext, ToolResult

if TYPE_CHECKING:
    from toolnexus.sources.mcp.config import MCPServer

_LONGEST_NAME = 256

Call: TypeAlias = "Callable[[Listed, JSONObject, ToolContext], Awaitable[ToolResult]]"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Listed:
    """A tool of a server.

    Attributes:
        name: As the server calls it.
        said: All that the server says of it.
        metadata: What a result of it carries. The annotations in it are what the server claims, and nothing is built
            on them.
    """

    name: str
    said: JSONObject
    tool: Tool
    metadata: JSONObject
    _headers: Mapping[tuple[str, ...], str] = field(repr=False)

    def headers(self, arguments: JSONObject) -> dict[str, str]:
        """Arguments that the server wants in headers as well."""
        return mcp_param_headers(self._headers, arguments) if self._headers else {}


@dataclass(frozen=True, slots=True)
class Listing:
    """The tools of a server.

    Attributes:
        dropped: Those that are not offered, with the reason. A filter of the configuration is none.
    """

    tools: tuple[Listed, ...] = ()
    dropped: Mapping[str, str] = field(default_factory=dict[str, str])


class _Dropped(Exception):
    """The tool cannot be used. The text says why."""


def read_tools(server: MCPServer, given: Iterable[Any], call: Call, before: Listing, *, modern: bool) -> Listing:
    """Read a list of tools. It compiles schemas, which takes a millisecond each: call it beside the event loop.

    Args:
        before: The last list: what is the same in it stays the same object.
        modern: Whether headers are sent with arguments, so that what is said of them has to be right.
    """
    old = {each.name: each for each in before.tools}
    tools: dict[str, Listed] = {}
    dropped: dict[str, str] = {}
    for position, each in enumerate(given):
        fields = cast("Mapping[str, Any]", each if isinstance(each, Mapping) else {})
        name = fields.get("name")
        if not isinstance(name, str) or not name.strip() or len(name) > _LONGEST_NAME:
            dropped[f"[{position}]"] = "it has no usable name"
            continue
        name = clean_text(name)
        if not server.tools.allows(name):
            continue
        if name in tools:
            dropped[f"{name} [{position}]"] = "another tool of the server has the name"
            continue
        said: JSONObject = clean(fields)
        if name in old and old[name].said == said:
            tools[name] = old[name]
            continue
        try:
            tools[name] = _listed(server, name, said, call, modern=modern)
        except _Dropped as error:
            dropped[name] = str(error)
    for name in server.tools.include or ():
        if name not in tools and name not in dropped and name not in server.tools.exclude:
            dropped[name] = "the configuration names it, and the server has no such tool"
    return Listing(tuple(tools.values()), dropped)


def _listed(server: MCPServer, name: str, said: JSONObject, call: Call, *, modern: bool) -> Listed:
    schema = _schema(said.get("inputSchema"))
    headers: Mapping[tuple[str, ...], str] = {}
    if modern:
        if (wrong := find_invalid_x_mcp_header(schema)) is not None:
            raise _Dropped(f"its x-mcp-header is invalid: {wrong}")
        headers = x_mcp_header_map(schema)
    annotations = said.get("annotations")
    metadata: JSONObject = {"server": server.name, "tool": name}
    if isinstance(annotations, dict):
        metadata["annotations"] = annotations

    async def execute(arguments: JSONObject, ctx: ToolContext) -> ToolResult:
        return await call(listed, arguments, ctx)

    tool = Tool(
        name=f"{server.name}_{name}",
        description=_described(said),
        input_schema=schema,
        execute=execute,
        source="mcp",
    )
    try:
        _invoke.prepare(tool)
    except BrokenSchema as error:
        raise _Dropped(f"its schema is broken: {error}") from error
    listed = Listed(name=name, said=said, tool=tool, metadata=metadata, _headers=headers)
    return listed


def _described(said: JSONObject) -> str:
    annotations = said.get("annotations")
    title: Any = said.get("title") or (cast("JSONObject", annotations).get("title") if annotations else None)
    described = said.get("description")
    if isinstance(described, str) and described.strip():
        return described
    return title if isinstance(title, str) else ""


def _schema(given: Any) -> JSONObject:
    """A schema of an object, also where the server leaves that to be understood."""
    match given:
        case None | True:
            return {"type": "object", "properties": {}}
        case False:
            return {"type": "object", "properties": {}, "additionalProperties": False}
        case dict():
            fields = cast("JSONObject", given)
            return {**fields, "type": "object"} if fields.get("type") is None else fields
        case _:
            raise _Dropped("its schema is broken: a schema is an object")
