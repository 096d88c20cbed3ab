"""The tools edit and write: what they change, what they leave as it was, and what they say."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from file_tools import file_tools, tree
from heartbeat import heartbeat
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st


async def test_one_text_is_replaced_by_another(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("one\ntwo\nthree\n")
    tools = await file_tools(tmp_path)
    assert await tools.ok("edit", path="f", oldString="two\nth", newString="2\n3") == (
        "Replaced 1 occurrence in 'f', line 2."
    )
    assert (tmp_path / "f").read_text() == "one\n2\n3ree\n"
    await tools.ok("edit", path="f", oldString="2\n", newString="")
    assert (tmp_path / "f").read_text() == "one\n3ree\n"


async def test_a_text_that_is_there_more_than_once_is_refused_with_its_lines(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x\ny\nx x\n")
    tools = await file_tools(tmp_path)
    told = await tools.refused("edit", path="f", oldString="x", newString="z")
    assert told.startswith("Ambiguous: oldString is 3 times in 'f', at lines 1, 3 and 3.")
    (tmp_path / "o").write_text("aaa")
    assert "2 times" in await tools.refused("edit", path="o", oldString="aa", newString="b")
    assert (tmp_path / "f").read_text() == "x\ny\nx x\n"

    assert await tools.ok("edit", path="f", oldString="x", newString="xx", replaceAll=True) == (
        "Replaced 3 occurrences in 'f', lines 1, 3 and 3."
    )
    assert (tmp_path / "f").read_text() == "xx\ny\nxx xx\n"


@pytest.mark.parametrize(
    ("old", "hint"),
    [
        ("def f( a):\n    return  a", "differs only in white space from lines 2-3"),
        ("def f(a):\n\treturn a", "differs only in white space from lines 2-3"),
        ("def f(a):  \n    return a", "differs only at line ends from lines 2-3"),
        ("DEF F(A):", "differs only in case and white space from line 2"),
        ("2\tdef f(a):\n3\t    return a", "line numbers"),
        ("def f(a):\n    return b", "'def f(a):' is in line 2"),
        ("nothing of it", "Nothing in the file is like it"),
    ],
)
async def test_a_text_that_is_not_there_comes_with_a_hint(tmp_path: Path, old: str, hint: str) -> None:
    before = "import x\ndef f(a):\n    return a\n"
    (tmp_path / "f.py").write_text(before)
    told = await (await file_tools(tmp_path)).refused("edit", path="f.py", oldString=old, newString="x")
    assert told.startswith("NotFound: oldString is not in 'f.py'.")
    assert hint in told
    assert (tmp_path / "f.py").read_text() == before


async def test_what_changes_nothing_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    tools = await file_tools(tmp_path)
    assert "empty" in await tools.refused("edit", path="f", oldString="", newString="x")
    assert "the same" in await tools.refused("edit", path="f", oldString="x", newString="x")
    assert "There is no file" in await tools.refused("edit", path="g", oldString="x", newString="y")
    (tmp_path / "b").write_bytes(b"\0\1x")
    assert "not a text file" in await tools.refused("edit", path="b", oldString="x", newString="y")
    with (tmp_path / "large").open("wb") as file:
        file.truncate(9 << 20)
    assert "too large" in await tools.refused("edit", path="large", oldString="x", newString="y")


UTF16 = "\ufeffα\r\nold\r\nω".encode("utf-16-le")


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        (b"a\r\nb\r\nc", "a\nb", "x\ny\nz", b"x\r\ny\r\nz\r\nc"),
        (b"a\r\nb\r\nc", "a\r\nb", "x\r\ny", b"x\r\ny\r\nc"),
        (b"a\nb\nc", "a\r\nb", "x\r\ny", b"x\ny\nc"),
        (b"a\r\nb\nc\r\n", "b", "x\ny", b"a\r\nx\r\ny\nc\r\n"),
        (b"a\r\nb\r\nc\nd\n", "c\nd", "x\ny", b"a\r\nb\r\nx\ny\n"),
        (b"a\r\n\r\nb", "\n\nb", "\nb", b"a\r\nb"),
        (b"\xef\xbb\xbfold\n", "old", "new", b"\xef\xbb\xbfnew\n"),
        (b"no end", "end", "stop", b"no stop"),
        (b"caf\xe9 old \xff\n", "old", "\xe8", b"caf\xe9 \xe8 \xff\n"),
        (b"caf\xe9 old\n", "caf\xe9", "x", b"x old\n"),
        (UTF16, "old\nω", "n\nω", "\ufeffα\r\nn\r\nω".encode("utf-16-le")),
        ("\ufeffold".encode("utf-16-be"), "old", "né", "\ufeffné".encode("utf-16-be")),
        (b"a.b*c\n", ".b*", "\\1", b"a\\1c\n"),
        (b"a\rb\n", "a\rb", "x", b"x\n"),
    ],
)
async def test_the_rest_of_the_file_stays_as_it_is(
    tmp_path: Path, before: bytes, old: str, new: str, after: bytes
) -> None:
    (tmp_path / "f").write_bytes(before)
    await (await file_tools(tmp_path)).ok("edit", path="f", oldString=old, newString=new)
    assert (tmp_path / "f").read_bytes() == after


async def test_a_character_that_the_encoding_lacks_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"caf\xe9 old\n")
    tools = await file_tools(tmp_path)
    told = await tools.refused("edit", path="f", oldString="old", newString="€")
    assert "no way to write '€'" in told
    assert (tmp_path / "f").read_bytes() == b"caf\xe9 old\n"
    assert "not UTF-8" in await tools.ok("edit", path="f", oldString="old", newString="new")


CHARACTERS = st.text("ab\n é", max_size=30)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=CHARACTERS,
    old=st.text("ab\n", min_size=1, max_size=3),
    new=st.text("ac\n", max_size=4),
    windows=st.booleans(),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]),
)
def test_replacing_all_is_what_a_string_does(
    tmp_path: Path, runner: asyncio.Runner, text: str, old: str, new: str, windows: bool, encoding: str
) -> None:
    def stored(text: str) -> bytes:
        return (text.replace("\n", "\r\n") if windows and "\n" in before else text).encode(encoding)

    before = text
    path = tmp_path / "f"
    path.write_bytes(stored(text))

    async def edit() -> Any:
        return await (await file_tools(tmp_path)).result(
            "edit", path="f", oldString=old, newString=new, replaceAll=True
        )

    result = runner.run(edit())
    if old not in text or old == new:
        assert result.is_error
        assert path.read_bytes() == stored(text)
    else:
        assert path.read_bytes() == stored(text.replace(old, new))
        assert result.metadata["replacements"] == text.count(old)


# --- write ----------------------------------------------------------------------------------------------------------


async def test_a_file_is_written_as_it_is_given(tmp_path: Path) -> None:
    tools = await file_tools(tmp_path)
    assert await tools.ok("write", path="a/b/c.txt", content="é\r\nx") == "Made 'a/b/c.txt': 5 B."
    assert (tmp_path / "a/b/c.txt").read_bytes() == "é\r\nx".encode()
    assert await tools.ok("write", path="a/b/c.txt", content="") == "Replaced 'a/b/c.txt': 0 B."
    assert (tmp_path / "a/b/c.txt").read_bytes() == b""
    assert "is a folder" in await tools.refused("write", path="a/b", content="x")
    assert "is a folder" in await tools.refused("write", path=".", content="x")
    assert "not a folder" in await tools.refused("write", path="a/b/c.txt/d", content="x")
    assert sorted(tree(tmp_path)) == ["a", "a/b", "a/b/c.txt"]


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o755, 0o444])
async def test_permissions_are_kept(tmp_path: Path, mode: int) -> None:
    (tmp_path / "f").write_text("old")
    (tmp_path / "f").chmod(mode)
    tools = await file_tools(tmp_path)
    await tools.ok("write", path="f", content="one")
    await tools.ok("edit", path="f", oldString="one", newString="two")
    await tools.patch("*** Update File: f", "*** Move to: g", "@@", "-two", "+three")
    assert tree(tmp_path) == {"g": (b"three", mode)}


async def test_a_new_file_has_the_permissions_of_any_other(tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    await (await file_tools(tmp_path)).ok("write", path="f", content="x")
    assert (tmp_path / "f").stat().st_mode == (tmp_path / "other").stat().st_mode


FULL_DISK = """
import asyncio, resource, signal, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from file_tools import file_tools, patch

