"""What a command was told: flags over environment over a project's file over the person's own file."""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, cast
from urllib.parse import urlsplit

from toolnexus.cli.layers import BrokenConfiguration, Document, documents, upwards
from toolnexus.dialects import DIALECTS
from toolnexus.endpoints import is_local, provider_from
from toolnexus.errors import ConfigurationError, MissingExtra
from toolnexus.providers import PROVIDERS, Provider

try:
    import platformdirs
except ImportError as exc:
    raise MissingExtra("The toolnexus commands", extra="cli") from exc

KEY = "TOOLNEXUS_API_KEY"
"""The variable with the key for an endpoint that was named by its address."""

_PROVIDERS = "providers"
_DEMO = "demo"
"""How names of the demo model begin, which is not loaded for this."""
_ADDRESS = re.compile("https?://", re.IGNORECASE)
CODE_FILE = re.compile(r"(?P<file>.+\.py)(?::(?P<name>[^:/\\]+))?", re.DOTALL)
"""A file of Python code, and perhaps something in it."""
_SERVER = re.compile(r"(?P<document>.+?)(?:#(?P<server>https?://.+))?", re.DOTALL)
"""An OpenAPI document, and perhaps where its server is."""
MCP_FILES = (".mcp.json", "mcp.json", ".vscode/mcp.json", ".cursor/mcp.json")
"""Where in a project other programs have its MCP servers."""
_MCP_NAMES = frozenset(name.rpartition("/")[2] for name in MCP_FILES)
_EDITORS = frozenset({".vscode", ".cursor"})
_ON = frozenset({"1", "true", "yes", "on"})
_OFF = frozenset({"0", "false", "no", "off"})

