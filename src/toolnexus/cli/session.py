"""One exchange after the other on one conversation: events to the screen, Ctrl-C to the run."""

from __future__ import annotations

import asyncio
import signal
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from toolnexus import Finished, InvalidOutput, ProviderError, RunResult, ToolnexusError
from toolnexus.cli import exits
from toolnexus.cli.echo import unheard
from toolnexus.cli.output import failure, stopped
from toolnexus.cli.pending import Given
from toolnexus.cli.render import cut
from toolnexus.cli.spending import Spent, dollars, tokens

if TYPE_CHECKING:
    from decimal import Decimal
    from types import FrameType

    from toolnexus import Client, Toolkit
    from toolnexus._stream import RunStream
    from toolnexus.cli.pending import Left
    from toolnexus.cli.render import Notes, Screen
    from toolnexus.messages import Prompt
    from toolnexus.suspension import Answer, Request

_TWICE = 1.0
"""Seconds within which a second Ctrl-C means: leave."""
_SHOWN = 1000
"""Characters that are shown of an answer that is none."""


class Interrupts:
    """Counts Ctrl-C. Once stops what runs; twice within a second leaves."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._last = float("-inf")
        self.leaving = False

    def press(self) -> bool:
        """Note one. Returns whether it is time to leave."""
        now = self._now()
        self.leaving = self.leaving or now - self._last < _TWICE
        self._last = now
        return self.leaving


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A conversation on the command line.

    Attributes:
        label: The model, as the status line names it.
        how_to: Lines that say how to answer what a turn waits for.
        again: The command that asks about it. None: nothing is kept, so none can.
        look: Tells how the conversation was left.
        alone: Whether nobody is there to be asked.
        spent: What the answers of all sessions of this command took.
        schema: The JSON Schema that answers have to fit. None: they are text.
        keyless: Whether requests go to an address without a key.
    """

    client: Client
    tools: Toolkit
    conversation: str
    label: str
    screen: Screen
    interrupts: Interrupts
    how_to: Callable[[Sequence[Request]], Iterable[str]]
    again: str | None
    look: Callable[[], Awaitable[Left]]
    alone: bool
    spent: Spent
    schema: Mapping[str, Any] | None = None
    keyless: bool = False
    verbose: int = 0

    async def exchange(self, prompt: Prompt) -> int:
        """Ask one question and show what happens. Returns its exit code; whatever happens is said."""
        return await self._watched(self._ask(prompt))

    async def follow(self, prompt: Prompt, before: int) -> int:
        """Ask the next question, unless the person would rather not go on after how the one before was left.

        Args:
            before: The exit code of that one.
        """
        doubtful = before == exits.INTERRUPTED and (await self.look()).unknown
        code = await self.go_on() if doubtful else exits.DONE
        if code == exits.DONE:
            return await self.exchange(prompt)
        self.screen.notes.line("Your question was not sent.", style="yellow")
        return code

    async def resume(self, given: Given) -> int:
        """Go on with a turn that waits for a person or was interrupted, and show what happens, as `exchange` does."""
        return await self._watched(self._resume(given))

    async def go_on(self) -> int:
        """Let the turn that the conversation was left with come to its end, if somebody is there to be asked about it.

        Returns `DONE` if the next question may be asked.
        """
        left = await self.look()
        if left.how == "waiting":
            self.screen.notes.line("The last turn is waiting for an answer.", style="yellow")
            if self.alone:
                for line in self.how_to(left.waiting):
                    self.screen.notes.line(line, style="yellow")
                message = "The last turn is waiting for an answer, so the question was not sent."
                self._stopped("pending", message, exits.PENDING, left.waiting)
                return exits.PENDING
        elif left.how == "cut off":
            tools = ", ".join(left.unknown) or "a tool"
            told = f"The last turn was cut off while {tools} ran. Nobody knows what it did."
            self.screen.notes.line(told, style="yellow")
            if self.alone and self.again:
                self.screen.notes.line(f"Going on without it; `{self.again}` would have asked.", style="dim")
        return exits.DONE if self.alone or not left.how else await self.resume(Given())

    async def _watched(self, turn: Coroutine[Any, Any, RunResult]) -> int:
        work = asyncio.create_task(turn)
        began = time.monotonic()
        pressed = False

        def press() -> None:
            nonlocal pressed
            pressed = True
            self.interrupts.press()
            work.cancel()

        try:
            with _on_interrupt(press), unheard():
                result = await work
        except ToolnexusError as error:
            self.screen.close()
            self._failed(error)
            return exits.ending(error).code
        except asyncio.CancelledError:
            self.screen.close()
            if not pressed:
                raise
            message = "Interrupted. What was said is kept."
            self.screen.notes.line(message, style="yellow")
            self._stopped("interrupted", message, exits.INTERRUPTED)
            await self._doubt()
            return exits.INTERRUPTED
        if result.status == "pending":
            for line in self.how_to(result.pending):
                self.screen.notes.line(line, style="yellow")
        if result.status == "incomplete":
            self.screen.notes.line(f"Stopped before the end: {result.limit} was reached.", style="yellow")
        seconds = time.monotonic() - began
        # A table of prices may have to be loaded.
        cost = await asyncio.to_thread(lambda: result.cost) if self.screen.notes.terminal else None
        self.spent.add(result.usage, cost)
        self.screen.notes.line(self._status(result, seconds, cost), style="dim")
        return exits.code_of(result)

    def _failed(self, error: ToolnexusError) -> None:
        advice = report(self.screen.notes, error, verbose=self.verbose, keyless=self.keyless)
        if error.partial is not None:
            self.spent.add(error.partial.usage, None)
            if isinstance(error, InvalidOutput):
                self.screen.notes.line(f"The answer was: {cut(error.partial.text, _SHOWN)}", style="dim")
        if self.screen.records is not None:
            self.screen.records.failed(failure(error, advice=advice, conversation_id=self.conversation))

    def _stopped(self, kind: str, message: str, code: int, pending: Sequence[Request] = ()) -> None:
        if self.screen.records is not None:
            about = stopped(kind, message, code, conversation_id=self.conversation, pending=pending)
            self.screen.records.failed(about)

    async def _doubt(self) -> None:
        """Say which tools may have acted in a turn that was just stopped, and what asks about them."""
        if unknown := (await self.look()).unknown:
            asks = f" `{self.again}` asks." if self.again else ""
            self.screen.notes.line(f"{', '.join(unknown)} may have run; its outcome is unknown.{asks}", style="yellow")

    async def converse(self, prompts: AsyncIterator[Prompt]) -> int:
        """Ask one question after the other. Returns the exit code of the last one."""
        code = exits.DONE
        async for prompt in prompts:
            code = await self.follow(prompt, code)
            if self.interrupts.leaving or (code == exits.PENDING and self.alone):
                break  # the next line would count what waits as not answered
        return exits.INTERRUPTED if self.interrupts.leaving else code

    async def _ask(self, prompt: Prompt) -> RunResult:
        events = self.client.stream(
            prompt, self.tools, id=self.conversation, output_type=self.schema, keep_interrupted=True
        )
        return await self._shown(events)

    async def _resume(self, given: Given) -> RunResult:
        if given.how is None:
            return await self._continued(None)
        waiting = (await self.look()).waiting
        if not waiting:  # it was interrupted, and nobody was asked yet
            asked = await self._continued(None)
            if asked.status != "pending":
                return asked
            waiting = asked.pending
        try:
            answers = given.answers(waiting)
        except exits.Misused as error:
            for line in self.how_to(waiting):
                error.add_note(line)
            raise
        return await self._continued(answers)

    async def _continued(self, answers: Sequence[Answer] | None) -> RunResult:
        events = self.client.stream_resume(
            self.conversation, self.tools, answers=answers, output_type=self.schema, keep_interrupted=True
        )
        return await self._shown(events)

    async def _shown(self, events: RunStream) -> RunResult:
        self.screen.begin()
        async with events:
            async for event in events:
                self.screen.show(event)
                if isinstance(event, Finished):
                    return event.result
        raise AssertionError("a run ends with Finished or an error")

    def _status(self, result: RunResult, seconds: float, cost: Decimal | None) -> str:
        parts = [self.label, tokens(result.usage), self.conversation]
        if self.screen.notes.terminal:
            parts += [f"{seconds:.1f} s", "" if cost is None else dollars(cost)]
        return " · ".join(part for part in parts if part)


def report(notes: Notes, error: Exception, *, verbose: int, asked: bool = True, keyless: bool = False) -> str:
    """Say what happened and what to do. Returns the latter.

    Args:
        asked: Whether it was a question.
        keyless: Whether requests went to an address without a key.
    """
    notes.line(f"Error: {exits.told(error)}", style="red")
    for added in getattr(error, "__notes__", ()):
        notes.line(added, style="red")
    refused = isinstance(error, ProviderError) and error.status == 401
    advice = exits.NO_KEY if keyless and refused else exits.ending(error, asked=asked).advice
    if advice:
        notes.line(advice)
    if verbose > 1:
        notes.line("".join(traceback.format_exception(error)).rstrip(), style="dim")
    return advice


@contextmanager
def _on_interrupt(press: Callable[[], None]) -> Generator[None]:
    """Have Ctrl-C call `press` on this event loop."""
    loop = asyncio.get_running_loop()
    before = signal.getsignal(signal.SIGINT)

    def handle(_: int, __: FrameType | None) -> None:
        loop.call_soon_threadsafe(press)  # which also wakes the loop

    signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
