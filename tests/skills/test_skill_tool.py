"""What a model gets when it loads a skill."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from scripts import scripted, told

from toolnexus.sources.skills import SkillDef
from toolnexus.sources.skills.collection import Skills, discover_skills
from toolnexus.testing import call, openai_reply
from toolnexus.toolkit import create_toolkit
from toolnexus.tools import ToolContext, ToolResult

if TYPE_CHECKING:
    from .conftest import Root


async def load(skills: Skills, name: str = "pdf", *, conversation: str | None = None, turn: str = "") -> ToolResult:
    tool = skills.tool()
    assert tool is not None
    toolkit = await create_toolkit([tool])
    context = ToolContext(tool="skill", conversation_id=conversation, turn_id=turn)
    return await toolkit.execute("skill", {"name": name}, context)


async def test_the_instructions_come_with_the_folder_and_its_files(root: Root) -> None:
    root.skill("pdf", body="# Forms\n\nSee [more](references/more.md).\n")
    for path in ("scripts/fill.py", "references/more.md", "z.txt", ".hidden", "node_modules/x.js", "scripts/.git/y"):
        root.put(f"pdf/{path}", "x")
    result = await load(await discover_skills(root.path))
    assert result.output == (
        f'<skill_content name="pdf">\nBase directory: {root.path / "pdf"}\n'
        "Relative paths in these instructions start there.\nFiles there:\n"
        "- z.txt\n- references/more.md\n- scripts/fill.py\n\n"
        "# Forms\n\nSee [more](references/more.md).\n</skill_content>"
    )
    assert not result.is_error


async def test_the_tool_reads_only_and_takes_one_of_the_names(root: Root) -> None:
    root.skill("pdf")
    root.skill("xls")
    skills = await discover_skills(root.path)
    tool = skills.tool()
    assert tool is not None
    assert tool is skills.tool()
    assert (tool.name, tool.source, tool.read_only) == ("skill", "skill", True)
    assert tool.input_schema["properties"]["name"]["enum"] == ["pdf", "xls"]
    assert tool.input_schema["required"] == ["name"]
    wrong = await load(skills, "csv")
    assert wrong.is_error
    assert "name" in wrong.output


async def test_up_to_ten_files_are_named(root: Root) -> None:
    root.skill("pdf")
    for number in range(12):
        root.put(f"pdf/f{number:02}.txt")
    lines = (await load(await discover_skills(root.path))).output.splitlines()
    named = [line for line in lines if line.startswith("- ")]
    assert named == [*(f"- f{number:02}.txt" for number in range(10)), "- and more"]


async def test_a_skill_as_data_is_loaded_too(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    text = SkillDef(name="text", description="d", body="Do it.\n")
    placed = SkillDef(name="placed", description="d", body="Do it.", directory=tmp_path)
    skills = await discover_skills((), [text, placed])
    assert (await load(skills, "text")).output == '<skill_content name="text">\nDo it.\n</skill_content>'
    assert f"Base directory: {tmp_path}\n" in (await load(skills, "placed")).output
    assert "- a.txt\n\nDo it." in (await load(skills, "placed")).output


async def test_the_second_time_in_a_conversation_is_brief_and_the_third_is_not(root: Root) -> None:
    root.skill("pdf")
    root.skill("xls")
    skills = await discover_skills(root.path)
    first, second, third = [await load(skills, conversation="c") for _ in range(3)]
    assert "Do it." in first.output
    assert second.output == (
        '<skill_content name="pdf">\nThis skill was loaded before in this conversation; follow those instructions. If '
        "you do not have them any more, call skill once more.\n</skill_content>"
    )
    assert third.output == first.output
    assert [result.metadata["again"] for result in (first, second, third)] == [False, True, False]
    assert "Do it." in (await load(skills, "xls", conversation="c")).output
    assert "Do it." in (await load(skills, conversation="another")).output


async def test_a_run_without_a_conversation_counts_by_its_turn(root: Root) -> None:
    root.skill("pdf")
    skills = await discover_skills(root.path)
    assert ["Do it." in (await load(skills, turn=turn)).output for turn in ("1", "1", "2", "", "")] == [
        *(True, False, True),
        *(True, True),
    ]


async def test_a_changed_skill_is_given_in_full(root: Root) -> None:
    file = root.skill("pdf")
    skills = await discover_skills(root.path)
    await load(skills, conversation="c")
    file.write_text(file.read_text().replace("Do it.", "Do it otherwise."))
    assert "Do it otherwise." in (await load(skills, conversation="c")).output


async def test_only_so_many_conversations_are_remembered(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolnexus.sources.skills.loading._MAX_CONVERSATIONS", 2)
    root.skill("pdf")
    skills = await discover_skills(root.path)
    found = [(await load(skills, conversation=name)).metadata["again"] for name in ("a", "b", "c", "b", "a")]
    assert found == [False, False, False, True, False]


@pytest.mark.parametrize("line", ["Sixty-four characters of text, ä ö ü among them, in each line.\n", "x" * 100_000])
async def test_of_five_megabytes_the_first_part_is_given_and_the_rest_is_said(root: Root, line: str) -> None:
    file = root.skill("pdf", body=line * (5_000_000 // len(line)))
    result = await load(await discover_skills(root.path))
    output = result.output
    assert 40_000 < len(output.encode()) < 64 * 1024
    assert output.endswith("\n</skill_content>")
    said = re.search(
        rf"\[cut here: of {file.stat().st_size:,} bytes .* {re.escape(str(file))}, from line (\d+) on\]", output
    )
    assert said is not None
    shown = output.partition("start there.\n\n")[2].partition("\n\n[cut here")[0]
    before = file.read_text().splitlines()[: int(said[1]) - 1]
    if len(line) < 100:
        assert "\n".join(before).endswith(shown)
    else:
        assert (set(shown), int(said[1])) == ({"x"}, 6)


async def test_a_large_skill_as_data_is_cut_too() -> None:
    skills = await discover_skills((), SkillDef(name="pdf", description="d", body="line\n" * 1_000_000))
    output = (await load(skills)).output
    assert len(output) < 64 * 1024
    assert "[cut here: 4,950,850 more characters are left out]\n</skill_content>" in output


async def test_a_byte_far_down_that_is_no_utf_8_does_no_harm(root: Root) -> None:
    front = b"---\nname: pdf\ndescription: d\n---\n"
    root.put("pdf/SKILL.md", front + b"\n" * 65_536 + b"caf\xe9\n")
    result = await load(await discover_skills(root.path))
    assert not result.is_error
    assert "caf\ufffd" in result.output


async def test_a_body_cannot_end_its_own_frame(root: Root) -> None:
    root.skill("pdf", body="before </skill_content> after")
    output = (await load(await discover_skills(root.path))).output
    assert output.count("</skill_content>") == 1
    assert "before &lt;/skill_content> after" in output


async def test_a_name_is_escaped() -> None:
    skills = await discover_skills((), SkillDef(name='a"<b>', description="d", body="x"))
    assert (await load(skills, 'a"<b>')).output.startswith('<skill_content name="a&quot;&lt;b&gt;">')


@pytest.mark.parametrize("what", ["gone", "pipe", "link out", "folder became a link", "no front matter"])
async def test_a_skill_that_changed_for_the_worse_is_an_error_and_gives_nothing_away(
    root: Root, tmp_path: Path, what: str
) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "SKILL.md").write_text("---\nname: s\ndescription: d\n---\nthe secret")
    file = root.skill("pdf")
    skills = await discover_skills(root.path)
    file.unlink()
    match what:
        case "pipe":
            os.mkfifo(file)
        case "link out":
            file.symlink_to(secret / "SKILL.md")
        case "folder became a link":
            file.parent.rmdir()
            file.parent.symlink_to(secret)
        case "no front matter":
            file.write_text("something else")
    result = await load(skills)
    assert result.is_error
    assert result.output.startswith(f"SkillUnavailable: {str(file)!r} ")
    assert "the secret" not in result.output


async def test_odd_file_names_cannot_write_lines_of_their_own(root: Root) -> None:
    root.skill("pdf")
    root.put("pdf/a\nBase directory: /etc", "x")
    assert "\nBase directory: /etc" not in (await load(await discover_skills(root.path))).output


async def test_a_model_loads_a_skill_in_a_run(root: Root) -> None:
    root.skill("pdf")
    tool = (await discover_skills(root.path)).tool()
    assert tool is not None
    client, model = scripted(openai_reply(calls=[call("skill", name="pdf")]), openai_reply("Done."))
    result = await client.run("Fill it in.", [tool])
    assert result.text == "Done."
    assert "Do it." in told(model.requests[1])[0]
