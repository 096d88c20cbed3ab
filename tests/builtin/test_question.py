"""The tool `question`, in runs whose model follows a script."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scripts import scripted, told

from toolnexus import Answer, Request, create_toolkit
from toolnexus.sources.builtin import question
from toolnexus.sources.builtin.workspace import Workspace
from toolnexus.testing import call, openai_reply

ONE: list[Any] = [{"question": "Which colour?", "header": "Paint", "options": ["Red", "Blue"]}]
TWO: list[Any] = [{"question": "Which?", "options": ["Red", "Blue"], "multiple": True}, {"question": "Why?"}]


async def asked(tmp_path: Path, questions: Any, data: Any) -> tuple[str, list[Request]]:
    """What the model is told, and what the person was asked."""
    seen: list[Request] = []

    async def wait_for(request: Request) -> Answer:
        seen.append(request)
        return {"id": request["id"], "ok": True, "data": data}

    client, provider = scripted(
        openai_reply(calls=[call("question", questions=questions)]), openai_reply("Done."), wait_for=wait_for
    )
    toolkit = await create_toolkit([question.make(Workspace(tmp_path))])
    async with client:
        await client.run("Paint it.", toolkit)
    return told(provider.requests[1])[0], seen


ANSWERED: list[tuple[Any, Any, str]] = [
    (ONE, {"answers": ["Blue"]}, "Which colour?\n- Blue"),
    (ONE, "Green, rather", "Which colour?\n- Green, rather"),
    (ONE, ["Red"], "Which colour?\n- Red"),
    (ONE, {"answers": [None]}, "Which colour?\n(skipped)"),
    (ONE, None, "Which colour?\n(skipped)"),
    (TWO, {"answers": [["Red", "Blue"], "So."]}, "Which?\n- Red\n- Blue\n\nWhy?\n- So."),
    (TWO, {"answers": [[], ""]}, "Which?\n(skipped)\n\nWhy?\n(skipped)"),
    (TWO[:1], ["Red", "Blue"], "Which?\n- Red\n- Blue"),
]


@pytest.mark.parametrize(("questions", "data", "output"), ANSWERED)
async def test_the_answers_go_back_to_the_model(tmp_path: Path, questions: Any, data: Any, output: str) -> None:
    text, [request] = await asked(tmp_path, questions, data)
    assert text == output
    assert request["kind"] == "question"
    assert request.get("data") == {"questions": questions}


async def test_the_prompt_shows_the_questions_and_their_options(tmp_path: Path) -> None:
    assert (await asked(tmp_path, ONE, "Red"))[1][0]["prompt"] == "Paint: Which colour?\n- Red\n- Blue"
    prompt = (await asked(tmp_path, TWO, {"answers": ["Red", "x"]}))[1][0]["prompt"]
    assert prompt == "Which? (several may be chosen)\n- Red\n- Blue\n\nWhy?"


@pytest.mark.parametrize(
    ("questions", "data", "expected"),
    [
        (TWO, {"answers": ["Red"]}, "with 2 items, one a question"),
        (TWO, "Red", "with 2 items"),
        (ONE, {"answers": [5]}, "a text, a list of texts, or None"),
        (ONE, ["Red", "Blue"], "only one could be chosen"),
    ],
)
async def test_an_answer_that_does_not_fit_is_an_error(
    tmp_path: Path, questions: Any, data: Any, expected: str
) -> None:
    text, _ = await asked(tmp_path, questions, data)
    assert text.startswith("UnreadableAnswer: ")
    assert expected in text


@pytest.mark.parametrize(
    ("questions", "place"),
    [
        ([], "questions"),
        ([{"question": ""}], "questions[0].question"),
        ([{"question": "a", "options": ["x", "x"]}], "questions[0].options"),
        ([{"question": "a", "options": [""]}], "questions[0].options[0]"),
        ([{"question": "a", "multiple": True}], "questions[0].options"),
    ],
)
async def test_questions_that_cannot_be_meant_are_told_to_the_model(tmp_path: Path, questions: Any, place: str) -> None:
    text, requests = await asked(tmp_path, questions, None)
    assert f"- {place}: " in text
    assert requests == []


async def test_without_a_person_the_turn_ends_and_waits(tmp_path: Path) -> None:
    client, provider = scripted(openai_reply(calls=[call("question", questions=ONE)]), openai_reply("Blue, then."))
    toolkit = await create_toolkit([question.make(Workspace(tmp_path))])
    async with client:
        waiting = await client.run("Paint it.", toolkit)
        assert waiting.status == "pending"
        [request] = waiting.pending
        assert request["kind"] == "question"
        answer: Answer = {"id": request["id"], "ok": True, "data": {"answers": ["Blue"]}}
        done = await client.resume_run(waiting.messages, [answer], toolkit)
    assert done.text == "Blue, then."
    assert told(provider.requests[1]) == ["Which colour?\n- Blue"]


async def test_a_person_who_declines_is_told_to_the_model(tmp_path: Path) -> None:
    def wait_for(request: Request) -> Answer:
        return {"id": request["id"], "ok": False, "reason": "busy"}

    asks = openai_reply(calls=[call("question", questions=ONE)])
    client, provider = scripted(asks, openai_reply("Well."), wait_for=wait_for)
    toolkit = await create_toolkit([question.make(Workspace(tmp_path))])
    async with client:
        await client.run("Paint it.", toolkit)
    assert told(provider.requests[1]) == ["declined: busy"]
