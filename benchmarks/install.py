"""What installing the core brings: packages and bytes."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

_PROJECT = Path(__file__).parents[1]
_PATIENCE = 300.0


class NotMeasured(Exception):
    """The package could not be installed here."""


@dataclass(frozen=True, slots=True)
class Installed:
    """An installation without extras, bytecode included. `packages` counts toolnexus itself."""

    packages: int
    size: int


def installed() -> Installed:
    """Install this project into an empty folder and look at it.

    Raises:
        NotMeasured: There is no pip, or it could not get what it needs.
    """
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--compile"]
        try:
            done = subprocess.run(
                [*command, "--target", folder, str(_PROJECT)],
                capture_output=True,
                text=True,
                timeout=_PATIENCE,
                check=False,
            )
        except subprocess.TimeoutExpired as exc:
            raise NotMeasured(f"pip was not done after {_PATIENCE:.0f} s") from exc
        if done.returncode:
            complaints = done.stderr.strip().splitlines() or ["it did not say why"]
            raise NotMeasured(f"pip failed: {complaints[-1]}")
        root = Path(folder)
        return Installed(
            packages=len(list(root.glob("*.dist-info"))),
            size=sum(path.stat().st_size for path in root.rglob("*") if path.is_file()),
        )
