"""Fake servers for the tests here, and a look at whether their processes are gone."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

FAKES = Path(__file__).parent / "fakes"
sys.path.append(str(FAKES))

if TYPE_CHECKING:
    from collections.abc import Iterator


def _below() -> set[psutil.Process]:
    return set(psutil.Process().children(recursive=True))


@pytest.fixture(autouse=True)
def no_process_is_left() -> Iterator[None]:
    before = _below()
    yield
    left = [each for each in _below() - before if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]
    _, alive = psutil.wait_procs(left, timeout=2)
    names = [" ".join(each.cmdline()) for each in alive]
    for each in alive:
        each.kill()
    assert not names, names
