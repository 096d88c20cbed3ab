"""Finds the configuration files that hold here, reads them, and knows in which line something stands."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from toolnexus.errors import ConfigurationError, MissingExtra

try:
    import platformdirs
except ImportError as exc:
    raise MissingExtra("The toolnexus commands", extra="cli") from exc

_PROJECT = "toolnexus.toml"
_PYTHON_PROJECT = "pyproject.toml"
_PYTHON_TABLE = ("tool", "toolnexus")
_PYTHON_HEADER = re.compile(rb"^\s*\[\s*tool\s*\.\s*[\"']?toolnexus\b", re.MULTILINE)
_PLACE = re.compile(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", re.DOTALL)


class BrokenConfiguration(ConfigurationError):
    """A configuration file cannot be used. The message names the file, and the line where it is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A configuration file.

    Attributes:
        trusted: Whether the person wrote it, and not the author of a folder that the person works in.
        values: What it sets.
        table: Where in the file that stands: the names of the tables around it.
        broken: Why the file cannot be read. Empty: it was.
        broken_at: Where in it that is, as `LINE:COLUMN`. Empty: it is not known.
        missing: There is no such file.
    """

    path: Path
    trusted: bool
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])
    table: tuple[str, ...] = ()
    broken: str = ""
    broken_at: str = ""
    missing: bool = False
    text: str = field(default="", repr=False)

    @property
    def problem(self) -> str:
        """The file and its place, and what is wrong there."""
        return f"{self.path}{':' if self.broken_at else ''}{self.broken_at}: {self.broken}"

    def place(self, *names: str) -> str:
        """Where a key stands, as `FILE:LINE`, or the file alone if the line is not to be found."""
        line = _line_of(self.text, (*self.table, *names))
        return f"{self.path}:{line}" if line else str(self.path)


def user_file(environ: Mapping[str, str]) -> Path | None:
    """The person's own file, whether it is there or not. None: there is no home directory for it."""
    if named := environ.get("TOOLNEXUS_CONFIG"):
        return _expanded(named)
    if moved := environ.get("TOOLNEXUS_HOME"):
        folder = _expanded(moved)
        return folder and folder / "config.toml"
    try:
        return Path(platformdirs.user_config_dir("toolnexus", appauthor=False)) / "config.toml"
    except RuntimeError:
        return None


def documents(environ: Mapping[str, str], folder: Path | None) -> list[Document]:
    """The files that hold in a folder, later ones over earlier ones.

    Args:
        folder: None: there is none, since it was removed.
    """
    own = user_file(environ)
    found = [] if own is None else [_read(own, trusted=True, wanted=bool(environ.get("TOOLNEXUS_CONFIG")))]
    for place in upwards(folder) if folder else ():
        for name in (_PROJECT, _PYTHON_PROJECT):
            path = place / name
            if not path.is_file() or (own is not None and own.exists() and path.samefile(own)):
                continue
            document = _python_project(path) if name == _PYTHON_PROJECT else _read(path, trusted=False)
            if document is not None:
                return [*found, document]
    return found


def _expanded(path: str) -> Path | None:
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return None


def upwards(folder: Path) -> Iterator[Path]:
    """The folders whose project file holds in a folder, the nearest first: up to the root of its repository, or up to
    the home directory. Outside of both only the folder itself: nobody knows whose the others are."""
    chain = [folder, *folder.parents]
    try:
        home: Path | None = Path.home().resolve()
    except RuntimeError:
        home = None
    last = next((place for place in chain if (place / ".git").exists()), home if home in chain else folder)
    for place in chain:
        yield place
        if place == last:
            return


def _read(path: Path, *, trusted: bool, wanted: bool = False) -> Document:
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return Document(
            path=path,
            trusted=trusted,
            missing=True,
            broken="It is not there. TOOLNEXUS_CONFIG names it." if wanted else "",
        )
    except OSError as error:
        return Document(path=path, trusted=trusted, broken=f"It cannot be read: {error.strerror or error}.")
    return _parsed(path, data, trusted=trusted)


def _python_project(path: Path) -> Document | None:
    """The part of a `pyproject.toml` that is ours. None: there is none, or it cannot be said."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    if b"toolnexus" not in data:
        return None
    whole = _parsed(path, data, trusted=False)
    if whole.broken:
        return whole if _PYTHON_HEADER.search(data) else None
    ours: Any = whole.values
    for name in _PYTHON_TABLE:
        ours = cast("dict[str, Any]", ours).get(name) if isinstance(ours, dict) else None
    if not isinstance(ours, dict):
        return None
    return Document(path=path, trusted=False, values=cast("dict[str, Any]", ours), table=_PYTHON_TABLE, text=whole.text)


def _parsed(path: Path, data: bytes, *, trusted: bool) -> Document:
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        return Document(path=path, trusted=trusted, broken=f"Line {line} is not UTF-8. Save the file as UTF-8.")
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        what, place = _said(error, text)
        return Document(path=path, trusted=trusted, broken=what, broken_at=place, text=text)
    except RecursionError:
        return Document(path=path, trusted=trusted, broken="It is nested too deeply.", text=text)
    return Document(path=path, trusted=trusted, values=values, text=text)


def _said(error: tomllib.TOMLDecodeError, text: str) -> tuple[str, str]:
    """What is wrong with a TOML text, and where, as `LINE:COLUMN`."""
    match = _PLACE.fullmatch(str(error))
    if match is None:
        return str(error), ""
    what, line, column = match.groups()
    if line is None:
        *before, last = text.rstrip("\n").split("\n")
        line, column = len(before) + 1, len(last) + 1
    return f"{what}.", f"{line}:{column}"


def _line_of(text: str, names: Sequence[str]) -> int | None:
    """The line in which a key or table is first named. None: it is written in a way that hides it.

    A line counts if the text before it is complete and does not have the key, and the text up to the end of the
    statement that begins there does. So a line within a long text is no match.
    """
    lines = text.split("\n")
    for number, line in enumerate(lines):
        if names[-1] not in line:
            continue
        before = _loaded(lines[:number])
        if before is None or _has(before, names):
            continue
        for end in range(number + 1, len(lines) + 1):
            if (whole := _loaded(lines[:end])) is not None:
                if _has(whole, names):
                    return number + 1
                break
    return None


def _loaded(lines: Sequence[str]) -> dict[str, Any] | None:
    try:
        return tomllib.loads("\n".join(lines))
    except (tomllib.TOMLDecodeError, RecursionError):
        return None


def _has(values: Any, names: Sequence[str]) -> bool:
    for name in names:
        if not isinstance(values, dict) or name not in values:
            return False
        values = cast("dict[str, Any]", values)[name]
    return True
