from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from toolnexus.cli.layers import documents
from toolnexus.cli.settings import SETTINGS, Settings

Cli = Callable[..., Result]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository, and in it the working directory, below."""
    below = tmp_path / "repository" / "package" / "deep"
    below.mkdir(parents=True)
    (tmp_path / "repository" / ".git").mkdir()
    monkeypatch.chdir(below)
    return tmp_path / "repository"


def shown(cli: Cli, *args: str) -> dict[str, tuple[Any, str]]:
    """What is set: name to value and origin."""
    told = json.loads(cli("config", "show", "--json", *args).stdout)
    return {
        name: (each["value"], each["origin"]) for name, each in told["settings"].items() if each["layer"] != "default"
    }


def test_later_layers_win_and_say_where_they_stand(
    cli: Cli, own: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own.write_text('# mine\nmodel = "demo"\n\nmax_steps = 1\ntimeout = 10\nsystem = "own"\n')
    (project / "toolnexus.toml").write_text('max_steps = 2\n\ntimeout = 20\nsystem = """\ntheirs"""\n')
    monkeypatch.setenv("TOOLNEXUS_TIMEOUT", "30")
    monkeypatch.setenv("TOOLNEXUS_MAX_STEPS", "3")
    assert shown(cli, "--max-steps", "4") == {
        "model": ("demo", f"{own}:2"),
        "max_steps": (4, "--max-steps"),
        "timeout": (30.0, "TOOLNEXUS_TIMEOUT"),
        "system": ("theirs", f"{project / 'toolnexus.toml'}:4"),
    }


def test_what_is_shown_is_a_configuration_file(cli: Cli, own: Path, project: Path) -> None:
    own.write_text(
        'model = "demo:flaky"\nsystem = "a \\"quoted\\"\\n\\u0007\\u007f text é"\nfallbacks = ["groq:x", "xai:y"]\n'
        'timeout = 2.5\n\n[providers.corp]\nbase_url = "https://llm.example/v1"\nkeys = ["CORP_KEY"]\n'
    )
    for options in ((), ("--origin",)):
        done = cli("config", "show", *options)
        assert done.exit_code == 0
        told = tomllib.loads(done.stdout)
        assert told == {**tomllib.loads(own.read_text()), "tool_mode": "auto", "builtins": True}


def test_a_project_is_looked_for_up_to_the_root_of_its_repository(
    cli: Cli, own: Path, project: Path, tmp_path: Path
) -> None:
    (tmp_path / "toolnexus.toml").write_text("max_steps = 9\n")
    assert shown(cli) == {}
    (project / "pyproject.toml").write_text('[project]\nname = "toolnexus-like"\n\n[tool.toolnexus]\nmax_steps = 8\n')
    assert shown(cli) == {"max_steps": (8, f"{project / 'pyproject.toml'}:5")}
    nearer = project / "package" / "toolnexus.toml"
    nearer.write_text("timeout = 7\n")
    assert shown(cli) == {"timeout": (7.0, f"{nearer}:1")}


def test_without_a_repository_only_the_working_directory_counts(
    cli: Cli, own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    below = tmp_path / "somewhere" / "deep"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    (below.parent / "toolnexus.toml").write_text("max_steps = 9\n")
    assert shown(cli) == {}
    (below / "toolnexus.toml").write_text("max_steps = 8\n")
    assert shown(cli)["max_steps"][0] == 8


def test_in_the_home_directory_projects_are_looked_for_up_to_it(
    cli: Cli, own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    below = tmp_path / "me" / "work"
    below.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(below.parent))
    monkeypatch.chdir(below)
    (tmp_path / "toolnexus.toml").write_text("max_steps = 9\n")
    assert shown(cli) == {}
    (below.parent / "toolnexus.toml").write_text("max_steps = 8\n")
    assert shown(cli)["max_steps"][0] == 8


def test_a_pyproject_without_our_table_is_nobodys_business_even_if_it_is_broken(
    cli: Cli, own: Path, project: Path
) -> None:
    (project / "pyproject.toml").write_text('[project]\ndependencies = ["toolnexus"\n')
    assert cli("-m", "demo", "count to 3").exit_code == 0
    (project / "pyproject.toml").write_text("[tool.toolnexus]\nmax_steps = \n")
    done = cli("-m", "demo", "count to 3")
    assert (done.exit_code, f"{project / 'pyproject.toml'}:2:13:" in done.stderr) == (3, True)


def test_a_variable_names_the_file(cli: Cli, own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own.write_text("max_steps = 1\n")
    other = tmp_path / "other.toml"
    monkeypatch.setenv("TOOLNEXUS_CONFIG", str(other))
    done = cli("-m", "demo", "hello")
    assert (done.exit_code, f"{other}: It is not there." in done.stderr) == (3, True)
    other.write_text("max_steps = 2\n")
    assert shown(cli) == {"max_steps": (2, f"{other}:1")}
    assert cli("config", "path").stdout == f"{other}\n"


def test_a_project_file_that_the_person_named_is_their_own(
    cli: Cli, own: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = project / "toolnexus.toml"
    file.write_text('store = "memory://"\n')
    assert cli("config", "show").exit_code == 3
    monkeypatch.setenv("TOOLNEXUS_CONFIG", str(file))
    assert shown(cli) == {"store": ("memory://", f"{file}:1")}


def test_a_removed_working_directory_has_no_project(cli: Cli, own: Path, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    here = Path.cwd()
    os.chdir(gone)
    try:
        gone.rmdir()
        done = cli("config", "show")
    finally:
        os.chdir(here)
    assert done.exit_code == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('model = "demo\n', "config.toml:1:14: Illegal character"),
        ("a = 1\n\nmodel = [1,\n", "config.toml:3:12: Invalid value."),
        ("model\n", "config.toml:1:6: Expected '='"),
        ("[a\n", "config.toml:1:3: Expected ']'"),
        ("a = " + "[" * 5000, "nested too deeply"),
    ],
    ids=["text", "list", "key", "table", "deep"],
)
def test_a_broken_file_is_said_with_line_and_column(cli: Cli, own: Path, text: str, said: str) -> None:
    own.write_text(text)
    done = cli("-m", "demo", "hello")
    assert done.exit_code == 3
    assert f"{own}:" in done.stderr
    assert said in done.stderr
    assert "toolnexus doctor" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_file_that_is_not_utf8_is_said_with_its_line(cli: Cli, own: Path) -> None:
    own.write_bytes('max_steps = 1\nsystem = "für"\n'.encode("latin-1"))
    done = cli("-m", "demo", "hello")
    assert (done.exit_code, f"{own}: Line 2 is not UTF-8." in done.stderr) == (3, True)


def test_what_editors_of_windows_write_is_read(cli: Cli, own: Path) -> None:
    own.write_bytes(b'\xef\xbb\xbfmax_steps = 1\r\nsystem = """a\r\nb"""\r\n')
    assert shown(cli) == {"max_steps": (1, f"{own}:1"), "system": ("a\nb", f"{own}:2")}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('modle = "demo"', "There is no setting 'modle'. Did you mean 'model'?"),
        ('base-url = "x"', "Did you mean 'base_url'?"),
        ("nonsense = 1", "There are model, base_url,"),
        ("yes = true", "'approve'"),
        ('api_key = "sk-canary"', "environment only"),
        ("model = 5", "model is 5; give a text"),
        ('model = ""', "model is ''; give a text"),
        ("max_steps = 0", "max_steps is 0; give a whole number from 1 on."),
        ("max_steps = true", "max_steps is True"),
        ("max_steps = 1.5", "max_steps is 1.5"),
        ('max_steps = "x"', "max_steps is 'x'"),
        ("timeout = inf", "timeout is inf; give a number of seconds above 0."),
        ('style = "opnai"', "style is 'opnai'; give one of openai, anthropic"),
        ('tool_mode = "x"', "give one of auto, constrained"),
        ('output = "xml"', "give one of text, md, json, jsonl"),
        ("fallbacks = [1]", "fallbacks is a list; give a list of models"),
        ('approve = "send_*"', "approve is 'send_*'; give a list of patterns"),
        ("providers = 3", "as [providers.NAME]"),
        ("providers.corp = 3", "as [providers.NAME]"),
        ('providers.corp.base_ulr = "https://llm.example"', "Did you mean 'base_url'?"),
    ],
)
def test_what_is_wrong_in_a_file_is_said_with_file_line_and_what_to_do(
    cli: Cli, own: Path, line: str, said: str
) -> None:
    # A text that looks like the line comes before it.
    own.write_text(f'system = """\n{line.replace(chr(34), "")}\n"""\n\n{line}  # here\n')
    done = cli("-m", "demo", "hello")
    assert done.exit_code == 3
    assert f"Error: {own}:5: " in done.stderr
    assert said in done.stderr
    assert "canary" not in done.stderr


@pytest.mark.parametrize(
    ("variable", "text"),
    [("MAX_STEPS", "many"), ("TIMEOUT", "-1"), ("TOOL_MODE", "x"), ("OUTPUT", "x"), ("STYLE", "x")],
)
def test_a_variable_that_cannot_be_meant_is_said(
    cli: Cli, own: Path, variable: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"TOOLNEXUS_{variable}", text)
    done = cli("-m", "demo", "hello")
    assert (done.exit_code, f"Error: TOOLNEXUS_{variable} is '{text}'; give " in done.stderr) == (3, True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('base_url = "http://127.0.0.1:9/v1"', "base_url cannot be set by a project"),
        ('store = "file:///tmp/x"', "store cannot be set by a project"),
        ('approve = ["*"]', "approve cannot be set by a project"),
        ("yes = true", "There is no setting"),
        ('model = "http://127.0.0.1:9#x"', "no address"),
        ('fallbacks = ["demo", "https://evil.example#x"]', "no address"),
        ('[providers.evil]\nbase_url = "https://evil.example/v1"', "not on this machine"),
        ('[providers.evil]\nbase_url = "http://127.0.0.1:9"\nkeys = ["GITHUB_TOKEN"]', "environment variables"),
        (
            '[providers.evil]\nbase_url = "http://127.0.0.1:9"\n[providers.evil.header_variables]\nx = "HOME"',
            "environment variables",
        ),
        ('[providers.openai]\nbase_url = "http://127.0.0.1:9"', "openai"),
        ('[providers.corp]\nbase_url = "http://127.0.0.1:9"', "Your own file has a provider 'corp'"),
    ],
)
def test_a_project_may_not_say_where_questions_and_keys_go_nor_what_may_run(
    cli: Cli, own: Path, project: Path, text: str, said: str
) -> None:
    own.write_text('[providers.corp]\nbase_url = "https://llm.example/v1"\nkeys = ["CORP_KEY"]\n')
    (project / "toolnexus.toml").write_text(f"{text}\n")
    done = cli("-m", "demo", "hello")
    assert (done.exit_code, done.stdout) == (3, "")
    assert f"Error: {project / 'toolnexus.toml'}:" in done.stderr
    assert said in done.stderr


def test_a_project_may_choose_a_model_of_a_provider_that_the_person_knows(cli: Cli, own: Path, project: Path) -> None:
    own.write_text('model = "demo"\n[providers.corp]\nbase_url = "https://llm.example/v1"\nkeys = ["CORP_KEY"]\n')
    (project / "toolnexus.toml").write_text(
        'model = "corp:x"\nfallbacks = ["near:y"]\n[providers.near]\nbase_url = "http://localhost:8009/v1"\n'
    )
    assert shown(cli)["model"][0] == "corp:x"
    done = cli("hello")
    assert (done.exit_code, "corp wants an API key. Set CORP_KEY." in done.stderr) == (3, True)


@pytest.mark.parametrize(
    ("model", "at"),
    [
        ("openai:x", None),
        ("demo", None),
        ("corp:x", None),
        ("qwen2.5:7b", "https://llm.example/v1"),
        ("plain", "https://llm.example/v1"),
    ],
)
def test_a_model_with_its_provider_leaves_out_an_address_that_was_set_before(
    cli: Cli, own: Path, project: Path, model: str, at: str | None
) -> None:
    own.write_text(
        'base_url = "https://llm.example/v1"\nmodel = "plain"\nstyle = "anthropic"\n'
        '[providers.corp]\nbase_url = "https://other.example"\n'
    )
    told = shown(cli, "-m", model)
    assert told["model"] == (model, "--model")
    assert told.get("base_url", (None,))[0] == at
    assert ("style" in told) is (at is not None)


def test_an_address_leaves_out_a_provider_that_was_set_before(cli: Cli, own: Path, project: Path) -> None:
    own.write_text('model = "openai:x"\n')
    assert "model" not in shown(cli, "--base-url", "https://llm.example/v1")
    done = cli("--base-url", "https://llm.example/v1", "hello")
    assert (done.exit_code, "-m" in done.stderr) == (3, True)


def test_an_address_and_a_model_may_be_one_text(cli: Cli, own: Path, project: Path) -> None:
    own.write_text('model = "http://127.0.0.1:9/v1#qwen:7b"\n')
    told = shown(cli)
    assert (told["base_url"], told["model"]) == (("http://127.0.0.1:9/v1", f"{own}:1"), ("qwen:7b", f"{own}:1"))


def test_an_address_in_the_model_is_the_one_that_counts_where_both_were_set(cli: Cli, own: Path, project: Path) -> None:
    own.write_text('model = "http://127.0.0.1:9/v1#x"\nbase_url = "https://llm.example/v1"\n')
    told = shown(cli)
    assert (told["base_url"][0], told["model"][0]) == ("http://127.0.0.1:9/v1", "x")
    assert shown(cli, "--base-url", "https://llm.example")["base_url"][0] == "https://llm.example"
    assert "model" not in shown(cli, "--base-url", "https://llm.example")


def test_nothing_secret_is_shown(cli: Cli, own: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own.write_text(
        'base_url = "https://me:canary@llm.example/v1?key=canary"\nstore = "postgresql://me:canary@db.example/x"\n'
        '[providers.corp]\nbase_url = "https://llm.example/v1?key=canary"\nkeys = ["CORP_KEY"]\n'
        '[providers.corp.headers]\nx-secret = "canary"\n'
    )
    for variable in ("OPENAI_API_KEY", "TOOLNEXUS_API_KEY", "CORP_KEY"):
        monkeypatch.setenv(variable, "sk-canary-0123456789")
    for options in (("--origin",), ("--json",)):
        done = cli("config", "show", *options)
        assert "canary" not in done.output
        assert "llm.example" in done.stdout
        assert all(variable in done.stdout for variable in ("OPENAI_API_KEY", "TOOLNEXUS_API_KEY", "CORP_KEY"))


def test_show_shows_what_it_can_and_says_the_rest(cli: Cli, own: Path, project: Path) -> None:
    own.write_text("max_steps = 3\nnonsense = 1\ntimeout = 0\n")
    done = cli("config", "show")
    assert (done.exit_code, done.stdout) == (3, 'max_steps = 3\ntool_mode = "auto"\nbuiltins = true\n')
    assert f"Error: {own}:2: " in done.stderr
    assert f"Error: {own}:3: " in done.stderr
    assert "`toolnexus doctor` tells 1 more." in cli("-m", "demo", "hello").stderr


def test_the_path_is_told_whether_the_file_is_there_or_not(cli: Cli, own: Path, project: Path) -> None:
    done = cli("config", "path")
    assert (done.exit_code, done.stdout) == (0, f"{own}\n")
    assert "not there yet" in done.stderr
    (project / "toolnexus.toml").write_text("broken")
    assert str(project / "toolnexus.toml") in cli("config", "path").stderr


def test_steps_are_bounded_by_a_file(cli: Cli, own: Path, project: Path) -> None:
    own.write_text('model = "demo"\nmax_steps = 1\n')
    assert cli("add 2 and 3").exit_code == 6
    assert cli("--max-steps", "5", "add 2 and 3").exit_code == 0


def test_a_persons_own_file_may_let_tools_run(cli: Cli, own: Path, project: Path) -> None:
    own.write_text('model = "demo"\n')
    assert cli("send a note to Ada: dinner at 8").exit_code == 10
    own.write_text('model = "demo"\napprove = ["send_*"]\n')
    assert cli("send a note to Ada: dinner at 8").exit_code == 0


def test_every_command_uses_the_store_that_is_set(cli: Cli, own: Path, project: Path, tmp_path: Path) -> None:
    own.write_text(f'model = "demo"\nstore = "sqlite:///{tmp_path}/elsewhere.db"\n')
    cli("-C", "mine", "hello")
    assert cli("memory", "ls").stdout.startswith("mine\t")
    assert cli("memory", "path").stdout.strip().endswith("elsewhere.db")


def test_the_command_that_resumes_leaves_out_what_the_file_says(cli: Cli, own: Path, project: Path) -> None:
    own.write_text('model = "demo"\nsystem = "Be brief."\n')
    done = cli("-C", "mine", "send a note to Ada: dinner at 8")
    assert "  toolnexus resume mine --approve" in done.stderr.splitlines()
    assert cli("resume", "mine", "--approve").exit_code == 0


def test_files_are_read_once_each_and_the_line_of_a_quoted_key_is_found(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[providers."a.b"]\nbase_url = "x"\n\n[providers.c]\nkeys = [\n  "base_url",\n]\nbase_url = "y"\n')
    [document] = documents({"TOOLNEXUS_CONFIG": str(file)}, None)
    assert document.place("providers", "a.b") == f"{file}:1"
    assert document.place("providers", "a.b", "base_url") == f"{file}:2"
    assert document.place("providers", "c", "base_url") == f"{file}:8"
    assert document.place("nowhere") == str(file)


def test_the_documentation_lists_every_setting() -> None:
    page = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text(encoding="utf-8")
    for setting in SETTINGS:
        variable = f"`{setting.variable}` " if setting.variable else ""
        may = "yes" if setting.project else "no"
        assert f"| `{setting.name}` | `{setting.flag}` | {variable}| {may} | {setting.what} |\n" in page


def test_every_setting_has_a_field_and_an_option_of_its_name(cli: Cli) -> None:
    help_text = cli("--help").stdout
    for setting in SETTINGS:
        assert getattr(Settings(), setting.name) == setting.default
        assert setting.flag in help_text
        assert setting.variable in help_text


def test_the_file_in_the_documentation_is_one(cli: Cli, own: Path, project: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text(encoding="utf-8")
    own.write_text(page.split("```toml\n")[1].partition("```")[0])
    done = cli("config", "show")
    assert (done.exit_code, done.stderr) == (0, "")
    assert "[providers.corp]" in done.stdout
