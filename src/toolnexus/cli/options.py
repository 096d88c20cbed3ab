"""The options that commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from toolnexus.cli import completion
from toolnexus.cli.settings import OUTPUTS, TOOL_MODES
from toolnexus.dialects import DIALECTS
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
    click.option(
        *("-m", "--model"),
        metavar="MODEL",
        help="provider:model, http://host#model, or `demo`. [TOOLNEXUS_MODEL]",
        shell_complete=completion.models,
    ),
    click.option("-s", "--system", metavar="TEXT", help="The system prompt. [TOOLNEXUS_SYSTEM]"),
    click.option(
        "--base-url", metavar="URL", help="Any model endpoint; its key is TOOLNEXUS_API_KEY. [TOOLNEXUS_BASE_URL]"
    ),
    click.option(
        "--style",
        metavar="STYLE",
        help=f"What the endpoint speaks: {', '.join(DIALECTS)}. [TOOLNEXUS_STYLE]",
        shell_complete=completion.styles,
    ),
    click.option(
        "--fallback",
        "fallbacks",
        metavar="MODEL",
        multiple=True,
        help="Asked when the model cannot answer. Repeatable. [TOOLNEXUS_FALLBACKS]",
        shell_complete=completion.models,
    ),
    click.option(
        "--tool-mode",
        type=click.Choice(TOOL_MODES),
        help="`constrained` is for models that cannot call tools. [TOOLNEXUS_TOOL_MODE]",
    ),
)
_LIMITS = (
    click.option(
        "--max-steps",
        type=click.IntRange(min=1),
        metavar="N",
        help="Replies of the model that one answer may take. [TOOLNEXUS_MAX_STEPS]",
    ),
    click.option(
        "--timeout",
        type=click.FloatRange(min=0, min_open=True),
        metavar="SECONDS",
        help="How long one answer may take. [TOOLNEXUS_TIMEOUT]",
    ),
)
_ANSWER = (
    click.option(
        *("-o", "--output"),
        type=click.Choice(OUTPUTS),
        help="How the answer is written: as it is, laid out, as one JSON object, or every event as a line of JSON. "
        "[TOOLNEXUS_OUTPUT]",
    ),
    click.option(
        "--schema", metavar="FILE|JSON", help="The JSON Schema that the answer has to fit; it is a JSON value then."
    ),
)
_MCP_HELP = "The servers of an MCP configuration file, of whichever program. Repeatable. [TOOLNEXUS_MCP]"
_MCP = click.option("--mcp", metavar="FILE", multiple=True, type=click.Path(), help=_MCP_HELP)
_TOOLS = (
    click.option(
        *("-t", "--tool"),
        "tools",
        metavar="FUNCTION",
        multiple=True,
        help="file.py, file.py:function or module:function as a tool. Repeatable. [TOOLNEXUS_TOOLS]",
    ),
    click.option(
        "--skill",
        "skills",
        metavar="DIR",
        multiple=True,
        help="A folder with skills. Repeatable. [TOOLNEXUS_SKILLS]",
        type=click.Path(),
    ),
    click.option(
        "--openapi",
        metavar="FILE|URL",
        multiple=True,
        help="An OpenAPI document whose operations are tools; FILE#URL says where its server is. Repeatable. "
        "[TOOLNEXUS_OPENAPI]",
    ),
    _MCP,
    click.option(
        "--builtins/--no-builtins",
        default=None,
        help="Whether the built-in tools for files, commands and the web are offered; they are. [TOOLNEXUS_BUILTINS]",
    ),
)
_ATTACH = click.option(
    *("-a", "--attach"),
    "attach",
    type=click.Path(),
    metavar="FILE",
    multiple=True,
    help="Goes along with the question, as @FILE in it does; or a URL. Repeatable.",
)
_CONVERSATION = (
    click.option("-c", "--continue", "latest", is_flag=True, help="Continue the last conversation."),
    click.option(
        *("-C", "conversation"),
        metavar="ID",
        help="Continue this conversation, or begin it.",
        shell_complete=completion.conversations,
    ),
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
    about_tools = (*_TOOLS, _YES, _PATTERN)
    return _all(command, (*_MODEL, *_LIMITS, *_CONVERSATION, *_ANSWER, _ATTACH, _STORE, *about_tools, _VERBOSE))


def resuming(command: _F) -> _F:
    """What `resume` takes of these."""
    return _all(command, (*_MODEL, *_LIMITS, *_ANSWER, _STORE, *_TOOLS, _YES, _VERBOSE))


def looking(command: _F) -> _F:
    """What commands take that look at how things are set, as `ask` would have it."""
    return _all(command, (*_MODEL, *_LIMITS, _STORE, *_TOOLS, _PATTERN))


def reaching(command: _F) -> _F:
    """What commands take that only need an endpoint."""
    return _all(command, _MODEL)


def equipping(command: _F) -> _F:
    """What commands take that only need the tools."""
    return _all(command, _TOOLS)


def serving(command: _F) -> _F:
    """What commands take that look at MCP servers."""
    return _MCP(command)


def offering(command: _F) -> _F:
    """What a command takes that offers the tools to others. Its `--mcp` may stand alone, which names no file."""
    alone = click.option("--mcp", metavar="[FILE]", multiple=True, is_flag=False, flag_value="", help=_MCP_HELP)
    return _all(command, (*(each for each in _TOOLS if each is not _MCP), alone, _YES, _VERBOSE))


def calling(command: _F) -> _F:
    """What a command takes that runs a tool."""
    return _all(command, (*_TOOLS, _YES, _PATTERN, _VERBOSE))


def as_json(command: _F) -> _F:
    """`--json`."""
    return click.option("--json", "as_json", is_flag=True, help="For programs.")(command)


def _all(command: _F, options: tuple[Callable[[_F], _F], ...]) -> _F:
    for option in reversed(options):
        command = option(command)
    return command
