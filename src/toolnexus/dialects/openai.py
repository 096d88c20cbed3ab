"""The wire of chat completions, which most providers and local servers speak. Pure.

`native` of its messages: `{"fields": {…}, "calls": [{…}, …]}`, what a reply's message and each of its calls carry
beyond the neutral shape (reasoning to be sent back, thought signatures).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

from toolnexus import _media
from toolnexus.dialects import Encoder, Reading, Reply, ReplyDecoder, Request, Target, params, replies, steps
from toolnexus.dialects.call_deltas import CallDeltas
from toolnexus.dialects.declarations import Declarations, RunTools
from toolnexus.dialects.faults import error_in, failure, malformed_call
from toolnexus.dialects.names import CallIds
from toolnexus.dialects.payloads import JSONObject, as_text, is_object, objects, read_event, text
from toolnexus.dialects.replies import WireCall
from toolnexus.dialects.schemas import object_schema
from toolnexus.errors import IncompleteReply, InvalidReply
from toolnexus.events import ReasoningDelta, TextDelta
from toolnexus.messages import text_of

if TYPE_CHECKING:
    from toolnexus.events import Delta, FinishReason, Usage
    from toolnexus.messages import AssistantMessage, Content
    from toolnexus.tools import Tool

_LIMIT_FIELDS = frozenset({"max_tokens", "max_completion_tokens"})

_FINISH_REASONS: Mapping[str, FinishReason] = {
    "stop": "stop",
    "stop_sequence": "stop",
    "end_turn": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "complete": "stop",
    "tool_calls": "tool_calls",
    "tool_use": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "content_filter": "content_filter",
    "safety": "content_filter",
    "sensitive": "content_filter",
    "refusal": "refusal",
}

_REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking")

_WANTED_REASONING = "reasoning_content"
"""Where servers that want reasoning look for it."""

_NO_REASONING = " "
"""Stands for reasoning that there is none of. The empty text counts as missing."""

_NEUTRAL_FIELDS = frozenset({"role", "content", "tool_calls", "function_call", "refusal"})
"""Fields of a reply's message that the neutral shape holds."""

_CHATTER = frozenset({"annotations", "audio", "images", "name", "id", "index", "logprobs", "token_ids"})
"""Fields of a reply's message that no server wants back."""

_NOT_REPLAYED = _NEUTRAL_FIELDS | _CHATTER

_CALL_FIELDS = frozenset({"id", "type", "function", "index"})
"""Fields of a call that the neutral shape holds."""


class OpenAI:
    """Chat completions."""

    style = "openai"
    path = "/chat/completions"
    stream_path = path
    parts = frozenset({"text", "image_url", "input_audio", "file", "file_id"})

    def __init__(self) -> None:
        self._declarations = Declarations(_declaration)

    def encoder(self, target: Target) -> Encoder:
        return _Encoder(target, self._declarations)

    def decode(self, body: object, reading: Reading) -> Reply:
        """Read a whole answer."""
        if not is_object(body):
            raise InvalidReply("The answer is not a JSON object. Check base_url.")
        choice = _first_choice(body.get("choices"))
        if body.get("error") or choice is None:
            if (error := error_in(body)) is not None:
                raise error
            if choice is None:
                raise InvalidReply("The answer has no choices, so it is no chat completion. Check base_url and style.")
        _check(choice)
        message = choice.get("message", choice.get("delta"))
        if not is_object(message):
            raise InvalidReply("The answer's choice has no message, so it is no chat completion.")
        usage = _usage_in(body, choice, reading)
        return _reply(message, choice.get("finish_reason"), usage, body.get("model"), body.get("id"), reading)

    def decoder(self, reading: Reading) -> ReplyDecoder:
        return _Decoder(reading)


