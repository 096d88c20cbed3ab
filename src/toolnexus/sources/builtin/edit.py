"""The tool that replaces a text in a file by another."""

from __future__ import annotations

import re
from collections.abc import Sequence
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
        text, lines = replaced(loaded.file.text, old, new, everywhere=everywhere, shown=place.shown)
        transaction.commit([files.replacing(place, loaded, loaded.file.with_text(text))])
    times = "1 occurrence" if len(lines) == 1 else f"{len(lines)} occurrences"
    encoding = loaded.file.encoding.described()
    return ToolResult(
        output=f"Replaced {times} in {place.shown}, {near_miss.line_list(lines)}."
        + (f" The file is {encoding}." if encoding else ""),
        metadata={"path": place.path, "replacements": len(lines)},
    )


def replaced(text: str, old: str, new: str, *, everywhere: bool, shown: str) -> tuple[str, Sequence[int]]:
    """A text with `old` replaced, and the numbers of the lines in which it was. Everything else stays as it is.

    A line end in `old` stands for either kind, and those of `new` become the kind that was there.

    Raises:
        NotFound: It is not there.
        Ambiguous: It is there more than once, but only one is to be replaced.
    """
    # A literal with two ways to end a line: there is nothing in it to go back over.
    pattern = re.compile(re.escape(with_line_ends(old, "\n")).replace("\\\n", "\r?\n"))
    usual = line_end_of(text)
    starts: list[int] = []
    pieces: list[str] = []
    end = 0
    for match in pattern.finditer(text):  # a loop lets other threads run in between, of which one is the event loop's
        there = match.group()
        starts.append(match.start())
        pieces += text[end : match.start()], with_line_ends(new, line_end_of(there) if "\n" in there else usual)
        end = match.end()
    if not starts:
        lines = [line for line, _ in split_lines(text)]
        wanted = with_line_ends(old, "\n").split("\n")
        raise NotFound(f"oldString is not in {shown}.{near_miss.hint(wanted, lines)}")
    if not everywhere:
        # Two of them may overlap, which is as unclear. Within a line end nothing begins.
        after = starts[0] + (2 if text.startswith("\r\n", starts[0]) else 1)
        if len(starts) == 1 and (overlapping := pattern.search(text, after)) is not None:
            starts.append(overlapping.start())
        if len(starts) > 1:
            raise Ambiguous(
                f"oldString is {len(starts)} times in {shown}, at {near_miss.line_list(_line_numbers(text, starts))}. "
                "Take in more of the lines around the one that you mean, or set replaceAll."
            )
    return "".join([*pieces, text[end:]]), _line_numbers(text, starts)


def _line_numbers(text: str, starts: Sequence[int]) -> list[int]:
    numbers: list[int] = []
    line, at = 1, 0
    for start in starts:
        line += text.count("\n", at, start)
        numbers.append(line)
        at = start
    return numbers
