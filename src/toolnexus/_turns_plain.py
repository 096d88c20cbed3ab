"""A turn on a store of two methods: one `get`, and one `save` if it is to be kept; a new turn, or one that goes on."""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from toolnexus import _queue, _reopened
from toolnexus._turns import Start, reopened
from toolnexus.clock import ENDING, settled, within
from toolnexus.errors import AlreadyAnswered, NoSuchConversation, StoreError, ToolnexusError
from toolnexus.messages import Message, declined, interrupted_turn, normalise, repair

if TYPE_CHECKING:
    from toolnexus._loop import Run
    from toolnexus.dialects import Reply
    from toolnexus.events import RunResult
    from toolnexus.messages import ToolMessage, UserMessage
    from toolnexus.stores import ConversationStore
    from toolnexus.suspension import Answer
    from toolnexus.tools import Tool, ToolCall

_log = logging.getLogger("toolnexus")
_T = TypeVar("_T")


class PlainKeeper:
    """Remembers a turn as a store of two methods can: as a whole, at its end.

    Args:
        prompt: None: the turn is none that begins.
        wait: Seconds to wait for other turns on the conversation. 0: not at all.
        keep_interrupted: Keep the prompt, and the text that was said, of a turn that was interrupted.
    """

    lost: None = None

    def __init__(
        self,
        store: ConversationStore,
        conversation_id: str,
        prompt: UserMessage | None,
        *,
        wait: float,
        keep_interrupted: bool,
    ) -> None:
        self._store = store
        self._id = conversation_id
        self._prompt = prompt
        self._wait = wait
        self._keep_interrupted = keep_interrupted
        self._place: _queue.Place | None = None
        self._history: list[Message] = []
        self._added: list[Message] = []  # in the order in which it happened
        self._waiting: dict[str, ToolMessage] = {}  # what was added for calls of the last reply that are not over
        self._acted = False
        self._deadline: float | None = None
        self._turn_id = ""

    async def begin(self, run: Run, when_lost: Callable[[], None]) -> Start:
        self._deadline = run.deadline
        self._place = await _queue.take(self._store, self._id, wait=self._wait, deadline=run.deadline)
        start = self._opened(await within(run.deadline, load(self._store, self._id)), run)
        self._turn_id = start.run.turn_id
        return start

    def _opened(self, history: list[Message], run: Run) -> Start:
        """What the turn begins with."""
        assert self._prompt is not None, "a turn that begins has a prompt"
        self._history, self._added = declined(history), [self._prompt]
        return Start(transcript=[*self._history, self._prompt], run=run)

    async def reply(self, reply: Reply, acting: list[ToolCall]) -> None:
        self._added.append(reply.message)

    def starting(self, call: ToolCall, tool: Tool) -> None:
        self._acted = self._acted or not tool.read_only

    async def acting(self, call: ToolCall, tool: Tool) -> None:
        self._forget(call.id)

    async def result(self, message: ToolMessage, *, ran: bool) -> None:
        self._forget(message["tool_call_id"])
        self._added.append(message)
        if "request" in message:
            self._waiting[message["tool_call_id"]] = message

    def _forget(self, call_id: str) -> None:
        """Leave out what stood for the result of a call, now that there is something newer."""
        if self._waiting and (old := self._waiting.pop(call_id, None)) is not None:
            self._added = [message for message in self._added if message is not old]

    async def finish(self, result: RunResult, transcript: list[Message]) -> None:
        await self._save(transcript, self._deadline)

    async def fail(self, failure: BaseException, *, interrupted: bool, said: str) -> None:
        marked = interrupted and self._keep_interrupted
        if not (self._acted or marked):
            return
        added = interrupted_turn(self._added, said) if marked else self._added
        try:
            await self._save(_reopened.marked(repair([*self._history, *added])[0], self._turn_id), time.monotonic())
        except ToolnexusError as error:
            _log.error("The turn acted and failed, and its record was not saved: %s", error)
            failure.add_note(f"What the turn had done could not be saved: {error}")

    async def leave(self) -> None:
        if self._place is not None:
            self._place.leave()

    async def _save(self, messages: list[Message], deadline: float | None) -> None:
        bound = None if deadline is None else max(deadline, time.monotonic() + ENDING)
        await settled(within(bound, save(self._store, self._id, messages)))


class PlainResumer(PlainKeeper):
    """Lets the last turn of a conversation go on, as far as its transcript tells what is left to do.

    Args:
        answers: By the id of the request.
        now: Seconds since the epoch.
    """

    def __init__(
        self,
        store: ConversationStore,
        conversation_id: str,
        answers: Mapping[str, Answer],
        *,
        now: Callable[[], float],
        wait: float,
        keep_interrupted: bool,
    ) -> None:
        super().__init__(store, conversation_id, None, wait=wait, keep_interrupted=keep_interrupted)
        self._answers = answers
        self._now = now

    def _opened(self, history: list[Message], run: Run) -> Start:
        if not history:
            raise NoSuchConversation(self._id)
        turn = _reopened.unfinished(history)
        if turn is None:
            raise AlreadyAnswered(self._id)
        opened = turn.opened(
            self._answers, {tool.name for tool in run.tools}, now=self._now(), conversation_id=self._id
        )
        self._history, self._added = turn.messages, list(turn.results)
        if opened is not None:
            self._waiting = {turn.results[position]["tool_call_id"]: turn.results[position] for position in opened.ways}
        self._acted = True  # it is part of the history already, and must not vanish
        return reopened(turn, opened, run, turn.turn_id or run.turn_id)


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


async def _translated(what: str, conversation_id: str, work: Callable[[], Awaitable[_T]]) -> _T:
    try:
        return await work()
    except ToolnexusError:
        raise
    except Exception as error:
        raise StoreError(
            f"Conversation {conversation_id!r} could not be {what}: the store raised {type(error).__name__}. "
            "Its own error is the cause of this one (`__cause__`).",
            conversation_id=conversation_id,
        ) from error


async def _value(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value
