from __future__ import annotations

import json
import re
from copy import deepcopy
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import (
    arguments,
    broken_transcripts,
    contents,
    ids,
    image_parts,
    json_values,
    names,
    text_parts,
    texts,
    transcripts,
)

from toolnexus.errors import ConfigurationError, InvalidTranscript
from toolnexus.messages import (
    INTERRUPTED,
    Report,
    clean,
    clean_text,
    copy_messages,
    normalise,
    prompt_message,
    read_arguments,
    repair,
    sendable_arguments,
    text_of,
)

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
THINKING = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}


def user(content: Any = "Hi") -> dict[str, Any]:
    return {"role": "user", "content": content}


def call(call_id: str, name: str = "add", arguments: str = "{}") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def asks(*call_ids: str, **rest: Any) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [call(call_id) for call_id in call_ids], **rest}


def result(call_id: str, content: Any = "4", **rest: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content, **rest}


def closed(call_id: str) -> dict[str, Any]:
    return result(call_id, INTERRUPTED, is_error=True)


def assert_can_be_sent(messages: list[Any]) -> None:
    """The rules that all providers share: each call has one result, right after it, in call order; no other results."""
    expected: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            assert expected, "a result without a call"
            assert message["tool_call_id"] == expected.pop(0)
        else:
            assert not expected, "a call without a result"
            calls = message.get("tool_calls", []) if message["role"] == "assistant" else []
            expected = [call["id"] for call in calls]
            assert all(isinstance(json.loads(call["function"]["arguments"]), dict) for call in calls)
    assert not expected, "a call without a result"


# What is normal already


@given(transcripts())
def test_a_normal_transcript_is_read_as_an_equal_copy(transcript: list[Any]) -> None:
    before = deepcopy(transcript)

    read = normalise(transcript)
    assert read == before

    for message in read:
        wreck(message)
    assert transcript == before


@given(transcripts())
def test_a_mapping_of_any_kind_is_read_like_a_dict(transcript: list[Any]) -> None:
    assert normalise(MappingProxyType(message) for message in transcript) == transcript


@given(transcripts())
def test_a_copy_shares_nothing_with_the_original(transcript: list[Any]) -> None:
    before = deepcopy(transcript)

    copied = copy_messages(transcript)
    assert copied == before

    for message in copied:
        wreck(message)
    assert transcript == before


def wreck(value: Any) -> None:
    """Change everything that can be changed in `value`."""
    if isinstance(value, dict | list):
        for item in list(value.values() if isinstance(value, dict) else value):
            wreck(item)
        value.clear()


def test_unknown_keys_are_kept_wherever_they_stand() -> None:
    transcript = [
        user() | {"at": [1, {"b": None}]},
        asks() | {"tool_calls": [{**call("c1"), "index": 0, "function": {"name": "f", "arguments": "{}", "x": 1}}]},
        result("c1", name="f"),
        {"role": "assistant", "content": [{"type": "text", "text": "ok", "annotations": []}], "refusal": None},
    ]

    assert normalise(transcript) == transcript


# Foreign shapes: what is read, and what it becomes

