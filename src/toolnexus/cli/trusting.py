"""`toolnexus trust`: which projects may name what runs code."""

from __future__ import annotations

import os
from pathlib import Path

from toolnexus.cli import exits
from toolnexus.cli.fingerprint import fingerprint
from toolnexus.cli.layers import BrokenConfiguration
from toolnexus.cli.options import CONTEXT
from toolnexus.cli.render import Lines, Notes
from toolnexus.cli.settings import Read
from toolnexus.cli.toolbox import trusted_file
from toolnexus.cli.trust import Trusted
from toolnexus.errors import MissingExtra

try:
    import click
except ImportError as exc:
    raise MissingExtra("The toolnexus commands", extra="cli") from exc


class _Trust(click.Group):
    """Takes what is no command for a folder."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self.commands:
            return "add", self.commands["add"], args
        return super().resolve_command(ctx, args)


@click.group("trust", cls=_Trust, context_settings=CONTEXT, subcommand_metavar="DIR | COMMAND", no_args_is_help=True)
def trust() -> None:
    """Let the project in a folder name what may run code: tools, skills, OpenAPI documents and MCP servers.

    Anybody may have written its file, so look at that first. When something that it names changes, you are asked again.
    """


@trust.command(hidden=True)
@click.argument("folder", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path))
def add(folder: Path) -> int:
    """Trust the project in DIR as it is now."""
    read = Read({}, os.environ, folder.resolve())
    notes = Notes()
    if read.problems:
        raise BrokenConfiguration(read.problems[0])
    project = read.project
    if project is None:
        what = "tools, skills, OpenAPI documents or MCP servers"
        notes.line(f"Error: No project in {str(folder)!r} names {what}.", style="red")
        return exits.ERROR
    Trusted(trusted_file()).add(project.folder, fingerprint(project))
    notes.line(f"Trusted until one of these changes, which {project.file} names:")
    for name in project.names:
        notes.line(f"  {name}")
    return exits.DONE


@trust.command()
def ls() -> int:
    """List the projects that are trusted."""
    out, notes = Lines(), Notes()
    trusted = Trusted(trusted_file())
    for folder in trusted.folders():
        project = Read({}, os.environ, Path(folder)).project if Path(folder).is_dir() else None
        now = project is not None and trusted.covers(project.folder, fingerprint(project))
        out.line(folder if now else f"{folder} (has changed; you will be asked)")
    out.close()
    if not trusted.folders():
        notes.line("No project is trusted.", style="dim")
    return exits.DONE


@trust.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
def rm(folder: Path) -> int:
    """Trust the project in DIR no more."""
    if Trusted(trusted_file()).remove(folder.absolute()):
        return exits.DONE
    Notes().line(f"Error: {str(folder)!r} is not trusted. `toolnexus trust ls` lists those that are.", style="red")
    return exits.ERROR
