"""Turns a call of the client into the events of a run."""

from __future__ import annotations

import fnmatch
import functools
import os
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from toolnexus import _callbacks, _reopened, _turns, suspension
from toolnexus._checks import at_least
from toolnexus._loop import Run
from toolnexus._source import load
from toolnexus._stream import RunStream
from toolnexus._turns_plain import PlainKeeper, PlainResumer
from toolnexus.clock import Clock, SystemClock, within
from toolnexus.errors import ConfigurationError, ReaderGone
from toolnexus.events import Event, Finished, RunResult, TextDelta
from toolnexus.hooks import Hooks
from toolnexus.messages import Message, Prompt, UserMessage, normalise, prompt_message, refused_part, repair
from toolnexus.stores import is_log_store
from toolnexus.suspension import Asking
from toolnexus.telemetry import About, Telemetry
from toolnexus.telemetry.watching import Watching, watched
from toolnexus.toolkit import Toolkit, as_toolkit

if TYPE_CHECKING:
    from toolnexus._answer_type import AnswerType
    from toolnexus._source import ModelSource
    from toolnexus._turns import Keeper
    from toolnexus.options import Options
    from toolnexus.stores import ConversationStore
    from toolnexus.suspension import Answer, Approval, WaitFor
    from toolnexus.telemetry.watching import WatchedRun
    from toolnexus.tools import JSONObject, Tool

