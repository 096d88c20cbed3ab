"""`toolnexus memory`, and where it looks."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from rich.cells import cell_len

from toolnexus import SQLiteStore
from toolnexus.cli.memory.listing import ago, table
from toolnexus.stores.backend import Listed, Page
from toolnexus.stores.file import FileStore

Cli = Callable[..., Result]

TABS = re.compile(r"[^\t]*\t[^\t]*\t\d{4}-\d\d-\d\d \d\d:\d\d[+-]\d\d:\d\d\t\d+\t[a-z]*\t[^\t]*")


def database(environment: dict[str, str]) -> Path:
    return Path(environment["TOOLNEXUS_HOME"]) / "conversations.db"


def in_store(environment: dict[str, str], work: Callable[[SQLiteStore], Any]) -> Any:
    """What `work` does in the store that the commands use."""

    async def run() -> Any:
        store = SQLiteStore(database(environment))
        try:
            return await work(store)
        finally:
            await store.aclose()

    return asyncio.run(run())


def columns(done: Result) -> list[list[str]]:
    assert done.exit_code == 0, done.stderr
    assert all(TABS.fullmatch(line) for line in done.stdout.splitlines())
    return [line.split("\t") for line in done.stdout.splitlines()]


def test_ls_lists_the_last_conversation_first(cli: Cli) -> None:
    cli("-m", "demo", "-C", "first one", "add 2 and 3")
    cli("-m", "demo", "-C", "second", "remember that my name is\tAda")
    cli("memory", "rename", "first one", "Sums", "and more")
    assert [(id, title, count, status) for id, title, _, count, status, _ in columns(cli("memory", "ls"))] == [
        ("first one", "Sums and more", "4", "done"),
        ("second", "", "2", "done"),
    ]
    assert columns(cli("memory", "ls"))[1][-1].startswith("I will remember it: my name is Ada.")
    done = cli("memory", "ls", "-n", "1")
    assert len(done.stdout.splitlines()) == 1
    assert "1 more: -n" in done.stderr


def test_ls_and_search_have_json_for_programs(cli: Cli) -> None:
    cli("-m", "demo", "-C", "a", "remember that my name is Ada")
    cli("-m", "demo", "-C", "b", "count to 3")
    (found,) = json.loads(cli("memory", "search", "Ada", "--json").stdout)
    assert (found["id"], found["title"], found["messages"], found["status"]) == ("a", None, 2, "done")
    assert [each["id"] for each in json.loads(cli("memory", "ls", "--json").stdout)] == ["b", "a"]


def test_search_finds_where_all_words_were_said(cli: Cli) -> None:
    cli("-m", "demo", "-C", "a", "remember that my name is Ada")
    cli("-m", "demo", "-C", "b", "remember that my dog is Bo")
    assert [row[0] for row in columns(cli("memory", "search", "name", "Ada"))] == ["a"]
    done = cli("memory", "search", "Ada dog")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "Nothing was found." in done.stderr


def test_an_empty_memory_is_said(cli: Cli) -> None:
    done = cli("memory", "ls")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "Nothing is remembered yet." in done.stderr


def test_show_tells_each_turn_with_how_it_ended_and_a_line_for_each_call(cli: Cli) -> None:
    cli("-m", "demo", "-C", "mine", "add 2 and 3")
    cli("-C", "mine", "what did I ask?")
    cli("memory", "rename", "mine", "Sums")
    lines = cli("memory", "show", "mine").stdout.splitlines()
    assert lines[:2] == ["mine · Sums · 6 messages", ""]
    assert re.fullmatch(r"1 · done · \S+ \S+ · demo", lines[2])
    assert lines[3:7] == [
        "user: add 2 and 3",
        "assistant: Let me see.",
        "  ⏺ add(a=2, b=3) ✓ 5",
        "assistant: The sum is **5**.",
    ]
    assert re.fullmatch(r"2 · done · \S+ \S+ · demo", lines[8])
    full = cli("memory", "show", "mine", "--full").stdout.splitlines()
    assert full[5:7] == ['  ⏺ add({"a":2,"b":3}) ✓', "    5"]


def test_show_says_what_a_failed_turn_was_about_and_that_it_left_no_trace(cli: Cli) -> None:
    cli("-m", "demo", "-C", "mine", "hello")
    cli("-m", "x", "--base-url", "http://127.0.0.1:9/v1", "-C", "mine", "and now?")
    shown = cli("memory", "show", "mine").stdout
    assert shown.startswith("mine · 2 messages\n")
    assert re.search(r"^– · failed · .* · left no trace$", shown, re.MULTILINE)


def test_show_has_json_with_turns_and_the_raw_records(cli: Cli) -> None:
    cli("-m", "demo", "-C", "mine", "add 2 and 3")
    shown = json.loads(cli("memory", "show", "mine", "--json").stdout)
    assert (shown["id"], shown["status"], len(shown["messages"])) == ("mine", "done", 4)
    (turn,) = shown["turns"]
    assert (turn["start"], turn["count"], turn["outcome"]["model"]) == (0, 4, "demo")
    records = [json.loads(line) for line in cli("memory", "show", "mine", "--raw").stdout.splitlines()]
    assert [record["k"] for record in records] == ["turn", *["message"] * 4, "turn"]


def test_show_takes_a_conversation_that_a_program_put_in(cli: Cli, environment: dict[str, str]) -> None:
    theirs = [{"role": "user", "content": "who?"}, {"role": "assistant", "content": [{"type": "text", "text": "I."}]}]
    in_store(environment, lambda store: store.save("theirs", theirs))
    lines = cli("memory", "show", "theirs").stdout.splitlines()
    assert lines == ["theirs · 2 messages", "", "put in", "user: who?", "assistant: I."]


def test_show_says_in_short_what_was_attached(cli: Cli, environment: dict[str, str]) -> None:
    data = "iVBORw0KGgo" * 100
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
    call = {"id": "c", "type": "function", "function": {"name": "snap", "arguments": "{}"}}
    said = [
        {"role": "user", "content": [{"type": "text", "text": "what?"}, image]},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": [image]},
    ]
    in_store(environment, lambda store: store.save("mine", said))
    lines = cli("memory", "show", "mine").stdout.splitlines()
    assert lines[3:] == ["user: what? [an image, image/png, 825 B]", "  ⏺ snap() ✓ [an image, image/png, 825 B]"]
    assert data[:20] not in cli("memory", "show", "mine", "--full").stdout + cli("memory", "ls").stdout


def test_a_terminal_is_not_driven_by_what_is_stored(cli: Cli, environment: dict[str, str]) -> None:
    said = [{"role": "user", "content": "a\x1b[2Jb\u202ec"}, {"role": "assistant", "content": "\x1b]0;x\x07"}]
    in_store(environment, lambda store: store.save("id\x1b[2J", said))
    shown = cli("memory", "show", "id\x1b[2J").stdout + cli("memory", "ls").stdout
    assert not {"\x1b", "\x07", "\u202e"} & set(shown)


def test_programs_get_what_is_stored_as_it_is(cli: Cli, environment: dict[str, str]) -> None:
    said = [{"role": "user", "content": "a\x7fb\u202ec\u2028d"}]
    in_store(environment, lambda store: store.save("mine", said))
    assert json.loads(cli("memory", "show", "mine", "--json").stdout)["messages"] == said
    records = [json.loads(line) for line in cli("memory", "show", "mine", "--raw").stdout.rstrip("\n").split("\n")]
    assert records[0]["messages"] == said
    assert [each["preview"] for each in json.loads(cli("memory", "ls", "--json").stdout)] == ["a\x7fb\u202ec d"]


def test_fork_takes_a_turn_by_its_number_or_its_id(cli: Cli) -> None:
    cli("-m", "demo", "-C", "mine", "remember that my name is Ada")
    cli("-C", "mine", "remember that my dog is Bo")
    assert cli("memory", "fork", "mine", "all").exit_code == 0
    assert cli("memory", "fork", "mine", "one", "--at", "1").exit_code == 0
    turns = json.loads(cli("memory", "show", "mine", "--json").stdout)["turns"]
    assert cli("memory", "fork", "mine", "same", "--at", turns[0]["id"]).exit_code == 0
    counts = {row[0]: row[3] for row in columns(cli("memory", "ls"))}
    assert counts == {"mine": "4", "all": "4", "one": "2", "same": "2"}
    assert "my name is Ada" in cli("-C", "one", "what do you know?").stdout
    done = cli("memory", "fork", "mine", "all")
    assert (done.exit_code, "There is a conversation 'all' already" in done.stderr) == (1, True)
    done = cli("memory", "fork", "mine", "other", "--at", "9")
    assert (done.exit_code, "toolnexus memory show mine" in done.stderr) == (1, True)


def test_undo_takes_back_the_last_turns(cli: Cli) -> None:
    for fact in ("name is Ada", "dog is Bo", "cat is Mo"):
        cli("-m", "demo", "-C", "mine", f"remember that my {fact}")
    assert "1 turn was taken back." in cli("memory", "undo", "mine").stderr
    assert "cat" not in cli("memory", "show", "mine").stdout
    assert "2 turns were taken back." in cli("memory", "undo", "mine", "-n", "5").stderr
    assert "Nothing yet" in cli("-C", "mine", "-m", "demo", "what do you know?").stdout


def test_rm_forgets_what_it_is_given(cli: Cli) -> None:
    for name in ("one", "two", "three"):
        cli("-m", "demo", "-C", name, "hello")
    assert cli("memory", "rm", "one", "nosuch").exit_code == 1
    assert len(columns(cli("memory", "ls"))) == 3
    done = cli("memory", "rm", "one", "three")
    assert (done.exit_code, done.stderr) == (0, "Removed: one, three\n")
    assert [row[0] for row in columns(cli("memory", "ls"))] == ["two"]


@pytest.mark.parametrize(
    "command",
    [
        ["show"],
        ["show", "--json"],
        ["show", "--raw"],
        ["rename"],
        ["undo"],
        ["rm"],
        ["export"],
        ["check"],
        ["fork", "frist one", "new"],
    ],
    ids=" ".join,
)
def test_an_id_that_is_not_there_is_an_error_that_says_what_may_be_meant(cli: Cli, command: list[str]) -> None:
    cli("-m", "demo", "-C", "first one", "hello")
    name, *rest = command
    done = cli("memory", name, *(rest if len(rest) > 1 else [*rest, "frist one"]))
    assert (done.exit_code, done.stdout) == (1, "")
    assert "There is no conversation 'frist one'. Did you mean 'first one'?" in done.stderr


def test_an_export_is_imported_under_its_id_or_another(cli: Cli, tmp_path: Path) -> None:
    cli("-m", "demo", "-C", "mine", "add 2 and 3")
    file = tmp_path / "mine.log"
    assert cli("memory", "export", "mine", "-o", str(file)).exit_code == 0
    assert file.stat().st_mode & 0o777 == 0o600
    assert cli("memory", "export", "mine").stdout_bytes == file.read_bytes()
    done = cli("memory", "import", str(file))
    assert (done.exit_code, "There is a conversation 'mine' already" in done.stderr) == (1, True)
    assert "Imported: copy" in cli("memory", "import", str(file), "--id", "copy").stderr
    cli("memory", "rm", "mine")
    assert cli("memory", "import", str(file)).exit_code == 0
    shown = [cli("memory", "show", name).stdout.partition("\n")[2] for name in ("mine", "copy")]
    assert shown[0] == shown[1] != ""
    assert "add 2 and 3" in cli("-C", "copy", "what did I ask?").stdout


def test_a_reader_of_an_export_may_go_away(cli: Cli, environment: dict[str, str]) -> None:
    long = [{"role": "user", "content": "x" * 1_000_000}]
    in_store(environment, lambda store: store.save("long", long))
    with subprocess.Popen(
        [sys.executable, "-m", "toolnexus", "memory", "export", "long"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        process.stdout.read(1)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 0


def test_an_import_of_something_else_changes_nothing(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("no export")
    done = cli("memory", "import", str(tmp_path / "x"))
    assert (done.exit_code, done.stdout) == (1, "")
    assert "This is no export" in done.stderr
    assert cli("memory", "import", str(tmp_path / "nowhere")).exit_code == 1
    assert cli("memory", "ls").stdout == ""


def test_check_reads_everything_and_tells_what_is_wrong(cli: Cli, environment: dict[str, str]) -> None:
    for name in ("good", "bad"):
        cli("-m", "demo", "-C", name, "hello")
    done = cli("memory", "check")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "2 checked, nothing wrong." in done.stderr
    with sqlite3.connect(database(environment)) as connection:
        connection.execute(
            "UPDATE record SET body = ? WHERE seq = 2 AND conv = (SELECT conv FROM conversation WHERE id = ?)",
            (b"{nonsense", b"bad"),
        )
    connection.close()
    done = cli("memory", "check")
    assert done.exit_code == 5
    assert done.stdout.startswith("bad\t")
    assert "2 checked, 1 wrong." in done.stderr
    assert cli("memory", "check", "good").exit_code == 0
    assert cli("memory", "show", "bad").exit_code == 5
    assert "{nonsense" in cli("memory", "show", "bad", "--raw").stdout


def test_any_store_may_be_named_by_its_url(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = f"file://{tmp_path}/chats"
    assert cli("--store", folder, "-m", "demo", "-C", "mine", "hello").exit_code == 0
    assert cli("memory", "ls").stdout == ""
    assert [row[0] for row in columns(cli("memory", "ls", "--store", folder))] == ["mine"]
    assert [row[0] for row in columns(cli("--store", folder, "memory", "ls"))] == ["mine"]
    monkeypatch.setenv("TOOLNEXUS_STORE", folder)
    assert [row[0] for row in columns(cli("memory", "ls"))] == ["mine"]
    assert cli("memory", "path").stdout == f"{folder}\n"

    async def saved() -> Any:
        store = FileStore(tmp_path / "chats")
        try:
            return await store.get("mine")
        finally:
            await store.aclose()

    assert len(asyncio.run(saved())) == 2


def test_a_store_is_moved_with_export_and_import(cli: Cli, tmp_path: Path) -> None:
    cli("-m", "demo", "-C", "mine", "remember that my name is Ada")
    cli("memory", "export", "mine", "-o", str(tmp_path / "x"))
    other = f"sqlite:///{tmp_path}/other.db"
    assert cli("memory", "import", "--store", other, str(tmp_path / "x")).exit_code == 0
    assert "Ada" in cli("--store", other, "-C", "mine", "what do you know?").stdout


@pytest.mark.parametrize(
    ("url", "code"), [("nonsense://x", 3), ("x", 3), ("postgresql://me:sesame@127.0.0.1:1/x?connect_timeout=1", 5)]
)
def test_a_store_that_is_not_there_is_said_without_its_password(cli: Cli, url: str, code: int) -> None:
    done = cli("memory", "ls", "--store", url)
    assert (done.exit_code, done.stdout) == (code, "")
    assert done.stderr.startswith("Error: ")
    assert "sesame" not in done.output


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("chat.db", "chat.db"),
        ("sqlite:///chat.db", "sqlite:///chat.db"),
        ("sqlite:////var/lib/chat@home.db", "sqlite:////var/lib/chat@home.db"),
        ("postgresql://me:ses@me@host:5432/db?password=sesame", "postgresql://host:5432/db"),
        ("redis://:sesame@host", "redis://host"),
    ],
)
def test_path_is_where_it_is_kept_and_shows_no_secret(cli: Cli, url: str, told: str) -> None:
    assert cli("memory", "path", "--store", url).stdout == f"{told}\n"


def test_path_is_a_file_in_the_home_unless_another_is_named(cli: Cli, environment: dict[str, str]) -> None:
    assert cli("memory", "path").stdout == f"{database(environment)}\n"


def test_a_file_of_before_there_was_a_log_is_left_alone_and_named(cli: Cli, environment: dict[str, str]) -> None:
    path = database(environment)
    path.parent.mkdir()
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE conversations (id TEXT PRIMARY KEY)")
    connection.close()
    before = path.read_bytes()
    done = cli("-m", "demo", "hello")
    assert done.exit_code == 5
    assert str(path) in done.stderr
    assert "It was not changed. Move it away" in done.stderr
    assert path.read_bytes() == before


def test_a_table_fits_the_screen_whatever_it_is_filled_with() -> None:
    rows = [("mine", None, "one two three " * 9), ("日本", "日本語" * 40, "")]
    items = tuple(
        Listed(id=id, title=title, updated=0.0, messages=2, status="done", preview=preview)
        for id, title, preview in rows
    )
    lines = list(table(Page(items=items, after=None), now=0.0, width=60))
    assert lines[0] == "ID    UPDATED   MESSAGES  STATUS  TITLE OR LAST TEXT"
    assert lines[1] == "mine  just now  2         done    one two three one two thr…"
    assert lines[2].startswith("日本  just now  2         done    日本語日本語")
    assert max(map(cell_len, lines)) <= 60


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (-5, "just now"),
        (59, "just now"),
        (60, "1 min ago"),
        (3599, "59 min ago"),
        (3600, "1 h ago"),
        (86_400, "1 d ago"),
    ],
)
def test_a_person_is_told_how_long_ago_it_was(seconds: float, told: str) -> None:
    assert ago(1_000_000.0, 1_000_000.0 + seconds) == told


def test_what_is_older_than_a_week_has_its_date() -> None:
    assert re.fullmatch(r"1970-01-1[123]", ago(1_000_000.0, 9_000_000.0))
