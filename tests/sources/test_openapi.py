"""OpenAPI documents as tools: what a model is shown, and what is sent for it."""

from __future__ import annotations

import asyncio
import base64
import datetime
import json
import logging
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from aiohttp import web
from echo import echo_server
from heartbeat import heartbeat
from hypothesis import given, settings
from hypothesis import strategies as st
from local import said, server

from toolnexus import Tool, ToolResult, create_client, create_toolkit
from toolnexus.errors import ConfigurationError
from toolnexus.sources.openapi import http_tools_from_openapi
from toolnexus.sources.openapi_yaml import load

PETSTORE_3_0 = """
openapi: 3.0.3
info: {title: Petstore, version: 2020-01-01}
servers:
  - url: '{scheme}://127.0.0.1:{port}/{base}'
    variables:
      scheme: {default: http, enum: [http, https]}
      port: {default: PORT}
      base: {default: v1}
paths:
  /pets:
    parameters:
      - {name: trace, in: header, schema: {type: string}}
      - {name: limit, in: query, schema: {type: integer, maximum: 5}}
    get:
      operationId: listPets
      tags: [pets]
      summary: List all pets
      description: Lists them.
      parameters:
        - {name: limit, in: query, description: How many., schema: {type: integer, minimum: 0, exclusiveMinimum: true}}
        - {name: session, in: cookie, schema: {type: string}}
        - {name: Authorization, in: header, schema: {type: string}}
      responses:
        200: {description: ok, content: {application/json: {schema: {type: array}}}}
    post:
      operationId: createPet
      tags: [pets, admin]
      requestBody:
        required: true
        content:
          application/json:
            schema: {$ref: '#/components/schemas/Pet'}
      responses: {'201': {description: ok}}
  /pets/{petId}:
    parameters:
      - $ref: '#/components/parameters/PetId'
    get:
      operationId: getPet
      responses: {default: {description: ok}}
    put:
      operationId: updatePet
      requestBody: {$ref: '#/components/requestBodies/Update'}
      responses: {default: {description: ok}}
    delete:
      deprecated: true
      responses: {default: {description: ok}}
components:
  parameters:
    PetId: {name: petId, in: path, required: true, schema: {type: string, format: uuid, example: abc}}
  requestBodies:
    Update:
      content:
        application/json:
          schema:
            type: object
            properties: {petId: {type: string}, name: {type: string}}
            required: [name]
  schemas:
    Pet:
      type: object
      required: [id, name, kind]
      properties:
        id: {type: integer, readOnly: true}
        name: {type: string, example: Rex}
        kind: {type: string, nullable: true, enum: [cat, dog]}
        born: {type: string, format: date, default: 2020-01-01}
        parent: {$ref: '#/components/schemas/Animal'}
        vet: {nullable: true, allOf: [{$ref: '#/components/schemas/Vet'}]}
        secret: {type: string, writeOnly: true}
    Animal:
      type: object
      properties:
        name: {type: string}
        key: {$ref: '#/components/schemas/Key'}
        children: {type: array, items: {$ref: '#/components/schemas/Animal'}}
    Key: {type: integer, readOnly: true}
    Vet: {type: object, properties: {name: {type: string}}, required: [name]}
"""


def petstore(url: str) -> str:
    return PETSTORE_3_0.replace("PORT", url.rpartition(":")[2])


def document(paths: dict[str, Any], version: str = "3.1.0", **more: Any) -> dict[str, Any]:
    return {"openapi": version, "info": {"title": "T", "version": "1"}, "paths": paths, **more}


def operation(*parameters: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"operationId": "op", "parameters": list(parameters), "responses": {"200": {"description": "ok"}}, **more}


def body(kind: str, schema: Any, *, required: bool = True, **more: Any) -> dict[str, Any]:
    return {"requestBody": {"required": required, "content": {kind: {"schema": schema, **more}}}}


async def by_name(source: Any, **options: Any) -> dict[str, Tool]:
    return {tool.name: tool for tool in await http_tools_from_openapi(source, **options)}


async def one(
    url: str, method: str, given: dict[str, Any], path: str = "/x", version: str = "3.1.0", **more: Any
) -> Tool:
    [tool] = await http_tools_from_openapi(document({path: {method: given}}, version, **more), base_url=url)
    jsonschema.Draft202012Validator.check_schema(tool.input_schema)
    return tool


async def call(tool: Tool, **args: Any) -> ToolResult:
    async with await create_toolkit([tool]) as kit:
        assert [status.state for status in kit.status()] == ["ready"], kit.status()
        return await kit.execute(tool.name, args)


# The petstore


