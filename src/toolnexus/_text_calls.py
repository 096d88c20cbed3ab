"""Reads tool calls that a model wrote as text, as small local models do. Pure.

| written as | by |
|---|---|
| `{"name": …, "arguments": {…}}`, alone or in a list, bare or in a fence that ends the text | most of them |
| `<tool_call>{…}</tool_call>`, `<function_call>…`, `<tools>…` | Hermes, Qwen |
| `[TOOL_CALLS] [{…}]` | Mistral |
| `<|python_tag|>{…}`, `<function=name>{…}</function>` | Llama |

Nothing may follow the calls: a model that goes on to talk was showing what a call looks like. Whether there is such a
tool, and whether the arguments fit it, is for the caller to say.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple, cast

from toolnexus import _strict


class TextCall(NamedTuple):
    """A call as it was written."""

    name: str
    arguments: dict[str, Any]


class Found(NamedTuple):
    """Calls at the end of a text.

    Attributes:
        before: What was said before them.
        calls: At least one.
    """

    before: str
    calls: tuple[TextCall, ...]


_TAG = r"tool_calls?|function_calls?|tools"
_TAGGED = re.compile(rf"<(?:{_TAG})>(.*?)(?:</(?:{_TAG})>|\Z)", re.DOTALL)
_NAMED = re.compile(r"<function=([\w.:/-]+)>(.*?)(?:</function>|\Z)", re.DOTALL)
_MARKED = re.compile(r"(?:\[TOOL_CALLS\]|<\|python_tag\|>)(.*)", re.DOTALL)
_FENCED = re.compile(r"```[ \t]*(?:json|tool_calls?|tool_code|xml)?[ \t]*\n?(.*?)(?:```|\Z)", re.DOTALL)
_OPENING = re.compile(rf"<(?:{_TAG})>|<function=|\[TOOL_CALLS\]|<\|python_tag\|>|```|</think>")
_LONGEST_OPENING = len("<function_calls>")
_THOUGHT = "</think>"

_NAMES = ("name", "tool", "tool_name", "function_name", "function")
_ARGUMENTS = ("arguments", "parameters", "args", "input", "tool_input")
_BESIDE = frozenset({"id", "type", "thought", "thoughts", "reason"})
"""Keys that may stand beside the two without making something else of it."""
_FIRST_KEYS = frozenset({*_NAMES, *_ARGUMENTS, *_BESIDE, "tool_calls", "calls"})
_BEGINNING = re.compile(r'\s*(?:\[\s*)*(?:\{\s*(?:"(?P<key>[^"\\]*)(?P<closed>")?)?)?', re.DOTALL)


def find(text: str) -> Found | None:
    """The calls that a text ends in. None: there are none."""
    text = text.strip()
    thought = text.rfind(_THOUGHT)
    bare = text[0 if thought < 0 else thought + len(_THOUGHT) :].lstrip()
    if bare[:1] in ("{", "[") and (calls := _written(bare)):
        return Found(text[: len(text) - len(bare)].rstrip(), calls)
    for pattern in (_TAGGED, _NAMED, _MARKED, _FENCED):
        if (found := _at_end(text, pattern)) is not None:
            return found
    return None


def _at_end(text: str, pattern: re.Pattern[str]) -> Found | None:
    """Calls in marks of one kind, one after the other up to the end of the text."""
    matches = list(pattern.finditer(text))
    calls: list[TextCall] = []
    end = len(text)
    for match in reversed(matches):
        if text[match.end() : end].strip():
            break
        *named, inside = match.groups()
        written = _named(named[0], inside) if named else _written(_bare(inside))
        if not written:
            break
        calls[:0] = written
        end = match.start()
    return Found(text[:end].rstrip(), tuple(calls)) if calls else None


def _bare(text: str) -> str:
    """What stands inside marks, without a fence of its own."""
    text = text.strip()
    fenced = _FENCED.fullmatch(text)
    return fenced[1].strip() if fenced else text


def _named(name: str, inside: str) -> tuple[TextCall, ...]:
    """A call whose mark has its name."""
    value = _json_of(_bare(inside) or "{}")
    return (TextCall(name, cast("dict[str, Any]", value)),) if isinstance(value, dict) else ()


def _written(text: str) -> tuple[TextCall, ...]:
    """The calls that a JSON text is; none if it is anything else."""
    value = _json_of(text)
    if value is None:  # one object a line
        lines = [_json_of(line) for line in text.splitlines() if line.strip()]
        value = lines if len(lines) > 1 else None
    if isinstance(value, dict):
        entry = cast("dict[str, Any]", value)
        value = next((entry[key] for key in ("tool_calls", "calls") if key in entry and len(entry) == 1), [entry])
    calls = [_call(item) for item in cast("list[object]", value)] if isinstance(value, list) else []
    return tuple(call for call in calls if call is not None) if all(calls) else ()


def _call(value: object) -> TextCall | None:
    if not isinstance(value, dict):
        return None
    entry = cast("dict[str, Any]", value)
    if isinstance(entry.get("function"), dict):
        if entry.keys() - _BESIDE - {"function"}:
            return None
        entry = cast("dict[str, Any]", entry["function"])
    names = [key for key in _NAMES if key in entry]
    arguments = [key for key in _ARGUMENTS if key in entry]
    if len(names) != 1 or len(arguments) > 1 or entry.keys() - _BESIDE - {*names, *arguments}:
        return None
    name = entry[names[0]]
    given: object = entry[arguments[0]] if arguments else {}
    if isinstance(given, str):
        given = _json_of(given)
    if not isinstance(name, str) or not isinstance(given, dict):
        return None
    return TextCall(name, cast("dict[str, Any]", given))


def _json_of(text: str) -> object:
    """The value of a JSON text; None if it is none."""
    try:
        return _strict.decode(text)
    except (ValueError, RecursionError):
        return None


class Held:
    """Holds back what may become calls, of a text that comes in pieces."""

    def __init__(self) -> None:
        self._held = ""  # from a place on where calls may begin: the beginning of the text, or a mark

    def add(self, piece: str) -> str:
        """Take the next piece. Returns what can be shown by now."""
        self._held += piece
        shown: list[str] = []
        while self._held and not _may_be_calls(self._held):
            end = _next_place(self._held)
            shown.append(self._held[:end])
            self._held = self._held[end:]
        return "".join(shown)

    def rest(self) -> str:
        """What is still held, when there is no more."""
        held, self._held = self._held, ""
        return held


def _next_place(text: str) -> int:
    """Where calls may begin next: at a mark, or what may be the beginning of one; the end if nowhere."""
    mark = _OPENING.search(text, 1)
    if mark is not None:
        return mark.start()
    longest = min(len(text) - 1, _LONGEST_OPENING)
    return len(text) - next((n for n in range(longest, 0, -1) if _is_beginning(text[-n:])), 0)


_MARKS = (
    *(f"<{tag}>" for tag in ("tool_call", "tool_calls", "function_call", "function_calls", "tools")),
    *("<function=", "[TOOL_CALLS]", "<|python_tag|>", "```", _THOUGHT),
)


def _is_beginning(text: str) -> bool:
    return any(mark.startswith(text) for mark in _MARKS)


def _may_be_calls(text: str) -> bool:
    """Whether a text is, or may be the beginning of, nothing but calls."""
    text = text.lstrip()
    if not text or _is_beginning(text):
        return True
    mark = _OPENING.match(text)
    if mark is None:
        return text[0] in "{[" and _begins_a_call(text)
    if mark[0] == _THOUGHT:
        return _may_be_calls(text[mark.end() :])
    if mark[0] == "```":
        language, line, inside = text[3:].partition("\n")
        if not line:
            return _may_be_language(language)
        return _may_be_language(language) and _goes_on(inside, "```")
    return True


def _may_be_language(text: str) -> bool:
    """Whether what follows a fence's opening may be that of a call; it may be written on the same line."""
    known = ("json", "tool_call", "tool_calls", "tool_code", "xml")
    text = text.strip()
    return any(name.startswith(text) for name in known) or text[:1] in ("{", "[")


def _goes_on(inside: str, closing: str) -> bool:
    """Whether what stands in a fence, and comes after it, may be calls."""
    inside, closed, after = inside.partition(closing)
    if not _begins_a_call(inside):
        return False
    return not closed or not after.strip() or _may_be_calls(after)


def _begins_a_call(text: str) -> bool:
    """Whether a JSON text begins as calls do: by its first key."""
    match = cast("re.Match[str]", _BEGINNING.match(text))
    key = match["key"]
    if key is None:
        return not text[match.end() :].strip()
    if match["closed"]:
        return key in _FIRST_KEYS
    return any(known.startswith(key) for known in _FIRST_KEYS) and match.end() == len(text)
