"""toolnexus: agents on any LLM, with a conversation memory that can be trusted.

Every name here is loaded on first use, so that importing the package costs next to nothing. `__init__.pyi` says the
same to type checkers.
"""

from __future__ import annotations

from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "client": ("Client", "create_client"),
    "clock": ("Clock",),
    "conversation": ("Conversation",),
    "errors": (
        "AlreadyAnswered",
        "ConfigurationError",
        "ConnectionFailed",
        "ConversationBusy",
        "ConversationConflict",
        "ConversationFenced",
        "CorruptConversation",
        "HookFailed",
        "IncompleteReply",
        "InvalidConversationId",
        "InvalidOutput",
        "InvalidReply",
        "InvalidTranscript",
        "KeyReused",
        "MissingExtra",
        "MissingKey",
        "NoModelConfigured",
        "NoSuchConversation",
        "ProviderError",
        "ReaderGone",
        "RunTimeout",
        "StoreError",
        "StoreTooNew",
        "ToolnexusError",
        "TurnInterrupted",
    ),
    "events": (
        "CallRecord",
        "Event",
        "Finished",
        "ReasoningDelta",
        "Retrying",
        "RunResult",
        "Step",
        "StepFinished",
        "Suspended",
        "TextDelta",
        "ToolFinished",
        "ToolProgress",
        "ToolStarted",
        "Usage",
    ),
    "hooks": ("AfterLLM", "AfterTool", "BeforeLLM", "BeforeTool", "Deny", "Hooks", "LLMOverride", "ToolOverride"),
    "in_process": ("create_in_process_client",),
    "messages": ("Message",),
    "parts": ("audio", "file", "image"),
    "sources.builtin.workspace": ("Workspace",),
    "sources.http": ("http_tool",),
    "sources.mcp.loading": ("load_mcp_config",),
    "sources.mcp.parsing": ("parse_mcp_config",),
    "sources.mcp.servers": ("MCPServers", "connect_mcp", "list_mcp_tools"),
    "sources.native": ("define_tool", "tool"),
    "sources.openapi": ("http_tools_from_openapi",),
    "sources.skills": ("SkillDef",),
    "stores": ("ConversationStore",),
    "stores.memory": ("InMemoryConversationStore",),
    "stores.file": ("FileStore",),
    "stores.logstore": ("ConversationInfo", "LogStore"),
    "stores.opening": ("open_store",),
    "stores.postgres": ("PostgresStore",),
    "stores.redis": ("RedisStore",),
    "stores.sqlite": ("SQLiteStore",),
    "suspension": ("Answer", "Request", "suspend"),
    "telemetry": ("Telemetry",),
    "toolkit": ("Toolkit", "create_toolkit"),
    "tools": ("Tool", "ToolContext", "ToolResult"),
    "transport": ("Limits", "Transport"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = ["__version__", *_HOME]  # pyright: ignore[reportUnsupportedDunderAll] - __init__.pyi spells it out for checkers


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'toolnexus' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(f"toolnexus.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
