"""The chat on a real terminal."""

from __future__ import annotations

import asyncio
import re
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import local
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


async def read(environment: dict[str, str]) -> list[dict[str, Any]]:
    store = SQLiteStore(Path(environment["TOOLNEXUS_HOME"]) / "conversations.db")
    found = await store.get("here")
    await store.aclose()
    return found or []


def stored(environment: dict[str, str]) -> list[dict[str, Any]]:
    return asyncio.run(read(environment))


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


def leaves(chat: Any) -> None:
    chat.expect(PROMPT)
    chat.sendline("/quit")
    ends(chat, 0)


def test_new_open_and_what_may_have_been_meant(chat: Any, environment: dict[str, str]) -> None:
    chat.sendline("remember that my name is Ada")
    chat.expect("I will remember it")
    chat.expect(PROMPT)
    chat.sendline("/new")
    chat.expect(r"demo .scripted, no AI. · [a-z]+-[a-z]+-\d{4}")
    chat.expect(PROMPT)
    chat.sendline("what do you know?")
    chat.expect("Nothing yet")
    chat.expect(PROMPT)
    chat.sendline("/open hree")
    chat.expect("no conversation 'hree'. Did you mean 'here'?")
    chat.expect(PROMPT)
    chat.sendline("/open here")
    chat.expect("demo .scripted, no AI. · here")
    chat.expect("assistant: I will remember it")
    chat.expect(PROMPT)
    chat.sendline("what do you know?")
    chat.expect("my name is Ada")
    chat.expect(PROMPT)
    chat.sendline("/nwe")
    chat.expect("Did you mean /new?")
    chat.expect(PROMPT)
    chat.sendline("//new is what?")
    chat.expect("not in my script")
    leaves(chat)
    assert [each["content"] for each in stored(environment) if each["role"] == "user"] == [
        "remember that my name is Ada",
        "what do you know?",
        "/new is what?",
    ]


def test_what_was_allowed_in_one_conversation_is_asked_about_in_the_next(chat: Any) -> None:
    chat.sendline("send a note to Ada: dinner")
    chat.expect(".y.es, once")
    chat.sendline("c")
    chat.expect("Sent to Ada: dinner")
    chat.expect(PROMPT)
    chat.sendline("/model demo:flaky")
    chat.expect("demo:flaky")
    chat.expect(PROMPT)
    chat.sendline("send a note to Ada: lunch")  # the same conversation
    assert chat.expect([".y.es, once", "Sent to Ada: lunch"]) == 1
    chat.expect(PROMPT)
    chat.sendline("/new")
    chat.expect(PROMPT)
    chat.sendline("send a note to Ada: tea")
    chat.expect(".y.es, once")
    chat.sendline("n")
    chat.expect("Why not")
    chat.sendline("")
    leaves(chat)


def test_undo_and_retry_take_the_last_turn_back(chat: Any, environment: dict[str, str]) -> None:
    for command, said in (("/undo", "nothing to take back"), ("/retry", "nothing to ask again")):
        chat.sendline(command)
        chat.expect(said)
        chat.expect(PROMPT)
    chat.sendline("count to 3")
    chat.expect("1 2 3")
    chat.expect(PROMPT)
    chat.sendline("send a note to Ada: dinner")
    chat.expect(".y.es, once")
    chat.sendline("y")
    chat.expect("Sent to Ada: dinner")
    chat.expect(PROMPT)
    chat.sendline("/undo")
    chat.expect("What its tools did stays done.")
    chat.expect("Taken back: send a note to Ada: dinner")
    chat.expect(PROMPT)
    chat.sendline("/retry")
    chat.expect("1 2 3")
    chat.expect(r"demo .scripted, no AI. · here · \d+\.\d s")
    leaves(chat)
    assert [(each["role"], each["content"]) for each in stored(environment)] == [
        ("user", "count to 3"),
        ("assistant", "1 2 3."),
    ]


