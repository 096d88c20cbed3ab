"""The wire of Gemini's generateContent. Pure.

`native` of its messages: `{"parts": [part, …]}`, all parts of a reply as they came, neighbouring plain texts joined, if
one of them is more than plain text or a call without an id (signed ones, thoughts, server tools, media). Beside it
`"candidate"` has what the reply was grounded on, which is not sent back.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

from toolnexus import _json
from toolnexus._media import read_data_url, sayable
from toolnexus.dialects import (
    Encoder,
    Reading,
    Reply,
    ReplyDecoder,
    Request,
    Target,
    gemini_schema,
    params,
    replies,
    steps,
)
from toolnexus.dialects.declarations import Declarations, RunTools
from toolnexus.dialects.faults import error_in, malformed_call
from toolnexus.dialects.partial_calls import PartialCall, goes_on
from toolnexus.dialects.payloads import JSONObject, as_text, count, is_object, objects, read_event, text
from toolnexus.dialects.replies import WireCall
from toolnexus.dialects.turns import BEGINNING, Turns
from toolnexus.errors import IncompleteReply, InvalidReply, ProviderError
from toolnexus.events import ReasoningDelta, TextDelta, Usage
from toolnexus.messages import sendable_arguments, text_of

if TYPE_CHECKING:
    from toolnexus.events import Delta, FinishReason
    from toolnexus.messages import AssistantMessage, Content
    from toolnexus.tools import Tool

_FINISH_REASONS: Mapping[str, FinishReason] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    **dict.fromkeys(
        (
            *("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "MODEL_ARMOR"),
            *("IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION"),
        ),
        "content_filter",
    ),
}

_UNREADABLE_CALL = frozenset({"MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS"})

_UNSAID = frozenset({"", "FINISH_REASON_UNSPECIFIED", "BLOCKED_REASON_UNSPECIFIED", "BLOCK_REASON_UNSPECIFIED"})

_PLAIN = frozenset({"text", "thought"})
"""The keys of parts that go on with the part before them."""

_SOURCES = ("groundingMetadata", "citationMetadata", "urlContextMetadata")
"""What a candidate says about where its answer comes from."""

_SIGNATURE = "thoughtSignature"
_NO_SIGNATURE = "skip_thought_signature_validator"
"""Stands for the signature of calls that the model has not made itself. Source: Gemini API, "Thought signatures"."""

_SIGNS = re.compile(r"gemini-(?:[3-9]|[1-9]\d|(?:[a-z]+-)+latest)", re.IGNORECASE)
"""Models that refuse a step whose first call has no signature. The names of the newest ones are among them."""

_NAMESPACE = re.compile(r"default_api[.:]")
"""What models sometimes put before the name of a tool."""

_EXACT = 2**53
"""Numbers become doubles on the server. Larger whole ones, such as ids, would come out as others."""
_DEEPEST = 32
"""The server refuses values that are nested much deeper."""

_SHOWN = "(see below)"
"""Stands for the text of a result that is only media, which come after all results."""

_MEDIA_TYPES: Mapping[str, str] = {
    **{kind: f"image/{kind}" for kind in ("png", "jpeg", "gif", "webp", "heic", "heif", "bmp")},
    **{kind: f"audio/{kind}" for kind in ("wav", "mp3", "aac", "flac", "ogg", "m4a")},
    **{kind: f"video/{kind}" for kind in ("mp4", "mov", "webm", "mpeg")},
    **{kind: f"text/{kind}" for kind in ("csv", "html", "xml")},
    **{kind: f"application/{kind}" for kind in ("pdf", "json")},
    "jpg": "image/jpeg",
    "txt": "text/plain",
    "md": "text/markdown",
}
"""What the ending of a file's name stands for."""


class Gemini:
    """Gemini's generateContent."""

    style = "gemini"
    path = "/models/{model}:generateContent"
    stream_path = "/models/{model}:streamGenerateContent?alt=sse"
    parts = frozenset({"text", "image_url", "input_audio", "file", "file_url", "file_id"})

    def __init__(self) -> None:
        self._declarations = Declarations(_declaration, letter_first=True)

    def encoder(self, target: Target) -> Encoder:
        return _Encoder(target, self._declarations)

    def decode(self, body: object, reading: Reading) -> Reply:
        """Read a whole answer, or the chunks of a streamed one in a list."""
        decoder = _Decoder(reading)
        chunks = objects(body)
        for chunk in chunks:
            decoder.add(chunk)
        if chunks:
            return decoder.finish()
        if not is_object(body):
            raise InvalidReply("The answer is not a JSON object. Check base_url.")
        decoder.add(body)
        return decoder.whole()

    def decoder(self, reading: Reading) -> ReplyDecoder:
        return _Decoder(reading)


