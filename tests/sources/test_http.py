"""HTTP requests as tools: what is sent, what the model gets, and what nobody may see."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from typing import Any
from urllib.parse import quote, unquote

import pytest
from aiohttp import web
from echo import Got, echo_server
from heartbeat import heartbeat
from hypothesis import given, settings
from hypothesis import strategies as st

from toolnexus import Tool, ToolResult, create_toolkit
from toolnexus.errors import ConfigurationError
from toolnexus.sources.http import http_tool
from toolnexus.sources.http_request import Parameter, Plan, build, is_dots
from toolnexus.sources.http_result import Answer, read

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
TOKEN = 's3cr/et+Töken&"1'


async def call(tool: Tool, **args: Any) -> ToolResult:
    async with await create_toolkit([tool]) as kit:
        assert [status.state for status in kit.status()] == ["ready"], kit.status()
        return await kit.execute(tool.name, args)


def make(url: str, method: str = "GET", **options: Any) -> Tool:
    return http_tool("t", "d", method, url, **options)


# What is sent


@pytest.mark.parametrize(
    ("value", "raw"),
    [
        ("a b", "a%20b"),
        ("a/b", "a%2Fb"),
        ("ä", "%C3%A4"),
        ("50%", "50%25"),
        ("a,b;c=d", "a%2Cb%3Bc%3Dd"),
        ("x?y#z", "x%3Fy%23z"),
        ("..a", "..a"),
        (7, "7"),
        (True, "true"),
        (2.0, "2"),
    ],
)
async def test_a_placeholder_is_percent_encoded(value: Any, raw: str) -> None:
    async with echo_server() as server:
        tool = make(f"{server.url}/v1/{{id}}/end", input_schema={"properties": {"id": {}}})
        result = await call(tool, id=value)
        assert (result.output, server.last.raw) == ("ok", f"/v1/{raw}/end")


@pytest.mark.parametrize(
    "value",
    ["", ".", "..", "../x", "a/../b", "%2e%2e", "%2E.", "%252e%252e", "..%2f", "a\\..\\b", "x/.", "%25252525252e%2e"],
)
async def test_a_step_out_of_the_path_is_refused(value: str) -> None:
    async with echo_server() as server:
        result = await call(make(f"{server.url}/v1/{{id}}"), id=value)
        assert result.is_error
        assert "id: " in result.output
        assert server.got == []


async def test_two_values_cannot_make_such_a_step_together() -> None:
    async with echo_server() as server:
        tool = http_tool("t", "d", "GET", f"{server.url}/{{a}}.{{b}}")
        result = await call(tool, a="x", b="y")
        assert not result.is_error
        parameters = (Parameter(name="a", argument="a", style="label"),)
        with pytest.raises(Exception, match="step out"):
            build(Plan(method="GET", url="http://h/.{a}", path=parameters), {"a": "/"}, {})


@pytest.mark.parametrize("args", [{}, {"id": None}])
async def test_a_placeholder_is_required(args: dict[str, Any]) -> None:
    async with echo_server() as server:
        result = await call(
            make(f"{server.url}/{{id}}", input_schema={"properties": {"id": {"type": ["string", "null"]}}}), **args
        )
        assert result.is_error
        assert "id" in result.output
        assert server.got == []


@given(value=st.text(min_size=1))
def test_whatever_is_in_a_path_comes_out_as_it_was(value: str) -> None:
    plan = Plan(method="GET", url="http://h/a/{id}/z", path=(Parameter(name="id", argument="id"),))
    value = value.encode("utf-8", "replace").decode()
    if is_dots(value):
        return
    url = build(plan, {"id": value}, {}).url
    assert url.isascii()
    _, first, segment, last = url.removeprefix("http://").split("/")
    assert (first, unquote(segment), last) == ("a", value, "z")


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@settings(max_examples=50)
@given(
    values=st.dictionaries(
        TEXTS.filter(bool), TEXTS | st.lists(TEXTS, max_size=3) | st.integers() | st.booleans() | st.none()
    )
)
def test_what_goes_into_a_query_or_a_form_is_read_back(values: dict[str, Any]) -> None:
    sent: list[tuple[str, str]] = []
    for name, value in values.items():
        for each in value if isinstance(value, list) else [value]:
            text = each if isinstance(each, str) else json.dumps(each)
            sent += [] if each is None else [(name, text)]

    async def roundtrip() -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
        async with echo_server() as server:
            assert not (await call(make(f"{server.url}/", input_schema={}), **values)).is_error
            query = server.last.query
            assert not (await call(make(f"{server.url}/", "POST", body="form", input_schema={}), **values)).is_error
            return query, server.last.form

    assert asyncio.run(roundtrip()) == (sent, sent)


async def test_a_query_repeats_lists_and_leaves_none_out() -> None:
    schema = {"properties": {"tags": {"type": "array"}, "flag": {}, "none": {}, "n": {}, "o": {}}}
    async with echo_server() as server:
        await call(
            make(f"{server.url}/x?fixed=1", input_schema=schema, query={"v": 2, "list": [1, "b"], "off": None}),
            tags=["a b", "c,d"],
            flag=False,
            none=None,
            n=1.5,
            o={"k": [1]},
        )
        assert server.last.query == [
            ("fixed", "1"), ("v", "2"), ("list", "1"), ("list", "b"),
            ("tags", "a b"), ("tags", "c,d"), ("flag", "false"), ("n", "1.5"), ("o", '{"k":[1]}'),
        ]  # fmt: skip
        assert "c%2Cd" in server.last.raw


async def test_arguments_go_where_their_placeholders_are() -> None:
    async with echo_server() as server:
        tool = make(
            f"{server.url}/{{where}}?at={{time}}",
            "POST",
            headers={"X-Trace": "{trace}"},
            query={"lang": "{language}"},
            input_schema={"properties": {"n": {"type": "integer"}}, "required": ["n"]},
        )
        assert tool.input_schema["required"] == ["n", "where", "time"]
        result = await call(tool, where="pier", time="12:00", trace="t-1", language="de", n=3)
        assert result.output == "ok"
        assert server.last.path == "/pier"
        assert server.last.query == [("at", "12:00"), ("lang", "de")]
        assert server.last.headers["x-trace"] == "t-1"
        assert json.loads(server.last.body) == {"n": 3}
        assert server.last.headers["content-type"] == "application/json"


async def test_query_can_name_the_arguments_that_go_there() -> None:
    async with echo_server() as server:
        await call(
            make(f"{server.url}/", "POST", query=["dry"], input_schema={"properties": {"n": {}}}), dry=" y", n=None
        )
        assert server.last.query == [("dry", " y")]
        assert json.loads(server.last.body) == {"n": None}


async def test_a_raw_body_is_sent_as_it_is() -> None:
    async with echo_server() as server:
        await call(make(f"{server.url}/", "PUT", body="raw", headers={"content-type": "text/csv"}), body="a,b\nä\n")
        assert server.last.body == "a,b\nä\n".encode()
        assert server.last.headers["content-type"] == "text/csv"


async def test_a_multipart_body_has_files_and_fields() -> None:
    schema = {
        "properties": {
            "note": {"type": "string"},
            "meta": {"type": "object"},
            "file": {"type": "string", "format": "binary", "description": "The picture."},
            "more": {"type": "array", "items": {"type": "string", "format": "binary"}},
        }
    }
    async with echo_server() as server:
        tool = make(f"{server.url}/", "POST", body="multipart", input_schema=schema)
        result = await call(
            tool,
            note="über",
            meta={"a": 1},
            file={"base64": base64.b64encode(PNG).decode(), "filename": 'a"b.png', "media_type": "image/png"},
            more=[{"text": "one"}, {"text": "two", "filename": "2.txt"}],
        )
        assert result.output == "ok"
        [parts] = server.parts
        assert [(part["name"], part["data"]) for part in parts] == [
            ("note", "über".encode()), ("meta", b'{"a":1}'), ("file", PNG), ("more", b"one"), ("more", b"two"),
        ]  # fmt: skip
        assert parts[1]["headers"]["content-type"] == "application/json"
        assert parts[2]["headers"]["content-type"] == "image/png"
        assert unquote(parts[2]["filename"]) == 'a"b.png'
        assert (await call(tool, file={"base64": "not base64!"})).is_error
        assert (await call(tool, file="/etc/passwd")).is_error  # no path: the schema wants an object


async def test_a_header_cannot_be_broken_by_an_argument() -> None:
    async with echo_server() as server:
        result = await call(make(f"{server.url}/", headers={"X-A": "{a}"}), a="1\r\nX-Evil: 1")
        assert result.is_error
        assert "a: a header cannot hold" in result.output
        assert server.got == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"url": "ftp://h/x"}, "https:// or http://"),
        ({"url": "file:///etc/passwd"}, "https:// or http://"),
        ({"url": "/x"}, "https:// or http://"),
        ({"url": "http://{host}/x"}, "must not choose the server"),
        ({"url": "http://h/a/../b"}, r"'\.' or '\.\.'"),
        ({"url": "http://h/a/%2e%2e/b"}, r"'\.' or '\.\.'"),
        ({"url": "http://user:pass@h/x"}, "user name or password"),
        ({"url": "http://h/{a"}, "characters that no URL has"),
        ({"method": "GET /"}, "method"),
        ({"method": "CONNECT"}, "method"),
        ({"body": "xml"}, "choose one of json, form, multipart, raw"),
        ({"result_mode": "xml"}, "choose one of text, json, full"),
        ({"timeout": 0}, "seconds above 0"),
        ({"headers": {"X": "a\nb"}}, "line break"),
        ({"headers": {"Content-Length": "1"}}, "set by the transport"),
        ({"max_bytes": 0}, "max_bytes"),
    ],
)
def test_what_cannot_be_meant_is_refused(options: dict[str, Any], message: str) -> None:
    given_options: dict[str, Any] = {"name": "t", "description": "d", "method": "GET", "url": "http://h/x", **options}
    with pytest.raises(ConfigurationError, match=message):
        http_tool(**given_options)


def test_marks_follow_the_method() -> None:
    marks = {
        method: make("http://h/", method) for method in ("GET", "HEAD", "OPTIONS", "PUT", "DELETE", "POST", "PATCH")
    }
    assert {method for method, tool in marks.items() if tool.read_only} == {"GET", "HEAD", "OPTIONS"}
    assert {method for method, tool in marks.items() if tool.idempotent} == {"GET", "HEAD", "OPTIONS", "PUT", "DELETE"}
    search = make("http://h/", "POST", read_only=True, needs_approval=True, exclusive=True)
    assert (search.read_only, search.needs_approval, search.exclusive, search.source) == (True, True, True, "http")


# Secrets


async def test_a_variable_is_taken_from_the_environment_when_a_call_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    async with echo_server() as server:
        tool = make(f"{server.url}/", headers={"Authorization": "Bearer ${TN_TOKEN}"}, query={"key": "${TN_KEY}"})
        monkeypatch.delenv("TN_TOKEN", raising=False)
        result = await call(tool)
        assert (result.is_error, server.got) == (True, [])
        assert "TN_TOKEN" in result.output
        monkeypatch.setenv("TN_TOKEN", "one-token")
        assert "TN_KEY" in (await call(tool)).output
        monkeypatch.setenv("TN_KEY", "a key/1")
        await call(tool)
        assert server.last.headers["authorization"] == "Bearer one-token"
        assert server.last.query == [("key", "a key/1")]
        monkeypatch.setenv("TN_TOKEN", "two-token")
        await call(tool)
        assert server.last.headers["authorization"] == "Bearer two-token"


def echoes(token: str) -> dict[str, str]:
    units = token.encode("utf-16-be").hex()
    return {
        "plain": f"You sent {token}.",
        "percent": f"?token={quote(token, safe='')}",
        "percent, lower case": quote(token, safe="").lower() if token.islower() else quote(token, safe=""),
        "json": json.dumps({"echo": token}),
        "json with all escaped": '{"echo": "'
        + "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
        + '"}',
        "base64": base64.b64encode(f"user:{token}".encode()).decode(),
        "base64 at another place": base64.urlsafe_b64encode(f"us:{token}".encode()).decode(),
        "html": "<p>" + token.replace("&", "&amp;").replace('"', "&quot;") + "</p>",
    }


@pytest.mark.parametrize("mode", ["text", "json", "full"])
@pytest.mark.parametrize("form", echoes(""))
@pytest.mark.parametrize("status", [200, 401])
async def test_an_echoed_secret_is_in_no_output(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, mode: Any, form: str, status: int
) -> None:
    token = 's3cr/et+token&"1'
    echo = echoes(token)[form]
    monkeypatch.setenv("TN_TOKEN", token)
    caplog.set_level(logging.DEBUG)

    def answer(_: Got) -> web.Response:
        return web.Response(
            status=status, text=echo, headers={"X-Echo": token, "Content-Type": "text/html; charset=utf-8"}
        )

    async with echo_server(answer) as server:
        tool = make(f"{server.url}/", headers={"X-Api-Key": "${TN_TOKEN}"}, result_mode=mode)
        result = await call(tool)
        assert server.last.headers["x-api-key"] == token
    shown = f"{result!r} {json.dumps(result.structured)} {tool!r} {caplog.text}"
    for hidden in {token, echo.strip("?<p>/"), json.dumps(token)[1:-1], quote(token, safe="")}:
        assert hidden not in shown
    assert "[redacted]" in result.output


async def test_a_secret_is_hidden_where_an_answer_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TN_TOKEN", "tok-abcdefghijklmnop")
    async with echo_server(lambda got: "x" * 90 + got.headers["authorization"]) as server:
        for size in range(95, 125):
            tool = make(f"{server.url}/", headers={"Authorization": "Bearer ${TN_TOKEN}"}, max_bytes=size)
            assert "tok" not in (await call(tool)).output


async def test_a_picture_that_holds_a_secret_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TN_TOKEN", "tok-abcdefghijklmnop")
    async with echo_server(
        lambda _: web.Response(body=PNG + b"tok-abcdefghijklmnop", content_type="image/png")
    ) as server:
        result = await call(make(f"{server.url}/", headers={"Authorization": "Bearer ${TN_TOKEN}"}))
        assert result.parts == ()
        assert "holds a secret" in result.output


async def test_a_value_in_a_header_is_secret_by_the_headers_name() -> None:
    pair = base64.b64encode(b"user:pass-word").decode()
    async with echo_server(lambda got: f"{got.headers['authorization']} is user:pass-word, pass-word") as server:
        output = (await call(make(f"{server.url}/", headers={"Authorization": f"Basic {pair}"}))).output
        assert output == "[redacted] is [redacted], [redacted]"


# Redirects


@pytest.mark.parametrize(
    ("status", "method", "then", "body"),
    [(301, "POST", "GET", b""), (302, "POST", "GET", b""), (303, "PUT", "GET", b""), (307, "POST", "POST", b'{"a":1}'),
     (308, "POST", "POST", b'{"a":1}'), (302, "GET", "GET", b"")],
)  # fmt: skip
async def test_a_redirect_within_the_origin_keeps_the_headers(status: int, method: str, then: str, body: bytes) -> None:
    def answer(got: Got) -> Any:
        return web.Response(status=status, headers={"Location": "../there?x=1"}) if "start" in got.raw else "arrived"

    async with echo_server(answer) as server:
        tool = make(f"{server.url}/v1/start", method, headers={"Authorization": "Bearer abcdefgh"}, input_schema={})
        result = await call(tool, a=1)
        assert result.output == "arrived"
        last = server.last
        assert (last.method, last.raw, last.body, last.headers["authorization"]) == (
            then,
            "/there?x=1",
            body,
            "Bearer abcdefgh",
        )


@pytest.mark.parametrize(
    "where",
    [
        "{other}/x?secret=1",
        "//{host}/x",
        "file:///etc/passwd",
        "http://user@127.0.0.1:1/",
        "https://127.0.0.1/x",
        "http://[/",
    ],
)
async def test_a_redirect_to_another_origin_is_refused(where: str) -> None:
    async with echo_server() as other:
        location = where.format(other=other.url, host=other.url.removeprefix("http://"))
        async with echo_server(lambda _: web.Response(status=302, headers={"Location": location})) as server:
            result = await call(make(f"{server.url}/", headers={"Authorization": "Bearer abcdefgh"}))
            assert result.is_error
            assert "redirects to" in result.output
            assert "secret" not in result.output
        assert other.got == []


async def test_an_endless_redirect_ends() -> None:
    async with echo_server(lambda _: web.Response(status=302, headers={"Location": "/again"})) as server:
        result = await call(make(f"{server.url}/"))
        assert result.is_error
        assert "again and again" in result.output
        assert len(server.got) == 11


# What comes back


@pytest.mark.parametrize(
    ("body", "content_type", "text"),
    [
        ("größe".encode(), "text/plain; charset=utf-8", "größe"),
        ("größe".encode("latin-1"), "text/plain; charset=ISO-8859-1", "größe"),
        ("“x”".encode("cp1252"), 'text/html; charset="iso-8859-1"', "“x”"),
        ("größe".encode("shift_jis", "replace"), "text/plain; charset=shift_jis", "gr??e"),
        ("größe".encode("utf-16"), "text/plain", "größe"),
        ("größe".encode("utf-8-sig"), "text/plain; charset=latin-1", "größe"),
        (b'<meta charset="latin-1">\xc3\xb6', "text/html", '<meta charset="latin-1">ö'),
        (b"a\xffb", "text/plain", "a�b"),
        (b"ok", "text/plain; charset=hex", "ok"),
        (b"a\\n", "text/plain; charset=unicode_escape", "a\\n"),
        (b"ok", "text/plain; charset=no-such-thing", "ok"),
        (b"k: v", "application/x-unknown", "k: v"),
        (b"<svg/>", "image/svg+xml", "<svg/>"),
        (b"bytes", "", "bytes"),
    ],
)
async def test_the_charset_of_a_text_is_honoured(body: bytes, content_type: str, text: str) -> None:
    def answer(_: Got) -> web.Response:
        response = web.Response(body=body)
        response.headers["Content-Type"] = content_type
        return response

    async with echo_server(answer) as server:
        assert (await call(make(f"{server.url}/"))).output == text


async def test_an_image_becomes_a_part_and_other_bytes_a_note() -> None:
    kinds = {
        "/png": (PNG, "image/png"),
        "/blob": (b"\0\1\2\xff" * 99, "application/zip"),
        "/lie": (b"no", "image/png"),
        "/unsaid": (PNG, "application/octet-stream"),
    }

    def answer(got: Got) -> web.Response:
        body, content_type = kinds[got.path]
        return web.Response(body=body, content_type=content_type)

    async with echo_server(answer) as server:
        results = {path: await call(make(server.url + path)) for path in kinds}
    part = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{base64.b64encode(PNG).decode()}"}}
    assert results["/png"].parts == results["/unsaid"].parts == (part,)
    assert results["/png"].output == "(an image, image/png, 70 B)"
    assert results["/blob"].output == "(application/zip, 396 B, which is no text.)"
    assert results["/lie"].output == "(image/png, 2 B, which is no text.)"
    assert results["/blob"].parts == results["/lie"].parts == ()


async def test_a_large_answer_is_cut_and_says_so() -> None:
    async with echo_server(lambda _: "ö" * 10_000) as server:
        result = await call(make(f"{server.url}/", max_bytes=1001))
        assert result.output == "ö" * 500 + "\n[cut here: the answer is longer than 1.0 kB]"
        assert result.metadata["cut"] is True


async def test_an_endless_answer_ends() -> None:
    async def answer(_: Got) -> web.StreamResponse:
        return _Endless()

    class _Endless(web.StreamResponse):
        async def write_eof(self, data: bytes = b"") -> None:
            try:
                while True:
                    await self.write(b"x" * 65536)
            except ConnectionError:
                await super().write_eof()

    async with echo_server(answer) as server, heartbeat() as heart:
        result = await call(make(f"{server.url}/"))
    assert result.metadata["cut"] is True
    assert heart.longest < 0.5


async def test_what_is_not_2xx_is_an_error_with_its_status_and_the_beginning_of_its_body() -> None:
    async with echo_server(lambda _: web.Response(status=404, text="No such pet. " + "x" * 9000)) as server:
        result = await call(make(f"{server.url}/"))
        assert result.is_error
        assert result.output.startswith("HTTP 404 Not Found\nNo such pet. xxx")
        assert result.output.endswith("5,013 more characters were left out]")
        assert result.metadata["status"] == 404


async def test_no_content_is_said() -> None:
    async with echo_server(lambda _: web.Response(status=201, headers={"Location": "/pets/7"})) as server:
        assert (await call(make(f"{server.url}/", "POST"))).output == "HTTP 201 Created\nlocation: /pets/7"


async def test_the_modes_of_a_result() -> None:
    value = {"b": [1, None, "ä"], "n": 12345678901234567890}

    def answer(_: Got) -> web.Response:
        return web.Response(
            text=json.dumps(value, indent=2), content_type="application/json", headers={"Set-Cookie": "a=b"}
        )

    async with echo_server(answer) as server:
        text, as_json, full = [
            await call(make(f"{server.url}/", result_mode=mode)) for mode in ("text", "json", "full")
        ]
        head = await call(make(f"{server.url}/", "HEAD"))
    assert (text.output, text.structured) == (json.dumps(value, indent=2), None)
    assert (as_json.output, as_json.structured) == ('{"b":[1,null,"ä"],"n":12345678901234567890}', value)
    assert full.structured["status"] == 200
    assert full.structured["body"] == value
    assert full.structured["headers"]["content-type"].startswith("application/json")
    assert "set-cookie" not in full.structured["headers"]
    assert json.loads(full.output) == full.structured
    assert head.structured["headers"]["content-length"]


async def test_json_that_is_none_is_text() -> None:
    async with echo_server(lambda _: "Hello") as server:
        result = await call(make(f"{server.url}/", result_mode="json"))
        assert (result.output, result.structured, result.is_error) == ("Hello", None, False)


async def test_a_server_that_stays_silent_times_out() -> None:
    gone = asyncio.Event()

    async def answer(_: Got) -> str:
        await gone.wait()
        return "late"

    async with echo_server(answer) as server:
        result = await call(make(f"{server.url}/", timeout=0.1))
        gone.set()
    assert result.output == "t timed out after 0.1 s"


async def test_a_server_that_is_not_there_is_an_error() -> None:
    result = await call(make("http://127.0.0.1:1/", headers={"Authorization": "Bearer abcdefgh"}))
    assert result.is_error
    assert result.output.startswith("ConnectionFailed: http://127.0.0.1:1 could not be reached")


async def test_tools_share_their_connections() -> None:
    async with echo_server() as server:
        for path in ("a", "b", "c"):
            await call(make(f"{server.url}/{path}"))
        assert len({got.connection for got in server.got}) == 1


async def test_a_large_text_does_not_stop_the_loop() -> None:
    body = json.dumps(["ä" * 50] * 10_000).encode()
    async with echo_server(lambda _: web.Response(body=body, content_type="application/json")) as server:
        tool = make(
            f"{server.url}/", result_mode="json", max_bytes=len(body), headers={"Authorization": "Bearer abcdefgh"}
        )
        async with await create_toolkit([tool]) as kit:
            await kit.execute("t")
            async with heartbeat() as heart:
                result = await kit.execute("t")
    assert len(result.structured) == 10_000
    assert heart.longest < 0.25


@pytest.mark.parametrize("charset", ["utf-16", "utf-32"])
def test_a_wide_charset_without_its_mark_is_read(charset: str) -> None:
    data = "é".encode(f"{charset}-le")
    answer = Answer(status=200, headers={"content-type": f"text/plain; charset={charset}; x=\udcff"}, body=data)
    result = read(answer, "text", frozenset())
    assert result.output == "é"
    assert str(result.metadata["content_type"]).endswith("x=\ufffd")
