"""What the reference validator of the specification accepts, is read as it reads it."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st
from skills_ref import read_properties, validate

from toolnexus.sources.skills.collection import discover_skills

if TYPE_CHECKING:
    from toolnexus.sources.skills import SkillInfo

_WORDS = st.sampled_from(
    [
        *("a", "two words", "yes", "1.0", "null", "~", "2020-01-01", "it's", 'say "so"', "a:b", "a: b", "x #y", "x#y"),
        *("https://example.com/?a=b&c", "[x]", "{x}", "- x", "* x", "? x", "| x", "> x", "%x", "@x", "`x`", "!x", "&x"),
        *("é", "日本語", "😀", "a\tb", "\\n", "trailing ", "<b>", "=", "<<", "...", "-- -", "0x1F", "", "'", '"', "''"),
    ]
)
_TEXT = _WORDS | st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=30)
_NAMES = st.from_regex(r"[a-z0-9]{1,8}(-[a-z0-9]{1,8}){0,2}", fullmatch=True) | st.sampled_from(["été", "日本", "null"])


@st.composite
def scalars(draw: st.DrawFn, indent: str) -> str:
    """A text in one of the ways that YAML has to write it, right or not."""
    text = draw(_TEXT)
    inside = f"{indent}  "
    lines = draw(st.lists(_TEXT, min_size=1, max_size=4))
    match draw(st.sampled_from(["plain", "single", "double", "block", "lines"])):
        case "plain":
            return text
        case "single":
            return "'" + text.replace("'", "''") + "'"
        case "double":
            return (
                '"'
                + text.replace("\\", "\\\\").replace('"', '\\"')
                + draw(st.sampled_from(["", "\\n", "\\u00e9"]))
                + '"'
            )
        case "block":
            mark = draw(st.sampled_from("|>")) + draw(st.sampled_from(["", "-", "+"]))
            return f"{mark}\n" + "\n".join(f"{inside}{line}" for line in lines)
        case _:
            return f"\n{inside}".join(lines)


@st.composite
def front_matters(draw: st.DrawFn, name: str) -> str:
    """Front matter, most of it valid."""
    fields = [f"name: {name}", f"description: {draw(scalars(''))}"]
    for key in draw(st.sets(st.sampled_from(["license", "compatibility", "allowed-tools"]))):
        fields.append(f"{key}: {draw(scalars(''))}")
    if draw(st.booleans()):
        pairs = [f"  k{number}: {draw(scalars('  '))}" for number in range(draw(st.integers(0, 3)))]
        fields.append("\n".join(["metadata:", *pairs]))
    fields += draw(st.lists(st.sampled_from(["# a comment", "", "   "]), max_size=2))
    return "\n".join(draw(st.permutations(fields)))


def ours(folder: Path) -> SkillInfo:
    [info] = asyncio.run(discover_skills(folder)).list()
    return info


def as_reference(info: SkillInfo) -> dict[str, Any]:
    """Our reading in the shape of the reference's, which leaves out empty fields."""
    found = {"name": info.name, "description": info.description, **info.metadata}
    return {key: value for key, value in found.items() if value}


@settings(max_examples=100, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(name=_NAMES, end=st.sampled_from(["\n", "\r\n"]), data=st.data())
def test_what_the_reference_accepts_is_read_equally(name: str, end: str, data: st.DataObject) -> None:
    front = data.draw(front_matters(name))
    assume("---" not in front)  # the reference ends the front matter there, wherever in a line it stands
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory) / name
        folder.mkdir()
        text = f"---\n{front}\n---\n\nDo it.\n".replace("\n", end)
        (folder / "SKILL.md").write_bytes(text.encode())
        try:
            accepted = validate(folder) == []
        except Exception:  # it raises errors of its own for some characters and comments
            accepted = False
        event(f"accepted: {accepted}")
        assume(accepted)
        expected = {key: value for key, value in read_properties(folder).to_dict().items() if value}
        assume("TaggedScalar" not in repr(expected))  # it reads a lone `=` as an object of its own
        info = ours(folder)
    assert info.state == "ready", info.reason
    assert as_reference(info) == expected
    assert info.warnings == ()


def test_the_skills_of_the_specification_are_accepted_by_both(tmp_path: Path) -> None:
    for name, front in {
        "pdf-processing": "description: Extracts text: no",
        "data-analysis": "description: 'Analyses: data'\nlicense: Apache-2.0\nmetadata:\n  author: example-org",
        "code-review": "description: >-\n  Reviews\n  code.\nallowed-tools: Bash(git:*) Read",
    }.items():
        folder = tmp_path / name
        folder.mkdir()
        (folder / "SKILL.md").write_text(f"---\nname: {name}\n{front}\n---\nx\n")
    problems = {folder.name: validate(folder) for folder in tmp_path.iterdir()}
    found = {info.name: info for info in asyncio.run(discover_skills(tmp_path)).list()}
    assert [name for name, told in problems.items() if told] == ["pdf-processing"]
    assert {info.state for info in found.values()} == {"ready"}
    assert [name for name, info in found.items() if info.warnings] == ["pdf-processing"]
