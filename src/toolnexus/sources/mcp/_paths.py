"""Paths of either platform as texts, wherever this runs. Pure."""

from __future__ import annotations

import ntpath
import posixpath


def is_windows(platform: str) -> bool:
    """Whether a platform's name means Windows: as `sys.platform`, `os.name` or people say it."""
    return platform.lower() in {"windows", "win32", "nt", "cygwin"}


def separator(*, windows: bool) -> str:
    """What stands between the names of a path."""
    return "\\" if windows else "/"


def name_of(path: str, *, windows: bool) -> str:
    """The last name of a path."""
    module = ntpath if windows else posixpath
    return module.basename(path.rstrip("/\\" if windows else "/"))


def folder_of(path: str, *, windows: bool) -> str | None:
    """The folder of an absolute path. None: the path is relative."""
    module = ntpath if windows else posixpath
    return module.dirname(path) if module.isabs(path) else None


def at_home(path: str, home: str | None, *, windows: bool) -> str:
    """A path with its leading `~` replaced, if the home folder is known."""
    if home is None or (path != "~" and not path.startswith(("~/", "~\\") if windows else "~/")):
        return path
    return home.rstrip("/\\" if windows else "/") + path[1:]


def absolute(path: str, *, base: str | None, home: str | None, windows: bool) -> str:
    """A path as seen from `base`. An absolute one is left as it is written; a relative one too, if no base is known."""
    module = ntpath if windows else posixpath
    path = at_home(path, home, windows=windows)
    if base is None or module.isabs(path):
        return path
    return module.normpath(module.join(base, path))
