"""The chat on a real terminal."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from toolnexus import SQLiteStore

pexpect = pytest.importorskip("pexpect")

PROMPT = "›"


@pytest.fixture
def chat(environment: dict[str, str], tmp_path: Path) -> Iterator[Any]:
    """A chat with the demo model, at its first prompt."""
    child = pexpect.spawn(
        sys.executable,
        ["-m", "toolnexus", "chat", "-m", "demo", "-C", "here"],
        env={**environment, "LANG": "C.UTF-8", "PROMPT_TOOLKIT_NO_CPR": "1"},
        cwd=str(tmp_path),
        dimensions=(24, 100),
        encoding="utf-8",
        timeout=15,
    )
    child.expect(PROMPT)
    try:
        yield child
    finally:
        child.close(force=True)


def stored(environment: dict[str, str]) -> list[dict[str, Any]]:
    async def read() -> list[dict[str, Any]]:
        store = SQLiteStore(Path(environment["TOOLNEXUS_HOME"]) / "conversations.db")
        found = await store.get("here")
        await store.aclose()
        return found or []

    return asyncio.run(read())


def test_a_chat_calls_tools_remembers_and_ends_with_ctrl_d(chat: Any, environment: dict[str, str]) -> None:
    assert "demo (scripted, no AI) · here" in chat.before
    chat.sendline("remember that my name is Ada")
    chat.expect("I will remember it")
    chat.expect("demo .scripted, no AI. · here")
    chat.expect(PROMPT)
    chat.sendline("add 2 and 3")
    chat.expect(r"⏺ add\(a=2, b=3\) \d+ ms ✓")
    chat.expect("The sum is")
    chat.expect(PROMPT)
    chat.sendline("what do you know?")
    chat.expect("From the messages of this conversation")
    chat.expect("my name is Ada")
    chat.expect(PROMPT)
    chat.sendeof()
    chat.expect(pexpect.EOF)
    chat.wait()
    assert chat.exitstatus == 0
    assert len([each for each in stored(environment) if each["role"] == "user"]) == 3


def test_ctrl_c_stops_an_answer_keeps_what_was_said_and_the_chat_goes_on(
    chat: Any, environment: dict[str, str]
) -> None:
    chat.sendline("count to 5000")
    chat.expect("7 8 9 10")
    chat.sendintr()
    chat.expect("Interrupted. What was said is kept.")
    chat.expect(PROMPT)
    chat.sendline("add 2 and 3")
    chat.expect("The sum is")
    chat.expect(PROMPT)
    chat.sendeof()
    chat.expect(pexpect.EOF)
    chat.wait()
    assert chat.exitstatus == 0
    messages = stored(environment)
    assert messages[0]["content"] == "count to 5000"
    assert messages[1]["interrupted"] is True
    assert messages[1]["content"].startswith("1 2 3 4 5 6 7 8 9 10")
    assert len(messages[1]["content"]) < 20_000
    assert messages[-1]["content"].startswith("The sum is")


def test_ctrl_c_twice_leaves(chat: Any) -> None:
    chat.sendintr()
    chat.expect("Ctrl-C again, or Ctrl-D, leaves.")
    chat.sendintr()
    chat.expect(pexpect.EOF)
    chat.wait()
    assert chat.exitstatus == 130


def test_without_a_model_a_person_gets_the_demo_and_is_told(environment: dict[str, str], tmp_path: Path) -> None:
    # Whatever may listen on the ports where model servers live here: it is not asked.
    start = "from toolnexus.cli import discover, main; discover._MODELS.clear(); discover.PROVIDERS.clear(); main()"
    child = pexpect.spawn(
        sys.executable,
        ["-c", start],
        env={**environment, "LANG": "C.UTF-8", "PROMPT_TOOLKIT_NO_CPR": "1"},
        cwd=str(tmp_path),
        dimensions=(24, 200),
        encoding="utf-8",
        timeout=15,
    )
    child.expect("No model was named. Found: no key in the environment and no server on this machine.")
    child.expect("the demo model, which is scripted and no AI")
    child.expect(PROMPT)
    child.close(force=True)
