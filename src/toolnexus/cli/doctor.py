"""`toolnexus doctor`: looks at everything that an answer needs, and says what to do about what is wrong."""

from __future__ import annotations

import asyncio
import difflib
import json
import locale
import os
import platform
import re
import shlex
import shutil
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from toolnexus import ConnectionFailed, InvalidReply, ProviderError, ToolnexusError, __version__
from toolnexus.cli import discover, exits, reach
from toolnexus.cli.fingerprint import fingerprint
from toolnexus.cli.names import new_id
from toolnexus.cli.options import CONTEXT, as_json, looking
from toolnexus.cli.render import Lines, coloured
from toolnexus.cli.settings import KEY, database, look, settings_of
from toolnexus.cli.stores import opened, place
from toolnexus.cli.toolbox import trusted_file
from toolnexus.cli.trust import Trusted
from toolnexus.errors import MissingExtra, MissingKey

try:
    import click
except ImportError as exc:
    raise MissingExtra("The toolnexus commands", extra="cli") from exc

if TYPE_CHECKING:
    from pathlib import Path

    from toolnexus.cli.settings import Read, Settings
    from toolnexus.endpoints import EndpointInfo

Level = Literal["ok", "warning", "problem"]

_PATIENCE = 5.0
"""Seconds that an endpoint has to answer."""
_MARKS: Mapping[Level, tuple[str, str]] = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "problem": ("✗", "red")}
_EXTRA = re.compile(r"([A-Za-z0-9._-]+).*\bextra\s*==\s*['\"]([\w-]+)['\"]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that was looked at.

    Attributes:
        about: What it belongs to, in a word.
        what: What was found.
        do: What to do about it. Empty: nothing.
        code: The exit code that it means. 0: none.
    """

    about: str
    level: Level
    what: str
    do: str = ""
    code: int = 0


@click.command("doctor", context_settings=CONTEXT)
@as_json
@looking
def doctor(as_json: bool, **flags: Any) -> int:
    """Look at the configuration, the model, its key and server, and the store, and say what to do.

    Nothing is asked of a model. Exit code 3: configuration or key, 4: the provider, 5: the store.
    """
    findings = asyncio.run(_all(flags))
    code = min((finding.code for finding in findings if finding.code), default=exits.DONE)
    out = Lines(verbatim=as_json)
    if as_json:
        told = [
            {"about": each.about, "level": each.level, "what": each.what, "do": each.do or None} for each in findings
        ]
        out.line(json.dumps({"ok": not code, "exit_code": code, "findings": told}, ensure_ascii=False, indent=2))
    else:
        for finding in findings:
            mark, style = _MARKS[finding.level]
            out.line(f"{mark} {finding.about}: {finding.what}", style=style)
            if finding.do:
                out.line(f"    {finding.do}")
    out.close()
    return code


async def _all(flags: Mapping[str, Any]) -> list[Finding]:
    read = look(flags, os.environ)
    settings = settings_of(read, flags, os.environ)
    return [
        Finding(
            about="version",
            level="ok",
            what=f"toolnexus {__version__} on Python {platform.python_version()}, {platform.system()}",
        ),
        *_files(read),
        *_trust(read),
        *[finding async for finding in _model(settings)],
        *[finding async for finding in _store(settings)],
        *_extras(),
        _terminal(),
    ]


def _files(read: Read) -> Iterator[Finding]:
    for document in read.files:
        whose = "yours" if document.trusted else "the project's"
        if document.missing and not document.broken:
            yield Finding(about="configuration", level="ok", what=f"none at {document.path}, which is optional")
        elif not document.broken:
            yield Finding(about="configuration", level="ok", what=f"{document.path} ({whose}) was read")
    for problem in read.problems:
        yield Finding(
            about="configuration",
            level="problem",
            what=problem,
            do="Correct it there. `toolnexus config show --origin` tells what is set.",
            code=exits.CONFIGURATION,
        )


def _trust(read: Read) -> Iterator[Finding]:
    """Whether what the project names may be used."""
    project = read.project
    if project is None:
        return
    try:
        trusted = Trusted(trusted_file()).covers(project.folder, fingerprint(project))
    except ToolnexusError as error:
        yield Finding(about="project", level="problem", what=str(error), code=exits.CONFIGURATION)
        return
    named = f"{project.file} names what may run code: {', '.join(project.names)}"
    if trusted:
        yield Finding(about="project", level="ok", what=f"{named}; you trust it")
    else:
        yield Finding(
            about="project",
            level="warning",
            what=f"{named}; you have not said that you trust it as it is now",
            do=f"Look at it; then `toolnexus trust {shlex.quote(str(project.folder))}` allows it.",
        )


async def _model(settings: Settings) -> AsyncIterator[Finding]:
    """The model, its key and where it is."""
    if settings.model or settings.base_url:
        origin = settings.origins.get("model") or settings.origins["base_url"]
        yield Finding(about="model", level="ok", what=f"{settings.model or '(none)'}, from {origin.where}")
    else:
        found = await discover.look(os.environ, settings.providers)
        taken = next((each for each in found if each.model), None)
        if taken is None:
            yield Finding(
                about="model",
                level="problem",
                what=f"none is named. Found: {discover.told(found)}",
                do=discover.how_to_name(found) or exits.NO_MODEL,
                code=exits.CONFIGURATION,
            )
            return
        yield Finding(about="model", level="ok", what=f"{taken.model}, because {taken.why}; none was named")
        settings = replace(settings, model=taken.model)
    if reach.is_demo(settings):
        yield Finding(about="endpoint", level="ok", what="the demo model is in this program; it is no AI")
        return
    for number, each in enumerate(
        (settings, *(replace(settings, model=name, base_url=None) for name in settings.fallbacks))
    ):
        async for finding in _endpoint(each):
            yield replace(finding, what=f"{each.model}: {finding.what}") if number else finding


async def _endpoint(settings: Settings) -> AsyncIterator[Finding]:
    try:
        endpoint = reach.endpoint(settings, os.environ)
    except MissingKey as error:
        yield Finding(
            about="key",
            level="problem",
            what=exits.told(error),
            do=exits.ending(error).advice,
            code=exits.CONFIGURATION,
        )
        return
    except ToolnexusError as error:
        ending = exits.ending(error)
        yield Finding(about="model", level="problem", what=exits.told(error), do=ending.advice, code=ending.code)
        return
    yield Finding(about="key", level="ok", what=_whose_key(endpoint, settings))
    yield await _answers(endpoint, settings)


def _whose_key(endpoint: EndpointInfo, settings: Settings) -> str:
    if variable := _variable(endpoint, settings):
        return f"{variable} is set"
    return "none is set, which is fine if none is needed"


def _variable(endpoint: EndpointInfo, settings: Settings) -> str | None:
    """The variable that the key is taken from."""
    return KEY if settings.base_url and settings.api_key else endpoint.key_variable


async def _answers(endpoint: EndpointInfo, settings: Settings) -> Finding:
    """Whether the endpoint is there, takes the key and has the model."""
    url, row = endpoint.url, endpoint.provider
    try:
        if not await endpoint.is_up(timeout=_PATIENCE):
            return Finding(
                about="endpoint",
                level="warning",
                what=f"{url} answers, but says that it is not ready",
                do="Wait until it has loaded its model, or look at its log.",
            )
        listed = await endpoint.models(timeout=_PATIENCE) if endpoint.lists_models else None
    except ConnectionFailed as error:
        return Finding(
            about="endpoint",
            level="problem",
            what=str(error),
            do=(f"Start it: {row.start}" if row.start else "Start the server, or correct its address.")
            if endpoint.is_local
            else "Is the network there, and does it need a proxy (HTTPS_PROXY)? See --base-url.",
            code=exits.PROVIDER,
        )
    except ProviderError as error:
        return _refused(error, endpoint, settings)
    except InvalidReply as error:
        return Finding(
            about="endpoint",
            level="warning",
            what=f"{url} answers, but not as a model server: {error}",
            do="Look at the address; `toolnexus models test` asks for an answer.",
        )
    if listed is None:
        return Finding(about="endpoint", level="ok", what=f"{url}; it lists no models, so nothing was asked")
    if (
        listed
        and not row.lists_instead
        and not any(name == endpoint.model or name.startswith(f"{endpoint.model}:") for name in listed)
    ):
        close = difflib.get_close_matches(endpoint.model, listed, n=1)
        get_it = f" Or get it: {row.get_model.replace('{model}', endpoint.model)}" if row.get_model else ""
        return Finding(
            about="endpoint",
            level="warning",
            what=f"{url} answers, but {endpoint.model!r} is not among the {len(listed)} models that it lists",
            do=(
                f"Did you mean {close[0]!r}?"
                if close
                else f"`toolnexus models ls {row.name}`".rstrip() + " lists them."
            )
            + get_it,
        )
    return Finding(
        about="endpoint",
        level="ok",
        what=f"{url} answers, with {len(listed)} {'model' if len(listed) == 1 else 'models'}",
    )


def _refused(error: ProviderError, endpoint: EndpointInfo, settings: Settings) -> Finding:
    if error.kind == "auth":
        variable = _variable(endpoint, settings)
        wanted = " or ".join(endpoint.provider.keys) or KEY
        return Finding(
            about="key",
            level="problem",
            what=f"{endpoint.url} refused the key in {variable}" if variable else f"{endpoint.url} wants a key",
            do=f"Set {variable} to a key that is valid there." if variable else f"Set {wanted}.",
            code=exits.CONFIGURATION,
        )
    if error.status in (404, 405, 501):
        return Finding(
            about="endpoint",
            level="warning",
            what=f"{endpoint.url} answers, but lists no models",
            do="`toolnexus models test` tells whether the model answers.",
        )
    return Finding(
        about="endpoint", level="problem", what=str(error), do=exits.ending(error).advice, code=exits.PROVIDER
    )


async def _store(settings: Settings) -> AsyncIterator[Finding]:
    """Whether conversations can be read and written. What is written for that is taken away again."""
    try:
        where = place(settings.store)
        if settings.store is None and not database(os.environ).exists():
            yield _would_be(database(os.environ))
            return
        async with opened(settings.store) as store:
            page = await store.list(limit=1)
            name = f"doctor-{new_id()}"
            await store.save(name, [{"role": "user", "content": "Can this be written?"}])
            await store.delete(name)
    except (ToolnexusError, OSError) as error:
        ending = exits.ending(error)
        code = exits.STORE if isinstance(error, OSError) else ending.code
        yield Finding(about="store", level="problem", what=exits.told(error), do=ending.advice, code=code)
        return
    kept = "holds conversations" if page.items else "is empty"
    yield Finding(about="store", level="ok", what=f"{where} {kept}, and can be written")


def _would_be(file: Path) -> Finding:
    """Whether a file that is not there yet could be made."""
    folder = next(parent for parent in file.parents if parent.exists())
    if folder.is_dir() and os.access(folder, os.W_OK | os.X_OK):
        return Finding(about="store", level="ok", what=f"{file} is made with the first conversation")
    return Finding(
        about="store",
        level="problem",
        what=f"{file} cannot be made, since {folder} cannot be written",
        do="Conversations may be kept elsewhere: --store or TOOLNEXUS_HOME.",
        code=exits.STORE,
    )


def _extras() -> Iterator[Finding]:
    """The optional parts, and which of them are installed."""
    from importlib import metadata  # slow to load, and only needed here

    try:
        wanted = metadata.requires("toolnexus") or []
    except metadata.PackageNotFoundError:
        return
    extras: dict[str, bool] = {}
    for requirement in wanted:
        if match := _EXTRA.match(requirement):
            extras[match[2]] = extras.get(match[2], True) and bool([*metadata.distributions(name=match[1])])
    have = ", ".join(name for name, there in extras.items() if there) or "none"
    lack = ", ".join(name for name, there in extras.items() if not there)
    yield Finding(about="extras", level="ok", what=f"{have}" + (f"; not installed: {lack}" if lack else ""))


def _terminal() -> Finding:
    encoding = (sys.stdout.encoding or locale.getpreferredencoding(do_setlocale=False)).lower()
    kind = f"{shutil.get_terminal_size().columns} columns" if sys.stdout.isatty() else "none"
    what = f"{kind}, {'colours' if coloured(sys.stdout) else 'no colours'}, {encoding}"
    if encoding.replace("-", "") != "utf8":
        return Finding(
            about="terminal",
            level="warning",
            what=what,
            do="Set PYTHONUTF8=1, or a UTF-8 locale: not every character can be written.",
        )
    return Finding(about="terminal", level="ok", what=what)
