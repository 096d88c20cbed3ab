"""One turn of a remembered conversation: take it, load, run, keep what happened, give it back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, TypeAlias

from toolnexus._answer_json import Misfit
from toolnexus._loop import Journal, Run, steps
from toolnexus._tally import Tally
from toolnexus.clock import within
from toolnexus.errors import InvalidOutput, ReaderGone, RunTimeout, ToolnexusError
from toolnexus.events import Event, Finished, RunResult
from toolnexus.telemetry.watching import watched

if TYPE_CHECKING:
    from toolnexus._reopened import OpenStep, Unfinished
    from toolnexus.dialects import Reply
    from toolnexus.messages import Message, ToolMessage
    from toolnexus.tools import Tool, ToolCall

Prepare: TypeAlias = Callable[[], Awaitable[Run]]
Tell: TypeAlias = Callable[[Event], Awaitable[None]]

_INTERRUPTIONS = (asyncio.CancelledError, GeneratorExit, RunTimeout, ReaderGone)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What a turn begins with.

    Attributes:
        transcript: History and prompt.
        run: The run, under the turn's own id.
        opened: The calls that the last reply of the transcript still waits for. None: there are none.
        result: What is known already: the turn ran before, and does not run again. None: it runs.
    """

    transcript: list[Message]
    run: Run
    opened: OpenStep | None = None
    result: RunResult | None = None


def reopened(turn: Unfinished, opened: OpenStep | None, run: Run, turn_id: str) -> Start:
    """What a turn goes on with. The results of its last reply come again with the calls that are still open."""
    transcript = turn.transcript if opened is None else [*turn.messages]
    return Start(transcript=transcript, run=replace(run, turn_id=turn_id, replies=turn.replies), opened=opened)


class Keeper(Journal, Protocol):
    """Remembers one turn. `begin` first, then one of `finish` and `fail`, and always `leave`."""

    @property
    def lost(self) -> ToolnexusError | None:
        """Why the turn is not ours any more. None: it is."""
        ...

    async def begin(self, run: Run, when_lost: Callable[[], None]) -> Start:
        """Take the turn and load its conversation. Nothing has been sent yet.

        Args:
            when_lost: To be called when `lost` is set.
        """
        ...

    async def finish(self, result: RunResult, transcript: list[Message]) -> None:
        """Record a turn that ended well."""
        ...

    async def fail(self, failure: BaseException, *, interrupted: bool, said: str) -> None:
        """Record a turn that did not. What goes wrong here is added to the failure, never put in its place.

        Args:
            interrupted: It was stopped, rather than went wrong by itself.
            said: The text of a reply that never got complete.
        """
        ...

    async def leave(self) -> None:
        """Give the turn back."""
        ...


class _Nothing(Journal):
    """A run that nobody remembers."""

    async def reply(self, reply: Reply, acting: list[ToolCall]) -> None: ...
    def starting(self, call: ToolCall, tool: Tool) -> None: ...
    async def acting(self, call: ToolCall, tool: Tool) -> None: ...
    async def result(self, message: ToolMessage, *, ran: bool) -> None: ...


_NOTHING = _Nothing()


def forgotten(run: Run, history: list[Message], opened: OpenStep | None = None) -> AsyncGenerator[Event, None]:
    """A turn of no conversation: the loop alone. `history` ends with the prompt, or as `Start.transcript`."""
    events = steps(run, Tally(history, turn_id=run.turn_id, conversation_id=None), _NOTHING, opened)
    return watched(events, run.watch)


async def remembered(prepare: Prepare, keeper: Keeper, tell: Tell | None) -> AsyncGenerator[Event, None]:
    """A turn that `keeper` remembers. `Finished` comes when it is recorded.

    Raises:
        ConversationBusy: Other turns hold the conversation.
        StoreError: It could not be read, and nothing was sent; or not be saved, with the answer in `.partial`.
        ConversationFenced: The turn was taken over by somebody else while it ran.
    """
    run = await prepare()
    watch = _Watch()
    try:
        start = await keeper.begin(run, watch.interrupt)
        if start.result is not None:
            finished = Finished(result=await _read_again(start.result, run))
        else:
            tally = Tally(start.transcript, turn_id=start.run.turn_id, conversation_id=run.conversation_id)
            events = steps(start.run, tally, keeper, start.opened)
            finished = None
            try:
                while finished is None:
                    event = await watch.next(events, keeper)
                    if isinstance(event, Finished):
                        finished = event
                    else:
                        if tell is not None:
                            await tell(event)
                        yield event
            except BaseException as failure:
                await events.aclose()
                tally.explain(failure)
                interrupted = isinstance(failure, _INTERRUPTIONS)
                await keeper.fail(failure, interrupted=interrupted, said=tally.unfinished_text)
                raise
            try:
                await keeper.finish(finished.result, tally.transcript)
            except ToolnexusError as error:
                error.partial = finished.result
                raise
    finally:
        await keeper.leave()
    if tell is not None:
        await tell(finished)
    yield finished


async def _read_again(result: RunResult, run: Run) -> RunResult:
    """A result that is known already, with its output, which is not recorded, from its text.

    Raises:
        InvalidOutput: It was asked for with another output type, or none.
    """
    if run.answer_type is None or result.status != "done":
        return result
    try:
        output = await within(run.deadline, run.answer_type.read(result.text))
    except Misfit as misfit:
        error = InvalidOutput(misfit.shown, why="it is recorded, so that the model is not asked again")
        error.partial = result
        raise error from misfit.__cause__
    return replace(result, output=output)


class _Watch:
    """Waits for the events of a run, and stops waiting when its turn is lost."""

    def __init__(self) -> None:
        self._waiting: asyncio.Task[object] | None = None

    def interrupt(self) -> None:
        """Stop waiting. While nobody waits, the next one finds out by itself."""
        if self._waiting is not None:
            self._waiting.cancel()

    async def next(self, events: AsyncGenerator[Event, None], keeper: Keeper) -> Event:
        if keeper.lost is not None:
            raise keeper.lost
        self._waiting = task = asyncio.current_task()
        try:
            return await anext(events)
        except asyncio.CancelledError:
            if keeper.lost is None or task is None or task.uncancel() > 0:
                raise
            raise keeper.lost from None
        finally:
            self._waiting = None
