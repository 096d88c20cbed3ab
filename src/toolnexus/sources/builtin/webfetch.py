"""The tool `webfetch`: reads what is at a URL, from public addresses only unless the host allows others."""

from __future__ import annotations

import asyncio
import functools
import posixpath
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp
from yarl import URL

from toolnexus import __version__, _media, _workers, parts
from toolnexus._checks import at_least
from toolnexus._unicode import clean_text
from toolnexus.errors import ConfigurationError
from toolnexus.sources.builtin import pages
from toolnexus.sources.builtin.addresses import AddressRefused, public_socket
from toolnexus.tools import JSONObject, Tool, ToolContext, ToolResult

if TYPE_CHECKING:
    from toolnexus.sources.builtin.workspace import Workspace

_TIMEOUT = 30.0
_MAX_TIMEOUT = 120.0
MAX_BYTES = 5_000_000
_MOST_HOPS = 10
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_LONGEST_URL = 4_000
_LONGEST_ERROR = 4_000
_LONGEST_HEADER = 64 * 1024
_PIECE = 64 * 1024

_ACCEPT = {
    "markdown": "text/markdown, text/html;q=0.9, text/plain;q=0.8, */*;q=0.5",
    "text": "text/plain, text/html;q=0.9, */*;q=0.5",
    "html": "text/html, application/xhtml+xml;q=0.9, */*;q=0.5",
}

_SCHEMA: JSONObject = {
    "type": "object",
    "properties": {
        "url": {
            "type": "string",
            "minLength": 1,
            "maxLength": _LONGEST_URL,
            "description": "Begins with https:// or http://.",
        },
        "format": {
            "type": "string",
            "enum": ["markdown", "text", "html"],
            "default": "markdown",
            "description": "What to make of a web page. Everything else comes as it is.",
        },
        "timeout": {
            "type": "number",
            "exclusiveMinimum": 0,
            "maximum": _MAX_TIMEOUT,
            "default": _TIMEOUT,
            "description": "Seconds.",
        },
    },
    "required": ["url"],
    "additionalProperties": False,
}


class FetchFailed(Exception):
    """Nothing could be fetched. The text says why."""


def make(workspace: Workspace, *, allow_private: bool = False, max_bytes: int = MAX_BYTES) -> Tool:
    """The tool `webfetch`.

    Args:
        allow_private: Whether addresses may be fetched from that are not on the public internet: of this machine, of
            the network it is in, and of the cloud's metadata service, which hands out keys.
        max_bytes: What is read of an answer, packed and unpacked; the model is told of a cut.

    Raises:
        MissingExtra: The library that makes Markdown is not installed.
    """
    del workspace
    at_least("max_bytes", max_bytes, 1, whole=True)
    fetcher = _Fetcher(allow_private=allow_private, max_bytes=max_bytes)
    return Tool(
        name="webfetch",
        description=(
            "Read what is at a URL: a web page as Markdown with its links, text and JSON as they are, images and PDF "
            "files to look at. Only GET, without logins."
        ),
        input_schema=_SCHEMA,
        execute=fetcher.execute,
        source="builtin",
        read_only=True,
        idempotent=True,
    )


@dataclass(frozen=True, slots=True)
class _Fetched:
    """What a server answered.

    Attributes:
        url: Where it came from, after all redirects.
        body: Its first bytes, as they came: at most one more than are read.
    """

    url: URL
    status: int
    reason: str
    content_type: str
    encodings: str
    body: bytes


class _Fetcher:
    def __init__(self, *, allow_private: bool, max_bytes: int) -> None:
        self._allow_private = allow_private
        self._max_bytes = max_bytes

    async def execute(self, args: JSONObject, ctx: ToolContext) -> ToolResult:
        del ctx
        timeout = float(args.get("timeout", _TIMEOUT))
        url = _checked(args["url"])
        try:
            async with asyncio.timeout(timeout):
                fetched = await self._fetch(url, _ACCEPT[args.get("format", "markdown")])
                # A page that takes too long is left to its thread: the conversion ends, though nobody waits for it.
                read = functools.partial(_read, fetched, args.get("format", "markdown"), self._max_bytes)
                return await _workers.run(read)
        except TimeoutError:
            raise FetchFailed(f"{_shown(url)} took longer than {timeout:g} s. A larger timeout may help.") from None

    async def _fetch(self, url: URL, accept: str) -> _Fetched:
        async with AsyncExitStack() as stack:
            session = await stack.enter_async_context(self._session())
            for _ in range(_MOST_HOPS + 1):
                try:
                    answer = await stack.enter_async_context(
                        session.get(url, headers={"Accept": accept}, allow_redirects=False)
                    )
                    location = answer.headers.get("Location")
                    if answer.status not in _REDIRECTS or location is None:
                        return await self._received(answer, url)
                except (aiohttp.ClientError, OSError, ValueError) as error:
                    raise _failure(error, url) from None
                answer.close()
                url = _next(url, location)
        raise FetchFailed(f"{_shown(url)} is the end of {_MOST_HOPS} redirects, and is one more.")

    def _session(self) -> aiohttp.ClientSession:
        # One for each fetch: it is bound to its loop, and needs no closing when the toolkit ends. No proxy and no
        # password of the environment: what is behind a proxy would not be checked.
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                use_dns_cache=False, socket_factory=None if self._allow_private else public_socket
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            auto_decompress=False,
            timeout=aiohttp.ClientTimeout(total=None),
            max_line_size=_LONGEST_HEADER,
            max_field_size=_LONGEST_HEADER,
            headers={
                "User-Agent": f"toolnexus/{__version__} (webfetch; an agent acting for a person)",
                "Accept-Encoding": "gzip, deflate",
            },
        )

    async def _received(self, answer: aiohttp.ClientResponse, url: URL) -> _Fetched:
        body = bytearray()
        async for piece in answer.content.iter_chunked(_PIECE):
            body += piece
            if len(body) > self._max_bytes:
                break
        return _Fetched(
            url=url,
            status=answer.status,
            reason=answer.reason or "",
            content_type=answer.headers.get("Content-Type", ""),
            encodings=",".join(answer.headers.getall("Content-Encoding", [])),
            body=bytes(body[: self._max_bytes + 1]),
        )