class _Encoder:
    """Requests of one run."""

    def __init__(self, target: Target, declarations: Declarations) -> None:
        self._target = target
        self._takes = target.takes(Gemini.parts)
        self._tools = RunTools(target, declarations)
        self._reader = steps.Reader()
        self._signs = False
        self._start_anew()

    def _start_anew(self) -> None:
        self._system: list[str] = []
        self._turns = Turns("parts")

    def encode(self, request: Request) -> JSONObject:
        wire_tools = self._tools.declared(request.tools)
        signs = _SIGNS.search(request.model) is not None
        if signs is not self._signs:  # a hook chose another model
            self._signs = signs
            self._reader = steps.Reader()
        if self._reader.is_new(request.messages):
            self._start_anew()
        for message, results in self._reader.unread():
            match message["role"]:
                case "assistant":
                    self._assistant(message, results)
                case "user":
                    self._turns.push("user", _parts(message["content"], self._takes))
                case "system":
                    self._system.append(text_of(message["content"]))
        body: JSONObject = {"contents": self._turns.give({"text": BEGINNING})}
        if system := steps.system_text(request.system, self._system):
            body["systemInstruction"] = {"parts": [{"text": system}]}
        if wire_tools:
            body["tools"] = [{"functionDeclarations": wire_tools}]
        if config := _config(request):
            body["generationConfig"] = config
        return params.add(body, request) if request.params else body

    def reading(self, request: Request) -> Reading:
        return self._tools.reading(request)

    def _assistant(self, message: AssistantMessage, results: steps.Results) -> None:
        names = [self._tools.wire(call["function"]["name"]) for call in message.get("tool_calls", ())]
        parts = self._replayed(message, names)
        if parts is None:
            parts = _text_parts(text_of(message.get("content")))
            for call, name in zip(message.get("tool_calls", ()), names, strict=True):
                parts.append({"functionCall": {"name": name, "args": _json.loads(call["function"]["arguments"])}})
        calls = [part for part in parts if _call_in(part) is not None]
        if self._signs and calls and not any(part.get(_SIGNATURE) for part in calls):
            parts = [{**part, _SIGNATURE: _NO_SIGNATURE} if part is calls[0] else part for part in parts]
        self._turns.push("model", parts)
        answers: list[JSONObject] = []
        shown: list[JSONObject] = []
        for position, result in results:
            call_id = calls[position]["functionCall"].get("id")
            told: JSONObject = {"id": call_id} if call_id else {}
            said, media = _result(result["content"], self._takes)
            if media:
                shown += [{"text": f"Output of {names[position]}, call {position + 1}:"}, *media]
                said = said or _SHOWN
            response = {"error": said or steps.NO_OUTPUT} if result.get("is_error") else _response(said)
            answers.append({"functionResponse": {**told, "name": names[position], "response": response}})
        self._turns.push("user", answers + shown)

    def _replayed(self, message: AssistantMessage, names: Sequence[str]) -> list[JSONObject] | None:
        """The message's own parts, if they came from the target and still say what the message says."""
        native = message.get("native")
        if not is_object(native) or not steps.may_replay(message, self._target):
            return None
        own = objects(native.get("parts"))
        calls = sum(_call_in(part) is not None for part in own)
        if calls != len(names) or _said(own).strip() != text_of(message.get("content")).strip():
            return None
        wire = iter(names)
        parts: list[JSONObject] = []
        for part in own:
            call = _call_in(part)
            if call is not None and call.get("name") != (name := next(wire)):
                parts.append({**part, "functionCall": {**call, "name": name}})
            elif part.keys() != {"text"} or text(part["text"]).strip():
                parts.append(part)
        return parts if any(_is_visible(part) for part in parts) else []


def _declaration(tool: Tool, name: str) -> JSONObject:
    parameters = gemini_schema.parameters(tool.input_schema)
    return {
        "name": name,
        **({"description": tool.description} if tool.description else {}),
        **({"parameters": parameters} if parameters else {}),
    }


def _config(request: Request) -> JSONObject:
    config: JSONObject = {}
    if request.max_tokens is not None:
        config["maxOutputTokens"] = request.max_tokens
    if request.response_schema is not None:
        config["responseMimeType"] = "application/json"
        config["responseJsonSchema"] = gemini_schema.answer(request.response_schema.schema)
    return config


def _text_parts(said: str) -> list[JSONObject]:
    return [{"text": said}] if said and not said.isspace() else []


