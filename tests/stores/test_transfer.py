from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from toolnexus.errors import (
    ConversationConflict,
    InvalidConversationId,
    InvalidTranscript,
    NoSuchConversation,
    StoreTooNew,
)
from toolnexus.stores import frames, records
from toolnexus.stores.backend import Key
from toolnexus.stores.file import FileStore
from toolnexus.stores.log import Fields
from toolnexus.stores.logstore import LogStore
from toolnexus.stores.memory import InMemoryConversationStore
from toolnexus.stores.transfer import export, import_

HELLO: Any = {"role": "user", "content": "hello"}
ANSWER: Any = {"role": "assistant", "content": "teal", "x-kept": 2**70}


async def turn(store: LogStore, id: str, fields: Sequence[Fields], *, number: int = 1) -> None:
    """Record a turn that began with HELLO."""
    begun = records.opened(f"t{number}", HELLO, at=float(number), saw=0, key=f"k{number}")
    hold = await store.take(id, lambda _log, _version: [*begun, *fields], wait=0)
    await hold.end(head=lambda: records.head(hold.log, now=0.0, new=None))


def done(number: int = 1) -> list[Fields]:
    return [records.message(ANSWER), records.ended(f"t{number}", "done", kept=True, outcome={"steps": 1})]


def failed(number: int) -> list[Fields]:
    return [records.ended(f"t{number}", "failed", kept=False, outcome={"error": {"kind": "server"}})]


async def exported(store: LogStore, id: str) -> bytes:
    return b"".join([piece async for piece in export(store, id)])


def file_in(folder: Path) -> Path:
    [file] = folder.glob("**/*.log")
    return file


async def two_turns() -> LogStore:
    store = InMemoryConversationStore()
    await turn(store, "c", done())
    await turn(store, "c", failed(2), number=2)
    await store.rename("c", "Colours")
    return store


async def test_an_imported_conversation_is_the_one_that_was_exported(tmp_path: Path) -> None:
    store, other = await two_turns(), FileStore(tmp_path)
    assert await import_(other, [await exported(store, "c")]) == "c"
    assert await other.get("c") == await store.get("c") == [HELLO, ANSWER]
    assert await other.turns("c") == await store.turns("c")
    assert await other.info("c") == await store.info("c")
    assert [(each.id, each.title, each.preview) for each in (await other.search("TEAL")).items] == [
        ("c", "Colours", "teal")
    ]
    assert await exported(other, "c") != b""
    back = InMemoryConversationStore()
    await import_(back, [await exported(other, "c")], id="back")
    assert await back.turns("back") == await store.turns("c")


async def test_the_file_of_a_file_store_is_an_export(tmp_path: Path) -> None:
    store = FileStore(tmp_path, scope="peer")
    await turn(store, "c", done())
    file = file_in(tmp_path)
    other = InMemoryConversationStore()
    await import_(other, [file.read_bytes()])
    assert await other.turns("c") == await store.turns("c")


