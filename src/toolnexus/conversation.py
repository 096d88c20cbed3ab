"""A conversation as an object, for code that has one at hand and keeps using it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Unpack

from toolnexus import _turns_plain
from toolnexus.messages import Message, Prompt, copy_messages
from toolnexus.options import ResumeOptions, TurnOptions, chosen

if TYPE_CHECKING:
    from toolnexus._engine import Engine, Tools
    from toolnexus._stream import RunStream
    from toolnexus.events import Event, RunResult
    from toolnexus.options import OutputType, T
    from toolnexus.stores import ConversationStore


class Conversation:
    """One conversation: `send` and `stream` continue it. Sends that overlap wait for each other.

    Made by `Client.conversation`.

    Attributes:
        id: Its id in the client's store. None: it keeps its own list and touches no store.
    """

    def __init__(self, engine: Engine, toolkit: Tools, store: ConversationStore, id: str | None) -> None:
        self._engine = engine
        self._toolkit = toolkit
        self._store: ConversationStore = _OwnList() if id is None else store
        self.id = id

    async def send(
        self,
        prompt: Prompt,
        *,
        on_text: Callable[[str], Any] | None = None,
        output_type: OutputType[T] = None,
        **options: Unpack[TurnOptions],
    ) -> RunResult[T]:
        """`Client.ask`, here."""
        events = self._events(prompt, options, output_type, stream=on_text is not None)
        return await self._engine.drain(events, on_text)

    def stream(self, prompt: Prompt, *, output_type: object | None = None, **options: Unpack[TurnOptions]) -> RunStream:
        """`Client.stream`, here."""
        return self._engine.watched(self._events(prompt, options, output_type, stream=True))

    async def resume(
        self,
        *,
        answers: Iterable[Mapping[str, Any]] | None = None,
        on_text: Callable[[str], Any] | None = None,
        output_type: OutputType[T] = None,
        **options: Unpack[ResumeOptions],
    ) -> RunResult[T]:
        """`Client.resume`, here."""
        events = self._resumed(answers, options, output_type, stream=on_text is not None)
        return await self._engine.drain(events, on_text)

    def stream_resume(
        self,
        *,
        answers: Iterable[Mapping[str, Any]] | None = None,
        output_type: object | None = None,
        **options: Unpack[ResumeOptions],
    ) -> RunStream:
        """`Client.stream_resume`, here."""
        return self._engine.watched(self._resumed(answers, options, output_type, stream=True))

    async def messages(self) -> list[Message]:
        """The finished turns, as a copy."""
        return await _turns_plain.load(self._store, self.id or "")

    async def reset(self) -> None:
        """Forget everything said so far."""
        await _turns_plain.save(self._store, self.id or "", [])

    def _events(
        self, prompt: Prompt, options: TurnOptions, output_type: object | None, *, stream: bool
    ) -> AsyncGenerator[Event, None]:
        wanted = chosen(options, TurnOptions, output_type)
        return self._engine.remembered(prompt, self._toolkit, self._store, self.id, wanted, stream=stream)

    def _resumed(
        self,
        answers: Iterable[Mapping[str, Any]] | None,
        options: ResumeOptions,
        output_type: object | None,
        *,
        stream: bool,
    ) -> AsyncGenerator[Event, None]:
        wanted = chosen(options, ResumeOptions, output_type)
        return self._engine.resumed(self._toolkit, self._store, self.id, answers, wanted, stream=stream)


class _OwnList:
    """The memory of a conversation without an id."""

    def __init__(self) -> None:
        self._messages: list[Message] = []

    def get(self, id: str, /) -> list[Message]:
        return copy_messages(self._messages)

    def save(self, id: str, messages: list[Message], /) -> None:
        self._messages = copy_messages(messages)
