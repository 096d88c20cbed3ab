"""Every case of the wire corpus, through the public client and a real socket.

The environment variable TOOLNEXUS_CORPUS names folders (`os.pathsep` between them) to be run in place of ours.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from corpus_runner.cases import Play, read
from corpus_runner.driver import drive
from corpus_runner.expectations import unmet, wants_run_without_retries

OURS = Path(__file__).parent / "corpus" / "wire"
FOLDERS = [Path(name) for name in os.environ.get("TOOLNEXUS_CORPUS", "").split(os.pathsep) if name] or [OURS]
CASES = [path for folder in FOLDERS for path in sorted(folder.glob("*.json"))]
STREAMED = [path for path in CASES if re.search(rb'"sse(_b64)?":|text/event-stream', path.read_bytes())]
READ_SIZES = [1, 7, 64]


async def failures(play: Play, *, cut: int | None = None) -> list[str]:
    outcome = await drive(play, cut=cut)
    off = any(map(wants_run_without_retries, play.expectations))
    without_retries = await drive(play, cut=cut, retries=0) if off else None
    found = [problem for expect in play.expectations for problem in unmet(expect, outcome, without_retries)]
    return [*found, *outcome.broken_rules, *outcome.roundtrip]


async def fail_on_failures(plays: tuple[Play, ...], *, cut: int | None = None) -> None:
    found = [
        f"run {number}: {problem}" if len(plays) > 1 else problem
        for number, play in enumerate(plays)
        for problem in await failures(play, cut=cut)
    ]
    if found:
        pytest.fail("\n".join(found), pytrace=False)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_corpus_folder_has_cases(folder: Path) -> None:
    assert list(folder.glob("*.json"))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
async def test_a_case_holds(path: Path) -> None:
    await fail_on_failures(read(path))


@pytest.mark.parametrize("size", READ_SIZES)
@pytest.mark.parametrize("path", STREAMED, ids=lambda path: path.stem)
async def test_the_size_of_reads_changes_nothing(path: Path, size: int) -> None:
    streamed = tuple(play for play in read(path) if play.script.streams)
    assert streamed
    await fail_on_failures(streamed, cut=size)
