"""Tool calls of models that have none of their own: each answer has to fit a schema of "this tool, or a reply". Pure.

The wire sees neither tools nor calls. What tools there are stands in the system prompt, calls and results in the
conversation are spelled as the model writes and reads them, and the transcript keeps its own shape.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from toolnexus import _strict
from toolnexus._unicode import clean, clean_text
from toolnexus.dialects import Request, ResponseSchema, steps
from toolnexus.messages import text_of

if TYPE_CHECKING:
    from toolnexus.messages import Message
    from toolnexus.tools import Tool

_NAME = "tool_or_reply"
_REPLY = "reply"
_TOOL = "tool"
_ARGUMENTS = "arguments"


class Meant(NamedTuple):
    """What an answer means.

    Attributes:
        text: The reply; None if it is a call.
        tool: The tool's name; empty if it is a reply.
        arguments: JSON text.
    """

    text: str | None
    tool: str = ""
    arguments: str = ""


class Spelling:
    """Requests of one run, in words. Each message is spelled once, however many requests the run makes."""

    def __init__(self) -> None:
        self._reader = steps.Reader()
        self._messages: list[Message] = []
        self._tools: Sequence[Tool] = ()
        self._described = ""
        self._schema: ResponseSchema | None = None
        self._reply: ResponseSchema | None = None

    def spelled(self, request: Request) -> Request:
        """The request without tools and calls. It must have tools."""
        if self._schema is None or request.tools is not self._tools or request.response_schema != self._reply:
            self._tools, self._reply = request.tools, request.response_schema
            self._described = _described(request.tools)
            self._schema = ResponseSchema(name=_NAME, schema=_schema(request.tools, request.response_schema))
        if self._reader.is_new(request.messages):
            self._messages = []
        for message, results in self._reader.unread():
            self._spell(message, results)
        return replace(
            request,
            system="\n\n".join(part for part in (request.system, self._described) if part),
            messages=self._messages,
            tools=(),
            response_schema=self._schema,
        )

    def _spell(self, message: Message, results: steps.Results) -> None:
        if message["role"] != "assistant":
            self._messages.append(message)
            return
        calls = message.get("tool_calls", ())
        said = text_of(message.get("content"))
        wrote = [
            _strict.encode({_TOOL: call["function"]["name"], _ARGUMENTS: _strict.decode(call["function"]["arguments"])})
            for call in calls
        ]
        self._messages.append({"role": "assistant", "content": "\n".join(wrote or [_strict.encode({_REPLY: said})])})
        for position, result in results:
            name = calls[position]["function"]["name"]
            head = f"{'Error' if result.get('is_error') else 'Result'} of {name}:"
            content = result["content"]
            if isinstance(content, str):
                self._messages.append({"role": "user", "content": f"{head}\n{content}"})
            else:
                self._messages.append({"role": "user", "content": [{"type": "text", "text": head}, *content]})


def meaning(text: str) -> Meant | None:
    """What an answer that fits the schema means. None: it does not fit it."""
    try:
        value = _strict.decode(text)
    except ValueError:
        return None
    if not isinstance(value, dict):
        return None
    answer = cast("dict[str, Any]", value)
    if isinstance(answer.get(_TOOL), str) and isinstance(answer.get(_ARGUMENTS), dict):
        return Meant(None, answer[_TOOL], _strict.encode(answer[_ARGUMENTS]))
    if answer.keys() == {_REPLY}:
        reply = answer[_REPLY]
        return Meant(reply if isinstance(reply, str) else _strict.encode(reply))
    return None


def _schema(tools: Sequence[Tool], reply: ResponseSchema | None) -> dict[str, Any]:
    """The schema of an answer: a call of one of the tools, or a reply."""
    definitions: dict[str, Any] = {}
    calls = [
        _object({_TOOL: {"const": tool.name}, _ARGUMENTS: _part(tool.input_schema, f"{place}", definitions)})
        for place, tool in enumerate(tools)
    ]
    said = {"type": "string"} if reply is None else _part(reply.schema, _REPLY, definitions)
    whole: dict[str, Any] = {"anyOf": [*calls, _object({_REPLY: said})]}
    return {**whole, "$defs": definitions} if definitions else whole


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


def _part(schema: Mapping[str, Any], place: str, definitions: dict[str, Any]) -> Any:
    """A schema as part of a larger one: what it defines goes to the top, under names of its own."""
    schema = clean(schema)
    defined = [(key, cast("dict[str, Any]", schema.get(key, {}))) for key in _DEFINING]
    names = {f"#/{key}/{name}": f"{place}_{name}" for key, found in defined for name in found}
    for _, found in defined:
        definitions.update((f"{place}_{name}", _moved(definition, names)) for name, definition in found.items())
    return _moved({key: value for key, value in schema.items() if key not in _DEFINING}, names)


def _moved(value: Any, names: Mapping[str, str]) -> Any:
    """A copy in which references point to where the definitions went."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        moved = {key: _moved(item, names) for key, item in fields.items()}
        if (name := names.get(str(fields.get("$ref")))) is not None:
            moved["$ref"] = f"#/$defs/{name}"
        return moved
    return [_moved(item, names) for item in cast("list[Any]", value)] if isinstance(value, list) else value


def _described(tools: Sequence[Tool]) -> str:
    """The tools and the form of an answer, in words."""
    lines = [
        "You can use tools. Answer with one JSON object and nothing else:",
        f'- to use a tool: {{"{_TOOL}": NAME, "{_ARGUMENTS}": {{…}}}}. You then get its result.',
        f'- to answer the user: {{"{_REPLY}": …}}.',
        "",
        "The tools, each with the JSON Schema of its arguments:",
    ]
    for tool in tools:
        description = f": {tool.description}" if tool.description else ""
        lines += [f"- {tool.name}{description}", f"  {_strict.encode(clean(dict(tool.input_schema)))}"]
    return "\n".join(lines)


class ReplyText:
    """The text of a reply, out of a JSON answer that comes in pieces."""

    def __init__(self) -> None:
        self._pending = ""
        self._inside: bool | None = None  # None: it is not known yet whether this is a reply

    def add(self, piece: str) -> str:
        """Take the next piece. Returns what it adds to the reply; nothing for a call."""
        self._pending += piece
        if self._inside is None:
            begun = _BEGINNING.match(self._pending)
            if begun is None:
                return ""
            self._pending = self._pending[begun.end() :]
            self._inside = True
        if not self._inside:
            return ""
        whole = cast("re.Match[str]", _CHARACTERS.match(self._pending))
        self._pending = self._pending[whole.end() :]
        self._inside = not self._pending.startswith('"')
        # Each character is whole, so that nothing of it can be wrong but half a pair of surrogates.
        return clean_text(json.loads(f'"{whole[0]}"', strict=False)) if whole[0] else ""


_DEFINING = ("$defs", "definitions")
_BEGINNING = re.compile(r'\s*\{\s*"reply"\s*:\s*"')
_CHARACTERS = re.compile(
    r"""(?: [^"\\] | \\["\\/bfnrt]
    | \\u[dD][89abAB][0-9a-fA-F]{2} \\u[0-9a-fA-F]{4}
    | \\u(?![dD][89abAB])[0-9a-fA-F]{4} )*""",
    re.VERBOSE,
)
"""Whole characters of a JSON string: an escape of the first half of a pair only with its second."""
