"""Ten pages as Markdown, and bytes as text."""

from __future__ import annotations

import asyncio
import gzip
import threading
import time
import zlib
from pathlib import Path

import pytest
from heartbeat import heartbeat

from toolnexus.sources.builtin.pages import Kind, UnreadablePage, decoded, kind_of, rendered, unpacked

PAGES = sorted((Path(__file__).parent / "pages").glob("*.html"))
URL = "https://x.example/d/page.html"


def test_there_are_ten_pages() -> None:
    assert len(PAGES) == 10


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_becomes_markdown(page: Path) -> None:
    expected = page.with_suffix(".md").read_text(encoding="utf-8")
    assert f"{rendered(page.read_text(encoding='utf-8'), URL, 'markdown')}\n" == expected


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_as_it_is_or_as_text_has_no_markdown(page: Path) -> None:
    html = page.read_text(encoding="utf-8")
    assert rendered(html, URL, "html") == html
    text = rendered(html, URL, "text")
    assert "](" not in text
    assert "script" not in text.lower() or page.stem == "base"


@pytest.mark.parametrize("tag", ["div", "ul><li", "b", "blockquote", "table><tr><td", "svg"])
def test_deep_pages_end(tag: str) -> None:
    """In a thread, whose stack is smaller."""
    thread = threading.Thread(target=rendered, args=(f"<{tag}>" * 50_000 + "x", URL, "markdown"))
    thread.start()
    thread.join(50)
    assert not thread.is_alive()


@pytest.mark.parametrize(
    ("data", "content_type", "text"),
    [
        ("é".encode(), "text/plain; charset=utf-8", "é"),
        ("é".encode("latin-1"), 'text/plain; charset="ISO-8859-1"', "é"),
        (b"\x80", "text/plain; charset=iso-8859-1", "€"),
        ("\ufeffé".encode(), "text/plain; charset=latin-1", "é"),
        ("é".encode("utf-16"), "text/html; charset=utf-8", "é"),
        ("<meta charset='koi8-r'>я".encode("koi8-r"), "text/html", "<meta charset='koi8-r'>я"),
        (
            '<META http-equiv="Content-Type" content="text/html; charset=shift_jis">日本'.encode("cp932"),
            "text/html",
            '<META http-equiv="Content-Type" content="text/html; charset=shift_jis">日本',
        ),
        ("<meta charset=utf-16>é".encode(), "text/html", "<meta charset=utf-16>é"),
        (
            '<?xml version="1.0" encoding="iso-8859-2"?><a>ł</a>'.encode("iso-8859-2"),
            "application/xml",
            '<?xml version="1.0" encoding="iso-8859-2"?><a>ł</a>',
        ),
        (b"<meta charset=koi8-r>\xc3\xa9", "text/plain", "<meta charset=koi8-r>é"),
        (b"\xe9", "text/plain", "é"),
        (b"a\xff", "text/plain; charset=utf-8", "a\ufffd"),
        (b"\xc3\xa9", "text/plain; charset=nonsense", "é"),
        (b"\\u0041", "text/plain; charset=unicode_escape", "\\u0041"),
        (b"abc", "text/plain; charset=rot13", "abc"),
    ],
)
def test_a_charset_is_taken_from_mark_header_or_page(data: bytes, content_type: str, text: str) -> None:
    assert decoded(data, kind_of(content_type, data)) == text


def test_half_a_character_at_a_cut_is_left_out() -> None:
    assert decoded("ab€".encode()[:-1], Kind("text/plain", None), cut=True) == "ab"


@pytest.mark.parametrize(
    ("content_type", "data", "media_type"),
    [
        ("Text/HTML; Charset=x", b"", "text/html"),
        ("", b"  <!-- hi --> <!DOCTYPE html><p>", "text/html"),
        ("", b"plain", "text/plain"),
        ("application/octet-stream", b"%PDF-1.7", "application/pdf"),
        ("", b"\0\1\2", "application/octet-stream"),
        ("\r\nx: y", b"", "x: y"),
    ],
)
def test_what_it_is_is_told_by_the_header_else_by_the_bytes(content_type: str, data: bytes, media_type: str) -> None:
    assert kind_of(content_type, data).media_type == media_type


def _bare(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


@pytest.mark.parametrize(
    ("data", "encodings"),
    [
        (b"hello", ""),
        (b"hello", "identity"),
        (gzip.compress(b"hello"), "gzip"),
        (zlib.compress(b"hello"), "Deflate"),
        (_bare(b"hello"), "deflate"),
        (gzip.compress(zlib.compress(b"hello")), "deflate, x-gzip"),
    ],
)
def test_a_packed_body_is_unpacked(data: bytes, encodings: str) -> None:
    assert unpacked(data, encodings, 1000) == (b"hello", False)


def test_a_bomb_is_unpacked_no_further_than_is_read() -> None:
    bomb = gzip.compress(gzip.compress(b"\0" * 200_000_000))
    assert unpacked(bomb, "gzip, gzip", 1000)[0] in (b"\0" * 1000, b"")
    single = gzip.compress(b"\0" * 50_000_000)
    assert unpacked(single, "gzip", 100_000) == (b"\0" * 100_000, True)


@pytest.mark.parametrize(
    ("data", "encodings", "told"),
    [(b"x", "br", "'br'"), (b"\x1f\x8b junk", "gzip", "damaged"), (gzip.compress(b"hello")[:-9], "gzip", "too early")],
)
def test_what_cannot_be_unpacked_is_an_error(data: bytes, encodings: str, told: str) -> None:
    with pytest.raises(UnreadablePage, match=told):
        unpacked(data, encodings, 1000)


def test_half_of_a_packed_body_gives_what_is_in_it() -> None:
    data = gzip.compress(bytes(range(256)) * 100)
    body, cut = unpacked(data + b"more", "gzip", len(data))
    assert cut
    assert bytes(range(256)).startswith(body[:256])


def test_a_kind_says_whether_it_is_text() -> None:
    assert Kind("application/problem+json", None).is_text
    assert Kind("application/xhtml+xml", None).is_html
    assert not Kind("image/png", None).is_text


@pytest.mark.parametrize(
    "data",
    [b"<!---->" * 28 + b"x", b"<meta " * 300 + b"charset=" + b" " * 2000 + b"("],
    ids=["comments", "charset"],
)
def test_a_page_that_is_made_to_be_slow_is_not(data: bytes) -> None:
    began = time.monotonic()
    decoded(data, Kind("text/html", None))
    assert kind_of("", data).media_type == "text/plain"
    assert time.monotonic() - began < 2


async def test_damaged_text_leaves_time_to_others() -> None:
    """Python's decoders take long for each wrong byte, and stop all other threads until they are done."""
    data = b"\x81" * 3_000_000
    async with heartbeat() as heart:
        text = await asyncio.to_thread(decoded, data, Kind("text/plain", "cp1252"))
    assert text == "\ufffd" * len(data)
    assert heart.longest < 0.4


def test_half_a_character_in_a_content_type_becomes_none() -> None:
    assert kind_of("text/\udcff; charset=\udcfe", b"x").media_type == "text/\ufffd"
