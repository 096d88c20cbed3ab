"""Asking and chatting: a model, a store and a conversation are picked, then a session runs on them."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from toolnexus import (
    InMemoryConversationStore,
    NoModelConfigured,
    SQLiteStore,
    __version__,
    create_client,
    create_in_process_client,
)
from toolnexus.cli import demo, discover, exits
from toolnexus.cli.names import new_id
from toolnexus.cli.render import Screen
from toolnexus.cli.session import Interrupts, Session
from toolnexus.cli.settings import Settings, database

if TYPE_CHECKING:
    from toolnexus import Client, Message
    from toolnexus.cli.render import Notes

_DEMO_RETRIES = 2


async def ask(settings: Settings, question: str) -> int:
    """Answer one question. Returns the exit code."""
    async with _session(settings) as session:
        if session.tools is demo.TOOLS:
            session.screen.notes.line(f"The model is {session.label}.", style="dim")
        return await session.exchange(question)


async def chat(settings: Settings) -> int:
    """Talk until the person leaves. Returns the exit code."""
    async with _session(settings) as session:
        notes, interrupts = session.screen.notes, session.interrupts
        notes.line(f"toolnexus {__version__} · {session.label} · {session.conversation}", style="bold")
        if not at_terminal():
            return await session.converse(_piped())
        notes.line("Ctrl-C stops an answer, Ctrl-D leaves.", style="dim")
        from toolnexus.cli.keyboard import typed

        code = await session.converse(typed(notes, interrupts))
        return code if interrupts.leaving else exits.DONE


def at_terminal() -> bool:
    """Whether a person sits there."""
    return sys.stdin.isatty() and sys.stdout.isatty()


@dataclass(frozen=True, slots=True)
class _Line:
    """A model that can be asked: the client, the tools that it is offered, and how it is called on the screen."""

    client: Client
    tools: Sequence[Any] | None
    label: str


@asynccontextmanager
async def _session(settings: Settings) -> AsyncGenerator[Session]:
    screen = Screen(reasoning=settings.verbose > 0)
    store = SQLiteStore(database(os.environ)) if settings.store else InMemoryConversationStore()
    try:
        conversation = await _conversation(settings, store, screen.notes)
        settings = await _with_model(settings, await store.get(conversation) or [], screen.notes)
        line = _line(settings, store)
        screen.tools = bool(line.tools)
        async with line.client:
            yield Session(
                client=line.client,
                tools=line.tools,
                conversation=conversation,
                label=line.label,
                screen=screen,
                interrupts=Interrupts(),
                verbose=settings.verbose,
            )
    finally:
        screen.close()
        if isinstance(store, SQLiteStore):
            await store.aclose()


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


def _line(settings: Settings, store: SQLiteStore | InMemoryConversationStore) -> _Line:
    model = settings.model
    if model in demo.NAMES and not settings.base_url:
        client = create_in_process_client(
            model=model,
            generate=demo.generate(model, pace=demo.PACE if sys.stdout.isatty() else 0.0),
            retries=_DEMO_RETRIES,
            store=store,
            system_prompt=settings.system,
        )
        return _Line(client, demo.TOOLS, f"{model} (scripted, no AI)")
    client = create_client(
        model, base_url=settings.base_url, style=settings.style, store=store, system_prompt=settings.system
    )
    return _Line(client, None, model or client.model)


async def _conversation(settings: Settings, store: SQLiteStore | InMemoryConversationStore, notes: Notes) -> str:
    """The id of the conversation that goes on, or of a new one."""
    if settings.conversation is not None:
        return settings.conversation
    if settings.latest and isinstance(store, SQLiteStore):
        if latest := await store.list(limit=1):
            return latest[0].id
        notes.line("There is no conversation to continue yet, so this is the first.", style="dim")
    while await store.get(name := new_id()) is not None:
        pass  # somebody has that name already
    return name


async def _piped() -> AsyncIterator[str]:
    """The lines of stdin, as they come."""
    while line := await asyncio.to_thread(sys.stdin.readline):
        yield line.rstrip("\n")
