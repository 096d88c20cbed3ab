"""What a project names that may run code, and who says that it may."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from toolnexus.cli.fingerprint import fingerprint
from toolnexus.cli.settings import Project
from toolnexus.errors import ConfigurationError

Cli = Callable[..., Result]

WIPE = 'from pathlib import Path\n\nPath("ran").touch()\n\n\ndef wipe() -> str:\n    """Wipe."""\n    return "wiped"\n'
NAMED = 'model = "demo"\ntools = ["tools/wipe.py"]\nskills = ["skills"]\nopenapi = ["api.json"]\n'
API = {
    "openapi": "3.1.0",
    "info": {"title": "x", "version": "1"},
    "servers": [{"url": "http://127.0.0.1:1"}],
    "paths": {"/x": {"$ref": "parts/x.json#/item"}},
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository that names what may run code, and in it the working directory, below."""
    folder = tmp_path / "repository"
    for each in (".git", "below", "tools", "parts", "skills/piers"):
        (folder / each).mkdir(parents=True)
    (folder / "toolnexus.toml").write_text(NAMED)
    (folder / "tools" / "wipe.py").write_text(WIPE)
    (folder / "api.json").write_text(json.dumps(API))
    (folder / "parts" / "x.json").write_text(json.dumps({"item": {"get": {"operationId": "getX"}}}))
    (folder / "skills" / "piers" / "SKILL.md").write_text("---\nname: piers\ndescription: On piers.\n---\nGo.\n")
    monkeypatch.chdir(folder / "below")
    return folder


def names(cli: Cli) -> list[str]:
    done = cli("tools", "ls", "--json", "--no-builtins")
    assert done.exit_code == 0, done.stderr
    return [each["name"] for each in json.loads(done.stdout)]


@pytest.mark.parametrize(
    "args",
    [
        ["hello"],
        ["--yes", "--approve", "*", "hello"],
        ["chat"],
        ["tools", "ls"],
        ["tools", "show", "read"],
        ["tools", "call", "read", "path=x", "-y"],
        ["skills", "ls"],
    ],
    ids=" ".join,
)
def test_without_a_terminal_nothing_of_an_untrusted_project_runs(cli: Cli, project: Path, args: list[str]) -> None:
    done = cli(*args)
    assert (done.exit_code, done.stdout) == (3, "")
    told = done.stderr.replace("\n", "")
    assert f"`toolnexus trust {project}` allows it. --yes does not." in told
    assert f"tool {project / 'tools' / 'wipe.py'}" in told
    assert not (project / "below" / "ran").exists()


def test_what_needs_no_tools_needs_no_trust(cli: Cli, project: Path) -> None:
    assert cli("memory", "ls").exit_code == 0
    done = cli("config", "show", "--json")
    assert json.loads(done.stdout)["settings"]["skills"]["value"] == [str(project / "skills")]


def test_a_trusted_project_is_used_from_anywhere_in_it(cli: Cli, project: Path, environment: dict[str, str]) -> None:
    done = cli("trust", "..")
    assert (done.exit_code, f"skills {project / 'skills'}" in done.stderr) == (0, True)
    assert names(cli) == ["wipe", "skill", "getX"]
    assert (Path(environment["TOOLNEXUS_HOME"]) / "trusted.json").stat().st_mode & 0o777 == 0o600
    assert cli("trust", "ls").stdout == f"{project}\n"
    assert cli("tools", "call", "wipe").exit_code == 10, "it may be loaded, and asks before it runs"
    assert cli("trust", "rm", str(project)).exit_code == 0
    assert cli("hello").exit_code == 3
    assert cli("trust", "rm", str(project)).exit_code == 1


@pytest.mark.parametrize(
    "file",
    ["toolnexus.toml", "tools/wipe.py", "api.json", "parts/x.json", "skills/piers/SKILL.md", "skills/piers/run.sh"],
)
def test_what_changes_is_asked_about_again(cli: Cli, project: Path, file: str) -> None:
    assert cli("trust", str(project)).exit_code == 0
    changed = project / file
    before = changed.read_text() if changed.exists() else None
    if file == "toolnexus.toml":
        changed.write_text(NAMED.replace('openapi = ["api.json"]\n', ""))
    else:
        changed.write_text(f"{before or ''}\n")
    done = cli("hello")
    assert (done.exit_code, "has changed since you trusted it" in done.stderr.replace("\n", " ")) == (3, True)
    assert "has changed" in cli("trust", "ls").stdout
    if before is not None:
        changed.write_text(before)
        assert cli("hello").exit_code == 0


