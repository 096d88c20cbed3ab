"""An OpenAPI document: read from JSON or YAML, with what its references lead to."""

from __future__ import annotations

import codecs
import datetime
import json
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urldefrag, urljoin, urlsplit
from urllib.request import url2pathname

from referencing import Registry, Resource
from referencing.exceptions import Unresolvable

from toolnexus import _json
from toolnexus._unicode import clean_text
from toolnexus.errors import ConfigurationError, MissingExtra

if TYPE_CHECKING:
    from toolnexus.tools import JSONObject

MAX_DOCUMENT = 128 * 1024 * 1024
"""Bytes of one document; the largest public ones have some 15 million."""
_MOST_VALUES = 20_000_000
"""Values in a document once its aliases are written out: a few lines of YAML can stand for billions."""
_LARGE = 1_000_000
"""Characters from which JSON is read in steps."""
_OUTER = 4
"""How deep: `paths`, a path, a method and its parts."""
_MOST_STEPS = 64
"""References that lead to references."""
_SUFFIXES = frozenset({".json", ".yaml", ".yml"})


class BrokenReference(Exception):
    """A reference leads nowhere. The text is the reference."""


class Document:
    """A document, and where in it, or in files beside it, a reference leads.

    Other files are read only for a document that is one itself. Nothing is ever fetched.
    """

    def __init__(self, contents: JSONObject, address: str) -> None:
        """`address` is its URI, which relative references and servers are relative to. Empty: it has none."""
        self.contents = contents
        self.address = address
        self.base = address or "urn:openapi:document"
        self._files: dict[str, JSONObject] = {}
        root: Resource[Any] = Resource.opaque(contents)
        retrieve: Any = self._retrieve
        self._registry: Registry[Any] = Registry(retrieve=retrieve).with_resource(self.base, root)
        self._found: dict[tuple[str, str], tuple[Any, str]] = {}

    @property
    def version(self) -> str:
        return str(self.contents.get("openapi", ""))

    def look_up(self, reference: str, base: str) -> tuple[Any, str]:
        """What a reference leads to, and the address of the document that this is in.

        Raises:
            BrokenReference: It leads nowhere.
        """
        known = self._found.get((base, reference))
        if known is None:
            try:
                found = self._registry.resolver(base).lookup(reference)
            except (Unresolvable, ValueError, KeyError, IndexError, TypeError) as error:
                raise BrokenReference(reference) from error
            known = self._found[base, reference] = found.contents, urldefrag(self.absolute(reference, base))[0]
        return known

    def absolute(self, reference: str, base: str) -> str:
        """A reference that means the same everywhere."""
        return base + reference if reference.startswith("#") else urljoin(base, reference)

    def follow(self, value: Any, base: str) -> tuple[Any, str]:
        """What `value` is once it is no reference any more.

        Raises:
            BrokenReference: It leads nowhere, or in a circle.
        """
        for _ in range(_MOST_STEPS):
            match value:
                case {"$ref": str(reference)}:
                    value, base = self.look_up(reference, base)
                case _:
                    return value, base
        raise BrokenReference(str(cast("JSONObject", value)["$ref"]))

    def _retrieve(self, address: str) -> Resource[Any]:
        parts = urlsplit(address)
        if not self.address.startswith("file:") or parts.scheme != "file" or parts.netloc:
            raise ValueError(f"{address} is not fetched")
        contents = self._files.get(address)
        if contents is None:
            path = Path(url2pathname(parts.path))
            if path.suffix.lower() not in _SUFFIXES:
                raise ValueError(f"{path} is neither JSON nor YAML")
            contents = self._files[address] = read_file(path)
        return Resource.opaque(contents)


def from_file(path: Path) -> Document:
    """Read a file.

    Raises:
        ConfigurationError: It cannot be read, or is no OpenAPI 3 document.
        MissingExtra: It is YAML, and the library for that is not installed.
    """
    path = path.absolute()
    return _checked(read_file(path), path.as_uri(), str(path))


def from_bytes(data: bytes, url: str) -> Document:
    """Read what was at a URL. Raises as `from_file` does."""
    shown = urlsplit(url)._replace(query="", fragment="").geturl()
    return _checked(parse(data, shown), url, shown)


def from_mapping(contents: Mapping[str, Any]) -> Document:
    """Take what was read elsewhere. Raises as `from_file` does."""
    try:
        return _checked(_plain(contents), "", "The mapping")
    except RecursionError as error:
        raise ConfigurationError("The mapping is nested too deeply, or holds itself.") from error


