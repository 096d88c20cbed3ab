"""Mapped tool names and call ids: distinct, stable, and left alone where they fit."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from toolnexus.dialects.names import CallIds, ToolNames

VALID = re.compile(r"[A-Za-z0-9_-]{1,64}")
MISTRAL = "[A-Za-z0-9]{9}"

tool_names = st.text("ab._-é ", max_size=4) | st.text(max_size=80)
known_ids = st.sampled_from(["", "call_0", "call_1", "abcdefghi", "toolu_01AbCdEfGh", "toolu_01AbCdEfGz", "é"])
call_ids = known_ids | st.text()


@given(st.lists(tool_names))
def test_names_are_valid_distinct_and_map_back(names: list[str]) -> None:
    mapped = ToolNames()
    mapped.add(names)
    wire = {name: mapped.wire(name) for name in names}
    assert all(VALID.fullmatch(made) for made in wire.values())
    assert len(set(wire.values())) == len(wire)
    assert all(mapped.changed.get(made, made) == name for name, made in wire.items())
    assert all(made == name for name, made in wire.items() if VALID.fullmatch(name))


@given(st.lists(tool_names, unique=True), st.randoms(use_true_random=False))
def test_the_order_of_the_tools_does_not_change_their_names(names: list[str], random: object) -> None:
    shuffled = names.copy()
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    one, other = ToolNames(), ToolNames()
    one.add(names)
    other.add(shuffled)
    assert {name: one.wire(name) for name in names} == {name: other.wire(name) for name in names}


def test_a_changed_name_ends_in_a_hash_of_the_whole_name() -> None:
    names = ToolNames()
    assert re.fullmatch("notes_search_[0-9a-f]{8}", names.wire("notes.search"))
    assert re.fullmatch("x{55}_[0-9a-f]{8}", names.wire("x" * 65))
    assert names.wire("x" * 65) != names.wire("x" * 66)


def test_a_tool_that_is_named_like_a_mapped_one_keeps_its_name() -> None:
    hostile = ToolNames().wire("notes.search")
    names = ToolNames()
    names.add(["notes.search", hostile])
    assert names.wire(hostile) == hostile
    assert names.wire("notes.search") != hostile
    assert names.changed == {names.wire("notes.search"): "notes.search"}


def test_a_name_that_comes_later_never_takes_a_given_one() -> None:
    names = ToolNames()
    taken = names.wire("notes.search")
    assert names.wire(taken) != taken


def test_a_copy_of_names_learns_for_itself() -> None:
    names = ToolNames()
    made = names.wire("notes.search")
    copy = names.copy()
    copy.add([later := "later.one"])
    assert copy.wire("notes.search") == made
    assert names.changed == {made: "notes.search"}
    assert copy.changed == {made: "notes.search", copy.wire(later): later}


@given(st.lists(st.lists(call_ids, max_size=4), max_size=5))
def test_mapped_ids_fit_are_unique_and_come_out_the_same_again(conversation: list[list[str]]) -> None:
    one, other = CallIds(MISTRAL), CallIds(MISTRAL)
    made = [one.of_step(ids) for ids in conversation]
    everything = [made_id for ids in made for made_id in ids]
    assert made == [other.of_step(ids) for ids in conversation]
    assert all(re.fullmatch(MISTRAL, made_id) for made_id in everything)
    assert len(set(everything)) == len(everything)


def test_ids_that_fit_and_are_new_are_left_alone() -> None:
    ids = CallIds(MISTRAL)
    assert ids.of_step(["abcdefghi", "AbCdEfGh0"]) == ["abcdefghi", "AbCdEfGh0"]
    assert ids.of_step(["abcdefghi"]) != ["abcdefghi"]


@given(st.lists(known_ids, max_size=4))
def test_without_a_form_ids_are_kept_and_only_told_apart_within_a_message(given_ids: list[str]) -> None:
    ids = CallIds(None)
    for _ in range(2):
        made = ids.of_step(given_ids)
        assert len(set(made)) == len(made)
        assert all(made)
        assert [id_ for id_ in dict.fromkeys(given_ids) if id_] == [id_ for id_ in made if id_ in given_ids]


def test_thousands_of_equal_ids_are_told_apart_quickly() -> None:
    ids = CallIds("[a-z_0-9]+")
    made = [ids.of_step(["call_0"])[0] for _ in range(20_000)]
    assert len(set(made)) == len(made)


def test_a_name_can_have_to_begin_with_a_letter() -> None:
    names = ToolNames(letter_first=True)
    assert [names.wire(name) for name in ("add", "_x", "a-b")] == ["add", "_x", "a-b"]
    for name in ("2nd", "-x", "9" * 70, "2.5"):
        made = names.copy().wire(name)
        assert re.fullmatch(r"_[a-zA-Z0-9_-]{1,63}", made)
        assert names.wire(name) == made
        assert names.changed[made] == name
    assert ToolNames().wire("2nd") == "2nd"
