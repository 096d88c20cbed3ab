"""Which store a command works on, and what it says of an id that the store does not have."""

from __future__ import annotations

import difflib
import os
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from toolnexus import SQLiteStore
from toolnexus.cli import exits
from toolnexus.cli.settings import database
from toolnexus.stores.backend import Key
from toolnexus.stores.log import Log

if TYPE_CHECKING:
    from toolnexus.cli.render import Notes
    from toolnexus.stores.backend import Listed, LogSlice
    from toolnexus.stores.logstore import LogStore

_AT_ONCE = 500
"""Conversations in one part of a list."""
_MANY = 10_000
"""Ids among which one is looked for that may have been meant."""


@asynccontextmanager
async def opened(url: str | None) -> AsyncGenerator[LogStore]:
    """The store of a URL; None: the file in the user's data directory."""
    if url is None:
        store: LogStore = SQLiteStore(database(os.environ))
    else:
        from toolnexus.stores.opening import open_store

        store = open_store(url)
    try:
        yield store
    finally:
        await store.aclose()


def place(url: str | None) -> str:
    """Where conversations are kept, without what could be secret in a URL."""
    if url is None:
        return str(database(os.environ))
    scheme, separator, rest = url.partition("://")
    if not separator:
        return url  # a path
    host, slash, path = rest.partition("?")[0].partition("/")
    return "".join((scheme, separator, host.rpartition("@")[2], slash, path))


async def everything(store: LogStore) -> AsyncIterator[Listed]:
    """All conversations, last changed first."""
    after = None
    while True:
        page = await store.list(limit=_AT_ONCE, after=after)
        for each in page.items:
            yield each
        after = page.after
        if after is None:
            return


async def read(store: LogStore, conversation_id: str) -> tuple[Log, LogSlice] | None:
    """A conversation's log, folded, and as it is kept, from one state of the store. None: there is none."""
    seen = await unfolded(store, conversation_id)
    if seen is None:
        return None
    log = Log()
    log.apply(seen.records, conversation_id=conversation_id)
    return log, seen


async def unfolded(store: LogStore, conversation_id: str) -> LogSlice | None:
    """A conversation's records as they are kept. None: there is none."""
    return await store.backend.read(Key(store.scope, conversation_id))


async def unknown(store: LogStore, conversation_ids: Sequence[str], notes: Notes) -> int:
    """Say that these are not there, and what may have been meant. Returns the exit code."""
    known: list[str] = []
    async for each in everything(store):
        known.append(each.id)
        if len(known) == _MANY:
            break
    for conversation_id in conversation_ids:
        close = difflib.get_close_matches(conversation_id, known, n=3, cutoff=0.6)
        meant = f" Did you mean {' or '.join(map(repr, close))}?" if close else ""
        notes.line(f"Error: There is no conversation {conversation_id!r}.{meant}", style="red")
    notes.line("`toolnexus memory ls` lists all.")
    return exits.ERROR