FOREIGN: dict[str, tuple[list[Any], list[Any]]] = {
    "anthropic: results come before what else the user said": (
        [
            user(),
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "Looking."},
                    {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 2, "b": ["é"]}},
                    {"type": "tool_use", "id": "t2", "name": "now", "input": {}},
                ],
            },
            user(
                [
                    {"type": "text", "text": "And?"},
                    {"type": "tool_result", "tool_use_id": "t1", "content": "4"},
                    {"type": "tool_result", "tool_use_id": "t2", "is_error": True},
                ]
            ),
        ],
        [
            user(),
            {
                "role": "assistant",
                "content": "Looking.",
                "tool_calls": [call("t1", "add", '{"a":2,"b":["é"]}'), call("t2", "now")],
            },
            result("t1", "4"),
            result("t2", "", is_error=True),
            user("And?"),
        ],
    ),
    "anthropic: only results": (
        [
            asks("t1"),
            user(
                [
                    {
                        "type": "tool_result",
                        "tool_use_id": "t1",
                        "content": [{"type": "text", "text": "4"}],
                        "cache_control": {"type": "ephemeral"},
                    }
                ]
            )
            | {"at": 7},
        ],
        [asks("t1"), result("t1", "4", cache_control={"type": "ephemeral"}, at=7)],
    ),
    "anthropic: a result with an image": (
        [
            asks("t1"),
            user(
                [
                    {
                        "type": "tool_result",
                        "tool_use_id": "t1",
                        "content": [
                            {"type": "text", "text": "cam"},
                            {
                                "type": "image",
                                "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"},
                            },
                        ],
                    }
                ]
            ),
        ],
        [asks("t1"), result("t1", [{"type": "text", "text": "cam"}, IMAGE])],
    ),
    "anthropic: an image by its address": (
        [user([{"type": "image", "source": {"type": "url", "url": "https://e.org/a.png"}}])],
        [user([{"type": "image_url", "image_url": {"url": "https://e.org/a.png"}}])],
    ),
    "anthropic: thinking is kept verbatim": (
        [
            {
                "role": "assistant",
                "content": [
                    THINKING,
                    {"type": "redacted_thinking", "data": "eA=="},
                    {"type": "text", "text": "Yes."},
                    {"type": "tool_use", "id": "t1", "name": "add", "input": {}},
                ],
            },
            result("t1"),
        ],
        [
            {
                "role": "assistant",
                "content": "Yes.",
                "tool_calls": [call("t1")],
                "native": {
                    "content": [
                        THINKING,
                        {"type": "redacted_thinking", "data": "eA=="},
                        {"type": "text", "text": "Yes."},
                        {"type": "tool_use", "id": "t1", "name": "add", "input": {}},
                    ]
                },
            },
            result("t1"),
        ],
    ),
    "anthropic: a search that the provider ran is no call of ours": (
        [
            {
                "role": "assistant",
                "content": [
                    {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}},
                    {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []},
                ],
            }
        ],
        [
            {
                "role": "assistant",
                "native": {
                    "content": [
                        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}},
                        {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []},
                    ]
                },
            }
        ],
    ),
    "anthropic: blocks beside calls that name the same": (
        [asks("t1") | {"content": [{"type": "tool_use", "id": "t1", "name": "add", "input": {}}]}, result("t1")],
        [asks("t1"), result("t1")],
    ),
    "an image with its media type": (
        [user([{"type": "image", "media_type": "image/png", "data": "AAAA"}])],
        [user([IMAGE])],
    ),
    "an image as MCP has it": (
        [asks("c1"), result("c1", [{"type": "image", "mimeType": "image/png", "data": "AAAA"}])],
        [asks("c1"), result("c1", [IMAGE])],
    ),
    "an image that is only an address": (
        [user([{"type": "image_url", "image_url": "https://e.org/a.png"}])],
        [user([{"type": "image_url", "image_url": {"url": "https://e.org/a.png"}}])],
    ),
    "plain texts as parts": (
        [user(("a", "b"))],
        [user([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])],
    ),
    "the developer role": (
        [{"role": "developer", "content": "Be brief."}],
        [{"role": "system", "content": "Be brief."}],
    ),
    "no role: a reply": ([{"content": "noted"}], [{"role": "assistant", "content": "noted"}]),
    "no role: calls": (
        [
            {"role": None, "content": None, "tool_calls": [call("c1")]},
            {"role": "", "tool_call_id": "c1", "content": "4"},
        ],
        [asks("c1"), result("c1")],
    ),
    "arguments as an object": (
        [asks() | {"tool_calls": [{"id": "c1", "function": {"name": "add", "arguments": {"a": 2}}}]}, result("c1")],
        [asks() | {"tool_calls": [call("c1", "add", '{"a":2}')]}, result("c1")],
    ),
    "a call without arguments": (
        [asks() | {"tool_calls": [{"id": "c1", "type": None, "function": {"name": "add"}}]}, result("c1")],
        [asks("c1"), result("c1")],
    ),
    "a call as hands write it": (
        [asks() | {"tool_calls": [{"id": "c1", "name": "add", "arguments": {"a": 2}}]}, result("c1")],
        [asks() | {"tool_calls": [call("c1", "add", '{"a":2}')]}, result("c1")],
    ),
    "no content": (
        [user(None), {"role": "system"}, {"role": "assistant", "content": None}, asks("c1"), result("c1", None)],
        [user(""), {"role": "system", "content": ""}, {"role": "assistant"}, asks("c1"), result("c1", "")],
    ),
    "an empty list of calls": (
        [{"role": "assistant", "content": "10:05.", "tool_calls": []}],
        [{"role": "assistant", "content": "10:05."}],
    ),
    "no calls at all": (
        [{"role": "assistant", "content": "Hi", "tool_calls": None, "function_call": None, "origin": None}],
        [{"role": "assistant", "content": "Hi"}],
    ),
    "the old function call": (
        [
            user(),
            {"role": "assistant", "content": None, "function_call": {"name": "add", "arguments": '{"a": 2}'}},
            {"role": "function", "name": "add", "content": "4"},
        ],
        [
            user(),
            asks() | {"tool_calls": [call("call_1_0", "add", '{"a": 2}')]},
            result("call_1_0", "4", name="add"),
        ],
    ),
    "missing ids": (
        [
            asks("", "") | {"content": "a"},
            {"role": "tool", "content": "1"},
            result("", "2"),
            asks() | {"tool_calls": [{"function": {"name": "add", "arguments": "{}"}}]},
            {"role": "tool", "content": "3"},
        ],
        [
            asks("call_0_0", "call_0_1") | {"content": "a"},
            result("call_0_0", "1"),
            result("call_0_1", "2"),
            asks("call_3_0"),
            result("call_3_0", "3"),
        ],
    ),
    "a result without an id where nothing was called": (
        [{"role": "tool", "content": "1"}, user(), {"role": "tool", "content": "2"}],
        [result("call_0", "1"), user(), result("call_2", "2")],
    ),
    "no verdict on a result": ([asks("c1"), result("c1", is_error=None)], [asks("c1"), result("c1")]),
    "half a surrogate pair anywhere": (
        [
            user("a\ud83d") | {"k\ud83d": ["\ud83d"]},
            asks("c\ud83d", content="\ud83d\ude00"),
            result("c\ud83d", "\ude00"),
        ],
        [user("a\ufffd") | {"k\ufffd": ["\ufffd"]}, asks("c\ufffd", content="😀"), result("c\ufffd", "\ufffd")],
    ),
}


