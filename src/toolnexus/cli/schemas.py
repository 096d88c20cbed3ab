"""The JSON Schema that an answer has to fit, as a person gives it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

from toolnexus.cli.exits import Misused

_LONGEST = 4_000_000
"""Characters of a schema."""


def read_schema(given: str) -> dict[str, Any]:
    """The JSON Schema that an answer has to fit: the text itself if it begins with a brace, else that of a file.

    Raises:
        Misused: There is no such file, or it holds no JSON object. The message says where.
    """
    text, where = given, "--schema"
    if not given.lstrip().startswith("{"):
        where = f"The schema {given!r}"
        try:
            with Path(given).expanduser().open(encoding="utf-8-sig") as file:
                text = file.read(_LONGEST + 1)  # which may be a device that never ends
        except (OSError, ValueError, RuntimeError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            raise Misused(f"{where} cannot be read: {why}. Give a file, or a JSON object: {{…}}.") from error
        if len(text) > _LONGEST:
            raise Misused(f"{where} is longer than any schema: {_LONGEST / 1e6:g} million characters are read.")
    try:
        schema: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Misused(f"{where} is no JSON: {error}.") from error
    if not isinstance(schema, dict):
        raise Misused(f"{where} is no JSON object. A schema looks like " + '{"type": "object", "properties": …}.')
    return cast("dict[str, Any]", schema)
