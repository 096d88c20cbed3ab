"""What a shell completes: the commands and options, and the ids, models and providers that cost nothing to look up."""

from __future__ import annotations

import asyncio
import os
from itertools import islice
from typing import TYPE_CHECKING, Any

from toolnexus.cli import exits
from toolnexus.dialects import DIALECTS
from toolnexus.errors import MissingExtra, ToolnexusError
from toolnexus.providers import PROVIDERS

try:
    import click
    from click.shell_completion import get_completion_class
except ImportError as exc:
    raise MissingExtra("The toolnexus commands", extra="cli") from exc

if TYPE_CHECKING:
    from toolnexus.cli.settings import Read

SHELLS = ("bash", "zsh", "fish")
_VARIABLE = "_TOOLNEXUS_COMPLETE"
_MOST = 200
"""Ids that are offered at once."""


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> int:
    """Write a script that completes in a shell.

    \b
    bash:  eval "$(toolnexus completion bash)"     in ~/.bashrc
    zsh:   eval "$(toolnexus completion zsh)"      in ~/.zshrc
    fish:  toolnexus completion fish > ~/.config/fish/completions/toolnexus.fish
    """
    found = get_completion_class(shell)
    assert found is not None, "click knows the shells that it was asked for"
    click.echo(found(ctx.find_root().command, {}, "toolnexus", _VARIABLE).source())
    return exits.DONE


def conversations(ctx: click.Context, _: click.Parameter, typed: str) -> list[str]:
    """Ids that begin so, those last changed first; from a store on this machine only."""
    from toolnexus.cli.settings import database

    try:
        url = _looked(ctx).value("store")
        if url is None and not database(os.environ).exists():
            return []  # looking into it would make it
        if url is not None and "://" in url and not url.startswith(("sqlite:", "file:")):
            return []
        return asyncio.run(_ids(url, typed))
    except (ToolnexusError, OSError):
        return []  # a shell has no place for errors


def models(ctx: click.Context, _: click.Parameter, typed: str) -> list[str]:
    """The demo model, the model that is set, and providers, those with a key first."""
    from toolnexus.cli import demo
    from toolnexus.endpoints import key_variable

    read = _looked(ctx)
    rows = {**PROVIDERS, **read.providers}
    usable = sorted(rows.values(), key=lambda row: not (row.local or key_variable(row, os.environ)))
    found = [*filter(None, [read.value("model")]), *demo.NAMES, *(f"{row.name}:" for row in usable)]
    return [each for each in dict.fromkeys(found) if each.startswith(typed)]


def styles(_: click.Context, __: click.Parameter, typed: str) -> list[str]:
    """The wire styles."""
    return [style for style in DIALECTS if style.startswith(typed)]


def providers(ctx: click.Context, _: click.Parameter, typed: str) -> list[str]:
    """Names of the provider table."""
    return [name for name in {**PROVIDERS, **_looked(ctx).providers} if name.startswith(typed)]


def tools(_: click.Context, __: click.Parameter, typed: str) -> list[str]:
    """The built-in tools: for the others, code would have to run."""
    from toolnexus.sources.builtin import NAMES

    return [name for name in NAMES if name.startswith(typed)]


def _looked(ctx: click.Context) -> Read:
    from toolnexus.cli.settings import look

    flags: dict[str, Any] = {**(ctx.parent.params if ctx.parent else {}), **ctx.params}
    return look({name: flags.get(name) for name in ("store", "model")}, os.environ)


async def _ids(url: str | None, typed: str) -> list[str]:
    from toolnexus.cli.stores import opened

    async with opened(url) as store:
        page = await store.list(limit=_MOST)
        return list(islice((each.id for each in page.items if each.id.startswith(typed)), _MOST))
