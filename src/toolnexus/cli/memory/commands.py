"""The commands below `toolnexus memory`."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Coroutine
from functools import partial
from typing import Any

from toolnexus.cli import exits
from toolnexus.cli.completion import conversations
from toolnexus.cli.memory import changes, checking, listing, transcript, transfer
from toolnexus.cli.options import CONTEXT, store
from toolnexus.cli.render import Lines, Notes
from toolnexus.cli.settings import store_url
from toolnexus.cli.stores import place
from toolnexus.errors import MissingExtra

try:
    import click
except ImportError as exc:
    raise MissingExtra("The toolnexus commands", extra="cli") from exc

_ID = click.argument("conversation", metavar="ID", shell_complete=conversations)
_LIMIT = click.option(
    "-n", "--limit", type=click.IntRange(min=1), default=100, show_default=True, help="How many to list."
)
_JSON = click.option("--json", "as_json", is_flag=True, help="For programs.")


@click.group("memory", context_settings=CONTEXT)
def memory() -> None:
    """Look at what is remembered, and look after it."""


@memory.command()
@_LIMIT
@_JSON
@store
def ls(store: str | None, limit: int, as_json: bool) -> int:
    """List conversations, the last one first.

    Through a pipe, a line each: id, title, time, messages, status of the last turn, last text; tabs between them.
    """
    return _run(listing.ls(_url(store), Notes(), limit=limit, as_json=as_json))


@memory.command()
@click.argument("words", metavar="TEXT", nargs=-1, required=True)
@_LIMIT
@_JSON
@store
def search(words: tuple[str, ...], store: str | None, limit: int, as_json: bool) -> int:
    """List the conversations in which all these words were said."""
    return _run(listing.search(_url(store), " ".join(words), Notes(), limit=limit, as_json=as_json))


@memory.command()
@_ID
@click.option("--full", is_flag=True, help="Calls and results whole, not a line each.")
@click.option("--json", "form", flag_value="json", help="Messages and turns, for programs.")
@click.option("--raw", "form", flag_value="raw", help="The records of its log, as they are kept.")
@store
def show(conversation: str, store: str | None, full: bool, form: str | None) -> int:
    """Write a conversation to stdout, turn by turn, each with how it ended."""
    if form == "json":
        return _run(transcript.show_json(_url(store), conversation, Notes()))
    if form == "raw":
        return _run(transcript.show_raw(_url(store), conversation, Notes()))
    return _run(transcript.show(_url(store), conversation, Notes(), full=full))


@memory.command()
@_ID
@click.argument("title", nargs=-1)
@store
def rename(conversation: str, title: tuple[str, ...], store: str | None) -> int:
    """Give a conversation a title; none takes it away. Its id stays."""
    return _run(changes.rename(_url(store), conversation, " ".join(title), Notes()))


@memory.command()
@_ID
@click.argument("new", metavar="NEW")
@click.option("--at", metavar="TURN", help="The last turn to take along: its number in `show`, or its id.")
@store
def fork(conversation: str, new: str, store: str | None, at: str | None) -> int:
    """Begin the conversation NEW with the history of ID."""
    return _run(changes.fork(_url(store), conversation, new, Notes(), at=at))


@memory.command()
@_ID
@click.option("-n", "turns", type=click.IntRange(min=1), default=1, show_default=True, help="How many turns.")
@store
def undo(conversation: str, store: str | None, turns: int) -> int:
    """Take back the last turns of a conversation. What their tools did stays done."""
    return _run(changes.undo(_url(store), conversation, Notes(), turns=turns))


@memory.command()
@click.argument("conversations", metavar="ID...", nargs=-1, required=True, shell_complete=conversations)
@click.option("-f", "--yes", is_flag=True, help="Do not ask.")
@store
def rm(conversations: tuple[str, ...], store: str | None, yes: bool) -> int:
    """Forget conversations. On a terminal it asks first."""
    ask = partial(click.confirm, err=True) if not yes and sys.stdin.isatty() and sys.stderr.isatty() else None
    return _run(changes.remove(_url(store), conversations, Notes(), ask=ask))


@memory.command()
@_ID
@click.option("-o", "--output", "to", metavar="FILE", help="Instead of stdout.")
@store
def export(conversation: str, store: str | None, to: str | None) -> int:
    """Write all that is recorded of a conversation, for `import`. It is the file of a file store."""
    return _run(transfer.export(_url(store), conversation, Notes(), to=to))


@memory.command("import")
@click.argument("file", metavar="FILE")
@click.option("--id", "conversation", metavar="ID", help="What to call it. Otherwise as it was called.")
@store
def import_(file: str, store: str | None, conversation: str | None) -> int:
    """Make a conversation of what `export` wrote. `-` reads it from stdin."""
    return _run(transfer.import_(_url(store), file, Notes(), conversation_id=conversation))


@memory.command()
@click.argument("conversations", metavar="[ID...]", nargs=-1, shell_complete=conversations)
@store
def check(conversations: tuple[str, ...], store: str | None) -> int:
    """Read conversations, or all, and say what is wrong with them. Exit code 5 if anything is. Changes nothing."""
    return _run(checking.check(_url(store), conversations, Notes()))


@memory.command()
@store
def path(store: str | None) -> int:
    """Write where conversations are kept."""
    out = Lines()
    out.line(place(_url(store)))
    out.close()
    return exits.DONE


def _url(flag: str | None) -> str | None:
    return store_url({"store": flag}, os.environ)


def _run(work: Coroutine[Any, Any, int]) -> int:
    return asyncio.run(work)
