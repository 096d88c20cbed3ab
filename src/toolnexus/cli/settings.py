"""What a command was told: flags over environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from toolnexus.errors import ConfigurationError, MissingExtra

try:
    import platformdirs
except ImportError as exc:
    raise MissingExtra("The toolnexus commands", extra="cli") from exc

KEY = "TOOLNEXUS_API_KEY"
"""The variable with the key for an endpoint that was named by its address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How to reach a model, and which conversation to continue.

    Attributes:
        model: None: look for one.
        api_key: The key for `base_url`; it is sent nowhere else. None: the one that the address is known to want.
        latest: Continue the conversation that was saved last.
        conversation: Continue this one, or begin it. None: begin one with an id of its own.
        keep: Whether the conversation is kept.
        store: The URL of the store to keep it in. None: the file in the user's data directory.
        yes: Whatever needs approval has it.
        approve: Patterns of the names of tools that have it.
        verbose: How much more is told: 1 or 2.
    """

    model: str | None = None
    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    style: str | None = None
    system: str = ""
    latest: bool = False
    conversation: str | None = None
    keep: bool = True
    store: str | None = None
    yes: bool = False
    approve: tuple[str, ...] = ()
    verbose: int = 0


def read(flags: Mapping[str, Any], environ: Mapping[str, str]) -> Settings:
    """Settings from flags, and from `TOOLNEXUS_*` where a flag is missing."""
    return Settings(
        model=flags.get("model") or environ.get("TOOLNEXUS_MODEL") or None,
        base_url=flags.get("base_url") or environ.get("TOOLNEXUS_BASE_URL") or None,
        api_key=environ.get(KEY, "").strip() or None,
        style=flags.get("style") or environ.get("TOOLNEXUS_STYLE") or None,
        system=flags.get("system") or "",
        latest=bool(flags.get("latest")),
        conversation=flags.get("conversation"),
        keep=not flags.get("no_store"),
        store=store_url(flags, environ),
        yes=bool(flags.get("yes")),
        approve=tuple(flags.get("approve") or ()),
        verbose=flags.get("verbose") or 0,
    )


def store_url(flags: Mapping[str, Any], environ: Mapping[str, str]) -> str | None:
    """The store that was named. None: none was."""
    return flags.get("store") or environ.get("TOOLNEXUS_STORE") or None


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
