"""What a host chooses by names: a map from names to whether they are wanted, and names to leave out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from toolnexus.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Selection:
    """Which names are wanted. Called with one, it says whether it is.

    Attributes:
        only: None but these. None: all.
        never: None of these, whatever `only` says.
    """

    only: frozenset[str] | None = None
    never: frozenset[str] = field(default_factory=frozenset[str])

    def __call__(self, name: str) -> bool:
        return name not in self.never and (self.only is None or name in self.only)

    def unknown(self, known: Iterable[str]) -> list[str]:
        """The names that were said and are not among the known ones, sorted."""
        return sorted((self.never | (self.only or frozenset())).difference(known))


def selection(option: str, flags: Mapping[str, bool] | None, disabled: Iterable[str] = ()) -> Selection:
    """What a map and a list say together. If any name of the map is True, only such; else all but those that are False.

    Args:
        option: What an error calls the map.
        flags: None: it says nothing.
        disabled: Names that are never wanted.

    Raises:
        ConfigurationError: Something else was given.
    """
    if isinstance(disabled, str):
        raise ConfigurationError(f"The names to leave out are {disabled!r}; give a list of names.")
    never = frozenset(disabled)
    if flags is None:
        return Selection(never=never)
    if not isinstance(flags, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - it is from outside
        raise ConfigurationError(f"{option} is {flags!r:.100}; give a mapping from names to True or False.")
    for name, on in flags.items():
        if not isinstance(on, bool):  # pyright: ignore[reportUnnecessaryIsInstance] - "no" would be true
            raise ConfigurationError(f"{option}[{name!r}] is {on!r:.100}; give True or False.")
    only = frozenset(name for name, on in flags.items() if on)
    return Selection(only or None, never | (flags.keys() - only))
