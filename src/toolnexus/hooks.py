"""What a host may say before and after each model request and each tool call: typed events in, typed overrides out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

if TYPE_CHECKING:
    from toolnexus.dialects import Reply
    from toolnexus.messages import Message
    from toolnexus.tools import Tool, ToolContext, ToolResult


@dataclass(frozen=True, slots=True, kw_only=True)
class BeforeLLM:
    """A request is about to be sent. `messages` is a copy; changing it changes nothing."""

    messages: list[Message]
    tools: tuple[Tool, ...]
    model: str
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LLMOverride:
    """Replace parts of this one request. None leaves a part as it is. The stored transcript never changes."""

    messages: Sequence[Message] | None = None
    tools: Sequence[Tool] | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AfterLLM:
    """The model replied."""

    reply: Reply
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BeforeTool:
    """A call is about to run, or to wait for approval: then it is not asked about again. `arguments` is a copy."""

    tool: Tool
    arguments: dict[str, Any]
    context: ToolContext


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOverride:
    """Run the call with other arguments (JSON data, checked again), or answer in its place (a cache, a dry run)."""

    arguments: Mapping[str, Any] | None = None
    result: ToolResult | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Deny:
    """The call does not run; the model is told the reason. The first denial wins."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AfterTool:
    """A call ended with `result`."""

    tool: Tool
    arguments: dict[str, Any]
    context: ToolContext
    result: ToolResult


_Event = TypeVar("_Event")
_Answer = TypeVar("_Answer")
Hook: TypeAlias = Callable[[_Event], _Answer | Awaitable[_Answer | None] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """Functions, plain or async, that watch and steer a run. Several `Hooks` compose in their order.

    A raising `before_llm` ends the run; a raising `before_tool` denies that call; a raising `after_llm` or
    `after_tool` is logged and ignored.
    """

    before_llm: Hook[BeforeLLM, LLMOverride] | None = None
    after_llm: Hook[AfterLLM, None] | None = None
    before_tool: Hook[BeforeTool, ToolOverride | Deny] | None = None
    after_tool: Hook[AfterTool, ToolResult] | None = None
