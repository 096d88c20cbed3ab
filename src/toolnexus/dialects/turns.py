"""A conversation of two roles that take turns, as it grows from request to request. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolnexus.dialects.payloads import JSONObject

BEGINNING = "(The beginning of this conversation is left out.)"
"""What the user says where a history begins with the model, on wires where the user has to speak first."""


class Turns:
    """Messages of which neighbours of one role become one message.

    Attributes:
        messages: Oldest first. Those that were given out are never changed, only replaced.
    """

    def __init__(self, key: str) -> None:
        """
        Args:
            key: What a message calls the list of its blocks.
        """
        self._key = key
        self.messages: list[JSONObject] = []
        self._given = 0  # how many of the messages are in a body that was given out

    def push(self, role: str, blocks: list[JSONObject]) -> None:
        """Add blocks, if there are any."""
        if not blocks:
            return
        last = self.messages[-1] if self.messages else None
        if last is None or last["role"] != role:
            self.messages.append({"role": role, self._key: blocks})
        elif len(self.messages) > self._given:
            last[self._key] += blocks
        else:
            self.messages[-1] = {"role": role, self._key: [*last[self._key], *blocks]}

    def pop(self) -> None:
        """Take the last message back."""
        self.messages.pop()
        self._given = min(self._given, len(self.messages))

    def give(self, beginning: JSONObject) -> list[JSONObject]:
        """The messages for a body, in a new list. `beginning` is said first where the user does not begin."""
        self._given = len(self.messages)
        if self.messages and self.messages[0]["role"] != "user":
            return [{"role": "user", self._key: [beginning]}, *self.messages]
        return self.messages.copy()
