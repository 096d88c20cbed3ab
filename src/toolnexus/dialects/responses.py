"""The wire of OpenAI's Responses. Pure.

`native` of its messages: `{"output": [item, …]}`, all items of a reply as they came, if one of them is more than plain
text or a call (reasoning, the provider's own tools, phases), or if they came in another order than the neutral one.

Nothing is asked of the provider's memory: every request carries the whole conversation. Items go back only to the host
and the model that they came from, because a model refuses the reasoning of another, and a call refuses to stand without
its reasoning. With `store` false in the caller's parameters, reasoning can go back only if it carries its own content
(`encrypted_content`; where a server gives none, ask for it with `include=["reasoning.encrypted_content"]`). A reply
whose reasoning cannot go back is sent as plain text and calls without ids, which any server takes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, cast

from toolnexus import _media
from toolnexus.dialects import Encoder, Reading, Reply, ReplyDecoder, Request, Target, params, replies, steps
from toolnexus.dialects.declarations import Declarations, RunTools
from toolnexus.dialects.faults import error_in, failure
from toolnexus.dialects.names import CallIds
from toolnexus.dialects.payloads import JSONObject, as_text, is_object, objects, read_event, text
from toolnexus.dialects.replies import WireCall
from toolnexus.dialects.response_items import ItemStream, said, thought
from toolnexus.dialects.schemas import object_schema
from toolnexus.errors import IncompleteReply, InvalidReply
from toolnexus.messages import text_of

if TYPE_CHECKING:
    from toolnexus.dialects import ResponseSchema
    from toolnexus.events import Delta, FinishReason
    from toolnexus.messages import AssistantMessage, Content
    from toolnexus.tools import Tool

_CALL_ID = r"[a-zA-Z0-9_-]{1,64}"

_CUT_SHORT: Mapping[str, FinishReason] = {"content_filter": "content_filter"}
"""Why a response is incomplete, where it is not its length."""

_ENDS: Mapping[str, str] = {
    "response.completed": "completed",
    "response.done": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
    "response.cancelled": "cancelled",
}
"""The events that end a stream, and the status that they say."""

_BROKEN_OFF = frozenset({"failed", "cancelled"})
_NOT_YET = frozenset({"queued", "in_progress"})

_PLAIN_KEYS: Mapping[str, frozenset[str]] = {
    "message": frozenset({"type", "id", "role", "status", "content"}),
    "function_call": frozenset({"type", "id", "status", "call_id", "name", "arguments"}),
}
"""The items, and what of them, that the neutral shape carries."""

_OURS_TO_ANSWER = frozenset(
    {"computer_call", "local_shell_call", "shell_call", "apply_patch_call", "mcp_approval_request"}
)
"""Items that the caller of the API would have to answer. Unanswered ones are refused, and here nobody answers them."""

_NOT_RUN = "(not run)"


class Responses:
    """OpenAI's Responses."""

    style = "responses"
    path = "/responses"
    stream_path = path
    parts = frozenset({"text", "image_url", "file", "file_url", "file_id"})  # no audio: the API has no part for it

    def __init__(self) -> None:
        self._declarations = Declarations(_declaration)

    def encoder(self, target: Target) -> Encoder:
        return _Encoder(target, self._declarations)

    def decode(self, body: object, reading: Reading) -> Reply:
        """Read a whole answer."""
        if not is_object(body):
            raise InvalidReply("The answer is not a JSON object. Check base_url.")
        output, status = body.get("output"), text(body.get("status"))
        _check(status, body)
        if (body.get("error") or not isinstance(output, list)) and (error := error_in(body)) is not None:
            raise error
        if status in _NOT_YET and not output:
            raise InvalidReply(f"The response is only {status!r}: leave `background` out of the request.")
        if not isinstance(output, list):
            raise InvalidReply("The answer has no output list, so it is no response. Check base_url and style.")
        return _reply(objects(cast("object", output)), status, body, reading)

    def decoder(self, reading: Reading) -> ReplyDecoder:
        return _Decoder(reading)


