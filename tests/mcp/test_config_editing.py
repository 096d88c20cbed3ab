"""A server is added to a configuration file, and everything else in it stays as it is."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolnexus.errors import ConfigurationError
from toolnexus.sources.mcp.config import MCPConfigError
from toolnexus.sources.mcp.editing import add_server
from toolnexus.sources.mcp.parsing import parse_mcp_config

ENTRY = {"command": "npx", "args": ["-y", "x"]}


@pytest.mark.parametrize(
    ("text", "source", "changed"),
    [
        ("", "mcp.json", '{\n  "mcpServers": {\n    "new": {\n      "url": "u"\n    }\n  }\n}\n'),
        ("// mine\n", "mcp.json", '// mine\n{\n  "mcpServers": {\n    "new": {\n      "url": "u"\n    }\n  }\n}\n'),
        ('{"mcpServers": {"a": {}}}', "mcp.json", '{"mcpServers": {"a": {}, "new": {"url": "u"}}}'),
        ('{"mcpServers": {"a": {},}}', "mcp.json", '{"mcpServers": {"a": {}, "new": {"url": "u"},}}'),
        (
            '{\r\n\t// one\r\n\t"servers": {\r\n\t\t"a": {}, // two, three\r\n\t\t// four\r\n\t},\r\n}\r\n',
            "mcp.json",
            (
                '{\r\n\t// one\r\n\t"servers": {\r\n\t\t"a": {}, // two, three\r\n\t\t// four\r\n'
                '\t\t"new": {\r\n\t\t\t"url": "u"\r\n\t\t},\r\n\t},\r\n}\r\n'
            ),
        ),
        (
            '{\n    "theme": "x" // why\n}\n',
            "opencode.json",
            (
                '{\n    "theme": "x", // why\n'
                '    "mcp": {\n        "new": {\n            "url": "u"\n        }\n    }\n}\n'
            ),
        ),
        (
            '\ufeff{"mcpServers": {\n  "a": {} /* , */ }}',
            "mcp.json",
            '\ufeff{"mcpServers": {\n  "a": {}, /* , */\n  "new": {\n    "url": "u"\n  }\n}}',
        ),
        (
            '# one\nmodel = "m"\n[mcp_servers.a]\ncommand = "x" # two\n',
            "config.toml",
            '# one\nmodel = "m"\n[mcp_servers.a]\ncommand = "x" # two\n\n[mcp_servers.new]\nurl = "u"\n',
        ),
    ],
)
def test_a_server_is_added_and_the_rest_stays(text: str, source: str, changed: str) -> None:
    assert add_server(text, "new", {"url": "u"}, source=source) == changed


@pytest.mark.parametrize(
    ("source", "key"),
    [
        ("mcp.json", "mcpServers"),
        (".vscode/mcp.json", "servers"),
        ("/home/ana/.config/zed/settings.json", "context_servers"),
        ("opencode.json", "mcp"),
        ("/home/ana/.gemini/settings.json", "mcpServers"),
    ],
)
def test_a_new_file_has_the_key_of_its_program(source: str, key: str) -> None:
    assert f'"{key}": {{\n    "new": {{' in add_server("{}", "new", ENTRY, source=source)


def test_a_server_of_the_same_name_gives_way_only_if_it_shall() -> None:
    text = '{"mcpServers": {\n  "a": {"command": "old"}, // kept\n  "b": {}\n}}'
    with pytest.raises(ConfigurationError, match="already has a server 'a'"):
        add_server(text, "a", ENTRY)
    changed = add_server(text, "a", {"url": "u"}, replace=True)
    assert changed == '{"mcpServers": {\n  "a": {\n    "url": "u"\n  }, // kept\n  "b": {}\n}}'


def test_what_no_file_can_hold_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="no configuration file can"):
        add_server("", "a", {"command": object()})
    with pytest.raises(ConfigurationError, match="TOML cannot"):
        add_server("", "a", {"command": None}, source="config.toml")
    with pytest.raises(MCPConfigError):
        add_server("{", "a", ENTRY)


names = st.text(max_size=8)
comments = st.sampled_from(["", " ", "\n", "// c, }\n", "/* { , */", "\r\n\t"])


@st.composite
def files(draw: st.DrawFn) -> tuple[str, str]:
    """A JSON file with comments and commas anywhere, and its name."""

    def gap() -> str:
        return draw(comments)

    def member(name: str, value: str) -> str:
        return f"{gap()}{name}{gap()}:{gap()}{value}{gap()}"

    def table(members: list[str]) -> str:
        comma = draw(st.sampled_from(["", ","])) if members else ""
        return f"{{{','.join(members)}{comma}{gap()}}}"

    servers = draw(st.lists(st.sampled_from(['"a"', '"b"', '"ü"', '"c,}"']), max_size=3, unique=True))
    inner = table([member(name, table([member('"command"', '"x // y"')])) for name in servers])
    key = draw(st.sampled_from(['"mcpServers"', '"servers"', '"mcp"']))
    beside = draw(st.sampled_from([[], [member('"theme"', '"dark"')]]))
    members = [*beside, member(key, inner)] if draw(st.booleans()) else [member(key, inner), *beside]
    return f"{gap()}{table(members)}{gap()}", draw(st.sampled_from(["mcp.json", "opencode.json", "settings.json"]))


@given(file=files(), name=names.filter(str.strip))
def test_any_file_has_one_server_more_and_its_comments_still(file: tuple[str, str], name: str) -> None:
    text, source = file
    before: dict[str, Any] = dict(parse_mcp_config(text, source=source).servers)
    if name in before:
        return
    changed = add_server(text, name, ENTRY, source=source)
    after = parse_mcp_config(changed, source=source).servers
    assert {key: value for key, value in after.items() if key != name} == before
    assert after[name].args == ("-y", "x")
    for comment in ("// c, }", "/* { , */"):
        assert changed.count(comment) == text.count(comment)
