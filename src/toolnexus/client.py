"""The client: `run`, `ask`, `stream` and `resume`. Thin: it picks defaults and wires the parts."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from toolnexus._checks import at_least, check_id
from toolnexus._source import HTTPSource, ModelSource
from toolnexus.blocking import BlockingStream, blocking
from toolnexus.clock import Clock, SystemClock
from toolnexus.errors import ConfigurationError
from toolnexus.options import ResumeOptions, RunOptions, TurnOptions, chosen
from toolnexus.stores import ConversationStore
from toolnexus.transport import Limits, Transport

if TYPE_CHECKING:
    from types import TracebackType

    from toolnexus._engine import Tools
    from toolnexus._stream import RunStream
    from toolnexus._tool_mode import ToolMode
    from toolnexus.conversation import Conversation
    from toolnexus.events import Event, RunResult
    from toolnexus.hooks import Hooks
    from toolnexus.messages import Prompt
    from toolnexus.options import OutputType, T
    from toolnexus.providers import Provider
    from toolnexus.suspension import Approval, WaitFor
    from toolnexus.telemetry import Telemetry


class Fallback(TypedDict, total=False):
    """Another endpoint to ask, as the arguments of the same names name one to `create_client`.

    Nothing of the first endpoint goes to it: neither its key nor its headers.
    """

    model: str | None
    base_url: str | None
    style: str | None
    api_key: str | None
    headers: Mapping[str, str] | None


class Client:
    """Talks to one model endpoint and remembers conversations. Made by `create_client`.

    A client may be used from several event loops and threads. Close it, or use it as `async with`, so that its
    connections end.
    """

    def __init__(self, source: ModelSource, *, store: ConversationStore | str | None, **settings: Any) -> None:
        # Loaded with the first client: what runs need takes longer to import than all else.
        from toolnexus._engine import Engine, Settings

        self._engine = Engine(source, Settings(**settings))
        self._store, self._owns_store = _open(store)

    def __repr__(self) -> str:
        return f"<toolnexus.Client model={self._engine.source.name!r}>"

    @property
    def model(self) -> str:
        """The model id that is asked when a call names none."""
        return self._engine.source.name

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
        output_type: OutputType[T] = None,
        **options: Unpack[RunOptions],
    ) -> RunResult[T]:
        """One prompt to its answer, remembered nowhere.

        Args:
            prompt: A text, or a list of texts and content parts. None: continue a history that ends in a user message
                or in tool results.
            toolkit: A `Toolkit`, tools, or plain functions. None: the model is offered no tools.
            history: Messages to continue. They are not modified.
            output_type: What the answer has to be: a pydantic model, a dataclass, a TypedDict, a plain type such as
                `list[str]`, or a JSON Schema as a mapping. `result.output` is then a value of it. None: any text.

        Raises:
            InvalidOutput: The answer is no value of `output_type`, not even after the model was told what is wrong.
            ToolnexusError: See `toolnexus.errors`; with `.partial` once the model had answered anything.
        """
        return await self._engine.run(prompt, toolkit, history, chosen(options, RunOptions, output_type))

    async def ask(
        self,
        prompt: Prompt,
        toolkit: Tools = None,
        *,
        id: str | None = None,
        on_text: Callable[[str], Any] | None = None,
        output_type: OutputType[T] = None,
        **options: Unpack[TurnOptions],
    ) -> RunResult[T]:
        """`run` with memory: the conversation `id` is continued, and this turn is added to it.

        Args:
            id: 1 to 512 characters, chosen by you: a user, a session, a context. None: exactly `run`.
            on_text: Called with each piece of text as it arrives; plain or async. The answer is then streamed.
            output_type: As for `run`.

        Raises:
            InvalidConversationId: Before anything else.
            ConversationBusy: Another turn holds the conversation.
            StoreError: The conversation could not be read (nothing was sent) or saved (`.partial` is the answer).
            ToolnexusError: As for `run`.
        """
        check_id(id)
        if id is None:
            return await self._engine.run(
                prompt, toolkit, None, chosen(options, TurnOptions, output_type), on_text=on_text
            )
        wanted = chosen(options, TurnOptions, output_type)
        events = self._engine.remembered(prompt, toolkit, self._store, id, wanted, stream=on_text is not None)
        return await self._engine.drain(events, on_text)

    def stream(
        self,
        prompt: Prompt | None,
        toolkit: Tools = None,
        *,
        id: str | None = None,
        history: Iterable[Mapping[str, Any]] | None = None,
        output_type: object | None = None,
        **options: Unpack[TurnOptions],
    ) -> RunStream:
        """The same turn as typed events while they happen. See `RunStream` for how to leave it.

        Args:
            id: As for `ask`; not together with `history`.
            history: As for `run`.
            output_type: As for `run`. It is the output of the result that `Finished` has.
        """
        check_id(id)
        wanted = chosen(options, TurnOptions, output_type)
        if id is None:
            events = self._engine.forgotten(prompt, toolkit, history, wanted)
        elif history is not None or prompt is None:
            raise ConfigurationError("A conversation has its own history: give either id= and a prompt, or history=.")
        else:
            events = self._engine.remembered(prompt, toolkit, self._store, id, wanted, stream=True)
        return self._engine.watched(events)

    async def resume(
        self,
        id: str,
        toolkit: Tools = None,
        *,
        answers: Iterable[Mapping[str, Any]] | None = None,
        on_text: Callable[[str], Any] | None = None,
        output_type: OutputType[T] = None,
        **options: Unpack[ResumeOptions],
    ) -> RunResult[T]:
        """Continue the last turn of a conversation, which waits for a person or was interrupted, perhaps elsewhere.

        Calls that ended are not repeated. A call of which nobody knows whether it ran is asked about, with a request
        of the kind `retry`, unless its tool is marked `idempotent` or `read_only`. The turn goes on when everything
        that it waits for is answered, and is pending again otherwise.

        Args:
            id: The conversation.
            toolkit: What the turn began with: the tools whose calls go on have to be there.
            answers: An `Answer` for each `Request` that is answered; see `RunResult.pending`. None: there are none.
            on_text: As for `ask`.
            output_type: As for `run`. It is not remembered, so give it again.

        Raises:
            AlreadyAnswered: Nothing waits there any more: somebody else resumed the turn, or it has its answer.
            ConfigurationError: An answer is for no request that waits. The message names those that do.
            NoSuchConversation: There is none of this id.
            ToolnexusError: As for `ask`.
        """
        return await self._engine.drain(
            self._resumed(id, toolkit, answers, options, output_type, stream=on_text is not None), on_text
        )

    def stream_resume(
        self,
        id: str,
        toolkit: Tools = None,
        *,
        answers: Iterable[Mapping[str, Any]] | None = None,
        output_type: object | None = None,
        **options: Unpack[ResumeOptions],
    ) -> RunStream:
        """`resume` as typed events while they happen, as with `stream`."""
        return self._engine.watched(self._resumed(id, toolkit, answers, options, output_type, stream=True))

    async def resume_run(
        self,
        history: Iterable[Mapping[str, Any]],
        answers: Iterable[Mapping[str, Any]] | None = None,
        toolkit: Tools = None,
        *,
        on_text: Callable[[str], Any] | None = None,
        output_type: OutputType[T] = None,
        **options: Unpack[RunOptions],
    ) -> RunResult[T]:
        """`resume` for a run that is remembered nowhere.

        Args:
            history: `RunResult.messages` of the run. They are not modified.
            answers: As for `resume`.
            output_type: As for `run`.

        Raises:
            ConfigurationError: There is nothing to continue, or an answer is for no request that waits.
            ToolnexusError: As for `run`.
        """
        wanted = chosen(options, RunOptions, output_type)
        return await self._engine.resume_run(history, answers, toolkit, wanted, on_text=on_text)

    def _resumed(
        self,
        id: str,
        toolkit: Tools,
        answers: Iterable[Mapping[str, Any]] | None,
        options: ResumeOptions,
        output_type: object | None,
        *,
        stream: bool,
    ) -> AsyncGenerator[Event, None]:
        check_id(id, optional=False)
        wanted = chosen(options, ResumeOptions, output_type)
        return self._engine.resumed(toolkit, self._store, id, answers, wanted, stream=stream)

    def conversation(self, toolkit: Tools = None, id: str | None = None) -> Conversation:
        """A conversation as an object. Without an id it keeps its own list and touches no store."""
        check_id(id)
        from toolnexus.conversation import Conversation

        return Conversation(self._engine, toolkit, self._store, id)

    def metrics(self) -> str:
        """What the client's runs came to, in the text format of Prometheus; empty before the first run.

        Raises:
            ConfigurationError: The client was made without `metrics=True`.
        """
        return self._engine.watching.metrics()

    run_sync = blocking(run)
    ask_sync = blocking(ask)
    resume_sync = blocking(resume)
    resume_run_sync = blocking(resume_run)

    def stream_sync(
        self,
        prompt: Prompt | None,
        toolkit: Tools = None,
        *,
        id: str | None = None,
        history: Iterable[Mapping[str, Any]] | None = None,
        output_type: object | None = None,
        **options: Unpack[TurnOptions],
    ) -> BlockingStream:
        """`stream` for code without an event loop."""
        return BlockingStream(self.stream(prompt, toolkit, id=id, history=history, output_type=output_type, **options))

    async def aclose(self) -> None:
        """Close the connections, and the store if the client opened it. May be called more than once."""
        await self._engine.source.aclose()
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


def create_client(
    model: str | None = None,
    *,
    base_url: str | None = None,
    style: str | None = None,
    api_key: str | None = None,
    fallbacks: Iterable[str | Fallback] = (),
    providers: Mapping[str, Provider | Mapping[str, Any]] | None = None,
    store: ConversationStore | str | None = None,
    system_prompt: str = "",
    headers: Mapping[str, str] | None = None,
    request_params: Mapping[str, Any] | None = None,
    body_transform: Callable[[dict[str, Any]], Mapping[str, Any] | None] | None = None,
    hooks: Hooks | Sequence[Hooks] = (),
    require_approval: Approval | Iterable[str] | None = None,
    wait_for: WaitFor | None = None,
    on_event: Callable[[Event], Any] | None = None,
    metrics: bool = False,
    telemetry: bool | Telemetry | None = None,
    capture_content: bool = False,
    transport: Transport | None = None,
    limits: Limits | None = None,
    retries: int = 2,
    max_retry_wait: float = 60.0,
    tool_mode: ToolMode = "auto",
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
        model: `provider:model` of the provider table, `http://host#model` (a base URL and a model id in one), or with
            `base_url` the endpoint's own model id.
        base_url: Any endpoint of a known style, as its documentation spells it. None: from the table.
        style: `openai` (chat completions), `responses`, `anthropic` (messages) or `gemini` (generateContent). None:
            from the table, else `openai`.
        api_key: None: from the environment variable of the provider that the host belongs to.
        fallbacks: Models that are asked in this order when those before them cannot answer and nothing was shown
            yet: `provider:model`, or what names an endpoint (`Fallback`). Options that name none, such as
            `request_params`, hold for all. A request that is refused as wrong (`bad_request`) is not sent elsewhere.
        providers: Further rows of the provider table by name, for this client: a `toolnexus.providers.Provider`, or
            some of its fields as a mapping. With the name of a built-in row: what differs from it. Where two rows have
            one host, the last one counts. None: the built-in table.
        store: Where conversations are kept: a store, or the text that names one, such as `sqlite:///chat.db` (see
            `toolnexus.stores.opening`). None: in memory, for the life of the client.
        system_prompt: Sent with every request, never stored.
        headers: Further request headers; they win over ours.
        request_params: Further request fields, merged last; its `tools` are appended.
        body_transform: Sees the final body and may change it or return another.
        hooks: See `toolnexus.hooks`.
        require_approval: Which calls a person has to approve, beside those of tools marked `needs_approval`: a
            predicate of tool and arguments, plain or async (one that raises denies the call), or names of tools, with
            `*`, `?` and `[…]` as in file names. It sees what the hooks made of the arguments.
        wait_for: Asks a person and returns the `Answer`: async, or plain and then called in a worker thread. All
            calls of a step that wait are asked about at once. Returning None, or raising, leaves the call pending.
            None: the turn ends pending, and `resume` continues it.
        on_event: Called with every event of every run; plain or async. What it raises is logged.
        metrics: Count runs for Prometheus; see `Client.metrics`. Extra `metrics`.
        telemetry: OpenTelemetry spans and metrics; extra `otel`. True: always. False: never. None: if the process has
            set a provider when a run begins. A `Telemetry` names the providers.
        capture_content: Let spans hold messages, and arguments and results of tools. They may hold secrets.
        transport: Your own HTTP. It stays yours to close.
        limits: Seconds and sizes of one request. None: `Limits()`.
        retries: How often a failed request is sent again while nothing was shown.
        max_retry_wait: Seconds that one wait between two attempts may take.
        tool_mode: How the model calls tools. `auto`: as its wire has it; of a server on this machine, text that is
            a call of a known tool counts as one too, since small models write such. `constrained`: for models that
            cannot call tools: each answer has to fit a JSON schema of "this tool, or a reply".
        clock: For tests: what retries wait by, and requests to people expire by. None: the machine's.
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
    from toolnexus.providers import PROVIDERS

    at_least("retries", retries, 0, whole=True)
    at_least("max_retry_wait", max_retry_wait, 0)
    if isinstance(fallbacks, str | Mapping):
        given = repr(fallbacks[:60]) if isinstance(fallbacks, str) else "one object"
        raise ConfigurationError(f"fallbacks is {given}; give a list, even of one, such as ['ollama:qwen3'].")
    if limits is not None and not isinstance(limits, Limits):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(f"limits is of the type {type(limits).__name__}; give a Limits(first_byte=60), say.")
    if tool_mode not in ("auto", "constrained"):
        raise ConfigurationError(f"tool_mode is {tool_mode!r}; it can be 'auto' or 'constrained'.")
    clock = clock or SystemClock()
    rows = PROVIDERS
    if providers is not None:
        from toolnexus._provider_rows import table

        rows = table(providers)
    first = Fallback(model=model, base_url=base_url, style=style, api_key=api_key, headers=headers)
    sources = [
        HTTPSource(
            resolve(
                names.get("model"),
                base_url=names.get("base_url"),
                style=names.get("style"),
                api_key=names.get("api_key"),
                headers=names.get("headers"),
                environ=os.environ,
                key_required=transport is None,
                providers=rows,
            ),
            transport=transport,
            limits=limits or Limits(),
            retries=retries,
            max_retry_wait=max_retry_wait,
            clock=clock,
            tool_mode=tool_mode,
            body_transform=body_transform,
        )
        for names in (first, *map(_fallback, fallbacks))
    ]
    return Client(
        _in_order(sources),
        store=store,
        system_prompt=system_prompt,
        request_params=request_params,
        hooks=hooks,
        require_approval=require_approval,
        wait_for=wait_for,
        clock=clock,
        on_event=on_event,
        metrics=metrics,
        telemetry=telemetry,
        capture_content=capture_content,
        max_steps=max_steps,
        max_tokens=max_tokens,
        timeout=timeout,
        reader_timeout=reader_timeout,
        max_output=max_output,
        concurrency=concurrency,
    )


def _fallback(given: str | Fallback) -> Fallback:
    if isinstance(given, str):
        return {"model": given}
    if isinstance(given, Mapping) and given.keys() <= Fallback.__annotations__.keys():  # pyright: ignore[reportUnnecessaryIsInstance]
        return given
    # Not the object itself, which may hold a key.
    shown = f"has {', '.join(map(str, given))}" if isinstance(given, Mapping) else f"is {given!r:.60}"  # pyright: ignore[reportUnnecessaryIsInstance]
    raise ConfigurationError(
        f"A fallback {shown}; write provider:model, or an object with some of {', '.join(Fallback.__annotations__)}."
    )


def _in_order(sources: list[HTTPSource]) -> ModelSource:
    if len(sources) == 1:
        return sources[0]
    from toolnexus._fallback import FallbackSource

    return FallbackSource(sources)


def _open(store: object) -> tuple[ConversationStore, bool]:
    """The store in effect, and whether it is the client's to close."""
    if store is None:
        from toolnexus.stores.memory import InMemoryConversationStore

        return InMemoryConversationStore(), True
    if isinstance(store, str):
        from toolnexus.stores.opening import open_store

        return open_store(store), True
    if isinstance(store, ConversationStore) and not isinstance(store, type):
        return store, False
    given = f"the class {store.__name__}" if isinstance(store, type) else f"of the type {type(store).__name__}"
    raise ConfigurationError(
        f"store is {given}; give an object with the methods get(id) and save(id, messages), or a URL such as "
        "'sqlite:///chat.db'."
    )