async def main(root):
    tools = await file_tools(root)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    print(await tools.refused("write", path="f", content="x" * 200_000))
    print(await tools.refused("write", path="new/deep/f", content="x" * 200_000))
    print(await tools.refused("edit", path="f", oldString="old", newString="x" * 200_000))
    print(await tools.refused("apply_patch", patchText=patch(
        "*** Update File: f", "@@", "-old", "+new", "*** Add File: a/b", "+x", "*** Add File: g", "+" + "x" * 200_000)))

asyncio.run(main(Path({root!r})))
"""


def test_what_does_not_fit_on_the_disk_leaves_everything_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("old\n")
    before = tree(tmp_path)
    tests = os.fspath(Path(__file__).parent.parent)
    program = FULL_DISK.format(tests=tests, root=os.fspath(tmp_path))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("File too large") == 4
    assert tree(tmp_path) == before


async def test_calls_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("".join(f"<{number}>\n" for number in range(40)))
    tools, others = await file_tools(tmp_path), await file_tools(tmp_path)
    await asyncio.gather(
        *(
            (tools if number % 2 else others).ok("edit", path="f", oldString=f"<{number}>", newString=f"[{number}]")
            for number in range(40)
        )
    )
    assert (tmp_path / "f").read_text() == "".join(f"[{number}]\n" for number in range(40))
    assert list(tree(tmp_path)) == ["f"]


async def test_a_file_that_somebody_else_changes_meanwhile_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "f").write_text("old\n")
    tools = await file_tools(tmp_path)
    fsync = os.fsync

    def meanwhile(opened: int) -> None:
        fsync(opened)
        (tmp_path / "f").write_text("theirs\n")

    monkeypatch.setattr(os, "fsync", meanwhile)
    for tool, arguments in [
        ("edit", {"path": "f", "oldString": "old", "newString": "ours"}),
        ("apply_patch", {"patchText": "*** Begin Patch\n*** Update File: f\n@@\n-old\n+ours\n*** End Patch"}),
    ]:
        (tmp_path / "f").write_text("old\n")
        assert "changed by somebody else" in await tools.refused(tool, **arguments)
        assert (tmp_path / "f").read_text() == "theirs\n"
    assert list(tree(tmp_path)) == ["f"]


async def test_a_cancelled_call_leaves_the_file_whole_and_nothing_beside_it(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("old")
    tools = await file_tools(tmp_path)
    tasks = [asyncio.create_task(tools.result("write", path="f", content=f"{number}" * 100_000)) for number in range(9)]
    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await tools.ok("write", path="g", content="x")  # takes its turn after those that had begun
    assert sorted(tree(tmp_path)) == ["f", "g"]
    content = (tmp_path / "f").read_text()
    assert content == "old" or content == content[0] * 100_000


@pytest.mark.parametrize("end", ["\n", "\r\n"])
async def test_a_text_that_nearly_fits_everywhere_is_soon_known_not_to_be_there(tmp_path: Path, end: str) -> None:
    (tmp_path / "f").write_bytes(end.encode() * 2_000_000)
    tools = await file_tools(tmp_path)
    began = time.monotonic()
    async with heartbeat() as heart:
        assert "is not in 'f'" in await tools.refused("edit", path="f", oldString="\n" * 400 + "x", newString="y")
    assert time.monotonic() - began < 5
    assert heart.longest < 0.5


async def test_only_the_first_of_many_places_are_told(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a\n" * 30)
    tools = await file_tools(tmp_path)
    assert await tools.ok("edit", path="f", oldString="a", newString="b", replaceAll=True) == (
        "Replaced 30 occurrences in 'f', lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 20 more."
    )
