"""A server made with fastmcp: `python with_fastmcp.py stdio` or `python with_fastmcp.py http PORT`."""

import sys

from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError

mcp = FastMCP("harbour")


@mcp.tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@mcp.tool
def fail() -> str:
    """Fail."""
    raise ToolError("The tide is out.")


@mcp.tool
async def slow(ctx: Context) -> str:
    """Report progress."""
    for step in (1, 2):
        await ctx.report_progress(step, 2)
    return "done"


@mcp.resource("tide://today")
def today() -> str:
    """The tide."""
    return "high"


@mcp.prompt
def ask(place: str) -> str:
    """Ask about a place."""
    return f"How is the tide in {place}?"


if sys.argv[1] == "http":
    mcp.run(transport="http", host="127.0.0.1", port=int(sys.argv[2]), show_banner=False)
else:
    mcp.run(show_banner=False)