Layer = Literal["default", "user file", "project file", "environment", "flag"]
_LAYERS: tuple[Layer, ...] = ("default", "user file", "project file", "environment", "flag")
"""Where a value may come from. Later ones win."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value came from.

    Attributes:
        layer: Which layer.
        name: In it, the variable, the flag, or the key of the file.
        file: None: it was no file.
    """

    layer: Layer
    name: str = ""
    file: Document | None = None

    @property
    def where(self) -> str:
        """The file and line, the variable, the flag, or `default`."""
        return self.file.place(self.name) if self.file else self.name or self.layer


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Something that can be set in more places than one.

    Attributes:
        name: Its key in a file, and its field of `Settings`.
        flag: The option that sets it for one command.
        variable: The environment variable. Empty: there is none.
        project: Whether a project's file may set it, which may have been written by anybody.
        default: What holds where nothing is set.
        expected: What a value has to be, in words.
        read: Makes the value of what stands in a file, of a variable's text or of a flag. Raises `ValueError` or
            `TypeError`.
        what: What it is for.
        adds: Whether what several places set is put together. Otherwise the last one wins.
        runs: Whether it names what may run code: what a project's file sets is in `Settings.project` alone, and used
            only where the person trusts that project.
        beside: What a path in a file means, given the folder of that file. None: it is no path.
    """

    name: str
    flag: str
    variable: str = ""
    project: bool = True
    default: Any = None
    expected: str
    read: Callable[[object], Any]
    what: str
    adds: bool = False
    runs: bool = False
    beside: Callable[[str, Path], str] | None = None


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError
    return value


def _texts(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    if not isinstance(value, list | tuple):
        raise TypeError
    return tuple(_text(each) for each in cast("list[object]", value))


def _patterns(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        raise TypeError
    return _texts(value)


def _whole(value: object) -> int:
    number = int(value) if isinstance(value, str) else value
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise ValueError
    return number


def _seconds(value: object) -> float:
    number = float(value) if isinstance(value, str) else value
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 < number < math.inf:
        raise ValueError
    return float(number)


def _one_of(choices: tuple[str, ...]) -> Callable[[object], str]:
    def read(value: object) -> str:
        if value not in choices:
            raise ValueError
        return _text(value)

    return read


def _switch(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and (word := value.strip().lower()) in _ON | _OFF:
        return word in _ON
    raise ValueError


def _beside(given: str, folder: Path) -> str:
    return given if given.startswith("~") else str(folder / given)


def _document_beside(given: str, folder: Path) -> str:
    return given if document_at(given).path is None else _beside(given, folder)


def _code_beside(given: str, folder: Path) -> str:
    return _beside(given, folder) if CODE_FILE.fullmatch(given) else given  # anything else is a module


OUTPUTS = ("text", "md", "json", "jsonl")
TOOL_MODES = ("auto", "constrained")

SETTINGS: tuple[Setting, ...] = (
    Setting(
        name="model",
        flag="--model",
        variable="TOOLNEXUS_MODEL",
        expected="a text, such as openai:gpt-5-mini",
        read=_text,
        what="`provider:model`, `demo`, or an address and a model as `http://host#model`.",
    ),
    Setting(
        name="base_url",
        flag="--base-url",
        variable="TOOLNEXUS_BASE_URL",
        project=False,
        expected="an address",
        read=_text,
        what=f"Any model endpoint. Its key is {KEY}.",
    ),
    Setting(
        name="style",
        flag="--style",
        variable="TOOLNEXUS_STYLE",
        expected=f"one of {', '.join(DIALECTS)}",
        read=_one_of(tuple(DIALECTS)),
        what="What the endpoint speaks.",
    ),
    Setting(
        name="system",
        flag="--system",
        variable="TOOLNEXUS_SYSTEM",
        default="",
        expected="a text",
        read=_text,
        what="The system prompt.",
    ),
    Setting(
        name="store",
        flag="--store",
        variable="TOOLNEXUS_STORE",
        project=False,
        expected="the URL of a store",
        read=_text,
        what="Where conversations are kept.",
    ),
    Setting(
        name="max_steps",
        flag="--max-steps",
        variable="TOOLNEXUS_MAX_STEPS",
        expected="a whole number from 1 on",
        read=_whole,
        what="Replies of the model that one answer may take.",
    ),
    Setting(
        name="timeout",
        flag="--timeout",
        variable="TOOLNEXUS_TIMEOUT",
        expected="a number of seconds above 0",
        read=_seconds,
        what="Seconds that one answer may take.",
    ),
    Setting(
        name="tool_mode",
        flag="--tool-mode",
        variable="TOOLNEXUS_TOOL_MODE",
        default="auto",
        expected=f"one of {', '.join(TOOL_MODES)}",
        read=_one_of(TOOL_MODES),
        what="How the model calls tools; `constrained` is for models that cannot.",
    ),
    Setting(
        name="fallbacks",
        flag="--fallback",
        variable="TOOLNEXUS_FALLBACKS",
        default=(),
        expected='a list of models, such as ["groq:llama-3.3-70b-versatile"]',
        read=_texts,
        what="Models that are asked when the first cannot answer. In the variable, commas stand between them.",
    ),
    Setting(
        name="output",
        flag="--output",
        variable="TOOLNEXUS_OUTPUT",
        expected=f"one of {', '.join(OUTPUTS)}",
        read=_one_of(OUTPUTS),
        what="How answers are written.",
    ),
    Setting(
        name="approve",
        flag="--approve",
        project=False,
        default=(),
        expected='a list of patterns, such as ["send_*"]',
        read=_patterns,
        what="Patterns of the names of tools that may run without asking.",
        adds=True,
    ),
    Setting(
        name="tools",
        flag="--tool",
        variable="TOOLNEXUS_TOOLS",
        default=(),
        expected='a list of functions, such as ["weather.py:forecast", "package.module:function"]',
        read=_texts,
        what="Python functions as tools: `file.py`, `file.py:function` or `module:function`.",
        adds=True,
        runs=True,
        beside=_code_beside,
    ),
    Setting(
        name="skills",
        flag="--skill",
        variable="TOOLNEXUS_SKILLS",
        default=(),
        expected='a list of folders, such as ["skills"]',
        read=_texts,
        what="Folders with skills.",
        adds=True,
        runs=True,
        beside=_beside,
    ),
    Setting(
        name="openapi",
        flag="--openapi",
        variable="TOOLNEXUS_OPENAPI",
        default=(),
        expected='a list of files and URLs, such as ["api.yaml"]',
        read=_texts,
        what="OpenAPI documents whose operations are tools.",
        adds=True,
        runs=True,
        beside=_document_beside,
    ),
    Setting(
        name="mcp",
        flag="--mcp",
        variable="TOOLNEXUS_MCP",
        default=(),
        expected='a list of files, such as ["mcp.json"]',
        read=_texts,
        what="MCP configuration files whose servers have tools.",
        adds=True,
        runs=True,
        beside=_beside,
    ),
    Setting(
        name="builtins",
        flag="--builtins",
        variable="TOOLNEXUS_BUILTINS",
        default=True,
        expected="true or false",
        read=_switch,
        what="Whether the built-in tools are offered.",
        runs=True,
    ),
)
"""All of them. The keys of files, the variables, `config show` and the documentation follow from it."""

_KEYS = (*(setting.name for setting in SETTINGS), _PROVIDERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """What a project's file names that may run code. Paths are full ones.

    Attributes:
        file: That file; where none names anything, the first file with MCP servers that was found.
        mcp: Those that it names, and those that were found in the project.
        builtins: It switches the built-in tools on.
    """

    file: Path
    tools: tuple[str, ...] = ()
    skills: tuple[str, ...] = ()
    openapi: tuple[str, ...] = ()
    mcp: tuple[str, ...] = ()
    builtins: bool = False

    @property
    def found(self) -> bool:
        """Whether it names nothing for us: it only has MCP servers for some program."""
        return self.file.name in _MCP_NAMES

    @property
    def folder(self) -> Path:
        """The project."""
        folder = self.file.parent
        return folder.parent if self.found and folder.name in _EDITORS else folder

    @property
    def names(self) -> list[str]:
        """What it names, one line each, as the person is asked about it."""
        return [
            *(f"tool {each}" for each in self.tools),
            *(f"skills {each}" for each in self.skills),
            *(f"OpenAPI document {each}" for each in self.openapi),
            *(f"MCP servers of {each}" for each in self.mcp),
            *(["the built-in tools"] if self.builtins else []),
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How to reach a model, and which conversation to continue.

    Attributes:
        model: None: look for one.
        api_key: The key for `base_url`; it is sent nowhere else. None: the one that the address is known to want.
        max_steps: Replies of the model that one answer may take. None: the client's own bound.
        timeout: Seconds that one answer may take. None: unbounded.
        tool_mode: As `create_client` takes it.
        fallbacks: Models that are asked when the first cannot answer.
        output: How answers are written. None: as suits where they go.
        providers: Rows of the provider table that the configuration adds.
        latest: Continue the conversation that was saved last.
        conversation: Continue this one, or begin it. None: begin one with an id of its own.
        keep: Whether the conversation is kept.
        store: The URL of the store to keep it in. None: the file in the user's data directory.
        yes: Whatever needs approval has it.
        approve: Patterns of the names of tools that have it.
        tools: Python functions that are tools: files, and `module:function`.
        skills: Folders with skills.
        openapi: Paths and URLs of OpenAPI documents.
        mcp: MCP configuration files.
        mcp_folders: The projects of some of these, which their programs run in. The others' run where we do.
        builtins: Whether the built-in tools are offered.
        project: What the project's file adds to these five, should the person trust it. None: nothing.
        verbose: How much more is told: 1 or 2.
        origins: Where each value of `SETTINGS` that was set came from.
    """

    model: str | None = None
    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    style: str | None = None
    system: str = ""
    max_steps: int | None = None
    timeout: float | None = None
    tool_mode: Literal["auto", "constrained"] = "auto"
    fallbacks: tuple[str, ...] = ()
    output: Literal["text", "md", "json", "jsonl"] | None = None
    providers: Mapping[str, Provider] = field(default_factory=lambda: MappingProxyType({}))
    latest: bool = False
    conversation: str | None = None
    keep: bool = True
    store: str | None = None
    yes: bool = False
    approve: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    skills: tuple[str, ...] = ()
    openapi: tuple[str, ...] = ()
    mcp: tuple[str, ...] = ()
    mcp_folders: Mapping[str, Path] = field(default_factory=lambda: MappingProxyType({}))
    builtins: bool = True
    project: Project | None = None
    verbose: int = 0
    origins: Mapping[str, Origin] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class _Set:
    """A value that was set, and where."""

    value: Any
    origin: Origin

    @property
    def rank(self) -> int:
        return _LAYERS.index(self.origin.layer)


