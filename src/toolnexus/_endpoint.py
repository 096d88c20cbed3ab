"""A model's name and its options become one `Endpoint`: the URL to call and what to send with it. Pure."""

from __future__ import annotations

import base64
import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from urllib.parse import SplitResult, parse_qsl, quote, quote_plus, urlsplit

from toolnexus import __version__
from toolnexus.dialects import DIALECTS, Target, dialect
from toolnexus.errors import ConfigurationError, MissingKey, NoModelConfigured
from toolnexus.providers import PROVIDERS, UNKNOWN, Provider

_PLANNED_STYLES = ("responses", "gemini")
_DEFAULT_STYLE = "openai"

_DEFAULT_PORTS = {"http": 80, "https": 443}
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_LISTENING = re.compile(r"([\w.-]*|\[[0-9a-fA-F:]+\])(:\d+)?/?")
_FIELD = re.compile(r"\{(\w+)\}")
_MODEL = "{model}"
_LABEL = "[a-z0-9-]+"
_NOT_IN_URLS = re.compile(r"[\x00-\x20\x7f\\<>\"{}|^`]")

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, 5.6.2: token
_HEADER_VALUE = re.compile(r"[\x20-\x7e]*")
_KEY = re.compile(r"[\x21-\x7e]+")
_FRAMING = frozenset({"content-length", "content-encoding", "transfer-encoding", "connection", "expect"})
_AUTH_HEADERS = frozenset({"authorization", "x-api-key", "api-key", "x-goog-api-key"})
_SECRET_NAME = re.compile(r"auth|key|token|secret|cookie|credential|password|signature", re.IGNORECASE)
_SHORTEST_SECRET = 6
"""Shorter values are placeholders such as `none`; hiding them would only spoil messages."""

_HIDDEN = "[redacted]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where a client sends its requests. Its repr shows no secret.

    Attributes:
        url: The whole URL of a request, query included; `{model}` in it stands for the model's id.
        stream_url: The same for requests whose answer is streamed.
        headers: What every request carries, names in lower case.
        model: The model id that is asked when a call names none.
        secrets: What must not be shown to anybody.
    """

    url: str = field(repr=False)
    stream_url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    target: Target
    model: str
    secrets: tuple[str, ...] = field(repr=False)

    def url_of(self, model: str, *, stream: bool) -> str:
        """The URL of a request to a model."""
        url = self.stream_url if stream else self.url
        return url.replace(_MODEL, quote(model, safe="/:@")) if _MODEL in url else url

    @property
    def shown_url(self) -> str:
        """The URL without its query, for people."""
        return self.url_of(self.model, stream=False).partition("?")[0]

    def redact(self, text: str) -> str:
        """Replace the secrets in `text`, also where they are percent-encoded, JSON-escaped or in base64."""
        forms = {form for secret in self.secrets for form in _forms(secret) if len(form) >= _SHORTEST_SECRET}
        if not forms:
            return text
        return re.sub("|".join(re.escape(form) for form in sorted(forms, key=len, reverse=True)), _HIDDEN, text)


def resolve(
    model: str | None,
    *,
    base_url: str | None = None,
    style: str | None = None,
    api_key: str | None = None,
    headers: Mapping[str, str] | None = None,
    environ: Mapping[str, str],
    key_required: bool = True,
) -> Endpoint:
    """Find the endpoint that the options of a client mean.

    Args:
        model: A model id, or `name:model` with the name of a row of the provider table. The name counts only without
            `base_url`.
        base_url: None: the row's.
        style: None: the row's best one that is built; `openai` for hosts without a row.
        api_key: None: from the environment, but only from a variable of the row that the host belongs to. Empty: none.
        headers: Sent as well; they replace ours of the same name.
        key_required: Whether a missing key is an error where the provider wants one. A transport that signs requests
            itself needs none.

    Raises:
        NoModelConfigured: No model is named.
        MissingKey: The provider wants a key and there is none.
        ConfigurationError: An option cannot be used. No message shows a key, a header's value or a query.
    """
    if model is None or not model.strip():
        raise NoModelConfigured(_no_model(environ))
    if style is not None:
        _check_style(style)
    if base_url is not None:
        base = _parsed(base_url, "base_url")
        row = provider_for(_origin(base))
        wire = style or _best_style(row)
    else:
        row, model = _named(model, style)
        wire = style or _best_style(row)
        base = _home(row, wire, environ)

    given = _checked_headers(headers or {})
    key, key_headers = _credentials(row, wire, api_key, environ)
    signed = not _AUTH_HEADERS.isdisjoint(given)
    if row.key_required and key_required and not key and not signed:
        variables = " or ".join(row.keys)
        raise MissingKey(f"{row.name} wants an API key. Set {variables}, or give api_key=.")
    if signed and api_key is None:
        key_headers = {}

    row = _fitted(row, wire)
    sent = {
        "content-type": "application/json",
        "user-agent": f"toolnexus/{__version__}",
        **row.headers,
        **_from_environment(row, environ),
        **key_headers,
        **given,
    }
    return Endpoint(
        url=_request_url(base, row, wire, stream=False),
        stream_url=_request_url(base, row, wire, stream=True),
        headers=MappingProxyType(sent),
        target=Target(style=wire, host=_origin(base), provider=row),
        model=model,
        secrets=tuple(_secrets(key, sent, base.query)),
    )


def provider_for(origin: str) -> Provider:
    """The table's row for an origin such as `https://api.x.ai`; `UNKNOWN` for others."""
    wanted = _comparable(urlsplit(origin))
    for row in PROVIDERS.values():
        for url in (row.base_url, *row.style_urls.values()):
            if _FIELD.search(url) is None:
                if _comparable(urlsplit(url)) == wanted:
                    return row
            elif _matches(url, wanted):
                return row
    return UNKNOWN


