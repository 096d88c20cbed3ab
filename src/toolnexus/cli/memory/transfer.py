"""Conversations to and from a file."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from toolnexus import ConversationConflict
from toolnexus.cli import exits
from toolnexus.cli.files import replace
from toolnexus.cli.memory.changes import taken
from toolnexus.cli.progress import Bar
from toolnexus.cli.render import forget
from toolnexus.cli.stores import opened, unknown
from toolnexus.errors import NoSuchConversation

if TYPE_CHECKING:
    from toolnexus.cli.render import Notes

_PIECE = 1 << 16


async def export(url: str | None, conversation_id: str, notes: Notes, *, to: str | None) -> int:
    """Write all that is recorded of a conversation.

    Args:
        to: The file, which is made for the owner's eyes only, or replaced when all is written. None: stdout.
    """
    async with opened(url) as store:
        try:
            pieces = [piece async for piece in store.export(conversation_id)]
        except NoSuchConversation:
            return await unknown(store, [conversation_id], notes)
    if to is not None and to != "-":
        replace(Path(to), b"".join(pieces))
        return exits.DONE
    try:
        sys.stdout.buffer.writelines(pieces)
        sys.stdout.buffer.flush()
    except BrokenPipeError:  # whoever read it wanted no more
        forget(sys.stdout)
    return exits.DONE


async def import_(url: str | None, file: str, notes: Notes, *, conversation_id: str | None) -> int:
    """Make a conversation of what `export` wrote.

    Args:
        file: `-` stands for stdin.
        conversation_id: What to call it. None: as it was called.
    """
    async with opened(url) as store:
        with _read(file) as (stream, size), Bar("importing", size) as bar:
            pieces = iter(lambda: stream.read(_PIECE), b"")
            try:
                made = await store.import_(pieces, id=conversation_id, progress=bar.to)
            except ConversationConflict as error:
                return taken(error.conversation_id, notes)
    notes.line(f"Imported: {made}")
    return exits.DONE


@contextmanager
def _read(file: str) -> Generator[tuple[BinaryIO, int | None]]:
    """The bytes of a file, and how many there are. None: nobody knows."""
    if file == "-":
        yield sys.stdin.buffer, None
        return
    with Path(file).open("rb") as stream:
        yield stream, os.fstat(stream.fileno()).st_size
