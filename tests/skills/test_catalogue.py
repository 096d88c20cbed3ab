"""What a system prompt says of skills, and choosing among them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from toolnexus.sources.skills import SkillDef
from toolnexus.sources.skills.collection import discover_skills

if TYPE_CHECKING:
    from .conftest import Root


async def test_the_list_names_each_skill_with_one_line(root: Root) -> None:
    root.put("pdf/SKILL.md", "---\nname: pdf\ndescription: |\n  Reads <forms> &\n  fills  them.\n---\n")
    root.skill("xls")
    root.put("broken/SKILL.md", "")
    assert (await discover_skills(root.path)).prompt() == (
        "Skills are instructions for kinds of tasks. When a task fits one of these, call the tool `skill` with its "
        "name before you begin, and follow what it says.\n<available_skills>\n"
        '<skill name="pdf">Reads &lt;forms&gt; &amp; fills them.</skill>\n'
        '<skill name="xls">Does xls.</skill>\n'
        "</available_skills>"
    )


@pytest.mark.parametrize(("count", "shown"), [(10, 1024), (40, 512), (90, 256), (400, 0)])
async def test_descriptions_get_shorter_so_that_all_skills_have_room(count: int, shown: int) -> None:
    skills = await discover_skills((), [SkillDef(name=f"s{n}", description="d" * 5000) for n in range(count)])
    prompt = skills.prompt()
    assert len(prompt) <= 32_000
    assert prompt.count("<skill name=") == count
    assert f">{'d' * shown}…<" in prompt


async def test_when_not_even_the_names_have_room_it_is_said() -> None:
    skills = await discover_skills((), [SkillDef(name=f"{n}-{'x' * 100}", description="d") for n in range(900)])
    prompt = skills.prompt()
    listed = prompt.count("<skill name=")
    assert 100 < listed < 900
    assert f"And {900 - listed} more, named in the schema of the tool `skill`.\n</available_skills>" in prompt
    assert len(prompt) <= 32_000


async def test_a_host_can_leave_skills_out(root: Root) -> None:
    root.skill("pdf")
    root.skill("xls")
    skills = (await discover_skills(root.path)).select(lambda name: name != "pdf")
    assert skills.names() == ["xls"]
    assert [(info.name, info.state) for info in skills.list()] == [("pdf", "disabled"), ("xls", "ready")]
    assert "pdf" not in skills.prompt()
    tool = skills.tool()
    assert tool is not None
    assert tool.input_schema["properties"]["name"]["enum"] == ["xls"]
