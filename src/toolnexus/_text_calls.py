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
from collections.abc import Mapping
from enum import Enum
from itertools import chain, takewhile
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


_FENCE = "```"
_THOUGHT = "</think>"
_LANGUAGES = ("json", "tool_call", "tool_calls", "tool_code", "xml")
"""What fences of calls are marked as, if at all."""

# None of the patterns goes back over what it has read, so that each reads a text of any length once.
_TAG = r"tool_calls?|function_calls?|tools"
_TAGGED = re.compile(rf"<(?:{_TAG})>((?:[^<]++|<(?!/(?:{_TAG})>))*+)(?:</(?:{_TAG})>)?")
_NAMED = re.compile(r"<function=([\w.:/-]++)>((?:[^<]++|<(?!/function>))*+)(?:</function>)?")
_MARKED = re.compile(r"(?:\[TOOL_CALLS\]|<\|python_tag\|>)(.*)", re.DOTALL)
_LANGUAGE = rf"[ \t]*+(?:(?:{'|'.join(_LANGUAGES)})\b)?[ \t]*+\n?"
_FENCED = re.compile(rf"```{_LANGUAGE}((?:[^`]++|`(?!``))*+)(?:```)?")
_OPENING = re.compile(rf"<(?:{_TAG})>|<function=|\[TOOL_CALLS\]|<\|python_tag\|>|```|</think>")
_LONGEST_OPENING = len("<function_calls>")
_FIRST_CHARACTER = re.compile(r"[<\[`]")
_LONGEST = 256 * 1024
"""Characters of a text that is looked at: a small model that writes more has lost its way."""
_ENDINGS = (">", "]", "}", _FENCE)
"""What a text may end in that ends in calls."""

_NAMES = ("name", "tool", "tool_name", "function_name", "function")
_ARGUMENTS = ("arguments", "parameters", "args", "input", "tool_input")
_BESIDE = frozenset({"id", "type", "thought", "thoughts", "reason"})
"""Keys that may stand beside the two without making something else of it."""
_FIRST_KEYS = frozenset({*_NAMES, *_ARGUMENTS, *_BESIDE, "tool_calls", "calls"})


def find(text: str) -> Found | None:
    """The calls that a text ends in. None: there are none."""
    text = text.strip()
    if len(text) > _LONGEST or not text.endswith(_ENDINGS):
        return None
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
    groups: list[tuple[TextCall, ...]] = []
    end = len(text)
    for match in reversed(list(pattern.finditer(text))):
        if text[match.end() : end].strip():
            break
        *named, inside = match.groups()
        written = _named(named[0], inside) if named else _written(_bare(inside))
        if not written:
            break
        groups.append(written)
        end = match.start()
    return Found(text[:end].rstrip(), tuple(chain.from_iterable(reversed(groups)))) if groups else None


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
        value = _lines(text)
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


def _lines(text: str) -> list[object] | None:
    """The values of a JSON text of several lines, one a line. None: it is something else."""
    lines = [line for line in text.splitlines() if line.strip()]
    values: list[object] = list(takewhile(lambda value: value is not None, map(_json_of, lines)))
    return values if len(values) == len(lines) > 1 else None


def _json_of(text: str) -> object:
    """The value of a JSON text; None if it is none."""
    try:
        return _strict.decode(text)
    except (ValueError, RecursionError):
        return None


class Held:
    """Holds back what may become calls, of a text that comes in pieces. Each piece is looked at once."""

    def __init__(self) -> None:
        self._held: list[str] = []  # from a place on where calls may begin: the beginning of the text, or a mark
        self._open = ""  # the end of it, of which more has to come
        self._stage = _Stage.CALLS

    def add(self, piece: str) -> str:
        """Take the next piece. Returns what can be shown by now."""
        text = self._open + piece
        failed: set[int] = set()
        stage, at = _read(text, 0, self._stage, failed)
        start = 0
        if stage is _Stage.NONE:
            text = "".join([*self._held, text])
            self._held = []
            failed.clear()
            stage, at = _read(text, 0, _Stage.CALLS, failed)
        while stage is _Stage.NONE:
            start = _next_place(text, start + 1)
            if start not in failed:
                stage, at = _read(text, start, _Stage.CALLS, failed)
        self._held.append(text[start:at])
        self._open = text[at:]
        self._stage = stage
        return text[:start]

    def rest(self) -> str:
        """What is still held, when there is no more."""
        return "".join([*self._held, self._open])


