"""What is written of a conversation: the fields of each kind of record, and what a list shows. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from toolnexus import _json
from toolnexus.errors import InvalidTranscript
from toolnexus.messages import Message, UserMessage, text_of
from toolnexus.stores.backend import Head, Record
from toolnexus.stores.log import VERSION, Ended, Fields, Log, OpenTurn

OWNER_GONE: Mapping[str, str] = {"kind": "owner_gone"}
"""The error of a turn whose process died."""
_PREVIEW = 120
"""Characters of a preview."""


def opened(
    turn_id: str, prompt: UserMessage | None, *, at: float, saw: int, key: str | None = None, kept: bool = False
) -> list[Fields]:
    """What begins a turn; without a prompt, what lets one go on.

    Args:
        kept: It was history before, whatever it comes to now.
    """
    turn: dict[str, Any] = {"k": "turn", "turn": turn_id, "status": "open", "at": at, "saw": saw}
    if kept:
        turn["kept"] = True
    if key is not None:
        turn["key"] = key
    fields = [_fields(turn)]
    if prompt is not None:
        fields.append(message(prompt))
    return fields


def message(body: Message, *, ran: bool = True) -> Fields:
    """The next message of the open turn.

    Args:
        ran: Whether the call that it is the result of ran at all.
    """
    return _fields({"k": "message", "m": body} if ran else {"k": "message", "m": body, "ran": False})


def effect(call_id: str) -> Fields:
    """What says that a call of the last reply is about to change something."""
    return _fields({"k": "effect", "call": call_id})


def ended(turn_id: str, status: Ended, *, kept: bool, outcome: Mapping[str, Any]) -> Fields:
    """How a turn ended.

    Args:
        kept: Whether its messages are history.
        outcome: What else is known: see `Turn.outcome`.
    """
    return _fields({"k": "turn", "turn": turn_id, "status": status, "kept": kept, **outcome})


def closed(turn: OpenTurn) -> Fields:
    """What ends a turn whose owner is gone."""
    return ended(turn.turn.id, "interrupted", kept=turn.acted, outcome={"error": OWNER_GONE})


def edited(before: Sequence[Message], after: Sequence[Message]) -> Fields:
    """What turns one history into another. What they begin with in common is kept."""
    keep = 0
    for old, new in zip(before, after, strict=False):
        if old != new or not (_json.dumps(old) == _json.dumps(new) or _is_same(old, new)):
            break
        keep += 1
    return _fields({"k": "edit", "keep": keep, "messages": after[keep:]})


def _is_same(old: Any, new: Any) -> bool:
    """Whether equal values are the same as JSON: 1, 1.0 and True are not, and the order of keys does not count."""
    if isinstance(old, Mapping):
        return all(_is_same(value, new[key]) for key, value in cast("Mapping[str, Any]", old).items())
    if isinstance(old, list):
        return all(map(_is_same, cast("list[Any]", old), new))
    return type(old) is type(new) and repr(old) == repr(new)


def meta(values: Mapping[str, Any]) -> Fields:
    """What a list shows from now on."""
    return _fields({"k": "meta", "set": values})


def snapshot(log: Log, *, until: int) -> Fields:
    """The first `until` messages of a conversation and their turns; idempotency keys are left behind."""
    turns = [
        {
            "id": turn.id,
            "status": turn.status,
            "started": turn.started,
            "saw": turn.saw,
            "start": turn.start,
            "count": turn.count,
            "outcome": turn.outcome,
        }
        for turn in log.turns
        if turn.start + turn.count <= until
    ]
    return _fields({"k": "snapshot", "messages": log.messages[:until], "turns": turns, "meta": log.meta})


def head(log: Log, *, now: float, new: Sequence[Message] | None) -> Head | None:
    """What a list shows of a conversation. None: there is nothing to see.

    Args:
        new: The messages that were added. None: history was edited.
    """
    if not log.seen:
        return None
    searched = log.messages if new is None else new
    return Head(
        title=log.meta.get("title"),
        updated=now,
        messages=len(log.messages),
        status=log.status,
        preview=_preview(log.messages),
        text="\n".join(filter(None, (text_of(message.get("content")) for message in searched))),
        anew=new is None,
    )


def _preview(messages: Sequence[Message]) -> str:
    for message in reversed(messages):
        if message["role"] in ("user", "assistant") and (text := text_of(message.get("content"))):
            return " ".join(text[: 4 * _PREVIEW].split())[:_PREVIEW]
    return ""


def encode(fields: Fields) -> Record:
    """The record that says `fields`.

    Raises:
        InvalidTranscript: There is a NaN in it, or something that JSON does not have. The error names its place.
    """
    try:
        return _json.dumps(fields, "record")
    except ValueError as error:
        raise _refusal(fields, error) from error


def _refusal(fields: Fields, error: ValueError) -> InvalidTranscript:
    """The error in the words of who handed in the messages, if it was they."""
    try:
        for position, message in enumerate(fields.get("messages", ()), fields.get("keep", 0)):
            _json.dumps(message, f"messages[{position}]")
    except ValueError as named:
        return InvalidTranscript(str(named))
    return InvalidTranscript(str(error))


def _fields(fields: Fields) -> Fields:
    return {"v": VERSION, **fields}
