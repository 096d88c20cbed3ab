"""What records mean: a log of them, folded, is a conversation. Pure.

| record | means |
|---|---|
| `turn` with status `open` | a turn begins, or one that waits or was interrupted goes on |
| `message` | the next message of the open turn |
| `effect` | a call that may change something is about to start, for the first time or again |
| `turn` with another status | how the open turn ended |
| `edit` | keep the first so many messages of the history, then these |
| `meta` | what a list shows: a title, tags |
| `snapshot` | all of it so far |
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from toolnexus import _json
from toolnexus.errors import CorruptConversation, StoreTooNew
from toolnexus.messages import Message, declined, interrupted_turn, is_in_order, repair, unsaid, waits

if TYPE_CHECKING:
    from toolnexus.stores.backend import Record

VERSION = 1
"""The version of the records that we write. Newer ones are refused, never guessed at."""

Fields: TypeAlias = Mapping[str, Any]
"""What a record says, decoded."""
Ended: TypeAlias = Literal["done", "incomplete", "failed", "interrupted", "suspended"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One turn of a conversation.

    Attributes:
        id: The turn's id.
        status: `open` while it runs.
        key: The idempotency key that it was asked with. None: it had none.
        started: Seconds since the epoch.
        saw: How many messages of history it ran on.
        start: Where its messages begin in the history.
        count: How many messages it has there; 0 for a turn that left no trace.
        outcome: What its end recorded: `usage`, `model`, `steps`, `finish_reason`, `limit`, `error`.
    """

    id: str
    status: Ended | Literal["open"]
    key: str | None = None
    started: float = 0.0
    saw: int = 0
    start: int = 0
    count: int = 0
    outcome: Mapping[str, Any] = field(default_factory=dict[str, Any])


class OpenTurn:
    """What an open turn has recorded so far.

    Attributes:
        begun: What its beginning recorded: `id`, `key`, `started` and `saw`, as in its `Turn`.
        start: Where its messages will begin in the history.
        outcome: What its end recorded before it was opened again.
        messages: In the order in which they were recorded.
        effects: Calls that may have run: the number of their reply in the turn, and their id.
        harmless: Those of them whose result says that they did not run.
        kept: Whether it was history before it was opened again.
    """

    def __init__(self, begun: Mapping[str, Any], *, start: int, kept: bool) -> None:
        self.begun = begun
        self.start = start
        self.outcome: Mapping[str, Any] = {}
        self.messages: list[Message] = []
        self.effects: set[tuple[int, str]] = set()
        self.harmless: set[tuple[int, str]] = set()
        self.kept = kept

    @property
    def turn(self) -> Turn:
        """The turn while it runs."""
        return Turn(**self.begun, status="open", start=self.start, outcome=self.outcome)

    @property
    def acted(self) -> bool:
        """Whether something may have been changed, so that the turn must not be forgotten."""
        return self.kept or bool(self.effects - self.harmless)

    @property
    def step(self) -> int:
        """Which reply the next result belongs to, from 1; 0 before the first."""
        return sum(message["role"] == "assistant" for message in self.messages)

    def closed(self) -> list[Message]:
        """Its messages as history: results in call order, and "outcome unknown" where there is none."""
        # Nearly every turn that ended is in order, and then this is much cheaper.
        return list(self.messages) if is_in_order(self.messages) else repair(_latest(self.messages))[0]

    def starts(self, call_id: str) -> None:
        """A call of the last reply starts. If it waited until now, its outcome is unknown from here on."""
        call = (self.step, call_id)
        self.effects.add(call)
        self.harmless.discard(call)
        after = len(self.messages)
        while after and self.messages[after - 1]["role"] == "tool":
            after -= 1
        if after < len(self.messages):
            results = (message for message in self.messages[after:] if message.get("tool_call_id") != call_id)
            self.messages[after:] = list(results)


