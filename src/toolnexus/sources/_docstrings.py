"""Reads what a docstring says about a function and its parameters: Google, NumPy and Sphinx styles."""

from __future__ import annotations

import inspect
import re

_PARAMETERS = {"args", "arguments", "keyword arguments", "keyword args", "other parameters", "parameters", "params"}
_OTHERS = {
    "attributes", "example", "examples", "note", "notes", "raises", "references", "return", "returns", "see also",
    "todo", "warning", "warnings", "warns", "yield", "yields",
}  # fmt: skip

_SPHINX_PARAMETER = re.compile(r":(?:param|parameter|arg|argument|key|keyword)\s+(?:[^:]*\s)?\*{0,2}(\w+)\s*:\s*(.*)")
_SPHINX_FIELD = re.compile(r":\w+(?:\s+[^:]*)?:(?:\s|$)")
_GOOGLE_ENTRY = re.compile(r"\*{0,2}(\w+)\s*(?:\(.*?\))?\s*:\s*(.*)")
_NUMPY_ENTRY = re.compile(r"(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?")


def read(docstring: str | None) -> tuple[str, dict[str, str]]:
    """The description, up to the first section, and what is said about each parameter, each on one line."""
    lines = inspect.cleandoc(docstring or "").splitlines()
    end = next((at for at, _ in enumerate(lines) if _section(lines, at) or _SPHINX_FIELD.match(lines[at])), len(lines))
    return "\n".join(lines[:end]).strip(), _parameters(lines[end:])


def _section(lines: list[str], at: int) -> str | None:
    """The name of the section that line `at` begins: `Args:`, or a title with a line of dashes below."""
    title = lines[at].rstrip()
    underlined = at + 1 < len(lines) and re.fullmatch(r"-{3,}", lines[at + 1].rstrip()) is not None
    name = title.removesuffix(":").lower()
    return name if (underlined or title.endswith(":")) and name in _PARAMETERS | _OTHERS else None


def _parameters(lines: list[str]) -> dict[str, str]:
    told: dict[str, list[str]] = {}
    section: str | None = None
    indent: int | None = None  # of the entries of this section; what is deeper continues an entry
    names: list[str] = []
    for at, line in enumerate(lines):
        text = line.strip()
        depth = len(line) - len(line.lstrip())
        if (name := _section(lines, at)) is not None:
            section, indent, names = name, None, []
        elif sphinx := _SPHINX_PARAMETER.match(text):
            names = [sphinx[1]]
            told[sphinx[1]] = [sphinx[2]]
            section, indent = None, depth
        elif _SPHINX_FIELD.match(text) and section is None:
            names = []
        elif not text or re.fullmatch("-{3,}", text):
            continue
        elif section in _PARAMETERS and (indent is None or depth <= indent):
            indent = depth
            names = _begin(text, numpy=depth == 0, told=told)
        else:
            for parameter in names:
                told[parameter].append(text)
    return {name: text for name, pieces in told.items() if (text := " ".join(pieces).strip())}


def _begin(text: str, *, numpy: bool, told: dict[str, list[str]]) -> list[str]:
    """Take an entry's first line; gives the parameters that the lines below are about."""
    if numpy:
        entry = _NUMPY_ENTRY.fullmatch(text)
        names = [name.strip().lstrip("*") for name in entry[1].split(",")] if entry else []
        told.update({name: [] for name in names})
        return names
    if (entry := _GOOGLE_ENTRY.fullmatch(text)) is None:
        return []
    told[entry[1]] = [entry[2]]
    return [entry[1]]
