"""What a line that a person types in a chat is: a question, or one of the commands with a slash. Pure."""

from __future__ import annotations

import difflib
import re
from typing import NamedTuple

_COMMAND = re.compile(r"\s*/([\w?-]*)(?:\s+|$)")  # and no path, which has a second slash
_ESCAPED = re.compile(r"\s*//")


class Command(NamedTuple):
    """One that there is.

    Attributes:
        takes: What stands after its name, as help shows it; in brackets where it may be left out. Empty: nothing.
    """

    name: str
    takes: str
    about: str


COMMANDS = (
    Command("help", "", "This list."),
    Command("new", "", "Begin another conversation."),
    Command("open", "ID", "Go on with that conversation."),
    Command("model", "[NAME]", "Go on with that model, in the same conversation; or say which one it is."),
    Command("usage", "", "Tokens, and what they cost where that is known."),
    Command("retry", "", "Take the last answer back, and ask again."),
    Command("undo", "", "Take the last question and its answer back."),
    Command("quit", "", "Leave, as Ctrl-D does."),
    Command("exit", "", "The same."),
)
KEYS = (
    ("@FILE", 'Attaches a file: @photo.png, @"two words.pdf". \\@ is only an @.'),
    ("//", "Begins a question with a slash."),
    ("Alt-Enter", "Begins a new line."),
    ("Tab", "Completes commands, ids, models and files."),
    ("Ctrl-R", "Searches what you asked before."),
    ("Ctrl-C", "Stops an answer; twice, it leaves."),
)
_KNOWN = {command.name: command for command in COMMANDS}


class Given(NamedTuple):
    """A command as it was typed.

    Attributes:
        wrong: Why it cannot be done. Empty: it can.
    """

    name: str
    argument: str
    wrong: str = ""


def read(line: str) -> Given | str:
    """A command, or the question that a line is."""
    if found := _ESCAPED.match(line):
        return line[found.end() - 1 :]
    found = _COMMAND.match(line)
    if found is None:
        return line
    name, argument = found[1].lower(), line[found.end() :].strip()
    return Given(name, argument, _wrong(name, argument))


def _wrong(name: str, argument: str) -> str:
    known = _KNOWN.get(name)
    if known is None:
        close = difflib.get_close_matches(name, _KNOWN, n=1, cutoff=0.5)
        meant = f"Did you mean /{close[0]}? " if close else ""
        return (
            f"{meant}That was not sent. /quit and /exit leave, /help tells the other commands; a question begins with "
            "// instead of a slash."
        )
    if argument and not known.takes:
        return f"/{name} takes nothing after it."
    if not argument and known.takes and not known.takes.startswith("["):
        return f"/{name} wants {known.takes} after it."
    return ""


def told() -> list[str]:
    """Lines that say which commands and keys there are."""
    rows = [*((f"/{each.name} {each.takes}".rstrip(), each.about) for each in COMMANDS), *KEYS]
    widest = max(len(name) for name, _ in rows)
    return [f"  {name:{widest}}  {about}" for name, about in rows]
