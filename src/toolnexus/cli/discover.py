"""Which models are at hand when none was named: keys in the environment, and servers on this machine."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, cast
from urllib.parse import urlsplit

from toolnexus.providers import PROVIDERS, Provider

_FIELD = re.compile(r"\{\w+\}")
_TIME = 0.4
"""Seconds that all servers together have to answer."""

# Only of providers whose key is worth little for anything else, so that it was set to talk to their models.
_MODELS = {"openai": "gpt-5-mini", "anthropic": "claude-sonnet-5"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Something that can answer.

    Attributes:
        what: What was found, as a person calls it.
        model: What to give as a model. None: a model has to be named by hand.
        why: Why it is taken, if it is.
    """

    what: str
    model: str | None
    why: str = ""


async def look(environ: Mapping[str, str]) -> list[Found]:
    """All that is at hand, what is to be preferred first."""
    return [*keys(environ), *await servers(environ)]


def keys(environ: Mapping[str, str]) -> list[Found]:
    """The providers that the environment has a key for."""
    found = [(row, key) for row in PROVIDERS.values() for key in row.keys if environ.get(key, "").strip()]
    return [
        Found(
            what=f"{key} ({row.name})",
            model=f"{row.name}:{_MODELS[row.name]}" if row.name in _MODELS else None,
            why="its key is set",
        )
        for row, key in found
    ]


def sends_key(base_url: str, environ: Mapping[str, str]) -> bool:
    """Whether an address is of a provider whose key is in the environment, so that requests carry it."""
    rows = [row for row in PROVIDERS.values() if _is_at(row, urlsplit(base_url).netloc.lower())]
    return any(environ.get(key, "").strip() for row in rows for key in row.keys)


def _is_at(row: Provider, host: str) -> bool:
    """Whether a host is the row's; a row may have names in its address that its user fills in."""
    hosts = [urlsplit(_FIELD.sub("*", url)).netloc for url in (row.base_url, *row.style_urls.values())]
    return any(fnmatchcase(host, pattern) for pattern in hosts if pattern.strip("*"))


async def servers(environ: Mapping[str, str]) -> list[Found]:
    """The model servers that answer on this machine's own addresses. Nothing else is asked."""
    rows = [(row, address) for row in PROVIDERS.values() if row.local and (address := _loopback(row, environ))]
    listed = await asyncio.gather(*(_models(address) for _, address in rows))
    return [
        Found(what=f"{row.name} at {address}", model=f"{row.name}:{models[0]}", why="it runs on this machine")
        for (row, address), models in zip(rows, listed, strict=True)
        if models
    ]


def told(found: Sequence[Found]) -> str:
    """What was found, for a sentence."""
    return (
        ", ".join(each.what for each in found) if found else "no key in the environment and no server on this machine"
    )


def _loopback(row: Provider, environ: Mapping[str, str]) -> str | None:
    """The row's address, if it is on this machine."""
    given = environ.get(row.base_url_variable or "", "").strip() or row.base_url
    try:
        parts = urlsplit(given if "://" in given else f"http://{given}")
        host, port = parts.hostname or "", parts.port or urlsplit(row.base_url).port
        here = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return None
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}:{port}" if here else None


async def _models(address: str) -> list[str]:
    """The ids of the models that a server offers; none if there is no model server."""
    import aiohttp

    timeout = aiohttp.ClientTimeout(total=_TIME)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(f"{address}/v1/models", allow_redirects=False) as response,
        ):
            body = await response.read() if response.status == 200 else b""
        return _ids(json.loads(body))
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
        return []


def _ids(listed: Any) -> list[str]:
    entries = cast("dict[str, Any]", listed).get("data") if isinstance(listed, dict) else None
    rows = cast("list[Any]", entries) if isinstance(entries, list) else []
    ids = [cast("dict[str, Any]", row).get("id") for row in rows if isinstance(row, dict)]
    # Servers list models for embedding beside those that talk.
    return [name for name in ids if isinstance(name, str) and name and "embed" not in name.lower()]
