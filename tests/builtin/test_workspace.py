"""Confinement: no tool reads or writes outside its workspace, whatever path it is given and whatever moves."""

from __future__ import annotations

import asyncio
import ctypes
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from file_tools import file_tools, patch, tree
from heartbeat import heartbeat

from toolnexus.errors import ConfigurationError
from toolnexus.sources.builtin.workspace import Workspace

SECRET = "the secret outside"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret.txt").write_text(SECRET)
    return folder


@pytest.fixture
def root(tmp_path: Path, outside: Path) -> Path:
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    (root / "sub" / "in.txt").write_text("inside\n")
    (root / "link_file").symlink_to(outside / "secret.txt")
    (root / "link_folder").symlink_to(outside)
    (root / "relative").symlink_to("../outside")
    (root / "sub" / "chain").symlink_to("../link_folder")
    (root / "dangling").symlink_to(outside / "new.txt")
    (root / "dangling_relative").symlink_to("sub/../../outside/new.txt")
    (root / "proc").symlink_to("/proc/self/root")
    (root / "circle").symlink_to("circle")
    return root


def escapes(root: Path, outside: Path) -> Iterator[str]:
    yield from (
        "../outside/secret.txt",
        "sub/../../outside/secret.txt",
        "./././../outside/secret.txt",
        str(outside / "secret.txt"),
        f"{root}/../outside/secret.txt",
        "link_file",
        "link_folder/secret.txt",
        "relative/secret.txt",
        "sub/chain/secret.txt",
        "link_folder/../outside/secret.txt",
        "dangling",
        "dangling_relative",
        f"/proc/self/root{outside}/secret.txt",
        f"/proc/self/cwd/{outside}/secret.txt",
        f"proc{outside}/secret.txt",
        "/dev/zero",
        "/etc/passwd",
        "..",
        f"{root}-other/x",
    )


async def test_no_path_leads_out_of_the_workspace(root: Path, outside: Path) -> None:
    tools = await file_tools(root)
    before = tree(root.parent)
    for path in escapes(root, outside):
        calls: list[tuple[str, dict[str, Any]]] = [
            ("read", {"path": path}),
            ("write", {"path": path, "content": "x"}),
            ("edit", {"path": path, "oldString": "secret", "newString": "x"}),
            ("grep", {"pattern": "secret", "path": path}),
            ("glob", {"pattern": "*", "path": path}),
            ("apply_patch", {"patchText": patch(f"*** Update File: {path}", "@@", f"-{SECRET}", "+x")}),
            ("apply_patch", {"patchText": patch(f"*** Delete File: {path}")}),
            ("apply_patch", {"patchText": patch(f"*** Add File: {path}", "+x")}),
            (
                "apply_patch",
                {"patchText": patch("*** Update File: sub/in.txt", f"*** Move to: {path}", "@@", "-inside", "+x")},
            ),
        ]
        for tool, arguments in calls:
            told = await tools.refused(tool, **arguments)
            assert told.startswith("PathRefused"), (tool, path, told)
            assert SECRET not in told
    assert tree(root.parent) == before


async def test_links_within_the_workspace_are_followed(root: Path) -> None:
    (root / "inner").symlink_to("sub")
    (root / "absolute").symlink_to(root / "sub" / "in.txt")
    (root / "to_come").symlink_to("fresh/new.txt")
    tools = await file_tools(root)
    assert await tools.ok("read", path="inner/in.txt") == "1\tinside"
    assert await tools.ok("read", path="absolute") == "1\tinside"
    assert await tools.ok("read", path=str(root / "inner" / "in.txt")) == "1\tinside"
    await tools.ok("edit", path="absolute", oldString="inside", newString="within")
    await tools.ok("write", path="to_come", content="made")
    assert (root / "absolute").is_symlink()
    assert (root / "sub" / "in.txt").read_text() == "within\n"
    assert (root / "to_come").is_symlink()
    assert (root / "fresh" / "new.txt").read_text() == "made"


