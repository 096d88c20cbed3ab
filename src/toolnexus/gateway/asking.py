"""What a suspended call asks a person, as MCP asks a client, and what the client answers. Pure.

A request of the kind `sampling` asks the client's model, and its `data` are the `params` of `sampling/createMessage`;
one of the kind `roots` asks for its folders. Any other is for a person. One whose `data` are `{"questions": {name:
request}}` asks several things at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from toolnexus.suspension import is_policy

if TYPE_CHECKING:
    from toolnexus.suspension import Answer, Request
    from toolnexus.tools import JSONObject

_ELICIT, _SAMPLE, _ROOTS = "elicitation/create", "sampling/createMessage", "roots/list"
_CAPABILITIES = {_ELICIT: "elicitation", _SAMPLE: "sampling", _ROOTS: "roots"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One thing that a client is asked.

    Attributes:
        request: What our request, or the part of it, says.
    """

    method: str
    params: JSONObject
    request: Mapping[str, Any]

    @property
    def capability(self) -> str:
        """What the client has to have declared."""
        return _CAPABILITIES[self.method]


def questions(request: Request) -> dict[str, Question]:
    """What a request asks, by a name for each."""
    if (several := _several(request)) is not None:
        return {str(name): _question(_object(each), request["id"]) for name, each in several.items()}
    return {request["kind"]: _question(request, request["id"], is_approval=is_policy(request))}


def _several(request: Mapping[str, Any]) -> Mapping[str, Any] | None:
    asked = _object(_object(request.get("data")).get("questions"))
    return asked or None


def _question(request: Mapping[str, Any], identity: str, *, is_approval: bool = False) -> Question:
    data = request.get("data")
    match request.get("kind"):
        case "sampling":
            return Question(method=_SAMPLE, params=dict(_object(data)), request=request)
        case "roots":
            return Question(method=_ROOTS, params={}, request=request)
        case _:
            pass
    prompt = str(request.get("prompt", ""))
    if isinstance(url := request.get("url"), str):
        asked: JSONObject = {"mode": "url", "message": prompt, "url": url, "elicitationId": identity}
    else:
        asked = {"mode": "form", "message": prompt, "requestedSchema": _NOTHING if is_approval else _schema(data)}
    return Question(method=_ELICIT, params=asked, request=request)


_NOTHING: JSONObject = {"type": "object", "properties": {}}
_ANY_TEXT: JSONObject = {"type": "object", "properties": {"answer": {"type": "string", "title": "Your answer"}}}


def _schema(data: Any) -> JSONObject:
    """The form that a person fills in."""
    schema = _object(data).get("schema")
    if isinstance(schema, Mapping):
        return {"type": "object", "properties": {}, **cast("Mapping[str, Any]", schema)}
    listed = _listed(data)
    if listed is None:
        return _ANY_TEXT
    return {"type": "object", "properties": {_field(place): _one(each) for place, each in enumerate(listed)}}


def _listed(data: Any) -> list[Mapping[str, Any]] | None:
    """The questions of the tool `question`."""
    listed = _object(data).get("questions")
    return [_object(each) for each in cast("list[Any]", listed)] if isinstance(listed, list) else None


def _field(place: int) -> str:
    return f"answer_{place + 1}"


def _one(question: Mapping[str, Any]) -> JSONObject:
    title = {"title": str(question["header"])} if question.get("header") else {}
    about: JSONObject = {**title, "description": str(question.get("question", ""))}
    options = [str(option) for option in question.get("options") or ()]
    if question.get("multiple"):
        return {**about, "type": "array", "items": {"type": "string", "enum": options}}
    return {**about, "type": "string", **({"enum": options} if options else {})}


def can_be_asked(question: Question, capabilities: Mapping[str, Any]) -> bool:
    """Whether a client that declared these capabilities can be asked that."""
    declared = capabilities.get(question.capability)
    if not isinstance(declared, Mapping):
        return False
    if question.method == _ELICIT and question.params["mode"] == "url":
        return "url" in declared
    return question.method != _ELICIT or "form" in declared or "url" not in declared


def for_machines(asked: Mapping[str, Question]) -> bool:
    """Whether nothing of it is for a person."""
    return all(question.method != _ELICIT for question in asked.values())


def is_answer(question: Question, result: Mapping[str, Any]) -> bool:
    """Whether what a client sent can be the answer to a question."""
    match question.method:
        case "elicitation/create":
            return result.get("action") in ("accept", "decline", "cancel")
        case "sampling/createMessage":
            return "content" in result and "role" in result
        case _:
            return isinstance(result.get("roots"), list)


def answer(request: Request, asked: Mapping[str, Question], results: Mapping[str, Mapping[str, Any]]) -> Answer:
    """The answer to a request.

    Args:
        asked: What of it the client was asked.
        results: What it answered to each.
    """
    for name, question in asked.items():
        action = results[name].get("action") if question.method == _ELICIT else "accept"
        if action != "accept":
            return {"id": request["id"], "ok": False, "reason": "" if action == "decline" else "nobody answered"}
    values = {name: _value(question, results[name]) for name, question in asked.items()}
    if _several(request) is None:
        [value] = values.values()
        return {"id": request["id"], "ok": True, "data": value}
    return {"id": request["id"], "ok": True, "data": {"answers": values}}


def _value(question: Question, result: Mapping[str, Any]) -> Any:
    """What the tool is told."""
    if question.method != _ELICIT:
        return {key: value for key, value in result.items() if key not in ("_meta", "resultType")}
    content = dict(_object(result.get("content")))
    data = question.request.get("data")
    if question.params["mode"] == "url" or question.params["requestedSchema"] is _NOTHING:
        return None
    if question.params["requestedSchema"] is _ANY_TEXT:
        return content.get("answer")
    if (listed := _listed(data)) is not None:
        return {"answers": [content.get(_field(place)) for place in range(len(listed))]}
    return content


def refusal(request: Request, asked: Mapping[str, Question]) -> str:
    """What a client is told whose person cannot be asked."""
    needed = " and ".join(sorted({question.capability for question in asked.values()}))
    where = f" ({request['url']})" if "url" in request else ""
    return (
        f"This call needs an answer first: {request['prompt']}{where}\n"
        f"It was not asked, because this client does not declare the capability for it: {needed}."
    )


def _object(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
