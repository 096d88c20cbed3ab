from __future__ import annotations

import asyncio
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest
from click.testing import Result

from toolnexus import SQLiteStore
from toolnexus.cli import main

Cli = Callable[..., Result]
Command = Callable[..., "subprocess.CompletedProcess[str]"]


def stored(environment: dict[str, str]) -> list[tuple[str, list[dict[str, Any]]]]:
    """What is remembered, the last conversation first."""

    async def read() -> list[tuple[str, list[dict[str, Any]]]]:
        store = SQLiteStore(Path(environment["TOOLNEXUS_HOME"]) / "conversations.db")
        found = [(each.id, await store.get(each.id)) for each in (await store.list()).items]
        await store.aclose()
        return found

    return asyncio.run(read())


def test_the_answer_alone_goes_to_stdout(command: Command) -> None:
    done = command("-m", "demo", "add 2 and 3 and tell me the time")
    assert done.returncode == 0
    assert re.fullmatch(r"The sum is \*\*5\*\*\.\n\nIt is .*\.\n", done.stdout)
    assert "The model is demo (scripted, no AI)." in done.stderr
    assert re.search(r"^⏺ add\(a=2, b=3\) \d+ ms ✓$", done.stderr, re.MULTILINE)
    assert re.search(r"^⏺ current_time\(\) \d+ ms ✓$", done.stderr, re.MULTILINE)
    assert re.search(r"^demo \(scripted, no AI\) · [a-z]+-[a-z]+-\d{4}$", done.stderr, re.MULTILINE)
    assert "\x1b" not in done.stdout + done.stderr


def test_the_next_process_continues_the_last_conversation(command: Command, environment: dict[str, str]) -> None:
    assert command("-m", "demo", "-c", "remember that my favourite colour is teal").returncode == 0
    done = command("-m", "demo", "-c", "what do you know?")
    assert "- my favourite colour is teal" in done.stdout
    ((_, messages),) = stored(environment)
    assert [message["role"] for message in messages] == ["user", "assistant", "user", "assistant"]
    assert {message["origin"]["model"] for message in messages if message["role"] == "assistant"} == {"demo"}


def test_a_conversation_with_the_demo_model_goes_on_with_it_although_nobody_names_it_again(cli: Cli) -> None:
    cli("-m", "demo", "remember that my name is Ada")
    assert "Ada" in cli("-c", "what do you know?").stdout


def test_without_c_each_question_is_a_conversation_of_its_own(cli: Cli, environment: dict[str, str]) -> None:
    cli("-m", "demo", "remember that my name is Ada")
    assert "Nothing yet" in cli("-m", "demo", "what do you know?").stdout
    assert len(stored(environment)) == 2


def test_a_conversation_may_be_named(cli: Cli, environment: dict[str, str]) -> None:
    cli("-m", "demo", "-C", "mine", "remember that my name is Ada")
    cli("-m", "demo", "something else")
    assert "Ada" in cli("-C", "mine", "what do you know?", "-m", "demo").stdout
    name, messages = stored(environment)[0]
    assert (name, len(messages)) == ("mine", 4)


def test_the_first_conversation_may_be_asked_to_continue(cli: Cli) -> None:
    done = cli("-c", "-m", "demo", "hello")
    assert done.exit_code == 0
    assert "no conversation to continue yet" in done.stderr


def test_c_continues_what_was_talked_in_here_not_what_a_program_changed_since(
    cli: Cli, environment: dict[str, str]
) -> None:
    async def theirs() -> None:
        store = SQLiteStore(Path(environment["TOOLNEXUS_HOME"]) / "conversations.db")
        await store.save("theirs", [{"role": "user", "content": "hello"}])
        await store.aclose()

    cli("-m", "demo", "-C", "first", "remember that my name is Bo")
    cli("-m", "demo", "-C", "ours", "remember that my name is Ada")
    asyncio.run(theirs())
    assert "Ada" in cli("-m", "demo", "-c", "what do you know?").stdout
    cli("memory", "rm", "ours", "theirs")
    assert "Bo" in cli("-m", "demo", "-c", "what do you know?").stdout