async def test_a_workspace_that_is_reached_by_a_link_takes_both_spellings(root: Path) -> None:
    other = root.parent / "other"
    other.symlink_to(root)
    tools = await file_tools(other)
    for path in (other / "sub/in.txt", root / "sub/in.txt"):
        assert await tools.ok("read", path=str(path)) == "1\tinside"


async def test_a_link_in_a_circle_is_an_error(root: Path) -> None:
    tools = await file_tools(root)
    assert "circle" in await tools.refused("read", path="circle")
    assert "NUL" in await tools.refused("read", path="a\0b")
    assert "name too long" in (await tools.refused("read", path="x" * 300)).lower()


async def test_a_hard_link_may_be_a_file_from_outside(root: Path, outside: Path) -> None:
    os.link(outside / "secret.txt", root / "hard")
    tools = await file_tools(root)
    assert "hard links" in await tools.refused("read", path="hard")
    assert "hard links" in await tools.refused("edit", path="hard", oldString="secret", newString="x")
    assert "hard links" in await tools.refused("grep", pattern="secret", path="hard")
    assert SECRET not in await tools.ok("grep", pattern="secret outside")
    await tools.ok("write", path="hard", content="ours")
    assert (outside / "secret.txt").read_text() == SECRET

    os.link(outside / "secret.txt", root / "shared")
    allowed = await file_tools(root, hard_links=True)
    assert SECRET in await allowed.ok("read", path="shared")
    await allowed.ok("edit", path="shared", oldString="secret", newString="x")
    assert (outside / "secret.txt").read_text() == SECRET


async def test_pipes_devices_and_sockets_are_never_opened(root: Path) -> None:
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(root / "socket"))
        tools = await file_tools(root)
        for path in ("pipe", "socket"):
            assert "Only regular files" in await tools.refused("read", path=path)
            assert "Only regular files" in await tools.refused("write", path=path, content="x")
            assert "Only regular files" in await tools.refused("edit", path=path, oldString="a", newString="x")
            assert "Only regular files" in await tools.refused("grep", pattern="a", path=path)
            assert "Only regular files" in await tools.refused("apply_patch", patchText=patch(f"*** Add File: {path}"))
        assert "sub/in.txt" in await tools.ok("grep", pattern="inside")
    assert "Only regular files" in await (await file_tools(root, confine=False)).refused("read", path="/dev/zero")


def swapper(root: Path, stop: threading.Event) -> list[threading.Thread]:
    """Threads that exchange each folder on the way to `a/b/c/f.txt`, and the file, with a link beside it."""
    exchange = getattr(ctypes.CDLL(None), "renameat2", None)
    if exchange is None:
        pytest.skip("this system cannot exchange two names at once")

    def swap(folder: int, name: bytes) -> None:
        while not stop.is_set():
            exchange(folder, name, folder, b"bait", 2)  # RENAME_EXCHANGE
            time.sleep(0)
        os.close(folder)

    names = [(".", b"a"), ("a", b"b"), ("a/b", b"c"), ("a/b/c", b"f.txt")]
    folders = [os.open(root / folder, os.O_RDONLY) for folder, _ in names]
    return [
        threading.Thread(target=swap, args=(folder, name)) for folder, (_, name) in zip(folders, names, strict=True)
    ]


