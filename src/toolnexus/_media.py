"""What images, sounds and files are: which kind, how large, and how they stand in a content part. Pure.

A wire, or a provider, takes some *kinds* of parts: `text`, `image_url`, `input_audio`, and of files `file` (any file,
by its bytes), `pdf` (only such files, by their bytes), `file_url` and `file_id`.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, TypeAlias, cast
from urllib.parse import unquote_to_bytes

_Object: TypeAlias = dict[str, Any]

MAX_BYTES = 20 * 1024 * 1024
"""Bytes of one image, sound or file. In base64 a third more, it still fits into the 32 MB that providers take."""

_BEGINNINGS = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"fLaC\0", "audio/flac"),
    (b"OggS\0", "audio/ogg"),
    (b"ID3\2", "audio/mpeg"),
    (b"ID3\3", "audio/mpeg"),
    (b"ID3\4", "audio/mpeg"),
)
_RIFF = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}
_FTYP = {
    b"M4A ": "audio/mp4",
    b"M4B ": "audio/mp4",
    b"heic": "image/heic",
    b"heix": "image/heic",
    b"mif1": "image/heif",
    b"avif": "image/avif",
}
_ALWAYS_BEGIN_SO = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf", "audio/wav"})

_AUDIO_FORMATS = {
    "audio/mpeg": "mp3",
    "audio/mp4": "m4a",
    "audio/wave": "wav",
    "audio/vnd.wave": "wav",
    "audio/aacp": "aac",
}
_AUDIO_TYPES = {"mp3": "audio/mpeg", "m4a": "audio/mp4"}

_TEXTUAL = frozenset(
    {
        *("application/json", "application/xml", "application/yaml", "application/x-yaml", "application/toml"),
        *("application/javascript", "application/x-javascript", "application/ecmascript", "application/sql"),
        *(
            "application/x-sh",
            "application/x-csh",
            "application/x-httpd-php",
            "application/x-tex",
            "application/x-latex",
        ),
        *("application/rtf", "application/x-ndjson", "application/jsonl", "application/graphql"),
    }
)
_PIECE = 12 << 16
"""Bytes or characters that are encoded or checked at once: some milliseconds, and a multiple of 3 and of 4."""
_LONGEST_NAME = 200
_LONGEST_HEAD = 1000
"""Characters of a data URL in which its media type is looked for: what follows may be 27 MB."""


def media_type_of(data: bytes) -> str | None:
    """What `data` is by its first bytes. None: it cannot be told."""
    for beginning, media_type in _BEGINNINGS:
        if data.startswith(beginning):
            return media_type
    if data[:4] == b"RIFF":
        return _RIFF.get(data[8:12])
    return _FTYP.get(data[8:12]) if data[4:8] == b"ftyp" else None


def audio_type_of(data: bytes) -> str | None:
    """The same for what is known to be a sound: bare MP3 and AAC frames begin with only a few telling bits."""
    if (found := media_type_of(data)) is None and len(data) > 1 and data[0] == 0xFF:
        if data[1] & 0xF6 == 0xF0:
            return "audio/aac"
        if data[1] & 0xE0 == 0xE0 and data[1] & 0x06:
            return "audio/mpeg"
    return found


def contradicts(media_type: str, data: bytes) -> bool:
    """Whether `data` cannot be what it is said to be."""
    return media_type in _ALWAYS_BEGIN_SO and media_type_of(data) != media_type


def is_textual(media_type: str) -> bool:
    """Whether things of this media type are text."""
    return media_type.startswith("text/") or media_type in _TEXTUAL or media_type.endswith(("+json", "+xml", "+yaml"))


def read_text(data: bytes) -> str | None:
    """The text that `data` is in UTF-8, or in UTF-16 with its mark. None: it is none."""
    wide = data.startswith((b"\xff\xfe", b"\xfe\xff"))
    try:
        text = data.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def image_part(media_type: str, data: str) -> _Object:
    """An image. `data` is base64, as in all of these."""
    return {"type": "image_url", "image_url": {"url": _data_url(media_type, data)}}


def audio_part(media_type: str, data: str) -> _Object:
    return {"type": "input_audio", "input_audio": {"data": data, "format": _audio_format(media_type)}}


def file_part(media_type: str, data: str, name: str | None) -> _Object:
    named = {} if name is None else {"filename": name}
    return {"type": "file", "file": {**named, "file_data": _data_url(media_type, data)}}


def text_file(text: str, name: str | None) -> _Object:
    """A file that is text, which every wire can say."""
    quoted = "" if name is None else ' name="{}"'.format(name.replace('"', "'"))
    return {"type": "text", "text": f"<file{quoted}>\n{text}\n</file>"}


def part_of(media_type: str, data: str, name: str | None) -> _Object:
    """The part that says best what a file is: an image, a sound, its text, or else a file."""
    if is_textual(media_type) and (text := _text_in(data)) is not None:
        return text_file(text, name)
    if media_type.startswith("image/"):
        return image_part(media_type, data)
    if media_type.startswith("audio/"):
        return audio_part(media_type, data)
    return file_part(media_type, data, name)


def _text_in(data: str) -> str | None:
    try:
        return read_text(base64.b64decode(data))
    except ValueError:
        return None


def audio_media_type(audio_format: str) -> str:
    """The media type of a sound in an `input_audio` part."""
    return _AUDIO_TYPES.get(audio_format, f"audio/{audio_format}")


def _audio_format(media_type: str) -> str:
    return _AUDIO_FORMATS.get(media_type) or media_type.partition("/")[2].removeprefix("x-")


def _data_url(media_type: str, data: str) -> str:
    return f"data:{media_type};base64,{data}"


def read_data_url(url: str) -> tuple[str, str]:
    """The media type of a data URL, empty if it names none, and its data in base64, as it is or made so."""
    head, _, data = url[len("data:") :].partition(",")
    media_type, *options = head.split(";")
    if "base64" not in options:
        data = to_base64(unquote_to_bytes(data))
    return media_type.strip().lower(), data


def to_base64(data: bytes) -> str:
    """`data` in base64. It lets other threads run in between."""
    return "".join(base64.b64encode(data[at : at + _PIECE]).decode() for at in range(0, len(data), _PIECE))


def plain_base64(data: str) -> str | None:
    """Base64 as providers take it, of one that may have line breaks or URL-safe letters. None: it is none."""
    if _is_base64(data):
        return data
    compact = "".join(data.split()).translate(_FROM_URL_SAFE).rstrip("=")
    compact += "=" * (-len(compact) % 4)
    return compact if _is_base64(compact) else None


def _is_base64(data: str) -> bool:
    if "=" in data[:-2]:
        return False
    try:
        for at in range(0, len(data), _PIECE):
            binascii.a2b_base64(data[at : at + _PIECE], strict_mode=True)
    except ValueError:
        return False
    return True


def plain(part: Mapping[str, Any]) -> _Object | None:
    """A part whose base64 is as providers take it, and with nothing beside. None: its data, or its URL, is none."""
    match part:
        case {"type": "image_url", "image_url": {"url": str(url), **about}}:
            fixed = _plain_url(url)
            return None if fixed is None else {"type": "image_url", "image_url": {**about, "url": fixed}}
        case {"type": "input_audio", "input_audio": {"data": str(data), **about}}:
            fixed = plain_base64(data)
            return None if fixed is None else {"type": "input_audio", "input_audio": {**about, "data": fixed}}
        case {"type": "file", "file": {"file_data": str(url), **about}}:
            fixed = _plain_url(url)
            return None if fixed is None else {"type": "file", "file": {**about, "file_data": fixed}}
        case {"type": str(kind)}:
            return {"type": kind, kind: part[kind]}
        case _:
            return None


def _plain_url(url: str) -> str | None:
    if not url.startswith("data:"):
        return url if url.startswith(("https://", "http://")) else None
    media_type, data = read_data_url(url)
    fixed = plain_base64(data)
    return None if fixed is None else _data_url(media_type, fixed)


_FROM_URL_SAFE = str.maketrans("-_", "+/")


def fitted(part: Mapping[str, Any], takes: frozenset[str]) -> _Object | None:
    """A part in a form of those kinds. None: there is none.

    A file that is an image, a sound or text is said as that, which more wires can say.
    """
    kind = part.get("type")
    if kind != "file":
        return cast("_Object", part) if kind in takes else None
    match part.get("file"):
        case {"file_data": str(url), **about}:
            media_type = url[len("data:") : _LONGEST_HEAD].partition(",")[0].partition(";")[0].strip().lower()
            if is_textual(media_type) or media_type.startswith(("image/", "audio/")):
                name = about.get("filename")
                other = part_of(media_type, read_data_url(url)[1], name if isinstance(name, str) else None)
                if other["type"] in takes and other["type"] != "file":
                    return other
            fits = "file" in takes or ("pdf" in takes and media_type == "application/pdf")
            return cast("_Object", part) if fits else None
        case {"file_url": str()}:
            return cast("_Object", part) if "file_url" in takes else None
        case {"file_id": str()}:
            return cast("_Object", part) if "file_id" in takes else None
        case _:
            return None


def sayable(part: Mapping[str, Any], takes: frozenset[str]) -> _Object:
    """A part in a form of those kinds, or the short text that stands for it."""
    return fitted(part, takes) or unshown(part)


def unshown(part: Mapping[str, Any], why: str = "which cannot be shown") -> _Object:
    """The short text that stands for a part."""
    return {"type": "text", "text": f"(Here is {summary(part)}, {why}.)"}


def summary(part: Mapping[str, Any]) -> str:
    """What a part is, in a few words and without its content: kind, name, media type, size."""
    match part:
        case {"type": "image_url", "image_url": {"url": str(url)}}:
            return f"an image{_whereabouts(url)}"
        case {"type": "input_audio", "input_audio": {"data": str(data), "format": str(audio_format)}}:
            return f"audio, {audio_media_type(audio_format)}, {human_size(_size(data))}"
        case {"type": "file", "file": {"file_data": str(url), **about} | {"file_url": str(url), **about}}:
            return f"{_called(about)}{_whereabouts(url)}"
        case {"type": "file", "file": {"file_id": str(), **about}}:
            return _called(about)
        case _:
            return str(part.get("type"))[:_LONGEST_NAME]


def _called(about: Mapping[str, object]) -> str:
    name = about.get("filename")
    return f"the file {name[:_LONGEST_NAME]!r}" if isinstance(name, str) and name else "a file"


def size_of(part: Mapping[str, Any]) -> int:
    """Bytes of what a part holds, 0 if it is text or elsewhere."""
    match part:
        case {"image_url": {"url": str(url)}} | {"file": {"file_data": str(url)}} if url.startswith("data:"):
            return _size(read_data_url(url)[1])
        case {"input_audio": {"data": str(data)}}:
            return _size(data)
        case _:
            return 0


def human_size(size: int) -> str:
    """Bytes for people."""
    if size < 1000:
        return f"{size} B"
    return f"{size / 1000:.1f} kB" if size < 999_950 else f"{size / 1_000_000:.1f} MB"


def _size(data: str) -> int:
    return len(data) * 3 // 4 - data[-2:].count("=")


def _whereabouts(url: str) -> str:
    """Media type and size of data; an address without its query, which may hold a secret."""
    if url.startswith("data:"):
        media_type, data = read_data_url(url)
        return f", {media_type or 'of an unknown type'}, {human_size(_size(data))}"
    return f" at {url.partition('?')[0].partition('#')[0][:_LONGEST_NAME]}"
