"""The client that made a request, as somebody who can be asked: while its call waits, or by a result that says so."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from toolnexus.gateway import asking
from toolnexus.gateway.sdk import (
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    MODERN_PROTOCOL_VERSIONS,
    MCPError,
    ServerMessageMetadata,
    ServerRequestContext,
    types,
)
from toolnexus.suspension import Waiting, answered, seconds_left
from toolnexus.tools import ToolResult

if TYPE_CHECKING:
    from toolnexus.suspension import Answer, Request
    from toolnexus.tools import JSONObject

_T = TypeVar("_T")

_LONGEST_WAIT = 3600.0
"""Seconds that a person is waited for while a call is open, unless the request expires earlier."""


class NotAsked(Exception):
    """The client's person cannot be asked, or did not agree. The text is for the client."""


class MoreInput(Exception):
    """The call ends here, with questions; the client makes it again with the answers.

    Attributes:
        result: The result that says so, as it is on the wire.
    """

    def __init__(self, result: JSONObject) -> None:
        super().__init__("The client has to be asked.")
        self.result = result


@dataclass(frozen=True, slots=True)
class Asks(Generic[_T]):
    """What a step comes to that has to know something first."""

    request: Request


class Peer:
    """Who made a request."""

    def __init__(self, ctx: ServerRequestContext[Any, Any]) -> None:
        self._session = ctx.session
        self._request_id = ctx.request_id
        declared = ctx.session.client_capabilities
        self._capabilities: Mapping[str, Any] = {} if declared is None else _plain(declared)
        info = ctx.session.client_params
        self.name = "" if info is None else info.client_info.name
        self.waited = 0.0
        """Seconds that were spent on waiting for its person."""

    async def decide(self, request: Request) -> Answer | None:
        """What the client answers.

        Raises:
            NotAsked: It cannot be asked.
            MoreInput: It is asked by a result.
            MCPError: It did not declare what is not for a person, but for it.
        """
        asked = asking.questions(request)
        able = {name: each for name, each in asked.items() if asking.can_be_asked(each, self._capabilities)}
        if not able:
            self._refuse(request, asked)
        began = time.monotonic()
        try:
            results = await self._results(request, able)
        finally:
            self.waited += time.monotonic() - began
        return None if results is None else asking.answer(request, able, results)

    def _refuse(self, request: Request, asked: Mapping[str, asking.Question]) -> None:
        raise NotAsked(asking.refusal(request, asked))

    async def _results(
        self, request: Request, asked: Mapping[str, asking.Question]
    ) -> Mapping[str, Mapping[str, Any]] | None:
        left = seconds_left(request, now=time.time())
        try:
            async with asyncio.timeout(_LONGEST_WAIT if left is None else min(left, _LONGEST_WAIT)):
                return {name: await self._ask(question) for name, question in asked.items()}
        except TimeoutError:
            return None

    async def _ask(self, question: asking.Question) -> Mapping[str, Any]:
        metadata = ServerMessageMetadata(related_request_id=self._request_id)
        match question.method:
            case "sampling/createMessage":
                sample = types.CreateMessageRequest.model_validate(
                    {"method": question.method, "params": question.params}
                )
                kind = types.CreateMessageResultWithTools if question.params.get("tools") else types.CreateMessageResult
                result: Any = await self._session.send_request(sample, kind, metadata=metadata)
            case "roots/list":
                result = await self._session.send_request(
                    types.ListRootsRequest(), types.ListRootsResult, metadata=metadata
                )
            case _:
                elicit = types.ElicitRequest.model_validate({"method": question.method, "params": question.params})
                result = await self._session.send_request(elicit, types.ElicitResult, metadata=metadata)
        return _plain(result)


class ModernPeer(Peer):
    """Who made a request of the new protocol: nothing can be asked while it is open."""

    def __init__(
        self, ctx: ServerRequestContext[Any, Any], responses: Mapping[str, Any] | None, state: str | None
    ) -> None:
        super().__init__(ctx)
        self._responses = {name: _plain(response) for name, response in (responses or {}).items()}
        self.pending: Request | None = None if state is None else cast("Request", json.loads(state)["request"])
        """What the last result asked, if the client sent its state back; nobody but us can have written it."""

    def _refuse(self, request: Request, asked: Mapping[str, asking.Question]) -> None:
        if not asking.for_machines(asked):
            super()._refuse(request, asked)
        raise MCPError(
            MISSING_REQUIRED_CLIENT_CAPABILITY,
            "This call needs what the client did not declare.",
            data={"requiredCapabilities": {question.capability: {} for question in asked.values()}},
        )

    async def _results(
        self, request: Request, asked: Mapping[str, asking.Question]
    ) -> Mapping[str, Mapping[str, Any]] | None:
        found = {
            name: self._responses[name]
            for name, question in asked.items()
            if name in self._responses and asking.is_answer(question, self._responses[name])
        }
        if len(found) < len(asked):
            raise MoreInput(
                {
                    "resultType": "input_required",
                    "inputRequests": {name: _wire(question) for name, question in asked.items()},
                    "requestState": json.dumps({"request": request}),
                }
            )
        for name in found:
            del self._responses[name]  # each answers one question: the next of the same name is another
        return found


def peer_of(ctx: ServerRequestContext[Any, Any], params: types.InputResponseRequestParams) -> Peer:
    """Who made a request."""
    if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
        return ModernPeer(ctx, params.input_responses, params.request_state)
    return Peer(ctx)


async def until_answered(
    peer: Peer, step: Callable[[Answer | None], Awaitable[_T | Asks[_T]]], pending: Request | None = None
) -> _T:
    """What `step` comes to, once everything that it asks is answered.

    Args:
        step: Gets the answer to what it asked last.
        pending: What has to be answered before the first step. None: nothing, unless the client was asked before.

    Raises:
        NotAsked: The client cannot be asked, or did not agree.
        MoreInput: It is asked by a result.
    """
    if isinstance(peer, ModernPeer) and peer.pending is not None:
        pending = peer.pending
    answer: Answer | None = None
    token = _current.set(peer)
    try:
        while True:
            if pending is not None:
                decided = await peer.decide(pending) or {"id": pending["id"], "ok": False, "reason": "nobody answered"}
                granted = answered(Waiting(request=pending, arguments={}), decided, now=time.time())
                if granted is None or isinstance(granted, ToolResult):
                    raise NotAsked("declined" if granted is None else granted.output)
                answer = granted.answer
            outcome = await step(answer)
            if not isinstance(outcome, Asks):
                return outcome
            pending = cast("Asks[_T]", outcome).request
    finally:
        _current.reset(token)


_current: ContextVar[Peer | None] = ContextVar("toolnexus.gateway.peer", default=None)


async def ask_client(request: Request) -> Answer | None:
    """A `wait_for` that asks the MCP client whose call is running.

    For what runs inside of a gateway's call and cannot suspend, such as an MCP server behind it that asks back while it
    works. None: there is no such call, or its client cannot be asked while the call is open.
    """
    peer = _current.get()
    if peer is None or isinstance(peer, ModernPeer):
        return None
    try:
        return await peer.decide(request)
    except (NotAsked, MCPError):
        return None


def _wire(question: asking.Question) -> JSONObject:
    """A question inside of a result. Elicitations have no id there."""
    params = {name: value for name, value in question.params.items() if name != "elicitationId"}
    return {"method": question.method, "params": params}


def _plain(model: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", model.model_dump(by_alias=True, mode="json", exclude_none=True))