async def test_the_petstore_of_3_0_becomes_tools(tmp_path: Path) -> None:
    (tmp_path / "petstore.yaml").write_text(petstore("http://x:80"), encoding="utf-8")
    tools = await by_name(tmp_path / "petstore.yaml")
    assert list(tools) == ["listPets", "createPet", "getPet", "updatePet", "delete_pets_petId"]
    assert tools["listPets"].description == "List all pets\n\nLists them."
    assert tools["delete_pets_petId"].description == "(Deprecated.) DELETE /pets/{petId}"
    assert [(each.read_only, each.idempotent, each.source) for each in tools.values()] == [
        (True, True, "http"),
        (False, False, "http"),
        (True, True, "http"),
        (False, True, "http"),
        (False, True, "http"),
    ]
    assert tools["listPets"].input_schema == {
        "type": "object",
        "properties": {
            "limit": {"type": "integer", "exclusiveMinimum": 0, "description": "How many."},
            "trace": {"type": "string"},
            "session": {"type": "string"},
        },
        "additionalProperties": False,
    }
    animal = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#/$defs/Animal"}}},
    }
    assert tools["createPet"].input_schema == {
        "type": "object",
        "properties": {
            "limit": {"type": "integer", "maximum": 5},
            "trace": {"type": "string"},
            "name": {"type": "string", "examples": ["Rex"]},
            "kind": {"type": ["string", "null"], "enum": ["cat", "dog", None]},
            "born": {"type": "string", "format": "date", "default": "2020-01-01"},
            "parent": {"$ref": "#/$defs/Animal"},
            "vet": {"anyOf": [{"allOf": [{"$ref": "#/$defs/Vet"}]}, {"type": "null"}]},
            "secret": {"type": "string"},
        },
        "required": ["name", "kind"],
        "additionalProperties": False,
        "$defs": {
            "Animal": animal,
            "Vet": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
        },
    }
    assert tools["updatePet"].input_schema["properties"] == {
        "petId": {"type": "string", "format": "uuid", "examples": ["abc"]},
        "body_petId": {"type": "string"},
        "name": {"type": "string"},
    }
    assert tools["updatePet"].input_schema["required"] == ["petId"]  # the body may be left out


async def test_an_agent_calls_three_operations_of_a_document_that_its_server_gives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TN_TOKEN", "petstore-token")
    pets = {"1": {"id": 1, "name": "Rex"}}

    def answer(got: Any) -> Any:
        match got.method, got.path:
            case "GET", "/openapi.yaml":
                return petstore(api.url)
            case "GET", "/v1/pets":
                return [*pets.values()]
            case "POST", "/v1/pets":
                return {"id": 2, **json.loads(got.body)}
            case _, path:
                return pets.get(path.rpartition("/")[2], {"token": got.headers["authorization"]})

    def model(seen: Any) -> Any:
        steps = [
            ("listPets", {"limit": 3, "trace": "t"}),
            ("createPet", {"name": "Tom", "kind": "cat", "parent": {"children": [{"children": []}]}}),
            ("getPet", {"petId": "nobody/../7"}),
            ("getPet", {"petId": "42"}),
        ]
        return said(None, steps[seen.number - 1]) if seen.number <= len(steps) else said("Done.")

    async with echo_server(answer) as api, server(model) as provider:
        tools = await http_tools_from_openapi(
            f"{api.url}/openapi.yaml", headers={"Authorization": "Bearer ${TN_TOKEN}"}
        )
        assert "authorization" not in api.got[0].headers  # nobody said that the document is where the API is
        async with create_client("m", base_url=provider.url, style="openai", api_key="k") as client:
            result = await client.run("Look at the pets.", tools)
        assert result.text == "Done."
        outputs = [message["content"] for message in result.messages if message["role"] == "tool"]
        assert json.loads(outputs[0]) == [{"id": 1, "name": "Rex"}]
        assert json.loads(outputs[1])["parent"] == {"children": [{"children": []}]}
        assert "step out" in outputs[2]
        assert outputs[3] == '{"token": "[redacted]"}'
        assert [(got.method, got.raw, got.headers.get("trace")) for got in api.got[1:]] == [
            ("GET", "/v1/pets?limit=3", "t"), ("POST", "/v1/pets", None), ("GET", "/v1/pets/42", None),
        ]  # fmt: skip
        assert api.got[1].headers["accept"].startswith("application/json")


async def test_type_lists_and_references_with_neighbours_of_3_1() -> None:
    tool = await one(
        "http://h",
        "post",
        operation(
            {"name": "since", "in": "query", "schema": {"type": ["string", "null"], "format": "date"}},
            **body("application/json", {"$ref": "#/components/schemas/Pet"}),
        ),
        components={
            "schemas": {
                "Pet": {
                    "type": ["object"],
                    "properties": {
                        "id": {"type": "integer", "readOnly": True},
                        "age": {"type": ["integer", "null"], "exclusiveMinimum": 0},
                        "friend": {"$ref": "#/components/schemas/Pet", "description": "Its friend."},
                        "pair": {"type": "array", "prefixItems": [{"type": "string"}, {"const": 1}], "items": False},
                        "any": True,
                    },
                    "required": ["id", "age"],
                }
            }
        },
    )
    pet = {
        "age": {"type": ["integer", "null"], "exclusiveMinimum": 0},
        "friend": {"$ref": "#/$defs/Pet", "description": "Its friend."},
        "pair": {"type": "array", "prefixItems": [{"type": "string"}, {"const": 1}], "items": False},
        "any": True,
    }
    assert tool.input_schema == {
        "type": "object",
        "properties": {"since": {"type": ["string", "null"], "format": "date"}, **pet},
        "required": ["age"],
        "additionalProperties": False,
        "$defs": {"Pet": {"type": ["object"], "properties": pet, "required": ["age"]}},
    }


