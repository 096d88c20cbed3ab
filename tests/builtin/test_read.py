"""The tool read: windows of text, encodings, and what can be shown itself."""

from __future__ import annotations

import base64
import resource
import time
from pathlib import Path

import pytest
from file_tools import file_tools

from toolnexus import ToolContext
from toolnexus.sources.builtin import read
from toolnexus.sources.builtin.workspace import FileProblem, Workspace

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def numbered(first: int, last: int) -> str:
    return "\n".join(f"{number}\tline {number}" for number in range(first, last + 1))


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    (tmp_path / "f.txt").write_text("".join(f"line {number}\n" for number in range(1, 11)))
    return tmp_path


async def test_lines_come_with_their_numbers(lines: Path) -> None:
    tools = await file_tools(lines)
    assert await tools.ok("read", path="f.txt") == numbered(1, 10)
    assert await tools.ok("read", path="f.txt", offset=9) == f"{numbered(9, 10)}\n[the end of the file]"
    assert await tools.ok("read", path="f.txt", offset=3, limit=2) == (
        f"{numbered(3, 4)}\n[there is more; go on with offset=5]"
    )
    assert await tools.ok("read", path="f.txt", limit=10) == numbered(1, 10)
    result = await tools.result("read", path="f.txt", limit=1)
    assert result.metadata == {"path": "f.txt", "first": 1, "last": 1, "more": True}


async def test_what_is_not_there_is_said(lines: Path) -> None:
    tools = await file_tools(lines)
    (lines / "empty").touch()
    (lines / "one").write_text("only")
    assert await tools.ok("read", path="empty") == "['empty' is empty]"
    assert "has only 10 lines" in await tools.refused("read", path="f.txt", offset=11)
    assert "has only 1 line," in await tools.refused("read", path="one", offset=2)
    assert "has only 0 lines" in await tools.refused("read", path="empty", offset=2)
    assert "Did you mean 'f.txt'?" in await tools.refused("read", path="f.tx")
    assert "There is no file 'a/b'" in await tools.refused("read", path="a/b")
    assert "'f.txt/x'" in await tools.refused("read", path="f.txt/x")
    for arguments in ({"offset": 0}, {"limit": 0}, {"lines": 3}, {"offset": "1"}):
        assert "The arguments do not fit" in await tools.refused("read", path="f.txt", **arguments)


async def test_a_folder_is_no_file_but_its_names_are_told(lines: Path) -> None:
    (lines / "sub").mkdir()
    tools = await file_tools(lines)
    assert (await tools.refused("read", path=".")).endswith("is a folder, not a file. It holds: f.txt, sub/.")
    assert (await tools.refused("read", path="sub")).endswith("It holds: nothing.")


async def test_two_thousand_lines_are_read_at_once(tmp_path: Path) -> None:
    (tmp_path / "f.txt").write_text("x\n" * 2001)
    output = await (await file_tools(tmp_path)).ok("read", path="f.txt")
    assert output.endswith("\n2000\tx\n[there is more; go on with offset=2001]")


async def test_a_long_answer_ends_where_it_says_how_to_go_on(tmp_path: Path) -> None:
    (tmp_path / "f.txt").write_text(("y" * 999 + "\n") * 200)
    tools = await file_tools(tmp_path)
    first = await tools.ok("read", path="f.txt")
    assert len(first) < 64 * 1024
    *_, last, note = first.split("\n")
    number = int(last.partition("\t")[0])
    assert note == f"[there is more; go on with offset={number + 1}]"
    rest = [line async for line in _all_lines(tools, "f.txt")]
    assert rest == [f"{number}\t{'y' * 999}" for number in range(1, 201)]


async def _all_lines(tools, path):
    offset = 1
    while True:
        result = await tools.result("read", path=path, offset=offset)
        for line in result.output.split("\n"):
            if not line.startswith("["):
                yield line
        if not result.metadata["more"]:
            return
        offset = result.metadata["last"] + 1


async def test_long_lines_are_cut_and_the_next_ones_are_still_found(tmp_path: Path) -> None:
    (tmp_path / "f.txt").write_text("a" * 2000 + "\n" + "b" * 2001 + "\r\n" + "c" * 500_000 + "\nlast")
    tools = await file_tools(tmp_path)
    cut = "… [cut: the line is longer]"
    wanted = ["1\t" + "a" * 2000, "2\t" + "b" * 2000 + cut, "3\t" + "c" * 2000 + cut, "4\tlast"]
    assert await tools.ok("read", path="f.txt") == "\n".join(wanted)
    for number, line in enumerate(wanted, 1):
        assert (await tools.ok("read", path="f.txt", offset=number, limit=1)).startswith(line)
    assert "has only 4 lines" in await tools.refused("read", path="f.txt", offset=5)


