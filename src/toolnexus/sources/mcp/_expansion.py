"""Replaces the variables in a configured text, once: what a variable brings in is not looked at again. Pure."""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from toolnexus.sources.mcp import _paths

ReadFile: TypeAlias = Callable[[str], str]
"""Gives the text of the file at an absolute path. Raises OSError, or ValueError if it is no text."""

_START = re.compile(r"\$\{(?P<head>[^{}]*?)(?P<end>\}|:-)|\{(?P<braced>env|file):(?P<name>[^{}]*)\}")
_START_BARE = re.compile(rf"(?P<escaped>\$\$)|\$(?P<bare>[A-Za-z_]\w*)|{_START.pattern}", re.ASCII)
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_KIND = re.compile(r"([A-Za-z][A-Za-z.]*):(.*)", re.DOTALL)
_LINE_END = re.compile(r"\r?\n\Z")
_DEEPEST = 8
"""How deep defaults may stand in each other."""


class Unresolved(Exception):
    """A variable has no value. The text says which, and what to do; it holds no value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variables:
    """What the variables of one file stand for.

    Attributes:
        env: The environment.
        inputs: The answers of a person, by the id of the question.
        home: The home folder. None: it is not known.
        workspace: The project's folder. None: there is none.
        beside: The folder of the file itself. None: it is not known.
        windows: Whether paths are written as on Windows, and environment variables found in any case.
        bare: Whether `$NAME` is a variable too, and `$$` is none.
        read_file: None: no file can be read.
    """

    env: Mapping[str, str] = field(repr=False)
    inputs: Mapping[str, str] = field(repr=False)
    home: str | None
    workspace: str | None
    beside: str | None
    windows: bool
    bare: bool
    read_file: ReadFile | None

    def expanded(self, text: str, *, depth: int = 0) -> str:
        """The text with its variables replaced.

        Raises:
            Unresolved: One of them is not set and has no default.
        """
        if "$" not in text and "{" not in text:
            return text
        pieces: list[str] = []
        at = 0
        closing = _closing_braces(text)
        pattern = _START_BARE if self.bare else _START
        while match := pattern.search(text, at):
            pieces.append(text[at : match.start()])
            found, at = self._value(text, match, closing, depth)
            pieces.append(found)
        pieces.append(text[at:])
        return "".join(pieces)

    def path(self, text: str, *, base: str | None = None) -> str:
        """A configured path: variables and `~` replaced, and seen from `base`, or else from the workspace."""
        return _paths.absolute(self.expanded(text), base=base or self.workspace, home=self.home, windows=self.windows)

    def with_home(self, path: str) -> str:
        """A program's name with its leading `~` replaced, if the home folder is known."""
        return _paths.at_home(path, self.home, windows=self.windows)

    def variable(self, name: str) -> str | None:
        """What an environment variable is set to. None: it is not set."""
        if name in self.env or not self.windows:
            return self.env.get(name)
        return next((value for other, value in self.env.items() if other.upper() == name.upper()), None)

    def file(self, path: str, *, base: str | None = None, what: str) -> str:
        """The text of a file.

        Args:
            what: How the file is called in the error.

        Raises:
            Unresolved: It cannot be read.
        """
        place = _paths.absolute(path, base=base or self.workspace, home=self.home, windows=self.windows)
        if self.read_file is None:
            raise Unresolved(f"{what} cannot be read here, because no files may be read.")
        try:
            return self.read_file(place)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
            raise Unresolved(f"{what} cannot be read: {why or type(error).__name__}.") from None

    def _value(self, text: str, match: re.Match[str], closing: Mapping[int, int], depth: int) -> tuple[str, int]:
        """What stands for a match, and where the text goes on behind it."""
        groups = match.groupdict()
        if groups.get("escaped"):
            return match[0], match.end()
        if (bare := groups.get("bare")) is not None:
            return self._required(self.variable(bare), bare), match.end()
        if (kind := groups["braced"]) is not None:
            return self._of_kind(kind, groups["name"], beside=True), match.end()
        head = groups["head"]
        if groups["end"] == "}":
            return self._named(head, match[0]), match.end()
        end = closing.get(match.start() + 1)
        if end is None or not _is_variable(head):
            return match[0], match.end()
        try:
            value = self._named(head, None)
        except Unresolved:
            if depth == _DEEPEST:
                raise Unresolved(f"The defaults in ${{{head}:-…}} stand too deep in each other.") from None
            value = self.expanded(text[match.end() : end], depth=depth + 1)
        return value, end + 1

    def _named(self, name: str, literal: str | None) -> str:
        """The value of `${name}`. A name that can be none is left as the `literal` text."""
        match _paths_and_folders(self).get(name):
            case str() as known:
                return known
            case _:
                pass
        if kind := _KIND.fullmatch(name):
            return self._of_kind(kind[1], kind[2], beside=False)
        value = self.variable(name)
        if value is None and literal is not None and not _is_variable(name):
            return literal
        return self._required(value, name)

    def _of_kind(self, kind: str, name: str, *, beside: bool) -> str:
        if kind == "env":
            return self._required(self.variable(name), name)
        if kind == "input":
            return self._required(self.inputs.get(name), f"input:{name}", "Answer it, or give it a default.")
        if kind == "file":
            base = self.beside if beside else None
            return _LINE_END.sub("", self.file(name, base=base, what=f"The file {name!r}"))
        if kind == "workspaceFolder":
            return self._required(self.workspace, f"workspaceFolder:{name}", _NO_WORKSPACE)
        raise Unresolved(f"${{{kind}:{name}}} has a value only in the program that the file was written for.")

    def _required(self, value: str | None, name: str, then: str = "Set it, or give it a default.") -> str:
        if value is None:
            if name in _FOLDERS:
                then = _NO_WORKSPACE if name != "userHome" else "The home folder is not known."
            raise Unresolved(f"The variable {name} is not set. {then}")
        return value


_FOLDERS = frozenset({"workspaceFolder", "workspaceRoot", "workspaceFolderBasename", "cwd", "userHome"})
_NO_WORKSPACE = "There is no workspace folder here."


def _paths_and_folders(variables: Variables) -> Mapping[str, str | None]:
    """The variables that editors define."""
    windows, folder = variables.windows, variables.workspace
    separator = _paths.separator(windows=windows)
    return {
        "workspaceFolder": folder,
        "workspaceRoot": folder,
        "cwd": folder,
        "workspaceFolderBasename": None if folder is None else _paths.name_of(folder, windows=windows),
        "userHome": variables.home,
        "pathSeparator": separator,
        "/": separator,
    }


def _is_variable(name: str) -> bool:
    """Whether `${name}` means a variable, and is not a text that only looks like one."""
    return _NAME.fullmatch(name) is not None or _KIND.fullmatch(name) is not None


def _closing_braces(text: str) -> Mapping[int, int]:
    """Where each brace of the text is closed: by its own, or if there are too few by the next one."""
    closing: dict[int, int] = {}
    opened: list[int] = []
    closed: list[int] = []
    for match in re.finditer(r"[{}]", text):
        if match[0] == "{":
            opened.append(match.start())
            continue
        closed.append(match.start())
        if opened:
            closing[opened.pop()] = match.start()
    for place in opened:
        following = bisect(closed, place)
        if following < len(closed):
            closing[place] = closed[following]
    return closing
