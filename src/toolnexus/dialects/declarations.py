"""How a wire declares tools, remembered from run to run: most runs of a client have the same tools. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from toolnexus.dialects.names import ToolNames

if TYPE_CHECKING:
    from toolnexus.dialects.payloads import JSONObject
    from toolnexus.tools import Tool


class Declarations:
    """The tools of requests in one wire's form. The last ones are kept; the same sequence object is the same tools."""

    def __init__(self, form: Callable[[Tool, str], JSONObject]) -> None:
        """
        Args:
            form: Declares a tool under the name that it has on the wire.
        """
        self._form = form
        self._last: tuple[Sequence[Tool], ToolNames, list[JSONObject]] = ((), ToolNames(), [])

    def of(self, tools: Sequence[Tool], names: ToolNames) -> tuple[ToolNames, list[JSONObject]]:
        """Declare the tools of a request.

        Args:
            names: What the run has called its tools so far. Those names stay, so they decide about further ones.

        Returns:
            The run's names from now on, and the declarations. Those are shared with other runs.
        """
        if names:
            return names, self._declare(tools, names)
        known, known_names, declared = self._last
        if tools is not known:
            known_names = ToolNames()
            declared = self._declare(tools, known_names)
            self._last = (tools, known_names, declared)
        return known_names.copy(), declared

    def _declare(self, tools: Sequence[Tool], names: ToolNames) -> list[JSONObject]:
        names.add(tool.name for tool in tools)
        return [self._form(tool, names.wire(tool.name)) for tool in tools]
