"""The tool that reads a file: a window of its lines, or what it shows or sounds like."""

from __future__ import annotations

import codecs
import os
import time
from dataclasses import dataclass
from pathlib import PurePosixPath

from toolnexus import _media, parts
from toolnexus._unicode import clean_text
from toolnexus.errors import ConfigurationError
from toolnexus.sources.builtin.text_files import LATIN_1, SAMPLE, Encoding, encoding_of
from toolnexus.sources.builtin.workspace import MOST_SHOWN, SECONDS, FileProblem, Place, Workspace, deadline
from toolnexus.tools import JSONObject, Tool, ToolContext, ToolResult

_LIMIT = 2000
"""Lines."""
_LONGEST = 2000
"""Characters of a line that are shown."""
_PIECE = 64 * 1024
_BARE_SOUNDS = frozenset({".mp3", ".aac"})
"""Suffixes of sounds whose first bytes alone do not tell them."""

_SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "description": "The file."},
        "offset": {"type": "integer", "minimum": 1, "default": 1, "description": "The first line to read, from 1."},
        "limit": {"type": "integer", "minimum": 1, "default": _LIMIT, "description": "How many lines to read at most."},
    },
    "required": ["path"],
    "additionalProperties": False,
}
_DESCRIPTION = (
    "Read a text file. Each line comes as its number, a tab and its text; lines of more than "
    f"{_LONGEST} characters are cut. {_LIMIT} lines are read unless limit says otherwise; a note at the end says how "
    "to go on. An image, a PDF or a sound is shown itself."
)


def make(workspace: Workspace) -> Tool:
    """The tool `read`."""

    def execute(args: JSONObject, ctx: ToolContext) -> ToolResult:
        return _read(workspace, args["path"], args.get("offset", 1), args.get("limit", _LIMIT), deadline(ctx))

    return Tool(
        name="read", source="builtin", description=_DESCRIPTION, input_schema=_SCHEMA, execute=execute, read_only=True
    )


def _read(workspace: Workspace, path: str, offset: int, limit: int, ends: float) -> ToolResult:
    with workspace.open(path) as (opened, place):
        head = os.read(opened, SAMPLE)
        if (media_type := _shown_as(head, place.name)) is not None:
            return _media_file(opened, head, place, media_type)
        encoding = encoding_of(head, whole=len(head) < SAMPLE)
        if encoding is None:
            size = _media.human_size(os.fstat(opened).st_size)
            raise FileProblem(f"{place.shown} is a binary file of {size}, not text, an image, a PDF or a sound.")
        try:
            window = _window(opened, encoding, offset, limit, ends)
        except TimeoutError:
            raise FileProblem(
                f"{place.shown} is so large that line {offset} was not come to in {SECONDS:g} s. Use grep on it."
            ) from None
        except UnicodeDecodeError:
            if encoding.name != "utf-8":
                raise FileProblem(f"{place.shown} begins like {encoding.name.upper()}, but is damaged.") from None
            encoding = Encoding(LATIN_1)
            window = _window(opened, encoding, offset, limit, ends)
    return _result(window, encoding, place, offset)


def _shown_as(head: bytes, name: str) -> str | None:
    """The media type of what is no text but can be shown. None: it has to be text."""
    if (found := _media.media_type_of(head)) is not None:
        return found
    return _media.audio_type_of(head) if PurePosixPath(name).suffix.lower() in _BARE_SOUNDS else None


def _media_file(opened: int, head: bytes, place: Place, media_type: str) -> ToolResult:
    with os.fdopen(os.dup(opened), "rb") as file:
        data = head + file.read(_media.MAX_BYTES + 1 - len(head))
    try:
        part = parts.file(data, name=place.name, media_type=media_type)
    except ConfigurationError as error:
        size = _media.human_size(os.fstat(opened).st_size)
        raise FileProblem(f"{place.shown} is {media_type}, {size}, and cannot be shown: it is too large.") from error
    return ToolResult(
        output=f"{place.shown} is {media_type}, {_media.human_size(len(data))}.",
        parts=(part,),
        metadata={"path": place.path, "media_type": media_type, "bytes": len(data)},
    )


