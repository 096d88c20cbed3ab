"""The operations of an OpenAPI document, each as a plan of its request and a schema of its arguments."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urljoin

from toolnexus.errors import ConfigurationError
from toolnexus.sources.http import as_file, checked_template, is_file
from toolnexus.sources.http_request import CONTENT_TYPES, PLACEHOLDER, Body, BodyKind, Parameter, Plan
from toolnexus.sources.openapi_document import BrokenReference, Document
from toolnexus.sources.openapi_schemas import Schemas, texts, unused

if TYPE_CHECKING:
    from toolnexus.tools import JSONObject

_log = logging.getLogger("toolnexus")

_METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace", "query")
_LOCATIONS = ("path", "query", "header", "cookie")
_STYLES = {"path": "simple", "query": "form", "header": "simple", "cookie": "form"}
_NOT_PARAMETERS = frozenset({"accept", "content-type", "authorization"})
"""Header parameters that OpenAPI says to ignore."""
_FLAT = frozenset({"type", "properties", "required", "title", "description", "additionalProperties", "example"}) | {
    *(
        "examples",
        "nullable",
        "deprecated",
        "default",
        "externalDocs",
        "xml",
        "readOnly",
        "writeOnly",
        "$schema",
        "$id",
    ),
    *("$comment", "$defs", "definitions"),
}
"""What a body may say if its properties are to be arguments on their own. What says more would lose its meaning."""
_LONGEST_DESCRIPTION = 1000
_LONGEST_ARGUMENT = 64
_JSON = re.compile(r"application/(?:[\w.+-]+\+)?json\b|\*/\*$", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation.

    Attributes:
        id: Its `operationId`, or a name made of method and path.
        path: As the document has it.
    """

    id: str
    method: str
    path: str
    tags: tuple[str, ...]
    description: str
    schema: JSONObject
    plan: Plan


@dataclass(slots=True)
class _Arguments:
    """The arguments of one operation while they are collected."""

    properties: JSONObject = field(default_factory=dict[str, Any])
    required: list[str] = field(default_factory=list[str])
    uses: set[str] = field(default_factory=set[str])

    def add(self, name: str, place: str, schema: Any, *, required: bool) -> str:
        """Take an argument in. The first of a name keeps it; the next one's is its place before its name."""
        plain = re.sub(r"[^A-Za-z0-9_.-]+", "_", name).strip("_")[:_LONGEST_ARGUMENT] or place
        if plain in self.properties:
            plain = unused(f"{place}_{plain}", self.properties)
        self.properties[plain] = schema
        if required:
            self.required.append(plain)
        return plain