def test_c_passes_over_a_conversation_whose_only_turn_failed(cli: Cli) -> None:
    cli("-m", "demo", "-C", "first", "remember that my name is Ada")
    cli("-m", "x", "--base-url", "http://127.0.0.1:9/v1", "-C", "failed", "hello")
    assert "Ada" in cli("-m", "demo", "-c", "what do you know?").stdout


@pytest.mark.parametrize("text", ["nonsense", "[]", '{"x": 1}'])
def test_a_note_of_the_last_conversation_that_cannot_be_read_does_no_harm(
    cli: Cli, environment: dict[str, str], text: str
) -> None:
    cli("-m", "demo", "remember that my name is Ada")
    (Path(environment["TOOLNEXUS_HOME"]) / "latest.json").write_text(text)
    assert "Ada" in cli("-m", "demo", "-c", "what do you know?").stdout


def test_no_store_keeps_nothing(cli: Cli, environment: dict[str, str]) -> None:
    assert cli("--no-store", "-m", "demo", "hello").exit_code == 0
    assert not Path(environment["TOOLNEXUS_HOME"]).exists()


@pytest.mark.parametrize("words", [("count", "to", "3"), ("count to 3",), ("ask", "count to 3"), ("--", "count to 3")])
def test_words_are_one_question(cli: Cli, words: tuple[str, ...]) -> None:
    assert cli("-m", "demo", *words).stdout == "1 2 3.\n"


def test_what_comes_through_a_pipe_is_added_to_the_question(cli: Cli) -> None:
    assert "2 lines, 3 words" in cli("-m", "demo", "summarise", text="one two\nthree").stdout
    assert cli("-m", "demo", "-", text="count to 3\n").stdout == "1 2 3.\n"
    assert cli("-m", "demo", text="count to 3\n").stdout == "1 2 3.\n"