@dataclass(frozen=True, slots=True)
class _Window:
    """Lines of a file, numbered.

    Attributes:
        end: How many lines there are up to the last one read.
        is_over: Whether nothing comes after it. None: nobody looked, because that line is so long.
    """

    lines: list[str]
    end: int
    is_over: bool | None


def _window(opened: int, encoding: Encoding, offset: int, limit: int, ends: float) -> _Window:
    """Read lines, and no further than they go.

    Raises:
        UnicodeDecodeError: The file is in another encoding.
        TimeoutError: They were not come to by `ends`, on `time.monotonic()`.
    """
    source = _Lines(opened, encoding, ends)
    source.skip(offset - 1)
    lines: list[str] = []
    room = MOST_SHOWN
    while len(lines) < limit and room > 0 and (line := source.take()) is not None:
        lines.append(f"{source.number}\t{line}")
        room -= len(lines[-1].encode(errors="replace")) + 1
    return _Window(lines, source.number, None if source.is_inside else not source.more())


class _Lines:
    """The lines of an opened file. It is read piece by piece, as far as it has to be.

    Attributes:
        number: How many lines have been gone over.
        is_inside: Whether the last one was so long that its end has not been looked for.
    """

    def __init__(self, opened: int, encoding: Encoding, ends: float) -> None:
        os.lseek(opened, len(encoding.mark), os.SEEK_SET)
        self._ends = ends
        self._opened = opened
        self._decoder = codecs.getincrementaldecoder(encoding.name)()
        self._text = ""
        self._at = 0
        self._ended = False
        self.number = 0
        self.is_inside = False

    def more(self) -> bool:
        """Whether there is more text; it is then at hand."""
        while self._at == len(self._text) and not self._ended:
            if time.monotonic() > self._ends:
                raise TimeoutError
            data = os.read(self._opened, _PIECE)
            self._ended = not data
            self._text, self._at = self._decoder.decode(data, self._ended), 0
        return self._at < len(self._text)

    def skip(self, count: int) -> None:
        """Go over lines, or over all that there are."""
        unfinished = False
        while self.number < count and self.more():
            ends = self._text.count("\n", self._at)
            if ends < count - self.number:
                self.number += ends
                unfinished = not self._text.endswith("\n")
                self._at = len(self._text)
            else:
                for _ in range(count - self.number):
                    self._at = self._text.index("\n", self._at) + 1
                self.number = count
        if self.number < count and unfinished:
            self.number += 1

    def take(self) -> str | None:
        """The next line without its end, cut if it is long. None: there is none."""
        if self.is_inside:
            self.is_inside = False
            self.number -= 1
            self.skip(self.number + 1)
        if not self.more():
            return None
        line = ""
        stop = -1
        while stop < 0 and len(line) <= _LONGEST and self.more():
            stop = self._text.find("\n", self._at, self._at + _LONGEST + 2)
            end = min(len(self._text), self._at + _LONGEST + 2) if stop < 0 else stop
            line += self._text[self._at : end]
            self._at = end if stop < 0 else end + 1
        self.number += 1
        line = line.removesuffix("\r") if stop >= 0 else line
        self.is_inside = stop < 0 and self.more()
        return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}… [cut: the line is longer]"


def _result(window: _Window, encoding: Encoding, place: Place, offset: int) -> ToolResult:
    if not window.lines:
        if offset > 1:
            lines = "1 line" if window.end == 1 else f"{window.end} lines"
            raise FileProblem(f"{place.shown} has only {lines}, so there is nothing from line {offset} on.")
        return ToolResult(
            output=f"[{place.shown} is empty]", metadata={"path": place.path, "first": 1, "last": 0, "more": False}
        )
    notes: list[str] = []
    if window.is_over is None:
        notes.append(
            f"what comes after line {window.end} was not read; if there is more, go on with offset={window.end + 1}"
        )
    elif not window.is_over:
        notes.append(f"there is more; go on with offset={window.end + 1}")
    elif offset > 1:
        notes.append("the end of the file")
    if described := encoding.described():
        notes.append(described)
    return ToolResult(
        output=clean_text("\n".join([*window.lines, *(f"[{note}]" for note in notes)])),
        metadata={"path": place.path, "first": offset, "last": window.end, "more": not window.is_over},
    )
