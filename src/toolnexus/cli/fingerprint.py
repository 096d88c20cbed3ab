"""What a project names that may run code, as a number that changes when any of it does."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from toolnexus.cli.settings import CODE_FILE, document_at, path_of
from toolnexus.errors import ConfigurationError, MissingExtra

if TYPE_CHECKING:
    from toolnexus.cli.settings import Project

_MOST_FILES = 5_000
_MOST_BYTES = 64 * 1024 * 1024
_LARGEST_CONFIGURATION = 4 * 1024 * 1024
_MOST_LOOKS = 50_000
_QUOTED = re.compile(r"[\"']([^\"'\n]{1,1000})[\"']")
_APART = re.compile(r"[\s=:;,|&()'\"]+")
_VARIABLE = re.compile(r"\$\{workspace(?:Folder|Root)\}")


def fingerprint(project: Project) -> str:
    """The number, in hexadecimal digits. It reads all files that count, so call it beside an event loop.

    These are the Python files, everything in the folders of skills, and OpenAPI documents with the files beside them
    that they refer to, and MCP configuration files with the project's files that they name. What is at a URL, and
    programs and modules that are installed, count by their name alone.

    Raises:
        ConfigurationError: There is too much to read.
    """
    digest = _Digest(project)
    for name in project.names:
        digest.add("name", name)
    for given in project.tools:
        if file := CODE_FILE.fullmatch(given):
            digest.file(path_of(file["file"]))
    for given in project.skills:
        digest.tree(path_of(given))
    for given in project.openapi:
        if (document := document_at(given).path) is not None:
            for path in _document(document):
                digest.file(path)
    for given in project.mcp:
        digest.file(path_of(given))
        for path in _programs(path_of(given), project.folder):
            digest.file(path)
    return digest.done()


class _Digest:
    def __init__(self, project: Project) -> None:
        self._project = project
        self._sum = hashlib.sha256()
        self._files = 0
        self._bytes = 0

    def add(self, kind: str, *values: str | bytes) -> None:
        """Something that counts. Its parts cannot be taken for others: each is led by its length."""
        for value in (kind, *values):
            data = value if isinstance(value, bytes) else os.fsencode(value)
            self._sum.update(len(data).to_bytes(8, "big") + data)

    def file(self, path: Path) -> None:
        """A file, by its path and what is in it. Only regular files are read."""
        try:
            descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        except OSError:
            self.add("missing", str(path))
            return
        with os.fdopen(descriptor, "rb") as opened:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                self.add("other", str(path))
                return
            data = opened.read(_MOST_BYTES - self._bytes + 1)
        self._files += 1
        self._bytes += len(data)
        if self._files > _MOST_FILES or self._bytes > _MOST_BYTES:
            raise ConfigurationError(
                f"{str(self._project.file)!r} names too much to be trusted: more than {_MOST_FILES:,} files or "
                f"{_MOST_BYTES // 1024**2} MiB. Name smaller folders there."
            )
        self.add("file", str(path), hashlib.sha256(data).digest())

    def tree(self, root: Path) -> None:
        """Everything in a folder. A link counts as what it says; what it leads to inside the folder counts itself."""
        if not root.is_dir():
            self.file(root)
            return
        for folder, folders, files in os.walk(root.resolve()):
            folders[:] = sorted(name for name in folders if name != ".git")
            here = Path(folder)
            for name in sorted(files + [name for name in folders if (here / name).is_symlink()]):
                path = here / name
                if path.is_symlink():
                    self.add("link", str(path), str(path.readlink()))
                else:
                    self.file(path)

    def done(self) -> str:
        return self._sum.hexdigest()


def _programs(path: Path, folder: Path) -> list[Path]:
    """The files of a project that an MCP configuration names, such as the programs that are its servers.

    It is looked at as text, in which any quoted word may be a path: what it means depends on the environment.
    """
    try:
        if not path.is_file() or path.stat().st_size > _LARGEST_CONFIGURATION:
            return []
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    root = folder.resolve()
    words = {word for each in _QUOTED.finditer(text) for word in _words(each[1], root)}
    inside = [place for word in sorted(words) if (place := _inside(root, root / word)) is not None]
    bases = dict.fromkeys([root, path.resolve().parent, *(place for place in inside if place.is_dir())])
    if len(bases) * len(words) > _MOST_LOOKS:
        raise ConfigurationError(f"{str(path)!r} names too much to be trusted. Name less there.")
    named = (_inside(root, base / word) for base in bases for word in sorted(words))
    return [place for place in dict.fromkeys(named) if place is not None and place.is_file()]


def _words(quoted: str, root: Path) -> Iterator[str]:
    """What may be a path in a quoted text: all of it, and its parts."""
    try:
        text: str = json.loads(f'"{quoted}"')
    except ValueError:
        text = quoted
    text = _VARIABLE.sub(lambda _: str(root), text)
    yield text
    yield from filter(None, _APART.split(text))


def _inside(root: Path, path: Path) -> Path | None:
    """A path within a folder. None: it leads elsewhere, or cannot be one."""
    try:
        found = path.resolve()
    except (OSError, ValueError):
        return None
    return found if found.is_relative_to(root) and found.exists() else None


def _document(path: Path) -> list[Path]:
    """An OpenAPI document, and the files that its references lead to."""
    from toolnexus.sources.openapi_document import read_file

    found = {path.absolute(): None}
    waiting = [path.absolute()]
    while waiting and len(found) <= _MOST_FILES:
        file = waiting.pop()
        try:
            contents = read_file(file)
        except (ConfigurationError, MissingExtra):
            continue  # it is no document, and counts as the bytes that it is
        for reference in _references(contents):
            other = _beside(file, reference)
            if other is not None and other not in found:
                found[other] = None
                waiting.append(other)
    return list(found)


def _beside(file: Path, reference: str) -> Path | None:
    """The file that a reference in a file leads to. None: it stays there, or leads to no file."""
    from urllib.parse import urljoin, urlsplit
    from urllib.request import url2pathname

    try:
        parts = urlsplit(urljoin(file.as_uri(), reference.partition("#")[0]))
    except ValueError:
        return None
    return Path(url2pathname(parts.path)) if parts.scheme == "file" and not parts.netloc else None


def _references(contents: Any) -> Iterator[str]:
    waiting: list[Any] = [contents]
    while waiting:
        found = waiting.pop()
        if isinstance(found, dict):
            fields = cast("dict[str, Any]", found)
            if isinstance(reference := fields.get("$ref"), str):
                yield reference
            waiting += fields.values()
        elif isinstance(found, list):
            waiting += cast("list[Any]", found)
