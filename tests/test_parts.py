"""Images, sounds and files: made from paths, bytes and URLs, sent on the wires, kept by the stores, and not shown."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import logging
import os
import secrets
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripts import read, scripted
from wire_rules import check_anthropic, check_openai

from toolnexus import (
    ConfigurationError,
    FileStore,
    InMemoryConversationStore,
    InvalidTranscript,
    SQLiteStore,
    ToolResult,
    audio,
    create_client,
    create_in_process_client,
    file,
    image,
)
from toolnexus._media import MAX_BYTES
from toolnexus._output import encode
from toolnexus.messages import normalise, prompt_message, shown_text
from toolnexus.providers import PROVIDERS, Provider
from toolnexus.testing import (
    ScriptedTransport,
    anthropic_reply,
    anthropic_stream,
    call,
    openai_reply,
    openai_stream,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)
PDF = b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n1 0 obj\n<< >>\nendobj\n"
WAV = b"RIFF\x24\0\0\0WAVEfmt \x10\0\0\0\1\0\1\0\x40\x1f\0\0\x80\x3e\0\0\2\0\x10\0data\0\0\0\0"
TEXT = {"type": "text", "text": "What is this?"}


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def image_part(data: bytes, kind: str = "image/png") -> Any:
    return {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{b64(data)}"}}


# Making them


def test_an_image_is_the_same_from_a_path_from_bytes_and_from_a_data_url(tmp_path: Path) -> None:
    path = tmp_path / "pier.png"
    path.write_bytes(PNG)
    expected = image_part(PNG)
    assert image(path) == image(str(path)) == expected
    assert image(PNG) == image(bytearray(PNG)) == image(memoryview(PNG)) == expected
    assert image(f"data:image/png;base64,{b64(PNG)}") == image(f"DATA:;base64,{b64(PNG)}") == expected


def test_what_is_at_a_url_stays_there() -> None:
    url = "https://example.org/pier.png?size=2"
    with pytest.raises(ConfigurationError, match="detail is 'mid'; it can be 'low', 'high' or 'auto'"):
        image(url, detail="mid")
    assert image(url, detail="low") == {"type": "image_url", "image_url": {"url": url, "detail": "low"}}
    assert file(url) == {"type": "image_url", "image_url": {"url": url}}
    assert file("https://example.org/report", name="Report") == {
        "type": "file",
        "file": {"filename": "Report", "file_url": "https://example.org/report"},
    }


BEGINNINGS = [
    (PNG, "image/png"),
    (b"\xff\xd8\xff\xe0\0\x10JFIF\0", "image/jpeg"),
    (b"GIF87a\1\0\1\0\x80\0\0", "image/gif"),
    (b"GIF89a\1\0\1\0\x80\0\0", "image/gif"),
    (b"RIFF\x1a\0\0\0WEBPVP8 ", "image/webp"),
    (b"\0\0\0\x18ftypheic\0\0\0\0", "image/heic"),
    (WAV, "wav"),
    (b"ID3\4\0\0\0\0\0\0", "mp3"),
    (b"\xff\xfb\x90\x44\0\0", "mp3"),
    (b"\xff\xf1\x50\x80\0\0", "aac"),
    (b"fLaC\0\0\0\x22", "flac"),
    (b"OggS\0\2\0\0", "ogg"),
    (b"\0\0\0\x20ftypM4A \0\0\0\0", "m4a"),
]


@pytest.mark.parametrize(("data", "kind"), BEGINNINGS, ids=[kind for _, kind in BEGINNINGS])
def test_the_first_bytes_tell_what_it_is_whatever_it_is_called(data: bytes, kind: str, tmp_path: Path) -> None:
    path = tmp_path / "download.bin"
    path.write_bytes(data)
    if kind.startswith("image/"):
        assert image(path) == file(path) == image_part(data, kind)
    else:
        assert audio(path) == {"type": "input_audio", "input_audio": {"data": b64(data), "format": kind}}


@pytest.mark.parametrize(
    ("name", "kind"), [("a.mp3", "mp3"), ("a.M4A", "m4a"), ("a.aac", "aac"), ("a.opus", "opus"), ("a.aiff", "aiff")]
)
def test_a_suffix_tells_where_the_bytes_do_not(name: str, kind: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(b"\0\1\2\3\x80")
    assert audio(path)["input_audio"]["format"] == kind


def test_a_media_type_that_is_given_counts_more_than_anything() -> None:
    assert image(PNG, media_type="image/X-Odd; charset=a") == image_part(PNG, "image/x-odd")
    assert audio(b"\0", media_type="audio/x-wav")["input_audio"]["format"] == "wav"
    assert file(b"\x80", media_type="application/msword", name="a.doc") == {
        "type": "file",
        "file": {"filename": "a.doc", "file_data": "data:application/msword;base64,gA=="},
    }
    assert file(b"{}", media_type="application/zip")["type"] == "file"


@pytest.mark.parametrize("name", ["notes.txt", "data.csv", "app.ts", "logo.svg", "Makefile", "page.html", "a.json"])
def test_a_text_becomes_text_under_its_name(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text("größe\n", encoding="utf-8")
    assert file(path) == {"type": "text", "text": f'<file name="{name}">\ngröße\n\n</file>'}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_the_marks_of_encodings_are_understood(encoding: str) -> None:
    assert file("größe".encode(encoding)) == {"type": "text", "text": "<file>\ngröße\n</file>"}


def test_a_file_is_attached_as_what_it_is(tmp_path: Path) -> None:
    for name, data in [("report.pdf", PDF), ("sound.wav", WAV), ("table.xlsx", b"PK\3\4\x80")]:
        (tmp_path / name).write_bytes(data)
    assert file(tmp_path / "report.pdf") == {
        "type": "file",
        "file": {"filename": "report.pdf", "file_data": f"data:application/pdf;base64,{b64(PDF)}"},
    }
    assert file(PDF)["file"]["filename"] == "file.pdf"  # type: ignore[typeddict-item]
    assert file(PDF, name="Report 2")["file"]["filename"] == "Report 2"  # type: ignore[typeddict-item]
    assert file(tmp_path / "sound.wav") == audio(WAV)
    sheet = file(tmp_path / "table.xlsx")["file"]["file_data"]  # type: ignore[typeddict-item]
    assert sheet.startswith("data:application/vnd.openxmlformats-officedocument.spreadsheetml.sheet;base64,")


@given(data=st.binary(min_size=1, max_size=300))
def test_any_bytes_come_back_as_they_were(data: bytes) -> None:
    url = image(data, media_type="image/png")["image_url"]["url"]
    assert base64.b64decode(url.partition(",")[2]) == data
    assert base64.b64decode(audio(data, media_type="audio/wav")["input_audio"]["data"]) == data
    held: Any = file(data, media_type="application/zip")
    assert base64.b64decode(held["file"]["file_data"].partition(",")[2]) == data
    assert image(url, media_type="image/png") == image(data, media_type="image/png")
    assert prompt_message([held])["content"] == [held]
    assert normalise([{"role": "user", "content": [held]}]) == [{"role": "user", "content": [held]}]


@pytest.mark.parametrize("size", [(12 << 16) - 1, 12 << 16, (12 << 16) + 1, 2_000_000])
def test_large_ones_do_too(size: int) -> None:
    data = PNG + bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    part = image(data)
    assert part == image_part(data)
    assert image(part["image_url"]["url"]) == part
    assert encode(ToolResult(parts=(part,)), limit=1000).parts == (part,)
    broken: Any = image_part(data)["image_url"]["url"][:-4] + "=AAA"
    with pytest.raises(ConfigurationError, match="damaged"):
        image(broken)


@given(text=st.text(min_size=1, max_size=50).filter(lambda text: "\0" not in text and not text.startswith("\ufeff")))
def test_any_text_is_attached_as_it_is(text: str) -> None:
    data = text.encode()
    part: Any = file(data, media_type="text/plain")
    assert part["text"] == f"<file>\n{text}\n</file>"


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda _: image("nowhere.png"), r"no file 'nowhere\.png'.*spelling"),
        (lambda here: image(here / "text.txt" / "x"), r"There is no file '.*text\.txt/x'"),
        (lambda here: file(here), r"is a folder\. Attach the files in it"),
        (lambda here: file(here / ("x" * 300)), r"cannot be read: File name too long\. Look"),
        (lambda _: file("a\0b"), r"'a\\x00b' cannot be read: "),
        (lambda here: file(here / "empty"), r"empty' is empty: there is nothing"),
        (lambda _: audio(b""), r"What was given as bytes is empty"),
        (
            lambda here: image(here / "pier.png", max_bytes=20),
            r"pier\.png' is larger than 20 B \(20 bytes\).*max_bytes=",
        ),
        (lambda _: image(PNG, max_bytes=20), "What was given as bytes is larger than"),
        (lambda _: image(f"data:image/png;base64,{b64(PNG)}", max_bytes=20), "What the data URL holds is larger than"),
        (lambda _: image(PNG, max_bytes=0), "max_bytes is 0; it has to be a whole number from 1 on"),
        (lambda here: image(here / "text.txt"), r"text\.txt' is text/plain, which is text to a model.*file\(\)"),
        (lambda here: image(here / "not.png"), r"not\.png' is called image/png, but its first bytes are not"),
        (lambda here: file(here / "not.png"), r"not\.png' is called image/png, but its first bytes are not"),
        (lambda _: image(WAV), r"is audio/wav, not an image\. Attach it with file\(\)"),
        (lambda _: audio(PNG), r"is image/png, not a sound\. Attach it with file\(\) or image\(\)"),
        (lambda _: image(b"\0\1"), r"cannot be told what .*media_type=, such as 'image/png'"),
        (lambda _: audio(b"\0\1"), r"cannot be told what .*media_type=, such as 'audio/wav'"),
        (lambda _: file(b"\0\1"), r"cannot be told what .*media_type=, such as 'application/pdf'"),
        (lambda _: file(b"\0\1"), "^What was given as bytes is of an unknown kind: "),
        (lambda here: file(here / "latin.csv"), r"latin\.csv' is text/csv, but neither UTF-8 nor UTF-16\. Convert"),
        (lambda _: image(PNG, media_type="png"), r"media_type is 'png'; expected one such as 'image/png'"),
        (lambda _: image("data:image/png;base64,???"), "data URL to attach is damaged"),
        (lambda _: image("data:image/png"), "data URL to attach is damaged"),
        (lambda _: image("data:image/png;base64,"), "What the data URL holds is empty"),
        (
            lambda _: audio("https://e.org/a.mp3?key=sesame"),
            r"takes no address such as 'https://e\.org/a\.mp3'\. Download",
        ),
        (lambda _: image("file:///tmp/a.png"), r"'file:///tmp/a\.png' is on this machine: give its path"),
        (lambda _: file("s3://bucket/a"), r"'s3://bucket/a' cannot be attached: a URL begins with https://"),
        (lambda _: image("https://"), "cannot be attached"),
        (lambda _: image("https://e.org/a b"), "has no spaces"),
        (lambda _: image("https://[::1/a"), "cannot be read"),
        (lambda _: image("https://me:sesame@e.org/a"), "user name or password"),
        (lambda _: image(None), "There is a NoneType to attach; give a path, bytes, or a URL"),
        (lambda _: file(io.BytesIO(PNG)), r"There is a BytesIO to attach.*read\(\)"),
    ],
)
def test_what_cannot_be_attached_is_refused_by_name_and_with_the_next_step(
    make: Any, complaint: str, tmp_path: Path
) -> None:
    (tmp_path / "text.txt").write_text("hello")
    (tmp_path / "not.png").write_text("<html>not found</html>")
    (tmp_path / "latin.csv").write_bytes("größe\0".encode("latin-1"))
    (tmp_path / "pier.png").write_bytes(PNG)
    (tmp_path / "empty").touch()
    with pytest.raises(ConfigurationError, match=complaint) as caught:
        make(tmp_path)
    assert "sesame" not in str(caught.value)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigurationError, match=r"pipe' is a device or a pipe\. Read it yourself"):
        file(tmp_path / "pipe")


def test_no_more_than_the_bound_is_read_of_a_file_that_is_larger(tmp_path: Path) -> None:
    path = tmp_path / "large.png"
    with path.open("wb") as opened:
        opened.truncate(1 << 40)
    with pytest.raises(ConfigurationError, match=r"larger than 21\.0 MB \(20971520 bytes\)"):
        image(path)


async def test_a_file_can_be_read_beside_the_event_loop(tmp_path: Path) -> None:
    (tmp_path / "pier.png").write_bytes(PNG)
    assert await asyncio.to_thread(image, tmp_path / "pier.png") == image_part(PNG)


# Sending them


def replies(style: str, stream: bool, *texts: str, calls: Any = ()) -> Any:
    if style == "openai":
        return openai_stream(*texts, calls=calls) if stream else openai_reply("".join(texts), calls=calls)
    return anthropic_stream(*texts, calls=calls) if stream else anthropic_reply("".join(texts), calls=calls)


async def asked(style: str, stream: bool, prompt: Any, tools: Any = (), *, calls: Any = (), **options: Any) -> Any:
    """The messages of the last request, which a strict server takes, and the result."""
    steps = [replies(style, stream, "", calls=calls)] if calls else []
    transport = ScriptedTransport(*steps, replies(style, stream, "A pier."))
    async with create_client(f"{style}:m", style=style, api_key="k", transport=transport, **options) as client:
        if stream:
            result = (await read(client.stream(prompt, tools, id="c")))[-1].result  # type: ignore[union-attr]
        else:
            result = await client.ask(prompt, tools, id="c")
    transport.assert_finished()
    body = transport.requests[-1].json
    (check_openai if style == "openai" else check_anthropic)(body)
    assert result.text == "A pier."
    return body["messages"], result


BOTH = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@BOTH
async def test_openai_gets_images_sounds_and_files(stream: bool) -> None:
    prompt: list[Any] = [TEXT, image(PNG, detail="high"), audio(WAV), file(PDF, name="a.pdf"), file(b"hello")]
    by_id = {"type": "file", "file": {"file_id": "file_1", "filename": "old.pdf"}}
    messages, result = await asked("openai", stream, [*prompt, by_id])
    assert messages[0]["content"] == [*prompt, {"type": "file", "file": {"file_id": "file_1"}}]
    assert result.messages[0]["content"] == [*prompt, by_id]


@BOTH
async def test_anthropic_gets_images_and_documents(stream: bool) -> None:
    prompt: list[Any] = [
        TEXT,
        image(PNG, detail="high"),
        image("https://example.org/a.png"),
        file(PDF, name="a.pdf"),
        file("https://example.org/b.pdf"),
        {"type": "file", "file": {"file_id": "file_1"}},
        file(b"hello", name="a.txt"),
    ]
    messages, result = await asked("anthropic", stream, prompt)
    assert messages[0]["content"] == [
        TEXT,
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": b64(PNG)}},
        {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": b64(PDF)},
            "title": "a.pdf",
        },
        {"type": "document", "source": {"type": "url", "url": "https://example.org/b.pdf"}},
        {"type": "document", "source": {"type": "file", "file_id": "file_1"}},
        {"type": "text", "text": '<file name="a.txt">\nhello\n</file>'},
    ]
    assert result.messages[0]["content"] == prompt


async def test_a_file_that_is_an_image_or_text_is_said_as_that_where_files_are_not_taken() -> None:
    def held(kind: str, data: bytes) -> Any:
        return {"type": "file", "file": {"filename": "a", "file_data": f"data:{kind};base64,{b64(data)}"}}

    messages, _ = await asked("anthropic", False, [held("image/png", PNG), held("text/csv", b"a,b")])
    assert messages[0]["content"] == [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": b64(PNG)}},
        {"type": "text", "text": '<file name="a">\na,b\n</file>'},
    ]


REFUSED: list[tuple[str, Any, str]] = [
    (
        "anthropic",
        audio(WAV),
        r"prompt\[1\] is audio, audio/wav, 44 B, which 'm' cannot be sent here\. It takes file_id, ",
    ),
    ("anthropic", file(b"PK\3\4\x80", name="a.docx", media_type="application/msword"), r"is the file 'a\.docx', app"),
    (
        "openai",
        file("https://e.org/a.pdf?key=sesame"),
        r"is a file at https://e\.org/a\.pdf, which 'm'.*input_audio, text",
    ),
    (
        "reads",
        image(PNG),
        r"is an image, image/png, 70 B, which 'm' cannot be sent here\. It takes text\. Leave it out",
    ),
]


@pytest.mark.parametrize(("style", "part", "complaint"), REFUSED, ids=["audio", "docx", "file_url", "row"])
async def test_what_a_user_attached_and_the_model_cannot_take_is_refused_before_anything(
    style: str, part: Any, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = Provider(name="reads", base_url="https://reads.test/v1", key_required=False, parts=frozenset({"text"}))
    monkeypatch.setitem(PROVIDERS, "reads", row)
    wire = "openai" if style == "reads" else style
    transport, store = ScriptedTransport(), InMemoryConversationStore()
    async with create_client(f"{style}:m", style=wire, api_key="k", transport=transport, store=store) as client:
        prompt = [TEXT, part]
        stream = client.stream(prompt, id="c")
        forgotten = client.stream(prompt)
        for attempt in (client.run(prompt), client.ask(prompt, id="c"), read(stream), read(forgotten)):
            with pytest.raises(ConfigurationError, match=complaint) as caught:
                await attempt
            assert "sesame" not in str(caught.value)
            assert b64(PNG)[:20] not in str(caught.value)
        assert await store.get("c") is None
    assert transport.requests == []


async def test_a_provider_that_takes_files_takes_what_its_wire_can_say_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    row = Provider(
        name="files", base_url="https://files.test", styles=("anthropic",), parts=frozenset({"text", "file"})
    )
    monkeypatch.setitem(PROVIDERS, "files", row)
    transport = ScriptedTransport(anthropic_reply("ok"))
    async with create_client("files:m", api_key="k", transport=transport) as client:
        await client.run([file(PDF), file("https://e.org/a.pdf")])
        with pytest.raises(ConfigurationError, match="is an image"):
            await client.run([image(PNG)])
    assert [block["type"] for block in transport.requests[0].json["messages"][0]["content"]] == ["document"] * 2


async def test_parts_of_another_model_become_short_texts_and_are_kept() -> None:
    store = InMemoryConversationStore()
    prompt: list[Any] = [TEXT, audio(WAV), file(b"PK\3\4\x80", name="a.docx", media_type="application/msword")]
    await asked("openai", False, prompt, store=store)
    messages, result = await asked("anthropic", False, "And now?", store=store)

    assert messages[0]["content"] == [
        TEXT,
        {"type": "text", "text": "(Here is audio, audio/wav, 44 B, which cannot be shown.)"},
        {"type": "text", "text": "(Here is the file 'a.docx', application/msword, 5 B, which cannot be shown.)"},
    ]
    messages, result = await asked("openai", False, "And then?", store=store)
    assert messages[0]["content"] == prompt
    assert result.messages[0]["content"] == prompt


async def test_a_history_with_any_part_can_be_continued_anywhere() -> None:
    parts: list[Any] = [audio(WAV), file("https://e.org/a.pdf"), {"type": "file", "file": {"file_id": "f"}}, image(PNG)]
    history: list[Any] = [{"role": "user", "content": parts}, {"role": "assistant", "content": "Ok."}]
    for style in ("openai", "anthropic"):
        transport = ScriptedTransport(replies(style, False, "Yes."), replies(style, False, "Yes."))
        async with create_client(f"{style}:m", style=style, api_key="k", transport=transport) as client:
            await client.run("Go on.", history=history)
            await client.run(None, history=history[:1])
        assert all("audio" in json.dumps(request.json) for request in transport.requests)


async def test_a_model_in_this_process_gets_all_parts_as_they_are() -> None:
    seen: list[Any] = []

    def generate(request: dict[str, Any]) -> dict[str, Any]:
        seen.extend(request["messages"])
        return {"content": "ok"}

    prompt: list[Any] = [image(PNG), audio(WAV), file(PDF), file("https://e.org/a.pdf", name="a")]
    await create_in_process_client(generate=generate).run(prompt)
    assert seen == [{"role": "user", "content": prompt}]


# What tools give


async def snap() -> bytes:
    return PNG


def report() -> Any:
    return ["The report:", file(PDF, name="r.pdf"), {"type": "audio", "data": b64(WAV), "mimeType": "audio/wav"}]


CALLS = [call("snap"), call("report")]


@BOTH
async def test_what_tools_give_reaches_openai_after_the_results(stream: bool) -> None:
    messages, result = await asked("openai", stream, "go", [snap, report], calls=CALLS)
    assert [message["content"] for message in messages[2:4]] == ["(an image, image/png, 70 B)", "The report:"]
    assert messages[4]["content"] == [
        {"type": "text", "text": "Output of snap, call call_1:"},
        image(PNG),
        {"type": "text", "text": "Output of report, call call_2:"},
        file(PDF, name="r.pdf"),
        audio(WAV),
    ]
    assert [record.output for record in result.tool_calls] == ["(an image, image/png, 70 B)", "The report:"]


@BOTH
async def test_what_tools_give_stands_in_the_results_of_anthropic(stream: bool) -> None:
    messages, _ = await asked("anthropic", stream, "go", [snap, report], calls=CALLS)
    assert [block["content"] for block in messages[2]["content"]] == [
        [
            {"type": "text", "text": "(an image, image/png, 70 B)"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": b64(PNG)}},
        ],
        [
            {"type": "text", "text": "The report:"},
            {
                "type": "document",
                "source": {"type": "base64", "media_type": "application/pdf", "data": b64(PDF)},
                "title": "r.pdf",
            },
            {"type": "text", "text": "(Here is audio, audio/wav, 44 B, which cannot be shown.)"},
        ],
    ]


async def test_a_result_that_its_provider_cannot_take_is_said_in_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    row = Provider(name="reads", base_url="https://reads.test/v1", key_required=False, parts=frozenset({"text"}))
    monkeypatch.setitem(PROVIDERS, "reads", row)
    transport = ScriptedTransport(openai_reply(calls=[call("snap")]), openai_reply("ok"))
    async with create_client("reads:m", transport=transport) as client:
        await client.run("go", [snap])
    assert transport.requests[1].json["messages"][2:] == [
        {
            "role": "tool",
            "tool_call_id": "call_1",
            "content": "(an image, image/png, 70 B)\n(Here is an image, image/png, 70 B, which cannot be shown.)",
        }
    ]


MCP_IMAGE = {"type": "image", "data": b64(PNG), "mimeType": "image/png", "annotations": {"audience": ["user"]}}
MCP_FILE = {"type": "resource", "resource": {"uri": "file:///r.pdf", "mimeType": "application/pdf", "blob": b64(PDF)}}
MCP_TEXT = {"type": "resource", "resource": {"uri": "file:///a.txt", "mimeType": "text/plain", "text": "hello"}}
AS_TEXT = '<file name="file:///a.txt">\nhello\n</file>'
GIVEN: dict[str, tuple[Any, str, tuple[Any, ...]]] = {
    "bytes": (PNG, "(an image, image/png, 70 B)", (image(PNG),)),
    "a sound": (bytearray(WAV), "(audio, audio/wav, 44 B)", (audio(WAV),)),
    "a part": (image(PNG), "(an image, image/png, 70 B)", (image(PNG),)),
    "a block": (MCP_IMAGE, "(an image, image/png, 70 B)", (image(PNG),)),
    "a resource": (
        [MCP_FILE],
        "(the file 'file:///r.pdf', application/pdf, 36 B)",
        (file(PDF, name="file:///r.pdf"),),
    ),
    "a resource of text": (MCP_TEXT, AS_TEXT, ()),
    "in turn": (
        ["One:", TEXT, image(PNG), "Two:", MCP_IMAGE],
        "One:\nWhat is this?",
        (image(PNG), {"type": "text", "text": "Two:"}, image(PNG)),
    ),
    "with line breaks": (
        {**MCP_IMAGE, "data": "\n".join([b64(PNG)[:60], b64(PNG)[60:]])},
        "(an image, image/png, 70 B)",
        (image(PNG),),
    ),
    "damaged": ({**MCP_IMAGE, "data": "a?"}, "(Here is an image, image/png, 1 B, which cannot be read.)", ()),
}


@pytest.mark.parametrize(("value", "output", "parts"), GIVEN.values(), ids=GIVEN)
def test_content_that_a_tool_returns_becomes_parts(value: Any, output: str, parts: Any) -> None:
    result = encode(value, limit=1000)
    assert (result.output, result.parts) == (output, parts)
    assert result.structured is value


DATA: list[Any] = [
    {"type": "image", "url": "https://e.org/a.png", "title": "A pier"},
    {"type": "image", "data": "AAAA", "mimeType": "image/png", "width": 3},
    {"type": "file", "path": "/tmp/a"},
    {"type": "file", "file": {"name": "a"}},
    {"type": ["image"]},
    [{"type": "text", "text": "hello"}],
    [MCP_IMAGE, {"id": 3}],
    [MCP_IMAGE, 3],
    [MCP_IMAGE] * 101,
]


@pytest.mark.parametrize("value", DATA, ids=range(len(DATA)))
def test_data_that_only_looks_like_content_stays_data(value: Any) -> None:
    result = encode(value, limit=100_000)
    assert json.loads(result.output) == value
    assert result.parts == ()


def test_what_is_too_large_is_said_in_short() -> None:
    large = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{'A' * (MAX_BYTES // 3 * 2)}"}}
    parts: Any = (image(PNG), large, large, large)
    told = {"type": "text", "text": "(Here is an image, image/png, 10.5 MB, which is too large to be shown.)"}
    assert encode(ToolResult(parts=parts), limit=1000).parts == (image(PNG), large, told, told)
    result = encode(PNG + bytes(MAX_BYTES), limit=1000)
    assert (result.output, result.parts) == ("(image/png, 21.0 MB, which is too large to be shown.)", ())


def test_the_texts_of_a_result_share_its_limit() -> None:
    result = encode(["x" * 80, image(PNG), "y" * 80, "z" * 80], limit=100)
    assert sum(len(part["text"]) for part in result.parts if part["type"] == "text") < 300
    assert [part["text"][:2] for part in result.parts if part["type"] == "text"] == ["yy", "\n["]
    odd: Any = ({"type": "hologram", "data": "x" * 100},)
    assert encode(ToolResult(parts=odd), limit=50).parts[0]["text"].count("[cut here") == 1  # type: ignore[typeddict-item]


def test_odd_parts_of_a_result_are_made_such_that_providers_take_them() -> None:
    odd: Any = (
        {**image(PNG), "cache_control": {"type": "ephemeral"}},
        MCP_IMAGE,
        {"type": "image_url", "image_url": {"url": "file:///etc/passwd"}},
        {"type": "input_audio", "input_audio": {"data": "A", "format": "wav"}},
        {"type": "file", "file": {}},
    )
    assert encode(ToolResult(parts=odd), limit=1000).parts == (
        image(PNG),
        image(PNG),
        {"type": "text", "text": "(Here is an image at file:///etc/passwd, which cannot be read.)"},
        {"type": "text", "text": "(Here is audio, audio/wav, 0 B, which cannot be read.)"},
        {"type": "text", "text": '{"type":"file","file":{}}'},
    )


# Keeping them


@asynccontextmanager
async def postgres(_: Path) -> AsyncIterator[Any]:
    import psycopg

    from toolnexus import PostgresStore

    url, schema = "postgresql://postgres@127.0.0.1:5432/test", f"tn_{secrets.token_hex(8)}"
    try:
        yield PostgresStore(url, schema=schema)
    finally:
        with psycopg.connect(url, autocommit=True) as admin:
            admin.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")  # type: ignore[arg-type]


@asynccontextmanager
async def redis(_: Path) -> AsyncIterator[Any]:
    from redis import Redis

    from toolnexus import RedisStore

    prefix = f"tn_{secrets.token_hex(8)}"
    yield RedisStore("redis://127.0.0.1:6379", prefix=prefix)
    with Redis.from_url("redis://127.0.0.1:6379") as admin:
        if names := list(admin.scan_iter(f"{prefix}*", count=1_000)):
            admin.delete(*names)


@asynccontextmanager
async def memory(_: Path) -> AsyncIterator[Any]:
    yield InMemoryConversationStore()


@asynccontextmanager
async def sqlite(folder: Path) -> AsyncIterator[Any]:
    yield SQLiteStore(folder / "chat.db")


@asynccontextmanager
async def files(folder: Path) -> AsyncIterator[Any]:
    yield FileStore(folder / "chats")


@pytest.mark.parametrize(
    "make",
    [
        memory,
        sqlite,
        files,
        pytest.param(postgres, marks=pytest.mark.service("postgres")),
        pytest.param(redis, marks=pytest.mark.service("redis")),
    ],
    ids=lambda make: make.__name__,
)
async def test_every_store_keeps_them(make: Any, tmp_path: Path) -> None:
    prompt: list[Any] = [TEXT, image(PNG), audio(WAV), file(PDF, name="a.pdf"), file(bytes(1 << 20), media_type="a/b")]
    async with make(tmp_path) as store:
        await asked("openai", False, prompt, [snap], calls=[call("snap")], store=store)
        kept = await store.get("c")
        await store.aclose()
    assert kept[0] == {"role": "user", "content": prompt}
    assert kept[2]["content"] == [{"type": "text", "text": "(an image, image/png, 70 B)"}, image(PNG)]


# Showing them


async def test_nothing_that_people_look_at_shows_what_is_in_them(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    events: list[Any] = []
    client, _ = scripted(
        openai_stream(calls=[call("snap"), call("report"), call("fails")]), openai_stream("ok"), on_event=events.append
    )

    def fails() -> ToolResult:
        return ToolResult(output="no", is_error=True, parts=(image(PNG),))

    await read(client.stream([TEXT, image(PNG), file(PDF)], [snap, report, fails]))
    told = json.dumps([event.to_dict() for event in events]) + repr(events) + caplog.text
    assert events[-1].type == "finished"
    for data in (PNG, PDF, WAV):
        assert b64(data)[:20] not in told
    assert "an image, image/png, 70 B" in told


def test_people_are_shown_a_few_words_for_each() -> None:
    content: Any = [TEXT, image(PNG), file(PDF, name="a.pdf"), image("https://e.org/a.png?key=sesame")]
    assert shown_text(content) == (
        "What is this? [an image, image/png, 70 B] [the file 'a.pdf', application/pdf, 36 B] "
        "[an image at https://e.org/a.png]"
    )
    assert shown_text(None) == ""
    assert shown_text("Hi") == "Hi"


# Reading those that were written elsewhere

ELSEWHERE: dict[str, tuple[Any, Any]] = {
    "anthropic: a document": (
        {
            "type": "document",
            "title": "a.pdf",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "AA"},
        },
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AA"}},
    ),
    "anthropic: a document at an address": (
        {"type": "document", "source": {"type": "url", "url": "https://e.org/a.pdf"}, "citations": {"enabled": True}},
        {"type": "file", "file": {"file_url": "https://e.org/a.pdf"}, "citations": {"enabled": True}},
    ),
    "anthropic: a document by its id": (
        {"type": "document", "source": {"type": "file", "file_id": "f"}},
        {"type": "file", "file": {"file_id": "f"}},
    ),
    "anthropic: a document that is text": (
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "hello"}},
        {"type": "text", "text": "<file>\nhello\n</file>"},
    ),
    "responses: a text": ({"type": "input_text", "text": "a"}, {"type": "text", "text": "a"}),
    "responses: an image": (
        {"type": "input_image", "image_url": "https://e.org/a.png", "detail": "low"},
        {"type": "image_url", "image_url": {"url": "https://e.org/a.png", "detail": "low"}},
    ),
    "responses: an image by its id": (
        {"type": "input_image", "file_id": "f", "detail": "auto"},
        {"type": "file", "file": {"file_id": "f"}},
    ),
    "responses: a file": (
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,AA"},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AA"}},
    ),
    "responses: a file at an address": (
        {"type": "input_file", "file_url": "https://e.org/a.pdf"},
        {"type": "file", "file": {"file_url": "https://e.org/a.pdf"}},
    ),
    "chat: bare base64": (
        {"type": "file", "file": {"filename": "a.pdf", "file_data": b64(PDF)}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{b64(PDF)}"}},
    ),
    "mcp: a sound": (
        {"type": "audio", "data": "AA", "mimeType": "audio/mpeg"},
        {"type": "input_audio", "input_audio": {"data": "AA", "format": "mp3"}},
    ),
    "mcp: a resource": (MCP_TEXT, {"type": "text", "text": AS_TEXT}),
    "mcp: a resource of bytes": (MCP_FILE, file(PDF, name="file:///r.pdf")),
}


@pytest.mark.parametrize(("part", "expected"), ELSEWHERE.values(), ids=ELSEWHERE)
def test_parts_of_other_apis_are_read(part: Any, expected: Any) -> None:
    messages = normalise([{"role": "user", "content": [part]}])
    assert messages == [{"role": "user", "content": [expected]}]
    assert normalise(messages) == messages


@pytest.mark.parametrize(
    ("part", "complaint"),
    [
        (
            {"type": "input_audio", "input_audio": {"data": 3, "format": "wav"}},
            r"is a part of the type 'input_audio'; exp",
        ),
        ({"type": "input_audio", "input_audio": {"data": "AA"}}, "is a part of the type 'input_audio'"),
        ({"type": "file", "file": {"filename": "a"}}, "is a part of the type 'file'; expected .* with file_data"),
        ({"type": "file", "file": {"file_id": "f", "filename": 3}}, "is a part of the type 'file'"),
        ({"type": "document", "source": {"type": "content", "content": []}}, "is a part of the type 'document'; exp"),
        ({"type": "input_image"}, "is a part of the type 'input_image'; expected an image with image_url"),
        ({"type": "audio", "data": "AA"}, "is a part of the type 'audio'; expected audio with mimeType"),
        ({"type": "resource", "resource": {"uri": "a"}}, "is a part of the type 'resource'; expected a resource with"),
    ],
)
def test_a_part_that_is_incomplete_is_refused_at_its_place(part: Any, complaint: str) -> None:
    with pytest.raises(InvalidTranscript, match=rf"^messages\[0\]\.content\[0\] {complaint}"):
        normalise([{"role": "user", "content": [part]}])
