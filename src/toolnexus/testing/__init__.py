"""For tests of what is built on toolnexus: models and transports that answer from a script.

Names are loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolnexus.testing.replies import anthropic_reply, anthropic_stream, openai_reply, openai_stream
    from toolnexus.testing.scripted import ScriptedModel, call, returned, said
    from toolnexus.testing.transport import Rewrite, ScriptedTransport, SentRequest

_HOMES = {
    "anthropic_reply": "replies",
    "anthropic_stream": "replies",
    "openai_reply": "replies",
    "openai_stream": "replies",
    "ScriptedModel": "scripted",
    "call": "scripted",
    "returned": "scripted",
    "said": "scripted",
    "Rewrite": "transport",
    "ScriptedTransport": "transport",
    "SentRequest": "transport",
}

__all__ = [
    "Rewrite",
    "ScriptedModel",
    "ScriptedTransport",
    "SentRequest",
    "anthropic_reply",
    "anthropic_stream",
    "call",
    "openai_reply",
    "openai_stream",
    "returned",
    "said",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'toolnexus.testing' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(f"toolnexus.testing.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
