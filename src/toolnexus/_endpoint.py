"""A model's name and its options become one `Endpoint`: the URL to call and what to send with it. Pure."""

from __future__ import annotations

import difflib
import ipaddress
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from urllib.parse import SplitResult, quote, urlsplit

from toolnexus import __version__, _redaction
from toolnexus.dialects import DIALECTS, Target, dialect
from toolnexus.errors import ConfigurationError, MissingKey, NoModelConfigured
from toolnexus.providers import PROVIDERS, THIS_MACHINE, UNKNOWN, Provider

_DEFAULT_STYLE = "openai"
_DEFAULT_PATHS = {"openai": "/v1", "gemini": "/v1beta"}
"""Paths of base URLs that have none, at hosts without a row."""

ENDINGS = {"/chat/completions": "openai", "/v1/messages": "anthropic", "/responses": "responses"}
"""Ends of URLs that tell the style: the paths of those that do not name a model in it."""

_DEFAULT_PORTS = {"http": 80, "https": 443}
_URL = re.compile("https?://", re.IGNORECASE)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where a client sends its requests. Its repr shows no secret.

    Attributes:
        url: The whole URL of a request, query included; `{model}` in it stands for the model's id.
        stream_url: The same for requests whose answer is streamed.
        models_url: Where a GET with the same headers lists the models. None: they are not listed.
        probe_url: Where a GET without a key says that the server is up. None: nowhere.
        headers: What every request carries, names in lower case.
        model: The model id that is asked when a call names none.
        secrets: What must not be shown to anybody.
        key_from: What the key was taken from: a variable, `api_key=` or `headers=`. Empty: requests carry none.
        address_from: What can move it elsewhere: a variable, or `base_url=`.
    """

    url: str = field(repr=False)
    stream_url: str = field(repr=False)
    models_url: str | None = field(repr=False)
    probe_url: str | None = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    target: Target
    model: str
    secrets: tuple[str, ...] = field(repr=False)
    key_from: str
    address_from: str

    def url_of(self, model: str, *, stream: bool) -> str:
        """The URL of a request to a model."""
        url = self.stream_url if stream else self.url
        if _MODEL not in url:
            return url
        # Lists of models name them by their path.
        return url.replace(_MODEL, quote(model.removeprefix("models/"), safe="/:@"))

    @property
    def shown_url(self) -> str:
        """The URL without its query, for people."""
        return self.url_of(self.model, stream=False).partition("?")[0]

    @property
    def whose_key(self) -> str:
        """What is said when a key is refused: where it came from, or that there was none."""
        if self.key_from:
            return f"The key is that of {self.key_from}."
        return f"No key was sent. {_ways(self.target.provider)}"

    @property
    def way_there(self) -> str:
        """What is said when nothing answers: how the server is started, or what may be between."""
        if is_local(self.url):
            start = self.target.provider.start
            way = f"Start it with `{start}`" if start else "Start the server"
            return f"{way}, or say with {self.address_from} where it is."
        return f"Check the network, whether it wants a proxy (HTTPS_PROXY), and {self.address_from}."

    def redact(self, text: str) -> str:
        """Replace the secrets in `text`, also where they are percent-encoded, JSON-escaped or in base64."""
        return _redaction.redact(text, self.secrets)


def resolve(
    model: str | None,
    *,
    base_url: str | None = None,
    style: str | None = None,
    api_key: str | None = None,
    headers: Mapping[str, str] | None = None,
    environ: Mapping[str, str],
    key_required: bool = True,
    providers: Mapping[str, Provider] = PROVIDERS,
) -> Endpoint:
    """Find the endpoint that the options of a client mean.

    Args:
        model: Without `base_url`, `name:model` with the name of a row of `providers`, or `http://host#model`: a base
            URL and a model id in one. With it, a model id, exactly as it is.
        base_url: None: the row's.
        style: None: the row's best one that is built; `openai` for hosts without a row.
        api_key: None: from the environment, but only from a variable of the row that the host belongs to. Empty: none.
        headers: Sent as well; they replace ours of the same name.
        key_required: Whether a missing key is an error where the provider wants one. A transport that signs requests
            itself needs none.
        providers: The provider table. Where two rows have one host, the last one counts.

    Raises:
        NoModelConfigured: No model is named.
        MissingKey: The provider wants a key and there is none.
        ConfigurationError: An option cannot be used. No message shows a key, a header's value or a query.
    """
    if model is None or not model.strip():
        raise NoModelConfigured(_no_model(environ, providers))
    if style is not None:
        _check_style(style)
    given = checked_headers(headers or {})
    signed = not _AUTH_HEADERS.isdisjoint(given)
    if base_url is None and _URL.match(model):
        base_url, _, model = model.partition("#")
        if not model.strip():
            raise NoModelConfigured("No model is named after the base URL. Write it as http://host#MODEL.")
    if base_url is not None:
        base = parsed_url(base_url, "base_url")
        row = provider_for(_origin(base), providers)
        wire = style or _style_at(base, row) or _best_style(row)
    else:
        row, model = _named(model, style, providers)
        wire = style or _best_style(row)
        try:
            base = _home(row, wire, environ)
        except ConfigurationError as error:
            if key_required and row.key_required and not (signed or api_key or key_variable(row, environ)):
                error.args = (f"{error} It wants an API key as well. {_ways(row)}",)  # both at once
            raise
        if style is None and not _is_at(row, _origin(base)):
            # Somebody's gateway. All of them speak the oldest style, few the newest.
            wire = _style_at(base, row) or (_DEFAULT_STYLE if _DEFAULT_STYLE in row.styles else wire)

    key, key_from, key_headers = _credentials(row, wire, api_key, environ)
    if row.key_required and key_required and not key and not signed:
        raise MissingKey(f"{row.name} wants an API key. {_ways(row)}")
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
        models_url=_models_url(base, row, wire),
        probe_url=f"{_origin(base)}{row.probe}" if row.probe else None,
        headers=MappingProxyType(sent),
        target=Target(style=wire, host=_origin(base), provider=row),
        model=model,
        secrets=(key, *_redaction.secrets_in(sent, base.query)),
        key_from="headers=" if signed and not key_headers else key_from,
        address_from=(base_url is None and row.base_url_variable) or "base_url=",
    )


def is_local(url: str) -> bool:
    """Whether an address is on this machine."""
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def key_variable(row: Provider, environ: Mapping[str, str]) -> str | None:
    """The variable that a provider's key is taken from. None: none is set."""
    return next((name for name in row.keys if environ.get(name, "").strip()), None)


