from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolnexus import ConversationConflict, CorruptConversation, SQLiteStore, StoreError

HELLO = {"role": "user", "content": "hello"}
BYE = {"role": "assistant", "content": "bye"}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[SQLiteStore]:
    store = SQLiteStore(path)
    try:
        yield store
    finally:
        await store.aclose()


async def test_an_unknown_id_is_none_and_an_empty_conversation_is_not(tmp_path: Path) -> None:
    async with opened(tmp_path / "c.db") as store:
        await store.save("empty", [])
        assert await store.get("nobody") is None
        assert await store.get("empty") == []


async def test_what_was_saved_is_there_for_the_next_process(tmp_path: Path) -> None:
    async with opened(tmp_path / "c.db") as store:
        await store.save("c", [HELLO, BYE])
    async with opened(tmp_path / "c.db") as store:
        assert await store.get("c") == [HELLO, BYE]


async def test_a_save_is_refused_when_somebody_else_saved_since_the_get(tmp_path: Path) -> None:
    async with opened(tmp_path / "c.db") as ours, opened(tmp_path / "c.db") as theirs:
        await ours.save("c", [HELLO])
        await ours.get("c")
        await theirs.save("c", [HELLO, BYE])
        with pytest.raises(ConversationConflict) as caught:
            await ours.save("c", [HELLO, HELLO])
        assert caught.value.conversation_id == "c"
        assert caught.value.expected < caught.value.actual
        assert await ours.get("c") == [HELLO, BYE]
        await ours.save("c", [HELLO])  # read again, so it may
        assert await theirs.get("c") == [HELLO]


async def test_a_new_conversation_is_not_written_over_by_who_saw_none(tmp_path: Path) -> None:
    async with opened(tmp_path / "c.db") as ours, opened(tmp_path / "c.db") as theirs:
        assert await ours.get("c") is None
        await theirs.save("c", [HELLO])
        with pytest.raises(ConversationConflict):
            await ours.save("c", [BYE])
        assert await theirs.get("c") == [HELLO]


async def test_a_conversation_that_was_deleted_and_made_again_is_another_one(tmp_path: Path) -> None:
    async with opened(tmp_path / "c.db") as ours, opened(tmp_path / "c.db") as theirs:
        await ours.save("c", [HELLO])
        await ours.get("c")
        await theirs.delete("c")
        await theirs.save("c", [HELLO])
        with pytest.raises(ConversationConflict):
            await ours.save("c", [HELLO, BYE])


async def test_a_save_without_a_get_replaces_what_is_there(tmp_path: Path) -> None:
    async with opened(tmp_path / "c.db") as ours, opened(tmp_path / "c.db") as theirs:
        await ours.get("c")
        await ours.save("c", [HELLO])
        await theirs.save("c", [BYE])
        await ours.save("c", [HELLO, BYE])
        assert await theirs.get("c") == [HELLO, BYE]


async def test_a_list_shows_the_conversations_saved_last_first(tmp_path: Path) -> None:
    async with opened(tmp_path / "c.db") as store:
        await store.save("a", [HELLO])
        await store.save("b", [{"role": "user", "content": "x  y\n" * 100 + "\ud800"}, BYE])
        await store.save("none", [])
        await store.save("a", [HELLO, BYE, HELLO])
        a, none, b = await store.list()
        assert (a.id, a.messages, a.preview) == ("a", 3, "hello")
        assert (none.id, none.messages, none.preview) == ("none", 0, "")
        assert (b.id, b.messages, len(b.preview), b.preview[:7]) == ("b", 2, 80, "x y x y")
        assert a.updated >= b.updated
        assert a.updated.utcoffset() is not None
        assert [each.id for each in await store.list(limit=2)] == ["a", "none"]


async def test_a_deleted_conversation_was_never_seen(tmp_path: Path) -> None:
    async with opened(tmp_path / "c.db") as store:
        await store.save("c", [HELLO])
        assert await store.delete("c") is True
        assert await store.get("c") is None
        assert await store.delete("c") is False


async def test_look_alike_ids_stay_apart(tmp_path: Path) -> None:
    ids = ["a", "A", "a ", "a\0", "a\0b", "ä", "a\u0308", "\ud800", "%", "_", "x" * 512]
    async with opened(tmp_path / "c.db") as store:
        for position, name in enumerate(ids):
            await store.save(name, [{"role": "user", "content": str(position)}])
        assert [(await store.get(name))[0]["content"] for name in ids] == [str(each) for each in range(len(ids))]
        assert [each.id for each in await store.list()] == ids[::-1]


@given(value=JSON)
def test_every_json_value_comes_back(tmp_path_factory: pytest.TempPathFactory, value: object) -> None:
    path = tmp_path_factory.getbasetemp() / "values.db"
    message = {"role": "user", "content": "x", "more": value}

    async def round_trip() -> object:
        async with opened(path) as store:
            await store.save("c", [message])
            return await store.get("c")

    assert asyncio.run(round_trip()) == [message]


async def test_values_that_no_json_has_are_refused_with_their_place_and_nothing_is_stored(tmp_path: Path) -> None:
    async with opened(tmp_path / "c.db") as store:
        with pytest.raises(ValueError, match=r"messages\[0\]\.score"):
            await store.save("c", [{"role": "user", "content": "x", "score": float("inf")}])
        assert await store.get("c") is None


