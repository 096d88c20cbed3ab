"""What is known of a server: how its connection stands, why, and what became of its tools."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from toolnexus.sources.mcp.config import Transport

MCPState: TypeAlias = Literal["connecting", "ready", "failed", "needs_auth", "closed", "disabled"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MCPServerStatus:
    """How a server stands.

    Attributes:
        state: `connecting` (also: again), `ready`, `failed`, `needs_auth` (somebody has to sign in at `url`),
            `closed`, or `disabled` (the configuration says so).
        reason: Why it is not ready. Empty: it is, or nothing is known yet.
        url: Where to sign in. None: there is no need.
        transport: What it is reached by; `auto` until that is known.
        protocol: The revision that is spoken with it, such as `2025-11-25`. None: it is not known.
        server: The name and version that it gives itself. Empty: it does not say.
        tools: How many tools it offers here.
        dropped: Tools that it has and that are not offered, by their names there, with the reason.
        reconnects: How often it was connected again.
    """

    name: str
    state: MCPState
    reason: str = ""
    url: str | None = None
    transport: Transport | None = None
    protocol: str | None = None
    server: str = ""
    tools: int = 0
    dropped: Mapping[str, str] = field(default_factory=dict[str, str])
    reconnects: int = 0