def _ways(row: Provider) -> str:
    """How a key is given."""
    return f"Set {' or '.join(row.keys)}, or give api_key=." if row.keys else "Give api_key=."


def provider_for(origin: str, providers: Mapping[str, Provider] = PROVIDERS) -> Provider:
    """The table's row for an origin such as `https://api.x.ai`, the last of several; `UNKNOWN` for others."""
    return next((row for row in reversed([*providers.values()]) if _is_at(row, origin)), UNKNOWN)


def _is_at(row: Provider, origin: str) -> bool:
    wanted = _comparable(urlsplit(origin))
    return any(
        _matches(url, wanted) if _FIELD.search(url) else _comparable(urlsplit(url)) == wanted
        for url in (row.base_url, *row.style_urls.values())
    )


def _comparable(parts: SplitResult) -> tuple[str, str, int | None]:
    host = parts.hostname or ""
    return parts.scheme, "localhost" if host in THIS_MACHINE else host, parts.port or _DEFAULT_PORTS.get(parts.scheme)


def _matches(template: str, wanted: tuple[str, str, int | None]) -> bool:
    """Whether an origin is one of those that a base URL with fields stands for."""
    scheme, _, rest = template.partition("://")
    host = _LABEL.join(re.escape(part) for part in _FIELD.split(rest.partition("/")[0])[::2])
    return (wanted[0], wanted[2]) == (scheme, _DEFAULT_PORTS[scheme]) and re.fullmatch(host, wanted[1]) is not None


def _named(model: str, style: str | None, providers: Mapping[str, Provider]) -> tuple[Provider, str]:
    """The row and the model id of `name:model`, or of a model at the provider that a style is named after."""
    name, colon, model_id = model.partition(":")
    if not colon:
        if style is not None and style in providers:
            return providers[style], model
        raise ConfigurationError(
            f"Where is the model {model!r}? Write provider:{model} with one of {_listed(providers)}, or give base_url=."
        )
    row = providers.get(name)
    if row is None:
        raise ConfigurationError(
            f"There is no provider {name!r}.{suggestion(name, providers)} The table has {_listed(providers)}. "
            f"If {model!r} is a model id, give base_url= as well, or write its provider before it."
        )
    if not model_id.strip():
        raise NoModelConfigured(f"No model is named after {model!r}. Write {name}:MODEL.")
    return row, model_id


def _check_style(style: str) -> None:
    if style in DIALECTS:
        return
    raise ConfigurationError(
        f"There is no style {style!r}.{suggestion(style, DIALECTS)} Choose one of {_listed(DIALECTS)}."
    )


def _style_at(base: SplitResult, row: Provider) -> str | None:
    """The style whose own path the URL has, or that lives at this base URL and not at the row's other ones."""
    path = _squeezed(base.path)
    for ending, style in ENDINGS.items():
        if path.endswith(ending) and (not row.name or style in row.styles):
            return style
    for style, url in row.style_urls.items():
        if style in DIALECTS and f"{path}/".startswith(f"{urlsplit(url).path}/"):
            return style
    return None


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
        models_path=row.models_path if row.name else owner.models_path,
    )


def _home(row: Provider, style: str, environ: Mapping[str, str]) -> SplitResult:
    """The base URL of a row: from its own variable, or as the table has it."""
    variable = row.base_url_variable
    if variable is not None and (given := environ.get(variable, "").strip()):
        if _FIELD.findall(row.base_url) and not row.url_fields and re.fullmatch(_LABEL, given.lower()):
            given = _FIELD.sub(given.lower(), row.base_url)  # not the address but what is special in it
        return parsed_url(_with_scheme(given, row), variable)

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

    return parsed_url(_FIELD.sub(value, row.style_urls.get(style, row.base_url)), f"The base URL of {row.name}")


