"""One turn of a remembered conversation: take it, load, run, keep what happened, give it back."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from toolnexus import _queue
from toolnexus._loop import Journal, Run, steps
from toolnexus._tally import Tally
from toolnexus.clock import within
from toolnexus.errors import ReaderGone, RunTimeout, StoreError, ToolnexusError
from toolnexus.events import Event, Finished
from toolnexus.messages import Message, normalise, repair

if TYPE_CHECKING:
    from toolnexus.dialects import Reply
    from toolnexus.messages import ToolMessage, UserMessage
    from toolnexus.stores import ConversationStore
    from toolnexus.tools import Tool, ToolCall

_log = logging.getLogger("toolnexus")
_T = TypeVar("_T")

Prepare: TypeAlias = Callable[[], Awaitable[Run]]
Tell: TypeAlias = Callable[[Event], Awaitable[None]]

_ENDING = 5.0
"""Seconds that recording the end of a turn may take once the run itself is over or cancelled."""
_INTERRUPTIONS = (asyncio.CancelledError, GeneratorExit, RunTimeout, ReaderGone)


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """How a turn is remembered.

    Attributes:
        wait: Seconds to wait for other turns on the conversation. 0: not at all.
        keep_interrupted: Keep the prompt, and the text that was said, of a turn that was interrupted.
    """

    store: ConversationStore
    conversation_id: str
    wait: float
    keep_interrupted: bool


class _Nothing(Journal):
    """A run that nobody remembers."""

    async def reply(self, reply: Reply) -> None: ...
    def starting(self, call: ToolCall, tool: Tool) -> None: ...
    async def result(self, message: ToolMessage) -> None: ...


_NOTHING = _Nothing()


class _Record(Journal):
    """What a turn added to its history, in the order in which it happened.

    Attributes:
        to_keep: Whether it must not be forgotten, however it ends: a tool that is not read-only has started.
    """

    def __init__(self, prompt: UserMessage) -> None:
        self.added: list[Message] = [prompt]
        self.to_keep = False

    async def reply(self, reply: Reply) -> None:
        self.added.append(reply.message)

    def starting(self, call: ToolCall, tool: Tool) -> None:
        self.to_keep = self.to_keep or not tool.read_only

    async def result(self, message: ToolMessage) -> None:
        self.added.append(message)

    def keep_said(self, text: str) -> None:
        """Keep an interrupted turn although it may not have acted, marked as interrupted."""
        self.to_keep = True
        last = self.added[-1]
        if text:
            self.added.append({"role": "assistant", "content": text, "interrupted": True})
        elif last["role"] == "user":
            self.added[-1] = {**last, "interrupted": True}


def forgotten(run: Run, history: list[Message]) -> AsyncGenerator[Event, None]:
    """A turn of no conversation: the loop alone. `history` ends with the prompt."""
    return steps(run, Tally(history, turn_id=run.turn_id, conversation_id=None), _NOTHING)


async def remembered(
    prepare: Prepare, prompt: UserMessage, memory: Memory, tell: Tell | None
) -> AsyncGenerator[Event, None]:
    """A turn on a store of two methods: one `get`, and one `save` for a turn that is to be kept.

    Raises:
        ConversationBusy: Other turns hold the conversation.
        StoreError: `get` failed, and nothing was sent; or `save` failed, with the answer in `.partial`.
    """
    run = await prepare()
    place = await _queue.take(memory.store, memory.conversation_id, wait=memory.wait, deadline=run.deadline)
    try:
        history = await within(run.deadline, load(memory.store, memory.conversation_id))
        record = _Record(prompt)
        tally = Tally([*history, prompt], turn_id=run.turn_id, conversation_id=run.conversation_id)
        events = steps(run, tally, record)
        finished: Finished | None = None
        try:
            async for event in events:
                if isinstance(event, Finished):
                    finished = event
                    continue
                if tell is not None:
                    await tell(event)
                yield event
        except BaseException as failure:
            await events.aclose()
            if memory.keep_interrupted and isinstance(failure, _INTERRUPTIONS):
                record.keep_said(tally.unfinished_text)
            if record.to_keep:
                await _keep(memory, [*history, *record.added], failure)
            raise
        assert finished is not None, "a run ends with Finished or an error"
        try:
            await _save(memory, tally.transcript, run.deadline)
        except ToolnexusError as error:
            error.partial = finished.result
            raise
    finally:
        place.leave()
    if tell is not None:
        await tell(finished)
    yield finished


async def load(store: ConversationStore, conversation_id: str) -> list[Message]:
    """What a store has, ready to be continued; an independent copy."""

    async def read() -> list[Message]:
        found = await _value(store.get(conversation_id))
        return repair(normalise(found or ()))[0]

    return await _translated("read", conversation_id, read)


async def save(store: ConversationStore, conversation_id: str, messages: list[Message]) -> None:
    """Replace what a store has."""

    async def write() -> None:
        await _value(store.save(conversation_id, messages))

    await _translated("saved", conversation_id, write)


async def _save(memory: Memory, messages: list[Message], deadline: float | None) -> None:
    bound = None if deadline is None else max(deadline, time.monotonic() + _ENDING)
    await _settled(within(bound, save(memory.store, memory.conversation_id, messages)))


async def _keep(memory: Memory, messages: list[Message], failure: BaseException) -> None:
    """Save a turn that failed after it acted. What goes wrong here is added to the failure, never put in its place."""
    try:
        await _save(memory, repair(messages)[0], time.monotonic())
    except ToolnexusError as error:
        _log.error("The turn acted and failed, and its record was not saved: %s", error)
        failure.add_note(f"What the turn had done could not be saved: {error}")


async def _translated(what: str, conversation_id: str, work: Callable[[], Awaitable[_T]]) -> _T:
    try:
        return await work()
    except ToolnexusError:
        raise
    except Exception as error:
        raise StoreError(
            f"Conversation {conversation_id!r} could not be {what}: the store raised {type(error).__name__}.",
            conversation_id=conversation_id,
        ) from error


async def _value(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


async def _settled(work: Awaitable[None]) -> None:
    """Await to a known outcome, at most `_ENDING` seconds longer if we are cancelled meanwhile; then be cancelled."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        if task.cancelled():
            raise
        end = time.monotonic() + _ENDING
        while not task.done() and (left := end - time.monotonic()) > 0:
            try:
                await asyncio.wait({task}, timeout=left)
            except asyncio.CancelledError:
                continue  # cancelled again: the outcome is still to be known first
        if not task.done():
            task.cancel()
            _log.error("The store did not answer within %g s of a cancellation; whether it saved is unknown.", _ENDING)
        elif not task.cancelled() and (error := task.exception()) is not None:
            _log.error("The save failed while the run was cancelled: %s", error)
        raise
