"""Looking at what is remembered, and forgetting it."""

from __future__ import annotations

import difflib
import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from toolnexus import SQLiteStore
from toolnexus.cli import exits
from toolnexus.cli.markdown import visible
from toolnexus.cli.settings import database
from toolnexus.messages import normalise, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from toolnexus import Message
    from toolnexus.cli.render import Answer, Notes

_MANY = 10_000


async def listed(out: Answer, *, limit: int) -> int:
    """Write a line a conversation, newest first: id, time, number of messages, first prompt; tabs between them."""
    async with _store() as store:
        for each in await store.list(limit=limit):
            when = each.updated.astimezone().isoformat(" ", "minutes")
            out.text("\t".join(map(_on_one_line, (each.id, when, str(each.messages), each.preview))) + "\n")
    out.close()
    return exits.DONE


async def show(conversation_id: str, out: Answer, notes: Notes) -> int:
    """Write a conversation."""
    async with _store() as store:
        messages = await store.get(conversation_id)
        if messages is None:
            return await _unknown(store, [conversation_id], notes)
    for message in normalise(messages):
        for line in _told(message):
            out.text(visible(line) + "\n")
    out.close()
    return exits.DONE


async def remove(conversation_ids: Sequence[str], notes: Notes) -> int:
    """Forget conversations."""
    async with _store() as store:
        unknown = [each for each in conversation_ids if not await store.delete(each)]
        return await _unknown(store, unknown, notes) if unknown else exits.DONE


@asynccontextmanager
async def _store() -> AsyncGenerator[SQLiteStore]:
    store = SQLiteStore(database(os.environ))
    try:
        yield store
    finally:
        await store.aclose()


async def _unknown(store: SQLiteStore, conversation_ids: Sequence[str], notes: Notes) -> int:
    known = [each.id for each in await store.list(limit=_MANY)]
    for conversation_id in conversation_ids:
        close = difflib.get_close_matches(conversation_id, known, n=3, cutoff=0.6)
        meant = f" Did you mean {' or '.join(map(repr, close))}?" if close else ""
        notes.line(f"Error: There is no conversation {conversation_id!r}.{meant}", style="red")
    notes.line("`toolnexus memory ls` lists all.")
    return exits.ERROR


def _told(message: Message) -> Iterator[str]:
    text = text_of(message.get("content"))
    if message["role"] == "tool":
        yield f"  -> {text}"
        return
    mark = " (interrupted)" if message.get("interrupted") else ""
    if text or mark:
        yield f"{message['role']}{mark}: {text}"
    for call in message.get("tool_calls", ()):
        yield f"  {call['function']['name']}({call['function']['arguments']})"


def _on_one_line(text: str) -> str:
    return " ".join(visible(text).split())