class _Stage(Enum):
    """What has to come next in a text that may be calls."""

    CALLS = "a mark, or JSON"
    FENCE = "a language, or JSON"
    JSON = "the first object"
    OBJECT = "the first key of it"
    FENCED_JSON = "the first object in a fence"
    FENCED_OBJECT = "the first key of it, in a fence"
    FENCED = "the end of a fence"
    ALL = "anything"
    NONE = "nothing: it is something else"


_BLANK = re.compile(r"\s*+")
_SKIPPED: Mapping[_Stage, re.Pattern[str]] = {
    _Stage.CALLS: _BLANK,
    _Stage.FENCE: re.compile(r"[ \t]*+"),
    _Stage.JSON: re.compile(r"[\s\[]*+"),
    _Stage.OBJECT: _BLANK,
    _Stage.FENCED_JSON: re.compile(r"[\s\[]*+"),
    _Stage.FENCED_OBJECT: _BLANK,
    _Stage.FENCED: re.compile(r"(?:[^`]++|`{1,2}(?=[^`]))*+"),
}
"""What may stand before that."""

_WORD = re.compile(r"[a-z_]*+")
_KEY = re.compile(r'"([^"\\]*+)("?)')

_MARKS = (
    *(f"<{tag}>" for tag in ("tool_call", "tool_calls", "function_call", "function_calls", "tools")),
    *("<function=", "[TOOL_CALLS]", "<|python_tag|>", _FENCE, _THOUGHT),
)


def _next_place(text: str, start: int) -> int:
    """Where calls may begin next: at a mark, or what may be the beginning of one; the end if nowhere."""
    mark = _OPENING.search(text, start)
    if mark is not None:
        return mark.start()
    begun = _FIRST_CHARACTER.finditer(text, max(start, len(text) - _LONGEST_OPENING))
    return next((at for found in begun if _is_open(text, at := found.start())), len(text))


def _is_open(text: str, at: int) -> bool:
    """Whether what stands in a place up to the end of the text may become a mark."""
    return len(text) - at < _LONGEST_OPENING and any(mark.startswith(text[at:]) for mark in _MARKS)


def _read(text: str, at: int, stage: _Stage, begun: set[int]) -> tuple[_Stage, int]:
    """Read on in what may be nothing but calls.

    Args:
        begun: Gets the places where the next of several calls begins. What follows is read in the same way from there.

    Returns:
        What has to come next, and up to where that is certain.
    """
    while stage is not _Stage.ALL and stage is not _Stage.NONE:
        at = cast("re.Match[str]", _SKIPPED[stage].match(text, at)).end()
        if at == len(text):
            break
        following = _after(text, at, stage)
        if following is None:
            break
        if stage is _Stage.CALLS:
            begun.add(at)
        stage, at = following
    return stage, len(text) if stage is _Stage.ALL else at


def _after(text: str, at: int, stage: _Stage) -> tuple[_Stage, int] | None:
    """Read one thing that is due at a stage. None: more of the text has to come."""
    match stage:
        case _Stage.CALLS:
            mark = _OPENING.match(text, at)
            if mark is None:
                return None if _is_open(text, at) else (_Stage.JSON, at)
            return {_FENCE: _Stage.FENCE, _THOUGHT: _Stage.CALLS}.get(mark[0], _Stage.ALL), mark.end()
        case _Stage.FENCE:
            word = cast("re.Match[str]", _WORD.match(text, at))
            if word.end() == len(text) and any(language.startswith(word[0]) for language in _LANGUAGES):
                return None
            return (_Stage.FENCED_JSON if word[0] in ("", *_LANGUAGES) else _Stage.NONE), word.end()
        case _Stage.JSON | _Stage.FENCED_JSON:
            within = _Stage.OBJECT if stage is _Stage.JSON else _Stage.FENCED_OBJECT
            return (within if text[at] == "{" else _Stage.NONE), at + 1
        case _Stage.FENCED:
            return (_Stage.CALLS, at + len(_FENCE)) if text.startswith(_FENCE, at) else None
        case _:
            key = _KEY.match(text, at)
            if key is None:
                return _Stage.NONE, at
            if not key[2] and key.end() == len(text) and any(known.startswith(key[1]) for known in _FIRST_KEYS):
                return None
            inside = _Stage.ALL if stage is _Stage.OBJECT else _Stage.FENCED
            return (inside if key[2] and key[1] in _FIRST_KEYS else _Stage.NONE), key.end()
