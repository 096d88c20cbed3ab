"""What differs between the programs whose configuration files are read: found out by the file's name. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from toolnexus.sources.mcp.config import MCPConfigError

_MAPS = ("mcpServers", "servers", "context_servers", "mcp_servers", "mcp")
"""The keys that hold the servers, the first of them that is there."""

_NO_SERVERS = frozenset(
    {
        *("$schema", "inputs", "version", "name", "description", "model"),
        *("tools", "builtins", "skills", "skills_dir", "agents", "a2a"),
    }
)
"""Keys beside the servers in a file that has no key around them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The ways of the program that a file belongs to.

    Attributes:
        key: Where it keeps its servers.
        only_there: The file holds other settings, which are never taken for servers.
        bare_variables: `$NAME` is a variable.
        seconds: A `timeout` without a unit is in seconds, not in milliseconds.
        streamable_only: A URL is never tried as SSE.
    """

    key: str = "mcpServers"
    only_there: bool = False
    bare_variables: bool = False
    seconds: bool = False
    streamable_only: bool = False


# Each: what the path's end has to be, with / between names and in small letters.
_HOSTS: tuple[tuple[re.Pattern[str], Host], ...] = (
    (re.compile(r"(^|/)config\.toml$"), Host(key="mcp_servers", only_there=True, streamable_only=True)),
    (re.compile(r"\.toml$"), Host(key="mcp_servers", streamable_only=True)),
    # Gemini CLI, and Qwen Code, which came from it. Claude Code's file of this name has other variables.
    (re.compile(r"(^|/)\.claude/settings(\.local)?\.json$"), Host(only_there=True)),
    (re.compile(r"(^|/)\.vscode/settings\.json$"), Host(key="mcp", only_there=True)),
    (re.compile(r"(^|/)zed/settings\.json$|(^|/)\.zed/settings\.json$"), Host(key="context_servers", only_there=True)),
    (re.compile(r"(^|/)(settings|gemini-extension)\.json$"), Host(only_there=True, bare_variables=True)),
    (re.compile(r"(^|/)(cline_)?mcp_settings\.json$"), Host(seconds=True)),
    (re.compile(r"(^|/)\.(roo|cline|kilocode)/mcp\.json$"), Host(seconds=True)),
    (re.compile(r"(^|/)(opencode|kilo)\.jsonc?$"), Host(key="mcp", only_there=True)),
    (re.compile(r"(^|/)\.claude\.json$|(^|/)claude_desktop_config\.json$"), Host(only_there=True)),
    (re.compile(r"(^|/)\.vscode/mcp\.json$"), Host(key="servers")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerMap:
    """Where the servers of a file stand, and what beside them holds for all of them.

    Attributes:
        path: The keys down to them. Empty: they are at the top of the file.
        entries: The servers as written, by name.
        inputs: What stands beside them as questions to a person, as written.
        timeout: The timeouts of servers that have none, as written.
        excluded: Names of servers that are off.
        allowed: Names of servers that may be on. None: all.
    """

    path: tuple[str, ...]
    entries: Mapping[str, Any]
    inputs: object = None
    timeout: object = None
    excluded: frozenset[str] = frozenset()
    allowed: frozenset[str] | None = None

    def is_off(self, name: str) -> bool:
        """Whether a server is off by what stands beside it."""
        return name in self.excluded or (self.allowed is not None and name not in self.allowed)


def host_of(source: str) -> Host:
    """What to know of the file of this path."""
    path = source.replace("\\", "/").lower()
    return next((host for pattern, host in _HOSTS if pattern.search(path)), Host())


def server_map(values: Mapping[str, Any], source: str) -> ServerMap:
    """Find the servers in what a file holds.

    Raises:
        MCPConfigError: They are no map from names.
    """
    host = host_of(source)
    settings = values.get("mcp")
    for key in _MAPS:
        found = values.get(key)
        if found is None or is_entry(found) or (key == "mcp" and host.bare_variables and not _has_servers(found)):
            continue
        if not isinstance(found, Mapping):
            raise MCPConfigError(f"{key} has to be an object, from names to servers.", source=source)
        entries = cast("Mapping[str, Any]", found)
        if key == "mcp":
            return _in_mcp(entries, values)
        beside = cast("Mapping[str, object]", settings if isinstance(settings, Mapping) else {})
        return ServerMap(
            path=(key,),
            entries=entries,
            inputs=values.get("inputs"),
            excluded=_names(beside.get("excluded")) or frozenset(),
            allowed=_names(beside.get("allowed")),
        )
    if host.only_there or any(key in values and not is_entry(values[key]) for key in _MAPS):
        return ServerMap(path=(host.key,), entries={})
    return ServerMap(path=(), entries=dict(_at_the_top(values)), inputs=values.get("inputs"))


def is_entry(value: object) -> bool:
    """Whether a value looks like one server, and not like a map of them."""
    if not isinstance(value, Mapping):
        return False
    entry = cast("Mapping[str, object]", value)
    return any(isinstance(entry.get(key), str | list | tuple) for key in ("command", "url", "serverUrl", "httpUrl"))


def _has_servers(found: object) -> bool:
    """Whether the `mcp` of a file has its servers one key further down, as in opencode 2 and in VS Code's settings."""
    inner = cast("Mapping[str, object]", found).get("servers") if isinstance(found, Mapping) else None
    return isinstance(inner, Mapping) and not is_entry(cast("object", inner))


def _in_mcp(found: Mapping[str, Any], values: Mapping[str, Any]) -> ServerMap:
    if _has_servers(found):
        return ServerMap(
            path=("mcp", "servers"), entries=found["servers"], inputs=found.get("inputs"), timeout=found.get("timeout")
        )
    entries = {name: entry for name, entry in found.items() if name != "timeout" or is_entry(entry)}
    return ServerMap(path=("mcp",), entries=entries, inputs=values.get("inputs"))


def _names(given: object) -> frozenset[str] | None:
    """The names in a list. None: there is no list."""
    if not isinstance(given, list):
        return None
    return frozenset(name for name in cast("list[object]", given) if isinstance(name, str))


def _at_the_top(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if is_entry(value) or not (name in _NO_SERVERS or name.startswith(("$", "//", "_"))):
            yield name, value