def _parts(content: Content, takes: frozenset[str]) -> list[JSONObject]:
    """A content as parts, without blank texts."""
    if isinstance(content, str):
        return _text_parts(content)
    parts: list[JSONObject] = []
    for given in cast("list[JSONObject]", content):
        part = sayable(given, takes)
        match part["type"]:
            case "image_url":
                parts.append(_medium(part["image_url"]["url"], "image/jpeg"))
            case "input_audio":
                sound = part["input_audio"]
                parts.append({"inlineData": {"mimeType": f"audio/{sound['format']}", "data": sound["data"]}})
            case "file":
                file = part["file"]
                place = next(file[key] for key in ("file_data", "file_url", "file_id") if key in file)
                parts.append(_medium(place, _media_type(file.get("filename"), "application/pdf")))
            case _:
                parts += _text_parts(part["text"])
    return parts


def _medium(url: str, default: str) -> JSONObject:
    if not url.startswith("data:"):
        return {"fileData": {"mimeType": _media_type(url, default), "fileUri": url}}
    kind, data = read_data_url(url)
    return {"inlineData": {"mimeType": kind or default, "data": data}}


def _media_type(name: object, default: str) -> str:
    """The media type that a name or URL stands for."""
    path = text(name).partition("?")[0].partition("#")[0]
    return _MEDIA_TYPES.get(path.rpartition("/")[2].rpartition(".")[2].lower(), default)


def _result(content: Content, takes: frozenset[str]) -> tuple[str, list[JSONObject]]:
    """A result's text, empty if it is blank, and its media."""
    if isinstance(content, str):
        return ("" if content.isspace() else content), []
    parts = _parts(content, takes)
    said = "".join(part["text"] for part in parts if "text" in part)
    return said, [part for part in parts if "text" not in part]


def _response(said: str) -> JSONObject:
    """A result as the object that the wire wants: the one that it is, or one that holds its text."""
    if said.lstrip().startswith("{"):
        try:
            value = _json.loads(said)
        except ValueError:
            value = None
        if is_object(value) and _survives(value):
            return value
    return {"output": said or steps.NO_OUTPUT}


def _survives(value: object, depth: int = 0) -> bool:
    """Whether the model is shown a JSON value as it is: the server reads it into a structure of its own first."""
    if is_object(value):
        inner = list(value.values())
    elif isinstance(value, list):
        inner = cast("list[object]", value)
    else:
        return not isinstance(value, int) or -_EXACT <= value <= _EXACT
    return depth < _DEEPEST and all(_survives(item, depth + 1) for item in inner)


def _call_in(part: JSONObject) -> JSONObject | None:
    """The call that a part is. None: it is something else."""
    call = part.get("functionCall")
    return call if is_object(call) else None


def _said(parts: Sequence[JSONObject]) -> str:
    return "".join(text(part.get("text")) for part in parts if not part.get("thought"))


def _is_visible(part: JSONObject) -> bool:
    return not part.get("thought") and (not part.keys() <= {"text", _SIGNATURE} or bool(part.get("text")))


def _arguments(call: JSONObject) -> JSONObject:
    """The call with an object as its arguments, whatever came."""
    given = call.get("args")
    if given is None or is_object(given):
        return call
    return {**call, "args": _json.loads(sendable_arguments(as_text(given)))}


def _native(parts: list[JSONObject], sources: JSONObject, *, cut: bool) -> JSONObject | None:
    """What of a reply the neutral shape does not carry. None: it carries all of it."""
    kept: list[JSONObject] = []
    plain = True
    for part in parts:
        call = _call_in(part)
        if call is None:
            plain = plain and part.keys() == {"text"}
            kept.append(part)
        elif not cut:
            plain = plain and part.keys() == {"functionCall"} and call.keys() <= {"name", "args"}
            kept.append({**part, "functionCall": _arguments(call)})
    native: JSONObject = {} if plain else {"parts": kept}
    if sources:
        native["candidate"] = sources
    return native or None


def _usage(told: JSONObject) -> Usage | None:
    prompt = count(told.get("promptTokenCount")) + count(told.get("toolUsePromptTokenCount"))
    thoughts = count(told.get("thoughtsTokenCount"))
    completion = count(told.get("candidatesTokenCount")) + thoughts
    total = count(told.get("totalTokenCount")) or prompt + completion
    if not total:
        return None
    cached = count(told.get("cachedContentTokenCount"))
    return Usage(prompt=prompt, completion=completion, total=total, cached=cached, reasoning=thoughts)