class Read:
    """What the files, the environment and the flags say together.

    Attributes:
        files: The files that hold here.
        problems: What is wrong with them, one message each.
        providers: Rows of the provider table that they add.
        project: What a project's file names that may run code. None: nothing.
    """

    def __init__(self, flags: Mapping[str, Any], environ: Mapping[str, str], folder: Path | None) -> None:
        self.files = documents(environ, folder)
        self.problems: list[str] = []
        self.providers: dict[str, Provider] = {}
        self.project: Project | None = None
        self._set: dict[str, _Set] = {}
        self._own: dict[str, Any] = {}
        for document in self.files:
            self._take_file(document)
        self._find_servers(folder)
        for setting in SETTINGS:
            given = environ.get(setting.variable, "") if setting.variable else ""
            if given.strip():
                self._take(setting, given, Origin("environment", setting.variable))
        for setting in SETTINGS:
            if (given := flags.get(setting.name)) not in (None, "", ()):
                self._take(setting, given, Origin("flag", setting.flag))
        self._part()
        self._settle()

    def value(self, name: str) -> Any:
        """A value as it holds."""
        if (found := self._set.get(name)) is not None:
            return found.value
        return next(setting.default for setting in SETTINGS if setting.name == name)

    def own(self, name: str) -> Any:
        """A value as it holds without what a project names that may run code."""
        setting = next(each for each in SETTINGS if each.name == name)
        return self._own.get(name, setting.default) if setting.runs else self.value(name)

    def origins(self) -> dict[str, Origin]:
        """Where each value that was set came from."""
        return {name: found.origin for name, found in self._set.items()}

    def came_from(self, name: str) -> Origin:
        """Where a value came from."""
        found = self._set.get(name)
        return Origin("default") if found is None else found.origin

    def _take(self, setting: Setting, given: object, origin: Origin) -> None:
        try:
            value = setting.read(given)
        except (TypeError, ValueError):
            place = f"{origin.where}: {setting.name}" if origin.file else origin.where
            shown = repr(given) if isinstance(given, str | bool | int | float) else f"a {type(given).__name__}"
            self.problems.append(f"{place} is {shown:.60}; give {setting.expected}.")
            return
        if setting.beside is not None and origin.file is not None:
            value = tuple(setting.beside(each, origin.file.path.parent.absolute()) for each in value)
        if setting.runs:
            self._take_code(setting, value, origin)
        if setting.adds and (known := self._set.get(setting.name)):
            value = tuple(dict.fromkeys((*known.value, *value)))  # more never take others away
        self._set[setting.name] = _Set(value, origin)

    def _take_code(self, setting: Setting, value: Any, origin: Origin) -> None:
        """Keep what a project names apart from what the person named. What it only takes away needs no trust."""
        if origin.file is not None and not origin.file.trusted and value:
            project = self.project or Project(file=origin.file.path.absolute())
            self.project = replace(project, **{setting.name: value})
            return
        own = self._own.get(setting.name, setting.default)
        self._own[setting.name] = tuple(dict.fromkeys((*own, *value))) if setting.adds else value

    def _find_servers(self, folder: Path | None) -> None:
        """Take the MCP servers that a project has for other programs: beside its file, else in the nearest folder."""
        places = [self.project.folder] if self.project else upwards(folder) if folder else ()
        own = _own_folder()
        for place in places:
            found = [str((place / name).absolute()) for name in MCP_FILES if place != own and (place / name).is_file()]
            if found:
                project = self.project or Project(file=Path(found[0]))
                self.project = replace(project, mcp=tuple(dict.fromkeys((*project.mcp, *found))))
                return

    def _take_file(self, document: Document) -> None:
        if document.broken:
            self.problems.append(document.problem)
            return
        for name, given in document.values.items():
            setting = next((each for each in SETTINGS if each.name == name), None)
            if name == _PROVIDERS:
                self._take_providers(document, given)
            elif setting is None:
                self.problems.append(f"{document.place(name)}: There is no setting {name!r}.{_meant(name)}")
            elif refused := _refused(setting, given, document):
                self.problems.append(f"{document.place(name)}: {refused}")
            else:
                layer: Layer = "user file" if document.trusted else "project file"
                self._take(setting, given, Origin(layer, name, document))

    def _take_providers(self, document: Document, given: object) -> None:
        rows = cast("dict[str, Any]", given) if isinstance(given, dict) else {"": given}
        if not all(isinstance(row, dict) for row in rows.values()):
            self.problems.append(
                f"{document.place(_PROVIDERS)}: providers holds tables, as [providers.NAME] with base_url and keys."
            )
            return
        for name, fields in cast("dict[str, dict[str, Any]]", rows).items():
            try:
                row = provider_from(name, fields, trusted=document.trusted)
                if not document.trusted:
                    self._check_untrusted(row)
            except ConfigurationError as error:
                said = str(error)
                wrong = next((key for key in fields if said.startswith(f"{key} of ") or repr(key) in said), None)
                self.problems.append(f"{document.place(_PROVIDERS, name, *([wrong] if wrong else []))}: {said}")
            else:
                self.providers[name] = row

    def _check_untrusted(self, row: Provider) -> None:
        """Refuse what would send questions to an address on the word of a project."""
        if row.name in self.providers:
            raise ConfigurationError(f"Your own file has a provider {row.name!r}: choose another name.")
        known = PROVIDERS.get(row.name)
        if known is None and not all(is_local(url) for url in (row.base_url, *row.style_urls.values())):
            raise ConfigurationError(
                f"base_url of the provider {row.name!r} is not on this machine, and a project may not send questions "
                "elsewhere. Put the provider into your own configuration file."
            )

    def _part(self) -> None:
        """Take an address and a model apart that were given as one."""
        model, base = self._set.get("model"), self._set.get("base_url")
        if model is None or not _ADDRESS.match(model.value) or (base is not None and base.rank > model.rank):
            return
        url, _, name = model.value.partition("#")
        self._set["base_url"] = _Set(url, model.origin)
        if name.strip():
            self._set["model"] = _Set(name, model.origin)
        else:
            del self._set["model"]

    def _settle(self) -> None:
        """Leave out what a later choice of a model, or of an address, does not mean any more."""
        model, base = self._set.get("model"), self._set.get("base_url")
        if model is None or base is None or not self._complete(model.value):
            return
        if model.rank > base.rank:
            del self._set["base_url"]
            if (style := self._set.get("style")) and style.rank <= base.rank:
                del self._set["style"]
        elif base.rank > model.rank:
            del self._set["model"]

    def _complete(self, model: str) -> bool:
        """Whether a model names its provider, or its address, as well."""
        name = model.partition(":")[0]
        known = name in PROVIDERS or name in self.providers or _ADDRESS.match(model) is not None
        return name == _DEMO or (":" in model and known)