def _comparable(parts: SplitResult) -> tuple[str, str, int | None]:
    host = parts.hostname or ""
    return parts.scheme, "localhost" if host in _LOOPBACK else host, parts.port or _DEFAULT_PORTS.get(parts.scheme)


def _matches(template: str, wanted: tuple[str, str, int | None]) -> bool:
    """Whether an origin is one of those that a base URL with fields stands for."""
    scheme, _, rest = template.partition("://")
    host = _LABEL.join(re.escape(part) for part in _FIELD.split(rest.partition("/")[0])[::2])
    return (wanted[0], wanted[2]) == (scheme, _DEFAULT_PORTS[scheme]) and re.fullmatch(host, wanted[1]) is not None


def _named(model: str, style: str | None) -> tuple[Provider, str]:
    """The row and the model id of `name:model`, or of a model at the provider that a style is named after."""
    name, colon, model_id = model.partition(":")
    if not colon:
        if style in PROVIDERS:
            return PROVIDERS[style], model
        raise ConfigurationError(
            f"Where is the model {model!r}? Write provider:{model} with one of {_listed(PROVIDERS)}, or give base_url=."
        )
    row = PROVIDERS.get(name)
    if row is None:
        raise ConfigurationError(
            f"There is no provider {name!r}.{_suggestion(name, PROVIDERS)} The table has {_listed(PROVIDERS)}. "
            f"If {model!r} is a model id, give base_url= as well, or write its provider before it."
        )
    if not model_id.strip():
        raise NoModelConfigured(f"No model is named after {model!r}. Write {name}:MODEL.")
    return row, model_id


def _check_style(style: str) -> None:
    if style in DIALECTS:
        return
    if style in _PLANNED_STYLES:
        raise ConfigurationError(f"The style {style!r} is not built yet. Choose one of {_listed(DIALECTS)}.")
    raise ConfigurationError(
        f"There is no style {style!r}.{_suggestion(style, DIALECTS)} Choose one of {_listed(DIALECTS)}."
    )


