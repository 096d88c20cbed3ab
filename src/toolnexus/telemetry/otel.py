"""Spans and metrics of runs for OpenTelemetry, through its interface alone."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import urlsplit

from toolnexus import __version__
from toolnexus.errors import MissingExtra, ReaderGone, ToolnexusError
from toolnexus.events import Retrying
from toolnexus.telemetry import content, names
from toolnexus.telemetry.bounds import OTHER, Bounded

try:
    from opentelemetry import context, metrics, trace
    from opentelemetry.trace import Span, SpanKind, Status, StatusCode
except ImportError as error:
    raise MissingExtra("OpenTelemetry spans", extra="otel") from error

if TYPE_CHECKING:
    from contextvars import Token

    from opentelemetry.context import Context
    from opentelemetry.metrics import Histogram

    from toolnexus.dialects import Reply, Request
    from toolnexus.events import CallRecord, Event, StepFinished, Usage
    from toolnexus.telemetry import About, End, Telemetry
    from toolnexus.tools import Tool, ToolCall

Attributes: TypeAlias = dict[str, "str | int | float | bool | list[str]"]

_MODELS = 50
_TOOLS = 50


class OTelWatch:
    """Makes the spans and metrics of a client's runs.

    Args:
        capture_content: Whether spans hold what was said, and arguments and results of tools.
    """

    def __init__(self, telemetry: Telemetry, *, capture_content: bool) -> None:
        self.tracer = trace.get_tracer("toolnexus", __version__, tracer_provider=telemetry.tracer_provider)
        meter = metrics.get_meter("toolnexus", __version__, meter_provider=telemetry.meter_provider)
        self.capture_content = capture_content
        self.models = Bounded(_MODELS)
        self.tools = Bounded(_TOOLS)

        def seconds(name: str, about: str) -> Histogram:
            return meter.create_histogram(
                name, unit="s", description=about, explicit_bucket_boundaries_advisory=names.SECONDS
            )

        self.agent_seconds = seconds(names.AGENT_SECONDS, "Duration of a run.")
        self.inference_seconds = seconds(names.INFERENCE_SECONDS, "Duration of asking a model, retries included.")
        self.first_chunk = seconds(names.INFERENCE_FIRST_CHUNK, "Time to the first piece of a streamed reply.")
        self.tool_seconds = seconds(names.TOOL_SECONDS, "Duration of a tool call.")
        self.tokens = {
            kind: meter.create_counter(f"{names.COUNTED_USAGE}{name}", unit="{token}", description=f"Tokens: {kind}.")
            for kind, name in names.TOKENS.items()
        }

    def run(self, about: About) -> _Run:
        self.models.of(about.model)  # what is configured comes before what servers answer
        return _Run(self, about)


class _Run:
    """The spans of one run."""

    def __init__(self, owner: OTelWatch, about: About) -> None:
        self._owner = owner
        self._about = about
        self._conversation: Attributes = (
            {} if about.conversation_id is None else {names.CONVERSATION: about.conversation_id}
        )
        self._endpoint = {**_provider(about.provider), **_server(about.host)}
        self._span = owner.tracer.start_span(
            names.INVOKE_AGENT,
            kind=SpanKind.INTERNAL,
            attributes={
                names.OPERATION: names.INVOKE_AGENT,
                names.REQUEST_MODEL: about.model,
                **_provider(about.provider),
                **self._conversation,
            },
        )
        self._context = trace.set_span_in_context(self._span)
        self._chat: _Chat | None = None
        self._fallback: str | None = None  # who is asked since the first could not answer

    def request(self, request: Request) -> None:
        # Where a fallback is, is known when it replies.
        endpoint = self._endpoint if self._fallback is None else {}
        model = self._fallback or request.model
        self._chat = _Chat(self._owner, request, model, {**endpoint, **self._conversation}, self._context)

    def reply(self, reply: Reply, step: StepFinished) -> None:
        chat, self._chat = self._chat, None
        if chat is not None:
            chat.reply(reply, step)

    def event(self, event: Event) -> None:
        if not isinstance(event, Retrying) or self._chat is None:
            return
        if event.model is None:
            self._chat.retry(event)
            return
        self._fallback = event.model
        self.request(self._chat.failed(event.kind))

    def tool(self, call: ToolCall, tool: Tool | None) -> _Call:
        known = tool is not None and tool.name in self._about.tools
        return _Call(self._owner, call, known=known, parent=self._context, attributes=self._conversation)

    def end(self, end: End) -> None:
        kind = None if end.failure is None else _error_type(end.failure)
        if self._chat is not None:
            self._chat.failed(kind or OTHER)
            self._chat = None
        attributes: Attributes = {names.STATUS: end.status}
        if end.result is not None:
            attributes |= _usage(end.result.usage)
            if end.result.model:
                attributes[names.RESPONSE_MODEL] = end.result.model
            if end.result.finish_reason:
                attributes[names.FINISH_REASONS] = [end.result.finish_reason]
        self._span.set_attributes(attributes)
        _close(self._span, kind)
        measured: Attributes = {names.OPERATION: names.INVOKE_AGENT, names.STATUS: end.status}
        if kind is not None:
            measured[names.ERROR_TYPE] = kind
        self._owner.agent_seconds.record(end.seconds, measured)


class _Chat:
    """The span of asking one model."""

    def __init__(self, owner: OTelWatch, request: Request, model: str, attributes: Attributes, parent: Context) -> None:
        self._owner = owner
        self._request = request
        self._model = model
        self._attributes = attributes
        self._began = time.perf_counter()
        attributes = {names.OPERATION: names.CHAT, names.REQUEST_MODEL: model, **attributes}
        if request.stream:
            attributes[names.REQUEST_STREAM] = True
        if request.max_tokens is not None:
            attributes[names.REQUEST_MAX_TOKENS] = request.max_tokens
        self._span = owner.tracer.start_span(
            f"{names.CHAT} {model}", context=parent, kind=SpanKind.CLIENT, attributes=attributes
        )
        if owner.capture_content and self._span.is_recording():
            if request.system:
                self._span.set_attribute(names.SYSTEM, content.text(request.system))
            self._span.set_attribute(names.INPUT, content.messages(request.messages))

    def retry(self, event: Retrying) -> None:
        self._span.add_event(names.RETRY, {names.ERROR_TYPE: event.kind, names.RETRY_DELAY: event.delay})

    def reply(self, reply: Reply, step: StepFinished) -> None:
        server = _server(reply.message["origin"]["host"]) if "origin" in reply.message else {}
        attributes: Attributes = {
            names.RESPONSE_MODEL: reply.model,
            names.FINISH_REASONS: [reply.finish_reason],
            **server,
            **_usage(reply.usage),
        }
        if reply.id:
            attributes[names.RESPONSE_ID] = reply.id
        if step.first_chunk is not None:
            attributes[names.FIRST_CHUNK] = step.first_chunk
        self._span.set_attributes(attributes)
        if self._owner.capture_content and self._span.is_recording():
            self._span.set_attribute(names.OUTPUT, content.messages([reply.message]))
        self._span.end()
        measured = self._measured() | server
        measured[names.RESPONSE_MODEL] = self._owner.models.of(reply.model)
        self._owner.inference_seconds.record(step.seconds, measured)
        if step.first_chunk is not None:
            self._owner.first_chunk.record(step.first_chunk, measured)
        if reply.usage is not None:
            for kind, counter in self._owner.tokens.items():
                if count := getattr(reply.usage, kind):
                    counter.add(count, measured)

    def failed(self, kind: str) -> Request:
        """No reply came. Returns what was asked."""
        _close(self._span, kind)
        measured = self._measured()
        measured[names.ERROR_TYPE] = kind
        self._owner.inference_seconds.record(time.perf_counter() - self._began, measured)
        return self._request

    def _measured(self) -> Attributes:
        """Attributes of measurements: those of the span that take few values."""
        kept = (names.PROVIDER, names.SERVER_ADDRESS, names.SERVER_PORT)
        return {
            names.OPERATION: names.CHAT,
            names.REQUEST_MODEL: self._owner.models.of(self._model),
            **{name: self._attributes[name] for name in kept if name in self._attributes},
        }


class _Call:
    """The span of a call of a tool, current in the call's task and in the threads that it uses."""

    def __init__(
        self, owner: OTelWatch, call: ToolCall, *, known: bool, parent: Context, attributes: Attributes
    ) -> None:
        self._owner = owner
        self._call = call
        self._tool = owner.tools.of(call.name) if known else OTHER
        self._began = time.perf_counter()
        # The name of a span is to take few values, and a model may call a tool anything.
        self._span = owner.tracer.start_span(
            f"{names.EXECUTE_TOOL} {call.name}" if known else names.EXECUTE_TOOL,
            context=parent,
            kind=SpanKind.INTERNAL,
            attributes={
                names.OPERATION: names.EXECUTE_TOOL,
                names.TOOL_NAME: call.name if known else OTHER,
                names.TOOL_CALL_ID: call.id,
                **attributes,
            },
        )
        if owner.capture_content and self._span.is_recording():
            self._span.set_attribute(names.ARGUMENTS, call.arguments)
        self._token: Token[Context] = context.attach(trace.set_span_in_context(self._span))

    def end(self, record: CallRecord | None, failure: BaseException | None) -> None:
        context.detach(self._token)
        if record is not None:
            outcome, kind = ("error", "tool_error") if record.is_error else ("ok", None)
        elif failure is not None:
            outcome, kind = "cancelled", _error_type(failure)
        else:
            outcome, kind = "suspended", None
        self._span.set_attribute(names.OUTCOME, outcome)
        if record is not None and self._owner.capture_content and self._span.is_recording():
            self._span.set_attribute(names.RESULT, record.output)
        _close(self._span, kind)
        measured: Attributes = {names.OPERATION: names.EXECUTE_TOOL, names.TOOL_NAME: self._tool}
        if kind is not None:
            measured[names.ERROR_TYPE] = kind
        self._owner.tool_seconds.record(time.perf_counter() - self._began, measured)


