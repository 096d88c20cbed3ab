"""A short torture of every store, and that it finds what it looks for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from toolnexus.stores.backend import Grant, Head, Record
from toolnexus.stores.logstore import LogStore
from toolnexus.stores.memory import MemoryBackend
from toolnexus.testing.torture import SCENARIOS, scenarios, torture
from toolnexus.testing.torture.__main__ import main
from toolnexus.testing.torture.judge import charged_wrongly
from toolnexus.testing.torture.place import Place
from toolnexus.testing.torture.proxy import proxied
from toolnexus.testing.torture.work import Charge

POSTGRES = "postgresql://postgres@127.0.0.1:5432/test?sslmode=disable&gssencmode=disable"
REDIS = "redis://127.0.0.1:6379/0"


def case(url: str, *names: str) -> list[Any]:
    kind = Place(url=url, scope="").kind
    marks = [pytest.mark.service(kind)] if kind in ("postgres", "redis") else []
    return [pytest.param(url, name, id=f"{kind}-{name}", marks=marks) for name in names]


@pytest.mark.parametrize(
    ("url", "name"),
    [
        *case("memory://", "cancel", "leave"),
        *case("sqlite:///{folder}/torture.db", *scenarios("sqlite://")),
        *case("file://{folder}/torture", "race", "points", "cancel", "tails"),
        *case(POSTGRES, "race", "points", "kills", "cancel", "pool", "cut", "sever"),
        *case(REDIS, "race", "points", "cancel", "cut", "sever", "restart"),
    ],
)
async def test_nothing_is_lost_doubled_or_broken(url: str, name: str, tmp_path: Path) -> None:
    outcome = await torture(url.format(folder=tmp_path), name)
    assert outcome.findings == ()


def test_each_scenario_is_for_some_store() -> None:
    urls = ("memory://", "sqlite://", "file://", "postgresql://", "redis://")
    assert {name for url in urls for name in scenarios(url)} == {*SCENARIOS}


class KeepsTheTurn(MemoryBackend):
    """Does not give a turn back, as its caller asked it to."""

    async def append(
        self, grant: Grant, records: Sequence[Record], *, expect: int, head: Head | None = None, release: bool = False
    ) -> int:
        return await super().append(grant, records, expect=expect, head=head)


class ForgetsResults(MemoryBackend):
    """Takes the first result of a turn and does not store it."""

    async def append(
        self, grant: Grant, records: Sequence[Record], *, expect: int, head: Head | None = None, release: bool = False
    ) -> int:
        kept = [record for record in records if b'"charged"' not in record]
        await super().append(grant, kept, expect=expect, head=head, release=release)
        return expect + len(kept)


@pytest.mark.parametrize("backend", [KeepsTheTurn, ForgetsResults])
def test_a_store_that_breaks_its_word_is_found_out(
    backend: type[MemoryBackend], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Place, "open", lambda _: LogStore(backend()))

    assert main(["memory://", "--only", "leave"]) == 1

    assert "FOUND" in capsys.readouterr().out


def test_it_says_what_it_did_and_shows_no_password(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["memory://me:secret@?password=secret", "--only", "race"]) == 0  # nothing for such a store
    assert main(["memory://", "--only", "leave", "--seed", "3"]) == 0

    first, *_, did, last = capsys.readouterr().out.splitlines()
    assert first == "memory://, seed 0"
    assert "a stream left at each of its events" in did
    assert did.endswith("nothing found")
    assert last == "Nothing was found."


@pytest.mark.parametrize(
    ("charges", "done", "found"),
    [
        ([Charge("k", "a")], ["a"], []),
        ([Charge("k", "a"), Charge("k", "a")], ["a"], ["The call k ran 2 times.", "'a' was charged 2 times."]),
        ([Charge("k", "a"), Charge("l", "a")], ["a"], ["'a' was charged 2 times."]),
        ([Charge("k", "a"), Charge("l", "b")], ["a"], ["'b' was charged and is forgotten."]),
        ([], ["a"], ["'a' is done and was not charged."]),
    ],
)
def test_a_charge_is_made_once_and_remembered(charges: list[Charge], done: list[str], found: list[str]) -> None:
    assert charged_wrongly(charges, [{"role": "user", "content": "a"}], done=done) == found


@pytest.mark.parametrize(("lose", "served"), [("request", ["one"]), ("answer", ["one", "two"])])
async def test_a_proxy_loses_a_request_before_and_an_answer_after_the_server_has_it(
    lose: Any, served: list[str]
) -> None:
    got: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            got.append(line.decode().strip())
            writer.write(b"done\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    async with server, proxied(host, port) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        proxy.lose(lose, 1)

        writer.write(b"one\n")
        assert await reader.readline() == b"done\n"
        writer.write(b"two\n")
        assert await reader.read() == b""

        assert got == served
        assert proxy.cuts == 1
        writer.close()
