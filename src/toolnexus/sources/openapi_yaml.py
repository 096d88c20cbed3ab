"""Reads YAML as the JSON that OpenAPI means by it: no dates, no yes and no, only texts as keys.

It goes from event to event rather than through PyYAML's own loaders: those read YAML 1.1, and the fast one stops all
other threads until it has read everything.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, cast

import yaml

# libyaml is ten times as fast; PyYAML's wheels hold it.
_PARSER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_parse: Callable[..., Iterator[yaml.Event]] = cast("Any", yaml).parse

_TAG = "tag:yaml.org,2002:"
# YAML 1.2.2, 10.3.2: the core schema, less its infinities, which JSON does not have.
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_LONGEST_NUMBER = 400


def load(text: str) -> Any:
    """The value of the first document in `text`. What an alias names is there as often as it is named, as one object.

    Raises:
        yaml.YAMLError: It is not YAML, or a key in it is no text.
        RecursionError: It is nested too deeply.
    """
    events = _parse(text, Loader=_PARSER)
    reader = _Reader(events)
    for event in events:
        if isinstance(event, yaml.DocumentStartEvent):
            return reader.value(next(events))
    return None


class _Reader:
    def __init__(self, events: Iterator[yaml.Event]) -> None:
        self._events = events
        self._anchors: dict[str, Any] = {}

    def value(self, event: yaml.Event) -> Any:
        """The value that begins with an event."""
        if isinstance(event, yaml.ScalarEvent):
            return self._named(event.anchor, _scalar(event))
        if isinstance(event, yaml.MappingStartEvent):
            found = self._named(event.anchor, cast("dict[str, Any]", {}))
            self._fill(found)
            return found
        if isinstance(event, yaml.SequenceStartEvent):
            items = self._named(event.anchor, cast("list[Any]", []))
            while not isinstance(inner := next(self._events), yaml.SequenceEndEvent):
                items.append(self.value(inner))
            return items
        alias = cast("yaml.AliasEvent", event)
        if alias.anchor not in self._anchors:
            raise _error(f"there is no anchor {alias.anchor!r}", event)
        return self._anchors[alias.anchor]

    def _named(self, anchor: str | None, value: Any) -> Any:
        if anchor is not None:
            self._anchors[anchor] = value
        return value

    def _fill(self, found: dict[str, Any]) -> None:
        merged: dict[str, Any] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            if isinstance(event, yaml.AliasEvent):
                key = self.value(event)
            elif isinstance(event, yaml.ScalarEvent):
                key = self._named(event.anchor, event.value)  # `200:` is the text 200
            else:
                key = None
            if not isinstance(key, str):
                raise _error("a key is no text", event)
            value = self.value(next(self._events))
            if key == "<<" and isinstance(value, dict | list):
                several = cast("list[Any]", value if isinstance(value, list) else [value])
                for each in reversed(several):
                    merged.update(cast("dict[str, Any]", each) if isinstance(each, dict) else {})
            else:
                found[key] = value
        for key, value in merged.items():
            found.setdefault(key, value)


def _scalar(event: yaml.ScalarEvent) -> Any:
    text = cast("str", event.value)
    plain = event.implicit[0] if event.tag is None else event.tag in (f"{_TAG}int", f"{_TAG}float", f"{_TAG}bool")
    if not plain or len(text) > _LONGEST_NUMBER:
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
    return float(text) if _FLOAT.fullmatch(text) else text


def _error(problem: str, event: yaml.Event) -> yaml.YAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)
