"""Markdown on a terminal while it is still being written: finished blocks are printed, the open one is redrawn."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from toolnexus.errors import MissingExtra

try:
    from rich.live import Live
    from rich.markdown import Markdown
    from rich.segment import Segment
except ImportError as exc:
    raise MissingExtra("The toolnexus commands", extra="cli") from exc

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.console import Console, ConsoleOptions, RenderResult

_FENCE = re.compile(r"\s*(`{3,}|~{3,})")
# What may go on with a list above it: indented, an item, or what may yet become one.
_CONTINUES = re.compile(r"\s|[-*+](?:\s|$)|\d+(?:[.)]?$|[.)]\s)")
# C0 and C1; and what changes the direction of writing, so that a person would read something else than what is there.
_CONTROLS: dict[int, str | None] = dict.fromkeys(
    (*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)), "�"
)
_CONTROLS.update({0x09: "\t", 0x0A: "\n", 0x0D: None})
_REFRESHES = 12
"""Redraws of the open block, a second."""


def visible(text: str) -> str:
    """Text without control characters, so that what a model or a tool says cannot drive the terminal."""
    return text.translate(_CONTROLS)


def split_blocks(text: str) -> tuple[str, str]:
    """Cut Markdown into what no later text can change any more, and the rest."""
    blank = False
    at = cut = 0
    for line, fence in _with_fences(text.splitlines(keepends=True)):
        if blank and not fence and line.strip() and not _CONTINUES.match(line):
            cut = at
        blank = not fence and not line.strip()
        at += len(line)
    return text[:cut], text[cut:]


def _with_fences(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Each line, and the line that opened the code block which it is in; empty outside of code."""
    opened = mark = ""
    for line in lines:
        yield line, opened
        found = _FENCE.match(line)
        if found and not opened:
            opened, mark = line, found[1]
        elif found and found[1].startswith(mark) and not line[found.end() :].strip():
            opened = ""


class MarkdownAnswer:
    """Shows an answer on a terminal. What is finished scrolls away like any output; only the end is redrawn."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._open = ""
        self._live: Live | None = None
        self._printed = False

    def text(self, piece: str) -> None:
        """Add a piece of the answer."""
        self._open += visible(piece)
        if "\n" in self._open[-len(piece) - 1 :]:  # a line has begun
            finished, rest = split_blocks(self._open)
            if finished:
                self._print(finished)
            self._open = rest
        if self._live is None and self._open.strip() and self._console.is_terminal:
            self._live = Live(
                console=self._console,
                get_renderable=lambda: _Tail(self._open),
                transient=True,
                refresh_per_second=_REFRESHES,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()

    def flush(self) -> None:
        """Print what is still open: something else will be printed now."""
        if self._open.strip():
            self._print(self._open)
        self._hide()
        self._open = ""

    def close(self) -> None:
        """The answer has ended."""
        self.flush()
        self._printed = False

    def _print(self, block: str) -> None:
        self._hide()
        if self._printed:
            self._console.print()
        self._console.print(Markdown(block.strip("\n")))
        self._printed = True

    def _hide(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


class _Tail:
    """The end of an open block, as much as the screen takes: what scrolled away could not be redrawn."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        room = max(console.height - 2, 1)
        lines = list(_with_fences(self._text.splitlines()))[-room:]
        shown = "\n".join([lines[0][1], *(line for line, _ in lines)]) if lines else ""
        drawn = console.render_lines(Markdown(shown), options.update(height=None), pad=False)
        for line in drawn[-room:]:
            yield from line
            yield Segment.line()
