"""Whether a person sits at the terminal, and who they are to what asks them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolnexus.cli.approvals import Person
    from toolnexus.cli.render import Notes


def at_terminal() -> bool:
    """Whether a person sits there, and sees the answer."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def somebody(notes: Notes) -> Person | None:
    """Whoever can be asked, wherever the answer goes. None: nobody can."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    from toolnexus.cli.keyboard import Terminal

    return Terminal(notes)