class _Encoder:
    """Requests of one run."""

    def __init__(self, target: Target, declarations: Declarations) -> None:
        self._target = target
        self._takes = target.takes(Responses.parts)
        self._tools = RunTools(target, declarations)
        self._reader = steps.Reader()
        self._model = ""
        self._stored = True
        self._start_anew()

    def _start_anew(self) -> None:
        self._ids = CallIds(_CALL_ID)
        self._item_ids: set[str] = set()
        self._system: list[str] = []
        self._input: list[JSONObject] = []

    def encode(self, request: Request) -> JSONObject:
        wire_tools = self._tools.declared(request.tools)
        stored = request.params.get("store") is not False
        if (request.model, stored) != (self._model, self._stored):  # other items may go back
            self._model, self._stored = request.model, stored
            self._reader = steps.Reader()
        if self._reader.is_new(request.messages):
            self._start_anew()
        for message, results in self._reader.unread():
            match message["role"]:
                case "assistant":
                    self._assistant(message, results)
                case "user":
                    self._say("user", message["content"])
                case "system":
                    if self._input:
                        self._say("system", message["content"])
                    else:
                        self._system.append(text_of(message["content"]))
        body: JSONObject = {"model": request.model, "input": self._input.copy()}
        if system := steps.system_text(request.system, self._system):
            body["instructions"] = system
        if wire_tools:
            body["tools"] = wire_tools
        if request.max_tokens is not None:
            body["max_output_tokens"] = request.max_tokens
        if request.stream:
            body["stream"] = True
        if request.response_schema is not None:
            body["text"] = {"format": _format(request.response_schema)}
        return params.add(body, request) if request.params else body

    def reading(self, request: Request) -> Reading:
        return self._tools.reading(request)

    def _say(self, role: str, content: Content) -> None:
        if wire := self._content(content):
            self._input.append({"type": "message", "role": role, "content": wire})

    def _content(self, content: Content) -> str | list[JSONObject]:
        """A message's content without its blank texts; empty if nothing is left."""
        if isinstance(content, str):
            return "" if content.isspace() else content
        parts = (_part(_media.sayable(part, self._takes)) for part in cast("list[JSONObject]", content))
        return [part for part in parts if part["type"] != "input_text" or not _is_blank(part["text"])]

    def _assistant(self, message: AssistantMessage, results: steps.Results) -> None:
        calls = message.get("tool_calls", ())
        ids = self._ids.of_step([call["id"] for call in calls])
        wire_calls: list[JSONObject] = [
            {
                "type": "function_call",
                "call_id": call_id,
                "name": self._tools.wire(call["function"]["name"]),
                "arguments": call["function"]["arguments"],
            }
            for call, call_id in zip(calls, ids, strict=True)
        ]
        items = self._replayed(message, wire_calls)
        if items is None:
            content = text_of(message.get("content"))
            # A text, because a list of parts is an output message, which strict servers want with its id.
            items = [] if _is_blank(content) else [{"type": "message", "role": "assistant", "content": content}]
            items += wire_calls
        self._input += items
        for position, result in results:
            self._input.append(
                {"type": "function_call_output", "call_id": ids[position], "output": self._output(result["content"])}
            )

    def _output(self, content: Content) -> str | list[JSONObject]:
        """A result: its text, or a list if there is more than text in it."""
        wire = self._content(content)
        if isinstance(wire, list) and all(part["type"] == "input_text" for part in wire):
            wire = "".join(part["text"] for part in wire)
        return wire or steps.NO_OUTPUT

    def _replayed(self, message: AssistantMessage, calls: Sequence[JSONObject]) -> list[JSONObject] | None:
        """The reply's own items, if they may go where the request goes and still say what the message says."""
        native, origin = message.get("native"), message.get("origin")
        if not is_object(native) or origin is None or not steps.may_replay(message, self._target):
            return None
        output = objects(native.get("output"))
        if origin["model"] != self._model or said(output).strip() != text_of(message.get("content")).strip():
            return None
        if sum(_kind(item) == "function_call" for item in output) != len(calls) or not _can_return(
            output, self._stored
        ):
            return None
        ids = [name for item in output if (name := text(item.get("id")))]
        if len(set(ids)) < len(ids) or not self._item_ids.isdisjoint(ids):
            return None  # a conversation has each item once
        items: list[JSONObject] = []
        outputs: list[JSONObject] = []
        answered = _answered(output)
        wire = iter(calls)
        for item in output:
            # Servers give keys as null that they refuse as null.
            own = {key: value for key, value in item.items() if value is not None}
            match _kind(item):
                case "function_call":
                    if not text(own.get("id")).startswith("fc_"):
                        own.pop("id", None)
                    items.append(own | next(wire))
                case "message" if _is_blank(said([item])):
                    pass  # refused, like every message without content
                case "custom_tool_call":
                    items.append(own)
                    if (call_id := text(own.get("call_id"))) not in answered:
                        outputs.append({"type": "custom_tool_call_output", "call_id": call_id, "output": _NOT_RUN})
                case _:
                    items.append(own)
        items = _without_open_reasoning(items)
        self._item_ids.update(ids)
        return items + outputs


def _declaration(tool: Tool, name: str) -> JSONObject:
    return {
        "type": "function",
        "name": name,
        **({"description": tool.description} if tool.description else {}),
        "parameters": object_schema(tool.input_schema),
        # Left out, it means that the provider makes every property required, and the model makes values up.
        "strict": False,
    }


def _format(schema: ResponseSchema) -> JSONObject:
    return {"type": "json_schema", "name": schema.name, "schema": dict(schema.schema)}


def _part(part: JSONObject) -> JSONObject:
    """A part that the wire takes, as it names it."""
    match part["type"]:
        case "image_url":
            image = part["image_url"]
            # It may be left out by OpenAI's own rules, but not by those of vLLM.
            return {"type": "input_image", "image_url": image["url"], "detail": image.get("detail") or "auto"}
        case "file":
            return {"type": "input_file", **_file(part["file"])}
        case _:
            return {"type": "input_text", "text": part["text"]}


def _file(about: JSONObject) -> JSONObject:
    """A file's bytes with a name, or what refers to it."""
    if "file_data" in about:
        return {"filename": about.get("filename") or "file", "file_data": about["file_data"]}
    return {key: about[key] for key in ("file_url", "file_id") if key in about}


