"""Reads an event stream: bytes in, the events' data out. Shared by all wires that stream.

Source: WHATWG HTML, "Interpreting an event stream". Event types, ids and retry times are not kept: every wire says
what an event is in its data. An event without data is nothing.
"""

from __future__ import annotations

_BOM = "\ufeff"


class SSEDecoder:
    """One stream. Keeps the unfinished tail; never waits."""

    def __init__(self) -> None:
        self._tail: list[bytes] = []  # pieces of a line that has not ended; joined once, however many come
        self._data: list[str] = []
        self._after_cr = False
        self._at_start = True

    def feed(self, chunk: bytes) -> list[str]:
        """Return the payloads that `chunk` completes, in order. How a stream is cut into chunks changes nothing."""
        if self._after_cr and chunk:
            self._after_cr = False
            if chunk.startswith(b"\n"):  # the other half of \r\n
                chunk = chunk[1:]
        if b"\r" in chunk:
            self._after_cr = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        end = chunk.rfind(b"\n")
        if end < 0:
            if chunk:
                self._tail.append(chunk)
            return []
        whole = chunk[:end]
        if self._tail:
            self._tail.append(whole)
            whole = b"".join(self._tail)
            self._tail.clear()
        if end + 1 < len(chunk):
            self._tail.append(chunk[end + 1 :])
        return self._read(whole.decode("utf-8", "replace").split("\n"))

    def finish(self) -> list[str]:
        """Return what is left when the stream has ended: servers exist that leave out the last blank line."""
        rest = b"".join(self._tail)
        self._tail.clear()
        return self._read([rest.decode("utf-8", "replace"), ""])

    def _read(self, lines: list[str]) -> list[str]:
        if self._at_start:
            self._at_start = False
            lines[0] = lines[0].removeprefix(_BOM)
        payloads: list[str] = []
        data = self._data
        for line in lines:
            if line.startswith("data:"):
                data.append(line[6:] if line.startswith(" ", 5) else line[5:])
            elif line:
                if line == "data":
                    data.append("")
            elif data:
                payload = data[0] if len(data) == 1 else "\n".join(data)
                data.clear()
                if payload:
                    payloads.append(payload)
        return payloads
