"""The tools of a run, merged from their sources: found by name, run safely, declared for any loop."""

from __future__ import annotations

import asyncio
import functools
import importlib
import logging
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from toolnexus import _invoke, _workers
from toolnexus._assembly import Assembly, ToolStatus, assemble
from toolnexus._selection import Selection, selection
from toolnexus._unicode import clean
from toolnexus.errors import ConfigurationError
from toolnexus.sources.builtin import NAMES
from toolnexus.sources.local import Builtins, load_skills
from toolnexus.tools import BrokenSchema, InvalidArguments, JSONObject, Tool, ToolContext, ToolResult

if TYPE_CHECKING:
    from types import TracebackType

    from toolnexus.sources import Source
    from toolnexus.sources.builtin.workspace import Workspace
    from toolnexus.sources.local import AnyPath, LoadedSkills
    from toolnexus.sources.mcp.connection import Connection
    from toolnexus.sources.mcp.servers import MCPServers, MCPSource
    from toolnexus.sources.mcp.states import MCPServerStatus
    from toolnexus.sources.skills import SkillDef, SkillInfo, SkillProvider
    from toolnexus.sources.skills.collection import Skills

__all__ = ["ToolLike", "ToolStatus", "Toolkit", "as_toolkit", "create_toolkit"]

_log = logging.getLogger("toolnexus")

_NATIVE = "toolnexus.sources.native"
_SLICE = 0.01
"""Seconds that reading signatures may keep the event loop before something else has its turn."""

_ALL = Selection()

ToolLike: TypeAlias = Tool | Callable[..., Any]
"""A tool, or a plain or coroutine function that becomes one."""


