"""Where skills are found, which of them, and what is said of the others."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from heartbeat import heartbeat

from toolnexus.errors import ConfigurationError
from toolnexus.sources.skills import SkillDef
from toolnexus.sources.skills.collection import discover_skills

if TYPE_CHECKING:
    from .conftest import Root


async def names(*roots: Path) -> list[str]:
    return (await discover_skills(roots)).names()


async def states(*roots: Path) -> dict[str, tuple[str, str]]:
    return {info.name: (info.state, info.reason) for info in (await discover_skills(roots)).list()}


async def test_skills_are_found_at_any_depth_nearer_ones_first_then_by_name(root: Root) -> None:
    for folder in ("z", "b/c/deep", "b/near", "a", ".hidden/h"):
        root.skill(folder)
    root.put("b/notes.md", "no skill")
    assert await names(root.path) == ["a", "z", "h", "near", "deep"]


async def test_a_root_may_be_a_skill_or_its_file(root: Root) -> None:
    file = root.skill("pdf")
    assert await names(file.parent) == ["pdf"]
    assert await names(file) == ["pdf"]
    assert (await discover_skills(os.fspath(file.parent))).names() == ["pdf"]


async def test_a_skill_md_below_a_skill_md_is_none_of_its_own(root: Root) -> None:
    root.skill("outer")
    root.skill("outer/inner")
    root.put("broken/SKILL.md", "no front matter")
    root.skill("broken/inside")
    assert list(await states(root.path)) == ["broken", "outer"]


async def test_git_and_node_modules_are_not_looked_into(root: Root) -> None:
    for folder in (".git/a", "node_modules/b", "x/node_modules/c", "x/d"):
        root.skill(folder)
    assert await names(root.path) == ["d"]


async def test_links_inside_the_root_are_followed_once_and_circles_end(root: Root) -> None:
    root.skill("a/pdf")
    root.skill("node_modules/linked")
    (root.path / "a" / "up").symlink_to(root.path)
    (root.path / "again").symlink_to("a")
    (root.path / "itself").symlink_to("itself")
    (root.path / "nowhere").symlink_to("missing")
    (root.path / "z").symlink_to("node_modules/linked")
    skills = await discover_skills(root.path)
    assert [(info.name, info.state, info.path) for info in skills.list()] == [
        ("pdf", "ready", root.path / "a" / "pdf" / "SKILL.md"),
        ("linked", "ready", root.path / "z" / "SKILL.md"),
    ]


async def test_links_out_of_the_root_are_not_followed(root: Root, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "SKILL.md").write_text("---\nname: secret\ndescription: d\n---\n")
    (root.path / "out").symlink_to(secret)
    (root.path / "relative").symlink_to("../secret")
    (root.path / "file").mkdir()
    (root.path / "file" / "SKILL.md").symlink_to(secret / "SKILL.md")
    reason = "It is a link that leads out of the root."
    assert await states(root.path) == dict.fromkeys(("file", "out", "relative"), ("skipped", reason))


async def test_a_root_and_a_skill_md_may_be_links(root: Root, tmp_path: Path) -> None:
    text = root.skill("pdf").read_text()
    root.put("store/text.md", text)
    (root.path / "pdf" / "SKILL.md").unlink()
    (root.path / "pdf" / "SKILL.md").symlink_to("../store/text.md")
    (tmp_path / "link").symlink_to(root.path)
    assert await names(tmp_path / "link") == ["pdf"]


async def test_a_folder_beside_the_root_whose_name_begins_alike_is_outside(root: Root, tmp_path: Path) -> None:
    (tmp_path / "skills-private" / "x").mkdir(parents=True)
    (root.path / "out").symlink_to("../skills-private/x")
    assert (await states(root.path))["out"][0] == "skipped"


async def test_what_is_no_file_is_never_opened(root: Root) -> None:
    for folder in ("pipe", "folder/SKILL.md", "device"):
        (root.path / folder).mkdir(parents=True)
    os.mkfifo(root.path / "pipe" / "SKILL.md")
    (root.path / "device" / "SKILL.md").symlink_to("/dev/zero")
    async with asyncio.timeout(10):
        found = await states(root.path)
    assert found == {
        "device": ("skipped", "It is a link that leads out of the root."),
        "folder": ("skipped", "It is a folder, a device, a pipe or a socket, not a file."),
        "pipe": ("skipped", "It is a folder, a device, a pipe or a socket, not a file."),
    }


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="nothing is unreadable to this user")
async def test_what_must_not_be_read_is_said(root: Root) -> None:
    root.skill("file").chmod(0)
    root.skill("folder/inside").parent.parent.chmod(0)
    try:
        found = await states(root.path)
    finally:
        (root.path / "folder").chmod(0o700)
    assert found == {
        "file": ("skipped", "It cannot be read: Permission denied."),
        "folder": ("skipped", "The folder cannot be read: Permission denied."),
    }


async def test_a_folder_that_cannot_be_listed_costs_only_itself(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    root.skill("a/one")
    root.skill("b/two")
    scandir = os.scandir

    def refusing(path: str | Path) -> object:
        if Path(path).name == "a":
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    assert await states(root.path) == {
        "a": ("skipped", "The folder cannot be read: Permission denied."),
        "two": ("ready", ""),
    }


async def test_a_skill_md_in_other_letters_is_taken_with_a_warning(root: Root) -> None:
    root.put("pdf/skill.md", "---\nname: pdf\ndescription: d\n---\n")
    [info] = (await discover_skills(root.path)).list()
    assert (info.state, info.warnings) == ("ready", ("The file should be called SKILL.md, not skill.md.",))


async def test_a_root_that_is_not_there_is_said(root: Root) -> None:
    root.skill("pdf")
    assert await states(root.path / "missing", root.path) == {
        "missing": ("skipped", "There is no such folder."),
        "pdf": ("ready", ""),
    }


async def test_the_depth_is_capped_and_that_is_said(root: Root) -> None:
    deep = "/".join(["d"] * 9)
    root.skill(f"{deep}/just")
    for name in ("a", "b"):
        root.skill(f"{deep}/x/{name}")
    found = await states(root.path)
    assert found["just"] == ("ready", "")
    assert found["a"] == (
        "skipped",
        "It is more than 10 folders deep, so it was not looked into, nor were 1 like it.",
    )
    assert "b" not in found


async def test_the_count_is_capped_and_that_is_said(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolnexus.sources.skills.discovery.MAX_SKILLS", 3)
    for number in range(5):
        root.skill(f"s{number}")
    skills = await discover_skills(root.path)
    assert skills.names() == ["s0", "s1", "s2"]
    assert (skills.list()[-1].state, skills.list()[-1].path) == ("skipped", root.path)
    assert "ended after 3 skills" in skills.list()[-1].reason


async def test_the_folders_are_capped_and_that_is_said(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolnexus.sources.skills.discovery.MAX_FOLDERS", 3)
    for number in range(5):
        root.put(f"s{number}/x", "")
    [info] = (await discover_skills(root.path)).list()
    assert "3 folders" in info.reason


async def test_the_first_of_a_name_keeps_it(root: Root, tmp_path: Path) -> None:
    first, second = root.skill("a/pdf"), root.skill("b/other", name="pdf")
    skills = await discover_skills(root.path)
    assert skills.names() == ["pdf"]
    assert [(info.path, info.state) for info in skills.list()] == [(first, "ready"), (second, "clash")]
    assert skills.list()[1].reason == f"{str(first)!r} has the name."


async def test_what_the_host_gives_wins_over_files(root: Root) -> None:
    root.skill("pdf")
    skills = await discover_skills(root.path, SkillDef(name="pdf", description="Ours."))
    assert [(info.source, info.state) for info in skills.list()] == [("data", "ready"), ("file", "clash")]
    assert "data that was given" in skills.list()[1].reason


async def test_the_same_skill_under_two_roots_is_no_clash(root: Root) -> None:
    root.skill("a/pdf")
    assert await states(root.path, root.path / "a") == {"pdf": ("ready", "")}


async def test_functions_give_skills(root: Root) -> None:
    def plain() -> list[SkillDef]:
        return [SkillDef(name="plain", description="d")]

    def generator() -> object:
        yield SkillDef(name="generated", description="d")

    async def coroutine() -> list[SkillDef]:
        await asyncio.sleep(0)
        return [SkillDef(name="coroutine", description="d")]

    skills = await discover_skills((), [plain, generator, coroutine, lambda: coroutine()])
    assert skills.names() == ["plain", "generated", "coroutine"]
    assert [info.state for info in skills.list()] == ["ready", "ready", "ready", "clash"]


async def test_a_function_that_fails_costs_only_its_own_skills(root: Root) -> None:
    root.skill("pdf")

    def broken() -> list[SkillDef]:
        raise LookupError("the service is down")

    def odd() -> list[object]:
        return [{"name": "x"}, SkillDef(name="good", description="d"), SkillDef(name="bad", description=" ")]

    async def silent() -> list[SkillDef]:
        await asyncio.Event().wait()
        return []

    def nothing() -> None:
        return None

    skills = await discover_skills(root.path, [broken, odd, silent, nothing], timeout=0.2)
    assert skills.names() == ["good", "pdf"]
    reasons = {info.name: info.reason for info in skills.list() if info.state == "skipped"}
    assert reasons == {
        "broken": "The function failed. LookupError: the service is down",
        "odd": "The function gave a dict, which is no SkillDef.",
        "bad": "It has no description, so a model cannot know when to use it.",
        "silent": "The function did not give its skills within 0.2 s.",
        "nothing": "The function failed. TypeError: 'NoneType' object is not iterable",
    }


async def test_what_can_be_no_skill_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="There is a dict among the skills"):
        await discover_skills((), [{"name": "x"}])  # type: ignore[list-item]


async def test_finding_two_hundred_skills_does_not_block_the_event_loop(root: Root) -> None:
    for number in range(200):
        root.skill(f"s{number}", body="text\n" * 500)

    def slow() -> list[SkillDef]:
        time.sleep(0.1)
        return [SkillDef(name="slow", description="d")]

    async with heartbeat() as heart:
        skills = await discover_skills(root.path, slow)
    assert len(skills) == 201
    assert heart.longest < 0.05


async def test_without_roots_nothing_is_needed_to_read_files() -> None:
    skills = await discover_skills((), [])
    assert (skills.names(), skills.tool(), skills.prompt(), skills.list()) == ([], None, "", [])


def test_only_skills_in_files_need_yaml(root: Root) -> None:
    program = (
        "import asyncio, sys\n"
        "sys.modules['yaml'] = None\n"
        "from toolnexus.errors import MissingExtra\n"
        "from toolnexus.sources.skills import SkillDef\n"
        "from toolnexus.sources.skills.collection import discover_skills\n"
        "print(asyncio.run(discover_skills((), SkillDef(name='a', description='d'))).tool().name)\n"
        "try:\n"
        "    asyncio.run(discover_skills('.'))\n"
        "except MissingExtra as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=root.path)
    assert done.stdout.splitlines() == [
        "skill",
        "Skills in files need an optional dependency. Install it with: pip install 'toolnexus[tools]'",
    ]
