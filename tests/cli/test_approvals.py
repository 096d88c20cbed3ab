"""What answers a request: flags, what is remembered, or a person."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from toolnexus import Tool
from toolnexus.cli.approvals import Approvals
from toolnexus.cli.grants import Grants
from toolnexus.cli.pending import Given
from toolnexus.cli.render import Notes
from toolnexus.errors import ConfigurationError
from toolnexus.sources.builtin import builtin_tools
from toolnexus.sources.builtin.workspace import Workspace

YES = {"id": "r", "ok": True}


class Typing:
    """A person who types these lines, and after the last one Ctrl-D for ever."""

    def __init__(self, *lines: str | None) -> None:
        self.lines = list(lines)
        self.seen: list[tuple[str, str]] = []

    async def line(self, prompt: str, *, default: str = "") -> str | None:
        self.seen.append((prompt, default))
        await asyncio.sleep(0)
        return self.lines.pop(0) if self.lines else None


def request(kind: str = "approval", tool: str = "send_note", **arguments: Any) -> Any:
    return {"id": "r", "kind": kind, "prompt": "May it?", "data": {"tool": tool, "arguments": arguments}}


@pytest.fixture
def grants(tmp_path: Path) -> Grants:
    return Grants(tmp_path / "home" / "approvals.json")


async def answer(grants: Grants, asked: Any, *lines: str | None) -> Any:
    return await Approvals(grants, Notes(), Typing(*lines)).answer(asked)


async def nothing(*_: Any) -> None: ...


@pytest.mark.parametrize(
    ("tool", "needed"),
    [
        (Tool(name="reads", execute=nothing, read_only=True), False),
        (Tool(name="acts", execute=nothing), True),
        (Tool(name="says_that_it_reads", execute=nothing, read_only=True, source="mcp"), True),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_only_what_we_ourselves_know_to_change_nothing_runs_without_asking(
    grants: Grants, tool: Tool, needed: bool
) -> None:
    assert Approvals(grants, Notes(), None).needed(tool, {}) is needed


def test_what_could_tell_others_what_was_read_asks_although_it_only_reads(grants: Grants, tmp_path: Path) -> None:
    made = builtin_tools(Workspace(tmp_path))
    asks = {tool.name for tool in made if Approvals(grants, Notes(), None).needed(tool, {})}
    assert asks == {"bash", "write", "edit", "apply_patch", "webfetch"}
    skill = Tool(name="skill", execute=nothing, read_only=True, source="skill")
    assert not Approvals(grants, Notes(), None).needed(skill, {})


def test_in_code_that_somebody_else_may_have_written_no_word_counts(grants: Grants) -> None:
    theirs = Tool(name="reads", execute=nothing, read_only=True)
    assert Approvals(grants, Notes(), None, vouched=lambda tool: tool is not theirs).needed(theirs, {})
    grants.add("reads")
    assert not Approvals(grants, Notes(), None, vouched=lambda tool: tool is not theirs).needed(theirs, {})


def test_flags_answer_in_advance(tmp_path: Path) -> None:
    acts = Tool(name="send_note", execute=nothing)
    file = tmp_path / "x"
    assert not Approvals(Grants(file, everything=True), Notes(), None).needed(acts, {})
    assert not Approvals(Grants(file, patterns=["send_*"]), Notes(), None).needed(acts, {})
    assert Approvals(Grants(file, patterns=["Send_*", "send"]), Notes(), None).needed(acts, {})


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["y"], YES),
        ([" YES "], YES),
        (["", "maybe", "y"], YES),
        (["n no money"], {"id": "r", "ok": False, "reason": "no money"}),
        (["n", " no money "], {"id": "r", "ok": False, "reason": "no money"}),
        (["n", ""], {"id": "r", "ok": False}),
        (["n", None], None),
        ([None], None),
        (["e", '{"to": "Bo"}'], {**YES, "data": {"arguments": {"to": "Bo"}}}),
        (["e", "{nonsense", "[1]", '{"to": "Bo"}'], {**YES, "data": {"arguments": {"to": "Bo"}}}),
        (["e", None, "y"], YES),
    ],
    ids=str,
)
async def test_a_person_says_yes_or_no_or_something_else_or_nothing_yet(
    grants: Grants, lines: list[str | None], expected: Any
) -> None:
    assert await answer(grants, request(to="Ada"), *lines) == expected
    assert await answer(grants, request(to="Ada")) is None  # nothing is remembered of it


async def test_the_arguments_are_shown_whole_before_anybody_is_asked(
    grants: Grants, capsys: pytest.CaptureFixture[str]
) -> None:
    await answer(grants, request(text="x" * 10_000 + "\x1b[2Jend"))
    shown = capsys.readouterr().err
    assert "send_note wants to run:" in shown
    assert "x" * 10_000 in shown
    assert "end" in shown
    assert "\x1b" not in shown


async def test_edited_arguments_start_from_those_that_were_asked_for(grants: Grants) -> None:
    person = Typing("e", '{"to": 1}')
    await Approvals(grants, Notes(), person).answer(request(to="Ada"))
    assert person.seen[-1] == ("Arguments › ", '{"to": "Ada"}')


async def test_in_this_conversation_lasts_as_long_as_the_command_and_is_for_this_tool_alone(grants: Grants) -> None:
    assert await answer(grants, request(), "c") == YES
    assert await answer(grants, request()) == YES
    assert await answer(grants, request(tool="send_money")) is None
    assert not (grants.file and grants.file.exists())


async def test_always_is_remembered_in_a_file_of_the_owner_alone(
    grants: Grants, capsys: pytest.CaptureFixture[str]
) -> None:
    assert grants.file
    person = Typing("a", "send_*")
    assert await Approvals(grants, Notes(), person).answer(request()) == YES
    assert person.seen[-1] == ("Always, for tools named › ", "send_note")
    assert str(grants.file) in capsys.readouterr().err.replace("\n", "")
    assert grants.file.stat().st_mode & 0o777 == 0o600
    later = Grants(grants.file)
    assert await answer(later, request(tool="send_money")) == YES
    assert await answer(later, request(tool="spend")) is None


async def test_always_for_other_tools_is_no_yes_for_this_one(grants: Grants) -> None:
    assert await answer(grants, request(), "a other", "y") == YES
    assert Grants(grants.file).cover("other")
    assert not Grants(grants.file).cover("send_note")
    assert await answer(grants, request(), "a", None) is None


@pytest.mark.parametrize("text", ["{", "[]", '{"always": ["*"]}', '{"version": 2, "always": ["*"]}'])
def test_a_file_that_cannot_be_read_grants_nothing_and_is_named(grants: Grants, text: str) -> None:
    assert grants.file
    grants.file.parent.mkdir()
    grants.file.write_text(text)
    with pytest.raises(ConfigurationError, match=r"approvals\.json"):
        Grants(grants.file)


async def test_where_always_cannot_be_remembered_it_is_said_and_asked_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for nowhere in (Grants(None), Grants(tmp_path / "new" / "x")):
        if nowhere.file is not None:
            nowhere.file.parent.write_text("no folder")
        assert await answer(nowhere, request(), "a *", "y") == YES
        assert "That cannot be remembered" in capsys.readouterr().err
        assert not nowhere.cover("send_note")


@pytest.mark.parametrize(
    ("lines", "expected"),
    [(["y"], YES), (["what?", "No"], {"id": "r", "ok": False}), ([None], None)],
    ids=str,
)
async def test_what_may_have_run_already_runs_again_only_if_a_person_says_so(
    tmp_path: Path, lines: list[str | None], expected: Any
) -> None:
    everything = Grants(tmp_path / "x", everything=True)
    assert await answer(everything, request("retry"), *lines) == expected
    assert await Approvals(everything, Notes(), None).answer(request("retry")) is None


@pytest.mark.parametrize(
    ("lines", "expected"),
    [([" 42 "], {**YES, "data": "42"}), ([""], {"id": "r", "ok": False}), ([None], None)],
    ids=str,
)
async def test_what_a_tool_asks_is_answered_in_words(
    grants: Grants, lines: list[str | None], expected: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = {"id": "r", "kind": "code", "prompt": "Which code?", "url": "https://example.org/login"}
    assert await answer(grants, asked, *lines) == expected
    assert all(text in capsys.readouterr().err for text in ("Which code?",))


async def test_without_a_person_only_what_was_granted_is_answered(grants: Grants) -> None:
    grants.add("send_note")
    nobody = Approvals(grants, Notes(), None)
    assert await nobody.answer(request()) == YES
    assert await nobody.answer(request(tool="other")) is None
    assert await nobody.answer({"id": "r", "kind": "code", "prompt": "Which code?"}) is None


async def test_a_person_is_asked_one_thing_at_a_time_and_not_what_was_just_granted(grants: Grants) -> None:
    person = Typing("c", "y")
    approvals = Approvals(grants, Notes(), person)
    asked = [request(), request(), request(tool="other")]
    assert await asyncio.gather(*map(approvals.answer, asked)) == [YES, YES, YES]
    assert len(person.seen) == 2


def test_patterns_are_kept_in_order_and_once(grants: Grants) -> None:
    for pattern in ("b", "a*", "b"):
        grants.add_for_always(pattern)
    assert grants.file
    assert json.loads(grants.file.read_text())["always"] == ["b", "a*"]


async def seen(tmp_path: Path, tool: str, capsys: pytest.CaptureFixture[str], **arguments: Any) -> str:
    """What a person is shown of a call."""
    grants = Grants(tmp_path / "home" / "approvals.json")
    approvals = Approvals(grants, Notes(), Typing("y"), root=lambda name: None if name == "mine" else tmp_path)
    assert await approvals.answer(request(tool=tool, **arguments)) == YES
    return capsys.readouterr().err


async def test_a_command_is_shown_as_it_is_typed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = await seen(tmp_path, "bash", capsys, command="cd x\nls", timeout=5)
    assert '$ cd x\n  ls\n{\n  "timeout": 5\n}\n' in shown


async def test_a_change_is_shown_as_a_diff(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    shown = await seen(tmp_path, "write", capsys, path="a.txt", content="one\n2\n")
    assert "a.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n" in shown
    assert "\n+one\n+2\n" in await seen(tmp_path, "write", capsys, path="new.txt", content="one\n2\n")
    shown = await seen(tmp_path, "edit", capsys, path="a.txt", oldString="two", newString="2\n3", replaceAll=True)
    assert "a.txt, wherever it is there\n" in shown
    assert "\n-two\n+2\n+3\n" in shown
    patch = "*** Begin Patch\n*** Update File: a.txt\n-two\n+2\n*** End Patch"
    assert f"\n{patch}\n" in await seen(tmp_path, "apply_patch", capsys, patchText=patch)


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("mine", {"command": "ls"}),
        ("edit", {"path": "a.txt", "oldString": 1, "newString": "x"}),
        ("bash", {"command": "ls", "unknown": "\x1b[2J"}),
        ("write", {"path": "pipe", "content": "x", "mode": "0777"}),
    ],
)
async def test_no_argument_is_hidden_whatever_it_is(
    tmp_path: Path, tool: str, arguments: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "pipe")
    shown = await seen(tmp_path, tool, capsys, **arguments)
    assert all(str(value).replace("\x1b", "") in shown.replace("\\u001b", "") for value in arguments.values())
    assert "\x1b" not in shown


ASKED: Any = {
    "id": "r",
    "kind": "question",
    "prompt": "…",
    "data": {
        "questions": [
            {"question": "Which colour?", "header": "Paint", "options": ["teal", "amber", "3"]},
            {"question": "Which days?", "options": ["Mon", "Tue"], "multiple": True},
            {"question": "Why?"},
        ]
    },
}


@pytest.mark.parametrize(
    ("lines", "answers"),
    [
        (["2", "1, tue", "so"], ["amber", ["Mon", "Tue"], "so"]),
        (["3", "both, perhaps", "1"], ["3", ["both, perhaps"], "1"]),
        (["AMBER", "", ""], ["amber", None, None]),
        (["4", "2", "x"], ["4", ["Tue"], "x"]),
    ],
)
async def test_questions_are_answered_one_by_one(grants: Grants, lines: list[str], answers: list[Any]) -> None:
    assert await answer(grants, ASKED, *lines) == {**YES, "data": {"answers": answers}}


async def test_questions_may_be_skipped_or_left_open(grants: Grants, capsys: pytest.CaptureFixture[str]) -> None:
    assert await answer(grants, ASKED, "", " ", "") == {"id": "r", "ok": False}
    assert "Paint: Which colour?\n  1. teal\n  2. amber\n" in capsys.readouterr().err
    assert await answer(grants, ASKED, "1", None) is None


@pytest.mark.parametrize(
    ("text", "answers"),
    [
        ('["2", "1,2", "so"]', ["amber", ["Mon", "Tue"], "so"]),
        ('{"answers": ["teal", ["Mon"], null]}', ["teal", ["Mon"], None]),
    ],
)
def test_one_text_answers_all_questions_as_a_list(text: str, answers: list[Any]) -> None:
    assert Given(how="answer", text=text).answers([ASKED]) == [{**YES, "data": {"answers": answers}}]


@pytest.mark.parametrize("text", ["teal", '["teal"]', "[", "{}"])
def test_what_does_not_answer_all_questions_is_a_mistake(text: str) -> None:
    with pytest.raises(ConfigurationError, match="3 questions are answered with a JSON list"):
        Given(how="answer", text=text).answers([ASKED])
