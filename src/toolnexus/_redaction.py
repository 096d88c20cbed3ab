"""Takes secrets out of text that somebody else wrote, in whatever form it echoes them. Pure."""

from __future__ import annotations

import base64
import binascii
import functools
import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import parse_qsl, quote, quote_plus

HIDDEN = "[redacted]"
_SHORTEST_SECRET = 6
"""Shorter values are placeholders such as `none`; hiding them would only spoil messages."""

_SECRET_NAME = re.compile(r"auth|key|token|secret|cookie|credential|password|signature", re.IGNORECASE)
_ESCAPE = re.compile("%[0-9A-F]{2}")


def redact(text: str, secrets: Iterable[str]) -> str:
    """Replace the secrets in `text`, also where they are percent-encoded, escaped for JSON or HTML, or in base64."""
    for form in _forms(frozenset(secrets)):
        # Not one pattern for all of them: looking for one text after the other is far faster, and lets other threads
        # run in between.
        if form in text:
            text = text.replace(form, HIDDEN)
    return text


def holds(data: bytes, secrets: Iterable[str]) -> bool:
    """Whether one of the secrets is in `data`, in any of these forms."""
    return any(form.encode() in data for form in _forms(frozenset(secrets)))


def longest(secrets: Iterable[str]) -> int:
    """Characters of the longest form of any of them: the end of a text that was cut may hold a part of one."""
    return max(map(len, _forms(frozenset(secrets))), default=0)


def secrets_in(headers: Mapping[str, str], query: str) -> Iterator[str]:
    """What must not be shown of headers and of a URL's query: the values whose names say so."""
    for name, value in headers.items():
        if _SECRET_NAME.search(name):
            yield value
            scheme, _, credentials = value.partition(" ")  # such as Bearer
            yield credentials.strip()
            if scheme.lower() == "basic":
                yield from _basic(credentials)
    for name, value in parse_qsl(query):
        if _SECRET_NAME.search(name):
            yield value


def _basic(credentials: str) -> Iterator[str]:
    """The user and password that stand in base64 there, and the password alone."""
    try:
        pair = base64.b64decode(credentials.strip(), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return
    yield pair
    yield pair.partition(":")[2]


@functools.lru_cache(maxsize=64)
def _forms(secrets: frozenset[str]) -> tuple[str, ...]:
    """All forms of all of them, the longest first, so that none is left of which another is only a part."""
    forms = {form for secret in secrets for form in _forms_of(secret) if len(form) >= _SHORTEST_SECRET}
    return tuple(sorted(forms, key=lambda form: (-len(form), form)))


def _forms_of(secret: str) -> Iterator[str]:
    """How a server may echo a secret."""
    escaped = json.dumps(secret)[1:-1]
    yield from (secret, escaped, escaped.replace("/", "\\/"), html.escape(secret))
    yield json.dumps(secret, ensure_ascii=False)[1:-1]
    units = secret.encode("utf-16-be", "surrogatepass").hex()
    for digits in (units, units.upper()):
        yield "".join(f"\\u{digits[at : at + 4]}" for at in range(0, len(digits), 4))
    data = secret.encode("utf-8", "surrogatepass")
    for encoded in (quote(data, safe=""), quote(data), quote_plus(data)):
        yield encoded
        yield _ESCAPE.sub(lambda match: match[0].lower(), encoded)
    for shift in range(3):  # base64 of a text that holds the secret depends on where it begins
        first, last = (8 * shift + 5) // 6, 8 * (shift + len(data)) // 6
        text = base64.b64encode(b"\0" * shift + data).decode()[first:last]
        yield text
        yield text.replace("+", "-").replace("/", "_")
