"""The seam to memory: where conversations are kept."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard, runtime_checkable

if TYPE_CHECKING:
    from toolnexus.messages import Message
    from toolnexus.stores.logstore import LogStore


@runtime_checkable
class ConversationStore(Protocol):
    """Keeps transcripts by id. Two methods, coroutines or plain functions, are all that a store needs.

    The client makes exactly one `get` and then, if the turn is to be remembered, exactly one `save` for each `ask`
    or `stream` with an id. Turns on one id wait for each other as long as they share the store object; across
    processes a store of two methods cannot keep them apart.
    """

    def get(self, id: str, /) -> Awaitable[list[Message] | None] | list[Message] | None:
        """Return the conversation's messages, oldest first; None for an id never seen."""
        ...

    def save(self, id: str, messages: list[Message], /) -> Awaitable[Any] | Any:
        """Replace the conversation's messages. What it returns is ignored."""
        ...


def is_log_store(store: object) -> TypeGuard[LogStore]:
    """Whether a store is driven by its log: a `LogStore` whose class has not replaced `get` or `save`."""
    return getattr(store, "driven_by_log", False) is True
