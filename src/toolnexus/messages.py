"""The transcript: what a message is, reading foreign ones, and closing broken ones. Pure.

A transcript is plain data that people read, write, seed and ship: a `list[Message]`, where a message is a JSON object
in the shape of the OpenAI chat API. Only this module and the dialects take a message apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NotRequired, Required, TypeAlias, TypedDict, cast

from toolnexus import _media, _strict
from toolnexus._foreign import describe, is_origin, part_type, read_message, read_part
from toolnexus._unicode import clean, clean_text
from toolnexus.errors import ConfigurationError, InvalidTranscript

WAITING = "waiting for an answer"
"""The result of a call that a person has to answer first; its `request` says what is asked."""
NOT_ANSWERED = "not answered: the conversation went on without an answer"
"""The result of such a call when nobody answered in time."""
INTERRUPTED = "interrupted: outcome unknown"
"""What the model reads as the result of a call that nobody knows the outcome of."""


class TextPart(TypedDict):
    type: Literal["text"]
    text: str


class ImageURL(TypedDict, total=False):
    url: Required[str]
    """`https://…` or `data:image/png;base64,…`"""
    detail: str


class ImagePart(TypedDict):
    type: Literal["image_url"]
    image_url: ImageURL


class InputAudio(TypedDict):
    data: str
    """Base64."""
    format: str
    """`wav`, `mp3`, …"""


class AudioPart(TypedDict):
    type: Literal["input_audio"]
    input_audio: InputAudio


class FileReference(TypedDict, total=False):
    """A file by one of its bytes, its address and its id at the provider."""

    filename: str
    file_data: str
    """`data:application/pdf;base64,…`"""
    file_url: str
    file_id: str


class FilePart(TypedDict):
    type: Literal["file"]
    file: FileReference


Part: TypeAlias = TextPart | ImagePart | AudioPart | FilePart
Content: TypeAlias = str | list[Part]


class FunctionCall(TypedDict):
    name: str
    arguments: str
    """JSON text of an object."""


class CallEntry(TypedDict):
    id: str
    type: Literal["function"]
    function: FunctionCall


class Origin(TypedDict):
    """Which wire produced a message. `host` is scheme and host only."""

    style: str
    model: str
    host: str


class SystemMessage(TypedDict):
    role: Literal["system"]
    content: Content


class UserMessage(TypedDict):
    role: Literal["user"]
    content: Content
    interrupted: NotRequired[bool]


class AssistantMessage(TypedDict, total=False):
    role: Required[Literal["assistant"]]
    content: Content
    tool_calls: list[CallEntry]
    origin: Origin
    native: Any
    """The provider's own blocks and fields, verbatim, where the neutral shape cannot carry them."""
    interrupted: bool
    unfinished: str
    """The id of the turn that was interrupted after this reply, and can go on."""


class ToolMessage(TypedDict, total=False):
    role: Required[Literal["tool"]]
    tool_call_id: Required[str]
    content: Required[Content]
    is_error: bool
    request: Any
    """What a person has to answer before the call goes on: a `suspension.Request`. This is then no result yet."""
    arguments: dict[str, Any]
    """Beside a `request`: what the call goes on with, if that is not what the model gave."""
    retried: Literal[False]
    """A person was asked about the unknown outcome, and did not want the call to be repeated."""


Message: TypeAlias = SystemMessage | UserMessage | AssistantMessage | ToolMessage
Prompt: TypeAlias = str | Sequence[str | Part]

