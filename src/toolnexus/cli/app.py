"""The commands and their options."""

from __future__ import annotations

import asyncio
import difflib
import logging
import os
import sys
from collections.abc import Coroutine
from typing import Any

from toolnexus import ToolnexusError, __version__
from toolnexus.cli import attachments, exits, talk
from toolnexus.cli.completion import completion, conversations
from toolnexus.cli.configure import config
from toolnexus.cli.doctor import doctor
from toolnexus.cli.mcp import mcp
from toolnexus.cli.memory.commands import memory
from toolnexus.cli.models import models
from toolnexus.cli.options import CONTEXT, asking, resuming
from toolnexus.cli.output import failure
from toolnexus.cli.pending import Given
from toolnexus.cli.person import at_terminal
from toolnexus.cli.render import Notes, PlainAnswer, records
from toolnexus.cli.schemas import read_schema
from toolnexus.cli.serve import serve
from toolnexus.cli.session import report
from toolnexus.cli.settings import Settings, read
from toolnexus.cli.skills import skills
from toolnexus.cli.tools import tools
from toolnexus.cli.trusting import trust
from toolnexus.errors import MissingExtra

try:
    import click
except ImportError as exc:
    raise MissingExtra("The toolnexus commands", extra="cli") from exc

_VERBOSE = "toolnexus.verbose"
_OUTPUT = "toolnexus.output"


