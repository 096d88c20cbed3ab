"""Requests as tools: `http_tool`, and sending what such a tool means."""

from __future__ import annotations

import functools
import importlib
import os
import re
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast, get_args
from urllib.parse import quote, unquote, urljoin, urlsplit, urlunsplit

from toolnexus import _redaction, _workers
from toolnexus._checks import at_least
from toolnexus._endpoint import checked_headers, parsed_url
from toolnexus._media import MAX_BYTES
from toolnexus.errors import ConfigurationError
from toolnexus.sources.http_request import (
    CONTENT_TYPES,
    FILE_SCHEMA,
    PLACEHOLDER,
    Body,
    BodyKind,
    HTTPRequest,
    Parameter,
    Plan,
    build,
    is_dots,
    text_of,
)
from toolnexus.sources.http_result import Answer, ResultMode, read
from toolnexus.tools import JSONObject, Tool, ToolContext, ToolResult
from toolnexus.transport import Limits

if TYPE_CHECKING:
    from toolnexus.transport.http import HTTPTransport

READ_ONLY = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
"""RFC 9110, 9.2.1: safe methods."""
IDEMPOTENT = READ_ONLY | {"PUT", "DELETE"}
MAX_TEXT = 1024 * 1024
"""Bytes of a text answer that are read, unless more is asked for."""

_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
_METHOD = re.compile(r"[A-Z][A-Z-]*")
_MOST_REDIRECTS = 10
_CONNECT = 10.0
_EVER = 24 * 3600.0
_NO_CAP = 1 << 62
_AT_ONCE = 32 * 1024
"""Bytes of an answer that are read into a result on the event loop."""
_IN_URLS = ":/?#[]@!$&'()*+,;=%"
_PIECES = re.compile(r"(\{[^{}/]+\})")
_TRANSPORT = "toolnexus.transport.http"


class RedirectRefused(ConfigurationError):
    """The server sends the request somewhere else."""