def _own_folder() -> Path | None:
    """The home directory, where the person's other programs keep their own servers. None: it is not known."""
    try:
        return Path.home().resolve()
    except RuntimeError:
        return None


def look(flags: Mapping[str, Any], environ: Mapping[str, str]) -> Read:
    """What the files that hold in the working directory, the environment and the flags say, right or wrong."""
    try:
        folder: Path | None = Path.cwd()
    except OSError:  # it was removed
        folder = None
    return Read(flags, environ, folder)


def read(flags: Mapping[str, Any], environ: Mapping[str, str]) -> Settings:
    """The settings in effect.

    Raises:
        BrokenConfiguration: A file, a variable or a flag cannot be used.
    """
    found = look(flags, environ)
    if found.problems:
        first, *more = found.problems
        raise BrokenConfiguration(first + (f" `toolnexus doctor` tells {len(more)} more." if more else ""))
    return settings_of(found, flags, environ)


def settings_of(found: Read, flags: Mapping[str, Any], environ: Mapping[str, str]) -> Settings:
    """The settings that were read, problems or not."""
    return Settings(
        **{setting.name: found.own(setting.name) for setting in SETTINGS},
        project=found.project,
        api_key=environ.get(KEY, "").strip() or None,
        providers=MappingProxyType(found.providers),
        latest=bool(flags.get("latest")),
        conversation=flags.get("conversation"),
        keep=not flags.get("no_store"),
        yes=bool(flags.get("yes")),
        verbose=flags.get("verbose") or 0,
        origins=MappingProxyType(found.origins()),
    )


