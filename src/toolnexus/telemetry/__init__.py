"""Seeing into runs: the seam that metrics, traces and logs watch them through.

A watcher is quick and does not wait. What it raises is logged and ends no run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    from toolnexus.dialects import Reply, Request
    from toolnexus.events import CallRecord, Event, RunResult, StepFinished
    from toolnexus.tools import Tool, ToolCall

EndStatus: TypeAlias = Literal["done", "pending", "incomplete", "replayed", "failed", "cancelled"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Telemetry:
    """Where `create_client(telemetry=…)` sends spans and metrics, if not to the providers of the process.

    Attributes:
        tracer_provider: An OpenTelemetry `TracerProvider`. None: that of the process.
        meter_provider: An OpenTelemetry `MeterProvider`. None: that of the process.
    """

    tracer_provider: Any = None
    meter_provider: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What is known of a run when it begins.

    Attributes:
        id: Of this run alone. A turn that goes on in a further run has another id, its own.
        model: The model that is asked, as it is configured.
        provider: The name of its row in the provider table. Empty: it has none.
        host: Scheme and host of its endpoint.
        conversation_id: None: the run is not remembered.
        tools: The names of its tools.
        stream: Whether answers are asked for piece by piece.
    """

    id: str
    model: str
    provider: str
    host: str
    conversation_id: str | None
    tools: frozenset[str]
    stream: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """How a run ended.

    Attributes:
        status: That of its result; `replayed`: it was recorded before, and did not run; `cancelled`: whoever started
            it stopped it, or stopped reading.
        seconds: From its begin, with the time that it waited for other turns.
        result: None: there is none.
        failure: None: it ended well.
    """

    status: EndStatus
    seconds: float
    result: RunResult | None = None
    failure: BaseException | None = None


class CallWatch(Protocol):
    """Watches one call of a tool."""

    def end(self, record: CallRecord | None, failure: BaseException | None) -> None:
        """The call is over, or waits.

        Args:
            record: How it ended. None: it did not end.
            failure: What stopped it, usually a cancellation. None, and no record either: it waits for a person.
        """
        ...


class RunWatch(Protocol):
    """Watches one run."""

    def request(self, request: Request) -> None:
        """A model is about to be asked."""
        ...

    def reply(self, reply: Reply, step: StepFinished) -> None:
        """It replied."""
        ...

    def event(self, event: Event) -> None:
        """Something else happened: any event but deltas, the end of a step, and the end of the run."""
        ...

    def tool(self, call: ToolCall, tool: Tool | None) -> CallWatch:
        """A call begins, or goes on. Told in the call's own task, where it is also told of the end.

        Args:
            tool: None: the model called a tool that there is not.
        """
        ...

    def end(self, end: End) -> None:
        """The run is over. Told once."""
        ...


class Watch(Protocol):
    """Watches the runs of a client. Runs may be in several threads at once."""

    def run(self, about: About) -> RunWatch:
        """A run begins."""
        ...
