"""Keeps what a command writes: its beginning and end in memory, the whole in a file."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import threading
from pathlib import Path

from toolnexus._media import human_size

HEAD = 8_000
TAIL = 12_000
"""Bytes of a large output that are shown. Even if each becomes a U+FFFD, together they fit into a tool's result."""

MAX_FILE = 100_000_000
"""Bytes that are kept of one output."""
MAX_FILES = 50
MAX_FOLDER = 500_000_000
"""What all files of a folder may come to; the oldest go first."""

# ECMA-48: control sequences, strings up to their end (titles, links), and other escapes.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_CUT_CHARACTER = re.compile(rb"[\xc0-\xff][\x80-\xbf]{0,2}\Z")


class OutputFolder:
    """The files of one toolkit, which nobody else can read. The folder is made when it is needed, and goes at the end.

    It may be used from several threads at once.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._path: Path | None = None
        self._made = 0

    def new(self) -> tuple[int, Path]:
        """A new file, opened for writing."""
        with self._lock:
            if self._path is None:
                self._path = Path(tempfile.mkdtemp(prefix="toolnexus-"))
            self._make_room(self._path)
            self._made += 1
            path = self._path / f"output-{self._made}.txt"
            return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600), path

    def _make_room(self, folder: Path) -> None:
        files = sorted((each.stat().st_mtime_ns, each.stat().st_size, each) for each in folder.iterdir())
        total = sum(size for _, size, _ in files)
        for number, (_, size, path) in enumerate(files):
            if len(files) - number < MAX_FILES and total <= MAX_FOLDER - MAX_FILE:
                return
            path.unlink(missing_ok=True)
            total -= size

    def remove(self) -> None:
        """Remove the folder with all that is in it."""
        with self._lock:
            if self._path is not None:
                shutil.rmtree(self._path, ignore_errors=True)
                self._path = None


class KeptOutput:
    """The output of one command. To be written to by one thread.

    Attributes:
        total: Bytes that were written so far.
        path: The file that has all of it. None: there is none, as all of it fits into `text()`.
    """

    def __init__(self, folder: OutputFolder) -> None:
        self._folder = folder
        self._head = bytearray()
        self._tail = bytearray()
        self._file: int | None = None
        self._in_file = 0
        self._fault = ""
        self.total = 0
        self.path: Path | None = None

    def write(self, data: bytes) -> None:
        self.total += len(data)
        if self.path is None and not self._fault and self.total > HEAD + TAIL:
            self.to_file()
        self._to_file(data)
        room = HEAD - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > TAIL:
            del self._tail[:-TAIL]

    def to_file(self) -> None:
        """Keep all of it in a file from now on. Nothing of it may be gone yet."""
        if self.path is not None or self._fault:
            return
        try:
            self._file, self.path = self._folder.new()
        except OSError as error:
            self._fault = error.strerror or str(error)
            return
        self._to_file(bytes(self._head + self._tail))

    def _to_file(self, data: bytes) -> None:
        if self._file is None:
            return
        view = memoryview(data)[: MAX_FILE - self._in_file]
        self._in_file += len(view)
        try:
            while view:
                view = view[os.write(self._file, view) :]
        except OSError as error:  # a full disk must not hold the command up
            self._fault = error.strerror or str(error)
            self.close()

    def close(self) -> None:
        """Close the file, which stays."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def text(self) -> str:
        """What a model is shown: all of it, or its beginning and its end, with what was cut and where it is."""
        if self.total <= HEAD + TAIL:
            return plain(bytes(self._head + self._tail))
        head, tail = _whole_lines(self._head, self._tail)
        left_out = self.total - len(head) - len(tail)
        where = f"{human_size(left_out)} of {human_size(self.total)} left out; {self._where()}"
        return f"{plain(head).rstrip()}\n\n[cut here: {where}]\n\n{plain(tail)}"

    def _where(self) -> str:
        if self._fault:
            return f"the whole could not be kept in a file ({self._fault})"
        all_of_it = "all of it is" if self.total <= MAX_FILE else f"its first {human_size(MAX_FILE)} are"
        return f"{all_of_it} in {self.path}, to be looked at with grep, head, tail or sed"


def _whole_lines(head: bytearray, tail: bytearray) -> tuple[bytes, bytes]:
    """Without the halves of lines at the cut, as long as that leaves most of them; never with half a character."""
    end = head.rfind(b"\n") + 1
    start = tail.find(b"\n") + 1
    if end <= HEAD // 2:
        end = len(_CUT_CHARACTER.sub(b"", head))
    if not 0 < start < TAIL // 2:
        start = next((at for at in range(4) if tail[at] & 0xC0 != 0x80), 0)
    return bytes(head[:end]), bytes(tail[start:])


def last_line(data: bytes) -> str:
    """The last line of a piece of output that says something, for people. Empty: there is none."""
    lines = (line.strip() for line in reversed(plain(data[-2_000:]).splitlines()))
    return next((line[:200] for line in lines if line), "")


def plain(data: bytes) -> str:
    """Output as text: without colours and other commands to a terminal, and of a line that was overwritten the last
    state. What is no UTF-8 becomes U+FFFD."""
    text = _ESCAPES.sub("", data.decode("utf-8", "replace"))
    lines = (line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return _CONTROLS.sub("", "\n".join(lines))
