"""The tool that replaces a text in a file by another."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from toolnexus.sources.builtin import files, near_miss
from toolnexus.sources.builtin.atomic import Transaction
from toolnexus.sources.builtin.text_files import line_end_of, split_lines, with_line_ends
from toolnexus.tools import JSONObject, Tool, ToolContext, ToolResult

if TYPE_CHECKING:
    from toolnexus.sources.builtin.workspace import Workspace

_SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "description": "The file."},
        "oldString": {"type": "string", "description": "The text to replace, exactly as it is in the file."},
        "newString": {"type": "string", "description": "What to put in its place."},
        "replaceAll": {
            "type": "boolean",
            "default": False,
            "description": "Replace every occurrence. Otherwise there has to be exactly one.",
        },
    },
    "required": ["path", "oldString", "newString"],
    "additionalProperties": False,
}
_DESCRIPTION = (
    "Replace a text in a file. oldString has to be there exactly, white space included, and only once unless "
    "replaceAll is true: take in enough of the lines around it. A line end in it fits those of the "
    "file, whose encoding and line ends are kept."
)


class NotFound(Exception):
    """The text to replace is not in the file. The text says what is there instead."""


class Ambiguous(Exception):
    """The text to replace is there more than once. The text says where."""


def make(workspace: Workspace) -> Tool:
    """The tool `edit`."""

    def execute(args: JSONObject, ctx: ToolContext) -> ToolResult:
        return _edit(
            workspace, args["path"], args["oldString"], args["newString"], everywhere=args.get("replaceAll", False)
        )

    return Tool(name="edit", source="builtin", description=_DESCRIPTION, input_schema=_SCHEMA, execute=execute)


def _edit(workspace: Workspace, path: str, old: str, new: str, *, everywhere: bool) -> ToolResult:
    if not old:
        raise NotFound("oldString is empty. Give the text to replace, or write the whole file with write.")
    if old == new:
        raise NotFound("oldString and newString are the same, so there is nothing to change.")
    with Transaction(workspace) as transaction:
        place = transaction.place(path)
        loaded = files.load(place)
        text, count, lines = replaced(loaded.file.text, old, new, everywhere=everywhere, shown=place.shown)
        transaction.commit([files.replacing(place, loaded, loaded.file.with_text(text))])
    times = "1 occurrence" if count == 1 else f"{count} occurrences"
    encoding = loaded.file.encoding.described()
    return ToolResult(
        output=f"Replaced {times} in {place.shown}, {near_miss.line_list(lines, count)}."
        + (f" The file is {encoding}." if encoding else ""),
        metadata={"path": place.path, "replacements": count},
    )


def replaced(text: str, old: str, new: str, *, everywhere: bool, shown: str) -> tuple[str, int, Sequence[int]]:
    """A text with `old` replaced, how often it was there, and in which lines, the first few. All else stays as it is.

    A line end in `old` stands for either kind, and those of `new` become the kind that was there.

    Raises:
        NotFound: It is not there.
        Ambiguous: It is there more than once, but only one is to be replaced.
    """
    wanted = with_line_ends(old, "\n")
    usual = line_end_of(text)
    count, starts = 0, list[int]()
    changed = io.StringIO()
    end = 0
    for start, stop in _occurrences(text, wanted):
        there = text[start:stop]
        changed.write(text[end:start])
        changed.write(with_line_ends(new, line_end_of(there) if "\n" in there else usual))
        count += 1
        if len(starts) < near_miss.NUMBERS:
            starts.append(start)
        end = stop
    if not starts:
        hint = near_miss.hint(wanted.split("\n"), (line for line, _ in split_lines(text)))
        raise NotFound(f"oldString is not in {shown}.{hint}")
    if not everywhere:
        # Two of them may overlap, which is as unclear. Within a line end nothing begins.
        after = starts[0] + (2 if text.startswith("\r\n", starts[0]) else 1)
        if count == 1 and (overlapping := next(_occurrences(text, wanted, after), None)) is not None:
            count, starts = 2, [*starts, overlapping[0]]
        if count > 1:
            lines = near_miss.line_list(_line_numbers(text, starts), count)
            raise Ambiguous(
                f"oldString is {count} times in {shown}, at {lines}. Take in more of the lines around the one that you "
                "mean, or set replaceAll."
            )
    changed.write(text[end:])
    return changed.getvalue(), count, _line_numbers(text, starts)


def _occurrences(text: str, wanted: str, after: int = 0) -> Iterator[tuple[int, int]]:
    """Where a text begins and ends that has `\\n` for either kind of line end; one after the other.

    `str.find` takes a time that grows with the text and never faster, which a regular expression does not.
    """
    plain = text[after:].replace("\r\n", "\n")
    done, end = 0, after  # the same place, without and with the two characters of `\\r\\n`
    while (found := plain.find(wanted, done)) >= 0:
        start = _further(text, end, found - done)
        end = _further(text, start, len(wanted))
        yield start, end
        done = found + len(wanted)


def _further(text: str, at: int, count: int) -> int:
    """The index `count` characters further on, where `\\r\\n` counts as one."""
    while count:
        end = at + count
        pairs = text.count("\r\n", at, end)
        end += text.startswith("\r\n", end - 1)  # the last one is taken whole
        at, count = end, pairs
    return at


def _line_numbers(text: str, starts: Sequence[int]) -> list[int]:
    numbers: list[int] = []
    line, at = 1, 0
    for start in starts:
        line += text.count("\n", at, start)
        numbers.append(line)
        at = start
    return numbers
