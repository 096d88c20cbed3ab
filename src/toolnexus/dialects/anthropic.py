"""The wire of Anthropic's messages. Pure.

`native` of its messages: `{"content": [block, …]}`, all blocks of a reply as they came, if one of them is more than
plain text or a call (signed thinking, server tools, citations).
"""

from __future__ import annotations

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
    ResponseSchema,
    Target,
    params,
    replies,
    steps,
)
from toolnexus.dialects.answer_schemas import closed
from toolnexus.dialects.declarations import Declarations, RunTools
from toolnexus.dialects.faults import error_in
from toolnexus.dialects.names import CallIds
from toolnexus.dialects.payloads import JSONObject, as_text, count, is_object, objects, read_event, text
from toolnexus.dialects.replies import WireCall
from toolnexus.dialects.schemas import object_schema
from toolnexus.dialects.turns import BEGINNING, Turns
from toolnexus.errors import ConfigurationError, IncompleteReply, InvalidReply
from toolnexus.events import ReasoningDelta, TextDelta, Usage
from toolnexus.messages import read_arguments, sendable_arguments, text_of

if TYPE_CHECKING:
    from toolnexus.events import Delta, FinishReason
    from toolnexus.messages import AssistantMessage, Content, ToolMessage
    from toolnexus.tools import Tool

_DEFAULT_MAX_TOKENS = 8192

_CALL_ID = r"[a-zA-Z0-9_-]+"

_STOP_REASONS: Mapping[str, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
}

_PLAIN_KEYS: Mapping[str, frozenset[str]] = {
    "text": frozenset({"type", "text"}),
    "tool_use": frozenset({"type", "id", "name", "input"}),
}
"""The blocks, and what of them, that the neutral shape carries."""

_THINKING = frozenset({"thinking", "redacted_thinking"})
_SERVER_CALLS = frozenset({"server_tool_use", "mcp_tool_use"})


class Anthropic:
    """Anthropic's messages."""

    style = "anthropic"
    path = "/v1/messages"
    stream_path = path
    parts = frozenset({"text", "image_url", "pdf", "file_url", "file_id"})

    def __init__(self) -> None:
        self._declarations = Declarations(_declaration)

    def encoder(self, target: Target) -> Encoder:
        return _Encoder(target, self._declarations)

    def decode(self, body: object, reading: Reading) -> Reply:
        """Read a whole answer."""
        if not is_object(body):
            raise InvalidReply("The answer is not a JSON object. Check base_url.")
        content = body.get("content")
        if body.get("error") or not isinstance(content, list):
            if (error := error_in(body)) is not None:
                raise error
            if not isinstance(content, list):
                raise InvalidReply("The answer has no content list, so it is no message. Check base_url and style.")
        usage = body.get("usage")
        return _reply(
            objects(cast("object", content)),
            body.get("stop_reason"),
            usage if is_object(usage) else {},
            body.get("model"),
            body.get("id"),
            reading,
        )

    def decoder(self, reading: Reading) -> ReplyDecoder:
        return _Decoder(reading)


