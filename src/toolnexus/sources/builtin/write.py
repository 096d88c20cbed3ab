"""The tool that writes a whole file."""

from __future__ import annotations

import stat

from toolnexus import _media
from toolnexus.sources.builtin.atomic import Change, Transaction
from toolnexus.sources.builtin.workspace import FileProblem, PathRefused, Workspace, version
from toolnexus.tools import JSONObject, Tool, ToolContext, ToolResult

_SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "description": "The file."},
        "content": {"type": "string", "description": "All of its new content."},
    },
    "required": ["path", "content"],
    "additionalProperties": False,
}
_DESCRIPTION = (
    "Write a file: a new one, with the folders on the way, or all of one that is there. The content is written in "
    "UTF-8 exactly as given. To change a part of a file use edit."
)


def make(workspace: Workspace) -> Tool:
    """The tool `write`."""

    def execute(args: JSONObject, ctx: ToolContext) -> ToolResult:
        return _write(workspace, args["path"], args["content"])

    return Tool(
        name="write", source="builtin", description=_DESCRIPTION, input_schema=_SCHEMA, execute=execute, idempotent=True
    )


def _write(workspace: Workspace, path: str, content: str) -> ToolResult:
    data = content.encode()
    with Transaction(workspace) as transaction:
        place = transaction.place(path, make_folders=True)
        there = place.status()
        if there is not None and stat.S_ISDIR(there.st_mode):
            raise FileProblem(f"{place.shown} is a folder. Give the path of a file.")
        if there is not None and not stat.S_ISREG(there.st_mode):
            raise PathRefused(f"{place.shown} is a device, a pipe or a socket. Only regular files can be written.")
        seen = None if there is None else version(there)
        transaction.commit([Change(place=place, data=data, seen=seen, like=there)])
    what = "Made" if there is None else "Replaced"
    return ToolResult(
        output=f"{what} {place.shown}: {_media.human_size(len(data))}.",
        metadata={"path": place.path, "bytes": len(data), "created": there is None},
    )
