"""A conversation for reading: turn by turn, each with how it ended."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from toolnexus.cli import exits
from toolnexus.cli.memory.listing import called
from toolnexus.cli.pending import history
from toolnexus.cli.render import WIDTH, Lines, call_line, cut
from toolnexus.cli.stores import opened, read, unfolded, unknown
from toolnexus.messages import read_arguments, shown_text

if TYPE_CHECKING:
    from toolnexus import Message
    from toolnexus.cli.render import Notes
    from toolnexus.messages import FunctionCall
    from toolnexus.stores.backend import LogSlice
    from toolnexus.stores.log import Log, Turn

_NAME = re.compile(r"_|(?<=[a-z])(?=[A-Z])")
"""Where the words meet in a name that programs use."""


class Line(NamedTuple):
    """A line to show.

    Attributes:
        who: Who said it, if it is the text of a message.
    """

    text: str = ""
    style: str = ""
    who: str = ""


async def show(url: str | None, conversation_id: str, notes: Notes, *, full: bool) -> int:
    """Write a conversation for a person.

    Args:
        full: Calls and results whole, not a line each.
    """
    async with opened(url) as store:
        found = await read(store, conversation_id)
        if found is None:
            return await unknown(store, [conversation_id], notes)
    out = Lines()
    for line in told(conversation_id, *found, full=full):
        if line.who.startswith("assistant"):
            out.said(line.who, line.text)
        else:
            out.line(f"{line.who}: {line.text}" if line.who else line.text, style=line.style)
    out.close()
    return exits.DONE


async def show_json(url: str | None, conversation_id: str, notes: Notes) -> int:
    """Write a conversation for a program: its messages, and the turns with where their messages are."""
    async with opened(url) as store:
        found = await read(store, conversation_id)
        if found is None:
            return await unknown(store, [conversation_id], notes)
    log, seen = found
    turns = [*log.turns, *([log.open.turn] if log.open else [])]
    plain = {
        "id": conversation_id,
        "title": log.meta.get("title"),
        "status": _status(turns[-1], seen) if turns else "",
        "version": dataclasses.asdict(seen.version),
        "meta": log.meta,
        "turns": [{**dataclasses.asdict(turn), "status": _status(turn, seen)} for turn in turns],
        "messages": log.messages,
    }
    out = Lines()
    out.line(json.dumps(plain, indent=2))
    out.close()
    return exits.DONE


async def show_raw(url: str | None, conversation_id: str, notes: Notes) -> int:
    """Write the records of a conversation's log as they are kept, without reading them."""
    async with opened(url) as store:
        seen = await unfolded(store, conversation_id)
        if seen is None:
            return await unknown(store, [conversation_id], notes)
    out = Lines(verbatim=not sys.stdout.isatty())
    for record in seen.records:
        out.line(record.decode("utf-8", "replace"))
    out.close()
    return exits.DONE


def told(conversation_id: str, log: Log, seen: LogSlice, *, full: bool) -> Iterator[Line]:
    """A conversation, line by line. Pure.

    Turns are numbered as `fork --at` takes them; what left no trace in the history has no number.
    """
    title = f" · {log.meta['title']}" if log.meta.get("title") else ""
    yield Line(f"{conversation_id}{title} · {len(history(log))} messages", "bold")
    at = number = 0
    for turn in log.turns:
        if at < turn.start:
            yield from _added(log.messages[at : turn.start], full=full)
        at = max(at, turn.start + turn.count)
        number += turn.count > 0
        yield Line()
        waits = log.waiting and log.open is None and at == len(log.messages)
        passed = turn.status == "suspended" and not waits
        status = "not answered" if passed else _status(turn, seen)
        yield Line(_heading(str(number) if turn.count else "–", turn, status), _style(turn))
        yield from _messages(log.messages_of(turn), full=full)
    yield from _added(log.messages[at:], full=full)
    if log.open is not None:
        turn = log.open.turn
        yield Line()
        yield Line(_heading("–", turn, _status(turn, seen)), _style(turn))
        yield from _messages(log.open.closed(), full=full)


def _added(messages: Sequence[Message], *, full: bool) -> Iterator[Line]:
    """Messages of no turn: a program put them there, or they were left of an edit."""
    if messages:
        yield Line()
        yield Line("put in", "bold dim")
        yield from _messages(messages, full=full)


def _status(turn: Turn, seen: LogSlice) -> str:
    """How a turn ended. One whose owner is gone was interrupted, though nobody has written that down yet."""
    gone = seen.lease is None or seen.lease.left <= 0
    return "interrupted" if turn.status == "open" and gone else turn.status


def _heading(number: str, turn: Turn, status: str) -> str:
    about = turn.outcome
    parts = [number, called(status)]
    if turn.started:
        parts.append(datetime.fromtimestamp(turn.started).astimezone().isoformat(" ", "minutes"))
    if about.get("model"):
        parts.append(str(about["model"]))
    if usage := about.get("usage"):
        parts.append(f"{usage.get('prompt', 0)} + {usage.get('completion', 0)} tokens")
    if about.get("limit"):
        parts.append(f"{about['limit']} was reached")
    if error := about.get("error"):
        parts.append(cut(_problem(error), WIDTH))
    if not turn.count and turn.status != "open":
        parts.append("left no trace")
    return " · ".join(parts)


def _problem(error: Mapping[str, Any]) -> str:
    if error.get("kind") == "owner_gone":
        return "its process ended in the middle of it"
    kind = str(error.get("kind", ""))
    if kind == "CancelledError":
        return "it was stopped"
    return str(error.get("message") or _NAME.sub(" ", kind.removesuffix("Error")).lower())


def _style(turn: Turn) -> str:
    return {"done": "bold green", "failed": "bold red"}.get(turn.status, "bold yellow")


def _messages(messages: Sequence[Message], *, full: bool) -> Iterator[Line]:
    results = _results(messages)
    for position, message in enumerate(messages):
        if message["role"] == "tool":
            continue
        text = shown_text(message.get("content"))
        mark = " (interrupted)" if message.get("interrupted") else ""
        if text or mark:
            yield Line(text, "cyan" if message["role"] == "user" else "", who=f"{message['role']}{mark}")
        for call in message.get("tool_calls", ()) if message["role"] == "assistant" else ():
            yield from _call(call["function"], results.get((position, call["id"])), full=full)


def _results(messages: Sequence[Message]) -> dict[tuple[int, str], Message]:
    """Each result by the place of the reply that asked for it, and its call's id: providers use ids again."""
    found: dict[tuple[int, str], Message] = {}
    reply = 0
    for position, message in enumerate(messages):
        if message["role"] == "assistant":
            reply = position
        elif message["role"] == "tool":
            found[reply, message["tool_call_id"]] = message
    return found


def _call(function: FunctionCall, result: Message | None, *, full: bool) -> Iterator[Line]:
    output = shown_text(result.get("content")) if result else ""
    waits = result is not None and "request" in result
    mark = "…" if waits or result is None else "✗" if result.get("is_error") else "✓"
    style = {"✗": "red", "…": "yellow"}.get(mark, "dim")
    if full:
        yield Line(f"  ⏺ {function['name']}({function['arguments']}) {mark}", style)
        yield from (Line(f"    {line}", style) for line in output.splitlines())
        return
    arguments = function["arguments"]
    read = read_arguments(arguments)
    shown = call_line(function["name"], arguments if read is None else read)
    yield Line(f"  {shown} {mark} {cut(output, max(WIDTH - len(shown), WIDTH // 3))}", style)
