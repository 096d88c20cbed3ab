"""What a SKILL.md may look like, and what is said of one that cannot be read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from toolnexus.sources.skills.collection import discover_skills

if TYPE_CHECKING:
    from toolnexus.sources.skills import SkillInfo

    from .conftest import Root

PLAIN = "---\nname: pdf\ndescription: Reads forms.\n---\nDo it.\n"


async def read(root: Root, content: str | bytes, folder: str = "pdf") -> SkillInfo:
    root.put(f"{folder}/SKILL.md", content)
    [info] = (await discover_skills(root.path)).list()
    return info


async def body(root: Root, content: str | bytes) -> str:
    root.put("pdf/SKILL.md", content)
    tool = (await discover_skills(root.path)).tool()
    assert tool is not None
    from toolnexus.toolkit import create_toolkit

    result = await (await create_toolkit([tool])).execute("skill", {"name": "pdf"})
    assert not result.is_error
    return result.output


async def test_a_skill_of_the_specification_is_read_without_a_warning(root: Root) -> None:
    text = (
        "---\nname: pdf\ndescription: Reads forms.\nlicense: MIT\ncompatibility: Needs Python\n"
        'metadata:\n  author: us\n  version: "1.0"\nallowed-tools: Read Bash(git:*)\n---\n# PDF\n'
    )
    info = await read(root, text)
    assert (info.name, info.description, info.state, info.reason, info.warnings) == (
        *("pdf", "Reads forms.", "ready", ""),
        (),
    )
    assert info.path == root.path / "pdf" / "SKILL.md"
    assert info.metadata == {
        "license": "MIT",
        "compatibility": "Needs Python",
        "metadata": {"author": "us", "version": "1.0"},
        "allowed-tools": "Read Bash(git:*)",
    }


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbf" + PLAIN.encode(),
        PLAIN.replace("\n", "\r\n"),
        b"\xef\xbb\xbf" + PLAIN.replace("\n", "\r\n").encode(),
        PLAIN.replace("\n", "\r"),
        "\n\n" + PLAIN,
        PLAIN.replace("---\n", "---  \n"),
        PLAIN.replace("name: pdf", "# a comment\n\nname: 'pdf'"),
    ],
    ids=["BOM", "CRLF", "BOM and CRLF", "CR", "blank lines first", "spaces after the dashes", "comment and quotes"],
)
async def test_how_the_text_is_written_down_does_not_matter(root: Root, content: str | bytes) -> None:
    info = await read(root, content)
    assert (info.name, info.description, info.state, info.warnings) == ("pdf", "Reads forms.", "ready", ())
    assert "\n\nDo it.\n</skill_content>" in await body(root, content)


@pytest.mark.parametrize(
    ("value", "read_as"),
    [
        ("Use it for: forms", "Use it for: forms"),
        ("Use it for: 'forms': and more: so", "Use it for: 'forms': and more: so"),
        ("It's for: this", "It's for: this"),
        ("See https://example.com/a: b", "See https://example.com/a: b"),
        ("Use it\n  for: forms\n  and: others", "Use it for: forms and: others"),
        ("Use this:", "Use this:"),
        ("@mentions are read", "@mentions are read"),
        ("`code` is read", "`code` is read"),
        ("- a dash", "- a dash"),
        ("\tUse it for: tabs", "Use it for: tabs"),
    ],
)
async def test_a_plain_value_that_yaml_refuses_is_taken_as_it_stands(root: Root, value: str, read_as: str) -> None:
    info = await read(root, f"---\nname: pdf\ndescription: {value}\nlicense: MIT\n---\n")
    assert (info.state, info.description, info.metadata) == ("ready", read_as, {"license": "MIT"})
    assert "not YAML" in info.warnings[0]
    assert "line 3" in info.warnings[0] or "line 4" in info.warnings[0]


@pytest.mark.parametrize(
    ("front", "expected"),
    [
        ("metadata:\n\tauthor: us\n\ttags:\n\t\t- a\n\t\t- b", {"metadata": {"author": "us", "tags": ["a", "b"]}}),
        ("metadata:\n  author: us: and them", {"metadata": {"author": "us: and them"}}),
        ("tags:\n  - for: this: that", {"tags": [{"for": "this: that"}]}),
        ("allowed-tools: [Read, Grep]\nnote: a: b", {"allowed-tools": ["Read", "Grep"], "note": "a: b"}),
        ("long: |\n  one: two\n  three\nnote: a: b", {"long": "one: two\nthree\n", "note": "a: b"}),
        ("note: a: b\n\nother: c", {"note": "a: b", "other": "c"}),
        ("license: MIT # ours\nnote: a: b", {"license": "MIT", "note": "a: b"}),
    ],
)
async def test_the_rest_of_nearly_yaml_is_kept(root: Root, front: str, expected: dict[str, Any]) -> None:
    info = await read(root, f"---\nname: pdf\ndescription: d\n{front}\n---\n")
    assert (info.state, info.metadata) == ("ready", expected)


async def test_a_tab_after_a_key_is_read(root: Root) -> None:
    info = await read(root, "---\nname:\tpdf\ndescription:\tReads forms.\n---\n")
    assert (info.state, info.name, info.description) == ("ready", "pdf", "Reads forms.")


async def test_of_a_key_that_is_there_twice_the_last_one_counts_and_it_is_said(root: Root) -> None:
    info = await read(root, "---\nname: pdf\ndescription: first\ndescription: second\n---\n")
    assert info.description == "second"
    assert "'description' is there more than once" in info.warnings[0]


async def test_unknown_keys_and_lists_are_kept_and_warned_of(root: Root) -> None:
    info = await read(root, "---\nname: pdf\ndescription: d\nmodel: opus\nallowed-tools:\n- Read\n- Grep\n---\n")
    assert info.metadata == {"model": "opus", "allowed-tools": ["Read", "Grep"]}
    assert info.warnings == ("The specification does not know: 'model'.",)


async def test_every_scalar_stays_the_text_that_it_is(root: Root) -> None:
    info = await read(
        root, "---\nname: 123\ndescription: yes\nmetadata: {a: 1.0, b: null, c: 2020-01-01}\n---\n", "123"
    )
    assert (info.name, info.description) == ("123", "yes")
    assert info.metadata == {"metadata": {"a": "1.0", "b": "null", "c": "2020-01-01"}}


async def test_a_tag_makes_no_object(root: Root) -> None:
    info = await read(root, "---\nname: pdf\ndescription: !!python/object/apply:os.getcwd []\n---\n")
    assert (info.state, info.reason) == ("skipped", "Its description is not a text but a list.")


@pytest.mark.parametrize("line", ["--- ---", "----", "--- x", " ---", "text --- text"])
async def test_only_a_whole_line_of_dashes_ends_the_front_matter(root: Root, line: str) -> None:
    info = await read(
        root, f"---\nname: pdf\nnote: |\n  {line}\ndescription: 'before --- after'\n---\nBody.\n---\nmore\n"
    )
    assert (info.description, info.metadata) == (
        "before --- after",
        {"note": f"{line.strip() if line == ' ---' else line}\n"},
    )
    assert "Body.\n---\nmore\n</skill_content>" in await body(root, (root.path / "pdf/SKILL.md").read_bytes())


async def test_the_name_may_come_from_the_folder(root: Root) -> None:
    info = await read(root, "---\ndescription: d\n---\n")
    assert (info.name, info.state) == ("pdf", "ready")
    assert info.warnings == ("It has no name, so it has that of its folder, 'pdf'.",)


@pytest.mark.parametrize("name", ["PDF", "pdf_forms", "pdf forms", "-pdf", "pdf--x", "p" * 65, "pdf.v2"])
async def test_a_name_that_the_specification_refuses_is_taken_with_a_warning(root: Root, name: str) -> None:
    info = await read(root, f"---\nname: {name}\ndescription: d\n---\n", name)
    assert (info.name, info.state) == (name, "ready")
    [warning] = info.warnings
    assert warning.startswith(f"The name {name!r} should be lower-case letters and digits")


async def test_a_name_other_than_the_folders_is_taken_with_a_warning(root: Root) -> None:
    assert (await read(root, PLAIN, "forms")).warnings == ("The name 'pdf' should be that of its folder, 'forms'.",)


async def test_a_long_description_is_taken_with_a_warning(root: Root) -> None:
    info = await read(root, f"---\nname: pdf\ndescription: {'d' * 1025}\n---\n")
    assert (len(info.description), info.warnings) == (1025, ("The description should have up to 1024 characters.",))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"---\nname: pdf\ndescription: d\n---\ncaf\xe9\n", "not UTF-8: there is a byte 0xE9 at 36, as in Latin-1"),
        ("---\nname: pdf\ndescription: d\n---\n".encode("utf-16"), "UTF-16. Save it as UTF-8"),
        (b"", "There is no front matter"),
        ("# Just text\n", "There is no front matter"),
        ("---\nname: pdf\ndescription: d\n", "The front matter has no end"),
        ("---\nname: pdf\ndescription: d\n----\n", "The front matter has no end"),
        ("---\nname: pdf\n---\n", "It has no description, so a model cannot know when to use it."),
        ("---\nname: pdf\ndescription:\n---\n", "It has no description"),
        ("---\nname: pdf\ndescription: '  '\n---\n", "It has no description"),
        ("---\n---\n", "It has no description"),
        ("---\nname: pdf\ndescription: [a]\n---\n", "Its description is not a text but a list."),
        ("---\nname: {a: b}\ndescription: d\n---\n", "Its name is not a text but a mapping."),
        ("---\nname: pdf\ndescription: 'never closed\n---\n", "The front matter is not YAML: line "),
        (
            "---\nname: pdf\n  description: d\n bad\n---\n",
            "It has no description, so a model cannot know when to use it. The front matter is not YAML, and was",
        ),
        ("---\njust a text\n---\n", "does not consist of `key: value` lines"),
        ("---\n- a\n- b\n---\n", "does not consist of `key: value` lines"),
        ("---\n[a]: b\n---\n", "a key that is not a text"),
        ("---\nname: pdf\ndescription: a\x01b\n---\n", "The front matter is not YAML"),
        ('---\nname: "a\\nb"\ndescription: d\n---\n', "The name 'a\\nb' cannot be used"),
        (f"---\nname: {'n' * 129}\ndescription: d\n---\n", "has to be one line of up to 128 characters"),
        (f"---\nname: pdf\ndescription: d\nx: {'[' * 60_000}\n---\n", "The front matter"),
        (f"---\nname: pdf\ndescription: d\nx: {'[' * 30}{']' * 30}\n---\n", "nested too deeply"),
        ("---\nname: pdf\ndescription: d\nx: &a [*a]\n---\n", "The front matter"),
        (
            f"---\nname: pdf\nx: {'y' * 70_000}\ndescription: d\n---\n",
            "has no end: a line that is only `---`, in the first",
        ),
    ],
)
async def test_what_cannot_be_read_is_skipped_with_a_reason(root: Root, content: str | bytes, reason: str) -> None:
    info = await read(root, content)
    assert (info.name, info.state) == ("pdf", "skipped")
    assert reason in info.reason


async def test_aliases_that_stand_for_billions_are_refused(root: Root) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    info = await read(root, "---\nname: pdf\ndescription: d\n" + "\n".join(lines) + "\n---\n")
    assert (info.state, info.reason) == ("skipped", "The front matter is nested too deeply, or holds too much.")
