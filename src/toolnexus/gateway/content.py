"""From what a tool gave back to the result of `tools/call`. Pure."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

from toolnexus import _media, _strict

if TYPE_CHECKING:
    from toolnexus.tools import JSONObject, ToolResult

_MCP_BLOCKS = frozenset({"text", "image", "audio", "resource", "resource_link"})
_OUR_PARTS = frozenset({"image_url", "input_audio", "file"})


def call_result(result: ToolResult, *, any_structure: bool) -> JSONObject:
    """The result of `tools/call`.

    Args:
        any_structure: Whether the structured content may be any JSON value (from 2026-07-28 on), or an object alone.
    """
    told: JSONObject = {"content": _content(result), "isError": result.is_error}
    structured = _structured(result)
    if structured is not None and (any_structure or isinstance(structured, dict)):
        told["structuredContent"] = structured
    return told


def error_result(text: str) -> JSONObject:
    """The result of a call that failed."""
    return {"content": [_text(text)], "isError": True}


def _content(result: ToolResult) -> list[JSONObject]:
    given = _given_blocks(result.structured)
    if given is not None and all(_fits(block) for block in given):
        return [_block(block) for block in given]
    blocks = [_block(part) for part in result.parts]
    return [_text(result.output), *blocks] if result.output or not blocks else blocks


def _given_blocks(value: Any) -> list[Any] | None:
    """The content that a tool returned, as it spelled it. None: it returned data.

    A block of MCP may say what a part of ours cannot, such as the URI of a resource.
    """
    items: list[Any] = list(cast("list[Any]", value)) if isinstance(value, list | tuple) else [value]
    return items if any(_is_content(item) for item in items) else None


def _is_content(item: Any) -> bool:
    match item:
        case {"type": "image" | "audio", "data": str(), "mimeType": str()}:
            return True
        case {"type": "resource", "resource": {"uri": str(), "text": str()} | {"uri": str(), "blob": str()}}:
            return True
        case {"type": str(kind)}:
            return kind in _OUR_PARTS and isinstance(cast("JSONObject", item).get(kind), dict)
        case _:
            return False


def _fits(item: Any) -> bool:
    """Whether a block can be sent as it is, or as a part. Larger ones have been cut in the result's own parts."""
    match item:
        case str() | {"type": "text", "text": str()}:
            return True
        case {"data": str(data)} | {"resource": {"blob": str(data)} | {"text": str(data)}}:
            return _is_content(item) and len(data) <= _media.MAX_BYTES
        case _:
            return _is_content(item) and _media.plain(item) is not None and _media.size_of(item) <= _media.MAX_BYTES


def _block(part: Any) -> JSONObject:
    """A block of MCP's, from one or from a part of ours."""
    match part:
        case str():
            return _text(part)
        case {"type": str(kind)} if kind in _MCP_BLOCKS:
            return dict(cast("Mapping[str, Any]", part))
        case {"type": "image_url", "image_url": {"url": str(url)}}:
            return _media_block("image", url, "image")
        case {"type": "input_audio", "input_audio": {"data": str(data), "format": str(audio_format)}}:
            return {"type": "audio", "data": data, "mimeType": _media.audio_media_type(audio_format)}
        case {"type": "file", "file": {"file_data": str(url), **about}}:
            return _file(url, about)
        case {"type": "file", "file": {"file_url": str(url), **about}}:
            return _link(url, _name(about))
        case _:
            return _media.unshown(cast("Mapping[str, Any]", part))


def _text(text: str) -> JSONObject:
    return {"type": "text", "text": text}


def _media_block(kind: str, url: str, name: str) -> JSONObject:
    if not url.startswith("data:"):
        return _link(url, name)
    media_type, data = _media.read_data_url(url)
    return {"type": kind, "data": data, "mimeType": media_type or "application/octet-stream"}


def _file(url: str, about: Mapping[str, Any]) -> JSONObject:
    if not url.startswith("data:"):
        return _link(url, _name(about))
    media_type, data = _media.read_data_url(url)
    resource: JSONObject = {"uri": f"attachment:///{quote(_name(about))}"}
    if media_type:
        resource["mimeType"] = media_type
    text = _media.read_text(base64.b64decode(data)) if _media.is_textual(media_type) else None
    resource.update({"blob": data} if text is None else {"text": text})
    return {"type": "resource", "resource": resource}


def _name(about: Mapping[str, Any]) -> str:
    name = about.get("filename")
    return name if isinstance(name, str) and name else "file"


def _link(uri: str, name: str) -> JSONObject:
    return {"type": "resource_link", "uri": uri, "name": name}


def _structured(result: ToolResult) -> Any:
    """The structured content. None: there is none, or it is the content itself."""
    value = result.structured
    if value is None or isinstance(value, bytes | bytearray) or _given_blocks(value) is not None:
        return None
    try:
        text = _strict.encode(value)
    except (TypeError, ValueError, RecursionError):
        text = result.output  # which is how values that are no plain JSON are told
    try:
        return _strict.decode(text)
    except ValueError:
        return None
