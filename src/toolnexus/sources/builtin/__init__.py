"""The tools that come with the library. Each module beside this one makes the tool of its name from a `Workspace`."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolnexus.sources.builtin.workspace import Workspace
    from toolnexus.tools import Tool

_log = logging.getLogger("toolnexus")

# A tool's name, and the module here whose `make(workspace)` makes it. What is not chosen is not imported.
_MODULES = {
    "bash": "bash",
    "read": "read",
    "write": "write",
    "edit": "edit",
    "grep": "grep",
    "glob": "glob",
    "webfetch": "webfetch",
    "question": "question",
    "apply_patch": "patch",
    "todowrite": "todo",
}
NAMES = tuple(_MODULES)
"""The names of all built-in tools, in the order in which they are offered."""


def builtin_tools(workspace: Workspace, chosen: Mapping[str, bool] | bool = True) -> list[Tool]:
    """The built-in tools that were chosen. It imports their modules, so call it beside an event loop.

    Args:
        workspace: Where the file tools may work, and where commands begin.
        chosen: True: all. False: none. A map from names: if any is True, only those; else all but those that are
            False. A name that there is not is warned of.

    Raises:
        MissingExtra: A chosen tool needs an optional dependency.
    """
    return [
        importlib.import_module(f"{__name__}.{_MODULES[name]}").make(workspace) for name in NAMES if name in _of(chosen)
    ]


def _of(chosen: Mapping[str, bool] | bool) -> set[str]:
    if isinstance(chosen, bool):
        return set(NAMES) if chosen else set()
    if unknown := sorted(chosen.keys() - _MODULES.keys()):
        _log.warning("There are no built-in tools %s. There are: %s.", ", ".join(map(repr, unknown)), ", ".join(NAMES))
    wanted = {name for name, on in chosen.items() if on}
    return wanted & _MODULES.keys() if wanted else _MODULES.keys() - chosen.keys()