class Toolkit:
    """Tools by name. The first tool of a name keeps it; what could not be taken is in `status()`.

    A run uses it by itself. For a loop of your own, declare the tools with `to_openai()` and its like, and run what the
    model asks for with `execute`. Made by `create_toolkit`.
    """

    def __init__(
        self,
        tools: Iterable[Tool] = (),
        sources: Iterable[Source] = (),
        *,
        wanted: Callable[[str], bool] = _ALL,
        skills: LoadedSkills | None = None,
        servers: MCPServers | None = None,
    ) -> None:
        self._given: tuple[Tool, ...] = tuple(tools)
        self._sources = tuple(sources)
        self._wanted = wanted
        self._skills = skills
        self._servers = servers
        self._offered: list[tuple[Tool, ...]] = []
        self._assembly = Assembly({}, (), ())

    def __repr__(self) -> str:
        return f"<toolnexus.Toolkit {', '.join(self._current().by_name) or 'without tools'}>"

    async def __aenter__(self) -> Toolkit:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close what the tools' sources hold open; functions hold nothing. May be called more than once, anywhere.

        A source that cannot be closed is logged, and does not keep the others from it.
        """
        closing = (source.aclose() for source in self._sources)
        for outcome in await asyncio.gather(*closing, return_exceptions=True):
            if outcome is not None:
                _log.warning("A source of tools could not be closed: %s", _invoke.describe(outcome))

    def register(self, tool: ToolLike) -> ToolStatus:
        """Add a tool of the host, and say what became of it. A run that has begun does not see it.

        It comes after those that the host gave before, and before those of all sources: one of theirs with its name
        gives way.

        The first function, or the first schema of somebody else, loads a library, which takes some 50 ms;
        `create_toolkit` does that beside the event loop.

        Raises:
            ConfigurationError: It cannot be a tool: a model cannot fill one of its parameters, for example.
        """
        self._given = (*self._given, tool if isinstance(tool, Tool) else _define(tool))
        return self._current().status[len(self._given) - 1]

    def get(self, name: str) -> Tool | None:
        """The tool of this name. None: there is none."""
        return self._current().by_name.get(name)

    def tools(self) -> tuple[Tool, ...]:
        """The tools that a model can call now, in the order in which their sources come. A run takes them once."""
        return self._current().tools

    def closest(self, name: str) -> list[str]:
        """Up to three names of tools that `name` may have meant, best first."""
        return _invoke.closest(name, self._current().by_name)

    def status(self) -> list[ToolStatus]:
        """What became of each tool that was given or that a source has now, in their order."""
        return list(self._current().status)

    def skills_prompt(self) -> str:
        """What a system prompt says of the skills: their names and descriptions. A run adds it by itself.

        Empty: there are no skills, or their tool cannot be called, as another one has its name.
        """
        if self._skills is None or (tool := self._skills.tool) is None or self.get(tool.name) is not tool:
            return ""
        return self._skills.prompt

    def list_skills(self) -> list[SkillInfo]:
        """Every skill that was found or given, and every place that was skipped, with the reason."""
        return [] if self._skills is None else self._skills.skills.list()

    @property
    def skills(self) -> Skills | None:
        """The skills that a model can load. None: the toolkit was made without any."""
        return None if self._skills is None else self._skills.skills

    def mcp(self, name: str) -> Connection:
        """An MCP server by its name in the configuration: its resources and prompts, and how it stands.

        Raises:
            ConfigurationError: There is none of this name.
        """
        if self._servers is None:
            raise ConfigurationError(f"There is no MCP server {name!r}: the toolkit was made without mcp_config.")
        return self._servers.get(name)

    def mcp_status(self) -> list[MCPServerStatus]:
        """How each MCP server stands, and why one is not ready."""
        return [] if self._servers is None else self._servers.status()

    async def serve_mcp(self, transport: Literal["stdio", "http"] = "stdio", **options: Any) -> None:
        """Be an MCP server: for the client that started this process, or over HTTP.

        Args:
            options: As for `toolnexus.gateway.serving.serve_mcp`: `port`, `token`, `on_call` and more.
        """
        from toolnexus.gateway.serving import serve_mcp

        await serve_mcp(self, transport, **options)

    def to_openai(self) -> list[JSONObject]:
        """The `tools` of a chat completions request."""
        return self._declared("openai")

    def to_anthropic(self) -> list[JSONObject]:
        """The `tools` of a messages request."""
        return self._declared("anthropic")

    def to_responses(self) -> list[JSONObject]:
        """The `tools` of a request of OpenAI's Responses API."""
        return self._declared("responses")

    def to_gemini(self) -> list[JSONObject]:
        """The `tools` of a generateContent request: one object with all `functionDeclarations`."""
        return self._declared("gemini")

    def _declared(self, style: str) -> list[JSONObject]:
        from toolnexus.dialects import Request, Target, dialect
        from toolnexus.providers import Provider

        encoder = dialect(style).encoder(Target(style=style, host="", provider=Provider()))
        tools: list[JSONObject] = encoder.encode(Request(model="", messages=(), tools=self.tools())).get("tools", [])
        return tools

    async def execute(
        self, name: str, args: Mapping[str, Any] | str | None = None, ctx: ToolContext | None = None
    ) -> ToolResult:
        """Run one call, with all the care that a run takes. Whatever goes wrong is in the result.

        Only the caller's own cancellation is raised. A tool that needs a person's answer gives a result with a
        `request`; once more with `ctx.answer`, it goes on.

        Args:
            name: The tool's name, or what a declaration calls it.
            args: An object, or the raw JSON text that the model gave. None: no arguments.
            ctx: What the tool may know of its run. None: only its own name.
        """
        name = str(name)  # a model's loop may hold anything
        tool = self.get(name) or self._by_wire_name(name)
        if tool is None:
            return _invoke.unknown_tool(name, self._current().by_name)
        try:
            checked = _invoke.check(tool, _arguments(args))
        except InvalidArguments as error:
            return ToolResult(output=str(error), is_error=True)
        return await _invoke.invoke(tool, checked, ctx or ToolContext(tool=tool.name))

    def _by_wire_name(self, name: str) -> Tool | None:
        from toolnexus.dialects.names import ToolNames

        for letter_first in (False, True):
            names = ToolNames(letter_first=letter_first)
            names.add(self._current().by_name)
            if (meant := names.changed.get(name)) is not None:
                return self.get(meant)
        return None

    def _current(self) -> Assembly:
        """The tools as they are now."""
        offered = [self._given, *(tuple(source.tools()) for source in self._sources)]
        if offered != self._offered:  # tools are compared by identity
            known = set(self._assembly.status)
            self._assembly = assemble((tool for tools in offered for tool in tools), self._wanted, _flaw)
            self._offered = offered
            for each in self._assembly.status:
                if each.state in ("clash", "dropped") and each not in known:
                    _log.warning("The tool %r (%s) is not used: %s", each.name, each.source, each.reason)
        return self._assembly


def _flaw(tool: Tool) -> str:
    try:
        _invoke.prepare(tool)
    except BrokenSchema as error:
        return str(error)
    return ""


def _arguments(args: Any) -> JSONObject:
    if args is None or isinstance(args, str):
        return _invoke.read_arguments(args or "")
    if not isinstance(args, Mapping):
        raise InvalidArguments(f"The arguments are not a JSON object but of the type {type(args).__name__}.")
    try:
        copy: JSONObject = clean(args)
    except Exception as error:  # a mapping may raise anything, and may hold itself
        raise InvalidArguments(f"The arguments cannot be read. {_invoke.describe(error)}") from error
    return copy


