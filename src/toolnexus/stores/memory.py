"""Conversations in this process's memory, the client's default store."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from toolnexus import _json
from toolnexus.errors import ConfigurationError

if TYPE_CHECKING:
    from toolnexus.messages import Message


class InMemoryConversationStore:
    """Keeps conversations for as long as the process lives, as encoded JSON.

    What is read is a copy that may be changed freely, and a value that a database would refuse is refused here too.
    It may be used from several threads and event loops.

    Args:
        max_conversations: How many are kept; the least recently used one goes first. None: all.
    """

    def __init__(self, *, max_conversations: int | None = None) -> None:
        if max_conversations is not None and max_conversations < 1:
            raise ConfigurationError(
                f"max_conversations is {max_conversations}. Give at least 1, or None for no bound."
            )
        self._max = max_conversations
        self._bodies: OrderedDict[str, bytes] = OrderedDict()
        self._lock = threading.Lock()

    async def get(self, id: str) -> list[Message] | None:
        """Return the conversation's messages, oldest first; None for an id never seen."""
        with self._lock:
            body = self._bodies.get(id)
            if body is not None:
                self._bodies.move_to_end(id)
        return None if body is None else _json.loads(body)

    async def save(self, id: str, messages: list[Message]) -> None:
        """Replace the conversation's messages.

        Raises:
            ValueError: A value is no JSON, such as NaN. Its place is named, and nothing is stored.
        """
        body = _json.strict_dumps(messages)
        with self._lock:
            self._bodies[id] = body
            self._bodies.move_to_end(id)
            if self._max is not None and len(self._bodies) > self._max:
                self._bodies.popitem(last=False)
