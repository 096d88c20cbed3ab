"""Reads the lines of an environment file: `NAME=value`, quoted or not, with comments. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

_ASSIGNMENT = re.compile(
    r"""^[ \t]*(?:export[ \t]+)?(?P<name>[^\s=#'"]+)[ \t]*=[ \t]*
    (?: '(?P<raw>[^']*)'[^\r\n]* | "(?P<quoted>(?:[^"\\]|\\.)*+)"[^\r\n]* | (?P<plain>[^\r\n]*) )""",
    re.MULTILINE | re.VERBOSE | re.DOTALL,
)
_REMARK = re.compile(r"(?:^|\s)#.*")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t"}


def read(text: str) -> Mapping[str, str]:
    """The variables of an environment file, the last of a name. Nothing in their values is replaced.

    Text in double quotes may hold `\\n`, `\\r`, `\\t` and escaped quotes; single quotes keep everything; both may span
    lines. Without quotes a `#` after a blank begins a comment. Lines that assign nothing are passed over.
    """
    return {match["name"]: _value(match) for match in _ASSIGNMENT.finditer(text.removeprefix("\ufeff"))}


def _value(match: re.Match[str]) -> str:
    if match["raw"] is not None:
        return match["raw"]
    if match["quoted"] is not None:
        return _ESCAPE.sub(lambda escape: _ESCAPED.get(escape[1], escape[1]), match["quoted"])
    return _REMARK.sub("", match["plain"]).strip()
