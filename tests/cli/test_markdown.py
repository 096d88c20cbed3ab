from __future__ import annotations

import io
import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.markdown import Markdown

from toolnexus.cli.markdown import MarkdownAnswer, split_blocks, visible

WRITTEN = st.lists(
    st.sampled_from(
        [
            "\n",
            "\n\n",
            "word ",
            "- item",
            "1. one",
            "1",
            "```",
            "```py\n",
            "~~~~",
            "  indented",
            "# head",
            "|a|b|",
            "**x**",
        ]
    ),
    max_size=30,
).map("".join)


@given(text=WRITTEN)
def test_blocks_are_the_text(text: str) -> None:
    assert "".join(split_blocks(text)) == text


@given(text=WRITTEN)
def test_what_is_finished_stays_finished_whatever_comes(text: str) -> None:
    cuts = [len(split_blocks(text[:end])[0]) for end in range(len(text) + 1)]
    assert all(before <= after for before, after in pairwise(cuts))


@pytest.mark.parametrize(
    ("text", "finished"),
    [
        ("one\n\ntwo", "one\n\n"),
        ("one\ntwo", ""),
        ("one\n\n", ""),
        ("- a\n\n- b", ""),
        ("1. a\n\n2", ""),
        ("1. a\n\n2 apples", "1. a\n\n"),
        ("- a\n\n  more of a", ""),
        ("**a**\n\n**b", "**a**\n\n"),
        ("```\na\n\nb", ""),
        ("```\na\n\n```\n\nb", "```\na\n\n```\n\n"),
        ("````\n```\n\nb\n````\n\nc", "````\n```\n\nb\n````\n\n"),
    ],
)
def test_a_block_ends_where_nothing_can_join_it(text: str, finished: str) -> None:
    assert split_blocks(text)[0] == finished


@given(text=st.text())
def test_nothing_shown_can_drive_the_terminal(text: str) -> None:
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", visible(text))


class Terminal(io.StringIO):
    """As much of a terminal as is needed to see what stays on it: lines that scrolled away cannot be reached."""

    def __init__(self, height: int) -> None:
        super().__init__()
        self.lines = [""]
        self._height = height
        self._row = self._column = 0

    def isatty(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        for part in re.findall(r"\x1b\[[?\d;]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", text):
            if part == "\n":
                self._row, self._column = self._row + 1, 0
                self.lines += [""] * (self._row + 1 - len(self.lines))
            elif part == "\r":
                self._column = 0
            elif not part.startswith("\x1b"):
                line = self.lines[self._row].ljust(self._column)
                self.lines[self._row] = line[: self._column] + part + line[self._column + len(part) :]
                self._column += len(part)
            elif part.endswith("A"):
                self._row = max(self._row - int(part[2:-1] or 1), len(self.lines) - self._height, 0)
            elif part == "\x1b[2K":
                self.lines[self._row] = ""
            else:
                assert part[-1] in "mhl", f"{part!r} is not known here"
        return len(text)


LONG = "\n\n".join(
    [
        "# A title",
        "A paragraph " + "that goes on and on " * 30,
        "\n".join(f"- item {number}" for number in range(40)),
        "```python\n" + "\n".join(f"line_{number} = {number}" for number in range(60)) + "\n```",
        "The *end*.",
    ]
)


@pytest.mark.parametrize("size", [1, 7, 64, 100_000])
def test_an_answer_longer_than_the_screen_is_shown_once_and_whole(size: int) -> None:
    terminal = Terminal(height=12)
    console = Console(file=terminal, force_terminal=True, width=40, height=12, color_system=None)
    answer = MarkdownAnswer(console)
    for start in range(0, len(LONG), size):
        answer.text(LONG[start : start + size])
        if answer._live is not None and start % 50 < size:
            answer._live.refresh()
    answer.close()
    plain = io.StringIO()
    Console(file=plain, width=40, height=12, color_system=None).print(Markdown(LONG))
    shown = [line.strip() for line in terminal.lines if line.strip()]
    assert shown == [line.strip() for line in plain.getvalue().splitlines() if line.strip()]


def test_what_a_model_says_does_not_reach_the_terminal_as_a_command() -> None:
    terminal = Terminal(height=12)
    answer = MarkdownAnswer(Console(file=terminal, force_terminal=True, width=40, height=12, color_system=None))
    answer.text("a\x1b]0;title\x07\x9b2Jb")
    answer.close()
    assert "".join(terminal.lines).split() == ["a�]0;title��2Jb"]
