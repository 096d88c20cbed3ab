"""Puts the output items together that a Responses stream sends in pieces. Pure.

An item is announced up to three times: when it is added, when it is done, and in the finished response. It is one item.
A piece belongs to the item with its `output_index`, else to the one with its `item_id`: servers exist that leave out
either, give one index to several items, or change the ids from event to event.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from toolnexus.dialects.payloads import JSONObject, as_text, is_object, objects, text
from toolnexus.events import ReasoningDelta, TextDelta

if TYPE_CHECKING:
    from toolnexus.events import Delta


class _Texts(NamedTuple):
    """Where the pieces of a text go."""

    item: str
    field: str
    number: str
    """The key of an event that says which part of the field it is."""
    part: str
    key: str


_TEXTS: Mapping[str, _Texts] = {
    "response.output_text": _Texts("message", "content", "content_index", "output_text", "text"),
    "response.refusal": _Texts("message", "content", "content_index", "refusal", "refusal"),
    "response.reasoning_summary_text": _Texts("reasoning", "summary", "summary_index", "summary_text", "text"),
    "response.reasoning_text": _Texts("reasoning", "content", "content_index", "reasoning_text", "text"),
}

_ARGUMENTS = "response.function_call_arguments"


def said(items: Sequence[JSONObject]) -> str:
    """The visible text of items, refusals included."""
    return "".join(_text(item.get("content")) for item in items if item.get("type") == "message")


def thought(items: Sequence[JSONObject]) -> str:
    """The reasoning that items show: its summary, and its own text where a server gives it."""
    return "".join(
        _text(item.get("summary")) + _text(item.get("content")) for item in items if item.get("type") == "reasoning"
    )


def _text(parts: object) -> str:
    """The text of a list of parts; some servers send the text itself."""
    if isinstance(parts, str):
        return parts
    return "".join(text(part.get("text")) or text(part.get("refusal")) for part in objects(parts))


class _Item:
    """An item that is still coming: as it was announced, and the pieces of its texts.

    Attributes:
        index: Its `output_index`. None: it was not told.
        announced: Whether an event has shown the item itself; pieces may come before.
        done: Whether it is complete, so that further pieces belong to another one.
    """

    __slots__ = ("announced", "arguments", "done", "index", "parts", "start")

    def __init__(self, start: JSONObject, index: int | None) -> None:
        self.start = start
        self.index = index
        self.parts: dict[tuple[str, int], tuple[_Texts, list[str]]] = {}
        self.arguments: list[str] = []
        self.announced = False
        self.done = False

    def pieces(self, place: _Texts, number: object) -> list[str]:
        """The pieces of one of its texts."""
        key = place.field, number if isinstance(number, int) else 0
        found = self.parts.get(key)
        if found is None:
            found = self.parts[key] = (place, [])
        return found[1]

    def whole(self) -> JSONObject:
        """The item as a whole answer has it."""
        item = self.start
        for field in dict.fromkeys(field for field, _ in self.parts):
            numbered = sorted((number, *part) for (of, number), part in self.parts.items() if of == field)
            parts = [{"type": place.part, place.key: "".join(pieces)} for _, place, pieces in numbered]
            item = {**item, field: parts}
        return {**item, "arguments": "".join(self.arguments)} if self.arguments else item

    def tell(self, item: JSONObject, *, done: bool) -> None:
        """Take the item as an event shows it. What the event leaves empty stays as the pieces gave it."""
        self.start = _overlaid(self.whole() if done else self.start, item)
        self.announced = True
        if done:
            self.done = True
            self.parts = {}
            self.arguments = []


def _kind(item: JSONObject) -> str:
    return text(item.get("type"))


def _overlaid(before: JSONObject, after: JSONObject) -> JSONObject:
    return {**before, **{key: value for key, value in after.items() if value or key not in before}}


def _names(item: JSONObject) -> set[str]:
    """What events may call an item."""
    return {text(item.get("id")), text(item.get("call_id"))} - {""}


class ItemStream:
    """The output items of one streamed reply."""

    def __init__(self) -> None:
        self._items: list[_Item] = []

    def feed(self, kind: str, event: JSONObject) -> list[Delta]:
        """Take an event of the type `kind` and return what it adds for the reader. Unknown types add nothing."""
        stem, _, step = kind.rpartition(".")
        if (place := _TEXTS.get(stem)) is not None:
            return self._add_text(place, step, event)
        if stem == _ARGUMENTS:
            self._add_arguments(step, event)
        elif stem == "response.output_item":
            item = event.get("item")
            if is_object(item):
                return self._announce(_index(event), item, done=step == "done")
        return []

    def settled(self, told: Sequence[JSONObject]) -> tuple[list[JSONObject], list[Delta]]:
        """The items of the reply, and what of their texts was not shown yet.

        Args:
            told: The items of the finished response. Of each type that it has, those count, with what they leave empty
                as it was streamed. Other items are as they were streamed: servers exist that tell none at all.
        """
        built = [item.whole() for item in self._items]
        items = _merged(built, told)
        return items, _unseen(built, items)

    def _add_text(self, place: _Texts, step: str, event: JSONObject) -> list[Delta]:
        whole = step == "done"
        piece = text(event.get(place.key if whole else "delta"))
        if not piece:
            return []
        item = self._find(place.item, _index(event), {text(event.get("item_id"))} - {""})
        if item is None or item.done:
            if whole and item is not None:
                return []  # it tells again what the item had when it was done
            item = self._open({"type": place.item}, _index(event))
        pieces = item.pieces(place, event.get(place.number))
        if whole:
            shown = "".join(pieces)
            pieces[:] = [piece]
            piece = _rest(shown, piece)
        else:
            pieces.append(piece)
        if not piece:
            return []
        return [TextDelta(piece) if place.item == "message" else ReasoningDelta(piece)]

    def _add_arguments(self, step: str, event: JSONObject) -> None:
        """Take arguments of a call that was announced. Alone they are no call: they have neither name nor id."""
        item = self._find("function_call", _index(event), {text(event.get("item_id"))} - {""})
        if item is None or item.done:
            return
        if step == "delta":
            item.arguments.append(text(event.get("delta")))
        elif given := as_text(event.get("arguments")):
            item.arguments = [given]

    def _announce(self, index: int | None, told: JSONObject, *, done: bool) -> list[Delta]:
        names = {text(told.get("call_id")) or text(told.get("id"))} - {""}  # a call's id is the surer of the two
        item = self._find(_kind(told), index, names)
        if item is None or (item.announced and (item.done or not done) and names.isdisjoint(_names(item.start))):
            item = self._open({}, index)
        if item.done:
            return []  # announced once more
        before = item.whole()
        item.tell(told, done=done)
        return _unseen([before], [item.whole()])

    def _open(self, start: JSONObject, index: int | None) -> _Item:
        item = _Item(start, index)
        self._items.append(item)
        return item

    def _find(self, kind: str, index: int | None, names: set[str]) -> _Item | None:
        """The item of a kind that an event is about, done ones included. None: one that was not there yet."""
        best: _Item | None = None
        nearest = 0
        for item in self._items:
            if _kind(item.start) != kind:
                continue
            near = 2 * (index is not None and item.index == index) + (not names.isdisjoint(_names(item.start)))
            if not near and not item.done and (index is None or item.index is None):
                best = best if nearest else item  # nothing says that it is another one
            elif near and near >= nearest:
                best, nearest = item, near
        return best


def _index(event: JSONObject) -> int | None:
    index = event.get("output_index")
    return index if isinstance(index, int) else None


def _merged(built: Sequence[JSONObject], told: Sequence[JSONObject]) -> list[JSONObject]:
    counts = Counter(map(_kind, told))
    streamed: dict[str, list[JSONObject]] = {}
    for item in built:
        streamed.setdefault(_kind(item), []).append(item)
    pairs = {kind: iter(items) for kind, items in streamed.items() if len(items) == counts[kind]}
    merged = [_overlaid(next(pairs[kind]), item) if (kind := _kind(item)) in pairs else item for item in told]
    for position, item in enumerate(built):
        if not counts[_kind(item)]:
            merged.insert(position, item)
    return merged


def _unseen(before: Sequence[JSONObject], after: Sequence[JSONObject]) -> list[Delta]:
    """What the texts of items have gained."""
    deltas: list[Delta] = []
    if more := _rest(thought(before), thought(after)):
        deltas.append(ReasoningDelta(more))
    if more := _rest(said(before), said(after)):
        deltas.append(TextDelta(more))
    return deltas


def _rest(shown: str, whole: str) -> str:
    return whole[len(shown) :] if whole.startswith(shown) else ""