def store_url(flags: Mapping[str, Any], environ: Mapping[str, str]) -> str | None:
    """The store that was named. None: none was.

    Raises:
        BrokenConfiguration: As for `read`.
    """
    return read(flags, environ).store


def database(environ: Mapping[str, str]) -> Path:
    """The file that conversations are kept in when no store was named.

    Raises:
        ConfigurationError: There is no home directory for it.
    """
    return home(environ) / "conversations.db"


def home(environ: Mapping[str, str]) -> Path:
    """The folder for everything that is kept for the person.

    Raises:
        ConfigurationError: There is no home directory for it.
    """
    named = environ.get("TOOLNEXUS_HOME")
    try:
        return Path(named).expanduser() if named else Path(platformdirs.user_data_dir("toolnexus", appauthor=False))
    except RuntimeError as error:
        raise ConfigurationError(
            "The home directory is not known, so there is no place for conversations. "
            "Set TOOLNEXUS_HOME to a full path."
        ) from error


class DocumentAt(NamedTuple):
    """An OpenAPI document.

    Attributes:
        source: Its path or URL.
        server: Where its operations are. None: the document says it.
    """

    source: str
    server: str | None = None

    @property
    def path(self) -> Path | None:
        """Its path. None: it is at a URL."""
        return None if "://" in self.source else path_of(self.source)