async def test_only_the_owner_may_read_the_file(tmp_path: Path) -> None:
    path = tmp_path / "home" / "c.db"
    async with opened(path) as store:
        await store.save("c", [HELLO])
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
        assert set(modes.values()) == {0o600}, modes
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


async def test_a_file_of_a_newer_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version=99")
    connection.close()
    before = path.read_bytes()
    async with opened(path) as store:
        with pytest.raises(StoreError, match=r"version 99.*Upgrade toolnexus"):
            await store.get("c")
    assert path.read_bytes() == before


async def test_a_file_that_is_no_database_is_a_store_error_with_its_cause(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    path.write_text("This is a text, and a longer one than any header of a database.\n" * 100)
    async with opened(path) as store:
        with pytest.raises(StoreError, match="could not be read") as caught:
            await store.get("c")
    assert isinstance(caught.value.__cause__, sqlite3.Error)
    assert caught.value.conversation_id == "c"


async def test_a_folder_that_cannot_be_made_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    async with opened(tmp_path / "file" / "c.db") as store:
        with pytest.raises(StoreError, match="could not be saved"):
            await store.save("c", [HELLO])


@pytest.mark.parametrize("body", [b"{", b'{"role": "user"}', b"\xff"])
async def test_a_body_that_is_no_list_of_messages_is_corrupt_and_stays(tmp_path: Path, body: bytes) -> None:
    path = tmp_path / "c.db"
    async with opened(path) as store:
        await store.save("c", [HELLO])
        with sqlite3.connect(path) as connection:
            connection.execute("UPDATE conversations SET body = ?", (body,))
        with pytest.raises(CorruptConversation):
            await store.get("c")
        assert connection.execute("SELECT body FROM conversations").fetchall() == [(body,)]
        connection.close()


async def test_a_closed_store_says_so(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "c.db")
    await store.save("c", [HELLO])
    await store.aclose()
    await store.aclose()
    with pytest.raises(StoreError, match="closed"):
        await store.get("c")


async def test_a_save_that_is_cancelled_while_it_runs_has_ended_when_the_cancellation_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    async with opened(path) as store, opened(path) as other:
        await store.save("c", [HELLO])
        with sqlite3.connect(path, isolation_level=None) as blocker:
            blocker.execute("BEGIN IMMEDIATE")
            saving = asyncio.create_task(store.save("c", [HELLO, BYE]))
            reading = asyncio.create_task(store.get("c"))  # waits in the worker's queue behind it
            await asyncio.sleep(0)
            saving.cancel()
            reading.cancel()
            done, _ = await asyncio.wait({saving}, timeout=0.05)
            assert not done
            blocker.execute("ROLLBACK")
        blocker.close()
        await asyncio.wait({saving, reading})
        assert saving.cancelled()
        assert reading.cancelled()
        assert await other.get("c") == [HELLO, BYE]


def test_several_loops_in_several_threads_share_one_store_object(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "c.db")

    async def use(name: str) -> None:
        for turn in range(10):
            await store.save(name, [HELLO] * turn)

    threads = [threading.Thread(target=lambda name=name: asyncio.run(use(name))) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    async def lengths() -> list[int]:
        found = [len(await store.get(name)) for name in "abcd"]
        await store.aclose()
        return found

    assert asyncio.run(lengths()) == [9] * 4


WRITER = """
import asyncio, sys
from toolnexus import ConversationConflict, SQLiteStore

async def main(path, name):
    store = SQLiteStore(path)
    for turn in range(20):
        while True:
            messages = await store.get("c") or []
            try:
                await store.save("c", [*messages, {"role": "user", "content": f"{name}{turn}"}])
                break
            except ConversationConflict:
                pass
    await store.aclose()

asyncio.run(main(*sys.argv[1:]))
"""


def test_processes_that_start_together_on_a_new_file_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "new" / "c.db"
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), name]) for name in "abc"]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]

    async def read() -> list[str]:
        async with opened(path) as store:
            return [message["content"] for message in await store.get("c")]

    said = asyncio.run(read())
    assert sorted(said) == sorted(f"{name}{turn}" for name in "abc" for turn in range(20))
    for name in "abc":
        assert [each for each in said if each.startswith(name)] == [f"{name}{turn}" for turn in range(20)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
def test_a_store_can_be_used_on_both_sides_of_a_fork(tmp_path: Path) -> None:
    program = """
import asyncio, os, sys, warnings
from toolnexus import SQLiteStore
warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of forks beside threads
store = SQLiteStore(sys.argv[1])
asyncio.run(store.save("c", [{"role": "user", "content": "parent"}]))
async def child():
    messages = await store.get("c")
    await store.save("c", [*messages, {"role": "user", "content": "child"}])
    await store.aclose()
if (pid := os.fork()) == 0:
    asyncio.run(child())
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
print([message["content"] for message in asyncio.run(store.get("c"))])
asyncio.run(store.aclose())
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "c.db")], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr) == ("['parent', 'child']\n", "")


async def test_a_list_may_be_asked_to_be_longer_than_any_number_of_sqlite(tmp_path: Path) -> None:
    async with opened(tmp_path / "c.db") as store:
        await store.save("c", [HELLO])
        assert [each.id for each in await store.list(limit=10**30)] == ["c"]


async def test_content_that_is_no_json_is_named(tmp_path: Path) -> None:
    async with opened(tmp_path / "c.db") as store:
        with pytest.raises(ValueError, match=r"messages\[0\].content"):
            await store.save("c", [{"role": "user", "content": b"bytes"}])