@pytest.mark.parametrize("line", [b"a line of a log\n", b"x" * (40 << 20)], ids=["many lines", "one line"])
async def test_one_line_of_a_large_file_costs_no_more_than_a_line(tmp_path: Path, line: bytes) -> None:
    size = 40 << 20
    with (tmp_path / "large").open("wb") as file:
        for _ in range(size // len(line)):
            file.write(line)
    tools = await file_tools(tmp_path)
    (tmp_path / "small").write_text("x")
    await tools.ok("read", path="small")
    read, before = _bytes_read(), _peak()
    output = await tools.ok("read", path="large", limit=1)
    assert output.startswith("1\t" + line[:10].decode())
    assert "offset=2" in output
    assert _bytes_read() - read < 1 << 20
    assert _peak() - before < 8 << 20


def _bytes_read() -> int:
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["rchar"])


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


async def test_encodings_that_are_known_are_read_and_named(tmp_path: Path) -> None:
    text = "grüße\nzwei 🎈\n"
    for name, encoding, mark in [
        ("utf8", "utf-8", b"\xef\xbb\xbf"),
        ("le", "utf-16-le", b"\xff\xfe"),
        ("be", "utf-16-be", b"\xfe\xff"),
        ("le32", "utf-32-le", b"\xff\xfe\0\0"),
    ]:
        (tmp_path / name).write_bytes(mark + text.encode(encoding))
        output = await (await file_tools(tmp_path)).ok("read", path=name)
        assert output == f"1\tgrüße\n2\tzwei 🎈\n[{encoding.upper()} with a byte order mark]"


async def test_bytes_that_are_no_utf8_are_not_guessed_at(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes("grüße\n".encode("latin-1"))
    (tmp_path / "late").write_bytes(b"ascii\n" * 20_000 + "grüße\n".encode("latin-1"))
    tools = await file_tools(tmp_path)
    note = "[not UTF-8; each byte is taken for its Latin-1 character]"
    assert await tools.ok("read", path="latin") == f"1\tgrüße\n{note}"
    assert await tools.ok("read", path="late", offset=20_001) == f"20001\tgrüße\n[the end of the file]\n{note}"
    # A character that the end of a piece cuts in two is none that is missing.
    (tmp_path / "cut").write_text("x" * (64 * 1024 - 1) + "ü\n" + "ü\n" * 10)
    assert "UTF-8" not in await tools.ok("read", path="cut")


async def test_a_binary_file_is_refused_with_its_size(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"\x7fELF\0\1" + bytes(range(256)) * 10)
    (tmp_path / "controls").write_bytes(bytes(range(1, 32)) * 10 + b"\xff")
    (tmp_path / "damaged").write_bytes(b"\xff\xfea\0\0\xd8b\0")
    tools = await file_tools(tmp_path)
    assert "'b' is a binary file of 2.6 kB" in await tools.refused("read", path="b")
    assert "binary" in await tools.refused("read", path="controls")
    assert "damaged" in await tools.refused("read", path="damaged")


async def test_images_documents_and_sounds_are_parts(tmp_path: Path) -> None:
    (tmp_path / "i.png").write_bytes(PNG)
    (tmp_path / "wrongly.txt").write_bytes(PNG)
    (tmp_path / "d.pdf").write_bytes(b"%PDF-1.4\n%%EOF")
    (tmp_path / "s.wav").write_bytes(b"RIFF\x24\0\0\0WAVEfmt " + bytes(20))
    (tmp_path / "s.mp3").write_bytes(b"\xff\xfb\x90\0" + bytes(400))
    tools = await file_tools(tmp_path)
    kinds = {}
    for name in ("i.png", "wrongly.txt", "d.pdf", "s.wav", "s.mp3"):
        result = await tools.result("read", path=name)
        assert not result.is_error, result.output
        [part] = result.parts
        kinds[name] = (part["type"], result.metadata["media_type"])
    assert kinds == {
        "i.png": ("image_url", "image/png"),
        "wrongly.txt": ("image_url", "image/png"),
        "d.pdf": ("file", "application/pdf"),
        "s.wav": ("input_audio", "audio/wav"),
        "s.mp3": ("input_audio", "audio/mpeg"),
    }
    (tmp_path / "huge.png").write_bytes(PNG + bytes(20 << 20))
    assert "too large" in await tools.refused("read", path="huge.png")


def test_a_line_that_is_too_far_away_is_given_up(tmp_path: Path) -> None:
    with (tmp_path / "f").open("wb") as file:
        file.write(b"a\n" * 40_000)
        file.truncate(1 << 40)
    tool = read.make(Workspace(tmp_path))
    ctx = ToolContext(tool="read", deadline=time.monotonic() + 0.1)
    with pytest.raises(FileProblem, match="line 1000000000 was not come to"):
        tool.execute({"path": "f", "offset": 10**9}, ctx)
