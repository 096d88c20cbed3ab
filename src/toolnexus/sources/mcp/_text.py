"""From the bytes of a configuration file to its values, or one error that names the line and column. Pure."""

from __future__ import annotations

import codecs
import json
import re
import tomllib
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from toolnexus.sources.mcp.config import MCPConfigError

_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
# Strings and comments without an end match too: looking for each one's end again and again would take for ever.
_STRING = r'"(?:[^"\\\n]|\\.)*+"?'
_COMMENT = re.compile(rf"{_STRING}|//[^\n]*+|/\*.*?(?:\*/|\Z)", re.DOTALL)
_TRAILING_COMMA = re.compile(rf"{_STRING}|,(?=\s*+[}}\]])", re.DOTALL)
_NO_BREAK = re.compile(r"[^\r\n]")
_TOML_PLACE = re.compile(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", re.DOTALL)


_BEYOND = "a number is too long, or it is nested too deeply."


class _Problem(NamedTuple):
    """What is wrong with a text, and where: line and column from 1, or None."""

    what: str
    line: int | None = None
    column: int | None = None


class Table(dict[str, Any]):
    """A JSON object that remembers which of its keys stood more than once. The last value holds, as in JSON."""

    duplicates: tuple[str, ...] = ()


def is_toml(source: str) -> bool:
    """Whether a file of this name is TOML."""
    return source.lower().endswith(".toml")


def decoded(data: bytes, source: str) -> str:
    """The text of a file: UTF-8 with or without a byte order mark, or UTF-16 with one, as some editors save it.

    Raises:
        MCPConfigError: It is neither.
    """
    encoding = "utf-16" if data.startswith(_UTF16) else "utf-8-sig"
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        at = error.start
    # Raised here and not above: the error there holds the whole file, secrets included.
    before = data[:at]
    raise MCPConfigError(
        "this is not UTF-8. Save the file as UTF-8.",
        source=source,
        line=before.count(b"\n") + 1,
        column=len(before[before.rfind(b"\n") + 1 :].decode(errors="replace")) + 1,
    )


def parsed(text: str, source: str) -> Mapping[str, Any]:
    """The values of a TOML file, or of a JSON one with comments and trailing commas. An empty file has none.

    Raises:
        MCPConfigError: It cannot be read, or holds something else than names and values.
    """
    text = text.removeprefix("\ufeff")
    return _toml(text, source) if is_toml(source) else _json(text, source)


def plain_json(text: str) -> str:
    """JSON with blanks where comments and trailing commas stand, so that every character keeps its place."""
    return _TRAILING_COMMA.sub(lambda match: " " if match[0] == "," else match[0], without_comments(text))


def without_comments(text: str) -> str:
    """JSON with blanks where comments stand."""
    return _COMMENT.sub(_blanked, text)


def _blanked(match: re.Match[str]) -> str:
    found = match[0]
    comment = found.startswith("//") or (found.startswith("/*") and found.endswith("*/") and len(found) > 3)
    return _NO_BREAK.sub(" ", found) if comment else found


def _json(text: str, source: str) -> Mapping[str, Any]:
    plain = plain_json(text)
    if not plain.strip():
        return Table()
    values, problem = _loaded(plain)
    if problem is not None:
        raise MCPConfigError(problem.what, source=source, line=problem.line, column=problem.column)
    if not isinstance(values, Table):
        before = plain[: len(plain) - len(plain.lstrip())]
        raise MCPConfigError(
            f'the file holds {kind_of(values)} where an object is expected, such as {{"mcpServers": {{…}}}}.',
            source=source,
            line=before.count("\n") + 1,
            column=len(before) - before.rfind("\n"),
        )
    return values


def _loaded(plain: str) -> tuple[object, _Problem | None]:
    # No error is raised here: the ones of the parser hold the whole file, secrets included.
    try:
        return json.loads(plain, object_pairs_hook=_table), None
    except json.JSONDecodeError as error:
        # A lone backslash is nearly always a path of Windows.
        hint = " Write each backslash twice." if error.msg.startswith("Invalid \\escape") else ""
        return None, _Problem(f"{error.msg}.{hint}", error.lineno, error.colno)
    except (ValueError, RecursionError):
        return None, _Problem(_BEYOND)


def _table(pairs: list[tuple[str, Any]]) -> Table:
    table = Table(pairs)
    if len(table) < len(pairs):
        table.duplicates = tuple(name for name, times in Counter(name for name, _ in pairs).items() if times > 1)
    return table


def _toml(text: str, source: str) -> Mapping[str, Any]:
    values, problem = _loaded_toml(text.replace("\r\n", "\n"))
    if problem is not None:
        raise MCPConfigError(problem.what, source=source, line=problem.line, column=problem.column)
    return values


def _loaded_toml(text: str) -> tuple[Mapping[str, Any], _Problem | None]:
    try:
        return tomllib.loads(text), None
    except tomllib.TOMLDecodeError as error:
        match = _TOML_PLACE.fullmatch(str(error))
        if match is None:
            return {}, _Problem(f"{error}.")
        what, line, column = cast("tuple[str, str | None, str | None]", match.groups())
        if line is None or column is None:
            *before, last = text.rstrip("\n").split("\n")
            return {}, _Problem(f"{what}.", len(before) + 1, len(last) + 1)
        return {}, _Problem(f"{what}.", int(line), int(column))
    except (ValueError, RecursionError):
        return {}, _Problem(_BEYOND)


def kind_of(value: object) -> str:
    """What a value is, in words that do not show it."""
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case str():
            return "a text"
        case int() | float():
            return "a number"
        case list() | tuple():
            return "a list"
        case Mapping():
            return "an object"
        case _:
            return "no JSON value"
