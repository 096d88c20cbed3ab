"""From the text of any program's MCP configuration file to typed servers. Pure."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any, cast

from toolnexus.sources.mcp import _hosts, _paths
from toolnexus.sources.mcp._entries import read_entry
from toolnexus.sources.mcp._expansion import ReadFile, Variables
from toolnexus.sources.mcp._text import Table, decoded, parsed
from toolnexus.sources.mcp._values import Refused
from toolnexus.sources.mcp.config import MCPConfig, MCPEntryError, MCPInput, MCPServer, MCPWarning


def parse_mcp_config(
    given: str | bytes | Mapping[str, Any],
    *,
    source: str = "mcp.json",
    env: Mapping[str, str] | None = None,
    home: str | None = None,
    workspace: str | None = None,
    platform: str = sys.platform,
    inputs: Mapping[str, str] | None = None,
    read_file: ReadFile | None = None,
) -> MCPConfig:
    """Read an MCP configuration, whichever program it was written for. One wrong entry never costs the others.

    Args:
        given: What the file holds, or what has been read from it.
        source: The file's path, or its name. It decides what differs between programs, such as TOML, `$NAME` and the
            unit of a timeout.
        env: The environment that `${NAME}` and the like are looked up in. None: an empty one.
        home: The home folder, for `~` and `${userHome}`. None: it is not known.
        workspace: The project's folder, for `${workspaceFolder}` and relative paths. None: there is none.
        platform: How paths are written: as `sys.platform` says it, or `windows`.
        inputs: Answers to the questions of the file, by id. What is not answered takes its default.
        read_file: Gives the text of the file at an absolute path, for `${file:…}` and `envFile`. None: none is read.

    Raises:
        MCPConfigError: The file as a whole cannot be read. It names the line and column.
    """
    text = decoded(given, source) if isinstance(given, bytes) else given
    values = parsed(text, source) if isinstance(text, str) else text
    found = _hosts.server_map(values, source)
    host = _hosts.host_of(source)
    windows = _paths.is_windows(platform)
    questions = tuple(_inputs(found.inputs))
    defaults = {question.id: question.default for question in questions if question.default is not None}
    variables = Variables(
        env=env or {},
        inputs={**defaults, **(inputs or {})},
        home=home,
        workspace=workspace,
        beside=_paths.folder_of(source, windows=windows),
        windows=windows,
        bare=host.bare_variables and found.path == ("mcpServers",),
        read_file=read_file,
    )
    servers: dict[str, MCPServer] = {}
    errors: dict[str, MCPEntryError] = {}
    warnings = list(_twice(values, found))
    for name, entry in found.entries.items():
        try:
            server, noticed = read_entry(
                name, entry, host=host, variables=variables, off=found.is_off(name), timeout=found.timeout
            )
        except Refused as refused:
            errors[name] = MCPEntryError(refused.kind, str(refused))
        else:
            servers[name] = server
            warnings += noticed
    return MCPConfig(servers=servers, errors=errors, warnings=tuple(warnings), inputs=questions)


def _inputs(given: object) -> Iterator[MCPInput]:
    for each in cast("list[object]", given) if isinstance(given, list) else ():
        if not isinstance(each, Mapping):
            continue
        question = cast("Mapping[str, object]", each)
        name, default, options = question.get("id"), question.get("default"), question.get("options")
        if isinstance(name, str):
            yield MCPInput(
                id=name,
                kind=str(question.get("type", "promptString")),
                description=str(question.get("description", "")),
                password=question.get("password") is True,
                options=tuple(_options(options)),
                default=default if isinstance(default, str) else None,
            )


def _options(given: object) -> Iterator[str]:
    for each in cast("list[object]", given) if isinstance(given, list) else ():
        value = cast("Mapping[str, object]", each).get("value") if isinstance(each, Mapping) else each
        if isinstance(value, str):
            yield value


def _twice(values: Mapping[str, Any], found: _hosts.ServerMap) -> Iterator[MCPWarning]:
    """Warnings of names and keys that stand twice in the same place, where it matters."""
    for name in getattr(values, "duplicates", ()):
        if name in found.path:
            yield MCPWarning(None, name, f"{name} stands more than once; the last one holds.")
    for name in getattr(found.entries, "duplicates", ()):
        yield MCPWarning(name, None, f"The server {name!r} stands more than once; the last one holds.")
    for name, entry in found.entries.items():
        if isinstance(entry, Table):
            for key in entry.duplicates:
                yield MCPWarning(name, key, f"{key} of the server {name!r} stands more than once; the last one holds.")
