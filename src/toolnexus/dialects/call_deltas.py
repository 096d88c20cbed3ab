"""Puts calls together that an OpenAI-style stream sends in pieces. Pure.

Servers differ in what tells the pieces of one call from the next call. An id that is new opens a call, whatever the
index says, if it comes with a name or without an index; a piece that brings neither id nor name goes on with the call
of its index, or with the last one. An empty id or name says nothing, and a repeated one nothing new.
"""

from __future__ import annotations

from toolnexus.dialects.payloads import JSONObject, as_text, is_object, text
from toolnexus.messages import read_arguments

_KNOWN = frozenset({"index", "id", "type", "function"})


class _Call:
    __slots__ = ("extra", "id", "index", "name", "pieces")

    def __init__(self, index: int | None) -> None:
        self.index = index
        self.id = ""
        self.name = ""
        self.pieces: list[str] = []
        self.extra: JSONObject = {}

    def is_complete(self) -> bool:
        """Whether its arguments are an object already, so that more would not belong to them."""
        return bool(self.pieces) and read_arguments("".join(self.pieces)) is not None


class CallDeltas:
    """The calls of one streamed reply."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._by_id: dict[tuple[str, int | None], _Call] = {}  # also without the index: the first call of that id

    def __bool__(self) -> bool:
        return bool(self._calls)

    def add(self, piece: JSONObject) -> None:
        """Take one element of a delta's `tool_calls`."""
        function = piece.get("function")
        if not is_object(function):
            function = {}
        call_id, name = text(piece.get("id")), text(function.get("name"))
        arguments = as_text(function.get("arguments"))
        index = piece.get("index")
        if not isinstance(index, int):
            index = None
        call = self._continued(call_id, name, arguments, index)
        if call is None:
            call = _Call(index)
            self._calls.append(call)
        if index is not None:
            self._by_index[index] = call
        if call_id and not call.id:
            call.id = call_id
            for key in ((call_id, None), (call_id, call.index)):
                self._by_id.setdefault(key, call)
        if name and name != call.name:
            call.name = name if name.startswith(call.name) else call.name + name
        if arguments:
            call.pieces.append(arguments)
        if len(piece) > 1:
            call.extra.update((key, value) for key, value in piece.items() if key not in _KNOWN and value)

    def _continued(self, call_id: str, name: str, arguments: str, index: int | None) -> _Call | None:
        """The call that a piece goes on with. None: it opens one."""
        if not self._calls:
            return None
        call = self._calls[-1] if index is None else self._by_index.get(index)
        if call_id:
            if call is not None and call.id == call_id:
                return call
            if known := self._by_id.get((call_id, index)):
                return known
            if index is None or (name and call is not None and call.name):
                return None
            return call  # an id of its own in each piece
        if not name:
            return call or self._calls[-1]
        if call is None:
            return None
        if name == call.name:
            return None if arguments and call.is_complete() else call
        return None if call.pieces else call  # a name in pieces comes before any arguments

    def message_calls(self) -> list[JSONObject]:
        """The calls as a whole message spells them."""
        return [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": "".join(call.pieces)},
                **call.extra,
            }
            for call in self._calls
        ]
