"""Reads messages that were written elsewhere into our shape: other APIs' blocks, careless servers, hands.

A reader owns what it is given (a clean copy) and may take it apart. `place` says where that stood, for errors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

from toolnexus import _media, _strict
from toolnexus._unicode import clean
from toolnexus.errors import InvalidTranscript

_Object: TypeAlias = dict[str, Any]

_ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}


def read_message(message: Any, place: str, read: list[dict[str, Any]]) -> None:
    """Append what a message comes to, one or more messages in our shape, to those `read` before it.

    Raises:
        InvalidTranscript: It cannot be read.
    """
    if not isinstance(message, Mapping):
        raise unreadable(place, message, "an object such as {'role': 'user', 'content': '…'}")
    fields: _Object = clean(cast("Mapping[str, Any]", message))
    match _role(fields, place):
        case "assistant":
            read.append(_read_assistant(fields, place, len(read)))
        case "tool":
            read.append(_read_tool(fields, place, read))
        case "user":
            _read_user(fields, place, read)
        case _:
            content = _read_content(fields.pop("content", None), f"{place}.content")
            read.append({**fields, "role": "system", "content": content})


def read_part(part: Any, place: str) -> dict[str, Any]:
    """A content part in our shape. A plain text is one too.

    Raises:
        InvalidTranscript: It is of a kind we do not know, or incomplete.
    """
    if isinstance(part, str):
        return {"type": "text", "text": part}
    reader = _PART_READERS.get(part_type(part) or "")
    if reader is None:
        raise unreadable(place, part, _EXPECTED_PART)
    return reader(part, place)


def part_type(part: Any) -> str | None:
    """The `type` of a content part or block; None if it is no such thing."""
    fields = _object(part)
    kind = None if fields is None else fields.get("type")
    return kind if isinstance(kind, str) else None


def unreadable(place: str, value: object, expected: str) -> InvalidTranscript:
    return InvalidTranscript(f"{place} is {describe(value)}; expected {expected}.")


def describe(value: object) -> str:
    """What to call a value in an error: its type and, for a part, the type that it names. Never its content."""
    if value is None:
        return "missing"
    if (kind := part_type(value)) is not None:
        return f"a part of the type {kind[:40]!r}"
    return f"of the type {type(value).__name__}"


def is_origin(value: Any) -> bool:
    fields = _object(value)
    return (
        fields is not None
        and len(fields) == 3
        and isinstance(fields.get("style"), str)
        and isinstance(fields.get("model"), str)
        and isinstance(fields.get("host"), str)
    )


def _role(fields: _Object, place: str) -> str:
    role = fields.get("role")
    if role is None or role == "":
        # Careless servers leave it out of their replies, and hosts append those to a history.
        if fields.get("tool_call_id"):
            return "tool"
        if fields.keys() & {"content", "tool_calls", "function_call"}:
            return "assistant"
        raise InvalidTranscript(f"{place} has no role and no content; expected a message.")
    name = _ROLES.get(role) if isinstance(role, str) else None
    if name is None:
        found = repr(role[:40]) if isinstance(role, str) else describe(role)
        raise InvalidTranscript(f"{place}.role is {found}; expected system, user, assistant or tool.")
    return name


def _read_user(fields: _Object, place: str, read: list[_Object]) -> None:
    """A user message, after the tool messages made of the `tool_result` blocks in it."""
    content = fields.pop("content", None)
    blocks = cast("list[Any]", content) if isinstance(content, list) else []
    if not any(part_type(block) == "tool_result" for block in blocks):
        read.append({**fields, "role": "user", "content": _read_content(content, f"{place}.content")})
        return
    rest: list[_Object] = []
    for index, block in enumerate(blocks):
        at = f"{place}.content[{index}]"
        if part_type(block) != "tool_result":
            rest.append(read_part(block, at))
            continue
        del block["type"]
        result = _read_tool({"tool_call_id": block.pop("tool_use_id", None), **block}, at, read)
        read.append({**result, "content": _simplified(result["content"])})
    if rest:
        read.append({**fields, "role": "user", "content": _simplified(rest)})
    else:
        read[-1] = {**fields, **read[-1]}


def _read_tool(fields: _Object, place: str, read: Sequence[_Object]) -> _Object:
    call_id = fields.pop("tool_call_id", None)
    if not (call_id is None or isinstance(call_id, str)):
        raise unreadable(f"{place}.tool_call_id", call_id, "the call's id, a text")
    is_error = fields.pop("is_error", None)
    if not (is_error is None or isinstance(is_error, bool)):
        raise unreadable(f"{place}.is_error", is_error, "true or false")
    made = {
        **fields,
        "role": "tool",
        "tool_call_id": call_id or _next_call(read, fields.get("name")) or f"call_{len(read)}",
        "content": _read_content(fields.get("content"), f"{place}.content"),
    }
    return made if is_error is None else {**made, "is_error": is_error}


def _next_call(read: Sequence[_Object], name: object) -> str | None:
    """The id of the first call without a result, of that name if it is given, in the message just before."""
    taken: list[str] = []
    for message in reversed(read):
        if message["role"] == "tool":
            taken.append(message["tool_call_id"])
            continue
        for call in message.get("tool_calls", ()) if message["role"] == "assistant" else ():
            if call["id"] in taken:
                taken.remove(call["id"])
            elif name is None or call["function"]["name"] == name:
                return call["id"]
        break
    return None


def _read_assistant(fields: _Object, place: str, position: int) -> _Object:
    content = fields.pop("content", None)
    calls = _read_calls(fields.pop("tool_calls", None), f"{place}.tool_calls")
    single = fields.pop("function_call", None)
    if single is not None and not calls:
        calls = [_read_call({"function": single}, f"{place}.function_call")]
    origin = fields.pop("origin", None)
    made: _Object = {**fields, "role": "assistant"}
    if origin is not None:
        if not is_origin(origin):
            raise unreadable(f"{place}.origin", origin, "{'style', 'model', 'host'}, all text")
        made["origin"] = origin
    if isinstance(content, list):
        content = _read_blocks(cast("list[Any]", content), f"{place}.content", made, calls)
    elif not (content is None or isinstance(content, str)):
        raise unreadable(f"{place}.content", content, "text, a list of content parts, or nothing")
    if content is not None:
        made["content"] = content
    if calls:
        for index, call in enumerate(calls):
            call["id"] = call["id"] or f"call_{position}_{index}"
        made["tool_calls"] = calls
    return made


def _read_blocks(blocks: list[Any], place: str, made: _Object, calls: list[_Object]) -> str | list[_Object] | None:
    """The content that every wire can carry; calls are added to `calls`, a provider's own blocks to `made`.

    None: there is no such content.
    """
    parts: list[_Object] = []
    given = {call["id"] for call in calls}
    anthropic = provider_own = False
    for index, block in enumerate(blocks):
        at = f"{place}[{index}]"
        kind = part_type(block)
        if isinstance(block, str) or kind in _PART_READERS:
            parts.append(read_part(block, at))
        elif kind == "tool_use":
            anthropic = True
            if not block.get("id") or block["id"] not in given:
                calls.append(_read_tool_use(block, at))
        elif kind is not None:
            anthropic = provider_own = True
        else:
            raise unreadable(at, block, _EXPECTED_PART)
    if provider_own:
        made.setdefault("native", {"content": clean(blocks)})
    if not anthropic:
        return parts
    return _simplified(parts) if parts else None


def _read_tool_use(block: _Object, place: str) -> _Object:
    rest = {key: value for key, value in block.items() if key not in {"type", "name", "input"}}
    return _read_call({**rest, "function": {"name": block.get("name"), "arguments": block.get("input")}}, place)


def _read_calls(calls: Any, place: str) -> list[_Object]:
    if calls is None:
        return []
    if not isinstance(calls, list):
        raise unreadable(place, calls, "a list of calls")
    return [_read_call(call, f"{place}[{index}]") for index, call in enumerate(cast("list[Any]", calls))]


def _read_call(call: Any, place: str) -> _Object:
    """A call in the shape of a `CallEntry`. Its id is empty if there was none."""
    entry = _object(call)
    if entry is None:
        raise unreadable(place, call, "{'id', 'type': 'function', 'function': {'name', 'arguments'}}")
    if "function" not in entry:  # as written by hand: {"name": …, "arguments": …}
        entry["function"] = {key: entry.pop(key) for key in ("name", "arguments") if key in entry}
    function = _object(entry["function"])
    if function is None:
        raise unreadable(f"{place}.function", entry["function"], "{'name', 'arguments'}")
    if not isinstance(function.get("name"), str):
        raise unreadable(f"{place}.function.name", function.get("name"), "the tool's name, a text")
    if not (entry.get("id") is None or isinstance(entry["id"], str)):
        raise unreadable(f"{place}.id", entry["id"], "a text")
    if entry.get("type") not in (None, "", "function"):
        raise unreadable(place, entry, "a call of the type 'function'")
    arguments = _arguments_text(function.get("arguments"), f"{place}.function.arguments")
    return {
        **entry,
        "id": entry.get("id") or "",
        "type": "function",
        "function": {**function, "arguments": arguments},
    }


def _arguments_text(arguments: Any, place: str) -> str:
    if isinstance(arguments, str):
        return arguments
    if arguments is None:
        return "{}"
    try:
        return _strict.encode(arguments)
    except (TypeError, ValueError) as error:
        raise unreadable(place, arguments, "an object that JSON can hold, or its text") from error


def _read_content(content: Any, place: str) -> str | list[_Object]:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise unreadable(place, content, "text or a list of content parts")
    return [read_part(part, f"{place}[{index}]") for index, part in enumerate(cast("list[Any]", content))]


def _simplified(content: str | list[_Object]) -> str | list[_Object]:
    """The text, where one plain text part is all there is: the only form that strict servers take everywhere."""
    match content:
        case [{"type": "text", "text": str() as text, **rest}] if not rest:
            return text
        case _:
            return content


_EXPECTED_PART = "a content part such as {'type': 'text', 'text': '…'} or {'type': 'image_url', …}"


def _read_text(part: _Object, place: str) -> _Object:
    if not isinstance(part.get("text"), str):
        raise unreadable(f"{place}.text", part.get("text"), "a text")
    return part


def _read_image_url(part: _Object, place: str) -> _Object:
    match part.get("image_url"):
        case str() as url:
            return {**part, "image_url": {"url": url}}
        case {"url": str()}:
            return part
        case image:
            raise unreadable(f"{place}.image_url", image, "{'url': 'https://… or data:image/png;base64,…'}")


def _read_image(part: _Object, place: str) -> _Object:
    """An image as Anthropic has it (in a `source`), as MCP does (`mimeType`), or with `media_type` and `data`."""
    rest = {
        key: value for key, value in part.items() if key not in {"type", "source", "media_type", "mimeType", "data"}
    }
    source = part.get("source", part)
    match source:
        case {"url": str() as url}:
            rest.pop("url", None)
        case {"media_type": str() as media_type, "data": str() as data} | {
            "mimeType": str() as media_type,
            "data": str() as data,
        }:
            url = f"data:{media_type};base64,{data}"
        case _:
            raise unreadable(f"{place}", source, "an image with a url, or with media_type and base64 data")
    return {**rest, "type": "image_url", "image_url": {"url": url}}


def _read_input_audio(part: _Object, place: str) -> _Object:
    match part.get("input_audio"):
        case {"data": str(), "format": str()}:
            return part
        case _:
            raise unreadable(place, part, "{'type': 'input_audio', 'input_audio': {'data': base64, 'format': 'wav'}}")


def _read_file(part: _Object, place: str) -> _Object:
    match part.get("file"):
        case {"file_data": str(data), **about} if _is_name(about.get("filename")):
            if data.startswith("data:"):
                return part
            kind = "application/pdf" if data.startswith(_PDF) else "application/octet-stream"
            return {**part, "file": {**about, "file_data": f"data:{kind};base64,{data}"}}
        case {"file_url": str(), **about} | {"file_id": str(), **about} if _is_name(about.get("filename")):
            return part
        case _:
            raise unreadable(place, part, "{'type': 'file', 'file': {…}} with file_data, file_url or file_id, a text")


def _is_name(name: object) -> bool:
    return name is None or isinstance(name, str)


def _read_document(part: _Object, place: str) -> _Object:
    """A document as Anthropic has it."""
    title = part.get("title")
    name = title if isinstance(title, str) else None
    match part.get("source"):
        case {"type": "text", "data": str(text)}:
            made = _media.text_file(text, name)
        case {"media_type": str(media_type), "data": str(data)}:
            made = _media.file_part(media_type, data, name)
        case {"url": str(address)}:
            made = _file_at("file_url", address, name)
        case {"file_id": str(file_id)}:
            made = _file_at("file_id", file_id, name)
        case _:
            raise unreadable(place, part, "a document whose source has data, a url or a file_id")
    return {**{key: value for key, value in part.items() if key not in {"type", "source", "title"}}, **made}


def _file_at(key: str, place: str, name: str | None) -> _Object:
    return {"type": "file", "file": {**({} if name is None else {"filename": name}), key: place}}


def _read_response_text(part: _Object, place: str) -> _Object:
    """A text as the Responses API has it."""
    return _read_text({**part, "type": "text"}, place)


def _read_response_image(part: _Object, place: str) -> _Object:
    rest = {key: value for key, value in part.items() if key not in {"type", "image_url", "file_id", "detail"}}
    detail = part.get("detail")
    match part:
        case {"image_url": str(url)}:
            image = {"url": url, **({"detail": detail} if isinstance(detail, str) else {})}
            return {**rest, "type": "image_url", "image_url": image}
        case {"file_id": str(file_id)}:
            return {**rest, **_file_at("file_id", file_id, None)}
        case _:
            raise unreadable(place, part, "an image with image_url or file_id, a text")


def _read_response_file(part: _Object, place: str) -> _Object:
    known = ("filename", "file_data", "file_url", "file_id")
    about = {key: part[key] for key in known if part.get(key) is not None}
    rest = {key: value for key, value in part.items() if key not in {"type", *known}}
    return {**rest, **_read_file({"type": "file", "file": about}, place)}


def _read_audio(part: _Object, place: str) -> _Object:
    """A sound as MCP has it."""
    match part:
        case {"mimeType": str(media_type), "data": str(data)} | {"media_type": str(media_type), "data": str(data)}:
            rest = {key: value for key, value in part.items() if key not in {"type", "mimeType", "media_type", "data"}}
            return {**rest, **_media.audio_part(media_type, data)}
        case _:
            raise unreadable(place, part, "audio with mimeType and base64 data")


def _read_resource(part: _Object, place: str) -> _Object:
    """An embedded resource as MCP has it."""
    rest = {key: value for key, value in part.items() if key not in {"type", "resource"}}
    match part.get("resource"):
        case {"uri": str(uri), "text": str(text)}:
            return {**rest, **_media.text_file(text, uri)}
        case {"uri": str(uri), "blob": str(data), **about}:
            media_type = about.get("mimeType")
            kind = media_type if isinstance(media_type, str) else "application/octet-stream"
            return {**rest, **_media.part_of(kind, data, uri)}
        case _:
            raise unreadable(place, part, "a resource with a uri, and a text or a blob")


_PDF = "JVBERi0"
"""How a PDF begins in base64."""

_PART_READERS: Mapping[str, Callable[[_Object, str], _Object]] = {
    "text": _read_text,
    "image_url": _read_image_url,
    "image": _read_image,
    "input_audio": _read_input_audio,
    "file": _read_file,
    "document": _read_document,
    "input_text": _read_response_text,
    "output_text": _read_response_text,
    "input_image": _read_response_image,
    "input_file": _read_response_file,
    "audio": _read_audio,
    "resource": _read_resource,
}


def _object(value: object) -> _Object | None:
    return cast("_Object", value) if isinstance(value, dict) else None
