"""A case's file as values. Whatever the format does not have is refused, so that nothing passes unread."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from corpus_runner.assertions import UnknownAssertion, check_form, is_bound
from corpus_runner.paths import BadPath
from corpus_runner.wires import JSON_TYPE, SSE_TYPE, WIRES

DEFAULT_PROMPT: Final = "Hi"

_SERVERS = frozenset({"response", "sse", "sse_b64", "turns", "rules", "responses", "base_urls"})
_ANSWER = frozenset({"status", "headers", "body", "sse", "sse_b64", "abort"})
_KINDS = frozenset({"sse", "json", "http", "schema", "transcript"})

_CASE_FIELDS = frozenset({"id", "title", "style", "kind", "source", "given", "expect", "why"})
_GIVEN_FIELDS = _SERVERS | {"request", "tools", "abort", "repeat", "transcript"}
_REQUEST_FIELDS = frozenset(
    {"stream", "prompt", "base_url", "model", "max_tokens", "tools", "options", "max_retries", "max_turns", "now"}
    | {"tool_returns"}
)
_MESSAGE_FIELDS = {
    "system": frozenset({"role", "text"}),
    "user": frozenset({"role", "text"}),
    "assistant": frozenset({"role", "text", "tool_calls", "reasoning", "wire"}),
    "tool": frozenset({"role", "tool_call_id", "content", "is_error"}),
}
_PART_FIELDS = {"text": frozenset({"type", "text"}), "image": frozenset({"type", "media_type", "data"})}
_EXPECT_FIELDS = frozenset(
    {"text", "reasoning", "deltas", "tool_calls", "finish_reason", "usage", "text_contains", "tool_runs"}
    | {"invalid_calls", "requests", "delays", "error", "if_retries_off", "transcript_roundtrip", "any_of"}
    | {"request_must", "url", "must_not", "note"}
)
_FOR_PEOPLE = frozenset({"must_not", "note"})
_ERROR_FIELDS = frozenset(
    {"kind", "retryable", "partial_text", "retry_after", "message_contains", "message_max_length"}
)
FINISH_REASONS: Final = frozenset({"stop", "tool_calls", "length", "content_filter", "refusal", "error", "unknown"})
ERROR_KINDS: Final = frozenset(
    {"rate_limit", "quota", "overloaded", "server", "connection", "timeout", "truncated_stream", "bad_request"}
    | {"context_length", "auth", "not_found", "invalid_response", "malformed_tool_call", "content_filter", "refusal"}
)


class BadCase(Exception):
    """The case says something that the format does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """A tool as the caller gives it. `parameters` is None for a tool that takes none."""

    name: str
    description: str
    parameters: dict[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What the caller asks. None: the library's own default."""

    stream: bool = False
    prompt: Any = None
    base_url: str | None = None
    model: str = "m"
    max_tokens: int | None = None
    tools: tuple[ToolSpec, ...] | None = None
    options: dict[str, Any] | None = None
    max_retries: int | None = None
    max_turns: int | None = None
    now: float = 1_750_000_000.0
    tool_returns: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the server sends: each of `reads` arrives as one network read. `abort`: then the connection breaks."""

    status: int
    headers: Mapping[str, str]
    reads: tuple[bytes, ...]
    abort: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """An answer to the requests for which `condition`, an assertion, holds. None: to every request."""

    condition: Mapping[str, Any] | None
    answer: Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What the server does: `rules`, or `answers` one after the other and then `end` (`repeat`: the last one again)."""

    answers: tuple[Answer, ...] = ()
    rules: tuple[Rule, ...] = ()
    repeat: bool = False

    @property
    def streams(self) -> bool:
        """Whether some answer is an event stream."""
        answers = (*self.answers, *(rule.answer for rule in self.rules))
        return any(SSE_TYPE in value for answer in answers for value in answer.headers.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
    """One run of a case: who asks whom for what, and what is expected of it. All of `expectations` have to hold."""

    style: str
    ask: Ask
    script: Script
    transcript: tuple[Mapping[str, Any], ...] | None
    expectations: tuple[Mapping[str, Any], ...]


def read(path: Path) -> tuple[Play, ...]:
    """The runs of the case in a file.

    Raises:
        BadCase: It is no case, or says something unknown.
    """
    try:
        return parse(json.loads(path.read_bytes()))
    except ValueError as error:
        raise BadCase(f"{path.name} is no JSON: {error}") from error


def parse(case: Any) -> tuple[Play, ...]:
    """The runs of a case; see `read`."""
    _known(case, _CASE_FIELDS, "case")
    style, given, expect = case.get("style"), case.get("given"), case.get("expect")
    if style not in WIRES:
        raise BadCase(f"the style is {style!r}")
    if case.get("kind") not in _KINDS:
        raise BadCase(f"the kind is {case.get('kind')!r}")
    _known(given, _GIVEN_FIELDS, "given")
    _known(expect, _EXPECT_FIELDS | {"each"}, "expect")
    check_expectation({key: value for key, value in expect.items() if key != "each"}, "expect")
    if len(servers := _SERVERS & given.keys()) > 1:
        raise BadCase(f"given has more than one server: {sorted(servers)}")
    if "abort" in given and not given.keys() & {"response", "sse", "sse_b64"}:
        raise BadCase("given.abort belongs to an answer")
    plays = tuple(_plays(style, given, _ask(given.get("request", {}), given.get("tools"), "given.request")))
    transcript = _transcript(given.get("transcript"))
    built = (
        Play(style=s, ask=a, script=script, transcript=transcript, expectations=expectations)
        for (s, a, script), expectations in zip(plays, _each(expect, len(plays)), strict=True)
    )
    return tuple(_standing(play) if "responses" in given else play for play in built)


def _standing(play: Play) -> Play:
    """An entry of `responses` that has to surface as an error, but may be retried, is what the server says every time:
    said once and then followed by `end`, the library's own retries would hide it."""
    errors = [expect["error"] for expect in play.expectations if expect.get("error")]
    if not errors or any(error.get("retryable") is False for error in errors):
        return play
    return replace(play, script=replace(play.script, repeat=True))


def _plays(style: str, given: Mapping[str, Any], ask: Ask) -> Iterator[tuple[str, Ask, Script]]:
    repeat = _typed(given.get("repeat", False), bool, "given.repeat")
    if "responses" in given:
        for number, entry in enumerate(given["responses"]):
            where = f"given.responses[{number}]"
            _known(entry, _ANSWER | {"response", "request"}, where)
            own = _ask(entry["request"], given.get("tools"), f"{where}.request") if "request" in entry else ask
            answer = _answer({key: value for key, value in entry.items() if key != "request"}, where)
            yield style, own, Script(answers=(answer,), repeat=repeat)
    elif "base_urls" in given:
        for number, entry in enumerate(given["base_urls"]):
            _known(entry, frozenset({"style", "base_url"}), f"given.base_urls[{number}]")
            if entry["style"] not in WIRES:
                raise BadCase(f"given.base_urls[{number}].style is {entry['style']!r}")
            yield entry["style"], replace(ask, base_url=entry["base_url"]), Script()
    else:
        yield style, ask, _script(given, repeat)


def _script(given: Mapping[str, Any], repeat: bool) -> Script:
    if "turns" in given:
        answers = (_answer(entry, f"given.turns[{number}]") for number, entry in enumerate(given["turns"]))
        return Script(answers=tuple(answers), repeat=repeat)
    if "rules" in given:
        return Script(
            rules=tuple(_rule(entry, f"given.rules[{number}]") for number, entry in enumerate(given["rules"]))
        )
    single = {key: given[key] for key in ("response", "sse", "sse_b64", "abort") if key in given}
    return Script(answers=(_answer(single, "given"),), repeat=repeat) if single else Script(repeat=repeat)


def _rule(entry: Mapping[str, Any], where: str) -> Rule:
    _known(entry, _ANSWER | {"response", "if"}, where)
    if "if" in entry:
        _assertion(entry["if"], f"{where}.if")
    return Rule(
        condition=entry.get("if"),
        answer=_answer({key: value for key, value in entry.items() if key != "if"}, where),
    )


def _answer(entry: Mapping[str, Any], where: str) -> Answer:
    if "response" in entry:
        _known(entry, frozenset({"response", "abort"}), where)
        return _answer(
            {**entry["response"], **{k: v for k, v in entry.items() if k != "response"}}, f"{where}.response"
        )
    _known(entry, _ANSWER, where)
    headers = {str(name): str(value) for name, value in entry.get("headers", {}).items()}
    named = {name.lower() for name in headers}
    kind, reads = _body(entry, where)
    if "content-type" not in named:
        headers["content-type"] = kind
    return Answer(
        status=_typed(entry.get("status", 200), int, f"{where}.status"),
        headers=headers,
        reads=tuple(part for part in reads if part),
        abort=_typed(entry.get("abort", False), bool, f"{where}.abort"),
    )


def _body(entry: Mapping[str, Any], where: str) -> tuple[str, list[bytes]]:
    """The content type that an answer has by itself, and its reads."""
    if len(bodies := entry.keys() & {"body", "sse", "sse_b64"}) > 1:
        raise BadCase(f"{where} has more than one body: {sorted(bodies)}")
    if "sse" in entry:
        return SSE_TYPE, [_bytes(text) for text in entry["sse"]]
    if "sse_b64" in entry:
        return SSE_TYPE, [base64.b64decode(text, validate=True) for text in entry["sse_b64"]]
    body = entry.get("body", "")
    if isinstance(body, str):
        return "text/plain", [_bytes(body)]
    return JSON_TYPE, [_bytes(json.dumps(body, ensure_ascii=False))]


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _ask(request: Any, beside: Any, where: str) -> Ask:
    _known(request, _REQUEST_FIELDS, where)
    tools = None if beside is None and "tools" not in request else [*(beside or ()), *request.get("tools", ())]
    values = {key: request[key] for key in _REQUEST_FIELDS - {"tools", "now", "tool_returns"} if key in request}
    if "now" in request:
        values["now"] = _moment(request["now"])
    for name, kind in (("stream", bool), ("max_retries", int), ("max_turns", int), ("max_tokens", int)):
        if name in values:
            _typed(values[name], kind, f"{where}.{name}")
    if isinstance(values.get("prompt"), list):
        check_parts(values["prompt"], f"{where}.prompt")
    return Ask(
        **values,
        tools=None if tools is None else tuple(_tool(tool, f"{where}.tools[{n}]") for n, tool in enumerate(tools)),
        tool_returns={name: _returned(value) for name, value in request.get("tool_returns", {}).items()},
    )


def _tool(tool: Any, where: str) -> ToolSpec:
    _known(tool, frozenset({"name", "description", "parameters"}), where)
    return ToolSpec(name=tool["name"], description=tool.get("description", ""), parameters=tool.get("parameters"))


def _returned(value: Any) -> Any:
    """What a tool returns; JSON cannot write a float NaN, so the corpus writes `$NAN`."""
    if value == "$NAN":
        return math.nan
    if isinstance(value, list):
        return [_returned(item) for item in value]
    return {key: _returned(item) for key, item in value.items()} if isinstance(value, dict) else value


def _moment(value: Any) -> float:
    return datetime.fromisoformat(value).timestamp() if isinstance(value, str) else float(value)


def _transcript(messages: Any) -> tuple[Mapping[str, Any], ...] | None:
    if messages is None:
        return None
    for number, message in enumerate(messages):
        where = f"given.transcript[{number}]"
        if message.get("role") not in _MESSAGE_FIELDS:
            raise BadCase(f"{where}.role is {message.get('role')!r}")
        _known(message, _MESSAGE_FIELDS[message["role"]], where)
        _typed(message.get("reasoning", ""), str, f"{where}.reasoning")
        for call in message.get("tool_calls", ()):
            _known(call, frozenset({"id", "name", "arguments"}), f"{where}.tool_calls")
        if isinstance(message.get("content"), list):
            check_parts(message["content"], f"{where}.content")
    return tuple(messages)


def check_parts(parts: Any, where: str) -> None:
    """See that content parts are texts and images.

    Raises:
        BadCase: They are not.
    """
    for part in parts:
        if part.get("type") not in _PART_FIELDS:
            raise BadCase(f"{where} has a part of type {part.get('type')!r}")
        _known(part, _PART_FIELDS[part["type"]], where)


def check_expectation(expect: Any, where: str) -> None:
    """See that an expectation lists nothing unknown, alternatives included.

    Raises:
        BadCase: It does.
    """
    _known(expect, _EXPECT_FIELDS, where)
    for assertion in expect.get("request_must", ()):
        _assertion(assertion, f"{where}.request_must")
    for number, alternative in enumerate(_alternatives(expect, where)):
        check_expectation(alternative, f"{where}.any_of[{number}]")
    if "if_retries_off" in expect:
        check_expectation(expect["if_retries_off"], f"{where}.if_retries_off")
    for name in ("tool_runs", "tool_calls", "invalid_calls"):
        for call in expect.get(name, ()):
            _known(call, frozenset({"id", "name", "arguments"}), f"{where}.{name}")
    if expect.get("usage") is not None:
        _known(expect["usage"], frozenset({"prompt", "completion", "total"}), f"{where}.usage")
    for bound in (*expect.get("delays", ()), *([expect["requests"]] if "requests" in expect else [])):
        if not is_bound(bound):
            raise BadCase(f"{where} has {bound!r}, which is neither a number nor {{min, max}}")
    _words(expect.get("finish_reason", ()), FINISH_REASONS, f"{where}.finish_reason")
    if expect.get("error") is not None:
        _known(expect["error"], _ERROR_FIELDS, f"{where}.error")
        _words(expect["error"].get("kind", ()), ERROR_KINDS, f"{where}.error.kind")


def _alternatives(expect: Mapping[str, Any], where: str) -> list[Any]:
    alternatives = expect.get("any_of", [])
    if "any_of" in expect and not (alternatives and all(alternatives)):
        raise BadCase(f"{where}.any_of has an alternative that asks for nothing, or none")
    return alternatives


def _each(expect: Mapping[str, Any], plays: int) -> list[tuple[Mapping[str, Any], ...]]:
    """The expectations of every run: what the case lists for all, and the run's own."""
    shared = {key: value for key, value in expect.items() if key != "each"}
    own = expect.get("each", [{}] * plays)
    if len(own) != plays:
        raise BadCase(f"expect.each has {len(own)} entries for {plays} runs")
    for number, expectation in enumerate(own):
        check_expectation(expectation, f"expect.each[{number}]")
        if not (shared.keys() | expectation.keys()) - _FOR_PEOPLE:
            raise BadCase(f"nothing is expected of run {number}")
    return [(shared, expectation) for expectation in own]


def _assertion(assertion: Any, where: str) -> None:
    turn = assertion.get("turn", 1)
    if turn != "last" and (isinstance(turn, bool) or not isinstance(turn, int) or turn < 1):
        raise BadCase(f"{where} has turn {turn!r}")
    try:
        check_form(assertion)
    except (UnknownAssertion, BadPath, ValueError) as error:
        raise BadCase(f"{where}: {error}") from error


def _words(value: Any, known: frozenset[str], where: str) -> None:
    if unknown := set(value if isinstance(value, list | tuple) else [value]) - known:
        raise BadCase(f"{where} has {sorted(map(str, unknown))}")


def _known(value: Any, fields: frozenset[str], where: str) -> None:
    if not isinstance(value, dict):
        raise BadCase(f"{where} is {value!r}, not an object")
    if unknown := value.keys() - fields:
        raise BadCase(f"{where} has the unknown {', '.join(sorted(unknown))}")


def _typed(value: Any, kind: type, where: str) -> Any:
    if type(value) is not kind:
        raise BadCase(f"{where} is {value!r}, not of type {kind.__name__}")
    return value
