"""Ends a server's processes when this interpreter dies, however that happens."""

from __future__ import annotations

import contextlib
import subprocess

# Its input is a pipe that only this interpreter holds open: a line says that all is well, its end that we are gone.
# By the group it finds most, by the mark in the environment those that left it.
_SCRIPT = """
trap '' INT HUP TERM
if read -r _; then exit 0; fi
marked() { grep -lsa "$2" /proc/[0-9]*/environ 2>/dev/null | sed 's|/proc/||;s|/environ||'; }
for signal in TERM KILL; do
  kill -s $signal -- "-$1" $(marked "$@") 2>/dev/null
  [ $signal = KILL ] || sleep 1
done
"""


class Watchdog:
    """A small process that outlives us by a second.

    Args:
        group: The process group that it ends.
        mark: What the environment of those holds that it ends as well.
    """

    def __init__(self, group: int, mark: str) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - nothing of a stranger
            ["/bin/sh", "-c", _SCRIPT, "sh", str(group), mark],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={"PATH": "/usr/bin:/bin"},
            start_new_session=True,
        )

    def release(self) -> None:
        """There is nothing left to end. It blocks for about a millisecond, at most for a good second."""
        with contextlib.suppress(OSError):
            try:
                self._process.communicate(b"\n", timeout=1)
            except subprocess.TimeoutExpired:  # the machine is busy, or something has stopped it
                self._process.kill()
                self._process.communicate()