def _with_scheme(address: str, row: Provider) -> str:
    """An address as servers take it to listen on (`0.0.0.0:11434`), as a URL to call."""
    if "://" in address:
        return address
    home = urlsplit(row.base_url)
    match = _LISTENING.fullmatch(address)
    if match is None:
        return f"{home.scheme}://{address}"  # to be refused, or a path that says more
    host, port = match.groups()
    # "Every interface" is no address to connect to; of a server elsewhere it is no address at all.
    if row.local and host in ("", "0.0.0.0", "[::]"):  # noqa: S104
        host = home.hostname
    return f"{home.scheme}://{host}{port or (f':{home.port}' if home.port else '')}"


def _port(parts: SplitResult) -> int | None:
    with suppress(ValueError):  # it shows what is wrong, which may be a key
        return parts.port
    raise ConfigurationError("The port of the base URL is no number from 0 to 65535.")


def parsed_url(url: str, where: str) -> SplitResult:
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
    """The URL to call: the base and the wire's own path."""
    wire = dialect(style)
    ending, _, asked = (wire.stream_path if stream else wire.path).partition("?")
    return _joined(base, _base_path(base, row, style), ending, style, asked)


def _models_url(base: SplitResult, row: Provider, style: str) -> str | None:
    return _joined(base, _base_path(base, row, style), row.models_path, style) if row.models_path else None


def _base_path(base: SplitResult, row: Provider, style: str) -> str:
    """The path that was given without the wire's own, or the row's."""
    path = _squeezed(base.path)
    if not path:
        home = row.style_urls.get(style, row.base_url)
        path = _squeezed(urlsplit(_FIELD.sub("x", home)).path) if row.name else _DEFAULT_PATHS.get(style, "")
    wire = dialect(style)
    for known in (wire.path, wire.stream_path):
        path = re.sub(f"{re.escape(known.partition('?')[0]).replace(re.escape(_MODEL), '[^/]+')}$", "", path)
    if _MODEL in wire.path:
        path = path.removesuffix(wire.path.partition(f"/{_MODEL}")[0])
    return path


def _joined(base: SplitResult, path: str, ending: str, style: str, asked: str = "") -> str:
    path += ending.removeprefix("/v1") if path.endswith("/v1") else ending
    framing = dialect(style).stream_path.partition("?")[2]
    given = (part for part in base.query.split("&") if part != framing)
    query = "&".join(part for part in (*given, asked) if part)
    return base._replace(path=path, netloc=base.netloc.lower(), query=query, fragment="").geturl()


def _squeezed(path: str) -> str:
    return re.sub("/+", "/", path).rstrip("/")


def _credentials(
    row: Provider, style: str, api_key: str | None, environ: Mapping[str, str]
) -> tuple[str, str, dict[str, str]]:
    """The key, empty if there is none, what it was taken from, and the header that carries it."""
    key, where = api_key, "api_key="
    if key is None:
        where = key_variable(row, environ) or ""
        key = environ.get(where, "")
    if not isinstance(key, str):  # pyright: ignore[reportUnnecessaryIsInstance] - callers without a type checker
        raise ConfigurationError(f"api_key is of the type {type(key).__name__}; give a str.")
    key = key.strip()
    if not key:
        return "", "", {}
    if _KEY.fullmatch(key) is None:
        raise ConfigurationError(f"The key in {where} has a space, a control or a non-ASCII character. Copy it again.")
    # A host without a row expects what the owner of its wire does.
    auth = row.style_auth.get(style, row.auth) if row.name else PROVIDERS.get(style, row).auth
    if auth == "bearer" or where in row.bearer_keys:
        return key, where, {"authorization": f"Bearer {key}"}
    return key, where, {auth: key}


def _from_environment(row: Provider, environ: Mapping[str, str]) -> dict[str, str]:
    found = {name: environ.get(variable, "").strip() for name, variable in row.header_variables.items()}
    return checked_headers({name: value for name, value in found.items() if value})


def checked_headers(headers: Mapping[str, str]) -> dict[str, str]:
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


def _no_model(environ: Mapping[str, str], providers: Mapping[str, Provider]) -> str:
    keyed = [row for row in providers.values() if any(environ.get(name, "").strip() for name in row.keys)]
    found = f" A key is set for {_listed(row.name for row in keyed)}." if keyed else ""
    return (
        "No model is configured, and none is chosen silently. Name one as provider:model, such as "
        '"openai:gpt-5-mini" (with OPENAI_API_KEY set) or "ollama:qwen3" (a local server), or give the model id '
        f"with base_url= for any other server.{found}"
    )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)


def suggestion(name: str, names: Iterable[str]) -> str:
    """A sentence that names the closest of `names`, with a space before it; empty if none is close."""
    close = difflib.get_close_matches(name.lower(), list(names), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""
