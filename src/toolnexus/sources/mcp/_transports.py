"""Which transport an entry means: by its type, or by whether it has a command or a URL. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from toolnexus.sources.mcp._text import kind_of
from toolnexus.sources.mcp._values import Refused, Values

if TYPE_CHECKING:
    from toolnexus.sources.mcp.config import Transport

TYPES = ("type", "transportType", "transport")
URLS = ("httpUrl", "serverUrl", "url")
"""Keys with the URL. The first of them that is there holds."""

_TRANSPORTS: Mapping[str, Transport] = {
    "stdio": "stdio",
    "local": "stdio",
    "http": "http",
    "streamablehttp": "http",
    "sse": "sse",
    "remote": "auto",
}
"""What an entry may call its transport, in small letters without - and _."""


def transport(values: Values, *, streamable_only: bool) -> Transport:
    """The transport of an entry.

    Args:
        streamable_only: The file's program never takes a URL for SSE.

    Raises:
        Refused: It means none, or two.
    """
    local = values.has("command")
    url = values.first(URLS)
    kind = values.first(TYPES)
    if kind is not None:
        found = _named(values, kind, local=local, url=url)
    elif local and url:
        raise Refused(
            "conflicting_transport",
            f"The server {values.name!r} has a command and a {url}. Take one out, or add a type.",
        )
    elif local:
        found = "stdio"
    elif url:
        found = "auto"
    else:
        raise Refused("no_transport", f"The server {values.name!r} has neither a command nor a url.")
    return "http" if found == "auto" and (url == "httpUrl" or streamable_only) else found


def _named(values: Values, key: str, *, local: bool, url: str | None) -> Transport:
    word = values.given[key]
    found = _TRANSPORTS.get(re.sub("[-_ ]", "", word).lower()) if isinstance(word, str) else None
    if found is None:
        shown = f"{word!r:.40}" if isinstance(word, str) else kind_of(word)
        raise Refused("invalid_entry", f"{key} of the server {values.name!r} is {shown}; give stdio, http or sse.")
    command = "command" if local else None
    wanted, used, other = ("command", command, url) if found == "stdio" else ("url", url, command)
    if not used:
        but = f" but a {other}" if other else ""
        raise Refused(
            "conflicting_transport" if other else "no_transport",
            f"The server {values.name!r} has the {key} {word} and no {wanted}{but}.",
        )
    if other:
        values.warn(other, f"it is not used, because {key} is {word}.")
    return found