@pytest.mark.parametrize(("foreign", "ours"), FOREIGN.values(), ids=FOREIGN)
def test_a_foreign_shape_is_read_once_and_for_all(foreign: list[Any], ours: list[Any]) -> None:
    before = deepcopy(foreign)

    assert normalise(foreign) == ours
    assert normalise(ours) == ours
    assert foreign == before


def test_native_blocks_that_are_there_are_not_replaced() -> None:
    message = {"role": "assistant", "content": [THINKING, {"type": "text", "text": "a"}], "native": {"content": [1]}}

    assert normalise([message]) == [{"role": "assistant", "content": "a", "native": {"content": [1]}}]


# What cannot be read

UNREADABLE: dict[str, tuple[Any, str]] = {
    "no list": ("Hi", r"^messages is of the type str; expected a list of messages\.$"),
    "one message": (user(), r"^messages is of the type dict; expected a list"),
    "nothing": (None, r"^messages is missing; expected a list"),
    "no object": ([user(), 7], r"^messages\[1\] is of the type int; expected an object"),
    "an unknown role": ([{"role": "model", "content": "a"}], r"^messages\[0\]\.role is 'model'; expected system, user"),
    "a role of another type": ([{"role": [], "content": "a"}], r"^messages\[0\]\.role is of the type list; expected"),
    "an empty message": ([{}], r"^messages\[0\] has no role and no content"),
    "content of another type": ([user(7)], r"^messages\[0\]\.content is of the type int; expected text or a list"),
    "a reply of another type": ([{"role": "assistant", "content": {}}], r"^messages\[0\]\.content is of the type dict"),
    "an unknown part": (
        [user(["a", {"type": "video"}])],
        r"^messages\[0\]\.content\[1\] is a part of the type 'video'",
    ),
    "a part without a type": ([user([{"text": "a"}])], r"^messages\[0\]\.content\[0\] is of the type dict"),
    "a block without a type": (
        [{"role": "assistant", "content": [3]}],
        r"^messages\[0\]\.content\[0\] is of the type int; expected a content part",
    ),
    "text that is none": (
        [user([{"type": "text"}])],
        r"^messages\[0\]\.content\[0\]\.text is missing; expected a text",
    ),
    "an image without address": (
        [user([{"type": "image_url", "image_url": {}}])],
        r"^messages\[0\]\.content\[0\]\.image_url is of the type dict; expected \{'url'",
    ),
    "an image without data": (
        [user([{"type": "image", "source": {"type": "file", "file_id": "f"}}])],
        r"^messages\[0\]\.content\[0\] is a part of the type 'file'; expected an image with a url",
    ),
    "a part of a result": (
        [user([{"type": "tool_result", "tool_use_id": "t", "content": [{"type": "document"}]}])],
        r"^messages\[0\]\.content\[0\]\.content\[0\] is a part of the type 'document'",
    ),
    "calls that are no list": ([asks() | {"tool_calls": {}}], r"^messages\[0\]\.tool_calls is of the type dict"),
    "a call that is no object": (
        [asks() | {"tool_calls": ["a"]}],
        r"^messages\[0\]\.tool_calls\[0\] is of the type str",
    ),
    "a call of another type": (
        [asks() | {"tool_calls": [{"id": "c", "type": "custom", "function": {"name": "a"}}]}],
        r"^messages\[0\]\.tool_calls\[0\] is a part of the type 'custom'; expected a call of the type 'function'",
    ),
    "a call without a function": (
        [asks() | {"tool_calls": [{"id": "c", "function": "add"}]}],
        r"^messages\[0\]\.tool_calls\[0\]\.function is of the type str",
    ),
    "a call without a name": (
        [asks() | {"tool_calls": [{"id": "c"}]}],
        r"^messages\[0\]\.tool_calls\[0\]\.function\.name is missing",
    ),
    "a block without a name": (
        [{"role": "assistant", "content": [{"type": "tool_use", "id": "t"}]}],
        r"^messages\[0\]\.content\[0\]\.function\.name is missing",
    ),
    "a call's id": ([asks() | {"tool_calls": [call(7)]}], r"^messages\[0\]\.tool_calls\[0\]\.id is of the type int"),  # type: ignore[arg-type]
    "arguments that are no JSON": (
        [asks() | {"tool_calls": [{"id": "c", "name": "add", "arguments": {"a": float("nan")}}]}],
        r"^messages\[0\]\.tool_calls\[0\]\.function\.arguments is of the type dict; expected an object that JSON can",
    ),
    "a result's id": ([result(7)], r"^messages\[0\]\.tool_call_id is of the type int"),  # type: ignore[arg-type]
    "a verdict": ([result("c", is_error="no")], r"^messages\[0\]\.is_error is of the type str; expected true or false"),
    "an origin": ([asks() | {"origin": {"style": "openai"}}], r"^messages\[0\]\.origin is of the type dict; expected"),
}


