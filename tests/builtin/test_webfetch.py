"""The tool `webfetch`, against real servers on this machine."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from heartbeat import heartbeat

from toolnexus import ToolResult, create_toolkit
from toolnexus.sources.builtin import addresses, webfetch
from toolnexus.sources.builtin.workspace import Workspace

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


class Site:
    """A server whose answers a test sets, by path."""

    def __init__(self) -> None:
        self.answers: dict[str, Callable[[web.Request], Any]] = {}
        self.seen: list[web.Request] = []
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def page(self, path: str, body: str | bytes, *, status: int = 200, **headers: str) -> str:
        data = body.encode() if isinstance(body, str) else body
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.answers[path] = lambda _: web.Response(body=data, status=status, headers=named)
        return self.url + path

    def redirect(self, path: str, to: str, status: int = 302) -> str:
        return self.page(path, "", status=status, Location=to)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(request)
        answer = self.answers[request.path](request)
        return await answer if asyncio.iscoroutine(answer) else answer


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    site = Site()
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", site.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    listener = web.TCPSite(runner, "127.0.0.1", 0)
    await listener.start()
    site.port = runner.addresses[0][1]
    yield site
    await runner.cleanup()


async def fetch(tmp_path: Path, url: str, *, public_only: bool = False, max_bytes: int = 0, **args: Any) -> ToolResult:
    options: dict[str, Any] = {"max_bytes": max_bytes} if max_bytes else {}
    tool = webfetch.make(Workspace(tmp_path), allow_private=not public_only, **options)
    return await (await create_toolkit([tool])).execute("webfetch", {"url": url, **args})


async def test_a_page_becomes_markdown_with_absolute_links(site: Site, tmp_path: Path) -> None:
    url = site.page("/a/b", "<h1>Pier</h1><p>See <a href='../c?d=1'>this</a>.", Content_Type="text/html")
    result = await fetch(tmp_path, url + "#part")
    assert result == ToolResult(
        output=f"# Pier\n\nSee [this]({site.url}/c?d=1).",
        metadata={"url": url, "status": 200, "content_type": "text/html", "bytes": 48, "cut": False},
    )
    assert site.seen[0].headers["User-Agent"].startswith("toolnexus/")
    assert site.seen[0].method == "GET"


@pytest.mark.parametrize(("form", "output"), [("text", "Pier"), ("html", "<h1>Pier</h1>"), ("markdown", "# Pier")])
async def test_a_page_comes_in_the_form_that_was_asked_for(site: Site, tmp_path: Path, form: str, output: str) -> None:
    url = site.page("/", "<h1>Pier</h1>", Content_Type="text/html")
    assert (await fetch(tmp_path, url, format=form)).output == output


async def test_json_and_text_come_as_they_are(site: Site, tmp_path: Path) -> None:
    raw = '{"a":  "<b>"}\n'
    url = site.page("/", raw, Content_Type="application/problem+json")
    assert (await fetch(tmp_path, url)).output == raw
    url = site.page("/t", "# é".encode("latin-1"), Content_Type="text/markdown; charset=latin-1")
    assert (await fetch(tmp_path, url)).output == "# é"
    assert (await fetch(tmp_path, site.page("/e", "", Content_Type="text/html"))).output == "(there is no text)"


async def test_images_and_pdf_files_become_parts(site: Site, tmp_path: Path) -> None:
    image = await fetch(tmp_path, site.page("/pier.png", PNG, Content_Type="image/png"))
    assert [part["type"] for part in image.parts] == ["image_url"]
    pdf = await fetch(tmp_path, site.page("/plan.pdf", b"%PDF-1.7\n...", Content_Type="application/octet-stream"))
    assert [part["type"] for part in pdf.parts] == ["file"]
    assert "plan.pdf" in pdf.output


@pytest.mark.parametrize(
    ("body", "content_type", "told"),
    [
        (b"PK\3\4\0", "application/zip", "is application/zip, 5 B, which is neither text nor an image or a PDF"),
        (b"no image", "image/png", "its first bytes are not those of one"),
    ],
)
async def test_what_no_model_can_read_is_an_error(
    site: Site, tmp_path: Path, body: bytes, content_type: str, told: str
) -> None:
    result = await fetch(tmp_path, site.page("/x", body, Content_Type=content_type))
    assert result.is_error
    assert told in result.output


async def test_a_status_that_is_no_success_is_an_error_with_its_text(site: Site, tmp_path: Path) -> None:
    url = site.page("/x", f"<h1>Gone</h1>{'y' * 9000}", status=404, Content_Type="text/html")
    result = await fetch(tmp_path, f"{url}?token=s3cr3t")
    assert result.is_error
    assert result.output.startswith(f"'{url}' answered with HTTP 404 Not Found.\n\n# Gone")
    assert len(result.output) < 5000
    assert result.metadata["status"] == 404


async def test_redirects_are_followed_to_their_end(site: Site, tmp_path: Path) -> None:
    site.page("/end/", "Here", Content_Type="text/plain")
    site.redirect("/b", "end/", 307)
    result = await fetch(tmp_path, site.redirect("/a", "/b#x", 301))
    assert result.output == "Here"
    assert result.metadata["url"] == f"{site.url}/end/"


async def test_redirects_in_a_circle_end(site: Site, tmp_path: Path) -> None:
    result = await fetch(tmp_path, site.redirect("/a", "/a"))
    assert result.is_error
    assert "10 redirects" in result.output
    assert len(site.seen) == 11


@pytest.mark.parametrize("to", ["file:///etc/passwd", "ftp://h/x", "http://u:p@127.0.0.1/", "http://[::1", "data:,x"])
async def test_a_redirect_elsewhere_is_refused(site: Site, tmp_path: Path, to: str) -> None:
    result = await fetch(tmp_path, site.redirect("/a", to))
    assert result.is_error
    assert "redirects to what cannot be fetched" in result.output


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://example.org/",
        "example.org",
        "http://",
        "http://[::1",
        "http://h:x/",
        "http://u:p@h/",
    ],
)
async def test_what_is_no_web_address_is_refused(tmp_path: Path, url: str) -> None:
    result = await fetch(tmp_path, url)
    assert result.is_error
    assert result.output.startswith("FetchFailed: ")
    assert "p@" not in result.output


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "localhost", "localhost.", "LOCALHOST", "2130706433", "0x7f000001", "0177.0.0.1", "127.1"),
        *("0.0.0.0", "0", "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "169.254.169.254", "10.0.0.1"),
    ],
)
async def test_addresses_that_are_not_public_are_refused_however_they_are_spelled(
    site: Site, tmp_path: Path, host: str
) -> None:
    site.page("/", "secret", Content_Type="text/plain")
    result = await fetch(tmp_path, f"http://{host}:{site.port}/", public_only=True)
    assert result.is_error
    told = ("not a public address", "neither a name nor an address", "cannot be found")  # not all know `localhost.`
    assert any(each in result.output for each in told)
    assert site.seen == []


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "::ffff:127.0.0.1"])
async def test_a_name_that_resolves_to_this_machine_is_refused(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    resolved = [(family, socket.SOCK_STREAM, 6, "", (address, site.port, 0, 0)[: 4 if ":" in address else 2])]

    def getaddrinfo(*_: object, **__: object) -> list[Any]:
        return resolved

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    result = await fetch(tmp_path, f"http://innocent.example:{site.port}/", public_only=True)
    assert "is not a public address" in result.output
    assert site.seen == []


async def test_a_redirect_to_an_address_that_is_not_public_is_refused(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def only_the_site(resolved: addresses.Resolved) -> socket.socket:
        return socket.socket(*resolved[:3]) if resolved[4][:2] == ("127.0.0.1", site.port) else real(resolved)

    real = addresses.public_socket
    monkeypatch.setattr(webfetch, "public_socket", only_the_site)
    async with asyncio.timeout(10):
        other = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    port = other.sockets[0].getsockname()[1]
    result = await fetch(tmp_path, site.redirect("/a", f"http://localhost:{port}/"), public_only=True)
    other.close()
    await other.wait_closed()
    assert "is not a public address" in result.output
    assert len(site.seen) == 1


async def test_a_proxy_of_the_environment_is_not_used(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert (await fetch(tmp_path, site.page("/", "Here", Content_Type="text/plain"))).output == "Here"


async def test_a_long_answer_is_cut_and_says_so(site: Site, tmp_path: Path) -> None:
    url = site.page("/", "x" * 5000, Content_Type="text/plain")
    result = await fetch(tmp_path, url, max_bytes=1000)
    assert result.output == f"[only the first 1.0 kB of it were read]\n\n{'x' * 1000}"
    assert result.metadata["cut"]
    image = await fetch(tmp_path, site.page("/i", PNG * 100, Content_Type="image/png"), max_bytes=1000)
    assert "larger than 1.0 kB" in image.output


async def test_an_answer_without_an_end_is_cut(site: Site, tmp_path: Path) -> None:
    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        try:
            while True:
                await response.write(b"y" * 10_000)
        except ConnectionError:
            return response

    site.answers["/"] = endless
    assert (await fetch(tmp_path, f"{site.url}/", max_bytes=100_000)).metadata["bytes"] == 100_000


async def test_a_bomb_is_read_no_further_than_the_limit(site: Site, tmp_path: Path) -> None:
    bomb = gzip.compress(b"a" * 100_000_000)
    url = site.page("/", bomb, Content_Type="text/plain", Content_Encoding="gzip")
    async with heartbeat() as heart:
        result = await fetch(tmp_path, url)
    assert heart.longest < 0.25
    assert result.metadata["bytes"] == webfetch.MAX_BYTES
    assert result.metadata["cut"]


async def test_a_large_page_does_not_block_the_loop(site: Site, tmp_path: Path) -> None:
    url = site.page("/", "<ul><li>a <a href='b'>b</a></li></ul>" * 50_000, Content_Type="text/html")
    async with heartbeat() as heart:
        result = await fetch(tmp_path, url)
    assert not result.is_error
    assert heart.longest < 0.25


async def test_a_server_that_does_not_answer_is_left_after_the_timeout(site: Site, tmp_path: Path) -> None:
    enough = asyncio.Event()

    async def late(_: web.Request) -> web.StreamResponse:
        await enough.wait()
        return web.Response()

    site.answers["/"] = late
    result = await fetch(tmp_path, f"{site.url}/?key=s3cr3t", timeout=0.2)
    enough.set()
    assert result.is_error
    assert result.output == f"FetchFailed: '{site.url}/' took longer than 0.2 s. A larger timeout may help."


async def test_a_connection_that_breaks_is_an_error(site: Site, tmp_path: Path) -> None:
    async def breaks(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/plain", "Content-Length": "100"})
        await response.prepare(request)
        await response.write(b"half")
        assert request.transport is not None
        request.transport.close()
        return response

    site.answers["/"] = breaks
    result = await fetch(tmp_path, f"{site.url}/")
    assert result.output.startswith(f"FetchFailed: The connection to '{site.url}/' failed: ")


async def test_nobody_listening_and_unknown_hosts_are_told_apart(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        refused = await fetch(tmp_path, f"http://127.0.0.1:{port}/")
    assert "cannot be reached: " in refused.output
    assert "There is no host 'nowhere.invalid'" in (await fetch(tmp_path, "http://nowhere.invalid/")).output


async def test_the_arguments_are_checked(tmp_path: Path) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [({"timeout": 500}, "timeout"), ({"format": "pdf"}, "format")]
    for args, told in wrong:
        result = await fetch(tmp_path, "http://127.0.0.1/", **args)
        assert result.is_error
        assert told in result.output
    toolkit = await create_toolkit([webfetch.make(Workspace(tmp_path))])
    assert "url" in (await toolkit.execute("webfetch", json.dumps({}))).output
