"""The options that commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from toolnexus.errors import MissingExtra

try:
    import click
except ImportError as exc:
    raise MissingExtra("The toolnexus commands", extra="cli") from exc

_F = TypeVar("_F", bound=Callable[..., Any])

CONTEXT = {"help_option_names": ["-h", "--help"]}

_STORE = click.option(
    "--store",
    metavar="URL",
    help="Where conversations are kept: sqlite:///FILE, file:///FOLDER, postgresql://…, redis://… [TOOLNEXUS_STORE]",
)
_MODEL = (
    click.option("-m", "--model", metavar="MODEL", help="provider:model, or `demo`. [TOOLNEXUS_MODEL]"),
    click.option("-s", "--system", metavar="TEXT", help="The system prompt."),
    click.option(
        "--base-url", metavar="URL", help="Any model endpoint; its key is TOOLNEXUS_API_KEY. [TOOLNEXUS_BASE_URL]"
    ),
    click.option("--style", metavar="STYLE", help="What the endpoint speaks: openai or anthropic. [TOOLNEXUS_STYLE]"),
)
_CONVERSATION = (
    click.option("-c", "--continue", "latest", is_flag=True, help="Continue the last conversation."),
    click.option("-C", "conversation", metavar="ID", help="Continue this conversation, or begin it."),
    click.option("--no-store", is_flag=True, help="Keep nothing of this conversation."),
)
_YES = click.option("-y", "--yes", is_flag=True, help="Let tools run that would ask first.")
_PATTERN = click.option(
    "--approve", metavar="PATTERN", multiple=True, help="Let the tools of such names run, as 'send_*'. Repeatable."
)
_VERBOSE = click.option("-v", "--verbose", count=True, help="Tell more: reasoning and logs; -vv for tracebacks.")


def store(command: _F) -> _F:
    """What every command on what is remembered takes."""
    return _STORE(command)


def asking(command: _F) -> _F:
    """What `ask` and `chat` take, and what may stand before them as well."""
    return _all(command, (*_MODEL, *_CONVERSATION, _STORE, _YES, _PATTERN, _VERBOSE))


def resuming(command: _F) -> _F:
    """What `resume` takes of these."""
    return _all(command, (*_MODEL, _STORE, _YES, _VERBOSE))


def _all(command: _F, options: tuple[Callable[[_F], _F], ...]) -> _F:
    for option in reversed(options):
        command = option(command)
    return command
