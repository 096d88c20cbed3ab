"""From a call's arguments to the HTTP request that they mean. Pure."""

from __future__ import annotations

import base64
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, cast
from urllib.parse import quote, unquote

from toolnexus import __version__, _json, _media, _redaction
from toolnexus._endpoint import checked_headers
from toolnexus.errors import ConfigurationError
from toolnexus.tools import InvalidArguments, JSONObject

BodyKind: TypeAlias = Literal["json", "form", "multipart", "raw"]

CONTENT_TYPES: Mapping[str, str] = {
    "json": "application/json",
    "form": "application/x-www-form-urlencoded",
    "multipart": "multipart/form-data",
    "raw": "text/plain; charset=utf-8",
}

FILE_SCHEMA: JSONObject = {
    "type": "object",
    "description": "A file: its content as `text`, or its bytes in `base64`.",
    "properties": {
        "filename": {"type": "string"},
        "media_type": {"type": "string", "description": "Such as text/csv or image/png."},
        "text": {"type": "string"},
        "base64": {"type": "string"},
    },
    "oneOf": [{"required": ["text"]}, {"required": ["base64"]}],
    "additionalProperties": False,
}
"""How a model gives a file. There is no path in it: what may be read of this machine is for file tools to decide."""

VARIABLE = re.compile(r"\$\{(\w+)\}")
PLACEHOLDER = re.compile(r"(?<!\$)\{([^{}/]+)\}")

_RESERVED = ":/?#[]@!$&'()*+,;="  # RFC 3986, 2.2
_DELIMITERS = {"spaceDelimited": "%20", "pipeDelimited": "%7C"}
_HEADER_TEXT = re.compile(r"[\x20-\x7e]*")
_WHOLE_NUMBERS = 2**53
"""Up to here a float that is whole is the integer that was meant."""
_FOLDED = {'"': "%22", "\r": "%0D", "\n": "%0A"}  # WHATWG HTML, multipart form data: escape a name
_MOST_DECODINGS = 8


class UnsetVariable(ConfigurationError):
    """An environment variable that a request needs is not set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """Where an argument goes, and how it is written there.

    Attributes:
        name: On the wire.
        argument: In the call.
        style: As in OpenAPI: `form`, `simple`, `deepObject`, …; empty: lists repeat, objects are JSON.
        explode: As in OpenAPI.
        reserved: Whether reserved characters stay as they are in a query.
        as_json: Whether the value is sent as JSON text, whatever it is.
        file: Whether the value is a file, as `FILE_SCHEMA` has it, or a list of such.
        content_type: Of its part in a multipart body. Empty: as fits the value.
    """

    name: str
    argument: str
    style: str = ""
    explode: bool = True
    reserved: bool = False
    as_json: bool = False
    file: bool = False
    content_type: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """What is sent as the body.

    Attributes:
        whole: The argument that is all of it. None: it is made of `fields`.
        file: Whether `whole` is a file, as `FILE_SCHEMA` has it.
        required: Whether there is one, even if no argument is for it.
    """

    kind: BodyKind
    content_type: str
    whole: str | None = None
    file: bool = False
    fields: tuple[Parameter, ...] = ()
    required: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How the arguments of a tool become a request. Its repr shows neither URL nor header.

    Attributes:
        url: With `{name}` for each of `path`, which stand in its path or query only.
        fixed: Names and values that every query has; `${NAME}` in a value is an environment variable.
        headers: Names in lower case, values as in `fixed`.
        rest: Where arguments go that have no other place. None: nowhere.
        files: Which of those are files.
    """

    method: str
    url: str = field(repr=False)
    path: tuple[Parameter, ...] = ()
    query: tuple[Parameter, ...] = ()
    header: tuple[Parameter, ...] = ()
    cookie: tuple[Parameter, ...] = ()
    fixed: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    body: Body | None = None
    rest: Literal["query", "body"] | None = None
    files: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class HTTPRequest:
    """A request that can be sent.

    Attributes:
        secrets: What must not be shown of it.
    """

    method: str
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    body: bytes | None = field(repr=False)
    secrets: frozenset[str] = field(repr=False)


