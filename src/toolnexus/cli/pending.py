"""A turn that waits for a person: what it waits for, how that is answered by a command, what a command's answer is.

Pure.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

from toolnexus.cli.approvals import answered, arguments_of, denied, granted, tool_of
from toolnexus.cli.stores import place
from toolnexus.errors import ConfigurationError

if TYPE_CHECKING:
    from toolnexus import Message
    from toolnexus.cli.settings import Settings
    from toolnexus.stores.backend import LogSlice
    from toolnexus.stores.log import Log
    from toolnexus.suspension import Answer, Request

Left = Literal["", "waiting", "cut off"]
"""How a conversation was left: its last turn ended, waits for a person, or acted and lost its process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What a command answers with.

    Attributes:
        how: `approve`, `deny` or `answer`. None: nothing.
        text: The reason, or the answer.
        requests: The ids of those that are answered. Empty: all.
    """

    how: Literal["approve", "deny", "answer"] | None = None
    text: str = ""
    requests: tuple[str, ...] = ()

    def answers(self, waiting: Sequence[Request]) -> list[Answer]:
        """The answers to what waits.

        Raises:
            ConfigurationError: There is no such request, or this is no answer to it.
        """
        known = [request["id"] for request in waiting]
        if unknown := [each for each in self.requests if each not in known]:
            raise ConfigurationError(f"No request {unknown[0]!r} waits. These do: {', '.join(known) or 'none'}.")
        chosen = [request for request in waiting if not self.requests or request["id"] in self.requests]
        return [self._answer(request) for request in chosen]

    def _answer(self, request: Request) -> Answer:
        if self.how == "deny":
            return denied(request, self.text)
        if (self.how == "answer") == bool(tool_of(request)):
            wanted = "--approve or --deny" if tool_of(request) else "--answer TEXT or --deny"
            raise ConfigurationError(f"{_what(request)!r} is answered with {wanted}.")
        return answered(request, self.text) if self.how == "answer" else granted(request)


def history(log: Log) -> Sequence[Message]:
    """A conversation's messages, and those of a turn that has not ended yet."""
    return log.messages if log.open is None else [*log.messages, *log.open.closed()]


def left(log: Log, seen: LogSlice) -> Left:
    """How a conversation was left."""
    if log.open is not None:
        gone = seen.lease is None or seen.lease.left <= 0
        return "cut off" if gone and log.open.acted else ""
    if waiting(log):
        return "waiting"
    last = log.turns[-1] if log.turns else None
    if last is None or last.status != "interrupted" or not last.count:
        return ""
    return "cut off" if last.outcome.get("error", {}).get("kind") == "owner_gone" else ""


def waiting(log: Log) -> list[Request]:
    """What the calls at the end of a conversation wait for."""
    found: list[Request] = []
    for message in reversed(log.messages if log.open is None else ()):
        if message["role"] != "tool":
            break
        if request := message.get("request"):
            found.insert(0, cast("Request", request))
    return found


def how_to(
    conversation_id: str, requests: Sequence[Request], settings: Settings, environ: Mapping[str, str]
) -> Iterator[str]:
    """Lines that say what waits, and the commands that answer it."""
    several = len(requests) > 1
    for request in requests:
        yield f"Waiting: {_what(request)}" + (f" [{request['id']}]" if several else "")
        if url := request.get("url"):
            yield f"  {url}"
    yield f"Conversation: {conversation_id}"
    tools = [bool(tool_of(request)) for request in requests]
    answers = [("--approve",)] * any(tools) + [("--answer", "TEXT")] * (not all(tools)) + [("--deny", "REASON")]
    for answer in answers:
        yield _command(conversation_id, settings, environ, *answer)
    if several:
        yield "All of them are answered alike, or with --request ID only those that are named."


def _what(request: Request) -> str:
    """What a request is about, on one line; all of it, because nobody can consent to what was cut off."""
    if tool := tool_of(request):
        run_before = ", which may have run already" if request["kind"] == "retry" else ""
        return f"{tool} {json.dumps(arguments_of(request), ensure_ascii=False)}{run_before}"
    return request["prompt"]


def _command(conversation_id: str, settings: Settings, environ: Mapping[str, str], *answer: str) -> str:
    """The command that continues a conversation on the model and the store that it began with, as text for a shell."""
    given = (
        ("--model", settings.model, "TOOLNEXUS_MODEL"),
        ("--base-url", settings.base_url, "TOOLNEXUS_BASE_URL"),
        ("--style", settings.style, "TOOLNEXUS_STYLE"),
        ("--system", settings.system, ""),
        ("--store", settings.store, "TOOLNEXUS_STORE"),
    )
    options = [
        word
        for flag, value, variable in given
        if value and value != environ.get(variable)
        for word in (flag, _SHOWN.get(flag, str)(value))
    ]
    name = ["--", conversation_id] if conversation_id.startswith("-") else [conversation_id]
    words = [*options, *answer, *name] if len(name) > 1 else [*name, *options, *answer]
    return f"  {shlex.join(['toolnexus', 'resume', *words])}"


# What may be secret in a URL is left out.
_SHOWN: Mapping[str, Callable[[str], str]] = {
    "--base-url": lambda url: re.sub(r"(?<=://)[^/@]*@", "", url),
    "--store": place,
}
