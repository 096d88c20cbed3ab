"""A turn on a log store: recorded where it happens, under a lease, ended and given back in one commit."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from toolnexus import _recorded
from toolnexus._turns import Start
from toolnexus._turns_plain import interrupted_turn
from toolnexus.clock import within
from toolnexus.errors import KeyReused, ToolnexusError, TurnInterrupted
from toolnexus.stores import records

if TYPE_CHECKING:
    from toolnexus._loop import Run
    from toolnexus.dialects import Reply
    from toolnexus.events import RunResult
    from toolnexus.messages import Message, ToolMessage, UserMessage
    from toolnexus.stores.backend import Version
    from toolnexus.stores.hold import Hold
    from toolnexus.stores.log import Ended, Fields, Log, Turn
    from toolnexus.stores.logstore import LogStore
    from toolnexus.tools import Tool, ToolCall

_log = logging.getLogger("toolnexus")


class _Answered(Exception):
    """The turn of this key has its result already."""

    def __init__(self, result: RunResult) -> None:
        super().__init__()
        self.result = result


class LogKeeper:
    """Remembers a turn in a log store.

    Args:
        key: An idempotency key in the conversation. None: the turn has none.
        wait: Seconds to wait for other turns on the conversation. 0: not at all.
        durability: `step` records replies and results as they happen; `turn` at the end alone.
        keep_interrupted: Keep the prompt, and the text that was said, of a turn that was interrupted.
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
        self._store = store
        self._id = conversation_id
        self._prompt = prompt
        self._key = key
        self._wait = wait
        self._by_step = durability == "step"
        self._keep_interrupted = keep_interrupted
        self._turn_id = ""
        self._acted = False
        self._recorded: Message | None = None  # the last reply that is
        self._before = 0
        self._hold: Hold | None = None
        self._queued = AsyncExitStack()

    @property
    def lost(self) -> ToolnexusError | None:
        return self._hold.lost if self._hold is not None else None

    async def begin(self, run: Run, when_lost: Callable[[], None]) -> Start:
        self._turn_id = run.turn_id
        began = time.monotonic()
        await self._queued.enter_async_context(self._store.queued(self._id, wait=self._wait, deadline=run.deadline))
        left = max(0.0, self._wait - (time.monotonic() - began))
        try:
            self._hold = await within(run.deadline, self._store.take(self._id, self._opening, wait=left))
        except _Answered as known:
            return Start(transcript=[], run=run, result=replace(known.result, conversation_id=self._id))
        self._hold.when_lost(when_lost)
        history = self._hold.log.messages
        self._before = len(history)
        return Start(transcript=[*history, self._prompt], run=run)

    async def reply(self, reply: Reply, acting: list[ToolCall]) -> None:
        self._recorded = reply.message
        await self._add(records.message(reply.message), *(records.effect(call.id) for call in acting))

    def starting(self, call: ToolCall, tool: Tool) -> None:
        self._acted = self._acted or not tool.read_only

    async def result(self, message: ToolMessage, *, ran: bool) -> None:
        await self._add(records.message(message, ran=ran))

    async def finish(self, result: RunResult, transcript: list[Message]) -> None:
        status: Ended = "suspended" if result.status == "pending" else result.status
        # Everything is recorded but a reply that called for nothing more.
        unrecorded = transcript[-1]["role"] == "assistant" and transcript[-1] is not self._recorded
        last = transcript[-1:] if unrecorded else []
        await self._end(status, last, kept=True, outcome=_recorded.outcome(result))

    async def fail(self, failure: BaseException, *, interrupted: bool, said: str) -> None:
        if self._hold is None or self._hold.lost is not None:
            return
        status: Ended = "interrupted" if interrupted else "failed"
        marked = interrupted and self._keep_interrupted
        extra = interrupted_turn([], said) if marked else []
        partial = failure.partial if isinstance(failure, ToolnexusError) else None
        outcome = {**(_recorded.outcome(partial) if partial else {}), "error": _recorded.error(failure)}
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

    def _opening(self, log: Log, version: Version) -> Sequence[Fields]:
        if self._key is not None and (turn := log.keyed(self._key)) is not None:
            self._refuse_or_answer(log, turn)
        return records.opened(self._turn_id, self._prompt, at=time.time(), saw=len(log.messages), key=self._key)

    def _refuse_or_answer(self, log: Log, turn: Turn) -> None:
        """Leave if a turn of our key was there before, unless it left no trace.

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
        if turn.status in ("failed", "interrupted"):
            raise TurnInterrupted(self._id, turn.id)
        raise _Answered(_recorded.result(turn, log.messages[: turn.start + turn.count]))

    async def _add(self, *fields: Fields) -> None:
        assert self._hold is not None, "begin() comes first"
        if self._by_step:
            await self._hold.add(*fields)
        else:
            self._hold.keep_back(*fields)

    async def _end(self, status: Ended, last: Sequence[Message], *, kept: bool, outcome: Fields) -> None:
        assert self._hold is not None, "begin() comes first"
        hold = self._hold
        await hold.end(
            *(records.message(message) for message in last),
            records.ended(self._turn_id, status, kept=kept, outcome=outcome),
            head=lambda: records.head(hold.log, now=time.time(), new=hold.log.messages[self._before :]),
        )
        self._store.keep(hold)
