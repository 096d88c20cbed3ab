"""The chat on a real terminal."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from toolnexus import SQLiteStore

pexpect = pytest.importorskip("pexpect")

PROMPT = "›"


@pytest.fixture
def terminal(environment: dict[str, str], tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Runs commands, each on a terminal of its own."""
    children: list[Any] = []

    def run(*args: str) -> Any:
        child = pexpect.spawn(
            sys.executable,
            ["-m", "toolnexus", *args],
            env={**environment, "LANG": "C.UTF-8", "PROMPT_TOOLKIT_NO_CPR": "1"},
            cwd=str(tmp_path),
            dimensions=(24, 100),
            encoding="utf-8",
            timeout=15,
        )
        children.append(child)
        return child

    yield run
    for child in children:
        child.close(force=True)


@pytest.fixture
def chat(terminal: Callable[..., Any]) -> Any:
    """A chat with the demo model, at its first prompt."""
    child = terminal("chat", "-m", "demo", "-C", "here")
    child.expect(PROMPT)
    return child


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


def ends(child: Any, code: int) -> None:
    child.expect(pexpect.EOF)
    child.wait()
    assert child.exitstatus == code


def test_a_tool_that_acts_asks_before_it_runs_and_the_answer_may_be_remembered(chat: Any) -> None:
    chat.sendline("send a note to Ada: dinner at 8")
    chat.expect("send_note wants to run:")
    chat.expect('"text": "dinner at 8"')
    chat.expect(".y.es, once")
    chat.sendline("n not today")
    chat.expect("denied: not today")
    chat.expect(PROMPT)
    chat.sendline("send a note to Ada: dinner at 9")
    chat.expect(".y.es, once")
    chat.sendline("c")
    chat.expect("Sent to Ada: dinner at 9")
    chat.expect(PROMPT)
    chat.sendline("send a note to Bo: dinner at 9")
    assert chat.expect([".y.es, once", "Sent to Bo: dinner at 9"]) == 1
    chat.expect(PROMPT)
    chat.sendeof()
    ends(chat, 0)


def test_arguments_may_be_edited_before_a_tool_runs(chat: Any) -> None:
    chat.sendline("send a note to Ada: dinner at 8")
    chat.expect(".y.es, once")
    chat.sendline("e")
    chat.expect("Arguments ›")
    chat.send("\x15")  # clears the line
    chat.sendline('{"to": "Bo", "text": "lunch"}')
    chat.expect("Sent to Bo: lunch")
    chat.expect(PROMPT)


def test_ctrl_c_at_a_question_stops_the_turn_and_nothing_runs(chat: Any, environment: dict[str, str]) -> None:
    chat.sendline("send a note to Ada: dinner at 8")
    chat.expect(".y.es, once")
    chat.sendintr()
    chat.expect("Interrupted. What was said is kept.")
    chat.expect(PROMPT)
    chat.sendline("what did I ask?")
    chat.expect("In this conversation you said before:")
    chat.expect("send a note to Ada: dinner at 8")
    chat.expect(PROMPT)
    chat.sendeof()
    ends(chat, 0)
    assert not any("Sent to" in str(message.get("content")) for message in stored(environment))


def test_ctrl_d_at_a_question_leaves_it_open_and_resume_asks_again(terminal: Callable[..., Any]) -> None:
    asked = terminal("-m", "demo", "-C", "here", "send a note to Ada: dinner at 8")
    asked.expect(".y.es, once")
    asked.sendeof()
    asked.expect("toolnexus resume here --model demo --approve")
    ends(asked, 10)
    resumed = terminal("resume", "here")
    resumed.expect("send_note wants to run:")
    resumed.expect(".y.es, once")
    resumed.sendline("y")
    resumed.expect("Sent to Ada: dinner at 8")
    ends(resumed, 0)


