"""What the project promises about itself: pins, what ships, and `dev.py` where something is missing."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import toolnexus

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PINS = {
    canonicalize_name(pin.name): pin
    for line in (ROOT / "requirements-dev.txt").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
    for pin in [Requirement(line)]
}
WANTED = [
    *PROJECT["build-system"]["requires"],
    *PROJECT["project"]["dependencies"],
    # Every extra, but for those that they name of ours.
    *(
        wanted
        for extra in PROJECT["project"]["optional-dependencies"].values()
        for wanted in extra
        if Requirement(wanted).name != "toolnexus"
    ),
    *PROJECT["dependency-groups"]["dev"],
]


@pytest.fixture
def dev(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """`dev.py`, in a project of its own without a .venv."""
    spec = importlib.util.spec_from_file_location("dev", ROOT / "dev.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name in ("pyproject.toml", "requirements-dev.txt"):
        (tmp_path / name).write_text("")
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "PINS", tmp_path / "requirements-dev.txt")
    monkeypatch.setattr(module, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(module, "PYTHON", tmp_path / ".venv" / "python")
    return module


def no_pip(dev: ModuleType) -> None:
    """Put a Python into the .venv that cannot install anything."""
    dev.VENV.mkdir()
    (dev.VENV / "pyvenv.cfg").write_text(f"version = {sys.version.split()[0]}\n")
    dev.PYTHON.write_text("#!/bin/sh\necho there is no network\nexit 1\n")
    dev.PYTHON.chmod(0o755)


@pytest.mark.parametrize("wanted", WANTED)
def test_what_the_project_wants_is_pinned_within_its_range(wanted: str) -> None:
    requirement = Requirement(wanted)
    [pin] = PINS[canonicalize_name(requirement.name)].specifier
    assert requirement.specifier.contains(pin.version)


def test_pins_are_exact_and_name_no_address() -> None:
    assert {specifier.operator for pin in PINS.values() for specifier in pin.specifier} == {"=="}
    assert [pin for pin in PINS.values() if pin.url or len(pin.specifier) != 1] == []


def test_the_package_says_that_it_is_typed() -> None:
    assert (Path(toolnexus.__file__).parent / "py.typed").is_file()


def test_an_older_python_is_told_which_one_is_needed(
    dev: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 10, 4))
    assert dev.main(["run"]) == 1
    assert "needs Python 3.11 or newer" in capsys.readouterr().err
    assert not dev.VENV.exists()


def test_a_python_without_venv_is_told_what_to_install(
    dev: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "ensurepip" else find_spec(name, *rest)
    )
    with pytest.raises(SystemExit, match="1"):
        dev.main(["run"])
    assert re.search(r"no ensurepip.*\n.*apt install python3\.\d+-venv", capsys.readouterr().err)


@pytest.mark.skipif(os.name == "nt", reason="the stand-in for Python is a shell script")
def test_a_failing_installation_says_why_and_is_tried_again(
    dev: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    no_pip(dev)
    for _ in range(2):
        with pytest.raises(SystemExit, match="1"):
            dev.main(["test"])
        told = capsys.readouterr().err
        assert "there is no network" in told
        assert "Installing failed" in told


def test_what_is_installed_already_is_left_alone_until_a_pin_changes(dev: ModuleType) -> None:
    no_pip(dev)
    (dev.VENV / ".installed-all").write_text(dev.fingerprint())
    dev.prepare(everything=True)
    dev.prepare(everything=False)
    dev.PINS.write_text("pytest==1.0\n")
    with pytest.raises(SystemExit):
        dev.prepare(everything=False)


def test_what_run_needs_is_not_enough_for_the_tests(dev: ModuleType) -> None:
    no_pip(dev)
    (dev.VENV / ".installed-run").write_text(dev.fingerprint())
    dev.prepare(everything=False)
    with pytest.raises(SystemExit):
        dev.prepare(everything=True)


@pytest.mark.parametrize(("arguments", "code"), [([], 0), (["--help"], 0), (["tset"], 2), (["check", "src"], 2)])
def test_help_is_shown_where_no_command_is_understood(
    dev: ModuleType, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int
) -> None:
    assert dev.main(arguments) == code
    shown = capsys.readouterr()
    assert "dev.py test" in (shown.err if code else shown.out)
