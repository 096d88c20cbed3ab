from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import local
import pytest
from click.testing import Result
from local import Seen, Status, serving

from toolnexus.testing import call, openai_reply, openai_stream

Cli = Callable[..., Result]
KEY = "sk-canary-0123456789"


def works(seen: Seen) -> Any:
    """Lists two models, and answers as one of them."""
    if seen.path.endswith("/models"):
        return {"data": [{"id": "small"}, {"id": "large:7b"}]}
    if not seen.path.endswith("/chat/completions"):
        return {}
    last = seen.body["messages"][-1]
    if last["role"] == "user" and seen.body.get("tools"):
        return local.in_kind(seen, None, ("add", {"a": 2, "b": 3}))
    return local.in_kind(seen, "Hello.")


def refuses(seen: Seen) -> Any:
    return Status(401, {"error": {"message": f"Incorrect API key provided: {KEY}", "code": "invalid_api_key"}})


def never_calls(seen: Seen) -> Any:
    return local.in_kind(seen, "It is 5.")


def test_the_models_of_everything_at_hand_are_listed_as_m_takes_them(
    cli: Cli, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(works) as there:
        monkeypatch.setenv("OLLAMA_HOST", there.url)
        monkeypatch.setenv("OPENAI_BASE_URL", there.url)
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        own.write_text(f'[providers.corp]\nbase_url = "{there.url}"\n')
        done = cli("models", "ls")
        assert done.exit_code == 0
        told = json.loads(cli("models", "ls", "--json").stdout)
    assert {"openai:small", "openai:large:7b", "ollama:small", "corp:small"} <= set(done.stdout.splitlines())
    assert {"model": "ollama:large:7b", "provider": "ollama", "id": "large:7b"} in told["models"]
    assert {seen.path for seen in there.seen} == {"/v1/models"}


def test_the_models_at_an_address_are_listed_with_it(cli: Cli) -> None:
    with serving(works) as there:
        done = cli("models", "ls", "--base-url", there.url)
        assert f"{there.url}#small" in done.stdout.splitlines()
        assert cli("-m", f"{there.url}#small", "hello").stdout == "Hello.\n"


def test_what_does_not_list_says_why_and_the_rest_is_listed(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(works) as there, serving(refuses) as other:
        monkeypatch.setenv("OLLAMA_HOST", there.url)
        monkeypatch.setenv("OPENAI_BASE_URL", other.url)
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        done = cli("models", "ls")
        told = json.loads(cli("models", "ls", "--json").stdout)
    assert (done.exit_code, "ollama:small" in done.stdout) == (0, True)
    assert "openai: " in done.stderr
    assert "OPENAI_API_KEY" in done.stderr
    assert "canary" not in done.output
    assert [each["provider"] for each in told["failed"]] == ["openai"]


def test_a_list_of_what_cannot_be_asked_is_said_to_be_one(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(works) as there:
        monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", there.url)
        monkeypatch.setenv("AZURE_OPENAI_API_KEY", KEY)
        done = cli("models", "ls", "azure")
        found = cli("doctor", "-m", "azure:my-deployment")
    assert "azure lists the models that deployments can be made of, and not your deployments" in done.stderr
    assert "my-deployment' is not among" not in found.stdout
    assert "answers, with 2 models" in found.stdout


@pytest.mark.parametrize(
    ("provider", "code", "said"),
    [
        ("openai", 3, "openai wants an API key. Set OPENAI_API_KEY."),
        ("ollama", 4, "could not be reached"),
        ("opnai", 2, "Did you mean 'openai'?"),
    ],
)
def test_a_provider_that_was_asked_for_and_lists_nothing_is_an_error(
    cli: Cli, provider: str, code: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLLAMA_HOST", "http://127.0.0.1:9")
    done = cli("models", "ls", provider)
    assert (done.exit_code, done.stdout) == (code, "")
    assert said in done.stderr


def test_the_default_is_written_and_all_else_in_the_file_is_left_as_it_is(cli: Cli, own: Path) -> None:
    before = '# mine\n\n[providers.corp]  # ours\nbase_url = "https://llm.example/v1"\nkeys = [ "CORP_KEY" ]\n'
    own.write_text(before)
    assert cli("models", "default", "corp:large").exit_code == 0
    assert own.read_text().replace('model = "corp:large"\n', "").replace("\n\n", "\n") == before.replace("\n\n", "\n")
    done = cli("models", "default")
    assert done.stdout == "corp:large\n"
    assert str(own) in done.stderr
    again = '# a\nmodel = "x:y"   # why\ntimeout = 5\n'
    own.write_text(again)
    assert cli("models", "default", "demo").exit_code == 0
    assert own.read_text() == again.replace("x:y", "demo")


def test_the_first_default_makes_the_file_for_its_owner_alone(cli: Cli, environment: dict[str, str]) -> None:
    assert cli("models", "default", "http://localhost:8000/v1#small").exit_code == 0
    file = Path(environment["TOOLNEXUS_HOME"]) / "config.toml"
    assert file.read_text() == 'model = "http://localhost:8000/v1#small"\n'
    assert file.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in file.parent.iterdir()] == ["config.toml"]
    assert cli("models", "default").stdout == "http://localhost:8000/v1#small\n"


def test_a_file_that_is_a_link_stays_one(cli: Cli, own: Path, tmp_path: Path) -> None:
    kept = tmp_path / "dotfiles.toml"
    kept.write_text("timeout = 5\n")
    own.symlink_to(kept)
    assert cli("models", "default", "demo").exit_code == 0
    assert own.is_symlink()
    assert kept.read_text() == 'timeout = 5\nmodel = "demo"\n'


@pytest.mark.parametrize(
    ("text", "model", "said"),
    [
        ("", "nonsense:x", "nonsense"),
        ("", "dmo", "Did you mean 'demo'?"),
        ("", "openai:", "openai:MODEL"),
        ("broken", "demo", "config.toml:1:7: "),
        ('base_url = "https://llm.example/v1"\n', "openai:x", "config.toml:1 sets base_url"),
    ],
)
def test_a_default_that_names_nothing_is_refused_and_not_written(
    cli: Cli, own: Path, text: str, model: str, said: str
) -> None:
    own.write_text(text)
    done = cli("models", "default", model)
    assert (done.exit_code, said in done.stderr) == (3, True)
    assert own.read_text() == text


def test_a_default_that_something_else_overrides_says_so(cli: Cli, own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLNEXUS_MODEL", "demo:flaky")
    done = cli("models", "default", "openai:gpt-5-mini")
    assert done.exit_code == 0
    assert "TOOLNEXUS_MODEL" in done.stderr


def test_without_a_default_the_command_says_how_to_set_one(cli: Cli) -> None:
    done = cli("models", "default")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "toolnexus models default MODEL" in done.stderr


def test_a_model_that_works_is_tried_whole_streamed_and_with_a_tool(cli: Cli) -> None:
    with serving(works) as there:
        done = cli("models", "test", f"{there.url}#small")
    assert done.exit_code == 0, done.output
    assert [line.split()[:2] for line in done.stdout.splitlines()] == [
        ["✓", "whole"],
        ["✓", "streamed"],
        ["✓", "tools"],
    ]
    streamed = [seen.body.get("stream", False) for seen in there.seen]
    assert streamed[:2] == [False, True]
    assert [bool(body.get("tools")) for body in there.bodies] == [False, False, True, True]
    assert re.search(r"\((1 piece|[02-9] pieces)\)", done.stdout)


def test_the_demo_model_can_be_tried(cli: Cli) -> None:
    told = json.loads(cli("-m", "demo", "models", "test", "--json").stdout)
    assert (told["model"], told["works"]) == ("demo", {"whole": True, "streamed": True, "tools": True})
    assert cli("models", "test", "demo").exit_code == 0


def test_a_model_that_calls_no_tools_is_told_apart_from_one_that_answers_nothing(cli: Cli) -> None:
    with serving(never_calls) as there:
        done = cli("models", "test", f"{there.url}#small", "--json")
        assert done.exit_code == 4
        assert json.loads(done.stdout)["works"] == {"whole": True, "streamed": True, "tools": False}
        assert "--tool-mode constrained" in cli("models", "test", f"{there.url}#small").stdout


def test_a_refused_key_is_tried_once(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(refuses) as there:
        monkeypatch.setenv("OPENAI_BASE_URL", there.url)
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        done = cli("models", "test", "openai:x")
    assert (done.exit_code, len(there.seen), "canary" in done.output) == (3, 1, False)
    assert "✗ whole" in done.stdout
    assert "The key is that of OPENAI_API_KEY." in done.stdout


def test_a_server_that_is_not_there_is_a_provider_error(cli: Cli) -> None:
    done = cli("models", "test", "http://127.0.0.1:9/v1#x")
    assert (done.exit_code, "could not be reached" in done.stdout) == (4, True)


def test_no_model_at_all_is_a_configuration_error(cli: Cli) -> None:
    done = cli("models", "test")
    assert (done.exit_code, done.stdout) == (3, "")
    assert "No model was named" in done.stderr


class HangsUpAfterStreams(BaseHTTPRequestHandler):
    """Says that a connection stays open, and answers nothing more on it after a stream."""

    protocol_version = "HTTP/1.1"
    streamed = False

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.streamed:
            self.close_connection = True
            return
        self.streamed = body.get("stream", False)
        asked = body.get("tools") and body["messages"][-1]["role"] == "user"
        reply = openai_reply(calls=[call("add", a=2, b=3)]) if asked else openai_reply("Hello.")
        answer = b"".join(openai_stream("Hello.")) if self.streamed else json.dumps(reply).encode()
        self.send_response(200)
        self.send_header("content-type", "text/event-stream" if self.streamed else "application/json")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Nothing is logged."""


def test_a_server_that_hangs_up_after_a_stream_works(cli: Cli) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), HangsUpAfterStreams) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        done = cli("models", "test", f"http://127.0.0.1:{server.server_port}/v1#m")
        server.shutdown()
    assert done.exit_code == 0, done.output
