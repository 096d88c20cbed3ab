from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from toolnexus import Retrying, SQLiteStore, create_in_process_client, create_toolkit
from toolnexus.cli import demo
from toolnexus.clock import SystemClock


class NoWait(SystemClock):
    async def sleep(self, seconds: float) -> None: ...


async def said(*prompts: str, **tools: Any) -> str:
    """What the demo answers to the last prompt of a conversation, with all that `create_toolkit` makes of `tools`."""
    client = create_in_process_client(model="demo", generate=demo.scripted())
    async with client, await create_toolkit(demo.TOOLS, **tools) as toolkit:
        return [(await client.ask(prompt, toolkit, id="c")).text for prompt in prompts][-1]


async def test_a_new_process_is_sent_what_the_last_one_was_told(tmp_path: Path) -> None:
    answers: list[str] = []
    requests: list[list[dict[str, Any]]] = []
    for prompt in ("Remember that my favourite colour is teal.", "What do you know?"):
        store, model = SQLiteStore(tmp_path / "c.db"), demo.scripted()
        async with create_in_process_client(model="demo", generate=model, store=store) as client:
            answers.append((await client.ask(prompt, demo.TOOLS, id="c")).text)
        await store.aclose()
        requests.append(model.requests[0]["messages"])
    assert [message["content"] for message in requests[1]] == [
        "Remember that my favourite colour is teal.",
        answers[0],
        "What do you know?",
    ]
    assert answers[1].endswith("- my favourite colour is teal")


async def test_it_calls_tools_in_parallel_and_tells_their_results() -> None:
    async with create_in_process_client(generate=demo.scripted()) as client:
        result = await client.run("Add 2 and 3, and tell me the time; what is 1.5 + 1?", demo.TOOLS)
    assert [len(step.calls) for step in result.steps] == [3, 0]
    assert [(call.name, call.is_error) for call in result.tool_calls] == [
        ("add", False),
        ("add", False),
        ("current_time", False),
    ]
    assert result.text.startswith("The sum is **5**.\n\nThe sum is **2.5**.\n\nIt is ")


@pytest.mark.parametrize(
    ("prompt", "part"),
    [
        ("what do you remember?", "Nothing yet"),
        ("my cat is called Tom", "I will remember it: my cat is called Tom."),
        ("count the words in the quick brown fox", "**4** words"),
        ("count to 3", "1 2 3."),
        ("summarise: the cat saw the other cats\nthe end", "2 lines, 8 words, 34 characters"),
        ("Summarize", "Give me a text"),
        ("help", "no AI"),
        ("hello", "no AI"),
        ("Write a poem about the sea.", "not in my script"),
        ("Write a poem about the sea.", "add 2 and 3"),
    ],
)
async def test_it_answers_what_is_in_its_script_and_says_when_it_is_not(prompt: str, part: str) -> None:
    assert part in await said(prompt)


async def test_it_knows_what_was_asked_before() -> None:
    assert "Nothing before this" in await said("What did I ask?")
    answer = await said("What is 2 + 3, and what time is it?", "hello\nmore", "What did I ask?")
    assert answer.endswith("- What is 2 + 3, and what time is it?\n- hello")


async def test_it_lists_and_reads_files_here_and_nowhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = tmp_path / "here"
    (here / "sub").mkdir(parents=True)
    (here / "a.txt").write_text("first line\n" + "more\n" * 30)
    (here / "sub" / "b.txt").write_text("deep\n")
    (tmp_path / "secret.txt").write_text("secret")
    (here / "link.txt").symlink_to(tmp_path / "secret.txt")
    monkeypatch.chdir(here)
    assert "\na.txt\n" in await said("list the files", builtins=True)
    assert "\nsub/b.txt\n" in await said("list the files in sub.", builtins=True)
    read = await said("read the file a.txt.", builtins=True)
    assert "first line" in read
    assert "… and 11 more lines." in read
    for path in ("../secret.txt", "link.txt", str(tmp_path / "secret.txt")):
        answer = await said(f"read {path}", builtins=True)
        assert "outside the workspace" in answer
        assert "secret\n" not in answer
    assert "is a folder" in await said("read the file sub", builtins=True)
    assert "outside" in await said("list the files in ..", builtins=True)


async def test_it_searches_writes_and_changes_files_and_runs_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "Made 'notes.txt'" in await said('write "one (two) three" to notes.txt', builtins=True)
    assert "notes.txt:1:one (two) three" in await said("search for `(two)`", builtins=True)
    assert "Replaced 1" in await said("replace 'one (two)' with \"two\" in the file notes.txt.", builtins=True)
    assert (tmp_path / "notes.txt").read_text() == "two three\n"
    assert "two three" in await said("run the command: cat notes.txt", builtins=True)


async def test_it_loads_a_skill(tmp_path: Path) -> None:
    (tmp_path / "piers").mkdir()
    (tmp_path / "piers" / "SKILL.md").write_text("---\nname: piers\ndescription: On piers.\n---\nWalk slowly.\n")
    assert "Walk slowly." in await said("load the skill piers", skills_dir=tmp_path)


async def test_it_says_which_tool_it_was_not_given() -> None:
    assert "the tool `read`, which I was not given" in await said("read the file a.txt")


async def test_flaky_fails_each_request_once() -> None:
    seen: list[Any] = []
    client = create_in_process_client(generate=demo.generate("demo:flaky"), retries=2, clock=NoWait())
    async with client, client.stream("add 2 and 3", demo.TOOLS) as events:
        async for event in events:
            seen.append(event)
    assert [event.attempt for event in seen if isinstance(event, Retrying)] == [1, 1]
    assert "**5**" in seen[-1].result.text


@pytest.mark.parametrize(
    ("prompt", "answer"),
    [
        ("1" * 200_000, "not in my script"),
        (f"add {'9' * 5000} and 1", "not in my script"),
        (f"count to {'9' * 5000}", " 9999 10000."),
        ("add -2 and 3.5", "**1.5**"),
    ],
    ids=["digits", "sum", "count", "small"],
)
async def test_numbers_of_any_length_are_answered_at_once(prompt: str, answer: str) -> None:
    assert answer in await said(prompt)
