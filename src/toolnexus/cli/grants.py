"""Which tools may run without asking: those that a flag names, and those that a person once said "always" to."""

from __future__ import annotations

import json
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, cast

from toolnexus.cli.files import replace
from toolnexus.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

_VERSION = 1


class Grants:
    """Patterns of names of tools, as a shell has them: `send_*`. Upper and lower case are not the same.

    Args:
        file: Where those for always are kept, for the owner's eyes only. None: there is no place for them.
        everything: Whatever it is called, it may run.
        patterns: Those for as long as the command runs.

    Raises:
        ConfigurationError: The file cannot be read.
    """

    def __init__(self, file: Path | None, *, everything: bool = False, patterns: Iterable[str] = ()) -> None:
        self.file = file
        self._everything = everything
        self._patterns = [*patterns, *self._kept()]

    def cover(self, tool: str) -> bool:
        """Whether a tool may run."""
        return self._everything or any(fnmatchcase(tool, pattern) for pattern in self._patterns)

    def add(self, pattern: str) -> None:
        """Let the tools of such names run for as long as the command runs."""
        self._patterns.append(pattern)

    def add_for_always(self, pattern: str) -> None:
        """Let the tools of such names run from now on, whatever command runs them.

        Raises:
            ConfigurationError: There is no place to keep that.
            OSError: It could not be written.
        """
        if self.file is None:
            raise ConfigurationError("There is no place to keep that: set TOOLNEXUS_HOME to a full path.")
        kept = self._kept()  # another command may have added one
        if pattern not in kept:
            self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            written = {"version": _VERSION, "always": [*kept, pattern]}
            replace(self.file, json.dumps(written, ensure_ascii=False, indent=2).encode() + b"\n")
        self.add(pattern)

    def _kept(self) -> list[str]:
        if self.file is None:
            return []
        try:
            read: Any = json.loads(self.file.read_bytes())
        except FileNotFoundError:
            return []
        except (OSError, ValueError):
            read = None
        fields = cast("dict[str, Any]", read) if isinstance(read, dict) else {}
        always = fields.get("always")
        if fields.get("version") != _VERSION or not isinstance(always, list):
            raise ConfigurationError(
                f"{str(self.file)!r}, which says what may run without asking, cannot be read. "
                "Delete it to be asked again."
            )
        return [pattern for pattern in cast("list[Any]", always) if isinstance(pattern, str)]
