from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from local import Seen, Status, serving

Cli = Callable[..., Result]
Command = Callable[..., "subprocess.CompletedProcess[str]"]
KEY = "sk-canary-0123456789"


def lists(*names: str) -> Callable[[Seen], Any]:
    """A server that lists models, and answers nothing else."""

    def answer(seen: Seen) -> Any:
        return {"data": [{"id": name} for name in names]} if seen.path == "/v1/models" else {}

    return answer


def problems(done: Result) -> list[tuple[str, str, str]]:
    """What is not well: about, what, do."""
    found = json.loads(done.stdout)["findings"]
    return [(each["about"], each["what"], each["do"]) for each in found if each["level"] == "problem"]


def test_with_nothing_configured_it_says_what_is_missing_and_writes_nothing(
    command: Command, environment: dict[str, str]
) -> None:
    environment["OLLAMA_HOST"] = "http://127.0.0.1:9"
    done = command("doctor", "--json")
    told = json.loads(done.stdout)
    if any("it runs on this machine" in each["what"] for each in told["findings"]):
        pytest.skip("a model server runs on this machine")
    assert (done.returncode, told["ok"], told["exit_code"]) == (3, False, 3)
    [model] = [each for each in told["findings"] if each["level"] == "problem"]
    assert model["about"] == "model"
    assert "OPENAI_API_KEY" in model["do"]
    assert "-m demo" in model["do"]
    assert not Path(environment["TOOLNEXUS_HOME"]).exists()


def test_with_the_demo_model_all_is_well(cli: Cli, own: Path) -> None:
    own.write_text('model = "demo"\n')
    done = cli("doctor")
    assert (done.exit_code, done.stderr) == (0, "")
    assert re.search(r"^✓ version: toolnexus \S+ on Python 3\.\d+", done.stdout)
    assert f"✓ configuration: {own} (yours) was read\n" in done.stdout
    assert f"✓ model: demo, from {own}:1\n" in done.stdout
    assert "✓ store: " in done.stdout
    assert "✓ extras: " in done.stdout
    assert "✓ terminal: " in done.stdout
    assert "✗" not in done.stdout


