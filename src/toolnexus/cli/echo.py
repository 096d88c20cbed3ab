"""Keeps what a person types ahead from being drawn into an answer. It is there when they are asked again."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Any

try:
    import termios
except ImportError:  # Windows draws nothing that nobody reads
    termios = None


@contextmanager
def unheard() -> Generator[None]:
    """Have the terminal not show what is typed."""
    before = _without_echo()
    try:
        yield
    finally:
        if before is not None:
            _set(before)


def _without_echo() -> list[Any] | None:
    """Turn it off. Returns how the terminal was; None if that was left as it is."""
    if termios is None or not sys.stdin.isatty():
        return None
    with suppress(termios.error, OSError, ValueError):
        before = termios.tcgetattr(sys.stdin.fileno())
        changed = [*before]
        changed[3] &= ~termios.ECHO
        return before if _set(changed) else None
    return None


def _set(attributes: list[Any]) -> bool:
    assert termios is not None, "there was something to set"
    with suppress(termios.error, OSError, ValueError):
        descriptor = sys.stdin.fileno()
        if os.tcgetpgrp(descriptor) == os.getpgrp():  # in the background it would be stopped for trying
            termios.tcsetattr(descriptor, termios.TCSANOW, attributes)
            return True
    return False
