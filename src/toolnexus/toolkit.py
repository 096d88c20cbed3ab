"""The tools of a run, merged from their sources: found by name, run safely, declared for any loop."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from toolnexus import _invoke, _workers
from toolnexus._unicode import clean
from toolnexus.errors import ConfigurationError
from toolnexus.tools import BrokenSchema, InvalidArguments, JSONObject, Tool, ToolContext, ToolResult

if TYPE_CHECKING:
    from types import TracebackType

_log = logging.getLogger("toolnexus")

_NATIVE = "toolnexus.sources.native"
_SLICE = 0.01
"""Seconds that reading signatures may keep the event loop before something else has its turn."""

ToolLike: TypeAlias = Tool | Callable[..., Any]
"""A tool, or a plain or coroutine function that becomes one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStatus:
    """What became of a tool that was given to a toolkit.

    Attributes:
        state: `ready`; `clash`: another tool had the name first; `dropped`: its schema is broken.
        reason: Why it cannot be called. Empty: it can.
    """

    name: str
    source: str
    state: Literal["ready", "clash", "dropped"] = "ready"
    reason: str = ""


class Toolkit:
    """Tools by name. The first tool of a name keeps it; what could not be taken is in `status()`.

    A run uses it by itself. For a loop of your own, declare the tools with `to_openai()` or `to_anthropic()` and run
    what the model asks for with `execute`. Made by `create_toolkit`.
    """

    def __init__(self) -> None:
        self._by_name: dict[str, Tool] = {}
        self._tools: tuple[Tool, ...] = ()
        self._status: list[ToolStatus] = []

    def __repr__(self) -> str:
        return f"<toolnexus.Toolkit {', '.join(self._by_name) or 'without tools'}>"

    async def __aenter__(self) -> Toolkit:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close what the tools' sources hold open; functions hold nothing. May be called more than once."""

    def register(self, tool: ToolLike) -> ToolStatus:
        """Add a tool and say what became of it. A run that has begun does not see it.

        The first function, or the first schema of somebody else, loads a library, which takes some 50 ms;
        `create_toolkit` does that beside the event loop.

        Raises:
            ConfigurationError: It cannot be a tool: a model cannot fill one of its parameters, for example.
        """
        if not isinstance(tool, Tool):
            tool = _define(tool)
        status = self._judged(tool)
        self._status.append(status)
        if status.state == "ready":
            self._by_name[tool.name] = tool
            self._tools = (*self._tools, tool)
        else:
            _log.warning("The tool %r (%s) is not used: %s", tool.name, tool.source, status.reason)
        return status

    def _judged(self, tool: Tool) -> ToolStatus:
        if (first := self._by_name.get(tool.name)) is not None:
            reason = f"a tool of the source {first.source!r} has the name"
            return ToolStatus(name=tool.name, source=tool.source, state="clash", reason=reason)
        try:
            _invoke.prepare(tool)
        except BrokenSchema as error:
            return ToolStatus(name=tool.name, source=tool.source, state="dropped", reason=str(error))
        return ToolStatus(name=tool.name, source=tool.source)

    def get(self, name: str) -> Tool | None:
        """The tool of this name. None: there is none."""
        return self._by_name.get(name)

    def tools(self) -> tuple[Tool, ...]:
        """The tools that a model can call, in the order in which they came."""
        return self._tools

    def closest(self, name: str) -> list[str]:
        """Up to three names of tools that `name` may have meant, best first."""
        return _invoke.closest(name, self._by_name)

    def status(self) -> list[ToolStatus]:
        """What became of each tool that was given, in that order."""
        return self._status.copy()

    def to_openai(self) -> list[JSONObject]:
        """The `tools` of a chat completions request."""
        return self._declared("openai")

    def to_anthropic(self) -> list[JSONObject]:
        """The `tools` of a messages request."""
        return self._declared("anthropic")

    def _declared(self, style: str) -> list[JSONObject]:
        from toolnexus.dialects import Request, Target, dialect
        from toolnexus.providers import Provider

        encoder = dialect(style).encoder(Target(style=style, host="", provider=Provider()))
        tools: list[JSONObject] = encoder.encode(Request(model="", messages=(), tools=self._tools)).get("tools", [])
        return tools

    async def execute(
        self, name: str, args: Mapping[str, Any] | str | None = None, ctx: ToolContext | None = None
    ) -> ToolResult:
        """Run one call, with all the care that a run takes. Whatever goes wrong is in the result.

        Args:
            name: The tool's name, or what a declaration calls it.
            args: An object, or the raw JSON text that the model gave. None: no arguments.
            ctx: What the tool may know of its run. None: only its own name.
        """
        tool = self.get(name) or self._by_wire_name(name)
        if tool is None:
            return _invoke.unknown_tool(name, self._by_name)
        try:
            checked = _invoke.check(tool, _arguments(args))
        except InvalidArguments as error:
            return ToolResult(output=str(error), is_error=True)
        return await _invoke.invoke(tool, checked, ctx or ToolContext(tool=tool.name))

    def _by_wire_name(self, name: str) -> Tool | None:
        from toolnexus.dialects.names import ToolNames

        names = ToolNames()
        names.add(self._by_name)
        return self.get(names.changed.get(name, ""))


def _arguments(args: Any) -> JSONObject:
    if args is None or isinstance(args, str):
        return _invoke.read_arguments(args or "")
    if not isinstance(args, Mapping):
        raise InvalidArguments(f"The arguments are not a JSON object but of the type {type(args).__name__}.")
    copy: JSONObject = clean(args)
    return copy


async def create_toolkit(tools: Iterable[ToolLike] = (), builtins: bool | Mapping[str, bool] = False) -> Toolkit:
    """A toolkit of functions and tools.

    Args:
        tools: Functions, plain or coroutine, and `Tool` values.
        builtins: The built-in tools to offer. There are none in this version, so nothing can be switched on.

    Raises:
        ConfigurationError: Something cannot be a tool, or a built-in tool was asked for.
    """
    wanted = builtins if isinstance(builtins, bool) else any(builtins.values())
    if wanted:
        raise ConfigurationError("Built-in tools are not part of this version. Give your own functions in tools=[...].")
    try:
        given = list(iter(tools))
    except TypeError as error:
        raise ConfigurationError(f"The tools are {tools!r}; give a list of functions or tools.") from error
    await _load(given)
    toolkit = Toolkit()
    began = time.monotonic()
    for each in given:
        toolkit.register(each)
        if time.monotonic() - began > _SLICE:
            await asyncio.sleep(0)
            began = time.monotonic()
    return toolkit


async def as_toolkit(value: Toolkit | Iterable[ToolLike] | None) -> Toolkit | None:
    """What a run was given as its tools, as a toolkit. None stays None.

    Raises:
        ConfigurationError: Something cannot be a tool.
    """
    return value if value is None or isinstance(value, Toolkit) else await create_toolkit(value)


def _define(function: Callable[..., Any]) -> Tool:
    from toolnexus.sources.native import define_tool

    return define_tool(function)


async def _load(given: Sequence[ToolLike]) -> None:
    """Do in a worker what would stop the event loop: importing libraries and compiling schemas."""
    if _NATIVE not in sys.modules and not all(isinstance(each, Tool) for each in given):
        await _workers.run(importlib.import_module, _NATIVE)
    new = [each for each in given if isinstance(each, Tool) and not _invoke.is_prepared(each)]
    if new:
        await _workers.run(_prepare, new)


def _prepare(tools: Iterable[Tool]) -> None:
    for tool in tools:
        with contextlib.suppress(BrokenSchema):  # said when it is registered
            _invoke.prepare(tool)
