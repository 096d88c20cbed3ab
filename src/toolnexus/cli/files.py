"""Files that are their owner's alone, and that are there whole or not at all."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path


def replace(path: Path, data: bytes, *, mode: int | None = None) -> None:
    """Write a file in the place of whatever was there, with mode 0600 if no other is given."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name[:40]}-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        if mode is not None:
            Path(name).chmod(mode)
        Path(name).replace(path)
    except BaseException:
        with suppress(FileNotFoundError):
            Path(name).unlink()
        raise
