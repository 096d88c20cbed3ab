"""The tool `todowrite`: a list of what is to do, which the model keeps by writing it anew."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolnexus.tools import InvalidArguments, JSONObject, Tool, ToolContext, ToolResult

if TYPE_CHECKING:
    from toolnexus.sources.builtin.workspace import Workspace

_MOST = 200
_LONGEST = 2_000

_SCHEMA: JSONObject = {
    "type": "object",
    "properties": {
        "todos": {
            "type": "array",
            "maxItems": _MOST,
            "description": "The whole list, in order. It replaces the one before.",
            "items": {
                "type": "object",
                "properties": {
                    "id": {"type": "string", "description": "Keeps its item apart from others. Default: its number."},
                    "text": {"type": "string", "minLength": 1, "maxLength": _LONGEST, "description": "What is to do."},
                    "completed": {"type": "boolean", "default": False},
                },
                "required": ["text"],
                "additionalProperties": False,
            },
        }
    },
    "required": ["todos"],
    "additionalProperties": False,
}


def make(workspace: Workspace) -> Tool:
    """The tool `todowrite`. It keeps nothing itself: the list is in the conversation, and in the result's metadata."""
    del workspace
    return Tool(
        name="todowrite",
        description=(
            "Write down the list of what is to do, and what of it is done. Send the whole list whenever it changes."
        ),
        input_schema=_SCHEMA,
        execute=_write,
        source="builtin",
        read_only=True,
        idempotent=True,
    )


async def _write(args: JSONObject, ctx: ToolContext) -> ToolResult:
    del ctx
    todos = _numbered(args["todos"])
    done = sum(todo["completed"] for todo in todos)
    lines = [f"[{'x' if todo['completed'] else ' '}] {todo['id']}. {todo['text']}" for todo in todos]
    output = "\n".join([*lines, f"({done} of {len(todos)} done)"]) if todos else "(nothing to do)"
    return ToolResult(output=output, metadata={"todos": todos})


def _numbered(given: list[JSONObject]) -> list[dict[str, Any]]:
    """The items with all their fields. One without an id gets the first number that no other has.

    Raises:
        InvalidArguments: Two have the same id.
    """
    taken = {todo["id"] for todo in given if todo.get("id")}
    free = (str(number) for number in range(1, 2 * _MOST + 1) if str(number) not in taken)
    todos = [
        {
            "id": todo.get("id") or next(free),
            "text": " ".join(todo["text"].split()),
            "completed": todo.get("completed", False),
        }
        for todo in given
    ]
    seen: dict[str, int] = {}
    for position, todo in enumerate(todos):
        if (first := seen.setdefault(todo["id"], position)) != position:
            raise InvalidArguments.listing([(["todos", position, "id"], f"{todo['id']!r} is the id of todos[{first}]")])
    return todos
