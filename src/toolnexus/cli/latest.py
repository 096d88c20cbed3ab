"""Which conversation was talked in last, from this command line. A store may be shared, and lists those of others too;
and it lists no conversation whose first turn was cut off.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from toolnexus.cli.files import replace
from toolnexus.cli.settings import home
from toolnexus.cli.stores import place, read

if TYPE_CHECKING:
    from pathlib import Path

    from toolnexus.stores.logstore import LogStore


async def latest(store: LogStore, url: str | None) -> str | None:
    """The conversation to continue. None: there is none yet.

    Args:
        url: What the store was opened with.
    """
    noted = _noted().get(place(url))
    if isinstance(noted, str) and (found := await read(store, noted)) and (found[0].seen or found[0].open):
        return noted
    return next((each.id for each in (await store.list(limit=1)).items), None)


def note(url: str | None, conversation_id: str) -> None:
    """Take note that a conversation is the last one. Where that cannot be written, a store's own list has to do."""
    file = _file()
    with suppress(OSError):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace(file, json.dumps({**_noted(), place(url): conversation_id}, indent=2).encode() + b"\n")


def _noted() -> dict[str, Any]:
    try:
        noted: Any = json.loads(_file().read_bytes())
    except (OSError, ValueError):
        return {}
    return cast("dict[str, Any]", noted) if isinstance(noted, dict) else {}


def _file() -> Path:
    return home(os.environ) / "latest.json"
