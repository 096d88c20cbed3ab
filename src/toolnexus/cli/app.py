"""The commands and their options."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from toolnexus import ToolnexusError, __version__
from toolnexus.cli import exits, memory, talk
from toolnexus.cli.render import Notes, PlainAnswer
from toolnexus.cli.session import report
from toolnexus.cli.settings import Settings, database, read
from toolnexus.errors import MissingExtra

try:
    import click
except ImportError as exc:
    raise MissingExtra("The toolnexus commands", extra="cli") from exc

_F = TypeVar("_F", bound=Callable[..., Any])

_VERBOSE = "toolnexus.verbose"
_CONTEXT = {"help_option_names": ["-h", "--help"]}


def _options(command: _F) -> _F:
    """What `ask` and `chat` take, and what may stand before them as well."""
    for option in reversed(
        (
            click.option("-m", "--model", metavar="MODEL", help="provider:model, or `demo`. [TOOLNEXUS_MODEL]"),
            click.option("-c", "--continue", "latest", is_flag=True, help="Continue the last conversation."),
            click.option("-C", "conversation", metavar="ID", help="Continue this conversation, or begin it."),
            click.option("-s", "--system", metavar="TEXT", help="The system prompt."),
            click.option("--base-url", metavar="URL", help="Any model endpoint. [TOOLNEXUS_BASE_URL]"),
            click.option(
                "--style", metavar="STYLE", help="What the endpoint speaks: openai or anthropic. [TOOLNEXUS_STYLE]"
            ),
            click.option("--no-store", is_flag=True, help="Keep nothing of this conversation."),
            click.option("-v", "--verbose", count=True, help="Tell more: reasoning and logs; -vv for tracebacks."),
        )
    ):
        command = option(command)
    return command


class _Root(click.Group):
    """Takes what is no command for a question, and turns errors into exit codes."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self.commands:
            # Only after a `--`, which has been taken away, can a question begin with a dash.
            dashed = args[0].startswith("-") and args[0] != "-"
            return "ask", self.commands["ask"], ["--", *args] if dashed else args
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        for stream in (sys.stdin, sys.stdout):
            if reconfigure := getattr(stream, "reconfigure", None):
                reconfigure(errors="replace")  # a pipe need not bring text, nor an old terminal know every character
        try:
            code = super().invoke(ctx)
        except (ToolnexusError, OSError) as error:
            report(Notes(), error, verbose=ctx.meta.get(_VERBOSE, 0))
            code = exits.ending(error).code
        except KeyboardInterrupt:
            code = exits.INTERRUPTED
        ctx.exit(code or exits.DONE)


@click.group(
    cls=_Root, invoke_without_command=True, context_settings=_CONTEXT, subcommand_metavar="[QUESTION | COMMAND]"
)
@_options
@click.version_option(__version__, "--version", prog_name="toolnexus")
@click.pass_context
def root(ctx: click.Context, /, **flags: Any) -> int | None:
    """Ask a language model, with tools and a memory.

    toolnexus "QUESTION" answers once; toolnexus alone, on a terminal, talks. What comes through a pipe is added to the
    question. The answer goes to stdout, everything else to stderr.

    Keys are read from the environment only, such as OPENAI_API_KEY. TOOLNEXUS_HOME moves what is stored.
    """
    given = {name: value for name, value in flags.items() if value not in (None, False)}
    ctx.default_map = {"ask": given, "chat": given}
    if ctx.invoked_subcommand is None:
        return ctx.invoke(chat, **flags) if talk.at_terminal() else ctx.invoke(ask, words=(), **flags)
    return None


@root.command(context_settings=_CONTEXT)
@click.argument("words", nargs=-1, metavar="QUESTION")
@_options
def ask(words: tuple[str, ...], **flags: Any) -> int:
    """Answer one question (the command's name may be left out). `-` reads it from stdin."""
    question = _question(" ".join(words))
    settings = _settings(flags)
    return _run(talk.ask(settings, question))


@root.command(context_settings=_CONTEXT)
@_options
def chat(**flags: Any) -> int:
    """Talk, one question after the other."""
    return _run(talk.chat(_settings(flags)))


@root.group("memory", context_settings=_CONTEXT)
def memory_group() -> None:
    """Look at what is remembered, and forget it."""


@memory_group.command("ls")
@click.option("-n", "--limit", default=100, show_default=True, help="How many to list.")
def memory_ls(limit: int) -> int:
    """List conversations, the last one first: id, time, messages, first question."""
    return _run(memory.listed(PlainAnswer(sys.stdout), limit=limit))


@memory_group.command("show")
@click.argument("conversation", metavar="ID")
def memory_show(conversation: str) -> int:
    """Write a conversation to stdout."""
    return _run(memory.show(conversation, PlainAnswer(sys.stdout), Notes()))


@memory_group.command("rm")
@click.argument("conversations", metavar="ID...", nargs=-1, required=True)
def memory_rm(conversations: tuple[str, ...]) -> int:
    """Forget conversations."""
    return _run(memory.remove(conversations, Notes()))


@memory_group.command("path")
def memory_path() -> int:
    """Write where conversations are kept."""
    out = PlainAnswer(sys.stdout)
    out.text(f"{database(os.environ)}\n")
    out.close()
    return exits.DONE


def _run(work: Coroutine[Any, Any, int]) -> int:
    return asyncio.run(work)


def _question(words: str) -> str:
    """The question, with what comes through a pipe."""
    piped = "" if sys.stdin.isatty() and words != "-" else sys.stdin.read()
    question = piped if words in ("", "-") else f"{words}\n\n{piped}" if piped.strip() else words
    if not question.strip():
        raise click.UsageError('There is no question. Try: toolnexus "What can you do?"')
    return question


def _settings(flags: dict[str, Any]) -> Settings:
    settings = read(flags, os.environ)
    if not settings.store and (settings.latest or settings.conversation):
        raise click.UsageError("--no-store keeps nothing, so there is nothing to continue: leave out -c and -C, or it.")
    if settings.latest and settings.conversation is not None:
        raise click.UsageError("-c continues the last conversation and -C a named one: choose one.")
    click.get_current_context().meta[_VERBOSE] = settings.verbose
    if settings.verbose:
        logging.basicConfig(format="%(message)s")
        logging.getLogger("toolnexus").setLevel(logging.INFO if settings.verbose == 1 else logging.DEBUG)
    return settings
