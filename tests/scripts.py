"""Clients whose model answers from a script, over no wire."""

from __future__ import annotations

from typing import Any

from toolnexus import Client, Event, create_client
from toolnexus._stream import RunStream
from toolnexus.testing import ScriptedTransport, SentRequest


def scripted(*steps: Any, **options: Any) -> tuple[Client, ScriptedTransport]:
    """A client of an unknown host, and what it talks to."""
    transport = ScriptedTransport(*steps)
    options = {"base_url": "https://model.test/v1", "retries": 0, **options}
    return create_client("m", transport=transport, **options), transport


def raw(name: str, arguments: str, **more: Any) -> dict[str, Any]:
    """A call with arguments as the model spelled them."""
    return {"name": name, "arguments": arguments, **more}


def told(request: SentRequest) -> list[str]:
    """What an `openai` request tells the model of the calls of its last step."""
    results: list[str] = []
    for message in reversed(request.json["messages"]):
        if message["role"] != "tool":
            break
        results.insert(0, message["content"])
    return results


async def read(stream: RunStream) -> list[Event]:
    """A stream's events, to its end."""
    async with stream as events:
        return [event async for event in events]
