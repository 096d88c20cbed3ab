"""What a server asks back while it works: a person (elicitation), a model (sampling), or which folders there are.

Nothing is offered to a server that the host has nobody for.
"""

from __future__ import annotations

import inspect
import logging
import os
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from toolnexus.suspension import Answer, Request, WaitFor, plain, read_answer, suspend

if TYPE_CHECKING:
    from toolnexus.tools import JSONObject

Sampling: TypeAlias = Callable[[str, "JSONObject"], "JSONObject | Awaitable[JSONObject]"]
"""Gets a server's name and the `params` of `sampling/createMessage`; gives its result: `role`, `content`, `model`."""

Roots: TypeAlias = "Iterable[str | os.PathLike[str]] | Callable[[], Iterable[str | os.PathLike[str]]]"
"""The folders that servers are told of, or a function that says which. A text with `://` in it is a URI."""

_log = logging.getLogger("toolnexus")

_ELICIT = "elicitation/create"


class Asked:
    """Answers what one server asks back.

    Args:
        wait_for: Asks a person. None: nobody can be asked while the server waits.
        sampling: Asks a model. None: there is none for servers.
        roots: None: servers are not told.
    """

    def __init__(
        self,
        server: str,
        *,
        wait_for: WaitFor | None = None,
        sampling: Sampling | None = None,
        roots: Roots | None = None,
    ) -> None:
        self._server = server
        self._wait_for = wait_for
        self._sampling = sampling
        self._roots = roots

    def capabilities(self, *, modern: bool) -> dict[str, Any]:
        """What a server may ask for. In the new protocol a call ends with its questions, and is made again with the
        answers: then there is always somebody to ask, as the run can wait.
        """
        able: dict[str, Any] = {}
        if self._wait_for is not None or modern:
            able["elicitation"] = {"form": {}, "url": {}}
        if self._sampling is not None:
            able["sampling"] = {}
        if self._roots is not None:
            able["roots"] = {}
        return able

    def knows(self, method: str) -> bool:
        """Whether a request of a server is answered."""
        match method:
            case _ if method == _ELICIT:
                return True  # one that was not offered is declined
            case "sampling/createMessage":
                return self._sampling is not None
            case "roots/list":
                return self._roots is not None
            case _:
                return False

    async def answer(self, method: str, params: Mapping[str, Any]) -> JSONObject:
        """The answer to a request that is known."""
        if method == "sampling/createMessage" and self._sampling is not None:
            found = self._sampling(self._server, dict(params))
            return dict(await found if inspect.isawaitable(found) else found)
        if method == "roots/list" and self._roots is not None:
            roots = self._roots() if callable(self._roots) else self._roots
            return {"roots": [_root(each) for each in roots]}
        return await self._elicit(params)

    async def _elicit(self, params: Mapping[str, Any]) -> JSONObject:
        if self._wait_for is None or _leads_astray(params):
            why = "there is nobody here to ask" if self._wait_for is None else "it names an address that is none"
            _log.warning("MCP server %r asks for something, which was declined: %s.", self._server, why)
            return {"action": "decline"}
        request = cast("Request", {"id": f"mcp.{secrets.token_hex(8)}", **question(self._server, params)})
        answer = self._wait_for(request)
        if inspect.isawaitable(answer):
            answer = await answer
        if answer is None:
            return {"action": "cancel"}
        return response(params, read_answer(answer, "the answer of wait_for"))

    async def round(self, requests: Mapping[str, Any], answer: Answer | None) -> JSONObject:
        """The answers to all that a call ended with.

        Args:
            answer: What a person said to the request that the call suspended with. None: nobody was asked yet.

        Raises:
            Suspension: Somebody has to be asked, and nobody can be while the call waits.
        """
        questions = {key: _object(each) for key, each in requests.items()}
        for_people = {key: _params(each) for key, each in questions.items() if each.get("method") == _ELICIT}
        answers: JSONObject = {
            key: {"action": "decline"} for key, params in for_people.items() if _leads_astray(params)
        }
        for_people = {key: params for key, params in for_people.items() if key not in answers}
        if for_people and self._wait_for is None:
            if answer is None:
                self._suspend(for_people)
            answers |= _given(for_people, answer)
        for key, each in questions.items():
            method = str(each.get("method"))
            if key in answers:
                continue
            if not self.knows(method):
                raise UnknownQuestion(f"it asks for {method!r:.60}, which nobody here can answer")
            answers[key] = await self.answer(method, _params(each))
        return answers

    def _suspend(self, asked: Mapping[str, Mapping[str, Any]]) -> None:
        questions = {key: question(self._server, params) for key, params in asked.items()}
        first = next(iter(questions.values()))
        if len(questions) == 1:
            suspend("elicitation", first["prompt"], url=first.get("url"), data=first["data"])
        prompt = "\n\n".join(each["prompt"] for each in questions.values())
        url = next((each["url"] for each in questions.values() if "url" in each), None)
        suspend("elicitation", prompt, url=url, data={"server": self._server, "questions": questions})


class UnknownQuestion(Exception):
    """A server asks for what it was not offered."""


def question(server: str, params: Mapping[str, Any]) -> JSONObject:
    """What a person is asked: `kind`, `prompt`, `data`, and for what is done elsewhere `url`."""
    message = params.get("message")
    text = message if isinstance(message, str) and message else "It needs to know something."
    schema = params.get("requestedSchema")
    data: JSONObject = {"server": server, "mode": "form", "schema": plain(schema, "requestedSchema")}
    asked: JSONObject = {"kind": "elicitation", "prompt": f"{server} asks: {text}", "data": data}
    if (url := params.get("url")) is not None:
        asked["url"] = url
        data.update(mode="url", schema=None)
    return asked


def response(params: Mapping[str, Any], answer: Answer) -> JSONObject:
    """What a server is told of a person's answer. Its `data` are the values, by the names in the schema; what is not
    among them has the schema's default.
    """
    if not answer["ok"]:
        return {"action": "decline"}
    if params.get("url") is not None:
        return {"action": "accept"}
    properties = _object(_object(params.get("requestedSchema")).get("properties"))
    usual = {name: each["default"] for name, each in properties.items() if "default" in _object(each)}
    return {"action": "accept", "content": {**usual, **_object(answer.get("data"))}}


def _given(asked: Mapping[str, Mapping[str, Any]], answer: Answer | None) -> JSONObject:
    if answer is None:
        return {}
    several = _object(_object(answer.get("data")).get("answers")) if len(asked) > 1 else None
    return {
        key: response(params, answer if several is None else cast("Answer", {**answer, "data": several.get(key)}))
        for key, params in asked.items()
    }


def _leads_astray(params: Mapping[str, Any]) -> bool:
    """Whether a person would be sent to what is no place in the web."""
    url = params.get("url")
    return url is not None and not (isinstance(url, str) and url.lower().startswith(("http://", "https://")))


def _params(request: Mapping[str, Any]) -> Mapping[str, Any]:
    return _object(request.get("params"))


def _object(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _root(place: str | os.PathLike[str]) -> JSONObject:
    text = os.fspath(place)
    if "://" in text:
        return {"uri": text}
    path = Path(text).absolute()
    return {"uri": path.as_uri(), "name": path.name}