# Parameters

IDS, FLAGS = [3, 4, "a b"], {"R": 100, "G": "a,b"}


@pytest.mark.parametrize(
    ("how", "value", "raw"),
    [
        ({}, IDS, "id=3&id=4&id=a%20b"),
        ({"explode": False}, IDS, "id=3,4,a%20b"),
        ({"style": "spaceDelimited", "explode": False}, IDS, "id=3%204%20a%20b"),
        ({"style": "pipeDelimited", "explode": False}, IDS, "id=3%7C4%7Ca%20b"),
        ({"style": "pipeDelimited", "explode": True}, IDS, "id=3&id=4&id=a%20b"),
        ({}, FLAGS, "R=100&G=a%2Cb"),
        ({"explode": False}, FLAGS, "id=R,100,G,a%2Cb"),
        ({"style": "deepObject"}, FLAGS, "id%5BR%5D=100&id%5BG%5D=a%2Cb"),
        ({"style": "deepObject"}, {"a": {"b": [True]}, "n": None}, "id%5Ba%5D%5Bb%5D%5B0%5D=true"),
        ({"allowReserved": True}, "a/b?c=&d", "id=a/b?c=%26d"),
        ({}, [], ""),
        ({}, None, ""),
        ({}, True, "id=true"),
    ],
)  # fmt: skip
async def test_the_styles_of_a_query(how: dict[str, Any], value: Any, raw: str) -> None:
    async with echo_server() as api:
        tool = await one(api.url, "get", operation({"name": "id", "in": "query", "schema": {}, **how}))
        await call(tool, id=value)
        assert api.last.raw.partition("?")[2] == raw


@pytest.mark.parametrize(
    ("how", "value", "raw"),
    [
        ({}, "a/b", "/x/a%2Fb/y"),
        ({}, IDS, "/x/3,4,a%20b/y"),
        ({}, FLAGS, "/x/R,100,G,a%2Cb/y"),
        ({"explode": True}, FLAGS, "/x/R=100,G=a%2Cb/y"),
        ({"style": "label"}, IDS, "/x/.3,4,a%20b/y"),
        ({"style": "label", "explode": True}, IDS, "/x/.3.4.a%20b/y"),
        ({"style": "matrix"}, IDS, "/x/;id=3,4,a%20b/y"),
        ({"style": "matrix", "explode": True}, IDS, "/x/;id=3;id=4;id=a%20b/y"),
        ({"style": "matrix", "explode": True}, FLAGS, "/x/;R=100;G=a%2Cb/y"),
    ],
)
async def test_the_styles_of_a_path(how: dict[str, Any], value: Any, raw: str) -> None:
    async with echo_server() as api:
        given = operation({"name": "id", "in": "path", "required": True, "schema": {}, **how})
        await call(await one(api.url, "get", given, "/x/{id}/y"), id=value)
        assert api.last.raw == raw


async def test_header_and_cookie_parameters_and_json_content() -> None:
    async with echo_server() as api:
        tool = await one(
            api.url,
            "get",
            operation(
                {"name": "X-Ids", "in": "header", "schema": {"type": "array"}},
                {"name": "session", "in": "cookie", "schema": {"type": "string"}},
                {"name": "theme", "in": "cookie", "schema": {"type": "string"}},
                {"name": "filter[a]", "in": "query", "content": {"application/json": {"schema": {"type": "object"}}}},
            ),
        )
        assert list(tool.input_schema["properties"]) == ["filter_a", "X-Ids", "session", "theme"]
        await call(tool, **{"X-Ids": [1, 2], "session": "a;b", "theme": "dark", "filter_a": {"k": [1]}})
        assert api.last.headers["x-ids"] == "1,2"
        assert api.last.headers["cookie"] == "session=a%3Bb; theme=dark"
        assert api.last.query == [("filter[a]", '{"k":[1]}')]


async def test_one_name_in_all_places_is_resolved_in_their_order() -> None:
    async with echo_server() as api:
        places = [
            {"name": "id", "in": place, "schema": {"type": "string"}} for place in ("cookie", "header", "query", "path")
        ]
        given = operation(
            *places, **body("application/json", {"type": "object", "properties": {"id": {}, "body_id": {}}})
        )
        tool = await one(api.url, "post", given, "/x/{id}")
        names = ["id", "query_id", "header_id", "cookie_id", "body_id", "body_body_id"]
        assert list(tool.input_schema["properties"]) == names
        await call(tool, **{name: name for name in names})
        assert api.last.raw == "/x/id?id=query_id"
        assert (api.last.headers["id"], api.last.headers["cookie"]) == ("header_id", "id=cookie_id")
        assert json.loads(api.last.body) == {"id": "body_id", "body_id": "body_body_id"}


