"""What a remembered turn costs beside the same rows written by hand."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache, partial
from hashlib import blake2b
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import orjson

from benchmarks import report
from benchmarks.by_hand import ByHand, FileByHand, PostgresByHand, RedisByHand, SQLiteByHand, checkpoint
from benchmarks.measure import ratio
from benchmarks.report import Row, judged
from toolnexus import create_in_process_client
from toolnexus.stores import records
from toolnexus.stores.backend import NOTHING, Key, Owner
from toolnexus.stores.log import Log
from toolnexus.stores.logstore import LogStore
from toolnexus.stores.opening import open_store

if TYPE_CHECKING:
    from toolnexus.stores.backend import Grant
    from toolnexus.stores.hold import Hold
    from toolnexus.stores.log import Fields

_MS = 1e3
LENGTHS = (10, 100, 1_000, 10_000)
_WORDS = [blake2b(b"%d" % n, digest_size=8).hexdigest()[: 2 + n % 9] for n in range(4_000)]
"""What is talked about: few words come twice in a turn, as in life."""
_HEAD = " ".join(_WORDS[:20])
POSTGRES = "postgresql://127.0.0.1:5432/test"
REDIS = "redis://127.0.0.1:6379/0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How long to measure: rounds, and turns of each contender for each length in a round."""

    rounds: int
    turns: int


FULL = Effort(rounds=15, turns=8)
QUICK = Effort(rounds=4, turns=4)


def _message(place: int, role: str, number: int, **fields: Any) -> Any:
    """A message of 500 bytes, as JSON, with other words at each place of a turn."""
    bare = {"role": role, "content": "", **fields}
    start = (number * 97 + place * 1_013) % (len(_WORDS) - 150)
    text = " ".join(_WORDS[start : start + 150])
    return {**bare, "content": text[: 500 - len(orjson.dumps(bare))]}


