"""One request to one reply: encode, send, decode, retry."""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, suppress
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast
from urllib.parse import urlsplit

from toolnexus import _json
from toolnexus.clock import within
from toolnexus.dialects.faults import fault
from toolnexus.dialects.sse import SSEDecoder
from toolnexus.errors import (
    ConfigurationError,
    ConnectionFailed,
    HookFailed,
    IncompleteReply,
    InvalidReply,
    ProviderError,
    RunTimeout,
    ToolnexusError,
)
from toolnexus.events import ReasoningDelta, Retrying, TextDelta

if TYPE_CHECKING:
    from types import TracebackType

    from toolnexus._endpoint import Endpoint
    from toolnexus.clock import Clock
    from toolnexus.dialects import Dialect, Reply, ReplyDecoder, Request
    from toolnexus.events import Delta
    from toolnexus.transport import Limits, StreamedResponse, Transport

ReplyPart: TypeAlias = "Sequence[Delta | Retrying] | Reply"


class Model(Protocol):
    """One run's line to a model."""

    def reply(self, request: Request, *, deadline: float | None) -> AsyncGenerator[ReplyPart, None]:
        """Yield what arrives, in batches, and last the reply.

        Deltas come in batches (as many as one read brought) so that a burst costs little. A whole answer comes as
        one batch of at most one delta a kind, then the reply. Closing the generator closes the socket.

        Args:
            deadline: Seconds on `time.monotonic()`; None: no bound.

        Raises:
            RunTimeout: The deadline passed.
            ToolnexusError: Whatever `errors.py` has for what went wrong, once retrying is over or ruled out.
        """
        ...


_BACKOFF = 0.5
"""Seconds of the first wait, at most; each further one may be twice as long."""

_LONGEST_REFUSAL = 1024 * 1024
"""Bytes that are read of a streamed answer that turned out to be an error."""

_LINGER = 1.0
"""Seconds that a connection may stay open after the end mark of its answer."""

_BLANK = b"\xef\xbb\xbf \t\r\n"  # a byte order mark among them
_EVENT_FIELD = re.compile(rb"(data|event|id|retry)?:")
_TELLING = len(b"event:")

_LIMIT_FIELDS = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
_UNKNOWN_FIELD = re.compile(
    r"unsupported|unrecogni[sz]ed|unknown|unexpected|(is|are) not|n't supported|extra|use .{0,3}max_", re.IGNORECASE
)

BodyTransform: TypeAlias = Callable[[dict[str, Any]], "Mapping[str, Any] | None"]


class Learned:
    """What an endpoint's errors taught, kept for all runs of a client.

    Attributes:
        limit_fields: What a model calls the token limit.
    """

    def __init__(self) -> None:
        self.limit_fields: dict[str, str] = {}


