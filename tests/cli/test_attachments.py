"""Files that go along with a question."""

from __future__ import annotations

import asyncio
import base64
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import local
import pytest
from click.testing import Result

from toolnexus.cli import attachments
from toolnexus.parts import MAX_BYTES

Cli = Callable[..., Result]

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with files in it."""
    folder = tmp_path / "here"
    (folder / "docs").mkdir(parents=True)
    (folder / "pier.png").write_bytes(PNG)
    (folder / "two words.txt").write_text("some text", encoding="utf-8")
    (folder / "docs" / "a.md").write_text("# A", encoding="utf-8")
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("words", "text", "files", "missing"),
    [
        (["@pier.png what is this?"], "@pier.png what is this?", ("pier.png",), ()),
        (["@pier.png", "what?"], "@pier.png what?", ("pier.png",), ()),
        (["What is @pier.png?"], "What is @pier.png?", ("pier.png",), ()),
        (["(see @docs/a.md)."], "(see @docs/a.md).", ("docs/a.md",), ()),
        (["@pier.png and @pier.png"], "@pier.png and @pier.png", ("pier.png",), ()),
        (['sum up @"two words.txt"'], 'sum up @"two words.txt"', ("two words.txt",), ()),
        (["@two words.txt", "sum up"], "@two words.txt sum up", ("two words.txt",), ()),
        ([r"\@pier.png is a name"], "@pier.png is a name", (), ()),
        (["ask @ada about it"], "ask @ada about it", (), ("ada",)),
        (["what is in @docs?"], "what is in @docs?", (), ("docs",)),
        (["mail ada@pier.png"], "mail ada@pier.png", (), ()),
        (["a @ b, and @"], "a @ b, and @", (), ()),
        (["@" + "x" * 5000], "@" + "x" * 5000, (), ("x" * 5000,)),
        (["one\n@pier.png\ntwo"], "one\n@pier.png\ntwo", ("pier.png",), ()),
    ],
)
def test_what_a_question_names(words: list[str], text: str, files: tuple[str, ...], missing: tuple[str, ...]) -> None:
    assert attachments.find(words) == (text, files, missing)


@pytest.mark.usefixtures("here")
def test_what_is_no_file_is_told() -> None:
    assert list(attachments.told(["ada", "docs"])) == [
        "@ada names no file, so it was sent as text.",
        "@docs is a folder, so it was sent as text.",
    ]


async def sent(command: Callable[..., Any], *args: str, text: str = "") -> Any:
    """What arrives as the user's message."""
    async with local.server(lambda seen: local.in_kind(seen, "I see.")) as server:
        done: subprocess.CompletedProcess[str] = await asyncio.to_thread(
            command, "-m", "m", "--base-url", server.url, *args, text=text
        )
    assert (done.returncode, done.stdout) == (0, "I see.\n")
    return server.bodies[0]["messages"][-1]["content"]


@pytest.mark.usefixtures("here")
async def test_files_go_along_with_the_question(command: Callable[..., Any]) -> None:
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{base64.b64encode(PNG).decode()}"}}
    assert await sent(command, "what is @pier.png?") == [{"type": "text", "text": "what is @pier.png?"}, image]
    assert await sent(command, "-a", "pier.png", "--attach", "two words.txt", "compare") == [
        {"type": "text", "text": "compare"},
        image,
        {"type": "text", "text": '<file name="two words.txt">\nsome text\n</file>'},
    ]


@pytest.mark.usefixtures("here")
async def test_what_comes_through_a_pipe_names_no_files(command: Callable[..., Any]) -> None:
    assert await sent(command, text="what is @pier.png?") == "what is @pier.png?"
    piped = await sent(command, "sum up @docs/a.md", text="and @pier.png")
    assert [part["type"] for part in piped] == ["text", "text"]
    assert piped[0]["text"] == "sum up @docs/a.md\n\nand @pier.png"
    assert await sent(command, "chat", text="what is @pier.png?\n") == "what is @pier.png?"
    first = await sent(command, "chat", "-a", "pier.png", text="what is this?\n")
    assert [part["type"] for part in first] == ["text", "image_url"]


@pytest.mark.usefixtures("here")
async def test_a_url_is_left_to_the_provider(command: Callable[..., Any]) -> None:
    _, part = await sent(command, "-a", "https://example.com/pier.png", "what is this?")
    assert part == {"type": "image_url", "image_url": {"url": "https://example.com/pier.png"}}


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["-a", "none.png", "hello"], "There is no file 'none.png'."),
        (["-a", "docs", "hello"], "'docs' is a folder."),
        (["-a", "empty.txt", "hello"], "'empty.txt' is empty"),
        (["hello @empty.txt"], "'empty.txt' is empty"),
        (["-a", "big.bin", "hello"], "'big.bin' is larger than 21.0 MB"),
        (["-a", "big.bin", "hello"], "or give the URL of it with --attach."),
        (["-a", "half.bin", "hello @half2.bin"], "have 22.0 MB together, most of it 'half.bin'; no more than 21.0 MB"),
        (["-a", "noise", "hello"], "Give it a suffix that tells."),
        (["-a", "broken.png", "hello"], "then give it a suffix that says so."),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_cannot_be_attached_is_said_before_anything_is_sent(
    cli: Cli, here: Path, args: list[str], said: str
) -> None:
    (here / "empty.txt").write_bytes(b"")
    (here / "noise").write_bytes(b"\0\xff\xfe\x01")
    (here / "broken.png").write_bytes(b"no image \xff")
    for name, size in (("big.bin", MAX_BYTES + 1), ("half.bin", 11_000_000), ("half2.bin", 11_000_000)):
        with (here / name).open("wb") as file:
            file.truncate(size)
    done = cli("-m", "demo", *args)
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr
    assert "max_bytes" not in done.stderr
    assert "media_type" not in done.stderr