async def test_what_the_host_sets_is_not_the_models() -> None:
    source = document(
        {
            "/x": {
                "get": operation(
                    {"name": "X-Api-Key", "in": "header", "required": True, "schema": {"type": "string"}},
                    {"name": "key", "in": "query", "required": True, "schema": {"type": "string"}},
                    {"name": "q", "in": "query", "schema": {"type": "string"}},
                )
            }
        }
    )
    async with echo_server() as api:
        [tool] = await http_tools_from_openapi(
            source, base_url=api.url, headers={"x-api-key": "abc"}, query={"key": "def"}
        )
        assert tool.input_schema == {
            "type": "object",
            "properties": {"q": {"type": "string"}},
            "additionalProperties": False,
        }
        await call(tool, q="1")
        assert (api.last.headers["x-api-key"], api.last.raw) == ("abc", "/x?key=def&q=1")


# Bodies


async def test_a_form_body() -> None:
    schema = {
        "type": "object",
        "properties": {
            "tags": {"type": "array"},
            "at": {"type": "object"},
            "deep": {"type": "object"},
            "ok": {"type": "boolean"},
        },
    }
    encoding = {"deep": {"style": "deepObject", "explode": True}}
    async with echo_server() as api:
        tool = await one(
            api.url, "post", operation(**body("application/x-www-form-urlencoded", schema, encoding=encoding))
        )
        await call(tool, tags=["a b", "c&d"], at={"x": 1}, deep={"k": {"l": 2}}, ok=True)
        assert api.last.headers["content-type"] == "application/x-www-form-urlencoded"
        assert api.last.form == [
            ("tags", "a b"),
            ("tags", "c&d"),
            ("at", '{"x":1}'),
            ("deep[k][l]", "2"),
            ("ok", "true"),
        ]


@pytest.mark.parametrize(
    ("version", "file"),
    [("3.0.3", {"type": "string", "format": "binary"}), ("3.1.0", {"contentMediaType": "image/png"}), ("3.1.0", {})],
)
async def test_a_multipart_body_with_files(version: str, file: dict[str, Any]) -> None:
    schema = {
        "type": "object",
        "required": ["file"],
        "properties": {"file": file, "meta": {"type": "object"}, "n": {"type": "integer"}},
    }
    async with echo_server() as api:
        encoding = {"file": {"contentType": "image/png, image/jpeg"}}
        tool = await one(
            api.url, "post", operation(**body("multipart/form-data", schema, encoding=encoding)), version=version
        )
        assert tool.input_schema["required"] == ["file"]
        data = base64.b64encode(b"\x89PNG\xff").decode()
        result = await call(tool, file={"base64": data, "filename": "a.png"}, meta={"k": 1}, n=2)
        assert result.output == "ok"
        assert [(part["name"], part["filename"], part["data"]) for part in api.parts[0]] == [
            ("file", "a.png", b"\x89PNG\xff"), ("meta", None, b'{"k":1}'), ("n", None, b"2"),
        ]  # fmt: skip
        assert api.parts[0][0]["headers"]["content-type"] == "image/png"


async def test_text_and_binary_bodies() -> None:
    async with echo_server() as api:
        tool = await one(api.url, "post", operation(**body("text/csv", {"type": "string"})))
        await call(tool, body="a,ä\n")
        assert (api.last.body, api.last.headers["content-type"]) == ("a,ä\n".encode(), "text/csv")
        tool = await one(api.url, "put", operation(**body("application/zip", {"type": "string", "format": "binary"})))
        await call(tool, body={"base64": base64.b64encode(b"PK\0\xff").decode()})
        assert (api.last.body, api.last.headers["content-type"]) == (b"PK\0\xff", "application/zip")


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": {"type": "integer"}},
        {"oneOf": [{"type": "integer"}, {"type": "array"}]},
        {"allOf": [{"$ref": "#/components/schemas/A"}, {"type": "array"}]},
        {},
    ],
)
async def test_a_body_that_is_no_plain_object_is_one_argument(schema: dict[str, Any]) -> None:
    async with echo_server() as api:
        given = operation({"name": "body", "in": "query", "schema": {}}, **body("application/json", schema))
        tool = await one(api.url, "post", given, components={"schemas": {"A": {}}})
        assert list(tool.input_schema["properties"]) == ["body", "request_body"]
        await call(tool, request_body=[1, 2], body="q")
        assert (json.loads(api.last.body), api.last.raw) == ([1, 2], "/x?body=q")


