"""How a run waits for a person: what is asked, what is answered, and what an answer means for the call that waits.

A call waits because its tool called `suspend`, because it needs approval, or because nobody knows whether it ran. What
is asked stands in the transcript, in a placeholder for the call's result, so that it survives the process.
"""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NoReturn, NotRequired, TypeAlias, TypedDict, cast

from toolnexus import _strict
from toolnexus.errors import ConfigurationError
from toolnexus.messages import INTERRUPTED, WAITING, copy_json
from toolnexus.tools import ToolResult

if TYPE_CHECKING:
    from datetime import datetime

    from toolnexus.messages import ToolMessage
    from toolnexus.tools import JSONObject, Tool, ToolContext


class Request(TypedDict):
    """What a person is asked. Plain JSON: it may be stored, sent and shown anywhere."""

    id: str
    """What the answer names. Not the same for any two requests."""
    kind: str
    """`approval` and `retry` (may this call run, again?) are asked by the library and have `data` `{"tool",
    "arguments"}`; any other word is the tool's own."""
    prompt: str
    """What to show."""
    url: NotRequired[str]
    """Where to send the person, to log in somewhere for example."""
    data: NotRequired[Any]
    """What a program may need to know."""
    expiresAt: NotRequired[str]
    """RFC 3339. From then on the request counts as declined."""


class Answer(TypedDict):
    """What a person said. Plain JSON."""

    id: str
    """The request's id."""
    ok: bool
    """Whether the call may go on. If not, its tool is not called, and the model is told the reason."""
    data: NotRequired[Any]
    """For the tool, as `ctx.answer["data"]`. For an approval, `{"arguments": {…}}` replaces the call's arguments."""
    reason: NotRequired[str]
    """Why not."""


WaitFor: TypeAlias = Callable[[Request], "Answer | Awaitable[Answer | None] | None"]
Approval: TypeAlias = "Callable[[Tool, JSONObject], bool | Awaitable[bool]]"


class Suspension(BaseException):
    """Raised by `suspend`. Not an `Exception`, so that a tool that handles its own errors does not handle this one."""

    def __init__(self, asked: Mapping[str, Any]) -> None:
        super().__init__(asked["prompt"])
        self.asked = asked


def suspend(
    kind: str, prompt: str, *, url: str | None = None, data: Any = None, expires_at: datetime | str | None = None
) -> NoReturn:
    """Let the call that runs wait for a person. To be called inside a tool, coroutine or plain.

    The tool ends here. Once the request is answered with `ok`, it is called once more with the same arguments and
    `ctx.answer`, perhaps in another process; declined, it is not called again.

    Args:
        kind: A word of yours for what is asked, for whoever shows it.
        prompt: What to show.
        url: Where to send the person.
        data: JSON data for whoever shows it.
        expires_at: When it is too late to answer: an aware `datetime`, or RFC 3339 text. None: never.

    Raises:
        ConfigurationError: `data` is no JSON, or `expires_at` no point in time. It becomes the call's error.
    """
    asked: dict[str, Any] = {"kind": kind, "prompt": prompt}
    if url is not None:
        asked["url"] = url
    if data is not None:
        asked["data"] = plain(data, "data")
    if expires_at is not None:
        asked["expiresAt"] = _point_in_time(expires_at)
    raise Suspension(asked)


