"""The corpus runner itself: everything it checks can fail, and what it does not know fails."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from corpus_runner import house_rules
from corpus_runner.assertions import UnknownAssertion, check_form, problems
from corpus_runner.cases import Answer, BadCase, Play, Rule, Script, ToolSpec, parse, read
from corpus_runner.driver import drive
from corpus_runner.expectations import unmet
from corpus_runner.invariants import Body
from corpus_runner.paths import MISSING, BadPath, find
from corpus_runner.server import Seen, Server, serving
from corpus_runner.wires import SSE_TYPE, WIRES

from toolnexus.dialects import DIALECTS
from toolnexus.errors import ToolnexusError

OPENAI, ANTHROPIC = WIRES["openai"], WIRES["anthropic"]

DOCUMENT = {
    "model": "m",
    "n": None,
    "max_tokens": 40,
    "stream": True,
    "system.x": 1,
    "messages": [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": 'say "ok"\nnow'},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "a", "extra": {"k": [{"deep": 1}]}}, {"id": "b"}]},
        {"role": "tool", "tool_call_id": "a", "content": "4"},
        {"role": "tool", "tool_call_id": "b", "content": [{"type": "text", "text": "fünf"}]},
    ],
    "tools": [{"function": {"name": "one"}}, {"function": {"name": "two"}}, {"type": "search"}],
}


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("model", ["m"]),
        ("n", [None]),
        ("nothing", [MISSING]),
        ("model.deeper", [MISSING]),
        ("messages[0].role", ["user"]),
        ("messages[-1].tool_call_id", ["b"]),
        ("messages[-4].role", ["user"]),
        ("messages[4]", [MISSING]),
        ("messages[-5]", [MISSING]),
        ("messages[role=system][0].content", ["be brief"]),
        ("messages[role=tool][1].tool_call_id", ["b"]),
        ("messages[role=tool][*].tool_call_id", ["a", "b"]),
        ("messages[role=nobody]", [[]]),
        ("messages[*].tool_calls[*].id", ["a", "b"]),
        ("tools[*].function.name", ["one", "two", MISSING]),
        ("tools[function.name=two][0].function.name", ["two"]),
        ("messages[role=assistant][0].tool_calls[0].extra.k[0].deep", [1]),
        ("model[*]", []),
        ("model[0]", [MISSING]),
        ("model[a=b]", [MISSING]),
    ],
)
def test_a_path_leads_to_its_values(path: str, values: list[Any]) -> None:
    assert list(find(path, DOCUMENT).values) == values


@pytest.mark.parametrize("path", ["", ".a", "a..b", "a[", "a[]", "a[x]", "a[0]b", "a]", "a."])
def test_what_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(BadPath):
        find(path, DOCUMENT)


def test_numbers_and_booleans_are_selected_by_their_json() -> None:
    document = {"parts": [{"n": 1, "on": True}, {"n": 2, "on": False}, "text"]}

    assert find("parts[n=2]", document).values == ([{"n": 2, "on": False}],)
    assert find("parts[on=true]", document).values == ([{"n": 1, "on": True}],)


OPERATORS: list[tuple[str, str, Any, bool]] = [
    ("model", "equals", "m", True),
    ("model", "equals", "n", False),
    ("stream", "equals", 1, False),
    ("n", "equals", None, True),
    ("nothing", "equals", None, False),
    ("messages[role=tool][*].tool_call_id", "equals", "a", False),
    ("messages[-1].content", "equals", [{"type": "text", "text": "fünf"}], True),
    ("messages[-1].content", "equals", [{"type": "text", "text": "fünf", "more": 1}], False),
    ("messages[-1].content", "equals", [], False),
    ("model", "one_of", ["k", "m"], True),
    ("model", "one_of", ["k"], False),
    ("max_tokens", "type", "integer", True),
    ("max_tokens", "type", "number", True),
    ("max_tokens", "type", "string", False),
    ("stream", "type", "integer", False),
    ("stream", "type", "boolean", True),
    ("n", "type", "null", True),
    ("messages", "type", ["object", "array"], True),
    ("tools[*].function", "type", "object", False),
    ("n", "present", True, True),
    ("nothing", "present", True, False),
    ("nothing", "present", False, True),
    ("tools[*].function", "present", True, True),
    ("tools[*].nothing", "present", True, False),
    ("messages[role=nobody]", "present", True, False),
    ("nothing", "absent", True, True),
    ("n", "absent", True, False),
    ("n", "absent", False, True),
    ("tools[*].nothing", "absent", True, True),
    ("tools[*].function", "absent", True, False),
    ("messages[role=nobody]", "absent", True, True),
    ("messages[role=tool]", "absent", True, False),
    ("messages[role=tool]", "length", 2, True),
    ("messages[role=tool]", "length", 1, False),
    ("messages[role=nobody]", "length", 0, True),
    ("model", "length", {"min": 1, "max": 1}, True),
    ("model", "length", {"min": 2}, False),
    ("max_tokens", "length", 2, False),
    ("model", "matches", "^m$", True),
    ("model", "matches", "^n", False),
    ("max_tokens", "matches", "^40$", True),
    ("messages[-1].content", "matches", '"text": "fünf"', True),
    ("messages[*].tool_calls[*].id", "matches", "^[ab]$", True),
    ("messages[*].tool_calls[*].id", "matches", "^a$", False),
    ("tools[*].function.name", "matches", ".", False),
    ("model[*]", "matches", ".", False),
    ("messages[0].content", "contains", '"ok"', True),
    ("messages[0].content", "contains", '\\"ok\\"\\nnow', True),
    ("messages[0].content", "contains", "no", True),
    ("messages[0].content", "contains", "never", False),
    ("messages[-1].content", "contains", '"type":"text"', True),
    ("messages[-1].content", "contains", "fünf", True),
    ("nothing", "contains", "", False),
    ("messages[0].content", "not_contains", '"ok"', False),
    ("messages[0].content", "not_contains", "never", True),
    ("messages[role=tool][*].content", "not_contains", "4", False),
    ("nothing", "not_contains", "x", True),
    ("messages[role=tool][0].tool_call_id", "same_as", "messages[role=assistant][0].tool_calls[0].id", True),
    ("messages[role=tool][*].tool_call_id", "same_as", "messages[*].tool_calls[*].id", True),
    ("messages[role=tool][0].tool_call_id", "same_as", "messages[role=assistant][0].tool_calls[1].id", False),
    ("nothing", "same_as", "nowhere", False),
    ("messages[role=tool][0].tool_call_id", "differs_from", "messages[role=tool][1].tool_call_id", True),
    ("model", "differs_from", "model", False),
    ("model", "differs_from", "nowhere", False),
    ("tools", "lacks_keys", ["$ref"], True),
    ("messages", "lacks_keys", ["none", "deep"], False),
    ("nothing", "lacks_keys", ["deep"], True),
]


@pytest.mark.parametrize(("path", "operator", "operand", "holds"), OPERATORS)
def test_an_operator_holds_or_not(path: str, operator: str, operand: Any, holds: bool) -> None:
    assertion = {"path": path, operator: operand}

    check_form(assertion)
    assert (problems(assertion, Body(json.dumps(DOCUMENT).encode()), OPENAI) == []) is holds


def test_all_operators_of_an_assertion_have_to_hold() -> None:
    body = Body(json.dumps(DOCUMENT).encode())

    assert problems({"path": "model", "equals": "m", "length": 1}, body, OPENAI) == []
    assert len(problems({"path": "model", "equals": "x", "length": 2}, body, OPENAI)) == 2


@pytest.mark.parametrize(
    "assertion",
    [
        {},
        {"path": "a"},
        {"equals": 1},
        {"path": "a", "is": 1},
        {"path": "a", "equals": 1, "is": 1},
        {"path": "a", "type": "int"},
        {"path": "a", "present": "yes"},
        {"path": "a", "absent": None},
        {"path": "a", "length": "two"},
        {"path": "a", "length": {}},
        {"path": "a", "length": {"least": 2}},
        {"path": "a", "one_of": "abc"},
        {"path": "a", "matches": "("},
        {"path": "a", "lacks_keys": "b"},
        {"path": "a", "same_as": 3},
        {"invariant": "all_is_well"},
        {"invariant": "no_empty_text", "equals": 1},
    ],
)
def test_an_assertion_that_is_not_known_is_refused(assertion: dict[str, Any]) -> None:
    with pytest.raises(UnknownAssertion):
        check_form(assertion)


def asked(*ids: str, arguments: Any = "{}", content: Any = None) -> dict[str, Any]:
    calls = [{"id": id_, "type": "function", "function": {"name": "t", "arguments": arguments}} for id_ in ids]
    return {"role": "assistant", "content": content, "tool_calls": calls}


def told(id_: str, content: Any = "4") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id_, "content": content}


def use(*ids: str, arguments: Any = None) -> dict[str, Any]:
    arguments = {} if arguments is None else arguments
    blocks = [{"type": "tool_use", "id": id_, "name": "t", "input": arguments} for id_ in ids]
    return {"role": "assistant", "content": blocks}


def results(*ids: str, before: tuple[Any, ...] = (), after: tuple[Any, ...] = ()) -> dict[str, Any]:
    blocks = [{"type": "tool_result", "tool_use_id": id_, "content": "4"} for id_ in ids]
    return {"role": "user", "content": [*before, *blocks, *after]}


USER = {"role": "user", "content": "Hi"}
TEXT = {"type": "text", "text": "Well?"}
BLANK = {"type": "text", "text": " "}

MESSAGES: list[tuple[str, str, list[Any], bool]] = [
    ("tool_calls_answered", "openai", [USER, asked("a", "b"), told("b"), told("a"), USER], True),
    ("tool_calls_answered", "openai", [USER, asked("a", "b"), told("a"), USER], False),
    ("tool_calls_answered", "openai", [USER, asked("a"), told("a"), told("a")], False),
    ("tool_calls_answered", "openai", [USER, asked("a"), USER, told("a")], False),
    ("tool_calls_answered", "openai", [USER, asked("a")], False),
    ("tool_calls_answered", "openai", [USER, asked("a"), told("a"), asked("a"), told("a")], True),
    ("tool_calls_answered", "openai", [USER, asked("a"), told("x")], False),
    ("tool_calls_answered", "anthropic", [USER, use("a", "b"), results("a", "b", after=(TEXT,))], True),
    ("tool_calls_answered", "anthropic", [USER, use("a", "b"), results("a"), results("b")], False),
    ("tool_calls_answered", "anthropic", [USER, use("a"), results("a", before=(TEXT,))], False),
    ("tool_calls_answered", "anthropic", [USER, use("a"), USER], False),
    ("tool_results_paired", "openai", [USER, asked("a"), told("a")], True),
    ("tool_results_paired", "openai", [told("a"), USER], False),
    ("tool_results_paired", "openai", [USER, asked("a"), told("a"), USER, told("a")], False),
    ("tool_results_paired", "openai", [USER, asked("a"), told("b")], False),
    ("tool_results_paired", "anthropic", [USER, use("a"), results("a")], True),
    ("tool_results_paired", "anthropic", [results("a")], False),
    ("tool_results_paired", "anthropic", [USER, use("a"), results("a", "b")], False),
    ("arguments_are_json_objects", "openai", [asked("a", arguments='{"x": 1}')], True),
    ("arguments_are_json_objects", "openai", [asked("a", arguments="")], False),
    ("arguments_are_json_objects", "openai", [asked("a", arguments="[]")], False),
    ("arguments_are_json_objects", "openai", [asked("a", arguments='{"x": NaN}')], False),
    ("arguments_are_json_objects", "openai", [asked("a", arguments={"x": 1})], False),
    ("arguments_are_json_objects", "anthropic", [use("a", arguments={"x": 1})], True),
    ("arguments_are_json_objects", "anthropic", [use("a", arguments='{"x": 1}')], False),
    ("no_empty_text", "openai", [USER, asked("a", content=""), told("a", "")], True),
    ("no_empty_text", "openai", [{"role": "user", "content": ""}], False),
    ("no_empty_text", "openai", [{"role": "assistant", "content": None}], False),
    ("no_empty_text", "openai", [{"role": "user", "content": [TEXT, BLANK]}], False),
    ("no_empty_text", "openai", [{"role": "user", "content": []}], False),
    ("no_empty_text", "anthropic", [USER, use("a"), results("a")], True),
    ("no_empty_text", "anthropic", [{"role": "assistant", "content": [BLANK, *use("a")["content"]]}], False),
    ("no_empty_text", "anthropic", [{"role": "assistant", "content": []}], False),
    ("no_empty_text", "anthropic", [{"role": "user", "content": "  "}], False),
    (
        "no_empty_text",
        "anthropic",
        [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": [BLANK]}]}],
        False,
    ),
]


@pytest.mark.parametrize(("invariant", "style", "messages", "holds"), MESSAGES)
def test_an_invariant_on_messages_holds_or_not(invariant: str, style: str, messages: list[Any], holds: bool) -> None:
    body = Body(json.dumps({"messages": messages}).encode())

    assert (problems({"invariant": invariant}, body, WIRES[style]) == []) is holds


@pytest.mark.parametrize(
    ("invariant", "style", "raw", "holds"),
    [
        ("tool_names_distinct", "openai", b'{"tools":[{"function":{"name":"a"}},{"function":{"name":"b"}}]}', True),
        ("tool_names_distinct", "openai", b'{"tools":[{"function":{"name":"a"}},{"function":{"name":"a"}}]}', False),
        ("tool_names_distinct", "anthropic", b'{"tools":[{"name":"a"},{"name":"a"}]}', False),
        ("tool_names_distinct", "anthropic", b"{}", True),
        ("body_is_utf8", "openai", b'{"a":"\xc3\xbc"}', True),
        ("body_is_utf8", "openai", b'{"a":"\xed\xa0\xbd"}', False),
        ("body_is_strict_json", "openai", b'{"a":1}', True),
        ("body_is_strict_json", "openai", b'{"a":NaN}', False),
        ("body_is_strict_json", "openai", b'{"a":-Infinity}', False),
        ("body_is_strict_json", "openai", b'{"a":', False),
    ],
)
def test_an_invariant_on_the_body_holds_or_not(invariant: str, style: str, raw: bytes, holds: bool) -> None:
    assert (problems({"invariant": invariant}, Body(raw), WIRES[style]) == []) is holds


def test_the_house_rules_find_what_was_lost_or_made_up() -> None:
    calls = [{"id": "a", "name": "t", "arguments": {}}]
    given = [{"role": "user", "text": "Hi"}, {"role": "assistant", "text": "", "tool_calls": calls}]
    kept = [USER, asked("a"), {**told("a"), "is_error": True}]

    assert house_rules.of_transcripts(given, kept) == []  # type: ignore[arg-type]
    for broken in (kept[1:], [USER, asked("x"), kept[2]], [USER, asked("a"), told("a")]):
        assert len(house_rules.of_transcripts(given, broken)) == 1  # type: ignore[arg-type]


def test_the_house_rules_look_at_every_request() -> None:
    good, bad = ({"messages": messages} for messages in ([USER], [told("a")]))
    seen = [
        Seen(target="/", headers={}, body=Body(json.dumps(body).encode()), listed=True) for body in (good, bad, good)
    ]

    assert [problem.partition(" breaks ")[0] for problem in house_rules.of_requests(seen, OPENAI)] == ["request 2"]


def test_the_house_rules_find_a_call_that_ran_twice_and_a_key_that_is_shown() -> None:
    assert house_rules.of_runs([(0, 0), (0, 1), (1, 0)]) == []
    assert len(house_rules.of_runs([(0, 0), (0, 1), (0, 0)])) == 1
    assert house_rules.of_errors(ToolnexusError("no"), "canary") == []
    assert len(house_rules.of_errors(ToolnexusError("no canary"), "canary")) == 1


def case(**changes: Any) -> dict[str, Any]:
    """A small case that is right; a change is a path to a value, with `__` between the keys."""
    built: dict[str, Any] = {
        "id": "c",
        "title": "t",
        "style": "openai",
        "kind": "json",
        "source": "s",
        "given": {
            "request": {"prompt": "Hi"},
            "response": {"status": 200, "headers": {}, "body": openai_reply("Ahoy.")},
        },
        "expect": {"text": "Ahoy."},
        "why": "w",
    }
    for path, value in changes.items():
        *above, last = path.split("__")
        target = built
        for key in above:
            target = target.setdefault(key, {})
        target[last] = value
    return built


def openai_reply(text: str | None, *calls: tuple[str, str, str], finish: str = "stop") -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = [
            {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}
            for id_, name, arguments in calls
        ]
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    choice = {"index": 0, "message": message, "finish_reason": finish}
    return {"id": "cmp-1", "object": "chat.completion", "model": "m", "choices": [choice], "usage": usage}


def answers(*bodies: Any) -> list[dict[str, Any]]:
    return [{"status": 200, "headers": {"content-type": "application/json"}, "body": body} for body in bodies]


USER_TURN = {"role": "user", "text": "Hi"}


@pytest.mark.parametrize(
    "changes",
    [
        {"colour": "red"},
        {"kind": "soap"},
        {"style": "telepathy"},
        {"given__colour": "red"},
        {"given__request__colour": "red"},
        {"given__request__tools": [{"name": "t", "schema": {}}]},
        {"given__request__stream": "yes"},
        {"given__request__max_retries": "2"},
        {"given__response__colour": "red"},
        {"given__response__status": "200"},
        {"given__turns": []},
        {"given__transcript": [{"role": "ghost", "text": "boo"}]},
        {"given__transcript": [{"role": "user", "content": "Hi"}]},
        {"given__transcript": [{"role": "user", "text": "Hi", "colour": "red"}]},
        {"given__transcript": [{"role": "tool", "tool_call_id": "a", "content": [{"type": "video"}]}]},
        {"given__transcript": [{"role": "assistant", "text": "", "tool_calls": [{"id": "a", "input": {}}]}]},
        {"expect": {}},
        {"expect": {"note": "nothing to see"}},
        {"expect__colour": "red"},
        {"expect__finish_reason": "bored"},
        {"expect__error": {"kind": "sad"}},
        {"expect__error": {"kind": ["server", "sad"]}},
        {"expect__error": {"colour": "red"}},
        {"expect__usage": {"input": 1}},
        {"expect__requests": {"most": 1}},
        {"expect__requests": "1"},
        {"expect__delays": ["1"]},
        {"expect__tool_runs": [{"tool": "t"}]},
        {"expect__tool_calls": [{"name": "t", "input": {}}]},
        {"expect__any_of": []},
        {"expect__any_of": [{"text": "a"}, {"colour": "red"}]},
        {"expect__any_of": [{"text": "a"}, {}]},
        {"expect__if_retries_off": {"colour": "red"}},
        {"expect__each": [{"colour": "red"}]},
        {"expect__each": [{"text": "a"}, {"text": "b"}]},
        {"expect__request_must": [{"path": "a", "is": 1}]},
        {"expect__request_must": [{"path": "a", "equals": 1, "turn": "first"}]},
        {"expect__request_must": [{"path": "a", "equals": 1, "turn": 0}]},
        {"expect__request_must": [{"path": "a[", "equals": 1}]},
    ],
    ids=lambda changes: json.dumps(changes)[:60],
)
def test_a_case_with_something_unknown_fails(changes: dict[str, Any]) -> None:
    assert parse(case())
    with pytest.raises(BadCase):
        parse(case(**changes))


@pytest.mark.parametrize(
    "given",
    [
        {"rules": [{"when": {}, "status": 200}]},
        {"rules": [{"if": {"path": "a", "is": 1}, "status": 200}]},
        {"responses": [{"status": 200, "colour": "red"}]},
        {"responses": [{"request": {"colour": "red"}, "status": 200}]},
        {"turns": [{"sse": [], "body": ""}]},
        {"turns": [{"status": 200}], "abort": True},
        {"responses": [{"status": 200}], "abort": True},
        {"base_urls": [{"style": "openai", "base_url": "https://a.test", "colour": "red"}]},
        {"base_urls": [{"style": "telepathy", "base_url": "https://a.test"}]},
        {"sse": ["data: {}\n\n"], "sse_b64": []},
    ],
    ids=lambda given: json.dumps(given)[:60],
)
def test_a_server_with_something_unknown_fails(given: dict[str, Any]) -> None:
    with pytest.raises(BadCase):
        parse(case(given=given))


def test_every_style_that_is_built_has_a_wire() -> None:
    assert WIRES.keys() == DIALECTS.keys()


def test_a_file_that_is_no_json_fails(tmp_path: Path) -> None:
    path = tmp_path / "case.json"
    path.write_text("{", encoding="utf-8")

    with pytest.raises(BadCase, match=r"case\.json"):
        read(path)


def answer(*reads: bytes, abort: bool = False, status: int = 200) -> Answer:
    return Answer(status=status, headers={"content-type": SSE_TYPE}, reads=reads, abort=abort)


async def post(server: Server, body: Any, target: str = "/v1") -> list[bytes]:
    """What arrives, read by read, until the server has said its last word."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    raw = json.dumps(body).encode()
    head = b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (target.encode(), len(raw))
    writer.write(head + raw)
    reads: list[bytes] = []
    while (read := await reader.read(65536)) and not b"".join([*reads, read]).endswith(b"\r\n0\r\n\r\n"):
        reads.append(read)
    writer.close()
    return [*reads, read]


