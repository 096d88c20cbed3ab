"""Which projects the person trusts to name what may run code: by where they are, and what that is."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
from typing import TYPE_CHECKING, Any, cast

from toolnexus.cli.files import replace
from toolnexus.cli.fingerprint import fingerprint
from toolnexus.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from toolnexus.cli.approvals import Person
    from toolnexus.cli.render import Notes
    from toolnexus.cli.settings import Project

_VERSION = 1


class Untrusted(ConfigurationError):
    """A project names what may run code, and nobody is there to be asked. The message says how to allow it."""


class Trusted:
    """The folders of projects that are trusted, and what they named when they came to be.

    Args:
        file: Where they are kept, for the owner's eyes only. None: there is no place for them, and none is.

    Raises:
        ConfigurationError: The file cannot be read.
    """

    def __init__(self, file: Path | None) -> None:
        self.file = file
        self._kept = self._read()

    def folders(self) -> list[str]:
        """All of them."""
        return sorted(self._kept)

    def knows(self, folder: Path) -> bool:
        """Whether a project was trusted, as it was then."""
        return _key(folder) in self._kept

    def covers(self, folder: Path, number: str) -> bool:
        """Whether a project is trusted as it is now."""
        return self._kept.get(_key(folder)) == number

    def add(self, folder: Path, number: str) -> None:
        """Trust a project as it is now.

        Raises:
            ConfigurationError: There is no place to keep that.
            OSError: It could not be written.
        """
        self._write({**self._read(), _key(folder): number})

    def remove(self, folder: Path) -> bool:
        """Trust a project no more. Returns whether it was trusted.

        Raises:
            OSError: It could not be written.
        """
        kept = self._read()
        if kept.pop(_key(folder), None) is None:
            return False
        self._write(kept)
        return True

    def _write(self, kept: Mapping[str, str]) -> None:
        if self.file is None:
            raise ConfigurationError("There is no place to keep what is trusted: set TOOLNEXUS_HOME to a full path.")
        self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        written = {"version": _VERSION, "projects": dict(sorted(kept.items()))}
        replace(self.file, json.dumps(written, indent=2).encode() + b"\n")
        self._kept = dict(kept)

    def _read(self) -> dict[str, str]:
        if self.file is None:
            return {}
        try:
            read: Any = json.loads(self.file.read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError):
            read = None
        fields = cast("dict[str, Any]", read) if isinstance(read, dict) else {}
        projects = fields.get("projects")
        if fields.get("version") != _VERSION or not isinstance(projects, dict):
            raise ConfigurationError(
                f"{str(self.file)!r}, which says what projects are trusted, cannot be read. "
                "Delete it to be asked again."
            )
        return {folder: number for folder, number in cast("dict[str, Any]", projects).items() if type(number) is str}


async def agreed(project: Project, trusted: Trusted, notes: Notes, person: Person | None) -> bool:
    """Whether a project may be used as it is now. Whoever is asked and agrees is remembered to have.

    Args:
        person: None: nobody is there to be asked.

    Raises:
        Untrusted: It is not trusted, and nobody can be asked. One that only has MCP servers for other programs is
            not used then, and that is told.
        ConfigurationError: It names too much to be looked at.
    """
    number = await asyncio.to_thread(fingerprint, project)
    if trusted.covers(project.folder, number):
        return True
    why = "has changed since you trusted it" if trusted.knows(project.folder) else "is not trusted yet"
    if person is None and project.found:
        notes.line(
            f"Not used, as it {why}: {', '.join(project.names)}. "
            f"Look at it; then `toolnexus trust {shlex.quote(str(project.folder))}` allows it.",
            style="yellow",
        )
        return False
    if person is None:
        raise Untrusted(
            f"{project.file} names what may run code ({', '.join(project.names)}), and {why}. "
            f"Look at it; then `toolnexus trust {shlex.quote(str(project.folder))}` allows it. --yes does not."
        )
    notes.line(f"{project.file} names what may run code as you, and {why}:", style="bold yellow")
    for name in project.names:
        notes.line(f"  {name}")
    while True:
        said = await person.line("Trust it, until it changes? [y]es · [n]o, go on without › ")
        match said and said.strip().lower():
            case "y" | "yes":
                break
            case None | "n" | "no":
                return False
            case _:
                notes.line("Type y or n.", style="dim")
    try:
        trusted.add(project.folder, number)
    except (ConfigurationError, OSError) as error:
        notes.line(f"That cannot be remembered: {error}", style="red")
    return True


def _key(folder: Path) -> str:
    return os.fspath(folder.resolve())
