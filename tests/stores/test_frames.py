from __future__ import annotations

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


def test_a_record_of_two_lines_is_refused() -> None:
    with pytest.raises(ValueError, match="one line"):
        frames.frame(b"{}\n{}")


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


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"1", b"{}", b'{"v":1,"k":"head"}', b'{"v":1,"k":"file"}'])
def test_what_is_no_header_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError):
        frames.read_header(body)


@pytest.mark.parametrize("version", [b"2", b'"1"', b"null"])
def test_a_note_of_a_newer_layout_is_refused(version: bytes) -> None:
    with pytest.raises(StoreTooNew, match="Update toolnexus"):
        frames.read_header(b'{"v":%b,"k":"file"}' % version)
