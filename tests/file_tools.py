"""The file tools on a folder, called as a model's calls are."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from toolnexus.sources.builtin import builtin_tools
from toolnexus.sources.builtin.workspace import Workspace
from toolnexus.toolkit import Toolkit, create_toolkit
from toolnexus.tools import ToolResult

NAMES = ("read", "write", "edit", "apply_patch", "glob", "grep")


class FileTools:
    """A toolkit of the file tools, and shorter ways to call them."""

    def __init__(self, toolkit: Toolkit) -> None:
        self.toolkit = toolkit

    async def result(self, tool: str, **arguments: Any) -> ToolResult:
        return await self.toolkit.execute(tool, arguments)

    async def ok(self, tool: str, **arguments: Any) -> str:
        """The output of a call that has to succeed."""
        result = await self.result(tool, **arguments)
        assert not result.is_error, result.output
        return result.output

    async def refused(self, tool: str, **arguments: Any) -> str:
        """The output of a call that has to fail."""
        result = await self.result(tool, **arguments)
        assert result.is_error, result.output
        return result.output

    async def patch(self, *lines: str) -> str:
        return await self.ok("apply_patch", patchText=patch(*lines))


def patch(*lines: str) -> str:
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch"])


async def file_tools(root: Path, **options: Any) -> FileTools:
    """All file tools on a workspace at `root`."""
    tools = builtin_tools(Workspace(root, **options), dict.fromkeys(NAMES, True))
    return FileTools(await create_toolkit(tools=tools))


def tree(root: Path) -> dict[str, Any]:
    """Everything below a folder: the contents and permissions of files, the targets of links, None for folders."""
    found: dict[str, Any] = {}
    for path in sorted(root.rglob("*")):
        name = os.fspath(path.relative_to(root))
        if path.is_symlink():
            found[name] = os.fspath(path.readlink())
        elif path.is_dir():
            found[name] = None
        else:
            found[name] = (path.read_bytes(), path.stat().st_mode & 0o777) if path.is_file() else "special"
    return found
