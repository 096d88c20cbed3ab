from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

Cli = Callable[..., Result]


def completed(environment: dict[str, str], *words: str, cwd: Path | None = None) -> list[str]:
    """What a shell is offered for the last of these words."""
    done = subprocess.run(
        [sys.executable, "-m", "toolnexus"],
        env={
            **environment,
            "_TOOLNEXUS_COMPLETE": "bash_complete",
            "COMP_WORDS": " ".join(["toolnexus", *words]),
            "COMP_CWORD": str(len(words)),
        },
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stderr == ""
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_a_script_that_asks_this_program(cli: Cli, shell: str) -> None:
    done = cli("completion", shell)
    assert done.exit_code == 0
    assert f"_TOOLNEXUS_COMPLETE={shell}_complete" in done.stdout


def test_another_shell_is_a_misuse(cli: Cli) -> None:
    assert cli("completion", "tcsh").exit_code == 2


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_runs_the_script(cli: Cli, environment: dict[str, str], tmp_path: Path) -> None:
    script = tmp_path / "completion.bash"
    script.write_text(cli("completion", "bash").stdout)
    asks = (
        f"source {script}; COMP_WORDS=(toolnexus mod); COMP_CWORD=1; "
        "_toolnexus_completion toolnexus mod toolnexus; echo ${COMPREPLY[@]}"
    )
    folder = Path(sys.executable).parent
    done = subprocess.run(
        ["bash", "--norc", "-c", asks],
        env={**environment, "PATH": f"{folder}{os.pathsep}{environment['PATH']}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.split() == ["models"]


def test_commands_providers_models_and_ids_are_offered(cli: Cli, environment: dict[str, str]) -> None:
    environment["GROQ_API_KEY"] = "x"
    cli("-m", "demo", "-C", "quiet-otter-4711", "hello")
    cli("-m", "demo", "-C", "quick-fox-0815", "hello")
    assert completed(environment, "doc") == ["doctor"]
    assert completed(environment, "-m", "open") == ["openai:", "openrouter:"]
    assert completed(environment, "-m", "g") == ["groq:", "gemini:"]
    assert completed(environment, "-m", "dem") == ["demo", "demo:flaky"]
    assert completed(environment, "resume", "qui") == ["quick-fox-0815", "quiet-otter-4711"]
    assert completed(environment, "-C", "quiet") == ["quiet-otter-4711"]
    assert completed(environment, "memory", "show", "quick") == ["quick-fox-0815"]
    assert completed(environment, "models", "ls", "ant") == ["anthropic"]
    assert completed(environment, "--style", "a") == ["anthropic"]


def test_completing_makes_no_store_and_says_nothing_of_a_broken_file(environment: dict[str, str], own: Path) -> None:
    own.write_text("broken\n")
    assert completed(environment, "resume", "x") == []
    assert completed(environment, "-m", "dem") == ["demo", "demo:flaky"]
    assert [each.name for each in own.parent.iterdir()] == ["config.toml"]
