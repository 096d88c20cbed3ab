"""The front matter of a SKILL.md with the types that YAML 1.2 gives its values, as clients read it too."""

from __future__ import annotations

import re
from typing import Any, cast

import yaml

from toolnexus.sources.skills.front_matter import BrokenFrontMatter, read_fields

__all__ = ["BrokenFrontMatter", "typed_fields"]


_RESOLVERS: dict[str, list[tuple[str, re.Pattern[str]]]] = {}


class _Loader(yaml.SafeLoader):
    """YAML's core schema: `yes` and dates are texts, and there is no merging."""

    yaml_implicit_resolvers = _RESOLVERS  # by the first letter, as the base class has them


def _whole(loader: _Loader, node: yaml.ScalarNode) -> int:
    text = node.value
    return int(text, 0) if text[:2] in ("0x", "0o") else int(text, 10)


_TYPES: dict[str, tuple[str, str]] = {
    "null": (r"~|null|Null|NULL|", "~nN"),
    "bool": (r"true|True|TRUE|false|False|FALSE", "tTfF"),
    "int": (r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    "float": (r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", "-+.0123456789"),
}
for _type, (_pattern, _first) in _TYPES.items():
    for _letter in [*_first, *([""] if _type == "null" else [])]:
        _RESOLVERS.setdefault(_letter, []).append((f"tag:yaml.org,2002:{_type}", re.compile(f"(?:{_pattern})\\Z")))
_Loader.add_constructor("tag:yaml.org,2002:int", _whole)


def typed_fields(text: str) -> dict[str, Any]:
    """The fields of a front matter. What is not quite YAML is read as everywhere else, all of it as texts.

    Raises:
        BrokenFrontMatter: It cannot be read.
    """
    fields, warnings = read_fields(text)  # which also sees to it that it is not too much
    if warnings:
        return cast("dict[str, Any]", fields)
    try:
        loaded: Any = yaml.load(text, Loader=_Loader)  # noqa: S506 - a SafeLoader
    except (yaml.YAMLError, ValueError):
        return cast("dict[str, Any]", fields)
    return cast("dict[str, Any]", loaded) if isinstance(loaded, dict) else {}
