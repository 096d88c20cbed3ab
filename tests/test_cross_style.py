"""A conversation outlives its provider: it goes on in the other style, and back, and stays valid on each."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from scripts import read
from wire_rules import check_anthropic, check_openai

from toolnexus import InMemoryConversationStore, SQLiteStore, ToolResult, create_client
from toolnexus.testing import ScriptedTransport, SentRequest, call, openai_reply, openai_stream

PIXEL = "data:image/png;base64,iVBORw0KGgo="
IMAGE = {"type": "image_url", "image_url": {"url": PIXEL}}
SYSTEM = "Be brief."


async def add(a: int, b: int) -> int:
    return a + b


async def look(where: str) -> ToolResult:
    return ToolResult(output=f"seen {where}", parts=(IMAGE,))  # type: ignore[arg-type]


async def fail() -> None:
    raise ValueError("out of order")


TOOLS = [add, look, fail]
CALLS = [call("add", a=2, b=3), call("look", where="north"), call("fail")]


def openai_turn(*, stream: bool) -> list[Any]:
    """Reasoning and three calls at once; then reasoning and an answer."""
    make: Any = openai_stream if stream else openai_reply
    return [
        make("Let me see.", calls=CALLS, reasoning="I have to look first."),
        make("All done.", reasoning="That was it."),
    ]


def anthropic_turn(*, stream: bool) -> list[Any]:
    """The same with signed thinking."""
    uses = [
        {"type": "tool_use", "id": f"toolu_{n}", "name": each["name"], "input": each["arguments"]}
        for n, each in enumerate(CALLS)
    ]
    thinking = {"type": "thinking", "thinking": "I have to look first.", "signature": "c2lnbmVk"}
    hidden = {"type": "redacted_thinking", "data": "aGlkZGVu"}
    first = anthropic_message("tool_use", thinking, hidden, {"type": "text", "text": "Let me see."}, *uses)
    second = anthropic_message("end_turn", {**thinking, "signature": "dHdv"}, {"type": "text", "text": "All done."})
    return [anthropic_events(message) if stream else message for message in (first, second)]


def anthropic_message(reason: str, *blocks: Any) -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude",
        "content": list(blocks),
        "stop_reason": reason,
        "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 5},
    }


def anthropic_events(message: dict[str, Any]) -> list[bytes]:
    """A message as it is streamed, every text in two pieces."""
    events: list[dict[str, Any]] = [{"type": "message_start", "message": {**message, "content": []}}]
    for index, block in enumerate(message["content"]):
        opened, deltas = _opened(block)
        events.append({"type": "content_block_start", "index": index, "content_block": opened})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    events += [
        {"type": "message_delta", "delta": {"stop_reason": message["stop_reason"]}, "usage": {"output_tokens": 5}},
        {"type": "message_stop"},
    ]
    return [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events]


def _opened(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A block as its stream begins it, and the deltas that make it whole."""
    match block["type"]:
        case "text":
            return {**block, "text": ""}, [{"type": "text_delta", "text": piece} for piece in _halves(block["text"])]
        case "thinking":
            pieces = [{"type": "thinking_delta", "thinking": piece} for piece in _halves(block["thinking"])]
            signature = {"type": "signature_delta", "signature": block["signature"]}
            return {**block, "thinking": "", "signature": ""}, [*pieces, signature]
        case "tool_use":
            pieces = _halves(json.dumps(block["input"]))
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
        case _:
            return block, []


