"""From one entry of a configuration file to a server, or the reason why there is none. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from toolnexus._endpoint import suggestion
from toolnexus.sources.mcp import _env_file, _oauth, _timeouts
from toolnexus.sources.mcp._expansion import Unresolved, Variables
from toolnexus.sources.mcp._text import kind_of
from toolnexus.sources.mcp._transports import TYPES, URLS, transport
from toolnexus.sources.mcp._values import Refused, Values
from toolnexus.sources.mcp.config import MCPServer, MCPWarning, ToolFilter

if TYPE_CHECKING:
    from toolnexus.sources.mcp._hosts import Host
    from toolnexus.sources.mcp.config import Transport

_INCLUDE = ("includeTools", "enabledTools", "enabled_tools", "allowedTools")
_EXCLUDE = ("excludeTools", "disabledTools", "disabled_tools")
_APPROVED = ("autoApprove", "alwaysAllow")
_ENV = ("environment", "env")
_HEADERS = ("http_headers", "headers")
_CWD = ("cwd", "working_directory", "workingDirectory")

_READ = frozenset(
    {
        *("command", "args", "env_vars", "envFile", "tools", "trust", "enabled", "disabled"),
        *("env_http_headers", "bearer_token", "bearer_token_env_var"),
        *(*TYPES, *URLS, *_timeouts.REQUEST, *_timeouts.STARTUP, *_oauth.KEYS),
        *(*_INCLUDE, *_EXCLUDE, *_APPROVED, *_ENV, *_HEADERS, *_CWD),
    }
)
_HARMLESS = frozenset(
    {
        *("description", "name", "title", "id", "icon", "version", "metadata", "note", "comment", "source", "settings"),
        *("dev", "watchPaths", "gallery", "extensionName", "start_on_launch", "alwaysLoad", "codemode", "protocol"),
        *("required", "supports_parallel_tool_calls", "experimental_environment", "sandbox"),
    }
)
"""Keys that promise nothing which a reader would have to keep."""

_NOT_KEPT: Mapping[str, str] = {
    "sandboxEnabled": "the server runs without a sandbox here.",
    "headersHelper": "the command is not run, so the headers that it would give are missing.",
    "authProviderType": "this way to sign in is not known here.",
    "default_tools_approval_mode": "it is not followed; the host decides about approvals.",
    "tcp": "this transport is not known here.",
}
"""Keys that promise something, and what is true instead."""

# RFC 9110, 5.1 and 5.5: a name is a token; a value has no control characters.
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_NOT_IN_A_URL = re.compile(r"[\x00-\x20\x7f]")
_WHOLE_COMMAND_LINE = re.compile(r"[^\s/\\]+\s+\S")


def read_entry(
    name: str, given: object, *, host: Host, variables: Variables, off: bool, timeout: object
) -> tuple[MCPServer, list[MCPWarning]]:
    """A server from its entry, and what of the entry was not followed.

    Args:
        off: Whether something outside of the entry switches it off.
        timeout: What holds if the entry has no timeouts, as written.

    Raises:
        Refused: It cannot be used.
    """
    if not name.strip():
        raise Refused("invalid_entry", "A server needs a name.")
    if not isinstance(given, Mapping):
        raise Refused(
            "invalid_entry", f"The server {name!r} is {kind_of(given)}; it has to be an object with a command or a url."
        )
    values = Values(name, _flat(cast("Mapping[str, Any]", given)), variables)
    if off or _is_off(values):
        return MCPServer(name=name, transport=_transport_if_clear(values, host), enabled=False), []
    try:
        return _server(values, host, timeout), values.warnings
    except Unresolved as unresolved:
        raise Refused("unresolved_variable", f"The server {name!r}: {unresolved}") from None


def _flat(given: Mapping[str, Any]) -> dict[str, Any]:
    """An entry without the objects that some programs put around its parts."""
    flat = dict(given)
    if isinstance(nested := flat.get("transport"), Mapping):
        del flat["transport"]
        flat = {**cast("Mapping[str, Any]", nested), **flat}
    if isinstance(nested := flat.get("command"), Mapping):  # as older versions of Zed have it
        command = dict(cast("Mapping[str, Any]", nested))
        program = command.pop("path", command.get("command"))
        flat = {**flat, **command, "command": program}
    return flat


def _is_off(values: Values) -> bool:
    return values.flag("disabled") is True or values.flag("enabled") is False


def _transport_if_clear(values: Values, host: Host) -> Transport | None:
    try:
        return transport(values, streamable_only=host.streamable_only)
    except Refused:
        return None


def _server(values: Values, host: Host, timeout: object) -> MCPServer:
    kind = transport(values, streamable_only=host.streamable_only)
    trust = values.flag("trust") is True
    request, startup = _timeouts.timeouts(values, seconds=host.seconds, default=timeout)
    server = MCPServer(
        name=values.name,
        transport=kind,
        oauth=_oauth.oauth(values),
        timeout=request,
        startup_timeout=startup,
        tools=_filter(values),
        auto_approve=("*",) if trust else _approved(values),
        trust=trust,
        **(_local(values) if kind == "stdio" else _remote(values)),
    )
    _notice(values)
    return server


def _local(values: Values) -> dict[str, Any]:
    """What a server has that is a program."""
    given = values.given["command"]
    if isinstance(given, str):
        command, first = given, []
    elif isinstance(given, list | tuple):
        command, *first = values.arguments("command")
    else:
        raise values.invalid("command", "a text, the program's name")
    args = [*first, *values.arguments("args")]
    if not args and _WHOLE_COMMAND_LINE.match(command):
        values.warn("command", "it holds a blank. It is the name of one program; arguments belong into args.")
    program = values.variables.expanded(command)
    if not program.strip():
        raise Refused("no_transport", f"The command of the server {values.name!r} is empty.")
    place = values.first(_CWD)
    folder = None if place is None else values.text(place)
    return {
        "command": values.variables.with_home(program),
        "args": tuple(values.variables.expanded(each) for each in args),
        "env": _env(values),
        "cwd": None if folder is None else values.variables.path(folder),
    }


def _env(values: Values) -> dict[str, str]:
    env: dict[str, str] = {}
    for each in values.items("env_vars"):  # names of variables that are passed on, as in Codex
        variable = cast("Mapping[str, object]", each).get("name") if isinstance(each, Mapping) else each
        if not isinstance(variable, str):
            raise values.invalid("env_vars", "a list of names")
        if (found := values.variables.variable(variable)) is not None:
            env[variable] = found
    if (path := values.text("envFile")) is not None:
        env |= _env_file.read(_env_file_text(values, path))
    for key in _ENV:
        for variable, value in values.texts(key).items():
            if not variable or "=" in variable or "\0" in variable or "\0" in (value or ""):
                raise values.invalid(key, "names without = and texts, both without NUL")
            if value is None:  # VS Code takes a variable out with null
                env.pop(variable, None)
            else:
                env[variable] = value
    return env


def _env_file_text(values: Values, path: str) -> str:
    place = values.variables.path(path)
    try:
        return values.variables.file(place, what=f"The envFile {place!r}")
    except Unresolved as unresolved:
        raise Refused("invalid_entry", f"The server {values.name!r}: {unresolved}") from None


def _remote(values: Values) -> dict[str, Any]:
    """What a server has that is somewhere else."""
    used, *others = filter(values.has, URLS)
    for key in others:
        if values.given[key] != values.given[used]:
            values.warn(key, f"it is not used, because {used} is there.")
    url = values.variables.expanded(values.text(used) or "").strip()
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or _NOT_IN_A_URL.search(url):
        raise values.invalid(used, "an address that begins with http:// or https://")
    return {"url": url, "headers": _headers(values)}


def _headers(values: Values) -> dict[str, str]:
    headers: dict[str, str] = {}
    for key in _HEADERS:
        headers |= {name: value for name, value in values.texts(key).items() if value is not None}
    for name, variable in values.mapping("env_http_headers").items():
        headers[name] = _from_environment(values, "env_http_headers", variable)
    token = values.text("bearer_token")
    if values.has("bearer_token_env_var"):
        token = _from_environment(values, "bearer_token_env_var", values.given["bearer_token_env_var"])
    elif token is not None:
        token = values.variables.expanded(token)
    if token is not None:
        headers = {name: value for name, value in headers.items() if name.lower() != "authorization"}
        headers["Authorization"] = f"Bearer {token}"
    for name, value in headers.items():
        if _HEADER_NAME.fullmatch(name) is None:
            raise Refused("invalid_entry", f"{name!r:.60} of the server {values.name!r} cannot be a header's name.")
        if _CONTROL.search(value):
            raise Refused("invalid_entry", f"The header {name} of the server {values.name!r} holds a line break.")
    return headers


def _from_environment(values: Values, key: str, variable: object) -> str:
    if not isinstance(variable, str):
        raise values.invalid(key, "the name of an environment variable")
    value = values.variables.variable(variable)
    if value is None:
        raise Unresolved(f"The variable {variable}, which {key} names, is not set. Set it.")
    return value


def _filter(values: Values) -> ToolFilter:
    include = [key for key in _INCLUDE if values.given.get(key) is not None]
    match values.given.get("tools"):
        case list() | tuple():
            include.append("tools")
        case None:
            pass
        case _:
            values.warn("tools", "settings of single tools are not followed.")
    named = values.names(*include)
    return ToolFilter(named if include and "*" not in named else None, values.names(*_EXCLUDE))


def _approved(values: Values) -> tuple[str, ...]:
    if any(values.given.get(key) is True for key in _APPROVED):
        return ("*",)
    return values.names(*(key for key in _APPROVED if values.given.get(key) is not False))


def _notice(values: Values) -> None:
    """Warn of keys that promise what is not kept, and of those that nobody knows."""
    for key, value in values.given.items():
        if key in _NOT_KEPT:
            if value not in (None, False):
                values.warn(key, _NOT_KEPT[key])
        elif key not in _READ and key not in _HARMLESS and not key.startswith(("_", "$", "//", "x-")):
            values.warn(key, f"this key is not known.{suggestion(key, sorted(_READ))}")
