"""Skills as MCP resources, and as the skills extension tells of them (`io.modelcontextprotocol/skills`)."""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import mimetypes
import re
from collections.abc import Collection, Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from toolnexus.sources.skills.files import FileRefused, Version, list_files, read_start, real_path, resolve
from toolnexus.sources.skills.skill_md import Unreadable, decode, split

if TYPE_CHECKING:
    from pathlib import Path

    from toolnexus.sources.skills.collection import Skills
    from toolnexus.sources.skills.usable import Skill
    from toolnexus.tools import JSONObject

_log = logging.getLogger("toolnexus")

EXTENSION = "io.modelcontextprotocol/skills"
SCHEME = "skill://"
_HEAD = "SKILL.md"
_FOLDER = "inode/directory"

# What every client of the extension takes; a larger skill is left out of its list.
_MOST_FILES = 512
_MOST_BYTES = 16 * 1024 * 1024

_NAME = re.compile(r"(?=.{1,64}\Z)[a-z0-9]+(?:-[a-z0-9]+)*")


class UnknownSkill(Exception):
    """A URI under which there is no such thing. The text says so."""


class SkillShelf:
    """Skills by URI: `skill://NAME/SKILL.md`, and their other files beside it. Reads the disk, so not for the loop."""

    def __init__(self, skills: Skills) -> None:
        self._skills = skills
        self._digests: dict[str, tuple[Version, str]] = {}

    def resources(self) -> list[JSONObject]:
        """The `SKILL.md` of each skill."""
        return [self._resource(skill) for skill in self._all()]

    def read(self, uri: str) -> JSONObject | None:
        """The contents of a file of a skill. None: there is none."""
        found = self._find(uri)
        if found is None:
            return None
        skill, path = found
        data = self._data(skill, path, self._files(skill)) if path else None
        if data is None:
            return None
        kind = _media_type(path, data)
        text = _text(data)
        held = {"blob": base64.b64encode(data).decode()} if text is None else {"text": text}
        return {"contents": [{"uri": uri, "mimeType": kind, **held}]}

    def entries(self) -> list[JSONObject]:
        """The entries of `skills/list`. A skill that does not fit the extension is left out."""
        return [entry for skill in self._all() if (entry := self._entry(skill)) is not None]

    def entry(self, uri: str) -> JSONObject:
        """The entry of `skills/get`.

        Raises:
            UnknownSkill: There is none.
        """
        found = self._find(uri)
        entry = self._entry(found[0]) if found and found[1] == _HEAD else None
        if entry is None:
            raise UnknownSkill(f"No skill is served at {uri!r:.300}")
        return entry

    def folder(self, uri: str) -> list[JSONObject]:
        """What is in a folder of a skill, for `resources/directory/read`.

        Raises:
            UnknownSkill: There is no such folder.
        """
        found = self._find(uri)
        if found is None:
            raise UnknownSkill(f"{uri!r:.300} is not a folder of a skill")
        skill, inside = found
        children: dict[str, JSONObject] = {}
        for path in self._files(skill):
            parts = PurePosixPath(path).parts
            above = PurePosixPath(inside).parts if inside else ()
            if parts[: len(above)] != above or len(parts) == len(above):
                continue
            name = parts[len(above)]
            child = self._uri(skill, "/".join(parts[: len(above) + 1]))
            kind = _FOLDER if len(parts) > len(above) + 1 else _media_type(path, b"")
            children.setdefault(name, {"uri": child, "name": name, "mimeType": kind})
        if not children:
            raise UnknownSkill(f"{uri!r:.300} is not a folder of a skill")
        return [*children.values()]

    def _all(self) -> list[Skill]:
        return [skill for name in self._skills.names() if (skill := self._skills.get(name)) is not None]

    def _find(self, uri: str) -> tuple[Skill, str] | None:
        """The skill of a URI, and the path in it; empty for its folder."""
        if not uri.startswith(SCHEME):
            return None
        name, _, path = uri.removeprefix(SCHEME).partition("/")
        skill = self._skills.get(unquote(name))
        return None if skill is None else (skill, "/".join(map(unquote, path.split("/"))))

    def _uri(self, skill: Skill, path: str) -> str:
        return f"{SCHEME}{quote(skill.definition.name, safe='')}/{quote(path)}"

    def _resource(self, skill: Skill) -> JSONObject:
        definition = skill.definition
        return {
            "uri": self._uri(skill, _HEAD),
            "name": definition.name,
            "description": definition.description,
            "mimeType": "text/markdown",
        }

    def _files(self, skill: Skill) -> list[str]:
        """The paths of all files of a skill, as many as the extension allows and one more."""
        directory = _directory(skill)
        return [_HEAD] if directory is None else [_HEAD, *list_files(directory, _MOST_FILES)[0]]

    def _data(self, skill: Skill, path: str, files: Collection[str]) -> bytes | None:
        """The bytes of one of a skill's files. None: it is none of them, or cannot be read."""
        if path == _HEAD and skill.file is None:
            return _written(skill)
        place = self._place(skill, path, files)
        try:
            start = None if place is None else read_start(place, _MOST_BYTES)
        except FileRefused as error:
            _log.info("A file of the skill %r is not served: %s", skill.definition.name, error)
            return None
        return start.data if start is not None and start.whole else None

    def _place(self, skill: Skill, path: str, files: Collection[str]) -> Path | None:
        if path == _HEAD and skill.file is not None:
            return resolve(skill.file.path, skill.file.root)
        directory = _directory(skill)
        if directory is None or path not in files:
            return None
        return resolve(directory / path, real_path(directory))

    def _entry(self, skill: Skill) -> JSONObject | None:
        name = skill.definition.name
        files = self._files(skill)
        head = self._data(skill, _HEAD, files)
        fields = None if head is None else _front_matter(skill, head)
        if fields is None or not _NAME.fullmatch(name) or fields.get("name") != name:
            _log.info("The skill %r is not in skills/list: it is not as the extension wants skills.", name)
            return None
        resources = [each for path in files if (each := self._described(skill, path, files)) is not None]
        if len(resources) > _MOST_FILES or sum(each["size"] for each in resources) > _MOST_BYTES:
            _log.warning("The skill %r is not in skills/list: more than %d files or 16 MiB.", name, _MOST_FILES)
            return None
        return {"uri": self._uri(skill, _HEAD), "frontmatter": fields, "resources": resources}

    def _described(self, skill: Skill, path: str, files: Collection[str]) -> JSONObject | None:
        uri = self._uri(skill, path)
        if path == _HEAD and skill.file is None:
            data = _written(skill)
            return {"uri": uri, "digest": _digest(data), "size": len(data)}
        place = self._place(skill, path, files)
        try:
            status = None if place is None else place.lstat()
        except OSError:
            return None
        if status is None:
            return None
        version = (status.st_ino, status.st_size, status.st_mtime_ns)
        known = self._digests.get(uri)
        if known is None or known[0] != version:
            if (data := self._data(skill, path, files)) is None:
                return None
            known = self._digests[uri] = ((version[0], len(data), version[2]), _digest(data))
        return {"uri": uri, "digest": known[1], "size": known[0][1]}