def http_tool(
    name: str,
    description: str,
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    query: Mapping[str, Any] | Sequence[str] | None = None,
    body: BodyKind = "json",
    input_schema: Mapping[str, Any] | None = None,
    timeout: float | None = 30.0,
    result_mode: ResultMode = "text",
    max_bytes: int = MAX_TEXT,
    read_only: bool | None = None,
    idempotent: bool | None = None,
    exclusive: bool = False,
    needs_approval: bool = False,
) -> Tool:
    """A tool that sends one HTTP request.

    An argument goes where a placeholder `{argument}` names it: into the URL's path or query, or as the whole value of
    a header or of an entry of `query`. All other arguments become the body, or the query of a method that has none
    (GET, HEAD, DELETE, OPTIONS). In a query lists repeat, booleans are lower-case, and None is left out. What goes
    into the path is required and percent-encoded; it cannot lead to another path by `..`.

    Redirects are followed within the same origin. One to another origin is an error that names it: neither our
    headers nor the model's arguments go to a server that nobody chose.

    Args:
        name: The tool's name.
        description: What the model reads to decide.
        method: Such as `GET`.
        url: `https://` or `http://`, a host, and the rest, perhaps with placeholders.
        headers: Sent with every request. `${NAME}` is the environment variable, as it is when a call is made. No value
            is ever shown: not in errors or logs, and it is taken out of answers that echo it.
        query: Parameters of every request, where `${NAME}` and placeholders work as in headers; or the names of the
            arguments that go into the query.
        body: How the body is sent. `raw` sends the text of the argument `body` as it is, as `text/plain` unless the
            headers say otherwise. A property of the schema with `"format": "binary"` is a file, given as an object
            with `text` or `base64`, `filename` and `media_type`.
        input_schema: JSON Schema of the arguments. None: what stands in placeholders, as text, and for a body any
            other argument.
        timeout: Seconds that a call may take. None: as long as the run.
        result_mode: What the model gets of a good answer: its `text`; the same as compact `json`, with the value in
            `ToolResult.structured`; or `full`, with status and headers. Images, sounds and PDF become parts.
        max_bytes: How much of a text is read. That it was cut is said.
        read_only: None: whether the method is a safe one.
        idempotent: None: whether the method is an idempotent one.
        exclusive: As in `Tool`.
        needs_approval: As in `Tool`.

    Raises:
        ConfigurationError: Something cannot be meant. No message shows a value of a header.
    """
    verb = method.upper()
    if _METHOD.fullmatch(verb) is None or verb == "CONNECT":
        raise ConfigurationError(f"The method of {name!r} is {method!r}; give one such as 'GET' or 'POST'.")
    if body not in get_args(BodyKind):
        raise ConfigurationError(f"The body of {name!r} is {body!r}; choose one of {', '.join(get_args(BodyKind))}.")
    template = checked_template(url, f"The URL of {name!r}")
    fixed_headers, in_headers = _split(checked_headers(headers or {}))
    given = dict(query) if isinstance(query, Mapping) else {each: f"{{{each}}}" for each in query or ()}
    fixed_query, in_query = _split({key: value for key, value in given.items() if value is not None})
    path = tuple(Parameter(name=each, argument=each) for each in dict.fromkeys(PLACEHOLDER.findall(template)))
    with_body = verb in _WITH_BODY
    schema = _schema(input_schema, path, (*in_headers, *in_query), with_body=with_body, raw=body == "raw")
    files = _take_files(schema) if with_body and body in ("multipart", "raw") else frozenset[str]()
    plan = Plan(
        method=verb,
        url=template,
        path=path,
        query=in_query,
        header=in_headers,
        fixed=fixed_query,
        headers=dict(fixed_headers),
        body=_body(body, files) if with_body else None,
        rest=None if with_body and body == "raw" else "body" if with_body else "query",
        files=files,
    )
    return tool_of(
        plan,
        name=name,
        description=description,
        input_schema=schema,
        timeout=timeout,
        result_mode=result_mode,
        max_bytes=max_bytes,
        read_only=verb in READ_ONLY if read_only is None else read_only,
        idempotent=verb in IDEMPOTENT if idempotent is None else idempotent,
        exclusive=exclusive,
        needs_approval=needs_approval,
    )


def tool_of(
    plan: Plan,
    *,
    name: str,
    timeout: float | None,
    result_mode: ResultMode,
    max_bytes: int,
    **about: Any,
) -> Tool:
    """A tool that sends what a plan makes of its arguments. `about` is for `Tool`."""
    if result_mode not in get_args(ResultMode):
        modes = ", ".join(get_args(ResultMode))
        raise ConfigurationError(f"The result_mode of {name!r} is {result_mode!r}; choose one of {modes}.")
    if timeout is not None and not timeout > 0:
        raise ConfigurationError(f"The timeout of {name!r} is {timeout!r}; give seconds above 0, or None.")
    at_least("max_bytes", max_bytes, 1, whole=True)
    mode: ResultMode = "full" if plan.method == "HEAD" else result_mode  # its headers are all that there is
    return Tool(name=name, timeout=timeout, source="http", execute=_execute(plan, mode, timeout, max_bytes), **about)


def checked_template(url: str, where: str) -> str:
    """A URL that can be called, perhaps with placeholders in its path or query; ASCII, without a fragment.

    Raises:
        ConfigurationError: It cannot be called, or a placeholder would choose the server. It is not shown.
    """
    scheme, separator, rest = url.strip().partition("://")
    host = re.split("[/?#]", rest, maxsplit=1)[0]
    if "{" in scheme + host:
        raise ConfigurationError(f"{where} has a placeholder before its path; a model must not choose the server.")
    try:
        ascii_host = host.encode("ascii" if host.isascii() else "idna").decode().lower()
    except UnicodeError:
        raise ConfigurationError(f"{where} has a host that no name server could know.") from None
    pieces = _PIECES.split(rest[len(host) :].partition("#")[0])
    tail = "".join(piece if PLACEHOLDER.fullmatch(piece) else quote(piece, safe=f"{_IN_URLS}{{}}") for piece in pieces)
    parts = parsed_url(f"{scheme}{separator}{ascii_host}{PLACEHOLDER.sub('x', tail)}", where)
    if any(is_dots(segment) for segment in parts.path.split("/")):
        raise ConfigurationError(f"{where} has a '.' or '..' in its path. Write the path that is meant.")
    return f"{scheme}://{ascii_host}{tail}"