Tools: TypeAlias = "Toolkit | Iterable[Tool | Callable[..., Any]] | None"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a client was made with, beside its models and its store."""

    system_prompt: str = ""
    request_params: Mapping[str, Any] | None = None
    hooks: Hooks | Sequence[Hooks] = ()
    require_approval: Approval | Iterable[str] | None = None
    wait_for: WaitFor | None = None
    on_event: Callable[[Event], Any] | None = None
    metrics: bool = False
    telemetry: bool | Telemetry | None = None
    capture_content: bool = False
    clock: Clock = field(default_factory=SystemClock)
    max_steps: int = 20
    max_tokens: int | None = None
    timeout: float | None = None
    reader_timeout: float | None = 300.0
    max_output: int = 64 * 1024
    concurrency: int = 8

    def __post_init__(self) -> None:
        for name in ("max_steps", "max_output", "concurrency"):
            at_least(name, getattr(self, name), 1, whole=True)
        at_least("max_tokens", self.max_tokens, 1, whole=True, optional=True)
        for name in ("timeout", "reader_timeout"):
            at_least(name, getattr(self, name), 0, optional=True)
        if self.system_prompt is not None and not isinstance(self.system_prompt, str):  # pyright: ignore[reportUnnecessaryComparison, reportUnnecessaryIsInstance]
            raise ConfigurationError(f"system_prompt is of the type {type(self.system_prompt).__name__}; give a text.")


class Engine:
    """The models and settings of a client. It keeps no state of any run."""

    def __init__(self, source: ModelSource, settings: Settings) -> None:
        self.source = source
        self._settings = settings
        self._hooks = _hooks(settings.hooks)
        self._asking = Asking(
            approval=_approval(settings.require_approval), wait_for=settings.wait_for, now=settings.clock.now
        )
        sink = settings.on_event
        self._tell = None if sink is None else functools.partial(_callbacks.tell, "on_event", sink)
        self.watching = Watching(
            metrics=settings.metrics, telemetry=settings.telemetry, capture_content=settings.capture_content
        )

    async def run(
        self,
        prompt: Prompt | None,
        toolkit: Tools,
        history: Iterable[Mapping[str, Any]] | None,
        options: Options,
        *,
        on_text: Callable[[str], Any] | None = None,
    ) -> RunResult:
        """The result of a run that is remembered nowhere: `forgotten`, drained."""
        messages = _transcript(prompt, history)
        asked = None if prompt is None else messages[-1]
        run = await self._prepare(
            toolkit, options, None, asked=asked, stream=on_text is not None, watch=self.watching.run()
        )
        return await self.drain(_turns.forgotten(run, messages), on_text, self._tell)

    def forgotten(
        self, prompt: Prompt | None, toolkit: Tools, history: Iterable[Mapping[str, Any]] | None, options: Options
    ) -> AsyncGenerator[Event, None]:
        """The events of a run that is remembered nowhere."""
        messages = _transcript(prompt, history)
        return self._forgotten(messages, None if prompt is None else messages[-1], toolkit, options)

    async def _forgotten(
        self, messages: list[Message], asked: Message | None, toolkit: Tools, options: Options
    ) -> AsyncGenerator[Event, None]:
        run = await self._prepare(toolkit, options, None, asked=asked, stream=True, watch=self.watching.run())
        events = _turns.forgotten(run, messages)
        try:
            async for event in events:
                if self._tell is not None:
                    await self._tell(event)
                yield event
        except ReaderGone as gone:
            await events.athrow(gone)  # it ends the run, and carries what there is of it
        finally:
            await events.aclose()

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
        asked = prompt_message(prompt)
        keeper = self._keeper(store, conversation_id or "", asked, options)
        watch = self.watching.run()
        prepare = functools.partial(
            self._prepare, toolkit, options, conversation_id, asked=asked, stream=stream, watch=watch
        )
        return watched(_turns.remembered(prepare, keeper, self._tell), watch)

    async def resume_run(
        self,
        history: Iterable[Mapping[str, Any]],
        answers: Iterable[Mapping[str, Any]] | None,
        toolkit: Tools,
        options: Options,
        *,
        on_text: Callable[[str], Any] | None = None,
    ) -> RunResult:
        """The result of a run that goes on and is remembered nowhere."""
        given = suspension.read_answers(answers)
        turn = _reopened.unfinished(repair(normalise(history))[0])
        if turn is None:
            raise ConfigurationError("There is nothing to resume: the history ends with an answer, or is empty.")
        run = await self._prepare(toolkit, options, None, stream=on_text is not None, watch=self.watching.run())
        opened = turn.opened(given, {tool.name for tool in run.tools}, now=self._asking.now())
        start = _turns.reopened(turn, opened, run, turn.turn_id or run.turn_id)
        return await self.drain(_turns.forgotten(start.run, start.transcript, opened), on_text, self._tell)

    def resumed(
        self,
        toolkit: Tools,
        store: ConversationStore,
        conversation_id: str | None,
        answers: Iterable[Mapping[str, Any]] | None,
        options: Options,
        *,
        stream: bool,
    ) -> AsyncGenerator[Event, None]:
        """The events of a turn of a conversation that goes on."""
        keeper = self._resumer(store, conversation_id or "", suspension.read_answers(answers), options)
        watch = self.watching.run()
        prepare = functools.partial(self._prepare, toolkit, options, conversation_id, stream=stream, watch=watch)
        return watched(_turns.remembered(prepare, keeper, self._tell), watch)

    def _resumer(
        self, store: ConversationStore, conversation_id: str, answers: Mapping[str, Answer], options: Options
    ) -> Keeper:
        """Who remembers how the turn goes on."""
        if is_log_store(store):
            from toolnexus._turns_logged import LogResumer  # what it needs is loaded with such a store

            return LogResumer(
                store,
                conversation_id,
                answers,
                now=self._asking.now,
                wait=options.patience,
                durability=options.durability,
                keep_interrupted=options.keep_interrupted,
            )
        return PlainResumer(
            store,
            conversation_id,
            answers,
            now=self._asking.now,
            wait=options.patience,
            keep_interrupted=options.keep_interrupted,
        )

    def _keeper(self, store: ConversationStore, conversation_id: str, prompt: UserMessage, options: Options) -> Keeper:
        """Who remembers the turn: by its log, if the store has one and keeps to it."""
        if is_log_store(store):
            from toolnexus._turns_logged import LogKeeper  # what it needs is loaded with such a store

            return LogKeeper(
                store,
                conversation_id,
                prompt,
                key=options.key,
                wait=options.patience,
                durability=options.durability,
                keep_interrupted=options.keep_interrupted,
            )
        if options.key is not None:
            raise ConfigurationError(
                f"key= needs a log store, such as SQLiteStore. A {type(store).__name__} of two methods has nowhere to "
                "keep it."
            )
        return PlainKeeper(
            store, conversation_id, prompt, wait=options.patience, keep_interrupted=options.keep_interrupted
        )

    @staticmethod
    async def drain(
        events: AsyncGenerator[Event, None],
        on_text: Callable[[str], Any] | None = None,
        tell: _turns.Tell | None = None,
    ) -> RunResult:
        """Read a run to its end."""
        result: RunResult | None = None
        try:
            async for event in events:
                if tell is not None:
                    await tell(event)
                if isinstance(event, Finished):
                    result = event.result
                elif on_text is not None and isinstance(event, TextDelta):
                    await _callbacks.tell("on_text", on_text, event.text)
        finally:
            await events.aclose()
        assert result is not None, "a run ends with Finished or an error"
        return result

    def watched(self, events: AsyncGenerator[Event, None]) -> RunStream:
        """The events for a reader, who may leave or fall asleep."""
        return RunStream(events, reader_timeout=self._settings.reader_timeout)

    async def _prepare(
        self,
        toolkit: Tools,
        options: Options,
        conversation_id: str | None,
        *,
        asked: Message | None = None,
        stream: bool,
        watch: WatchedRun | None,
    ) -> Run:
        """What a run needs. When it is there, the run begins for those who watch it.

        Args:
            asked: The user's new message, which the model has to be able to take. None: there is none.
            watch: None: nobody watches it.
        """
        settings = self._settings
        timeout = settings.timeout if options.timeout is None else options.timeout
        deadline = None if timeout is None else time.monotonic() + timeout
        if not self.source.ready:
            await within(deadline, self.source.prepare())
        if asked is not None:
            _check_parts(asked, options.model or self.source.name, self.source)
        if toolkit is not None and not isinstance(toolkit, Toolkit):
            toolkit = await within(deadline, as_toolkit(toolkit))
        wanted = None if options.output_type is None else await within(deadline, _wanted(options.output_type))
        run = Run(
            model=self.source.model(None if wanted is None else wanted.schema),
            model_id=options.model or self.source.name,
            system=_system(settings.system_prompt, toolkit),
            tools=() if toolkit is None else toolkit.tools(),
            hooks=self._hooks,
            asking=self._asking,
            params=settings.request_params or {},
            stream=stream,
            max_steps=options.max_steps or settings.max_steps,
            max_tokens=options.max_tokens or settings.max_tokens,
            max_output=settings.max_output,
            concurrency=settings.concurrency,
            deadline=deadline,
            turn_id=os.urandom(16).hex(),
            conversation_id=conversation_id,
            answer_type=wanted,
            watch=watch,
        )
        if watch is not None:
            await within(deadline, watch.begin(_about(run, self.source)))
        return run


def _system(own: str, toolkit: Toolkit | None) -> str:
    """The system prompt of a run: the client's, and what the toolkit says of its skills."""
    skills = "" if toolkit is None else toolkit.skills_prompt()
    return "\n\n".join(filter(None, (own, skills)))


