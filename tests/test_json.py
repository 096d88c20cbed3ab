from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import json_values

from toolnexus import _json

NAN, INFINITY = float("nan"), float("inf")


@given(json_values)
def test_every_json_value_survives_both_ways(value: object) -> None:
    data = _json.dumps(value)

    assert _json.loads(data) == value
    assert _json.loads(data.decode()) == value
    assert json.loads(data) == value


@pytest.mark.parametrize(
    "number", [2**63, -(2**63) - 1, 2**64, -(2**64), 10**400, 2**63 - 1, -(2**63), 2**64 - 1, 1e308, 5e-324, -0.0]
)
def test_a_number_keeps_every_digit_and_its_type(number: float) -> None:
    for value in (number, {"a": [number, "text"]}):
        back = _json.loads(_json.dumps(value))
        assert (back, repr(back)) == (value, repr(value))


def test_text_that_looks_like_a_long_number_stays_text() -> None:
    value = {"id": "9" * 40, "null": None, "NaN": "null"}

    assert _json.loads(_json.dumps(value)) == value


def test_output_is_compact_utf8_whatever_wrote_it() -> None:
    assert _json.dumps({"a": ["é", 1.5, None]}) == '{"a":["é",1.5,null]}'.encode()
    assert _json.dumps({"a": ["é", 2**70, None]}) == b'{"a":["\xc3\xa9",1180591620717411303424,null]}'


def test_lone_surrogates_become_the_replacement_character_in_values_and_keys() -> None:
    assert _json.dumps({"a\ud800": ["\udc00b", {"\ud83d\ude00": 1}]}) == '{"a\ufffd":["\ufffdb",{"😀":1}]}'.encode()
    assert _json.loads(r'{"a\ud800": "\udc00b"}') == {"a\ufffd": "\ufffdb"}
    assert _json.loads('"half \ud83d"') == "half \ufffd"
    assert _json.loads(b'"half \xed\xa0\xbd"') == "half \ufffd"


@pytest.mark.parametrize(
    ("value", "place"),
    [
        (NAN, "value is nan"),
        ([1, -INFINITY], r"value\[1\] is -inf"),
        ({"a": {"b c": [None, {"d": INFINITY}]}}, r"value\.a\['b c'\]\[1\]\.d is inf"),
        (({"x": (1, NAN)},), r"value\[0\]\.x\[1\] is nan"),
        ({"n": 2**70, "x": NAN}, r"value\.x is nan"),
        ({"a": {1: 2}}, r"value\.a has the key 1"),
        ({"a": [b"x"]}, r"value\.a\[0\] is of the type bytes"),
        ({"at": datetime(2026, 1, 1, tzinfo=UTC)}, r"value\.at is of the type datetime"),
        ({"\ud800": {1, 2}}, r"value\['\\ud800'\] is of the type set"),
    ],
)
def test_what_json_does_not_have_is_refused_with_its_place(value: object, place: str) -> None:
    with pytest.raises(ValueError, match=place):
        _json.dumps(value)


def test_known_nulls_do_not_hide_what_became_one() -> None:
    assert _json.dumps([None], nulls=1) == b"[null]"
    with pytest.raises(ValueError, match=r"value\[1\] is nan"):
        _json.dumps([None, NAN], nulls=1)


def test_strict_dumps_names_the_message() -> None:
    messages = [{"role": "user", "content": "null"}, {"role": "tool", "content": NAN}]

    with pytest.raises(ValueError, match=r"^messages\[1\]\.content is nan"):
        _json.strict_dumps(messages)


def test_a_value_that_holds_itself_is_refused() -> None:
    value: list[object] = []
    value.append(value)

    with pytest.raises(ValueError, match="holds itself"):
        _json.dumps(value)


def test_deep_nesting_is_written_or_refused_but_never_a_crash() -> None:
    deep: object = 1
    for _ in range(400):
        deep = [deep]

    assert _json.loads(_json.dumps(deep)) == deep
    with pytest.raises(ValueError, match="nested too deeply"):
        _json.loads("[" * 100_000 + "]" * 100_000)


@pytest.mark.parametrize(
    "text",
    ["", "<html>", "{", "NaN", "[Infinity]", "-Infinity", "1e999", "{'a': 1}", "[1,]", "1 2", b'"\xff"', "9" * 5000],
)
def test_what_is_not_strict_json_is_refused(text: str | bytes) -> None:
    with pytest.raises(ValueError):
        _json.loads(text)


@given(st.lists(json_values, max_size=5))
def test_many_texts_are_read_as_each_of_them_is(values: list[object]) -> None:
    texts = [_json.dumps(value) for value in [*values, 2**64, *range(100), *values]] + [rb'"half \ud83d"', b'"\\u0039"']

    assert list(map(repr, _json.loads_all(texts))) == [repr(_json.loads(text)) for text in texts]


@pytest.mark.parametrize("refused", [b"", b"NaN", b"[1", b"1,2", b"1]", b"1 2"])
def test_of_many_texts_those_before_a_refused_one_are_read(refused: bytes) -> None:
    read: list[object] = []
    with pytest.raises(ValueError, match=r"."):
        read.extend(_json.loads_all([b"1"] * 70 + [refused, b"2]"]))
    # `extend` keeps what came before the error.
    assert read == [1] * 70
