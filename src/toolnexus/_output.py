"""From any value that a tool returns to a `ToolResult` that a model can read: text, and images, sounds and files.

No more than the limit is looked at, so a value of 50 MB costs as much as one of 64 KiB. The one exception is a pydantic
model, which only pydantic may take apart (what it excludes must stay out), and does as a whole.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import json
import math
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from toolnexus import _media
from toolnexus._foreign import part_type, read_part
from toolnexus._unicode import clean, clean_text
from toolnexus.errors import InvalidTranscript
from toolnexus.tools import ToolResult

if TYPE_CHECKING:
    from toolnexus.messages import Part

_MAX_DEPTH = 64
_STEPS_AT_ONCE = 2000
"""Nodes that are encoded on the event loop; about a millisecond."""

_FEW = 50
_SHORT = 1000
_LARGE = 1 << 64
"""Bounds of what is taken in at a glance: the nodes, the characters of each text, the numbers."""
_LONGEST_CHARACTER = 4
"""Bytes in UTF-8."""

_MOST_BLOCKS = 100
"""Items of a list that may be content; a longer one is data."""
_LITTLE_MEDIA = 1 << 20
"""Characters of media that are looked through on the event loop; some milliseconds."""

_quote = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

_SAFE_MODULES = frozenset({"datetime", "decimal", "fractions", "ipaddress", "pathlib", "uuid"})
"""Their values become text without running any code of a stranger. Named, so that they need not be imported."""


class _Full(Exception):
    """The limit is reached."""


class _Elsewhere(Exception):
    """The value is large, or encoding it runs code that may take long."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Array:
    items: Iterable[Any]


@dataclasses.dataclass(frozen=True, slots=True)
class _Object:
    pairs: Iterable[tuple[Any, Any]]


_Simple: TypeAlias = str | int | float | dict[Any, Any] | list[Any] | tuple[Any, ...] | _Array | _Object | None
_SIMPLE = (str, int, float, bool, type(None), dict, list, tuple, _Array, _Object)


def encode(value: Any, *, limit: int) -> ToolResult:
    """Encode what a tool returned. It may run code of the value (an iterator, `__str__`, a model's serializers).

    Text stays as it is, `None` is `null` (a model that reads nothing at all guesses), a `ToolResult` keeps what it
    says, anything else becomes JSON, or its `str()` where nothing better is known. A NaN is the text `NaN`, a lone
    surrogate is U+FFFD, what holds itself is cut there, and iterators are read as far as there is room.

    Args:
        limit: Bytes of UTF-8 that are kept; the text says what was cut.
    """
    return _encode(value, limit, at_once=False)


def encode_at_once(value: Any, *, limit: int) -> ToolResult | None:
    """`encode` on the event loop; None when that might block it, so that it has to be done in a worker."""
    try:
        return _encode(value, limit, at_once=True)
    except _Elsewhere:
        return None


def cut_text(text: str, limit: int, *, of: str = "") -> str:
    """The first `limit` bytes of `text`, valid Unicode, with a note if that is not all.

    Args:
        of: What the note says about the whole. Empty: how many characters are missing.
    """
    head = clean_text(text[:limit])
    cut = len(text) > limit
    if not head.isascii() and len(data := head.encode()) > limit:
        head = data[:limit].decode(errors="ignore")
        cut = True
    return f"{head}\n[cut here: {of or f'{len(text) - len(head):,} more characters were'} left out]" if cut else head


def _encode(value: Any, limit: int, *, at_once: bool) -> ToolResult:
    if type(value) is str:
        return ToolResult(output=cut_text(value, limit))
    if isinstance(value, ToolResult):
        return _checked(value, limit, at_once=at_once)
    if (blocks := _blocks(value, at_once=at_once)) is not None:
        return _shown(blocks, value, limit, at_once=at_once)
    if (text := _at_a_glance(value, limit)) is not None:
        return ToolResult(output=text, structured=value)
    return ToolResult(
        output=_Writer(limit, at_once=at_once).text(value),
        structured=None if isinstance(value, Iterator) else value,
    )


