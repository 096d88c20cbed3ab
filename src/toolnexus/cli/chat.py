"""A talk at a terminal: questions go to a session, and commands with a slash say which one that is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from toolnexus import ToolnexusError
from toolnexus.cli import attachments, exits, slash
from toolnexus.cli.names import new_id
from toolnexus.cli.render import WIDTH, cut
from toolnexus.cli.session import report
from toolnexus.cli.spending import spent_on
from toolnexus.cli.stores import read, unfolded, unknown
from toolnexus.messages import shown_text

if TYPE_CHECKING:
    from toolnexus.cli.session import Session
    from toolnexus.cli.talk import Sessions
    from toolnexus.messages import Content, Prompt
    from toolnexus.stores.log import Log, Turn

_OFFERED = 200
"""Conversations that Tab offers."""


class Chat:
    """What a person does at a terminal, one line after the other.

    Args:
        sessions: Makes the session of a conversation and a model.
        session: The first.
        files: What goes along with the first question.
    """

    def __init__(self, sessions: Sessions, session: Session, files: Sequence[str] = ()) -> None:
        self._sessions = sessions
        self._session = session
        self._files = files
        self._lost: Prompt | None = None
        """The last question, if it left no trace."""
        self._commands: Mapping[str, Callable[[str], Awaitable[None]]] = {
            "help": self._help,
            "new": self._new,
            "open": self._open,
            "model": self._model,
            "usage": self._usage,
            "undo": self._undo,
        }

    async def converse(self, lines: AsyncIterator[str]) -> int:
        """Ask and obey until the person leaves. Returns the exit code of the last question."""
        code = exits.DONE
        async for line in lines:
            given = slash.read(line)
            if isinstance(given, str):
                code = await self._ask(given, code) if given.strip() else code
            elif given.wrong:
                self._session.screen.notes.line(given.wrong, style="yellow")
            elif given.name in ("quit", "exit"):
                break
            elif given.name == "retry":
                code = await self._retry(code)
            else:
                await self._obey(given)
            if self._session.interrupts.leaving:
                break
        return exits.INTERRUPTED if self._session.interrupts.leaving else code

    async def choices(self, name: str) -> Iterable[str]:
        """What may stand after a command."""
        if name == "open":
            try:
                return [each.id for each in (await self._sessions.store.list(limit=_OFFERED)).items]
            except ToolnexusError:
                return ()
        return self._sessions.models() if name == "model" else ()

    async def _ask(self, text: str, before: int) -> int:
        found = attachments.find([text])
        try:
            prompt = await asyncio.to_thread(attachments.prompt, found.text, [*self._files, *found.files])
        except exits.Misused as error:
            report(self._session.screen.notes, error, verbose=self._session.verbose)
            return exits.ending(error).code
        self._files = ()
        for line in attachments.told(found.missing):
            self._session.screen.notes.line(line, style="dim")
        return await self._send(prompt, before)

    async def _send(self, prompt: Prompt, before: int) -> int:
        last = await self._last()
        code = await self._session.follow(prompt, before)
        now = await self._last() if code != exits.DONE else None
        kept = code == exits.DONE or (now is not None and now.count > 0 and (last is None or now.id != last.id))
        self._lost = None if kept else prompt
        return code

    async def _retry(self, before: int) -> int:
        prompt = self._lost
        if prompt is None:
            try:
                prompt = await self._taken_back()
            except ToolnexusError as error:
                report(self._session.screen.notes, error, verbose=self._session.verbose, asked=False)
                return exits.ending(error).code
        if prompt is None:
            self._session.screen.notes.line("There is nothing to ask again.", style="yellow")
            return before
        return await self._send(prompt, exits.DONE)

    async def _obey(self, given: slash.Given) -> None:
        try:
            await self._commands[given.name](given.argument)
        except ToolnexusError as error:
            report(self._session.screen.notes, error, verbose=self._session.verbose, asked=False)

    async def _help(self, _: str) -> None:
        for line in slash.told():
            self._session.screen.notes.line(line)

    async def _new(self, _: str) -> None:
        while await unfolded(self._sessions.store, name := new_id()) is not None:
            pass  # somebody has that name already
        await self._go_to(name)

    async def _open(self, conversation: str) -> None:
        if await unfolded(self._sessions.store, conversation) is None:
            await unknown(self._sessions.store, [conversation], self._session.screen.notes)
            return
        await self._go_to(conversation)
        messages = await self._sessions.store.get(conversation) or []
        for message in messages[-1:]:
            if text := shown_text(message.get("content")):
                self._say(f"{message['role']}: {cut(text, WIDTH)}")
        await self._session.go_on()

    async def _go_to(self, conversation: str) -> None:
        self._session = await self._sessions.on(conversation)
        self._lost = None
        self._say(f"{self._session.label} · {conversation}", style="bold")

    async def _model(self, name: str) -> None:
        if name:
            self._session = await self._sessions.with_model(name)
        self._say(f"{self._session.label} · {self._session.conversation}", style="bold")

    async def _usage(self, _: str) -> None:
        turns = await self._sessions.store.turns(self._session.conversation)
        self._say(f"This conversation: {spent_on(turns).told()}", style="")
        self._say(f"Since you came:    {self._session.spent.told()}", style="")

    async def _undo(self, _: str) -> None:
        prompt = await self._taken_back()
        if prompt is None:
            self._session.screen.notes.line("There is nothing to take back.", style="yellow")
        else:
            self._say(f"Taken back: {cut(shown_text(prompt), WIDTH)}")
        self._lost = None

    async def _taken_back(self) -> Content | None:
        """Take the last turn back. Returns what was asked in it; None if there was none."""
        found = await read(self._sessions.store, self._session.conversation)
        last = _last_kept(found[0]) if found else None
        if found is None or last is None:
            return None
        messages = found[0].messages_of(last)
        if messages[0]["role"] != "user":
            return None
        await self._sessions.store.undo(self._session.conversation)
        recorded = found[0].recorded
        if recorded is not None and recorded.effects - recorded.harmless:
            self._say("What its tools did stays done.")
        return messages[0]["content"]

    async def _last(self) -> Turn | None:
        try:
            turns = await self._sessions.store.turns(self._session.conversation)
        except ToolnexusError:
            return None  # the question will say what is wrong
        return turns[-1] if turns else None

    def _say(self, text: str, *, style: str = "dim") -> None:
        self._session.screen.notes.line(text, style=style)


def _last_kept(log: Log) -> Turn | None:
    return next((turn for turn in reversed(log.turns) if turn.count), None)