class _Encoder:
    """Requests of one run."""

    def __init__(self, target: Target, declarations: Declarations) -> None:
        self._target = target
        # A model in this process is given the transcript's own shape, whatever is in it.
        self._takes = target.takes(OpenAI.parts) if target.style == OpenAI.style else None
        self._tools = RunTools(target, declarations)
        self._reader = steps.Reader()
        self._start_anew()

    def _start_anew(self) -> None:
        self._ids = CallIds(self._target.provider.call_id_form)
        self._system: list[str] = []
        self._messages: list[JSONObject] = []

    def encode(self, request: Request) -> JSONObject:
        wire_tools = self._tools.declared(request.tools)
        if self._reader.is_new(request.messages):
            self._start_anew()
        for message, results in self._reader.unread():
            match message["role"]:
                case "assistant":
                    self._assistant(message, results)
                case "user":
                    self._say("user", message["content"])
                case "system":
                    if self._messages:
                        self._say("system", message["content"])
                    else:
                        self._system.append(text_of(message["content"]))
        system = steps.system_text(request.system, self._system)
        head: list[JSONObject] = [{"role": "system", "content": system}] if system else []
        body: JSONObject = {"model": request.model, "messages": head + self._messages}
        if wire_tools:
            body["tools"] = wire_tools
        if request.max_tokens is not None and _LIMIT_FIELDS.isdisjoint(request.params):
            body[self._target.provider.max_tokens_field] = request.max_tokens
        if request.stream:
            body["stream"] = True
            if self._target.provider.takes_stream_options:
                body["stream_options"] = {"include_usage": True}
        if (wanted := request.response_schema) is not None:
            # Not `strict`, which takes only schemas that require every property.
            body["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": wanted.name, "schema": wanted.schema},
            }
        return params.add(body, request) if request.params else body

    def reading(self, request: Request) -> Reading:
        return self._tools.reading(request)

    def _say(self, role: str, content: Content) -> None:
        if wire := _content(content, self._takes):
            self._messages.append({"role": role, "content": wire})

    def _assistant(self, message: AssistantMessage, results: steps.Results) -> None:
        said = text_of(message.get("content"))
        calls = message.get("tool_calls", ())
        if not calls and (not said or said.isspace()):
            return
        fields, extras = self._native(message, said, len(calls))
        # Strict servers refuse a message without the key, others a blank text.
        wire: JSONObject = {"role": "assistant", "content": said if said and not said.isspace() else None, **fields}
        if self._target.provider.wants_reasoning and not wire.get(_WANTED_REASONING):
            wire[_WANTED_REASONING] = _NO_REASONING
        self._messages.append(wire)
        if not calls:
            return
        ids = self._ids.of_step([call["id"] for call in calls])
        wire_calls: list[JSONObject] = [
            {
                "id": call_id,
                "type": "function",
                "function": {
                    "name": self._tools.wire(call["function"]["name"]),
                    "arguments": call["function"]["arguments"],
                },
                **extra,
            }
            for call, call_id, extra in zip(calls, ids, extras, strict=True)
        ]
        wire["tool_calls"] = wire_calls
        shown: list[JSONObject] = []
        for position, result in results:
            answer, images = _result(result["content"], self._takes)
            if images:
                name = wire_calls[position]["function"]["name"]
                shown += [{"type": "text", "text": f"Output of {name}, call {ids[position]}:"}, *images]
            if not answer or answer.isspace():
                answer = "(see the next user message)" if images else steps.NO_OUTPUT
            self._messages.append({"role": "tool", "tool_call_id": ids[position], "content": answer})
        if shown:  # tool messages hold text only, and nothing may stand between them
            self._messages.append({"role": "user", "content": shown})

    def _native(self, message: AssistantMessage, said: str, calls: int) -> tuple[JSONObject, list[JSONObject]]:
        """What the target itself added to a message and to each of its calls."""
        bare: list[JSONObject] = [{}] * calls
        native = message.get("native")
        if not is_object(native) or not steps.may_replay(message, self._target):
            return {}, bare
        fields: JSONObject = native.get("fields") or {}
        extras = objects(native.get("calls"))
        if "content" in fields and _text(fields["content"]) != said:
            fields = {key: value for key, value in fields.items() if key != "content"}  # it was edited since
        return fields, extras if len(extras) == calls else bare


