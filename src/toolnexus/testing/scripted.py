"""A model without a mind: it answers from a script, so that tests of an agent always see the same conversation."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, cast

from toolnexus.messages import copy_messages, text_of

Request: TypeAlias = dict[str, Any]
"""`{"messages": […], "tools": […], "model": "…"}`, as `generate` gets it."""

_PIECE = re.compile(r"\s*\S+|\s+")
"""A word with the white space before it: what one delta carries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a tool gave back. `name` is the tool's; `arguments` is the JSON text that it was called with."""

    name: str
    arguments: str
    output: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What a rule or a function answers to.

    Attributes:
        prompt: The text of the last user message.
        results: What the tools of the last step gave back, in call order. Empty: the user has spoken last.
        match: Where a rule's pattern was found. None: the rule has none.
        request: All that the model got.
    """

    prompt: str
    results: tuple[Result, ...]
    match: re.Match[str] | None
    request: Request

    def __getitem__(self, group: int | str) -> str:
        """The text of a group of the rule's pattern; empty if it took no part."""
        return (self.match and self.match[group]) or ""


Answer: TypeAlias = "str | Mapping[str, Any] | Exception | Callable[[Heard], Answer | Awaitable[Answer]]"
"""A text; a reply `{"content"?, "tool_calls"?, "usage"?}`; an error, which is raised; or a function that gives one."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Gives `answer` to whatever `applies`. Make one with `said` or `returned`."""

    applies: Callable[[Heard], re.Match[str] | bool | None]
    answer: Answer


def said(pattern: str | Callable[[str], object], answer: Answer) -> Rule:
    """A rule for a user's prompt.

    Args:
        pattern: A regular expression, searched for in the prompt without regard to case, or a predicate on it.
    """
    if callable(pattern):
        return Rule(lambda heard: not heard.results and bool(pattern(heard.prompt)), answer)
    find = re.compile(pattern, re.IGNORECASE).search
    return Rule(lambda heard: None if heard.results else find(heard.prompt), answer)


def returned(tool: str, answer: Answer) -> Rule:
    """A rule for tool results: one of those that just came back is of `tool`. Empty: any tool."""
    return Rule(lambda heard: any(tool in ("", result.name) for result in heard.results), answer)


def call(tool: str, /, **arguments: Any) -> dict[str, Any]:
    """One entry of `tool_calls`."""
    return {"name": tool, "arguments": arguments}


class ScriptedModel:
    """A deterministic model for `create_in_process_client(generate=…)`.

    It answers either from a sequence, one answer a request:

        model = ScriptedModel([{"tool_calls": [call("add", a=2, b=3)]}, "It is 5."])
        client = create_in_process_client(model="scripted", generate=model)
        result = await client.run("What is 2 + 3?", [add])
        assert model.requests[1]["messages"][-1]["content"] == "5"
        model.assert_finished()

    or from rules, of which the first that applies answers:

        ScriptedModel(
            rules=[
                said(r"add (\\d+) to (\\d+)", lambda heard: {"tool_calls": [call("add", a=heard[1], b=heard[2])]}),
                returned("add", lambda heard: f"It is {heard.results[-1].output}."),
                said("", "I can add."),
            ]
        )

    Text is streamed word by word. A request that nothing answers fails its run, and `assert_finished` as well, should
    the code under test have hidden that failure.

    Args:
        answers: One for each request, in order.
        rules: Instead of `answers`.
        pace: Seconds between two pieces of text.

    Attributes:
        requests: What the model got, oldest first: `{"messages", "tools", "model"}`, each as it was then.
    """

    def __init__(self, answers: Iterable[Answer] = (), *, rules: Sequence[Rule] = (), pace: float = 0.0) -> None:
        if isinstance(answers, str | Mapping):
            raise TypeError("Give the answers as a list, even one: ScriptedModel(['hello']).")
        self.requests: list[Request] = []
        self._answers = list(answers)
        self._rules = tuple(rules)
        self._pace = pace
        self._used = 0
        self._unanswered: list[str] = []
        if self._answers and self._rules:
            raise ValueError("Give answers or rules, not both.")

    async def __call__(self, request: Request) -> AsyncIterator[str | dict[str, Any]]:
        """Answer one request: pieces of text, then the reply."""
        self.requests.append({**request, "messages": copy_messages(request["messages"])})
        reply = await self._reply(request)
        if content := reply.get("content"):
            for piece in _PIECE.findall(content):
                yield piece
                if self._pace:
                    await asyncio.sleep(self._pace)
        yield reply

    def assert_finished(self) -> None:
        """Fail if a request was not answered, or an answer of the sequence was not asked for."""
        if self._unanswered:
            raise AssertionError(self._unanswered[0])
        if left := len(self._answers) - self._used:
            raise AssertionError(f"The script has {left} more answers, next {self._answers[self._used]!r}.")

    async def _reply(self, request: Request) -> dict[str, Any]:
        heard = _heard(request)
        if self._rules:
            answer, heard = self._by_rule(heard)
        elif self._used < len(self._answers):
            answer = self._answers[self._used]
            self._used += 1
        else:
            count = len(self._answers)
            raise self._no_answer(f"the script has {count} {'answer' if count == 1 else 'answers'}", heard)
        value: object = answer
        while callable(value):
            value = value(heard)
            if inspect.isawaitable(value):
                value = await value
        if isinstance(value, Exception):
            raise value
        return {"content": value} if isinstance(value, str) else dict(cast("Mapping[str, Any]", value))

    def _by_rule(self, heard: Heard) -> tuple[Answer, Heard]:
        for rule in self._rules:
            if found := rule.applies(heard):
                return rule.answer, replace(heard, match=found if isinstance(found, re.Match) else None)
        raise self._no_answer("no rule applies", heard)

    def _no_answer(self, why: str, heard: Heard) -> AssertionError:
        last = f"results of {[result.name for result in heard.results]}" if heard.results else f"{heard.prompt!r}"
        problem = f"ScriptedModel has no answer to request {len(self.requests)} ({last}): {why}."
        self._unanswered.append(problem)
        return AssertionError(problem)


def _heard(request: Request) -> Heard:
    messages: list[dict[str, Any]] = request["messages"]
    prompt = next((text_of(m.get("content")) for m in reversed(messages) if m["role"] == "user"), "")
    after = len(messages)
    while after and messages[after - 1]["role"] == "tool":
        after -= 1
    asked = messages[after - 1].get("tool_calls", ()) if 0 < after < len(messages) else ()
    functions = {entry["id"]: entry["function"] for entry in asked}
    return Heard(
        prompt=prompt, results=tuple(_result(m, functions) for m in messages[after:]), match=None, request=request
    )


def _result(message: Mapping[str, Any], functions: Mapping[str, Mapping[str, str]]) -> Result:
    function = functions[message["tool_call_id"]]
    return Result(name=function["name"], arguments=function["arguments"], output=text_of(message["content"]))