def _best_style(row: Provider) -> str:
    if not row.name:
        return _DEFAULT_STYLE
    for style in row.styles:
        if style in DIALECTS:
            return style
    raise ConfigurationError(f"{row.name} speaks only {_listed(row.styles)}, which is not built yet.")


def _fitted(row: Provider, style: str) -> Provider:
    """The row with what its wire requires. What a wire requires stands in the row of the provider it is named after."""
    owner = PROVIDERS.get(style, UNKNOWN)
    if owner is row:
        return row
    return replace(
        row,
        headers={**owner.headers, **row.headers},
        default_max_tokens=row.default_max_tokens or owner.default_max_tokens,
    )


def _home(row: Provider, style: str, environ: Mapping[str, str]) -> SplitResult:
    """The base URL of a row: from its own variable, or as the table has it."""
    variable = row.base_url_variable
    if variable is not None and (given := environ.get(variable, "").strip()):
        return _parsed(_with_scheme(given, row), variable)

    def value(match: re.Match[str]) -> str:
        source = row.url_fields.get(match[1])
        if source is None:
            raise ConfigurationError(f"{row.name} has no address of its own. Set {variable}, or give base_url=.")
        text = environ.get(source, "").strip()
        if not text:
            raise ConfigurationError(f"{row.name} needs its {match[1]}. Set {source}, or give base_url=.")
        if re.fullmatch(_LABEL, text) is None:
            raise ConfigurationError(f"{source} is no {match[1]}: it has other characters than a-z, 0-9 and -.")
        return text

    return urlsplit(_FIELD.sub(value, row.style_urls.get(style, row.base_url)))


def _with_scheme(address: str, row: Provider) -> str:
    """An address as servers take it to listen on (`0.0.0.0:11434`), as a URL to call."""
    if "://" in address:
        return address
    home = urlsplit(row.base_url)
    match = _LISTENING.fullmatch(address)
    if match is None:
        return f"{home.scheme}://{address}"  # to be refused, or a path that says more
    host, port = match.groups()
    if host in ("", "0.0.0.0", "[::]"):  # noqa: S104 - "every interface" is no address to connect to
        host = home.hostname
    return f"{home.scheme}://{host}{port or (f':{home.port}' if home.port else '')}"


def _port(parts: SplitResult) -> int | None:
    with suppress(ValueError):  # it shows what is wrong, which may be a key
        return parts.port
    raise ConfigurationError("The port of the base URL is no number from 0 to 65535.")


def _parsed(url: str, where: str) -> SplitResult:
    """Take a base URL apart, after checking that it can be called and hides no credentials."""
    text = url.strip()
    if _NOT_IN_URLS.search(text):
        raise ConfigurationError(f"{where} has characters that no URL has.")
    parts = None
    with suppress(ValueError):
        parts = urlsplit(text)
    if parts is None or parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
        raise ConfigurationError(f"{where} has to begin with https:// or http:// and a host.")
    if "@" in parts.netloc:
        raise ConfigurationError(f"{where} has a user name or password in it. Give api_key= or headers= instead.")
    _port(parts)
    return parts


def _origin(parts: SplitResult) -> str:
    return f"{parts.scheme}://{parts.netloc.lower()}"


def _request_url(base: SplitResult, row: Provider, style: str, *, stream: bool) -> str:
    """The URL to call: the path that was given, or the row's, and the wire's own path unless it is there."""
    path = _squeezed(base.path)
    if not path:
        home = row.style_urls.get(style, row.base_url)
        path = _squeezed(urlsplit(_FIELD.sub("x", home)).path) if row.name else _default_path(style)
    wire = dialect(style)
    ending, _, asked = (wire.stream_path if stream else wire.path).partition("?")
    for known in (wire.path, wire.stream_path):
        path = path.removesuffix(known.partition("?")[0])
    path += ending.removeprefix("/v1") if path.endswith("/v1") else ending
    query = "&".join(part for part in (base.query, asked) if part)
    return base._replace(path=path, netloc=base.netloc.lower(), query=query, fragment="").geturl()


