"""What goes wrong between us and an MCP server, said with what to do about it. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from toolnexus._redaction import redact
from toolnexus._unicode import clean_text
from toolnexus.errors import ToolnexusError

if TYPE_CHECKING:
    from toolnexus.sources.mcp.config import MCPServer

FaultKind: TypeAlias = Literal[
    "unavailable", "start", "unreachable", "lost", "status", "needs_auth", "timeout", "protocol", "refused"
]

_LONGEST_TOLD = 600
_LONGEST_BODY = 200

_BRINGS = {
    "npx": "Install Node.js, which brings npx",
    "npm": "Install Node.js, which brings npm",
    "node": "Install Node.js",
    "bunx": "Install Bun, which brings bunx",
    "uvx": "Install uv, which brings uvx",
    "uv": "Install uv",
    "pipx": "Install pipx",
    "docker": "Install Docker",
    "podman": "Install Podman",
    "deno": "Install Deno",
}
"""Commands that configurations name, and what to do where they are missing."""


class MCPServerError(ToolnexusError):
    """An MCP server could not be used, or did not do what it was asked for.

    Attributes:
        server: Its name.
        why: What went wrong: `unavailable` (it is not connected), `start`, `unreachable`, `lost` (while it was asked),
            `status` (an HTTP status), `needs_auth`, `timeout`, `protocol` (it answered something else), or `refused`
            (it answered with an error of its own).
        executed: False: what was asked for certainly did not happen. None: it may have.
        status: The HTTP status. None: there was none.
        code: The JSON-RPC code of the server's own error. None: there was none.
        data: What the server said beside it.
        url: Where somebody can sign in. None: that is not what it needs.
    """

    kind = "mcp"

    def __init__(
        self,
        server: str,
        why: FaultKind,
        reason: str,
        *,
        executed: Literal[False] | None = None,
        status: int | None = None,
        code: int | None = None,
        data: Any = None,
        url: str | None = None,
    ) -> None:
        super().__init__(f"MCP server {server!r}: {reason}")
        self.server = server
        self.why: FaultKind = why
        self.reason = reason
        self.executed: Literal[False] | None = executed
        self.status = status
        self.code = code
        self.data = data
        self.url = url
        self.retryable = why in ("unavailable", "unreachable", "lost", "timeout") or (status or 0) >= 500


def shown(text: str, server: MCPServer, most: int = _LONGEST_TOLD) -> str:
    """What a server wrote, for a person: cut, on few lines, without secrets."""
    text = redact(clean_text(text), server.secrets()).strip()
    return text if len(text) <= most else f"{text[:most]}…"


def of_status(server: MCPServer, status: int, phrase: str, body: str) -> MCPServerError:
    """The fault that an HTTP status stands for."""
    said = "" if _is_html(body) else shown(" ".join(body.split()), server, _LONGEST_BODY)
    told = f" ({said})" if said else ""
    reason = f"{server.shown_url} answered {status} {phrase}{told}.".replace("  ", " ")
    why: FaultKind = "needs_auth" if status == 401 else "status"
    executed = False if status in (401, 403, 404, 405, 406, 415, 429) else None
    return MCPServerError(server.name, why, f"{reason} {_advice(status)}", status=status, executed=executed)


def _advice(status: int) -> str:
    match status:
        case 401:
            return "It wants a sign-in: sign in to it, or put a valid Authorization header into its configuration."
        case 403:
            return "The credentials that it got do not allow this: check them, and what they are for."
        case 404:
            return "There is no MCP server at this address: check its path, which often ends in /mcp or /sse."
        case 405:
            return "This address does not take requests of this transport: check the path, or set its type to sse."
        case 407:
            return "A proxy wants credentials."
        case 429:
            return "It has had too many requests: try again later."
        case _ if status >= 500:
            return "The fault is the server's: look at its log, or try again later."
        case _ if status >= 400:
            return "It does not accept the request: check the address and the headers in its configuration."
        case _:
            return "It was not followed: put the right address into the configuration."


def of_page(server: MCPServer, content_type: str) -> MCPServerError:
    """The fault that an answer of another kind is."""
    what = "a web page" if "html" in content_type else f"{content_type or 'nothing that says what it is'}"
    reason = f"{server.shown_url} answered with {what}, status 200, instead of MCP."
    advice = "Check the address; a login page or a proxy may stand in front of the server."
    return MCPServerError(server.name, "protocol", f"{reason} {advice}", status=200)


def of_start(server: MCPServer, error: OSError | ValueError, *, folder_missing: bool) -> MCPServerError:
    """The fault that a program does not start."""
    command = shown(server.command or "", server)
    if folder_missing:
        reason = f"its folder {server.cwd!r} is not there. Make it, or change cwd."
    elif isinstance(error, FileNotFoundError):
        name = re.split(r"[\\/]", command)[-1].removesuffix(".cmd").removesuffix(".exe")
        advice = _BRINGS.get(name, "Install it")
        reason = f"the command {command!r} was not found. {advice}, or give its full path as the command."
    elif isinstance(error, PermissionError):
        reason = f"the command {command!r} must not be run. Make the file executable, or check who owns it."
    else:
        said = (error.strerror if isinstance(error, OSError) else None) or str(error)
        reason = f"the command {command!r} does not start: {shown(said, server)}."
    return MCPServerError(server.name, "start", reason, executed=False)


def of_exit(server: MCPServer, code: int | None, wrote: str, *, ready: bool) -> str:
    """Why a program is not there any more."""
    how = "ended" if code is None else f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
    when = "" if ready else " before it was ready"
    last = shown(wrote, server)
    return f"its program {how}{when}. " + (f"It wrote: {last}" if last else "It wrote nothing to stderr.")


def of_answer(server: MCPServer, method: str, code: int, message: str, data: Any) -> MCPServerError:
    """The fault that a server's own error is."""
    said = shown(message, server) or "it did not say why"
    return MCPServerError(server.name, "refused", f"{method} failed: {said} (code {code})", code=code, data=data)


def of_timeout(server: MCPServer, method: str, seconds: float) -> MCPServerError:
    """The fault that an answer did not come."""
    reason = f"{method} was not answered within {seconds:g} s, and was given up.{may_have(method)}"
    return MCPServerError(server.name, "timeout", reason)


def may_have(method: str) -> str:
    """What to know of a request without an answer."""
    return " It may have been executed, so it was not repeated." if method == "tools/call" else ""


def _is_html(text: str) -> bool:
    return "<html" in text[:1000].lower() or text[:20].lstrip().lower().startswith("<!doctype")


def in_group(error: BaseException) -> BaseException:
    """The error that says most of those that a task group raised together."""
    while isinstance(error, BaseExceptionGroup):
        inner = cast("BaseExceptionGroup[BaseException]", error).exceptions
        ours = [each for each in inner if isinstance(in_group(each), MCPServerError)]
        error = (ours or inner)[0]
    return error