def _about(run: Run, source: ModelSource) -> About:
    return About(
        id=run.turn_id,
        model=run.model_id,
        provider=source.target.provider.name,
        host=source.target.host,
        conversation_id=run.conversation_id,
        tools=frozenset(tool.name for tool in run.tools),
        stream=run.stream,
    )


async def _wanted(output_type: object) -> AnswerType:
    await load("toolnexus._answer_type", "toolnexus._answer_schema")
    from toolnexus._answer_type import answer_type

    return await answer_type(output_type)


def _check_parts(asked: Message, model: str, source: ModelSource) -> None:
    """Refuse a prompt with a part that the model's endpoint has no way to be told."""
    content = asked.get("content")
    if content is None or isinstance(content, str) or (takes := source.parts) is None:
        return
    if (refused := refused_part(content, takes)) is not None:
        place, what = refused
        raise ConfigurationError(
            f"prompt[{place}] is {what}, which {model!r} cannot be sent here. It takes {', '.join(sorted(takes))}. "
            "Leave it out, give it in another form, or choose another model."
        )


def _hooks(given: Hooks | Sequence[Hooks]) -> tuple[Hooks, ...]:
    if isinstance(given, Hooks):
        return (given,)
    listed = tuple(given) if isinstance(given, Iterable) else (given,)  # pyright: ignore[reportUnnecessaryIsInstance]
    if wrong := [each for each in listed if not isinstance(each, Hooks)]:  # pyright: ignore[reportUnnecessaryIsInstance]
        kind = type(wrong[0]).__name__
        raise ConfigurationError(f"hooks has a {kind}; give Hooks(before_tool=…), say, or a list of such.")
    return listed


def _approval(given: Approval | Iterable[str] | None) -> Approval | None:
    """Which calls need approval: what a predicate says, or the tools of these names and patterns."""
    if given is None or callable(given):
        return given
    patterns = [given] if isinstance(given, str) else list(given)
    if wrong := [each for each in patterns if not isinstance(each, str)]:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(f"require_approval has {wrong[0]!r:.100}; expected names or patterns, or a function.")

    def is_named(tool: Tool, arguments: JSONObject) -> bool:
        return any(fnmatch.fnmatchcase(tool.name, pattern) for pattern in patterns)

    return is_named


def _transcript(prompt: Prompt | None, history: Iterable[Mapping[str, Any]] | None) -> list[Message]:
    messages = repair(normalise(history))[0] if history is not None else []
    if prompt is not None:
        messages.append(prompt_message(prompt))
    elif not messages or messages[-1]["role"] not in ("user", "tool"):
        raise ConfigurationError("prompt=None needs a history that ends in a user message or in tool results.")
    return messages