def plain(value: Any, what: str) -> Any:
    """An independent copy of JSON data.

    Raises:
        ConfigurationError: It is something else.
    """
    try:
        return _strict.decode(_strict.encode(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"{what} is no JSON data: {error}.") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """How a run asks people.

    Attributes:
        approval: Whether a call needs approval, beside the tools that are marked. None: only those do.
        wait_for: Asks a person. None: the turn ends, and waits.
        now: Seconds since the epoch.
    """

    approval: Approval | None
    wait_for: WaitFor | None
    now: Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A call that waits, and the arguments that it goes on with: hooks and approval are not asked about it again."""

    request: Request
    arguments: JSONObject


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """A call that may run. `answer` is what its tool is told: None for one that was approved and asked nothing."""

    arguments: JSONObject
    answer: Answer | None


def asked_by_tool(asked: Mapping[str, Any], turn_id: str) -> Request:
    """The request of a tool that suspended itself."""
    return cast("Request", {"id": _request_id(turn_id, "tool"), **asked})


def asked_by_policy(kind: Literal["approval", "retry"], context: ToolContext, arguments: JSONObject) -> Request:
    """The request for a call that may not run without a person's consent."""
    name = context.tool
    prompt = f"Allow {name} to run?" if kind == "approval" else f"{name} may have run already. Run it again?"
    data = {"tool": name, "arguments": copy_json(arguments)}
    return {"id": _request_id(context.turn_id, "policy"), "kind": kind, "prompt": prompt, "data": data}


def placeholder(call_id: str, waiting: Waiting, called_with: JSONObject | str) -> ToolMessage:
    """What stands for the result of a call that waits.

    Args:
        called_with: The arguments that the model gave. Others are kept.
    """
    request = copy_json(waiting.request)
    if is_retry(request):
        return {"role": "tool", "tool_call_id": call_id, "content": INTERRUPTED, "is_error": True, "request": request}
    message: ToolMessage = {"role": "tool", "tool_call_id": call_id, "content": WAITING, "request": request}
    if not is_policy(request) and waiting.arguments != called_with:
        message["arguments"] = copy_json(waiting.arguments)
    return message


def kept(message: ToolMessage, called_with: JSONObject) -> Waiting | None:
    """What a placeholder says. None: the message is none."""
    given = message.get("request")
    if not isinstance(given, Mapping):
        return None
    request = cast("Request", given)
    if not all(isinstance(request.get(name), str) for name in ("id", "kind", "prompt")):
        return None
    chosen = _arguments_in(request) if is_policy(request) else message.get("arguments")
    return Waiting(request=request, arguments=called_with if chosen is None else chosen)


def answered(waiting: Waiting, answer: Answer | None, *, now: float) -> Granted | ToolResult | None:
    """What becomes of a call: it may run, or has a result without running. None: it goes on waiting."""
    request = waiting.request
    if (left := seconds_left(request, now=now)) is not None and left <= 0:
        return _failed("declined: the request expired")
    if answer is None:
        return None
    if not answer["ok"]:
        return _declined(request, answer.get("reason", ""))
    if not is_policy(request):
        return Granted(arguments=waiting.arguments, answer=answer)
    chosen = _arguments_in(answer)
    return Granted(arguments=waiting.arguments if chosen is None else chosen, answer=None)


def _arguments_in(said: Request | Answer) -> JSONObject | None:
    """The arguments that a request shows, or an answer puts in their place. None: there are none."""
    data = said.get("data")
    arguments = cast("dict[str, Any]", data).get("arguments") if isinstance(data, dict) else None
    return cast("JSONObject", arguments) if isinstance(arguments, dict) else None


def _declined(request: Request, reason: str) -> ToolResult:
    if is_retry(request):
        return _failed(INTERRUPTED)
    word = "denied" if is_policy(request) else "declined"
    return _failed(f"{word}: {reason}" if reason else word)


def _failed(reason: str) -> ToolResult:
    return ToolResult(output=reason, is_error=True)


def read_answers(answers: Iterable[Mapping[str, Any]] | None) -> dict[str, Answer]:
    """Answers by the id of their request.

    Raises:
        ConfigurationError: One cannot be read, or two are for one request.
    """
    if isinstance(answers, Mapping | str | bytes):
        raise ConfigurationError("answers is one value; expected a list of answers such as {'id': '…', 'ok': True}.")
    read: dict[str, Answer] = {}
    for position, given in enumerate(answers or ()):
        answer = read_answer(given, f"answers[{position}]")
        if answer["id"] in read:
            raise ConfigurationError(f"answers[{position}] is a second answer to the request {answer['id']!r}.")
        read[answer["id"]] = answer
    return read


def read_answer(given: object, where: str) -> Answer:
    """An independent copy of an answer.

    Raises:
        ConfigurationError: It is none. In doubt nothing counts as consent.
    """
    fields = cast("dict[str, Any]", plain(dict(given), where)) if isinstance(given, Mapping) else {}  # pyright: ignore[reportUnknownArgumentType]
    if not isinstance(fields.get("id"), str) or not isinstance(fields.get("ok"), bool):
        raise ConfigurationError(
            f"{where} is {given!r:.200}; expected {{'id': the request's id, 'ok': True or False, 'data'?, 'reason'?}}."
        )
    if not isinstance(fields.get("reason", ""), str):
        raise ConfigurationError(f"{where} has a reason that is no text: {fields['reason']!r:.200}.")
    if isinstance(fields.get("data"), dict) and not isinstance(fields["data"].get("arguments", {}), dict):
        raise ConfigurationError(f"{where} has arguments that are no object: {fields['data']['arguments']!r:.200}.")
    return cast("Answer", fields)


def seconds_left(request: Request, *, now: float) -> float | None:
    """How long the request can still be answered. None: for ever, as far as anybody said."""
    expires = request.get("expiresAt")
    if expires is None:
        return None
    from datetime import datetime  # only few requests expire

    try:
        return datetime.fromisoformat(_point_in_time(expires)).timestamp() - now
    except ConfigurationError:  # somebody else wrote it, and in doubt it is too late
        return 0.0


# Whoever resumes a turn has its transcript, and on a store of two methods nothing else: so the id of a request says
# which turn it belongs to, and whether the call has run before.
_ID = re.compile(r"(?s:(?P<turn>.*))\.(?P<by>[pt])[0-9a-f]{16}")


def _request_id(turn_id: str, by: Literal["policy", "tool"]) -> str:
    return f"{turn_id}.{by[0]}{os.urandom(8).hex()}"


def turn_of(request_id: str) -> str | None:
    """The turn that a request belongs to. None: the id is not one of ours."""
    found = _ID.fullmatch(request_id)
    return found["turn"] if found else None


def is_policy(request: Request) -> bool:
    """Whether the library asks, before the tool runs; otherwise its tool does."""
    found = _ID.fullmatch(request["id"])
    return found is not None and found["by"] == "p"


def is_retry(request: Request) -> bool:
    """Whether the request is about a call of which nobody knows whether it ran."""
    return request["kind"] == "retry" and is_policy(request)


def _point_in_time(value: datetime | str) -> str:
    from datetime import UTC, datetime

    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError as error:
        expected = "RFC 3339, such as 2030-01-31T12:00:00Z"
        raise ConfigurationError(f"expires_at is {value!r:.100}; expected {expected}.") from error
    if moment.tzinfo is None:
        raise ConfigurationError(f"expires_at is {value!r:.100}, without a time zone.")
    return value if isinstance(value, str) else moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