async def test_a_body_that_may_be_left_out_is_left_out() -> None:
    schema = {"type": "object", "properties": {"a": {}}, "required": ["a"]}
    async with echo_server() as api:
        await call(await one(api.url, "post", operation(**body("application/json", schema, required=False))))
        assert (api.last.body, "content-type" in api.last.headers) == (b"", False)
        await call(await one(api.url, "post", operation(**body("application/json", {**schema, "required": []}))))
        assert api.last.body == b"{}"


async def test_json_is_preferred_to_other_bodies() -> None:
    content = {
        kind: {"schema": {"type": "object", "properties": {"a": {}}}}
        for kind in ("text/xml", "multipart/form-data", "application/vnd.x+json", "application/json; v=1")
    }
    async with echo_server() as api:
        await call(await one(api.url, "post", operation(requestBody={"required": True, "content": content})), a=1)
        assert (api.last.headers["content-type"], api.last.body) == ("application/json; v=1", b'{"a":1}')


# Servers


@pytest.mark.parametrize(
    ("servers", "base_url", "raw"),
    [
        ([{"url": "/api/v2/"}], None, "/api/v2/x"),
        ([{"url": "../api"}], None, "/api/x"),
        ([], None, "/x"),
        ([{"url": "http://127.0.0.1:1/other"}], "{url}/mine?v=1", "/mine/x?v=1"),
        ([{"url": "/{v}", "variables": {"v": {"default": 3}}}], None, "/3/x"),
    ],
)
async def test_where_the_server_is(servers: list[Any], base_url: str | None, raw: str) -> None:
    source = document({"/x": {"get": operation()}}, servers=servers)
    async with echo_server(lambda got: source if got.path == "/docs/openapi.json" else "ok") as api:
        options = {} if base_url is None else {"base_url": base_url.format(url=api.url)}
        [tool] = await http_tools_from_openapi(f"{api.url}/docs/openapi.json", **options)
        assert (await call(tool)).output == "ok"
        assert api.last.raw == raw


async def test_an_operation_may_have_a_server_of_its_own() -> None:
    async with echo_server() as api:
        given = operation(servers=[{"url": f"{api.url}/upload"}])
        [tool] = await http_tools_from_openapi(
            document({"/x": {"get": given}}, servers=[{"url": "http://127.0.0.1:1"}])
        )
        await call(tool)
        assert api.last.raw == "/upload/x"


async def test_the_document_gets_the_headers_only_from_the_server_they_are_for() -> None:
    source = document({"/x": {"get": operation()}})
    async with echo_server(lambda _: source) as api:
        headers = {"Authorization": "Bearer abcdefgh"}
        await http_tools_from_openapi(f"{api.url}/o.json", headers=headers, base_url="http://127.0.0.1:1")
        assert "authorization" not in api.last.headers
        await http_tools_from_openapi(f"{api.url}/o.json", headers=headers, base_url=f"{api.url}/v1")
        assert api.last.headers["authorization"] == "Bearer abcdefgh"


# Names, and which to take


async def test_names_that_clash_get_a_number_and_are_said(caplog: pytest.LogCaptureFixture) -> None:
    paths = {path: {"get": operation()} for path in ("/a", "/b", "/c")}
    assert list(await by_name(document(paths), base_url="http://h")) == ["op", "op_2", "op_3"]
    assert "GET /b is called 'op_2': 'op' is taken." in caplog.text


@pytest.mark.parametrize(
    ("include", "exclude", "left"),
    [
        (None, None, ["listPets", "createPet", "getPet", "updatePet", "delete_pets_petId"]),
        (["getPet"], None, ["getPet"]),
        (["pets"], None, ["listPets", "createPet"]),
        (["*Pet"], ["admin"], ["getPet", "updatePet"]),
        (["/pets/*"], ["DELETE /pets/*", "put /pets/*"], ["getPet"]),
        (None, ["* /pets/{petId}"], ["listPets", "createPet"]),
        ([], None, []),
    ],
)
async def test_what_is_taken(include: Any, exclude: Any, left: list[str], tmp_path: Path) -> None:
    (tmp_path / "p.yml").write_text(petstore("http://x:80"), encoding="utf-8")
    assert list(await by_name(str(tmp_path / "p.yml"), include=include, exclude=exclude)) == left


async def test_a_pattern_that_means_nothing_is_said(caplog: pytest.LogCaptureFixture) -> None:
    await by_name(document({"/x": {"get": operation()}}), base_url="http://h", include=["op", "nope"], exclude=["/y"])
    assert "is meant by '/y', 'nope'" in caplog.text


async def test_a_long_description_is_cut_after_a_sentence() -> None:
    tool = await one("http://h", "get", operation(summary="Short.", description="A sentence of it. " * 200))
    assert len(tool.description) <= 1000
    assert tool.description.endswith("of it. …")


# References