class Log:
    """A conversation, folded from its records so far.

    Attributes:
        messages: The history. Only ever appended to, or replaced as a whole: whoever holds the list may go on reading.
        turns: Oldest first, those that left no trace included.
        open: The turn that runs, or ran when its owner died. None: there is none.
        meta: `title`, `tags` and whatever else was set.
        seen: Whether there is anything to see: failed attempts alone are no conversation.
    """

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.turns: list[Turn] = []
        self.open: OpenTurn | None = None
        self.meta: dict[str, Any] = {}
        self.seen = False
        self._last: OpenTurn | None = None  # what the last turn recorded, so that it can be opened again

    def apply(self, records: Sequence[Record], *, conversation_id: str) -> None:
        """Fold in further records of a store.

        Raises:
            CorruptConversation: A record cannot be read, or does not follow.
            StoreTooNew: A record is of a newer version.
        """
        try:
            for fields in _read(records, conversation_id):
                self._apply(fields)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CorruptConversation(
                f"Conversation {conversation_id!r} has a record that does not follow: {type(error).__name__}. "
                "Nothing was changed. See `toolnexus memory check`.",
                conversation_id=conversation_id,
            ) from error

    def fold(self, fields: Iterable[Fields]) -> None:
        """Fold in what we have just written ourselves."""
        for each in fields:
            self._apply(each)

    def turn(self, turn_id: str) -> Turn | None:
        """The turn of that id."""
        return next((turn for turn in reversed(self.turns) if turn.id == turn_id), None)

    def keyed(self, key: str) -> Turn | None:
        """The turn that was asked with that idempotency key last, and still counts."""
        return next((turn for turn in reversed(self.turns) if turn.key == key), None)

    def messages_of(self, turn: Turn) -> Sequence[Message]:
        """A turn's messages in the history."""
        return self.messages[turn.start : turn.start + turn.count]

    @property
    def recorded(self) -> OpenTurn | None:
        """What the last turn recorded, before it was closed. None: it was edited since, or there is none."""
        return self._last

    @property
    def waiting(self) -> bool:
        """Whether a turn waits for a person: the last one that left a trace."""
        return _last_waits(self.messages)

    @property
    def status(self) -> str:
        """How the last turn ended; `open`: it runs, `suspended`: one waits for a person. Empty: there was none."""
        if self.open is not None:
            return "open"
        if self.waiting:
            return "suspended"
        return self.turns[-1].status if self.turns else ""

    @property
    def continued(self) -> list[Message]:
        """The history as another prompt finds it: nothing waits in it any more."""
        return declined(self.messages) if self.waiting else self.messages

    def _apply(self, record: Fields) -> None:
        kind = record["k"]
        if kind == "message":  # nearly all are
            turn = _expect(self.open)
            turn.messages.append(record["m"])
            if record.get("ran") is False:
                turn.harmless.add((turn.step, record["m"]["tool_call_id"]))
        elif kind == "turn":
            if record["status"] == "open":
                self._begin(record)
            else:
                self._end(record)
        elif kind == "effect":
            _expect(self.open).starts(record["call"])
        elif kind == "edit":
            self._edit(record["keep"], record["messages"])
        elif kind == "meta":
            self.meta.update(record["set"])
            self.seen = True
        elif kind == "snapshot":
            self._restore(record)
        else:
            raise ValueError(kind)

    def _begin(self, record: Mapping[str, Any]) -> None:
        if self.open is not None:
            raise ValueError("a turn is open")
        known = self.turns[-1] if self.turns else None
        if known is not None and known.id == record["turn"] and self._last is not None:
            self.turns.pop()
            self.messages = self.messages[: known.start]
            self.open, self._last = self._last, None
            self.open.outcome = known.outcome
            self.open.kept = self.open.kept or known.count > 0
            self.open.messages = unsaid(self.open.messages)
            return
        self.open = OpenTurn(
            {"id": record["turn"], "key": record.get("key"), "started": record["at"], "saw": record["saw"]},
            start=len(self.messages),
            kept=record.get("kept", False),
        )
        self._last = None

    def _end(self, record: Mapping[str, Any]) -> None:
        ended = _expect(self.open)
        if ended.begun["id"] != record["turn"]:
            raise ValueError("another turn is open")
        kept = ended.closed() if record["kept"] else []
        if record.get("marked"):
            kept = interrupted_turn(kept, "")
        outcome = dict(record)
        for key in _OF_THE_TURN:
            outcome.pop(key, None)
        self.turns.append(
            Turn(**ended.begun, status=record["status"], start=ended.start, count=len(kept), outcome=outcome)
        )
        self.open, self._last = None, ended
        if record["kept"]:
            if self.waiting:
                self.messages = declined(self.messages)
            self.messages += kept
            self.seen = True
        elif self.waiting:
            self._last = None  # the attempt is forgotten, and an earlier turn waits still

    def _edit(self, keep: int, messages: list[Message]) -> None:
        if self.open is not None or not 0 <= keep <= len(self.messages):
            raise ValueError("an edit that does not fit")
        self.messages = [*self.messages[:keep], *messages]
        self.seen = True
        self.turns = [turn for turn in self.turns if turn.start + turn.count <= keep]
        self._last = None

    def _restore(self, record: Mapping[str, Any]) -> None:
        if self.open is not None:
            raise ValueError("a turn is open")
        self.messages = list(record["messages"])
        self.turns = [Turn(**turn) for turn in record["turns"]]
        self.meta = dict(record["meta"])  # what we wrote ourselves is folded in as it is
        self.seen = True
        self._last = None


_OF_THE_TURN = ("v", "k", "turn", "status", "kept", "marked")


def _expect(turn: OpenTurn | None) -> OpenTurn:
    if turn is None:
        raise ValueError("no turn is open")
    return turn


def _last_waits(messages: Sequence[Message]) -> bool:
    """Whether the last calls wait for a person."""
    for message in reversed(messages):
        if message["role"] != "tool":
            return False
        if waits(message):
            return True
    return False


def _latest(messages: Sequence[Message]) -> list[Message]:
    """The messages with only the last result of each call: an answer takes the place of a placeholder."""
    kept: list[Message] = []
    seen: set[str] = set()
    for message in reversed(messages):
        if message["role"] == "assistant":
            seen.clear()
        elif message["role"] == "tool":
            if message["tool_call_id"] in seen:
                continue
            seen.add(message["tool_call_id"])
        kept.append(message)
    return kept[::-1]


def _read(records: Sequence[Record], conversation_id: str) -> Iterator[Fields]:
    """What each record says."""
    try:
        for read in _json.loads_all(records):
            version = read["v"]
            if not isinstance(version, int) or version > VERSION:
                raise StoreTooNew(
                    f"Conversation {conversation_id!r} has records of version {version!r}; this toolnexus reads up to "
                    f"{VERSION}. Update toolnexus.",
                    conversation_id=conversation_id,
                )
            yield read
    except (ValueError, TypeError, KeyError) as error:
        raise CorruptConversation(
            f"Conversation {conversation_id!r} has a record that cannot be read. Nothing was changed. "
            "See `toolnexus memory check`.",
            conversation_id=conversation_id,
        ) from error
