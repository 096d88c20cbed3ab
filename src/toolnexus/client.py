"""The client: `run`, `ask`, `stream` and `resume`. Thin: it picks defaults and wires the parts."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

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
    from toolnexus.conversation import Conversation
    from toolnexus.events import Event, RunResult
    from toolnexus.hooks import Hooks
    from toolnexus.messages import Prompt
    from toolnexus.suspension import Approval, WaitFor


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
        return await self._engine.run(prompt, toolkit, history, chosen(options, RunOptions))

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
        check_id(id)
        if id is None:
            return await self._engine.run(prompt, toolkit, None, chosen(options, TurnOptions), on_text=on_text)
        stream = on_text is not None
        events = self._engine.remembered(prompt, toolkit, self._store, id, chosen(options, TurnOptions), stream=stream)
        return await self._engine.drain(events, on_text)

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
        check_id(id)
        if id is None:
            events = self._engine.forgotten(prompt, toolkit, history, chosen(options, TurnOptions))
        elif history is not None or prompt is None:
            raise ConfigurationError("A conversation has its own history: give either id= and a prompt, or history=.")
        else:
            events = self._engine.remembered(
                prompt, toolkit, self._store, id, chosen(options, TurnOptions), stream=True
            )
        return self._engine.watched(events)

    async def resume(
        self,
        id: str,
        toolkit: Tools = None,
        *,
        answers: Iterable[Mapping[str, Any]] | None = None,
        on_text: Callable[[str], Any] | None = None,
        **options: Unpack[ResumeOptions],
    ) -> RunResult:
        """Continue the last turn of a conversation, which waits for a person or was interrupted, perhaps elsewhere.

        Calls that ended are not repeated. A call of which nobody knows whether it ran is asked about, with a request
        of the kind `retry`, unless its tool is marked `idempotent` or `read_only`. The turn goes on when everything
        that it waits for is answered, and is pending again otherwise.

        Args:
            id: The conversation.
            toolkit: What the turn began with: the tools whose calls go on have to be there.
            answers: An `Answer` for each `Request` that is answered; see `RunResult.pending`. None: there are none.
            on_text: As for `ask`.

        Raises:
            AlreadyAnswered: Nothing waits there any more: somebody else resumed the turn, or it has its answer.
            ConfigurationError: An answer is for no request that waits. The message names those that do.
            NoSuchConversation: There is none of this id.
            ToolnexusError: As for `ask`.
        """
        return await self._engine.drain(
            self._resumed(id, toolkit, answers, options, stream=on_text is not None), on_text
        )

    def stream_resume(
        self,
        id: str,
        toolkit: Tools = None,
        *,
        answers: Iterable[Mapping[str, Any]] | None = None,
        **options: Unpack[ResumeOptions],
    ) -> RunStream:
        """`resume` as typed events while they happen, as with `stream`."""
        return self._engine.watched(self._resumed(id, toolkit, answers, options, stream=True))

    async def resume_run(
        self,
        history: Iterable[Mapping[str, Any]],
        answers: Iterable[Mapping[str, Any]] | None = None,
        toolkit: Tools = None,
        *,
        on_text: Callable[[str], Any] | None = None,
        **options: Unpack[RunOptions],
    ) -> RunResult:
        """`resume` for a run that is remembered nowhere.

        Args:
            history: `RunResult.messages` of the run. They are not modified.
            answers: As for `resume`.

        Raises:
            ConfigurationError: There is nothing to continue, or an answer is for no request that waits.
            ToolnexusError: As for `run`.
        """
        return await self._engine.resume_run(history, answers, toolkit, chosen(options, RunOptions), on_text=on_text)

    def _resumed(
        self,
        id: str,
        toolkit: Tools,
        answers: Iterable[Mapping[str, Any]] | None,
        options: ResumeOptions,
        *,
        stream: bool,
    ) -> AsyncGenerator[Event, None]:
        check_id(id, optional=False)
        return self._engine.resumed(toolkit, self._store, id, answers, chosen(options, ResumeOptions), stream=stream)

    def conversation(self, toolkit: Tools = None, id: str | None = None) -> Conversation:
        """A conversation as an object. Without an id it keeps its own list and touches no store."""
        check_id(id)
        from toolnexus.conversation import Conversation

        return Conversation(self._engine, toolkit, self._store, id)

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
        **options: Unpack[TurnOptions],
    ) -> BlockingStream:
        """`stream` for code without an event loop."""
        return BlockingStream(self.stream(prompt, toolkit, id=id, history=history, **options))

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
    store: ConversationStore | str | None = None,
    system_prompt: str = "",
    headers: Mapping[str, str] | None = None,
    request_params: Mapping[str, Any] | None = None,
    body_transform: Callable[[dict[str, Any]], Mapping[str, Any] | None] | None = None,
    hooks: Hooks | Sequence[Hooks] = (),
    require_approval: Approval | Iterable[str] | None = None,
    wait_for: WaitFor | None = None,
    on_event: Callable[[Event], Any] | None = None,
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
        transport: Your own HTTP. It stays yours to close.
        limits: Seconds and sizes of one request. None: `Limits()`.
        retries: How often a failed request is sent again while nothing was shown.
        max_retry_wait: Seconds that one wait between two attempts may take.
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

    at_least("retries", retries, 0, whole=True)
    at_least("max_retry_wait", max_retry_wait, 0)
    endpoint = resolve(
        model,
        base_url=base_url,
        style=style,
        api_key=api_key,
        headers=headers,
        environ=os.environ,
        key_required=transport is None,
    )
    clock = clock or SystemClock()
    source = HTTPSource(
        endpoint,
        transport=transport,
        limits=limits or Limits(),
        retries=retries,
        max_retry_wait=max_retry_wait,
        clock=clock,
        body_transform=body_transform,
    )
    return Client(
        source,
        store=store,
        system_prompt=system_prompt,
        request_params=request_params,
        hooks=hooks,
        require_approval=require_approval,
        wait_for=wait_for,
        clock=clock,
        on_event=on_event,
        max_steps=max_steps,
        max_tokens=max_tokens,
        timeout=timeout,
        reader_timeout=reader_timeout,
        max_output=max_output,
        concurrency=concurrency,
    )


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
