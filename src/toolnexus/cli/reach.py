"""From settings to what answers: the client, its endpoint, and the model that is taken when none was named."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from toolnexus import Client, ConfigurationError, create_client, create_in_process_client
from toolnexus.cli import demo, discover
from toolnexus.cli.exits import ModelNotNamed
from toolnexus.endpoints import EndpointInfo, endpoint_of
from toolnexus.providers import PROVIDERS

if TYPE_CHECKING:
    from toolnexus.cli.render import Notes
    from toolnexus.cli.settings import Settings


def is_demo(settings: Settings) -> bool:
    """Whether the model is the scripted one."""
    return settings.model in demo.NAMES and not settings.base_url


def client(settings: Settings, *, pace: float = 0.0, retries: int = 2, **options: Any) -> Client:
    """A client for the model that the settings name.

    Args:
        pace: Seconds a word of the demo model.
        retries: How often a failed request is sent again.
        options: Further ones that `create_client` and `create_in_process_client` both take.

    Raises:
        ConfigurationError: As for `create_client`.
    """
    if settings.max_steps is not None:
        options["max_steps"] = settings.max_steps
    if settings.timeout is not None:
        options["timeout"] = settings.timeout
    if settings.system:
        options["system_prompt"] = settings.system
    if is_demo(settings):
        assert settings.model is not None
        engine = demo.generate(settings.model, pace=pace)
        return create_in_process_client(model=settings.model, generate=engine, retries=retries, **options)
    _check_name(settings)
    return create_client(
        settings.model,
        base_url=settings.base_url,
        api_key=settings.api_key if settings.base_url else None,
        style=settings.style,
        fallbacks=settings.fallbacks,
        providers=settings.providers,
        tool_mode=settings.tool_mode,
        retries=retries,
        **options,
    )


async def with_found_model(settings: Settings, notes: Notes) -> Settings:
    """The settings with a model that is at hand, which is announced.

    Raises:
        ModelNotNamed: There is none.
    """
    found = await discover.look(os.environ, settings.providers)
    told = discover.told(found)
    taken = next((each for each in found if each.model), None)
    if taken is None:
        raise ModelNotNamed(f"No model was named. Found: {told}.", advice=discover.how_to_name(found))
    notes.line(f"No model was named. Found: {told}. Taking {taken.model}, because {taken.why}; -m names another.")
    return replace(settings, model=taken.model)


def endpoint(settings: Settings, environ: Mapping[str, str], *, key_required: bool = True) -> EndpointInfo:
    """The endpoint of the model that the settings name.

    Raises:
        ConfigurationError: As for `create_client`.
    """
    _check_name(settings)
    return endpoint_of(
        settings.model,
        base_url=settings.base_url,
        api_key=settings.api_key if settings.base_url else None,
        style=settings.style,
        providers=settings.providers,
        environ=environ,
        key_required=key_required,
    )


def _check_name(settings: Settings) -> None:
    """Say which name was meant that is nearly the one of the demo model."""
    model = settings.model
    if not model or settings.base_url or model.partition(":")[0] in {**PROVIDERS, **settings.providers}:
        return
    if meant := difflib.get_close_matches(model, demo.NAMES, n=1, cutoff=0.7):
        raise ConfigurationError(f"There is no model {model!r}. Did you mean {meant[0]!r}?")
