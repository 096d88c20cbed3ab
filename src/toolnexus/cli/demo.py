"""The demo model: a script that talks, calls tools and remembers, so that everything can be seen without a key.

It is no AI, and says so.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime
from typing import Any, cast

from toolnexus import Message, ProviderError, tool
from toolnexus.testing.scripted import Heard, Result, ScriptedModel, call, returned, said

NAMES = ("demo", "demo:flaky")
PACE = 0.012
"""Seconds between two words, so that a person sees the answer being streamed."""

_SHOWN_LINES = 20
_MAX_DELAY = 3600.0


def speaker(history: Sequence[Message]) -> str | None:
    """The demo model that answered last in a conversation; None if it was another model, or none yet."""
    for message in reversed(history):
        if message["role"] == "assistant":
            model = message.get("origin", {}).get("model")
            return model if model in NAMES else None
    return None


@tool(read_only=True)
def add(a: int | float, b: int | float) -> int | float:
    """Add two numbers."""
    return a + b


@tool(read_only=True)
def current_time() -> str:
    """Tell the local date and time."""
    return datetime.now().astimezone().strftime("%A, %d %B %Y, %H:%M:%S %Z")


@tool(read_only=True)
def count_words(text: str) -> int:
    """Count the words of a text."""
    return len(text.split())


@tool
async def send_note(to: str, text: str, delay: float = 0.0) -> str:
    """Send a note to somebody, `delay` seconds from now. In this demo it arrives nowhere."""
    await asyncio.sleep(min(delay, _MAX_DELAY))
    return f"Sent to {to}: {text}"


TOOLS = (add, current_time, count_words, send_note)
"""Its own tools. For files, commands, questions and skills it calls those that everybody has."""


def generate(name: str, *, pace: float = 0.0) -> Callable[[dict[str, Any]], AsyncIterator[str | dict[str, Any]]]:
    """The engine of `demo`, or of `demo:flaky`, whose every request fails at first and may be retried."""
    model = scripted(pace=pace)
    return model if name == "demo" else _flaky(model)


def scripted(*, pace: float = 0.0) -> ScriptedModel:
    """The script. `pace` is in seconds a word."""
    return ScriptedModel(
        rules=[
            returned("", lambda heard: "\n\n".join(map(_told, heard.results))),
            said(_FACT, lambda heard: f"I will remember it: {_fact(heard.prompt)}.\n\nAsk me later what I know."),
            said(r"what do you (know|remember)|what(?:'s| is| are) my ", _what_i_know),
            said(r"what (did|have) I (say|said|tell|told|ask)", _what_you_said),
            said(r"\A\W*summari[sz]e", _summary),
            said(r"\Acount to (\d{1,9})", lambda heard: _counted(min(int(heard[1]), 10_000))),
            said(_calls, _called),
            said(r"\A\W*(help|hello|hi|hey|what can you)\b", f"I am a scripted demo, **no AI**.\n\n{_ABILITIES}"),
            said("", f"I am a scripted demo, no AI, and that is not in my script.\n\n{_ABILITIES}"),
        ],
        pace=pace,
    )


def _flaky(model: ScriptedModel) -> Callable[[dict[str, Any]], AsyncIterator[str | dict[str, Any]]]:
    failed = False

    async def flaky(request: dict[str, Any]) -> AsyncIterator[str | dict[str, Any]]:
        nonlocal failed
        failed = not failed
        if failed:
            raise ProviderError("demo:flaky is always overloaded at first.", kind="overloaded", retryable=True)
        async for piece in model(request):
            yield piece

    return flaky


_ABILITIES = """\
Try one of these:

- `remember that my favourite colour is teal`, and later `what do you know?` or `what did I ask?`
- `add 2 and 3 and tell me the time` calls two tools at once
- `count the words in the quick brown fox`
- `send a note to Ada: dinner at 8` asks you first; `in 30 seconds` before the colon lets it take that long
- `list the files`, `read the file README.md`, `search for "word"`
- `write "the first line" to notes.txt` and `replace "first" with "last" in notes.txt` show you the change first
- `run the command: ls -l` asks too, `ask me a question` waits for your answer
- `load the skill NAME`, where a folder with skills was given: `--skill DIR`
- `summarise` with a text after it, or through a pipe
- `count to 500`, and Ctrl-C to stop me