async def test_references_across_files_are_followed(tmp_path: Path) -> None:
    (tmp_path / "api").mkdir()
    (tmp_path / "common").mkdir()
    main = document({"/x": {"$ref": "paths.yaml#/x"}, "/y": {"$ref": "paths.yaml#/y"}}, servers=[{"url": "http://h"}])
    (tmp_path / "api/main.json").write_text(json.dumps(main), encoding="utf-8")
    (tmp_path / "api/paths.yaml").write_text(
        """
x:
  post:
    operationId: op
    requestBody: {required: true, content: {application/json: {schema: {$ref: ../common/pet.json}}}}
y:
  get:
    operationId: other
    parameters: [{$ref: '../common/nowhere.yaml#/A'}]
""",
        encoding="utf-8",
    )
    pet = {
        "type": "object",
        "properties": {
            "next": {"$ref": "pet.json"},
            "name": {"$ref": "#/definitions/a~1b"},
            "Pet": {"$ref": "../api/main.json#/info"},
        },
        "definitions": {"a/b": {"type": "string"}},
    }
    (tmp_path / "common/pet.json").write_text(json.dumps(pet), encoding="utf-8")
    tools = await by_name(tmp_path / "api/main.json")
    schema = tools["op"].input_schema
    assert schema["properties"]["next"] == {"$ref": "#/$defs/pet.json"}
    assert schema["$defs"]["a_b"] == {"type": "string"}
    jsonschema.Draft202012Validator(schema).validate({"next": {"next": {"name": "x"}}})
    assert not jsonschema.Draft202012Validator(schema).is_valid({"next": {"next": {"name": 1}}})
    async with await create_toolkit(tools.values()) as kit:
        states = {status.name: (status.state, status.reason) for status in kit.status()}
    assert states["op"][0] == "ready"
    assert states["other"][0] == "dropped"
    assert "nowhere.yaml#/A" in states["other"][1]


async def test_nothing_is_fetched_and_only_files_beside_a_file_are_read(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("{type: string}", encoding="utf-8")
    async with echo_server(lambda _: {"type": "string"}) as api:
        references = [f"{api.url}/s.json", "file:///etc/passwd", "secret.txt", (tmp_path / "secret.txt").as_uri()]
        paths = {
            f"/{number}": {"get": operation({"name": "a", "in": "query", "schema": {"$ref": reference}})}
            for number, reference in enumerate(references)
        }
        source = document(paths, servers=[{"url": "http://h"}])
        (tmp_path / "o.json").write_text(json.dumps(source), encoding="utf-8")
        for given_source in (source, tmp_path / "o.json"):
            kit = await create_toolkit(await http_tools_from_openapi(given_source))
            assert {status.state for status in kit.status()} == {"dropped"}
        assert api.got == []


async def test_circles_of_references_do_no_harm() -> None:
    source = document(
        {
            "/a": {"get": operation({"$ref": "#/components/parameters/A"})},
            "/b": {"$ref": "#/paths/~1b"},
            "/c": {"post": operation(**body("application/json", {"$ref": "#/components/schemas/C"}))},
            "/d": {"get": operation({"name": "a", "in": "query", "schema": {"$ref": "#/components/schemas/C"}})},
            "/e": {"get": operation()},
        },
        components={
            "parameters": {"A": {"$ref": "#/components/parameters/B"}, "B": {"$ref": "#/components/parameters/A"}},
            "schemas": {"C": {"$ref": "#/components/schemas/C"}},
        },
    )
    kit = await create_toolkit(await http_tools_from_openapi(source, base_url="http://h"))
    states = {status.name: status.state for status in kit.status()}
    assert states == {"op": "dropped", "get_b": "dropped", "op_2": "dropped", "op_3": "ready", "op_4": "ready"}
    assert (await kit.execute("op_3", {"a": 1})).is_error


@settings(max_examples=30)
@given(
    edges=st.dictionaries(st.integers(0, 6), st.lists(st.integers(0, 6), max_size=4), max_size=7),
    start=st.integers(0, 6),
    value=st.recursive(
        st.integers() | st.text(max_size=3),
        lambda inner: st.dictionaries(st.sampled_from("0123456"), inner, max_size=3),
    ),
)
def test_however_schemas_refer_to_each_other_the_same_values_fit(
    edges: dict[int, list[int]], start: int, value: Any
) -> None:
    """The schema of the tool against the one of the document, as the library for references reads that."""
    schemas = {
        f"S{node}": {
            "type": ["object", "integer"],
            "additionalProperties": False,
            "properties": {str(other): {"$ref": f"#/components/schemas/S{other}"} for other in edges.get(node, [])},
        }
        for node in range(7)
    }
    parameter = {"name": "v", "in": "query", "schema": {"$ref": f"#/components/schemas/S{start}"}}
    source = document({"/x": {"get": operation(parameter)}}, components={"schemas": schemas})
    [tool] = asyncio.run(http_tools_from_openapi(source, base_url="http://h"))
    ours = jsonschema.Draft202012Validator(tool.input_schema).is_valid({"v": value})
    theirs = jsonschema.Draft202012Validator({**parameter["schema"], "components": {"schemas": schemas}}).is_valid(
        value
    )
    assert ours == theirs


# Documents


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["", "string", "object", "/", "$ref", "#/components"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["$ref", "type", "schema", "properties", "in", "name"]), inner, max_size=3)
    ),
    max_leaves=5,
)


