"""An MCP server of our own: two functions, served over standard input and output.

`examples/mcp.json` starts it, and any other MCP client can.
"""

from __future__ import annotations

import asyncio

from toolnexus import create_toolkit

BERTHS = {"north": 4, "south": 0, "old pier": 1}


def free_berths(pier: str) -> int:
    """How many berths are free at a pier: north, south or old pier."""
    if pier not in BERTHS:
        raise ValueError(f"There is no pier {pier!r}; there are {', '.join(BERTHS)}.")
    return BERTHS[pier]


def mooring_fee(metres: float, nights: int = 1) -> str:
    """What a berth costs for a boat of a length."""
    return f"{12 + 1.5 * metres * nights:.2f} EUR"


async def main() -> None:
    async with await create_toolkit([free_berths, mooring_fee]) as toolkit:
        await toolkit.serve_mcp(name="harbour")


if __name__ == "__main__":
    asyncio.run(main())
