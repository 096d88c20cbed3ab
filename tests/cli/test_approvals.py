"""What answers a request: flags, what is remembered, or a person."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from toolnexus import Tool
from toolnexus.cli.approvals import Approvals
from toolnexus.cli.grants import Grants
from toolnexus.cli.render import Notes
from toolnexus.errors import ConfigurationError

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
