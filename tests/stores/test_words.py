from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolnexus.stores.words import words


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []),
        ("Tea, tea; TEA!", ["tea"]),
        ("user_42 is 3.5", ["user_42", "is", "3", "5"]),
        ("Straße stra\u00dfe STRASSE", ["strasse"]),
        ("cafe\u0301 caf\u00e9", ["caf\u00e9"]),
        ("a\0b\ud800c", ["a", "b", "c"]),
        ("!? -- \U0001f600", []),
    ],
)
def test_words_are_told_apart_without_case_and_without_what_is_no_word(text: str, found: list[str]) -> None:
    assert words(text) == found


def test_an_endless_word_is_cut_the_same_way_wherever_it_stands() -> None:
    assert words("x" * 5000) == words("x" * 6000) == ["x" * 255]


@given(st.text(st.characters(max_codepoint=127)))
def test_plain_text_has_the_same_words_beside_other_text(text: str) -> None:
    assert words(f"{text} \u00e9") == [*words(text), "\u00e9"]
