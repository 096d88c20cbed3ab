"""Forms of MCP servers: what they ask for, and from what a person types to the values. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from toolnexus.cli.questions import Question

if TYPE_CHECKING:
    from toolnexus.suspension import Request

_YES = frozenset({"y", "yes", "true", "1", "on"})
_NO = frozenset({"n", "no", "false", "0", "off"})


class Field(NamedTuple):
    """A value that a server asks for.

    Attributes:
        text: What a person is shown.
        kind: The type in the schema.
        options: What can be chosen, as the server names it to people.
        values: What these are to the server.
        needed: Whether it has to be given: the server has no value of its own for it.
    """

    name: str
    text: str
    kind: str
    options: tuple[str, ...] = ()
    values: tuple[Any, ...] = ()
    needed: bool = False

    def read(self, typed: str) -> Any:
        """The value.

        Raises:
            ValueError: It is no such value. The message says what is wanted.
        """
        if self.options:
            return self._chosen(typed)
        word = typed.strip()
        match self.kind:
            case "integer":
                return _read(int, word, "a whole number")
            case "number":
                number = _read(float, word, "a number")
                if not math.isfinite(number):
                    raise ValueError("Give a number.")
                return number
            case "boolean":
                if word.lower() not in _YES | _NO:
                    raise ValueError("Give yes or no.")
                return word.lower() in _YES
            case _:
                return typed

    def _chosen(self, typed: str) -> Any:
        known = dict(zip(self.options, self.values, strict=True))
        several = self.kind == "array"
        said = Question(self.text, self.options, multiple=several).read(typed)
        chosen = said if isinstance(said, list) else [said]
        by_value = {str(value): value for value in self.values}
        found = [known.get(str(each), by_value.get(str(each))) for each in chosen]
        if None in found:
            raise ValueError(f"Give one of {', '.join(self.options)}, or its number.")
        return found if several else found[0]


def fields_of(request: Request) -> list[Field]:
    """What a request asks for. Empty: it is no form."""
    if request["kind"] != "elicitation":
        return []
    schema = _object(_object(request.get("data")).get("schema"))
    needed: Any = schema.get("required")
    return [
        _field(str(name), _object(each), needed=isinstance(needed, list) and name in needed)
        for name, each in _object(schema.get("properties")).items()
    ]


def read_all(fields: Sequence[Field], text: str) -> dict[str, Any]:
    """The values in one text: a JSON object, or what is typed for the only one.

    Raises:
        ValueError: It is no such text.
    """
    try:
        given: Any = json.loads(text) if text.lstrip().startswith("{") else None
    except (ValueError, RecursionError):
        given = None
    if isinstance(given, dict):
        return cast("dict[str, Any]", given)
    if len(fields) == 1:
        return {fields[0].name: fields[0].read(text)}
    wanted = json.dumps({field.name: "…" for field in fields}, ensure_ascii=False)
    raise ValueError(f"Give a JSON object: '{wanted}'.")


def _field(name: str, schema: Mapping[str, Any], *, needed: bool) -> Field:
    title, said = schema.get("title"), schema.get("description")
    head = title if isinstance(title, str) and title else name
    text = f"{head}: {said}" if isinstance(said, str) and said else head
    has_default = "default" in schema
    if has_default:
        text += f" [{schema['default']}]"
    kind = str(schema.get("type", "string"))
    options, values = _options(_object(schema.get("items")) if kind == "array" else schema)
    if kind == "boolean" and not options:
        text += " (yes or no)"
    return Field(name, text, kind, options, values, needed and not has_default)


def _options(schema: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[Any, ...]]:
    titled: Any = schema.get("oneOf", schema.get("anyOf"))
    if isinstance(titled, list):
        each = [_object(one) for one in cast("list[Any]", titled)]
        values = tuple(one.get("const") for one in each)
        return tuple(str(one.get("title", one.get("const"))) for one in each), values
    listed: Any = schema.get("enum")
    if not isinstance(listed, list):
        return (), ()
    values = tuple(cast("list[Any]", listed))
    names: Any = schema.get("enumNames")
    shown = tuple(cast("list[Any]", names)) if isinstance(names, list) else values
    return tuple(map(str, shown if len(shown) == len(values) else values)), values


def _read(kind: Callable[[str], Any], word: str, wanted: str) -> Any:
    try:
        return kind(word)
    except ValueError:
        raise ValueError(f"Give {wanted}.") from None


def _object(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