def document_at(given: str) -> DocumentAt:
    """What `FILE`, `URL`, `FILE#http://server` or `URL#http://server` names."""
    match = _SERVER.fullmatch(given)
    return DocumentAt(given) if match is None else DocumentAt(match["document"], match["server"])


def path_of(given: str) -> Path:
    """The path that was given; `~` stands for a home directory, where that is known."""
    with suppress(RuntimeError):
        return Path(given).expanduser()
    return Path(given)


def shown_url(url: str) -> str:
    """An address without what could be secret in it."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def as_toml(value: object) -> str:
    """A value as it stands in a configuration file."""
    if isinstance(value, tuple):
        return f"[{', '.join(as_toml(each) for each in cast('tuple[object, ...]', value))}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # JSON's texts and numbers are TOML's too


def _refused(setting: Setting, given: object, document: Document) -> str:
    """Why a project's file may not set this. Empty: it may."""
    if document.trusted:
        return ""
    own = "your own configuration file"
    if not setting.project:
        by = f"{setting.flag} or {setting.variable}" if setting.variable else setting.flag
        return f"{setting.name} cannot be set by a project, which anybody may have written. Use {own}, {by}."
    models: list[object] = cast("list[object]", given) if isinstance(given, list) else [given]
    if setting.name in ("model", "fallbacks") and any(isinstance(each, str) and "://" in each for each in models):
        return f"A project names models as provider:model, and no address. For an address use {own}."
    return ""


def _meant(name: str) -> str:
    """What may have been meant by a key that there is not, or where that is set instead."""
    if name in ("api_key", "key"):
        return f" Keys are read from the environment only, such as OPENAI_API_KEY or {KEY}."
    if name == "yes":
        return " It is an option for one command. For always, name the tools with 'approve'."
    close = difflib.get_close_matches(name.replace("-", "_").lower(), _KEYS, n=1)
    return f" Did you mean {close[0]!r}?" if close else f" There are {', '.join(_KEYS)}."
