"""The tools glob and grep: what they find, what they leave out, and how long they may take."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from file_tools import file_tools
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolnexus.sources.builtin.patterns import Glob, InvalidGlob


def make(root: Path, *names: str, content: str = "needle\n") -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make(
        tmp_path,
        "a.py",
        "b.txt",
        "src/a.ts",
        "src/b.tsx",
        "src/deep/er/c.py",
        "src/deep/x.py",
        "tests/a.py",
        ".hid/d.py",
    )
    return tmp_path


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*.py", "a.py"),
        ("**/*.py", ".hid/d.py a.py src/deep/er/c.py src/deep/x.py tests/a.py"),
        ("src/**", "src/a.ts src/b.tsx src/deep/er/c.py src/deep/x.py"),
        ("src/**/*.py", "src/deep/er/c.py src/deep/x.py"),
        ("src/**/deep/*.py", "src/deep/x.py"),
        ("**/deep/**/c.py", "src/deep/er/c.py"),
        ("**/**/x.py", "src/deep/x.py"),
        ("src/*.{ts,tsx}", "src/a.ts src/b.tsx"),
        ("{src,tests}/[ab].*", "src/a.ts src/b.tsx tests/a.py"),
        ("{src/{a,b},tests/a}.*", "src/a.ts src/b.tsx tests/a.py"),
        ("[!a].txt", "b.txt"),
        ("?.py", "a.py"),
        ("./src//a.ts", "src/a.ts"),
        ("src", ""),
        ("*", "a.py b.txt"),
        ("A.py", ""),
        ("{a", ""),
    ],
)
async def test_patterns_find_files_sorted_by_path(root: Path, pattern: str, found: str) -> None:
    output = await (await file_tools(root)).ok("glob", pattern=pattern)
    assert output == ("\n".join(found.split()) or f"No file matches {pattern!r}.")


async def test_a_search_begins_where_it_is_told(root: Path) -> None:
    tools = await file_tools(root)
    assert await tools.ok("glob", pattern="*.py", path="src/deep") == "src/deep/x.py"
    assert await tools.ok("glob", pattern="*.py", path=str(root / "tests")) == "tests/a.py"
    assert await tools.ok("glob", pattern="**/*.py", limit=2) == (
        ".hid/d.py\na.py\n[the first 2 by path; there are more. Narrow the pattern, or raise limit]"
    )
    assert "more" not in await tools.ok("glob", pattern="**/*.py", limit=5)
    assert "absolute" in await tools.refused("glob", pattern="/etc/*")
    assert "'..'" in await tools.refused("glob", pattern="src/../../*")
    assert "empty" in await tools.refused("glob", pattern="")
    assert "stands for more than" in await tools.refused("glob", pattern="{a,b}" * 20)
    assert "'a.py' is not a folder" in await tools.refused("glob", pattern="*", path="a.py")
    assert "There is no file 'missing'" in await tools.refused("glob", pattern="*", path="missing")


async def test_links_are_listed_but_not_followed(root: Path) -> None:
    (root / "loop").symlink_to(".")
    (root / "gone").symlink_to("nowhere")
    tools = await file_tools(root)
    assert await tools.ok("glob", pattern="*") == "a.py\nb.txt\ngone\nloop"
    assert "loop" not in await tools.ok("grep", pattern="needle")


names = st.text("ab.", min_size=1, max_size=3).filter(lambda name: name.strip("."))
segments = st.one_of(st.just("**"), st.text("ab.*?", min_size=1, max_size=3).filter(lambda name: name.strip(".")))


@given(path=st.lists(names, min_size=1, max_size=4), pattern=st.lists(segments, min_size=1, max_size=4))
def test_patterns_mean_what_a_plain_definition_says(path: list[str], pattern: list[str]) -> None:
    def one(name: str, sign: str) -> bool:
        if not sign:
            return not name
        if sign[0] == "*":
            return any(one(name[cut:], sign[1:]) for cut in range(len(name) + 1))
        return bool(name) and sign[0] in ("?", name[0]) and one(name[1:], sign[1:])

    def whole(path: list[str], pattern: list[str]) -> bool:
        if not pattern:
            return not path
        if pattern == ["**"]:
            return bool(path)
        if pattern[0] == "**":
            return any(whole(path[cut:], pattern[1:]) for cut in range(len(path) + 1))
        return bool(path) and one(path[0], pattern[0]) and whole(path[1:], pattern[1:])

    glob: Glob | None = Glob.parse("/".join(pattern))
    for name in path[:-1]:
        glob = glob and glob.below(name)
    assert (glob is not None and glob.takes(path[-1])) == whole(path, pattern)


def test_a_pattern_cannot_hold_the_search_up() -> None:
    glob = Glob.parse("*a" * 100 + "b")
    began = time.monotonic()
    assert not glob.takes("a" * 255)
    with pytest.raises(InvalidGlob):
        Glob.parse("{" * 100_000)
    assert time.monotonic() - began < 5


# --- grep -----------------------------------------------------------------------------------------------------------


async def test_lines_are_found_with_their_place(tmp_path: Path) -> None:
    make(tmp_path, "b/x.py", content="one\ntwo\nthree two\n")
    make(tmp_path, "a.txt", content="two")
    tools = await file_tools(tmp_path)
    assert await tools.ok("grep", pattern="two") == "a.txt:1:two\nb/x.py:2:two\nb/x.py:3:three two"
    assert await tools.ok("grep", pattern="two", path="b/x.py") == "b/x.py:2:two\nb/x.py:3:three two"
    assert await tools.ok("grep", pattern="^two$", path="b") == "b/x.py:2:two"
    assert await tools.ok("grep", pattern="(?i)TWO", include="*.txt") == "a.txt:1:two"
    assert await tools.ok("grep", pattern="two", include="b/*.{py,md}", limit=1) == (
        "b/x.py:2:two\n[the first 1 lines; there are more. Narrow the search, or raise limit]"
    )
    assert await tools.ok("grep", pattern="four") == "Nothing was found."
    result = await tools.result("grep", pattern="two", limit=3)
    assert result.metadata == {"matches": 3, "files": 2, "more": False}
    for wrong in ("(", "(?=x)", r"(a)\1"):
        assert (await tools.refused("grep", pattern=wrong)).startswith("InvalidPattern: ")
    assert "There is no file" in await tools.refused("grep", pattern="x", path="missing")


async def test_a_match_stays_within_its_line(tmp_path: Path) -> None:
    make(tmp_path, "x", content="foo\nbar foo\n\n  \nend\n" + "k\n" * 300 + "foo bar\n")
    tools = await file_tools(tmp_path)
    assert await tools.ok("grep", pattern=r"foo\s+bar") == "x:306:foo bar"
    assert await tools.ok("grep", pattern=r"[^x]*bar") == "x:2:bar foo\nx:306:foo bar"
    assert await tools.ok("grep", pattern=r"^\s*$") == "x:3:\nx:4:  "
    assert (await tools.ok("grep", pattern=r"\s", limit=1000)).splitlines() == [
        "x:2:bar foo",
        "x:4:  ",
        "x:306:foo bar",
    ]
    assert await tools.ok("grep", pattern="$", limit=400) == await tools.ok("grep", pattern="", limit=400)
    assert len((await tools.ok("grep", pattern="", limit=400)).splitlines()) == 306


LINES = st.lists(st.text("ab c\r", max_size=6), max_size=8)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(
    lines=LINES, ends=st.booleans(), pattern=st.sampled_from(["a", "^b", "c$", r"a\s*b", r"\s", "[^a]b", "^$", "a.?$"])
)
def test_it_finds_what_going_line_by_line_would(
    tmp_path: Path, runner, lines: list[str], ends: bool, pattern: str
) -> None:
    import re

    text = "\n".join(lines) + ("\n" if ends and lines else "")
    (tmp_path / "x").write_bytes(text.encode())
    split = text.split("\n")
    split = split[:-1] if split[-1] == "" else split
    plain = [
        line.removesuffix("\r") if number < len(text.split("\n")) - 1 else line for number, line in enumerate(split)
    ]
    wanted = [number for number, line in enumerate(plain, 1) if re.search(pattern.replace("$", r"\Z"), line)]

    async def found() -> list[int]:
        output = await (await file_tools(tmp_path)).ok("grep", pattern=pattern, path="x")
        return [int(line.split(":")[1]) for line in output.split("\n") if line.startswith("x:")]

    assert runner.run(found()) == wanted


@pytest.mark.parametrize("pattern", ["^(a+)+$", "(a|aa)+$", "(a*)*b", "[^x]*y", "a.*a.*a.*a.*b"])
async def test_no_pattern_can_stall_a_search(tmp_path: Path, pattern: str) -> None:
    (tmp_path / "line").write_text("a" * 3_000_000 + "!\n")
    (tmp_path / "lines").write_text("aaaa!\n" * 300_000)
    began = time.monotonic()
    await (await file_tools(tmp_path)).ok("grep", pattern=pattern)
    assert time.monotonic() - began < 25


async def test_long_lines_are_cut_around_what_was_found(tmp_path: Path) -> None:
    make(tmp_path, "x", content="ü" * 5_000 + "needle" + "é" * 5_000 + "\n")
    output = await (await file_tools(tmp_path)).ok("grep", pattern="needle")
    assert output == f"x:1:…{'ü' * 50}needle{'é' * 97}… [cut: the line has 20,006 bytes]"


async def test_a_file_of_many_pieces_keeps_its_line_numbers(tmp_path: Path) -> None:
    with (tmp_path / "x").open("w") as file:
        for number in range(1, 400_001):
            file.write(f"line number {number}\n")
        file.write("z" * 6_000_000 + "\nlast needle")
    tools = await file_tools(tmp_path)
    assert await tools.ok("grep", pattern="number (1|77777|399999)$") == "\n".join(
        f"x:{number}:line number {number}" for number in (1, 77_777, 399_999)
    )
    assert await tools.ok("grep", pattern="needle") == "x:400002:last needle"


async def test_binary_files_are_left_out_and_other_encodings_read(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\0needle\n")
    (tmp_path / "latin").write_bytes("caf\xe9 needle\n".encode("latin-1"))
    (tmp_path / "mark").write_bytes(b"\xef\xbb\xbfneedle one\r\n")
    (tmp_path / "utf8").write_text("café needle\n")
    (tmp_path / "wide").write_bytes("\ufeffcafé needle\r\n".encode("utf-16-le"))
    tools = await file_tools(tmp_path)
    output = await tools.ok("grep", pattern="caf. needle$")
    assert output.splitlines() == [
        "latin:1:café needle",
        "utf8:1:café needle",
        "wide:1:café needle",
        "[binary files left out: 1]",
        "[latin is not UTF-8; each byte is taken for its Latin-1 character]",
        "[wide is UTF-16-LE with a byte order mark]",
    ]
    assert (await tools.ok("grep", pattern="^needle one$")).startswith("mark:1:needle one\n")
    assert await tools.ok("grep", pattern="needle", path="binary") == "Nothing was found.\n[binary files left out: 1]"


async def test_names_that_are_no_unicode_do_no_harm(tmp_path: Path) -> None:
    make(tmp_path, os.fsdecode(b"caf\xe9"))
    tools = await file_tools(tmp_path)
    assert await tools.ok("grep", pattern="needle") == "caf\N{REPLACEMENT CHARACTER}:1:needle"
    assert await tools.ok("glob", pattern="*") == "caf\N{REPLACEMENT CHARACTER}"


# --- what git ignores -----------------------------------------------------------------------------------------------


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    make(
        tmp_path,
        *("a.log", "keep.log", "a.py", "build/x.py", "src/build/y.py", "src/a.tmp", "src/keep.tmp", "src/deep/b.tmp"),
        *(
            "node_modules/m/index.js",
            "docs/a/b.html",
            "docs/b.html",
            "excluded.txt",
            "src/only_here.txt",
            "only_here.txt",
        ),
        *("#hash", "sp ", "src/sub/anchored", "src/anchored", "logs/a.log", "logs/keep.log", "cache/keep.me"),
    )
    (tmp_path / ".gitignore").write_text(
        "# a comment\n*.log\n!keep.log\n/build\nnode_modules/\ndocs/**/*.html\n\\#hash\nsp\\ \n\nlogs/\n"
        "!logs/keep.log\ncache/*\n!cache/keep.me\n"
    )
    (tmp_path / "src" / ".gitignore").write_bytes(b"*.tmp\r\n!keep.tmp\r\n/anchored\r\n/only_here.txt\r\n")
    (tmp_path / "src" / "deep" / ".gitignore").write_text("!b.tmp\n")
    (tmp_path / ".git" / "info").mkdir(parents=True)
    (tmp_path / ".git" / "info" / "exclude").write_text("excluded.txt\n")
    make(tmp_path, ".git/config")
    return tmp_path


async def test_what_git_ignores_is_left_out(repository: Path) -> None:
    tools = await file_tools(repository)
    found = (await tools.ok("glob", pattern="**/*")).splitlines()
    assert found == [
        *(".gitignore", "a.py", "cache/keep.me", "keep.log", "only_here.txt", "src/.gitignore", "src/build/y.py"),
        *("src/deep/.gitignore", "src/deep/b.tmp", "src/keep.tmp", "src/sub/anchored"),
    ]
    hits = (await tools.ok("grep", pattern="needle")).splitlines()
    assert hits == [f"{path}:1:needle" for path in found if not path.endswith(".gitignore")]
    below = (await tools.ok("glob", pattern="**/*", path="src")).splitlines()
    assert below == [path for path in found if path.startswith("src/")]


def git_lists(repository: Path) -> list[str]:
    """The files that git would add, in its own words."""
    shutil.rmtree(repository / ".git")
    environment = {"PATH": os.environ["PATH"], "HOME": str(repository), "GIT_CONFIG_NOSYSTEM": "1"}

    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", *arguments], cwd=repository, env=environment, check=True, capture_output=True, text=True
        )
        return done.stdout

    git("init", "-q", ".")
    (repository / ".git" / "info").mkdir(exist_ok=True)
    (repository / ".git" / "info" / "exclude").write_text("excluded.txt\n")
    return sorted(git("ls-files", "-o", "--exclude-standard", "-z").rstrip("\0").split("\0"))


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
async def test_git_itself_says_the_same(repository: Path) -> None:
    listed = git_lists(repository)
    assert sorted((await (await file_tools(repository)).ok("glob", pattern="**")).splitlines()) == listed


async def test_who_names_an_ignored_file_finds_it(repository: Path) -> None:
    tools = await file_tools(repository)
    assert await tools.ok("glob", pattern="node_modules/**") == "node_modules/m/index.js"
    assert await tools.ok("glob", pattern="**", path="node_modules") == "node_modules/m/index.js"
    assert await tools.ok("glob", pattern="a.log") == "a.log"
    assert await tools.ok("glob", pattern="a.*") == "a.py"
    assert await tools.ok("glob", pattern=".git/*") == ".git/config"
    assert await tools.ok("grep", pattern="needle", path="node_modules") == "node_modules/m/index.js:1:needle"
    assert await tools.ok("grep", pattern="needle", path="a.log") == "a.log:1:needle"


async def test_strange_ignore_files_do_no_harm(tmp_path: Path) -> None:
    make(tmp_path, "a", "b")
    (tmp_path / ".gitignore").write_bytes(b"\xff\xfe\n[\n\\\na\\\n" + b"*x" * 50 + b"\nb\n")
    make(tmp_path, "x" * 200 + "y")
    (tmp_path / "sub").mkdir()
    os.mkfifo(tmp_path / "sub" / ".gitignore")
    make(tmp_path, "sub/c")
    tools = await file_tools(tmp_path)
    assert await tools.ok("grep", pattern="needle", include="?") == "a:1:needle\nsub/c:1:needle"


async def test_a_folder_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    deep = tmp_path
    for _ in range(210):
        deep = deep / "d"
    deep.mkdir(parents=True)
    make(tmp_path, "x")
    output = await (await file_tools(tmp_path)).ok("grep", pattern="needle")
    assert output == "x:1:needle\n[files and folders that could not be read: 1]"


async def test_a_limit_without_bounds_does_not_hold_everything(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("\n" * 2_000_000)
    make(tmp_path, *(f"{'n' * 200}{number}" for number in range(400)))
    tools = await file_tools(tmp_path)
    result = await tools.result("grep", pattern="^", path="f", limit=10**9)
    assert len(result.output) < 60_000
    assert result.output.endswith("lines; there are more. Narrow the search, or raise limit]")
    result = await tools.result("glob", pattern="**", limit=10**9)
    assert len(result.output) < 60_000
    assert result.metadata["more"]


async def test_an_ignore_file_may_be_large_and_strange(tmp_path: Path) -> None:
    make(tmp_path, "kept", "gone.foo7")
    rules = [f"**/dir{number}/**/*.foo{number}\n" for number in range(3000)]
    (tmp_path / ".gitignore").write_text("".join([*rules, "*.foo7\n", "/**" * 100_000 + "/kept\n"]))
    tools = await file_tools(tmp_path)
    assert await tools.ok("grep", pattern="needle") == "kept:1:needle"


async def test_a_large_file_with_a_byte_order_mark_is_searched(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"\xef\xbb\xbfneedle\r\n" + b"hay\r\n" * 7_000_000 + b"needle")
    tools = await file_tools(tmp_path)
    assert (await tools.ok("grep", pattern="^needle$")).splitlines()[:2] == ["f:1:needle", "f:7000002:needle"]


def test_braces_that_are_not_closed_are_soon_read() -> None:
    began = time.monotonic()
    assert Glob.parse("{a,b}" * 8 + "{" * 1900).takes("abababab" + "{" * 1900)
    assert time.monotonic() - began < 5
    assert Glob.parse("{a{b,c}").takes("{ac")
    assert Glob.parse("{a,{b,c}d}}").takes("cd}")


async def test_a_folder_of_more_names_than_are_sorted_at_once_is_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolnexus.sources.builtin.walk._STEP", 3)
    make(tmp_path, *"hgfedcba", "d2/x")
    tools = await file_tools(tmp_path)
    assert await tools.ok("glob", pattern="**") == "\n".join([*"abcd", "d2/x", *"efgh"])
