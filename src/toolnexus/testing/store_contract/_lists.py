"""Finding conversations again, and looking after them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from toolnexus.errors import ConfigurationError, ConversationConflict, NoSuchConversation
from toolnexus.stores import records
from toolnexus.stores.backend import NOTHING, Head, Key, Page
from toolnexus.testing.nasty import NASTY_IDS, NASTY_VALUES
from toolnexus.testing.store_contract._leases import KEY, ONE, TWO, begun, owner
from toolnexus.testing.store_contract._section import GOODBYE, HELLO, Open, Section, exactly

if TYPE_CHECKING:
    from toolnexus.stores.logstore import LogStore


class Lists(Section):
    # Lists

    async def test_lists_begin_with_what_changed_last(self, open: Open) -> None:
        ours, theirs = await open.log(), await open.log()
        assert await ours.list() == Page(items=(), after=None, total=(await ours.list()).total)
        for id in "abcd":
            await ours.save(id, [HELLO])
        await theirs.save("b", [HELLO, GOODBYE])
        await ours.rename("a", "A")
        assert await _listed(theirs) == ["a", "b", "d", "c"]

    async def test_no_clock_decides_the_order(self, open: Open) -> None:
        ours, theirs = (await open.log()).backend, (await open.log()).backend
        for number, updated in enumerate([5.0, 9.0, 1.0, 1.0, 3.0]):
            backend = (ours, theirs)[number % 2]
            head = Head(title=None, updated=updated, messages=0, status="", preview="")
            grant = await begun(backend, key=Key("clock", str(number)))
            await backend.append(grant, [ONE], expect=0, head=head, release=True)
        page = await ours.list("clock", after=None, limit=9, query=None)
        assert [item.id for item in page.items] == ["4", "3", "2", "1", "0"], "the list is in the order of a clock"
        assert [item.updated for item in page.items] == [3.0, 1.0, 1.0, 9.0, 5.0]

    async def test_a_list_shows_what_a_conversation_is_about(self, open: Open) -> None:
        ours, theirs = await open.log(), await open.log()
        await ours.save("c", [HELLO, GOODBYE | {"content": "see\n you  \U0001f38f"}])
        await ours.rename("c", "Our \U0001f38f\0 title")
        [item] = (await theirs.list()).items
        assert (item.id, item.title, item.messages) == ("c", "Our \U0001f38f\0 title", 2)
        assert (item.status, item.preview) == ("", "see you \U0001f38f")
        assert item.updated > 1_600_000_000

    async def test_a_conversation_that_has_nothing_to_show_yet_is_not_listed(self, open: Open) -> None:
        ours, theirs = (await open.log()).backend, (await open.log()).backend
        grant = await begun(ours, ONE)
        assert await ours.append(grant, [TWO], expect=1, release=True) == 2
        assert (await theirs.list(KEY.scope, after=None, limit=9, query=None)).items == ()

    async def test_every_id_is_listed_as_it_is(self, open: Open) -> None:
        store = await open.log()
        for id in NASTY_IDS:
            await store.save(id, [])
        assert await _listed(await open.log(), limit=17) == list(reversed(NASTY_IDS)), "ids are listed changed"

    async def test_pages_show_everything_once(self, open: Open) -> None:
        store = await open.log()
        for number in range(7):
            await store.save(str(number), [HELLO])
        for limit in (1, 3, 7, 100):
            assert await _listed(store, limit=limit) == list("6543210"), f"pages of {limit} lose or repeat something"
        page = await store.list(limit=3)
        assert page.total in (None, 7)

    async def test_what_changes_between_two_pages_is_not_shown_twice(self, open: Open) -> None:
        store, other = await open.log(), await open.log()
        for number in range(6):
            await store.save(str(number), [HELLO])
        first = await store.list(limit=2)
        await other.save("4", [HELLO, GOODBYE])
        await other.save("new", [HELLO])
        await other.delete("5")
        second = await other.list(limit=2, after=first.after)
        third = await store.list(limit=2, after=second.after)
        assert [item.id for item in (*first.items, *second.items, *third.items)] == list("543210")
        assert third.after is None

    # Searching

    async def test_a_search_finds_what_was_said(self, open: Open) -> None:
        ours, theirs = await open.log(), await open.log()
        await _said(ours, "boat", "My Boat is teal, said Zoë.", "It floats: well_done 42")
        await _said(ours, "boat", "Where is my anchor?")
        await _said(ours, "car", "my car is red")
        await ours.rename("car", "Summer holidays")
        for query, found in {
            "boat": ["boat"],
            "BOAT teal": ["boat"],
            "teal anchor": ["boat"],
            "my": ["car", "boat"],
            "is my": ["car", "boat"],
            "zoë": ["boat"],
            "42": ["boat"],
            "holidays": ["car"],
            "summer red": ["car"],
            "red boat": [],
            "plane": [],
        }.items():
            page = await theirs.search(query)
            assert [item.id for item in page.items] == found, f"searching {query!r}"

    async def test_a_search_takes_any_text(self, open: Open) -> None:
        store = await open.log()
        await _said(store, "c", "100% of a_b 'quoted' \0 (text) AND more\ud83d", "日本語 🎏")
        for query in ("", " ", '"', "'", "*", "a*", "%", "_", "(", "AND", "OR NOT", "a:b", "NEAR(a b)", "-more", "\\"):
            await store.search(query)
        for query in ("\0", "more\0", "\ud83d", "🎏", "日本語", "x" * 10_000, "a " * 500, "!&|<->", "{}[]"):
            await store.search(query)
        assert [item.id for item in (await store.search("quoted more")).items] == ["c"]

    async def test_what_was_taken_back_is_not_found(self, open: Open) -> None:
        ours, theirs = await open.log(), await open.log()
        await _said(ours, "c", "apples")
        await _said(ours, "c", "pears")
        assert await ours.undo("c") == 1
        assert not (await theirs.search("pears")).items, "what was undone is found"
        assert [item.id for item in (await theirs.search("apples")).items] == ["c"]
        await ours.save("c", [HELLO | {"content": "plums"}])
        assert not (await theirs.search("apples")).items, "what was replaced is found"
        await ours.delete("c")
        assert not (await theirs.search("plums")).items, "what was deleted is found"
        await ours.save("c", [HELLO])
        assert not (await theirs.search("plums")).items, "a conversation made anew is found by what the old one said"

    async def test_a_search_has_pages(self, open: Open) -> None:
        store = await open.log()
        for number in range(5):
            await _said(store, str(number), "odd one" if number % 2 else "even one")
        assert await _listed(store, limit=2, query="even") == ["4", "2", "0"]
        assert await _listed(store, limit=1, query="one") == list("43210")

    # Looking after them

    async def test_a_title_is_given_changed_and_taken_away(self, open: Open) -> None:
        ours, theirs = await open.log(), await open.log()
        await ours.save("c", [HELLO])
        for title in ("One", "Two", None):
            await ours.rename("c", title)
            info = await theirs.info("c")
            assert info is not None
            assert info.title == title
            assert [item.title for item in (await theirs.list()).items] == [title]
            assert await theirs.get("c") == [HELLO], "a title changed the messages"
        with pytest.raises(NoSuchConversation, match="'nobody'"):
            await ours.rename("nobody", "x")
        assert await _listed(theirs) == ["c"]

    async def test_what_is_known_of_a_conversation_is_told(self, open: Open) -> None:
        ours, theirs = await open.log(), await open.log()
        assert await ours.info("nobody") is None
        assert await ours.turns("nobody") == []
        await _said(ours, "c", "one", "two")
        await _said(ours, "c", "three")
        info = await theirs.info("c")
        assert info is not None
        assert (info.id, info.turns, info.messages, info.status, info.title) == ("c", 2, 3, "done", None)
        assert [(turn.status, turn.start, turn.count) for turn in await theirs.turns("c")] == [
            ("done", 0, 2),
            ("done", 2, 1),
        ]

    async def test_a_conversation_that_was_deleted_is_gone_whole(self, open: Open) -> None:
        ours, theirs = await open.log(), await open.log()
        await _said(ours, "c", "one")
        await ours.rename("c", "Title")
        assert await ours.delete("nobody") is False
        assert await theirs.delete("c") is True
        for store in (ours, theirs):
            assert (await store.get("c"), await store.info("c"), await store.turns("c")) == (None, None, [])
            assert await _listed(store) == []
        assert await ours.delete("c") is False
        await ours.save("c", [GOODBYE])
        info = await theirs.info("c")
        assert info is not None
        assert (info.title, info.turns, info.messages) == (None, 0, 1), "a conversation made anew has parts of the old"

    async def test_turns_are_taken_back_whole(self, open: Open) -> None:
        ours, theirs = await open.log(), await open.log()
        await ours.save("c", [HELLO])
        for text in ("one", "two", "three"):
            await _said(ours, "c", text, text + "!")
        assert await theirs.undo("c") == 1
        assert _texts(await ours.get("c")) == ["hello", "one", "one!", "two", "two!"]
        await _said(ours, "c", "four")
        assert await ours.undo("c", turns=2) == 2
        assert _texts(await theirs.get("c")) == ["hello", "one", "one!"]
        assert await ours.undo("c", turns=0) == 0
        assert await ours.undo("c", turns=9) == 1
        assert _texts(await theirs.get("c")) == ["hello"]
        assert await theirs.undo("c") == 0
        with pytest.raises(NoSuchConversation, match="'nobody'"):
            await ours.undo("nobody")

    async def test_a_fork_goes_its_own_way(self, open: Open) -> None:
        ours, theirs = await open.log(), await open.log()
        for text in ("one", "two", "three"):
            await _said(ours, "c", text)
        await ours.fork("c", "all")
        await theirs.fork("c", "part", at=(await theirs.turns("c"))[1].id)
        await _said(ours, "all", "more")
        await _said(ours, "c", "else")
        assert _texts(await theirs.get("all")) == ["one", "two", "three", "more"]
        assert _texts(await theirs.get("part")) == ["one", "two"]
        assert _texts(await theirs.get("c")) == ["one", "two", "three", "else"]
        assert [turn.count for turn in await theirs.turns("part")] == [1, 1]
        assert await theirs.undo("part") == 1
        with pytest.raises(ConversationConflict):
            await ours.fork("c", "part")
        with pytest.raises(ConfigurationError, match="no turn 'unheard of'"):
            await ours.fork("c", "new", at="unheard of")
        with pytest.raises(NoSuchConversation):
            await ours.fork("nobody", "new")
        assert await theirs.get("new") is None
        assert _texts(await theirs.get("part")) == ["one"]

    async def test_a_key_is_kept_and_stays_behind_when_a_conversation_is_forked(self, open: Open) -> None:
        ours, theirs = await open.log(), await open.log()
        await _said(ours, "c", "one", key="k\0\U0001f38f")
        assert [turn.key for turn in await theirs.turns("c")] == ["k\0\U0001f38f"]
        await theirs.fork("c", "fork")
        assert [turn.key for turn in await ours.turns("fork")] == [None]

    async def test_an_export_is_read_back_as_it_was(self, open: Open) -> None:
        ours, theirs = await open.log(), await open.log()
        await ours.save("c", [HELLO | {"x": value} for value in NASTY_VALUES])
        await _said(ours, "c", "one", "two", key="k")
        await ours.rename("c", "Title")
        exported = [piece async for piece in ours.export("c")]
        other = theirs.scoped("imported")
        assert await other.import_(exported) == "c"
        assert exactly(await other.get("c")) == exactly(await ours.get("c")), "messages changed on their way"
        assert (await other.turns("c"), await other.info("c")) == (await ours.turns("c"), await ours.info("c"))
        assert [(item.title, item.messages) for item in (await other.list()).items] == [
            ("Title", len(NASTY_VALUES) + 2)
        ]
        assert [item.id for item in (await other.search("two")).items] == ["c"]
        with pytest.raises(ConversationConflict):
            await other.import_(exported)
        assert await other.import_(exported, id="\0 new") == "\0 new"
        await _said(other, "\0 new", "three")
        assert len(await other.get("\0 new") or []) == len(NASTY_VALUES) + 3

    # Scopes

    async def test_scopes_are_apart(self, open: Open) -> None:
        store, other = await open.log(), await open.log()
        places = [("", "a:b:c"), ("a", "b:c"), ("a:b", "c"), ("a", "b/c"), ("a/b", "c"), ("A", "b:c"), ("a ", "b:c")]
        places += [
            ("a\0", "b"),
            ("a", "\0b"),
            ("%", "b:c"),
            ("_", "b:c"),
            ("*", "b:c"),
            ("../a", "b"),
            ("\U0001f38f", "b"),
        ]
        for scope, id in places:
            assert await store.scoped(scope).get(id) is None, f"{id!r} in {scope!r} is taken for another"
            await store.scoped(scope).save(id, [HELLO | {"content": f"{scope} {id}"}])
        for scope, id in places:
            assert _texts(await other.scoped(scope).get(id)) == [f"{scope} {id}"], "scopes are mixed"
            expected = [other_id for other_scope, other_id in reversed(places) if other_scope == scope]
            assert await _listed(other.scoped(scope)) == expected, f"the list of {scope!r} shows others"
            found = await other.scoped(scope).search("b")
            assert {item.id for item in found.items} <= set(expected), f"a search in {scope!r} finds others"
        assert await store.scoped("a").delete("b:c")
        left = [await other.scoped(scope).get(id) is not None for scope, id in places]
        assert left == [place != ("a", "b:c") for place in places], "deleting in one scope deleted in another"

    async def test_turns_in_two_scopes_do_not_wait_for_each_other(self, open: Open) -> None:
        store = await open.log()
        for scope in ("", "a", "b"):
            grant = await store.backend.begin(Key(scope, "c"), owner=owner(), ttl=60, expect=NOTHING, records=[TWO])
            assert grant is not None, "a conversation of the same id in another scope is held"


_turn_ids = count(1)


async def _said(store: LogStore, id: str, *texts: str, key: str | None = None) -> None:
    """Record a finished turn: a prompt and what was said then."""
    turn_id = f"turn {next(_turn_ids)}"
    prompt, *answers = _messages(texts)
    hold = await store.take(
        id, lambda log, _: records.opened(turn_id, prompt, at=0.0, saw=len(log.messages), key=key), wait=20
    )
    await hold.end(
        *(records.message(message) for message in answers),
        records.ended(turn_id, "done", kept=True, outcome={}),
        head=lambda: records.head(hold.log, now=0.0, new=[prompt, *answers]),
    )
    store.keep(hold)


def _messages(texts: Sequence[str]) -> list[Any]:
    return [{"role": "assistant" if at else "user", "content": text} for at, text in enumerate(texts)]


def _texts(messages: Sequence[Any] | None) -> list[str]:
    return [message["content"] for message in messages or ()]


async def _listed(store: LogStore, *, limit: int = 50, query: str | None = None) -> list[str]:
    """The ids of all pages."""
    ids: list[str] = []
    after: str | None = None
    while True:
        page = await (
            store.list(limit=limit, after=after) if query is None else store.search(query, limit=limit, after=after)
        )
        assert len(page.items) <= limit
        ids += [item.id for item in page.items]
        if page.after is None:
            return ids
        assert page.items, "an empty page says that there is another"
        after = page.after
