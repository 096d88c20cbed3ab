#!/usr/bin/env python3
"""Sets up `.venv` beside this file and runs the project in it.

python3 dev.py run [toolnexus arguments]   the command line, as an installed user has it
python3 dev.py test [pytest arguments]     the tests
python3 dev.py check                       ruff, ruff format and the type checker

It needs Python 3.11 or newer and nothing else. What it installs is pinned in requirements-dev.txt.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
PYTHON = BIN / ("python.exe" if os.name == "nt" else "python")
PINS = ROOT / "requirements-dev.txt"
OLDEST = (3, 11)
BUILD_TOOLS = ["hatchling", "editables"]


def main(arguments: list[str]) -> int:
    if sys.version_info < OLDEST:
        return complain(
            f"This needs Python 3.11 or newer, and {sys.executable} is {sys.version.split()[0]}.",
            "Run it with a newer one: python3.11 dev.py …",
        )
    command, rest = (arguments[0], arguments[1:]) if arguments else ("help", [])
    if command == "run":
        prepare(everything=False)
        return become([str(BIN / "toolnexus"), *rest])
    if command == "test":
        prepare(everything=True)
        os.chdir(ROOT)
        return become([str(PYTHON), "-m", "pytest", *rest])
    if command == "check" and not rest:
        prepare(everything=True)
        return check()
    print(__doc__, end="", file=sys.stdout if command in {"help", "-h", "--help"} else sys.stderr)
    return 0 if command in {"help", "-h", "--help"} else 2


def check() -> int:
    """Run every check, show what the failing ones say."""
    checks = {
        "ruff check": ["ruff", "check", "."],
        "ruff format": ["ruff", "format", "--check", "."],
        "types": ["basedpyright"],
    }
    failed: list[str] = []
    for name, module in checks.items():
        done = subprocess.run([str(PYTHON), "-m", *module], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode:
            print(f"{name}:\n{done.stdout.decode(errors='replace')}", file=sys.stderr)
            failed.append(name)
    if failed:
        return complain(f"These checks failed: {', '.join(failed)}.")
    print(f"Checked, nothing found: {', '.join(checks)}.")
    return 0


def prepare(*, everything: bool) -> None:
    """Make `.venv` and install into it, unless it already holds just this.

    Args:
        everything: Also what tests and checks need. Without it a first run has less to download.
    """
    mark = fingerprint()
    enough = [VENV / ".installed-all"] if everything else [VENV / ".installed-all", VENV / ".installed-run"]
    if PYTHON.exists() and any(stamp.is_file() and stamp.read_text() == mark for stamp in enough):
        return
    print("Preparing .venv, which takes a minute the first time …", file=sys.stderr)
    if not made_by_this_python():
        make_venv()
    pins = ["-r", str(PINS)] if everything else ["-c", str(PINS), *BUILD_TOOLS]
    install(*pins)
    install("-c", str(PINS), "--no-build-isolation", "-e", f"{ROOT}[cli,mcp]")
    enough[-1].write_text(mark)


def fingerprint() -> str:
    """Changes with everything that `.venv` depends on: the pins, the project, the interpreter, the place."""
    parts = [PINS.read_bytes(), (ROOT / "pyproject.toml").read_bytes(), version().encode(), os.fsencode(ROOT)]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def version() -> str:
    return ".".join(map(str, sys.version_info[:2]))


def made_by_this_python() -> bool:
    try:
        facts = (VENV / "pyvenv.cfg").read_text()
    except OSError:
        return False
    return PYTHON.exists() and f"version = {version()}." in facts


def make_venv() -> None:
    missing = [name for name in ("venv", "ensurepip") if importlib.util.find_spec(name) is None]
    if missing:
        raise SystemExit(
            complain(
                f"This Python has no {' and no '.join(missing)}: {sys.executable}",
                f"On Debian or Ubuntu: apt install python{version()}-venv. Elsewhere: install Python from python.org.",
            )
        )
    import venv  # here, because it may be missing

    if VENV.exists():
        shutil.rmtree(VENV)
    try:
        venv.create(VENV, with_pip=True, symlinks=os.name != "nt")
    except BaseException as error:  # half a .venv would be taken for a whole one
        shutil.rmtree(VENV, ignore_errors=True)
        if not isinstance(error, Exception):
            raise
        raise SystemExit(complain(f"Could not make {VENV}: {error}")) from error


def install(*what: str) -> None:
    done = subprocess.run(
        [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *what],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if done.returncode:
        raise SystemExit(
            complain(
                done.stdout.decode(errors="replace").strip(),
                "Installing failed; pip said why above. It needs a package index: check the network or pip's settings",
                "(PIP_INDEX_URL, PIP_PROXY, PIP_FIND_LINKS), and run this again. If that does not help, delete .venv.",
            )
        )


def become(command: list[str]) -> int:
    """Run `command` in place of this process, so that pipes, signals and the exit code are its own."""
    if os.name != "nt":  # there, exec starts a second process and returns at once
        os.execv(command[0], command)
    return subprocess.run(command).returncode


def complain(*lines: str) -> int:
    print(*lines, sep="\n", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
