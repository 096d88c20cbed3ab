"""Answers for programs, and answers that fit a schema."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import local
import pytest
from click.testing import Result

Cli = Callable[..., Result]
Command = Callable[..., "subprocess.CompletedProcess[str]"]

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}


async def asked(command: Command, server: local.Server, *args: str, text: str = "") -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(command, "-m", "m", "--base-url", server.url, *args, text=text)


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_json_is_one_object_at_the_end(cli: Cli) -> None:
    done = cli("-m", "demo", "-C", "here", "-o", "json", "add 2 and 3")
    told = json.loads(done.stdout)
    assert done.exit_code == 0
    (called,) = told.pop("tool_calls")
    assert (called["name"], called["args"], called["output"]) == ("add", {"a": 2, "b": 3}, "5")
    assert told.pop("turn_id")
    assert told == {
        "text": "The sum is **5**.",
        "output": None,
        "status": "done",
        "finish_reason": "stop",
        "limit": None,
        "usage": None,
        "model": "demo",
        "conversation_id": "here",
        "pending": [],
        "cost": None,
    }
    assert "⏺ add(a=2, b=3)" in done.stderr


def test_jsonl_is_every_event_as_a_line(cli: Cli) -> None:
    done = cli("-m", "demo", "-C", "here", "-o", "jsonl", "add 2 and 3")
    events = lines(done.stdout)
    assert [event["type"] for event in events if event["type"] != "text_delta"] == [
        *("step_finished", "tool_started", "tool_finished", "step_finished", "finished")
    ]
    text = "".join(event["text"] for event in events[5:] if event["type"] == "text_delta")
    assert text.endswith("The sum is **5**.")
    assert events[-1]["result"]["conversation_id"] == "here"
    assert events[-1]["result"]["cost"] is None


def test_events_are_written_while_they_happen(environment: dict[str, str]) -> None:
    with subprocess.Popen(
        [
            sys.executable,
            "-m",
            "toolnexus",
            "-m",
            "demo",
            "-o",
            "jsonl",
            "--yes",
            "send a note to Ada in 60 seconds: hi",
        ],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        while json.loads(process.stdout.readline())["type"] != "tool_started":
            pass
        process.send_signal(signal.SIGINT)
        last = lines(process.stdout.read().decode())[-1]
        process.stderr.read()
        assert process.wait(60) == 130
    assert (last["type"], last["error"]["kind"], last["error"]["exit_code"]) == ("error", "interrupted", 130)


def test_what_waits_for_a_person_is_in_it(cli: Cli) -> None:
    done = cli("-m", "demo", "-C", "here", "-o", "json", "send a note to Ada: dinner")
    told = json.loads(done.stdout)
    assert (done.exit_code, told["status"]) == (10, "pending")
    (request,) = told["pending"]
    assert request["data"]["arguments"] == {"to": "Ada", "text": "dinner", "delay": 0.0}
    assert "toolnexus resume here --model demo --approve" in done.stderr

    again = cli("-m", "demo", "-C", "here", "-o", "json", "and now?")
    refused = json.loads(again.stdout)
    assert (again.exit_code, refused["error"]["kind"], refused["pending"]) == (10, "pending", [request])

    resumed = cli("resume", "here", "--approve", "-o", "json")
    assert (resumed.exit_code, json.loads(resumed.stdout)["text"]) == (0, "Sent to Ada: dinner.")


@pytest.mark.parametrize("form", ["json", "jsonl"])
@pytest.mark.parametrize(
    ("args", "code", "kind"),
    [
        (["-m", "openai:x"], 3, "auth"),
        (["-m", "nonsense:x"], 3, "configuration"),
        (["-m", "demo", "--schema", "{"], 2, "configuration"),
        (["-m", "demo", "--schema", '{"type": "nonsense"}'], 3, "configuration"),
        (["-m", "demo", "-a", "none.png"], 2, "configuration"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_an_error_is_json_as_well(cli: Cli, form: str, args: list[str], code: int, kind: str) -> None:
    done = cli("-o", form, *args, "hello")
    told = json.loads(done.stdout)
    assert done.exit_code == code
    assert told.pop("type", None) == ("error" if form == "jsonl" else None)
    assert (told["error"]["kind"], told["error"]["exit_code"], told["partial"]) == (kind, code, None)
    assert told["error"]["message"] in done.stderr


async def test_an_error_of_the_provider_says_what_a_program_needs(command: Command) -> None:
    refused = local.Status(429, {"error": {"message": "Slow down."}}, {"retry-after": "0", "x-request-id": "r-1"})
    async with local.server(lambda _: refused) as server:
        done = await asked(command, server, "-C", "here", "-o", "json", "hello")
    told = json.loads(done.stdout)
    assert (done.returncode, told["conversation_id"]) == (4, "here")
    about = told["error"]
    assert (about["kind"], about["status"], about["retryable"], about["exit_code"]) == ("rate_limit", 429, True, 4)
    assert "Slow down." in about["message"]


def test_a_chat_through_a_pipe_is_an_object_for_each_answer(command: Command) -> None:
    done = command("chat", "-m", "demo", "-o", "json", text="count to 2\ncount to 3\n")
    assert [each["text"] for each in lines(done.stdout)] == ["1 2.", "1 2 3."]


def test_md_is_laid_out_through_a_pipe_too_and_text_is_as_it_is(cli: Cli) -> None:
    laid_out = cli("-m", "demo", "-o", "md", "add 2 and 3")
    assert laid_out.stdout.strip() == "The sum is 5."
    assert "\x1b" not in laid_out.stdout
    assert cli("-m", "demo", "-o", "text", "add 2 and 3").stdout == "The sum is **5**.\n"


def test_a_form_that_there_is_not_is_a_misuse(cli: Cli) -> None:
    done = cli("-m", "demo", "-o", "yaml", "hello")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "'text', 'md', 'json', 'jsonl'" in done.stderr


def test_the_environment_chooses_a_form(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLNEXUS_OUTPUT", "json")
    assert json.loads(cli("-m", "demo", "count to 3").stdout)["text"] == "1 2 3."
    assert json.loads(cli("-m", "openai:x", "count to 3").stdout)["error"]["exit_code"] == 3


@pytest.mark.parametrize("inline", [True, False], ids=["text", "file"])
async def test_with_a_schema_the_answer_is_the_json_value(command: Command, tmp_path: Path, inline: bool) -> None:
    file = tmp_path / "city.json"
    file.write_text(json.dumps(CITY), encoding="utf-8")

    async with local.server(lambda seen: local.in_kind(seen, '```json\n{"city": "Zürich"}\n```')) as server:
        done = await asked(command, server, "--schema", json.dumps(CITY) if inline else str(file), "Where?")
        told = await asked(command, server, "--schema", str(file), "-o", "json", "Where?")
    assert (done.returncode, done.stdout) == (0, '{\n  "city": "Zürich"\n}\n')
    assert json.loads(told.stdout)["output"] == {"city": "Zürich"}
    assert all('"city"' in json.dumps(body) for body in server.bodies)


async def test_an_answer_that_does_not_fit_is_said_with_what_is_wrong(command: Command) -> None:
    async with local.server(lambda seen: local.in_kind(seen, '{"town": "Bern"}')) as server:
        done = await asked(command, server, "--schema", json.dumps(CITY), "Where?")
        told = await asked(command, server, "--schema", json.dumps(CITY), "-o", "json", "Where?")
    assert (done.returncode, done.stdout) == (1, "")
    assert "The answer does not fit the schema, not even after the model was told:" in done.stderr
    assert 'The answer was: {"town": "Bern"}' in done.stderr
    failed = json.loads(told.stdout)
    assert (told.returncode, failed["error"]["kind"]) == (1, "invalid_output")
    assert failed["partial"]["text"] == '{"town": "Bern"}'
    assert len(server.seen) == 4  # each was told once


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("none.json", "The schema 'none.json' cannot be read: No such file or directory."),
        ('{"type"', "--schema is no JSON: "),
        ("list.json", "The schema 'list.json' is no JSON object."),
        ("/dev/zero", "The schema '/dev/zero' is longer than any schema"),
    ],
)
def test_a_schema_that_is_none_is_a_misuse(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, schema: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "list.json").write_text("[]")
    done = cli("-m", "demo", "--schema", schema, "hello")
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr


async def test_limits_and_tokens_are_said(command: Command) -> None:
    def answer(seen: local.Seen) -> Any:
        usage = {
            "choices": [],
            "usage": {
                "prompt_tokens": 1200,
                "completion_tokens": 80,
                "total_tokens": 1280,
                "prompt_tokens_details": {"cached_tokens": 1024},
            },
        }
        *said, end = local.streamed("Hello.")
        return [*said, local.event(usage), end]

    async with local.server(answer) as server:
        done = await asked(command, server, "-C", "here", "hello")
    assert done.stderr == "m · 1200 + 80 tokens (1024 cached) · here\n"


def test_the_steps_of_an_answer_can_be_limited(cli: Cli) -> None:
    done = cli("-m", "demo", "-o", "json", "--max-steps", "1", "add 2 and 3")
    told = json.loads(done.stdout)
    assert (done.exit_code, told["status"], told["limit"]) == (6, "incomplete", "max_steps")


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a model server that never answers."""
    over = threading.Event()

    def serve(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            over.wait(60)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        over.set()
        thread.join()


def test_the_time_of_an_answer_can_be_limited(cli: Cli, silent: str) -> None:
    done = cli("-m", "x", "--base-url", silent, "-o", "json", "--timeout", "0.2", "hello")
    told = json.loads(done.stdout)
    assert (done.exit_code, told["error"]["kind"], told["error"]["exit_code"]) == (6, "timeout", 6)