async def test_whoever_swaps_folders_for_links_gains_nothing(root: Path, outside: Path) -> None:
    (root / "a/b/c").mkdir(parents=True)
    (outside / "b/c").mkdir(parents=True)
    (root / "a/b/c/f.txt").write_text("inside\n")
    (outside / "b/c/f.txt").write_text(SECRET)
    for link, target in {"": "", "a": "b", "a/b": "b/c", "a/b/c": "secret.txt"}.items():
        (root / link / "bait").symlink_to(outside / target)
    before = tree(outside)
    stop = threading.Event()
    threads = swapper(root, stop)
    for thread in threads:
        thread.start()
    tools = await file_tools(root)
    file = "a/b/c/f.txt"
    refused = 0
    try:
        for turn in range(100):
            results = [
                await tools.result("read", path=file),
                await tools.result("grep", pattern="secret"),
                await tools.result("grep", pattern="secret", path="a/b"),
                await tools.result("edit", path=file, oldString="inside", newString="within"),
                await tools.result("write", path=file, content="inside\n"),
                await tools.result("write", path=f"a/b/c/new{turn}", content="x"),
                await tools.result("apply_patch", patchText=patch(f"*** Update File: {file}", "-inside", "+inside")),
                await tools.result("apply_patch", patchText=patch(f"*** Delete File: {file}")),
            ]
            assert all(SECRET not in result.output for result in results)
            refused += sum(result.output.startswith("PathRefused") for result in results)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert tree(outside) == before
    assert refused  # otherwise nothing was swapped at the right moment


async def test_the_host_may_choose_not_to_confine(root: Path, outside: Path) -> None:
    tools = await file_tools(root, confine=False)
    assert SECRET in await tools.ok("read", path="link_file")
    assert SECRET in await tools.ok("read", path=str(outside / "secret.txt"))
    assert SECRET in await tools.ok("read", path="../outside/secret.txt")
    assert SECRET in await tools.ok("read", path="../" * 50 + str(outside / "secret.txt"))
    assert await tools.ok("glob", pattern="*.txt", path=str(outside)) == str(outside / "secret.txt")
    await tools.ok("write", path="../outside/new.txt", content="x")
    assert (outside / "new.txt").read_text() == "x"
    assert await tools.ok("read", path="sub/in.txt") == "1\tinside"


def test_a_workspace_is_a_folder_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "missing", tmp_path / "file"):
        with pytest.raises(ConfigurationError, match=path.name):
            Workspace(path)
    assert repr(Workspace(tmp_path)) == f"<toolnexus.Workspace {str(tmp_path.resolve())!r}>"


async def test_nothing_stays_open(root: Path, outside: Path) -> None:
    tools = await file_tools(root)
    await tools.ok("read", path="sub/in.txt")

    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = descriptors()
    for path in [*escapes(root, outside), "sub/in.txt", "sub", "missing/x", "a/b/c.txt"]:
        await tools.result("read", path=path)
        await tools.result("write", path=path, content="x")
        await tools.result("edit", path=path, oldString="q", newString="x")
        await tools.result("glob", pattern="**/*", path=path, limit=1)
        await tools.result("grep", pattern=".", path=path, limit=1)
        await tools.result("apply_patch", patchText=patch(f"*** Add File: {path}/x/y", "+x", "*** Delete File: no"))
    assert descriptors() == before


async def test_the_event_loop_goes_on_meanwhile(root: Path) -> None:
    (root / "large.txt").write_bytes(b"a line of some length\n" * 150_000)
    tools = await file_tools(root)
    await tools.ok("read", path="sub/in.txt")
    async with heartbeat() as heart:
        await asyncio.gather(
            tools.ok("read", path="large.txt", offset=150_000, limit=1),
            tools.ok("grep", pattern="nothing like it"),
            tools.ok("edit", path="large.txt", oldString="some", newString="any", replaceAll=True),
        )
    assert heart.longest < 0.25  # some 20 ms; on the loop it would be all the time that they take


def test_tools_say_what_they_are(tmp_path: Path) -> None:
    from toolnexus.sources.builtin import builtin_tools

    tools = {tool.name: tool for tool in builtin_tools(Workspace(tmp_path), dict.fromkeys(FILE_TOOLS, True))}
    assert {name for name, tool in tools.items() if tool.read_only} == {"read", "glob", "grep"}
    assert {tool.source for tool in tools.values()} == {"builtin"}
    assert not any(tool.needs_approval for tool in tools.values())
    assert {name: list(tool.input_schema["required"]) for name, tool in tools.items()} == {
        "read": ["path"],
        "write": ["path", "content"],
        "edit": ["path", "oldString", "newString"],
        "grep": ["pattern"],
        "glob": ["pattern"],
        "apply_patch": ["patchText"],
    }