class _Encoder:
    """Requests of one run."""

    def __init__(self, target: Target, declarations: Declarations) -> None:
        self._target = target
        self._takes = target.takes(Anthropic.parts)
        self._tools = RunTools(target, declarations)
        self._reader = steps.Reader()
        self._start_anew()

    def _start_anew(self) -> None:
        self._ids = CallIds(_CALL_ID)
        self._system: list[str] = []
        self._turns = Turns("content")
        self._ends_in_neutral_text = False

    def encode(self, request: Request) -> JSONObject:
        wire_tools = self._tools.declared(request.tools)
        if self._reader.is_new(request.messages):
            self._start_anew()
        for message, results in self._reader.unread():
            match message["role"]:
                case "assistant":
                    self._assistant(message, results)
                case "user":
                    self._push("user", _blocks(message["content"], self._takes))
                case "system":
                    self._system.append(text_of(message["content"]))
        limit = request.max_tokens or self._target.provider.default_max_tokens or _DEFAULT_MAX_TOKENS
        body: JSONObject = {"model": request.model, "max_tokens": limit, "messages": self._conversation()}
        if system := steps.system_text(request.system, self._system):
            body["system"] = system
        if wire_tools:
            body["tools"] = wire_tools
        if request.stream:
            body["stream"] = True
        if request.params:
            params.add(body, request)
        if request.response_schema is not None:
            _ask_for(request.response_schema, body)
        return body

    def reading(self, request: Request) -> Reading:
        return self._tools.reading(request)

    def _conversation(self) -> list[JSONObject]:
        """The messages as the wire wants them to begin and to end."""
        messages = self._turns.give({"type": "text", "text": BEGINNING})
        if self._ends_in_neutral_text and messages[-1]["role"] == "assistant":
            *blocks, last = messages[-1]["content"]
            messages[-1] = {"role": "assistant", "content": [*blocks, {**last, "text": last["text"].rstrip()}]}
        return messages

    def _push(self, role: str, blocks: list[JSONObject]) -> None:
        """Add blocks to the conversation."""
        if blocks and role == "user":
            self._end_assistant()
        self._turns.push(role, blocks)

    def _end_assistant(self) -> None:
        """The user goes on: a server's tool call that the provider never answered would be refused from here on."""
        messages = self._turns.messages
        if not messages or messages[-1]["role"] != "assistant":
            return
        blocks = messages[-1]["content"]
        kept = _without_open_server_calls(blocks)
        if len(kept) < len(blocks):
            self._turns.pop()
            self._turns.push("assistant", kept)

    def _assistant(self, message: AssistantMessage, results: steps.Results) -> None:
        said = text_of(message.get("content"))
        calls = message.get("tool_calls", ())
        ids = self._ids.of_step([call["id"] for call in calls])
        blocks = self._replayed(message, said, ids)
        neutral = blocks is None
        if blocks is None:
            blocks = _text_blocks(said)
            for call, call_id in zip(calls, ids, strict=True):
                function = call["function"]
                arguments = _json.loads(function["arguments"])
                name = self._tools.wire(function["name"])
                blocks.append({"type": "tool_use", "id": call_id, "name": name, "input": arguments})
        self._push("assistant", blocks)
        if blocks:
            self._ends_in_neutral_text = neutral and not calls
        shown: list[JSONObject] = []
        answers: list[JSONObject] = []
        for position, result in results:
            answers.append(_result(ids[position], result, self._takes, shown))
        self._push("user", answers + shown)

    def _replayed(self, message: AssistantMessage, said: str, ids: Sequence[str]) -> list[JSONObject] | None:
        """The message's own blocks, if they came from the target and still say what the message says."""
        native = message.get("native")
        if not is_object(native) or not steps.may_replay(message, self._target):
            return None
        content = objects(native.get("content"))
        calls = message.get("tool_calls", ())
        uses = sum(_kind(block) == "tool_use" for block in content)
        if uses != len(calls) or _said(content).strip() != said.strip():
            return None
        blocks: list[JSONObject] = []
        names = [self._tools.wire(call["function"]["name"]) for call in calls]
        wire = iter(zip(ids, names, strict=True))
        for block in content:
            match _kind(block):
                case "tool_use":
                    call_id, name = next(wire)
                    unchanged = block.get("id") == call_id and block.get("name") == name
                    blocks.append(block if unchanged else {**block, "id": call_id, "name": name})
                case "text" if not text(block.get("text")).strip():
                    pass  # the API sends blank texts and refuses to get them
                case _:
                    blocks.append(block)
        return blocks if any(_kind(block) not in _THINKING for block in blocks) else []


def _ask_for(wanted: ResponseSchema, body: JSONObject) -> None:
    """Ask for an answer of a schema, beside whatever else the caller wants of the output."""
    schema = closed(wanted.schema)
    if schema is None:
        raise ConfigurationError(f"The schema {wanted.name!r} refers to itself or is open, which this wire cannot say.")
    others = body.get("output_config")
    body["output_config"] = {
        "format": {"type": "json_schema", "schema": schema},
        **(others if is_object(others) else {}),
    }


def _declaration(tool: Tool, name: str) -> JSONObject:
    return {
        "name": name,
        **({"description": tool.description} if tool.description else {}),
        "input_schema": object_schema(tool.input_schema),
    }


