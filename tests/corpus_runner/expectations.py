"""What a case lists, compared with what was seen. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from corpus_runner.assertions import equal, problems, within
from corpus_runner.cases import ERROR_KINDS
from corpus_runner.driver import Outcome
from corpus_runner.wires import Results
from toolnexus.errors import ToolnexusError

KINDS: Final[Mapping[str, str]] = {kind: kind for kind in ERROR_KINDS}
"""Our error kinds in the corpus's words. They are the same; a kind that is not here has no word there."""

_INSTANT = 0.001
"""Seconds by which a delay may differ from a listed figure."""


def unmet(expect: Mapping[str, Any], outcome: Outcome, without_retries: Outcome | None = None) -> list[str]:
    """What of an expectation does not hold; empty if all does.

    Args:
        without_retries: The same run with automatic retries off, for `if_retries_off`.
    """
    found: list[str] = []
    for name, wanted in expect.items():
        if name in _CHECKS:
            found += [f"{name}: {problem}" for problem in _CHECKS[name](wanted, outcome)]
        elif name == "any_of":
            tried = [unmet(alternative, outcome, without_retries) for alternative in wanted]
            if all(tried):
                found.append("any_of: " + "; or ".join(", ".join(one) for one in tried))
        elif name == "if_retries_off":
            assert without_retries is not None, "a case with if_retries_off is also run without them"
            found += [f"if_retries_off: {problem}" for problem in unmet(wanted, without_retries)]
    return found


def wants_run_without_retries(expect: Mapping[str, Any]) -> bool:
    return "if_retries_off" in expect or any(map(wants_run_without_retries, expect.get("any_of", ())))


def _differs(wanted: Any, got: Any) -> list[str]:
    return [] if equal(wanted, got) else [f"expected {wanted!r}, got {got!r}"]


def _one_of(wanted: Any, got: Any) -> list[str]:
    return [] if got in (wanted if isinstance(wanted, list) else [wanted]) else [f"expected {wanted!r}, got {got!r}"]


def _text_contains(wanted: str, outcome: Outcome) -> list[str]:
    final = outcome.result or (outcome.error.partial if outcome.error else None)
    texts = [outcome.said.text, *([final.text] if final else [])]
    return [] if any(wanted in text for text in texts) else [f"{wanted!r} is not in {texts!r}"]


def _deltas(wanted: list[str], outcome: Outcome) -> list[str]:
    return _differs(wanted, list(outcome.said.deltas))


def _calls(wanted: Sequence[Mapping[str, Any]], got: Sequence[Mapping[str, Any]]) -> list[str]:
    listed = [{key: call.get(key) for key in want} for want, call in zip(wanted, got, strict=False)]
    return [] if len(got) == len(wanted) and equal(listed, list(wanted)) else [f"expected {wanted!r}, got {got!r}"]


def _tool_calls(wanted: Sequence[Mapping[str, Any]], outcome: Outcome) -> list[str]:
    return _calls(wanted, [{"id": c.id, "name": c.name, "arguments": _plain(c.args)} for c in outcome.said.calls])


def _tool_runs(wanted: Sequence[Mapping[str, Any]], outcome: Outcome) -> list[str]:
    return _calls(wanted, [{"id": r.call_id, "name": r.name, "arguments": r.arguments} for r in outcome.tool_runs])


def _plain(arguments: Any) -> Any:
    return dict(arguments) if isinstance(arguments, Mapping) else arguments


def _usage(wanted: Mapping[str, int] | None, outcome: Outcome) -> list[str]:
    usage = outcome.said.usage
    if wanted is None or usage is None:
        return [] if wanted is usage else [f"expected {wanted!r}, got {usage!r}"]
    return _differs(wanted, {key: getattr(usage, key) for key in wanted})


def _invalid_calls(wanted: Sequence[Mapping[str, Any]], outcome: Outcome) -> list[str]:
    """Each did not run, and the model was told of an error."""
    final = outcome.result or (outcome.error.partial if outcome.error else None)
    records = final.tool_calls if final else ()
    found: list[str] = []
    for call in wanted:
        ours = [r for r in records if all(_field(r, key) == value for key, value in call.items())]
        if not any(record.is_error and record.output for record in ours):
            found.append(f"{call!r} has no error among {records!r}")
        if "id" in call:
            if any(run.call_id == call["id"] and run.name == call.get("name", run.name) for run in outcome.tool_runs):
                found.append(f"{call!r} ran")
            if outcome.wire.marks_errors and not _told_of_error(call["id"], outcome):
                found.append(f"the result of {call!r} is not marked as an error on the wire")
    return found


