"""How a conversation is written to a file: a line for each record, a checksum for what was written together. Pure.

A line with a checksum is `<checksum><mark><body>`: eight hexadecimal digits of a CRC-32, a mark, the rest, a line end.

| mark | the line is | the checksum covers |
|---|---|---|
| blank | a record that was written alone | the JSON |
| `#` | a note about the file or the conversation, no record: JSON | the mark and the JSON |
| `+` | the announcement of lines that were written together: `<bytes> <checksum> <checksums>` | the mark and the rest |

The lines that are announced are records as they are, and perhaps a note at their end. An announcement has their bytes,
the checksum over all of them, by which they are read, and one for each record, by which the damaged one is found.

What was written together counts as a whole or not at all. The first line is the note that says whose file it is.
"""

from __future__ import annotations

import json
import re
import zlib
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from zlib import crc32

import orjson

from toolnexus.errors import StoreTooNew
from toolnexus.stores.backend import SCHEMA, Head, Key, Record

_MARKS = b" #+"
_ALONE, _NOTE, _TOGETHER = _MARKS
_CHECKSUM = 8
_BODY = _CHECKSUM + 1
_BEGIN = re.compile(rb"\n(?=[0-9a-f]{8}[ #+])")
_WINDOW = 1 << 15
"""Bytes before it that a packed text can refer to: as far as DEFLATE reaches."""
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