def _close(span: Span, kind: str | None) -> None:
    """End a span. Messages of errors may quote what was said, so only their kind is told."""
    if kind is not None:
        span.set_attribute(names.ERROR_TYPE, kind)
        span.set_status(Status(StatusCode.ERROR))
    span.end()


def _error_type(failure: BaseException) -> str:
    if isinstance(failure, asyncio.CancelledError | GeneratorExit | ReaderGone):
        return "cancelled"
    return failure.kind if isinstance(failure, ToolnexusError) else type(failure).__qualname__


def _usage(usage: Usage | None) -> Attributes:
    """Tokens of a reply or a run. What is a part of others is left out where it is 0."""
    if usage is None:
        return {}
    counts: Mapping[str, int] = {kind: getattr(usage, kind) for kind in names.TOKENS}
    always = ("prompt", "completion")
    return {f"{names.SPAN_USAGE}{names.TOKENS[kind]}": n for kind, n in counts.items() if n or kind in always}


def _provider(name: str) -> Attributes:
    return {names.PROVIDER: names.PROVIDERS.get(name, name)} if name else {}


@functools.lru_cache(maxsize=64)
def _server(host: str) -> Attributes:
    """Address and port of an origin such as `https://api.openai.com`; nothing for what is none."""
    parts = urlsplit(host)
    if not parts.hostname:
        return {}
    port = parts.port or {"https": 443, "http": 80}.get(parts.scheme)
    found: Attributes = {names.SERVER_ADDRESS: parts.hostname}
    return found if port is None else {**found, names.SERVER_PORT: port}
