"""What was fetched, read: from bytes and what was said of them to text for a model. Pure, and it may take seconds."""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from email.message import Message
from typing import Literal, TypeAlias

from toolnexus import _media
from toolnexus._unicode import clean_text
from toolnexus.errors import MissingExtra
from toolnexus.sources import charsets

try:
    from html_to_markdown import ConversionOptions, PreprocessingOptions, convert
except ImportError as error:
    raise MissingExtra("The built-in tools", extra="tools") from error

Format: TypeAlias = Literal["text", "markdown", "html"]

_HTML = frozenset({"text/html", "application/xhtml+xml"})
_UNTOLD = frozenset({"", "application/octet-stream", "binary/octet-stream"})
# Possessive, both of them: a page must not make us look for long at what is not there.
_LOOKS_LIKE_HTML = re.compile(
    rb"\s*+(?:<!--(?:(?!-->).)*+-->\s*+)*+<(?:!doctype html|html|head|body)\b", re.IGNORECASE | re.DOTALL
)
_SNIFFED = 1024
# WHATWG HTML, "prescan a byte stream to determine its encoding", in the two spellings that are in use; and XML, 4.3.3.
_NAMED_INSIDE = re.compile(
    rb"""<meta\b[^>]*?\bcharset\s*+=\s*+["']?\s*+([A-Za-z0-9_:.-]+)"""
    rb"""|\A\s*<\?xml\b[^>]*?\bencoding\s*+=\s*+["']([\w.:-]+)""",
    re.IGNORECASE,
)
_LONGEST_TYPE = 1000
"""Characters of a `Content-Type` that are looked at."""


class UnreadablePage(Exception):
    """What was fetched cannot be read. The text says what it is."""


def unpacked(data: bytes, encodings: str, most: int) -> tuple[bytes, bool]:
    """A body without its `Content-Encoding`, at most `most` bytes of it, and whether that is not all.

    Raises:
        UnreadablePage: It is packed in a way that was not asked for, or damaged.
    """
    cut = len(data) > most
    names = [name for each in encodings.lower().split(",") if (name := each.strip()) not in ("", "identity")]
    for name in reversed(names):
        if name not in ("gzip", "x-gzip", "deflate"):
            raise UnreadablePage(f"The server packed its answer with {name[:40]!r}, which nobody asked for.")
        data, more = _inflated(data, most, whole=not cut)
        cut = cut or more
    return data[:most], cut


def _inflated(data: bytes, most: int, *, whole: bool) -> tuple[bytes, bool]:
    # `deflate` is zlib's format by RFC 9110, 8.4.1.2, and bare on some servers.
    bare = data[:1] != b"\x1f" and (data[:1] or b"x")[0] & 0x0F != 8
    stream = zlib.decompressobj(-zlib.MAX_WBITS if bare else zlib.MAX_WBITS | 32)
    try:
        inflated = stream.decompress(data, most + 1)
    except zlib.error as error:
        raise UnreadablePage("The answer is damaged: it cannot be unpacked.") from error
    if len(inflated) <= most and not stream.eof and whole:
        raise UnreadablePage("The answer is damaged: it ends too early.")
    return inflated[:most], len(inflated) > most


@dataclass(frozen=True, slots=True)
class Kind:
    """What a body is.

    Attributes:
        media_type: In lower case, without parameters; told from the body where the server does not say.
        charset: As the server names it. None: it does not.
    """

    media_type: str
    charset: str | None

    @property
    def is_html(self) -> bool:
        return self.media_type in _HTML

    @property
    def is_text(self) -> bool:
        return _media.is_textual(self.media_type)


def kind_of(content_type: str, data: bytes) -> Kind:
    """What a body is, by its `Content-Type`, else by its first bytes."""
    content_type = clean_text(content_type[:_LONGEST_TYPE])
    header = Message()
    header["content-type"] = content_type.replace("\n", " ").replace("\r", " ")
    media_type = content_type.partition(";")[0].strip().lower()
    charset = header.get_param("charset")
    if media_type in _UNTOLD:
        media_type = _media.media_type_of(data) or _told_from(data)
    return Kind(media_type, charset if isinstance(charset, str) else None)


def _told_from(data: bytes) -> str:
    if _LOOKS_LIKE_HTML.match(data[:_SNIFFED]):
        return "text/html"
    return "application/octet-stream" if b"\0" in data[:_SNIFFED] and not _marked(data) else "text/plain"


def decoded(data: bytes, kind: Kind, *, cut: bool = False) -> str:
    """A body as text. A byte order mark wins over the header, the header over what the page says of itself.

    Where nothing does: UTF-8 if it is valid, else windows-1252, as browsers take it. Damage becomes U+FFFD.

    Args:
        cut: Whether it may end in the middle of a character.
    """
    if (marked := _marked(data)) is not None:
        mark, encoding = marked
        return charsets.decode(data[len(mark) :], encoding, final=not cut)
    named = _codec(kind.charset) or _codec(_inside(data, kind))
    if named is not None:
        return charsets.decode(data, named, final=not cut)
    try:
        return charsets.decode(data, "utf-8", "strict", final=not cut)
    except UnicodeDecodeError:
        return charsets.decode(data, "cp1252")


def _marked(data: bytes) -> tuple[bytes, str] | None:
    return next(((mark, encoding) for mark, encoding in charsets.MARKS if data.startswith(mark)), None)


def _inside(data: bytes, kind: Kind) -> str | None:
    if not (kind.is_html or kind.media_type.endswith("xml")):
        return None
    found = _NAMED_INSIDE.search(data[: 4 * _SNIFFED])
    name = (found[1] or found[2]).decode("ascii", "replace") if found else None
    # It could be read so far, so it cannot be what it says.
    return "utf-8" if name is not None and name.lower().startswith("utf-16") else name


def _codec(name: str | None) -> str | None:
    """Python's codec for a charset. None: there is none."""
    return charsets.known((name or "").strip().strip("\"'"))


def rendered(html: str, url: str, form: Format) -> str:
    """A page as Markdown with absolute links, as plain text, or as it is.

    Args:
        url: Where it came from; a `<base>` in it wins.
    """
    if form == "html":
        return html
    options = ConversionOptions(
        output_format="markdown" if form == "markdown" else "plain",
        base_url=url,
        extract_metadata=False,
        br_in_tables=True,
        compact_tables=True,
        inline_data_media="alt_text_only",
        exclude_selectors=["svg"],
        preprocessing=PreprocessingOptions(enabled=False),  # it takes headings for navigation
    )
    return (convert(html, options).content or "").strip()
