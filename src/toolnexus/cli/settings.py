"""What a command was told: flags over environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolnexus.errors import ConfigurationError, MissingExtra

try:
    import platformdirs
except ImportError as exc:
    raise MissingExtra("The toolnexus commands", extra="cli") from exc


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How to reach a model, and which conversation to continue.

    Attributes:
        model: None: look for one.
        latest: Continue the conversation that was saved last.
        conversation: Continue this one, or begin it. None: begin one with an id of its own.
        store: Whether the conversation is kept.
        verbose: How much more is told: 1 or 2.
    """

    model: str | None = None
    base_url: str | None = None
    style: str | None = None
    system: str = ""
    latest: bool = False
    conversation: str | None = None
    store: bool = True
    verbose: int = 0


def read(flags: Mapping[str, Any], environ: Mapping[str, str]) -> Settings:
    """Settings from flags, and from `TOOLNEXUS_*` where a flag is missing."""
    return Settings(
        model=flags.get("model") or environ.get("TOOLNEXUS_MODEL") or None,
        base_url=flags.get("base_url") or environ.get("TOOLNEXUS_BASE_URL") or None,
        style=flags.get("style") or environ.get("TOOLNEXUS_STYLE") or None,
        system=flags.get("system") or "",
        latest=bool(flags.get("latest")),
        conversation=flags.get("conversation"),
        store=not flags.get("no_store"),
        verbose=flags.get("verbose") or 0,
    )


def database(environ: Mapping[str, str]) -> Path:
    """The file that conversations are kept in.

    Raises:
        ConfigurationError: There is no home directory for it.
    """
    home = environ.get("TOOLNEXUS_HOME")
    try:
        folder = Path(home).expanduser() if home else Path(platformdirs.user_data_dir("toolnexus", appauthor=False))
    except RuntimeError as error:
        raise ConfigurationError(
            "The home directory is not known, so there is no place for conversations. "
            "Set TOOLNEXUS_HOME to a full path, or ask with --no-store."
        ) from error
    return folder / "conversations.db"
