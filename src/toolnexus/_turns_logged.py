"""A turn on a log store: recorded where it happens, under a lease, ended and given back in one commit."""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from toolnexus import _recorded, _reopened
from toolnexus._turns import Start, reopened
from toolnexus.clock import within
from toolnexus.errors import AlreadyAnswered, KeyReused, NoSuchConversation, ToolnexusError, TurnInterrupted
from toolnexus.messages import interrupted_turn
from toolnexus.stores import records

if TYPE_CHECKING:
    from toolnexus._loop import Run
    from toolnexus._reopened import Unfinished
    from toolnexus.dialects import Reply
    from toolnexus.events import RunResult
    from toolnexus.messages import Message, ToolMessage, UserMessage
    from toolnexus.stores.backend import Head, Version
    from toolnexus.stores.hold import Hold
    from toolnexus.stores.log import Ended, Fields, Log, Turn
    from toolnexus.stores.logstore import LogStore
    from toolnexus.suspension import Answer
    from toolnexus.tools import Tool, ToolCall

_log = logging.getLogger("toolnexus")


class _Answered(Exception):
    """The turn of this key has its result already."""

    def __init__(self, result: RunResult) -> None:
        super().__init__()
        self.result = result


class _Keeper(ABC):
    """Remembers a turn in a log store.

    Args:
        wait: Seconds to wait for other turns on the conversation. 0: not at all.
        durability: `step` records replies and results as they happen; `turn` at the end alone.
        keep_interrupted: Keep the prompt, and the text that was said, of a turn that was interrupted.
        judges: Whether `_opening` may refuse because of what was recorded before.
    """

    def __init__(
        self,
        store: LogStore,
        conversation_id: str,
        *,
        wait: float,
        durability: Literal["step", "turn"],
        keep_interrupted: bool,
        judges: bool,
    ) -> None:
        self._store = store
        self._id = conversation_id
        self._wait = wait
        self._by_step = durability == "step"
        self._keep_interrupted = keep_interrupted
        self._judges = judges
        self._turn_id = ""
        self._start = 0  # where the turn begins in the transcript
        self._acted = False
        self._earlier: Fields = {}  # the outcome of earlier runs of the turn
        self._recorded: Message | None = None  # the last reply that is
        self._searchable: int | None = 0  # messages that can be searched already; None: all have to be read anew
        self._hold: Hold | None = None
        self._queued = AsyncExitStack()

    @abstractmethod
    def _opening(self, log: Log, run: Run) -> Sequence[Fields]:
        """What opens the turn in a conversation as it stands. It may refuse."""

    @abstractmethod
    def _started(self, log: Log, run: Run) -> Start:
        """What the turn begins with, now that it is open."""

    @property
    def lost(self) -> ToolnexusError | None:
        return self._hold.lost if self._hold is not None else None

    async def begin(self, run: Run, when_lost: Callable[[], None]) -> Start:
        began = time.monotonic()
        await self._queued.enter_async_context(self._store.queued(self._id, wait=self._wait, deadline=run.deadline))
        left = max(0.0, self._wait - (time.monotonic() - began))

        def opening(log: Log, _: Version) -> Sequence[Fields]:
            return self._opening(log, run)

        take = self._store.take(self._id, opening, wait=left, fresh=self._judges)
        try:
            self._hold = await within(run.deadline, take)
        except _Answered as known:
            return Start(transcript=[], run=run, result=replace(known.result, conversation_id=self._id))
        self._hold.when_lost(when_lost)
        start = self._started(self._hold.log, run)
        self._turn_id = start.run.turn_id
        return start

    async def reply(self, reply: Reply, acting: list[ToolCall]) -> None:
        self._recorded = reply.message
        await self._add(records.message(reply.message), *(records.effect(call.id) for call in acting))

    def starting(self, call: ToolCall, tool: Tool) -> None:
        self._acted = self._acted or not tool.read_only

    async def acting(self, call: ToolCall, tool: Tool) -> None:
        if not tool.read_only:
            await self._add(records.effect(call.id))

    async def result(self, message: ToolMessage, *, ran: bool) -> None:
        await self._add(records.message(message, ran=ran))

    async def finish(self, result: RunResult, transcript: list[Message]) -> None:
        status: Ended = "suspended" if result.status == "pending" else result.status
        # Everything is recorded but a reply that called for nothing more.
        unrecorded = transcript[-1]["role"] == "assistant" and transcript[-1] is not self._recorded
        last = transcript[-1:] if unrecorded else []
        await self._end(status, last, kept=True, outcome=self._outcome(result))

    async def fail(self, failure: BaseException, *, interrupted: bool, said: str) -> None:
        if self._hold is None or self._hold.lost is not None:
            return
        status: Ended = "interrupted" if interrupted else "failed"
        marked = interrupted and self._keep_interrupted
        extra = interrupted_turn([], said) if marked else []
        partial = failure.partial if isinstance(failure, ToolnexusError) else None
        if partial is not None and partial.turn_id == self._turn_id:  # not that of a run that a hook started
            outcome = dict(self._outcome(partial))
        else:
            outcome = dict(self._earlier)
        outcome["error"] = _recorded.error(failure)
        if not self._acted:
            outcome["acted"] = False
        if marked and not extra:
            outcome["marked"] = True
        try:
            await self._end(status, extra, kept=self._acted or marked, outcome=outcome)
        except ToolnexusError as error:
            _log.error("A turn failed, and its end was not recorded: %s", error)
            failure.add_note(f"How the turn ended could not be recorded: {error}")

    async def leave(self) -> None:
        if self._hold is not None:
            self._hold.leave()
        await self._queued.aclose()

    async def _add(self, *fields: Fields) -> None:
        assert self._hold is not None, "begin() comes first"
        if self._by_step:
            await self._hold.add(*fields)
        else:
            self._hold.keep_back(*fields)

    async def _end(self, status: Ended, last: Sequence[Message], *, kept: bool, outcome: Fields) -> None:
        assert self._hold is not None, "begin() comes first"
        await self._hold.end(
            *(records.message(message) for message in last),
            records.ended(self._turn_id, status, kept=kept, outcome=outcome),
            head=self._head,
        )
        self._store.keep(self._hold)

    def _head(self) -> Head | None:
        assert self._hold is not None, "begin() comes first"
        log = self._hold.log
        new = None if self._searchable is None else log.messages[self._searchable :]
        return records.head(log, now=time.time(), new=new)

    def _outcome(self, result: RunResult) -> Fields:
        return _recorded.outcome(result, result.transcript[self._start :], self._earlier)


