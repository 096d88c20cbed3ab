from __future__ import annotations

import pytest

from toolnexus.cli import slash
from toolnexus.cli.slash import Given


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("hello", "hello"),
        ("  hello /new", "  hello /new"),
        ("//new is what?", "/new is what?"),
        ("  //x", "/x"),
        ("/etc/hosts is what?", "/etc/hosts is what?"),
        ("/new", Given("new", "")),
        ("  /NEW  ", Given("new", "")),
        ("/open quiet-otter-4711 ", Given("open", "quiet-otter-4711")),
        ("/open two words", Given("open", "two words")),
        ("/model", Given("model", "")),
        ("/model ollama:llama3.2:3b", Given("model", "ollama:llama3.2:3b")),
    ],
)
def test_a_line_is_a_command_or_a_question(line: str, expected: Given | str) -> None:
    assert slash.read(line) == expected


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("/hlep", "Did you mean /help?"),
        ("/qiut", "Did you mean /quit?"),
        ("/xyzzy", "That was not sent."),
        ("/", "That was not sent."),
        ("/?", "That was not sent."),
        ("/new one", "/new takes nothing after it."),
        ("/open", "/open wants ID after it."),
    ],
)
def test_what_is_no_command_is_said(line: str, said: str) -> None:
    given = slash.read(line)
    assert isinstance(given, Given)
    assert said in given.wrong


def test_help_tells_of_all_commands() -> None:
    told = "\n".join(slash.told())
    assert all(f"/{command.name}" in told for command in slash.COMMANDS)
