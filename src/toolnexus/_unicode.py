"""Valid Unicode in text and in JSON values. Half a surrogate pair, from a cut emoji or an odd file name, is not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast


def clean_text(text: str) -> str:
    """`text` with each lone surrogate replaced by U+FFFD, so that it can be encoded as UTF-8.

    Text without any comes back as the same object; two halves that stand together become the character they mean.
    """
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def clean(value: Any) -> Any:
    """An independent copy of JSON data in which every text, keys included, is valid Unicode.

    Mappings become dicts and tuples become lists. What is no JSON is passed on as it is.
    """
    # The exact types first: nearly every value has one, and asking for a mapping is slow.
    if type(value) is str:
        return value if value.isascii() else clean_text(value)
    if type(value) is dict:
        items = cast("dict[Any, Any]", value).items()
        return {key if type(key) is str and key.isascii() else clean(key): clean(item) for key, item in items}
    if type(value) is list:
        return [clean(item) for item in cast("list[Any]", value)]
    if isinstance(value, Mapping):
        return clean(dict(cast("Mapping[Any, Any]", value)))
    if isinstance(value, list | tuple):
        return clean(list(cast("Sequence[Any]", value)))
    return clean_text(value) if isinstance(value, str) else value
