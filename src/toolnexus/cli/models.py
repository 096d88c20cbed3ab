"""`toolnexus models`: which there are, which one is taken, and whether one works."""

from __future__ import annotations

import asyncio
import difflib
import json
import os
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from toolnexus import ConfigurationError, ConnectionFailed, Finished, ProviderError, TextDelta, ToolnexusError
from toolnexus.cli import completion, exits, reach
from toolnexus.cli.files import replace as write
from toolnexus.cli.layers import BrokenConfiguration, user_file
from toolnexus.cli.options import CONTEXT, as_json, reaching
from toolnexus.cli.render import Lines, Notes, cut
from toolnexus.cli.settings import Settings, look, read, shown_url
from toolnexus.endpoints import endpoint_of, key_variable
from toolnexus.errors import MissingExtra, MissingKey
from toolnexus.providers import PROVIDERS, Provider

try:
    import click
except ImportError as exc:
    raise MissingExtra("The toolnexus commands", extra="cli") from exc

if TYPE_CHECKING:
    from pathlib import Path

    from toolnexus import Client

_LISTING = 5.0
"""Seconds that all lists together may take."""
_TRYING = 120.0
"""Seconds that one attempt of `test` may take when no other bound is set."""
_STEPS = 4
_WIDTH = 60
_MOST_SAID = 500
_GREETING = "Hello! Answer in one word."


@click.group("models", context_settings=CONTEXT)
def models() -> None:
    """See which models there are, choose one, and try whether it works."""


@models.command()
@click.argument("provider", required=False, shell_complete=completion.providers)
@as_json
@reaching
def ls(provider: str | None, as_json: bool, **flags: Any) -> int:
    """List the models of PROVIDER, or of all that a key is set for or that run on this machine.

    What is listed can be given to -m. Nothing but lists is asked for, for five seconds at most.
    """
    return asyncio.run(_ls(read(flags, os.environ), provider, Notes(), as_json=as_json))


@models.command()
@click.argument("model", required=False, shell_complete=completion.models)
def default(model: str | None) -> int:
    """Write the model that is taken when none is named, or, with MODEL, choose it: in your configuration file."""
    return _show_default() if model is None else _choose(model, Notes())


@models.command()
@click.argument("named", metavar="[MODEL]", required=False, shell_complete=completion.models)
@as_json
@reaching
def test(named: str | None, as_json: bool, **flags: Any) -> int:
    """Try a model: a whole answer, a streamed one, and a call of a tool. It costs a few tokens.

    Exit code 4 if one of the three does not work.
    """
    settings = read({**flags, "model": named or flags.get("model")}, os.environ)
    return asyncio.run(_test(settings, Notes(), as_json=as_json))


@dataclass(frozen=True, slots=True)
class _List:
    """What an endpoint listed, or why it did not.

    Attributes:
        prefix: What stands before each id when it is given to -m.
        may_be_off: Whether it is a server of this machine, which need not run.
    """

    provider: str
    prefix: str
    ids: Sequence[str] = ()
    error: ToolnexusError | None = None
    may_be_off: bool = False

    @property
    def is_off(self) -> bool:
        """Whether it is no failure that nothing is there."""
        return self.may_be_off and isinstance(self.error, ConnectionFailed) and not self.error.request_sent

    @property
    def reason(self) -> str:
        """Why it listed nothing."""
        told = exits.told(self.error) if self.error else ""
        return told if told.startswith(self.provider) else f"{self.provider}: {told}"


