"""What a backend promises: one owner at a time, a fence with every write, outcomes that can be asked for again."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence

import pytest

from toolnexus.errors import ConversationConflict, ConversationFenced
from toolnexus.stores.backend import NOTHING, Grant, Key, LogBackend, Owner, Record, Version
from toolnexus.stores.process import this_process
from toolnexus.testing.store_contract._section import Open, Section, until

KEY = Key("contract", "c")
LONG = 60.0
SHORT = 0.05
ONE, TWO, THREE, FOUR = (b'{"record":%d}' % number for number in range(1, 5))


def owner() -> Owner:
    return Owner(token=secrets.token_hex(16), process=this_process())


async def begun(
    backend: LogBackend,
    *records: Record,
    key: Key = KEY,
    expect: Version = NOTHING,
    ttl: float = LONG,
    by: Owner | None = None,
) -> Grant:
    """The grant of a turn that has to be free."""
    grant = await backend.begin(key, owner=by or owner(), ttl=ttl, expect=expect, records=records)
    assert grant is not None, "a free conversation was refused"
    return grant


async def refused(backend: LogBackend, *, key: Key = KEY) -> bool:
    """Whether somebody else holds the conversation. If not, it is given back at once."""
    grant = await backend.begin(key, owner=owner(), ttl=LONG, expect=NOTHING, records=())
    if grant is not None:
        await backend.append(grant, (), expect=grant.version.last, release=True)
    return grant is None


async def stored(backend: LogBackend, key: Key = KEY) -> tuple[Record, ...]:
    seen = await backend.read(key)
    return () if seen is None else seen.records


async def expired(backend: LogBackend, key: Key = KEY) -> None:
    """Wait until the lease of a conversation is over. It has to have records."""

    async def over() -> bool:
        seen = await backend.read(key)
        assert seen is not None
        assert seen.lease is not None, "a lease that expired is not shown any more"
        return seen.lease.left <= 0

    await until(over, "a lease of 0.05 s is over")


class Leases(Section):
    # Taking

    async def test_whoever_comes_second_is_refused_and_writes_nothing(self, open: Open) -> None:
        ours, theirs = (await open.log()).backend, (await open.log()).backend
        await begun(ours, ONE)
        for backend in (ours, theirs):
            again = await backend.begin(KEY, owner=owner(), ttl=LONG, expect=NOTHING, records=[TWO])
            assert again is None, "two owners hold one conversation"
        assert await stored(theirs) == (ONE,), "whoever was refused wrote something"

    async def test_of_many_at_once_one_gets_the_turn(self, open: Open) -> None:
        backends = [(await open.log()).backend for _ in range(4)]
        for number in range(5):
            key = Key("contract", f"race {number}")
            grants = await asyncio.gather(
                *(each.begin(key, owner=owner(), ttl=LONG, expect=NOTHING, records=[ONE]) for each in backends * 2)
            )
            assert sum(grant is not None for grant in grants) == 1, "not exactly one of many got a free conversation"
            assert await stored(backends[0], key) == (ONE,), "the opening records are not there once"

    async def test_of_many_at_once_one_gets_a_turn_that_expired(self, open: Open) -> None:
        backends = [(await open.log()).backend for _ in range(4)]
        for number in range(5):
            key = Key("contract", f"race {number}")
            first = await begun(backends[0], ONE, key=key, ttl=SHORT)
            await expired(backends[0], key)
            grants = await asyncio.gather(
                *(
                    each.begin(key, owner=owner(), ttl=LONG, expect=first.version, records=[TWO])
                    for each in backends * 2
                )
            )
            assert sum(grant is not None for grant in grants) == 1, "not exactly one of many took an expired lease"
            assert await stored(backends[0], key) == (ONE, TWO), "the opening records are not there once"

    async def test_what_opens_a_turn_is_appended_if_nothing_is_newer(self, open: Open) -> None:
        ours, theirs = (await open.log()).backend, (await open.log()).backend
        first = await begun(ours, ONE, TWO)
        assert (first.opened, first.newer, first.version.last) == (True, (), 2)
        assert first.version.incarnation > 0
        await ours.append(first, (), expect=2, release=True)
        second = await begun(theirs, THREE, expect=first.version)
        assert (second.opened, second.newer) == (True, ())
        assert second.version == Version(incarnation=first.version.incarnation, last=3)
        assert await stored(ours) == (ONE, TWO, THREE)

    async def test_what_opens_a_turn_is_not_appended_if_something_is_newer(self, open: Open) -> None:
        ours, theirs = (await open.log()).backend, (await open.log()).backend
        first = await begun(ours, ONE)
        await ours.append(first, [TWO, THREE], expect=1, release=True)
        for expect, newer in (
            (first.version, (TWO, THREE)),
            (NOTHING, (ONE, TWO, THREE)),
            (Version(incarnation=first.version.incarnation + 1_000, last=2), (ONE, TWO, THREE)),
        ):
            grant = await begun(theirs, FOUR, expect=expect)
            assert (grant.opened, grant.newer) == (False, newer), f"wrong for whoever expects {expect}"
            assert grant.version == Version(incarnation=first.version.incarnation, last=3)
            assert await stored(ours) == (ONE, TWO, THREE), "something was appended to a conversation that went on"
            await theirs.append(grant, (), expect=3, release=True)

    async def test_a_conversation_without_records_is_seen_by_its_holder_only(self, open: Open) -> None:
        ours, theirs = (await open.log()).backend, (await open.log()).backend
        grant = await begun(ours, ONE, expect=Version(incarnation=7, last=7))
        assert (grant.opened, grant.newer, grant.version.last) == (False, (), 0)
        assert await theirs.read(KEY) is None, "a lease alone made a conversation"
        assert (await theirs.list(KEY.scope, after=None, limit=9, query=None)).items == ()
        assert await refused(theirs), "somebody else got a conversation that is held"
        assert await ours.append(grant, [ONE], expect=0, release=True) == 1
        assert await stored(theirs) == (ONE,)

    async def test_a_conversation_that_was_given_back_without_records_can_begin(self, open: Open) -> None:
        ours, theirs = (await open.log()).backend, (await open.log()).backend
        grant = await begun(ours)
        await ours.append(grant, (), expect=0, release=True)
        assert await theirs.read(KEY) is None, "a lease alone made a conversation"
        assert (await begun(theirs, ONE)).version.last == 1
        assert await stored(ours) == (ONE,)

    async def test_a_begin_that_is_repeated_gives_the_same_grant(self, open: Open) -> None:
        ours, theirs = (await open.log()).backend, (await open.log()).backend
        me = owner()
        first = await begun(ours, ONE, TWO, by=me)
        assert await begun(theirs, ONE, TWO, by=me) == first, "a repeated begin gave another grant"
        assert await stored(ours) == (ONE, TWO), "a repeated begin appended again"
        await theirs.append(first, [THREE], expect=2, release=True)
        me = owner()
        second = await begun(ours, FOUR, expect=first.version, by=me)
        assert (second.opened, second.newer) == (False, (THREE,))
        assert await begun(theirs, FOUR, expect=first.version, by=me) == second, "a repeated begin gave another grant"
        assert await stored(ours) == (ONE, TWO, THREE), "a repeated begin appended what the first one had not"

    # Writing

    async def test_records_are_kept_in_order_byte_by_byte(self, open: Open) -> None:
        ours, theirs = (await open.log()).backend, (await open.log()).backend
        odd: list[Record] = [
            b'{"a":"\\u0000\\n","b":"\xc3\xa9\xf0\x9f\x8e\x8f"}',
            b'{ "spaces" : 1.0e0 }',
            b'{"big":123456789012345678901234567890}',
            b'{"not json',
            b"{}",
            b'{"long":"' + b"x" * 200_000 + b'"}',
        ]
        grant = await begun(ours, odd[0])
        assert await ours.append(grant, odd[1:3], expect=1) == 3
        assert await ours.append(grant, odd[3:], expect=3) == 6
        assert await stored(theirs) == tuple(odd), "records came back changed, in another order, or not all"

    async def test_what_is_known_is_not_read_again(self, open: Open) -> None:
        ours, theirs = (await open.log()).backend, (await open.log()).backend
        grant = await begun(ours, ONE)
        await ours.append(grant, [TWO, THREE], expect=1)
        incarnation = grant.version.incarnation
        version = Version(incarnation=incarnation, last=3)
        for known, records in ((0, (ONE, TWO, THREE)), (1, (TWO, THREE)), (2, (THREE,)), (3, ())):
            seen = await theirs.read(KEY, after=Version(incarnation=incarnation, last=known))
            assert seen is not None
            assert (seen.records, seen.version) == (records, version), f"wrong for whoever knows {known}"
        seen = await theirs.read(KEY, after=Version(incarnation=incarnation + 1_000, last=2))
        assert seen is not None
        assert seen.records == (ONE, TWO, THREE), "what is known of another incarnation was left out"

    async def test_an_append_that_does_not_follow_is_refused_and_stores_nothing(self, open: Open) -> None:
        backend = (await open.log()).backend
        grant = await begun(backend, ONE, TWO)
        for expect in (0, 1, 3, 9):
            with pytest.raises(ConversationConflict):
                await backend.append(grant, [THREE], expect=expect)
            assert await stored(backend) == (ONE, TWO), f"an append after {expect} was stored although 2 is the last"
        assert await backend.append(grant, [THREE], expect=2) == 3

    async def test_an_append_of_nothing_changes_nothing(self, open: Open) -> None:
        backend = (await open.log()).backend
        grant = await begun(backend, ONE)
        assert await backend.append(grant, (), expect=1) == 1
        assert await stored(backend) == (ONE,)

    @pytest.mark.parametrize("release", [False, True])
    async def test_an_append_that_is_sent_again_is_recognised(self, open: Open, release: bool) -> None:
        ours, theirs = (await open.log()).backend, (await open.log()).backend
        grant = await begun(ours, ONE)
        for backend in (ours, theirs, ours):
            again = await backend.append(grant, [TWO, THREE], expect=1, release=release)
            assert again == 3, "an append that was sent again has another outcome"
            assert await stored(ours) == (ONE, TWO, THREE), "an append that was sent again was stored again"
        assert await refused(theirs) is not release

    async def test_other_records_at_the_same_numbers_are_not_taken_for_a_repetition(self, open: Open) -> None:
        backend = (await open.log()).backend
        grant = await begun(backend, ONE)
        await backend.append(grant, [TWO, THREE], expect=1)
        for records in ([FOUR], [TWO, FOUR], [TWO, THREE, FOUR]):
            with pytest.raises(ConversationConflict):
                await backend.append(grant, records, expect=1)
        assert await stored(backend) == (ONE, TWO, THREE)

    # Losing

    async def test_a_turn_that_was_given_back_is_free_and_its_owner_can_write_no_more(self, open: Open) -> None:
        ours, theirs = (await open.log()).backend, (await open.log()).backend
        grant = await begun(ours, ONE)
        await ours.append(grant, (), expect=1, release=True)
        seen = await theirs.read(KEY)
        assert seen is not None
        assert seen.lease is None, "a lease that was given back is still shown"
        await _fenced(ours, grant, last=1)
        assert await stored(ours) == (ONE,)
        assert not await refused(theirs), "a conversation that was given back is not free"

    async def test_whoever_lost_the_turn_can_neither_write_nor_give_it_back(self, open: Open) -> None:
        ours, theirs = (await open.log()).backend, (await open.log()).backend
        old = await begun(ours, ONE, ttl=SHORT)
        await expired(theirs)
        new = await begun(theirs, TWO, expect=old.version)
        assert new.fence > old.fence
        for backend in (ours, theirs):
            await _fenced(backend, old, last=1)
            await _fenced(backend, old, last=2)
            with pytest.raises(ConversationFenced):
                await backend.append(old, (), expect=2, release=True)
        assert await stored(ours) == (ONE, TWO), "an owner that lost its turn wrote something"
        assert await refused(ours), "an owner that lost its turn gave back the turn of another"
        assert await theirs.append(new, [THREE], expect=2, release=True) == 3

    async def test_a_lease_that_expired_is_still_good_while_nobody_takes_it(self, open: Open) -> None:
        ours, theirs = (await open.log()).backend, (await open.log()).backend
        grant = await begun(ours, ONE, ttl=SHORT)
        await expired(theirs)
        assert await ours.append(grant, [TWO], expect=1) == 2
        await ours.renew(grant, ttl=LONG)
        assert await refused(theirs), "a lease that was renewed after it had expired is not held"
        assert await ours.append(grant, [THREE], expect=2, release=True) == 3

    async def test_a_lease_lasts_as_long_as_it_is_renewed(self, open: Open) -> None:
        ours, theirs = (await open.log()).backend, (await open.log()).backend
        me = owner()
        grant = await begun(ours, ONE, ttl=1.0, by=me)
        seen = await theirs.read(KEY)
        assert seen is not None
        assert seen.lease is not None, "a lease is not shown"
        assert (seen.lease.owner, seen.lease.fence) == (me, grant.fence)
        assert 0 < seen.lease.left <= 1.0
        renewed = await ours.renew(grant, ttl=LONG)
        assert (renewed.fence, renewed.owner, renewed.key) == (grant.fence, me, KEY)
        seen = await theirs.read(KEY)
        assert seen is not None
        assert seen.lease is not None
        assert LONG / 2 < seen.lease.left <= LONG, "a renewed lease does not last longer"

    async def test_fences_only_rise(self, open: Open) -> None:
        backends = [(await open.log()).backend, (await open.log()).backend]
        fences: list[int] = []
        for number in range(6):
            grant = await begun(backends[number % 2], ttl=SHORT if number == 3 else LONG)
            fences.append(grant.fence)
            await backends[number % 2].append(grant, [ONE], expect=number, release=number != 3)
            if number == 3:
                await expired(backends[0])
        assert fences == sorted(set(fences)), f"a fence came again or fell: {fences}"

    async def test_what_was_deleted_cannot_be_written_to(self, open: Open) -> None:
        ours, theirs = (await open.log()).backend, (await open.log()).backend
        assert await theirs.delete(KEY) is False
        old = await begun(ours, ONE)
        assert await theirs.delete(KEY) is True
        assert await theirs.delete(KEY) is False
        assert await ours.read(KEY) is None
        await _fenced(ours, old, last=1)
        assert await ours.read(KEY) is None, "a conversation that was deleted came back"
        new = await begun(theirs, TWO)
        assert new.version.incarnation != old.version.incarnation, "an incarnation was given again"
        await _fenced(ours, old, last=1)
        assert await stored(ours) == (TWO,), "the owner of a deleted conversation wrote to the one made anew"
        seen = await ours.read(KEY, after=old.version)
        assert seen is not None
        assert seen.records == (TWO,), "the new conversation was taken for the old one"

    async def test_no_incarnation_comes_again(self, open: Open) -> None:
        backends = [(await open.log()).backend, (await open.log()).backend]
        seen: list[int] = []
        for number in range(4):
            grant = await begun(backends[number % 2], ONE)
            other = await begun(backends[number % 2], ONE, key=Key("contract", f"other {number}"))
            seen += [grant.version.incarnation, other.version.incarnation]
            assert await backends[1 - number % 2].delete(KEY)
            assert await backends[number % 2].delete(other.key)
        assert len({*seen}) == len(seen), f"an incarnation came again: {seen}"

    async def test_who_reads_that_a_lease_is_free_can_take_it(self, open: Open) -> None:
        """A backend on this host alone may see that a process is gone; others wait for the lease to expire."""
        ours, theirs = (await open.log()).backend, (await open.log()).backend
        gone = Owner(token=secrets.token_hex(16), process=f"{this_process().rpartition('|')[0]}|0")
        await begun(ours, ONE, by=gone)
        seen = await theirs.read(KEY)
        assert seen is not None
        assert seen.lease is not None
        assert await refused(theirs) is (seen.lease.left > 0), "`read` and `begin` disagree on whether it is free"

    async def test_one_backend_serves_several_event_loops(self, open: Open) -> None:
        backend = (await open.log()).backend

        async def turn(number: int) -> None:
            key = Key("contract", f"loop {number}")
            for round_ in range(3):
                grant = await begun(backend, key=key)
                assert await backend.append(grant, [ONE], expect=round_, release=True) == round_ + 1

        def on_another_loop(number: int) -> None:
            asyncio.run(turn(number))

        await asyncio.gather(turn(0), *(asyncio.to_thread(on_another_loop, number) for number in (1, 2, 3)))
        await turn(4)
        for number in range(5):
            assert await stored(backend, Key("contract", f"loop {number}")) == (ONE, ONE, ONE)


async def _fenced(backend: LogBackend, grant: Grant, *, last: int) -> None:
    """Make sure that a grant is good for nothing any more."""
    attempts: Sequence[tuple[Sequence[Record], bool]] = (([FOUR], False), ([FOUR], True))
    for records, release in attempts:
        with pytest.raises(ConversationFenced):
            await backend.append(grant, records, expect=last, release=release)
    with pytest.raises(ConversationFenced):
        await backend.renew(grant, ttl=LONG)