def test_c_asks_first_about_what_was_cut_off(terminal: Callable[..., Any], environment: dict[str, str]) -> None:
    killed = terminal("-m", "demo", "-C", "here", "--yes", "send a note to Ada in 60 seconds: dinner")
    killed.expect("⏺ send_note.*1 s")
    killed.kill(signal.SIGKILL)
    killed.wait()
    chat = terminal("chat", "-c")
    chat.expect("The last turn was cut off while send_note ran. Nobody knows what it did.")
    chat.expect("send_note may have run already")
    chat.expect('"delay": 60.0')
    chat.expect("Run it again?")
    chat.sendline("n")
    chat.expect("Nobody knows whether the note was sent")
    chat.expect(PROMPT)
    chat.sendline("what did I ask?")
    chat.expect("In this conversation you said before:")
    chat.expect("send a note to Ada in 60 seconds: dinner")
    chat.expect(PROMPT)
    chat.sendeof()
    ends(chat, 0)
    assert stored(environment)[-1]["role"] == "assistant"


def test_a_person_gets_a_table_and_is_told_how_long_ago_it_was(terminal: Callable[..., Any]) -> None:
    ends(terminal("-m", "demo", "-C", "here", "remember that my name is Ada"), 0)
    listed = terminal("memory", "ls")
    listed.expect(r"ID +UPDATED +MESSAGES +STATUS +TITLE OR LAST TEXT")
    listed.expect(r"here +just now +2 +done +I will remember it: my name is Ada")
    ends(listed, 0)


def test_rm_asks_a_person_unless_told_not_to(terminal: Callable[..., Any]) -> None:
    ends(terminal("-m", "demo", "-C", "here", "hello"), 0)
    asked = terminal("memory", "rm", "here")
    asked.expect("Remove here.*y/N")
    asked.sendline("n")
    asked.expect("Nothing was removed.")
    ends(asked, 1)
    removed = terminal("memory", "rm", "-f", "here")
    removed.expect("Removed: here")
    ends(removed, 0)


def test_words_with_a_slash_are_not_sent_and_quit_leaves(chat: Any, environment: dict[str, str]) -> None:
    chat.sendline("/hlep")
    chat.expect("That was not sent. /quit and /exit leave")
    chat.expect(PROMPT)
    chat.sendline("/quit")
    ends(chat, 0)
    assert stored(environment) == []


def test_ctrl_c_while_a_tool_acts_is_asked_about_before_the_next_question(chat: Any) -> None:
    chat.sendline("send a note to Ada in 60 seconds: dinner")
    chat.expect(".y.es, once")
    chat.sendline("y")
    chat.expect("⏺ send_note.*1 s")  # it is shown that it runs
    chat.sendintr()
    chat.expect("send_note may have run; its outcome is unknown. `toolnexus resume here --model demo` asks.")
    chat.expect(PROMPT)
    chat.sendline("what did I ask?")
    chat.expect("Run it again?")
    chat.sendline("n")
    chat.expect("Nobody knows whether the note was sent")
    chat.expect("In this conversation you said before:")
    chat.expect(PROMPT)
    chat.sendeof()
    ends(chat, 0)


@pytest.mark.parametrize("variable", [{"NO_COLOR": "1"}, {}], ids=["no colour", "colour"])
def test_no_color_takes_away_colour_and_nothing_else(
    terminal: Callable[..., Any], environment: dict[str, str], variable: dict[str, str]
) -> None:
    environment.update(variable)
    asked = terminal("-m", "demo", "-C", "here", "hello")
    ends(asked, 0)
    assert "**no AI**" not in asked.before  # Markdown is laid out
    assert bool(re.search(r"\x1b\[[\d;]+m", asked.before)) is not bool(variable)
    assert not re.search(r"\x1b\[(?:\d+;)*4[0-7]m", asked.before)  # no background, whatever the terminal's is
    listed = terminal("memory", "ls")
    ends(listed, 0)
    assert re.search(r"ID +UPDATED +MESSAGES", listed.before)
    assert ("\x1b" in listed.before) is not bool(variable)


def test_a_terminal_that_only_writes_letters_gets_no_escape_codes(
    terminal: Callable[..., Any], environment: dict[str, str]
) -> None:
    environment["TERM"] = "dumb"
    chat = terminal("chat", "-m", "demo", "-C", "here")
    chat.expect(PROMPT)
    written = chat.before
    chat.sendline("add 2 and 3")
    chat.expect("The sum is")
    written += chat.before
    chat.expect(PROMPT)
    chat.sendline("/quit")
    ends(chat, 0)
    assert "\x1b" not in written + chat.before