def _without_open_server_calls(blocks: list[JSONObject]) -> list[JSONObject]:
    """The blocks of a message that the user answers. Beside calls of ours, the server's may well be open."""
    kinds = {_kind(block) for block in blocks}
    if "tool_use" in kinds or kinds.isdisjoint(_SERVER_CALLS):
        return blocks
    answered = {text(block.get("tool_use_id")) for block in blocks} - {""}
    kept = [block for block in blocks if _kind(block) not in _SERVER_CALLS or text(block.get("id")) in answered]
    while kept and _kind(kept[-1]) in _THINKING:  # no message may end in it
        kept.pop()
    return kept


def _result(call_id: str, result: ToolMessage, takes: frozenset[str], shown: list[JSONObject]) -> JSONObject:
    """A result's block. Images and files that it cannot hold are added to `shown`, which comes after all results."""
    block: JSONObject = {"type": "tool_result", "tool_use_id": call_id}
    content = _blocks(result["content"], takes)
    if result.get("is_error"):  # the API wants an error to be text, and to be something
        images = [part for part in content if part["type"] != "text"]
        if images:
            shown += [{"type": "text", "text": f"Output of call {call_id}:"}, *images]
        content = [part for part in content if part["type"] == "text"] or _text_blocks(steps.NO_OUTPUT)
        block["is_error"] = True
    if len(content) == 1 and content[0]["type"] == "text":
        block["content"] = content[0]["text"]
    elif content:
        block["content"] = content
    return block


def _text_blocks(said: str) -> list[JSONObject]:
    return [{"type": "text", "text": said}] if said and not said.isspace() else []


def _blocks(content: Content, takes: frozenset[str]) -> list[JSONObject]:
    """A content as blocks, without blank texts."""
    if isinstance(content, str):
        return _text_blocks(content)
    blocks: list[JSONObject] = []
    for given in cast("list[JSONObject]", content):
        part = sayable(given, takes)
        match part["type"]:
            case "image_url":
                blocks.append(_image(part["image_url"]["url"]))
            case "file":
                blocks.append(_document(part["file"]))
            case _:
                blocks += _text_blocks(part["text"])
    return blocks


def _document(about: JSONObject) -> JSONObject:
    title: JSONObject = {"title": about["filename"]} if about.get("filename") else {}
    if "file_data" in about:
        media_type, data = read_data_url(about["file_data"])
        source = {"type": "base64", "media_type": media_type, "data": data}
    elif "file_url" in about:
        source = {"type": "url", "url": about["file_url"]}
    else:
        source = {"type": "file", "file_id": about["file_id"]}
    return {"type": "document", "source": source, **title}


def _image(url: str) -> JSONObject:
    if not url.startswith("data:"):
        return {"type": "image", "source": {"type": "url", "url": url}}
    media_type, data = read_data_url(url)
    return {"type": "image", "source": {"type": "base64", "media_type": media_type or "image/png", "data": data}}


def _kind(block: JSONObject) -> str:
    return text(block.get("type"))


def _said(blocks: Sequence[JSONObject]) -> str:
    return "".join(text(block.get("text")) for block in blocks if _kind(block) == "text")


def _reply(
    blocks: list[JSONObject], reason: object, usage: JSONObject, model: object, id: object, reading: Reading
) -> Reply:
    """The reply that a list of blocks is, whole or put together from its deltas."""
    finish = _STOP_REASONS.get(text(reason), "unknown")
    calls = [
        WireCall(text(block.get("id")), text(block.get("name")), as_text(block.get("input")))
        for block in blocks
        if _kind(block) == "tool_use"
    ]
    return replies.build(
        reading,
        text=_said(blocks),
        reasoning="".join(text(block.get("thinking")) for block in blocks if _kind(block) == "thinking"),
        calls=calls,
        finish=finish,
        usage=_usage(usage),
        model=model,
        id=id,
        native=_native(blocks, cut=finish in replies.CUT),
        paused=reason == "pause_turn",
    )


def _native(blocks: list[JSONObject], *, cut: bool) -> JSONObject | None:
    """The blocks for `native`; None if the neutral shape carries all of them."""
    kept: list[JSONObject] = []
    beyond = False
    for block in blocks:
        kind = _kind(block)
        if kind == "tool_use" and cut:
            continue
        plain = _PLAIN_KEYS.get(kind)
        beyond = beyond or plain is None or any(block[key] for key in block.keys() - plain)
        if "input" in block and not is_object(block["input"]):
            block = {**block, "input": _json.loads(sendable_arguments(as_text(block["input"])))}
        kept.append(block)
    return {"content": kept} if beyond else None


