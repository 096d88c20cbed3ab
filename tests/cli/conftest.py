"""A command line of its own for each test: no keys, no model, an empty home."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from toolnexus.cli import discover
from toolnexus.cli.app import root

KEPT = ("PATH", "LANG", "LC_ALL", "PYTHONPATH", "COVERAGE_PROCESS_START", "HOME", "SYSTEMROOT")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The whole environment of a command."""
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    return {**kept, "TOOLNEXUS_HOME": str(tmp_path / "home"), "TERM": "xterm"}


@pytest.fixture
def own(environment: dict[str, str]) -> Path:
    """The person's own configuration file, not there yet; its folder is."""
    folder = Path(environment["TOOLNEXUS_HOME"])
    folder.mkdir()
    return folder / "config.toml"


@pytest.fixture
def cli(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run a command in this process; no server on this machine is found."""

    async def no_servers(*_: object) -> list[discover.Found]:
        return []

    monkeypatch.setattr(discover, "servers", no_servers)
    for name in set(os.environ) - set(environment):
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    def run(*args: str, text: str | None = None) -> Result:
        return CliRunner().invoke(root, args, input=text, prog_name="toolnexus")

    return run


@pytest.fixture
def command(environment: dict[str, str]) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a command in a process of its own."""

    def run(*args: str, text: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "toolnexus", *args],
            input=text,
            env=environment,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=60,
            check=False,
        )

    return run