For a real model, set a key such as `OPENAI_API_KEY` or start a local server, and name it: `-m openai:gpt-5-mini`."""

_FACT = r"\A\W*(?:please )?remember(?: that)?[:,]? (?P<remember>.+)|\A\W*(?P<my>my .+? (?:is|are) .+)"
_NUMBER = r"(-?(?<!\d)\d{1,15}(?!\d)(?:\.\d{1,15}(?!\d))?)"  # bounded: a text of digits alone is no long search
_SUM = re.compile(
    rf"\b(?:add|sum of|sum) {_NUMBER} (?:and|to|with|plus) {_NUMBER}|{_NUMBER} ?(?:\+|plus) ?{_NUMBER}", re.IGNORECASE
)
_TIME = re.compile(r"\b(?:time|date|day is it)\b", re.IGNORECASE)
_WORDS = re.compile(r"\bcount (?:the |all )?words (?:in|of)[: ]\s*(.+)", re.IGNORECASE | re.DOTALL)
_QUOTED = r"""(?:"([^"]{1,500})"|'([^']{1,500})'|`([^`]{1,500})`|(\S{1,200}))"""
_FILE = r"""(?:the file |file )?[`'"]?([\w./\\~-]{1,300})"""
_LIST = re.compile(r"\blist (?:the |all |my )?(?:files|folder|directory)(?: (?:in|of) (\S+))?", re.IGNORECASE)
_SEARCH = re.compile(rf"\b(?:search|grep|look) (?:the files )?for {_QUOTED}", re.IGNORECASE)
_EDIT = re.compile(rf"\b(?:replace|change) {_QUOTED} (?:with|by|to|into) {_QUOTED} in {_FILE}", re.IGNORECASE)
_WRITE = re.compile(rf"\bwrite {_QUOTED} (?:to|into) {_FILE}", re.IGNORECASE)
_RUN = re.compile(r"\brun (?:the )?command:? `?([^`\n]{1,1000})", re.IGNORECASE)
_QUESTION = re.compile(r"\bask me (?:a question|something)\b", re.IGNORECASE)
_SKILL = re.compile(r"\b(?:load|use|run) (?:the )?skill [`'\"]?([\w-]{1,64})", re.IGNORECASE)
_ASK = re.compile(
    r"\bask (?:me )?(?:for )?(?:an? |my |the )?(?:approval|permission)\b(?P<twice> twice)?", re.IGNORECASE
)
_NOTE = re.compile(
    r"\bsend (?:a |the )?note to (?P<to>[\w.@-]{1,60})(?: in (?P<delay>\d{1,4}) seconds?)?"
    r"(?::| saying| that)\s*(?P<text>.+)",
    re.IGNORECASE | re.DOTALL,
)
_TOOL = re.compile(r"\b(?:call|use) (?:the )?tool [`'\"]?([\w.-]{1,128})[`'\"]?(?: with (?=\{))?", re.IGNORECASE)
_READ = re.compile(rf"\bread (?:the )?{_FILE}", re.IGNORECASE)
_COLOURS = {"question": "Which colour do you like best?", "options": ["teal", "amber", "violet"]}


def _calls(prompt: str) -> list[dict[str, Any]]:
    """Every tool call that a prompt asks for."""
    if named := [call(match[1].rstrip("."), **_arguments(prompt[match.end() :])) for match in _TOOL.finditer(prompt)]:
        return named
    if asked := _ASK.search(prompt):
        return [call("send_note", to="you", text="you were asked")] * (2 if asked["twice"] else 1)
    if note := _NOTE.search(prompt):
        return [call("send_note", to=note["to"], text=note["text"].strip(), delay=float(note["delay"] or 0))]
    if words := _WORDS.search(prompt):
        return [call("count_words", text=words[1])]
    if command := _RUN.search(prompt):
        return [call("bash", command=command[1].strip())]
    if _QUESTION.search(prompt):
        return [call("question", questions=[_COLOURS])]
    if changes := [_change(match) for match in _EDIT.finditer(prompt)]:
        return changes
    if written := _WRITE.search(prompt):
        return [call("write", path=written[5].rstrip("."), content=f"{_quoted(written, 1)}\n")]
    sums = [[group for group in match.groups() if group] for match in _SUM.finditer(prompt)]
    calls = [call("add", a=_number(a), b=_number(b)) for a, b in sums]
    if _TIME.search(prompt):
        calls.append(call("current_time"))
    calls += [call("glob", pattern="*", path=_folder(match[1])) for match in _LIST.finditer(prompt)]
    calls += [call("grep", pattern=re.escape(_quoted(match, 1))) for match in _SEARCH.finditer(prompt)]
    calls += [call("read", path=match[1].rstrip(".")) for match in _READ.finditer(prompt)]
    calls += [call("skill", name=match[1]) for match in _SKILL.finditer(prompt)]
    return calls


