"""Every case of the mcp-config corpus: a configuration file of some program, and what a reader must make of it.

The environment variable TOOLNEXUS_MCP_CORPUS names folders (`os.pathsep` between them) to be run in place of ours.
"""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import pytest

from toolnexus.sources.mcp.config import MCPConfig, MCPServer
from toolnexus.sources.mcp.parsing import parse_mcp_config

OURS = Path(__file__).parent.parent / "corpus" / "mcp-config"
NAMED = os.environ.get("TOOLNEXUS_MCP_CORPUS", "")
FOLDERS = [Path(name) for name in NAMED.split(os.pathsep) if name] or [OURS]
CASES = [path for folder in FOLDERS for path in sorted(folder.glob("*.json"))]

KINDS = {
    "unresolved_variable": "unresolved_variable",
    "invalid_args": "invalid_args",
    "conflicting_transport": "conflicting_transport",
    "no_transport": "no_transport",
    "invalid_entry": "invalid_entry",
}
"""The words of the library for what is wrong with an entry, and those of the corpus."""

DEFAULTS: dict[str, Any] = {
    "command": None,
    "args": [],
    "env": {},
    "cwd": None,
    "url": None,
    "headers": {},
    "oauth": None,
    "timeout_s": None,
    "startup_timeout_s": None,
    "tools": {"include": None, "exclude": []},
    "auto_approve": [],
    "enabled": True,
}


def read(case: dict[str, Any], source: str) -> MCPConfig:
    context = case["context"]

    def read_file(path: str) -> str:
        try:
            return context["files"][path]
        except KeyError:
            raise FileNotFoundError(2, "No such file or directory") from None

    return parse_mcp_config(
        case["config_text"].encode(case["encoding"]),
        source=source,
        env=context["env"],
        home=context["user_home"],
        workspace=context["workspace_folder"],
        platform=context["platform"],
        inputs=context["inputs"],
        read_file=read_file,
    )


def in_the_words_of_the_corpus(server: MCPServer) -> dict[str, Any]:
    oauth: Any = server.oauth
    if oauth:
        fields = dataclasses.asdict(oauth)
        oauth = {
            name: list(value) if name == "scopes" else value for name, value in fields.items() if value is not None
        }
    return {
        "command": server.command,
        "args": list(server.args),
        "env": dict(server.env),
        "cwd": server.cwd,
        "url": server.url,
        "headers": dict(server.headers),
        "oauth": oauth,
        "timeout_s": server.timeout,
        "startup_timeout_s": server.startup_timeout,
        "tools": {
            "include": None if server.tools.include is None else list(server.tools.include),
            "exclude": list(server.tools.exclude),
        },
        "auto_approve": list(server.auto_approve),
        "enabled": server.enabled,
    }


def check(case: dict[str, Any], config: MCPConfig) -> None:
    expected = case["expected"]
    assert {name: KINDS[error.kind] for name, error in config.errors.items()} == expected["errors"]
    assert set(config.servers) == set(expected["servers"])
    for name, wanted in expected["servers"].items():
        server = config.servers[name]
        transports = wanted["transport"] if isinstance(wanted["transport"], list) else [wanted["transport"]]
        assert server.transport in transports, name
        if wanted.get("enabled", True):
            rest = {key: value for key, value in wanted.items() if key != "transport"}
            assert in_the_words_of_the_corpus(server) == {**DEFAULTS, **rest}, name
        else:
            assert server.enabled is False, name
    warned = {(warning.server, warning.key) for warning in config.warnings}
    assert {(warning["server"], warning["key"]) for warning in expected["warnings"]} <= warned


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_corpus_folder_has_cases(folder: Path) -> None:
    assert list(folder.glob("*.json"))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_a_case_holds(path: Path) -> None:
    case = json.loads(path.read_text(encoding="utf-8"))
    check(case, read(case, case["source_file"]))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_a_case_holds_with_the_name_of_the_file_alone(path: Path) -> None:
    case = json.loads(path.read_text(encoding="utf-8"))
    check(case, read(case, case["source_file"].replace("\\", "/").rpartition("/")[2]))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_what_is_warned_of_in_a_case_is_a_key_of_it(path: Path) -> None:
    """No warning for what every program's own documentation has."""
    case = json.loads(path.read_text(encoding="utf-8"))
    warned = {(warning.server, warning.key) for warning in read(case, case["source_file"]).warnings}
    named = {(warning["server"], warning["key"]) for warning in case["expected"]["warnings"]}
    assert FOLDERS != [OURS] or warned == named
