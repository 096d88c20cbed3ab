"""Writes what happens in runs to the log, with fields beside the text, and without anything that was said."""

from __future__ import annotations

import hashlib
import logging
from typing import TYPE_CHECKING

from toolnexus.errors import ToolnexusError
from toolnexus.events import Retrying, Suspended
from toolnexus.telemetry.bounds import OTHER

if TYPE_CHECKING:
    from toolnexus.dialects import Reply, Request
    from toolnexus.events import CallRecord, Event, StepFinished
    from toolnexus.telemetry import About, End
    from toolnexus.tools import Tool, ToolCall

_log = logging.getLogger("toolnexus")


class LogWatch:
    """Logs runs under `toolnexus`: their ends and retries at INFO, steps and calls at DEBUG."""

    def run(self, about: About) -> _Run:
        return _Run(about)


class _Run:
    def __init__(self, about: About) -> None:
        conversation = about.conversation_id
        self._about: dict[str, object] = {"run_id": about.id}
        if conversation is not None:
            # Ids are often names of people.
            digest = hashlib.sha256(conversation.encode("utf-8", "surrogatepass"))
            self._about["conversation"] = digest.hexdigest()[:12]
        self._debug(
            "run_started",
            f"A run begins with {about.model}",
            model=about.model,
            provider=about.provider,
            host=about.host,
            tools=len(about.tools),
            stream=about.stream,
        )

    def request(self, request: Request) -> None:
        self._debug(
            "request",
            f"Asking {request.model}",
            model=request.model,
            messages=len(request.messages),
            tools=len(request.tools),
        )

    def reply(self, reply: Reply, step: StepFinished) -> None:
        usage = reply.usage
        self._debug(
            "reply",
            f"{reply.model} replied after {step.seconds:.3f} s ({step.finish_reason})",
            model=reply.model,
            finish_reason=step.finish_reason,
            seconds=step.seconds,
            first_chunk=step.first_chunk,
            calls=len(reply.calls),
            prompt_tokens=None if usage is None else usage.prompt,
            completion_tokens=None if usage is None else usage.completion,
        )

    def event(self, event: Event) -> None:
        if isinstance(event, Retrying):
            # Not the reason: providers quote what they were sent.
            where = f"{event.model} is asked instead" if event.model else f"it is sent again in {event.delay:.1f} s"
            self._write(
                logging.INFO,
                "retry",
                f"A request failed ({event.kind}); {where}",
                kind=event.kind,
                attempt=event.attempt,
                delay=event.delay,
                model=event.model,
            )
        elif isinstance(event, Suspended):
            self._debug("suspended", f"A call waits for a person ({event.request['kind']})", kind=event.request["kind"])

    def tool(self, call: ToolCall, tool: Tool | None) -> _Call:
        return _Call(self, tool)

    def end(self, end: End) -> None:
        failure = end.failure
        kind = failure.kind if isinstance(failure, ToolnexusError) else type(failure).__name__ if failure else None
        usage = None if end.result is None else end.result.usage
        self._write(
            logging.INFO,
            "run_ended",
            f"A run ended after {end.seconds:.3f} s: {end.status}" + (f" ({kind})" if kind else ""),
            status=end.status,
            kind=kind,
            seconds=end.seconds,
            steps=0 if end.result is None else len(end.result.steps),
            prompt_tokens=None if usage is None else usage.prompt,
            completion_tokens=None if usage is None else usage.completion,
        )

    def called(self, tool: Tool | None, record: CallRecord | None, failure: BaseException | None) -> None:
        # What a model calls a tool that there is not, is something that it said.
        name = OTHER if tool is None else tool.name
        if record is None:
            self._debug("tool", f"The tool {name} did not end", tool=name, stopped=failure is not None)
            return
        how = "failed" if record.is_error else "ended"
        self._debug(
            "tool",
            f"The tool {name} {how} after {record.seconds:.3f} s",
            tool=name,
            is_error=record.is_error,
            seconds=record.seconds,
        )

    def _debug(self, event: str, text: str, **fields: object) -> None:
        self._write(logging.DEBUG, event, text, **fields)

    def _write(self, level: int, event: str, text: str, **fields: object) -> None:
        if _log.isEnabledFor(level):
            _log.log(level, "%s", text, extra={"event": event, **self._about, **fields})


class _Call:
    def __init__(self, run: _Run, tool: Tool | None) -> None:
        self._run = run
        self._tool = tool

    def end(self, record: CallRecord | None, failure: BaseException | None) -> None:
        self._run.called(self._tool, record, failure)