@pytest.mark.parametrize(("messages", "complaint"), UNREADABLE.values(), ids=UNREADABLE)
def test_what_cannot_be_read_is_refused_with_its_place(messages: Any, complaint: str) -> None:
    with pytest.raises(InvalidTranscript, match=complaint):
        normalise(messages)


def test_a_message_that_holds_itself_is_refused_with_its_place() -> None:
    message = user()
    message["self"] = message

    with pytest.raises(InvalidTranscript, match=r"^messages\[1\] is nested too deeply"):
        normalise([user(), message])


def test_an_error_never_shows_what_was_said() -> None:
    with pytest.raises(InvalidTranscript) as caught:
        normalise([user([{"type": "text", "text": ["my secret"]}])])

    assert "secret" not in str(caught.value)


def foreign(kind: str, **rest: Any) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({"type": st.just(kind)}, optional=rest)


foreign_calls = st.lists(
    st.fixed_dictionaries(
        {"function": st.fixed_dictionaries({"name": names}, optional={"arguments": arguments | texts})},
        optional={"id": ids | st.just(""), "type": st.just("function"), "index": st.integers()},
    )
    | st.fixed_dictionaries({"name": names, "arguments": arguments}),
    max_size=3,
)
foreign_blocks = st.lists(
    st.one_of(
        text_parts,
        image_parts,
        texts,
        foreign("tool_use", id=ids, name=names, input=arguments),
        foreign("tool_result", tool_use_id=ids, content=contents, is_error=st.booleans()),
        foreign("image", source=st.just({"type": "base64", "media_type": "image/png", "data": "AAAA"})),
        foreign("thinking", thinking=texts, signature=texts),
    ),
    max_size=4,
)
foreign_messages = st.one_of(
    st.fixed_dictionaries({"role": st.just("user"), "content": texts | foreign_blocks}),
    st.fixed_dictionaries(
        {"role": st.sampled_from(["assistant", None]), "content": texts | foreign_blocks | st.none()},
        optional={
            "tool_calls": foreign_calls | st.none(),
            "function_call": st.fixed_dictionaries({"name": names, "arguments": texts}),
            "native": json_values,
        },
    ),
    st.fixed_dictionaries(
        {"role": st.sampled_from(["tool", "function"]), "content": contents | st.none()},
        optional={"tool_call_id": ids | st.none(), "name": names, "is_error": st.booleans() | st.none()},
    ),
    st.dictionaries(
        st.sampled_from(["role", "content", "tool_calls", "tool_call_id", "function_call", "is_error", "origin", "x"]),
        json_values,
        max_size=4,
    ),
)


