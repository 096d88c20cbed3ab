"""Counts runs for Prometheus. No label holds an id, and of every label there is a bounded number of values."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from toolnexus.errors import MissingExtra, ToolnexusError
from toolnexus.events import Retrying
from toolnexus.telemetry import prices
from toolnexus.telemetry.bounds import OTHER, Bounded
from toolnexus.telemetry.names import TOKENS, series

try:
    from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
except ImportError as error:
    raise MissingExtra("Metrics", extra="metrics") from error

if TYPE_CHECKING:
    from toolnexus.dialects import Reply, Request
    from toolnexus.events import CallRecord, Event, StepFinished
    from toolnexus.telemetry import About, End
    from toolnexus.tools import Tool, ToolCall

_MODELS = 50
_TOOLS = 50
_KINDS = 40
_REQUEST = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0)
_FIRST = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0)
_TOOL = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class PrometheusWatch:
    """Counts in a registry of its own, from when it is made."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        self.models = Bounded(_MODELS)
        self.tools = Bounded(_TOOLS)
        self.kinds = Bounded(_KINDS)

        def counter(name: str, about: str, *labels: str) -> Counter:
            return Counter(series(name), about, labels, registry=registry)

        def histogram(name: str, about: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            return Histogram(series(name), about, labels, buckets=buckets, registry=registry)

        self.runs = counter("runs", "Runs that ended.", "status")
        self.failures = counter("failures", "Runs that failed, by kind of error.", "kind")
        self.run_seconds = histogram("run_seconds", "Seconds of a run, with waiting for other turns.", _REQUEST)
        self.steps = counter("steps", "Replies of a model.", "model", "finish_reason")
        self.request_seconds = histogram(
            "request_seconds", "Seconds until a reply was complete, retries included.", _REQUEST, "model"
        )
        self.first_chunk_seconds = histogram(
            "first_chunk_seconds", "Seconds until the first piece of a streamed reply.", _FIRST, "model"
        )
        self.tokens = counter(
            "tokens", "Tokens; cached and cache_write are part of prompt, reasoning of completion.", "model", "kind"
        )
        self.cost = counter("cost_usd", "US dollars, of replies whose cost is known.", "model")
        self.retries = counter("retries", "Requests that were sent again, by kind of error.", "kind")
        self.tool_calls = counter("tool_calls", "Calls of tools.", "tool", "outcome")
        self.tool_seconds = histogram("tool_seconds", "Seconds of a call of a tool.", _TOOL, "tool")

    def text(self) -> str:
        """All series in the text format of Prometheus."""
        return generate_latest(self._registry).decode()

    def run(self, about: About) -> _Run:
        self.models.of(about.model)  # what is configured comes before what servers answer
        return _Run(self, about)


class _Run:
    def __init__(self, owner: PrometheusWatch, about: About) -> None:
        self._owner = owner
        self._tools = about.tools

    def request(self, request: Request) -> None:
        """Only what comes back is counted."""

    def reply(self, reply: Reply, step: StepFinished) -> None:
        owner = self._owner
        model = owner.models.of(reply.model)
        owner.steps.labels(model, step.finish_reason).inc()
        owner.request_seconds.labels(model).observe(step.seconds)
        if step.first_chunk is not None:
            owner.first_chunk_seconds.labels(model).observe(step.first_chunk)
        if reply.usage is not None:
            counts = dataclasses.asdict(reply.usage)
            for kind in TOKENS:
                if counts[kind]:
                    owner.tokens.labels(model, kind).inc(counts[kind])
            if (cost := prices.of_reply(reply)) is not None:
                owner.cost.labels(model).inc(float(cost))

    def event(self, event: Event) -> None:
        if isinstance(event, Retrying):
            self._owner.retries.labels(self._owner.kinds.of(event.kind)).inc()

    def tool(self, call: ToolCall, tool: Tool | None) -> _Call:
        known = tool is not None and tool.name in self._tools
        return _Call(self._owner, self._owner.tools.of(call.name) if known else OTHER)

    def end(self, end: End) -> None:
        self._owner.runs.labels(end.status).inc()
        if end.status == "replayed":
            return
        self._owner.run_seconds.observe(end.seconds)
        if end.status == "failed":
            kind = end.failure.kind if isinstance(end.failure, ToolnexusError) else OTHER
            self._owner.failures.labels(self._owner.kinds.of(kind)).inc()


class _Call:
    def __init__(self, owner: PrometheusWatch, tool: str) -> None:
        self._owner = owner
        self._tool = tool

    def end(self, record: CallRecord | None, failure: BaseException | None) -> None:
        self._owner.tool_calls.labels(self._tool, outcome(record, failure)).inc()
        if record is not None:
            self._owner.tool_seconds.labels(self._tool).observe(record.seconds)


def outcome(record: CallRecord | None, failure: BaseException | None) -> str:
    """How a call ended, in one word."""
    if record is not None:
        return "error" if record.is_error else "ok"
    return "suspended" if failure is None else "cancelled"
