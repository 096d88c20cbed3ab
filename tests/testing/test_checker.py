from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolnexus.testing.checker import answer, problems, prompt


def turns(*asked: str) -> list[Any]:
    """A history of these prompts, each answered by what the model was to say there."""
    history: list[Any] = []
    for text in asked:
        said = answer(text, len(history))
        history += [{"role": "user", "content": text}, {"role": "assistant", "content": said}]
    return history


A, B, C = prompt("a", 0), prompt("a", 1), prompt("b", 0)


@given(st.permutations([C, prompt("c", 0), prompt("d", 0), prompt("e", 3)]))
def test_a_history_of_one_turn_after_the_other_is_fine_in_any_order_of_workers(asked: list[str]) -> None:
    assert problems(turns(*asked), finished=asked) == []


def test_an_empty_history_is_fine_if_nothing_was_finished() -> None:
    assert problems([], finished=[], unfinished=[A]) == []


def test_steps_may_stand_between_a_prompt_and_its_answer() -> None:
    call: Any = {"role": "assistant", "content": "", "tool_calls": []}
    result: Any = {"role": "tool", "tool_call_id": "c1", "content": "5"}
    first, last = turns(A)
    assert problems([first, call, result, last], finished=[A]) == []


def test_a_turn_of_which_nobody_knows_may_be_there_whole_in_part_or_not_at_all() -> None:
    for history in (turns(C), turns(C, A), turns(C, A)[:-1]):
        assert problems(history, finished=[C], unfinished=[A]) == []


@pytest.mark.parametrize(
    ("history", "found"),
    [
        (turns(A), ["'b #0' is missing."]),
        (turns(A, C, C), ["'b #0' is there 2 times.", "'b #0' comes after 'b #0'."]),
        (turns(A, C, "x"), ["'x' was asked by nobody."]),
        (turns(A, C)[:-1], ["'b #0' at 2 has no answer."]),
        ([turns(A)[0], *turns(C), turns(A)[1]], ["'a #0' at 0 has no answer."]),
        ([*turns(A), turns(C)[0], {"role": "assistant", "content": answer(C, 0)}], ["not by 'b #0 saw 2'"]),
        ([turns(A)[1], *turns(A, C)], ["The history does not begin with a prompt."]),
    ],
    ids=["missing", "doubled", "unasked", "unanswered", "mixed", "saw something else", "half a turn"],
)
def test_what_is_wrong_is_said(history: list[Any], found: list[str]) -> None:
    said = problems(history, finished=[A, C])
    assert all(any(text in each for each in said) for text in found), said


def test_a_worker_s_turns_are_in_its_own_order() -> None:
    assert problems(turns(B, C, A), finished=[A, B, C]) == ["'a #0' comes after 'a #1'."]
