"""The client: `run`, `ask` and `stream`. Thin: it picks defaults and wires the parts."""

from __future__ import annotations

import functools
import inspect
import logging
import math
import os
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, Unpack

from toolnexus import _turns
from toolnexus._loop import Run
from toolnexus._source import HTTPSource, ModelSource, load
from toolnexus._stream import RunStream
from toolnexus.blocking import BlockingStream, blocking
from toolnexus.clock import Clock, SystemClock, within
from toolnexus.errors import ConfigurationError, InvalidConversationId
from toolnexus.events import Event, Finished, RunResult, TextDelta
from toolnexus.hooks import Hooks
from toolnexus.messages import Message, Prompt, copy_messages, normalise, prompt_message, repair
from toolnexus.stores import ConversationStore
from toolnexus.transport import Limits, Transport

if TYPE_CHECKING:
    from types import TracebackType

    from toolnexus.toolkit import Toolkit
    from toolnexus.tools import Tool

_log = logging.getLogger("toolnexus")

_MAX_ID = 512

Tools: TypeAlias = "Toolkit | Iterable[Tool | Callable[..., Any]] | None"
Sink: TypeAlias = Callable[[Event], Any]


class RunOptions(TypedDict, total=False):
    """What every verb takes. What is left out comes from the client."""

    model: str | None
    """Another model id at the same endpoint."""
    max_steps: int | None
    """Replies of the model that one run may take."""
    max_tokens: int | None
    """Tokens that one reply may have."""
    timeout: float | None
    """Seconds for the whole run, queueing and tools included."""