def _declaration(tool: Tool, name: str) -> JSONObject:
    return {
        "type": "function",
        "function": {
            "name": name,
            **({"description": tool.description} if tool.description else {}),
            "parameters": object_schema(tool.input_schema),
        },
    }


def _content(content: Content, takes: frozenset[str] | None) -> str | list[JSONObject]:
    """A message's content without its blank texts; empty if nothing is left."""
    if isinstance(content, str):
        return "" if content.isspace() else content
    wire: list[JSONObject] = []
    for part in cast("list[JSONObject]", content):
        wire += _part(part, takes)
    return wire


def _result(content: Content, takes: frozenset[str] | None) -> tuple[str, list[JSONObject]]:
    """A result's text, and the other parts of it, which a tool message cannot hold."""
    said = text_of(content)
    if isinstance(content, str):
        return said, []
    shown: list[JSONObject] = []
    for part in cast("list[JSONObject]", content):
        for wire in _part(part, takes) if part["type"] != "text" else ():
            if wire["type"] == "text":
                said = f"{said}\n{wire['text']}" if said else wire["text"]
            else:
                shown.append(wire)
    return said, shown


def _part(part: JSONObject, takes: frozenset[str] | None) -> list[JSONObject]:
    """A part as this wire names it, which is how the transcript does, if it says anything."""
    if takes is not None:
        part = _media.sayable(part, takes)
    kind: str = part["type"]
    value = part.get(kind)
    if isinstance(value, str):
        return [{"type": kind, kind: value}] if value and not value.isspace() else []
    if kind == "file" and is_object(value) and takes is not None:
        return [{"type": kind, kind: _file(value)}]
    return [{"type": kind, kind: value}] if is_object(value) else []


def _file(about: JSONObject) -> JSONObject:
    """A file as this wire wants it: its bytes with a name, or its id alone."""
    if "file_data" not in about:
        return {"file_id": about["file_id"]}
    return {"filename": about.get("filename") or "file", "file_data": about["file_data"]}


def _first_choice(choices: object) -> JSONObject | None:
    for choice in objects(choices):
        if not choice.get("index"):
            return choice
    return None


def _check(choice: JSONObject) -> None:
    """Raise the error that a choice is."""
    told, reason = choice.get("error"), choice.get("finish_reason")
    if told and (error := error_in({"error": told})) is not None:
        raise error
    if reason == "error":
        raise failure(None)
    if isinstance(reason, str) and "malformed" in reason.lower():
        raise malformed_call()


def _reply(
    message: JSONObject, reason: object, usage: Usage | None, model: object, id: object, reading: Reading
) -> Reply:
    """The reply that a message is, whole or put together from its deltas."""
    content = message.get("content")
    said = _text(content)
    finish = _FINISH_REASONS.get(text(reason).lower(), "unknown")
    refusal = text(message.get("refusal"))
    if refusal:
        finish, said = "refusal", said or refusal
    entries = objects(message.get("tool_calls"))
    if not entries and is_object(single := message.get("function_call")):
        entries = [{"function": single}]
    calls: list[WireCall] = []
    extras: list[JSONObject] = []
    for entry in entries:
        function = entry.get("function")
        if not is_object(function):
            continue
        name, arguments = text(function.get("name")), as_text(function.get("arguments"))
        if name or arguments:
            calls.append(WireCall(text(entry.get("id")), name, arguments))
            extras.append(_beyond(entry, _CALL_FIELDS))
    plain = message.keys() <= _NEUTRAL_FIELDS and not isinstance(content, list)  # as most are
    return replies.build(
        reading,
        text=said,
        reasoning="" if plain else _reasoning(message),
        calls=calls,
        finish=finish,
        usage=usage,
        model=model,
        id=id,
        native=None if plain and not any(extras) else _native(message, () if finish in replies.CUT else extras),
    )


