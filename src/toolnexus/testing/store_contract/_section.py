"""What every section of the contract stands on: tests that bring their own event loop, and stores that get closed."""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from toolnexus.stores import ConversationStore, is_log_store

if TYPE_CHECKING:
    from toolnexus.stores.logstore import LogStore

SECONDS = 120.0
"""What one test may take before it counts as hanging."""
SOON = 20.0
"""Seconds to wait for what has to happen by itself, such as the end of a short lease."""

Factory: TypeAlias = Callable[[], "ConversationStore | Awaitable[ConversationStore]"]
"""The fixture `open`: each call gives a new, independent store on the same data."""

HELLO: dict[str, Any] = {"role": "user", "content": "hello"}
GOODBYE: dict[str, Any] = {"role": "assistant", "content": "goodbye"}
CALLED: list[dict[str, Any]] = [
    {"role": "user", "content": [{"type": "text", "text": "2 + 3?"}]},
    {
        "role": "assistant",
        "content": "Let me see.",
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 2, "b": 3}'}}],
        "origin": {"style": "openai", "model": "m", "host": "https://model.test"},
        "native": {"fields": {"reasoning_content": "Adding."}},
    },
    {"role": "tool", "tool_call_id": "c1", "content": "5", "is_error": False},
    {"role": "assistant", "content": "It is 5."},
]
"""A turn with a tool call."""


class Open:
    """The fixture `open` in the hands of one test: its stores are closed when the test ends."""

    def __init__(self, factory: Factory) -> None:
        self._factory = factory
        self._opened: list[ConversationStore] = []

    async def __call__(self) -> ConversationStore:
        made = self._factory()
        store = await made if inspect.isawaitable(made) else made
        self._opened.append(store)
        return store

    async def log(self) -> LogStore:
        """A store that keeps a log. The test is skipped for a store of two methods."""
        store = await self()
        if not is_log_store(store):
            pytest.skip(f"{type(store).__name__} is a store of two methods: it promises nothing of this")
        return store

    async def aclose(self) -> None:
        for store in self._opened:
            if (close := getattr(store, "aclose", None)) is not None and inspect.isawaitable(closing := close()):
                await closing


class Section:
    """Turns the coroutine tests of its subclasses into plain ones, so that no plugin has to run them.

    Each runs on an event loop of its own, gets the fixture `open` as an `Open`, and has to leave no task behind.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name, test in list(vars(cls).items()):
            if name.startswith("test_") and inspect.iscoroutinefunction(test):
                setattr(cls, name, _on_its_own_loop(test))


def _on_its_own_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(self: Section, **fixtures: Any) -> None:
        async def bounded() -> None:
            opened = Open(fixtures["open"])
            async with asyncio.timeout(SECONDS):
                try:
                    await test(self, **{**fixtures, "open": opened})
                finally:
                    await opened.aclose()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            running = (await asyncio.wait(others, timeout=1))[1] if others else ()
            assert not running, f"the test left tasks behind: {running}"

        with asyncio.Runner() as runner:
            runner.run(bounded())

    return run


async def get(store: ConversationStore, id: str) -> list[Any] | None:
    """What `store.get` gives, be it a coroutine or a plain function."""
    found = store.get(id)
    return await found if inspect.isawaitable(found) else found  # pyright: ignore[reportReturnType] - a list it is


async def save(store: ConversationStore, id: str, messages: Sequence[Any]) -> None:
    done = store.save(id, list(messages))
    if inspect.isawaitable(done):
        await done


def exactly(value: object) -> str:
    """A text that is the same for the same JSON only: 1, 1.0 and True differ, and so do 0.0 and -0.0."""
    return json.dumps(value, sort_keys=True)


async def until(true: Callable[[], Awaitable[bool]], what: str) -> None:
    """Look again and again until something is so; fail if it takes too long."""
    try:
        async with asyncio.timeout(SOON):
            while not await true():  # noqa: ASYNC110 - what is waited for happens elsewhere, without a signal
                await asyncio.sleep(0.005)
    except TimeoutError:
        pytest.fail(f"waited {SOON:g} s, and still not: {what}")
