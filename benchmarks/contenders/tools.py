"""The two tools of the scenario as coroutines. They cost next to nothing themselves."""

from __future__ import annotations


async def weather(city: str) -> dict[str, str | int]:
    """The weather of a city."""
    return {"city": city, "sky": "sunny", "degrees": 21}


async def add(a: int, b: int) -> int:
    """The sum of two numbers."""
    return a + b