def _beyond(fields: JSONObject, known: frozenset[str]) -> JSONObject:
    """What there is, and tells something, beside the known fields."""
    if fields.keys() <= known:
        return {}
    return {key: value for key, value in fields.items() if value and key not in known}


def _native(message: JSONObject, extras: Sequence[JSONObject]) -> JSONObject:
    fields = _beyond(message, _NOT_REPLAYED)
    content = message.get("content")
    if any(part.get("type") != "text" for part in objects(content)):
        fields["content"] = content
    native: JSONObject = {"fields": fields} if fields else {}
    if any(extras):
        native["calls"] = list(extras)
    return native


def _text(content: object) -> str:
    """The visible text of a reply's content, a text or a list of parts."""
    if isinstance(content, str):
        return content
    return "".join(
        text(part.get("text")) or text(part.get("refusal")) for part in objects(content) if not _thinks(part)
    )


def _thinks(part: JSONObject) -> bool:
    return part.get("type") in {"thinking", "reasoning"}


def _reasoning(fields: JSONObject) -> str:
    """The reasoning that a message or a delta shows. Servers send it in one field, or the same in several."""
    for key in _REASONING_FIELDS:
        if shown := text(fields.get(key)):
            return shown
    if details := objects(fields.get("reasoning_details")):
        return "".join(text(detail.get("text")) or text(detail.get("summary")) for detail in details)
    return "".join(_thought(part) for part in objects(fields.get("content")) if _thinks(part))


def _thought(part: JSONObject) -> str:
    """The text of a thinking part: itself a text, or a list of text parts."""
    inner = part.get("thinking") or part.get("text")
    return inner if isinstance(inner, str) else _text(inner)


def _usage_in(answer: JSONObject, choice: JSONObject, reading: Reading) -> Usage | None:
    """The usage that an answer or chunk tells, wherever it stands."""
    told = answer.get("usage") or choice.get("usage")
    if not told and is_object(own := answer.get("x_groq")):
        told = own.get("usage")
    if not is_object(told):
        return None
    return replies.usage(told, reading, given="prompt", made="completion")