async def _ls(settings: Settings, provider: str | None, notes: Notes, *, as_json: bool) -> int:
    rows = {**PROVIDERS, **settings.providers}
    if provider is not None and provider not in rows:
        close = difflib.get_close_matches(provider.lower(), rows, n=1)
        meant = f"Did you mean {close[0]!r}?" if close else f"There are {', '.join(rows)}."
        raise exits.Misused(f"There is no provider {provider!r}. {meant}")
    asked = [rows[provider]] if provider is not None else _at_hand(rows, settings)
    lists = await asyncio.gather(
        *([_listed_at(settings)] if settings.base_url and provider is None else []),
        *(_listed(row, settings, named=provider is not None) for row in asked),
    )
    quiet = [each for each in lists if each.is_off]
    failed = [each for each in lists if each.error and each not in quiet]
    listed = [{"model": f"{each.prefix}{id}", "provider": each.provider, "id": id} for each in lists for id in each.ids]
    out = Lines(verbatim=as_json)
    if as_json:
        refused = [{"provider": each.provider, "reason": each.reason} for each in failed]
        out.line(json.dumps({"models": listed, "failed": refused}, ensure_ascii=False, indent=2))
    else:
        for model in listed:
            out.line(model["model"])
    out.close()
    for each in lists:
        if each.ids and (holds := rows[each.provider].lists_instead if each.provider in rows else ""):
            notes.line(f"{each.provider} lists {holds}.")
    for each in failed:
        notes.line(each.reason, style="red")
    if quiet:
        notes.line(f"Not running here: {', '.join(each.provider for each in quiet)}.", style="dim")
    if listed:
        return exits.DONE
    if failed and failed[0].error:
        return exits.ending(failed[0].error).code
    if any(each not in quiet for each in lists):
        notes.line("No models are listed.")
        return exits.DONE
    notes.line("There is no key in the environment, and no server on this machine answers.")
    notes.line(exits.NO_MODEL)
    return exits.CONFIGURATION


def _at_hand(rows: Mapping[str, Provider], settings: Settings) -> list[Provider]:
    """The providers that can be asked: a key is set, they run on this machine, or the configuration adds them."""
    return [
        row for name, row in rows.items() if row.local or name in settings.providers or key_variable(row, os.environ)
    ]


async def _listed(row: Provider, settings: Settings, *, named: bool) -> _List:
    empty = _List(row.name, f"{row.name}:", may_be_off=row.local and not named)
    try:
        endpoint = endpoint_of(f"{row.name}:-", providers=settings.providers, environ=os.environ)
        if not endpoint.lists_models and not named:
            return empty
        return replace(empty, ids=await endpoint.models(timeout=_LISTING))
    except ToolnexusError as error:
        return replace(empty, error=error)


async def _listed_at(settings: Settings) -> _List:
    """The models at the address that is set."""
    shown = shown_url(settings.base_url or "")
    try:
        endpoint = reach.endpoint(replace(settings, model=settings.model or "-"), os.environ)
        return _List(shown, f"{shown}#", await endpoint.models(timeout=_LISTING))
    except ToolnexusError as error:
        return _List(shown, f"{shown}#", error=error)


def _show_default() -> int:
    found = look({}, os.environ)
    if found.problems:
        raise BrokenConfiguration(found.problems[0])
    model = found.value("model")
    if model is None:
        Notes().line("No model is set, so one is looked for. `toolnexus models default MODEL` sets it.")
        return exits.DONE
    base = found.value("base_url")
    out = Lines()
    out.line(f"{shown_url(base)}#{model}" if base else model)
    out.close()
    Notes().line(f"It was set by {found.came_from('model').where}.", style="dim")
    return exits.DONE


def _choose(model: str, notes: Notes) -> int:
    path = user_file(os.environ)
    if path is None:
        raise ConfigurationError("The home directory is not known. Set TOOLNEXUS_HOME to a full path.")
    found = look({"model": model}, os.environ)
    own = next((each for each in found.files if each.path == path and each.trusted), None)
    if own is not None and own.broken and not own.missing:
        raise BrokenConfiguration(own.problem)
    if own is not None and "base_url" in own.values and "://" not in model:
        raise BrokenConfiguration(
            f"{own.place('base_url')} sets base_url, where every model of that file is looked for. Take that line out, "
            "or write the model with its address, as http://host#model."
        )
    chosen = Settings(
        model=found.value("model"),
        base_url=found.value("base_url") if "://" in model else None,
        providers=found.providers,
    )
    if not reach.is_demo(chosen):
        reach.endpoint(chosen, os.environ, key_required=False)  # refuses what names no endpoint
    _write_model(path, model)
    notes.line(f"{path} names {model} now.")
    now = look({}, os.environ).came_from("model")
    if now.layer != "user file":
        notes.line(f"But here {now.where} names another one, and wins.", style="yellow")
    return exits.DONE