def _squeezed(path: str) -> str:
    return re.sub("/+", "/", path).rstrip("/")


def _default_path(style: str) -> str:
    return "/v1" if style == _DEFAULT_STYLE else ""


def _credentials(
    row: Provider, style: str, api_key: str | None, environ: Mapping[str, str]
) -> tuple[str, dict[str, str]]:
    """The key, empty if there is none, and the header that carries it."""
    key, where = api_key, "api_key"
    if key is None:
        where = next((name for name in row.keys if environ.get(name, "").strip()), "")
        key = environ.get(where, "")
    if not isinstance(key, str):  # pyright: ignore[reportUnnecessaryIsInstance] - callers without a type checker
        raise ConfigurationError(f"api_key is of the type {type(key).__name__}; give a str.")
    key = key.strip()
    if not key:
        return "", {}
    if _KEY.fullmatch(key) is None:
        raise ConfigurationError(f"The key in {where} has a space, a control or a non-ASCII character. Copy it again.")
    # A host without a row expects what the owner of its wire does.
    auth = row.auth if row.name else PROVIDERS.get(style, row).auth
    if auth == "bearer" or where in row.bearer_keys:
        return key, {"authorization": f"Bearer {key}"}
    return key, {auth: key}


def _from_environment(row: Provider, environ: Mapping[str, str]) -> dict[str, str]:
    found = {name: environ.get(variable, "").strip() for name, variable in row.header_variables.items()}
    return _checked_headers({name: value for name, value in found.items() if value})


def _checked_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Headers that can be sent, names in lower case. What is wrong is said without showing a value."""
    checked: dict[str, str] = {}
    for position, (name, value) in enumerate(headers.items(), 1):
        if not isinstance(name, str) or _HEADER_NAME.fullmatch(name) is None:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(f"The name of header {position} has characters that HTTP does not allow.")
        if name.lower() in _FRAMING:
            raise ConfigurationError(f"The header {name!r} is set by the transport.")
        if not isinstance(value, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(f"The header {name!r} is of the type {type(value).__name__}; give a str.")
        text = value.strip()
        if _HEADER_VALUE.fullmatch(text) is None:
            raise ConfigurationError(f"The header {name!r} has a line break, a control or a non-ASCII character.")
        checked[name.lower()] = text
    return checked


def _secrets(key: str, headers: Mapping[str, str], query: str) -> Iterator[str]:
    yield key
    for name, value in headers.items():
        if _SECRET_NAME.search(name):
            yield value
            yield value.partition(" ")[2].strip()  # after a scheme such as Bearer
    for name, value in parse_qsl(query):
        if _SECRET_NAME.search(name):
            yield value


def _forms(secret: str) -> Iterator[str]:
    """How a server may echo a secret."""
    escaped = json.dumps(secret)[1:-1]
    yield from (secret, quote(secret, safe=""), quote_plus(secret), escaped, escaped.replace("/", "\\/"))
    data = secret.encode()
    for shift in range(3):  # base64 of a text that holds the secret depends on where it begins
        first, last = (8 * shift + 5) // 6, 8 * (shift + len(data)) // 6
        text = base64.b64encode(b"\0" * shift + data).decode()[first:last]
        yield text
        yield text.replace("+", "-").replace("/", "_")


def _no_model(environ: Mapping[str, str]) -> str:
    keyed = [row for row in PROVIDERS.values() if any(environ.get(name, "").strip() for name in row.keys)]
    found = f" A key is set for {_listed(row.name for row in keyed)}." if keyed else ""
    return (
        "No model is configured, and none is chosen silently. Name one as provider:model, such as "
        '"openai:gpt-5-mini" (with OPENAI_API_KEY set) or "ollama:qwen3" (a local server), or give the model id '
        f"with base_url= for any other server.{found}"
    )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)


def _suggestion(name: str, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(name.lower(), list(names), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""
