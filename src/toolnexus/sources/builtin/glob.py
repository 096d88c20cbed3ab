"""The tool that finds files by their names."""

from __future__ import annotations

import contextlib

from toolnexus._unicode import clean_text
from toolnexus.sources.builtin.patterns import Glob
from toolnexus.sources.builtin.walk import Walk
from toolnexus.sources.builtin.workspace import MOST_SHOWN, SECONDS, PathRefused, Workspace, deadline
from toolnexus.tools import JSONObject, Tool, ToolContext, ToolResult

_LIMIT = 100
_SCHEMA = {
    "type": "object",
    "properties": {
        "pattern": {"type": "string", "description": "Such as '**/*.py', 'src/*.{ts,tsx}' or '[ab]*/x.txt'."},
        "path": {"type": "string", "description": "The folder to begin in. Default: the workspace's root."},
        "limit": {"type": "integer", "minimum": 1, "default": _LIMIT, "description": "How many to list at most."},
    },
    "required": ["pattern"],
    "additionalProperties": False,
}
_DESCRIPTION = (
    "Find files whose path below the folder matches a pattern: * and ? within a name, ** for any folders, {a,b}, [ab]. "
    "Lists their paths, sorted by path. What git ignores is left out unless the pattern writes the name out. Folders "
    "are not listed, and links not followed."
)


def make(workspace: Workspace) -> Tool:
    """The tool `glob`."""

    def execute(args: JSONObject, ctx: ToolContext) -> ToolResult:
        return _glob(workspace, args["pattern"], args.get("path", "."), args.get("limit", _LIMIT), deadline(ctx))

    return Tool(
        name="glob", source="builtin", description=_DESCRIPTION, input_schema=_SCHEMA, execute=execute, read_only=True
    )


def _glob(workspace: Workspace, pattern: str, path: str, limit: int, ends: float) -> ToolResult:
    if pattern.startswith("/"):
        raise PathRefused(
            f"The pattern {pattern!r} is absolute. Give the folder as path, and the pattern from there on."
        )
    with workspace.place(path) as place:
        walk = Walk(place, Glob.parse(pattern), ends)
        paths: list[str] = []
        more, room = False, MOST_SHOWN
        with contextlib.closing(walk.files()) as files:
            for file in files:
                if len(paths) == limit or room < 0:
                    more = True
                    break
                paths.append(clean_text(file.path))
                room -= len(paths[-1].encode()) + 1
    lines = paths or [f"No file matches {pattern!r}."]
    if more:
        lines.append(f"[the first {len(paths)} by path; there are more. Narrow the pattern, or raise limit]")
    if walk.late:
        lines.append(f"[ended after at most {SECONDS:g} s, so there may be more. Narrow the search by path]")
    if walk.unread:
        lines.append(f"[folders that could not be read: {walk.unread}]")
    return ToolResult(output="\n".join(lines), metadata={"paths": paths, "more": more})