def _write_model(path: Path, model: str) -> None:
    """Set the model in a configuration file and leave everything else there as it is, comments included."""
    import tomlkit

    path = path.resolve()  # a link to a file that is kept elsewhere stays one
    try:
        document = tomlkit.parse(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        document = tomlkit.document()
    document["model"] = model
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write(path, tomlkit.dumps(document).encode())


@dataclass(frozen=True, slots=True)
class _Trial:
    """How one attempt went. `said` is the answer, or what was wrong."""

    what: str
    seconds: float
    said: str
    error: Exception | None = None

    @property
    def works(self) -> bool:
        return self.error is None


async def _test(settings: Settings, notes: Notes, *, as_json: bool) -> int:
    if not settings.model and not settings.base_url:
        settings = await reach.with_found_model(settings, notes)
    alone = replace(
        settings, fallbacks=(), system="", timeout=settings.timeout or _TRYING, max_steps=settings.max_steps or _STEPS
    )
    trials: list[_Trial] = []
    for what, attempt in _ATTEMPTS.items():
        # Each with connections of its own: some servers close theirs after a stream, and nothing is tried again here.
        async with reach.client(alone, retries=0) as client:
            trials.append(await _tried(what, attempt(client)))
        if isinstance(error := trials[-1].error, ProviderError | ConnectionFailed | MissingKey) and _for_all(error):
            break
    out = Lines(verbatim=as_json)
    if as_json:
        told = {
            "model": settings.model,
            "works": {trial.what: trial.works for trial in trials},
            "trials": [
                {
                    "what": trial.what,
                    "works": trial.works,
                    "seconds": round(trial.seconds, 3),
                    "said": cut(trial.said, _MOST_SAID),
                }
                for trial in trials
            ],
        }
        out.line(json.dumps(told, ensure_ascii=False, indent=2))
    else:
        for trial in trials:
            mark, style = ("✓", "green") if trial.works else ("✗", "red")
            said = cut(trial.said, _WIDTH) if trial.works else trial.said
            out.line(f"{mark} {trial.what:<8} {trial.seconds:6.2f} s  {said}", style=style)
    out.close()
    error = next((trial.error for trial in trials if trial.error), None)
    if error is None:
        return exits.DONE
    ending = exits.ending(error)
    if ending.advice:
        notes.line(ending.advice)
    return ending.code


def _for_all(error: ToolnexusError) -> bool:
    """Whether the next attempt would end in the same way."""
    return not isinstance(error, ProviderError) or error.kind in ("auth", "not_found", "quota")


async def _tried(what: str, attempt: Coroutine[Any, Any, str]) -> _Trial:
    begun = time.monotonic()
    try:
        said, error = await attempt, None
    except ToolnexusError as failure:
        said, error = exits.told(failure), failure
    return _Trial(what, time.monotonic() - begun, said, error)


def add(a: int, b: int) -> int:
    """Add two whole numbers."""
    return a + b


class NoToolCall(ProviderError):
    """The model answered without calling the tool that it was told to call."""

    def __init__(self, answer: str) -> None:
        super().__init__(
            f"It answered without calling the tool, {cut(answer, _WIDTH)!r}. --tool-mode constrained may help.",
            kind="no_tool_call",
        )


async def _whole(client: Client) -> str:
    return (await client.run(_GREETING)).text


async def _streamed(client: Client) -> str:
    pieces = 0
    async with client.stream(_GREETING) as events:
        async for event in events:
            pieces += isinstance(event, TextDelta)
            if isinstance(event, Finished):
                return f"{event.result.text} ({pieces} {'piece' if pieces == 1 else 'pieces'})"
    raise AssertionError("a run ends with Finished or an error")


async def _with_tool(client: Client) -> str:
    result = await client.run("Add 2 and 3 with the tool add, and tell me the sum.", [add])
    called = next((call for call in result.tool_calls if call.name == "add"), None)
    if called is None:
        raise NoToolCall(result.text)
    return f"add({json.dumps(called.args)[1:-1]}) gave {called.output}; {result.text}"


_ATTEMPTS: Mapping[str, Callable[[Client], Coroutine[Any, Any, str]]] = {
    "whole": _whole,
    "streamed": _streamed,
    "tools": _with_tool,
}
