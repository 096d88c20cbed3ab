"""How far something is, once it has taken a while."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Self

from toolnexus.cli.render import PATIENCE, coloured, fancy

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.progress import Progress


class Bar:
    """A bar on stderr, if a person looks at it. Used as `with`.

    Args:
        what: What is done, for the person.
        total: How much there is to do. None: nobody knows, and no bar is shown.
    """

    def __init__(self, what: str, total: int | None, *, now: Callable[[], float] = time.monotonic) -> None:
        self._what = what
        self._total = total
        self._now = now
        self._since = now()
        self._wanted = total is not None and fancy(sys.stderr)
        self._shown: Progress | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown is not None:
            self._shown.stop()

    def to(self, done: int) -> None:
        """So much is done."""
        if self._shown is None and self._wanted and self._now() - self._since > PATIENCE:
            self._shown = _bar()
            self._shown.add_task(self._what, total=self._total)
            self._shown.start()
        if self._shown is not None:
            self._shown.update(self._shown.task_ids[0], completed=done)


def _bar() -> Progress:
    from rich.console import Console  # loaded late: few commands come to show a bar
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:.0f} %"),
        TimeRemainingColumn(),
        console=Console(file=sys.stderr, color_system="auto" if coloured(sys.stderr) else None),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