_Object: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What `repair` did, as counts. Falsy when nothing was wrong.

    Attributes:
        dropped: Results that belong to no call.
        closed: Calls that had no result and got `INTERRUPTED`.
        moved: Results that were put back to their call, or into the order of the calls.
        rewritten: Calls whose arguments were not the JSON text of an object.
    """

    dropped: int = 0
    closed: int = 0
    moved: int = 0
    rewritten: int = 0

    def __bool__(self) -> bool:
        return bool(self.dropped or self.closed or self.moved or self.rewritten)


_NOTHING_WRONG = Report()


def copy_messages(messages: Sequence[Message]) -> list[Message]:
    """An independent copy, nested values included."""
    return [copy_json(message) for message in messages]


def copy_json(value: Any) -> Any:
    """An independent copy of JSON data."""
    # The exact types first: nearly every value has one, and asking for a mapping is slow.
    if type(value) is str:
        return value
    if type(value) is dict or isinstance(value, Mapping):
        return {key: copy_json(item) for key, item in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [copy_json(item) for item in cast("Sequence[Any]", value)]
    return value


def declined(messages: Iterable[Message]) -> list[Message]:
    """The messages, with nothing in them that waits for a person or could go on any more."""
    return [_decline(message) if "request" in message or "unfinished" in message else message for message in messages]


def waits(message: Message) -> bool:
    """Whether a message is the placeholder of a call that waits for a person."""
    return "request" in message and message["role"] == "tool" and isinstance(message["request"], Mapping)


def _decline(message: Message) -> Message:
    if message["role"] == "assistant":
        return _without(message, "unfinished")
    if not waits(message):
        return message
    rest = _without(_without(message, "request"), "arguments")
    if message.get("content") == INTERRUPTED:
        return rest  # whether the call ran stays unknown
    return cast("Message", {**rest, "content": NOT_ANSWERED, "is_error": True})


def interrupted_turn(added: list[Message], said: str) -> list[Message]:
    """A turn that was interrupted, marked as such, with what was said of an answer that never got complete."""
    if said:
        return [*added, {"role": "assistant", "content": said, "interrupted": True}]
    if added and added[-1]["role"] == "user":
        return [*added[:-1], {**added[-1], "interrupted": True}]
    return added


def unsaid(messages: Sequence[Message]) -> list[Message]:
    """The messages of an interrupted turn without the mark of it, and without an answer that never got complete."""
    kept = [message for message in messages if not (message["role"] == "assistant" and message.get("interrupted"))]
    return [_without(message, "interrupted") if "interrupted" in message else message for message in kept]


def _without(message: Message, key: str) -> Message:
    return cast("Message", {name: value for name, value in message.items() if name != key})


def text_of(content: Content | None) -> str:
    """The text of a message's content, without its other parts. None, as for a message that only calls, is empty."""
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(part["text"] for part in content if part["type"] == "text")


def shown_text(content: Content | None) -> str:
    """The text of a message's content for people, with a few words in brackets for each of its other parts."""
    if content is None or isinstance(content, str):
        return content or ""
    others = (f"[{_media.summary(part)}]" for part in content if part["type"] != "text")
    return " ".join(filter(None, (text_of(content), *others)))


_UNREADABLE = "_unreadable"
_PROMPT_PARTS = ("text", "image_url", "input_audio", "file")


def prompt_message(prompt: Prompt) -> UserMessage:
    """The user message that asks `prompt`.

    Raises:
        ConfigurationError: It is blank, or has a part that is not supported.
    """
    if isinstance(prompt, str):
        if not prompt.strip():
            raise ConfigurationError("There is nothing to ask: the prompt is blank.")
        return {"role": "user", "content": clean_text(prompt)}
    given = cast("object", prompt)
    if not isinstance(given, Sequence) or isinstance(given, bytes):
        raise ConfigurationError(f"The prompt is {describe(given)}; expected text or a list of content parts.")
    parts = [_prompt_part(part, f"prompt[{index}]") for index, part in enumerate(cast("Sequence[object]", given))]
    if not any(part["type"] != "text" or part["text"].strip() for part in parts):
        raise ConfigurationError("There is nothing to ask: the prompt has neither text nor anything attached.")
    return {"role": "user", "content": parts}


def _prompt_part(part: object, place: str) -> Part:
    if not isinstance(part, str) and part_type(part) not in _PROMPT_PARTS:
        *kinds, last = _PROMPT_PARTS
        raise ConfigurationError(
            f"{place} is {describe(part)}; a prompt takes {', '.join(kinds)} and {last} parts, and plain texts."
        )
    try:
        return cast("Part", read_part(clean(part), place))
    except InvalidTranscript as error:
        raise ConfigurationError(str(error)) from None


def refused_part(content: Content, takes: frozenset[str]) -> tuple[int, str] | None:
    """The place of the first part of a prompt that cannot be said with parts of those kinds, and what it is.

    Args:
        takes: As `Dialect.parts`.
    """
    if isinstance(content, str):
        return None
    for position, part in enumerate(content):
        if _media.fitted(part, takes) is None:
            return position, _media.summary(part)
    return None


def read_arguments(text: str) -> _Object | None:
    """The object that a call's arguments stand for; None if they stand for none.

    Blank text and `null` are no arguments, an empty object. An object that was encoded more than once is decoded.
    """
    if not text or text.isspace():
        return {}
    try:
        value = _strict.decode(text)
    except ValueError:
        return None
    if isinstance(value, str):
        return read_arguments(value)
    if value is None:
        return {}
    return cast("_Object", value) if isinstance(value, dict) else None


