"""What a host decides about a call: what its hooks make of it, and whether a person has to agree."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from toolnexus import _callbacks, _invoke, _output, suspension
from toolnexus.errors import ConfigurationError
from toolnexus.hooks import AfterTool, BeforeTool, Deny, Hooks, ToolOverride
from toolnexus.messages import copy_json
from toolnexus.suspension import Waiting
from toolnexus.tools import InvalidArguments, ToolContext, ToolResult

if TYPE_CHECKING:
    from toolnexus.suspension import Answer, Approval, Request, WaitFor
    from toolnexus.tools import JSONObject, Tool

_log = logging.getLogger("toolnexus")


async def before(
    hooks: Iterable[Hooks], tool: Tool, arguments: JSONObject, context: ToolContext, *, max_output: int
) -> JSONObject | ToolResult:
    """What the hooks make of a call: the arguments to run it with, or a result in its place."""
    for each in hooks:
        if each.before_tool is None:
            continue
        event = BeforeTool(tool=tool, arguments=copy_json(arguments), context=context)
        try:
            answer = await _callbacks.ask(each.before_tool, event, ToolOverride, Deny)
            if isinstance(answer, ToolOverride) and answer.arguments is not None:
                arguments = suspension.plain(dict(answer.arguments), "arguments")
        except Exception as error:  # noqa: BLE001 - policy fails closed: the call is denied, the run goes on
            _log.warning("before_tool failed, so the call to %s is denied", tool.name, exc_info=error)
            return unchecked(error)
        if isinstance(answer, Deny):
            return failed(f"denied: {answer.reason}")
        if answer is not None and answer.result is not None:
            return _output.encode(answer.result, limit=max_output)
    return arguments


async def approve(
    approval: Approval | None, tool: Tool, arguments: JSONObject, context: ToolContext
) -> JSONObject | ToolResult | Waiting:
    """A call that needs approval waits for it; any other keeps its arguments."""
    if not tool.needs_approval and approval is not None:
        try:
            needed = await _callbacks.ask(functools.partial(approval, tool), copy_json(arguments), bool)
            if needed is None:
                raise TypeError("The answer is None; expected True or False.")
        except Exception as error:  # noqa: BLE001 - policy fails closed, as in `before`
            _log.warning("require_approval failed, so the call to %s is denied", tool.name, exc_info=error)
            return unchecked(error)
        if not needed:
            return arguments
    return consent("approval", tool, arguments, context)


def consent(
    kind: Literal["approval", "retry"], tool: Tool, arguments: JSONObject, context: ToolContext
) -> Waiting | ToolResult:
    """A call that waits for consent. Arguments that do not fit are no question for a person."""
    try:
        _invoke.check(tool, copy_json(arguments))
    except InvalidArguments as error:
        return failed(str(error))
    return Waiting(request=suspension.asked_by_policy(kind, context, arguments), arguments=arguments)


def unchecked(error: Exception) -> ToolResult:
    return failed(f"denied: the check of this call failed ({type(error).__name__})")


def failed(reason: str) -> ToolResult:
    return ToolResult(output=reason, is_error=True)


async def reach(wait_for: WaitFor, request: Request, *, now: float) -> Answer | None:
    """What a person says. None: nobody was reached, or it is too late."""
    scope = asyncio.timeout(suspension.seconds_left(request, now=now))
    try:
        async with scope:
            given = await _callbacks.patiently(wait_for, copy_json(request))
        if given is None:
            return None
        answer = suspension.read_answer(given, "The answer")
        if answer["id"] != request["id"]:
            raise ConfigurationError(f"The answer is for the request {answer['id']!r:.200}.")
    except Exception as error:  # noqa: BLE001 - nobody was reached, which is no answer: the call goes on waiting
        if not scope.expired():
            _log.warning("wait_for failed; the request of kind %s stays open", request["kind"], exc_info=error)
        return None
    return answer


async def after(
    hooks: Iterable[Hooks],
    tool: Tool,
    arguments: JSONObject,
    context: ToolContext,
    result: ToolResult,
    *,
    max_output: int,
) -> ToolResult:
    """What the hooks make of a result."""
    for each in hooks:
        if each.after_tool is None:
            continue
        event = AfterTool(tool=tool, arguments=copy_json(arguments), context=context, result=result)
        try:
            answer = await _callbacks.ask(each.after_tool, event, ToolResult)
        except Exception as error:  # noqa: BLE001 - watchers must not end the run
            _log.warning("after_tool failed for %s; its result stands", tool.name, exc_info=error)
        else:
            result = result if answer is None else _output.encode(answer, limit=max_output)
    return result
