"""Finds the JSON in what a model answered."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from toolnexus import _json

_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})[^`]*")
_SCANNER = json.JSONDecoder()
_OPENING = re.compile(r'\{\s*["}]')
"""How an object begins. In prose and in code there are other braces."""


class Misfit(Exception):
    """An answer that is not what was asked for.

    Attributes:
        told: What the model is told of it, with the beginnings of the values that are wrong.
        shown: What the caller is told: where and what is wrong, without the values.
        repairable: Whether it makes sense to tell the model.
    """

    def __init__(self, told: str, *, shown: str, repairable: bool = True) -> None:
        super().__init__(shown)
        self.told = told
        self.shown = shown
        self.repairable = repairable


def read(text: str) -> Any:
    """The JSON value that a text is, else that its last fenced block is, else the last whole object in it.

    Models put prose around their answers, and think before they give them: so what comes last counts.

    Raises:
        Misfit: There is none.
    """
    try:
        return _json.loads(text)
    except ValueError as error:
        reason = str(error)
    for candidate in (*reversed(list(_fenced(text))), *reversed(_objects(text))):
        try:
            return _json.loads(candidate)
        except ValueError:
            continue
    if not text.strip():
        raise Misfit("The answer is empty.", shown="It is empty.")
    raise Misfit(f"The answer is not JSON: {reason[:200]}", shown="It is not JSON.")


def bare(text: str) -> str | None:
    """A text without the white space around it, if nothing in it looks as if it was to be JSON. None: something does.

    A number or a word that JSON knows, such as `true`, may be meant as the text that it is.
    """
    text = text.strip()
    if not text or text[0] in '{["' or _OPENING.search(text) or any(map(_FENCE.match, text.splitlines())):
        return None
    return text


def _fenced(text: str) -> Iterator[str]:
    """The insides of fenced blocks. One that never ends is none."""
    fence = ""
    inside: list[str] = []
    for line in text.splitlines(keepends=True):
        if not fence:
            if opened := _FENCE.match(line):
                fence, inside = opened[1], []
        elif line.strip() == fence:
            yield "".join(inside)
            fence = ""
        else:
            inside.append(line)


def _objects(text: str) -> list[str]:
    """The outermost JSON objects in a text; none if one of them is broken, since the answer may be that one."""
    found: list[str] = []
    position = 0
    while opening := _OPENING.search(text, position):
        try:
            _, position = _SCANNER.raw_decode(text, opening.start())
        except (ValueError, RecursionError):
            return []
        found.append(text[opening.start() : position])
    return found