class Operations:
    """Goes through the operations of a document."""

    def __init__(
        self,
        document: Document,
        *,
        base_url: str | None,
        headers: Mapping[str, str],
        fixed: Sequence[tuple[str, str]],
    ) -> None:
        self._document = document
        self._schemas = Schemas(document)
        self._base_url = base_url
        self._headers = headers
        self._fixed = tuple(fixed)
        self._given = {"header": {*headers}, "query": {name for name, _ in fixed}}
        self._templates: dict[str, str] = {}

    def __iter__(self) -> Iterator[Operation]:
        """All operations, in the order of the document.

        Raises:
            ConfigurationError: It is not known where the server is.
        """
        for path, given in _object(self._document.contents.get("paths")).items():
            if path.startswith("x-"):
                continue
            try:
                item, base = self._document.follow(given, self._document.base)
            except BrokenReference as error:
                yield _broken("get", path, {}, str(error))
                continue
            item = _object(item)
            for method in _METHODS:
                if isinstance(item.get(method), dict):
                    yield from self._operation(method, path, cast("JSONObject", item[method]), item, base)

    def _operation(self, method: str, path: str, given: JSONObject, item: JSONObject, base: str) -> Iterator[Operation]:
        server = self._base_url or self._server(
            given.get("servers") or item.get("servers") or self._document.contents.get("servers")
        )
        try:
            url = checked_template(_joined(server, path), f"The URL of {path!r}")
        except ConfigurationError as error:
            _log.warning("%s %s of the OpenAPI document is left out. %s", method.upper(), path, error)
            return
        try:
            plan, schema = self._request(method, path, url, given, item, base)
        except BrokenReference as error:
            yield _broken(method, path, given, str(error))
        else:
            yield _named(method, path, given, schema=schema, plan=plan)

    def _request(
        self, method: str, path: str, url: str, given: JSONObject, item: JSONObject, base: str
    ) -> tuple[Plan, JSONObject]:
        arguments = _Arguments()
        parameters = self._parameters(item, given, base)
        placed: dict[str, list[Parameter]] = {location: [] for location in _LOCATIONS}
        in_path = list(dict.fromkeys(PLACEHOLDER.findall(path.partition("#")[0])))
        for name in in_path:
            parameters.setdefault(("path", name), ({}, base))
        for location in _LOCATIONS:
            for (where, name), (parameter, inside) in parameters.items():
                if where != location or (location == "path" and name not in in_path):
                    continue
                if (name.lower() if location == "header" else name) in self._given.get(location, ()):
                    continue  # the host has said it
                placed[location].append(self._placed(location, name, parameter, inside, arguments))
        body = self._body(given.get("requestBody"), base, arguments)
        schema: JSONObject = {"type": "object", "properties": arguments.properties, "additionalProperties": False}
        if arguments.required:
            schema["required"] = arguments.required
        if arguments.uses:
            schema["$defs"] = self._schemas.definitions(arguments.uses)
        accept = {} if "accept" in self._headers else self._accept(given, base)
        plan = Plan(
            method=method.upper(),
            url=url,
            path=tuple(placed["path"]),
            query=tuple(placed["query"]),
            header=tuple(placed["header"]),
            cookie=tuple(placed["cookie"]),
            fixed=self._fixed,
            headers={**accept, **self._headers},
            body=body,
        )
        return plan, schema

    def _server(self, servers: Any) -> str:
        """The address of the first server, its variables as their defaults."""
        first = _object(cast("list[Any]", servers)[0]) if isinstance(servers, list) and servers else {}
        variables = _object(first.get("variables"))

        def value(match: re.Match[str]) -> str:
            default = _object(variables.get(match[1])).get("default")
            if default is None:
                raise ConfigurationError(
                    f"The document's server has the variable {match[1]!r} without a default. Give base_url=."
                )
            return str(default)

        template = str(first.get("url") or "/")
        known = self._templates.get(template)
        if known is None:
            address = re.sub(r"\{([^{}]+)\}", value, template)
            try:
                known = urljoin(self._document.address, address)
            except ValueError:  # such as a host in brackets that is no address
                known = ""
            if not known.lower().startswith(("http://", "https://")):
                raise ConfigurationError(
                    f"The document does not say where its server is ({address[:200]!r}). Give base_url=."
                )
            self._templates[template] = known
        return known

    def _parameters(
        self, item: JSONObject, given: JSONObject, base: str
    ) -> dict[tuple[str, str], tuple[JSONObject, str]]:
        """By location and name, those of the operation in the place of those of its path."""
        found: dict[tuple[str, str], tuple[JSONObject, str]] = {}
        for listed in (item.get("parameters"), given.get("parameters")):
            for each in cast("list[Any]", listed) if isinstance(listed, list) else []:
                parameter, inside = self._document.follow(each, base)
                match parameter:
                    case {"in": "header", "name": str(name)} if name.lower() in _NOT_PARAMETERS:
                        continue
                    case {"in": "path" | "query" | "header" | "cookie" as location, "name": str(name)}:
                        found[location, name] = cast("JSONObject", parameter), inside
                    case _:
                        continue
        return found

    def _placed(self, location: str, name: str, given: JSONObject, base: str, arguments: _Arguments) -> Parameter:
        content = _object(given.get("content"))
        kind = next(iter(content), "")
        described = _object(content[kind]) if content else given
        schema = self._schemas.translate(described.get("schema"), base, arguments.uses)
        schema = _described(schema if "schema" in described else {"type": "string"}, given)
        required = location == "path" or given.get("required") is True
        argument = arguments.add(name, location, schema, required=required)
        style = str(given.get("style") or _STYLES[location])
        explode = given.get("explode")
        return Parameter(
            name=name,
            argument=argument,
            style=style,
            explode=explode if isinstance(explode, bool) else style == "form",
            reserved=given.get("allowReserved") is True,
            as_json=_JSON.match(kind) is not None,
        )

    def _body(self, given: Any, base: str, arguments: _Arguments) -> Body | None:
        if not isinstance(given, dict):
            return None
        found, base = self._document.follow(cast("JSONObject", given), base)
        request = _object(found)
        content = _object(request.get("content"))
        if not content:
            return None
        required = request.get("required") is True
        content_type = min(content, key=_preference)
        medium = _object(content[content_type])
        kind = _kind(content_type)
        sent_as = CONTENT_TYPES[kind] if "*" in content_type else content_type
        given_schema: Any = medium.get("schema", {})
        if kind == "raw":
            return self._raw(request, given_schema, base, sent_as, arguments, required=required)
        if kind == "multipart":
            sent_as = content_type.partition(";")[0].strip()
        schema, inside = self._document.follow(given_schema, base)
        schema = _object(schema)
        if _is_flat(schema) or (kind != "json" and schema.get("properties")):
            encoding = _object(medium.get("encoding"))
            fields = tuple(self._fields(kind, schema, inside, encoding, arguments, required=required))
            return Body(kind=kind, content_type=sent_as, fields=fields, required=required)
        whole = _described(self._schemas.translate(given_schema, base, arguments.uses), request)
        argument = arguments.add("body", "request", whole, required=required)
        return Body(kind=kind, content_type=sent_as, whole=argument, required=required)

    def _raw(
        self, request: JSONObject, schema: Any, base: str, content_type: str, arguments: _Arguments, *, required: bool
    ) -> Body:
        schema, _ = self._document.follow(schema, base)
        textual = re.match(r"text/|application/(?:[\w.+-]+\+)?(?:xml|yaml|x-ndjson|jsonl)\b", content_type)
        file = textual is None or is_file(_object(schema))
        if file and content_type == CONTENT_TYPES["raw"]:
            content_type = "application/octet-stream"
        shown: JSONObject = as_file({}) if file else {"type": "string"}
        if not file:
            shown = _described(shown, request)
        argument = arguments.add("body", "request", shown, required=required)
        return Body(kind="raw", content_type=content_type, whole=argument, file=file, required=required)

    def _fields(
        self,
        kind: BodyKind,
        schema: JSONObject,
        base: str,
        encoding: JSONObject,
        arguments: _Arguments,
        *,
        required: bool,
    ) -> Iterator[Parameter]:
        """The properties of a body, each an argument."""
        needed = texts(schema.get("required")) if required else []
        for name, given in _object(schema.get("properties")).items():
            if self._schemas.is_read_only(given, base):
                continue
            resolved, _ = self._document.follow(given, base)
            file = kind == "multipart" and (is_file(_object(resolved)) or resolved == {})
            shown = as_file(_object(resolved)) if file else self._schemas.translate(given, base, arguments.uses)
            argument = arguments.add(name, "body", shown, required=name in needed)
            how = _object(encoding.get(name))
            content_type = str(how.get("contentType") or "").partition(",")[0].strip()
            style = str(how.get("style") or "")
            explode = how.get("explode")
            yield Parameter(
                name=name,
                argument=argument,
                style=style,
                explode=explode if isinstance(explode, bool) else style in ("", "form"),
                reserved=how.get("allowReserved") is True,
                as_json=_JSON.match(content_type) is not None,
                file=file,
                content_type="" if "*" in content_type else content_type,
            )

    def _accept(self, given: JSONObject, base: str) -> dict[str, str]:
        """Ask for JSON where there is some."""
        for status, response in _object(given.get("responses")).items():
            if str(status).startswith("2"):
                try:
                    found, _ = self._document.follow(response, base)
                except BrokenReference:
                    continue
                if any(_JSON.match(kind) for kind in _object(_object(found).get("content"))):
                    return {"accept": "application/json, */*;q=0.5"}
        return {}


