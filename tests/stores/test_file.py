from __future__ import annotations

import asyncio
import errno
import logging
import os
import secrets
import stat
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from toolnexus.errors import (
    ConversationConflict,
    ConversationFenced,
    CorruptConversation,
    StoreError,
    StoreTooNew,
)
from toolnexus.stores import disk, file_state, frames
from toolnexus.stores import order as order_module
from toolnexus.stores.backend import NOTHING, Grant, Head, Key, Owner, Record, Version
from toolnexus.stores.file import FileBackend, FileStore
from toolnexus.stores.process import this_process

KEY = Key("", "user 42")
ONE, TWO, THREE, FOUR = (b'{"v":1,"n":%d}' % number for number in range(1, 5))
HELLO: Any = {"role": "user", "content": "hello"}


def head(text: str = "", *, title: str | None = None, anew: bool = False) -> Head:
    return Head(title=title, updated=1.0, messages=1, status="done", preview="", text=text, anew=anew)


async def begun(
    backend: FileBackend, *records: Record, expect: Version = NOTHING, key: Key = KEY, ttl: float = 60.0
) -> Grant:
    owner = Owner(token=secrets.token_hex(16), process=this_process())
    grant = await backend.begin(key, owner=owner, ttl=ttl, expect=expect, records=records)
    assert grant is not None
    return grant


async def stored(backend: FileBackend, key: Key = KEY) -> tuple[Record, ...]:
    seen = await backend.read(key)
    return () if seen is None else seen.records


async def standing(backend: FileBackend) -> Version:
    """Where the conversation stands."""
    seen = await backend.read(KEY)
    return NOTHING if seen is None else seen.version


async def said(backend: FileBackend, id: str, text: str = "", **shown: Any) -> None:
    """A turn that says something."""
    grant = await begun(backend, key=Key("", id))
    await backend.append(grant, [ONE], expect=grant.version.last, head=head(text, **shown), release=True)


async def listed(backend: FileBackend, *, limit: int = 100, query: str | None = None) -> list[str]:
    """All ids, page by page."""
    ids: list[str] = []
    after = None
    while True:
        page = await backend.list("", after=after, limit=limit, query=query)
        ids += [item.id for item in page.items]
        if (after := page.after) is None:
            return ids


def files(folder: Path, suffix: str = "") -> dict[Path, bytes]:
    """All files, or those whose name ends like this."""
    return {path: path.read_bytes() for path in folder.rglob(f"*{suffix}") if path.is_file()}


def log_of(folder: Path, slug: str = "") -> Path:
    [file] = folder.glob(f"**/{slug}*.log")
    return file


def now_of(folder: Path) -> Path:
    return log_of(folder).with_suffix(".now")


