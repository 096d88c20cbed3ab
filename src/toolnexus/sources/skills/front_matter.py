"""Reads the YAML at the top of a SKILL.md, also where it is not quite YAML.

PyYAML reads it; every scalar stays the text that it is (`1.0`, `yes`), as in the reference validator. Only what it
refuses is looked at again: people write `description: Use it for: this`, and indent with tabs. A reader of our own for
the simple cases would have to agree with YAML on folding, quoting and comments, which is most of YAML.
"""

from __future__ import annotations

import re
from typing import TypeAlias, cast

from toolnexus.errors import MissingExtra

try:
    import yaml
except ImportError as error:
    raise MissingExtra("Skills in files", extra="tools") from error

Field: TypeAlias = "str | list[Field] | dict[str, Field]"

_LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
_MAX_DEPTH = 20
_MAX_VALUES = 5000
"""Values in all, those that an alias repeats counted each time: ten lines can stand for billions."""

_ENTRY = re.compile(r"(?P<before> *(?:- )?)(?P<key>\w[\w .-]*):(?:[ \t]+(?P<value>.*))?")
_NOT_PLAIN = tuple("'\"|>[{&*!#")
"""What begins a value that says itself how it is to be read."""


class BrokenFrontMatter(Exception):
    """It cannot be read. The text says where, and why."""


def read_fields(text: str, *, first_line: int = 1) -> tuple[dict[str, Field], list[str]]:
    """The fields, and what was read leniently.

    Args:
        text: What stands between the two `---`.
        first_line: The number of its first line in the file.

    Raises:
        BrokenFrontMatter: It is not even nearly YAML, or no mapping.
    """
    warnings: list[str] = []
    try:
        root = _parsed(text)
    except yaml.YAMLError as error:
        told = _told(error, first_line)
        try:
            root = _parsed(_repaired(text))
        except yaml.YAMLError:
            raise BrokenFrontMatter(f"The front matter is not YAML: {told}.") from error
        warnings.append(
            f"The front matter is not YAML, and was read leniently: {told}. Quote values that have a colon."
        )
    if root is None:
        return {}, warnings
    if not isinstance(root, yaml.MappingNode):
        raise BrokenFrontMatter("The front matter does not consist of `key: value` lines.")
    return _Values(warnings).mapping(root, 0), warnings


def _parsed(text: str) -> yaml.Node | None:
    try:
        return cast("yaml.Node | None", yaml.compose(text, Loader=_LOADER))  # pyright: ignore[reportUnknownMemberType]
    except RecursionError:
        raise BrokenFrontMatter("The front matter is nested too deeply.") from None


def _told(error: yaml.YAMLError, first_line: int) -> str:
    if not isinstance(error, yaml.MarkedYAMLError):
        return str(error).partition("\n")[0]
    mark = error.problem_mark or error.context_mark
    where = f"line {first_line + mark.line}: " if mark else ""
    return f"{where}{error.problem or error.context}"


class _Values:
    """From nodes to values."""

    def __init__(self, warnings: list[str]) -> None:
        self._warnings = warnings
        self._left = _MAX_VALUES

    def mapping(self, node: yaml.MappingNode, depth: int) -> dict[str, Field]:
        found: dict[str, Field] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise BrokenFrontMatter("The front matter has a key that is not a text.")
            if key.value in found:
                self._warnings.append(f"The key {key.value!r} is there more than once; the last one counts.")
            found[key.value] = self._value(value, depth + 1)
        return found

    def _value(self, node: yaml.Node, depth: int) -> Field:
        self._left -= 1
        if depth > _MAX_DEPTH or self._left < 0:
            raise BrokenFrontMatter("The front matter is nested too deeply, or holds too much.")
        if isinstance(node, yaml.MappingNode):
            return self.mapping(node, depth)
        if isinstance(node, yaml.SequenceNode):
            return [self._value(item, depth + 1) for item in node.value]
        text: str = node.value
        return text


def _repaired(text: str) -> str:
    """The same with spaces for tabs that indent or separate, and with plain values quoted that YAML cannot take."""
    lines = [_without_tabs(line) for line in text.split("\n")]
    repaired: list[str] = []
    at = 0
    while at < len(lines):
        entry = _ENTRY.fullmatch(lines[at])
        end = at + 1
        if entry is None or not entry["value"]:
            repaired.append(lines[at])
        else:
            while end < len(lines) and _belongs(lines[end], to=entry):
                end += 1
            repaired += _entry(entry, lines[at:end])
        at = end
    return "\n".join(repaired)


def _without_tabs(line: str) -> str:
    rest = line.lstrip(" \t")
    return line[: len(line) - len(rest)].expandtabs(2) + rest


def _belongs(line: str, *, to: re.Match[str]) -> bool:
    """Whether a line goes on with the value of an entry above it: it is blank, or further in."""
    return not line.strip() or len(line) - len(line.lstrip(" ")) > len(to["before"])


def _entry(entry: re.Match[str], lines: list[str]) -> list[str]:
    value: str = entry["value"]
    if value.startswith(_NOT_PLAIN):
        return [f"{entry['before']}{entry['key']}: {value}", *lines[1:]]
    joined = " ".join(part for line in (value, *lines[1:]) if (part := line.strip()))
    return [f"{entry['before']}{entry['key']}: {joined if _is_plain(joined) else _quoted(joined)}"]


def _is_plain(value: str) -> bool:
    try:
        root = _parsed(f"key: {value}")
    except yaml.YAMLError:
        return False
    return isinstance(root, yaml.MappingNode) and isinstance(root.value[0][1], yaml.ScalarNode)


def _quoted(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
