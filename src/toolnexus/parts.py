"""Makes the content parts of a prompt, or of a tool's result, from paths, bytes and URLs.

They read files where they are called. On an event loop: `await asyncio.to_thread(image, "pier.png")`.
"""

from __future__ import annotations

import base64
import functools
import mimetypes
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, TypeAlias, cast
from urllib.parse import urlsplit

from toolnexus import _media
from toolnexus._checks import at_least
from toolnexus._media import MAX_BYTES
from toolnexus.errors import ConfigurationError

if TYPE_CHECKING:
    from toolnexus.messages import AudioPart, FilePart, ImagePart, Part

Source: TypeAlias = str | os.PathLike[str] | bytes | bytearray | memoryview
"""A path, the bytes themselves, or a URL: a text with `://` in it, or one that begins with `data:`."""

_DETAILS = (None, "low", "high", "auto")
_MEDIA_TYPE = re.compile(r"[a-z]+/[a-z0-9.+_-]+")
_UNKNOWN_TYPES = frozenset({"", "application/octet-stream", "binary/octet-stream"})
_TYPES_OF_OURS = {
    ".aac": "audio/aac",
    ".flac": "audio/flac",
    ".m4a": "audio/mp4",
    ".oga": "audio/ogg",
    ".ogg": "audio/ogg",
    ".wav": "audio/wav",
    ".webp": "image/webp",
    ".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ".pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    ".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}
"""Suffixes that some versions of Python do not know, or call otherwise."""


@dataclass(frozen=True, slots=True)
class _Given:
    """What is to be attached.

    Attributes:
        label: What to call it in errors.
        name: Its file name. None: it has none.
        declared: The media type that a data URL names. Empty: none.
    """

    label: str
    data: bytes
    name: str | None = None
    declared: str = ""


def image(
    source: Source, *, detail: str | None = None, media_type: str | None = None, max_bytes: int = MAX_BYTES
) -> ImagePart:
    """An image for the model to look at.

    Args:
        source: A path, the bytes, or a URL. The image at an `https://` URL is fetched by the provider, not by us.
        detail: How closely some models look: `low`, `high` or `auto`. None: the provider's default.
        media_type: Such as `image/png`. None: as its first bytes tell, else its suffix.
        max_bytes: What is larger is refused. Providers refuse requests of more than about 32 MB, base64 included.

    Raises:
        ConfigurationError: It is missing, unreadable, empty, too large, or no image. The message names it.
    """
    if detail not in _DETAILS:
        raise ConfigurationError(f"detail is {detail!r:.60}; it can be 'low', 'high' or 'auto'.")
    kind = _checked_type(media_type)
    given = _opened(source, max_bytes)
    if isinstance(given, str):
        part = _image_at(given)
    else:
        kind = kind or _type_of(given)
        if kind is None:
            raise _unknown(given, "image/png")
        if _media.is_textual(kind):
            raise ConfigurationError(
                f"{given.label} is {kind}, which is text to a model. Attach it with file(), or make it a PNG first."
            )
        if not kind.startswith("image/"):
            raise ConfigurationError(f"{given.label} is {kind}, not an image. Attach it with file().")
        part = _image_of(kind, given)
    if detail is not None:
        part["image_url"]["detail"] = detail
    return part


def audio(source: Source, *, media_type: str | None = None, max_bytes: int = MAX_BYTES) -> AudioPart:
    """A sound for the model to hear.

    Args:
        source: A path, the bytes, or a `data:` URL. No provider fetches sounds by their address.
        media_type: Such as `audio/mpeg`. None: as its first bytes tell, else its suffix.
        max_bytes: As for `image`.

    Raises:
        ConfigurationError: As for `image`.
    """
    kind = _checked_type(media_type)
    given = _opened(source, max_bytes)
    if isinstance(given, str):
        raise ConfigurationError(
            f"audio() takes no address such as {_shown_url(given)}. Download it, and give its path or its bytes."
        )
    kind = kind or _media.audio_type_of(given.data) or _type_of(given)
    if kind is None:
        raise _unknown(given, "audio/wav")
    if not kind.startswith("audio/"):
        raise ConfigurationError(f"{given.label} is {kind}, not a sound. Attach it with file() or image().")
    return cast("AudioPart", _media.audio_part(kind, _media.to_base64(given.data)))


def file(source: Source, *, name: str | None = None, media_type: str | None = None, max_bytes: int = MAX_BYTES) -> Part:
    """Any file, as the part that says best what it is.

    An image or a sound is attached as such. Text, in UTF-8 or UTF-16, becomes a text part with the file's name, which
    every model can read. Everything else, such as a PDF, is a file; which ones a model takes, its provider says.

    Args:
        source: A path, the bytes, or a URL. What is at an `https://` URL is fetched by the provider, not by us.
        name: What the model is told it is called. None: the last part of a path.
        media_type: Such as `application/pdf`. None: as its first bytes tell, else its suffix, else whether it is text.
        max_bytes: As for `image`.

    Raises:
        ConfigurationError: It is missing, unreadable, empty, too large, or of a kind that cannot be told. The message
            names it.
    """
    kind = _checked_type(media_type)
    given = _opened(source, max_bytes)
    if isinstance(given, str):
        if (kind or _guessed(urlsplit(given).path) or "").startswith("image/"):
            return _image_at(given)
        named = {} if name is None else {"filename": name}
        return cast("FilePart", {"type": "file", "file": {**named, "file_url": given}})
    name = name or given.name
    found = kind or _type_of(given)
    # Without a mark of its own, what can be read as text is text, whatever its suffix may also stand for (.ts, .m).
    may_be_text = _media.is_textual(found) if kind and found else _media.media_type_of(given.data) is None
    if may_be_text and (text := _media.read_text(given.data)) is not None:
        return cast("Part", _media.text_file(text, name))
    if found is None:
        raise _unknown(given, "application/pdf")
    if _media.is_textual(found):
        raise ConfigurationError(f"{given.label} is {found}, but neither UTF-8 nor UTF-16. Convert it first.")
    if found.startswith("image/"):
        return _image_of(found, given)
    return cast("Part", _media.part_of(found, _media.to_base64(given.data), name or f"file{_suffix_of(found)}"))


def _image_at(url: str) -> ImagePart:
    return {"type": "image_url", "image_url": {"url": url}}


def _image_of(kind: str, given: _Given) -> ImagePart:
    return cast("ImagePart", _media.image_part(kind, _media.to_base64(given.data)))


def _opened(source: Source, max_bytes: int) -> _Given | str:
    """What a source gives: its bytes, or the address of something that is elsewhere."""
    at_least("max_bytes", max_bytes, 1, whole=True)
    given = cast("object", source)
    if isinstance(given, bytes | bytearray | memoryview):
        return _sized(_Given("What was given as bytes", bytes(cast("bytes", given))), max_bytes)
    if isinstance(given, str):
        if given[:5].lower() == "data:":
            return _sized(_from_data_url(given, max_bytes), max_bytes)
        if "://" in given:
            return _checked_url(given)
    if isinstance(given, str | os.PathLike):
        path = Path(cast("str | os.PathLike[str]", given))
        return _sized(_Given(repr(str(path)), _read(path, max_bytes), path.name), max_bytes)
    raise ConfigurationError(
        f"There is a {type(given).__name__} to attach; give a path, bytes, or a URL. Of an open file, give what "
        "its read() returns."
    )


def _read(path: Path, max_bytes: int) -> bytes:
    """At most one byte more than is allowed."""
    shown = repr(str(path))
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise ConfigurationError(f"{shown} is a folder. Attach the files in it one by one.")
        if not stat.S_ISREG(mode):  # reading it might wait forever
            raise ConfigurationError(f"{shown} is a device or a pipe. Read it yourself, and give the bytes.")
        with path.open("rb") as opened:
            return opened.read(max_bytes + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigurationError(
            f"There is no file {shown}. Look at its spelling, and at the folder that this program runs in."
        ) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigurationError(f"{shown} cannot be read: {reason}. Look at its name and permissions.") from error


def _sized(given: _Given, max_bytes: int) -> _Given:
    if not given.data:
        raise ConfigurationError(f"{given.label} is empty: there is nothing to attach.")
    if len(given.data) > max_bytes:
        raise ConfigurationError(_too_large(given.label, max_bytes))
    return given


def _too_large(label: str, max_bytes: int) -> str:
    return (
        f"{label} is larger than {_media.human_size(max_bytes)} ({max_bytes} bytes). Make it smaller, give the URL of "
        "it, or raise max_bytes= if your provider takes more."
    )


def _from_data_url(url: str, max_bytes: int) -> _Given:
    label = "What the data URL holds"
    if len(url) > 3 * max_bytes + 1000:  # even if each byte of it is percent-encoded
        raise ConfigurationError(_too_large(label, max_bytes))
    media_type, data = _media.read_data_url(url)
    plain = _media.plain_base64(data)
    if "," not in url or plain is None:
        raise ConfigurationError("A data URL to attach is damaged; expected data:image/png;base64,… with valid base64.")
    return _Given(label, base64.b64decode(plain), declared=media_type)


def _checked_url(url: str) -> str:
    parts = None
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ConfigurationError("A URL to attach cannot be read. Expected https://HOST/PATH.") from None
    if parts.scheme == "file":
        raise ConfigurationError(f"{_shown_url(url)} is on this machine: give its path instead of a URL.")
    if parts.scheme not in ("https", "http") or not parts.hostname or re.search(r"[\s\x00-\x1f]", url):
        raise ConfigurationError(
            f"{_shown_url(url)} cannot be attached: a URL begins with https:// and a host, and has no spaces. Of "
            "anything else, give a path or the bytes."
        )
    if "@" in parts.netloc:
        raise ConfigurationError(
            "A URL to attach has a user name or password in it, which the provider would see. Give the bytes instead."
        )
    return url


def _shown_url(url: str) -> str:
    """A URL for errors: without its query, and without credentials."""
    scheme, _, rest = url.partition("://")
    place = re.split(r"[?#]", rest, maxsplit=1)[0]
    host, slash, path = place.partition("/")
    return repr(f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"[:200])


def _checked_type(media_type: str | None) -> str | None:
    if media_type is None:
        return None
    kind = str(media_type).partition(";")[0].strip().lower()
    if _MEDIA_TYPE.fullmatch(kind) is None:
        raise ConfigurationError(f"media_type is {media_type!r:.60}; expected one such as 'image/png'.")
    return kind


def _type_of(given: _Given) -> str | None:
    """The media type by the first bytes, else as declared, else by the suffix. None: it cannot be told.

    Raises:
        ConfigurationError: It is called what it cannot be. Providers would refuse it.
    """
    if (found := _media.media_type_of(given.data)) is not None:
        return found
    called = given.declared if given.declared not in _UNKNOWN_TYPES else _guessed(given.name or "")
    if called is not None and _media.contradicts(called, given.data):
        raise ConfigurationError(
            f"{given.label} is called {called}, but its first bytes are not those of one. It may be damaged, or "
            "something else; in that case give media_type=."
        )
    return called


def _guessed(name: str) -> str | None:
    """The media type by a name's suffix. None: it cannot be told."""
    suffix = PurePosixPath(name).suffix.lower()
    found = _TYPES_OF_OURS.get(suffix) or _types().guess_type(f"x{suffix}", strict=False)[0]
    return None if found is None or found in _UNKNOWN_TYPES else found


def _suffix_of(media_type: str) -> str:
    ours = (suffix for suffix, known in _TYPES_OF_OURS.items() if known == media_type)
    return next(ours, None) or _types().guess_extension(media_type, strict=False) or ""


@functools.cache
def _types() -> mimetypes.MimeTypes:
    """Python's own tables, without those of the machine: the same file is the same everywhere."""
    return mimetypes.MimeTypes()


def _unknown(given: _Given, example: str) -> ConfigurationError:
    return ConfigurationError(
        f"{given.label} is of an unknown kind: it cannot be told what it is, neither by its first bytes nor by a "
        f"suffix. Give media_type=, such as {example!r}."
    )