class Place(NamedTuple):
    """Where a note is: the bytes before its line, those of its line, and the records before it."""

    offset: int
    size: int
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """What lines hold.

    Attributes:
        records: The records, oldest first.
        notes: The notes, oldest first.
        whole: How many bytes that was. What follows them was never written to its end.
        places: Where each of the notes is.
    """

    records: list[Record]
    notes: list[bytes]
    whole: int
    places: list[Place] = field(default_factory=list[Place], compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """Whose file it is.

    Attributes:
        changed: The order of the change that made it; see `order.py`.
    """

    key: Key
    incarnation: int
    changed: int = 0


def frame(record: Record) -> bytes:
    """The line of a record that is written alone.

    Raises:
        ValueError: The record is more than one line.
    """
    return _line(record, _ALONE)


def note(body: bytes) -> bytes:
    """The line of a note."""
    return _line(body, _NOTE)


def batch(records: Sequence[Record], end: bytes = b"") -> bytes:
    """The lines of records that are written together.

    Args:
        end: The line of a note that is written with them. Empty: there is none.

    Raises:
        ValueError: A record is more than one line.
    """
    if not records:
        return end
    if len(records) == 1 and not end:
        return frame(records[0])
    lines = b"\n".join([*records, end])
    if lines.count(b"\n") != len(records) + bool(end):
        raise ValueError("A record is one line.")
    each = b"%08x" * len(records) % (*map(crc32, records),)
    return _line(b"%d %08x %b" % (len(lines), crc32(lines), each), _TOGETHER) + lines


def split(data: bytes) -> Split:
    """Take lines apart. They may end anywhere.

    Raises:
        BadFrame: A line that has its end does not fit its checksum.
    """
    records: list[Record] = []
    notes: list[bytes] = []
    places: list[Place] = []
    view = memoryview(data)
    offset, number = 0, 1
    while (end := data.find(b"\n", offset)) >= 0:
        if not _fits(data, offset, end):
            raise BadFrame(number, offset)
        mark, body = data[offset + _CHECKSUM], data[offset + _BODY : end]
        start = stop = end + 1
        number += 1
        if mark == _ALONE:
            records.append(body)
        elif mark == _NOTE:
            notes.append(body)
            places.append(Place(offset, stop - offset, len(records)))
        else:
            size, checksum, each = body.split(b" ")
            stop += int(size)
            if stop > len(data):
                break
            if crc32(view[start:stop]) != int(checksum, 16):
                raise _damage(data[start:stop], each, number, start)
            lines = data[start : stop - 1].split(b"\n")
            number += len(lines)
            count = len(each) // _CHECKSUM
            if len(lines) > count:
                ending = lines.pop()
                notes.append(ending[_BODY:])
                places.append(Place(stop - 1 - len(ending), len(ending) + 1, len(records) + count))
            records += lines
        offset = stop
    return Split(records=records, notes=notes, whole=offset, places=places)


def first_line(data: bytes) -> int | None:
    """Where a line with a checksum begins in bytes that begin anywhere. None: there is none."""
    for found in _BEGIN.finditer(data):
        end = data.find(b"\n", found.end())
        if end >= 0 and _fits(data, found.end(), end):
            return found.end()
    return None


def _damage(lines: bytes, each: bytes, number: int, offset: int) -> BadFrame:
    """Which of these lines is not what was written.

    Args:
        each: The checksums of the records among them.
        number: That of the first line.
        offset: Where it begins.
    """
    for line, at in zip(lines.split(b"\n"), range(0, len(each), _CHECKSUM), strict=False):
        if b"%08x" % crc32(line) != each[at : at + _CHECKSUM]:
            break
        number += 1
        offset += len(line) + 1
    return BadFrame(number, offset)


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


def write_head(head: Head, *, changed: int = 0, after: Sequence[Record] = ()) -> bytes:
    """The line of what a list shows.

    Args:
        changed: The order of this change.
        after: The records that are written before it. What was said is in them already, and takes few bytes then.
    """
    fields: dict[str, Any] = {
        "title": head.title,
        "updated": head.updated,
        "messages": head.messages,
        "status": head.status,
        "preview": head.preview,
        "changed": changed,
    }
    if head.anew:
        fields["anew"] = True
    text = head.text.encode("utf-8", "surrogatepass")
    packed = _pack(text, after)
    if len(packed) < len(text):
        fields |= {"packed": packed.decode("ascii"), "with": len(after)}
    elif text:
        fields["text"] = head.text
    return note(_note("head", fields))


def read_head(fields: Mapping[str, Any], before: Sequence[Record] | None = None) -> Head:
    """What a list shows, from what a note of the kind `head` says.

    Args:
        before: The records before the note. None: leave out a text that cannot be read without them.

    Raises:
        ValueError: The text cannot be read with these records.
    """
    text = fields.get("text", "")
    if "packed" in fields and before is not None:
        text = _unpack(fields["packed"], before[len(before) - fields["with"] :])
    return Head(
        title=fields["title"],
        updated=fields["updated"],
        messages=fields["messages"],
        status=fields["status"],
        preview=fields["preview"],
        text=text,
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
    """JSON on one line."""
    try:
        return orjson.dumps(fields)
    except TypeError:  # a lone surrogate
        return _encode(fields).encode("ascii")


def _note(kind: str, fields: Mapping[str, Any]) -> bytes:
    return pack({"v": SCHEMA, "k": kind, **fields})


def _pack(text: bytes, after: Sequence[Record]) -> bytes:
    """A text as DEFLATE in base64, with these records before it."""
    packing = zlib.compressobj(1, wbits=-15, zdict=_dictionary(after))
    return b64encode(packing.compress(text) + packing.flush())


def _unpack(packed: str, after: Sequence[Record]) -> str:
    unpacking = zlib.decompressobj(wbits=-15, zdict=_dictionary(after))
    try:
        text = unpacking.decompress(b64decode(packed))
    except zlib.error as error:
        raise ValueError("a text does not fit the records before it") from error
    if not unpacking.eof:
        raise ValueError("a text is not whole")
    return text.decode("utf-8", "surrogatepass")


def _dictionary(records: Sequence[Record]) -> bytes:
    return b"\n".join(records)[-_WINDOW:]


def _line(body: bytes, mark: int) -> bytes:
    if b"\n" in body:
        raise ValueError("A record is one line.")
    checksum = crc32(body) if mark == _ALONE else crc32(b"%c%b" % (mark, body))
    return b"%08x%c%b\n" % (checksum, mark, body)


def _fits(data: bytes, start: int, end: int) -> bool:
    """Whether a line with a checksum is as it was written."""
    if end < start + _BODY or (mark := data[start + _CHECKSUM]) not in _MARKS:
        return False
    covered = start + (_BODY if mark == _ALONE else _CHECKSUM)
    return data[start : start + _CHECKSUM] == b"%08x" % crc32(data[covered:end])