def _split(given: Mapping[str, Any]) -> tuple[tuple[tuple[str, str], ...], tuple[Parameter, ...]]:
    """Fixed names and values, a list's items each on its own, and the parameters that are placeholders."""
    fixed: list[tuple[str, str]] = []
    parameters: list[Parameter] = []
    for name, value in given.items():
        match = PLACEHOLDER.fullmatch(value) if isinstance(value, str) else None
        if match is not None:
            parameters.append(Parameter(name=name, argument=match[1]))
        elif isinstance(value, list | tuple):
            fixed += [(name, text_of(item)) for item in cast("Sequence[Any]", value) if item is not None]
        else:
            fixed.append((name, text_of(value)))
    return tuple(fixed), tuple(parameters)


def fixed_pairs(query: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Query parameters that every request has; None is left out."""
    return _split({name: value for name, value in query.items() if value is not None})[0]


def _body(kind: BodyKind, files: frozenset[str]) -> Body:
    if kind != "raw":
        return Body(kind=kind, content_type=CONTENT_TYPES[kind])
    file = "body" in files
    content_type = "application/octet-stream" if file else CONTENT_TYPES["raw"]
    return Body(kind="raw", content_type=content_type, whole="body", file=file)


def _schema(
    given: Mapping[str, Any] | None,
    path: Sequence[Parameter],
    optional: Sequence[Parameter],
    *,
    with_body: bool,
    raw: bool,
) -> JSONObject:
    """The schema that was given, with what the request cannot do without; or one made from the placeholders."""
    schema: JSONObject = dict(given) if given is not None else {"type": "object"}
    properties: JSONObject = dict(schema.get("properties") or {})
    needed = [each.argument for each in path] + (["body"] if with_body and raw else [])
    for name in (*needed, *(each.argument for each in optional)):
        properties.setdefault(name, {"type": "string"})
    schema["properties"] = properties
    schema["required"] = list(dict.fromkeys([*(schema.get("required") or []), *needed]))
    if given is None:
        schema["additionalProperties"] = with_body and not raw
    return schema


def _take_files(schema: JSONObject) -> frozenset[str]:
    """The properties that are files. In the schema they become what a model can give."""
    properties: JSONObject = schema["properties"]
    found = {name for name, each in properties.items() if isinstance(each, dict) and is_file(cast("JSONObject", each))}
    for name in found:
        properties[name] = as_file(properties[name])
    return frozenset(found)


def is_file(schema: Mapping[str, Any]) -> bool:
    """Whether a property is bytes that JSON cannot hold, or a list of such."""
    if schema.get("type") == "array" and isinstance(schema.get("items"), dict):
        return is_file(cast("JSONObject", schema["items"]))
    if schema.get("format") == "binary":
        return True
    # OpenAPI 3.1: content of a media type that is not encoded as text.
    return "contentMediaType" in schema and "contentEncoding" not in schema


def as_file(schema: Mapping[str, Any]) -> JSONObject:
    """What a model can give for such a property."""
    if schema.get("type") == "array":
        return {**schema, "items": as_file(cast("JSONObject", schema["items"]))}
    said = str(schema.get("description") or "").strip()
    return {**FILE_SCHEMA, "description": f"{said} {FILE_SCHEMA['description']}".strip()}


def _execute(
    plan: Plan, mode: ResultMode, timeout: float | None, max_bytes: int
) -> Callable[[JSONObject, ToolContext], Coroutine[Any, Any, ToolResult]]:
    seconds = timeout or _EVER
    limits = Limits(connect=min(_CONNECT, seconds), first_byte=seconds, silence=seconds, reply_bytes=_NO_CAP)

    async def execute(arguments: JSONObject, _: ToolContext) -> ToolResult:
        request = build(plan, arguments, os.environ)
        answer = await send(request, limits, max_bytes)
        if len(answer.body) <= _AT_ONCE:
            return read(answer, mode, request.secrets)
        return await _workers.run(read, answer, mode, request.secrets)

    return execute


async def send(request: HTTPRequest, limits: Limits, max_bytes: int = MAX_TEXT) -> Answer:
    """Send a request and read its answer, following redirects within its origin.

    Args:
        max_bytes: Of a text; images and the like are read up to `_media.MAX_BYTES`.

    Raises:
        RedirectRefused: It leads to another origin, or nowhere.
        ConnectionFailed: The server was not reached, or the connection broke.
        InvalidReply: What came is no HTTP answer.
    """
    transport = await _shared_transport()
    method, url, body, headers = request.method, request.url, request.body, dict(request.headers)
    for _ in range(_MOST_REDIRECTS + 1):
        async with transport.request(method, url, headers=headers, body=body, limits=limits) as answer:
            location = answer.headers.get("location") if answer.status in (301, 302, 303, 307, 308) else None
            if location is None:
                kind = answer.headers.get("content-type", "").lower()
                media = kind.startswith(("image/", "audio/", "application/pdf"))
                data, cut = await _read(answer.chunks(), MAX_BYTES if media else max_bytes)
                return Answer(status=answer.status, headers=dict(answer.headers), body=data, cut=cut)
            status = answer.status
        url = _redirected(url, location, request.secrets)
        if method != "HEAD" and (status == 303 or (status in (301, 302) and method == "POST")):  # WHATWG Fetch
            method, body = "GET", None
            headers.pop("content-type", None)
    raise RedirectRefused(f"The server redirects again and again, more than {_MOST_REDIRECTS} times.")


async def _read(chunks: AsyncIterator[bytes], most: int) -> tuple[bytes, bool]:
    """As much of a body as there may be, and whether there is more."""
    data = bytearray()
    async for chunk in chunks:
        data += chunk
        if len(data) > most:
            return bytes(data[:most]), True
    return bytes(data), False


def _redirected(url: str, location: str, secrets: frozenset[str]) -> str:
    """Where a redirect leads."""
    try:
        target = urljoin(url, quote(location, safe=f"{_IN_URLS}~"))
        there, here = urlsplit(target), urlsplit(url)
        same = origin(target) == origin(url) and "@" not in there.netloc
    except ValueError:
        raise RedirectRefused("The server redirects to an address that cannot be read.") from None
    if not same:
        # Decoded, as a server may encode only parts of a secret.
        path = _redaction.redact(unquote(there.path), secrets)
        shown = _redaction.redact(f"{there.scheme}://{there.netloc.rpartition('@')[2]}{path}", secrets)[:200]
        raise RedirectRefused(
            f"The server at {here.scheme}://{here.netloc} redirects to {shown}, which is another origin. Nothing was "
            "sent there. If that is the right server, the tool has to be made with its URL."
        )
    return urlunsplit(there._replace(fragment=""))


def origin(url: str) -> tuple[str, str, int | None]:
    """What a URL has to share with another to be at the same server: scheme, host and port."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or {"http": 80, "https": 443}.get(parts.scheme)


async def _shared_transport() -> HTTPTransport:
    """The connections of all HTTP tools. They belong to no tool or toolkit: each is closed when nobody has used it for
    a minute, and all when their loop ends.
    """
    if _TRANSPORT not in sys.modules:
        await _workers.run(importlib.import_module, _TRANSPORT)
    return _transport()


@functools.cache
def _transport() -> HTTPTransport:
    from toolnexus.transport.http import HTTPTransport

    return HTTPTransport()
