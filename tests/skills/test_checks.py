"""What the author of a skill is told."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from toolnexus.sources.skills.checks import check_skills

if TYPE_CHECKING:
    from .conftest import Root


async def test_a_good_skill_has_nothing_to_say(root: Root) -> None:
    root.put("pdf/references/a b.md", "x")
    body = (
        "See [a](references/a%20b.md#part), [web](https://example.com), [top](#top), [root](/etc/hosts).\n"
        "```\n[no](link.md)\n```\nand `[no](other.md)`.\n"
    )
    file = root.skill("pdf", body=body)
    [info] = await check_skills(file)
    assert (info.name, info.state, info.warnings) == ("pdf", "ready", ())


async def test_links_that_lead_nowhere_are_named_once(root: Root) -> None:
    file = root.skill("pdf", body="[a](gone.md) [b](gone.md) ![c](<img/x.png>) [d](two.md 'title')\n")
    [info] = await check_skills(file.parent)
    assert info.warnings == tuple(
        f"It links to {path!r}, which is not there." for path in ("gone.md", "img/x.png", "two.md")
    )


async def test_too_many_links_are_counted(root: Root) -> None:
    root.skill("pdf", body="".join(f"[x]({n}.md)\n" for n in range(15)))
    [info] = await check_skills(root.path)
    assert info.warnings[-1] == "It has 5 more links to what is not there."
    assert len(info.warnings) == 11


async def test_a_text_made_to_be_slow_to_look_through_is_not(root: Root) -> None:
    root.skill("pdf", body="[a](b " * 500_000 + "\n`" * 100_000)
    async with asyncio.timeout(30):
        [info] = await check_skills(root.path)
    assert info.state == "ready"


async def test_length_and_emptiness_are_told(root: Root) -> None:
    root.skill("empty", body="")
    root.skill("large", body="x" * 60_000)
    root.skill("long", body="x\n" * 600)
    root.put("odd/SKILL.md", b"---\nname: odd\ndescription: d\n---\n" + b"\n" * 70_000 + b"\xe9")
    found = {info.name: info.warnings for info in await check_skills(root.path)}
    assert found == {
        "empty": ("It has no instructions below the front matter.",),
        "large": ("A model is given the first 48 KiB at once. Move parts into files beside it.",),
        "long": ("It has 601 lines; up to 500 are recommended. Move parts into files beside it.",),
        "odd": ("The file is not UTF-8: there is a byte 0xE9 at 70033, as in Latin-1. Save it as UTF-8.",),
    }


async def test_every_skill_is_reported_with_what_is_wrong(root: Root) -> None:
    root.skill("a")
    root.put("b/SKILL.md", "nothing")
    root.put("c/SKILL.md", "---\nname: a\ndescription: d: e\n---\nx\n")
    found = [(info.state, len(info.warnings)) for info in await check_skills(root.path)]
    assert found == [("ready", 0), ("skipped", 0), ("clash", 2)]
    [missing] = await check_skills(root.path / "missing")
    assert (missing.state, missing.reason) == ("skipped", "There is no such folder.")
