"""Turns a call of the client into the events of a run."""

from __future__ import annotations

import functools
import inspect
import logging
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from toolnexus import _turns
from toolnexus._loop import Run
from toolnexus._source import ModelSource, load
from toolnexus._stream import RunStream
from toolnexus.clock import within
from toolnexus.errors import ConfigurationError
from toolnexus.events import Event, Finished, RunResult, TextDelta
from toolnexus.hooks import Hooks
from toolnexus.messages import Prompt, normalise, prompt_message, repair
from toolnexus.options import Options, at_least

if TYPE_CHECKING:
    from toolnexus.stores import ConversationStore
    from toolnexus.toolkit import Toolkit
    from toolnexus.tools import Tool

_log = logging.getLogger("toolnexus")

Tools: TypeAlias = "Toolkit | Iterable[Tool | Callable[..., Any]] | None"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a client was made with, beside its models and its store."""

    system_prompt: str = ""
    request_params: Mapping[str, Any] | None = None
    hooks: Hooks | Sequence[Hooks] = ()
    on_event: Callable[[Event], Any] | None = None
    max_steps: int = 20
    max_tokens: int | None = None
    timeout: float | None = None
    reader_timeout: float | None = 300.0
    max_output: int = 64 * 1024
    concurrency: int = 8

    def __post_init__(self) -> None:
        for name in ("max_steps", "max_tokens", "max_output", "concurrency"):
            at_least(name, getattr(self, name), 1)
        for name in ("timeout", "reader_timeout"):
            at_least(name, getattr(self, name), 0)


class Engine:
    """The models and settings of a client. It keeps no state of any run."""

    def __init__(self, source: ModelSource, settings: Settings) -> None:
        self.source = source
        self._settings = settings
        self._hooks = (settings.hooks,) if isinstance(settings.hooks, Hooks) else tuple(settings.hooks)

    def forgotten(
        self,
        prompt: Prompt | None,
        toolkit: Tools,
        history: Iterable[Mapping[str, Any]] | None,
        options: Options,
        *,
        stream: bool,
    ) -> AsyncGenerator[Event, None]:
        """The events of a run that is remembered nowhere."""
        messages = repair(normalise(history))[0] if history is not None else []
        if prompt is not None:
            messages.append(prompt_message(prompt))
        elif not messages or messages[-1]["role"] not in ("user", "tool"):
            raise ConfigurationError("prompt=None needs a history that ends in a user message or in tool results.")
        prepare = functools.partial(self._prepare, toolkit, options, None, stream=stream)
        return _turns.forgotten(prepare, messages, self._tell)

    def remembered(
        self,
        prompt: Prompt,
        toolkit: Tools,
        store: ConversationStore,
        conversation_id: str | None,
        options: Options,
        *,
        stream: bool,
    ) -> AsyncGenerator[Event, None]:
        """The events of a turn of a conversation. Without an id, it is the only one of its store."""
        memory = _turns.Memory(
            store=store,
            conversation_id=conversation_id or "",
            wait=options.patience,
            keep_interrupted=options.keep_interrupted,
        )
        prepare = functools.partial(self._prepare, toolkit, options, conversation_id, stream=stream)
        return _turns.remembered(prepare, prompt_message(prompt), memory, self._tell)

    def watched(self, events: AsyncGenerator[Event, None]) -> RunStream:
        """The events for a reader, who may leave or fall asleep."""
        return RunStream(events, reader_timeout=self._settings.reader_timeout)

    async def _prepare(self, toolkit: Tools, options: Options, conversation_id: str | None, *, stream: bool) -> Run:
        settings = self._settings
        timeout = settings.timeout if options.timeout is None else options.timeout
        deadline = None if timeout is None else time.monotonic() + timeout
        await within(deadline, self.source.prepare())
        tools = () if toolkit is None else await within(deadline, _tools(toolkit))
        return Run(
            model=self.source.model(),
            model_id=options.model or self.source.name,
            system=settings.system_prompt,
            tools=tools,
            hooks=self._hooks,
            params=settings.request_params or {},
            stream=stream,
            max_steps=options.max_steps or settings.max_steps,
            max_tokens=options.max_tokens or settings.max_tokens,
            max_output=settings.max_output,
            concurrency=settings.concurrency,
            deadline=deadline,
            turn_id=uuid.uuid4().hex,
            conversation_id=conversation_id,
        )

    def _tell(self, event: Event) -> None:
        if self._settings.on_event is not None:
            try:
                self._settings.on_event(event)
            except Exception as error:  # noqa: BLE001 - watchers must not end the run
                _log.warning("on_event failed; the run goes on", exc_info=error)


async def drain(events: AsyncGenerator[Event, None], on_text: Callable[[str], Any] | None = None) -> RunResult:
    """Read a run to its end."""
    result: RunResult | None = None
    try:
        async for event in events:
            if isinstance(event, Finished):
                result = event.result
            elif on_text is not None and isinstance(event, TextDelta):
                await _say(on_text, event.text)
    finally:
        await events.aclose()
    assert result is not None, "a run ends with Finished or an error"
    return result


async def _say(on_text: Callable[[str], Any], text: str) -> None:
    try:
        answer = on_text(text)
        if inspect.isawaitable(answer):
            await answer
    except Exception as error:  # noqa: BLE001 - watchers must not end the run
        _log.warning("on_text failed; the run goes on", exc_info=error)


async def _tools(given: Tools) -> tuple[Tool, ...]:
    await load("toolnexus.toolkit")
    from toolnexus.toolkit import as_toolkit

    toolkit = await as_toolkit(given)
    return toolkit.tools() if toolkit else ()