async def test_an_export_in_its_place_is_the_file_of_a_file_store(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    await store.save("c", [])
    file = file_in(tmp_path)
    file.write_bytes(await exported(await two_turns(), "c"))
    (tmp_path / "main" / "order").unlink()
    other = FileStore(tmp_path)
    assert await other.get("c") == [HELLO, ANSWER]
    assert [(each.id, each.title) for each in (await other.list()).items] == [("c", "Colours")]
    await turn(other, "c", done(3), number=3)
    assert await store.get("c") == [HELLO, ANSWER, HELLO, ANSWER]


async def test_a_conversation_is_not_overwritten_unless_asked() -> None:
    data = await exported(await two_turns(), "c")
    store = InMemoryConversationStore()
    await turn(store, "c", failed(8), number=8)
    await store.save("c", [ANSWER])
    await store.rename("c", "Old")
    with pytest.raises(ConversationConflict, match="'c'"):
        await import_(store, [data])
    assert await store.get("c") == [ANSWER]
    await import_(store, [data], replace=True)
    assert await store.get("c") == [HELLO, ANSWER]
    assert [turn.id for turn in await store.turns("c")] == ["t1", "t2"]
    assert (await store.search("Colours")).items != ()


async def test_one_that_another_instance_removed_may_be_made_again(tmp_path: Path) -> None:
    ours, theirs = FileStore(tmp_path), FileStore(tmp_path)
    data = await exported(await two_turns(), "c")
    await import_(ours, [data])
    await theirs.delete("c")
    await import_(ours, [data])
    assert await theirs.get("c") == [HELLO, ANSWER]


async def test_a_turn_that_ran_when_it_was_exported_was_interrupted() -> None:
    store, other = InMemoryConversationStore(), InMemoryConversationStore()
    begun = records.opened("t1", HELLO, at=1.0, saw=0)
    hold = await store.take("c", lambda _log, _version: begun, wait=0)
    await hold.add(records.message({**ANSWER, "tool_calls": [CALL]}), records.effect("c1"))
    await import_(other, [await exported(store, "c")])
    await hold.give_up()
    [ended] = await other.turns("c")
    assert (ended.status, ended.count) == ("interrupted", 3)
    assert (await other.get("c") or [])[2]["content"] == "interrupted: outcome unknown"


CALL = {"id": "c1", "type": "function", "function": {"name": "pay", "arguments": "{}"}}


async def test_it_does_not_matter_in_which_pieces_an_export_comes() -> None:
    data = await exported(await two_turns(), "c")
    read: list[int] = []

    async def pieces() -> AsyncIterator[bytes]:
        for place in range(0, len(data), 7):
            yield data[place : place + 7]

    store = InMemoryConversationStore()
    await import_(store, pieces(), progress=read.append)
    assert await store.get("c") == [HELLO, ANSWER]
    assert read == [*range(7, len(data), 7), len(data)]


async def test_a_long_conversation_is_exported_in_pieces() -> None:
    store = InMemoryConversationStore()
    for number in range(1, 4):
        await turn(store, "c", [records.message({**ANSWER, "content": "x" * 70_000}), *done(number)], number=number)
    pieces = [piece async for piece in export(store, "c")]
    assert len(pieces) == 4
    assert max(map(len, pieces)) < 300_000
    other = InMemoryConversationStore()
    await import_(other, pieces)
    assert await other.get("c") == await store.get("c")


async def test_an_export_that_was_cut_anywhere_is_refused() -> None:
    data = await exported(await two_turns(), "c")
    store = InMemoryConversationStore()
    whole = data.index(b"\n") + 1  # the header alone is an empty conversation
    for end in {*range(len(data))} - {whole}:
        with pytest.raises(InvalidTranscript):
            await import_(store, [data[:end]])
    assert await store.get("c") is None


async def test_an_export_that_was_changed_is_refused_by_its_line() -> None:
    data = await exported(await two_turns(), "c")
    with pytest.raises(InvalidTranscript, match="line 5 "):
        await import_(InMemoryConversationStore(), [data.replace(b"teal", b"blue", 1)])


@pytest.mark.parametrize("data", [b"", b"\n", b'[{"role": "user"}]\n', frames.frame(b"{}"), frames.note(b'{"v":1}')])
async def test_what_is_no_export_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidTranscript, match="no export"):
        await import_(InMemoryConversationStore(), [data])


async def test_a_record_that_does_not_follow_is_refused() -> None:
    header = frames.write_header(frames.Header(key=Key("", "c"), incarnation=1))
    for record in (b"{}", b"not json", json.dumps(records.effect("c1")).encode()):
        with pytest.raises(InvalidTranscript, match="record"):
            await import_(InMemoryConversationStore(), [header, frames.frame(record)])


async def test_what_a_newer_version_wrote_is_refused_as_such() -> None:
    data = await exported(await two_turns(), "c")
    header = data[: data.index(b"\n") + 1]
    newer = frames.note(header[9:-1].replace(b'"v":1', b'"v":2'))
    store = InMemoryConversationStore()
    for lines in ([newer], [header, frames.frame(b'{"v":2,"k":"dream"}')]):
        with pytest.raises(StoreTooNew):
            await import_(store, lines)
    assert await store.get("c") is None


async def test_only_what_there_is_can_be_exported() -> None:
    with pytest.raises(NoSuchConversation):
        await exported(InMemoryConversationStore(), "c")
    with pytest.raises(InvalidConversationId):
        await exported(InMemoryConversationStore(), "")
