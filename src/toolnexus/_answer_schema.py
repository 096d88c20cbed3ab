"""Gets answers that fit a schema from models whose endpoint has no option for it: by a tool, or in words."""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from toolnexus._strict import encode
from toolnexus.dialects import Reply
from toolnexus.dialects.answer_schemas import closed
from toolnexus.dialects.payloads import is_object, objects, text
from toolnexus.events import TextDelta
from toolnexus.tools import Tool

if TYPE_CHECKING:
    from toolnexus._model import Model, ReplyPart
    from toolnexus.dialects import Request, ResponseSchema, Target
    from toolnexus.messages import AssistantMessage
    from toolnexus.tools import JSONObject, ToolContext

SchemaMode: TypeAlias = Literal["native", "tool", "prompt"]

_CLOSED_ONLY = frozenset({"anthropic"})
"""Styles whose own option takes only schemas that `closed` can say."""

_TOOL = "final_result"
_DESCRIPTION = (
    "Gives the final answer. Call it once and alone, when nothing is left to do. Its arguments are the answer."
)
_BY_TOOL = "Give your final answer by calling the tool `{name}`, not as text."
_IN_WORDS = (
    "Your final answer has to be one JSON object that fits this JSON Schema, and nothing else: no words around it and "
    "no code fence.\n{schema}"
)


def fitted(model: Model, schema: ResponseSchema, target: Target, *, calls_by_schema: bool = False) -> Model:
    """`model` as one that gives answers of `schema`, in the way that its endpoint can.

    Args:
        calls_by_schema: The model's calls are answers that fit a schema already, so that its option for one is taken.
    """
    mode: SchemaMode = "tool" if calls_by_schema else target.provider.schema_mode
    if mode == "native" and target.style in _CLOSED_ONLY and closed(schema.schema) is None:
        mode = "tool"
    match mode:
        case "native":
            return model
        case "tool":
            return ByTool(model)
        case "prompt":
            return InWords(model)


class InWords:
    """Says in the system prompt what the answer has to be."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def reply(self, request: Request, *, deadline: float | None) -> AsyncGenerator[ReplyPart, None]:
        """See `Model.reply`."""
        if (wanted := request.response_schema) is not None:
            words = _IN_WORDS.format(schema=encode(wanted.schema))
            request = replace(request, system=_added(request.system, words), response_schema=None)
        return self._model.reply(request, deadline=deadline)


class ByTool:
    """Offers a tool that takes the answer. What it is called with comes out as the text of the reply.

    Text is held back until it is known whether it is the answer or stands beside it, so it comes in one piece.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self._given: Sequence[Tool] = ()
        self._offered: tuple[Tool, ...] = ()  # the same object for the same tools: they are declared once

    async def reply(self, request: Request, *, deadline: float | None) -> AsyncGenerator[ReplyPart, None]:
        """See `Model.reply`."""
        if (wanted := request.response_schema) is None:
            async with aclosing(self._model.reply(request, deadline=deadline)) as parts:
                async for part in parts:
                    yield part
            return
        if not self._offered or request.tools is not self._given:
            self._given = request.tools
            self._offered = (*request.tools, _answer_tool(_free_name(request), wanted))
        name = self._offered[-1].name
        system = _added(request.system, _BY_TOOL.format(name=name))
        asked = replace(request, tools=self._offered, system=system, response_schema=None)
        async with aclosing(self._model.reply(asked, deadline=deadline)) as parts:
            async for part in parts:
                if isinstance(part, Reply):
                    reply = _without_answer_call(part, name)
                    if reply.text:
                        yield [TextDelta(reply.text)]
                    yield reply
                elif others := [each for each in part if not isinstance(each, TextDelta)]:
                    yield others


def _added(system: str, words: str) -> str:
    return f"{system}\n\n{words}" if system else words


def _free_name(request: Request) -> str:
    """A name that no tool of the request has, not even one that the caller put into its body."""
    taken = {tool.name for tool in request.tools}
    for declared in objects(request.params.get("tools")):
        function = declared.get("function")
        taken |= {text(declared.get("name")), text(function.get("name")) if is_object(function) else ""}
    numbered = (f"{_TOOL}_{number}" for number in itertools.count(2))
    return next(name for name in itertools.chain([_TOOL], numbered) if name not in taken)


def _answer_tool(name: str, wanted: ResponseSchema) -> Tool:
    return Tool(name=name, description=_DESCRIPTION, input_schema=wanted.schema, execute=_never)


def _never(arguments: JSONObject, context: ToolContext) -> Any:
    raise AssertionError("the call that gives the answer is taken out of the reply")


def _without_answer_call(reply: Reply, name: str) -> Reply:
    """The reply with the answer as its text, or with its other calls alone: then it was too early to answer."""
    answers = [call for call in reply.calls if call.name == name]
    if not answers:
        return reply
    others = tuple(call for call in reply.calls if call.name != name)
    # Not `native`: it holds the call. Nothing that is sent may show a tool that does not exist.
    message: AssistantMessage = {"role": "assistant"}
    if "origin" in reply.message:
        message["origin"] = reply.message["origin"]
    if others:
        ids = {call.id for call in others}
        if reply.text:
            message["content"] = reply.text
        message["tool_calls"] = [entry for entry in reply.message.get("tool_calls", ()) if entry["id"] in ids]
        return replace(reply, message=message, calls=others)
    answer = answers[0].arguments
    message["content"] = answer
    return replace(reply, message=message, text=answer, calls=(), finish_reason="stop")
