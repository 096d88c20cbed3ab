"""Files of the file store that end in the middle of what was written last, as after a loss of power."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import quote

from toolnexus.errors import CorruptConversation, ToolnexusError
from toolnexus.testing.checker import prompt
from toolnexus.testing.torture.judge import judged
from toolnexus.testing.torture.trial import Outcome, Trial
from toolnexus.testing.torture.work import charging, tortured

_COMMIT = re.compile(rb"\n(?=[0-9a-f]{8}[ #+])")

if TYPE_CHECKING:
    from pathlib import Path

    from toolnexus.testing.torture.place import Place


async def tails(trial: Trial) -> Outcome:
    """Two turns; then the file is cut at each byte of what it wrote the last two times: the rest is a whole history."""
    whole = trial.folder / "whole"
    place = replace(trial.place, url=_url(whole))
    first, second = prompt("first", 0), prompt("second", 0)
    store = place.open()
    client, tools = tortured(store), [charging(trial.ledger())]
    for asked in (first, second):
        await client.ask(asked, tools, id="tail")
    [log] = whole.rglob("*.log")
    written = log.read_bytes()
    start = _last_commits(written, 2)
    found: list[str] = []
    for size in range(start, len(written) + 1):
        found += await _cut(place, trial.folder, log.relative_to(whole), written[:size], first, second)
    found += await _flipped(place, trial.folder, log.relative_to(whole), written, start)
    return Outcome(
        f"a file cut at each of the last {len(written) - start} bytes, and a byte of it changed", tuple(found)
    )


async def _cut(place: Place, folder: Path, log: Path, data: bytes, first: str, second: str) -> list[str]:
    """Read and go on with a file that holds `data`. What is wrong with what is there then."""
    copy = _copied(folder, log, data)
    store = replace(place, url=_url(copy)).open()
    where = f"cut after {len(data)} bytes"
    try:
        asked = prompt("next", 0)
        await tortured(store).ask(asked, id="tail", busy="raise")
        return [f"{where}: {each}" for each in await judged(store, "tail", done=[first, asked], unknown=[second])]
    except ToolnexusError as error:
        return [f"{where}: {type(error).__name__}: {error}"]
    finally:
        await store.aclose()
        shutil.rmtree(copy)


async def _flipped(place: Place, folder: Path, log: Path, written: bytes, start: int) -> list[str]:
    """Change one byte of a line that was written whole: that must be told, and nothing be changed."""
    at = start + 12
    changed = written[:at] + bytes([written[at] ^ 1]) + written[at + 1 :]
    copy = _copied(folder, log, changed)
    store = replace(place, url=_url(copy)).open()
    try:
        await store.get("tail")
    except CorruptConversation:
        return [] if (copy / log).read_bytes() == changed else ["A corrupt file was changed."]
    else:
        return ["A changed byte was not noticed."]
    finally:
        await store.aclose()
        shutil.rmtree(copy)


def _copied(folder: Path, log: Path, data: bytes) -> Path:
    copy = folder / "cut"
    shutil.copytree(folder / "whole", copy)
    (copy / log).write_bytes(data)
    return copy


def _url(folder: Path) -> str:
    return f"file://{quote(str(folder))}"


def _last_commits(data: bytes, commits: int) -> int:
    """Where the last so many commits begin: with a line of its own checksum, unlike those that it announces."""
    return [line.start() for line in _COMMIT.finditer(data)][-commits] + 1