def _usage(told: JSONObject) -> Usage | None:
    cached, written = count(told.get("cache_read_input_tokens")), count(told.get("cache_creation_input_tokens"))
    prompt = count(told.get("input_tokens")) + written + cached
    completion = count(told.get("output_tokens"))
    if not prompt and not completion:
        return None
    return Usage(prompt=prompt, completion=completion, total=prompt + completion, cached=cached, cache_write=written)


class _OpenBlock:
    """A block that is still coming: what it started with, and the pieces of its texts by key."""

    __slots__ = ("pieces", "start")

    def __init__(self, start: JSONObject) -> None:
        self.start = start
        self.pieces: dict[str, list[str]] = {}

    def add(self, key: str, piece: str) -> None:
        pieces = self.pieces.get(key)
        if pieces is None:
            before = self.start.get(key)
            pieces = self.pieces[key] = [before] if isinstance(before, str) and before else []
        pieces.append(piece)

    def whole(self) -> JSONObject:
        """The block as a whole answer has it."""
        block = self.start | {key: "".join(pieces) for key, pieces in self.pieces.items() if key != "input"}
        given = "".join(self.pieces.get("input", ()))
        if given and not given.isspace():
            arguments = read_arguments(given)
            block["input"] = given if arguments is None else arguments
        return block


class _Decoder:
    """One streamed reply."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._blocks: dict[int, _OpenBlock] = {}
        self._usage: JSONObject = {}
        self._model: object = None
        self._id: object = None
        self._reason: object = None
        self.done = False

    def feed(self, payload: str) -> list[Delta]:
        if payload.startswith("[DONE]"):  # some relays add it
            return []
        event = read_event(payload)
        kind = event.get("type")
        if kind == "content_block_delta":
            delta = event.get("delta")
            return self._add(self._place(event, len(self._blocks) - 1), delta) if is_object(delta) else []
        if (kind == "error" or event.get("error")) and (error := error_in(event)) is not None:
            raise error
        if kind == "content_block_start":
            block = event.get("content_block")
            return self._start(self._place(event, len(self._blocks)), block) if is_object(block) else []
        if kind == "message_start":
            message = event.get("message")
            if is_object(message):
                self._model, self._id = message.get("model"), message.get("id")
                self._count(message.get("usage"))
        elif kind == "message_delta":
            delta = event.get("delta")
            if is_object(delta):
                self._reason = delta.get("stop_reason") or self._reason
            self._count(event.get("usage"))
        elif kind == "message_stop":
            self.done = True
        return []

    def finish(self) -> Reply:
        if not self.done and not self._reason:
            raise IncompleteReply("The stream ended before the provider said that the message was complete.")
        blocks = [block.whole() for block in self._blocks.values()]
        return _reply(blocks, self._reason, self._usage, self._model, self._id, self._reading)

    def _place(self, event: JSONObject, default: int) -> int:
        index = event.get("index")
        return index if isinstance(index, int) else default

    def _count(self, usage: object) -> None:
        """Take a usage that replaces what was told before, where it tells anything."""
        if is_object(usage):
            self._usage.update((key, value) for key, value in usage.items() if value)

    def _start(self, index: int, block: JSONObject) -> list[Delta]:
        self._blocks[index] = _OpenBlock(block)
        if said := text(block.get("text")):
            return [TextDelta(said)]
        if thought := text(block.get("thinking")):
            return [ReasoningDelta(thought)]
        return []

    def _add(self, index: int, delta: JSONObject) -> list[Delta]:
        kind = delta.get("type")
        block = self._blocks.get(index)
        if block is None:  # its start was left out; a text can do without
            block = self._blocks[index] = _OpenBlock({"type": "thinking" if kind == "thinking_delta" else "text"})
        if kind == "text_delta":
            said = text(delta.get("text"))
            block.add("text", said)
            return [TextDelta(said)] if said else []
        if kind == "thinking_delta":
            thought = text(delta.get("thinking"))
            block.add("thinking", thought)
            return [ReasoningDelta(thought)] if thought else []
        if kind == "input_json_delta":
            block.add("input", text(delta.get("partial_json")))
        elif kind == "signature_delta":
            block.add("signature", text(delta.get("signature")))
        elif kind == "citations_delta":
            block.start["citations"] = [*objects(block.start.get("citations")), delta.get("citation")]
        return []
