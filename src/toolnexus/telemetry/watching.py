"""Who watches the runs of a client, and keeping what goes wrong there away from the runs."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Any

from toolnexus.errors import ConfigurationError, MissingExtra, ReaderGone
from toolnexus.events import Finished, ReasoningDelta, StepFinished, TextDelta
from toolnexus.telemetry import End, Telemetry

if TYPE_CHECKING:
    from types import TracebackType

    from toolnexus.dialects import Reply, Request
    from toolnexus.events import CallRecord, Event
    from toolnexus.telemetry import About, CallWatch, EndStatus, RunWatch, Watch
    from toolnexus.telemetry.logs import LogWatch
    from toolnexus.telemetry.otel import OTelWatch
    from toolnexus.telemetry.prometheus import PrometheusWatch
    from toolnexus.tools import Tool, ToolCall

_log = logging.getLogger("toolnexus")

_SEEN_OTHERWISE = (TextDelta, ReasoningDelta, StepFinished)
_STOPPED = (asyncio.CancelledError, GeneratorExit, ReaderGone)


class Watching:
    """What a client was asked to make visible. What is not asked for is not imported.

    Args:
        metrics: Whether runs are counted for Prometheus.
        telemetry: OpenTelemetry. None: if the process has set it up.
        capture_content: Whether its spans hold messages, arguments and results.
    """

    def __init__(self, *, metrics: bool, telemetry: bool | Telemetry | None, capture_content: bool) -> None:
        if telemetry not in (None, True, False) and not isinstance(telemetry, Telemetry):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(f"telemetry is {telemetry!r:.60}; it can be True, False, None or a Telemetry.")
        if metrics and not _is_installed("prometheus_client"):
            raise MissingExtra("Metrics", extra="metrics")
        if telemetry and not _is_installed("opentelemetry.trace"):
            raise MissingExtra("OpenTelemetry spans", extra="otel")
        self._metrics = metrics
        self._telemetry = telemetry if isinstance(telemetry, Telemetry) else Telemetry()
        self._traces = None if telemetry is None else bool(telemetry)
        self._capture_content = capture_content
        self._making = threading.Lock()
        self._prometheus: PrometheusWatch | None = None
        self._otel: OTelWatch | None = None
        self._logs: LogWatch | None = None

    def run(self) -> WatchedRun | None:
        """Who watches a run that is about to begin. None: nobody."""
        logs = _log.isEnabledFor(logging.INFO)
        traces = self._traces
        if traces is None:
            traces = "opentelemetry.trace" in sys.modules and _is_set_up()
        if not (self._metrics or traces or logs):
            return None
        return WatchedRun(self, traces=traces, logs=logs)

    def metrics(self) -> str:
        """What was counted, as Prometheus reads it; empty before the first run.

        Raises:
            ConfigurationError: Nothing is counted.
        """
        if not self._metrics:
            raise ConfigurationError("Nothing is counted. Make the client with metrics=True.")
        return "" if self._prometheus is None else self._prometheus.text()

    async def watches(self, *, traces: bool, logs: bool) -> list[Watch]:
        """Those that were asked for. What they need is loaded beside the event loop."""
        if (self._metrics and self._prometheus is None) or (traces and self._otel is None):
            return await asyncio.to_thread(self._made, traces=traces, logs=logs)
        return self._made(traces=traces, logs=logs)

    def _made(self, *, traces: bool, logs: bool) -> list[Watch]:
        with self._making:
            made: list[Watch] = []
            if self._metrics:
                made.append(self._counting())
            if traces:
                made.append(self._tracing())
            if logs:
                made.append(self._logging())
            return made

    def _counting(self) -> PrometheusWatch:
        if self._prometheus is None:
            from toolnexus.telemetry import prices
            from toolnexus.telemetry.prometheus import PrometheusWatch

            prices.load_now()  # here, where the event loop does not wait for it
            self._prometheus = PrometheusWatch()
        return self._prometheus

    def _tracing(self) -> OTelWatch:
        if self._otel is None:
            from toolnexus.telemetry.otel import OTelWatch

            self._otel = OTelWatch(self._telemetry, capture_content=self._capture_content)
        return self._otel

    def _logging(self) -> LogWatch:
        if self._logs is None:
            from toolnexus.telemetry.logs import LogWatch

            self._logs = LogWatch()
        return self._logs


class WatchedRun:
    """Tells all who watch a run. Nobody is told anything before it begins or after it ends."""

    def __init__(self, watching: Watching, *, traces: bool, logs: bool) -> None:
        self._watching = watching
        self._traces = traces
        self._logs = logs
        self._watches: list[RunWatch] = []
        self._began = time.perf_counter()
        self._over = False

    async def begin(self, about: About) -> None:
        """It begins: nothing stands in its way any more."""
        try:
            for watch in await self._watching.watches(traces=self._traces, logs=self._logs):
                self._watches.append(watch.run(about))
        except Exception as error:  # noqa: BLE001 - what only watches must not end a run
            _failed(error)

    def request(self, request: Request) -> None:
        for watch in self._watches:
            _guarded(watch.request, request)

    def reply(self, reply: Reply, step: StepFinished) -> None:
        for watch in self._watches:
            _guarded(watch.reply, reply, step)

    def event(self, event: Event) -> None:
        if isinstance(event, _SEEN_OTHERWISE):
            return
        if isinstance(event, Finished):
            result = event.result
            self._end("replayed" if result.replayed else result.status, event=event)
            return
        for watch in self._watches:
            _guarded(watch.event, event)

    def tool(self, call: ToolCall, tool: Tool | None) -> WatchedCall:
        return WatchedCall(self._watches, call, tool)

    def end(self, failure: BaseException | None) -> None:
        """The run is over. Without a failure it has ended before, with its last event."""
        if failure is not None:
            self._end("cancelled" if isinstance(failure, _STOPPED) else "failed", failure=failure)

    def _end(self, status: EndStatus, *, event: Finished | None = None, failure: BaseException | None = None) -> None:
        if self._over:
            return
        self._over = True
        seconds = time.perf_counter() - self._began
        result = getattr(failure, "partial", None) if event is None else event.result
        end = End(status=status, seconds=seconds, result=result, failure=failure)
        for watch in self._watches:
            _guarded(watch.end, end)


class WatchedCall:
    """A call, as long as one is in the `with` block.

    Attributes:
        record: To be set to how it ended. None: it has not.
    """

    def __init__(self, watches: list[RunWatch], call: ToolCall, tool: Tool | None) -> None:
        self.record: CallRecord | None = None
        self._watches = watches
        self._call = call
        self._tool = tool
        self._open: list[CallWatch] = []

    def __enter__(self) -> WatchedCall:
        for watch in self._watches:
            if (opened := _guarded(watch.tool, self._call, self._tool)) is not None:
                self._open.append(opened)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for watch in reversed(self._open):
            _guarded(watch.end, self.record, error)


def watched(events: AsyncGenerator[Event, None], watch: WatchedRun | None) -> AsyncGenerator[Event, None]:
    """The same events, of which `watch` is told before whoever reads them. None: nobody is told."""
    return events if watch is None else _watched(events, watch)


async def _watched(events: AsyncGenerator[Event, None], watch: WatchedRun) -> AsyncGenerator[Event, None]:
    failure: BaseException | None = None
    try:
        async for event in events:
            watch.event(event)
            yield event
    except ReaderGone as gone:
        failure = gone
        await events.athrow(gone)  # it ends the run, and carries what there is of it
    except BaseException as error:
        failure = error
        raise
    finally:
        try:
            await events.aclose()
        finally:
            watch.end(failure)  # when the calls are over that belong to the run


def _guarded(tell: Callable[..., Any], *what: object) -> Any:
    try:
        return tell(*what)
    except Exception as error:  # noqa: BLE001 - what only watches must not end a run
        _failed(error)
        return None


def _failed(error: Exception) -> None:
    _log.warning("Something that watches runs failed; the run goes on", exc_info=error)


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:
        return False


def _is_set_up() -> bool:
    """Whether the process has given OpenTelemetry, which is loaded, somewhere to send to."""
    try:
        from opentelemetry import metrics, trace

        return _is_real(trace.get_tracer_provider()) or _is_real(metrics.get_meter_provider())
    except Exception as error:  # noqa: BLE001 - providers that the environment names are loaded here
        _failed(error)
        return False


def _is_real(provider: object) -> bool:
    """Whether a provider does anything: those of the interface alone do nothing."""
    return not type(provider).__module__.startswith(("opentelemetry.trace", "opentelemetry.metrics"))
