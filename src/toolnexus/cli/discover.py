"""Which models are at hand when none was named: keys in the environment, and servers on this machine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

from toolnexus.endpoints import endpoint_of, is_local
from toolnexus.errors import ConfigurationError
from toolnexus.providers import PROVIDERS, Provider

_TIME = 0.4
"""Seconds that all servers together have to answer."""

# Only of providers whose key is worth little for anything else, so that it was set to talk to their models.
_MODELS = {"openai": "gpt-5-mini", "anthropic": "claude-sonnet-5"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Something that can answer.

    Attributes:
        what: What was found, as a person calls it.
        provider: The name of its row in the provider table.
        model: What to give as a model. None: a model has to be named by hand.
        why: Why it is taken, if it is.
    """

    what: str
    provider: str
    model: str | None
    why: str = ""


async def look(environ: Mapping[str, str], providers: Mapping[str, Provider] | None = None) -> list[Found]:
    """All that is at hand, what is to be preferred first.

    Args:
        providers: Further rows of the provider table.
    """
    return [*keys(environ, providers), *await servers(environ, providers)]


def keys(environ: Mapping[str, str], providers: Mapping[str, Provider] | None = None) -> list[Found]:
    """The providers that the environment has a key for."""
    rows = {**PROVIDERS, **(providers or {})}.values()
    found = [(row, key) for row in rows for key in row.keys if environ.get(key, "").strip()]
    return [
        Found(
            what=f"{key} ({row.name})",
            provider=row.name,
            model=f"{row.name}:{_MODELS[row.name]}" if row.name in _MODELS else None,
            why="its key is set",
        )
        for row, key in found
    ]


def sends_key(base_url: str, environ: Mapping[str, str], providers: Mapping[str, Provider] | None = None) -> bool:
    """Whether an address is of a provider whose key is in the environment, so that requests carry it."""
    try:
        return endpoint_of("-", base_url=base_url, providers=providers, environ=environ, key_required=False).has_key
    except ConfigurationError:
        return False


async def servers(environ: Mapping[str, str], providers: Mapping[str, Provider] | None = None) -> list[Found]:
    """The model servers that answer on this machine's own addresses. Nothing else is asked."""
    table = {**PROVIDERS, **(providers or {})}.values()
    rows = [(row, address) for row in table if row.local and (address := _loopback(row, environ))]
    listed = await asyncio.gather(*(_models(address) for _, address in rows))
    return [
        Found(
            what=f"{row.name} at {address}",
            provider=row.name,
            model=f"{row.name}:{models[0]}",
            why="it runs on this machine",
        )
        for (row, address), models in zip(rows, listed, strict=True)
        if models
    ]


def told(found: Sequence[Found]) -> str:
    """What was found, for a sentence."""
    return (
        ", ".join(each.what for each in found) if found else "no key in the environment and no server on this machine"
    )


def how_to_name(found: Sequence[Found]) -> str:
    """What to do when a model of what was found has to be named by hand. Empty: nothing was found."""
    if not found:
        return ""
    name = found[0].provider
    return f"Name one with -m or TOOLNEXUS_MODEL, as {name}:MODEL. `toolnexus models ls {name}` lists them."


def _loopback(row: Provider, environ: Mapping[str, str]) -> str | None:
    """The row's address, if it is on this machine."""
    given = environ.get(row.base_url_variable or "", "").strip() or row.base_url
    try:
        parts = urlsplit(given if "://" in given else f"http://{given}")
        host, port = parts.hostname or "", parts.port or urlsplit(row.base_url).port
    except ValueError:
        return None
    address = f"{parts.scheme}://{f'[{host}]' if ':' in host else host}:{port}"
    return address if is_local(address) else None


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
