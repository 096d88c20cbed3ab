"""Names and ids that a wire cannot take, and what stands for them there. Pure and deterministic.

The transcript keeps the tools' own names and the providers' own ids. A request carries mapped ones where it must, the
same ones whenever the same conversation is encoded again.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence

_VALID_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}").fullmatch
_NO_BEGINNING = re.compile(r"[0-9-]").match
_INVALID_CHARACTER = re.compile(r"[^A-Za-z0-9_-]")
_HASH_LENGTH = 8
_ID_LENGTH = 9


def _hash(text: str, attempt: int) -> str:
    """Hexadecimal digits of a hash of `text`; other ones for each attempt."""
    salted = text if attempt == 0 else f"{text}\0{attempt}"
    return hashlib.sha256(salted.encode("utf-8", "surrogatepass")).hexdigest()


class ToolNames:
    """Tool names as a wire takes them: 1 to 64 ASCII letters, digits, `_` or `-`, each for one tool only.

    A name that fits is left alone. Any other is cut and ends in `_` and 8 characters of a hash of the whole name.
    """

    def __init__(self, *, letter_first: bool = False) -> None:
        """
        Args:
            letter_first: Whether a name has to begin with a letter or `_`.
        """
        self._letter_first = letter_first
        self._wire: dict[str, str] = {}
        self._changed: dict[str, str] = {}
        self._taken: set[str] = set()

    def __bool__(self) -> bool:
        """Whether any name is known."""
        return bool(self._wire)

    def copy(self) -> ToolNames:
        """The same names; what either learns from now on, the other does not."""
        other = ToolNames(letter_first=self._letter_first)
        other._wire.update(self._wire)
        other._changed.update(self._changed)
        other._taken.update(self._taken)
        return other

    @property
    def changed(self) -> Mapping[str, str]:
        """Wire name to tool name, of those that differ."""
        return self._changed

    def add(self, names: Iterable[str]) -> None:
        """Make sure of these names; the ones that fit come before those that have to be changed."""
        new = [name for name in names if name not in self._wire]
        for name in sorted(new, key=lambda name: not self._fits(name)):
            self.wire(name)

    def wire(self, name: str) -> str:
        """What `name` is called on the wire."""
        known = self._wire.get(name)
        if known is not None:
            return known
        made = name
        if name in self._taken or not self._fits(name):
            stem = _INVALID_CHARACTER.sub("_", name)
            if self._letter_first and _NO_BEGINNING(stem):
                stem = f"_{stem}"
            stem = stem[: 64 - 1 - _HASH_LENGTH]
            attempt = 0
            while (made := f"{stem}_{_hash(name, attempt)[:_HASH_LENGTH]}") in self._taken:
                attempt += 1
            self._changed[made] = name
        self._wire[name] = made
        self._taken.add(made)
        return made

    def _fits(self, name: str) -> bool:
        return _VALID_NAME(name) is not None and not (self._letter_first and _NO_BEGINNING(name))


class CallIds:
    """Call ids as a wire takes them.

    An id that fits and was not used before in the conversation is left alone. Any other becomes 9 letters and digits,
    the form that the strictest provider asks for.
    """

    def __init__(self, form: str | None) -> None:
        """
        Args:
            form: Regular expression of the ids that the wire takes, which then have to be unique in the whole
                conversation. None: any id will do that is unique in its own message.
        """
        self._fits = re.compile(form).fullmatch if form is not None else None
        self._used: set[str] = set()
        self._repeats: dict[str, int] = {}  # where to look on: providers number from 0 in every reply

    def of_step(self, ids: Sequence[str]) -> list[str]:
        """The wire ids of the calls of the next assistant message, in order."""
        if self._fits is None:
            self._used.clear()
            self._repeats.clear()
        return [self._next(id_) for id_ in ids]

    def _next(self, id_: str) -> str:
        made = id_
        if made in self._used or not made or (self._fits is not None and not self._fits(made)):
            attempt = self._repeats.get(id_, 0)
            while (made := _hash(id_, attempt)[:_ID_LENGTH]) in self._used:
                attempt += 1
            self._repeats[id_] = attempt + 1
        self._used.add(made)
        return made
