"""Connections to servers: few of them, cut ones, ended ones, and a server that is killed."""

from __future__ import annotations

import asyncio
import shutil
import signal
import socket
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, parse_qsl, quote, urlencode, urlsplit, urlunsplit

from toolnexus.errors import StoreError, ToolnexusError
from toolnexus.stores.logstore import LogStore
from toolnexus.testing import checker
from toolnexus.testing.checker import prompt
from toolnexus.testing.torture.judge import judged
from toolnexus.testing.torture.proxy import proxied
from toolnexus.testing.torture.trial import Outcome, Trial
from toolnexus.testing.torture.work import Ledger, charging, tortured

if TYPE_CHECKING:
    from pathlib import Path

    from toolnexus.testing.torture.place import Place

_PORTS = {"postgres": 5432, "redis": 6379}
_MOST = 100
"""Requests of a turn; beyond, something does not end."""


async def pool(trial: Trial) -> Outcome:
    """Twenty turns at once on a pool of one connection: none waits for another's model."""
    from toolnexus.stores.postgres import PostgresBackend

    thinking = 0.1
    turns = 20
    place = trial.place
    store = LogStore(PostgresBackend(place.url, pool_size=1), scope=place.scope)
    client = tortured(store, thinking=lambda: thinking)
    ledgers = [trial.ledger(f"pool {number}") for number in range(turns + 1)]
    found: list[str] = []
    seconds = 0.0
    try:
        started = time.monotonic()
        apart = [
            client.ask(prompt("pool", 0), [charging(ledgers[number])], id=f"pool {number}") for number in range(turns)
        ]
        async with asyncio.timeout(60):
            await asyncio.gather(*apart)
            seconds = time.monotonic() - started
            same = [prompt(f"queue {number}", 0) for number in range(turns)]
            quick = tortured(store)
            await asyncio.gather(*(quick.ask(asked, [charging(ledgers[-1])], id="queue") for asked in same))
        if seconds > turns * thinking:
            found.append(f"{turns} turns of {2 * thinking:g} s took {seconds:.2f} s: they waited for each other.")
        for number in range(turns):
            found += await judged(store, f"pool {number}", done=[prompt("pool", 0)], ledger=ledgers[number])
        found += await judged(store, "queue", done=same, ledger=ledgers[-1])
    except (ToolnexusError, TimeoutError) as error:
        found.append(f"It failed: {type(error).__name__}: {error}")
    finally:
        await store.aclose()
    return Outcome(f"{turns} turns at once on one connection in {seconds:.2f} s, then {turns} on one id", tuple(found))


async def cut(trial: Trial) -> Outcome:
    """Each request of a turn, then each answer, is lost with its connection: the turn goes on, and is kept once."""
    address = _address(trial.place)
    found: list[str] = []
    async with proxied(*address) as proxy:
        place = replace(trial.place, url=_moved(trial.place.url, port=proxy.port))
        store = place.open()
        client = tortured(store)
        try:
            for what in ("request", "answer"):
                for number in range(_MOST):
                    id, ledger = f"{what} {number} lost", trial.ledger(f"{what} {number}")
                    asked = [prompt("first", 0), prompt("cut", 0), prompt("next", 0)]
                    done: list[str] = []
                    cuts = proxy.cuts
                    for each in asked:
                        if each is asked[1]:
                            proxy.lose(what, number)
                        try:
                            await client.ask(each, [charging(ledger)], id=id, busy="raise")
                        except ToolnexusError as error:
                            found.append(f"{id}: {each!r} failed: {type(error).__name__}: {error}")
                        else:
                            done.append(each)
                        if each is asked[1]:
                            proxy.lose(what, -1)
                    unknown = {*asked} - {*done}
                    found += await judged(store, id, done=done, unknown=unknown, ledger=ledger)
                    if proxy.cuts == cuts:
                        break
        finally:
            await store.aclose()
        return Outcome(
            f"each request and each answer of a turn lost with its connection: {proxy.cuts} cut", tuple(found)
        )


async def sever(trial: Trial) -> Outcome:
    """The server ends our connections again and again while turns run."""
    name = trial.place.scope
    if trial.place.kind == "postgres":
        place = replace(trial.place, url=_moved(trial.place.url, application_name=name), lease=1.0)
        end = _terminated(trial.place.url, name)
    else:
        place = replace(trial.place, url=_moved(trial.place.url, client_name=name), lease=1.0)
        end = _killed(trial.place.url, name)
    ended = 0

    async def disturb() -> None:
        nonlocal ended
        while True:
            await asyncio.sleep(trial.chance.uniform(0.0, 0.05))
            ended += await asyncio.to_thread(end)

    asking = _Asking(place, trial)
    disturbing = asyncio.get_running_loop().create_task(disturb())
    try:
        found = await asking.run(turns=40 if trial.long else 8)
    finally:
        disturbing.cancel()
        await asyncio.wait({disturbing})
    found += await asking.judge()
    return Outcome(f"{ended} connections ended by the server: {asking}", tuple(found))


