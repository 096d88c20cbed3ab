"""`request_must`: operators and invariants on one request body. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from corpus_runner.invariants import INVARIANTS, Body
from corpus_runner.paths import MISSING, Having, find, parse
from corpus_runner.wires import Wire


class UnknownAssertion(Exception):
    """An operator, a type or an invariant that this runner does not know."""


def problems(assertion: Mapping[str, Any], body: Body, wire: Wire) -> list[str]:
    """What of one assertion does not hold for `body`; empty if all does. `turn` is the caller's business."""
    if "invariant" in assertion:
        return [f"{assertion['invariant']}: {problem}" for problem in INVARIANTS[assertion["invariant"]](body, wire)]
    path, document = assertion["path"], body.json
    found: list[str] = []
    for operator, operand in assertion.items():
        if operator in OPERATORS and not OPERATORS[operator](path, operand, document):
            shown = [value for value in find(path, document).values if value is not MISSING]
            found.append(f"{path} should have {operator} {_text(operand)}, but leads to {_text(shown)[:600]}")
    return found


def check_form(assertion: Mapping[str, Any]) -> None:
    """See that an assertion is one that `problems` understands.

    Raises:
        UnknownAssertion: It is not.
        BadPath: Its path cannot be read.
    """
    if "invariant" in assertion:
        if assertion["invariant"] not in INVARIANTS:
            raise UnknownAssertion(f"invariant {assertion['invariant']!r}")
        if unknown := assertion.keys() - {"invariant", "turn"}:
            raise UnknownAssertion(f"{sorted(unknown)} beside an invariant")
        return
    operators = assertion.keys() - {"path", "turn"}
    if "path" not in assertion or not operators:
        raise UnknownAssertion(f"an assertion has a path and an operator, or an invariant: {assertion!r}")
    if unknown := operators - OPERATORS.keys():
        raise UnknownAssertion(f"operator {sorted(unknown)}")
    parse(assertion["path"])
    for operator in operators:
        if not _OPERANDS.get(operator, _anything)(assertion[operator]):
            raise UnknownAssertion(f"{operator} {assertion[operator]!r}")


def equal(left: Any, right: Any) -> bool:
    """Equality of JSON values: `1` is `1.0`, but neither is `true`."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(equal(value, right[key]) for key, value in left.items())
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(equal, left, right))
    return left == right


def within(number: float, bound: Any, *, slack: float = 0.0) -> bool:
    """Whether a number is the given one, or lies in `{min, max}`."""
    if isinstance(bound, dict):
        return bound.get("min", number) - slack <= number <= bound.get("max", number) + slack
    return abs(number - bound) <= slack


def is_bound(bound: Any) -> bool:
    """Whether `within` understands `bound`."""
    limits = bound.values() if isinstance(bound, dict) and bound and bound.keys() <= {"min", "max"} else [bound]
    return all(_TYPES["number"](limit) for limit in limits)


_TYPES: Final[Mapping[str, Callable[[Any], bool]]] = {
    "string": lambda value: isinstance(value, str),
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "null": lambda value: value is None,
}


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _holds(check: Callable[[Any, Any], bool]) -> Callable[[str, Any, Any], bool]:
    """An operator that says something of what is there: with nothing there, it does not hold."""

    def operator(path: str, operand: Any, document: Any) -> bool:
        values = find(path, document).values
        return bool(values) and all(value is not MISSING and check(value, operand) for value in values)

    return operator


def _nowhere(check: Callable[[Any, Any], bool]) -> Callable[[str, Any, Any], bool]:
    """An operator that forbids something: with nothing there, it holds."""

    def operator(path: str, operand: Any, document: Any) -> bool:
        return not any(value is not MISSING and check(value, operand) for value in find(path, document).values)

    return operator


def _is_present(path: str, operand: Any, document: Any) -> bool:
    values = find(path, document).values
    if isinstance(parse(path)[-1], Having):  # a selection is a list: empty, it found nothing
        values = tuple(value for value in values if value != [])
    return any(value is not MISSING for value in values) is operand


def _is_absent(path: str, operand: Any, document: Any) -> bool:
    return _is_present(path, not operand, document)


def _is_long(value: Any, operand: Any) -> bool:
    return isinstance(value, str | list | dict) and within(len(value), operand)


def _matches(value: Any, operand: Any) -> bool:
    return re.search(operand, value if isinstance(value, str) else _text(value)) is not None


def _contains(value: Any, operand: Any) -> bool:
    needle = operand if isinstance(operand, str) else _text(operand)
    return any(needle in text for text in _readings(value))


def _readings(value: Any) -> list[str]:
    """The value's JSON text, with and without spaces, and the texts in it as they are before escaping."""
    return [_text(value), json.dumps(value, ensure_ascii=False, separators=(",", ":")), *_strings(value)]


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for item in inner for text in _strings(item)]


def _has_key(value: Any, keys: Any) -> bool:
    if isinstance(value, dict):
        return not value.keys().isdisjoint(_listed(keys)) or any(_has_key(item, keys) for item in value.values())
    return isinstance(value, list) and any(_has_key(item, keys) for item in value)


def _is_same(path: str, operand: Any, document: Any) -> bool:
    ours, theirs = find(path, document), find(operand, document)
    there = bool(ours.values) and MISSING not in (*ours.values, *theirs.values)
    return there and equal(list(ours.values), list(theirs.values))


def _is_different(path: str, operand: Any, document: Any) -> bool:
    ours, theirs = find(path, document).values, find(operand, document).values
    there = bool(ours) and bool(theirs) and MISSING not in (*ours, *theirs)
    return there and not any(equal(left, right) for left in ours for right in theirs)


OPERATORS: Final[Mapping[str, Callable[[str, Any, Any], bool]]] = {
    "equals": _holds(equal),
    "one_of": _holds(lambda value, operand: any(equal(value, one) for one in operand)),
    "type": _holds(lambda value, operand: any(_TYPES[name](value) for name in _listed(operand))),
    "present": _is_present,
    "absent": _is_absent,
    "length": _holds(_is_long),
    "matches": _holds(_matches),
    "contains": _holds(_contains),
    "not_contains": _nowhere(_contains),
    "same_as": _is_same,
    "differs_from": _is_different,
    "lacks_keys": _nowhere(_has_key),
}


def _anything(operand: Any) -> bool:
    return True


def _is_path(operand: Any) -> bool:
    return isinstance(operand, str) and bool(parse(operand))


def _is_pattern(operand: Any) -> bool:
    try:
        return isinstance(operand, str) and re.compile(operand) is not None
    except re.error:
        return False


_OPERANDS: Final[Mapping[str, Callable[[Any], bool]]] = {
    "one_of": _TYPES["array"],
    "type": lambda operand: set(_listed(operand)) <= _TYPES.keys(),
    "present": _TYPES["boolean"],
    "absent": _TYPES["boolean"],
    "length": is_bound,
    "matches": _is_pattern,
    "same_as": _is_path,
    "differs_from": _is_path,
    "lacks_keys": _TYPES["array"],
}
"""What an operator can take; any value if it is not here."""
