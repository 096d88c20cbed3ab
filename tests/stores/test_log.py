"""What records mean: folding, and how every kind of turn ends."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import strategies
from hypothesis import given
from hypothesis import strategies as st

from toolnexus.errors import CorruptConversation, InvalidTranscript, StoreTooNew
from toolnexus.messages import INTERRUPTED, NOT_ANSWERED, is_in_order, repair
from toolnexus.stores import records
from toolnexus.stores.log import Log, Turn

HELLO: Any = {"role": "user", "content": "hello"}
BYE: Any = {"role": "assistant", "content": "bye"}
PAY: Any = {"role": "user", "content": "pay twice"}
CALLS: Any = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {"id": call, "type": "function", "function": {"name": "pay", "arguments": "{}"}} for call in ("c1", "c2")
    ],
}


def result(call: str, content: str = "paid", **more: Any) -> Any:
    return {"role": "tool", "tool_call_id": call, "content": content, **more}


UNKNOWN = {"is_error": True}


def folded(*fields: Mapping[str, Any]) -> Log:
    """The conversation of these records, after a way through bytes."""
    log = Log()
    log.apply([records.encode(each) for each in fields], conversation_id="c")
    return log


def opened(turn: str = "t1", prompt: Any = HELLO, **more: Any) -> list[Any]:
    return records.opened(turn, prompt, at=1.0, **{"saw": 0, **more})


def ended(turn: str = "t1", status: Any = "done", *, kept: bool = True, **outcome: Any) -> Any:
    return records.ended(turn, status, kept=kept, outcome=outcome)


# Turns


def test_a_turn_that_is_done_is_history() -> None:
    log = folded(*opened(key="k"), records.message(BYE), ended(steps=1, model="m", usage={"prompt": 3}))
    assert log.messages == [HELLO, BYE]
    outcome = {"steps": 1, "model": "m", "usage": {"prompt": 3}}
    assert log.turns == [Turn(id="t1", status="done", key="k", started=1.0, saw=0, start=0, count=2, outcome=outcome)]
    assert (log.open, log.seen) == (None, True)
    assert log.keyed("k") is log.turn("t1") is log.turns[0]
    assert log.messages_of(log.turns[0]) == [HELLO, BYE]


def test_turns_follow_each_other() -> None:
    log = folded(*opened(), records.message(BYE), ended(), *opened("t2", PAY, saw=2), ended("t2", "incomplete"))
    assert log.messages == [HELLO, BYE, PAY]
    assert [(turn.id, turn.status, turn.saw, turn.start, turn.count) for turn in log.turns] == [
        ("t1", "done", 0, 0, 2),
        ("t2", "incomplete", 2, 2, 1),
    ]


def test_a_turn_that_runs_is_no_history_yet() -> None:
    log = folded(records.edited([], [BYE]), *opened(saw=1), records.message(CALLS))
    assert log.messages == [BYE]
    assert log.turns == []
    assert log.open is not None
    assert log.open.turn.status == "open"
    assert (log.open.messages, log.open.step, log.open.acted) == ([HELLO, CALLS], 1, False)


ACTED: list[Any] = [records.message(CALLS), records.effect("c1"), records.effect("c2")]


# Each row: what an open turn had recorded, whether the driver or `closed` keeps it, and what is history then.
ENDS: list[tuple[str, Sequence[Any], Sequence[Any]]] = [
    ("it had not been answered", [], []),
    ("its calls change nothing", [records.message(CALLS), records.message(result("c1"))], []),
    (
        "nothing is known of its calls",
        ACTED,
        [PAY, CALLS, result("c1", INTERRUPTED, **UNKNOWN), result("c2", INTERRUPTED, **UNKNOWN)],
    ),
    (
        "one of its calls is done",
        [*ACTED, records.message(result("c2"))],
        [PAY, CALLS, result("c1", INTERRUPTED, **UNKNOWN), result("c2")],
    ),
    (
        "its calls are done, in another order",
        [*ACTED, records.message(result("c2", "second")), records.message(result("c1", "first"))],
        [PAY, CALLS, result("c1", "first"), result("c2", "second")],
    ),
    (
        "its calls were refused",
        [*ACTED, *(records.message(result(call, "refused"), ran=False) for call in ("c1", "c2"))],
        [],
    ),
    (
        "one of its calls was refused, and one is done",
        [*ACTED, records.message(result("c1", "refused"), ran=False), records.message(result("c2"))],
        [PAY, CALLS, result("c1", "refused"), result("c2")],
    ),
    (
        "its next step was refused, under the same ids",
        [
            *ACTED,
            records.message(result("c1")),
            records.message(result("c2")),
            *ACTED,
            *(records.message(result(call, "refused"), ran=False) for call in ("c1", "c2")),
        ],
        [PAY, CALLS, result("c1"), result("c2"), CALLS, result("c1", "refused"), result("c2", "refused")],
    ),
]


@pytest.mark.parametrize(("recorded", "kept"), [row[1:] for row in ENDS], ids=[row[0] for row in ENDS])
def test_a_turn_whose_owner_is_gone_is_kept_if_it_acted(recorded: Sequence[Any], kept: Sequence[Any]) -> None:
    before = [records.edited([], [HELLO, BYE]), *opened("t1", PAY, saw=2), *recorded]
    log = folded(*before)
    assert log.open is not None
    log = folded(*before, records.closed(log.open))
    assert log.messages == [HELLO, BYE, *kept]
    assert log.open is None
    [turn] = log.turns
    assert (turn.status, turn.start, turn.count) == ("interrupted", 2, len(kept))
    assert turn.outcome == {"error": {"kind": "owner_gone"}}
    assert repair(log.messages)[0] == log.messages, "history is not valid"


@pytest.mark.parametrize("status", ["failed", "interrupted"])
def test_a_turn_that_failed_and_is_not_kept_leaves_its_attempt_only(status: Any) -> None:
    log = folded(*opened(key="k"), records.message(CALLS), ended("t1", status, kept=False, error={"kind": "provider"}))
    assert log.messages == []
    assert not log.seen
    assert [(turn.status, turn.count, turn.outcome) for turn in log.turns] == [
        (status, 0, {"error": {"kind": "provider"}})
    ]


@pytest.mark.parametrize("status", ["failed", "interrupted"])
def test_a_turn_that_failed_and_is_kept_is_closed(status: Any) -> None:
    log = folded(*opened("t1", PAY), *ACTED, records.message(result("c2")), ended("t1", status))
    assert log.messages == [PAY, CALLS, result("c1", INTERRUPTED, **UNKNOWN), result("c2")]


IDS = st.sampled_from(["c1", "c2", "c3"])


@st.composite
def recorded_turns(draw: st.DrawFn) -> list[Any]:
    """The messages of a turn as they may have been recorded: most are in order, and some are not."""
    recorded: list[Any] = [PAY]
    for _ in range(draw(st.integers(0, 3))):
        ids = draw(st.lists(IDS, max_size=3, unique=draw(st.booleans())))
        texts = st.sampled_from(["{}", '{"a":1}', "{}", "", "[]", "{"]) if draw(st.booleans()) else st.just("{}")
        calls = [
            {"id": call, "type": "function", "function": {"name": "pay", "arguments": draw(texts)}} for call in ids
        ]
        recorded.append({"role": "assistant", "content": "", **({"tool_calls": calls} if calls else {})})
        answered = ids if draw(st.booleans()) else draw(st.lists(IDS, max_size=4))
        recorded += [result(call, f"result {len(recorded) + place}") for place, call in enumerate(answered)]
    return recorded


def repaired_with_care(messages: Sequence[Any]) -> Any:
    """What `repair` says of messages when it cannot tell at a glance that they are in order."""
    repaired, report = repair([result("a call that nobody made"), *messages])
    return repaired, replace(report, dropped=report.dropped - 1)


@given(recorded=recorded_turns())
def test_a_turn_is_closed_with_the_latest_result_of_each_call_whatever_was_recorded(recorded: Any) -> None:
    latest: dict[Any, int] = {}
    reply = 0
    for place, message in enumerate(recorded):
        reply += message["role"] == "assistant"
        latest[(reply, message["tool_call_id"]) if message["role"] == "tool" else place] = place
    expected, _ = repaired_with_care([recorded[place] for place in sorted(latest.values())])
    assert folded(*opened("t1", recorded[0]), *map(records.message, recorded[1:]), ended()).messages == expected


@given(recorded=recorded_turns())
def test_messages_are_in_order_if_there_is_nothing_to_repair_and_no_reply_has_an_id_twice(recorded: Any) -> None:
    repaired, report = repaired_with_care(recorded)
    replies = [[call["id"] for call in message.get("tool_calls", ())] for message in recorded]
    assert repair(recorded) == (repaired, report)
    assert is_in_order(recorded) == (
        repaired == recorded and not report and all(len(set(ids)) == len(ids) for ids in replies)
    )


# Waiting for a person, and going on

PLACEHOLDER = {"request": {"id": "r1", "kind": "approval"}}
WAITING: list[Any] = [
    *opened("t1", PAY),
    *ACTED,
    records.message(result("c1")),
    records.message(result("c2", "waiting for an answer", **PLACEHOLDER), ran=False),
    ended("t1", "suspended"),
]


def test_a_turn_that_waits_is_history_with_what_it_waits_for() -> None:
    log = folded(*WAITING)
    assert log.messages == [PAY, CALLS, result("c1"), result("c2", "waiting for an answer", **PLACEHOLDER)]
    assert log.recorded is not None
    assert log.recorded.acted


def test_a_turn_that_is_opened_again_goes_on_and_its_answers_take_the_place_of_what_waited() -> None:
    again = records.opened("t1", None, at=5.0, saw=0)
    log = folded(*WAITING, *again)
    assert log.messages == [], "a turn that goes on is history already"
    assert log.open is not None
    assert (log.open.turn.status, log.open.turn.id, log.turns) == ("open", "t1", [])
    log = folded(*WAITING, *again, records.message(result("c2", "approved")), records.message(BYE), ended())
    assert log.messages == [PAY, CALLS, result("c1"), result("c2", "approved"), BYE]
    assert [(turn.id, turn.status, turn.count) for turn in log.turns] == [("t1", "done", 5)]


def test_a_turn_that_is_opened_again_is_the_turn_that_it_was() -> None:
    before = [records.meta({"title": "a"}), *opened("t1", PAY, key="k"), records.message(BYE), ended(model="m")]
    [turn] = folded(*before).turns
    log = folded(*before, *records.opened("t1", None, at=5.0, saw=7))
    assert log.open is not None
    assert log.open.turn == replace(turn, status="open", count=0)
    assert log.open.turn.outcome == {"model": "m"}


def test_a_turn_that_was_interrupted_can_be_opened_again() -> None:
    log = folded(
        *opened("t1", PAY),
        *ACTED,
        records.message(result("c1")),
        ended("t1", "interrupted"),
        *records.opened("t1", None, at=5.0, saw=0),
        records.message(result("c2", "later")),
        records.message(BYE),
        ended(),
    )
    assert log.messages == [PAY, CALLS, result("c1"), result("c2", "later"), BYE]


def test_another_prompt_declines_what_waits() -> None:
    log = folded(*WAITING, *opened("t2", HELLO, saw=4), ended("t2"))
    placeholder = log.messages[3]
    assert "request" not in placeholder
    assert (placeholder["content"], placeholder["is_error"]) == (NOT_ANSWERED, True)
    assert log.messages[:3] == [PAY, CALLS, result("c1")]
    assert log.status == "done"


def test_an_attempt_that_is_forgotten_leaves_what_waits_waiting() -> None:
    waits = folded(*WAITING)
    log = folded(*WAITING, *opened("t2", HELLO, saw=4), ended("t2", "failed", kept=False))
    assert log.messages == waits.messages
    assert (log.status, waits.status) == ("suspended", "suspended")
    assert log.continued[:3] == [PAY, CALLS, result("c1")]
    assert log.continued[3]["content"] == NOT_ANSWERED


def test_a_prompt_that_got_no_word_is_kept_with_a_mark() -> None:
    interrupted = ended("t1", "interrupted", marked=True)
    log = folded(*opened(), interrupted)
    assert log.messages == [{**HELLO, "interrupted": True}]
    log = folded(*opened(), interrupted, *records.opened("t1", None, at=5.0, saw=0), records.message(BYE), ended())
    assert log.messages == [HELLO, BYE], "it went on, and was answered"


def test_a_turn_of_an_old_id_that_is_not_the_last_is_a_new_one() -> None:
    log = folded(*WAITING, *opened("t2", HELLO, saw=4), ended("t2"), *opened("t1", PAY, saw=5), ended("t1"))
    assert [turn.id for turn in log.turns] == ["t1", "t2", "t1"]


# Edits, titles, snapshots


def test_an_edit_keeps_the_beginning_and_the_turns_in_it() -> None:
    log = folded(
        *opened(), records.message(BYE), ended(), *opened("t2", PAY, key="k", saw=2), ended("t2"),
        records.edited([HELLO, BYE, PAY], [HELLO, BYE]),
    )  # fmt: skip
    assert log.messages == [HELLO, BYE]
    assert [turn.id for turn in log.turns] == ["t1"]
    assert log.keyed("k") is None, "a turn that was taken back still has its key"
    assert log.recorded is None


@pytest.mark.parametrize(
    ("before", "after", "keep", "rest"),
    [
        ([], [], 0, []),
        ([HELLO], [HELLO, BYE], 1, [BYE]),
        ([HELLO, BYE], [HELLO], 1, []),
        ([HELLO, BYE, PAY], [HELLO, PAY], 1, [PAY]),
        ([HELLO], [BYE], 0, [BYE]),
    ],
)
def test_an_edit_keeps_what_both_begin_with(before: Any, after: Any, keep: int, rest: Any) -> None:
    edit = records.edited(before, after)
    assert (edit["keep"], edit["messages"]) == (keep, rest)


def test_an_edit_does_not_mind_the_order_of_keys() -> None:
    before = [HELLO, {**result("c1"), "deep": [{"a": 1, "b": 2.0}]}]
    after = [HELLO, {"deep": [{"b": 2.0, "a": 1}], **{key: before[1][key] for key in reversed(result("c1"))}}]
    assert (records.edited(before, after)["keep"], records.edited(before, after)["messages"]) == (2, [])
    after[1]["deep"][0]["b"] = 2
    assert records.edited(before, after)["keep"] == 1


def test_an_edit_tells_values_apart_that_are_equal_but_not_the_same() -> None:
    before = [{**HELLO, "x": value} for value in (1, True, 0.0)]
    after = [{**HELLO, "x": value} for value in (1, 1, 0.0)]
    assert records.edited(before, after)["keep"] == 1


@given(before=strategies.transcripts(), after=strategies.transcripts())
def test_an_edit_makes_one_history_of_another(before: Any, after: Any) -> None:
    log = folded(records.edited([], before), records.edited(before, after))
    assert log.messages == after


def test_what_a_list_shows_is_set_bit_by_bit() -> None:
    log = folded(
        records.meta({"title": "a", "tags": ["x"]}), records.meta({"title": None}), records.meta({"mine": {"a": 1}})
    )
    assert log.meta == {"title": None, "tags": ["x"], "mine": {"a": 1}}


def test_a_snapshot_is_all_of_it_without_keys() -> None:
    whole = folded(*opened(key="k"), records.message(BYE), ended(model="m"), *opened("t2", PAY, saw=2), ended("t2"))
    whole.fold([records.meta({"title": "a"})])
    log = folded(records.snapshot(whole, until=3))
    assert (log.messages, log.meta, log.seen) == (whole.messages, whole.meta, True)
    assert [turn.key for turn in log.turns] == [None, None]
    assert [(turn.id, turn.status, turn.start, turn.count) for turn in log.turns] == [
        ("t1", "done", 0, 2),
        ("t2", "done", 2, 1),
    ]
    assert log.turns[0].outcome == {"model": "m"}
    part = folded(records.snapshot(whole, until=2))
    assert (part.messages, [turn.id for turn in part.turns]) == ([HELLO, BYE], ["t1"])


def test_the_newest_turn_of_a_key_counts() -> None:
    log = folded(
        *opened("t1", HELLO, key="k"), ended("t1", "failed", kept=False), *opened("t2", HELLO, key="k"), ended("t2")
    )
    assert (log.keyed("k") or Turn(id="", status="open")).id == "t2"
    assert log.keyed("other") is None


# Records


@given(messages=st.lists(strategies.json_values, max_size=3))
def test_fields_that_nobody_knows_survive(messages: Any) -> None:
    prompt = {**HELLO, "x": messages}
    log = folded(*opened("t1", prompt), ended(unheard_of=messages))
    assert log.messages == [prompt]
    assert log.turns[0].outcome == {"unheard_of": messages}


def test_a_record_with_more_fields_than_we_know_is_read() -> None:
    log = folded(*({**each, "unheard_of": 1} for each in [*opened(), records.message(BYE), ended()]))
    assert log.messages == [HELLO, BYE]


@pytest.mark.parametrize("version", [2, 99, "1", None, 1.5])
def test_a_newer_version_is_refused(version: Any) -> None:
    log = Log()
    with pytest.raises(StoreTooNew, match=r"'c'.*version"):
        log.apply([json.dumps({"v": version, "k": "meta", "set": {}}).encode()], conversation_id="c")


@pytest.mark.parametrize("record", [b"", b"{", b"null", b"[]", b"{}", b'"v"', b'{"k":"meta"}', b"\xff", b'{"v":NaN}'])
def test_what_is_no_record_is_corrupt(record: bytes) -> None:
    with pytest.raises(CorruptConversation, match="'c'") as caught:
        Log().apply([record], conversation_id="c")
    assert caught.value.conversation_id == "c"


SPOILT: dict[str, list[Any]] = {
    "a message without a turn": [records.message(HELLO)],
    "an effect without a turn": [records.effect("c1")],
    "an end without a turn": [ended()],
    "an end of another turn": [*opened(), ended("t2")],
    "a turn in a turn": [*opened(), *opened("t2")],
    "an edit in a turn": [*opened(), records.edited([], [])],
    "a snapshot in a turn": [*opened(), records.snapshot(Log(), until=0)],
    "an edit of more than there is": [{"v": 1, "k": "edit", "keep": 1, "messages": []}],
    "an edit of less than nothing": [{"v": 1, "k": "edit", "keep": -1, "messages": []}],
    "an unknown kind": [{"v": 1, "k": "unheard of"}],
    "no kind": [{"v": 1}],
    "a message without a body": [*opened(), {"v": 1, "k": "message"}],
    "a snapshot of nothing": [{"v": 1, "k": "snapshot"}],
}


@pytest.mark.parametrize("spoilt", SPOILT.values(), ids=SPOILT.keys())
def test_a_record_that_does_not_follow_is_corrupt(spoilt: Sequence[Any]) -> None:
    with pytest.raises(CorruptConversation, match="'c'"):
        folded(*spoilt)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), {1: 2}])
def test_what_json_does_not_have_is_refused_by_its_place(value: Any) -> None:
    with pytest.raises(InvalidTranscript, match=r"messages\[1\]\.x\.y"):
        records.encode(records.edited([HELLO], [HELLO, {**BYE, "x": {"y": value}}]))


def test_records_are_one_line_of_utf_8() -> None:
    record = records.encode(records.message({**HELLO, "content": "a\nb\0é🎏 \ud800"}))
    assert b"\n" not in record
    assert json.loads(record.decode())["m"]["content"] == "a\nb\0é🎏 \ufffd"


# What a list shows


def test_the_head_of_a_conversation_with_nothing_to_see_is_none() -> None:
    assert records.head(Log(), now=1.0, new=[]) is None
    assert records.head(folded(*opened(), ended("t1", "failed", kept=False)), now=1.0, new=[]) is None


def test_the_head_shows_the_last_text_on_one_line() -> None:
    log = folded(
        records.meta({"title": "T"}), *opened(), records.message({**BYE, "content": "see\n\n you " * 50}), ended()
    )
    head = records.head(log, now=7.0, new=log.messages)
    assert head is not None
    assert (head.title, head.updated, head.messages, head.status, head.anew) == ("T", 7.0, 2, "done", False)
    assert head.preview.startswith("see you see you")
    assert len(head.preview) <= 120
    assert head.text == "hello\n" + "see\n\n you " * 50


def test_the_head_of_an_edit_makes_the_search_anew() -> None:
    log = folded(records.edited([], [HELLO, CALLS, result("c1"), BYE]))
    head = records.head(log, now=7.0, new=None)
    assert head is not None
    assert (head.text, head.anew, head.preview) == ("hello\npaid\nbye", True, "bye")


# Any turns in any order


@st.composite
def logs(draw: st.DrawFn) -> list[Any]:
    """Records as drivers, and people's edits, may have written them."""
    written: list[Any] = []
    log = Log()

    def write(*fields: Any) -> None:
        written.extend(fields)
        log.fold(fields)

    for number in range(draw(st.integers(0, 6))):
        match draw(st.sampled_from(["turn", "turn", "edit", "meta", "snapshot", "gone"])):
            case "edit":
                write(records.edited(log.messages, repair(log.messages[: draw(st.integers(0, len(log.messages)))])[0]))
            case "meta":
                write(records.meta({"title": draw(strategies.texts)}))
            case "snapshot":
                write(records.snapshot(log, until=len(log.messages)))
            case kind:
                write(*opened(f"t{number}", HELLO, saw=len(log.messages)))
                for _ in range(draw(st.integers(0, 2))):
                    write(*ACTED)
                    for call in draw(st.permutations(["c1", "c2"]))[: draw(st.integers(0, 2))]:
                        write(records.message(result(call), ran=draw(st.booleans())))
                if kind == "gone":
                    assert log.open is not None
                    write(records.closed(log.open))
                else:
                    status = draw(st.sampled_from(["done", "incomplete", "failed", "interrupted"]))
                    write(ended(f"t{number}", status, kept=draw(st.booleans())))
    return written


@given(written=logs(), data=st.data())
def test_folding_in_parts_is_folding_at_once_and_the_history_is_always_valid(
    written: list[Any], data: st.DataObject
) -> None:
    whole = folded(*written)
    encoded = [records.encode(each) for each in written]
    cut = data.draw(st.integers(0, len(encoded)))
    parts = Log()
    parts.apply(encoded[:cut], conversation_id="c")
    parts.apply(encoded[cut:], conversation_id="c")
    assert (parts.messages, parts.turns, parts.meta) == (whole.messages, whole.turns, whole.meta)
    assert repair(whole.messages)[0] == whole.messages
    copy = folded(records.snapshot(whole, until=len(whole.messages)))
    assert (copy.messages, copy.meta) == (whole.messages, whole.meta)