def _at_a_glance(value: Any, limit: int) -> str | None:
    """What `_Writer` would write, but much faster, of a small value of JSON's own types; None for any other."""
    seen = [value]
    for item in seen:  # grows while it is gone through
        kind = cast("type[object]", type(item))
        if kind is str:
            if len(item) > _SHORT:
                return None
        elif kind is dict or kind is list:
            if len(item) + len(seen) > _FEW:
                return None
            if kind is dict:
                for key in item:
                    if type(key) is not str:
                        return None
                seen += item
                item = item.values()
            seen += item
        elif kind is int or kind is float:
            if not -_LARGE < item < _LARGE:
                return None
        elif item is not None and kind is not bool:
            return None
    text = _quote(value)
    return text if len(text) * _LONGEST_CHARACTER <= limit and clean_text(text) is text else None


def _checked(result: ToolResult, limit: int, *, at_once: bool) -> ToolResult:
    """A tool's own result, with nothing in it that the transcript could not hold."""
    output = result.output
    text = cut_text(output, limit) if type(output) is str else _Writer(limit, at_once=at_once).text(output)
    parts = _Parts(limit, at_once=at_once).read(result.parts)
    if text == output and parts == result.parts:
        return result
    return dataclasses.replace(result, output=text, parts=parts)


def _blocks(value: Any, *, at_once: bool) -> list[Any] | None:
    """The content that a value is: a part or an MCP block, a list of such and of texts, or the bytes of an image, a
    sound or a PDF. None: it is none of these, but data.
    """
    if type(value) is dict:
        return [value] if _is_media(cast("dict[Any, Any]", value)) else None
    if type(value) is list or type(value) is tuple:
        items = cast("list[Any]", value)
        if len(items) > _MOST_BLOCKS or not any(type(item) is dict and _is_media(item) for item in items):
            return None
        content = all(type(item) is str or _is_text(item) or (type(item) is dict and _is_media(item)) for item in items)
        return list(items) if content else None
    if isinstance(value, bytes | bytearray):
        data = bytes(value[:_TELLING])
        if (kind := _media.media_type_of(data)) is None:
            return None
        if len(value) > _media.MAX_BYTES:
            size = _media.human_size(len(value))
            return [{"type": "text", "text": f"({kind}, {size}, which is too large to be shown.)"}]
        if at_once and len(value) > _LITTLE_MEDIA:
            raise _Elsewhere
        return [_media.part_of(kind, _media.to_base64(bytes(value)), None)]
    return None


def _is_text(item: Any) -> bool:
    match item:
        case {"type": "text", "text": str()}:
            return True
        case _:
            return False


def _is_media(item: dict[Any, Any]) -> bool:
    """Whether an object is surely meant as content. Data may have a `type` as well."""
    if "type" not in item:
        return False
    match item:
        case {"type": "image" | "audio", "data": str(), "mimeType": str(), **rest}:
            return rest.keys() <= _BESIDE
        case {"type": "resource", "resource": {"uri": str(), "text": str()} | {"uri": str(), "blob": str()}, **rest}:
            return rest.keys() <= _BESIDE
        case {"type": "image_url", "image_url": {"url": str()}, **rest}:
            return not rest
        case {"type": "input_audio", "input_audio": {"data": str(), "format": str()}, **rest}:
            return not rest
        case {
            "type": "file",
            "file": {"file_data": str()} | {"file_url": str()} | {"file_id": str()},
            **rest,
        }:
            return not rest
        case _:
            return False


_BESIDE = frozenset({"annotations", "_meta"})
"""What MCP may say beside the content of a block."""
_TELLING = 64
"""Bytes that tell what something is."""


def _shown(blocks: list[Any], value: Any, limit: int, *, at_once: bool) -> ToolResult:
    """A result of content. Its text is what stands first, or says in short what is shown."""
    parts = _Parts(limit, at_once=at_once).read(blocks)
    first = next((place for place, part in enumerate(parts) if part["type"] != "text"), len(parts))
    said = "\n".join(part["text"] for part in parts[:first] if part["type"] == "text")
    if not said:
        said = f"({'; '.join(_media.summary(part) for part in parts[first:] if part['type'] != 'text')})"
    return ToolResult(output=said, parts=parts[first:], structured=value)