class HTTPModel:
    """A `Model` behind an HTTP endpoint, for one run.

    Args:
        retries: How often a request is sent again when it failed before anything was shown.
        max_retry_wait: Seconds to wait before one of them, at most. A server that asks for more is not waited for.
        body_transform: Called with the body of each request, which it may change or replace.
        jitter: Gives numbers from 0 to 1, which the waits are scaled with.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        dialect: Dialect,
        transport: Transport,
        *,
        limits: Limits,
        retries: int,
        max_retry_wait: float,
        clock: Clock,
        body_transform: BodyTransform | None = None,
        learned: Learned | None = None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._endpoint = endpoint
        self._dialect = dialect
        self._encoder = dialect.encoder(endpoint.target)
        self._transport = transport
        self._limits = limits
        self._retries = retries
        self._max_retry_wait = max_retry_wait
        self._clock = clock
        self._body_transform = body_transform
        self._learned = learned or Learned()
        self._jitter = jitter

    async def reply(self, request: Request, *, deadline: float | None) -> AsyncGenerator[ReplyPart, None]:
        body = self._body(request)
        data = _encoded(body)
        retried = 0
        shown = False
        while True:
            try:
                if request.stream:
                    async with aclosing(self._streamed(request, data, deadline)) as parts:
                        async for part in parts:
                            shown = True
                            yield part
                else:
                    for part in await self._whole(request, data, deadline):
                        yield part
            except ToolnexusError as error:
                failure = self._redacted(error)
            else:
                return
            if isinstance(failure, ConnectionFailed) and not failure.request_sent and failure.retryable:
                failure.args = (f"{failure} {self._endpoint.way_there}",)
            if shown or isinstance(failure, RunTimeout):
                raise failure
            if self._learn(request.model, body, failure):
                body = self._body(request)
                data = _encoded(body)
                continue
            pause = self._pause(failure, request, retried, deadline)
            if pause is None:
                raise failure
            retried += 1
            yield [Retrying(attempt=retried, delay=pause, kind=failure.kind, reason=str(failure))]
            await within(deadline, self._clock.sleep(pause))

    async def _whole(self, request: Request, data: bytes, deadline: float | None) -> list[ReplyPart]:
        endpoint = self._endpoint
        url = endpoint.url_of(request.model, stream=False)
        answering = self._transport.post(url, headers=endpoint.headers, body=data, limits=self._limits)
        answer = await (answering if deadline is None else within(deadline, answering))
        if answer.status >= 300:
            raise self._refusal(request.model, answer.status, answer.headers, answer.body)
        return _parts(self._read(answer.body, answer.headers, request))

    async def _streamed(self, request: Request, data: bytes, deadline: float | None) -> AsyncGenerator[ReplyPart, None]:
        endpoint = self._endpoint
        url = endpoint.url_of(request.model, stream=True)
        exchange = self._transport.stream(url, headers=endpoint.headers, body=data, limits=self._limits)
        async with exchange if deadline is None else _Entered(exchange, deadline) as answer:
            chunks = answer.chunks() if deadline is None else _Bounded(answer.chunks(), deadline)
            if answer.status >= 300:
                raise self._refusal(request.model, answer.status, answer.headers, await _beginning(chunks))
            head = await _head(chunks)
            if not _is_stream(head, answer.headers):
                whole = head + b"".join([chunk async for chunk in chunks])
                for part in _parts(self._read(whole, answer.headers, request)):
                    yield part
                return
            events = _Events(self._dialect.decoder(self._encoder.reading(request)))
            broken: ConnectionFailed | None = None
            for deltas in events.feed(head):
                yield deltas
            try:
                if not events.done:
                    async for chunk in chunks:
                        for deltas in events.feed(chunk):
                            yield deltas
                        if events.done:
                            break
            except ConnectionFailed as error:
                broken = error
            else:
                for deltas in events.rest():
                    yield deltas
                if events.done:
                    await _linger(chunks)
            yield events.finish(broken)

    def _body(self, request: Request) -> dict[str, Any]:
        body = self._encoder.encode(request)
        field = self._learned.limit_fields.get(request.model)
        if field is not None and (other := _LIMIT_FIELDS[field]) in body:
            body[field] = body.pop(other)
        if self._body_transform is None:
            return body
        fresh: dict[str, Any] = _json.loads(_encoded(body))  # the encoder keeps what is inside for the next request
        try:
            changed = self._body_transform(fresh)
            return fresh if changed is None else dict(changed)
        except Exception as error:
            raise HookFailed(f"body_transform raised {type(error).__name__}, so the request was not sent.") from error

    def _read(self, body: bytes, headers: Mapping[str, str], request: Request) -> Reply:
        """Decode an answer that is there as a whole, whatever its framing."""
        reading = self._encoder.reading(request)
        body = body.lstrip(_BLANK)
        if _is_stream(body, headers):
            events = _Events(self._dialect.decoder(reading))
            for _ in chain(events.feed(body), events.rest()):
                pass
            return events.finish(None)
        if _is_page(body, headers):
            raise InvalidReply(f"{self._source(headers)} is a web page, not a reply of a model. Check base_url.")
        try:
            value = _json.loads(body)
        except ValueError as error:
            raise InvalidReply(f"{self._source(headers)} is not JSON. Check base_url and style.") from error
        return self._dialect.decode(value, reading)

    def _source(self, headers: Mapping[str, str]) -> str:
        """What came, and from where: usually enough to see that the base URL is wrong."""
        kind = headers.get("content-type", "").partition(";")[0].strip() or "of no content type"
        return f"The answer ({kind}) from {self._endpoint.shown_url}"

    def _refusal(self, model: str, status: int, headers: Mapping[str, str], body: bytes) -> ToolnexusError:
        """The error that an answer with a status of 300 or more is."""
        redact = self._endpoint.redact  # before it is read: a quoted part of it could be hard to recognise
        if status < 400:
            place = _place(redact(headers.get("location", "")))
            return ProviderError(
                f"The provider answered {status} and points to {place}. Redirects are not followed, so that no key "
                "goes to another server. Check base_url.",
                kind="bad_request",
                status=status,
            )
        error = fault(status, headers, redact(body.decode("utf-8", "replace")).encode(), now=self._clock.now())
        assert error is not None, "a status of 300 or more is an error"
        row = self._endpoint.target.provider
        told = [str(error)]
        if error.kind == "auth":
            told.append(self._endpoint.whose_key)
        if status == 400 and row.note:
            told.append(row.note)
        if status in (404, 405):
            told.append(f"The URL was {self._endpoint.shown_url}.")
        if error.kind == "not_found" and row.get_model:
            told.append(f"Get the model with `{row.get_model.replace('{model}', model)}`.")
        error.args = (" ".join(told),)
        return error

    def _learn(self, model: str, body: Mapping[str, Any], failure: ToolnexusError) -> bool:
        """Whether the failure tells that the model calls the token limit by its other name, which is then kept."""
        if not isinstance(failure, ProviderError) or failure.status not in (400, 422):
            return False
        field = next((field for field in _LIMIT_FIELDS if field in body), None)
        if field is None or model in self._learned.limit_fields:
            return False
        other = _LIMIT_FIELDS[field]
        text = str(failure)
        if not _UNKNOWN_FIELD.search(text) or (other if field == "max_tokens" else field) not in text:
            return False
        self._learned.limit_fields[model] = other
        return True

    def _pause(self, failure: ToolnexusError, request: Request, retried: int, deadline: float | None) -> float | None:
        """Seconds to wait before the request is sent again. None: it is not."""
        if not failure.retryable or retried >= self._retries or _may_be_paid_for(failure, request):
            return None
        asked = failure.retry_after if isinstance(failure, ProviderError) else None
        if asked is None:
            pause = self._jitter() * min(self._max_retry_wait, _BACKOFF * 2**retried)
            bound = ""
        else:
            pause = asked
            bound = f"max_retry_wait is {self._max_retry_wait:g} s" if asked > self._max_retry_wait else ""
        if deadline is not None and time.monotonic() + pause >= deadline:
            bound = "the run's timeout comes first"
        if not bound:
            return pause
        if asked is not None:
            failure.args = (f"{failure} The server asked to wait {asked:g} s, but {bound}.",)
        return None

    def _redacted(self, error: ToolnexusError) -> ToolnexusError:
        """The error without secrets. What it was raised from is cut where it shows one."""
        redact = self._endpoint.redact
        error.args = tuple(redact(arg) if isinstance(arg, str) else arg for arg in error.args)
        if isinstance(error, ProviderError):
            error.request_id = error.request_id and redact(error.request_id)
            error.parameter = error.parameter and redact(error.parameter)
        link: BaseException = error
        while (cause := link.__cause__ or link.__context__) is not None:
            shown = " ".join(map(str, (cause, *cause.args, *vars(cause).values())))
            if redact(shown) != shown:
                link.__cause__ = link.__context__ = None
                break
            link = cause
        return error


class _Events:
    """An event stream on its way to a reply."""

    def __init__(self, decoder: ReplyDecoder) -> None:
        self._sse = SSEDecoder()
        self._decoder = decoder

    @property
    def done(self) -> bool:
        return self._decoder.done

    def feed(self, chunk: bytes) -> Iterator[list[Delta]]:
        """Yield what a chunk adds, at most one batch. What came before an error is yielded before it is raised."""
        return self._decoded(self._sse.feed(chunk))

    def rest(self) -> Iterator[list[Delta]]:
        """The same for what is left when the stream has ended."""
        return self._decoded(self._sse.finish())

    def finish(self, broken: ConnectionFailed | None) -> Reply:
        """The reply, also of a connection that broke after the provider had said that it was done."""
        try:
            return self._decoder.finish()
        except IncompleteReply:
            if broken is None:
                raise
        raise broken

    def _decoded(self, payloads: list[str]) -> Iterator[list[Delta]]:
        deltas: list[Delta] = []
        failure: ToolnexusError | None = None
        feed = self._decoder.feed
        try:
            for payload in payloads:
                deltas += feed(payload)
                if self._decoder.done:
                    break  # however the stream is cut, nothing after its end mark counts
        except ToolnexusError as error:
            failure = error
        if deltas:
            yield deltas
        if failure is not None:
            raise failure


class _Entered:
    """An exchange that has to begin before a deadline."""

    def __init__(self, exchange: AbstractAsyncContextManager[StreamedResponse], deadline: float) -> None:
        self._exchange = exchange
        self._deadline = deadline

    async def __aenter__(self) -> StreamedResponse:
        return await within(self._deadline, self._exchange.__aenter__())

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> bool | None:
        return await self._exchange.__aexit__(kind, error, tb)


class _Bounded:
    """Chunks, each of which has to come before a deadline."""

    def __init__(self, chunks: AsyncIterator[bytes], deadline: float) -> None:
        self._chunks = chunks
        self._deadline = deadline

    def __aiter__(self) -> _Bounded:
        return self

    async def __anext__(self) -> bytes:
        return await within(self._deadline, anext(self._chunks))


def _encoded(body: Mapping[str, Any]) -> bytes:
    try:
        return _json.dumps(body, "The request", nulls=_nulls(body))
    except ValueError as error:
        raise ConfigurationError(f"{error} Look at request_params and body_transform.") from error


def _nulls(body: Mapping[str, Any]) -> int:
    """How many messages have None as their content. On some wires those that only call do."""
    messages = body.get("messages")
    if not isinstance(messages, list):
        return 0
    objects = cast("list[dict[str, Any]]", messages)
    return [type(item) is dict and item.get("content", "") for item in objects].count(None)


async def _head(chunks: AsyncIterator[bytes]) -> bytes:
    """Read until it can be told what is coming. Blanks in front mean nothing in any framing."""
    head = b""
    async for chunk in chunks:
        head = (head + chunk).lstrip(_BLANK)
        if len(head) >= _TELLING:
            break
    return head


async def _linger(chunks: AsyncIterator[bytes]) -> None:
    """Let an answer that said it is done end, so that its connection can be used again, but do not wait for it long."""
    # The reply is there. Whatever is wrong with what follows, or with the run's time, takes nothing from it.
    with suppress(TimeoutError, ToolnexusError):
        async with asyncio.timeout(_LINGER):
            async for _ in chunks:
                pass


async def _beginning(chunks: AsyncIterator[bytes]) -> bytes:
    """As much of an error as is worth reading. It counts even when its connection breaks."""
    parts: list[bytes] = []
    size = 0
    try:
        async for chunk in chunks:
            parts.append(chunk)
            size += len(chunk)
            if size >= _LONGEST_REFUSAL:
                break
    except ConnectionFailed:
        pass
    return b"".join(parts)


def _is_stream(head: bytes, headers: Mapping[str, str]) -> bool:
    """Whether a body is an event stream. Servers send the other framing than was asked for, and wrong content types."""
    if not head:
        return True  # one without events
    if head[:1] in b"{[" or _is_page(head, headers):
        return False
    return _EVENT_FIELD.match(head) is not None or headers.get("content-type", "").startswith("text/event-stream")


def _is_page(head: bytes, headers: Mapping[str, str]) -> bool:
    return head[:1] == b"<" or headers.get("content-type", "").startswith("text/html")


def _parts(reply: Reply) -> list[ReplyPart]:
    """A whole reply for a reader of deltas."""
    deltas: list[Delta] = [ReasoningDelta(reply.reasoning)] if reply.reasoning else []
    if reply.text:
        deltas.append(TextDelta(reply.text))
    return [deltas, reply] if deltas else [reply]


def _may_be_paid_for(failure: ToolnexusError, request: Request) -> bool:
    """Whether the provider may be working on a whole reply that nobody waits for any more."""
    timed_out = isinstance(failure, ConnectionFailed) and failure.kind == "timeout" and failure.request_sent
    return timed_out and not request.stream


def _place(location: str) -> str:
    """Where a redirect points, without path and query."""
    with suppress(ValueError):
        parts = urlsplit(location)
        if host := parts.netloc.rpartition("@")[2]:
            return f"{parts.scheme}://{host}" if parts.scheme else host
    return "another path"