@given(st.lists(foreign_messages, max_size=6))
def test_whatever_is_handed_in_is_read_and_can_be_sent_or_is_refused(messages: list[Any]) -> None:
    try:
        read = normalise(messages)
    except InvalidTranscript:
        return
    assert normalise(read) == read
    assert_can_be_sent(repair(read)[0])


# Repair


@given(transcripts())
def test_nothing_is_repaired_in_a_valid_transcript(transcript: list[Any]) -> None:
    repaired, report = repair(transcript)

    assert not report
    assert [id(message) for message in repaired] == [id(message) for message in transcript]
    assert repaired is not transcript


@given(broken_transcripts())
def test_any_transcript_can_be_sent_after_repair(transcript: list[Any]) -> None:
    before = deepcopy(transcript)

    repaired, report = repair(transcript)

    assert_can_be_sent(repaired)
    assert repair(repaired) == (repaired, Report())
    assert transcript == before
    assert [m for m in repaired if m["role"] != "tool"] == [m for m in transcript if m["role"] != "tool"]
    given_results = [id(m) for m in transcript if m["role"] == "tool"]
    kept = [id(m) for m in repaired if m["role"] == "tool" and id(m) in given_results]
    assert len(given_results) - len(kept) == report.dropped
    assert sum(m["role"] == "tool" for m in repaired) - len(kept) == report.closed
    assert bool(report) == (repaired != transcript)