def _checked(given: str) -> URL:
    """A URL that may be fetched, as far as that can be seen in it.

    Raises:
        FetchFailed: It is none.
    """
    try:
        url = URL(given.strip())
        url.port  # noqa: B018 - raises if there is something else in its place
    except ValueError as error:
        raise FetchFailed(f"{_cut(given)} is no URL: {error}.") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise FetchFailed(f"{_cut(given)} cannot be fetched. A URL begins with https:// or http:// and a host.")
    if url.user is not None or url.password is not None:
        raise FetchFailed(f"{_shown(url)} was given with a user name or a password. Leave them out.")
    return url.with_fragment(None)


def _next(url: URL, location: str) -> URL:
    try:
        return _checked(str(url.join(URL(location))))
    except (FetchFailed, ValueError) as error:
        raise FetchFailed(f"{_shown(url)} redirects to what cannot be fetched. {error}") from None


def _failure(error: Exception, url: URL) -> FetchFailed:
    shown = _shown(url)
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    match error:
        case aiohttp.ClientConnectorError() if isinstance(cause, AddressRefused):
            return FetchFailed(f"{shown} was not fetched: {cause}.")
        case aiohttp.InvalidURL():
            return FetchFailed(f"{shown} cannot be fetched: {url.host!r} is neither a name nor an address.")
        case aiohttp.ClientConnectorDNSError():
            return FetchFailed(f"There is no host {url.host!r}, or its address cannot be found now.")
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientSSLError():
            return FetchFailed(f"{shown} has no valid certificate, so nothing was read.")
        case aiohttp.ClientConnectorError():
            return FetchFailed(f"{shown} cannot be reached: {getattr(cause, 'strerror', None) or cause}.")
        case _:
            return FetchFailed(f"The connection to {shown} failed: {type(error).__name__}.")


def _read(fetched: _Fetched, form: pages.Format, most: int) -> ToolResult:
    """What a model is shown of an answer. Runs in a worker."""
    body, cut = pages.unpacked(fetched.body, fetched.encodings, most)
    kind = pages.kind_of(fetched.content_type, body)
    failed = not 200 <= fetched.status < 300
    metadata: dict[str, Any] = {
        "url": str(fetched.url),
        "status": fetched.status,
        "content_type": kind.media_type,
        "bytes": len(body),
        "cut": cut,
    }
    if kind.is_text or kind.is_html:
        text = pages.decoded(body, kind, cut=cut)
        text = pages.rendered(text, str(fetched.url), form) if kind.is_html else text.removeprefix("\ufeff")
        note = f"[only the first {_media.human_size(most)} of it were read]\n\n" if cut else ""
        output = f"{note}{text}" if text.strip() else "(there is no text)"
        shown: tuple[Any, ...] = ()
    elif failed:
        output, shown = "", ()
    else:
        output, shown = _attached(fetched.url, kind, body, cut=cut, most=most)
    if failed:
        reason = clean_text(f"{fetched.status} {fetched.reason}".strip()[:200])
        output = f"{_shown(fetched.url)} answered with HTTP {reason}.\n\n{output[:_LONGEST_ERROR]}".rstrip()
    return ToolResult(output=output, is_error=failed, parts=shown, metadata=metadata)


def _attached(url: URL, kind: pages.Kind, body: bytes, *, cut: bool, most: int) -> tuple[str, tuple[Any, ...]]:
    if cut:
        raise FetchFailed(f"{_shown(url)} is {kind.media_type} and larger than {_media.human_size(most)}: too large.")
    name = posixpath.basename(url.path) or None
    if not kind.media_type.startswith(("image/", "audio/")) and kind.media_type != "application/pdf":
        size = _media.human_size(len(body))
        raise FetchFailed(f"{_shown(url)} is {kind.media_type}, {size}, which is neither text nor an image or a PDF.")
    if _media.contradicts(kind.media_type, body):
        raise FetchFailed(f"{_shown(url)} is called {kind.media_type}, but its first bytes are not those of one.")
    try:
        part = parts.file(body, name=name, media_type=kind.media_type)
    except ConfigurationError as error:
        raise FetchFailed(f"{_shown(url)} cannot be shown: {error}") from None
    return f"Here is {_media.summary(part)}.", (part,)


def _shown(url: URL) -> str:
    """A URL for errors: without its query, which may hold a secret."""
    return _cut(str(url.with_query(None).with_fragment(None).with_user(None)))


def _cut(text: str) -> str:
    return repr(clean_text(text[:200]))