@pytest.fixture
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait for the disk, where a test makes hundreds of small writes."""
    monkeypatch.setattr(disk, "_sync", lambda _: None)


# What is on the disk


async def test_a_conversation_is_a_file_that_people_can_find_and_only_its_owner_can_read(tmp_path: Path) -> None:
    backend = FileBackend(tmp_path / "new" / "chats")
    await begun(backend, ONE)
    file = log_of(tmp_path)
    assert file.relative_to(tmp_path / "new" / "chats").parts[0] == "main"
    assert file.name.startswith("user-42-")
    for path in (tmp_path / "new").rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700


async def test_a_file_is_its_header_and_then_what_was_written_together(tmp_path: Path) -> None:
    backend = FileBackend(tmp_path)
    grant = await begun(backend, ONE)
    await backend.append(grant, [TWO, THREE], expect=1, head=head("teal"), release=True)
    data = log_of(tmp_path).read_bytes()
    split = frames.split(data)
    assert (split.records, split.whole) == ([ONE, TWO, THREE], len(data))
    header = frames.read_header(split.notes[0])
    assert (header.key, header.incarnation) == (KEY, grant.version.incarnation)
    assert frames.read_head(frames.read_note(split.notes[1])) == head("teal")


async def test_nothing_is_made_by_reading(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "chats")
    assert await store.get("c") is None
    assert (await store.list()).items == ()
    assert await store.delete("c") is False
    assert not (tmp_path / "chats").exists()


async def test_a_link_is_not_followed(tmp_path: Path) -> None:
    backend = FileBackend(tmp_path / "chats")
    await begun(backend, ONE)
    file = log_of(tmp_path)
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    before = (tmp_path / "elsewhere").read_bytes()
    with pytest.raises(StoreError, match="user 42") as caught:
        await begun(backend, TWO)
    assert isinstance(caught.value.__cause__, OSError)
    with pytest.raises(StoreError):
        await backend.read(KEY)
    assert (tmp_path / "elsewhere").read_bytes() == before


async def test_the_file_of_another_conversation_is_refused(tmp_path: Path) -> None:
    backend = FileBackend(tmp_path)
    await begun(backend, ONE)
    mine = log_of(tmp_path)
    other = Key("", "other")
    await begun(backend, TWO, key=other)
    theirs = log_of(tmp_path, "other-")
    theirs.write_bytes(mine.read_bytes())
    with pytest.raises(CorruptConversation, match="another conversation"):
        await backend.read(other)
    with pytest.raises(CorruptConversation, match="another conversation"):
        await begun(backend, key=other)
    assert theirs.read_bytes() == mine.read_bytes()


async def test_half_a_character_is_an_id_of_its_own(tmp_path: Path) -> None:
    backend = FileBackend(tmp_path)
    keys = [Key("\ud800", "\udfff"), Key("\ud801", "\udfff"), Key("a\0b", "c"), Key("a", "b\0c")]
    for number, key in enumerate(keys):
        await begun(backend, b"%d" % number, key=key)
    assert [await stored(backend, key) for key in keys] == [(b"0",), (b"1",), (b"2",), (b"3",)]


async def test_a_conversation_that_is_deleted_leaves_no_file(tmp_path: Path) -> None:
    backend = FileBackend(tmp_path)
    await begun(backend, ONE)
    now_of(tmp_path).unlink()
    log_of(tmp_path).write_bytes(log_of(tmp_path).read_bytes().replace(b'"n":1', b'"n":9'))
    with pytest.raises(CorruptConversation):
        await backend.read(KEY)
    assert await backend.delete(KEY)
    assert [path.name for path in files(tmp_path)] == ["order"]


# What was not written to its end


async def kept_whole(tmp_path: Path) -> tuple[bytes, bytes, int]:
    """A file of [ONE] and then [TWO, THREE] with a head, what is beside it, and where the second begins."""
    backend = FileBackend(tmp_path)
    grant = await begun(backend, ONE)
    first = log_of(tmp_path).stat().st_size
    await backend.append(grant, [TWO, THREE], expect=1, head=head("teal"), release=True)
    return log_of(tmp_path).read_bytes(), now_of(tmp_path).read_bytes(), first


@pytest.mark.parametrize("beside", [True, False])
async def test_a_file_cut_at_any_byte_has_all_of_a_write_or_nothing(
    beside: bool, tmp_path: Path, unsynced: None, caplog: pytest.LogCaptureFixture
) -> None:
    data, now, first = await kept_whole(tmp_path)
    file = log_of(tmp_path)
    backend = FileBackend(tmp_path)
    header = data.index(b"\n") + 1
    for end in range(len(data) + 1):
        file.write_bytes(data[:end])
        if beside:
            file.with_suffix(".now").write_bytes(now)
        else:
            file.with_suffix(".now").unlink(missing_ok=True)
        expected = (ONE, TWO, THREE) if end == len(data) else (ONE,) if end >= first else ()
        assert await stored(backend) == expected
        assert file.read_bytes() == data[:end], "reading changed the file"
        grant = await begun(backend, FOUR)
        await backend.append(grant, [FOUR, FOUR], expect=grant.version.last, release=True)
        opened = (FOUR,) if not expected else ()
        assert await stored(backend) == (*expected, *opened, FOUR, FOUR)
        assert frames.split(file.read_bytes()).whole == file.stat().st_size
        cut = header < end < first or first < end < len(data)
        assert ("unfinished write" in caplog.text) is cut, "what was removed was not told"
        caplog.clear()


async def test_a_file_changed_at_any_byte_is_refused_or_never_wrong(tmp_path: Path, unsynced: None) -> None:
    data, _, _ = await kept_whole(tmp_path)
    file = log_of(tmp_path)
    now_of(tmp_path).unlink()
    backend = FileBackend(tmp_path)
    for place in range(len(data)):
        changed = data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :]
        file.write_bytes(changed)
        try:
            read = await stored(backend)
        except CorruptConversation:
            assert file.with_suffix(".corrupt").read_bytes() == changed
            file.with_suffix(".corrupt").unlink()
        else:  # only a line end that is none any more makes of whole lines one that has no end
            assert data[place : place + 1] == b"\n"
            assert read in [(ONE,), ()]
        assert file.read_bytes() == changed


async def test_a_line_with_a_wrong_checksum_is_refused_also_at_the_end_and_a_copy_is_kept(tmp_path: Path) -> None:
    data, _, _ = await kept_whole(tmp_path)
    damaged = data + b"00000000 {}\n"
    log_of(tmp_path).write_bytes(damaged)
    backend = FileBackend(tmp_path)
    for _ in range(2):
        with pytest.raises(CorruptConversation, match=rf"byte {len(data)}\.") as caught:
            await begun(backend, FOUR)
        assert "memory check" in str(caught.value)
    assert log_of(tmp_path).read_bytes() == damaged
    assert log_of(tmp_path).with_suffix(".corrupt").read_bytes() == damaged
    assert await listed(backend) == []


async def test_what_a_process_wrote_before_it_died_counts(tmp_path: Path) -> None:
    backend = FileBackend(tmp_path)
    await said(backend, "other")
    grant = await begun(backend, ONE)
    beside = log_of(tmp_path, "user-42-").with_suffix(".now")
    before = beside.read_bytes()
    assert await backend.append(grant, [TWO, THREE], expect=1, head=head("teal", title="T")) == 3
    beside.write_bytes(before)  # killed between the two
    other = FileBackend(tmp_path)
    assert await stored(other) == (ONE, TWO, THREE)
    assert await listed(other) == ["user 42", "other"]
    assert await listed(other, query="teal t") == ["user 42"]
    assert await other.append(grant, [TWO, THREE], expect=1) == 3
    assert await other.append(grant, [FOUR], expect=3, release=True) == 4


# Leases


DIES = """
import asyncio, os, sys
from toolnexus.stores.backend import NOTHING, Key, Owner
from toolnexus.stores.file import FileBackend
from toolnexus.stores.process import this_process

