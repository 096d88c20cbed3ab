"""Keeps the number of different values of a label bounded."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Final

OTHER: Final = "other"
_LONGEST = 100


class Bounded:
    """The first values come through as they are, up to `limit` of them; all that come later are `other`."""

    def __init__(self, limit: int, known: Iterable[str] = ()) -> None:
        self._limit = limit
        self._known = {*known}
        self._lock = threading.Lock()

    def of(self, value: str) -> str:
        if value in self._known:
            return value
        if not value or len(value) > _LONGEST:
            return OTHER
        with self._lock:
            if value not in self._known:
                if len(self._known) >= self._limit:
                    return OTHER
                self._known.add(value)
        return value