def sendable_arguments(text: str) -> str:
    """A call's arguments as the JSON text of an object, which every provider demands of a history.

    Text that is one already is returned as it is. What cannot be read is kept under the key `_unreadable`.
    """
    arguments = read_arguments(text)
    if arguments is None:
        return _strict.encode({_UNREADABLE: text})
    return text if text.lstrip().startswith("{") else _strict.encode(arguments)


def given_arguments(call: CallEntry) -> str:
    """The raw arguments of a call, of which `sendable_arguments` may have made something else."""
    text = call["function"]["arguments"]
    arguments = read_arguments(text) if _UNREADABLE in text else None
    return str(arguments[_UNREADABLE]) if arguments is not None and arguments.keys() == {_UNREADABLE} else text


def normalise(messages: Iterable[Mapping[str, Any]]) -> list[Message]:
    """Read messages written anywhere into independent copies in our shape, with valid Unicode.

    Besides our own shape it reads Anthropic's blocks (`tool_use`, `tool_result`, `image`, `document`, thinking), the
    parts of the Responses API (`input_text`, `input_image`, …), the content of MCP, the role `developer`, the old
    `function_call`, arguments given as objects, and messages without a role or a call's id.
    Unknown keys are kept. What is normal already comes out equal.

    Raises:
        InvalidTranscript: A message cannot be read. The error names the place, what is there and what is expected.
    """
    if isinstance(messages, str | bytes | Mapping) or not hasattr(messages, "__iter__"):
        raise InvalidTranscript(f"messages is {describe(cast('object', messages))}; expected a list of messages.")
    read: list[_Object] = []
    position = 0
    try:
        for position, message in enumerate(messages):
            if (copied := _copy_normal(message)) is not None:
                read.append(copied)
            else:
                read_message(message, f"messages[{position}]", read)
    except RecursionError as error:
        raise InvalidTranscript(f"messages[{position}] is nested too deeply, or holds itself.") from error
    return cast("list[Message]", read)


def repair(messages: Sequence[Message]) -> tuple[list[Message], Report]:
    """Make a transcript valid for every provider: each call has exactly one result, right after it, in call order.

    Deterministic and idempotent. Results are matched to the message just before them, by id. One that stands further
    away goes back to its call if no other call could be meant; a result without a call is dropped; a call without a
    result gets `INTERRUPTED`. Calls that the provider itself ran are in `native` and left alone.

    Args:
        messages: A transcript as `normalise` gives it. It is not changed.

    Returns:
        A new list, in which untouched messages are the very objects of the old one, and what was done.
    """
    if is_in_order(messages):
        return list(messages), _NOTHING_WRONG
    rebuilt: list[Message | _Slot] = []
    unanswered: dict[str, list[_Slot]] = {}
    newest: dict[str, _Slot] = {}
    dropped = moved = rewritten = 0
    for message, results in _with_results(messages):
        calls = message.get("tool_calls", []) if message is not None and message["role"] == "assistant" else []
        slots = [_Slot(call["id"]) for call in calls]
        strays, displaced = _fill(slots, results)
        moved += displaced
        if message is not None:
            sendable, rewrites = _sendable(message, calls)
            rewritten += rewrites
            rebuilt += [sendable, *slots]
        for slot in slots:
            newest[slot.call_id] = slot
            if slot.result is None:
                unanswered.setdefault(slot.call_id, []).append(slot)
        for stray in strays:
            call_id = stray["tool_call_id"]
            candidates = unanswered.get(call_id, [])
            # An id that a later call took again says no more which of the two is meant.
            if len(candidates) == 1 and candidates[0] is newest[call_id]:
                candidates.pop().result = stray
                moved += 1
            else:
                dropped += 1
    closed = sum(len(slots) for slots in unanswered.values())
    report = Report(dropped=dropped, closed=closed, moved=moved, rewritten=rewritten)
    return [item.message() if isinstance(item, _Slot) else item for item in rebuilt], report


def is_in_order(messages: Iterable[Message]) -> bool:
    """Whether each reply is followed by one result of each of its calls, in call order.

    It is False also where a reply has an id twice, or arguments that cannot be sent. `repair` leaves messages that are
    in order as they are.
    """
    following = iter(messages)
    for message in following:
        role = message["role"]
        if role == "tool":
            return False
        if role == "assistant" and "tool_calls" in message:
            calls = message["tool_calls"]
            for call in calls:
                result = next(following, None)
                if result is None or result["role"] != "tool" or result["tool_call_id"] != call["id"]:
                    return False
                arguments = call["function"]["arguments"]
                if sendable_arguments(arguments) is not arguments:
                    return False
            if len(calls) > 1 and len({call["id"] for call in calls}) < len(calls):
                return False
    return True


