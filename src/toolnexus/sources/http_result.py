"""What an HTTP answer is to a model: text in its own charset, JSON, an image, or a short note. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from toolnexus import _json, _media, _redaction
from toolnexus._unicode import clean_text
from toolnexus.sources import charsets
from toolnexus.tools import JSONObject, ToolResult

if TYPE_CHECKING:
    from toolnexus.messages import Part

ResultMode: TypeAlias = Literal["text", "json", "full"]

_CHARSET = re.compile(r""";\s*charset\s*=\s*["']?([\w.:-]+)""", re.IGNORECASE)
_ERROR_TEXT = 4000
"""Characters of the body of an error."""
_NEVER_SHOWN = frozenset({"set-cookie", "set-cookie2", "proxy-authenticate"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back. Header names are in lower case.

    Attributes:
        body: As much of it as was read.
        cut: Whether there was more.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    cut: bool = False

    @property
    def content_type(self) -> str:
        return clean_text(self.headers.get("content-type", ""))

    @property
    def media_type(self) -> str:
        """Such as `text/html`; empty if it is not said."""
        return self.content_type.partition(";")[0].strip().lower()


def read(answer: Answer, mode: ResultMode, secrets: frozenset[str]) -> ToolResult:
    """The result of a call. None of the secrets is in it, even if the server echoes them."""
    text, part = content(answer, secrets)
    failed = not 200 <= answer.status < 300
    metadata: JSONObject = {"status": answer.status, "content_type": _redaction.redact(answer.content_type, secrets)}
    if answer.cut:
        metadata["cut"] = True
    head = _head(answer.status)
    if failed:
        if len(text) > _ERROR_TEXT:
            text = f"{text[:_ERROR_TEXT]}\n[cut here: {len(text) - _ERROR_TEXT:,} more characters were left out]"
        return ToolResult(output=f"{head}\n{text}".rstrip(), is_error=True, metadata=metadata)
    parts = () if part is None else (part,)
    if mode == "full":
        value: Any = {"status": answer.status, "headers": _shown_headers(answer.headers), "body": _value(text, text)}
    else:
        value = _value(text) if mode == "json" and part is None else _NO_JSON
    if value is _NO_JSON:
        location = answer.headers.get("location")
        done = head if location is None else f"{head}\nlocation: {_redaction.redact(location, secrets)}"
        return ToolResult(output=text or done, parts=parts, metadata=metadata)
    # Redacted once more: what the server had escaped is not escaped any more.
    text = _redaction.redact(_json.dumps(value, "the answer").decode(), secrets)
    return ToolResult(output=text, parts=parts, structured=_value(text, None), metadata=metadata)


def content(answer: Answer, secrets: frozenset[str]) -> tuple[str, Part | None]:
    """The text of an answer, redacted, with a note where it was cut; and the image, sound or document that it is."""
    if not answer.body:
        return "", None
    data, kind = answer.body, answer.media_type
    textual = not kind or _media.is_textual(kind) or _CHARSET.search(answer.content_type) is not None
    found = None if textual and kind else _media.media_type_of(data)
    if not textual and found is None and not kind.startswith(("image/", "audio/", "video/", "font/")):
        textual = _text(data, "utf-8", "strict", final=not answer.cut) is not None and b"\0" not in data
    if found is None and textual:
        text = _redaction.redact(decode(data, answer.content_type, final=not answer.cut), secrets)
        if answer.cut:
            # Its end may hold a part of a secret.
            text = text[: max(0, len(text) - _redaction.longest(secrets))]
            text += f"\n[cut here: the answer is longer than {_media.human_size(len(data))}]"
        return text, None
    return _binary(answer, found or kind, secrets)


def _binary(answer: Answer, kind: str, secrets: frozenset[str]) -> tuple[str, Part | None]:
    size = f"more than {_media.human_size(len(answer.body))}" if answer.cut else _media.human_size(len(answer.body))
    about = f"{_redaction.redact(kind, secrets) or 'Binary data'}, {size}"
    showable = kind.startswith(("image/", "audio/")) or kind == "application/pdf"
    if not showable or _media.contradicts(kind, answer.body):
        return f"({about}, which is no text.)", None
    if answer.cut or len(answer.body) > _media.MAX_BYTES:
        return f"({about}, which is too large to be shown.)", None
    if _redaction.holds(answer.body, secrets):
        return f"({about}, which holds a secret and is not shown.)", None
    part = _media.part_of(kind, _media.to_base64(answer.body), None)
    return f"({_media.summary(part)})", cast("Part", part)


def decode(data: bytes, content_type: str, *, final: bool = True) -> str:
    """Bytes as the text that they are: by their mark, else by the charset of the content type, else UTF-8.

    What is wrong in them becomes U+FFFD.

    Args:
        final: Whether that is all. Else the end may be half a character, which is left out.
    """
    for mark, encoding in charsets.MARKS:
        if data.startswith(mark):
            return _text(data[len(mark) :], encoding, "replace", final=final) or ""
    match = _CHARSET.search(content_type)
    encoding = charsets.known(match[1]) if match else None
    return _text(data, encoding or "utf-8", "replace", final=final) or ""


def _text(data: bytes, encoding: str, errors: str, *, final: bool) -> str | None:
    try:
        return charsets.decode(data, encoding, errors, final=final)
    except UnicodeDecodeError:
        return None


_NO_JSON = object()
"""Stands for the value of what is no JSON: None is the value of some."""


def _value(text: str, otherwise: Any = _NO_JSON) -> Any:
    try:
        return _json.loads(text)
    except ValueError:
        return otherwise


def _head(status: int) -> str:
    try:
        return f"HTTP {status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"HTTP {status}"


def _shown_headers(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in _NEVER_SHOWN}
