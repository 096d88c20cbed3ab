"""What real configuration files have in them, beyond the cases of the corpus."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolnexus.errors import ConfigurationError
from toolnexus.sources.mcp.config import MCPConfig, MCPConfigError, MCPInput, MCPOAuth, MCPServer
from toolnexus.sources.mcp.loading import load_mcp_config
from toolnexus.sources.mcp.parsing import parse_mcp_config

PLACES: dict[str, Any] = {"home": "/home/ana", "workspace": "/home/ana/proj", "platform": "linux"}


def parse(given: Any, **options: Any) -> MCPConfig:
    return parse_mcp_config(given, **{**PLACES, **options})


def one(entry: Any, **options: Any) -> MCPServer:
    config = parse({"mcpServers": {"s": entry}}, **options)
    assert not config.errors, config.errors
    return config.servers["s"]


def refused(entry: Any, **options: Any) -> str:
    """The kind of error of an entry, which costs the entry beside it nothing."""
    config = parse({"mcpServers": {"s": entry, "other": {"command": "x"}}}, **options)
    assert list(config.servers) == ["other"]
    return config.errors["s"].kind


def warned(entry: Any, **options: Any) -> list[str | None]:
    return [warning.key for warning in parse({"mcpServers": {"s": entry}}, **options).warnings]


# The file


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ('{"mcpServers": {\n  "a": {"command" "x", }}}', (2, 19)),
        ('// why\n{"a": "b" "c"}', (2, 11)),
        ('{"mcpServers": /* open', (1, 16)),
        ("[]", (1, 1)),
        ("\n  7", (2, 3)),
        (b'{"a":\n "\xff"}', (2, 3)),
        ('{"command": "C:\\Users"}', (1, 16)),
    ],
)
def test_a_broken_file_is_one_error_with_its_place(given: Any, place: tuple[int, int]) -> None:
    with pytest.raises(MCPConfigError) as caught:
        parse(given, source="/x/mcp.json")
    assert (caught.value.line, caught.value.column) == place
    assert f"/x/mcp.json, line {place[0]}, column {place[1]}" in str(caught.value)
    assert isinstance(caught.value, ConfigurationError)


@pytest.mark.parametrize(("given", "line"), [("a = 1\nb = = 2\n", 2), ("a = 1\n[x", 2), ('a = "', 1)])
def test_a_broken_toml_file_is_one_error_with_its_line(given: str, line: int) -> None:
    with pytest.raises(MCPConfigError) as caught:
        parse(given, source="config.toml")
    assert caught.value.line == line


@pytest.mark.parametrize("given", ["[" * 100_000, '{"a": ' + "9" * 10_000 + "}", "/*" * 200_000, '"' + '\\"' * 200_000])
def test_a_hostile_file_is_an_error_soon(given: str) -> None:
    with pytest.raises(MCPConfigError):
        parse(given)


@pytest.mark.parametrize("given", ["", " \n", "// nothing yet\n", b"\xef\xbb\xbf", "{}", '{"mcpServers": null}'])
def test_a_file_without_servers_has_none(given: Any) -> None:
    assert parse(given) == MCPConfig(servers={}, errors={})


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_byte_order_mark_changes_nothing(encoding: str) -> None:
    assert parse('{"mcpServers": {"ö": {"command": "x"}}}'.encode(encoding)).servers["ö"].command == "x"


def test_comments_and_trailing_commas_are_passed_over_but_not_in_texts() -> None:
    text = r"""{ // one
      "mcpServers": { "s": { "command": "x", /* two, } */ "args": ["//a", "/* b */", ",]", "\"//", ], }, }, }"""
    assert parse(text).servers["s"].args == ("//a", "/* b */", ",]", '"//')


@pytest.mark.parametrize("key", ["mcpServers", "servers", "context_servers", "mcp_servers", "mcp"])
def test_servers_are_found_under_each_known_key(key: str) -> None:
    assert list(parse({"theme": {}, key: {"s": {"command": "x"}}}).servers) == ["s"]


def test_the_first_known_key_holds() -> None:
    given = {"mcp": {"excluded": []}, "servers": {"b": {"command": "x"}}, "mcpServers": {"a": {"command": "x"}}}
    config = parse(given)
    assert (list(config.servers), config.errors) == (["a"], {})


def test_a_map_below_mcp_holds_and_brings_timeouts() -> None:
    given = {
        "mcp": {
            "timeout": {"startup": 40_000, "execution": 9_000},
            "servers": {
                "a": {"type": "local", "command": ["x", "-y"], "timeout": {"execution": 500}, "disabled": False},
                "b": {"type": "remote", "url": "https://b.test/mcp", "oauth": {"client_id": "c", "scope": "r w"}},
            },
        }
    }
    config = parse(given, source="opencode.json")
    a, b = config.servers["a"], config.servers["b"]
    assert (a.command, a.args, a.timeout, a.startup_timeout) == ("x", ("-y",), 0.5, 40)
    assert (b.transport, b.timeout, b.startup_timeout) == ("auto", 9, 40)
    assert b.oauth == MCPOAuth(client_id="c", scopes=("r", "w"))
    assert (config.errors, config.warnings) == ({}, ())


def test_a_server_called_servers_is_one() -> None:
    assert list(parse({"mcp": {"servers": {"type": "local", "command": ["x"]}}}).servers) == ["servers"]
    assert list(parse({"servers": {"command": "x"}, "mcp": {"command": "y"}}).servers) == ["servers", "mcp"]


def test_without_a_known_key_the_top_of_the_file_holds_the_servers() -> None:
    config = parse({"$schema": "…", "inputs": [], "skills": {"a": True}, "s": {"command": "x"}, "t": "npx -y t"})
    assert list(config.servers) == ["s"]
    assert {name: error.kind for name, error in config.errors.items()} == {"t": "invalid_entry"}


@pytest.mark.parametrize("source", ["config.toml", "settings.json", "opencode.jsonc", "/home/ana/.claude.json"])
def test_a_file_of_other_settings_is_not_taken_for_servers(source: str) -> None:
    given = 'model = "m"\n[tui]\na = 1\n' if source.endswith("toml") else '{"theme": "dark", "ui": {"a": 1}}'
    assert parse(given, source=source) == MCPConfig(servers={}, errors={})


@pytest.mark.parametrize("value", [[], "x", 3, True])
def test_a_known_key_that_holds_no_map_is_an_error_of_the_file(value: object) -> None:
    with pytest.raises(MCPConfigError, match="mcpServers has to be an object"):
        parse({"mcpServers": value})


def test_what_stands_twice_is_warned_of_and_the_last_holds() -> None:
    config = parse('{"mcpServers": {"s": {"command": "a"}, "s": {"command": "b", "command": "c"}}, "x": 1, "x": 2}')
    assert config.servers["s"].command == "c"
    assert [(warning.server, warning.key) for warning in config.warnings] == [("s", None), ("s", "command")]


# Entries


@pytest.mark.parametrize(
    ("entry", "kind"),
    [
        (None, "invalid_entry"),
        ("npx -y x", "invalid_entry"),
        (["npx"], "invalid_entry"),
        (True, "invalid_entry"),
        ({}, "no_transport"),
        ({"args": ["x"]}, "no_transport"),
        ({"command": ""}, "no_transport"),
        ({"command": []}, "no_transport"),
        ({"command": [" "]}, "no_transport"),
        ({"command": "${EMPTY}"}, "no_transport"),
        ({"command": 7}, "invalid_entry"),
        ({"command": ["x", None]}, "invalid_args"),
        ({"command": "x", "url": "https://a.test"}, "conflicting_transport"),
        ({"type": "stdio", "url": "https://a.test"}, "conflicting_transport"),
        ({"type": "http", "command": "x"}, "conflicting_transport"),
        ({"type": "http"}, "no_transport"),
        ({"type": "remote"}, "no_transport"),
        ({"type": "carrier-pigeon", "url": "https://a.test"}, "invalid_entry"),
        ({"type": 3, "command": "x"}, "invalid_entry"),
        ({"command": "x", "args": "-y x"}, "invalid_args"),
        ({"command": "x", "args": {"0": "-y"}}, "invalid_args"),
        ({"command": "x", "args": ["-y", None]}, "invalid_args"),
        ({"command": "x", "args": [["-y"]]}, "invalid_args"),
        ({"command": "x", "env": ["A=b"]}, "invalid_entry"),
        ({"command": "x", "env": {"A": {"b": "c"}}}, "invalid_entry"),
        ({"command": "x", "env": {"A=B": "c"}}, "invalid_entry"),
        ({"command": "x", "cwd": 3}, "invalid_entry"),
        ({"command": "x", "disabled": "perhaps"}, "invalid_entry"),
        ({"command": "x", "disabledTools": "all"}, "invalid_entry"),
        ({"command": "x", "autoApprove": [1]}, "invalid_entry"),
        ({"command": "x", "envFile": "/nowhere"}, "invalid_entry"),
        ({"url": "a.test/mcp"}, "invalid_entry"),
        ({"url": "ws://a.test/mcp"}, "invalid_entry"),
        ({"url": "https://"}, "invalid_entry"),
        ({"url": "https://a.test:port/"}, "invalid_entry"),
        ({"url": "https://a.test/\nx"}, "invalid_entry"),
        ({"url": 3}, "invalid_entry"),
        ({"url": "https://a.test", "headers": "X: y"}, "invalid_entry"),
        ({"url": "https://a.test", "headers": {"X y": "z"}}, "invalid_entry"),
        ({"url": "https://a.test", "headers": {"X": "a\r\nY: b"}}, "invalid_entry"),
        ({"url": "https://a.test", "oauth": "yes"}, "invalid_entry"),
        ({"url": "https://a.test", "oauth": {"clientId": 3}}, "invalid_entry"),
        ({"url": "https://a.test", "oauth": {"callbackPort": 0}}, "invalid_entry"),
        ({"url": "https://a.test", "bearer_token_env_var": "UNSET"}, "unresolved_variable"),
        ({"url": "https://a.test", "env_http_headers": {"X": "UNSET"}}, "unresolved_variable"),
    ],
    ids=str,
)
def test_a_wrong_entry_costs_only_itself(entry: Any, kind: str) -> None:
    assert refused(entry, env={"EMPTY": ""}) == kind


@pytest.mark.parametrize(
    ("entry", "transport"),
    [
        ({"command": "x", "url": ""}, "stdio"),
        ({"command": "x", "url": None}, "stdio"),
        ({"type": "", "command": "x"}, "stdio"),
        ({"type": "STDIO", "command": "x"}, "stdio"),
        ({"type": "local", "command": ["x"]}, "stdio"),
        ({"type": "streamable_http", "url": "https://a.test"}, "http"),
        ({"transport": "streamable-http", "url": "https://a.test"}, "http"),
        ({"transportType": "sse", "url": "https://a.test"}, "sse"),
        ({"type": "http", "url": "https://a.test", "command": ""}, "http"),
        ({"httpUrl": "https://a.test", "url": "https://b.test"}, "http"),
        ({"serverUrl": "https://a.test"}, "auto"),
        ({"type": "remote", "url": "https://a.test"}, "auto"),
    ],
    ids=str,
)
def test_the_transport_is_what_the_entry_means(entry: Any, transport: str) -> None:
    server = one(entry)
    assert server.transport == transport
    assert (server.command, server.url) == (("x", None) if transport == "stdio" else (None, "https://a.test"))


def test_a_type_decides_between_a_command_and_a_url_and_says_what_is_left_out() -> None:
    entry = {"type": "http", "command": "x", "url": "https://a.test"}
    assert one(entry).command is None
    assert warned(entry) == ["command"]


def test_an_entry_that_is_off_is_not_read() -> None:
    broken = {"disabled": True, "command": 7, "args": "x", "env": {"A": "${UNSET}"}, "url": "?"}
    assert one(broken) == MCPServer(name="s", transport=None, enabled=False)
    assert one({"enabled": False}).transport is None
    assert one({"enabled": False, "disabled": False, "command": "x"}).enabled is False
    assert one({"enabled": True, "disabled": True, "command": "x"}).enabled is False
    assert one({"enabled": "true", "disabled": "false", "command": "x"}).enabled is True


def test_only_allowed_servers_are_on() -> None:
    given = {
        "mcp": {"allowed": ["a", "b"], "excluded": ["b"]},
        "mcpServers": {name: {"command": "x"} for name in "abc"},
    }
    enabled = {name: server.enabled for name, server in parse(given).servers.items()}
    assert enabled == {"a": True, "b": False, "c": False}


def test_scalars_become_texts_where_a_text_is_meant() -> None:
    server = one({"command": "x", "args": ["--port", 8080, True, 0.5], "env": {"A": 1, "B": False, "C": None}})
    assert server.args == ("--port", "8080", "true", "0.5")
    assert server.env == {"A": "1", "B": "false"}
    assert one({"url": "https://a.test", "headers": {"X": 1, "Y": None}}).headers == {"X": "1"}


def test_an_empty_map_that_php_wrote_is_one() -> None:
    assert one({"command": "x", "env": [], "args": []}).env == {}


def test_a_program_is_never_split_but_a_whole_command_line_is_warned_of() -> None:
    assert one({"command": "npx -y x"}).command == "npx -y x"
    assert warned({"command": "npx -y x"}) == ["command"]
    assert warned({"command": "C:\\Program Files\\x.exe"}, platform="windows") == []
    assert warned({"command": "/opt/my tools/x"}) == []
    assert one({"command": "cmd", "args": ["/c", "npx", "-y", "x"]}).args == ("/c", "npx", "-y", "x")


def test_zed_writes_the_command_as_an_object() -> None:
    given = {
        "context_servers": {
            "old": {"command": {"path": "x", "args": ["-a"], "env": {"A": "b"}}, "settings": {}},
            "new": {"source": "custom", "enabled": True, "command": "x", "args": ["$HOME"], "env": {}, "timeout": 5000},
            "extension": {"source": "extension", "settings": {"token": "t"}},
        }
    }
    config = parse(given, source="settings.json", env={"HOME": "/h"})
    assert config.servers["old"] == MCPServer(name="old", transport="stdio", command="x", args=("-a",), env={"A": "b"})
    assert (config.servers["new"].args, config.servers["new"].timeout) == (("$HOME",), 5)
    assert {name: error.kind for name, error in config.errors.items()} == {"extension": "no_transport"}
    assert config.warnings == ()


def test_codex_keeps_its_servers_in_toml() -> None:
    text = """
    model = "m"
    [mcp_servers.docs]
    command = "npx"
    args = ["-y", "docs"]
    env_vars = ["LANG", "UNSET", { name = "TERM", source = "local" }]
    startup_timeout_sec = 20
    tool_timeout_sec = 1.5
    enabled_tools = ["a", "b"]
    disabled_tools = ["b"]
    [mcp_servers.docs.env]
    KEY = "v"
    [mcp_servers.web]
    url = "https://web.test/mcp"
    bearer_token_env_var = "TOKEN"
    http_headers = { X-A = "1" }
    env_http_headers = { X-B = "B" }
    startup_timeout_ms = 2500
    scopes = ["r"]
    [mcp_servers.off]
    command = "x"
    enabled = false
    """
    config = parse(text, source="/home/ana/.codex/config.toml", env={"TOKEN": "t", "B": "b", "LANG": "C", "TERM": "v"})
    docs, web = config.servers["docs"], config.servers["web"]
    assert docs.env == {"LANG": "C", "TERM": "v", "KEY": "v"}
    assert (docs.startup_timeout, docs.timeout) == (20, 1.5)
    assert [name for name in "abc" if docs.tools.allows(name)] == ["a"]
    assert web.transport == "http"
    assert web.headers == {"X-A": "1", "X-B": "b", "Authorization": "Bearer t"}
    assert (web.startup_timeout, web.oauth) == (2.5, MCPOAuth(scopes=("r",)))
    assert config.servers["off"].enabled is False
    assert (config.errors, config.warnings) == ({}, ())


@pytest.mark.parametrize(
    ("entry", "source", "seconds"),
    [
        ({"timeout": 5000}, "mcp.json", 5),
        ({"timeout": "5000"}, "mcp.json", 5),
        ({"timeout": 5, "alwaysAllow": []}, "mcp.json", 5),
        ({"timeout": 5}, "/x/.roo/mcp.json", 5),
        ({"timeout": 5}, "C:\\x\\cline_mcp_settings.json", 5),
        ({"timeout_sec": 5, "timeout": 9}, "mcp.json", 5),
        ({"tool_timeout_ms": 5000}, "mcp.json", 5),
    ],
    ids=str,
)
def test_a_timeout_is_in_the_unit_of_its_file(entry: Any, source: str, seconds: float) -> None:
    assert one({"command": "x", **entry}, source=source).timeout == seconds


@pytest.mark.parametrize("timeout", [0, -1, "soon", True, float("inf"), float("nan"), 10**400, []])
def test_a_timeout_that_is_none_is_warned_of_and_the_server_stays(timeout: object) -> None:
    entry = {"command": "x", "timeout": timeout}
    assert one(entry).timeout is None
    assert warned(entry) == ["timeout"]


def test_tools_are_filtered_by_any_program_s_words() -> None:
    assert one({"command": "x", "tools": ["*"]}).tools.include is None
    assert one({"command": "x", "tools": ["a"]}).tools.include == ("a",)
    assert one({"command": "x", "includeTools": []}).tools.include == ()
    assert one({"command": "x", "disabledTools": ["a"], "excludeTools": ["b"]}).tools.exclude == ("b", "a")


def test_what_a_file_approves_is_told() -> None:
    assert one({"command": "x", "autoApprove": True}).auto_approve == ("*",)
    assert one({"command": "x", "autoApprove": ["a"], "alwaysAllow": ["a", "b"]}).auto_approve == ("a", "b")
    trusted = one({"command": "x", "trust": True, "autoApprove": ["a"]})
    assert (trusted.trust, trusted.auto_approve) == (True, ("*",))


def test_oauth_is_read_in_any_program_s_words() -> None:
    url = {"url": "https://a.test"}
    said = {"clientId": "i", "clientSecret": "s", "callbackPort": 8080, "scopes": "a b", "authServerMetadataUrl": "u"}
    assert one({**url, "oauth": said}).oauth == MCPOAuth(
        client_id="i", client_secret="s", callback_port=8080, scopes=("a", "b"), auth_server_metadata_url="u"
    )
    assert one({**url, "oauth": {"enabled": False, "clientId": "i"}}).oauth is False
    assert one({**url, "oauth": {}}).oauth is None
    assert one({**url, "oauth": True}).oauth is None
    assert one({**url, "oauth_resource": "r"}).oauth == MCPOAuth(resource="r")


def test_promises_that_are_not_kept_and_unknown_keys_are_warned_of() -> None:
    entry = {"url": "https://a.test", "headersHelper": "./token.sh", "sandboxEnabled": False, "_comment": "x"}
    assert warned(entry) == ["headersHelper"]
    [warning] = parse({"mcpServers": {"s": {"command": "x", "arg": []}}}).warnings
    assert (warning.server, warning.key) == ("s", "arg")
    assert "Did you mean 'args'?" in warning.message


# Variables


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${A}", "one"),
        ("${env:A}", "one"),
        ("{env:A}", "one"),
        ("x${A}y{env:A}z", "xoneyonez"),
        ("${UNSET:-d:/e}", "d:/e"),
        ("${UNSET:-}", ""),
        ("${env:UNSET:-d}", "d"),
        ("${EMPTY:-d}", ""),
        ("${TWICE}", "${A} $A {env:A}"),
        ("${UNSET:-${A}}", "one"),
        ('${UNSET:-{"a": {}}}', '{"a": {}}'),
        ("${A:-${UNSET}}", "one"),
        ("$A", "$A"),
        ("$${A}", "$one"),
        ("${", "${"),
        ("${}", "${}"),
        ("${A", "${A"),
        ("${UNSET:-", "${UNSET:-"),
        ("${a + b}", "${a + b}"),
        ("{A}", "{A}"),
        ("%A%", "%A%"),
        (
            "${userHome}|${workspaceFolder}|${workspaceFolderBasename}|${cwd}",
            "/home/ana|/home/ana/proj|proj|/home/ana/proj",
        ),
        ("a${/}b${pathSeparator}c", "a/b/c"),
        ("${input:answered}|${input:default}", "yes|eu"),
        ("${file:/etc/key}|{file:~/key}|${file:key}", "k\n|home|here"),
    ],
)
def test_a_variable_is_replaced_once(text: str, value: str) -> None:
    files = {"/etc/key": "k\n\n", "/home/ana/key": "home\r\n", "/home/ana/proj/key": "here"}
    given = {
        "inputs": [{"type": "pickString", "id": "default", "default": "eu"}],
        "servers": {"s": {"command": "x", "env": {"V": text}, "args": [text]}},
    }
    env = {"A": "one", "EMPTY": "", "TWICE": "${A} $A {env:A}"}
    config = parse(given, env=env, inputs={"answered": "yes"}, read_file=files.__getitem__)
    assert not config.errors, config.errors
    assert (config.servers["s"].env, config.servers["s"].args) == ({"V": value}, (value,))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("${UNSET}", "UNSET"),
        ("${env:UNSET}", "UNSET"),
        ("{env:UNSET}", "UNSET"),
        ("${UNSET:-${ALSO}}", "ALSO"),
        ("${input:question}", "input:question"),
        ("${command:pick}", "command:pick"),
        ("${file:/nowhere}", "/nowhere"),
        ("{file:/nowhere}", "/nowhere"),
    ],
)
@pytest.mark.parametrize("where", ["command", "args", "env", "cwd", "url", "headers", "oauth", "envFile"])
def test_a_variable_without_a_value_is_named_and_stops_its_server_alone(text: str, named: str, where: str) -> None:
    secret = "sk-very-secret"
    local: dict[str, Any] = {"command": "x", "env": {"A": secret}}
    remote: dict[str, Any] = {"url": "https://a.test", "headers": {"A": secret}}
    entry = {
        "command": {**local, "command": text},
        "args": {**local, "args": [text]},
        "env": {**local, "env": {"A": secret, "B": text}},
        "cwd": {**local, "cwd": text},
        "envFile": {**local, "envFile": text},
        "url": {**remote, "url": f"https://{text}/"},
        "headers": {**remote, "headers": {"A": secret, "B": text}},
        "oauth": {**remote, "oauth": {"clientId": text}},
    }[where]

    def read_file(path: str) -> str:
        raise FileNotFoundError(2, "No such file or directory")

    config = parse({"servers": {"s": entry, "other": {"command": "x"}}}, read_file=read_file)
    assert list(config.servers) == ["other"]
    assert config.errors["s"].kind == "unresolved_variable"
    assert named in config.errors["s"].message
    assert secret not in config.errors["s"].message


def test_gemini_has_bare_variables_and_others_do_not() -> None:
    entry = {"command": "x", "args": ["$A", "$$A", "$1", "a$", "${A}"]}
    given = {"mcpServers": {"s": entry}}
    for source in ("settings.json", "/home/ana/.gemini/settings.json", "gemini-extension.json"):
        assert parse(given, source=source, env={"A": "b"}).servers["s"].args == ("b", "$$A", "$1", "a$", "b")
        assert parse(given, source=source).errors["s"].kind == "unresolved_variable"
    for source in ("mcp.json", ".mcp.json", ".cursor/mcp.json", ".claude/settings.json"):
        assert parse(given, source=source, env={"A": "b"}).servers["s"].args == ("$A", "$$A", "$1", "a$", "b")


def test_windows_finds_variables_in_any_case_and_writes_paths_its_way() -> None:
    entry = {"command": "~\\bin\\x", "args": ["${Path}", "${workspaceFolderBasename}${/}a"], "cwd": ".\\srv"}
    places = {"platform": "win32", "home": "C:\\Users\\ana", "workspace": "D:\\proj"}
    server = one(entry, env={"PATH": "p"}, **places)
    assert (server.command, server.args) == ("C:\\Users\\ana\\bin\\x", ("p", "proj\\a"))
    assert server.cwd == "D:\\proj\\srv"


@pytest.mark.parametrize(
    ("cwd", "found"),
    [
        ("srv", "/home/ana/proj/srv"),
        ("../x", "/home/ana/x"),
        ("~", "/home/ana"),
        ("~/a", "/home/ana/a"),
        ("/a/../b", "/a/../b"),
    ],
)
def test_a_relative_folder_is_seen_from_the_workspace(cwd: str, found: str) -> None:
    assert one({"command": "x", "cwd": cwd}).cwd == found


def test_nothing_is_known_of_folders_that_there_are_not() -> None:
    config = parse(
        {"servers": {"a": {"command": "${workspaceFolder}/x"}, "b": {"command": "x", "cwd": "srv"}}}, workspace=None
    )
    assert config.errors["a"].kind == "unresolved_variable"
    assert config.servers["b"].cwd == "srv"


def test_opencode_sees_files_from_the_folder_of_its_own() -> None:
    given = {"mcp": {"s": {"type": "local", "command": ["x", "{file:./key}"]}}}
    read = {"/etc/opencode/key": "k\n"}.__getitem__
    assert parse(given, source="/etc/opencode/opencode.json", read_file=read).servers["s"].args == ("k",)


def test_an_environment_file_is_read_as_it_is_written() -> None:
    text = """\ufeff# a comment
