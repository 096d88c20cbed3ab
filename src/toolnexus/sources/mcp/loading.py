"""Reads an MCP configuration file from this machine, with the files and the environment that it refers to."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path

from toolnexus.sources.mcp.config import MCPConfig, MCPConfigError
from toolnexus.sources.mcp.parsing import parse_mcp_config

_LARGEST = 4 * 1024 * 1024
"""Bytes of a file that is read. Beyond it, it is no configuration."""


def load_mcp_config(
    path: str | os.PathLike[str],
    *,
    env: Mapping[str, str] | None = None,
    home: str | os.PathLike[str] | None = None,
    workspace: str | os.PathLike[str] | None = None,
    inputs: Mapping[str, str] | None = None,
) -> MCPConfig:
    """Read an MCP configuration file. It reads from the disk, so call it beside an event loop.

    What a file refers to, other files and variables, goes where its servers are: load only files that the user trusts.

    Args:
        path: The file, of whichever program.
        env: The environment. None: that of this process.
        home: The home folder. None: that of the user.
        workspace: The project's folder. None: the current one.
        inputs: Answers to the questions of the file, by id.

    Raises:
        MCPConfigError: There is no such file, or it cannot be read as a whole.
    """
    place = Path(path)
    if home is None:
        try:
            home = Path.home()
        except RuntimeError:
            home = None
    try:
        data = _bytes(place.absolute())
    except OSError as error:
        raise MCPConfigError(f"it cannot be read: {error.strerror or error}.", source=str(place)) from None
    return parse_mcp_config(
        data,
        source=str(place.absolute()),
        env=os.environ if env is None else env,
        home=None if home is None else str(home),
        workspace=str(Path(workspace or Path.cwd()).absolute()),
        platform=sys.platform,
        inputs=inputs,
        read_file=_text,
    )


def _text(path: str) -> str:
    return _bytes(Path(path)).decode("utf-8-sig")


def _bytes(path: Path) -> bytes:
    # Without waiting for a writer: a path may name a pipe.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(0, "it is no file")
        data = file.read(_LARGEST + 1)
    if len(data) > _LARGEST:
        raise OSError(0, f"it is larger than {_LARGEST // 1024 // 1024} MiB")
    return data
