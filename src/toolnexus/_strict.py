"""Strict JSON with the standard library alone, for what orjson refuses and for modules that do not load it."""

from __future__ import annotations

import json
from math import isfinite
from typing import Any

from toolnexus._unicode import clean, clean_text


def encode(value: object) -> str:
    """Encode a JSON value compactly.

    Raises:
        ValueError: There is a NaN or an infinity in it.
        TypeError: There is something in it that JSON does not have.
        RecursionError: It is nested too deeply, or holds itself.
    """
    return _ENCODE(value)


def decode(text: str) -> Any:
    """Decode JSON. Integers keep every digit; lone surrogates become U+FFFD.

    Raises:
        ValueError: It is not JSON (NaN and Infinity are not), or a number or the nesting is beyond any use.
    """
    try:
        text = clean_text(text).strip(_BLANKS)
        value, end = _DECODER.raw_decode(text)
        if end != len(text):
            raise ValueError("There is more than one JSON value.")
        # An escape is the only way left to write half a surrogate pair.
        return clean(value) if "\\u" in text else value
    except RecursionError as error:
        raise ValueError("The JSON is nested too deeply.") from error


def _finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError("A number is larger than any float.")
    return number


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON.")


_BLANKS = " \t\n\r"
_DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=_refuse_constant)
_ENCODE = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":")).encode