REPAIRS: dict[str, tuple[list[Any], list[Any], Report]] = {
    "a call that never ended": ([user(), asks("a")], [user(), asks("a"), closed("a")], Report(closed=1)),
    "one of two calls has a result": (
        [asks("a", "b"), result("b"), user()],
        [asks("a", "b"), closed("a"), result("b"), user()],
        Report(closed=1),
    ),
    "results in the order they finished": (
        [asks("a", "b", "c"), result("c"), result("b"), result("a")],
        [asks("a", "b", "c"), result("a"), result("b"), result("c")],
        Report(moved=2),
    ),
    "a result whose call was cut away": ([result("a"), user()], [user()], Report(dropped=1)),
    "a result that stands before its call": (
        [user(), result("a"), asks("a")],
        [user(), asks("a"), closed("a")],
        Report(dropped=1, closed=1),
    ),
    "a second result": (
        [asks("a"), result("a", "first"), result("a", "second")],
        [asks("a"), result("a", "first")],
        Report(dropped=1),
    ),
    "a result after the user went on": (
        [asks("a", "b"), result("a"), user("Hello?"), result("b"), user()],
        [asks("a", "b"), result("a"), result("b"), user("Hello?"), user()],
        Report(moved=1),
    ),
    "calls that were written one by one, results after them": (
        [asks("a"), asks("b"), result("a"), result("b")],
        [asks("a"), result("a"), asks("b"), result("b")],
        Report(moved=1),
    ),
    "a late result whose id was taken again": (
        [asks("a"), user(), asks("a"), result("a", "new"), user(), result("a", "whose?")],
        [asks("a"), closed("a"), user(), asks("a"), result("a", "new"), user()],
        Report(dropped=1, closed=1),
    ),
    "a late result of one of two open calls with its id": (
        [asks("a"), user(), asks("a"), user(), result("a", "whose?")],
        [asks("a"), closed("a"), user(), asks("a"), closed("a"), user()],
        Report(dropped=1, closed=2),
    ),
    "a late result where only an older call had its id and an answer": (
        [asks("a"), result("a", "old"), asks("a"), user(), result("a", "late")],
        [asks("a"), result("a", "old"), asks("a"), result("a", "late"), user()],
        Report(moved=1),
    ),
    "calls of one message with one id": (
        [asks("a", "a"), result("a", "first"), result("a", "second"), result("a", "third")],
        [asks("a", "a"), result("a", "first"), result("a", "second")],
        Report(dropped=1),
    ),
    "no arguments": (
        [asks() | {"tool_calls": [call("a", arguments="")]}, result("a")],
        [asks("a"), result("a")],
        Report(rewritten=1),
    ),
    "arguments cut short": (
        [asks() | {"tool_calls": [call("a", arguments='{"x": "1'), call("b")], "k": 1}, result("a"), result("b")],
        [
            asks() | {"tool_calls": [call("a", arguments='{"_unreadable":"{\\"x\\": \\"1"}'), call("b")], "k": 1},
            result("a"),
            result("b"),
        ],
        Report(rewritten=1),
    ),
    "a search that the provider ran": (
        [{"role": "assistant", "native": {"content": [{"type": "server_tool_use", "id": "s", "name": "web_search"}]}}],
        [{"role": "assistant", "native": {"content": [{"type": "server_tool_use", "id": "s", "name": "web_search"}]}}],
        Report(),
    ),
}


@pytest.mark.parametrize(("broken", "mended", "report"), REPAIRS.values(), ids=REPAIRS)
def test_what_is_broken_is_mended(broken: list[Any], mended: list[Any], report: Report) -> None:
    assert repair(broken) == (mended, report)


# Arguments

ARGUMENTS = {
    "": {},
    " \n": {},
    "null": {},
    '""': {},
    "{}": {},
    ' {"a": 1} ': {"a": 1},
    '"{\\"a\\": 1}"': {"a": 1},
    json.dumps(json.dumps(json.dumps({"a": 1}))): {"a": 1},
    '{"n": 123456789012345678901234567890}': {"n": 123456789012345678901234567890},
    "[1]": None,
    "1": None,
    '{"a": 1': None,
    '{"a": NaN}': None,
    '{"a": 1e999}': None,
    '"{\\"a\\": \\"\\\\ud83d\\"}"': {"a": "\ufffd"},
    '{"a": 1} {"b": 2}': None,
    '"just text"': None,
    "[" * 100_000: None,
}


@pytest.mark.parametrize(("text", "meant"), ARGUMENTS.items(), ids=lambda value: str(value)[:20])
def test_arguments_stand_for_an_object_or_for_none(text: str, meant: dict[str, Any] | None) -> None:
    assert read_arguments(text) == meant
    assert json.loads(sendable_arguments(text)) == ({"_unreadable": text} if meant is None else meant)


@given(arguments.map(json.dumps) | st.text() | json_values.map(json.dumps))
def test_any_arguments_can_be_sent_and_are_rewritten_once(text: str) -> None:
    sendable = sendable_arguments(text)

    assert isinstance(json.loads(sendable), dict)
    assert sendable_arguments(sendable) is sendable