async def create_toolkit(
    tools: Iterable[ToolLike] = (),
    *,
    builtins: bool | Mapping[str, bool] = False,
    root: AnyPath | Workspace | None = None,
    confine: bool = True,
    allow_private_addresses: bool = False,
    skills_dir: AnyPath | Iterable[AnyPath] | None = None,
    skills: SkillDef | SkillProvider | Iterable[SkillDef | SkillProvider] = (),
    mcp_config: MCPSource | MCPServers | None = None,
    sources: Iterable[Source] = (),
    tool_filter: Mapping[str, bool] | None = None,
    disable_tools: Iterable[str] = (),
    skill_filter: Mapping[str, bool] | None = None,
    disable_skills: Iterable[str] = (),
) -> Toolkit:
    """A toolkit of functions and tools, and of what else is asked for. Making it does not stop the event loop.

    Where two tools have one name, yours come first, then the built-in ones, that of the skills, those of MCP servers,
    and those of `sources`. Close the toolkit, or use it as `async with`, so that what its tools hold open ends.

    In each map from names to booleans, if any name is True, only such are taken; else all but those that are False. A
    name that there is not is warned of.

    Args:
        tools: Functions, plain or coroutine, and `Tool` values.
        builtins: The built-in tools to offer: all, none, or which. An empty map is none.
        root: The folder that the built-in tools work in, or a `Workspace`, which then says itself how. None: the
            current one.
        confine: Whether the file tools can use nothing outside it. `bash` is not confined.
        allow_private_addresses: Whether `webfetch` may read from this machine, its network, and a cloud's metadata
            service, which hands out keys.
        skills_dir: Folders with skills below them, or one.
        skills: Skills as data, and functions that give some. They win the names of those in folders.
        mcp_config: MCP servers to connect to, as `connect_mcp` takes them; or servers that it has connected, with
            options of your own. The toolkit closes them.
        sources: Further sources, whose tools may change between runs. The toolkit closes them.
        tool_filter: Which tools to offer, whatever their source.
        disable_tools: Names of tools to leave out.
        skill_filter: Which skills to offer.
        disable_skills: Names of skills to leave out.

    Raises:
        ConfigurationError: Something cannot be a tool or a skill, or a choice cannot be meant.
        MCPConfigError: The MCP configuration cannot be read as a whole.
        MissingExtra: A built-in tool, a skill or MCP needs an optional dependency.
    """
    wanted = selection("tool_filter", tool_filter, disable_tools)
    wanted_skills = selection("skill_filter", skill_filter, disable_skills)
    names = _builtin_names(builtins)
    try:
        given = list(iter(tools))
    except TypeError as error:
        raise ConfigurationError(f"The tools are {tools!r}; give a list of functions or tools.") from error
    further = [*sources]
    mine = await _defined(given)
    offered: list[Source] = []
    if names:
        make = functools.partial(Builtins, names, root, confine=confine, allow_private=allow_private_addresses)
        offered.append(await _workers.run(make))
    found = await load_skills(skills_dir, skills, wanted_skills)
    if found is not None:
        offered.append(found)
    servers = None if mcp_config is None else await _connected(mcp_config)
    if servers is not None:
        offered.append(servers)
    offered += further
    toolkit = Toolkit(mine, offered, wanted=wanted, skills=found, servers=servers)
    try:
        await _prepare([*mine, *(tool for source in offered for tool in source.tools())])
    except BaseException:
        await toolkit.aclose()
        raise
    _warn("tools", wanted, [each.name for each in toolkit.status()])
    _warn("skills", wanted_skills, [each.name for each in toolkit.list_skills()])
    return toolkit


async def as_toolkit(value: Toolkit | Iterable[ToolLike] | None) -> Toolkit | None:
    """What a run was given as its tools, as a toolkit. None stays None.

    Raises:
        ConfigurationError: Something cannot be a tool.
    """
    return value if value is None or isinstance(value, Toolkit) else await create_toolkit(value)


def _builtin_names(builtins: bool | Mapping[str, bool]) -> list[str]:
    """Which built-in tools are wanted."""
    if isinstance(builtins, bool):
        return [*NAMES] if builtins else []
    chosen = selection("builtins", builtins)
    _warn("built-in tools", chosen, NAMES)
    return [name for name in NAMES if chosen(name)] if builtins else []


def _warn(what: str, chosen: Selection, known: Sequence[str]) -> None:
    if unknown := chosen.unknown(known):
        there = ", ".join(known) or "none"
        _log.warning("There are no %s %s, which were chosen or left out. There are: %s.", what, unknown, there)


async def _connected(given: MCPSource | MCPServers) -> MCPServers:
    from toolnexus.sources.mcp.servers import MCPServers, connect_mcp

    return given if isinstance(given, MCPServers) else await connect_mcp(given)


def _define(function: Callable[..., Any]) -> Tool:
    from toolnexus.sources.native import define_tool

    return define_tool(function)


async def _defined(given: Sequence[ToolLike]) -> list[Tool]:
    """Functions as tools. The library for that is imported in a worker."""
    if _NATIVE not in sys.modules and not all(isinstance(each, Tool) for each in given):
        await _workers.run(importlib.import_module, _NATIVE)
    made: list[Tool] = []
    began = time.monotonic()
    for each in given:
        made.append(each if isinstance(each, Tool) else _define(each))
        if time.monotonic() - began > _SLICE:
            await asyncio.sleep(0)
            began = time.monotonic()
    return made


async def _prepare(tools: Sequence[Tool]) -> None:
    """Look at schemas in a worker, which may import a library. What is wrong is said where the tools are merged."""
    new = [each for each in tools if not _invoke.is_prepared(each)]
    if new:
        await _workers.run(lambda: [_flaw(each) for each in new])
