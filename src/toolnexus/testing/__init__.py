"""For tests of what is built on toolnexus: models and transports that answer from a script, the contract of a store.

Names are loaded on first use.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolnexus.testing.nasty import NASTY_IDS, NASTY_VALUES
    from toolnexus.testing.replies import anthropic_reply, anthropic_stream, openai_reply, openai_stream
    from toolnexus.testing.scripted import ScriptedModel, call, returned, said
    from toolnexus.testing.store_contract import StoreContract
    from toolnexus.testing.transport import Rewrite, ScriptedTransport, SentRequest

_HOMES = {
    "NASTY_IDS": "nasty",
    "NASTY_VALUES": "nasty",
    "anthropic_reply": "replies",
    "anthropic_stream": "replies",
    "openai_reply": "replies",
    "openai_stream": "replies",
    "ScriptedModel": "scripted",
    "call": "scripted",
    "returned": "scripted",
    "said": "scripted",
    "StoreContract": "store_contract",
    "Rewrite": "transport",
    "ScriptedTransport": "transport",
    "SentRequest": "transport",
}

__all__ = [
    "NASTY_IDS",
    "NASTY_VALUES",
    "Rewrite",
    "ScriptedModel",
    "ScriptedTransport",
    "SentRequest",
    "StoreContract",
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

    home = f"toolnexus.testing.{_HOMES[name]}"
    if name == "StoreContract" and home not in sys.modules:
        import pytest

        pytest.register_assert_rewrite(home)  # so that a failing assertion shows its values
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value