async def main():
    owner = Owner(token="t" * 32, process=this_process())
    backend = FileBackend(sys.argv[1])
    assert await backend.begin(Key("", "user 42"), owner=owner, ttl=600, expect=NOTHING, records=[b"{}"])
    os._exit(0)

asyncio.run(main())
"""


async def test_the_turn_of_a_process_that_is_gone_is_free_at_once(tmp_path: Path) -> None:
    holder = await asyncio.create_subprocess_exec(sys.executable, "-c", DIES, str(tmp_path))
    assert await holder.wait() == 0
    backend = FileBackend(tmp_path)
    seen = await backend.read(KEY)
    assert seen is not None
    assert seen.lease is not None
    assert seen.lease.left == 0
    taken = await begun(backend, ONE, expect=seen.version)
    assert taken.opened
    assert taken.fence > seen.lease.fence


async def test_a_lease_ends_by_the_time_since_the_machine_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = FileBackend(tmp_path)
    time = 1000.0
    monkeypatch.setattr(file_state, "now", lambda: time)
    old = await begun(backend, ONE, ttl=30)
    time += 29
    with pytest.raises(AssertionError):
        await begun(backend)
    time += 1
    assert await backend.append(old, [TWO], expect=1) == 2, "nobody took it"
    await begun(backend)
    with pytest.raises(ConversationFenced):
        await backend.append(old, [THREE], expect=2)


async def test_a_lease_does_not_outlast_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = FileBackend(tmp_path)
    old = await begun(backend, ONE)
    monkeypatch.setattr(file_state, "boot", lambda: "another")
    assert (await begun(backend)).fence > old.fence


async def test_a_lease_that_cannot_be_read_any_more_is_lost_and_nothing_else(tmp_path: Path) -> None:
    backend = FileBackend(tmp_path)
    old = await begun(backend, ONE)
    for damage in (b"", b"00000000 {}\n", now_of(tmp_path).read_bytes()[:-9]):
        now_of(tmp_path).write_bytes(damage)
        with pytest.raises(ConversationFenced):
            await backend.append(old, [TWO], expect=1)
        new = await begun(backend)
        assert new.fence > old.fence
        assert new.version == old.version
        old = new


async def test_a_lease_costs_no_row_of_the_order(tmp_path: Path) -> None:
    backend = FileBackend(tmp_path)
    await said(backend, "user 42")
    order = tmp_path / "main" / "order"
    before = order.read_bytes()
    fences: list[int] = []
    for number in range(1, 4):
        grant = await begun(backend, ONE, expect=(await standing(backend)))
        fences.append(grant.fence)
        await backend.append(grant, (), expect=grant.version.last, release=True)
        assert grant.version.last == number + 1
    assert fences == sorted({*fences})
    assert order.read_bytes() == before


@pytest.mark.parametrize("lost", ["older", "gone", "many"])
async def test_a_fence_never_comes_again_whatever_is_lost(
    lost: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = FileBackend(tmp_path)
    monkeypatch.setattr(file_state, "_FENCES", 4)
    old = await begun(backend, ONE)
    beside = now_of(tmp_path).read_bytes()
    fences = [old.fence]
    for _ in range(9 if lost == "many" else 2):
        await backend.append(old, (), expect=1, release=True)
        old = await begun(backend)
        fences.append(old.fence)
    if lost == "older":  # the machine lost its power before what was beside the file was on the disk
        now_of(tmp_path).write_bytes(beside)
        monkeypatch.setattr(file_state, "boot", lambda: "another")
    else:
        now_of(tmp_path).unlink()
    fences.append((await begun(backend)).fence)
    assert fences == sorted({*fences})
    with pytest.raises(ConversationFenced):
        await backend.append(old, [TWO], expect=1)


# Several at once


WORKER = """
import asyncio, sys
from toolnexus.errors import ConversationConflict
from toolnexus.stores.file import FileStore

