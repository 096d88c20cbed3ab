"""Strict JSON in both directions: orjson, and the standard library for what it refuses or would change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite
from typing import Any, cast

import orjson

from toolnexus import _strict
from toolnexus._unicode import clean, clean_text

_DIGITS = bytes(48 if 48 <= byte <= 57 else 32 for byte in range(256))
_LONG_NUMBER = b"0" * 19
"""As many digits as the smallest integer that 64 bits cannot hold. orjson reads such a one as a float."""

_TOGETHER = 64
"""Texts that are searched for long numbers at once: few enough that one such number costs little."""

_OPTIONS = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME


def dumps(value: object, where: str = "value", *, nulls: int = 0) -> bytes:
    """Encode a JSON value as compact UTF-8. Integers keep every digit; lone surrogates become U+FFFD.

    Args:
        where: What an error calls the value; the path to what is wrong is appended, as in `messages[3].content`.
        nulls: How many times it holds None, as far as the caller knows. The more of them are known, the less often
            the value has to be searched for what would become null unnoticed.

    Raises:
        ValueError: There is a NaN or an infinity in it, a key that is no text, or something that JSON does not have.
    """
    try:
        data = orjson.dumps(value, option=_OPTIONS)
    except TypeError:  # a big integer, a lone surrogate, or no JSON at all
        return _dumps_with_care(value, where)
    # orjson writes NaN as null, so only an output with more nulls than there are Nones can hide one.
    if data.count(b"null") > nulls and _has_nan(value):
        raise _refusal(value, where)
    return data


def strict_dumps(value: object, where: str = "messages") -> bytes:
    """`dumps` for a transcript."""
    return dumps(value, where)


def loads(data: bytes | str) -> Any:
    """Decode strict JSON. Integers keep every digit; lone surrogates become U+FFFD.

    Raises:
        ValueError: It is not JSON (NaN and Infinity are not), or a number or the nesting is beyond any use.
    """
    if isinstance(data, str):
        data = clean_text(data).encode()
    if _LONG_NUMBER not in data.translate(_DIGITS):
        try:
            return orjson.loads(data)
        except ValueError:  # an escaped lone surrogate, or no JSON at all
            pass
    return _strict.decode(data.decode("utf-8", "surrogatepass"))


def loads_all(texts: Sequence[bytes]) -> Iterator[Any]:
    """`loads` of each. Many small texts are searched for long numbers together, which is faster.

    Raises:
        ValueError: When it comes to a text that `loads` refuses.
    """
    for start in range(0, len(texts), _TOGETHER):
        part = texts[start : start + _TOGETHER]
        if _LONG_NUMBER not in b" ".join(part).translate(_DIGITS):
            try:
                values = list(map(orjson.loads, part))
            except ValueError:  # as above
                pass
            else:
                yield from values
                continue
        yield from map(loads, part)


def _dumps_with_care(value: object, where: str) -> bytes:
    try:
        if _flaw(value) is not None:
            raise _refusal(value, where)
        return _strict.encode(clean(value)).encode()
    except RecursionError as error:
        raise ValueError(f"{where} is nested too deeply, or holds itself.") from error


def _has_nan(value: object) -> bool:
    waiting = [value]
    while waiting:
        item = waiting.pop()
        kind = type(item)
        if kind is str:
            continue
        if isinstance(item, dict):
            waiting.extend(cast("dict[str, object]", item).values())
        elif isinstance(item, list | tuple):
            waiting.extend(cast("list[object]", item))
        elif isinstance(item, float) and not isfinite(item):
            return True
    return False


def _refusal(value: object, where: str) -> ValueError:
    path, problem = _flaw(value) or ("", "is not JSON")
    return ValueError(f"{where}{path} {problem}.")


def _flaw(value: object) -> tuple[str, str] | None:
    """The path to the first thing that JSON does not have, and what it is. None: there is none."""
    if value is None or isinstance(value, str | int):
        return None
    if isinstance(value, float):
        return None if isfinite(value) else ("", f"is {value}, which JSON does not have")
    if isinstance(value, dict):
        for key, item in cast("dict[object, object]", value).items():
            if not isinstance(key, str):
                return "", f"has the key {key!r}; JSON has only text as keys"
            if (flaw := _flaw(item)) is not None:
                step = f".{key}" if key.isidentifier() else f"[{key!r}]"
                return step + flaw[0], flaw[1]
        return None
    if isinstance(value, list | tuple):
        for position, item in enumerate(cast("list[object]", value)):
            if (flaw := _flaw(item)) is not None:
                return f"[{position}]{flaw[0]}", flaw[1]
        return None
    return "", f"is of the type {type(value).__name__}, which JSON does not have"