def _arguments(text: str) -> dict[str, Any]:
    """The JSON object that a text begins with. Empty: it does not."""
    try:
        value, _ = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _called(heard: Heard) -> dict[str, Any]:
    """The calls of a prompt, those to tools that there are."""
    calls = _calls(heard.prompt)
    offered = {each["function"]["name"] for each in heard.request["tools"]}
    if lacking := [each["name"] for each in calls if each["name"] not in offered]:
        return {"content": f"For that I would need the tool `{lacking[0]}`, which I was not given."}
    return {"content": "Let me see.", "tool_calls": calls}


def _change(match: re.Match[str]) -> dict[str, Any]:
    return call("edit", path=match[9].rstrip("."), oldString=_quoted(match, 1), newString=_quoted(match, 5))


def _quoted(match: re.Match[str], first: int) -> str:
    """What stands in quotes, of any kind: the one group that took part, of four."""
    return next(match[group] for group in range(first, first + 4) if match[group] is not None)


def _folder(named: str | None) -> str:
    return (named or "").rstrip(".,;!?") or named or "."


def _number(text: str) -> int | float:
    return float(text) if "." in text else int(text)


def _told(result: Result) -> str:
    """What is said about one tool's result."""
    if result.name == "add":
        return f"The sum is **{result.output}**."
    if result.name == "current_time":
        return f"It is {result.output}."
    if result.name == "count_words":
        return f"That text has **{result.output}** words."
    if result.name == "send_note":
        if result.output.startswith("Sent"):
            return f"{result.output}."
        doubt = "Nobody knows whether the note was sent" if "unknown" in result.output else "The note was not sent"
        return f"{doubt} ({result.output})."
    if result.output.startswith(("denied", "declined")):
        return f"`{result.name}` did not run ({result.output})."
    lines = result.output.splitlines()
    left = len(lines) - _SHOWN_LINES
    shown = "\n".join(lines[:_SHOWN_LINES])
    more = f"\n\n… and {left} more lines." if left > 0 else ""
    return f"`{result.name}` gave:\n\n````text\n{shown}\n````{more}"


def _counted(end: int) -> str:
    return " ".join(map(str, range(1, end + 1))) + "."


def _fact(prompt: str) -> str | None:
    match = re.search(_FACT, prompt, re.IGNORECASE)
    return (match["remember"] or match["my"]).strip(" .!") if match else None


def _earlier(heard: Heard) -> list[str]:
    """What the user said before, from nothing but the messages of the request: so it shows what was really sent."""
    said = [message["content"] for message in heard.request["messages"] if message["role"] == "user"]
    return [prompt for prompt in said[:-1] if isinstance(prompt, str)]


def _what_you_said(heard: Heard) -> str:
    prompts = [f"- {prompt.strip().splitlines()[0]}" for prompt in _earlier(heard) if prompt.strip()]
    if not prompts:
        return "Nothing before this, in this conversation."
    return "In this conversation you said before:\n\n" + "\n".join(prompts)


def _what_i_know(heard: Heard) -> str:
    facts = [fact for prompt in _earlier(heard) if (fact := _fact(prompt))]
    if not facts:
        return "Nothing yet. Tell me: `remember that my favourite colour is teal`."
    return "From the messages of this conversation that I was sent:\n\n" + "\n".join(f"- {fact}" for fact in facts)


def _summary(heard: Heard) -> str:
    text = re.sub(
        r"\A\W*summari[sz]e(?: this| that| it| the text)?[: ]*", "", heard.prompt, flags=re.IGNORECASE
    ).strip()
    if not text:
        return "Give me a text to summarise: after the word, or through a pipe."
    words = re.findall(r"\w+", text.lower())
    common = ", ".join(f"*{word}* ({count})" for word, count in Counter(w for w in words if len(w) > 3).most_common(3))
    counted = f"{len(text.splitlines())} lines, {len(words)} words, {len(text)} characters"
    return f"I can only count: {counted}." + (f" Most frequent: {common}." if common else "")
