"""How a model is made to call tools: by the wire's own calls, by text that is one, or by answers that fit a schema."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, TypeAlias
from urllib.parse import urlsplit

from toolnexus import _invoke
from toolnexus._constrained import ReplyText, Spelling, meaning
from toolnexus._strict import encode
from toolnexus._text_calls import Held, TextCall, find
from toolnexus.dialects import Reply, replies
from toolnexus.events import TextDelta
from toolnexus.providers import THIS_MACHINE
from toolnexus.tools import InvalidArguments, ToolCall

if TYPE_CHECKING:
    from toolnexus._model import Model, ReplyPart
    from toolnexus.dialects import Request, Target
    from toolnexus.events import Delta, Retrying
    from toolnexus.messages import AssistantMessage
    from toolnexus.tools import Tool

ToolMode: TypeAlias = Literal["auto", "constrained"]


def wrapper(mode: ToolMode, target: Target) -> Callable[[Model], Model] | None:
    """What is put around the models of an endpoint. None: nothing."""
    if mode == "constrained":
        return Constrained
    is_local = target.provider.local or urlsplit(target.host).hostname in THIS_MACHINE
    return TextCalls if is_local else None


class TextCalls:
    """Takes calls that the model wrote as text for what they are, if they fit tools of the request."""

    def __init__(self, model: Model) -> None:
        self._model = model

    async def reply(self, request: Request, *, deadline: float | None) -> AsyncGenerator[ReplyPart, None]:
        """See `Model.reply`."""
        async with aclosing(self._model.reply(request, deadline=deadline)) as parts:
            if not request.tools:
                async for part in parts:
                    yield part
                return
            held = Held()
            async for part in parts:
                if not isinstance(part, Reply):
                    if shown := _changed(part, held.add):
                        yield shown
                    continue
                reply = part if part.calls or part.finish_reason in replies.CUT else _with_text_calls(part, request)
                rest = held.rest()
                if rest and not (reply.calls and not part.calls):
                    yield [TextDelta(rest)]
                yield reply


def _with_text_calls(reply: Reply, request: Request) -> Reply:
    """The reply, with the calls that its text ends in as such, if all of them fit."""
    found = find(reply.text)
    tools = {tool.name: tool for tool in request.tools}
    if found is None or not all(_fits(call, tools.get(call.name)) for call in found.calls):
        return reply
    return _calling(reply, request, found.before, [(call.name, encode(call.arguments)) for call in found.calls])


def _fits(call: TextCall, tool: Tool | None) -> bool:
    if tool is None:
        return False
    try:
        _invoke.check(tool, call.arguments)
    except InvalidArguments:
        return False
    return True


class Constrained:
    """Asks for answers that fit a schema: a tool's name with its arguments, or a reply."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._spelling = Spelling()

    async def reply(self, request: Request, *, deadline: float | None) -> AsyncGenerator[ReplyPart, None]:
        """See `Model.reply`."""
        asked = self._spelling.spelled(request) if request.tools else request
        async with aclosing(self._model.reply(asked, deadline=deadline)) as parts:
            if asked is request:
                async for part in parts:
                    yield part
                return
            said = ReplyText()
            shown: list[str] = []

            def show(piece: str) -> str:
                shown.append(said.add(piece))
                return shown[-1]

            async for part in parts:
                if not isinstance(part, Reply):
                    if deltas := _changed(part, show):
                        yield deltas
                    continue
                reply = _understood(part, request, "".join(shown))
                if rest := "" if reply.calls else reply.text.removeprefix("".join(shown)):
                    yield [TextDelta(rest)]
                yield reply


def _understood(reply: Reply, request: Request, shown: str) -> Reply:
    """What an answer means. One that does not fit is what it says: not every server keeps to the schema.

    Args:
        shown: What of a reply was understood while it came; all that there is of one that was cut off.
    """
    if reply.finish_reason in replies.CUT:
        return _saying(reply, shown) if shown else reply
    meant = meaning(reply.text)
    if meant is None:
        return _with_text_calls(reply, request)
    if meant.text is not None:
        return _saying(reply, meant.text)
    return _calling(reply, request, "", [(meant.tool, meant.arguments)])


def _saying(reply: Reply, text: str) -> Reply:
    return replace(reply, message={**_bare(reply), "content": text}, text=text)


def _calling(reply: Reply, request: Request, before: str, calls: Sequence[tuple[str, str]]) -> Reply:
    """The reply with these calls, and with ids that are the conversation's only ones."""
    place = len(request.messages)
    run = tuple(ToolCall(id=f"call_{place}_{n}", name=name, arguments=args) for n, (name, args) in enumerate(calls))
    message = _bare(reply)
    message["tool_calls"] = [replies.entry(call) for call in run]
    if before:
        message["content"] = before
    return replace(reply, message=message, text=before, calls=run, finish_reason="tool_calls")


def _bare(reply: Reply) -> AssistantMessage:
    """The message without what it says in the wire's own way."""
    message: AssistantMessage = {"role": "assistant"}
    if "origin" in reply.message:
        message["origin"] = reply.message["origin"]
    return message


def _changed(part: Sequence[Delta | Retrying], text: Callable[[str], str]) -> list[Delta | Retrying]:
    """What arrived, with its text as `text` makes it; without that of which nothing is left."""
    changed = [replace(each, text=text(each.text)) if isinstance(each, TextDelta) else each for each in part]
    return [each for each in changed if not isinstance(each, TextDelta) or each.text]