class TurnOptions(RunOptions, total=False):
    """What the verbs with a conversation take."""

    busy: Literal["wait", "raise"]
    """What to do while another turn runs on the conversation."""
    busy_timeout: float
    """Seconds to wait for other turns; default 600."""
    keep_interrupted: bool
    """Keep the prompt and what was said when the turn is interrupted, marked as such."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    model: str | None = None
    max_steps: int | None = None
    max_tokens: int | None = None
    timeout: float | None = None
    busy: Literal["wait", "raise"] = "wait"
    busy_timeout: float = 600.0
    keep_interrupted: bool = False

    def __post_init__(self) -> None:
        _at_least("max_steps", self.max_steps, 1)
        _at_least("max_tokens", self.max_tokens, 1)
        _at_least("timeout", self.timeout, 0)
        _at_least("busy_timeout", self.busy_timeout, 0)
        if self.busy not in ("wait", "raise"):
            raise ConfigurationError(f"busy is {self.busy!r}; it can be 'wait' or 'raise'.")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Settings:
    """What a client was made with, beside its models and its store."""

    system_prompt: str = ""
    request_params: Mapping[str, Any] | None = None
    hooks: Hooks | Sequence[Hooks] = ()
    on_event: Sink | None = None
    max_steps: int = 20
    max_tokens: int | None = None
    timeout: float | None = None
    reader_timeout: float | None = 300.0
    max_output: int = 64 * 1024
    concurrency: int = 8

    def __post_init__(self) -> None:
        for name in ("max_steps", "max_tokens", "max_output", "concurrency"):
            _at_least(name, getattr(self, name), 1)
        for name in ("timeout", "reader_timeout"):
            _at_least(name, getattr(self, name), 0)


class Client:
    """Talks to one model endpoint and remembers conversations. Made by `create_client`.

    A client may be used from several event loops and threads. Close it, or use it as `async with`, so that its
    connections end.
    """

    def __init__(self, source: ModelSource, *, store: ConversationStore | None, **settings: Any) -> None:
        self._source = source
        self._settings = _Settings(**settings)
        self._hooks = (
            (self._settings.hooks,) if isinstance(self._settings.hooks, Hooks) else tuple(self._settings.hooks)
        )
        self._store, self._owns_store = _open(store)

    def __repr__(self) -> str:
        return f"<toolnexus.Client model={self._source.name!r}>"

    @property
    def model(self) -> str:
        """The model id that is asked when a call names none."""
        return self._source.name

    @property
    def conversation_store(self) -> ConversationStore:
        """The store in effect: the very object that was given, or the client's own."""
        return self._store

    async def run(
        self,
        prompt: Prompt | None,
        toolkit: Tools = None,
        *,
        history: Iterable[Mapping[str, Any]] | None = None,
        **options: Unpack[RunOptions],
    ) -> RunResult:
        """One prompt to its answer, remembered nowhere.

        Args:
            prompt: A text, or content parts. None: continue a history that ends in a user message or tool results.
            toolkit: A `Toolkit`, tools, or plain functions. None: the model is offered no tools.
            history: Messages to continue. They are not modified.

        Raises:
            ToolnexusError: See `toolnexus.errors`; with `.partial` once the model had answered anything.
        """
        return await _drain(self._forgotten(prompt, toolkit, history, _Options(**options), stream=False))

    async def ask(
        self,
        prompt: Prompt,
        toolkit: Tools = None,
        *,
        id: str | None = None,
        on_text: Callable[[str], Any] | None = None,
        **options: Unpack[TurnOptions],
    ) -> RunResult:
        """`run` with memory: the conversation `id` is continued, and this turn is added to it.

        Args:
            id: 1 to 512 characters, chosen by you: a user, a session, a context. None: exactly `run`.
            on_text: Called with each piece of text as it arrives; plain or async. The answer is then streamed.

        Raises:
            InvalidConversationId: Before anything else.
            ConversationBusy: Another turn holds the conversation.
            StoreError: The conversation could not be read (nothing was sent) or saved (`.partial` is the answer).
            ToolnexusError: As for `run`.
        """
        _check_id(id)
        chosen, stream = _Options(**options), on_text is not None
        if id is None:
            events = self._forgotten(prompt, toolkit, None, chosen, stream=stream)
        else:
            events = self.remembered(prompt, toolkit, self._store, id, chosen, stream=stream)
        return await _drain(events, on_text)

    def stream(
        self,
        prompt: Prompt | None,
        toolkit: Tools = None,
        *,
        id: str | None = None,
        history: Iterable[Mapping[str, Any]] | None = None,
        **options: Unpack[TurnOptions],
    ) -> RunStream:
        """The same turn as typed events while they happen. See `RunStream` for how to leave it.

        Args:
            id: As for `ask`; not together with `history`.
            history: As for `run`.
        """
        _check_id(id)
        chosen = _Options(**options)
        if id is None:
            events = self._forgotten(prompt, toolkit, history, chosen, stream=True)
        elif history is not None or prompt is None:
            raise ConfigurationError("A conversation has its own history: give either id= and a prompt, or history=.")
        else:
            events = self.remembered(prompt, toolkit, self._store, id, chosen, stream=True)
        return RunStream(events, reader_timeout=self._settings.reader_timeout)

    def conversation(self, toolkit: Tools = None, id: str | None = None) -> Conversation:
        """A conversation as an object. Without an id it keeps its own list and touches no store."""
        _check_id(id)
        return Conversation(self, toolkit, id)

    run_sync = blocking(run)
    ask_sync = blocking(ask)

    def stream_sync(
        self,
        prompt: Prompt | None,
        toolkit: Tools = None,
        *,
        id: str | None = None,
        history: Iterable[Mapping[str, Any]] | None = None,
        **options: Unpack[TurnOptions],
    ) -> BlockingStream:
        """`stream` for code without an event loop."""
        return BlockingStream(self.stream(prompt, toolkit, id=id, history=history, **options))

    async def aclose(self) -> None:
        """Close the connections, and the store if the client opened it. May be called more than once."""
        await self._source.aclose()
        close = getattr(self._store, "aclose", None)
        if self._owns_store and close is not None:
            await close()

    close = blocking(aclose)

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.aclose()

    def _forgotten(
        self,
        prompt: Prompt | None,
        toolkit: Tools,
        history: Iterable[Mapping[str, Any]] | None,
        options: _Options,
        *,
        stream: bool,
    ) -> AsyncGenerator[Event, None]:
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
        options: _Options,
        *,
        stream: bool,
    ) -> AsyncGenerator[Event, None]:
        memory = _turns.Memory(
            store=store,
            conversation_id=conversation_id or "",
            wait=options.busy_timeout if options.busy == "wait" else 0.0,
            keep_interrupted=options.keep_interrupted,
        )
        prepare = functools.partial(self._prepare, toolkit, options, conversation_id, stream=stream)
        return _turns.remembered(prepare, prompt_message(prompt), memory, self._tell)

    async def _prepare(self, toolkit: Tools, options: _Options, conversation_id: str | None, *, stream: bool) -> Run:
        settings = self._settings
        timeout = settings.timeout if options.timeout is None else options.timeout
        deadline = None if timeout is None else time.monotonic() + timeout
        await within(deadline, self._source.prepare())
        tools = () if toolkit is None else await within(deadline, _tools(toolkit))
        return Run(
            model=self._source.model(),
            model_id=options.model or self._source.name,
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


class Conversation:
    """One conversation: `send` and `stream` continue it. Sends that overlap wait for each other."""

    def __init__(self, client: Client, toolkit: Tools, id: str | None) -> None:
        self._client = client
        self._toolkit = toolkit
        self._store: ConversationStore = _OwnList() if id is None else client.conversation_store
        self.id = id

    async def send(
        self, prompt: Prompt, *, on_text: Callable[[str], Any] | None = None, **options: Unpack[TurnOptions]
    ) -> RunResult:
        """`Client.ask`, here."""
        return await _drain(self._events(prompt, options, stream=on_text is not None), on_text)

    def stream(self, prompt: Prompt, **options: Unpack[TurnOptions]) -> RunStream:
        """`Client.stream`, here."""
        return RunStream(self._events(prompt, options, stream=True), reader_timeout=self._client.reader_timeout)

    async def messages(self) -> list[Message]:
        """The finished turns, as a copy."""
        return await _turns.load(self._store, self.id or "")

    async def reset(self) -> None:
        """Forget everything said so far."""
        await _turns.save(self._store, self.id or "", [])

    def _events(self, prompt: Prompt, options: TurnOptions, *, stream: bool) -> AsyncGenerator[Event, None]:
        return self._client.remembered(prompt, self._toolkit, self._store, self.id, _Options(**options), stream=stream)


class _OwnList:
    """The memory of a conversation without an id."""

    def __init__(self) -> None:
        self._messages: list[Message] = []

    def get(self, id: str, /) -> list[Message]:
        return copy_messages(self._messages)

    def save(self, id: str, messages: list[Message], /) -> None:
        self._messages = copy_messages(messages)


def create_client(
    model: str | None = None,
    *,
    base_url: str | None = None,
    style: str | None = None,
    api_key: str | None = None,
    store: ConversationStore | None = None,
    system_prompt: str = "",
    headers: Mapping[str, str] | None = None,
    request_params: Mapping[str, Any] | None = None,
    body_transform: Callable[[dict[str, Any]], Mapping[str, Any] | None] | None = None,
    hooks: Hooks | Sequence[Hooks] = (),
    on_event: Sink | None = None,
    transport: Transport | None = None,
    limits: Limits | None = None,
    retries: int = 2,
    max_retry_wait: float = 60.0,
    clock: Clock | None = None,
    max_steps: int = 20,
    max_tokens: int | None = None,
    timeout: float | None = None,
    reader_timeout: float | None = 300.0,
    max_output: int = 64 * 1024,
    concurrency: int = 8,
) -> Client:
    """Make a client for one model endpoint. Nothing is sent, opened or imported yet.

    Args:
        model: `provider:model` of the provider table, or with `base_url` the endpoint's own model id.
        base_url: Any endpoint of a known style, as its documentation spells it. None: from the table.
        style: `openai` (chat completions) or `anthropic` (messages). None: from the table, else `openai`.
        api_key: None: from the environment variable of the provider that the host belongs to.
        store: Where conversations are kept. None: in memory, for the life of the client.
        system_prompt: Sent with every request, never stored.
        headers: Further request headers; they win over ours.
        request_params: Further request fields, merged last; its `tools` are appended.
        body_transform: Sees the final body and may change it or return another.
        hooks: See `toolnexus.hooks`.
        on_event: Called with every event of every run. What it raises is logged.
        transport: Your own HTTP. It stays yours to close.
        limits: Seconds and sizes of one request. None: `Limits()`.
        retries: How often a failed request is sent again while nothing was shown.
        max_retry_wait: Seconds that one wait between two attempts may take.
        clock: For tests. None: the machine's.
        max_steps: Replies of the model that one run may take.
        max_tokens: Tokens that one reply may have. None: nothing is sent unless the wire requires it.
        timeout: Seconds for a whole run. None: unbounded.
        reader_timeout: Seconds after which a stream that nobody reads is ended. None: never.
        max_output: Bytes of a tool's output that the model gets.
        concurrency: Calls of one step that may run at once.

    Raises:
        ConfigurationError: The arguments do not name an endpoint; the message says what to change.
    """
    from toolnexus._endpoint import resolve

    _at_least("retries", retries, 0)
    _at_least("max_retry_wait", max_retry_wait, 0)
    endpoint = resolve(model, base_url=base_url, style=style, api_key=api_key, headers=headers, environ=os.environ)
    source = HTTPSource(
        endpoint,
        transport=transport,
        limits=limits or Limits(),
        retries=retries,
        max_retry_wait=max_retry_wait,
        clock=clock or SystemClock(),
        body_transform=body_transform,
    )
    return Client(
        source,
        store=store,
        system_prompt=system_prompt,
        request_params=request_params,
        hooks=hooks,
        on_event=on_event,
        max_steps=max_steps,
        max_tokens=max_tokens,
        timeout=timeout,
        reader_timeout=reader_timeout,
        max_output=max_output,
        concurrency=concurrency,
    )


async def _drain(events: AsyncGenerator[Event, None], on_text: Callable[[str], Any] | None = None) -> RunResult:
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


def _open(store: ConversationStore | None) -> tuple[ConversationStore, bool]:
    """The store in effect, and whether it is the client's to close."""
    if store is None:
        from toolnexus.stores.memory import InMemoryConversationStore

        return InMemoryConversationStore(), True
    if isinstance(store, ConversationStore):
        return store, False
    raise ConfigurationError(
        f"store is a {type(store).__name__}; a conversation store has the methods get(id) and save(id, messages)."
    )


def _check_id(conversation_id: object) -> None:
    if conversation_id is None:
        return
    if not isinstance(conversation_id, str) or not 1 <= len(conversation_id) <= _MAX_ID:
        raise InvalidConversationId(
            f"id is {conversation_id!r:.100}; a conversation id is a str of 1 to {_MAX_ID} characters. "
            "Leave it out to remember nothing."
        )


def _at_least(name: str, value: float | None, least: float) -> None:
    if value is not None and not (least <= value < math.inf):
        raise ConfigurationError(f"{name} is {value!r}; it has to be a number from {least} on.")