class _Decoder:
    """One streamed reply. Puts together the message that the same answer has when it comes whole."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._text: list[str] = []
        self._refusal: list[str] = []
        self._pieces: dict[str, list[str]] = {}  # of reasoning, by field
        self._fields: JSONObject = {}
        self._parts: list[JSONObject] | None = None  # once content came as parts
        self._calls = CallDeltas()
        self._usage: Usage | None = None
        self._model: object = None
        self._id: object = None
        self._reason: object = None
        self._answered = False
        self.done = False

    def feed(self, payload: str) -> list[Delta]:
        if payload.startswith("[DONE]"):
            self.done = True
            return []
        event = read_event(payload)
        if event.get("error"):
            self._fail(event)
        choices = event.get("choices")
        if not choices:
            return self._without_choice(event)
        choice = _first_choice(choices)
        if choice is None:
            return []
        if not self._model:
            self._model, self._id = event.get("model"), event.get("id")
        if event.get("usage"):
            self._usage = _usage_in(event, choice, self._reading) or self._usage
        if choice.get("finish_reason"):
            self._end(event, choice)
        delta = choice.get("delta")
        if is_object(delta):
            self._answered = True
            said = delta.get("content")
            if type(said) is str and self._parts is None and (len(delta) == 1 or (len(delta) == 2 and "role" in delta)):
                if not said:
                    return []
                self._text.append(said)
                return [TextDelta(said)]
            if delta:
                return self._add(delta)
        whole = choice.get("message")
        if is_object(whole) and not (self._text or self._calls or self._fields or self._pieces):
            self._answered = True
            return self._add(whole)
        return []

    def finish(self) -> Reply:
        if not self._answered or not (self._reason or self.done):
            raise IncompleteReply("The stream ended before the provider said that the reply was complete.")
        message: JSONObject = {"content": self._parts if self._parts is not None else "".join(self._text)}
        message.update((key, "".join(pieces)) for key, pieces in self._pieces.items())
        message.update(self._fields)
        message["refusal"] = "".join(self._refusal)
        message["tool_calls"] = self._calls.message_calls()
        return _reply(message, self._reason, self._usage, self._model, self._id, self._reading)

    def _fail(self, event: JSONObject) -> None:
        if (error := error_in(event)) is not None:
            raise error

    def _without_choice(self, event: JSONObject) -> list[Delta]:
        """Usage, a prompt's filter results, an error without an envelope, or anything that servers may add."""
        if event.get("usage"):
            self._usage = _usage_in(event, {}, self._reading) or self._usage
        elif "choices" not in event:
            self._fail(event)
        return []

    def _end(self, event: JSONObject, choice: JSONObject) -> None:
        _check(choice)
        self._reason = choice["finish_reason"]
        self._usage = _usage_in(event, choice, self._reading) or self._usage

    def _add(self, delta: JSONObject) -> list[Delta]:
        said = ""
        thinks = False
        for key, value in delta.items():
            if not value or key == "role":
                continue
            if key == "content":
                said = value if isinstance(value, str) else _text(value)
                thinks = thinks or not isinstance(value, str)
                self._add_content(value)
            elif key == "tool_calls":
                for piece in objects(value):
                    self._calls.add(piece)
            elif key == "function_call":
                self._calls.add({"index": 0, "function": value})
            elif key == "refusal":
                said += text(value)
                self._refusal.append(text(value))
            elif key == "reasoning_details":
                thinks = True
                _merge_details(self._fields.setdefault(key, []), objects(value))
            elif key in _REASONING_FIELDS and isinstance(value, str):
                thinks = True
                self._pieces.setdefault(key, []).append(value)
            elif key not in _NOT_REPLAYED:
                before = self._fields.get(key)
                self._fields[key] = {**before, **value} if is_object(before) and is_object(value) else value
        deltas: list[Delta] = []
        if thinks and (thought := _reasoning(delta)):
            deltas.append(ReasoningDelta(thought))
        if said:
            deltas.append(TextDelta(said))
        return deltas

    def _add_content(self, content: object) -> None:
        if self._parts is None:
            if isinstance(content, str):
                self._text.append(content)
                return
            before = "".join(self._text)
            self._parts = [{"type": "text", "text": before}] if before else []
        pieces = [{"type": "text", "text": content}] if isinstance(content, str) else objects(content)
        for piece in pieces:
            _merge_part(self._parts, piece)


def _merge_part(parts: list[JSONObject], piece: JSONObject) -> None:
    """Add a piece of content to the part that it goes on with, the last one, or as a new part."""
    last = parts[-1] if parts else {}
    if last.get("type") != piece.get("type") or piece.get("type") not in {"text", "output_text", "thinking"}:
        parts.append(dict(piece))
        return
    for key, value in piece.items():
        before = last.get(key)
        if key in {"text", "thinking"} and isinstance(before, str) and isinstance(value, str):
            last[key] = before + value
        elif key == "thinking" and isinstance(before, list):
            inner = list(cast("list[JSONObject]", before))
            for item in objects(value):
                _merge_part(inner, item)
            last[key] = inner
        else:
            last[key] = value


def _merge_details(details: list[JSONObject], pieces: Sequence[JSONObject]) -> None:
    """Join the fragments of one block of reasoning: its signature covers the whole text."""
    for piece in pieces:
        index, kind = piece.get("index"), piece.get("type")
        if index is not None:
            known = next((d for d in details if d.get("index") == index and d.get("type") == kind), None)
        else:
            known = details[-1] if details and details[-1].get("type") == kind != "reasoning.encrypted" else None
        if known is None:
            details.append(dict(piece))
            continue
        for key, value in piece.items():
            if key in {"text", "summary", "data"} and isinstance(value, str):
                known[key] = text(known.get(key)) + value
            elif value is not None or key not in known:
                known[key] = value
