from __future__ import annotations

import json
from dataclasses import replace
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolnexus.errors import StoreTooNew
from toolnexus.stores import frames
from toolnexus.stores.backend import Head, Key

RECORDS = st.lists(st.binary(max_size=40).filter(lambda record: b"\n" not in record), max_size=5)
HEAD = Head(title="a\nb", updated=1.5, messages=2, status="done", preview="…", text="\ud800 teal", anew=True)


def test_a_record_is_a_line_of_its_checksum_and_itself() -> None:
    record = b'{"v":1,"k":"meta"}'
    assert frames.frame(record) == b"%08x %b\n" % (crc32(record), record)


def test_records_that_are_written_together_are_announced_with_one_checksum_and_one_for_each() -> None:
    lines = b'{"a":1}\n{"b":2}\n'
    announced = b"+%d %08x %08x%08x" % (len(lines), crc32(lines), crc32(b'{"a":1}'), crc32(b'{"b":2}'))
    assert frames.batch([b'{"a":1}', b'{"b":2}']) == b"%08x%b\n" % (crc32(announced), announced) + lines


def test_a_record_of_two_lines_is_refused() -> None:
    with pytest.raises(ValueError, match="one line"):
        frames.frame(b"{}\n{}")
    for records in ([b"{}\n{}"], [b"{}", b"{}\n{}"], [b"\n", b"{}"]):
        with pytest.raises(ValueError, match="one line"):
            frames.batch(records)


@given(batches=st.lists(st.tuples(RECORDS, st.none() | st.binary(max_size=9).filter(lambda note: b"\n" not in note))))
def test_what_was_written_is_what_is_read(batches: list[tuple[list[bytes], bytes | None]]) -> None:
    data = b"".join(frames.batch(records, b"" if end is None else frames.note(end)) for records, end in batches)
    assert frames.split(data) == frames.Split(
        records=[record for records, _ in batches for record in records],
        notes=[end for _, end in batches if end is not None],
        whole=len(data),
    )


@given(first=RECORDS, second=RECORDS, noted=st.booleans(), cut=st.integers(1, 400))
def test_what_was_written_together_and_cut_short_is_left_out_whole(
    first: list[bytes], second: list[bytes], noted: bool, cut: int
) -> None:
    before = frames.batch(first)
    after = frames.batch(second, frames.note(b"n") if noted else b"")
    split = frames.split(before + after[:-cut])
    assert (split.records, split.notes, split.whole) == (first, [], len(before))


@given(record=st.binary(max_size=30).filter(lambda record: b"\n" not in record), data=st.data())
def test_a_line_with_any_byte_changed_is_found(record: bytes, data: st.DataObject) -> None:
    lines = data.draw(st.sampled_from([frames.frame(record), frames.note(record), frames.batch([record, record])]))
    place = data.draw(st.integers(0, len(lines) - 2))
    byte = data.draw(st.integers(0, 255).filter(lambda byte: byte not in (lines[place], 10)))
    changed = frames.frame(b"{}") + lines[:place] + bytes([byte]) + lines[place + 1 :]
    with pytest.raises(frames.BadFrame) as caught:
        frames.split(changed)
    assert caught.value.line >= 2
    assert caught.value.offset >= len(frames.frame(b"{}"))


def test_a_damaged_record_is_named_by_its_line() -> None:
    records = [b'{"n":%d}' % number for number in range(5)]
    whole = frames.note(b"first") + frames.batch(records, frames.note(b"n"))
    for number, record in enumerate([*records, frames.note(b"n")[9:]], 3):
        with pytest.raises(frames.BadFrame, match=f"line {number} ") as caught:
            frames.split(whole.replace(record, b"x" * len(record)))
        assert whole.splitlines()[number - 1] == whole[caught.value.offset :].splitlines()[0]


def test_lines_are_found_again_from_any_byte_on() -> None:
    data = frames.batch([b"{}"]) + frames.batch([b'{"a":1}', b"0123456 # "]) + frames.batch([b"[]"], frames.note(b"n"))
    records = frames.split(data).records
    for start in range(len(data) + 1):
        found = frames.first_line(data[start:])
        rest = [] if found is None else frames.split(data[start + found :]).records
        assert rest == records[len(records) - len(rest) :]
        assert rest or start >= len(frames.batch([b"{}"]) + frames.batch([b'{"a":1}', b"0123456 # "]))


@pytest.mark.parametrize("line", [b"\n", b"{}\n", b"00000000\n", b"00000000-{}\n", b"ABCDEF00 {}\n"])
def test_what_is_no_line_of_ours_is_found(line: bytes) -> None:
    with pytest.raises(frames.BadFrame, match="line 1 "):
        frames.split(line)


def test_a_header_says_whose_file_it_is_whatever_the_id_is() -> None:
    header = frames.Header(key=Key("a\0\n", "\ud800🎏\\"), incarnation=2**53, changed=7)
    line = frames.write_header(header)
    assert line.isascii()
    [body] = frames.split(line).notes
    assert frames.read_header(body) == header


def test_a_head_survives() -> None:
    [body] = frames.split(frames.write_head(HEAD, changed=3)).notes
    fields = frames.read_note(body)
    assert (fields["k"], fields["changed"], frames.read_head(fields)) == ("head", 3, HEAD)


@given(text=st.text(max_size=300), records=RECORDS, said=st.booleans())
def test_what_can_be_searched_survives_whatever_was_written_with_it(
    text: str, records: list[bytes], said: bool
) -> None:
    head = replace(HEAD, text=text * 3)
    if said:
        records = [*records, json.dumps(text).encode()]
    [body] = frames.split(frames.write_head(head, after=records)).notes
    assert frames.read_head(frames.read_note(body), [b"before", *records]) == head


def test_what_the_records_say_is_not_written_again() -> None:
    text = " ".join(str(number * number) for number in range(500))
    record = json.dumps({"said": text}).encode()
    written = frames.write_head(replace(HEAD, text=text), after=[record])
    assert len(written) < len(text) / 5
    assert len(frames.write_head(replace(HEAD, text=text))) > len(text) / 5, "it is the record that makes it short"


def test_a_text_that_cannot_be_unpacked_is_refused() -> None:
    [body] = frames.split(frames.write_head(replace(HEAD, text="teal " * 99), after=[b"teal"])).notes
    fields = frames.read_note(body)
    assert frames.read_head(fields).text == ""
    for packed in ("/w==", "=", fields["packed"][:-4]):
        with pytest.raises(ValueError):
            frames.read_head({**fields, "packed": packed}, [b"teal"])


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"1", b"{}", b'{"v":1,"k":"head"}', b'{"v":1,"k":"file"}'])
def test_what_is_no_header_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError):
        frames.read_header(body)


@pytest.mark.parametrize("version", [b"2", b'"1"', b"null"])
def test_a_note_of_a_newer_layout_is_refused(version: bytes) -> None:
    with pytest.raises(StoreTooNew, match="Update toolnexus"):
        frames.read_header(b'{"v":%b,"k":"file"}' % version)