class _Decoder:
    """One reply. A whole answer is a stream of one chunk."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._parts: list[JSONObject] = []
        self._pieces: list[str] = []  # of the plain part that is still coming
        self._thinks = False  # whether that is a thought
        self._partial: PartialCall | None = None
        self._sources: JSONObject = {}
        self._usage: JSONObject = {}
        self._model: object = None
        self._id: object = None
        self._reason = ""
        self._explained = ""
        self._blocked = ""
        self._answered = False
        self.done = False

    def feed(self, payload: str) -> list[Delta]:
        if payload.startswith("[DONE]"):  # some relays add it
            self.done = True
            return []
        return self.add(read_event(payload))

    def add(self, chunk: JSONObject) -> list[Delta]:
        """Take the next chunk, which is a whole answer in itself, and return what it adds for the reader."""
        if (chunk.get("error") or "candidates" not in chunk) and (error := error_in(chunk)) is not None:
            raise error
        usage = chunk.get("usageMetadata")
        if is_object(usage):
            self._usage.update((key, value) for key, value in usage.items() if value)
        self._model = chunk.get("modelVersion") or self._model
        self._id = chunk.get("responseId") or self._id
        feedback = chunk.get("promptFeedback")
        if is_object(feedback) and (reason := text(feedback.get("blockReason"))) not in _UNSAID:
            self._blocked = reason
            self._explained = text(feedback.get("blockReasonMessage"))
        candidate = next((each for each in objects(chunk.get("candidates")) if not each.get("index")), None)
        if candidate is None:
            return []
        self._answered = True
        if (reason := text(candidate.get("finishReason"))) not in _UNSAID:
            self._reason = reason.upper()
            self._explained = text(candidate.get("finishMessage"))
        self._sources.update((key, candidate[key]) for key in _SOURCES if candidate.get(key))
        content = candidate.get("content")
        deltas: list[Delta] = []
        for part in objects(content.get("parts")) if is_object(content) else ():
            self._add_part(part, deltas)
        return deltas

    def finish(self) -> Reply:
        if not self._blocked and not (self._answered and (self._reason or self.done)):
            raise IncompleteReply("The stream ended before the provider said that the reply was complete.")
        if self._partial is not None and self._reason == "STOP":
            raise IncompleteReply("The stream ended in the middle of a call.")
        return self.whole()

    def whole(self) -> Reply:
        """The reply, whether or not a reason says that it is complete."""
        self._close()
        usage = _usage(self._usage)
        if not self._answered:
            if not self._blocked:
                raise InvalidReply("The answer has no candidates, so it is no reply. Check base_url and style.")
            raise self._error(f"The prompt was blocked ({self._blocked})", "content_filter", usage)
        reason = self._reason or self._blocked
        if reason in _UNREADABLE_CALL:
            raise malformed_call(usage)
        if reason == "MALFORMED_RESPONSE":
            raise self._error("The provider could not read what the model answered", "server", usage)
        if reason == "MISSING_THOUGHT_SIGNATURE":
            raise self._error("A call in the request has no thought signature", "bad_request", usage)
        finish = "content_filter" if self._blocked else _FINISH_REASONS.get(reason, "unknown")
        calls = [
            WireCall(text(call.get("id")), _NAMESPACE.sub("", text(call.get("name")), 1), as_text(call.get("args")))
            for part in self._parts
            if (call := _call_in(part)) is not None
        ]
        return replies.build(
            self._reading,
            text=_said(self._parts),
            reasoning="".join(text(part.get("text")) for part in self._parts if part.get("thought")),
            calls=calls,
            finish=finish,
            usage=usage,
            model=self._model,
            id=self._id,
            native=_native(self._parts, self._sources, cut=finish in replies.CUT),
        )

    def _error(self, what: str, kind: str, usage: Usage | None) -> ProviderError:
        why = f": {self._explained}" if self._explained else ""
        return ProviderError(f"{what}{why}.", kind=kind, retryable=kind == "server", usage=usage)

    def _add_part(self, part: JSONObject, deltas: list[Delta]) -> None:
        call = _call_in(part)
        if call is not None:
            self._add_call(part, call)
            return
        said, thinks = text(part.get("text")), bool(part.get("thought"))
        if part.keys() <= _PLAIN:
            if self._pieces and thinks is not self._thinks:
                self._close()
            if said:
                self._thinks = thinks
                self._pieces.append(said)
        else:
            self._close()
            self._parts.append(part)
        if said:
            deltas.append(ReasoningDelta(said) if thinks else TextDelta(said))

    def _add_call(self, part: JSONObject, call: JSONObject) -> None:
        self._close_text()
        if self._partial is not None and not call.get("name"):
            self._partial.add(call)
        elif goes_on(call) or "partialArgs" in call:
            self._close()
            self._partial = PartialCall(part)
        else:
            self._close()
            self._parts.append(part)
            return
        if not goes_on(call):
            self._close()

    def _close(self) -> None:
        """Add what was still coming to the parts."""
        self._close_text()
        if self._partial is not None:
            self._parts.append(self._partial.whole())
            self._partial = None

    def _close_text(self) -> None:
        if self._pieces:
            whole: JSONObject = {"text": "".join(self._pieces)}
            self._parts.append({**whole, "thought": True} if self._thinks else whole)
            self._pieces = []