@settings(max_examples=60)
@given(data=st.data())
def test_whatever_is_wrong_in_a_document_it_is_refused_or_read_and_nothing_breaks(data: st.DataObject) -> None:
    source = load(petstore("http://x:80"))
    for _ in range(data.draw(st.integers(1, 3))):
        inside: Any = source
        while True:
            key = data.draw(st.sampled_from(sorted(inside) if isinstance(inside, dict) else range(len(inside))))
            if not isinstance(inside[key], dict | list) or not inside[key] or data.draw(st.integers(0, 3)) == 0:
                break
            inside = inside[key]
        inside[key] = data.draw(JSON)
        if not isinstance(source, dict) or not source:
            break

    async def read() -> None:
        try:
            tools = await http_tools_from_openapi(source)
        except ConfigurationError:
            return
        async with await create_toolkit(tools) as kit:
            assert len(kit.status()) == len(tools)

    asyncio.run(read())


async def test_500_operations_are_imported_beside_the_event_loop(tmp_path: Path) -> None:
    schemas = {
        f"S{number}": {
            "type": "object",
            "properties": {"next": {"$ref": f"#/components/schemas/S{(number + 1) % 300}"}, "n": {"type": "integer"}},
        }
        for number in range(300)
    }
    paths = {
        f"/things/{number}/{{id}}": {
            "parameters": [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}],
            method: operation(
                *({"name": f"p{n}", "in": "query", "schema": {"type": "string"}} for n in range(8)),
                description="Words. " * 50,
                **body(
                    "application/json",
                    {"type": "object", "properties": {f"b{n}": {"type": "integer"} for n in range(20)}},
                ),
            ),
        }
        for number in range(250)
        for method in ["post"]
    }
    for number, item in enumerate(paths.values()):
        item["get"] = operation(
            {"name": "s", "in": "query", "schema": {"$ref": f"#/components/schemas/S{number % 300}"}}
            if number < 5
            else {}
        )
    source = tmp_path / "large.json"
    source.write_text(
        json.dumps(document(paths, servers=[{"url": "http://h"}], components={"schemas": schemas})), encoding="utf-8"
    )
    await http_tools_from_openapi(document({}))  # libraries are loaded
    async with heartbeat() as heart, asyncio.timeout(10):
        began = time.perf_counter()
        tools = await http_tools_from_openapi(source)
        took = time.perf_counter() - began
    assert len({tool.name for tool in tools}) == len(tools) == 500
    assert heart.longest < took / 2  # on the loop it would be all of it, however busy the machine is


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{swagger: '2.0'}", "Swagger 2.0"),
        ("openapi: 4.0.0", "no OpenAPI 3 document"),
        ("openapi: 3.0", "no OpenAPI 3 document"),
        ("- a", "it is no object"),
        ("", "it is no object"),
        ("a: [1", "neither JSON nor YAML"),
        ('{"a": [1', "neither JSON nor YAML"),
        ("a: *b", "neither JSON nor YAML"),
        ("{[1]: 2}", "a key is no text"),
        ("a: &a [*a]", "holds itself"),
        (
            "a: &a [x,x,x,x,x,x,x,x,x]\n"
            + "".join(
                f"{b}: &{b} [{','.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefghi", "bcdefghij", strict=True)
            ),
            "20,000,000 values",
        ),
        ("[" * 5000, "nested too deeply|neither JSON nor YAML"),
        ("a: " + "{a: " * 3000 + "1" + "}" * 3000, "nested too deeply|neither JSON nor YAML"),
    ],
)
async def test_what_is_no_document_is_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "o.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError, match=message):
        await http_tools_from_openapi(tmp_path / "o.yaml")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("/no/such/file.yaml", "cannot be read: No such file"),
        ("openapi: 3.0.0\npaths: {}", "a path, a URL or a mapping"),
        (7, "not as a int"),
        ("/", "is no file"),
        ("ftp://h/o.json", "https:// or http://"),
    ],
)
async def test_what_is_no_source_is_refused(source: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        await http_tools_from_openapi(source)


async def test_what_a_library_made_of_a_document_is_made_text_again() -> None:
    given_schema = {"type": "string", "default": datetime.date(2020, 1, 1), "enum": ("a", "b"), "x": {1: 2}}
    tool = await one("http://h", "get", operation({"name": "d", "in": "query", "schema": given_schema}))
    assert tool.input_schema["properties"]["d"] == {
        "type": "string",
        "default": "2020-01-01",
        "enum": ["a", "b"],
        "x": {"1": 2},
    }
    holding_itself: dict[str, Any] = {"openapi": "3.0.0"}
    holding_itself["paths"] = holding_itself
    with pytest.raises(ConfigurationError, match="holds itself"):
        await http_tools_from_openapi(holding_itself)


async def test_a_document_that_does_not_say_where_its_server_is_needs_a_base_url() -> None:
    with pytest.raises(ConfigurationError, match="Give base_url="):
        await http_tools_from_openapi(document({"/x": {"get": operation()}}))
    with pytest.raises(ConfigurationError, match="Give base_url="):
        await http_tools_from_openapi(document({"/x": {"get": operation()}}, servers=[{"url": "http://{host}/"}]))


async def test_a_document_that_is_elsewhere_is_refused() -> None:
    async with echo_server(lambda _: web.Response(status=302, headers={"Location": "http://127.0.0.1:1/o"})) as api:
        with pytest.raises(ConfigurationError, match="another origin"):
            await http_tools_from_openapi(f"{api.url}/o.json")


async def test_a_document_that_is_not_there_is_said() -> None:
    async with echo_server(lambda _: web.Response(status=404)) as api:
        with pytest.raises(ConfigurationError, match="HTTP 404") as caught:
            await http_tools_from_openapi(f"{api.url}/o.json?key=secret")
        assert "secret" not in str(caught.value)


def test_yaml_is_read_as_the_json_that_is_meant() -> None:
    text = """
    a: [yes, no, on, 2020-01-01, 1:30, 0123, 08, 0o17, 0x1f, 1_000, 1e3, .5, -5, ~, null, true, "12", 'true', .nan]
    200: ok
    on: {<<: &m {k: v, z: 0}, z: 1}
    more: {<<: [*X, {y: 2}]}
    """.replace("*X", "*m")
    assert load(text) == {
        "a": [
            *("yes", "no", "on", "2020-01-01", "1:30", 123, 8, 15, 31, "1_000", 1000.0, 0.5, -5),
            *(None, None, True, "12", "true", ".nan"),
        ],
        "200": "ok",
        "on": {"k": "v", "z": 1},
        "more": {"k": "v", "z": 0, "y": 2},
    }  # fmt: skip


PRINTABLE = st.text(st.characters(exclude_categories=["Cs", "Cc"]))
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | PRINTABLE


@given(
    value=st.recursive(
        SCALARS,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(PRINTABLE, inner, max_size=4),
        max_leaves=20,
    )
)
def test_json_is_yaml(value: Any) -> None:
    assert load(json.dumps(value, ensure_ascii=False)) == value


def test_large_json_is_read_in_steps_to_the_same(tmp_path: Path) -> None:
    paths = {
        f"/ä/{n}": {"get": operation(description='\\"}{ 😀 é ' * 20), "x-n": [n, 1.5, None, True, {}]}
        for n in range(4000)
    }
    source = document(paths, servers=[{"url": "http://h"}])
    for text in (json.dumps(source), json.dumps(source, ensure_ascii=False, indent=1)):
        (tmp_path / "o.json").write_text(text, encoding="utf-8")
        assert (tmp_path / "o.json").stat().st_size > 1_000_000
        from toolnexus.sources.openapi_document import read_file

        assert read_file(tmp_path / "o.json") == source


def test_without_pyyaml_json_works_and_yaml_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "o.json").write_text(json.dumps(document({"/x": {"get": operation()}})), encoding="utf-8")
    (tmp_path / "o.yaml").write_text(petstore("http://x:80"), encoding="utf-8")
    program = """
import asyncio, sys
sys.modules["yaml"] = None
from toolnexus.errors import MissingExtra
from toolnexus.sources.openapi import http_tools_from_openapi
print(len(asyncio.run(http_tools_from_openapi("o.json", base_url="http://h"))))
try:
    asyncio.run(http_tools_from_openapi("o.yaml"))
except MissingExtra as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.startswith("1\nOpenAPI documents in YAML need an optional dependency")
    assert "toolnexus[tools]" in done.stdout


async def test_headers_are_in_no_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with echo_server() as api:
        source = document({"/x": {"get": operation()}, "/y": {"get": operation()}})
        tools = await http_tools_from_openapi(source, base_url=api.url, headers={"Authorization": "Bearer abcdefgh"})
        await call(tools[0])
        assert api.last.headers["authorization"] == "Bearer abcdefgh"
    assert "abcdefgh" not in caplog.text + repr(tools)


async def test_a_large_json_document_that_is_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "api.json"
    path.write_text('{"openapi": "3.0.0", "paths": ' + '{"a":' * 200_000 + "1" + "}" * 200_001)
    with pytest.raises(ConfigurationError, match="nested too deeply"):
        await http_tools_from_openapi(path)


async def test_a_server_that_is_no_address_is_refused(tmp_path: Path) -> None:
    variables = {"x": {"default": "['a']"}}
    servers = [{"url": "http://{x}/", "variables": variables}]
    path = tmp_path / "api.json"
    path.write_text(json.dumps({"openapi": "3.0.0", "servers": servers, "paths": {"/a": {"get": {}}}}))
    with pytest.raises(ConfigurationError, match="does not say where its server is"):
        await http_tools_from_openapi(path)
