"""Several models in order: when one cannot answer, the next is asked, and the reader is told."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING

from toolnexus.dialects import Reply
from toolnexus.errors import ConnectionFailed, InvalidReply, ProviderError, ToolnexusError
from toolnexus.events import Retrying

if TYPE_CHECKING:
    from toolnexus._model import Model, ReplyPart
    from toolnexus._source import ModelSource
    from toolnexus.dialects import Request, ResponseSchema, Target

_log = logging.getLogger("toolnexus")


class FallbackSource:
    """Models of several endpoints. What is said of a source is said of the first."""

    def __init__(self, sources: Sequence[ModelSource]) -> None:
        self._sources = sources
        self.name = sources[0].name

    @property
    def ready(self) -> bool:
        return all(source.ready for source in self._sources)

    @property
    def target(self) -> Target:
        return self._sources[0].target

    @property
    def parts(self) -> frozenset[str] | None:
        return self._sources[0].parts

    async def prepare(self) -> None:
        for source in self._sources:
            await source.prepare()

    def model(self, schema: ResponseSchema | None = None) -> Model:
        return FallbackModel([(source.name, source.model(schema)) for source in self._sources])

    async def aclose(self) -> None:
        for source in self._sources:
            await source.aclose()


class FallbackModel:
    """One run's line to the first model that answers. Who answered once is asked first from then on."""

    def __init__(self, models: Sequence[tuple[str, Model]]) -> None:
        self._models = models
        self._place = 0

    async def reply(self, request: Request, *, deadline: float | None) -> AsyncGenerator[ReplyPart, None]:
        """See `Model.reply`. What is raised is what the last model came to."""
        while True:
            name, model = self._models[self._place]
            asked = replace(request, model=name) if self._place else request
            shown = False
            try:
                async with aclosing(model.reply(asked, deadline=deadline)) as parts:
                    async for part in parts:
                        shown = shown or isinstance(part, Reply) or not all(isinstance(each, Retrying) for each in part)
                        yield part
            except ToolnexusError as error:
                if shown or not _may_answer_elsewhere(error) or self._place + 1 == len(self._models):
                    raise
                failure = error
            else:
                return
            self._place += 1
            following = self._models[self._place][0]
            _log.warning("%s could not answer (%s); %s is asked", asked.model, failure.kind, following)
            yield [Retrying(attempt=1, delay=0.0, kind=failure.kind, reason=str(failure), model=following)]


def _may_answer_elsewhere(error: ToolnexusError) -> bool:
    """Whether another model may answer. A request that is wrong is wrong everywhere, and must be seen."""
    if isinstance(error, ProviderError):
        return error.kind != "bad_request"
    return isinstance(error, ConnectionFailed | InvalidReply)
