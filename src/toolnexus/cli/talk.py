"""Asking and chatting: a model, a store and a conversation are picked, then a session runs on them."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from toolnexus import ConfigurationError, NoModelConfigured, __version__
from toolnexus.cli import attachments, demo, discover, exits, reach
from toolnexus.cli.approvals import Approvals
from toolnexus.cli.grants import Grants
from toolnexus.cli.latest import latest, note
from toolnexus.cli.names import new_id
from toolnexus.cli.pending import Given, Left, again, history, how_to, left
from toolnexus.cli.person import at_terminal, somebody
from toolnexus.cli.render import Notes, Screen
from toolnexus.cli.servers import CHAT_WAIT, WAIT
from toolnexus.cli.session import Interrupts, Session
from toolnexus.cli.settings import home
from toolnexus.cli.spending import Spent
from toolnexus.cli.stores import opened, read, unfolded, unknown
from toolnexus.cli.toolbox import Toolbox, with_project
from toolnexus.providers import PROVIDERS

if TYPE_CHECKING:
    from pathlib import Path

    from toolnexus import Client, Message, Toolkit
    from toolnexus.cli.approvals import Person
    from toolnexus.cli.settings import Settings
    from toolnexus.messages import Prompt
    from toolnexus.stores.logstore import LogStore


async def ask(settings: Settings, prompt: Prompt, *, schema: Mapping[str, Any] | None = None) -> int:
    """Answer one question. Returns the exit code.

    Args:
        schema: The JSON Schema that the answer has to fit. None: it is text.
    """
    async with _sessions(settings, schema=schema) as sessions:
        session = await sessions.first()
        if reach.is_demo(sessions.settings):
            session.screen.notes.line(f"The model is {session.label}.", style="dim")
        if (code := await session.go_on()) != exits.DONE:
            return code
        return await session.exchange(prompt)


async def chat(settings: Settings, *, files: Sequence[str] = (), schema: Mapping[str, Any] | None = None) -> int:
    """Talk until the person leaves. Returns the exit code.

    Args:
        files: What goes along with the first question.
        schema: As for `ask`.
    """
    async with _sessions(settings, schema=schema, wait=CHAT_WAIT) as sessions:
        session = await sessions.first()
        notes, interrupts = session.screen.notes, session.interrupts
        notes.line(f"toolnexus {__version__} · {session.label} · {session.conversation}", style="bold")
        if not at_terminal():
            if (code := await session.go_on()) != exits.DONE:
                return code
            async with aclosing(_piped(files)) as prompts:
                return await session.converse(prompts)
        notes.line("Ctrl-C stops an answer, Ctrl-D or /quit leaves, /help tells what else there is.", style="dim")
        await session.go_on()
        from toolnexus.cli.chat import Chat
        from toolnexus.cli.keyboard import typed

        talk = Chat(sessions, session, files)
        async with aclosing(typed(notes, interrupts, history=_remembered(settings), choices=talk.choices)) as lines:
            code = await talk.converse(lines)
        return code if interrupts.leaving else exits.DONE


async def resume(settings: Settings, given: Given, *, schema: Mapping[str, Any] | None = None) -> int:
    """Go on with a turn that waits for a person, or was interrupted. Returns the exit code.

    Args:
        schema: As for `ask`. It is not remembered.
    """
    assert settings.conversation is not None, "a conversation is named"
    async with opened(settings.store) as store:
        if await unfolded(store, settings.conversation) is None:
            return await unknown(store, [settings.conversation], Notes())
    # Who answers by a flag is not asked anything else.
    async with _sessions(settings, ask=given.how is None, schema=schema) as sessions:
        return await (await sessions.first()).resume(given)


@dataclass(frozen=True, slots=True)
class _Line:
    """A model that can be asked: the client, the tools that it is offered, and how it is called on the screen."""

    client: Client
    tools: Toolkit
    label: str


class Sessions:
    """Makes the sessions of a command: on a conversation, with the model that the settings name. One at a time.

    Attributes:
        store: Where the conversations are kept.
        settings: What was chosen, with a model since the first session.
    """

    def __init__(
        self,
        settings: Settings,
        store: LogStore,
        screen: Screen,
        toolbox: Toolbox,
        *,
        person: Person | None,
        schema: Mapping[str, Any] | None,
    ) -> None:
        self.settings = settings
        self.store = store
        self._screen = screen
        self._toolbox = toolbox
        self._person = person
        self._schema = schema
        self._interrupts = Interrupts()
        self._spent = Spent()
        self._session: Session | None = None
        self._approvals: Approvals | None = None

    async def first(self) -> Session:
        """The session that the settings name."""
        conversation = await _conversation(self.settings, self.store, self._screen.notes)
        found = await read(self.store, conversation)
        self.settings = await _with_model(self.settings, history(found[0]) if found else (), self._screen.notes)
        return await self.on(conversation)

    async def on(self, conversation: str) -> Session:
        """Another conversation with the same model. What was allowed in the one before is not allowed there.

        Raises:
            ToolnexusError: The model cannot be asked. The session before goes on.
        """
        return await self._begin(conversation, self._new_approvals())

    async def with_model(self, name: str) -> Session:
        """The same conversation with another model.

        Raises:
            ToolnexusError: As for `on`.
        """
        assert self._session is not None, "there was a first one"
        assert self._approvals is not None, "and it had some"
        before = self.settings
        self.settings = _on_model(before, name)
        try:
            return await self._begin(self._session.conversation, self._approvals)
        except BaseException:
            self.settings = before
            raise

    def models(self) -> list[str]:
        """How names of models begin."""
        return [*demo.NAMES, *(f"{name}:" for name in {**PROVIDERS, **self.settings.providers})]

    async def aclose(self) -> None:
        """Close what the last session was made of."""
        if self._session is not None:
            await self._session.client.aclose()

    def _new_approvals(self) -> Approvals:
        return approvals(self.settings, self._screen.notes, self._person, self._toolbox)

    async def _line(self, approvals: Approvals) -> _Line:
        settings = self.settings
        scripted = reach.is_demo(settings)
        toolkit = await self._toolbox.toolkit(demo.TOOLS if scripted else ())
        client = reach.client(
            settings,
            pace=demo.PACE if sys.stdout.isatty() else 0.0,
            store=self.store,
            require_approval=approvals.needed,
            wait_for=approvals.answer,
        )
        label = f"{settings.model} (scripted, no AI)" if scripted else settings.model or client.model
        return _Line(client, toolkit, label)

    async def _begin(self, conversation: str, approvals: Approvals) -> Session:
        settings = self.settings
        line = await self._line(approvals)
        await self.aclose()
        self._screen.tools = bool(line.tools.tools())
        if settings.keep:
            note(settings.store, conversation)
        self._approvals = approvals
        self._session = Session(
            client=line.client,
            tools=line.tools,
            conversation=conversation,
            label=line.label,
            screen=self._screen,
            interrupts=self._interrupts,
            how_to=partial(how_to, conversation, settings=settings, environ=os.environ),
            again=again(conversation, settings, os.environ) if settings.keep else None,
            look=partial(_left, self.store, conversation),
            alone=self._person is None,
            spent=self._spent,
            schema=self._schema,
            keyless=_keyless(settings, os.environ),
            verbose=settings.verbose,
        )
        return self._session


@asynccontextmanager
async def _sessions(
    settings: Settings, *, schema: Mapping[str, Any] | None, ask: bool = True, wait: float = WAIT
) -> AsyncGenerator[Sessions]:
    """What makes the sessions of a command.

    Args:
        ask: Whether the person is asked, if somebody is there.
        wait: Seconds to wait for MCP servers.
    """
    screen = Screen(form=settings.output, value=schema is not None, reasoning=settings.verbose > 0)
    person = somebody(screen.notes) if ask else None
    try:
        equipped = await with_project(settings, screen.notes, person)
        async with (
            aclosing(await Toolbox.load(equipped, screen.notes, person, wait=wait)) as toolbox,
            opened(settings.store if settings.keep else "memory://") as store,
            aclosing(Sessions(settings, store, screen, toolbox, person=person, schema=schema)) as sessions,
        ):
            yield sessions
    finally:
        screen.close()


def _on_model(settings: Settings, name: str) -> Settings:
    """The settings with another model. One that names its provider, or its address, leaves the address behind."""
    url, separator, model = name.partition("#")
    if "://" in url:
        return replace(settings, model=model if separator else None, base_url=url, style=None)
    complete = name in demo.NAMES or _provider_of(name, settings) is not None
    return replace(settings, model=name, base_url=None, style=None) if complete else replace(settings, model=name)


async def _left(store: LogStore, conversation: str) -> Left:
    """How a conversation was left."""
    found = await read(store, conversation)
    return left(*found) if found else Left()


def _keyless(settings: Settings, environ: Mapping[str, str]) -> bool:
    """Whether requests go to an address that was named without a key for it."""
    if not settings.base_url or settings.api_key:
        return False
    return not discover.sends_key(settings.base_url, environ, settings.providers)


def approvals(settings: Settings, notes: Notes, person: Person | None, toolbox: Toolbox) -> Approvals:
    """What answers requests: what was granted in advance, then the person. Those of the toolbox's servers, too.

    Raises:
        ConfigurationError: What was granted for always cannot be read.
    """
    try:
        file = home(os.environ) / "approvals.json"
    except ConfigurationError:
        file = None
    grants = Grants(file, everything=settings.yes, patterns=settings.approve)
    found = Approvals(grants, notes, person, vouched=toolbox.vouched, root=toolbox.root_of)
    toolbox.ask = found.answer
    return found


async def _with_model(settings: Settings, history: Sequence[Message], notes: Notes) -> Settings:
    """The settings with a model. One that nobody named is announced.

    A conversation with the demo model goes on with it: whoever started that has named it.
    """
    if settings.model or settings.base_url:
        return settings
    if spoken := demo.speaker(history):
        return replace(settings, model=spoken)
    try:
        return await reach.with_found_model(settings, notes)
    except NoModelConfigured as error:
        if not at_terminal():
            raise
        notes.line(f"{error} So this is the demo model, which is scripted and no AI.")
        return replace(settings, model="demo")


def _provider_of(model: str, settings: Settings) -> str | None:
    """The provider that a model is named with. None: with none."""
    name, separator, _ = model.partition(":")
    return name if separator and (name in PROVIDERS or name in settings.providers) else None


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


async def _piped(files: Sequence[str]) -> AsyncGenerator[Prompt]:
    """The lines of stdin, as they come; the first with files. They may be anybody's words, so they name none."""
    while line := await asyncio.to_thread(sys.stdin.readline):
        if line.strip():
            yield await asyncio.to_thread(attachments.prompt, line.rstrip("\n"), files)
            files = ()


def _remembered(settings: Settings) -> Path | None:
    """Where the questions of a chat are remembered. None: nowhere."""
    try:
        return home(os.environ) / "history" if settings.keep else None
    except ConfigurationError:
        return None
