"""A turn that waits for a person: what it waits for, how that is answered by a command, what a command's answer is.

Pure.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

from toolnexus.cli.approvals import answered, arguments_of, denied, granted, replied, tool_of
from toolnexus.cli.exits import Misused
from toolnexus.cli.questions import questions_of, read_all
from toolnexus.cli.stores import place
from toolnexus.messages import INTERRUPTED

if TYPE_CHECKING:
    from toolnexus import Message
    from toolnexus.cli.settings import Settings
    from toolnexus.stores.backend import LogSlice
    from toolnexus.stores.log import Log
    from toolnexus.suspension import Answer, Request


class Left(NamedTuple):
    """How a conversation was left.

    Attributes:
        how: Its last turn ended, waits for a person, or was stopped while a tool ran that may have acted.
        waiting: What it waits for.
        unknown: The tools of which nobody knows whether they ran.
    """

    how: Literal["", "waiting", "cut off"] = ""
    waiting: Sequence[Request] = ()
    unknown: Sequence[str] = ()


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
            Misused: There is no such request, or this is no answer to it.
        """
        known = [request["id"] for request in waiting]
        if unknown := [each for each in self.requests if each not in known]:
            raise Misused(f"No request {unknown[0]!r} waits. These do: {', '.join(known) or 'none'}.")
        chosen = [request for request in waiting if not self.requests or request["id"] in self.requests]
        return [self._answer(request) for request in chosen]

    def _answer(self, request: Request) -> Answer:
        if self.how == "deny":
            return denied(request, self.text)
        if (self.how == "answer") == bool(tool_of(request)):
            wanted = "--approve or --deny" if tool_of(request) else "--answer TEXT or --deny"
            raise Misused(f"{_what(request)!r} is answered with {wanted}.")
        if self.how != "answer":
            return granted(request)
        if not (questions := questions_of(request)):
            try:
                return answered(request, self.text)
            except ValueError as error:
                raise Misused(f"{_what(request)!r} asks for something else. {error}") from error
        if (answers := read_all(questions, self.text)) is None:
            wanted = json.dumps(["…"] * len(questions), ensure_ascii=False)
            raise Misused(f"{len(questions)} questions are answered with a JSON list: --answer '{wanted}'.")
        return replied(request, answers)


def history(log: Log) -> Sequence[Message]:
    """A conversation's messages, and those of a turn that has not ended yet."""
    return log.messages if log.open is None else [*log.messages, *log.open.closed()]


def left(log: Log, seen: LogSlice) -> Left:
    """How a conversation was left."""
    if log.open is not None:
        gone = seen.lease is None or seen.lease.left <= 0
        return Left("cut off", unknown=unknown(log)) if gone and log.open.acted else Left()
    if requests := waiting(log):
        return Left("waiting", waiting=requests)
    last = log.turns[-1] if log.turns else None
    if last is None or last.status != "interrupted" or not last.count:
        return Left()
    names = unknown(log)
    died = last.outcome.get("error", {}).get("kind") == "owner_gone"
    return Left("cut off", unknown=names) if names or died else Left()


def unknown(log: Log) -> list[str]:
    """The tools whose calls at the end of a conversation may have acted, or not: nobody knows."""
    turn = log.open or log.recorded
    acted = None if turn is None else {call for step, call in turn.effects - turn.harmless if step == turn.step}
    ids: set[str] = set()
    for message in reversed(history(log)):
        if message["role"] == "assistant":
            return [call["function"]["name"] for call in message.get("tool_calls", ()) if call["id"] in ids]
        if message["role"] != "tool":
            break
        call_id = message["tool_call_id"]
        if message.get("content") == INTERRUPTED and "retried" not in message and (acted is None or call_id in acted):
            ids.add(call_id)
    return []


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


def again(conversation_id: str, settings: Settings, environ: Mapping[str, str]) -> str:
    """The command that asks a person what a conversation waits for."""
    return _command(conversation_id, settings, environ).strip()


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
        if value and value != environ.get(variable) and not _from_file(flag, settings)
        for word in (flag, _SHOWN.get(flag, str)(value))
    ]
    options += _tools(settings)
    name = ["--", conversation_id] if conversation_id.startswith("-") else [conversation_id]
    words = [*options, *answer, *name] if len(name) > 1 else [*name, *options, *answer]
    return f"  {shlex.join(['toolnexus', 'resume', *words])}"


def _tools(settings: Settings) -> Iterator[str]:
    """The options that name tools, as they were given: a call that waits needs its tool again."""
    named = {"tools": "--tool", "skills": "--skill", "openapi": "--openapi"}
    chosen = [name for name, origin in settings.origins.items() if origin.layer == "flag"]
    for name, flag in named.items():
        for value in getattr(settings, name) if name in chosen else ():
            yield from (flag, value)
    if "builtins" in chosen:
        yield "--builtins" if settings.builtins else "--no-builtins"


def _from_file(flag: str, settings: Settings) -> bool:
    """Whether what an option sets comes from a configuration file, which the next command reads as well."""
    origin = settings.origins.get(flag.removeprefix("--").replace("-", "_"))
    return origin is not None and origin.file is not None


# What may be secret in a URL is left out.
_SHOWN: Mapping[str, Callable[[str], str]] = {
    "--base-url": lambda url: re.sub(r"(?<=://)[^/@]*@", "", url),
    "--store": place,
}