def _object(value: Any) -> JSONObject:
    return cast("JSONObject", value) if isinstance(value, dict) else {}


def _joined(server: str, path: str) -> str:
    beginning, question, query = server.partition("?")
    if "?" in path:
        question, query = ("&", query) if query else ("", "")
    return f"{beginning.rstrip('/')}/{path.partition('#')[0].lstrip('/')}{question}{query}"


def _broken(method: str, path: str, given: JSONObject, reference: str) -> Operation:
    """An operation that refers to what is not there. With this schema a toolkit drops it, and says why."""
    plan = Plan(method=method.upper(), url="")
    return _named(method, path, given, schema={"type": "object", "$ref": reference}, plan=plan)


def _named(method: str, path: str, given: JSONObject, *, schema: JSONObject, plan: Plan) -> Operation:
    identity = given.get("operationId")
    made = re.sub(r"\W+", "_", f"{method} {path}", flags=re.ASCII).strip("_")
    return Operation(
        id=identity.strip() if isinstance(identity, str) and identity.strip() else made,
        method=method.upper(),
        path=path,
        tags=tuple(texts(given.get("tags"))),
        description=_description(method, path, given),
        schema=schema,
        plan=plan,
    )


def _description(method: str, path: str, given: JSONObject) -> str:
    """Summary and description, cut where a sentence, or at least a word, ends."""
    said = [text.strip() for key in ("summary", "description") if isinstance(text := given.get(key), str)]
    summary, *more = [text for text in said if text] or [f"{method.upper()} {path}"]
    text = "\n\n".join([summary, *(each for each in more if each != summary)])
    if given.get("deprecated") is True:
        text = f"(Deprecated.) {text}"
    if len(text) <= _LONGEST_DESCRIPTION:
        return text
    head = text[: _LONGEST_DESCRIPTION - 1]
    end = max(head.rfind(mark) + 1 for mark in (". ", ".\n", "\n\n"))
    if end < _LONGEST_DESCRIPTION // 2:
        end = max(head.rfind(" "), _LONGEST_DESCRIPTION // 2)
    return f"{head[:end].rstrip()} …"


def _described(schema: Any, given: JSONObject) -> Any:
    """A schema with what is said about the parameter that has it, which counts for more."""
    if not isinstance(schema, dict):
        schema = {} if schema is True else {"not": {}}
    about: JSONObject = {}
    if isinstance(given.get("description"), str) and given["description"].strip():
        about["description"] = given["description"].strip()
    if given.get("deprecated") is True:
        about["deprecated"] = True
    if "example" in given:
        about["examples"] = [given["example"]]
    return {**cast("JSONObject", schema), **about}


def _is_flat(schema: JSONObject) -> bool:
    """Whether a body is a plain object, whose properties can be arguments on their own."""
    return (
        bool(_object(schema.get("properties")))
        and schema.get("type", "object") in ("object", ["object"])
        and schema.get("additionalProperties", False) is False
        and all(key in _FLAT or key.startswith("x-") for key in schema)
    )


def _kind(content_type: str) -> BodyKind:
    media_type = content_type.partition(";")[0].strip().lower()
    if _JSON.match(media_type):
        return "json"
    if media_type.startswith("multipart/"):
        return "multipart"
    return "form" if media_type == CONTENT_TYPES["form"] else "raw"


def _preference(content_type: str) -> tuple[int, bool]:
    """What a body is best sent as, the least first."""
    kind = _kind(content_type)
    order = ("json", "multipart", "form", "raw").index(kind)
    return order, not content_type.lower().startswith(("application/json", "text/"))


def renamed(operation: Operation, name: str) -> Operation:
    """The same operation under another name."""
    return replace(operation, id=name)
