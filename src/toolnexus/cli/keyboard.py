"""Reading prompts from a person at a terminal."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from toolnexus.cli.render import dumb
from toolnexus.errors import MissingExtra

try:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.application import create_app_session
    from prompt_toolkit.output import create_output
    from prompt_toolkit.output.plain_text import PlainTextOutput
except ImportError as exc:
    raise MissingExtra("The toolnexus commands", extra="cli") from exc

if TYPE_CHECKING:
    from toolnexus.cli.render import Notes
    from toolnexus.cli.session import Interrupts

_LEAVE = ("/quit", "/exit")
_COMMAND = re.compile(r"\s*/[\w?-]*(?:\s|$)")  # and no path, which has a second slash
_COMMANDS = "That was not sent. /quit and /exit leave, as Ctrl-D does; everything else is a question."


class Terminal:
    """A person at the terminal, who is asked while a run waits. Ctrl-C interrupts the run, as if nobody was asked."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._session = _session()

    async def line(self, prompt: str, *, default: str = "") -> str | None:
        """What the person types. None: Ctrl-D."""
        with self._notes.held():
            try:
                return await self._session.prompt_async(prompt, default=default, handle_sigint=False)
            except EOFError:
                return None
            except KeyboardInterrupt:
                signal.raise_signal(signal.SIGINT)
                return None


async def typed(notes: Notes, interrupts: Interrupts) -> AsyncIterator[str]:
    """Yield what a person asks, until `/quit`, Ctrl-D or Ctrl-C twice."""
    session = _session()
    while True:
        try:
            line = await session.prompt_async("› ")
        except EOFError:
            return
        except KeyboardInterrupt:
            if interrupts.press():
                return
            notes.line("Ctrl-C again, or Ctrl-D, leaves.", style="dim")
        else:
            if line.strip() in _LEAVE:
                return
            if _COMMAND.match(line):
                notes.line(_COMMANDS, style="yellow")
            else:
                yield line


def _session() -> PromptSession[str]:
    # The prompt goes to stderr: stdout is the answer's.
    if not dumb():
        return PromptSession(output=create_output(stdout=sys.stderr))
    with create_app_session(output=PlainTextOutput(sys.stderr)):  # given as an argument, it would be redrawn
        return PromptSession()