@pytest.mark.parametrize(("cut", "parts"), [(None, [b"\xc5", b"\x81data: 1"]), (3, [b"\xc5\x81d", b"ata", b": 1"])])
async def test_each_listed_read_arrives_alone(cut: int | None, parts: list[bytes]) -> None:
    async with serving(Server(OPENAI, Script(answers=(answer(b"\xc5", b"\x81data: 1"),)), cut=cut)) as server:
        head, *reads = await post(server, {})

    assert head.startswith(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n")
    assert reads == [*(b"%x\r\n%b\r\n" % (len(part), part) for part in parts), b"0\r\n\r\n"]


async def test_an_aborted_answer_has_no_end() -> None:
    async with serving(Server(OPENAI, Script(answers=(answer(b"one", abort=True),)))) as server:
        *_, part, last = await post(server, {})

    assert (part, last) == (b"3\r\none\r\n", b"")


@pytest.mark.parametrize("style", sorted(WIRES))
@pytest.mark.parametrize("stream", [True, False])
async def test_after_the_listed_answers_comes_the_end_in_the_form_asked_for(style: str, stream: bool) -> None:
    async with serving(Server(WIRES[style], Script(answers=(answer(b"one"),)))) as server:
        await post(server, {})
        target = "/v1/models/m:streamGenerateContent?alt=sse" if stream else "/v1/models/m:generateContent"
        head, *_ = said = await post(server, {"stream": stream}, target)

    assert (SSE_TYPE.encode() in head) is stream
    assert WIRES[style].end[stream] in b"".join(said)
    assert [seen.listed for seen in server.seen] == [True, False]


async def test_the_last_answer_is_repeated_if_asked_for() -> None:
    async with serving(Server(OPENAI, Script(answers=(answer(b"one"), answer(b"two")), repeat=True))) as server:
        said = [b"".join(await post(server, {})) for _ in range(3)]

    assert [b"two" in text for text in said] == [False, True, True]


async def test_the_first_rule_that_holds_answers() -> None:
    rules = (
        Rule(condition={"path": "max_tokens", "present": True}, answer=answer(b"limited")),
        Rule(condition=None, answer=answer(b"free")),
    )
    async with serving(Server(OPENAI, Script(rules=rules))) as server:
        said = [b"".join(await post(server, body)) for body in ({"max_tokens": 1}, {}, {"max_tokens": 2})]

    assert [b"limited" in text for text in said] == [True, False, True]


@pytest.mark.parametrize("descriptions", [("first", "second"), ("same", "same")])
async def test_an_answer_can_use_the_name_of_the_wire(descriptions: tuple[str, str]) -> None:
    tools = tuple(
        ToolSpec(name=name, description=text, parameters=None)
        for name, text in zip(("a.b", "c d"), descriptions, strict=True)
    )
    offered = [
        {"function": {"name": name, "description": text}}
        for name, text in zip(("a_b", "c_d"), descriptions, strict=True)
    ]
    async with serving(Server(OPENAI, Script(answers=(answer(b"$WIRE_NAME(c d)"),)), tools=tools)) as server:
        said = b"".join(await post(server, {"tools": offered}))

    assert b"\r\nc_d\r\n" in said


TOOLS = [
    {"name": "add", "description": "Adds", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}
]
SSE = [
    "data: " + json.dumps({"model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}) + "\n\n"
    for delta, finish in (({"content": "Aho"}, None), ({"content": "y."}, None), ({}, "stop"))
]
BUSY = {"status": 429, "headers": {"retry-after": "2"}, "body": {"error": {"message": "busy", "code": "429"}}}

TALK = case(given__request__tools=TOOLS, given__request__tool_returns={"add": [4, 5]})
TALK["given"]["turns"] = answers(
    openai_reply(None, ("c1", "add", '{"a": 2}'), ("c2", "sub", "{}"), finish="tool_calls"),
    openai_reply("Four.", ("c3", "add", '{"a": 3}')),
)
del TALK["given"]["response"]
STREAM = case(kind="sse", given={"request": {"stream": True}, "sse": SSE})
FAILING = case(given={"request": {"max_retries": 0}, "response": BUSY, "repeat": True})
CUT = case(kind="sse", given={"request": {"stream": True, "max_retries": 0}, "sse": SSE[:2], "abort": True})
RETRIED = case(given={"turns": [BUSY, *answers(openai_reply("Ahoy."))]})

EXPECTATIONS: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    (TALK, {"text": "Four."}, {"text": "end"}),
    (TALK, {"text_contains": "en"}, {"text_contains": "never"}),
    (TALK, {"finish_reason": ["tool_calls", "stop"]}, {"finish_reason": ["length", "error"]}),
    (TALK, {"usage": {"prompt": 10, "total": 15}}, {"usage": {"prompt": 20}}),
    (TALK, {"usage": {"completion": 5}}, {"usage": None}),
    (STREAM, {"usage": None}, {"usage": {"prompt": 0}}),
    (
        TALK,
        {"tool_runs": [{"name": "add", "arguments": {"a": 2}}, {"name": "add", "arguments": {"a": 3}}]},
        {"tool_runs": [{"name": "add", "arguments": {"a": 3}}, {"name": "add", "arguments": {"a": 2}}]},
    ),
    (TALK, {"tool_runs": [{"id": "c1"}, {"id": "c3"}]}, {"tool_runs": [{"id": "c1"}]}),
    (
        TALK,
        {"tool_calls": [{"id": "c3", "name": "add", "arguments": {"a": 3}}]},
        {"tool_calls": [{"id": "c3", "name": "add", "arguments": {"a": 4}}]},
    ),
    (TALK, {"tool_calls": [{"name": "add"}]}, {"tool_calls": []}),
    (TALK, {"invalid_calls": [{"id": "c2", "name": "sub"}]}, {"invalid_calls": [{"id": "c1", "name": "add"}]}),
    (TALK, {"requests": 3}, {"requests": 2}),
    (TALK, {"requests": {"max": 3}}, {"requests": {"max": 2}}),
    (TALK, {"error": None}, {"error": {"kind": "server"}}),
    (
        TALK,
        {"request_must": [{"turn": 2, "path": "messages[role=tool]", "length": 2}]},
        {"request_must": [{"turn": 2, "path": "messages[role=tool]", "length": 1}]},
    ),
    (
        TALK,
        {"request_must": [{"turn": 2, "path": "messages[role=tool][0].content", "equals": "4"}]},
        {"request_must": [{"turn": 4, "path": "messages", "present": True}]},
    ),
    (
        TALK,
        {"request_must": [{"path": "messages[-1].content", "equals": "5"}]},
        {"request_must": [{"path": "messages[-1].content", "equals": "4"}]},
    ),
    (TALK, {"any_of": [{"text": "no"}, {"text": "Four."}]}, {"any_of": [{"text": "no"}, {"requests": 1}]}),
    (STREAM, {"deltas": ["Aho", "y."]}, {"deltas": ["Ahoy."]}),
    (FAILING, {"error": {"kind": "rate_limit", "retryable": True}}, {"error": None}),
    (FAILING, {"error": {"kind": ["quota", "rate_limit"]}}, {"error": {"kind": ["quota"]}}),
    (FAILING, {"error": {"retryable": True}}, {"error": {"retryable": False}}),
    (FAILING, {"error": {"retry_after": 2}}, {"error": {"retry_after": 1}}),
    (FAILING, {"error": {"message_contains": "busy"}}, {"error": {"message_contains": "idle"}}),
    (FAILING, {"error": {"message_max_length": 1000}}, {"error": {"message_max_length": 5}}),
    (FAILING, {"requests": 1}, {"requests": 2}),
    (CUT, {"error": {"partial_text": "Ahoy."}}, {"error": {"partial_text": "Aho"}}),
    (CUT, {"text": "Ahoy.", "deltas": ["Aho", "y."]}, {"text": ""}),
    (RETRIED, {"delays": [2]}, {"delays": [1]}),
    (RETRIED, {"delays": [{"min": 2, "max": 2}]}, {"delays": [{"max": 1}]}),
    (RETRIED, {"delays": [2]}, {"delays": [2, 2]}),
    (
        RETRIED,
        {"error": None, "if_retries_off": {"error": {"kind": "rate_limit"}}},
        {"error": None, "if_retries_off": {"error": None}},
    ),
]


async def judged(built: dict[str, Any], expect: dict[str, Any]) -> list[str]:
    built = copy.deepcopy(built)
    built["expect"] = expect
    (play,) = parse(built)
    off = await drive(play, retries=0) if "if_retries_off" in expect else None
    outcome = await drive(play)
    assert (outcome.broken_rules, outcome.roundtrip) == ((), ())
    return unmet(expect, outcome, off)


@pytest.mark.parametrize(("built", "met", "missed"), EXPECTATIONS, ids=lambda value: next(iter(value)))
async def test_an_expectation_is_met_or_missed(
    built: dict[str, Any], met: dict[str, Any], missed: dict[str, Any]
) -> None:
    assert await judged(built, met) == []
    assert await judged(built, missed) != []


async def test_each_run_has_its_own_expectation() -> None:
    first, second = answers(openai_reply("One."), openai_reply("Two."))
    built = case(given={"responses": [first, {**second, "request": {"prompt": "Two?"}}]})
    built["expect"] = {"requests": 1, "each": [{"text": "One."}, {"text": "Three."}]}

    one, two = parse(built)

    assert [unmet(expect, await drive(one)) for expect in one.expectations] == [[], []]
    shared, own = [unmet(expect, await drive(two)) for expect in two.expectations]
    assert (shared, len(own)) == ([], 1)
    assert (await drive(two)).seen[0].body.json["messages"][-1]["content"] == "Two?"


@pytest.mark.parametrize(("error", "requests"), [({"kind": "rate_limit"}, 3), (None, 2)])
async def test_an_error_that_has_to_surface_is_not_hidden_by_retries(error: Any, requests: int) -> None:
    (play,) = parse(case(given={"responses": [BUSY]}, expect={"each": [{"error": error}]}))

    outcome = await drive(play)

    assert [unmet(expect, outcome) for expect in play.expectations] == [[], []]
    assert len(outcome.seen) == requests


async def test_the_url_is_what_the_client_called() -> None:
    urls = [{"style": "openai", "base_url": "https://a.test:8443/x?v=1"}]
    (play,) = parse(case(given={"base_urls": urls}, expect={"each": [{"url": "u"}]}))

    outcome = await drive(play)

    assert unmet({"url": "https://a.test:8443/x/chat/completions?v=1"}, outcome) == []
    assert unmet({"url": "https://a.test/x/chat/completions?v=1"}, outcome)
    assert unmet({"url": "https://a.test:8443/chat/completions"}, outcome)


def transcript(*turns: dict[str, Any], **request: Any) -> Play:
    (play,) = parse(case(kind="transcript", given={"transcript": list(turns), "request": request}))
    return play


async def test_a_transcript_that_waits_for_an_answer_is_sent_as_it_is() -> None:
    outcome = await drive(transcript({"role": "system", "text": "Short."}, USER_TURN))

    assert outcome.seen[0].body.json["messages"] == [{"role": "system", "content": "Short."}, USER]


async def test_a_transcript_that_was_answered_is_continued_with_the_prompt() -> None:
    said = {"role": "assistant", "text": "Ahoy.", "tool_calls": []}

    for request, prompt in (({}, "Hi"), ({"prompt": "And?"}, "And?")):
        outcome = await drive(transcript(USER_TURN, said, **request))
        assert outcome.seen[0].body.json["messages"][-1] == {"role": "user", "content": prompt}


@pytest.mark.parametrize(
    ("wire", "kept"),
    [("https://gw.example.test/v1", True), ("https://other.example.test/v1", False), ("anthropic", False)],
)
async def test_reasoning_of_a_wire_is_stored_as_that_wire_left_it(wire: str, kept: bool) -> None:
    calls = [{"id": "toolu_1", "name": "t", "arguments": {"a": 1}}]
    thought = {"role": "assistant", "text": "", "reasoning": "Hm.", "tool_calls": calls, "wire": wire}
    result = {"role": "tool", "tool_call_id": "toolu_1", "content": [{"type": "text", "text": "4"}]}

    outcome = await drive(transcript(USER_TURN, thought, result))

    assert ("Hm." in outcome.seen[0].body.raw.decode()) is kept
    assert outcome.broken_rules == ()


async def test_tools_return_nan_where_the_case_says_so() -> None:
    built = copy.deepcopy(TALK)
    built["given"]["request"]["tool_returns"] = {"add": {"x": "$NAN"}}
    (play,) = parse(built)

    outcome = await drive(play)

    assert [run.name for run in outcome.tool_runs] == ["add", "add"]
    assert "NaN" in outcome.seen[1].body.json["messages"][2]["content"]
    assert outcome.broken_rules == ()


async def test_a_conversation_that_changes_when_it_is_stored_misses_the_roundtrip() -> None:
    (play,) = parse(TALK)
    outcome = await drive(play)

    assert unmet({"transcript_roundtrip": True}, outcome) == []
    assert unmet({"transcript_roundtrip": True}, dataclasses.replace(outcome, roundtrip=("lost a turn",))) != []


def test_folders_of_the_environment_are_run_in_place_of_ours(tmp_path: Path) -> None:
    cases = {"good": STREAM, "wrong": case(expect={"text": "Never."})}
    for name, built in {**cases, "strange": case(style="telepathy")}.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(built), encoding="utf-8")

    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            "-rA",
            str(Path(__file__).with_name("test_corpus.py")),
        ],
        env={**os.environ, "TOOLNEXUS_CORPUS": str(tmp_path)},
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
        check=False,
    )

    for outcome, name in (("PASSED", "good"), ("FAILED", "wrong"), ("FAILED", "strange")):
        assert f"{outcome} tests/test_corpus.py::test_a_case_holds[{name}]" in ran.stdout
    assert "2 failed, 5 passed in" in ran.stdout


async def test_reads_of_any_size_bring_the_same() -> None:
    (play,) = parse(STREAM)
    expect: dict[str, Any] = {"text": "Ahoy.", "deltas": ["Aho", "y."], "error": None}
    sizes: list[int | None] = [None, 1, 7, 64]

    assert [unmet(expect, await drive(play, cut=size)) for size in sizes] == [[]] * 4
