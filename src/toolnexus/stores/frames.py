"""How a conversation is written to a file: one line with a checksum for each record. Pure.

A line is `<checksum> <json>`: eight hexadecimal digits of a CRC-32, a mark, a JSON object, a line end.

| mark | the line is | the checksum covers |
|---|---|---|
| blank | a record, the last of those that were written together | the JSON |
| `+` | a record that was written together with the line after it | the mark and the JSON |
| `#` | a note about the file or the conversation, no record; the last of what was written together | as above |

What was written together counts as a whole or not at all. The first line is the note that says whose file it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from toolnexus.errors import StoreTooNew
from toolnexus.stores.backend import SCHEMA, Head, Key, Record

_LAST, _MORE, _NOTE = b" ", b"+", b"#"
_CHECKSUM = 8
_BODY = _CHECKSUM + 1
_encode = json.JSONEncoder(separators=(",", ":")).encode
"""ASCII, so that ids with lone surrogates survive."""


class BadFrame(ValueError):
    """A line that was written whole is not what was written.

    Attributes:
        line: Its number, from 1.
        offset: The bytes before it.
    """

    def __init__(self, line: int, offset: int) -> None:
        super().__init__(f"line {line} does not fit its checksum")
        self.line = line
        self.offset = offset


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """What lines hold.

    Attributes:
        records: The records, oldest first.
        notes: The notes, oldest first.
        whole: How many bytes that was. What follows them was never written to its end.
    """

    records: list[Record]
    notes: list[bytes]
    whole: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """Whose file it is.

    Attributes:
        changed: The order of the change that made it; see `order.py`.
    """

    key: Key
    incarnation: int
    changed: int = 0


def frame(record: Record, *, more: bool = False) -> bytes:
    """The line of a record.

    Args:
        more: Whether the next line is written together with it. False: it is written alone, or the last.

    Raises:
        ValueError: The record is more than one line.
    """
    return _line(record, _MORE if more else _LAST)


def note(body: bytes) -> bytes:
    """The line of a note."""
    return _line(body, _NOTE)


def batch(records: Sequence[Record], end: bytes = b"") -> bytes:
    """The lines of records that are written together.

    Args:
        end: The line of a note that is written with them. Empty: there is none.
    """
    if not records:
        return end
    *rest, last = records
    return b"".join([*(frame(record, more=True) for record in rest), frame(last, more=bool(end)), end])


def split(data: bytes) -> Split:
    """Take lines apart. They may end anywhere.

    Raises:
        BadFrame: A line that has its end does not fit its checksum.
    """
    records: list[Record] = []
    notes: list[bytes] = []
    offset = whole = kept = 0
    lines = data.split(b"\n")
    lines.pop()  # what has no line end yet
    for number, line in enumerate(lines, 1):
        mark, body = line[_CHECKSUM:_BODY], line[_BODY:]
        if mark == _LAST:
            checksum = crc32(body)
        elif mark in (_MORE, _NOTE) and mark:
            checksum = crc32(line[_CHECKSUM:])
        else:
            raise BadFrame(number, offset)
        if line[:_CHECKSUM] != b"%08x" % checksum:
            raise BadFrame(number, offset)
        offset += len(line) + 1
        (notes if mark == _NOTE else records).append(body)
        if mark != _MORE:
            whole, kept = offset, len(records)
    del records[kept:]
    return Split(records=records, notes=notes, whole=whole)


def write_header(header: Header) -> bytes:
    """The first line of a file."""
    return note(
        _note(
            "file",
            {
                "scope": header.key.scope,
                "id": header.key.id,
                "incarnation": header.incarnation,
                "changed": header.changed,
            },
        )
    )


def read_header(body: bytes) -> Header:
    """What the first note of a file says.

    Raises:
        ValueError: It is no such note.
        StoreTooNew: It is of a newer layout.
    """
    fields = read_note(body)
    try:
        if fields["k"] != "file":
            raise ValueError("it does not begin as a conversation does")
        return Header(
            key=Key(fields["scope"], fields["id"]), incarnation=fields["incarnation"], changed=fields["changed"]
        )
    except (KeyError, TypeError) as error:
        raise ValueError("it does not begin as a conversation does") from error


def write_head(head: Head, *, changed: int = 0) -> bytes:
    """The line of what a list shows.

    Args:
        changed: The order of this change.
    """
    fields = {**head_fields(head), "text": head.text, "anew": head.anew, "changed": changed}
    return note(_note("head", fields))


def head_fields(head: Head) -> dict[str, Any]:
    """What a list shows, without what can be searched."""
    return {
        "title": head.title,
        "updated": head.updated,
        "messages": head.messages,
        "status": head.status,
        "preview": head.preview,
    }


def read_head(fields: Mapping[str, Any]) -> Head:
    """What a list shows, from what `head_fields` or a note of the kind `head` says."""
    return Head(
        title=fields["title"],
        updated=fields["updated"],
        messages=fields["messages"],
        status=fields["status"],
        preview=fields["preview"],
        text=fields.get("text", ""),
        anew=fields.get("anew", False),
    )


def read_note(body: bytes) -> Mapping[str, Any]:
    """What a note says; `k` is its kind. Those of an unknown kind are to be passed over.

    Raises:
        ValueError: It is not JSON.
        StoreTooNew: It is of a newer layout.
    """
    fields = json.loads(body)
    try:
        version = fields["v"]
    except (KeyError, TypeError) as error:
        raise ValueError("a note has no version") from error
    if not isinstance(version, int) or version > SCHEMA:
        raise StoreTooNew(f"The file is of layout {version!r}; this toolnexus reads up to {SCHEMA}. Update toolnexus.")
    return fields


def pack(fields: Mapping[str, Any]) -> bytes:
    """JSON of ASCII on one line."""
    return _encode(fields).encode("ascii")


def _note(kind: str, fields: Mapping[str, Any]) -> bytes:
    return pack({"v": SCHEMA, "k": kind, **fields})


def _line(body: bytes, mark: bytes) -> bytes:
    if b"\n" in body:
        raise ValueError("A record is one line.")
    checksum = crc32(body) if mark == _LAST else crc32(mark + body)
    return b"%08x%b%b\n" % (checksum, mark, body)
