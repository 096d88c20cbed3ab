"""What every tortured client does: a turn whose model calls a tool once, and whose tool writes down that it ran."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from toolnexus.in_process import create_in_process_client
from toolnexus.messages import text_of
from toolnexus.testing import checker
from toolnexus.tools import Tool, ToolContext

if TYPE_CHECKING:
    from toolnexus.client import Client
    from toolnexus.stores.logstore import LogStore

CHARGED = "charged"
"""What the tool gives back."""


class Charge(NamedTuple):
    """One time that the tool ran."""

    key: str
    prompt: str


class Ledger:
    """A file that tools of any process add to, beside all stores: what really happened."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    def charge(self, key: str, prompt: str) -> None:
        """Write down that a call ran. Survives the end of the process."""
        file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(file, f"{key}\t{prompt}\n".encode())
        finally:
            os.close(file)

    def read(self) -> list[Charge]:
        """All that ran, oldest first."""
        with suppress(FileNotFoundError):
            return [Charge(*line.split("\t", 1)) for line in self.path.read_text(encoding="utf-8").splitlines()]
        return []


def at(_: str) -> None:
    """Nothing happens at any point of a turn."""


def tortured(
    store: LogStore, *, thinking: Callable[[], float] = lambda: 0.0, reached: Callable[[str], None] = at
) -> Client:
    """A client on a store. Its model answers as `checker` expects, after one call of the tool if there is one.

    Args:
        thinking: Gives the seconds that a reply takes.
        reached: Called with `model` when the model is asked for the first reply of a turn, and with `answer` when it
            gives the last.
    """

    async def generate(request: dict[str, Any]) -> dict[str, Any]:
        messages = request["messages"]
        saw = max(place for place, message in enumerate(messages) if message["role"] == "user")
        asked = text_of(messages[saw].get("content"))
        first = saw == len(messages) - 1
        if first:
            reached("model")
        if (seconds := thinking()) > 0:
            await asyncio.sleep(seconds)
        if first and request["tools"]:
            return {"tool_calls": [{"name": "charge", "arguments": {"prompt": asked}}]}
        reached("answer")
        return {"content": checker.answer(asked, saw)}

    return create_in_process_client(generate=generate, store=store)


def charging(ledger: Ledger, *, reached: Callable[[str], None] = at) -> Tool:
    """The tool: it charges once for a prompt, and must not do it again.

    Args:
        reached: Called with `in_the_tool` before it charges, and with `after_the_charge`.
    """

    async def execute(arguments: dict[str, Any], context: ToolContext) -> str:
        reached("in_the_tool")
        await asyncio.sleep(0)  # can be cancelled here
        ledger.charge(context.idempotency_key, arguments["prompt"])
        reached("after_the_charge")
        await asyncio.sleep(0)
        return CHARGED

    return Tool(
        name="charge",
        description="Charges for a prompt.",
        input_schema={"type": "object", "properties": {"prompt": {"type": "string"}}, "required": ["prompt"]},
        execute=execute,
    )
