"""Reading prompts from a person at a terminal."""

from __future__ import annotations

import signal
import sys
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from toolnexus.errors import MissingExtra

try:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.output import create_output
except ImportError as exc:
    raise MissingExtra("The toolnexus commands", extra="cli") from exc

if TYPE_CHECKING:
    from toolnexus.cli.render import Notes
    from toolnexus.cli.session import Interrupts


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
    """Yield what a person types, until Ctrl-D or Ctrl-C twice."""
    session = _session()
    while True:
        try:
            yield await session.prompt_async("› ")
        except EOFError:
            return
        except KeyboardInterrupt:
            if interrupts.press():
                return
            notes.line("Ctrl-C again, or Ctrl-D, leaves.", style="dim")


def _session() -> PromptSession[str]:
    # The prompt goes to stderr: stdout is the answer's.
    return PromptSession(output=create_output(stdout=sys.stderr))
