"""The tool that finds lines in files."""

from __future__ import annotations

import codecs
import contextlib
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from toolnexus._unicode import clean_text
from toolnexus.sources.builtin import linear
from toolnexus.sources.builtin.patterns import Glob
from toolnexus.sources.builtin.text_files import LATIN_1, SAMPLE, Encoding, read_text
from toolnexus.sources.builtin.walk import Walk
from toolnexus.sources.builtin.workspace import (
    FILE_FLAGS,
    MOST_SHOWN,
    SECONDS,
    PathRefused,
    Place,
    Workspace,
    deadline,
    is_only_name,
)
from toolnexus.tools import JSONObject, Tool, ToolContext, ToolResult

_LIMIT = 100
_PIECE = 1 << 20
"""Bytes of a file that are searched at once."""
_LONGEST_LINE = 4 << 20
"""Bytes after which a line without an end is searched in parts."""
_WIDE_BYTES = 8 << 20
"""Bytes of a file in UTF-16 or UTF-32, which is searched as a whole."""
_WIDE = (b"\xff\xfe", b"\xfe\xff", b"\0\0\xfe\xff")
_SHOWN = 300
"""Bytes of a line that are shown."""
_BEFORE = 100
"""Of them, those before what was found."""
_FRUITLESS = 64
"""Finds that go over a line's end, after which a piece is searched line by line."""
_NAMED = 5
"""Files whose encoding is named."""

_SCHEMA = {
    "type": "object",
    "properties": {
        "pattern": {"type": "string", "description": "A regular expression (RE2). '(?i)' before it ignores case."},
        "path": {"type": "string", "description": "The folder or file to search. Default: the workspace's root."},
        "include": {"type": "string", "description": "A glob for the files, such as '*.py' or 'src/**/*.{ts,tsx}'."},
        "limit": {"type": "integer", "minimum": 1, "default": _LIMIT, "description": "How many lines to show at most."},
    },
    "required": ["pattern"],
    "additionalProperties": False,
}
_DESCRIPTION = (
    "Find the lines that match a regular expression, as path:line:text, sorted by path. The expression is matched "
    "within one line, without look-around or backreferences. Binary files, links and what git ignores are left out; "
    "long lines are cut."
)


def make(workspace: Workspace) -> Tool:
    """The tool `grep`."""

    def execute(args: JSONObject, ctx: ToolContext) -> ToolResult:
        search = _Search(linear.compile(f"(?m){args['pattern']}"), args.get("limit", _LIMIT), deadline(ctx))
        return _grep(workspace, search, args.get("path", "."), args.get("include"))

    return Tool(
        name="grep", source="builtin", description=_DESCRIPTION, input_schema=_SCHEMA, execute=execute, read_only=True
    )


def _grep(workspace: Workspace, search: _Search, path: str, include: str | None) -> ToolResult:
    with workspace.place(path) as place:
        status = place.status()
        if status is None or not stat.S_ISDIR(status.st_mode):
            _search_one(search, place)
        else:
            walk = Walk(place, _files(include), search.deadline)
            with contextlib.closing(walk.files()) as files:
                for file in files:
                    if file.is_file:
                        search.file(workspace, file.folder, file.name, file.path)
                    if search.over:
                        break
            search.unread += walk.unread
            search.late |= walk.late
    return search.result()


def _files(include: str | None) -> Glob:
    """The pattern for the files to search. One without a slash is for names anywhere."""
    if include is None:
        return Glob([("**",)])
    return Glob.parse(include if "/" in include else f"**/{include}")


def _search_one(search: _Search, place: Place) -> None:
    opened = place.open_file()
    try:
        search.opened(opened, os.fstat(opened).st_size, place.path)
    finally:
        os.close(opened)


