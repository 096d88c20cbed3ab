"""Asking and chatting: a model, a store and a conversation are picked, then a session runs on them."""

from __future__ import annotations

import asyncio
import difflib
import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from toolnexus import ConfigurationError, NoModelConfigured, __version__, create_client, create_in_process_client
from toolnexus.cli import demo, discover, exits
from toolnexus.cli.approvals import Approvals
from toolnexus.cli.grants import Grants
from toolnexus.cli.latest import latest, note
from toolnexus.cli.names import new_id
from toolnexus.cli.pending import Given, Left, again, history, how_to, left
from toolnexus.cli.render import Notes, Screen
from toolnexus.cli.session import Interrupts, Session
from toolnexus.cli.settings import home
from toolnexus.cli.stores import opened, read, unfolded, unknown
from toolnexus.providers import PROVIDERS

if TYPE_CHECKING:
    from toolnexus import Client, Message
    from toolnexus.cli.settings import Settings
    from toolnexus.stores.logstore import LogStore

_DEMO_RETRIES = 2


async def ask(settings: Settings, question: str) -> int:
    """Answer one question. Returns the exit code."""
    async with _session(settings, ask=_somebody()) as session:
        if session.tools is demo.TOOLS:
            session.screen.notes.line(f"The model is {session.label}.", style="dim")
        if (code := await session.go_on()) != exits.DONE:
            return code
        return await session.exchange(question)


async def chat(settings: Settings) -> int:
    """Talk until the person leaves. Returns the exit code."""
    async with _session(settings, ask=_somebody()) as session:
        notes, interrupts = session.screen.notes, session.interrupts
        notes.line(f"toolnexus {__version__} · {session.label} · {session.conversation}", style="bold")
        if not at_terminal():
            if (code := await session.go_on()) != exits.DONE:
                return code
            return await session.converse(_piped())
        notes.line("Ctrl-C stops an answer, Ctrl-D or /quit leaves.", style="dim")
        await session.go_on()
        from toolnexus.cli.keyboard import typed

        code = await session.converse(typed(notes, interrupts))
        return code if interrupts.leaving else exits.DONE


async def resume(settings: Settings, given: Given) -> int:
    """Go on with a turn that waits for a person, or was interrupted. Returns the exit code."""
    assert settings.conversation is not None, "a conversation is named"
    async with opened(settings.store) as store:
        if await unfolded(store, settings.conversation) is None:
            return await unknown(store, [settings.conversation], Notes())
    # Who answers by a flag is not asked anything else.
    async with _session(settings, ask=_somebody() and given.how is None) as session:
        return await session.resume(given)


def at_terminal() -> bool:
    """Whether a person sits there."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def _somebody() -> bool:
    """Whether somebody can be asked, wherever the answer goes."""
    return sys.stdin.isatty() and sys.stderr.isatty()


@dataclass(frozen=True, slots=True)
class _Line:
    """A model that can be asked: the client, the tools that it is offered, and how it is called on the screen."""

    client: Client
    tools: Sequence[Any] | None
    label: str


@asynccontextmanager
async def _session(settings: Settings, *, ask: bool) -> AsyncGenerator[Session]:
    """A session on the conversation that the settings name.

    Args:
        ask: Whether somebody is there to be asked.
    """
    screen = Screen(reasoning=settings.verbose > 0)
    try:
        async with opened(settings.store if settings.keep else "memory://") as store:
            conversation = await _conversation(settings, store, screen.notes)
            found = await read(store, conversation)
            settings = await _with_model(settings, history(found[0]) if found else (), screen.notes)
            line = _line(settings, store, _approvals(settings, screen.notes, ask=ask))
            screen.tools = bool(line.tools)
            if settings.keep:
                note(settings.store, conversation)
            async with line.client:
                yield Session(
                    client=line.client,
                    tools=line.tools,
                    conversation=conversation,
                    label=line.label,
                    screen=screen,
                    interrupts=Interrupts(),
                    how_to=partial(how_to, conversation, settings=settings, environ=os.environ),
                    again=again(conversation, settings, os.environ) if settings.keep else None,
                    look=partial(_left, store, conversation),
                    alone=not ask,
                    keyless=_keyless(settings, os.environ),
                    verbose=settings.verbose,
                )
    finally:
        screen.close()


async def _left(store: LogStore, conversation: str) -> Left:
    """How a conversation was left."""
    found = await read(store, conversation)
    return left(*found) if found else Left()


def _keyless(settings: Settings, environ: Mapping[str, str]) -> bool:
    """Whether requests go to an address that was named without a key for it."""
    if not settings.base_url or settings.api_key:
        return False
    return not discover.sends_key(settings.base_url, environ)


def _approvals(settings: Settings, notes: Notes, *, ask: bool) -> Approvals:
    person = None
    if ask:
        from toolnexus.cli.keyboard import Terminal

        person = Terminal(notes)
    try:
        file = home(os.environ) / "approvals.json"
    except ConfigurationError:
        file = None
    return Approvals(Grants(file, everything=settings.yes, patterns=settings.approve), notes, person)


async def _with_model(settings: Settings, history: Sequence[Message], notes: Notes) -> Settings:
    """The settings with a model. One that nobody named is announced.

    A conversation with the demo model goes on with it: whoever started that has named it.
    """
    if settings.model or settings.base_url:
        return settings
    if spoken := demo.speaker(history):
        return replace(settings, model=spoken)
    found = await discover.look(os.environ)
    told = discover.told(found)
    if taken := next((each for each in found if each.model), None):
        notes.line(f"No model was named. Found: {told}. Taking {taken.model}, because {taken.why}; -m names another.")
        return replace(settings, model=taken.model)
    if not at_terminal():
        raise NoModelConfigured(f"No model was named. Found: {told}.")
    notes.line(f"No model was named. Found: {told}. So this is the demo model, which is scripted and no AI.")
    return replace(settings, model="demo")


def _line(settings: Settings, store: LogStore, approvals: Approvals) -> _Line:
    model = settings.model
    if model in demo.NAMES and not settings.base_url:
        client = create_in_process_client(
            model=model,
            generate=demo.generate(model, pace=demo.PACE if sys.stdout.isatty() else 0.0),
            retries=_DEMO_RETRIES,
            store=store,
            system_prompt=settings.system,
            require_approval=approvals.needed,
            wait_for=approvals.answer,
        )
        return _Line(client, demo.TOOLS, f"{model} (scripted, no AI)")
    named = "" if settings.base_url or not model or model.partition(":")[0] in PROVIDERS else model
    if meant := difflib.get_close_matches(named, demo.NAMES, n=1, cutoff=0.7):
        raise ConfigurationError(f"There is no model {model!r}. Did you mean {meant[0]!r}?")
    client = create_client(
        model,
        base_url=settings.base_url,
        api_key=settings.api_key if settings.base_url else None,
        style=settings.style,
        store=store,
        system_prompt=settings.system,
        require_approval=approvals.needed,
        wait_for=approvals.answer,
    )
    return _Line(client, None, model or client.model)


async def _conversation(settings: Settings, store: LogStore, notes: Notes) -> str:
    """The id of the conversation that goes on, or of a new one."""
    if settings.conversation is not None:
        return settings.conversation
    if settings.latest:
        if (found := await latest(store, settings.store)) is not None:
            return found
        notes.line("There is no conversation to continue yet, so this is the first.", style="dim")
    while await store.get(name := new_id()) is not None:
        pass  # somebody has that name already
    return name


async def _piped() -> AsyncIterator[str]:
    """The lines of stdin, as they come."""
    while line := await asyncio.to_thread(sys.stdin.readline):
        yield line.rstrip("\n")