def _field(record: Any, key: str) -> Any:
    return _plain(record.args) if key == "arguments" else getattr(record, key)


def _told_of_error(call_id: Any, outcome: Outcome) -> bool:
    return any(
        call_id in entry.errors
        for request in outcome.seen
        for entry in outcome.wire.entries(request.body.json)
        if isinstance(entry, Results)
    )


def _requests(wanted: Any, outcome: Outcome) -> list[str]:
    count = len(outcome.seen)
    return [] if within(count, wanted) else [f"expected {wanted!r}, got {count}"]


def _delays(wanted: Sequence[Any], outcome: Outcome) -> list[str]:
    got = outcome.delays
    fits = len(got) >= len(wanted) and all(within(g, w, slack=_INSTANT) for g, w in zip(got, wanted, strict=False))
    return [] if fits else [f"expected {wanted!r}, got {got!r}"]


def _url(wanted: str, outcome: Outcome) -> list[str]:
    """The URL that the client called, and the path that arrived."""
    path = "/" + wanted.partition("://")[2].partition("/")[2]
    found = [f"called {url!r}, not {wanted!r}" for url in outcome.urls[:1] if url != wanted]
    found += [f"{seen.target!r} arrived" for seen in outcome.seen if seen.target != path]
    return found if outcome.seen else [f"nothing was called; {outcome.error!r}"]


def _request_must(wanted: Sequence[Mapping[str, Any]], outcome: Outcome) -> list[str]:
    found: list[str] = []
    for assertion in wanted:
        turn = assertion.get("turn", "last")
        number = len(outcome.seen) if turn == "last" else turn
        if not 1 <= number <= len(outcome.seen):
            found.append(f"there is no request {turn}, only {len(outcome.seen)}")
            continue
        body = outcome.seen[number - 1].body
        found += [f"request {number}: {problem}" for problem in problems(assertion, body, outcome.wire)]
    return found


def _error(wanted: Mapping[str, Any] | None, outcome: Outcome) -> list[str]:
    error = outcome.error
    if wanted is None:
        return [] if error is None else [f"expected none, got {error!r} (kind {error.kind})"]
    if error is None:
        return [f"expected {wanted!r}, but the run ended well"]
    return [f"{name}: {problem}" for name, value in wanted.items() for problem in _ERROR_CHECKS[name](value, error)]


def _partial_text(wanted: str, error: ToolnexusError) -> list[str]:
    return _differs(wanted, error.partial.text if error.partial else "")


def _retry_after(wanted: float | None, error: ToolnexusError) -> list[str]:
    got = getattr(error, "retry_after", None)
    if wanted is None or got is None:
        return [] if wanted is got else [f"expected {wanted!r}, got {got!r}"]
    return [] if within(got, wanted, slack=_INSTANT) else [f"expected {wanted!r}, got {got!r}"]


def _message_contains(wanted: str, error: ToolnexusError) -> list[str]:
    return [] if wanted in str(error) else [f"{wanted!r} is not in {str(error)!r}"]


def _message_max_length(wanted: int, error: ToolnexusError) -> list[str]:
    return [] if len(str(error)) <= wanted else [f"the message has {len(str(error))} characters, more than {wanted}"]


_ERROR_CHECKS: Final[Mapping[str, Callable[[Any, ToolnexusError], list[str]]]] = {
    "kind": lambda wanted, error: _one_of(wanted, KINDS.get(error.kind, f"({error.kind})")),
    "retryable": lambda wanted, error: _differs(wanted, error.retryable),
    "partial_text": _partial_text,
    "retry_after": _retry_after,
    "message_contains": _message_contains,
    "message_max_length": _message_max_length,
}

_CHECKS: Final[Mapping[str, Callable[[Any, Outcome], list[str]]]] = {
    "text": lambda wanted, outcome: _differs(wanted, outcome.said.text),
    "reasoning": lambda wanted, outcome: _differs(wanted, outcome.said.reasoning),
    "deltas": _deltas,
    "tool_calls": _tool_calls,
    "finish_reason": lambda wanted, outcome: _one_of(wanted, outcome.said.finish_reason),
    "usage": _usage,
    "text_contains": _text_contains,
    "tool_runs": _tool_runs,
    "invalid_calls": _invalid_calls,
    "requests": _requests,
    "delays": _delays,
    "error": _error,
    "url": _url,
    "request_must": _request_must,
    "transcript_roundtrip": lambda wanted, outcome: list(outcome.roundtrip) if wanted else [],
}