export A=1
B = two words # a remark
C="a # b\\n\\"c\\""
D='$A ${A} \\n'
E=
F=x#y
G="two
lines"
not an assignment
A=2
"""
    server = one({"command": "x", "envFile": "env", "env": {"E": "wins", "F": None}}, read_file=lambda _: text)
    assert server.env == {
        "A": "2",
        "B": "two words",
        "C": 'a # b\n"c"',
        "D": "$A ${A} \\n",
        "E": "wins",
        "G": "two\nlines",
    }


def test_deep_defaults_are_an_error_and_many_are_read_soon() -> None:
    assert refused({"command": "${A:-" * 50 + "}" * 50}) == "unresolved_variable"
    hostile = "${A:-" * 100_000
    assert one({"command": "x", "args": [hostile]}).args == (hostile,)


def test_questions_are_told() -> None:
    given = {
        "inputs": [
            {"id": "k", "type": "promptString", "description": "Key", "password": True},
            {"id": "r", "type": "pickString", "options": ["eu", {"label": "US", "value": "us"}], "default": "eu"},
            "odd",
        ],
        "servers": {},
    }
    assert parse(given).inputs == (
        MCPInput(id="k", kind="promptString", description="Key", password=True),
        MCPInput(id="r", kind="pickString", options=("eu", "us"), default="eu"),
    )


# Secrets


def test_a_server_shows_no_secrets() -> None:
    server = one(
        {
            "url": "https://ana:hunter22@a.test:8443/api/sk-0123456789abcdef0123/mcp?key=querysecret#frag",
            "headers": {"Authorization": "Bearer tok-12345"},
            "oauth": {"clientId": "client-77", "clientSecret": "shh-12345"},
        }
    )
    assert server.shown_url == "https://a.test:8443/api/…/mcp"
    assert repr(server) == (
        "MCPServer(name='s', transport='auto', url='https://a.test:8443/api/…/mcp', headers=['Authorization'], "
        "oauth='<set>')"
    )


@pytest.mark.parametrize(
    ("given", "source"),
    [
        ('{"env": {"A": "sk-secret"},, }', "mcp.json"),
        ('A = "sk-secret"\nB = = 1', "config.toml"),
        (b'{"A": "sk-secret \xff"}', "mcp.json"),
        ('["sk-secret"]', "mcp.json"),
    ],
)
def test_the_error_of_a_broken_file_holds_nothing_of_it(given: Any, source: str) -> None:
    with pytest.raises(MCPConfigError) as caught:
        parse(given, source=source)
    link: BaseException | None = caught.value
    while link is not None:
        assert "sk-secret" not in f"{link} {link!r} {vars(link)} {getattr(link, 'object', '')}"
        link = link.__cause__ or link.__context__


def test_a_program_that_is_called_as_a_secret_is_not_shown() -> None:
    server = one({"command": "/opt/${KEY}/x", "env": {"A": "${KEY}"}}, env={"KEY": "sk-12345"})
    assert repr(server) == "MCPServer(name='s', transport='stdio', command='/opt/[redacted]/x', args='<0>', env=['A'])"


SECRET = "s3cret-Q7z"
secrets = st.text("abcdefXYZ0123456789-_/+=", max_size=12).map(lambda text: f"{SECRET}{text}")
wrong = st.sampled_from(
    [
        {},
        {"args": "x"},
        {"args": [None]},
        {"cwd": "${UNSET}"},
        {"type": "no such"},
        {"url": "https://a.test", "command": "x"},
        {"timeout": -1},
        {"unknown": 1},
        {"oauth": {"clientId": 3}},
        {"env": {"C": []}},
        {"headers": {"C": {}}},
        {"headers": {"C": "a\nb"}},
    ]
)


@st.composite
def entries(draw: st.DrawFn) -> dict[str, Any]:
    """Entries with secrets where they belong, also by variables, and perhaps with something wrong."""

    def secret() -> str:
        return draw(st.sampled_from(["${KEY}", "${env:KEY:-x}", "{env:KEY}", "Bearer ${KEY}"]) | secrets)

    if draw(st.booleans()):
        entry: dict[str, Any] = {"command": "x", "args": [secret()]}
        entry["env"] = {"A": secret(), "B": secret()}
    else:
        entry = {"url": f"https://u:{draw(secrets)}@a.test/mcp?k={draw(secrets)}", "headers": {"A": secret()}}
        entry["oauth"] = {"clientId": secret(), "clientSecret": secret(), "scopes": [secret()]}
    return {**entry, **draw(wrong)}


@given(entry=entries(), key=secrets)
def test_no_value_of_a_secret_is_shown_and_no_entry_costs_another(entry: dict[str, Any], key: str) -> None:
    good = {"command": "good"}
    given = json.dumps({"mcpServers": {"before": good, "s": entry, "after": good}})
    config = parse(given, env={"KEY": key})
    assert {"before", "after"} <= set(config.servers)
    assert ("s" in config.servers) != ("s" in config.errors)
    shown = repr(config) + repr(config.servers.get("s") and config.servers["s"].shown_url)
    assert SECRET not in shown


@given(value=st.text(st.sampled_from(list("${}AB:-env file/")), max_size=30), bare=st.booleans())
def test_what_a_variable_brings_in_is_not_replaced_again(value: str, bare: bool) -> None:
    source = "settings.json" if bare else "mcp.json"
    env = {"VALUE": value, "A": "wrong", "B": "wrong"}
    assert one({"command": "x", "args": ["<${VALUE}>"]}, source=source, env=env).args == (f"<{value}>",)


@given(text=st.text(st.sampled_from(list("${}A:-x \"\\/*,[]\n'")), max_size=60))
def test_any_text_is_a_configuration_or_one_error(text: str) -> None:
    problem: MCPConfigError | None = None
    try:
        parse(text)
    except MCPConfigError as error:
        problem = error
    assert problem is None or problem.line is None or 1 <= problem.line <= text.count("\n") + 1


keys = st.sampled_from(
    [
        *("mcp", "mcpServers", "servers", "inputs", "id", "command", "args", "env", "envFile", "url", "headers"),
        *("type", "transport", "timeout", "oauth", "auth", "scopes", "bearer_token", "disabled", "tools", "trust"),
    ]
)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4), max_leaves=12
)


@given(given=st.dictionaries(keys, values, max_size=4))
def test_any_values_are_a_configuration_or_one_error(given: Any) -> None:
    with contextlib.suppress(MCPConfigError):
        parse(given)
    config = parse({"mcpServers": {"odd": given, "fine": {"command": "x"}}})
    assert config.servers["fine"].command == "x"
    assert ("odd" in config.servers) != ("odd" in config.errors)


# On this machine


def test_a_file_is_read_with_what_it_refers_to(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("k-1\n", encoding="utf-8")
    (tmp_path / "env").write_text("A=b\n", encoding="utf-8")
    file = tmp_path / "mcp.json"
    file.write_text(
        '{"servers": {"s": {"command": "${X}", "args": ["${file:key}", "${userHome}"], "envFile": "env"}}}',
        encoding="utf-8-sig",
    )
    server = load_mcp_config(file, env={"X": "x"}, home="/h", workspace=tmp_path).servers["s"]
    assert (server.command, server.args, server.env) == ("x", ("k-1", "/h"), {"A": "b"})


def test_a_file_uses_the_environment_of_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_VARIABLE", "v")
    monkeypatch.chdir(tmp_path)
    Path("mcp.json").write_text('{"s": {"command": "${A_VARIABLE}", "cwd": "srv"}}', encoding="utf-8")
    server = load_mcp_config("mcp.json").servers["s"]
    assert (server.command, server.cwd) == ("v", str(tmp_path / "srv"))


def test_a_file_that_is_none_is_an_error(tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere.json", tmp_path):
        with pytest.raises(MCPConfigError, match="cannot be read"):
            load_mcp_config(path)


def test_a_variable_never_waits_for_a_pipe_or_reads_a_device(tmp_path: Path) -> None:
    given = {"s": {"command": "${file:/dev/zero}"}, "t": {"command": "x", "envFile": "."}}
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps(given), encoding="utf-8")
    errors = load_mcp_config(file, workspace=tmp_path).errors
    assert {name: error.kind for name, error in errors.items()} == {"s": "unresolved_variable", "t": "invalid_entry"}
