"""What a tool gave back, as the result of `tools/call`."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

import pytest

from toolnexus import ToolResult
from toolnexus._output import encode
from toolnexus.gateway.content import call_result

PNG = "iVBORw0KGgo="
PDF = base64.b64encode(b"%PDF-1.4").decode()


def told(value: Any) -> dict[str, Any]:
    return call_result(encode(value, limit=10_000), any_structure=False)


def test_a_text_is_one_block() -> None:
    assert told("hello") == {"content": [{"type": "text", "text": "hello"}], "isError": False}


def test_an_error_is_marked() -> None:
    result = call_result(ToolResult(output="no", is_error=True), any_structure=True)
    assert result == {"content": [{"type": "text", "text": "no"}], "isError": True}


def test_an_object_is_told_as_text_and_structured() -> None:
    assert told({"a": 1}) == {
        "content": [{"type": "text", "text": '{"a":1}'}],
        "isError": False,
        "structuredContent": {"a": 1},
    }


@dataclass
class Place:
    city: str


def test_an_object_that_is_no_plain_json_is_structured_as_it_is_told() -> None:
    assert told(Place("Oslo"))["structuredContent"] == {"city": "Oslo"}


def test_a_list_is_structured_only_where_the_protocol_allows_it() -> None:
    result = encode([1, 2], limit=100)
    assert "structuredContent" not in call_result(result, any_structure=False)
    assert call_result(result, any_structure=True)["structuredContent"] == [1, 2]


def test_a_value_that_json_cannot_hold_is_not_structured() -> None:
    held: dict[str, Any] = {}
    held["self"] = held
    assert "structuredContent" not in call_result(ToolResult(output="(a loop)", structured=held), any_structure=True)


@pytest.mark.parametrize(
    ("part", "block"),
    [
        (
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
            {"type": "image", "data": PNG, "mimeType": "image/png"},
        ),
        (
            {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
            {"type": "resource_link", "uri": "https://example.org/a.png", "name": "image"},
        ),
        (
            {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "mp3"}},
            {"type": "audio", "data": "UklGRg==", "mimeType": "audio/mpeg"},
        ),
        (
            {"type": "file", "file": {"filename": "a b.pdf", "file_data": f"data:application/pdf;base64,{PDF}"}},
            {
                "type": "resource",
                "resource": {"uri": "attachment:///a%20b.pdf", "mimeType": "application/pdf", "blob": PDF},
            },
        ),
        (
            {"type": "file", "file": {"filename": "r", "file_url": "https://example.org/r"}},
            {"type": "resource_link", "uri": "https://example.org/r", "name": "r"},
        ),
    ],
)
def test_parts_become_blocks(part: dict[str, Any], block: dict[str, Any]) -> None:
    result = call_result(ToolResult(output="", parts=(part,)), any_structure=True)
    assert result == {"content": [block], "isError": False}


def test_a_file_that_only_its_provider_has_is_named() -> None:
    part: Any = {"type": "file", "file": {"filename": "a.pdf", "file_id": "file-1"}}
    [block] = call_result(ToolResult(parts=(part,)), any_structure=True)["content"]
    assert block["type"] == "text"
    assert "a.pdf" in block["text"]


def test_blocks_of_mcp_go_out_as_they_came_in() -> None:
    resource = {"type": "resource", "resource": {"uri": "x://y", "mimeType": "text/plain", "text": "z"}}
    result = told(["Before:", resource])
    assert result == {"content": [{"type": "text", "text": "Before:"}, resource], "isError": False}


def test_data_that_looks_a_little_like_content_stays_data() -> None:
    assert told({"type": "image", "size": 3})["structuredContent"] == {"type": "image", "size": 3}


def test_text_and_parts_come_in_order() -> None:
    image: Any = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
    blocks = call_result(ToolResult(output="Look:", parts=(image,)), any_structure=True)["content"]
    assert [block["type"] for block in blocks] == ["text", "image"]
