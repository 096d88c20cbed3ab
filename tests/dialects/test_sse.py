"""The event stream: every way to end a line, every way to cut it."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolnexus.dialects.sse import SSEDecoder

LINES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"), min_size=1)


def payloads_of(*chunks: bytes) -> list[str]:
    decoder = SSEDecoder()
    return [*(payload for chunk in chunks for payload in decoder.feed(chunk)), *decoder.finish()]


@given(payloads=st.lists(LINES), end=st.sampled_from([b"\n", b"\r\n", b"\r"]), data=st.data())
def test_chunk_boundaries_never_change_the_payloads(payloads: list[str], end: bytes, data: st.DataObject) -> None:
    wire = b"".join(b"data: " + text.encode() + end + end for text in payloads) + b":"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(wire)))))
    chunks = [wire[a:b] for a, b in zip([0, *cuts], [*cuts, len(wire)], strict=True)]
    assert payloads_of(*chunks) == payloads


@given(st.lists(st.binary(max_size=20) | st.sampled_from([b"data: x", b"\n\n", b"\r", b"\n", b"\xc5"]), max_size=12))
def test_any_bytes_at_all_read_the_same_whole_and_torn(chunks: list[bytes]) -> None:
    whole = b"".join(chunks)
    assert payloads_of(whole) == payloads_of(*chunks) == payloads_of(*(bytes([byte]) for byte in whole))


@pytest.mark.parametrize(
    ("wire", "expected"),
    [
        (b"data:no space\n\n", ["no space"]),
        (b"data:  one of two spaces\n\n", [" one of two spaces"]),
        (b"data: first\ndata: second\n\n", ["first\nsecond"]),
        (b"data\ndata: after an empty line\n\n", ["\nafter an empty line"]),
        (b"\xef\xbb\xbfdata: after a byte order mark\n\n", ["after a byte order mark"]),
        (b"data: \xef\xbb\xbfinside\n\n", ["\ufeffinside"]),
        (b": comment\n\n:\n\nid: 7\n\nretry: 3\nevent: ping\n\ndata: x\n\n", ["x"]),
        (b"data\n\ndata:\n\ndata: \n\n", []),
        (b"database: no\nxdata: no\n data: no\n\n", []),
        (b"data: \xff\xc5\n\n", ["\ufffd\ufffd"]),
        (b"data: a\x0b\x0c\xc2\x85\xe2\x80\xa8b\n\n", ["a\x0b\x0c\x85\u2028b"]),
        (b'{"a":\n\n1}\n\n', []),
    ],
)
def test_a_stream_reads_as_the_standard_says(wire: bytes, expected: list[str]) -> None:
    assert payloads_of(wire) == expected


@pytest.mark.parametrize("wire", [b"data: [DONE]", b"data: [DONE]\n", b"data: [DONE]\r\n", b"data: [DONE]\r"])
def test_a_last_event_without_its_blank_line_comes_at_the_end(wire: bytes) -> None:
    decoder = SSEDecoder()
    assert decoder.feed(wire) == []
    assert decoder.finish() == ["[DONE]"]
    assert decoder.finish() == []


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_an_event_is_given_as_soon_as_its_blank_line_is_there(end: bytes) -> None:
    assert SSEDecoder().feed(b"data: now" + end + end) == ["now"]


def test_a_torn_pair_of_line_ends_is_one() -> None:
    decoder = SSEDecoder()
    assert decoder.feed(b"data: a\r") == []
    assert decoder.feed(b"\ndata: b\r\n\r") == ["a\nb"]
    assert decoder.feed(b"\ndata: c\n\n") == ["c"]


def test_a_long_line_in_small_pieces_takes_time_in_proportion_to_its_length() -> None:
    def seconds(pieces: int) -> float:
        decoder = SSEDecoder()
        began = time.process_time()
        for _ in range(pieces):
            decoder.feed(b"x" * 64)
        return time.process_time() - began

    # Joining what came so far at each piece would take a hundred times as long for ten times as many.
    assert min(seconds(100_000) for _ in range(3)) < 40 * min(seconds(10_000) for _ in range(3))