def test_the_doctor_tells_whether_the_project_is_trusted(cli: Cli, project: Path) -> None:
    assert f"`toolnexus trust {project}` allows it." in cli("doctor").stdout
    cli("trust", str(project))
    assert "you trust it" in cli("doctor").stdout


def test_other_settings_of_the_project_may_change(cli: Cli, project: Path) -> None:
    assert cli("trust", str(project)).exit_code == 0
    (project / "toolnexus.toml").write_text(f"max_steps = 3\n{NAMED}")
    assert cli("hello").exit_code == 0


def test_a_project_switches_built_in_tools_off_but_on_only_once_it_is_trusted(
    cli: Cli, project: Path, own: Path
) -> None:
    (project / "toolnexus.toml").write_text("builtins = false\n")
    assert cli("tools", "ls").stdout == ""
    own.write_text("builtins = false\n")
    (project / "toolnexus.toml").write_text("builtins = true\n")
    assert cli("tools", "ls").exit_code == 3
    assert cli("trust", str(project)).exit_code == 0
    assert "bash" in cli("tools", "ls").stdout
    assert cli("tools", "ls", "--no-builtins").stdout == ""


def test_what_the_person_names_needs_no_trust_and_is_taken_with_what_the_project_names(
    cli: Cli, project: Path, own: Path, tmp_path: Path
) -> None:
    (own.parent / "mine.py").write_text("def mine() -> str:\n    return 'mine'\n")
    own.write_text('tools = ["mine.py"]\n')
    (project / "toolnexus.toml").unlink()
    assert names(cli) == ["mine"]
    (project / "toolnexus.toml").write_text(NAMED)
    cli("trust", str(project))
    assert names(cli) == ["mine", "wipe", "skill", "getX"]
    done = cli("-m", "demo", "-C", "c", "-t", str(own.parent / "mine.py"), "send a note to Ada: x")
    assert f"--tool {own.parent / 'mine.py'} --approve" in done.stderr
    assert "wipe.py" not in done.stderr, "named by an option, it would need no trust"


def test_where_nothing_is_named_there_is_nothing_to_trust(cli: Cli, project: Path) -> None:
    (project / "toolnexus.toml").write_text('model = "demo"\n')
    assert cli("trust", str(project)).exit_code == 1
    assert cli("trust", "nothere").exit_code == 2
    assert cli("hello").exit_code == 0


@pytest.mark.parametrize("text", ["{", "[]", '{"version": 1}', '{"version": 2, "projects": {}}'])
def test_a_file_that_cannot_be_read_trusts_nothing_and_is_named(cli: Cli, project: Path, own: Path, text: str) -> None:
    (own.parent / "trusted.json").write_text(text)
    done = cli("hello")
    assert (done.exit_code, "trusted.json" in done.stderr) == (3, True)


def test_links_and_pipes_count_and_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "skills").mkdir()
    (tmp_path / "secret").write_text("1")
    link = tmp_path / "skills" / "link"
    link.symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "skills" / "pipe")
    project = Project(file=tmp_path / "toolnexus.toml", skills=(str(tmp_path / "skills"),))
    first = fingerprint(project)
    (tmp_path / "secret").write_text("2")
    assert fingerprint(project) == first
    link.unlink()
    link.symlink_to(tmp_path / "other")
    assert fingerprint(project) != first


def test_too_much_to_look_at_is_not_trusted(tmp_path: Path) -> None:
    (tmp_path / "skills").mkdir()
    with (tmp_path / "skills" / "big").open("wb") as file:
        file.truncate(65 * 1024 * 1024)
    with pytest.raises(ConfigurationError, match="too much to be trusted"):
        fingerprint(Project(file=tmp_path / "toolnexus.toml", skills=(str(tmp_path / "skills"),)))


def test_a_person_is_asked_and_remembered(project: Path, environment: dict[str, str]) -> None:
    pexpect = pytest.importorskip("pexpect")

    def asked(answer: str, expected: str) -> None:
        child = pexpect.spawn(
            sys.executable,
            ["-m", "toolnexus", "load the skill piers"],
            env={**environment, "LANG": "C.UTF-8", "PROMPT_TOOLKIT_NO_CPR": "1"},
            dimensions=(24, 200),
            encoding="utf-8",
            timeout=30,
        )
        try:
            if answer:
                child.expect("names what may run code as you")
                child.expect("wipe.py")
                child.expect("go on without")
                child.sendline(answer)
            child.expect(expected)
            child.expect(pexpect.EOF)
        finally:
            child.close(force=True)

    asked("n", "I was not given")
    asked("y", "Go")
    asked("", "Go")
