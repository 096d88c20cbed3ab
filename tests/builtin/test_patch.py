"""The tool apply_patch: what a patch means, which are refused, and that all of it happens or nothing."""

from __future__ import annotations

import asyncio
import difflib
import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from file_tools import file_tools, patch, tree
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

PY = """\
import os

class A:
    def run(self):
        return 1

class B:
    def run(self):
        return 1
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "a.py").write_text(PY)
    (tmp_path / "b.txt").write_text("one\ntwo\nthree\n")
    return tmp_path


async def test_files_are_added_updated_moved_and_deleted(root: Path) -> None:
    (root / "gone").write_text("x")
    tools = await file_tools(root)
    told = await tools.patch(
        *("*** Add File: new/n.txt", "+first", "+", "+third"),
        *("*** Update File: b.txt", "*** Move to: moved/b.txt", "@@", " one", "-two", "+2", "+2.5", " three"),
        *("*** Update File: a.py", "@@ class B:", "     def run(self):", "-        return 1", "+        return 2"),
        "*** Delete File: gone",
    )
    assert told.splitlines() == [
        "Added 'new/n.txt'",
        "Moved 'b.txt' to 'moved/b.txt'",
        "Updated 'a.py' (1 hunk)",
        "Deleted 'gone'",
    ]
    assert {name: content[0].decode() for name, content in tree(root).items() if content} == {
        "a.py": PY[::-1].replace("1 nruter", "2 nruter", 1)[::-1],
        "moved/b.txt": "one\n2\n2.5\nthree\n",
        "new/n.txt": "first\n\nthird\n",
    }


@pytest.mark.parametrize(
    ("before", "hunks", "after"),
    [
        ("a\nb\n", ["@@", "-b", "+c"], "a\nc\n"),
        ("a\nb\n", ["-a", "@@", "-b", "+c"], "c\n"),
        ("a\nb", ["@@", "-b", "+c"], "a\nc"),
        ("a\nb", ["@@", " b", "+c"], "a\nb\nc"),
        ("a\nb", ["@@", "-b"], "a"),
        ("a\nb\n", ["@@", "-a", "-b"], ""),
        ("", ["@@", "+a"], "a\n"),
        ("x\na\nx\n", ["@@", " x", "+end", "*** End of File"], "x\na\nx\nend\n"),
        ("x\ny\n", ["@@", "+end", "*** End of File"], "x\ny\nend\n"),
        ("f\nx\ng\nx\n", ["@@ g", "-x", "+y"], "f\nx\ng\ny\n"),
        ("  f\nx\ng\nx\n", ["@@ f", "-x", "+y"], "  f\ny\ng\nx\n"),
        ("A\nf\nx\nB\nf\nx\n", ["@@ B", "@@ f", "-x", "+y"], "A\nf\nx\nB\nf\ny\n"),
        ("a\nb\n", ["@@ a", "+between"], "a\nbetween\nb\n"),
        ("x\nx\n", ["@@", " x", "-x", "+y"], "x\ny\n"),
        ("a\nb\nc\nd\n", ["@@", "-a", "+A", "@@", "-d", "+D"], "A\nb\nc\nD\n"),
        ("a\n\nb\n", ["@@", " a", "", "-b", "+c"], "a\n\nc\n"),
        ("a  \nb\t\nc\n", ["@@", " a", "-b", "+x", " c  "], "a  \nx\nc\n"),
        ("a\r\nb\r\n", ["@@", " a", "-b", "+x", "+y"], "a\r\nx\r\ny\r\n"),
        ("a\r\nb\nc\r\n", ["@@", " b", "-c", "+x"], "a\r\nb\nx\r\n"),
        ("a\nb\n", ["@@ -1,2 +1,2 @@", " a", "-b", "+c"], "a\nc\n"),
        ("a\nb\n", ["@@", "-b", "+c", "", ""], "a\nc\n"),
        ("- a\n+ b\n", ["@@", "-- a", "++ a", " + b"], "+ a\n+ b\n"),
    ],
)
async def test_hunks_mean(tmp_path: Path, before: str, hunks: list[str], after: str) -> None:
    (tmp_path / "f").write_bytes(before.encode())
    await (await file_tools(tmp_path)).patch("*** Update File: f", *hunks)
    assert (tmp_path / "f").read_bytes() == after.encode()


@pytest.mark.parametrize(
    ("data", "after"),
    [
        (b"\xef\xbb\xbfold\r\n\xc3\xa9", b"\xef\xbb\xbfnew\r\n\xc3\xa9"),
        (b"old\n\xe9\xff\n", b"new\n\xe9\xff\n"),
        ("\ufeffold\n€".encode("utf-16-le"), "\ufeffnew\n€".encode("utf-16-le")),
    ],
)
async def test_the_encoding_is_kept(tmp_path: Path, data: bytes, after: bytes) -> None:
    (tmp_path / "f").write_bytes(data)
    await (await file_tools(tmp_path)).patch("*** Update File: f", "@@", "-old", "+new")
    assert (tmp_path / "f").read_bytes() == after


async def test_sections_on_one_file_see_each_other(root: Path) -> None:
    tools = await file_tools(root)
    await tools.patch(
        *("*** Update File: b.txt", "@@", "-two", "+2"),
        *("*** Update File: ./x/../b.txt".replace("x/../", ""), "@@", " 2", "-three", "+3"),
        *("*** Add File: n", "+x", "*** Update File: n", "@@", "-x", "+y", "*** Update File: n", "*** Move to: m"),
        *("*** Update File: m", "@@", "-y", "+z"),
        *("*** Delete File: a.py", "*** Add File: a.py", "+anew"),
        *("*** Add File: brief", "+x", "*** Delete File: brief"),
    )
    assert {name: content[0] for name, content in tree(root).items()} == {
        "a.py": b"anew\n",
        "b.txt": b"one\n2\n3\n",
        "m": b"z\n",
    }
    assert "not there any more" in await tools.refused(
        "apply_patch", patchText=patch("*** Delete File: m", "*** Update File: m", "@@", "-z", "+q")
    )


REFUSED: list[tuple[list[str], str]] = [
    (["*** Update File: b.txt", "@@", "-four", "+4"], "its lines are not in 'b.txt'"),
    (["*** Update File: b.txt", "@@", "- two", "+2"], "differs only in white space from line 2"),
    (["*** Update File: a.py", "@@", "-        return 1", "+x"], "more than once, at lines 5 and 9"),
    (["*** Update File: a.py", "@@ def run(self):", "-        return 1", "+x"], "more than once, at lines 4 and 8"),
    (["*** Update File: a.py", "@@ class C:", "-        return 1", "+x"], "'class C:' after '@@' is not in 'a.py'"),
    (["*** Update File: b.txt", "@@", "-three", "+3", "@@", "-one", "+1"], "in the order of the file"),
    (["*** Update File: b.txt", "@@", "-two", "+2", "*** End of File"], "at line 2 of 'b.txt', but not at its end"),
    (["*** Update File: b.txt", "@@", "+2"], "only adds lines"),
    (["*** Update File: b.txt", "@@", " two"], "without lines that begin with"),
    (["*** Update File: b.txt"], "there are no changed lines"),
    (["*** Update File: b.txt", "@@", "two"], "begins with a blank, '+' or '-'"),
    (["*** Update File: b.txt", "*** Move to: a.py", "@@", "-two", "+2"], "'a.py' is there already"),
    (["*** Update File: missing", "@@", "-two", "+2"], "There is no file 'missing'"),
    (["*** Add File: b.txt", "+x"], "'b.txt' is there already"),
    (["*** Add File: n", "x"], "begins with '+'"),
    (["*** Add File: a.py/n", "+x"], "not a folder"),
    (["*** Add File: ", "+x"], "the path is missing"),
    (["*** Add File: .", "+x"], "is a folder"),
    (["*** Delete File: missing"], "There is no file 'missing'"),
    (["*** Rename File: x"], "begins with '+'"),
    ([], "The patch is empty"),
]


@pytest.mark.parametrize(("lines", "reason"), REFUSED)
async def test_what_is_not_sure_is_refused_and_changes_nothing(root: Path, lines: list[str], reason: str) -> None:
    before = tree(root)
    good = ["*** Add File: deep/er/first", "+x"] if lines else []
    told = await (await file_tools(root)).refused("apply_patch", patchText=patch(*good, *lines))
    assert reason in told
    assert tree(root) == before


async def test_a_patch_that_is_cut_is_refused(root: Path) -> None:
    tools = await file_tools(root)
    whole = patch("*** Add File: n", "+x", "+y")
    assert "expected one of" in await tools.refused("apply_patch", patchText=patch("*** Rename File: b.txt"))
    for text in (
        whole.removesuffix("\n*** End Patch"),
        "",
        "x",
        "*** Begin Patch",
        whole.removeprefix("*** Begin Patch"),
    ):
        assert (await tools.refused("apply_patch", patchText=text)).startswith("InvalidPatch")
    await tools.ok("apply_patch", patchText=f"\n{whole}\n\n".replace("\n", "\r\n"))
    assert (root / "n").read_bytes() == b"x\ny\n"


# --- all or nothing -------------------------------------------------------------------------------------------------

MANY = patch(
    *("*** Update File: b.txt", "@@", "-two", "+2"),
    *("*** Add File: new/deep/n", "+x"),
    *("*** Update File: a.py", "*** Move to: other/a.py", "@@", "-import os", "+import sys"),
    *("*** Update File: l", "@@", "-linked", "+changed"),
    *("*** Delete File: d1", "*** Delete File: sub/d2"),
)
STEPS = ("open", "write", "fsync", "fchmod", "link", "rename", "unlink", "mkdir", "stat")


_MASK = os.umask(0)
os.umask(_MASK)
NEW = 0o666 & ~_MASK
"""The permissions of a new file."""


def many(root: Path) -> dict[str, Any]:
    (root / "sub").mkdir()
    for name, content in {
        "a.py": PY,
        "b.txt": "one\ntwo\nthree\n",
        "d1": "1",
        "sub/d2": "2",
        "sub/l": "linked\n",
    }.items():
        (root / name).write_text(content)
    (root / "l").symlink_to("sub/l")
    (root / "b.txt").chmod(0o755)
    return tree(root)


async def failing_at_each_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, links: bool, error: type[BaseException] | OSError
) -> None:
    """Run the patch with the first, the second, … call of one function failing, until none fails any more."""
    real: Callable[..., Any] = getattr(os, step)
    for failing in range(1, 200):
        root = tmp_path / str(failing)
        root.mkdir()
        before = many(root)
        tools = await file_tools(root)
        calls = 0

        def fails(*args: Any, failing: int = failing, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == failing:
                raise error
            return real(*args, **kwargs)

        def no_links(*args: Any, **kwargs: Any) -> Any:
            raise OSError(errno.EPERM, "no hard links here")

        with monkeypatch.context() as patched:
            if not links:
                patched.setattr(os, "link", no_links)
            patched.setattr(os, step, fails)
            result = await tools.result("apply_patch", patchText=MANY)
        after = {name: content for name, content in tree(root).items() if ".toolnexus-tmp-" not in name}
        left = tree(root).keys() - after.keys()
        if result.is_error:
            assert after == before, (step, failing, result.output)
        else:
            assert after == DONE, (step, failing)
        assert len(left) <= (step == "unlink"), (step, failing)  # what cannot be removed stays
        if calls < failing:
            assert not result.is_error
            assert failing > 1 or not links
            return
    pytest.fail("there is no end to it")


DONE = {
    "b.txt": (b"one\n2\nthree\n", 0o755),
    "l": "sub/l",
    "new": None,
    "new/deep": None,
    "new/deep/n": (b"x\n", NEW),
    "other": None,
    "other/a.py": (PY.replace("os", "sys").encode(), NEW),
    "sub": None,
    "sub/l": (b"changed\n", NEW),
}


@pytest.mark.parametrize(("step", "links"), [*((step, True) for step in STEPS), ("rename", False), ("open", False)])
async def test_a_failure_at_any_step_leaves_everything_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, links: bool
) -> None:
    await failing_at_each_step(tmp_path, monkeypatch, step, links, OSError(errno.ENOSPC, "No space left on device"))


@pytest.mark.parametrize("step", ["rename", "write"])
async def test_so_does_an_exit_at_any_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    await failing_at_each_step(tmp_path, monkeypatch, step, True, SystemExit)


async def test_what_cannot_be_taken_back_is_kept_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many(tmp_path)
    tools = await file_tools(tmp_path)
    rename = os.rename
    calls = 0

    def fails(*args: Any, **kwargs: Any) -> None:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise OSError(errno.EIO, "Input/output error")
        rename(*args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", fails)
        told = await tools.refused("apply_patch", patchText=MANY)
    assert "'b.txt' is changed already, and could not be changed back: Input/output error." in told
    [kept] = [name for name in tree(tmp_path) if name.startswith(".toolnexus-tmp-")]
    assert kept in told
    assert (tmp_path / kept).read_text() == "one\ntwo\nthree\n"


CRASH = """
import asyncio, os, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from file_tools import file_tools

