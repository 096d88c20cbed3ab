"""Turns on one conversation of one store object wait for each other, in whatever thread or event loop they run."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import TypeAlias

from toolnexus.clock import within
from toolnexus.errors import ConversationBusy, RunTimeout

_Key: TypeAlias = tuple[int, str, str]

_lines: dict[_Key, deque[Place]] = {}
_guard = threading.Lock()


def _forget() -> None:
    """Start anew after a fork: the turns that go on are those of the parent, and so is whoever holds the lock."""
    global _guard
    _guard = threading.Lock()
    _lines.clear()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_forget)


@dataclass(eq=False, slots=True)
class Place:
    """One turn's place in the line; the first has the turn. It keeps the store alive, so that its id stays its own."""

    store: object
    key: _Key
    loop: asyncio.AbstractEventLoop
    turn: asyncio.Future[None]

    def leave(self) -> None:
        """Give the place up, and the turn to the next if it was ours."""
        with _guard:
            line = _lines.get(self.key)
            if line is None or self not in line:
                return  # our loop was closed meanwhile, and somebody went past
            held = line[0] is self
            line.remove(self)
            if held:
                _hand_over(self.key, line)


async def take(store: object, conversation_id: str, *, wait: float, deadline: float | None, scope: str = "") -> Place:
    """Wait for the turn, first come, first served.

    Args:
        wait: Seconds to wait. 0: not at all.
        scope: Keeps equal ids apart.
        deadline: Of the whole run, on `time.monotonic()`.

    Raises:
        ConversationBusy: Others still hold the conversation after `wait` seconds.
        RunTimeout: The deadline came first.
    """
    loop = asyncio.get_running_loop()
    place = Place(store, (id(store), scope, conversation_id), loop, loop.create_future())
    with _guard:
        line = _lines.setdefault(place.key, deque())
        line.append(place)
        if line[0].loop.is_closed():  # its turn can never end by itself
            line.popleft()
            _hand_over(place.key, line)
        if line[0] is place:
            return place
    began = time.monotonic()
    patience = began + wait
    bound = patience if deadline is None else min(patience, deadline)
    try:
        await within(bound, place.turn)
    except BaseException as error:
        place.leave()
        if isinstance(error, RunTimeout) and bound == patience:
            raise ConversationBusy(conversation_id, waited=time.monotonic() - began) from None
        raise
    return place


def _hand_over(key: _Key, line: deque[Place]) -> None:
    """Give the turn to the first in line whose event loop still lives."""
    while line:
        try:
            line[0].loop.call_soon_threadsafe(_grant, line[0].turn)
        except RuntimeError:
            line.popleft()
        else:
            return
    del _lines[key]


def _grant(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)