def build(plan: Plan, arguments: Mapping[str, Any], environ: Mapping[str, str]) -> HTTPRequest:
    """The request that a call means.

    Raises:
        InvalidArguments: An argument cannot stand where it has to.
        UnsetVariable: A header, or the query, needs a variable that is not set.
        ConfigurationError: A variable holds what no header can.
    """
    secrets: set[str] = set()
    headers = {name: _expanded(value, f"The header {name!r}", environ, secrets) for name, value in plan.headers.items()}
    headers = {"user-agent": f"toolnexus/{__version__}", **checked_headers(headers)}
    fixed = [(name, _expanded(value, f"The query parameter {name!r}", environ, secrets)) for name, value in plan.fixed]
    placed = {each.argument for each in (*plan.path, *plan.query, *plan.header, *plan.cookie)}
    rest = [
        Parameter(name=name, argument=name, file=name in plan.files)
        for name in arguments
        if plan.rest is not None and name not in placed
    ]
    query = [*plan.query, *(rest if plan.rest == "query" else [])]
    body, content_type = _body(plan.body, arguments, rest if plan.rest == "body" else [])
    headers.update(_headers(plan.header, arguments))
    cookies = [f"{quote(name)}={quote(text)}" for name, text in _texts(plan.cookie, arguments)]
    if cookies:
        headers["cookie"] = "; ".join([*([headers["cookie"]] if "cookie" in headers else []), *cookies])
    if content_type:
        headers.setdefault("content-type", content_type)
        if content_type.startswith("multipart/"):
            headers["content-type"] = content_type  # only we know its boundary
    pairs = [f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in fixed]
    pairs += [f"{name}={value}" for each in query for name, value in _pairs(each, arguments.get(each.argument))]
    url = _filled(plan, arguments)
    if pairs:
        url += ("&" if "?" in url else "?") + "&".join(pairs)
    # What the environment gave is secret whatever it is called; the rest by its name.
    secrets |= {*_redaction.secrets_in({name: headers[name] for name in plan.headers}, "")}
    secrets |= {*_redaction.secrets_in({}, "&".join(pairs[: len(fixed)]))}
    return HTTPRequest(method=plan.method, url=url, headers=headers, body=body, secrets=frozenset(secrets) - {""})


def _expanded(template: str, where: str, environ: Mapping[str, str], secrets: set[str]) -> str:
    def value(match: re.Match[str]) -> str:
        found = environ.get(match[1], "").strip()
        if not found:
            raise UnsetVariable(f"{where} needs the environment variable {match[1]}, which is not set.")
        secrets.add(found)
        return found

    return VARIABLE.sub(value, template)