@dataclass(slots=True)
class _Search:
    """What has been found, and what has been left out."""

    pattern: linear.Pattern
    limit: int
    deadline: float
    lines: list[str] = field(default_factory=list[str])
    files: int = 0
    binary: int = 0
    unread: int = 0
    encodings: list[str] = field(default_factory=list[str])
    more: bool = False
    late: bool = False
    room: int = MOST_SHOWN

    @property
    def over(self) -> bool:
        return self.more or self.late

    def file(self, workspace: Workspace, folder: int, name: str, path: str) -> None:
        """Search a file that its folder said to be a regular one."""
        try:
            opened = os.open(name, FILE_FLAGS, dir_fd=folder)
        except OSError:
            self.unread += 1
            return
        try:
            status = os.fstat(opened)
            if not stat.S_ISREG(status.st_mode):
                self.unread += 1
                return
            guarded = workspace.guards_hard_links
            if guarded and status.st_nlink > 1:
                Place(workspace, folder, name, path).check_links(opened)
            head = self._head(opened, status.st_size)
            if head is not None:
                # Looked at only now: of a file in which nothing is found, nothing is shown.
                if guarded and not is_only_name(folder, name, status):
                    Place(workspace, folder, name, path).check_links(opened)
                self._read(_Pieces(opened, status.st_size, head), path)
        except (OSError, PathRefused):
            self.unread += 1
        finally:
            os.close(opened)

    def opened(self, file: int, size: int, path: str) -> None:
        """Search an opened regular file."""
        head = self._head(file, size)
        if head is not None:
            self._read(_Pieces(file, size, head), path)

    def _head(self, file: int, size: int) -> bytes | None:
        """The beginning of a file, or all of it. None: nothing can be found in it."""
        self.files += 1
        self.late = time.monotonic() > self.deadline
        # One byte more than there should be: then a small file is known to be read to its end.
        data = os.read(file, min(size + 1, _PIECE))
        found = len(data) != size or not _is_plain(data) or self.pattern.search(data) is not None
        return data if found else None

    def _read(self, pieces: _Pieces, path: str) -> None:
        before = len(self.lines)
        number = 1
        piece = b""
        counted = 0
        for following in pieces:
            number += piece.count(b"\n", counted)
            piece, counted = following, 0
            for start, stop, found in self._found(piece):
                if len(self.lines) == self.limit or self.room < 0:
                    self.more = True
                    return
                number += piece.count(b"\n", counted, start)
                counted = start
                self.lines.append(f"{path}:{number}:{_shown(piece, start, stop, found)}")
                self.room -= len(self.lines[-1].encode(errors="replace")) + 1
            if time.monotonic() > self.deadline:
                break
        self.binary += pieces.is_binary
        if pieces.encoding and len(self.lines) > before:
            self.encodings.append(f"{path} is {pieces.encoding}")

    def _found(self, text: bytes) -> Iterator[tuple[int, int, linear.Match]]:
        """Where the lines begin and end that match, and where they do. `text` is whole lines in UTF-8.

        All of it is searched at once, which is many times as fast as line by line. What is found may go over a line's
        end; then the line alone decides.
        """
        search = self.pattern.search
        at, end, fruitless = 0, len(text), 0
        while at < end:
            found, start, near = None, at, at
            if fruitless <= _FRUITLESS:
                found = search(text, at)
                if found is None or (found.start() == end and text.endswith(b"\n")):
                    return
                near = found.start()
                start = text.rfind(b"\n", at, near) + 1 or at
            stop = text.find(b"\n", near)
            stop = end if stop < 0 else stop
            if found is None or found.end() > stop:
                fruitless += 1
                found = search(text, start, stop)
            if found is not None:
                yield start, stop, found
            at = stop + 1

    def result(self) -> ToolResult:
        lines = self.lines or ["Nothing was found."]
        notes: list[str] = []
        if self.more:
            notes.append(f"the first {len(self.lines)} lines; there are more. Narrow the search, or raise limit")
        if self.late:
            notes.append(
                f"the search was ended after at most {SECONDS:g} s, so there may be more. Narrow it by path or include"
            )
        if self.binary:
            notes.append(f"binary files left out: {self.binary}")
        if self.unread:
            notes.append(f"files and folders that could not be read: {self.unread}")
        notes += self.encodings[:_NAMED]
        return ToolResult(
            output=clean_text("\n".join([*lines, *(f"[{note}]" for note in notes)])),
            metadata={"matches": len(self.lines), "files": self.files, "more": self.over},
        )


def _is_plain(data: bytes) -> bool:
    """Whether all of this can be searched as it is, which most files can."""
    return data.isascii() and b"\0" not in data and b"\r" not in data


class _Pieces:
    """An opened file, of which the head was read, in pieces of whole lines, in UTF-8 and with `\\n` at their ends.

    Attributes:
        is_binary: Whether it is no text; there are no pieces then.
        encoding: What it is if that is not UTF-8, for the model. Empty: it is.
    """

    def __init__(self, file: int, size: int, head: bytes) -> None:
        self._file = file
        self._size = size
        self._head = head
        self._latin = False
        self.is_binary = False
        self.encoding = ""

    def __iter__(self) -> Iterator[bytes]:
        data = self._head
        if data.startswith(_WIDE):
            yield from self._wide(data)
            return
        if data.startswith(codecs.BOM_UTF8):
            data = data[len(codecs.BOM_UTF8) :]
            self.encoding = Encoding("utf-8", codecs.BOM_UTF8).described()
        if data.find(b"\0", 0, SAMPLE) >= 0:
            self.is_binary = True
            return
        yield from map(self._plain, self._whole_lines(data))

    def _whole_lines(self, data: bytes) -> Iterator[bytes]:
        while more := os.read(self._file, _PIECE):
            cut = data.rfind(b"\n") + 1
            if cut == 0 and len(data) > _LONGEST_LINE:
                cut = len(data)
            if cut:
                yield data[:cut]
            data = data[cut:] + more
        if data:
            yield data

    def _plain(self, data: bytes) -> bytes:
        if not data.isascii():
            data = self._in_utf8(data)
        return data.replace(b"\r\n", b"\n") if b"\r" in data else data

    def _in_utf8(self, data: bytes) -> bytes:
        if not self._latin:
            try:
                data.decode()
            except UnicodeDecodeError:
                self._latin = True
                self.encoding = Encoding(LATIN_1).described()
        return data.decode(LATIN_1).encode() if self._latin else data

    def _wide(self, data: bytes) -> Iterator[bytes]:
        """A file in UTF-16 or UTF-32, as a whole; one that is too large is left out like a binary one."""
        if self._size <= _WIDE_BYTES:
            while more := os.read(self._file, _PIECE):
                data += more
            file = read_text(data)
            if file is not None and "\0" not in file.text:
                self.encoding = file.encoding.described()
                yield file.text.encode().replace(b"\r\n", b"\n")
                return
        self.is_binary = True


def _shown(text: bytes, start: int, stop: int, found: linear.Match) -> str:
    """A line, or the part of a long one around what was found."""
    if stop - start <= _SHOWN:
        return text[start:stop].decode(errors="replace")
    first = max(start, min(found.start() - _BEFORE, stop - _SHOWN))
    last = min(stop, first + _SHOWN)
    before = "…" if first > start else ""
    after = "…" if last < stop else ""
    shown = text[first:last].decode(errors="ignore")
    return f"{before}{shown}{after} [cut: the line has {stop - start:,} bytes]"
