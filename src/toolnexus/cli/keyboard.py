"""Reading prompts from a person at a terminal."""

from __future__ import annotations

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


async def typed(notes: Notes, interrupts: Interrupts) -> AsyncIterator[str]:
    """Yield what a person types, until Ctrl-D or Ctrl-C twice."""
    # The prompt goes to stderr: stdout is the answer's.
    session: PromptSession[str] = PromptSession(output=create_output(stdout=sys.stderr))
    while True:
        try:
            yield await session.prompt_async("› ")
        except EOFError:
            return
        except KeyboardInterrupt:
            if interrupts.press():
                return
            notes.line("Ctrl-C again, or Ctrl-D, leaves.", style="dim")
