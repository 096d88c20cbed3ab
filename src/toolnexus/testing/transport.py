"""Transports for tests: one that answers from a script, one that sends requests to another address."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from toolnexus.transport import Limits, Response, StreamedResponse, Transport


@dataclass(frozen=True, slots=True, kw_only=True)
class SentRequest:
    """A request that a `ScriptedTransport` got. Header names are lower-case."""

    url: str
    headers: Mapping[str, str]
    body: bytes
    stream: bool

    @property
    def json(self) -> Any:
        """The body, decoded anew each time."""
        return json.loads(self.body)


Step: TypeAlias = Mapping[str, Any] | Response | BaseException | Sequence[bytes | BaseException]
"""An answer: the JSON of a 200, a `Response`, an error to raise, or the reads of an event stream, where an error breaks
the connection."""


class ScriptedTransport:
    """A `Transport` that answers from a script, in order, and keeps what it was sent in `requests`.

    A step may also be a function that gets the `SentRequest` and returns the answer. Whole answers are served to those
    who stream, and streams to those who do not. A request too many fails with `AssertionError`.
    """

    def __init__(self, *steps: Step | Callable[[SentRequest], Step]) -> None:
        self._steps = deque(steps)
        self.requests: list[SentRequest] = []

    async def post(self, url: str, *, headers: Mapping[str, str], body: bytes, limits: Limits) -> Response:
        answer = self._next(SentRequest(url=url, headers=dict(headers), body=body, stream=False))
        return Response(status=answer.status, headers=answer.headers, body=b"".join([c async for c in answer.chunks()]))

    @asynccontextmanager
    async def stream(
        self, url: str, *, headers: Mapping[str, str], body: bytes, limits: Limits
    ) -> AsyncGenerator[StreamedResponse]:
        yield self._next(SentRequest(url=url, headers=dict(headers), body=body, stream=True))

    async def aclose(self) -> None:
        """Nothing is open."""

    def assert_finished(self) -> None:
        """Fail if steps of the script are left."""
        assert not self._steps, f"{len(self._steps)} of the scripted answers were not asked for"

    def _next(self, request: SentRequest) -> _Answer:
        self.requests.append(request)
        assert self._steps, f"request {len(self.requests)} has no scripted answer"
        step = self._steps.popleft()
        if callable(step):
            step = step(request)
        if isinstance(step, BaseException):
            raise step
        if isinstance(step, Response):
            return _Answer(step.status, step.headers, [step.body])
        if isinstance(step, Mapping):
            return _Answer(200, {"content-type": "application/json"}, [json.dumps(step).encode()])
        return _Answer(200, {"content-type": "text/event-stream"}, step)


@dataclass(slots=True)
class _Answer:
    status: int
    headers: Mapping[str, str]
    reads: Sequence[bytes | BaseException]

    async def chunks(self) -> AsyncIterator[bytes]:
        for read in self.reads:
            if isinstance(read, BaseException):
                raise read
            yield read


class Rewrite:
    """A `Transport` that sends the requests for some hosts to other addresses, over plain HTTP.

    The client goes on believing in its URL, so that keys, differences and origins are those of the real host; the
    address is told the real host in the header `host`.

    Args:
        transport: What sends them.
        addresses: Host, or `host:port`, to the address that stands in for it, such as `127.0.0.1:8123`.
    """

    def __init__(self, transport: Transport, addresses: Mapping[str, str]) -> None:
        self._transport = transport
        self._addresses = addresses

    async def post(self, url: str, *, headers: Mapping[str, str], body: bytes, limits: Limits) -> Response:
        url, headers = self._rewritten(url, headers)
        return await self._transport.post(url, headers=headers, body=body, limits=limits)

    def stream(
        self, url: str, *, headers: Mapping[str, str], body: bytes, limits: Limits
    ) -> AbstractAsyncContextManager[StreamedResponse]:
        url, headers = self._rewritten(url, headers)
        return self._transport.stream(url, headers=headers, body=body, limits=limits)

    async def aclose(self) -> None:
        await self._transport.aclose()

    def _rewritten(self, url: str, headers: Mapping[str, str]) -> tuple[str, Mapping[str, str]]:
        parts = urlsplit(url)
        address = self._addresses.get(parts.netloc) or self._addresses.get(parts.hostname or "")
        if address is None:
            return url, headers
        return parts._replace(scheme="http", netloc=address).geturl(), {**headers, "host": parts.netloc}