def _headers(parameters: Iterable[Parameter], arguments: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for parameter in parameters:
        value = arguments.get(parameter.argument)
        if value is None:
            continue
        text = _json_text(value) if parameter.as_json else ",".join(_items(value, explode=parameter.explode))
        if _HEADER_TEXT.fullmatch(text) is None:
            raise _invalid(parameter, "a header cannot hold a line break, a control or a non-ASCII character")
        yield parameter.name.lower(), text.strip()


def _texts(parameters: Iterable[Parameter], arguments: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Names and values that are one text each."""
    for parameter in parameters:
        value = arguments.get(parameter.argument)
        if value is not None:
            yield parameter.name, _json_text(value) if parameter.as_json else ",".join(_items(value, explode=False))


def _filled(plan: Plan, arguments: Mapping[str, Any]) -> str:
    """The URL with its placeholders filled in."""
    by_name = {parameter.name: parameter for parameter in plan.path}

    def fill(match: re.Match[str]) -> str:
        parameter = by_name[match[1]]
        return _in_path(parameter, arguments.get(parameter.argument))

    url = PLACEHOLDER.sub(fill, plan.url)
    path = url.partition("://")[2].partition("?")[0]
    for segment in path.split("/"):
        if is_dots(segment):
            raise InvalidArguments("The arguments do not fit: they would make a step out of the URL's path.")
    return url


def is_dots(segment: str) -> bool:
    """Whether a part of a path, or a part of that after decoding, is `.` or `..`, which leads somewhere else.

    Servers and proxies decode once or twice, and some take a backslash for a slash.
    """
    for _ in range(_MOST_DECODINGS):
        decoded = unquote(segment)
        if decoded == segment:
            return any(piece in (".", "..") for piece in re.split(r"[/\\]", segment))
        segment = decoded
    return True


def _in_path(parameter: Parameter, value: Any) -> str:
    """A value as it stands in a path. RFC 6570: simple, label (`.a`) or matrix (`;name=a`) style."""
    if value is None or value in ("", [], {}):
        raise _invalid(parameter, "it is part of the URL's path and cannot be empty")
    style, name = parameter.style or "simple", quote(parameter.name, safe="")
    if parameter.as_json:
        items = [quote(_json_text(value), safe="")]
    else:
        items = [
            quote(item, safe="=" if isinstance(value, dict) and parameter.explode else "")
            for item in _items(value, explode=parameter.explode)
        ]
        if any(is_dots(item) for item in items):
            raise _invalid(parameter, "it would make a step out of the URL's path; give a name without '.' or '..'")
    if style == "label":
        return "." + ("." if parameter.explode else ",").join(items)
    if style == "matrix":
        if parameter.explode and isinstance(value, dict):
            return "".join(f";{item}" for item in items)
        if parameter.explode:
            return "".join(f";{name}={item}" for item in items)
        return f";{name}={','.join(items)}"
    return ",".join(items)


def _items(value: Any, *, explode: bool) -> list[str]:
    """The texts that a value is made of: one, a list's items, or an object's `k=v` or `k`, `v`."""
    if isinstance(value, list):
        return [text_of(item) for item in cast("list[Any]", value) if item is not None]
    if isinstance(value, dict):
        pairs = [(key, text_of(item)) for key, item in cast("JSONObject", value).items() if item is not None]
        return [f"{key}={item}" for key, item in pairs] if explode else [text for pair in pairs for text in pair]
    return [text_of(value)]


def _pairs(parameter: Parameter, value: Any) -> Iterator[tuple[str, str]]:
    """What a value is in a query or a form, percent-encoded. None, and an empty list, is left out."""

    def encoded(text: str) -> str:
        return quote(
            text, safe=_RESERVED.replace("&", "").replace("#", "").replace("+", "") if parameter.reserved else ""
        )

    name, style = quote(parameter.name, safe=""), parameter.style
    if value is None:
        return
    if parameter.as_json or not isinstance(value, list | dict):
        yield name, encoded(_json_text(value) if parameter.as_json else text_of(value))
    elif style == "deepObject":
        for path, leaf in _leaves(parameter.name, cast("Any", value)):
            yield quote(path, safe=""), encoded(leaf)
    elif isinstance(value, list):
        items = [encoded(item) for item in _items(value, explode=False)]
        if parameter.explode or not style:
            yield from ((name, item) for item in items)
        elif items:
            yield name, _DELIMITERS.get(style, ",").join(items)
    elif not style:
        yield name, encoded(_json_text(cast("JSONObject", value)))
    elif parameter.explode:
        for key, item in cast("JSONObject", value).items():
            if item is not None:
                yield quote(key, safe=""), encoded(text_of(item))
    else:
        items = [encoded(item) for item in _items(value, explode=False)]
        if items:
            yield name, _DELIMITERS.get(style, ",").join(items)


def _leaves(path: str, value: Any) -> Iterator[tuple[str, str]]:
    """`a[b][0]` and its text for each value inside. OpenAPI says nothing of nested ones; servers read them so."""
    if isinstance(value, dict):
        for key, item in cast("JSONObject", value).items():
            yield from _leaves(f"{path}[{key}]", item)
    elif isinstance(value, list):
        for position, item in enumerate(cast("list[Any]", value)):
            yield from _leaves(f"{path}[{position}]", item)
    elif value is not None:
        yield path, text_of(value)


def text_of(value: Any) -> str:
    """A value as text: booleans in lower case, whole numbers without a point, lists and objects as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer() and abs(value) <= _WHOLE_NUMBERS:
        return str(int(value))
    return _json_text(value)


def _json_text(value: Any) -> str:
    return _json.dumps(value, "an argument").decode()


def _body(body: Body | None, arguments: Mapping[str, Any], rest: Sequence[Parameter]) -> tuple[bytes | None, str]:
    """The bytes, None if there is no body, and their content type."""
    if body is None:
        return None, ""
    fields = [each for each in (*body.fields, *rest) if each.argument in arguments]
    if body.whole is not None:
        if body.whole not in arguments:
            return (b"", body.content_type) if body.required else (None, "")
        value = arguments[body.whole]
        if body.kind == "json":
            return _json.dumps(value, body.whole), body.content_type
        if body.kind == "raw":
            data = _file(body.whole, value)[0] if body.file else text_of(value).encode()
            return data, body.content_type
        properties = cast("JSONObject", value) if isinstance(value, dict) else {}
        fields = [Parameter(name=name, argument=name) for name in properties]
        arguments = properties
    if not fields and not body.required:
        return None, ""
    if body.kind == "json":
        return _json.dumps({each.name: arguments[each.argument] for each in fields}, "the body"), body.content_type
    if body.kind == "multipart":
        return _multipart(fields, arguments, body.content_type)
    pairs = [f"{name}={text}" for each in fields for name, text in _pairs(each, arguments[each.argument])]
    return "&".join(pairs).encode(), body.content_type


def _multipart(fields: Sequence[Parameter], arguments: Mapping[str, Any], content_type: str) -> tuple[bytes, str]:
    """RFC 7578."""
    boundary = uuid.uuid4().hex
    lines: list[bytes] = []
    for parameter in fields:
        value = arguments[parameter.argument]
        several = isinstance(value, list) and not parameter.as_json
        for item in cast("list[Any]", value if several else [value]):
            if item is None:
                continue
            name, kind = f'name="{_folded(parameter.name)}"', parameter.content_type
            if parameter.file:
                data, filename, media_type = _file(parameter.argument, item)
                name += f'; filename="{_folded(filename)}"'
                kind = media_type or kind or "application/octet-stream"
            else:
                data = (_json_text(item) if parameter.as_json else text_of(item)).encode()
                kind = kind or ("application/json" if isinstance(item, dict | list) or parameter.as_json else "")
            head = f"--{boundary}\r\ncontent-disposition: form-data; {name}\r\n"
            head += f"content-type: {kind}\r\n" if kind else ""
            lines += [head.encode(), b"\r\n", data, b"\r\n"]
    return b"".join([*lines, f"--{boundary}--\r\n".encode()]), f"{content_type}; boundary={boundary}"


def _folded(name: str) -> str:
    return "".join(_FOLDED.get(character, character) for character in name)


def _file(argument: str, value: Any) -> tuple[bytes, str, str]:
    """The bytes of a file, its name and its media type, empty if it was not said."""
    if isinstance(value, str):
        return value.encode(), "file", ""
    match value:
        case {"text": str(text)}:
            data, media_type = text.encode(), "text/plain; charset=utf-8"
        case {"base64": str(encoded)} if (plain := _media.plain_base64(encoded)) is not None:
            data, media_type = base64.b64decode(plain), ""
        case _:
            problem = "it is no file: give its content as text, or as valid base64"
            raise InvalidArguments.listing([([argument], problem)])
    about = cast("Mapping[str, Any]", value)
    given = str(about.get("media_type") or media_type)
    if _HEADER_TEXT.fullmatch(given) is None:
        raise InvalidArguments.listing([([argument, "media_type"], "it is no media type")])
    return data, str(about.get("filename") or "file"), given


def _invalid(parameter: Parameter, problem: str) -> InvalidArguments:
    return InvalidArguments.listing([([parameter.argument], problem)])
