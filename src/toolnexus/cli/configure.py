"""`toolnexus config`: what is set, and by what."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from toolnexus.cli import exits
from toolnexus.cli.layers import user_file
from toolnexus.cli.options import CONTEXT, as_json, looking
from toolnexus.cli.render import Lines, Notes
from toolnexus.cli.settings import KEY, SETTINGS, as_toml, look, shown_url
from toolnexus.cli.stores import place
from toolnexus.endpoints import key_variable
from toolnexus.errors import ConfigurationError, MissingExtra
from toolnexus.providers import PROVIDERS

try:
    import click
except ImportError as exc:
    raise MissingExtra("The toolnexus commands", extra="cli") from exc

if TYPE_CHECKING:
    from toolnexus.cli.settings import Read

_SHOWN: Mapping[str, Callable[[Any], str]] = {"base_url": shown_url, "store": place}
"""How values are shown that may have something secret in them."""


@click.group("config", context_settings=CONTEXT)
def config() -> None:
    """See how things are set."""


@config.command()
@click.option("--origin", is_flag=True, help="Say as well where each value comes from.")
@as_json
@looking
def show(origin: bool, as_json: bool, **flags: Any) -> int:
    """Write what is set here, as it could stand in a configuration file. Keys are never shown, only that they are set.

    Later ones win: your own file, the project's (toolnexus.toml, or [tool.toolnexus] of pyproject.toml), TOOLNEXUS_…
    variables, options.
    """
    found = look(flags, os.environ)
    out, notes = Lines(verbatim=as_json), Notes()
    if as_json:
        out.line(json.dumps(_told(found), ensure_ascii=False, indent=2))
    else:
        for line in _lines(found, origin=origin):
            out.line(line)
    out.close()
    for problem in found.problems:
        notes.line(f"Error: {problem}", style="red")
    return exits.CONFIGURATION if found.problems else exits.DONE


@config.command()
def path() -> int:
    """Write where your own configuration file is, or would be."""
    own = user_file(os.environ)
    if own is None:
        raise ConfigurationError("The home directory is not known. Set TOOLNEXUS_HOME to a full path.")
    out, notes = Lines(), Notes()
    out.line(str(own))
    out.close()
    if not own.exists():
        notes.line("It is not there yet. `toolnexus models default MODEL` makes it.", style="dim")
    for document in look({}, os.environ).files:
        if not document.trusted:
            notes.line(f"The project here has one too: {document.path}", style="dim")
    return exits.DONE


def _lines(found: Read, *, origin: bool) -> Iterator[str]:
    written = [(name, as_toml(value)) for name, value in _values(found)]
    width = max((len(f"{name} = {text}") for name, text in written), default=0)
    for name, text in written:
        line = f"{name} = {text}"
        yield f"{line:<{width}}  # {found.came_from(name).where}" if origin else line
    for variable in _keys(found):
        yield f"# {variable} is set"
    for name, row in found.providers.items():
        yield ""
        yield f"[providers.{as_toml(name) if '.' in name else name}]"
        yield f"base_url = {as_toml(shown_url(row.base_url))}"
        if row.keys:
            yield f"keys = {as_toml(row.keys)}"


def _told(found: Read) -> dict[str, Any]:
    values = dict(_values(found))
    return {
        "settings": {
            setting.name: {
                "value": values.get(setting.name),
                "layer": found.came_from(setting.name).layer,
                "origin": found.came_from(setting.name).where,
            }
            for setting in SETTINGS
        },
        "keys_set": _keys(found),
        "providers": {name: {"base_url": shown_url(row.base_url)} for name, row in found.providers.items()},
        "files": [
            {"path": str(document.path), "exists": not document.missing, "project": not document.trusted}
            for document in found.files
        ],
        "problems": found.problems,
    }


def _values(found: Read) -> Iterator[tuple[str, Any]]:
    """What is set, and defaults that are something, as they may be shown."""
    for setting in SETTINGS:
        value = found.value(setting.name)
        if value not in (None, "", ()):
            yield setting.name, _SHOWN.get(setting.name, _same)(value)


def _same(value: Any) -> Any:
    return value


def _keys(found: Read) -> list[str]:
    """The variables with keys that are set."""
    rows = {**PROVIDERS, **found.providers}.values()
    named = [KEY] if os.environ.get(KEY, "").strip() else []
    return [*named, *filter(None, (key_variable(row, os.environ) for row in rows))]
