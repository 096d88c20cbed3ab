"""The same work, done by different programs.

Each contender is an async context manager that takes a base URL, opens what it keeps (connections, a client, tools) and
gives a function that does the work once: `Run` for the scenario, which returns the answer, `Read` for a streamed
burst, which returns the number of deltas it was given and of characters in them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TypeAlias

Run: TypeAlias = Callable[[], Awaitable[str]]
Read: TypeAlias = Callable[[], Awaitable[tuple[int, int]]]

Runner: TypeAlias = Callable[[str], AbstractAsyncContextManager[Run]]
Reader: TypeAlias = Callable[[str], AbstractAsyncContextManager[Read]]
