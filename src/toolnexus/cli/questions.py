"""Questions of the built-in tool `question`: what a person types in answer, and what that comes to. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

if TYPE_CHECKING:
    from toolnexus.suspension import Request


class Question(NamedTuple):
    """One of them.

    Attributes:
        options: What may be chosen. The person may say something else too.
        multiple: Whether several of the options may be chosen.
    """

    text: str
    options: tuple[str, ...] = ()
    multiple: bool = False

    def read(self, typed: str) -> str | list[str] | None:
        """The answer: an option's own words, its number, or anything else as it is. None: nothing was typed.

        Where several may be chosen they are separated by commas.
        """
        typed = typed.strip()
        if not typed:
            return None
        if not self.multiple:
            return self._chosen(typed) or typed
        chosen = [self._chosen(part.strip()) for part in typed.split(",") if part.strip()]
        if chosen and all(chosen):
            return list(dict.fromkeys(each for each in chosen if each))
        return [self._chosen(typed) or typed]

    def _chosen(self, typed: str) -> str | None:
        """The option that is meant. None: none is."""
        alike = [each for each in self.options if each.casefold() == typed.casefold()]
        if alike:
            return typed if typed in alike else alike[0]
        if typed.isascii() and typed.isdigit() and 0 < int(typed[:9]) <= len(self.options):
            return self.options[int(typed[:9]) - 1]
        return None


def questions_of(request: Request) -> list[Question]:
    """What a request asks. Empty: it is not one of that tool."""
    data = request.get("data")
    asked = cast("Mapping[str, Any]", data).get("questions") if isinstance(data, Mapping) else None
    if request["kind"] != "question" or not isinstance(asked, list):
        return []
    found = [_question(each) for each in cast("list[Any]", asked)]
    return [each for each in found if each] if all(found) else []


def _question(given: Any) -> Question | None:
    match given:
        case {"question": str(text)}:
            fields = cast("Mapping[str, Any]", given)
            header, options = fields.get("header"), fields.get("options")
            return Question(
                f"{header}: {text}" if isinstance(header, str) and header else text,
                tuple(map(str, cast("list[Any]", options))) if isinstance(options, list) else (),
                multiple=fields.get("multiple") is True,
            )
        case _:
            return None


def read_all(asked: Sequence[Question], text: str) -> list[str | list[str] | None] | None:
    """The answers in one text: to a single question as it is typed, to several a JSON list. None: it is no such."""
    try:
        given: Any = json.loads(text) if text.lstrip().startswith(("[", "{")) else None
    except (ValueError, RecursionError):
        given = None
    if isinstance(given, dict):
        given = cast("dict[str, Any]", given).get("answers")
    said = cast("list[Any]", given) if isinstance(given, list) else []
    if len(said) == len(asked):
        return [each.read(one) if isinstance(one, str) else one for each, one in zip(asked, said, strict=True)]
    return [asked[0].read(text)] if len(asked) == 1 else None
