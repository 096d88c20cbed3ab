"""Changing what is remembered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from toolnexus import ConversationConflict
from toolnexus.cli import exits
from toolnexus.cli.stores import opened, unknown
from toolnexus.errors import NoSuchConversation

if TYPE_CHECKING:
    from toolnexus.cli.render import Notes
    from toolnexus.stores.log import Turn


async def rename(url: str | None, conversation_id: str, title: str, notes: Notes) -> int:
    """Give a conversation a title; an empty one takes it away."""
    async with opened(url) as store:
        try:
            await store.rename(conversation_id, title.strip() or None)
        except NoSuchConversation:
            return await unknown(store, [conversation_id], notes)
    return exits.DONE


async def fork(url: str | None, conversation_id: str, new_id: str, notes: Notes, *, at: str | None) -> int:
    """Begin another conversation with the history of this one.

    Args:
        at: The last turn to take along: its number, as `show` has it, or its id. None: all of them.
    """
    async with opened(url) as store:
        turn = at and _named(at, await store.turns(conversation_id))
        try:
            await store.fork(conversation_id, new_id, at=turn)
        except NoSuchConversation:
            return await unknown(store, [conversation_id], notes)
        except ConversationConflict:
            return taken(new_id, notes)
    return exits.DONE


async def undo(url: str | None, conversation_id: str, notes: Notes, *, turns: int) -> int:
    """Take back the last turns."""
    async with opened(url) as store:
        try:
            undone = await store.undo(conversation_id, turns)
        except NoSuchConversation:
            return await unknown(store, [conversation_id], notes)
    notes.line(f"{undone} {'turn was' if undone == 1 else 'turns were'} taken back.", style="dim")
    return exits.DONE


async def remove(url: str | None, conversation_ids: Sequence[str], notes: Notes) -> int:
    """Forget conversations."""
    async with opened(url) as store:
        missing = [each for each in conversation_ids if not await store.delete(each)]
        return await unknown(store, missing, notes) if missing else exits.DONE


def taken(conversation_id: str, notes: Notes) -> int:
    """Say that there is such a conversation already. Returns the exit code."""
    notes.line(f"Error: There is a conversation {conversation_id!r} already. Nothing was changed.", style="red")
    notes.line("Choose another id.")
    return exits.ERROR


def _named(at: str, turns: Sequence[Turn]) -> str:
    """The id of a turn that was named by its number or its id."""
    numbered = [turn for turn in turns if turn.count]
    if at.isascii() and at.isdigit() and 1 <= int(at) <= len(numbered):
        return numbered[int(at) - 1].id
    return at