@lru_cache(8)
def _turn(number: int) -> list[Any]:
    """The four messages of a turn. Kept, so that what makes them up is in nobody's figures."""
    call = {"id": f"c{number}", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    return [
        _message(0, "user", number),
        _message(1, "assistant", number, tool_calls=[call]),
        _message(2, "tool", number, tool_call_id=call["id"]),
        _message(3, "assistant", number),
    ]


def _turn_id(number: int) -> str:
    return blake2b(b"%d" % number, digest_size=16).hexdigest()


def _opening(number: int, saw: int) -> list[Fields]:
    return records.opened(_turn_id(number), _turn(number)[0], at=1.7e9, saw=saw)


def _end(number: int) -> list[Fields]:
    usage = {"prompt": 1000, "completion": 100, "total": 1100}
    outcome = {"finish_reason": "stop", "model": "m", "usage": usage, "steps": [{"finish_reason": "stop"}]}
    ended = records.ended(_turn_id(number), "done", kept=True, outcome=outcome)
    return [*(records.message(message) for message in _turn(number)[1:]), ended]


def _history(length: int) -> list[bytes]:
    """The records of a conversation of so many messages; of an odd number of pairs, half a turn more."""
    turns = range(-(-length // 4))
    return [records.encode(each) for n in turns for each in (*_opening(n, 4 * n), *_end(n))]


@dataclass(slots=True, kw_only=True)
class Contender:
    """A store, and the same by hand.

    Attributes:
        written: The bytes that both have written so far. None: that cannot be told.
    """

    name: str
    url: str
    by_hand: ByHand
    written: Callable[[], int] | None = None
    settle: Callable[[], None] | None = None
    """Writes what both would write some time later anyhow, so that it does not fall into what is counted."""
    store: LogStore = field(init=False)
    hand: ThreadPoolExecutor = field(init=False)
    """The one thread of what is done by hand: no driver may keep an event loop waiting, written by hand or not."""

    def __post_init__(self) -> None:
        self.store = LogStore(open_store(self.url).backend, scope=f"benchmark-{uuid4().hex[:12]}")
        self.hand = ThreadPoolExecutor(1)


_COUNTED = 16
_turns = count(10_000)
_ids = count()


async def seeded(store: LogStore, history: Sequence[bytes]) -> str:
    """A new conversation that holds these records."""
    id = f"conversation {next(_ids)}"
    owner = Owner(token=uuid4().hex, process="benchmark")
    grant = await store.backend.begin(Key(store.scope, id), owner=owner, ttl=60, expect=NOTHING, records=())
    assert grant is not None
    log = Log()
    log.apply(history, conversation_id=id)
    head = records.head(log, now=time.time(), new=log.messages)
    await store.backend.append(grant, history, expect=0, head=head, release=True)
    return id


async def take(store: LogStore, id: str, number: int) -> Hold:
    """Take the turn and load the conversation, with the prompt in the same commit."""
    return await store.take(id, lambda log, _: _opening(number, len(log.messages)), wait=0)


async def save(store: LogStore, hold: Hold, number: int) -> None:
    """Append the rest of the turn, and give it back."""
    before = len(hold.log.messages)
    await hold.end(*_end(number), head=lambda: records.head(hold.log, now=time.time(), new=hold.log.messages[before:]))
    store.keep(hold)


@dataclass(slots=True)
class Figures:
    """Seconds of one length, one figure a round; bytes, statements and commits of one turn."""

    load: list[float] = field(default_factory=list[float])
    raw_load: list[float] = field(default_factory=list[float])
    save: list[float] = field(default_factory=list[float])
    raw_save: list[float] = field(default_factory=list[float])
    cold: list[float] = field(default_factory=list[float])
    raw_cold: list[float] = field(default_factory=list[float])
    direct_save: list[float] = field(default_factory=list[float])
    bytes: list[float] = field(default_factory=list[float])
    raw_bytes: list[float] = field(default_factory=list[float])
    counts: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])


async def measure(contender: Contender, length: int, figures: Figures, *, turns: int) -> None:
    """One round: turns of both, alternating, on new conversations of the same length."""
    store, raw = contender.store, contender.by_hand
    history = _history(length)
    id, conversation = await seeded(store, history), raw.create(history)
    last = len(history)
    samples: dict[str, list[float]] = {name: [] for name in _TIMED}
    loop = asyncio.get_running_loop()
    gc.collect()
    gc.disable()  # a collection of what everybody left behind is in nobody's figures

    async def timed(what: str, work: Awaitable[Any]) -> Any:
        start = time.perf_counter()
        outcome = await work
        samples[what].append(time.perf_counter() - start)
        return outcome

    async def by_hand(what: str, work: Callable[[], object]) -> None:
        await timed(what, loop.run_in_executor(contender.hand, work))

    for turn in range(2 * turns + 1):
        number = next(_turns)
        opening = [records.encode(each) for each in _opening(number, 4 * number)]
        end = [records.encode(each) for each in _end(number)]
        if turn > turns:  # as after a restart, but for the connection
            store = LogStore(store.backend, scope=store.scope)
            hold = await timed("cold", take(store, id, number))
            await by_hand("raw_cold", partial(_fetch_and_append, raw, conversation, last, opening))
            await save(store, hold, number)
            start = time.perf_counter()
            raw.append(conversation, last + len(opening), end, head=_HEAD)
            samples["direct_save"].append(time.perf_counter() - start)
        else:
            hold = await timed("load", take(store, id, number))
            await by_hand("raw_load", partial(raw.append, conversation, last, opening, head=""))
            await timed("save", save(store, hold, number))
            await by_hand("raw_save", partial(raw.append, conversation, last + len(opening), end, head=_HEAD))
        last += len(opening) + len(end)
    gc.enable()
    for name, values in samples.items():
        warm = name not in ("cold", "raw_cold", "direct_save")
        getattr(figures, name).append(statistics.median(values[1:] if warm else values))  # the first one was cold
    await _count(contender, figures, id, conversation, last)
    await store.delete(id)
    raw.remove(conversation)


_TIMED = ("load", "raw_load", "save", "raw_save", "cold", "raw_cold", "direct_save")


def _fetch_and_append(raw: ByHand, conversation: int, last: int, opening: Sequence[bytes]) -> None:
    raw.fetch(conversation)
    raw.append(conversation, last, opening, head="")


async def _count(contender: Contender, figures: Figures, id: str, conversation: int, last: int) -> None:
    """Bytes, statements and commits of a turn, where they can be told. Bytes come in pages: many turns are counted."""
    store, raw, written = contender.store, contender.by_hand, contender.written
    number = next(_turns)
    await save(store, await take(store, id, number), number)  # what another store object wrote is read
    numbers = [next(_turns) for _ in range(_COUNTED)]
    if contender.settle is not None:
        contender.settle()
    before = written() if written else 0
    for number in numbers:
        counted = _counted(store)
        await save(store, await take(store, id, number), number)
        if counted is not None:
            statements, commits = _counted(store) or (0, 0)
            figures.counts.add((statements - counted[0], commits - counted[1]))
    between = written() if written else 0
    for number in numbers:
        opening, end = _opening(number, 4 * number), _end(number)
        raw.append(conversation, last, [records.encode(each) for each in opening], head="")
        raw.append(conversation, last + len(opening), [records.encode(each) for each in end], head=_HEAD)
        last += len(opening) + len(end)
    if written is not None:
        figures.bytes.append((between - before) / _COUNTED)
        figures.raw_bytes.append((written() - between) / _COUNTED)


def _counted(store: LogStore) -> tuple[int, int] | None:
    """Statements and commits so far. None: the store does not count."""
    statements, commits = getattr(store.backend, "statements", None), getattr(store.backend, "commits", None)
    return None if statements is None or commits is None else (statements, commits)


def _rows(contender: Contender, by_length: dict[int, Figures]) -> Iterator[Row]:
    name = contender.name
    for length, found in by_length.items():
        yield _timed(f"{name}, {length:,} messages: take and load, warm", found.load, found.raw_load, most=1.5)
        yield _timed("  save", found.save, found.raw_save, most=1.3)
        most = 1.5 if length >= 1_000 else None
        yield _timed("  take and load, cold", found.cold, found.raw_cold, most=most, beside="by hand, with fetch")
        if found.bytes:
            ours, raw = min(found.bytes), min(found.raw_bytes)  # what else is written in a round only adds to it
            counts = " or ".join(f"{statements} statements, {commits} commits" for statements, commits in found.counts)
            yield Row(
                what="  bytes of the turn",
                ours=f"{ours / 1e3:.1f} kB{', ' if counts else ''}{counts}",
                beside=f"{raw / 1e3:.1f} kB by hand",
                ratio=f"{ours / raw:.2f}",
                target="<= 1.3 x",
                verdict=judged(ours <= 1.3 * raw),
                samples={"toolnexus": found.bytes, "by hand": found.raw_bytes},
            )
    shortest, longest = min(by_length), max(by_length)
    yield _timed(
        f"  [{name}: a save by hand, beside one without a thread]",
        by_length[shortest].raw_save,
        by_length[shortest].direct_save,
        beside="without",
    )
    of = [a + b for a, b in zip(by_length[longest].load, by_length[longest].save, strict=True)]
    to = [a + b for a, b in zip(by_length[shortest].load, by_length[shortest].save, strict=True)]
    grown = ratio(of, to)
    counts = set().union(*(found.counts for found in by_length.values()))
    yield Row(
        what=f"{name}: a warm turn at {longest:,} beside {shortest}",
        ours=f"{statistics.median(of) * _MS:.3f} ms",
        beside=f"{statistics.median(to) * _MS:.3f} ms",
        ratio=f"{grown.median:.2f} ({grown.low:.2f}-{grown.high:.2f})",
        target="<= 1.2 x, same statements and commits",
        verdict=judged(grown.median <= 1.2 and len(counts) <= 1),
        samples={"longest": of, "shortest": to},
    )


def _timed(
    what: str, ours: list[float], raw: list[float], *, most: float | None = None, beside: str = "by hand"
) -> Row:
    found = ratio(ours, raw)
    return Row(
        what=what,
        ours=f"{statistics.median(ours) * _MS:.3f} ms",
        beside=f"{statistics.median(raw) * _MS:.3f} ms {beside}",
        ratio=f"{found.median:.2f} ({found.low:.2f}-{found.high:.2f})",
        target="" if most is None else f"<= {most} x",
        verdict="" if most is None else judged(found.median <= most),
        samples={"toolnexus": ours, "by hand": raw},
    )


async def together(contender: Contender, *, rounds: int, conversations: int = 64) -> Row:
    """Appends to many conversations at once, beside the same one after the other."""
    store = contender.store
    bodies = [records.encode(each) for each in _end(0)]
    grants: list[Grant] = []
    for n in range(conversations):
        owner = Owner(token=uuid4().hex, process="benchmark")
        key = Key(store.scope, f"together {n}")
        grant = await store.backend.begin(key, owner=owner, ttl=600, expect=NOTHING, records=bodies)
        assert grant is not None
        grants.append(grant)
    last = len(bodies)
    at_once: list[float] = []
    in_a_row: list[float] = []
    for _ in range(rounds):
        start = time.perf_counter()
        await asyncio.gather(*(store.backend.append(grant, bodies, expect=last) for grant in grants))
        at_once.append(conversations / (time.perf_counter() - start))
        last += len(bodies)
        start = time.perf_counter()
        for grant in grants:
            await store.backend.append(grant, bodies, expect=last)
        in_a_row.append(conversations / (time.perf_counter() - start))
        last += len(bodies)
    found = ratio(at_once, in_a_row)
    return Row(
        what=f"{contender.name}: {conversations} appends at once",
        ours=f"{statistics.median(at_once):.0f}/s",
        beside=f"{statistics.median(in_a_row):.0f}/s one after the other",
        ratio=f"{found.median:.1f} ({found.low:.1f}-{found.high:.1f})",
        target=">= 5 x",
        verdict=judged(found.median >= 5),
        samples={"at once": at_once, "in a row": in_a_row},
    )


async def crowd(contender: Contender, *, rounds: int, conversations: int = 64, connections: int = 4) -> Row:
    """A turn of many conversations at once on a pool, beside the same statements by hand on as many connections."""
    store = contender.store
    assert isinstance(contender.by_hand, PostgresByHand)
    ids = [await seeded(store, _history(8)) for _ in range(conversations)]
    numbers = [contender.by_hand.create(_history(8)) for _ in range(conversations)]
    last = len(_history(8))
    loop = asyncio.get_running_loop()
    local = threading.local()
    hands: list[PostgresByHand] = []

    def connect() -> None:
        local.hand = contender.by_hand.another()
        hands.append(local.hand)

    async def ours(id: str) -> None:
        number = next(_turns)
        await save(store, await take(store, id, number), number)

    samples: list[float] = []
    raw: list[float] = []
    with ThreadPoolExecutor(connections, initializer=connect) as pool:

        async def by_hand(conversation: int) -> None:
            number = next(_turns)
            for first, fields in ((last, _opening(number, 8)), (last + 2, _end(number))):
                bodies = [records.encode(each) for each in fields]

                def append(first: int = first, bodies: list[bytes] = bodies) -> None:
                    local.hand.append(conversation, first, bodies, head=_HEAD)

                await loop.run_in_executor(pool, append)

        await asyncio.gather(*(ours(id) for id in ids))  # opens the connections, and loads
        await asyncio.gather(*(by_hand(number) for number in numbers))
        last += 6
        for _ in range(rounds):
            start = time.perf_counter()
            await asyncio.gather(*(ours(id) for id in ids))
            samples.append(conversations / (time.perf_counter() - start))
            start = time.perf_counter()
            await asyncio.gather(*(by_hand(number) for number in numbers))
            raw.append(conversations / (time.perf_counter() - start))
            last += 6
    for hand in hands:
        hand.disconnect()
    found = ratio(samples, raw)
    return Row(
        what=f"{contender.name}: {conversations} conversations at once, {connections} connections",
        ours=f"{statistics.median(samples):.0f} turns/s",
        beside=f"{statistics.median(raw):.0f} turns/s by hand",
        ratio=f"{found.median:.2f} ({found.low:.2f}-{found.high:.2f})",
        target=">= 0.7 x",
        verdict=judged(found.median >= 0.7),
        samples={"toolnexus": samples, "by hand": raw},
    )


async def _say(request: dict[str, Any]) -> dict[str, Any]:
    return {"content": "noted"}


async def queue(contender: Contender, *, rounds: int, asks: int = 20) -> Row:
    """Asks at once on one id, beside the same in a row: all are kept."""
    client = create_in_process_client(generate=_say, store=contender.store)
    at_once: list[float] = []
    in_a_row: list[float] = []
    whole = True
    for number in range(rounds + 1):
        start = time.perf_counter()
        await asyncio.gather(*(client.ask(f"{n}", id=f"at once {number}") for n in range(asks)))
        at_once.append(time.perf_counter() - start)
        start = time.perf_counter()
        for n in range(asks):
            await client.ask(f"{n}", id=f"in a row {number}")
        in_a_row.append(time.perf_counter() - start)
        kept = await contender.store.get(f"at once {number}") or []
        whole = whole and sorted(m["content"] for m in kept[::2]) == sorted(str(n) for n in range(asks))
        whole = whole and all(message["content"] == "noted" for message in kept[1::2])
    found = ratio(at_once[1:], in_a_row[1:])
    return Row(
        what=f"{contender.name}: {asks} asks at once on one id",
        ours=f"{statistics.median(at_once) * _MS:.2f} ms",
        beside=f"{statistics.median(in_a_row) * _MS:.2f} ms in a row",
        ratio=f"{found.median:.2f} ({found.low:.2f}-{found.high:.2f})",
        target="<= 1.3 x, all kept",
        verdict=judged(found.median <= 1.3 and whole),
        samples={"at once": at_once, "in a row": in_a_row},
    )


async def asks(contender: Contender, *, rounds: int) -> Iterator[Row]:
    """Whole asks, warm, beside `run` with the same history in hand."""
    client = create_in_process_client(generate=_say, store=contender.store)
    store = contender.store
    rows: list[Row] = []
    counts: set[tuple[int, int]] = set()
    for length in (LENGTHS[0], LENGTHS[2]):
        id = await seeded(store, _history(length))
        await client.ask("first", id=id)
        asked: list[float] = []
        ran: list[float] = []
        for _ in range(5 * rounds):
            history = await store.get(id)
            before = _counted(store)
            start = time.perf_counter()
            await client.ask("next", id=id)
            asked.append(time.perf_counter() - start)
            if before is not None and (after := _counted(store)) is not None:
                counts.add((after[0] - before[0], after[1] - before[1]))
            start = time.perf_counter()
            await client.run("next", history=history)
            ran.append(time.perf_counter() - start)
        rows.append(_timed(f"{contender.name}, {length:,} messages: a whole ask", asked, ran, beside="run(history=)"))
    if counts:
        rows[-1] = Row(
            **{name: getattr(rows[-1], name) for name in ("what", "beside", "ratio", "samples")},
            ours=rows[-1].ours
            + "".join(f", {statements} statements, {commits} commits" for statements, commits in counts),
            target="as many statements and commits as at 10",
            verdict=judged(len(counts) == 1),
        )
    return iter(rows)


@contextlib.asynccontextmanager
async def contenders(names: Sequence[str], folder: Path) -> AsyncIterator[list[Contender]]:
    """The stores that are to be measured and are there."""
    tag = uuid4().hex[:8]
    found: list[Contender] = []
    if "sqlite" in names:
        files = (folder / "ours.db", folder / "hand.db")
        found.append(
            Contender(
                name="SQLite",
                url=f"sqlite:///{files[0]}",
                by_hand=SQLiteByHand(files[1]),
                written=_io(),
                settle=lambda: checkpoint(*files),
            )
        )
    if "file" in names:
        found.append(
            Contender(name="files", url=f"file://{folder}/files", by_hand=FileByHand(folder / "hand"), written=_io())
        )
    if "postgres" in names:
        hand = PostgresByHand(POSTGRES, f"benchmark_{tag}")
        found.append(Contender(name="PostgreSQL", url=POSTGRES, by_hand=hand, written=hand.written))
    if "redis" in names:
        found.append(Contender(name="Redis", url=REDIS, by_hand=RedisByHand(REDIS, f"benchmark-{tag}")))
    try:
        yield found
    finally:
        for contender in found:
            while (page := await contender.store.list(limit=200)).items:
                for listed in page.items:
                    await contender.store.delete(listed.id)
            await contender.store.aclose()
            contender.hand.shutdown()
            contender.by_hand.close()


def _io() -> Callable[[], int] | None:
    """What counts the bytes that this process has written. None: the system does not tell."""
    counters = Path("/proc/self/io")
    if not counters.exists():
        return None

    def written() -> int:
        return next(int(line.split()[1]) for line in counters.read_text().splitlines() if line.startswith("wchar"))

    return written


async def _measured(names: Sequence[str], effort: Effort) -> AsyncIterator[Row]:
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        async with contenders(names, Path(folder)) as found:
            tables = {contender.name: {length: Figures() for length in LENGTHS} for contender in found}
            for number in range(effort.rounds):
                for contender in found:
                    for length in LENGTHS:
                        await measure(contender, length, tables[contender.name][length], turns=effort.turns)
                print(f"round {number + 1} of {effort.rounds}", file=sys.stderr)
            for contender in found:
                for row in _rows(contender, tables[contender.name]):
                    yield row
                if contender.name == "SQLite":
                    yield await together(contender, rounds=effort.rounds)
                if contender.name == "PostgreSQL":
                    yield await crowd(contender, rounds=effort.rounds)
                yield await queue(contender, rounds=effort.rounds)
                for row in await asks(contender, rounds=effort.rounds):
                    yield row


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks memory", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds: a first impression")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write every sample to FILE")
    known = ("sqlite", "file", "postgres", "redis")
    parser.add_argument("--store", action="append", choices=known, help="only this one; may be repeated")
    options = parser.parse_args(arguments)

    wanted = options.store or known
    missing = [name for name, port in (("postgres", 5432), ("redis", 6379)) if name in wanted and not _listens(port)]
    for name in missing:
        print(f"SKIPPED: {name} does not listen on this machine.", file=sys.stderr)

    async def collect() -> list[Row]:
        names = [name for name in wanted if name not in missing]
        return [row async for row in _measured(names, QUICK if options.quick else FULL)]

    rows = asyncio.run(collect())
    about = report.machine()
    print(f"Python {about['python']}, {about['system']}, {about['cpus']} CPUs, load {about['load'][0]:.1f}\n")
    print(report.table(rows))
    if options.json is not None:
        options.json.write_bytes(orjson.dumps(report.as_json(rows), option=orjson.OPT_INDENT_2))