class _Parts:
    """Reads the parts of one result, which share the room that there is for text and for media."""

    def __init__(self, limit: int, *, at_once: bool) -> None:
        self._at_once = at_once
        self._text_room = limit
        self._room = _media.MAX_BYTES

    def read(self, given: Iterable[Any]) -> tuple[Part, ...]:
        return tuple(self._read(part) for part in given)

    def _read(self, given: Any) -> Part:
        if type(given) is str:
            return self._text(cut_text(given, self._text_room))
        if part_type(given) in _KNOWN and (part := self._media(given)) is not None:
            return part
        if _is_text(given):
            return self._text(cut_text(given["text"], self._text_room))
        # Nothing that a transcript knows: it is said as text rather than lost.
        return self._text(_Writer(self._text_room, at_once=self._at_once).text(given))

    def _text(self, cut: str) -> Part:
        self._text_room = max(0, self._text_room - len(cut.encode()))
        return {"type": "text", "text": cut}

    def _media(self, given: Any) -> Part | None:
        """A part that every later request can hold. None: it is none."""
        if self._at_once and _weight(given) > _LITTLE_MEDIA:
            raise _Elsewhere
        try:
            part = read_part(clean(given), "")
        except InvalidTranscript:
            return None
        if part["type"] == "text":
            return self._text(cut_text(part["text"], self._text_room))
        size = _media.size_of(part)
        if size > self._room:
            return cast("Part", _media.unshown(part, "which is too large to be shown"))
        plain = _media.plain(part)
        if plain is None:
            return cast("Part", _media.unshown(part, "which cannot be read"))
        self._room -= size
        return cast("Part", plain)


_KNOWN = frozenset({"image_url", "input_audio", "file", "image", "audio", "resource", "document"})


