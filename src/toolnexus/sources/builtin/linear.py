"""Regular expressions whose time grows with their text and never faster, whatever the pattern is.

RE2 rather than a backtracking engine with a deadline: `^(a+)+$` then has an answer, not only an end. As in ripgrep,
there is no look-around and there are no backreferences.
"""

from __future__ import annotations

from typing import Any, Protocol, cast

from toolnexus.errors import MissingExtra

try:
    import re2  # pyright: ignore[reportMissingTypeStubs] - it has none
except ImportError as exc:
    raise MissingExtra("The built-in tools grep and glob", extra="tools") from exc

_re2 = cast("Any", re2)


class InvalidPattern(Exception):
    """A regular expression that RE2 does not take. The text says why."""


class Match(Protocol):
    """Where a pattern was found; positions are in bytes."""

    def start(self) -> int: ...
    def end(self) -> int: ...


class Pattern(Protocol):
    """A compiled pattern. It may be used in several threads."""

    def search(self, text: bytes, pos: int | None = None, endpos: int | None = None) -> Match | None:
        """Find the pattern in UTF-8."""
        ...


def compile(pattern: str) -> Pattern:  # noqa: A001 - as in `re`
    """Compile `pattern`.

    Raises:
        InvalidPattern: It is none that RE2 takes.
    """
    options = _re2.Options()
    options.log_errors = False  # it would write to the process's stderr
    options.never_capture = True
    try:
        compiled: Pattern = _re2.compile(pattern, options)
    except _re2.error as error:
        [reason] = error.args
        raise InvalidPattern(reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)) from error
    return compiled
