"""Answers for programs: one JSON object at the end, or a line of JSON for every event."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from toolnexus import Finished, ProviderError, ToolnexusError
from toolnexus.cli import exits

if TYPE_CHECKING:
    from toolnexus import Event, RunResult
    from toolnexus.cli.render import Answer
    from toolnexus.suspension import Request

Form: TypeAlias = Literal["text", "md", "json", "jsonl"]
"""How an answer is written: as the model wrote it, laid out as Markdown, or as JSON."""

_RESULT = (
    *("text", "output", "status", "finish_reason", "limit", "usage", "model", "conversation_id", "turn_id"),
    *("tool_calls", "pending"),
)


class Records:
    """Writes what happens as JSON.

    Args:
        to: Where the text goes.
        events: Every event as it happens, a line each. Otherwise one object for each answer.
        indent: For people who look at it.
    """

    def __init__(self, to: Answer, *, events: bool, indent: bool = False) -> None:
        self._to = to
        self._events = events
        self._indent = 2 if indent and not events else None

    def event(self, event: Event) -> None:
        """Something happened."""
        if self._events:
            fields = event.to_dict()
            if isinstance(event, Finished):
                fields["result"]["cost"] = _cost(event.result)
            self._write(fields)
        elif isinstance(event, Finished):
            self._write(result_fields(event.result))

    def failed(self, fields: Mapping[str, Any]) -> None:
        """There is no answer. `fields` are those of `failure`, or alike."""
        self._write({"type": "error", **fields} if self._events else fields)

    def _write(self, fields: Mapping[str, Any]) -> None:
        # What is no JSON can only be in the metadata that a tool gave its result.
        self._to.text(json.dumps(fields, indent=self._indent, default=str) + "\n")
        self._to.flush()


def result_fields(result: RunResult) -> dict[str, Any]:
    """What a program wants to know of an answer. `cost` is in US dollars; None: unknown."""
    told = Finished(result=result).to_dict()["result"]
    return {**{name: told[name] for name in _RESULT}, "cost": _cost(result)}


def _cost(result: RunResult) -> float | None:
    return None if result.cost is None else float(result.cost)


def failure(error: Exception, *, advice: str = "", conversation_id: str | None = None) -> dict[str, Any]:
    """What a program wants to know of an error: `partial` is as an answer."""
    about: dict[str, Any] = {
        "kind": getattr(error, "kind", "error"),
        "message": exits.told(error),
        "advice": advice,
        "exit_code": exits.ending(error).code,
        "retryable": getattr(error, "retryable", False),
    }
    if isinstance(error, ProviderError):
        about |= {"status": error.status, "request_id": error.request_id, "retry_after": error.retry_after}
    partial = error.partial if isinstance(error, ToolnexusError) else None
    return {
        "error": about,
        "conversation_id": conversation_id,
        "partial": None if partial is None else result_fields(partial),
    }


def stopped(kind: str, message: str, code: int, *, conversation_id: str, pending: Sequence[Request] = ()) -> Any:
    """The same of an answer that nothing went wrong with, and that there is none of."""
    about = {"kind": kind, "message": message, "advice": "", "exit_code": code, "retryable": False}
    return {"error": about, "conversation_id": conversation_id, "partial": None, "pending": list(pending)}
