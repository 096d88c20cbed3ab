"""From what an MCP server answers to a `ToolResult`: lenient about what it is, and about how much."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, cast

from toolnexus import _json, _media, _workers
from toolnexus._foreign import read_part
from toolnexus._output import cut_text
from toolnexus._unicode import clean, clean_text
from toolnexus.errors import InvalidTranscript
from toolnexus.tools import JSONObject, ToolResult

if TYPE_CHECKING:
    from toolnexus.messages import Part
    from toolnexus.sources.builtin.kept_output import OutputFolder

_MOST_SHOWN = 48_000
"""Bytes of text that a model gets of one result; more is in a file."""
_HEAD = 36_000
_TAIL = 8_000
_MOST_BLOCKS = 200


async def read_result(answer: Mapping[str, Any], metadata: JSONObject, folder: OutputFolder) -> ToolResult:
    """What a call gave back. The content goes to the model if there is any, else the structured JSON.

    Args:
        metadata: What to keep beside it.
        folder: Where the whole of a large text goes.
    """
    blocks = answer.get("content")
    parts = _parts(cast("list[Any]", blocks)) if isinstance(blocks, list) else []
    structured: Any = answer.get("structuredContent")
    if not parts and structured is not None:
        parts = [_text(_json_text(structured))]
    first = next((at for at, part in enumerate(parts) if part["type"] != "text"), len(parts))
    output = "\n".join(part["text"] for part in parts[:first] if part["type"] == "text")
    rest = parts[first:]
    metadata = {**metadata, **_links(blocks)}
    if rest and not output:
        output = f"({'; '.join(_media.summary(part) for part in rest if part['type'] != 'text')})"
    if len(output) * 4 > _MOST_SHOWN and len(data := output.encode()) > _MOST_SHOWN:
        output, metadata["file"] = await _workers.run(_shortened, data, folder)
    elif not output and not rest:
        output = "(The tool answered with nothing.)"
    return ToolResult(
        output=output,
        is_error=answer.get("isError") is True,
        parts=tuple(rest),
        structured=structured,
        metadata=metadata,
    )


def _parts(blocks: list[Any]) -> list[Part]:
    parts = [_part(block) for block in blocks[:_MOST_BLOCKS]]
    if len(blocks) > _MOST_BLOCKS:
        parts.append(_text(f"[cut here: {len(blocks) - _MOST_BLOCKS} more blocks were left out]"))
    return parts


def _part(block: Any) -> Part:
    """A block as a part. What nobody knows is said as JSON rather than lost."""
    match block:
        case {"type": "text", "text": str(text)}:
            return _text(text)
        case {"type": "resource", "resource": {"text": str(text), **about}}:
            uri = about.get("uri")
            return _text(f"[{uri}]\n{text}" if isinstance(uri, str) else text)
        case {"type": "resource_link", "uri": str(uri), **about}:
            return _text(_link(uri, about))
        case {"type": "image" | "audio" | "resource"}:
            return _media_part(cast("dict[str, Any]", block))
        case _:
            return _text(block if isinstance(block, str) else _json_text(block))


def _media_part(block: dict[str, Any]) -> Part:
    try:
        part = read_part(clean(block), "")
    except InvalidTranscript:
        return _text(f"(The {block.get('type')} that the tool answered with cannot be read.)")
    plain = _media.plain(part)
    if plain is None:
        return cast("Part", _media.unshown(part, "which cannot be read"))
    return cast("Part", plain)


def _link(uri: str, about: Mapping[str, Any]) -> str:
    name, kind, said = (about.get(key) for key in ("title", "mimeType", "description"))
    shown = name or about.get("name") or uri
    more = ", ".join(str(each) for each in (kind, said) if each)
    return f"[{shown}]({uri})" + (f": {more}" if more else "")


def _links(blocks: Any) -> JSONObject:
    links = [
        clean(each)
        for each in (cast("list[Any]", blocks) if isinstance(blocks, list) else ())
        if isinstance(each, Mapping) and cast("Mapping[str, Any]", each).get("type") == "resource_link"
    ]
    return {"links": links} if links else {}


def _text(text: str) -> Part:
    return {"type": "text", "text": clean_text(text)}


def _json_text(value: Any) -> str:
    return _json.dumps(clean(value), "the result").decode()


def _shortened(data: bytes, folder: OutputFolder) -> tuple[str, str | None]:
    head = data[:_HEAD].decode("utf-8", "ignore")
    tail = data[-_TAIL:].decode("utf-8", "ignore")
    size = _media.human_size(len(data) - _HEAD - _TAIL)
    cut = f"{size} of {_media.human_size(len(data))} left out"
    try:
        descriptor, path = folder.new()
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
    except OSError as error:
        note, where = f"{cut}; the whole could not be kept in a file ({error.strerror or error})", None
    else:
        note, where = f"{cut}; all of it is in {path}", str(path)
    return f"{head}\n\n[cut here: {note}]\n\n{tail}", where


def progress_text(done: float, total: float | None, message: str | None) -> tuple[str, float | None]:
    """What a run is told of progress, and the fraction that is done. None: unknown."""
    fraction: float | Literal[0] | None = None
    if total is not None and total > 0:
        fraction = min(max(done / total, 0.0), 1.0)
    of = "" if total is None else f" of {total:g}"
    return cut_text(message, 500) if message else f"{done:g}{of}", fraction
