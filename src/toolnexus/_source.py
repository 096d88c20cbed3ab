"""Where a client's models come from."""

from __future__ import annotations

import asyncio
import functools
import importlib
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from toolnexus.dialects import DIALECTS, dialect

if TYPE_CHECKING:
    from toolnexus._endpoint import Endpoint
    from toolnexus._model import Model
    from toolnexus._tool_mode import ToolMode
    from toolnexus.clock import Clock
    from toolnexus.dialects import ResponseSchema, Target
    from toolnexus.transport import Limits, Transport


class ModelSource(Protocol):
    """Makes the model of each run.

    Attributes:
        name: The model id that is asked when a call names none.
        ready: Whether `prepare` has nothing to do any more.
    """

    name: str

    @property
    def ready(self) -> bool: ...

    @property
    def target(self) -> Target:
        """Who is asked."""
        ...

    @property
    def parts(self) -> frozenset[str] | None:
        """The kinds of parts that a user's message may have, as `Dialect.parts` names them. None: any."""
        ...

    async def prepare(self) -> None:
        """Load what is heavy, off the event loop, before the first turn."""
        ...

    def model(self, schema: ResponseSchema | None = None) -> Model:
        """A line to the model for one run.

        Args:
            schema: What the run's requests have as their `response_schema`. None: they have none.
        """
        ...

    async def aclose(self) -> None: ...


async def load(*modules: str) -> None:
    """Import modules in a worker thread, so that a first use does not stop the event loop."""
    missing = [name for name in modules if name not in sys.modules]
    if missing:
        await asyncio.to_thread(lambda: [importlib.import_module(name) for name in missing])


class HTTPSource:
    """Models behind one endpoint, over one transport."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        transport: Transport | None,
        limits: Limits,
        retries: int,
        max_retry_wait: float,
        clock: Clock,
        tool_mode: ToolMode,
        body_transform: Callable[[dict[str, Any]], Mapping[str, Any] | None] | None,
    ) -> None:
        self.name = endpoint.model
        self._endpoint = endpoint
        self._given = transport
        self._limits = limits
        self._retries = retries
        self._max_retry_wait = max_retry_wait
        self._clock = clock
        self._tool_mode: ToolMode = tool_mode
        self._body_transform = body_transform
        self._make: Callable[[], Model] | None = None
        self._fit: Callable[[Model], Model] | None = None
        self._opened: Transport | None = None

    @property
    def ready(self) -> bool:
        return self._make is not None

    @property
    def target(self) -> Target:
        return self._endpoint.target

    @property
    def parts(self) -> frozenset[str]:
        target = self._endpoint.target
        return target.takes(dialect(target.style).parts)

    async def prepare(self) -> None:
        if self.ready:
            return
        await load(
            "toolnexus._tool_mode",
            "toolnexus._model",
            "toolnexus.transport.http",
            DIALECTS[self._endpoint.target.style][0],
        )
        from toolnexus._model import HTTPModel, Learned
        from toolnexus._tool_mode import wrapper
        from toolnexus.transport.http import HTTPTransport

        transport = self._given
        if transport is None:
            transport = self._opened = self._opened or HTTPTransport()
        self._make = functools.partial(
            HTTPModel,
            self._endpoint,
            dialect(self._endpoint.target.style),
            transport,
            limits=self._limits,
            retries=self._retries,
            max_retry_wait=self._max_retry_wait,
            clock=self._clock,
            body_transform=self._body_transform,
            learned=Learned(),
        )
        self._fit = wrapper(self._tool_mode, self._endpoint.target)

    def model(self, schema: ResponseSchema | None = None) -> Model:
        assert self._make is not None, "prepare() comes first"
        model = self._make()
        if self._fit is not None:
            model = self._fit(model)
        if schema is None:
            return model
        from toolnexus._answer_schema import fitted  # loaded with the first schema

        return fitted(model, schema, self._endpoint.target, calls_by_schema=self._tool_mode == "constrained")

    async def aclose(self) -> None:
        """Close the transport, unless it was given: then it is its owner's."""
        if self._opened is not None:
            await self._opened.aclose()