async def restart(trial: Trial) -> Outcome:
    """A Redis server of our own, which syncs each write, is killed and started again while turns run."""
    if shutil.which("redis-server") is None:
        return Outcome("not done: there is no redis-server to start")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place = replace(trial.place, url=f"redis://127.0.0.1:{port}/0", lease=1.0)
    kills = 10 if trial.long else 2
    killed = 0

    async def disturb() -> None:
        nonlocal killed
        while True:
            async with _redis(port, trial.folder):
                if killed == kills:
                    await asyncio.get_running_loop().create_future()
                await asyncio.sleep(trial.chance.uniform(0.1, 0.3))
            killed += 1

    asking = _Asking(place, trial)
    disturbing = asyncio.get_running_loop().create_task(disturb())
    try:
        await _listening(port)
        found = await asking.run(turns=100 if trial.long else 20)
        found += await asking.judge()
    finally:
        disturbing.cancel()
        await asyncio.wait({disturbing})
    return Outcome(f"a server killed {killed} x: {asking}", tuple(found))


class _Asking:
    """Tasks that ask on two ids of one store, and take errors of the store as part of life."""

    def __init__(self, place: Place, trial: Trial) -> None:
        self._store = place.open()
        self._client = tortured(self._store, thinking=lambda: trial.chance.uniform(0.0, 0.005))
        self._ids = ("severed 0", "severed 1")
        self._ledgers: dict[str, Ledger] = {id: trial.ledger(id) for id in self._ids}
        self._asked: dict[str, list[str]] = {id: [] for id in self._ids}
        self._done: dict[str, list[str]] = {id: [] for id in self._ids}

    def __str__(self) -> str:
        done = sum(map(len, self._done.values()))
        return f"{done} turns done, {sum(map(len, self._asked.values())) - done} failed"

    async def run(self, *, turns: int) -> list[str]:
        """Ask so many turns from each of four tasks. What is wrong with how they failed."""
        found: list[str] = []
        tasks = [self._ask(self._ids[number % 2], f"asker {number}", turns, found) for number in range(4)]
        async with asyncio.timeout(240):
            await asyncio.gather(*tasks)
        return found

    async def judge(self) -> list[str]:
        """What is wrong afterwards. Closes the store."""
        found: list[str] = []
        try:
            for id in self._ids:
                last = prompt("last", 0)
                await self._client.ask(last, [charging(self._ledgers[id])], id=id, busy_timeout=20.0)
                done = [*self._done[id], last]
                unknown = {*self._asked[id]} - {*done}
                found += await judged(self._store, id, done=done, unknown=unknown, ledger=self._ledgers[id])
        except ToolnexusError as error:
            found.append(f"The last ask failed: {type(error).__name__}: {error}")
        finally:
            await self._store.aclose()
        return found

    async def _ask(self, id: str, name: str, turns: int, found: list[str]) -> None:
        for number in range(turns):
            asked = prompt(name, number)
            self._asked[id].append(asked)
            try:
                await self._client.ask(asked, [charging(self._ledgers[id])], id=id, busy_timeout=20.0)
            except StoreError as error:
                if error.partial is not None and error.partial.status == "done":
                    said = error.partial.text
                    if not said.startswith(checker.answer(asked, 0)[:-1]):
                        found.append(f"{asked!r} failed with the partial answer {said!r}.")
            except ToolnexusError as error:
                if error.kind != "fenced":  # by the next one, when its own connection was gone for too long
                    found.append(f"{asked!r} failed: {type(error).__name__}: {error}")
            else:
                self._done[id].append(asked)


def _terminated(url: str, name: str) -> Callable[[], int]:
    """What ends the connections of that application name, and tells how many there were."""
    import psycopg

    def end() -> int:
        with psycopg.connect(url, autocommit=True) as connection:
            query = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = %s"
            row = connection.execute(query, (name,)).fetchone()
            return row[0] if row is not None else 0

    return end


def _killed(url: str, name: str) -> Callable[[], int]:
    """What ends the connections of that client name, and tells how many there were."""
    import redis

    client: Any = redis.Redis.from_url(url)  # pyright: ignore[reportUnknownMemberType] - takes any option

    def end() -> int:
        ours = [each["id"] for each in client.client_list() if each["name"] == name]
        return sum(client.client_kill_filter(_id=id) for id in ours)

    return end


def _address(place: Place) -> tuple[str, int]:
    parts = urlsplit(place.url)
    return parts.hostname or "127.0.0.1", parts.port or _PORTS[place.kind]


def _moved(url: str, *, port: int | None = None, **options: str) -> str:
    """The URL with another port on this machine, or with further options."""
    parts: SplitResult = urlsplit(url)
    place = parts.netloc
    if port is not None:
        who, at, _ = parts.netloc.rpartition("@")
        place = f"{who}{at}127.0.0.1:{port}"
    query = urlencode([*parse_qsl(parts.query), *options.items()], quote_via=quote)
    return urlunsplit(parts._replace(netloc=place, query=query))


@asynccontextmanager
async def _redis(port: int, folder: Path) -> AsyncGenerator[None]:
    """A Redis server of our own, killed at the end of the block. What it acknowledged is in the folder."""
    process = await asyncio.create_subprocess_exec(
        *("redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder)),
        *("--save", "", "--appendonly", "yes", "--appendfsync", "always", "--daemonize", "no"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        await _listening(port)
        yield
    finally:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGKILL)
        await process.wait()


async def _listening(port: int) -> None:
    """Wait until somebody listens there."""
    async with asyncio.timeout(20):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.01)
            else:
                writer.close()
                return