async def main(folder, name):
    store = FileStore(folder)
    for number in range(12):
        while True:
            messages, version = await store.load("shared")
            new = [*messages, {"role": "user", "content": f"{name}.{number}", "saw": len(messages)}]
            try:
                await store.replace("shared", new, expect=version)
                break
            except ConversationConflict:
                await asyncio.sleep(0)
        await store.save(f"own {name}", [{"role": "user", "content": str(number)}])

asyncio.run(main(*sys.argv[1:]))
"""


async def test_three_processes_lose_nothing_on_a_folder_that_none_of_them_had_seen(tmp_path: Path) -> None:
    folder = tmp_path / "chats"
    workers = [await asyncio.create_subprocess_exec(sys.executable, "-c", WORKER, str(folder), name) for name in "abc"]
    assert [await worker.wait() for worker in workers] == [0, 0, 0]
    store = FileStore(folder)
    messages: Any = await store.get("shared")
    assert [message["saw"] for message in messages] == [*range(36)]
    for name in "abc":
        own = [message["content"] for message in messages if message["content"].startswith(name)]
        assert own == [f"{name}.{number}" for number in range(12)]
        assert await store.get(f"own {name}") == [{"role": "user", "content": "11"}]
    assert {item.id for item in (await store.list()).items} == {"shared", "own a", "own b", "own c"}


async def test_an_append_that_is_cancelled_has_been_made_when_the_cancellation_goes_on(tmp_path: Path) -> None:
    backend = FileBackend(tmp_path)
    grant = await begun(backend, ONE)
    appending = asyncio.create_task(backend.append(grant, [TWO], expect=1))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    appending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await appending
    assert await stored(backend) == (ONE, TWO)


async def test_a_file_that_somebody_keeps_locked_is_an_error_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = FileBackend(tmp_path)
    grant = await begun(backend, ONE)
    monkeypatch.setattr(disk, "_WAIT", 0.0)
    with disk.locked(log_of(tmp_path)), pytest.raises(StoreError, match="locked"):
        await backend.append(grant, [TWO], expect=1)
    assert await backend.append(grant, [TWO], expect=1) == 2


# What a turn costs


async def test_what_a_turn_reads_and_writes_does_not_depend_on_the_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    traffic = {"read": 0, "written": 0, "synced": 0}

    def count(name: str, function: Any, size: Any) -> None:
        def counted(*args: Any) -> Any:
            done = function(*args)
            traffic[name] += size(args, done)
            return done

        monkeypatch.setattr(os, name_of[name], counted)

    name_of = {"read": "pread", "written": "pwrite"}
    count("read", os.pread, lambda _, done: len(done))
    count("written", os.pwrite, lambda _, done: done)

    def sync(_: int) -> None:
        traffic["synced"] += 1

    monkeypatch.setattr(disk, "_sync", sync)

    async def cost(id: str, length: int) -> dict[str, int]:
        ours, theirs = FileBackend(tmp_path), FileBackend(tmp_path)
        key = Key("", id)
        grant = await begun(ours, key=key)
        await ours.append(grant, [ONE] * length, expect=0, head=head(), release=True)
        known = Version(incarnation=grant.version.incarnation, last=length)
        traffic.update(read=0, written=0, synced=0)
        grant = await begun(ours, TWO, key=key, expect=known)
        await ours.append(grant, [THREE, FOUR], expect=length + 1, head=head(), release=True)
        seen = await theirs.read(key, after=known)
        assert seen is not None
        assert seen.records == (TWO, THREE, FOUR)
        return dict(traffic)

    short, long = await cost("s", 2_000), await cost("l", 50_000)
    assert short["synced"] == long["synced"] == 2
    assert long["written"] == pytest.approx(short["written"], rel=0.1)
    assert long["read"] == pytest.approx(short["read"], rel=0.1)


# Lists


async def test_a_list_has_what_changed_last_first_whatever_is_lost(
    tmp_path: Path, unsynced: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = FileBackend(tmp_path)
    for id in "abcdeacf":
        await said(backend, id)
    expected = [*"fcaedb"]
    order = tmp_path / "main" / "order"
    assert await listed(backend) == await listed(backend, limit=1) == await listed(backend, limit=4) == expected

    order.write_bytes(order.read_bytes() + b"0000")
    await said(backend, "b")
    expected = [*"bfcaed"]
    assert await listed(backend) == expected

    order.unlink()
    assert await listed(backend, limit=2) == expected

    order.write_bytes(order.read_bytes()[: 2 * 96])  # the machine lost its power before these were on the disk
    monkeypatch.setattr(file_state, "boot", lambda: "another")
    await said(backend, "e")
    expected = [*"ebfcad"]
    assert await listed(backend, limit=3) == expected

    order.write_bytes(b"\0" * 960)
    await said(backend, "d")
    expected = [*"debfca"]
    assert await listed(backend) == expected

    for now in files(tmp_path, ".now"):
        now.unlink()
    order.unlink()
    assert await listed(backend) == expected


async def test_the_order_is_kept_short(tmp_path: Path, unsynced: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order_module, "_SPARE", 8)
    backend = FileBackend(tmp_path)
    for id in "abcdabcabaacbd" * 6:
        await said(backend, id)
    assert await backend.delete(Key("", "c"))
    await said(backend, "a")
    assert await listed(backend) == [*"adb"]
    assert (tmp_path / "main" / "order").stat().st_size < 96 * (4 * 8 + 8)


async def test_a_search_finds_words_said_in_any_turn_until_history_is_edited(tmp_path: Path, unsynced: None) -> None:
    backend = FileBackend(tmp_path)
    await said(backend, "a", "My colour is Teal")
    await said(backend, "a", "and my number 7", title="About me")
    await said(backend, "b", "teals", title="teal")
    assert await listed(backend, query="TEAL 7 about") == ["a"]
    assert await listed(backend, query="teal", limit=1) == ["b", "a"]
    assert await listed(backend, query="tea") == []
    await said(backend, "a", "number", title="About me", anew=True)
    assert await listed(backend, query="teal") == ["b"]
    assert await listed(backend, query="number me") == ["a"]


# What goes wrong


FULL = """
import asyncio, resource, signal, sys
from pathlib import Path
from toolnexus.errors import StoreError
from toolnexus.stores.backend import NOTHING, Key, Owner
from toolnexus.stores.file import FileBackend
from toolnexus.stores.process import this_process

