"""The words of a text, as they are searched for."""

from __future__ import annotations

import re
import unicodedata

_WORD = re.compile(r"\w+")
_SPACED = re.sub(r"\W", " ", bytes(range(128)).decode())
"""The ASCII characters, with a space for each that is in no word."""
_LONGEST = 255
"""Characters of a word that count. PostgreSQL refuses words of 2 KB and more."""


def words(text: str) -> list[str]:
    """The different words, in the order in which they come first: letters, digits and underscores, without case.

    What is no word in any text (NUL, lone surrogates, punctuation) is left out.
    """
    if text.isascii():  # the same, three times as fast
        found = text.lower().translate(_SPACED).split()
    else:
        found = _WORD.findall(unicodedata.normalize("NFKC", text).casefold())
    different = dict.fromkeys(found)
    if max(map(len, different), default=0) > _LONGEST:
        different = dict.fromkeys(word[:_LONGEST] for word in different)
    return list(different)