def _copy_normal(message: object) -> _Object | None:
    """A copy of a message that `read_message` would leave as it is, made faster; None for any other.

    Nearly all messages are of this kind, and a long conversation has ten thousand of them.
    """
    if type(message) is not dict:
        return None
    source = cast("_Object", message)
    role = source.get("role")
    copied = source.copy()
    known = 1
    if "content" in source:
        if not _is_clean(source["content"]):
            return None
        known = 2
    elif role != "assistant":
        return None
    if role == "assistant":
        if "tool_calls" in source:
            if (calls := _copy_normal_calls(source["tool_calls"])) is None:
                return None
            copied["tool_calls"] = calls
            known += 1
        if "origin" in source:
            if not is_origin(source["origin"]):
                return None
            copied["origin"] = clean(source["origin"])
            known += 1
        if "native" in source:
            copied["native"] = clean(source["native"])
            known += 1
    elif role == "tool":
        if not _is_clean(source.get("tool_call_id")) or not source["tool_call_id"]:
            return None
        known += 1
        if "is_error" in source:
            if type(source["is_error"]) is not bool:
                return None
            known += 1
    elif role != "user" and role != "system":
        return None
    return copied if known == len(source) else None


def _copy_normal_calls(calls: object) -> list[_Object] | None:
    if type(calls) is not list or not calls:
        return None
    copied: list[_Object] = []
    for call in cast("list[_Object]", calls):
        if type(call) is not dict or type(call.get("function")) is not dict:
            return None
        function = cast("_Object", call["function"])
        call_id, name, arguments = call.get("id"), function.get("name"), function.get("arguments")
        if not (call_id and _is_clean(call_id) and _is_clean(name) and _is_clean(arguments)):
            return None
        if call.get("type") != "function" or len(call) != 3 or len(function) != 2:
            return None
        copied.append({"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}})
    return copied


def _is_clean(value: Any) -> bool:
    return type(value) is str and (value.isascii() or clean_text(value) is value)


@dataclass(slots=True)
class _Slot:
    """The place of one call's result."""

    call_id: str
    result: ToolMessage | None = None

    def message(self) -> ToolMessage:
        if self.result is not None:
            return self.result
        return {"role": "tool", "tool_call_id": self.call_id, "content": INTERRUPTED, "is_error": True}


def _with_results(messages: Sequence[Message]) -> Iterator[tuple[Message | None, list[ToolMessage]]]:
    """Each message with the block of results right after it; None for results that stand first."""
    owner: Message | None = None
    results: list[ToolMessage] = []
    for message in messages:
        if message["role"] == "tool":
            results.append(message)
            continue
        if owner is not None or results:
            yield owner, results
        owner, results = message, []
    if owner is not None or results:
        yield owner, results


def _fill(slots: Sequence[_Slot], results: Sequence[ToolMessage]) -> tuple[list[ToolMessage], int]:
    """Put results into the slots of their ids, equal ids by position.

    Returns:
        The results without a slot, and how many of the others stood in another order than their calls.
    """
    free: dict[str, list[int]] = {}
    for index in reversed(range(len(slots))):
        free.setdefault(slots[index].call_id, []).append(index)
    order: list[int] = []
    strays: list[ToolMessage] = []
    for result in results:
        if indexes := free.get(result["tool_call_id"]):
            order.append(indexes.pop())
            slots[order[-1]].result = result
        else:
            strays.append(result)
    return strays, sum(stood != belongs for stood, belongs in zip(order, sorted(order), strict=True))


def _sendable(message: Message, calls: Sequence[CallEntry]) -> tuple[Message, int]:
    """The message with arguments that can be sent, and how many calls that changed."""
    texts = [sendable_arguments(call["function"]["arguments"]) for call in calls]
    changed = sum(text is not call["function"]["arguments"] for text, call in zip(texts, calls, strict=True))
    if not changed:
        return message, 0
    rewritten = [
        {**call, "function": {**call["function"], "arguments": text}} for text, call in zip(texts, calls, strict=True)
    ]
    return cast("Message", {**message, "tool_calls": rewritten}), changed