FILE_TOOLS = ("read", "write", "edit", "grep", "glob", "apply_patch")


def chosen(tmp_path: Path, choice: Any) -> list[str]:
    from toolnexus.sources.builtin import builtin_tools

    return [tool.name for tool in builtin_tools(Workspace(tmp_path), choice)]


def test_tools_are_chosen_by_name(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert chosen(tmp_path, False) == []
    assert chosen(tmp_path, {"grep": True, "read": True, "edit": False}) == ["read", "grep"]
    assert not caplog.records
    assert chosen(tmp_path, {"reed": True, "read": True}) == ["read"]
    assert "'reed'" in caplog.text


WITHOUT = """
import sys
sys.modules["re2"] = None
from toolnexus.errors import MissingExtra
from toolnexus.sources.builtin import builtin_tools
from toolnexus.sources.builtin.workspace import Workspace
workspace = Workspace(".")
print([tool.name for tool in builtin_tools(workspace, dict.fromkeys(["read", "write", "edit", "apply_patch"], True))])
for name in ("grep", "glob"):
    try:
        builtin_tools(workspace, {name: True})
    except MissingExtra as error:
        print(error)
"""


def test_searching_needs_an_extra_and_nothing_else_does() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True)
    tools, *errors = done.stdout.splitlines()
    assert tools == "['read', 'write', 'edit', 'apply_patch']"
    assert len(errors) == 2
    assert all("pip install 'toolnexus[tools]'" in error for error in errors)


async def test_a_file_that_is_being_changed_can_be_read(root: Path) -> None:
    """For a moment it has two names, which must not be taken for a link to the outside."""
    tools = await file_tools(root)
    await tools.ok("write", path="other", content="0\n")

    async def change(number: int) -> None:
        lines = ("*** Update File: sub/in.txt", f"-inside{number}", f"+inside{number + 1}")
        await tools.ok("apply_patch", patchText=patch(*lines, "*** Update File: other", f"-{number}", f"+{number + 1}"))

    await tools.ok("write", path="sub/in.txt", content="inside0\n")
    for number in range(40):
        results = await asyncio.gather(
            change(number),
            *(tools.ok("read", path=path) for path in ("sub/in.txt", "other") * 3),
            tools.ok("grep", pattern="inside"),
        )
        assert "could not be read" not in str(results[-1])
    assert await tools.ok("read", path="other") == "1\t40"


async def test_a_path_may_be_only_so_deep(root: Path) -> None:
    """Each folder on the way holds a descriptor, which others need as well."""
    tools = await file_tools(root)
    before = tree(root)
    for path in ("a/" * 5000 + "f", "sub/" + "b/" * 300 + "f"):
        assert "is more than 200 folders deep" in await tools.refused("write", path=path, content="")
    assert tree(root) == before
    await tools.ok("write", path="c/" * 150 + "f", content="")


async def test_a_name_that_a_file_from_outside_had_for_a_moment_does_not_open_it(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = tmp_path / "elsewhere"
    outside.write_text("secret")
    tools = await file_tools(root)
    opening = os.open

    def open_and_unlink(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if path != "passing":
            return opening(path, flags, mode, dir_fd=dir_fd)
        os.link(outside, root / "there")
        (root / "there").rename(root / "passing")
        opened = opening(path, flags, mode, dir_fd=dir_fd)
        (root / "passing").unlink()
        return opened

    monkeypatch.setattr(os, "open", open_and_unlink)
    for tool, arguments in (("read", {"path": "passing"}), ("grep", {"pattern": "secret"})):
        (root / "passing").write_text("own")
        result = await tools.result(tool, **arguments)
        assert "secret" not in result.output.replace("'secret'", "")
        assert result.is_error or "could not be read: 1" in result.output
