"""The contract tells what is wrong with a store or a driver that is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from stores import broken

from toolnexus.errors import CorruptConversation
from toolnexus.stores.logstore import LogStore
from toolnexus.stores.memory import MemoryBackend
from toolnexus.testing import StoreContract


def on(backend: MemoryBackend) -> Callable[[], LogStore]:
    """Opens stores on one backend."""
    return lambda: LogStore(backend)


def same(store: object) -> Callable[[], Any]:
    """Opens a store whose instances share everything."""
    return lambda: store


STORES = [
    (
        lambda: on(broken.NoVersionCheck()),
        "test_an_append_that_does_not_follow_is_refused_and_stores_nothing",
        "DID NOT RAISE.*ConversationConflict",
    ),
    (
        lambda: same(broken.Aliasing()),
        "test_what_is_read_is_an_independent_copy",
        "changing what was read changed what is kept",
    ),
    (
        lambda: same(broken.Aliasing()),
        "test_what_was_saved_may_be_changed_afterwards",
        "changing what was saved changed what is kept",
    ),
    (
        lambda: same(broken.DeleteThenInsert()),
        "test_a_reader_never_sees_a_conversation_vanish_or_torn",
        "was not there while it was saved",
    ),
    (
        lambda: on(broken.OrderByTime()),
        "test_no_clock_decides_the_order",
        "the list is in the order of a clock",
    ),
    (
        lambda: same(broken.UnescapedId()),
        "test_every_id_is_its_own_conversation",
        "these ids are taken for others",
    ),
    (
        lambda: on(broken.ExpiryByRecord()),
        "test_a_conversation_expires_whole",
        "a part of a conversation expired before the rest|some are lost",
    ),
    (
        lambda: on(broken.SkipsCorrupt()),
        "test_a_record_that_cannot_be_read_is_an_error_and_never_left_out",
        "DID NOT RAISE.*CorruptConversation",
    ),
    (
        lambda: on(broken.LockWithoutToken()),
        "test_whoever_lost_the_turn_can_neither_write_nor_give_it_back",
        "gave back the turn of another",
    ),
]

TOGETHER = "test_turns_at_once_on_two_instances_are_all_kept_one_after_the_other"
DRIVERS = [
    (broken.AppendsBeforeItAcquires, TOGETHER, "turns at once are not one after the other"),
    (broken.SendsNoFence, "test_a_turn_that_was_taken_over_records_nothing_more", "that was taken over ended with"),
    (
        broken.FinishesBeforeItSaves,
        "test_a_turn_is_kept_before_it_is_said_to_be_finished",
        "said to be finished before it was kept",
    ),
    (broken.ReleasesBeforeItAppends, TOGETHER, "turns at once are not one after the other"),
]


def run(contract: StoreContract, name: str, open: Callable[[], Any]) -> None:
    """Run one test of the contract as pytest does, with the first of its parameters."""
    test = getattr(contract, name)
    given: dict[str, Any] = {"open": open}
    if name == "test_a_conversation_expires_whole":
        given["open_expiring"] = open
    for mark in getattr(test, "pytestmark", ()):
        [argument, values, *_] = mark.args
        given[argument] = values[0]
    test(**given)


@pytest.mark.parametrize(("make", "test", "message"), STORES, ids=[f"{each[1]}-{each[2]}" for each in STORES])
def test_a_store_with_a_classic_mistake_is_failed(
    make: Callable[[], Callable[[], Any]], test: str, message: str
) -> None:
    with pytest.raises((AssertionError, pytest.fail.Exception, CorruptConversation), match=message):
        run(StoreContract(), test, make())


@pytest.mark.parametrize(("driver", "test", "message"), DRIVERS, ids=[each[0].__name__ for each in DRIVERS])
def test_a_driver_with_a_classic_mistake_is_failed(driver: type[StoreContract], test: str, message: str) -> None:
    with pytest.raises((AssertionError, pytest.fail.Exception), match=message):
        run(driver(), test, on(MemoryBackend()))


HELD = sorted({test for _, test, _ in [*STORES, *DRIVERS]} - {"test_a_conversation_expires_whole"})


@pytest.mark.parametrize("test", HELD)
def test_one_without_it_passes(test: str) -> None:
    run(StoreContract(), test, on(MemoryBackend()))
