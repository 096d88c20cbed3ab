"""Calls whose arguments come value by value."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolnexus.dialects.partial_calls import PartialCall
from toolnexus.errors import InvalidReply


def piece(path: str, **value: Any) -> dict[str, Any]:
    return {"partialArgs": [{"jsonPath": path, **value}], "willContinue": True}


def whole(*pieces: dict[str, Any]) -> Any:
    call = PartialCall({"functionCall": {"name": "order", "willContinue": True}})
    for each in pieces:
        call.add(each)
    return call.whole()["functionCall"]["args"]


def test_values_are_put_in_their_places_and_texts_are_appended() -> None:
    assert whole(
        piece("$.note", stringValue="Two ", willContinue=True),
        piece("$.note", stringValue="tins"),
        piece("$.items[0]['unit price']", numberValue=4.5),
        piece("$.items[0].sku", stringValue="a.b"),
        piece('$.items[1]["sku"]', stringValue="c"),
        piece("$['it\\'s'].gift", boolValue=False),
        piece("$.coupon", nullValue="NULL_VALUE"),
        {},
    ) == {
        "note": "Two tins",
        "items": [{"unit price": 4.5, "sku": "a.b"}, {"sku": "c"}],
        "it's": {"gift": False},
        "coupon": None,
    }


def test_the_part_is_kept_as_it_began() -> None:
    call = PartialCall({"functionCall": {"name": "order", "willContinue": True}, "thoughtSignature": "c2ln"})
    call.add({"id": "fc-1", **piece("$.a", stringValue="b")})
    assert call.whole() == {
        "functionCall": {"name": "order", "id": "fc-1", "args": {"a": "b"}},
        "thoughtSignature": "c2ln",
    }


@pytest.mark.parametrize("path", ["", "$", "note", "$.", "$..a", "$[", "$.a[1]", "$.a[x]", "$.text.deeper", "$[0]"])
def test_a_place_that_there_is_not_is_an_invalid_reply(path: str) -> None:
    with pytest.raises(InvalidReply):
        whole(piece("$.text", stringValue="x"), piece(path, stringValue="y"))


keys = st.text(min_size=1, max_size=4)
values = st.recursive(
    st.text(max_size=4) | st.booleans() | st.none() | st.integers(-9, 9),
    lambda inner: st.lists(inner, min_size=1, max_size=3) | st.dictionaries(keys, inner, min_size=1, max_size=3),
    max_leaves=6,
)


def leaves(value: Any, path: str) -> Any:
    match value:
        case dict():
            for key, inner in value.items():
                quoted = key.replace("\\", "\\\\").replace("'", "\\'")
                yield from leaves(inner, f"{path}['{quoted}']")
        case list():
            for index, inner in enumerate(value):
                yield from leaves(inner, f"{path}[{index}]")
        case str():
            yield from (piece(path, stringValue=part) for part in (value[:1], value[1:]))
        case bool():
            yield piece(path, boolValue=value)
        case None:
            yield piece(path, nullValue="NULL_VALUE")
        case _:
            yield piece(path, numberValue=value)


@given(arguments=st.dictionaries(keys, values, max_size=3))
def test_any_arguments_are_put_together_again(arguments: dict[str, Any]) -> None:
    assert json.dumps(whole(*leaves(arguments, "$"))) == json.dumps(arguments)
