from __future__ import annotations

import io
import sys

import pytest

from toolnexus.cli.progress import Bar


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def run(monkeypatch: pytest.MonkeyPatch, total: int | None, *, seconds: float, stream: io.StringIO) -> str:
    """What is written of three things, of which the first took so long."""
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    times = iter([0.0, *[seconds] * 3])
    with Bar("checking", total, now=lambda: next(times)) as bar:
        for done in (1, 2, 3):
            bar.to(done)
    return stream.getvalue()


def test_a_bar_is_shown_once_it_takes_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = run(monkeypatch, 3, seconds=0.31, stream=Screen())
    assert "checking" in shown
    assert "100 %" in shown


@pytest.mark.parametrize(("total", "seconds"), [(3, 0.29), (None, 10.0)])
def test_no_bar_is_shown_for_what_is_quick_or_has_no_end_that_is_known(
    monkeypatch: pytest.MonkeyPatch, total: int | None, seconds: float
) -> None:
    assert run(monkeypatch, total, seconds=seconds, stream=Screen()) == ""


def test_no_bar_is_shown_where_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, 3, seconds=10.0, stream=io.StringIO()) == ""