async def main():
    tools = await file_tools(Path({root!r}))
    calls = 0

    def crashing(real):
        def call(*args, **kwargs):
            nonlocal calls
            calls += 1
            if calls == {failing}:
                os._exit(9)
            return real(*args, **kwargs)
        return call

    for name in ("rename", "link", "unlink", "write"):
        setattr(os, name, crashing(getattr(os, name)))
    await tools.ok("apply_patch", patchText={patch!r})

asyncio.run(main())
"""


def test_a_crash_at_any_step_leaves_each_file_whole(tmp_path: Path) -> None:
    tests = os.fspath(Path(__file__).parent.parent)
    for failing in range(1, 40, 3):
        root = tmp_path / str(failing)
        root.mkdir()
        before = many(root)
        program = CRASH.format(tests=tests, root=os.fspath(root), failing=failing, patch=MANY)
        crashed = subprocess.run([sys.executable, "-c", program], check=False).returncode
        after = {name: content for name, content in tree(root).items() if ".toolnexus-tmp-" not in name}
        for name, content in after.items():
            assert content in (before.get(name), DONE.get(name)), (failing, name)
        # What is to stay, or to come from something else, is never nowhere.
        assert {"b.txt", "l", "sub/l"} <= after.keys()
        assert {"a.py", "other/a.py"} & after.keys()
        if not crashed:
            assert after == DONE
            return
    pytest.fail("there is no end to it")


# --- against a reference --------------------------------------------------------------------------------------------

LINE = st.text("ab \t", max_size=2)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    old=st.lists(LINE, max_size=12),
    new=st.lists(LINE, max_size=12),
    context=st.integers(0, 3),
    windows=st.booleans(),
    ends=st.booleans(),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "latin-1"]),
)
def test_a_patch_made_from_two_texts_gives_the_second_or_is_refused(
    tmp_path: Path,
    runner: asyncio.Runner,
    old: list[str],
    new: list[str],
    context: int,
    windows: bool,
    ends: bool,
    encoding: str,
) -> None:
    end = "\r\n" if windows else "\n"
    # A line end that shows which kind the file has, and a line that is like no other.
    old, new = ["é unique", "", *old], ["é unique", "", *new]
    ends = ends or not old[-1] or not new[-1]  # a last line without an end cannot be empty

    def stored(lines: list[str]) -> bytes:
        return (end.join(lines) + (end if ends else "")).encode(encoding)

    path = tmp_path / "f"
    path.write_bytes(stored(old))
    if context == 3:  # as one hunk with all lines
        hunks = [line[0] + line[2:] for line in difflib.ndiff(old, new) if line[0] != "?"]
    else:
        edits = list(difflib.unified_diff(old, new, n=context, lineterm=""))[2:]
        hunks = ["@@" if line.startswith("@@") else line for line in edits]

    async def apply() -> Any:
        return await (await file_tools(tmp_path)).result("apply_patch", patchText=patch("*** Update File: f", *hunks))

    result = runner.run(apply())
    if result.is_error:
        assert path.read_bytes() == stored(old)
        assert context < 3 or old == new  # a patch that tells the whole file is sure
    else:
        assert path.read_bytes() == stored(new)