class _Root(click.Group):
    """Takes what is no command for a question, and turns errors into exit codes."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self.commands:
            # Several words: quoted, they would be one.
            if len(args) > 1 and (meant := difflib.get_close_matches(args[0], self.commands, n=1, cutoff=0.8)):
                raise click.UsageError(f"Did you mean `{meant[0]}`? If it is a question, put it into quotes.", ctx)
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
            asked = ctx.invoked_subcommand in (None, "ask", "chat")
            advice = report(Notes(), error, verbose=ctx.meta.get(_VERBOSE, 0), asked=asked)
            if isinstance(error, ToolnexusError) and (told := records(ctx.meta.get(_OUTPUT), PlainAnswer(sys.stdout))):
                told.failed(failure(error, advice=advice))
            code = exits.ending(error).code
        except KeyboardInterrupt:
            code = exits.INTERRUPTED
        ctx.exit(code or exits.DONE)


@click.group(
    cls=_Root, invoke_without_command=True, context_settings=CONTEXT, subcommand_metavar="[QUESTION | COMMAND]"
)
@asking
@click.version_option(__version__, "--version", prog_name="toolnexus")
@click.pass_context
def root(ctx: click.Context, /, **flags: Any) -> int | None:
    """Ask a language model, with tools and a memory.

    toolnexus "QUESTION" answers once; toolnexus alone, on a terminal, talks. What comes through a pipe is added to the
    question. The answer goes to stdout, everything else to stderr.

    Keys are read from the environment only, such as OPENAI_API_KEY; the one for --base-url is TOOLNEXUS_API_KEY.
    `toolnexus doctor` says what is missing, `toolnexus config path` where settings are kept. TOOLNEXUS_HOME moves all
    that is kept.
    """
    source = ctx.get_parameter_source
    given = {name: value for name, value in flags.items() if source(name) is click.core.ParameterSource.COMMANDLINE}
    plain = dict.fromkeys(("ask", "chat", "resume", "serve", "doctor"), given)
    groups = {str(group.name): dict.fromkeys(group.commands, given) for group in _GROUPS}
    ctx.default_map = {**plain, **groups}
    if ctx.invoked_subcommand is None:
        return ctx.invoke(chat, **flags) if at_terminal() else ctx.invoke(ask, words=(), **flags)
    return None


@root.command(context_settings=CONTEXT)
@click.argument("words", nargs=-1, metavar="QUESTION")
@asking
def ask(words: tuple[str, ...], **flags: Any) -> int:
    """Answer one question (the command's name may be left out). `-` reads it from stdin."""
    found = attachments.find(words)
    question = _question(found.text)
    settings = _settings(flags)
    attach, schema = _taken(flags)
    prompt = attachments.prompt(question, [*attach, *found.files])
    if found.missing and (notes := Notes()).terminal:
        for line in attachments.told(found.missing):
            notes.line(line, style="dim")
    return _run(talk.ask(settings, prompt, schema=schema))


@root.command(context_settings=CONTEXT)
@asking
def chat(**flags: Any) -> int:
    """Talk, one question after the other."""
    settings = _settings(flags)
    files, schema = _taken(flags)
    return _run(talk.chat(settings, files=files, schema=schema))


@root.command(context_settings=CONTEXT)
@click.argument("conversation", metavar="ID", shell_complete=conversations)
@click.option("--approve", "approved", is_flag=True, help="Yes: what waits may run.")
@click.option("--deny", is_flag=False, flag_value="", metavar="[REASON]", help="No; the model is told the reason.")
@click.option("--answer", metavar="TEXT", help="The answer to what a tool asks.")
@click.option("--request", "requests", metavar="REQUEST", multiple=True, help="Only to this, of several. Repeatable.")
@resuming
def resume(
    conversation: str, approved: bool, deny: str | None, answer: str | None, requests: tuple[str, ...], **flags: Any
) -> int:
    """Go on with a turn that waits for an answer, or was cut off.

    Without an answer it asks, on a terminal. What then still waits is exit code 10.
    """
    given = [
        *([Given(how="approve", requests=requests)] if approved else []),
        *([Given(how="deny", text=deny, requests=requests)] if deny is not None else []),
        *([Given(how="answer", text=answer, requests=requests)] if answer is not None else []),
    ]
    if len(given) > 1:
        raise click.UsageError("--approve, --deny and --answer are three different answers: choose one.")
    if requests and not given:
        raise click.UsageError("--request says what is answered: give --approve, --deny or --answer as well.")
    settings = _settings({**flags, "conversation": conversation})
    _, schema = _taken(flags)
    return _run(talk.resume(settings, given[0] if given else Given(), schema=schema))


_GROUPS = (memory, models, tools, skills, mcp, trust, config)
for command in (*_GROUPS, serve, doctor, completion):
    root.add_command(command)


def _run(work: Coroutine[Any, Any, int]) -> int:
    return asyncio.run(work)


def _question(words: str) -> str:
    """The question, with what comes through a pipe."""
    piped = "" if sys.stdin.isatty() and words != "-" else sys.stdin.read()
    question = piped if words in ("", "-") else f"{words}\n\n{piped}" if piped.strip() else words
    if not question.strip():
        raise click.UsageError('There is no question. Try: toolnexus "What can you do?"')
    return question


def _taken(flags: dict[str, Any]) -> tuple[tuple[str, ...], dict[str, Any] | None]:
    """The files that go along, and the schema that the answer has to fit."""
    schema = flags.get("schema")
    return flags.get("attach", ()), None if schema is None else read_schema(schema)


def _settings(flags: dict[str, Any]) -> Settings:
    meta = click.get_current_context().meta
    meta[_OUTPUT] = flags.get("output")  # where something is wrong with the settings
    settings = read(flags, os.environ)
    meta[_OUTPUT] = settings.output
    if flags.get("no_store") and flags.get("store"):
        raise click.UsageError("--no-store keeps nothing and --store names where to keep it: choose one.")
    if not settings.keep and (settings.latest or settings.conversation):
        raise click.UsageError("--no-store keeps nothing, so there is nothing to continue: leave out -c and -C, or it.")
    if settings.latest and settings.conversation is not None:
        raise click.UsageError("-c continues the last conversation and -C a named one: choose one.")
    meta[_VERBOSE] = settings.verbose
    if settings.verbose:
        logging.basicConfig(format="%(message)s")
        logging.getLogger("toolnexus").setLevel(logging.INFO if settings.verbose == 1 else logging.DEBUG)
    return settings
