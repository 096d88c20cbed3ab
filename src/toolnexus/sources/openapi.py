"""An OpenAPI document becomes tools, one for each operation."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from toolnexus import _workers
from toolnexus._endpoint import checked_headers, parsed_url
from toolnexus.errors import ConfigurationError
from toolnexus.sources.http import (
    IDEMPOTENT,
    MAX_TEXT,
    READ_ONLY,
    checked_template,
    fixed_pairs,
    origin,
    send,
    tool_of,
)
from toolnexus.sources.http_request import PLACEHOLDER, Plan, build
from toolnexus.transport import Limits

if TYPE_CHECKING:
    from toolnexus.sources.http_result import ResultMode
    from toolnexus.sources.openapi_document import Document
    from toolnexus.sources.openapi_operations import Operation
    from toolnexus.tools import Tool

_log = logging.getLogger("toolnexus")

_TOLD = 5
"""Renamed operations that are logged one by one."""

_FETCH_TIME = 60.0
"""Seconds in which a document has to arrive."""
_LIMITS = Limits(connect=10.0, first_byte=30.0, silence=30.0)


async def http_tools_from_openapi(
    source: str | os.PathLike[str] | Mapping[str, Any],
    *,
    base_url: str | None = None,
    headers: Mapping[str, str] | None = None,
    query: Mapping[str, Any] | None = None,
    include: Iterable[str] | None = None,
    exclude: Iterable[str] | None = None,
    timeout: float | None = 30.0,
    result_mode: ResultMode = "text",
    max_bytes: int = MAX_TEXT,
    needs_approval: bool = False,
) -> list[Tool]:
    """A tool for each operation of an OpenAPI document, version 3.0 or 3.1. Reading it does not stop the event loop.

    A tool is called as its `operationId`, or after method and path. Its arguments are the operation's parameters and
    the properties of its body; where two have one name, the later of path, query, header, cookie and body is called
    `query_id`, `body_id` and so on. A body that is no plain object is one argument, `body`. Files are objects with
    `text` or `base64`. GET, HEAD and OPTIONS are read-only, PUT and DELETE idempotent. An operation that refers to
    what is not there becomes a tool that a toolkit drops, saying why.

    References are followed within the document, and from a file to files beside it; they are never fetched.

    Args:
        source: A path, a URL, or the document itself. YAML needs the extra `tools`.
        base_url: Where the API is. None: the first server of the document, its variables as their defaults, relative
            to the document's URL.
        headers: Sent with every call, to whatever server the document names unless there is a `base_url`; `${NAME}` is
            an environment variable, see `http_tool`. Credentials go here: security schemes of the document are not
            followed. A parameter that they set is not the model's any more. They are sent to fetch the document only if
            it is at the origin of `base_url`.
        query: Parameters of every call, such as an API key, as `headers`.
        include: Which operations to take: an `operationId` or a tag, both perhaps with `*`, a path such as `/pets/*`,
            or a method and a path, `GET /pets/*`. None: all.
        exclude: Which of these to leave out.
        timeout: Seconds that one call may take. None: as long as the run.
        result_mode: As for `http_tool`.
        max_bytes: As for `http_tool`.
        needs_approval: As in `Tool`, for all of them.

    Raises:
        ConfigurationError: The document cannot be read, or it is not known where its server is.
        ConnectionFailed: The server of the document was not reached.
        MissingExtra: It is YAML, and the library for that is not installed.
    """
    checked = checked_headers(headers or {})
    base = None if base_url is None else checked_template(base_url, "base_url")
    if base is not None and PLACEHOLDER.search(base):
        raise ConfigurationError("base_url has a placeholder in it. Write what is meant.")
    fixed = fixed_pairs(query or {})
    given: Any = source
    fetched: bytes | None = None
    if isinstance(source, str) and "://" in source:
        given = checked_template(source, "The URL of the OpenAPI document")
        fetched = await _fetched(given, checked if base is not None and origin(base) == origin(given) else {})

    def make() -> list[Tool]:
        from toolnexus.sources.openapi_operations import Operations

        document = _document(given, fetched)
        operations = Operations(document, base_url=base, headers=checked, fixed=fixed)
        try:
            chosen = list(_unique(_chosen(operations, include, exclude)))
        except RecursionError as error:
            raise ConfigurationError("The OpenAPI document is nested too deeply.") from error
        return [
            tool_of(
                each.plan,
                name=each.id,
                description=each.description,
                input_schema=each.schema,
                timeout=timeout,
                result_mode=result_mode,
                max_bytes=max_bytes,
                read_only=each.method in READ_ONLY,
                idempotent=each.method in IDEMPOTENT,
                needs_approval=needs_approval,
            )
            for each in chosen
        ]

    return await _workers.run(make)


async def _fetched(url: str, headers: Mapping[str, str]) -> bytes:
    await _workers.run(importlib.import_module, "toolnexus.sources.openapi_operations")  # libraries, some 50 ms
    from toolnexus.sources.openapi_document import MAX_DOCUMENT

    request = build(Plan(method="GET", url=url, headers=headers), {}, os.environ)
    parts = parsed_url(url, "The URL of the OpenAPI document")
    shown = f"{parts.scheme}://{parts.netloc}{parts.path}"
    try:
        async with asyncio.timeout(_FETCH_TIME):
            answer = await send(request, _LIMITS, MAX_DOCUMENT)
    except TimeoutError as error:
        raise ConfigurationError(f"The OpenAPI document at {shown} did not arrive in {_FETCH_TIME:g} s.") from error
    if answer.status != 200:
        raise ConfigurationError(f"There is no OpenAPI document at {shown}: HTTP {answer.status}.")
    if answer.cut:
        raise ConfigurationError(f"The OpenAPI document at {shown} is larger than {MAX_DOCUMENT:,} bytes.")
    return answer.body


def _document(source: Any, fetched: bytes | None) -> Document:
    from toolnexus.sources import openapi_document

    if fetched is not None:
        return openapi_document.from_bytes(fetched, source)
    if isinstance(source, Mapping):
        return openapi_document.from_mapping(cast("Mapping[str, Any]", source))
    if isinstance(source, str | os.PathLike) and "\n" not in (path := os.fspath(cast("str", source))):
        return openapi_document.from_file(Path(path))
    kind = type(cast("object", source)).__name__
    raise ConfigurationError(
        f"An OpenAPI document is given as a path, a URL or a mapping, not as a {kind}. Of a text, give what json.loads "
        "or yaml.safe_load returns."
    )


def _chosen(
    operations: Iterable[Operation], include: Iterable[str] | None, exclude: Iterable[str] | None
) -> Iterator[Operation]:
    wanted, unwanted = None if include is None else [*include], [*(exclude or ())]
    unmatched = {*(wanted or ()), *unwanted}
    for operation in operations:
        hits = {pattern for pattern in (*(wanted or ()), *unwanted) if _matches(pattern, operation)}
        unmatched -= hits
        if (wanted is None or not hits.isdisjoint(wanted)) and hits.isdisjoint(unwanted):
            yield operation
    if unmatched:
        listed = ", ".join(map(repr, sorted(unmatched)))
        _log.warning("No operation of the OpenAPI document is meant by %s.", listed)


def _matches(pattern: str, operation: Operation) -> bool:
    if pattern.startswith("/"):
        return fnmatchcase(operation.path, _literal(pattern))
    method, space, path = pattern.partition(" ")
    if space and path.startswith("/"):
        return method.upper() in ("*", operation.method) and fnmatchcase(operation.path, _literal(path))
    return any(fnmatchcase(name, pattern) for name in (operation.id, *operation.tags))


def _literal(path: str) -> str:
    return path.replace("[", "[[]")


def _unique(operations: Iterable[Operation]) -> Iterator[Operation]:
    """The same operations, none with the name of another."""
    from toolnexus.sources.openapi_operations import renamed
    from toolnexus.sources.openapi_schemas import unused

    taken: set[str] = set()
    told = 0
    for operation in operations:
        name = unused(operation.id, taken)
        if name != operation.id:
            told += 1
            if told <= _TOLD:  # writing hundreds of lines in a row keeps other threads from running
                _log.warning("%s %s is called %r: %r is taken.", operation.method, operation.path, name, operation.id)
            operation = renamed(operation, name)
        taken.add(name)
        yield operation
    if told > _TOLD:
        _log.warning("%d more operations have names that were taken before, and are numbered.", told - _TOLD)
