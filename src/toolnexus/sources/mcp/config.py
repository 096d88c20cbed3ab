"""What an MCP configuration file says: its servers, what is wrong with entries, what was not followed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

from toolnexus._redaction import redact
from toolnexus.errors import ConfigurationError

Transport: TypeAlias = Literal["stdio", "http", "sse", "auto"]
"""`http` is streamable HTTP; `auto` tries that first, then SSE if the server answers with a status of 4xx."""

EntryErrorKind: TypeAlias = Literal[
    "unresolved_variable", "invalid_args", "conflicting_transport", "no_transport", "invalid_entry"
]

_LONGEST_SHOWN = 20
"""Characters of a segment of a URL's path that is shown; longer ones are often keys."""


class MCPConfigError(ConfigurationError):
    """A whole configuration file cannot be used.

    Attributes:
        source: The file's name.
        line: The line where it goes wrong, from 1. None: it is no matter of one place.
        column: The column there, from 1.
    """

    def __init__(self, why: str, *, source: str, line: int | None = None, column: int | None = None) -> None:
        place = "" if line is None else f", line {line}" if column is None else f", line {line}, column {column}"
        super().__init__(f"The MCP configuration {source}{place}: {why}")
        self.source = source
        self.line = line
        self.column = column


@dataclass(frozen=True, slots=True)
class MCPEntryError:
    """Why one server is missing; the others of the file are there.

    Attributes:
        kind: A stable word for it.
        message: What is wrong, for a person. It holds no value of a variable, header or credential.
    """

    kind: EntryErrorKind
    message: str


@dataclass(frozen=True, slots=True)
class MCPWarning:
    """Something in the file that was not followed, or is likely to be a mistake.

    Attributes:
        server: The entry. None: it is about the file.
        key: The key there. None: it is about all of it.
    """

    server: str | None
    key: str | None
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MCPOAuth:
    """What the file says of a server's OAuth; None where it says nothing.

    Attributes:
        scopes: The scopes to ask for. None: those that the server names.
        callback_port: The port on this machine that the browser comes back to.
    """

    client_id: str | None = field(default=None, repr=False)
    client_secret: str | None = field(default=None, repr=False)
    scopes: tuple[str, ...] | None = field(default=None, repr=False)
    callback_port: int | None = field(default=None, repr=False)
    redirect_uri: str | None = field(default=None, repr=False)
    resource: str | None = field(default=None, repr=False)
    authorization_url: str | None = field(default=None, repr=False)
    token_url: str | None = field(default=None, repr=False)
    auth_server_metadata_url: str | None = field(default=None, repr=False)

    def secrets(self) -> Iterator[str]:
        """The values that nobody may see."""
        for value in (self.client_id, self.client_secret):
            if value:
                yield value


@dataclass(frozen=True, slots=True)
class ToolFilter:
    """Which tools of a server are offered, by the names that the server gives them.

    Attributes:
        include: Only these. None: all.
        exclude: None of these, whatever `include` says.
    """

    include: tuple[str, ...] | None = None
    exclude: tuple[str, ...] = ()

    def allows(self, name: str) -> bool:
        """Whether the tool of this name is offered."""
        return name not in self.exclude and (self.include is None or name in self.include)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class MCPServer:
    """One server, with all variables replaced. Its `repr` shows no value of `env`, `headers` or `oauth`.

    Attributes:
        name: As the file has it; it may hold any character.
        transport: None: the entry is off and does not say.
        command: The program, one name that is never split and never seen by a shell. None: it is a remote server.
        args: What the program gets.
        env: What the file adds to the program's environment.
        cwd: The program's folder. None: the one of the host.
        url: Where a remote server is. None: it is a program.
        headers: What is sent with each request to it.
        oauth: False: never start a sign-in, not even on a 401. None: nothing is said.
        timeout: Seconds for one request. None: the host's own.
        startup_timeout: Seconds until the server has to be ready. None: the host's own.
        tools: Which of its tools are offered.
        auto_approve: Tools that the file wants to run without asking, `*` for all. The host decides.
        trust: Whether the file calls the server trusted. The host decides.
        enabled: False: it is not to be started. Nothing but `name` and `transport` was read then.
    """

    name: str
    transport: Transport | None
    command: str | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    cwd: str | None = None
    url: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    oauth: MCPOAuth | Literal[False] | None = None
    timeout: float | None = None
    startup_timeout: float | None = None
    tools: ToolFilter = ToolFilter()
    auto_approve: tuple[str, ...] = ()
    trust: bool = False
    enabled: bool = True

    @property
    def shown_url(self) -> str | None:
        """The URL without what could be secret in it: user, query, fragment and long segments of its path."""
        return None if self.url is None else self._without_secrets(without_secrets(self.url))

    def secrets(self) -> Iterator[str]:
        """Every value that must not be shown: those of `env`, `headers` and `oauth`."""
        yield from self.env.values()
        for value in self.headers.values():
            yield value
            yield value.partition(" ")[2].strip()  # what follows a scheme such as Bearer
        if self.oauth:
            yield from self.oauth.secrets()

    def __repr__(self) -> str:
        shown: dict[str, object] = {"name": self.name, "transport": self.transport}
        if not self.enabled:
            shown["enabled"] = False
        if self.command is not None:
            shown["command"] = self._without_secrets(self.command)
            shown["args"] = f"<{len(self.args)}>"
        if self.url is not None:
            shown["url"] = self.shown_url
        if self.env:
            shown["env"] = sorted(self.env)
        if self.headers:
            shown["headers"] = sorted(self.headers)
        if self.oauth is not None:
            shown["oauth"] = "<set>" if self.oauth else False
        for name in ("timeout", "startup_timeout"):
            if getattr(self, name) is not None:
                shown[name] = getattr(self, name)
        return f"MCPServer({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    def _without_secrets(self, text: str) -> str:
        return redact(text, self.secrets())


@dataclass(frozen=True, slots=True, kw_only=True)
class MCPInput:
    """A value that the file wants a person to be asked for, once.

    Attributes:
        id: What `${input:id}` calls it.
        kind: `promptString`, `pickString`, or a word that only the editor of the file understands.
        description: The question.
        password: Whether the answer is secret.
        options: What can be chosen. Empty: anything.
        default: The answer if there is none.
    """

    id: str
    kind: str
    description: str = ""
    password: bool = False
    options: tuple[str, ...] = ()
    default: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class MCPConfig:
    """What a configuration file says.

    Attributes:
        servers: By name, in the file's order, those that are off included.
        errors: By name, the entries that cannot be used.
        warnings: What was not followed.
        inputs: What the file wants a person to be asked for.
    """

    servers: Mapping[str, MCPServer]
    errors: Mapping[str, MCPEntryError]
    warnings: tuple[MCPWarning, ...] = ()
    inputs: tuple[MCPInput, ...] = ()


def without_secrets(url: str) -> str:
    """A URL without its user, query and fragment; long segments of its path are cut out. Unreadable ones are hidden."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "…"
    segments = (segment if len(segment) <= _LONGEST_SHOWN else "…" for segment in parts.path.split("/"))
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{'/'.join(segments)}"
