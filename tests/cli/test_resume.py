"""Turns that wait for a person or were cut off, and the commands that go on with them."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from toolnexus import SQLiteStore
from toolnexus.cli import stores
from toolnexus.cli.pending import Given, how_to, left
from toolnexus.cli.settings import Settings
from toolnexus.errors import ConfigurationError

Cli = Callable[..., Result]
Command = Callable[..., "subprocess.CompletedProcess[str]"]

NOTE = "send a note to Ada: dinner at 8"
SENT = "Sent to Ada: dinner at 8.\n"


def shown(cli: Cli, conversation: str) -> dict[str, Any]:
    return json.loads(cli("memory", "show", conversation, "--json").stdout)


def test_without_a_terminal_a_turn_ends_pending_and_says_how_to_resume_it(cli: Cli) -> None:
    done = cli("-m", "demo", "-C", "mine", NOTE)
    assert (done.exit_code, done.stdout) == (10, "")
    assert 'Waiting: send_note {"to": "Ada", "text": "dinner at 8", "delay": 0.0}' in done.stderr
    assert "Conversation: mine\n" in done.stderr
    assert shown(cli, "mine")["status"] == "suspended"
    assert "waiting" in cli("memory", "show", "mine").stdout


def test_the_command_that_is_printed_resumes_it(cli: Cli, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/it's.db"
    done = cli("--store", store, "-m", "demo", "-C", "it's mine", NOTE)
    (again,) = [line for line in done.stderr.splitlines() if line.endswith("--approve")]
    program, *arguments = shlex.split(again)
    resumed = cli(*arguments)
    assert (program, resumed.exit_code, resumed.stdout) == ("toolnexus", 0, SENT)
    (turn,) = json.loads(cli("memory", "show", "it's mine", "--json", "--store", store).stdout)["turns"]
    assert (turn["status"], turn["count"]) == ("done", 4)


@pytest.mark.parametrize(
    ("flag", "told"),
    [
        (["--deny", "not at eight"], "The note was not sent (denied: not at eight).\n"),
        (["--deny"], "The note was not sent (denied).\n"),
    ],
    ids=["with a reason", "without one"],
)
def test_a_denial_tells_the_model_why(cli: Cli, flag: list[str], told: str) -> None:
    cli("-m", "demo", "-C", "mine", NOTE)
    done = cli("resume", "mine", *flag)
    assert (done.exit_code, done.stdout) == (0, told)


def test_without_an_answer_and_a_terminal_it_goes_on_waiting(cli: Cli) -> None:
    cli("-m", "demo", "-C", "mine", NOTE)
    assert cli("resume", "mine").exit_code == 10
    assert cli("resume", "mine", "--approve").stdout == SENT


def test_several_that_wait_may_be_answered_one_by_one(cli: Cli) -> None:
    done = cli("-m", "demo", "-C", "mine", "ask permission twice")
    ids = re.findall(r"^Waiting: .* \[(\S+)\]$", done.stderr, re.MULTILINE)
    assert (done.exit_code, len(set(ids))) == (10, 2)
    done = cli("resume", "mine", "--approve", "--request", ids[0])
    assert (done.exit_code, done.stdout) == (10, "")
    assert done.stderr.count("Waiting: ") == 1
    assert "No request" in cli("resume", "mine", "--approve", "--request", ids[0]).stderr
    done = cli("resume", "mine", "--deny", "enough", "--request", ids[1])
    assert done.stdout == "Sent to you: you were asked.\n\nThe note was not sent (denied: enough).\n"


@pytest.mark.parametrize("flags", [["--yes"], ["--approve", "send_*"], ["--approve", "x", "--approve", "send_note"]])
def test_flags_answer_in_advance(cli: Cli, flags: list[str]) -> None:
    done = cli("-m", "demo", *flags, NOTE)
    assert (done.exit_code, done.stdout) == (0, SENT)


def test_what_was_once_always_approved_does_not_ask(cli: Cli, environment: dict[str, str]) -> None:
    home = Path(environment["TOOLNEXUS_HOME"])
    home.mkdir()
    (home / "approvals.json").write_text('{"version": 1, "always": ["send_note"]}')
    assert cli("-m", "demo", NOTE).stdout == SENT
    (home / "approvals.json").write_text("nonsense")
    done = cli("-m", "demo", NOTE)
    assert (done.exit_code, "approvals.json" in done.stderr) == (3, True)


def test_a_chat_through_a_pipe_stops_where_somebody_has_to_answer(command: Command) -> None:
    done = command("chat", "-m", "demo", "-C", "mine", text=f"{NOTE}\nwhat did I ask?\n")
    assert (done.returncode, done.stdout) == (10, "")
    assert command("resume", "mine", "--approve").stdout == SENT


def test_without_a_terminal_a_new_question_is_not_asked_while_the_last_turn_waits(cli: Cli) -> None:
    cli("-m", "demo", "-C", "mine", NOTE)
    done = cli("-c", "what did I ask?")
    assert (done.exit_code, done.stdout) == (10, "")
    assert "The last turn is waiting for an answer." in done.stderr
    assert "toolnexus resume mine --model demo --approve" in done.stderr
    assert cli("resume", "mine", "--approve").stdout == SENT
    assert NOTE in cli("-c", "what did I ask?").stdout


def test_an_answer_of_the_wrong_kind_is_a_mistake_in_the_command_and_the_right_one_is_shown(cli: Cli) -> None:
    cli("-m", "demo", "-C", "mine", NOTE)
    done = cli("resume", "mine", "--answer", "yes")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "toolnexus resume mine --model demo --approve" in done.stderr
    assert cli("resume", "mine", "--approve").stdout == SENT


@pytest.mark.skipif(sys.platform == "win32", reason="a process cannot be sent Ctrl-C")
def test_ctrl_c_while_a_tool_acts_says_that_nobody_knows_and_what_asks(cli: Cli, environment: dict[str, str]) -> None:
    with started(environment, "-m", "demo", "-C", "mine", "--yes", "send a note to Ada in 60 seconds: x") as process:
        wait_for_the_tool(environment, "mine")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    asks = "toolnexus resume mine --model demo"
    assert f"send_note may have run; its outcome is unknown. `{asks}` asks." in errors
    assert "it was stopped" in cli("memory", "show", "mine").stdout
    done = cli("-c", "hello")
    assert "cut off while send_note ran" in done.stderr
    assert cli("-c", "hello").stderr.count("cut off") == 0


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_the_messages_of_a_killed_turn_are_counted(cli: Cli, environment: dict[str, str]) -> None:
    killed_during_a_tool_call(environment, "mine")
    assert cli("memory", "show", "mine").stdout.startswith("mine · 3 messages\n")


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["resume"], 2, "Missing argument"),
        (["resume", "mine", "--approve", "--deny", "x"], 2, "choose one"),
        (["resume", "mine", "--request", "x"], 2, "--approve, --deny or --answer"),
        (["resume", "mien", "--approve"], 1, "Did you mean 'mine'?"),
        (["resume", "mine", "--approve"], 1, "toolnexus memory show mine"),
        (["resume", "mine"], 1, "Nothing waits in conversation 'mine' any more"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_cannot_be_resumed_is_said(cli: Cli, args: list[str], code: int, said: str) -> None:
    cli("-m", "demo", "-C", "mine", "hello")
    done = cli(*args)
    assert (done.exit_code, done.stdout) == (code, "")
    assert said in done.stderr


@contextmanager
def started(environment: dict[str, str], *args: str) -> Iterator[subprocess.Popen[str]]:
    """A command that runs. It is ended with the block."""
    with subprocess.Popen(
        [sys.executable, "-m", "toolnexus", *args],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for_the_tool(environment: dict[str, str], conversation: str) -> None:
    """Wait until a turn has recorded that its tool starts."""

    async def wait() -> None:
        store = SQLiteStore(Path(environment["TOOLNEXUS_HOME"]) / "conversations.db")
        end = time.monotonic() + 30
        while not ((found := await stores.read(store, conversation)) and found[0].open and found[0].open.acted):
            assert time.monotonic() < end, "no tool was started"
            await asyncio.sleep(0.01)
        await store.aclose()

    asyncio.run(wait())


def killed_during_a_tool_call(environment: dict[str, str], conversation: str, *flags: str) -> None:
    with started(
        environment, "-m", "demo", "-C", conversation, "--yes", *flags, "send a note to Ada in 60 seconds: dinner"
    ) as process:
        wait_for_the_tool(environment, conversation)
        process.send_signal(signal.SIGKILL)


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_a_turn_that_was_killed_during_a_tool_call_is_continued_with_c(cli: Cli, environment: dict[str, str]) -> None:
    killed_during_a_tool_call(environment, "mine")
    assert shown(cli, "mine")["status"] == "interrupted"
    done = cli("-c", "what did I ask?")
    assert done.exit_code == 0
    assert "The last turn was cut off while send_note ran. Nobody knows what it did." in done.stderr
    assert "- send a note to Ada in 60 seconds: dinner" in done.stdout
    lines = cli("memory", "show", "mine").stdout.splitlines()
    assert any(line.endswith("its process ended in the middle of it") for line in lines)
    assert any(line.endswith("✗ interrupted: outcome unknown") for line in lines)


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_what_a_killed_tool_did_is_asked_about_before_it_runs_again(cli: Cli, environment: dict[str, str]) -> None:
    killed_during_a_tool_call(environment, "mine")
    done = cli("resume", "mine", "--yes")
    assert (done.exit_code, done.stdout) == (10, "")
    assert '"delay": 60.0}, which may have run already' in done.stderr
    done = cli("resume", "mine", "--deny")
    assert done.exit_code == 0
    assert done.stdout == "Nobody knows whether the note was sent (interrupted: outcome unknown).\n"
    (turn,) = shown(cli, "mine")["turns"]
    assert turn["status"] == "done"


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_an_answer_is_taken_for_a_killed_turn_that_nobody_was_asked_about_yet(
    cli: Cli, environment: dict[str, str]
) -> None:
    killed_during_a_tool_call(environment, "mine")
    assert cli("resume", "mine", "--deny").exit_code == 0


def test_two_terminals_that_ask_on_one_id_at_once_both_get_answers(
    command: Command, cli: Cli, environment: dict[str, str]
) -> None:
    slow = "send a note to Ada in 1 second: dinner"
    with started(environment, "-m", "demo", "-C", "shared", "--yes", slow) as first:
        wait_for_the_tool(environment, "shared")
        second = command("-m", "demo", "-C", "shared", "what did I ask?")
        told, _ = first.communicate(timeout=60)
    assert (first.returncode, told) == (0, "Sent to Ada: dinner.\n")
    assert (second.returncode, second.stdout) == (0, f"In this conversation you said before:\n\n- {slow}\n")
    turns = shown(cli, "shared")["turns"]
    assert [(turn["status"], turn["saw"], turn["start"], turn["count"]) for turn in turns] == [
        ("done", 0, 0, 4),
        ("done", 4, 4, 2),
    ]
    lines = cli("memory", "show", "shared").stdout.splitlines()
    questions = [line for line in lines if line.startswith("user: ")]
    assert questions == [f"user: {slow}", "user: what did I ask?"]
    assert "assistant: Sent to Ada: dinner." in lines


def request(id: str = "r", kind: str = "approval", **data: Any) -> Any:
    return {"id": id, "kind": kind, "prompt": "Which code?", **({"data": data} if data else {})}


NOTED = request(tool="send_note", arguments={"to": "Ada"})


def test_how_to_answer_is_told_with_what_was_not_in_the_environment() -> None:
    settings = Settings(
        model="openai:x", base_url="http://me:sesame@127.0.0.1/v1", store="postgresql://me:sesame@host/db?p=1"
    )
    lines = list(how_to("-x y", [NOTED], settings, {"TOOLNEXUS_MODEL": "openai:x"}))
    assert lines == [
        'Waiting: send_note {"to": "Ada"}',
        "Conversation: -x y",
        "  toolnexus resume --base-url http://127.0.0.1/v1 --store postgresql://host/db --approve -- '-x y'",
        "  toolnexus resume --base-url http://127.0.0.1/v1 --store postgresql://host/db --deny REASON -- '-x y'",
    ]


def test_a_flag_that_won_over_the_environment_is_told() -> None:
    environ = {"TOOLNEXUS_MODEL": "openai:x", "TOOLNEXUS_STORE": "memory://"}
    lines = list(how_to("mine", [NOTED], Settings(model="demo", store="memory://"), environ))
    assert lines[2] == "  toolnexus resume mine --model demo --approve"


def test_what_waits_is_shown_whole() -> None:
    (line, *_) = how_to("mine", [request(tool="send_note", arguments={"text": "x" * 5000})], Settings(), {})
    assert "x" * 5000 in line


def test_what_a_tool_asks_is_answered_with_a_text() -> None:
    asked = {**request("q", "code"), "url": "https://example.org"}
    lines = list(how_to("mine", [asked], Settings(), {}))
    assert lines == [
        "Waiting: Which code?",
        "  https://example.org",
        "Conversation: mine",
        "  toolnexus resume mine --answer TEXT",
        "  toolnexus resume mine --deny REASON",
    ]
    assert Given(how="answer", text="42").answers([asked]) == [{"id": "q", "ok": True, "data": "42"}]


@pytest.mark.parametrize(
    ("given", "asked", "wanted"),
    [
        (Given(how="answer", text="yes"), NOTED, "--approve or --deny"),
        (Given(how="approve"), request("q", "code"), "--answer TEXT or --deny"),
        (Given(how="approve", requests=("x",)), NOTED, "No request 'x' waits. These do: r."),
    ],
)
def test_an_answer_of_another_kind_is_refused(given: Given, asked: Any, wanted: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(wanted)):
        given.answers([asked])


def test_a_turn_of_another_terminal_that_runs_was_not_left(environment: dict[str, str]) -> None:
    with started(environment, "-m", "demo", "-C", "mine", "--yes", "send a note to Ada in 60 seconds: dinner"):
        wait_for_the_tool(environment, "mine")

        async def how_it_was_left() -> str:
            store = SQLiteStore(Path(environment["TOOLNEXUS_HOME"]) / "conversations.db")
            found = await stores.read(store, "mine")
            await store.aclose()
            assert found
            return left(*found).how

        assert asyncio.run(how_it_was_left()) == ""