async def main(folder):
    key = Key("", "user 42")
    backend = FileBackend(folder)
    owner = Owner(token="t" * 32, process=this_process())
    grant = await backend.begin(key, owner=owner, ttl=600, expect=NOTHING, records=[b"1" * 5000])
    [file] = Path(folder).glob("**/*.log")
    before = file.read_bytes()
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 5000, resource.RLIM_INFINITY))
    try:
        await backend.append(grant, [b"2" * 1000] * 9, expect=1)
    except StoreError as error:
        assert isinstance(error.__cause__, OSError), error
        assert "Nothing was changed" in str(error), error
    else:
        raise AssertionError("it had room")
    assert file.read_bytes() == before
    assert (await backend.read(key)).records == (b"1" * 5000,)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert await backend.append(grant, [b"2" * 1000] * 9, expect=1, release=True) == 10

asyncio.run(main(sys.argv[1]))
"""


def test_a_full_disk_leaves_everything_as_it_was(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", FULL, str(tmp_path)], check=True)


async def test_what_is_kept_beside_a_file_is_written_with_it_or_neither_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = FileBackend(tmp_path)
    grant = await begun(backend, ONE)
    before = log_of(tmp_path).read_bytes()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(file_state, "_keep", full)
        with pytest.raises(StoreError, match="No space left"):
            await backend.append(grant, [TWO], expect=1)
    assert log_of(tmp_path).read_bytes() == before
    assert await backend.append(grant, [TWO], expect=1) == 2


async def test_a_folder_that_cannot_be_written_to_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = FileBackend(tmp_path)
    await said(backend, "a", "teal")
    await said(backend, "b")
    really = os.open

    def read_only(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return really(path, flags, *args, **kwargs)

    (tmp_path / "main" / "order").unlink()
    monkeypatch.setattr(os, "open", read_only)
    assert await stored(backend, Key("", "a")) == (ONE,)
    assert await listed(backend, limit=1) == ["b", "a"]
    assert await listed(backend, query="teal") == ["a"]
    with pytest.raises(StoreError, match="Read-only"):
        await begun(backend)
    assert not (tmp_path / "main" / "order").exists()


def newer(folder: Path) -> None:
    """Make the folder look as if a newer version had laid it out."""
    for file in folder.glob("**/*.log"):
        header, _, rest = file.read_bytes().partition(b"\n")
        file.write_bytes(frames.note(header[9:].replace(b'"v":1', b'"v":2')) + rest)
    order = folder / "main" / "order"
    order.write_bytes(order.read_bytes().replace(b'"v":1', b'"v":2', 1))


async def test_a_newer_layout_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    await store.save("c", [HELLO])
    newer(tmp_path)
    before = files(tmp_path)
    for each in (store, FileStore(tmp_path)):
        saves: Sequence[Any] = (each.save("c", []), each.save("new", []))
        for attempt in (each.get("c"), each.list(), each.delete("c"), *saves):
            with pytest.raises(StoreTooNew, match="Update"):
                await attempt
    assert files(tmp_path) == before


async def test_a_stale_writer_is_told_where_the_conversation_stands(tmp_path: Path) -> None:
    backend = FileBackend(tmp_path)
    grant = await begun(backend, ONE, TWO)
    with pytest.raises(ConversationConflict) as caught:
        await backend.append(grant, [THREE], expect=1)
    assert (caught.value.expected, caught.value.actual) == (1, 2)


async def test_a_damaged_conversation_does_not_hide_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    backend = FileBackend(tmp_path)
    await said(backend, "a")
    await said(backend, "b")
    file = log_of(tmp_path, "b-")
    file.write_bytes(file.read_bytes() + b"damaged\n")
    (tmp_path / "main" / "order").unlink()
    with caplog.at_level(logging.WARNING):
        assert await listed(backend) == ["a"]
    assert "damaged" in caplog.text