class LogKeeper(_Keeper):
    """Remembers a turn that begins.

    Args:
        key: An idempotency key in the conversation. None: the turn has none.
    """

    def __init__(
        self,
        store: LogStore,
        conversation_id: str,
        prompt: UserMessage,
        *,
        key: str | None,
        wait: float,
        durability: Literal["step", "turn"],
        keep_interrupted: bool,
    ) -> None:
        super().__init__(
            store,
            conversation_id,
            wait=wait,
            durability=durability,
            keep_interrupted=keep_interrupted,
            judges=key is not None,
        )
        self._prompt = prompt
        self._key = key

    def _opening(self, log: Log, run: Run) -> Sequence[Fields]:
        if self._key is not None and (turn := log.keyed(self._key)) is not None:
            self._refuse_or_answer(log, turn)
        return records.opened(run.turn_id, self._prompt, at=time.time(), saw=len(log.messages), key=self._key)

    def _started(self, log: Log, run: Run) -> Start:
        self._start = len(log.messages)
        self._searchable = None if _died(log) else self._start
        return Start(transcript=[*log.continued, self._prompt], run=run)

    def _refuse_or_answer(self, log: Log, turn: Turn) -> None:
        """Leave if a turn of our key was there before, unless it left no trace or did nothing.

        Raises:
            _Answered: It has a result, or waits for a person.
            TurnInterrupted: It acted, and did not come to its end.
            KeyReused: It had another prompt.
        """
        messages = log.messages_of(turn)
        if not turn.count:
            return
        if messages[0].get("content") != self._prompt["content"]:
            raise KeyReused(self._id, str(self._key))
        if turn.status not in ("failed", "interrupted"):
            raise _Answered(_recorded.result(turn, log.messages[: turn.start + turn.count]))
        if turn.outcome.get("acted") is not False:
            raise TurnInterrupted(self._id, turn.id)


class LogResumer(_Keeper):
    """Lets the last turn of a conversation go on.

    Args:
        answers: By the id of the request.
        now: Seconds since the epoch.
    """

    def __init__(
        self,
        store: LogStore,
        conversation_id: str,
        answers: Mapping[str, Answer],
        *,
        now: Callable[[], float],
        wait: float,
        durability: Literal["step", "turn"],
        keep_interrupted: bool,
    ) -> None:
        super().__init__(
            store,
            conversation_id,
            wait=wait,
            durability=durability,
            keep_interrupted=keep_interrupted,
            judges=True,
        )
        self._answers = answers
        self._now = now
        self._goes_on: Start | None = None

    def _opening(self, log: Log, run: Run) -> Sequence[Fields]:
        if not log.turns and not log.messages:
            raise NoSuchConversation(self._id)
        recorded, last = log.recorded, log.turns[-1] if log.turns else None
        if recorded is None or last is None:
            turn = _reopened.unfinished(log.messages)
        else:
            turn = _reopened.unfinished([*log.messages[: last.start], *recorded.closed()], start=last.start)
        if turn is None:
            raise AlreadyAnswered(self._id)
        opened = turn.opened(
            self._answers,
            {tool.name for tool in run.tools},
            now=self._now(),
            conversation_id=self._id,
            turns={each.id for each in log.turns},
        )
        self._start = turn.start
        if recorded is None or last is None:
            turn_id = turn.turn_id or run.turn_id
            known = log.turn(turn_id)
            self._acted = True
            self._searchable = None
            self._earlier = known.outcome if known is not None else {}
            fields = _anew(log, turn, turn_id, key=known.key if known is not None else None)
        else:
            turn_id = last.id
            self._acted = last.count > 0 or recorded.acted
            self._searchable = None if _died(log) else len(turn.messages) if last.count else turn.start
            self._earlier = last.outcome
            fields = records.opened(turn_id, None, at=last.started, saw=last.saw)
        self._goes_on = reopened(turn, opened, run, turn_id)
        return fields

    def _started(self, log: Log, run: Run) -> Start:
        assert self._goes_on is not None, "what was taken was opened"
        return self._goes_on


def _died(log: Log) -> bool:
    """Whether the owner of the last turn died, and could not see to it that what it kept can be searched."""
    return bool(log.turns) and log.turns[-1].outcome.get("error") == records.OWNER_GONE


def _anew(log: Log, turn: Unfinished, turn_id: str, *, key: str | None) -> list[Fields]:
    """What opens a turn that only the history knows, as after an edit: it is taken out of there, and recorded."""
    return [
        records.edited(log.messages, log.messages[: turn.start]),
        *records.opened(turn_id, None, at=time.time(), saw=turn.start, key=key, kept=True),
        *(records.message(message) for message in turn.transcript[turn.start :]),
    ]