def test_a_wrong_key_is_said_with_its_variable(cli: Cli, own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(_: Seen) -> Any:
        return Status(401, {"error": {"message": f"Incorrect API key provided: {KEY}", "code": "invalid_api_key"}})

    with serving(refuses) as there:
        monkeypatch.setenv("OPENAI_BASE_URL", there.url)
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        done = cli("doctor", "-m", "openai:gpt-5-mini", "--json")
    assert done.exit_code == 3
    assert "canary" not in done.output
    [(about, what, do)] = problems(done)
    assert about == "key"
    assert re.fullmatch(rf"{re.escape(there.url)}/\S+ refused the key in OPENAI_API_KEY", what)
    assert do == "Set OPENAI_API_KEY to a key that is valid there."


def test_an_address_that_wants_a_key_says_which_variable_is_for_it(
    cli: Cli, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(lambda _: Status(401, {})) as there:
        done = cli("doctor", "-m", "x", "--base-url", there.url, "--json")
        assert problems(done)[0][2] == "Set TOOLNEXUS_API_KEY."
        monkeypatch.setenv("TOOLNEXUS_API_KEY", KEY)
        done = cli("doctor", "-m", "x", "--base-url", there.url, "--json")
    assert problems(done)[0][2] == "Set TOOLNEXUS_API_KEY to a key that is valid there."
    assert "canary" not in done.output


def test_a_missing_key_is_said_with_its_variable(cli: Cli, own: Path) -> None:
    done = cli("doctor", "-m", "anthropic:claude-sonnet-5", "--json")
    assert done.exit_code == 3
    assert [about for about, *_ in problems(done)] == ["key"]
    assert "Set ANTHROPIC_API_KEY" in problems(done)[0][1]


@pytest.mark.parametrize(
    ("model", "start"),
    [("ollama:qwen3", "ollama serve"), ("corp:x", "Start the server"), ("http://127.0.0.1:9/v1#x", "Start the server")],
)
def test_a_dead_server_on_this_machine_is_said_with_how_to_start_it(
    cli: Cli, own: Path, model: str, start: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLLAMA_HOST", "http://127.0.0.1:9")
    own.write_text('[providers.corp]\nbase_url = "http://127.0.0.1:9/v1"\n')
    done = cli("doctor", "-m", model, "--json")
    assert done.exit_code == 4
    [(about, what, do)] = problems(done)
    assert (about, "127.0.0.1:9 could not be reached" in what, start in do) == ("endpoint", True, True)


def test_a_broken_file_is_said_with_line_and_column_and_the_rest_is_looked_at(
    cli: Cli, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own.write_text('model = "demo"\n\ntimeout = 3 s\n')
    monkeypatch.setenv("TOOLNEXUS_MODEL", "demo")
    done = cli("doctor")
    assert done.exit_code == 3
    assert f"✗ configuration: {own}:3:13: " in done.stdout
    assert "✓ model: demo, from TOOLNEXUS_MODEL" in done.stdout
    assert "✓ store: " in done.stdout


def test_all_that_is_wrong_in_a_file_is_said(cli: Cli, own: Path) -> None:
    own.write_text('model = "demo"\nmodle = "x"\nmax_steps = 0\n')
    done = cli("doctor", "--json")
    assert done.exit_code == 3
    assert [what.partition(": ")[0] for _, what, _ in problems(done)] == [f"{own}:2", f"{own}:3"]


def test_a_model_that_is_not_there_is_said_with_what_was_meant(
    cli: Cli, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(lists("qwen3:8b", "llama3")) as there:
        monkeypatch.setenv("OLLAMA_HOST", there.url)
        done = cli("doctor", "-m", "ollama:lama3")
        assert done.exit_code == 0
        assert "! endpoint: " in done.stdout
        assert "Did you mean 'llama3'? Or get it: ollama pull lama3" in done.stdout
        done = cli("doctor", "-m", "ollama:qwen3")  # Ollama takes a tag for granted
        assert "answers, with 2 models" in done.stdout


def test_the_model_that_would_be_found_is_said_with_the_reason(
    cli: Cli, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(lists("gpt-5-mini")) as there:
        monkeypatch.setenv("OPENAI_BASE_URL", there.url)
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        done = cli("doctor")
    assert done.exit_code == 0, done.output
    assert "✓ model: openai:gpt-5-mini, because its key is set; none was named" in done.stdout
    assert "✓ key: OPENAI_API_KEY is set" in done.stdout
    assert "answers, with 1 model\n" in done.stdout
    assert "canary" not in done.output


@pytest.mark.parametrize(
    ("answer", "code", "mark", "said"),
    [
        (Status(404, {}), 0, "!", "lists no models"),
        (Status(200, "<html>"), 0, "!", "not as a model server"),
        (Status(500, {"error": {"message": "out of order"}}), 4, "✗", "out of order"),
    ],
    ids=["no list", "a page", "failing"],
)
def test_other_answers_are_told_apart(cli: Cli, own: Path, answer: Status, code: int, mark: str, said: str) -> None:
    with serving(lambda _: answer) as there:
        done = cli("doctor", "-m", "x", "--base-url", there.url)
    assert done.exit_code == code
    assert re.search(rf"^{mark} endpoint: .*{said}", done.stdout, re.MULTILINE)


def test_a_server_that_is_still_loading_is_said(cli: Cli, own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(lambda _: Status(503, {})) as there:
        monkeypatch.setenv("OLLAMA_HOST", there.url)
        assert "says that it is not ready" in cli("doctor", "-m", "ollama:x").stdout


def test_fallbacks_are_looked_at_too(cli: Cli, own: Path) -> None:
    with serving(lists("x")) as there:
        own.write_text(f'model = "{there.url}#x"\nfallbacks = ["groq:y", "nonsense:z"]\n')
        done = cli("doctor", "--json")
    assert done.exit_code == 3
    assert [what.partition(": ")[0] for _, what, _ in problems(done)] == ["groq:y", "nonsense:z"]


def test_a_store_is_written_to_and_left_as_it_was(cli: Cli, own: Path) -> None:
    own.write_text('model = "demo"\n')
    cli("-C", "mine", "hello")
    done = cli("doctor")
    assert (done.exit_code, "holds conversations, and can be written" in done.stdout) == (0, True)
    assert [line.split("\t")[0] for line in cli("memory", "ls").stdout.splitlines()] == ["mine"]


@pytest.mark.parametrize("store", ["postgresql://me:canary@127.0.0.1:9/x", "redis://:canary@127.0.0.1:9/0"])
def test_a_store_that_is_not_there_is_a_store_error_that_shows_no_password(cli: Cli, own: Path, store: str) -> None:
    done = cli("doctor", "-m", "demo", "--store", store, "--json")
    assert done.exit_code == 5
    assert [about for about, *_ in problems(done)] == ["store"]
    assert "canary" not in done.output


def test_a_store_that_cannot_be_made_is_a_store_error(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TOOLNEXUS_HOME", str(tmp_path / "file"))
    done = cli("doctor", "-m", "demo")
    assert (done.exit_code, "✗ store: " in done.stdout) == (5, True)


def test_a_store_that_there_is_not_is_a_configuration_error(cli: Cli, own: Path) -> None:
    assert cli("doctor", "-m", "demo", "--store", "nonsense://x").exit_code == 3


def test_a_server_that_has_no_page_about_itself_is_asked_for_its_models(
    cli: Cli, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(lambda seen: lists("x")(seen) if seen.path.endswith("/models") else Status(404, {})) as there:
        monkeypatch.setenv("OLLAMA_HOST", there.url)
        assert "answers, with 1 model\n" in cli("doctor", "-m", "ollama:x").stdout


def test_the_advice_is_about_the_key_that_was_found(cli: Cli, own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", KEY)
    [(about, what, do)] = problems(cli("doctor", "--json"))
    assert (about, what) == ("model", "none is named. Found: GEMINI_API_KEY (gemini)")
    assert do == "Name one with -m or TOOLNEXUS_MODEL, as gemini:MODEL. `toolnexus models ls gemini` lists them."
    assert do in cli("hello").stderr
