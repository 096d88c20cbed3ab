"""The two tools of the scenario as plain functions."""

from __future__ import annotations


def weather(city: str) -> dict[str, str | int]:
    """The weather of a city."""
    return {"city": city, "sky": "sunny", "degrees": 21}


def add(a: int, b: int) -> int:
    """The sum of two numbers."""
    return a + b
