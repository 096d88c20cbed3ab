"""Where tools come from. Each source makes `Tool` values; nothing else in the library knows how."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from toolnexus.tools import Tool


class Source(Protocol):
    """Tools that may come and go, or hold something open. For other tools, a function that returns them is enough."""

    def tools(self) -> Sequence[Tool]:
        """The tools as they are now. It is asked often, and does not block."""
        ...

    async def aclose(self) -> None:
        """Close what is open. It may be called more than once, from any task; the tools may fail from then on."""
        ...
