"""How a wire declares tools, remembered from run to run: most runs of a client have the same tools. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from toolnexus.dialects import Reading
from toolnexus.dialects.names import ToolNames

if TYPE_CHECKING:
    from toolnexus.dialects import Request, Target
    from toolnexus.dialects.payloads import JSONObject
    from toolnexus.tools import Tool


class Declarations:
    """The tools of requests in one wire's form. The last ones are kept; the same sequence object is the same tools."""

    def __init__(self, form: Callable[[Tool, str], JSONObject], *, letter_first: bool = False) -> None:
        """
        Args:
            form: Declares a tool under the name that it has on the wire.
            letter_first: As in `ToolNames`.
        """
        self._form = form
        self._letter_first = letter_first
        self._last: tuple[Sequence[Tool], ToolNames, list[JSONObject]] = ((), self.no_names(), [])

    def no_names(self) -> ToolNames:
        """The names of a run that has not called anything yet."""
        return ToolNames(letter_first=self._letter_first)

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
            known_names = self.no_names()
            declared = self._declare(tools, known_names)
            self._last = (tools, known_names, declared)
        return known_names.copy(), declared

    def _declare(self, tools: Sequence[Tool], names: ToolNames) -> list[JSONObject]:
        names.add(tool.name for tool in tools)
        return [self._form(tool, names.wire(tool.name)) for tool in tools]


class RunTools:
    """The tools of one run's requests to one target, and what they are called there."""

    def __init__(self, target: Target, declarations: Declarations) -> None:
        self._target = target
        self._declarations = declarations
        self._names = declarations.no_names()
        self._tools: Sequence[Tool] = ()
        self._declared: list[JSONObject] = []

    def declared(self, tools: Sequence[Tool]) -> list[JSONObject]:
        """The declarations of a request's tools. The same sequence object is the same tools."""
        if tools is not self._tools:
            self._tools = tools
            self._names, self._declared = self._declarations.of(tools, self._names)
        return self._declared

    def wire(self, name: str) -> str:
        """What a tool is called on the wire, now or in the history."""
        return self._names.wire(name)

    def reading(self, request: Request) -> Reading:
        """What the decoder of the answer to `request` needs."""
        self.declared(request.tools)
        return Reading(target=self._target, model=request.model, names=self._names.changed)