@given(arguments.map(json.dumps))
def test_the_text_of_an_object_is_not_rewritten(text: str) -> None:
    assert sendable_arguments(text) is text


# Text


@given(json_values)
def test_cleaning_copies_and_changes_nothing_that_is_valid(value: Any) -> None:
    assert clean(value) == value


@given(st.text(st.characters(min_codepoint=0xD7F0, max_codepoint=0xE00F) | st.sampled_from("aé😀")))
def test_only_lone_surrogates_are_replaced(text: str) -> None:
    joined = re.sub("[\ud800-\udbff][\udc00-\udfff]", lambda pair: chr(_code_point(*map(ord, pair[0]))), text)
    expected = re.sub("[\ud800-\udfff]", "\ufffd", joined)

    assert clean_text(text) == expected
    assert clean_text(expected) is expected
    assert expected.encode().decode() == expected


def _code_point(high: int, low: int) -> int:
    return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00)


def test_cleaning_reaches_every_text_and_leaves_what_is_no_json() -> None:
    odd = object()

    assert clean({"a\ud800": ("\udc00", [MappingProxyType({"b": "\ud83d"})]), "o": odd}) == {
        "a\ufffd": ["\ufffd", [{"b": "\ufffd"}]],
        "o": odd,
    }


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, ""),
        ("a", "a"),
        ([], ""),
        ([IMAGE], ""),
        ([{"type": "text", "text": "a"}, IMAGE, {"type": "text", "text": "b"}], "ab"),
    ],
)
def test_the_text_of_a_content_is_that_of_its_text_parts(content: Any, text: str) -> None:
    assert text_of(content) == text


# Prompts


@pytest.mark.parametrize("prompt", ["Hi", " é ", [{"type": "text", "text": "What is this?"}, IMAGE], (IMAGE,)])
def test_a_prompt_is_a_user_message(prompt: Any) -> None:
    content = prompt if isinstance(prompt, str) else list(prompt)

    assert prompt_message(prompt) == user(content)
    assert normalise([prompt_message(prompt)]) == [user(content)]


def test_a_prompt_is_made_valid_unicode_and_copied() -> None:
    part = {"type": "text", "text": "a\ud83d"}

    assert prompt_message("a\ud83d") == user("a\ufffd")
    message = prompt_message([part])  # type: ignore[list-item]
    assert message == user([{"type": "text", "text": "a\ufffd"}])
    assert part["text"] == "a\ud83d"


def test_a_prompt_may_have_plain_texts_among_its_parts() -> None:
    text = {"type": "text", "text": "What is this\ufffd?"}
    assert prompt_message(["What is this\ud800?", IMAGE]) == {"role": "user", "content": [text, IMAGE]}


@pytest.mark.parametrize(
    ("prompt", "complaint"),
    [
        ("", "nothing to ask"),
        (" \n", "nothing to ask"),
        ([], "nothing to ask"),
        ([{"type": "text", "text": " "}], "nothing to ask"),
        (None, "The prompt is missing"),
        (b"Hi", "The prompt is of the type bytes"),
        ({"role": "user"}, "The prompt is of the type dict"),
        ([7], r"prompt\[0\] is of the type int; a prompt takes text, image_url, input_audio and file parts"),
        (["", " \n"], "nothing to ask"),
        ([IMAGE, {"type": "input_audio"}], r"prompt\[1\] is a part of the type 'input_audio'; expected \{'type'"),
        ([IMAGE, {"type": "video"}], r"prompt\[1\] is a part of the type 'video'; a prompt takes text, image_url, "),
        ([{"type": "file"}], r"prompt\[0\] is a part of the type 'file'"),
        ([{"type": "text", "text": None}], r"prompt\[0\]\.text is missing; expected a text"),
        ([{"type": "image_url"}], r"prompt\[0\]\.image_url is missing"),
    ],
)
def test_a_prompt_that_cannot_be_asked_is_refused(prompt: Any, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint) as caught:
        prompt_message(prompt)

    assert not isinstance(caught.value, InvalidTranscript)