async def test_a_conversation_goes_on_with_another_model(
    chat: Any, environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("some text", encoding="utf-8")
    counted = {"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}}

    def answer(seen: local.Seen) -> Any:
        if seen.number == 1:
            return local.Status(400, {"error": {"message": "Not like this."}})
        *said, end = local.streamed(f"Answer {seen.number}.")
        return [*said, local.event(counted), end]

    def talk(url: str) -> None:
        chat.sendline("count to 3")
        chat.expect("1 2 3")
        chat.expect(PROMPT)
        chat.sendline("/model openai:gpt")
        chat.expect("Set OPENAI_API_KEY")  # and the model before goes on
        chat.expect(PROMPT)
        chat.sendline("/model")
        chat.expect("demo .scripted, no AI. · here")
        chat.expect(PROMPT)
        chat.sendline(f"/model {url}#small")
        chat.expect("small · here")
        chat.expect(PROMPT)
        chat.sendline("what is in @notes.txt and @nothing?")
        chat.expect("@nothing names no file, so it was sent as text.")
        chat.expect("Not like this.")
        chat.expect(PROMPT)
        chat.sendline("/retry")  # it left no trace, so nothing is taken back
        chat.expect("Answer 2.")
        chat.expect(r"small · 10 \+ 5 tokens · here · \d+\.\d s")
        chat.expect(PROMPT)
        chat.sendline("/retry")
        chat.expect("Answer 3.")
        chat.expect(PROMPT)
        chat.sendline("/usage")
        chat.expect(r"This conversation: 2 answers · 10 \+ 5 tokens")
        chat.expect(r"Since you came: +3 answers · 20 \+ 10 tokens")
        leaves(chat)

    async with local.server(answer) as server:
        await asyncio.to_thread(talk, server.url)
    asked = [
        {"type": "text", "text": "what is in @notes.txt and @nothing?"},
        {"type": "text", "text": '<file name="notes.txt">\nsome text\n</file>'},
    ]
    assert [message["content"] for message in server.seen[2].said] == ["count to 3", "1 2 3.", asked]
    assert [each["origin"]["model"] for each in await read(environment) if each["role"] == "assistant"] == [
        "demo",
        "small",
    ]


def test_what_is_typed_ahead_is_not_drawn_into_the_answer(chat: Any) -> None:
    chat.sendline("count to 200")
    chat.expect("7 8 9 10")
    chat.sendline("add 2 and 3")
    chat.expect("demo .scripted, no AI. · here")
    assert "add 2" not in chat.before
    chat.expect("› add 2 and 3")
    chat.expect("The sum is")
    leaves(chat)


def test_the_terminal_shows_what_is_typed_after_an_answer(environment: dict[str, str]) -> None:
    line = f"{shlex.quote(sys.executable)} -m toolnexus -m demo hello; stty -a"
    child = pexpect.spawn("sh", ["-c", line], env=environment, encoding="utf-8", timeout=15)
    child.expect(r"[ ;](-?)echo ")
    assert child.match[1] == ""
    child.expect(pexpect.EOF)
    child.close()


def test_a_question_may_have_several_lines_typed_or_pasted(chat: Any, environment: dict[str, str]) -> None:
    chat.send("count to 3\x1b\rplease\r")
    chat.expect("1 2 3")
    chat.expect(PROMPT)
    chat.send("\x1b[200~count to 4\nplease\x1b[201~\r")
    chat.expect("1 2 3 4")
    leaves(chat)
    assert [each["content"] for each in stored(environment) if each["role"] == "user"] == [
        "count to 3\nplease",
        "count to 4\nplease",
    ]


def test_tab_completes_commands_ids_and_files(chat: Any, environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "numbers.txt").write_text("1", encoding="utf-8")
    chat.sendline("count to 3")
    chat.expect("1 2 3")
    chat.expect(PROMPT)
    chat.send("/op\t")
    chat.expect("/op.*en")  # what is completed may be drawn apart from what was typed
    chat.send(" her\t")
    chat.expect("her.*e")
    chat.send("\r")
    chat.expect("assistant: 1 2 3")
    chat.expect(PROMPT)
    chat.send("count to 4 @numb\t")
    chat.expect("numb.*ers.txt")
    chat.send("\r")
    chat.expect("1 2 3 4")
    leaves(chat)
    assert len(stored(environment)[2]["content"]) == 2


def test_what_was_asked_can_be_searched_the_next_time(
    chat: Any, terminal: Callable[..., Any], environment: dict[str, str]
) -> None:
    chat.sendline("count to 3")
    chat.expect("1 2 3")
    leaves(chat)
    file = Path(environment["TOOLNEXUS_HOME"]) / "history"
    assert file.stat().st_mode & 0o777 == 0o600
    again = terminal("chat", "-m", "demo", "-C", "there")
    again.expect(PROMPT)
    again.send("\x12cou")
    again.expect("nt to 3.*I-search backward: ")
    again.send("\r\r")
    again.expect("1 2 3")
    leaves(again)


def test_without_a_store_nothing_of_what_was_asked_is_kept(
    terminal: Callable[..., Any], environment: dict[str, str]
) -> None:
    chat = terminal("chat", "-m", "demo", "--no-store")
    chat.expect(PROMPT)
    chat.sendline("count to 3")
    chat.expect("1 2 3")
    leaves(chat)
    assert not Path(environment["TOOLNEXUS_HOME"]).exists()


def test_a_call_takes_one_line_of_a_narrow_terminal(terminal: Callable[..., Any], environment: dict[str, str]) -> None:
    environment["COLUMNS"] = "40"
    asked = terminal("-m", "demo", "-C", "here", "--yes", "send a note to Ada: " + "dinner and " * 9)
    ends(asked, 0)
    shown = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", asked.before)
    [line] = [line for line in re.split(r"[\r\n]+", shown) if re.search(r"⏺ send_note.* ms ✓", line)]
    assert len(line) <= 40


def test_a_person_is_shown_what_was_said_laid_out(terminal: Callable[..., Any]) -> None:
    ends(terminal("-m", "demo", "-C", "here", "add 2 and 3"), 0)
    shown = terminal("memory", "show", "here")
    ends(shown, 0)
    assert "The sum is" in shown.before
    assert "**" not in shown.before


def test_text_on_a_terminal_is_as_it_is_and_does_not_drive_it(terminal: Callable[..., Any]) -> None:
    asked = terminal("-m", "demo", "-o", "text", "add 2 and 3")
    ends(asked, 0)
    assert "The sum is **5**." in asked.before


def test_a_change_is_shown_as_a_diff_and_made_once_it_was_agreed_to(
    terminal: Callable[..., Any], tmp_path: Path
) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("one\ntwo\n")
    asked = terminal("-m", "demo", 'replace "two" with "2" in notes.txt')
    asked.expect("edit wants to run:")
    asked.expect("-two")
    asked.expect(r"\+2")
    asked.expect(r"\[n\]o ›")
    assert file.read_text() == "one\ntwo\n"
    asked.sendline("y")
    ends(asked, 0)
    assert file.read_text() == "one\n2\n"


def test_a_question_of_the_model_is_answered_by_number(terminal: Callable[..., Any]) -> None:
    asked = terminal("-m", "demo", "ask me a question")
    asked.expect("Which colour do you like best?")
    asked.expect("2. amber")
    asked.expect("an empty line skips ›")
    asked.sendline("2")
    asked.expect("- amber")
    ends(asked, 0)