def test_the_environment_names_a_model_and_flags_win(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLNEXUS_MODEL", "demo")
    assert cli("hello").exit_code == 0
    assert cli("-m", "nonsense:x", "hello").exit_code == 3


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["--nonsense"], 2, "No such option"),
        (["-m", "demo", ""], 2, "There is no question"),
        (["-m", "demo", "-C", "", "hello"], 2, "1 to 512 characters"),
        (["-m", "demo", "-c", "-C", "x", "hello"], 2, "choose one"),
        (["-m", "demo", "--no-store", "-c", "hello"], 2, "nothing to continue"),
        (["memory", "nonsense"], 2, "No such command"),
        (["hello"], 3, "No model was named. Found: no key in the environment and no server on this machine."),
        (["hello"], 3, "-m demo"),
        (["-m", "nonsense:x", "hello"], 3, "nonsense"),
        (["-m", "x", "--base-url", "http://127.0.0.1:9/v1", "--style", "nonsense", "hello"], 3, "nonsense"),
        (["-m", "openai:x", "hello"], 3, "OPENAI_API_KEY"),
        (["memory", "rm", "x"], 1, "no conversation 'x'"),
        (["memroy", "ls"], 2, "Did you mean `memory`?"),
        (["-m", "dmo", "hello"], 3, "Did you mean 'demo'?"),
        (["-m", "x", "hello"], 3, "or give its address with --base-url."),
        (["-m", "openai:x", "hello"], 3, "Set OPENAI_API_KEY.\n"),
        (["-m", "demo", "-C", "", "hello"], 2, "Error: The ID is ''; an ID has 1 to 512 characters.\n"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_is_wrong_is_said_with_an_exit_code(cli: Cli, args: list[str], code: int, said: str) -> None:
    done = cli(*args)
    assert (done.exit_code, done.stdout) == (code, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_server_that_is_not_there_is_a_provider_error_and_vv_shows_where(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def at_once(_: float) -> None: ...

    monkeypatch.setattr("toolnexus.clock.asyncio.sleep", at_once)
    asked = ("-m", "x", "--base-url", "http://127.0.0.1:9/v1", "hello")
    done = cli(*asked)
    assert done.exit_code == 4
    assert "Error: " in done.stderr
    assert "Traceback" not in done.stderr
    assert "Traceback" in cli("-vv", *asked).stderr


def test_a_home_that_cannot_be_used_is_a_store_error(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TOOLNEXUS_HOME", str(tmp_path / "file"))
    done = cli("-m", "demo", "hello")
    assert done.exit_code == 5
    assert "--no-store" in done.stderr


def test_a_key_in_the_environment_is_taken_and_said(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary-0123456789")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("GROQ_API_KEY", "gsk-canary-0123456789")

    async def at_once(_: float) -> None: ...

    monkeypatch.setattr("toolnexus.clock.asyncio.sleep", at_once)
    done = cli("-vv", "hello")
    assert done.exit_code == 4
    assert (
        "Found: OPENAI_API_KEY (openai), GROQ_API_KEY (groq). Taking openai:gpt-5-mini, because its key is set"
        in done.stderr
    )
    assert "canary" not in done.output


def test_the_flaky_demo_is_retried_and_answers(cli: Cli) -> None:
    done = cli("-m", "demo:flaky", "count to 3")
    assert (done.exit_code, done.stdout) == (0, "1 2 3.\n")
    assert re.search(r"^Retrying in 0\.\d s: demo:flaky is always overloaded", done.stderr, re.MULTILINE)


def test_a_chat_through_a_pipe_is_one_conversation(command: Command, environment: dict[str, str]) -> None:
    done = command("chat", "-m", "demo", text="remember that my name is Ada\n\nwhat do you know?\n")
    assert done.returncode == 0
    assert "- my name is Ada" in done.stdout
    ((_, messages),) = stored(environment)
    assert len(messages) == 4


def test_help_and_version_say_what_there_is(cli: Cli) -> None:
    shown = cli("--help").stdout
    assert all(word in shown for word in ("--continue", "--base-url", "chat", "memory", "TOOLNEXUS_HOME"))
    assert cli("--version").stdout.startswith("toolnexus, version ")


def test_a_reader_that_goes_away_is_no_error_and_the_turn_is_kept(environment: dict[str, str]) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "toolnexus", "-m", "demo", "--style", "openai", "list the files"],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        process.stdout.close()
        errors = process.stderr.read()
        assert process.wait(60) == 0
    assert b"Broken" not in errors
    assert b"Traceback" not in errors
    ((_, messages),) = stored(environment)
    assert messages[-1]["role"] == "assistant"


def test_a_quoted_question_is_one_whatever_it_begins_with(cli: Cli) -> None:
    assert cli("-m", "demo", "memroy ls").exit_code == 0


def test_commands_on_memory_do_not_advise_to_ask_without_a_store(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TOOLNEXUS_HOME", str(tmp_path / "file"))
    done = cli("memory", "ls")
    assert (done.exit_code, "--store" in done.stderr, "--no-store" in done.stderr) == (5, True, False)


class Guarded(BaseHTTPRequestHandler):
    """Refuses every key, and notes what was sent."""

    seen: ClassVar[list[str | None]] = []

    def do_POST(self) -> None:
        self.seen.append(self.headers["authorization"])
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(401)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *args: Any) -> None: ...


@pytest.fixture
def guarded() -> Iterator[str]:
    """The address of a model server that refuses everybody."""
    Guarded.seen.clear()
    with HTTPServer(("127.0.0.1", 0), Guarded) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()
        thread.join()


def test_the_key_for_a_base_url_is_sent_and_a_missing_one_is_said(
    cli: Cli, guarded: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary-0123456789")
    done = cli("-m", "x", "--base-url", guarded, "hello")
    assert (done.exit_code, "No key was sent; set TOOLNEXUS_API_KEY." in done.stderr) == (3, True)
    monkeypatch.setenv("TOOLNEXUS_API_KEY", "own-canary-0123456789")
    done = cli("-vv", "-m", "x", "--base-url", guarded, "hello")
    assert (done.exit_code, "No key was sent" in done.stderr, "canary" in done.output) == (3, False, False)
    assert Guarded.seen == [None, "Bearer own-canary-0123456789"]


@pytest.fixture
def half_an_answer() -> Iterator[str]:
    """The address of a model server that says one word and then nothing more."""
    delta = 'data: {"choices": [{"index": 0, "delta": {"content": "Hello "}}]}\n\n'
    head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
    over = threading.Event()

    def serve(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall((head + delta).encode())
            over.wait(60)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        over.set()
        thread.join()


def test_ctrl_c_stops_the_answer_and_keeps_what_was_said(environment: dict[str, str], half_an_answer: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "toolnexus", "-m", "x", "--base-url", half_an_answer, "--no-builtins", "Hi"],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout.read(6) == b"Hello "  # streamed through a pipe as well
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 130
    assert errors.decode() == "Interrupted. What was said is kept.\n"
    ((_, messages),) = stored(environment)
    assert messages == [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello ", "interrupted": True},
    ]


def test_without_the_extra_it_says_what_to_install(environment: dict[str, str]) -> None:
    code = "import sys; sys.modules['click'] = None; from toolnexus.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (3, "")
    assert "pip install 'toolnexus[cli]'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="a shell is needed to close a stream")
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_no_reason_to_fail(environment: dict[str, str], closed: str) -> None:
    line = f"{shlex.quote(sys.executable)} -m toolnexus -m demo hello {closed}"
    done = subprocess.run(line, shell=True, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert done.returncode == 0
    assert b"Traceback" not in done.stderr
    assert len(stored(environment)) == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
@pytest.mark.parametrize(("stream", "code"), [("stdout", 1), ("stderr", 0)])
def test_a_full_disk_behind_a_stream_costs_no_turn(environment: dict[str, str], stream: str, code: int) -> None:
    with Path("/dev/full").open("w") as full:
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, stream: full}
        done = subprocess.run(
            [sys.executable, "-m", "toolnexus", "-m", "demo", "hello"],
            env=environment,
            stdin=subprocess.DEVNULL,
            check=False,
            **streams,
        )
    assert done.returncode == code
    ((_, messages),) = stored(environment)
    assert messages[-1]["role"] == "assistant"
    if stream == "stdout":
        assert b"Error: [Errno 28]" in done.stderr
        assert b"Traceback" not in done.stderr


def test_bytes_that_are_no_text_can_be_piped(environment: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "toolnexus", "-m", "demo", "summarise"],
        env={**environment, "PYTHONIOENCODING": "utf-8:strict"},
        input=b"one \xff\xfe two",
        capture_output=True,
        check=False,
    )
    assert (done.returncode, b"1 lines" in done.stdout) == (0, True)


def test_a_question_may_begin_with_a_dash_after_two_dashes(cli: Cli, environment: dict[str, str]) -> None:
    assert cli("-m", "demo", "--", "-x is what?").exit_code == 0
    ((_, messages),) = stored(environment)
    assert messages[0]["content"] == "-x is what?"


def test_a_home_that_is_not_known_is_said(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLNEXUS_HOME", "~nobody-has-this-name/x")
    for arguments in (("memory", "path"), ("-m", "demo", "hello")):
        done = cli(*arguments)
        assert done.exit_code == 3
        assert "Set TOOLNEXUS_HOME" in done.stderr
    assert cli("-m", "demo", "--no-store", "hello").exit_code == 0


def test_ctrl_c_while_the_command_is_still_loading_ends_it_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    class Loading(ModuleType):
        def __getattr__(self, name: str) -> Any:
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "toolnexus.cli.app", Loading("toolnexus.cli.app"))
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 130