def _plain(value: Any) -> Any:
    """A copy of what a library for JSON or YAML has read. Some make dates of texts, and numbers of keys."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in cast("list[Any]", value)]
    return value.isoformat() if isinstance(value, datetime.date) else value


def _checked(contents: JSONObject, address: str, label: str) -> Document:
    version = contents.get("openapi")
    if isinstance(version, str) and version.startswith("3."):
        return Document(contents, address)
    if "swagger" in contents:
        raise ConfigurationError(f"{label} is Swagger 2.0. Convert it to OpenAPI 3 first.")
    raise ConfigurationError(f"{label} is no OpenAPI 3 document: its `openapi` is {version!r:.40}, not 3.0 or 3.1.")


def read_file(path: Path) -> JSONObject:
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise ConfigurationError(f"{str(path)!r} is no file.")
        if status.st_size > MAX_DOCUMENT:
            raise ConfigurationError(f"{str(path)!r} is larger than {MAX_DOCUMENT:,} bytes.")
        data = path.read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigurationError(f"The OpenAPI document {str(path)!r} cannot be read: {reason}.") from error
    return parse(data, str(path))


def parse(data: bytes, label: str) -> JSONObject:
    """The object that a JSON or YAML text is.

    Raises:
        ConfigurationError: It is neither, or no object. The message begins with `label`.
        MissingExtra: It is no JSON, and the library for YAML is not installed.
    """
    if len(data) > MAX_DOCUMENT:
        raise ConfigurationError(f"{label} is larger than {MAX_DOCUMENT:,} bytes.")
    value: Any = None
    data = data.removeprefix(codecs.BOM_UTF8)
    if data.lstrip()[:1] == b"{":
        try:
            value = _json.loads(data) if len(data) < _LARGE else _in_steps(data)
        except RecursionError as error:
            raise ConfigurationError(f"{label} is nested too deeply.") from error
        except ValueError:  # a YAML document may begin like this as well
            value = None
    if value is None:
        value = _yaml(data, label)
    if not isinstance(value, dict):
        raise ConfigurationError(f"{label} is no OpenAPI document: it is no object.")
    return cast("JSONObject", value)


def _in_steps(data: bytes) -> JSONObject:
    """A large JSON object, read member by member: reading it at once would stop all other threads meanwhile.

    Raises:
        ValueError: It is not JSON.
    """
    # The marks of JSON are ASCII. Texts are decoded where they stand: one emoji makes a text four times as large.
    text = data.decode("latin-1")
    value, end = _member(text, _space(text, 0), _OUTER)
    if _space(text, end) != len(text):
        raise ValueError("There is something behind the object.")
    return cast("JSONObject", value)


def _member(text: str, at: int, depth: int) -> tuple[Any, int]:
    """The value that begins at `at`, and where it ends; of `depth` nested objects each member on its own."""
    if depth == 0 or text[at : at + 1] != "{":
        value, end = _DECODER.raw_decode(text, at)
        piece = text[at:end]
        return (value if piece.isascii() else _DECODER.decode(piece.encode("latin-1").decode())), end
    found: JSONObject = {}
    at = _space(text, at + 1)
    while text[at : at + 1] != "}":
        if found:
            at = _behind(",", text, at)
        if text[at : at + 1] != '"':
            raise ValueError(f"There is no key at character {at}.")
        key, at = _member(text, at, 0)
        found[key], at = _member(text, _behind(":", text, _space(text, at)), depth - 1)
        at = _space(text, at)
    return found, at + 1


def _behind(mark: str, text: str, at: int) -> int:
    if text[at : at + 1] != mark:
        raise ValueError(f"There is no {mark!r} at character {at}.")
    return _space(text, at + 1)


def _space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return at if match is None else match.end()


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON.")


_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder(parse_constant=_refuse)


def _yaml(data: bytes, label: str) -> Any:
    try:
        text = data.decode("utf-16" if data[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "utf-8")
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{label} is neither UTF-8 nor UTF-16.") from error
    try:
        import yaml

        from toolnexus.sources.openapi_yaml import load
    except ImportError as error:
        raise MissingExtra("OpenAPI documents in YAML", extra="tools") from error
    try:
        value = load(text)
        size = _values(value, {})
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigurationError(f"{label} is neither JSON nor YAML: {str(error)[:300]}") from error
    except RecursionError as error:
        raise ConfigurationError(f"{label} is nested too deeply.") from error
    if size > _MOST_VALUES:
        raise ConfigurationError(f"{label} stands for more than {_MOST_VALUES:,} values, or holds itself.")
    return value


def _values(value: Any, known: dict[int, int]) -> int:
    """How many values there are in one, each counted as often as it stands there."""
    if not isinstance(value, dict | list):
        return 1
    identity = id(cast("object", value))
    if identity not in known:
        known[identity] = _MOST_VALUES + 1  # it holds itself if it is met before it is counted
        inner: Iterator[Any] = iter(
            cast("JSONObject", value).values() if isinstance(value, dict) else cast("list[Any]", value)
        )
        known[identity] = 1 + sum(_values(each, known) for each in inner)
    return known[identity]