def _weight(value: Any) -> int:
    """Characters of the texts in a part."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Mapping):
        return sum(map(_weight, cast("Mapping[Any, Any]", value).values()))
    return 0


class _Writer:
    """Writes JSON until it is full."""

    def __init__(self, limit: int, *, at_once: bool) -> None:
        self._limit = limit
        self._at_once = at_once
        self._steps = _STEPS_AT_ONCE if at_once else -1
        self._room = limit
        self._out: list[str] = []
        self._open: set[int] = set()

    def text(self, value: Any) -> str:
        """`value` as text, at most the limit of it. What is a text in JSON (a date, a path) is not quoted."""
        simple = self._simplify(value)
        if type(simple) is str:
            return cut_text(simple, self._limit, of="" if isinstance(value, str) else "the rest was")
        size = f"of {len(simple):,} items, " if isinstance(simple, dict | list | tuple) else ""
        # A full writer has written more than the limit, so that the cut is made and said below.
        with contextlib.suppress(_Full):
            self._write(simple, id(value))
        return cut_text("".join(self._out), self._limit, of=f"{size}the rest was")

    def _put(self, text: str) -> None:
        self._out.append(text)
        self._room -= len(text)
        if self._room < 0:
            raise _Full

    def _write_any(self, value: Any) -> None:
        if self._steps == 0:
            raise _Elsewhere
        self._steps -= 1
        self._write(self._simplify(value), id(value))

    def _write(self, simple: _Simple, identity: int) -> None:
        if isinstance(simple, str):
            self._put_text(simple)
        elif simple is None or isinstance(simple, bool):
            self._put("null" if simple is None else "true" if simple else "false")
        elif isinstance(simple, int | float):
            self._put(repr(simple))
        elif identity in self._open:
            self._put('"(a value that holds itself)"')
        elif len(self._open) == _MAX_DEPTH:
            self._put('"(nested too deeply)"')
        else:
            self._open.add(identity)
            self._write_container(simple)
            self._open.discard(identity)

    def _put_text(self, text: str) -> None:
        self._put(_quote(clean_text(text[: self._room + 1])))

    def _write_container(self, container: dict[Any, Any] | list[Any] | tuple[Any, ...] | _Array | _Object) -> None:
        # What is copied first cannot change while it is written; more items than there is room for are never needed.
        # Of a dict only the keys: a pair for each would be work for the garbage collector, who stops everything.
        match container:
            case dict():
                keys = tuple(islice(container, self._room + 1))
                self._write_object((key, container[key]) for key in keys)
            case _Object(pairs):
                self._write_object(pairs)
            case list() | tuple():
                self._write_array(container[: self._room + 1])
            case _Array(items):
                self._write_array(items)

    def _write_array(self, items: Iterable[Any]) -> None:
        self._put("[")
        for position, item in enumerate(items):
            if position:
                self._put(",")
            self._write_any(item)
        self._put("]")

    def _write_object(self, pairs: Iterable[tuple[Any, Any]]) -> None:
        self._put("{")
        for position, (key, item) in enumerate(pairs):
            if position:
                self._put(",")
            self._put_text(key if type(key) is str else self._key(key))
            self._put(":")
            self._write_any(item)
        self._put("}")

    def _key(self, key: Any) -> str:
        return _Writer(self._limit, at_once=self._at_once).text(key)

    def _simplify(self, value: Any) -> _Simple:
        """What JSON has that says the same."""
        while True:
            kind = cast("type[object]", type(value))
            if kind is float:
                return value if math.isfinite(value) else _not_finite(value)
            if kind is int:
                return value if value.bit_length() < 10_000 else f"(an integer of {value.bit_length()} bits)"
            if kind in _SIMPLE:
                return value
            value = value.value if isinstance(value, Enum) else self._simpler(value)

    def _simpler(self, value: Any) -> Any:
        """One step towards what JSON has."""
        if isinstance(value, bytes | bytearray | memoryview):
            return _bytes_text(memoryview(cast("bytes", value)), self._room)
        for base, plain in _BASES:
            if isinstance(value, base):
                return plain(value)
        if type(value).__module__ in _SAFE_MODULES:
            return value.isoformat() if hasattr(value, "isoformat") else str(value)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return _Object((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
        if self._at_once:
            raise _Elsewhere
        return _foreign(value)


_BASES: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (str, str.__str__),
    (int, int.__int__),
    (float, float.__float__),
    (dict, lambda value: _Object(cast("dict[Any, Any]", value).items())),
    (list, lambda value: _Array(cast("list[Any]", value))),
    (tuple, lambda value: _Array(cast("tuple[Any, ...]", value))),
)


def _foreign(value: Any) -> Any:
    """One step for a value whose own code has to be run."""
    dump: Any = getattr(cast("type[object]", type(value)), "model_dump", None)
    if dump is not None:
        try:
            return dump(value, mode="json", warnings=False)
        except Exception:  # noqa: BLE001 - such as bytes that are no text: what JSON cannot say is handled here
            return cast("dict[str, Any]", vars(value))
    if isinstance(value, os.PathLike):
        return os.fspath(cast("os.PathLike[str]", value))
    if isinstance(value, Mapping):
        return _Object(cast("Mapping[Any, Any]", value).items())
    if isinstance(value, Collection | Iterator):
        return _Array(cast("Iterable[Any]", value))
    return _str(value)


def _str(value: object) -> str:
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - the tool has done its work; how its result looks must not undo that
        return f"<{type(value).__name__} object>"


def _not_finite(number: float) -> str:
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def _bytes_text(data: memoryview, room: int) -> str:
    """Bytes as the text that they are in UTF-8, else as a data URL."""
    view = data.cast("B")
    head = bytes(view[: room + 4])
    try:
        return head.decode()
    except UnicodeDecodeError as error:
        if len(head) < len(view) and error.start > room:  # only the last character is cut
            return head[: error.start].decode()
    return f"data:application/octet-stream;base64,{base64.b64encode(head).decode()}"