def _is_blank(said: str) -> bool:
    return not said or said.isspace()


def _kind(item: JSONObject) -> str:
    return text(item.get("type"))


def _can_return(items: Sequence[JSONObject], stored: bool) -> bool:
    """Whether a server takes these items back."""
    answered = _answered(items)
    for item in items:
        if _kind(item) in _OURS_TO_ANSWER and text(item.get("call_id")) not in answered:
            return False
        if _kind(item) == "reasoning" and not (stored or item.get("encrypted_content") or item.get("content")):
            return False
    return True


def _answered(items: Sequence[JSONObject]) -> set[str]:
    """The ids of calls whose outputs are among the items."""
    return {text(item.get("call_id")) for item in items if _kind(item).endswith("_output")} - {""}


def _without_open_reasoning(items: list[JSONObject]) -> list[JSONObject]:
    """The items up to the last that is not reasoning, which is refused without what it led to."""
    end = len(items)
    while end and _kind(items[end - 1]) == "reasoning":
        end -= 1
    return items[:end]


def _check(status: str, response: JSONObject) -> None:
    """Raise the error that a response is."""
    if status in _BROKEN_OFF:
        raise failure(response.get("error"))


def _reply(items: list[JSONObject], status: str, response: JSONObject, reading: Reading) -> Reply:
    """The reply that a response is, whole or put together from its events."""
    finish = _finish(items, status, response.get("incomplete_details"))
    calls = [
        WireCall(
            text(item.get("call_id")) or text(item.get("id")), text(item.get("name")), as_text(item.get("arguments"))
        )
        for item in items
        if _kind(item) == "function_call"
    ]
    told = response.get("usage")
    return replies.build(
        reading,
        text=said(items),
        reasoning=thought(items),
        calls=calls,
        finish=finish,
        usage=replies.usage(told, reading, given="input", made="output") if is_object(told) else None,
        model=response.get("model"),
        id=response.get("id"),
        native=_native(items, cut=finish in replies.CUT, stored=response.get("store") is not False),
    )


def _finish(items: Sequence[JSONObject], status: str, details: object) -> FinishReason:
    if any(_kind(part) == "refusal" for item in items for part in objects(item.get("content"))):
        return "refusal"
    if status == "incomplete":
        return _CUT_SHORT.get(text(details.get("reason")) if is_object(details) else "", "length")
    if any(_kind(item) == "function_call" and item.get("status") == "incomplete" for item in items):
        return "length"
    return "stop" if status == "completed" else "unknown"


def _native(items: list[JSONObject], *, cut: bool, stored: bool) -> JSONObject | None:
    """The items for `native`; None if the neutral shape carries all of them, or nobody would take them back."""
    kept = _without_open_reasoning(list(takewhile(_is_whole, items))) if cut else items
    order = ["function_call" if _kind(item) == "function_call" else "message" for item in kept]
    neutral = order == sorted(order, reverse=True) and order.count("message") <= 1
    if (neutral and all(map(_is_plain, kept))) or not _can_return(kept, stored):
        return None
    return {"output": kept}


def _is_whole(item: JSONObject) -> bool:
    """Whether an item of a reply that was cut off can be kept. Of a text, also its beginning can."""
    kind = _kind(item)
    return kind == "message" or (kind != "function_call" and text(item.get("status")) in {"completed", ""})


def _is_plain(item: JSONObject) -> bool:
    """Whether the neutral shape carries an item."""
    keys = _PLAIN_KEYS.get(_kind(item))
    if keys is None or any(item[key] for key in item.keys() - keys):
        return False
    parts = objects(item.get("content"))
    return all(
        _kind(part) == "output_text" and not any(part[key] for key in part.keys() - {"type", "text"}) for part in parts
    )


class _Decoder:
    """One streamed reply."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._items = ItemStream()
        self._output: list[JSONObject] = []
        self._response: JSONObject = {}
        self._status = ""
        self.done = False

    def feed(self, payload: str) -> list[Delta]:
        if payload.startswith("[DONE]"):  # some servers add it; without a finished response it says nothing
            return []
        event = read_event(payload)
        kind = text(event.get("type"))
        if (event.get("error") or kind in {"", "error"}) and (error := error_in(event)) is not None:
            raise error
        response = event.get("response")
        if is_object(response):  # the later ones tell more
            self._response.update((key, value) for key, value in response.items() if value is not None)
        if kind in _ENDS:
            return self._end(kind)
        return self._items.feed(kind, event)

    def finish(self) -> Reply:
        if not self.done:
            raise IncompleteReply("The stream ended before the provider said that the response was complete.")
        return _reply(self._output, self._status, self._response, self._reading)

    def _end(self, kind: str) -> list[Delta]:
        told, status = _ENDS[kind], text(self._response.get("status"))
        # A response that is said to have ended badly has, whatever else stands in it.
        self._status = status if told == "completed" and status and status not in _NOT_YET else told
        _check(self._status, self._response)
        self._output, deltas = self._items.settled(objects(self._response.get("output")))
        self.done = True
        return deltas