def _halves(text: str) -> tuple[str, str]:
    return text[: len(text) // 2], text[len(text) // 2 :]


class Talk:
    """One conversation in one store, each turn by a new client of the style that is asked."""

    def __init__(self, store: Any, *, stream: bool) -> None:
        self.store = store
        self.requests: dict[str, list[list[SentRequest]]] = {"openai": [], "anthropic": []}
        self._stream = stream

    async def turn(self, style: str, prompt: Any) -> Any:
        answers = openai_turn(stream=self._stream) if style == "openai" else anthropic_turn(stream=self._stream)
        transport = ScriptedTransport(*answers)
        async with create_client(f"{style}:m", transport=transport, store=self.store, system_prompt=SYSTEM) as client:
            if self._stream:
                result = (await read(client.stream(prompt, TOOLS, id="u1")))[-1].result  # type: ignore[union-attr]
            else:
                result = await client.ask(prompt, TOOLS, id="u1")
        transport.assert_finished()
        self.requests[style].append(transport.requests)
        assert result.text == "All done."
        assert [record.output for record in result.tool_calls] == ["5", "seen north", "ValueError: out of order"]
        return result

    def bodies(self, style: str) -> list[Any]:
        return [request.json for turn in self.requests[style] for request in turn]

    def sent(self, style: str, turn: int, request: int) -> list[Any]:
        """The messages of one request."""
        return self.requests[style][turn][request].json["messages"]


PROMPTS = [
    [{"type": "text", "text": "What is this?"}, IMAGE],
    "And now?",
    "And then?",
    [IMAGE, {"type": "text", "text": "And this?"}],
    "Last one.",
]

ORDERS = [
    ("openai", "anthropic", "openai", "anthropic"),
    ("anthropic", "openai", "anthropic", "openai"),
    ("openai", "openai", "anthropic", "anthropic", "openai"),
    ("anthropic", "anthropic", "openai", "openai", "anthropic"),
]


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_every_request_of_either_style_is_what_a_strict_server_takes(order: Any, stream: bool) -> None:
    talk = Talk(InMemoryConversationStore(), stream=stream)
    for style, prompt in zip(order, PROMPTS, strict=False):
        await talk.turn(style, prompt)

    for body in talk.bodies("openai"):
        check_openai(body)
        assert body["messages"][0] == {"role": "system", "content": SYSTEM}
    for body in talk.bodies("anthropic"):
        check_anthropic(body)
        assert body["system"] == SYSTEM
    last = [talk.requests[order[-1]][-1][-1].json]
    for prompt in ("What is this?", "And now?", "And then?"):
        assert json.dumps(last).count(prompt) == 1, "nothing is lost and nothing is said twice"
    assert json.dumps(last).count("ValueError: out of order") == len(order)


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_what_a_provider_was_sent_before_it_is_sent_again_byte_for_byte(order: Any, stream: bool) -> None:
    """Prompt caches match by prefix, and signed thinking by its bytes."""
    talk = Talk(InMemoryConversationStore(), stream=stream)
    for style, prompt in zip(order, PROMPTS, strict=False):
        await talk.turn(style, prompt)

    for style in ("openai", "anthropic"):
        bodies = talk.bodies(style)
        for earlier, later in pairwise(bodies):
            before = earlier["messages"]
            assert json.dumps(later["messages"][: len(before)]) == json.dumps(before)
            assert json.dumps(later["tools"]) == json.dumps(earlier["tools"])


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_each_provider_gets_its_own_reasoning_back_and_not_the_others(stream: bool) -> None:
    talk = Talk(InMemoryConversationStore(), stream=stream)
    for style, prompt in zip(("anthropic", "openai", "anthropic", "openai"), PROMPTS, strict=False):
        await talk.turn(style, prompt)

    anthropic, openai = json.dumps(talk.sent("anthropic", 1, 1)), json.dumps(talk.sent("openai", 1, 1))
    assert anthropic.count('"signature": "c2lnbmVk"') == 2
    assert anthropic.count('"data": "aGlkZGVu"') == 2
    assert "reasoning_content" not in anthropic
    assert openai.count('"reasoning_content": "I have to look first."') == 2
    assert "signature" not in openai
    assert "redacted" not in openai


async def test_images_and_results_reach_the_other_style() -> None:
    talk = Talk(InMemoryConversationStore(), stream=False)
    await talk.turn("openai", PROMPTS[0])
    await talk.turn("anthropic", "And now?")
    await talk.turn("openai", "And then?")

    user, assistant, results = talk.sent("anthropic", 0, 0)[:3]
    data = PIXEL.partition(",")[2]
    source = {"type": "base64", "media_type": "image/png", "data": data}
    assert user["content"] == [{"type": "text", "text": "What is this?"}, {"type": "image", "source": source}]
    assert [block["type"] for block in assistant["content"]] == ["text", "tool_use", "tool_use", "tool_use"]
    assert [block["content"] for block in results["content"]] == [
        "5",
        [{"type": "text", "text": "seen north"}, {"type": "image", "source": source}],
        "ValueError: out of order",
    ]
    assert [block.get("is_error", False) for block in results["content"]] == [False, False, True]
    assert json.dumps(talk.sent("openai", 1, 0)).count(PIXEL) == 3, "two of tools, one of the user"


async def test_it_is_the_same_on_a_store_that_writes_to_disk(tmp_path: Any) -> None:
    talks = [Talk(InMemoryConversationStore(), stream=False), Talk(SQLiteStore(tmp_path / "chat.db"), stream=False)]
    for talk in talks:
        for style, prompt in zip(ORDERS[0], PROMPTS, strict=False):
            await talk.turn(style, prompt)
    await talks[1].store.aclose()

    in_memory, on_disk = (talk.bodies("openai") + talk.bodies("anthropic") for talk in talks)
    assert json.dumps(on_disk) == json.dumps(in_memory)


async def test_a_turn_that_was_cut_short_on_one_style_can_be_continued_on_the_other() -> None:
    store = InMemoryConversationStore()
    transport = ScriptedTransport(openai_turn(stream=False)[0])
    async with create_client("openai:m", transport=transport, store=store) as client:
        with pytest.raises(AssertionError, match="no scripted answer"):
            await client.ask("go", TOOLS, id="u1")

    talk = Talk(store, stream=False)
    await talk.turn("anthropic", "And now?")
    for body in talk.bodies("anthropic"):
        check_anthropic(body)
    assert [block["type"] for block in talk.sent("anthropic", 0, 0)[2]["content"]] == [
        "tool_result",
        "tool_result",
        "tool_result",
        "text",
    ]
