"""Adds a server to the text of an MCP configuration file and leaves all else in it as it is, comments too. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from toolnexus.errors import ConfigurationError, MissingExtra
from toolnexus.sources.mcp import _hosts
from toolnexus.sources.mcp._text import is_toml, parsed, plain_json, without_comments

_BLANKS = re.compile(r"[ \t\r\n]*")
_INDENT = re.compile(r"^[ \t]+(?=\")", re.MULTILINE)
_DECODER = json.JSONDecoder()


def add_server(
    text: str, name: str, entry: Mapping[str, Any], *, source: str = "mcp.json", replace: bool = False
) -> str:
    """The text of a configuration file with one server more.

    Args:
        text: What the file holds. Empty: there is none yet.
        name: The server's name.
        entry: The server, as the program of the file writes it, such as `{"command": "npx", "args": ["-y", "…"]}`.
        source: The file's path, or its name; it decides whether it is TOML, and which key holds the servers.
        replace: Whether a server of this name that is there gives way.

    Raises:
        MCPConfigError: The text cannot be read.
        ConfigurationError: A server of this name is there, or the entry cannot be written.
        MissingExtra: A TOML file is edited without the extra `cli`.
    """
    values = parsed(text, source)
    found = _hosts.server_map(values, source)
    if name in found.entries and not replace:
        raise ConfigurationError(f"{source} already has a server {name!r}. Choose another name, or replace it.")
    path = found.path or (() if found.entries else (_hosts.host_of(source).key,))
    try:
        wanted = json.loads(json.dumps(entry, allow_nan=False))
    except (TypeError, ValueError):
        raise ConfigurationError(f"The server {name!r} holds something that no configuration file can.") from None
    changed = (_in_toml if is_toml(source) else _in_json)(text, path, name, wanted)
    if dict(_hosts.server_map(parsed(changed, source), source).entries) != {**found.entries, name: wanted}:
        raise ConfigurationError(f"{source} is written in a way that cannot be edited safely. Add {name!r} by hand.")
    return changed


def _in_toml(text: str, path: tuple[str, ...], name: str, entry: Mapping[str, Any]) -> str:
    try:
        import tomlkit
    except ImportError as exc:
        raise MissingExtra("Edits of TOML files", extra="cli") from exc
    document: Any = tomlkit.parse(text.removeprefix("\ufeff"))
    place = document
    for key in path:
        if key not in place:
            place[key] = tomlkit.table(is_super_table=True)
        place = place[key]
    try:
        place[name] = entry
    except ValueError:
        raise ConfigurationError(f"The server {name!r} holds something that TOML cannot, such as null.") from None
    return tomlkit.dumps(document)


def _in_json(text: str, path: tuple[str, ...], name: str, entry: object) -> str:
    mark = "\ufeff" if text.startswith("\ufeff") else ""
    text = text.removeprefix("\ufeff")
    if not plain_json(text).strip():
        text = f"{text.rstrip()}\n{{}}\n".lstrip()
    editor = _Editor(text)
    at = editor.begin
    for depth, key in enumerate(path):
        inner = editor.member(at, key)
        if inner is None or editor.plain[inner.value] != "{":  # not there, or null
            value: object = {name: entry}
            for outer in reversed(path[depth + 1 :]):
                value = {outer: value}
            return mark + editor.with_member(at, key, value)
        at = inner.value
    return mark + editor.with_member(at, name, entry)


@dataclass(frozen=True, slots=True)
class _Member:
    """Where a member of an object stands: its key and its value from the first to behind the last character."""

    name: str
    key: int
    value: int
    end: int


class _Editor:
    """A JSON text with comments, and where things stand in it.

    Attributes:
        plain: The text with blanks for comments and trailing commas.
        begin: Where its outermost object begins.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self.plain = plain_json(text)
        self.begin = self._after_blanks(0)
        self._newline = "\r\n" if "\r\n" in text else "\n"
        indent = _INDENT.search(self.plain)
        self._unit = indent[0] if indent else "  "

    def member(self, at: int, name: str) -> _Member | None:
        """The member of a name in the object that begins at a place, the last one, which holds."""
        members, _ = self._members(at)
        return next((each for each in reversed(members) if each.name == name), None)

    def with_member(self, at: int, name: str, value: object) -> str:
        """The text with a member in the object that begins at a place: in place of one of its name, or at the end."""
        members, close = self._members(at)
        text = self._text
        if (there := self.member(at, name)) is not None:
            written = self._written(value, self._line_indent(there.key))
            return text[: there.value] + written + text[there.end :]
        last = members[-1].end if members else at + 1
        comma = "," in without_comments(text)[last:close]
        if members and "\n" not in text[at:close]:
            return f"{text[:last]}, {json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}{text[last:]}"
        outer = self._line_indent(at)
        indent = self._line_indent(members[0].key) if members else outer + self._unit
        member = f"{json.dumps(name, ensure_ascii=False)}: {self._written(value, indent)}"
        end = max(last, len(text[:close].rstrip()))  # behind the comments that follow the last member
        tail = text[end:] if "\n" in text[end:close] else self._newline + outer + text[close:]
        before = text[:last] + ("," if members and not comma else "") + text[last:end]
        return f"{before}{self._newline}{indent}{member}{',' if comma else ''}{tail}"

    def _members(self, at: int) -> tuple[list[_Member], int]:
        """The members of the object that begins at a place, and where it is closed."""
        members: list[_Member] = []
        place = self._after_blanks(at + 1)
        while self.plain[place] != "}":
            name, end = _DECODER.raw_decode(self.plain, place)
            value = self._after_blanks(self._after_blanks(end) + 1)
            _, end = _DECODER.raw_decode(self.plain, value)
            members.append(_Member(name, place, value, end))
            place = self._after_blanks(end)
            if self.plain[place] == ",":
                place = self._after_blanks(place + 1)
        return members, place

    def _after_blanks(self, at: int) -> int:
        match = _BLANKS.match(self.plain, at)
        return match.end() if match else at

    def _line_indent(self, at: int) -> str:
        """The blanks at the beginning of a line."""
        line = self._text[self._text.rfind("\n", 0, at) + 1 : at]
        return line[: len(line) - len(line.lstrip(" \t"))]

    def _written(self, value: object, indent: str) -> str:
        lines = json.dumps(value, ensure_ascii=False, indent=self._unit).split("\n")
        return (self._newline + indent).join(lines)