def _directory(skill: Skill) -> Path | None:
    return skill.definition.directory if skill.file is None else skill.file.path.parent


def _written(skill: Skill) -> bytes:
    """The SKILL.md of a skill that is data. JSON is YAML."""
    definition = skill.definition
    fields = _fields_of_data(skill)
    lines = [f"{json.dumps(key) if not key.isidentifier() else key}: {json.dumps(fields[key])}" for key in fields]
    return "\n".join(["---", *lines, "---", "", definition.body]).encode("utf-8", "replace")


def _fields_of_data(skill: Skill) -> dict[str, Any]:
    definition = skill.definition
    plain: Mapping[str, Any] = json.loads(json.dumps(dict(definition.metadata), default=str))
    return {**plain, "name": definition.name, "description": definition.description}


def _front_matter(skill: Skill, head: bytes) -> dict[str, Any] | None:
    """What stands at the top of a SKILL.md, with YAML's types. None: it cannot be read."""
    if skill.file is None:
        return _fields_of_data(skill)
    from toolnexus.gateway.front_matter import BrokenFrontMatter, typed_fields  # needs PyYAML

    try:
        return typed_fields(split(decode(head, whole=True)).front)
    except (Unreadable, BrokenFrontMatter):
        return None


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _text(data: bytes) -> str | None:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def _media_type(path: str, data: bytes) -> str:
    if path.casefold().endswith((".md", ".markdown")):
        return "text/markdown"
    guessed = mimetypes.guess_type(path)[0]
    return guessed or ("application/octet-stream" if _text(data) is None else "text/plain")
