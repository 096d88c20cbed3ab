"""Changing what is remembered."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from toolnexus import ConversationConflict
from toolnexus.cli import exits
from toolnexus.cli.stores import opened, unfolded, unknown
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
        try:
            turns = await store.turns(conversation_id) if at else ()
            turn = at and _named(at, turns)
            if turn and turn not in {each.id for each in turns}:
                notes.line(f"Error: Conversation {conversation_id!r} has no turn {at!r}.", style="red")
                notes.line(f"`toolnexus memory show {shlex.quote(conversation_id)}` numbers them.")
                return exits.ERROR
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


async def remove(
    url: str | None, conversation_ids: Sequence[str], notes: Notes, *, ask: Callable[[str], bool] | None
) -> int:
    """Forget conversations: all of them or, if one is not there, none.

    Args:
        ask: Asks a person whether they are sure. None: they are.
    """
    ids = list(dict.fromkeys(conversation_ids))
    async with opened(url) as store:
        if missing := [each for each in ids if await unfolded(store, each) is None]:
            return await unknown(store, missing, notes)
        named = ", ".join(ids)
        if ask and not ask(f"Remove {named}? It cannot be brought back."):
            notes.line("Nothing was removed.", style="dim")
            return exits.ERROR
        for each in ids:
            await store.delete(each)
    notes.line(f"Removed: {named}", style="dim")
    return exits.DONE


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
