"""A conversation outlives its provider: it goes on in another style, and back, and stays valid on each."""

from __future__ import annotations

import itertools
import json
from functools import partial
from itertools import pairwise, permutations
from typing import Any

import pytest
from scripts import read
from wire_rules import check_anthropic, check_gemini, check_openai, check_responses

from toolnexus import InMemoryConversationStore, SQLiteStore, ToolResult, create_client
from toolnexus.testing import ScriptedTransport, SentRequest, call, openai_reply, openai_stream

PIXEL = "data:image/png;base64,iVBORw0KGgo="
IMAGE = {"type": "image_url", "image_url": {"url": PIXEL}}
SYSTEM = "Be brief."
GEMINI_3 = "gemini-3-pro"
"""A model that demands signed calls."""


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


def responses_turn(*, stream: bool) -> list[Any]:
    """The same with sealed reasoning, which strict servers want back before the calls that it led to."""
    calls = [
        {
            "type": "function_call",
            "id": f"fc_{n}",
            "call_id": f"call_r{n}",
            "name": each["name"],
            "arguments": json.dumps(each["arguments"]),
            "status": "completed",
        }
        for n, each in enumerate(CALLS)
    ]
    first = responses_answer(thought("I have to look first."), said("Let me see.", phase="commentary"), *calls)
    second = responses_answer(thought("That was it."), said("All done.", phase="final_answer"))
    return [responses_events(response) if stream else response for response in (first, second)]


_numbers = itertools.count()


def thought(text: str) -> dict[str, Any]:
    summary = [{"type": "summary_text", "text": text}]
    return {"type": "reasoning", "id": f"rs_{next(_numbers)}", "summary": summary, "encrypted_content": "c2VhbGVk"}


def said(text: str, *, phase: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    message = {"type": "message", "id": f"msg_{next(_numbers)}", "role": "assistant", "status": "completed"}
    return {**message, "content": content, "phase": phase}


def responses_answer(*output: dict[str, Any]) -> dict[str, Any]:
    items = [{**item, "id": f"fc_{next(_numbers)}"} if item["type"] == "function_call" else item for item in output]
    usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
    return {
        "id": "resp_1",
        "object": "response",
        "status": "completed",
        "model": "gpt",
        "output": items,
        "usage": usage,
    }


def responses_events(response: dict[str, Any]) -> list[bytes]:
    """A response as it is streamed, every text in two pieces."""
    events: list[dict[str, Any]] = [{"type": "response.created", "response": {**response, "status": "in_progress"}}]
    for index, item in enumerate(response["output"]):
        at = {"item_id": item["id"], "output_index": index}
        opened, deltas = _item_opened(item)
        events.append({"type": "response.output_item.added", "output_index": index, "item": opened})
        events += [{**delta, **at} for delta in deltas]
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    events.append({"type": "response.completed", "response": response})
    return [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events]


def _item_opened(item: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """An item as its stream begins it, and the deltas that make it whole."""
    match item["type"]:
        case "message":
            field, kind, text = "content", "response.output_text.delta", item["content"][0]["text"]
        case "reasoning":
            field, kind, text = "summary", "response.reasoning_summary_text.delta", item["summary"][0]["text"]
        case _:
            field, kind, text = "arguments", "response.function_call_arguments.delta", item["arguments"]
    return {**item, field: "" if field == "arguments" else []}, [
        {"type": kind, "content_index": 0, "summary_index": 0, "delta": piece} for piece in _halves(text)
    ]


def gemini_turn(*, stream: bool) -> list[Any]:
    """The same with a thought and thought signatures, one of them at the very end."""
    musing = {"text": "I have to look first.", "thought": True}
    calls: list[dict[str, Any]] = [
        {"functionCall": {"id": f"fc-{n}", "name": each["name"], "args": each["arguments"]}}
        for n, each in enumerate(CALLS)
    ]
    calls[0]["thoughtSignature"] = "Z2VtaW5p"
    steps = [
        [musing, {"text": "Let me see."}, *calls],
        [musing, {"text": "All done."}, {"text": "", "thoughtSignature": "ZW5k"}],
    ]
    return [gemini_events(parts) if stream else gemini_answer(parts) for parts in steps]


def gemini_answer(parts: list[dict[str, Any]], finish: str | None = "STOP") -> dict[str, Any]:
    candidate = {"content": {"role": "model", "parts": parts}, "finishReason": finish, "index": 0}
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": GEMINI_3}


def gemini_events(parts: list[dict[str, Any]]) -> list[bytes]:
    """The same streamed, every text in two pieces, the end by itself."""
    answers: list[dict[str, Any]] = []
    for part in parts:
        cut = [part] if not part.get("text") else [{**part, "text": piece} for piece in _halves(part["text"])]
        answers += [gemini_answer([piece], finish=None) for piece in cut]
    return [f"data: {json.dumps(answer)}\n\n".encode() for answer in [*answers, gemini_answer([])]]


def _halves(text: str) -> tuple[str, str]:
    return text[: len(text) // 2], text[len(text) // 2 :]


STYLES: dict[str, Any] = {
    "openai": (openai_turn, {"model": "openai:m", "style": "openai"}, check_openai, "messages"),
    "anthropic": (anthropic_turn, {"model": "anthropic:m"}, check_anthropic, "messages"),
    "responses": (responses_turn, {"model": "openai:m", "style": "responses"}, check_responses, "input"),
    "gemini": (gemini_turn, {"model": f"gemini:{GEMINI_3}"}, partial(check_gemini, model=GEMINI_3), "contents"),
}
"""How a style's provider answers, how it is named, what it demands, and where its requests have the conversation."""


class Talk:
    """One conversation in one store, each turn by a new client of the style that is asked."""

    def __init__(self, store: Any, *, stream: bool) -> None:
        self.store = store
        self.requests: dict[str, list[list[SentRequest]]] = {style: [] for style in STYLES}
        self._stream = stream

    async def turn(self, style: str, prompt: Any) -> Any:
        turn, endpoint, *_ = STYLES[style]
        transport = ScriptedTransport(*turn(stream=self._stream))
        async with create_client(**endpoint, transport=transport, store=self.store, system_prompt=SYSTEM) as client:
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
        return self.requests[style][turn][request].json[STYLES[style][-1]]


PROMPTS = [
    [{"type": "text", "text": "What is this?"}, IMAGE],
    "And now?",
    "And then?",
    [IMAGE, {"type": "text", "text": "And this?"}],
    "Last one.",
]

ORDERS = [
    *((first, second, first, second) for first, second in permutations(STYLES, 2)),
    *((first, first, second, second, first) for first, second in permutations(STYLES, 2)),
    tuple(STYLES),
    tuple(reversed(STYLES)),
]


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_every_request_of_any_style_is_what_a_strict_server_takes(order: Any, stream: bool) -> None:
    talk = Talk(InMemoryConversationStore(), stream=stream)
    for style, prompt in zip(order, PROMPTS, strict=False):
        await talk.turn(style, prompt)

    for style, (*_, check, _) in STYLES.items():
        for body in talk.bodies(style):
            check(body)
            assert json.dumps(body).count(json.dumps(SYSTEM)) == 1
    assert all(body["messages"][0] == {"role": "system", "content": SYSTEM} for body in talk.bodies("openai"))
    assert all(body["system"] == SYSTEM for body in talk.bodies("anthropic"))
    assert all(body["instructions"] == SYSTEM for body in talk.bodies("responses"))
    assert all(body["systemInstruction"] == {"parts": [{"text": SYSTEM}]} for body in talk.bodies("gemini"))
    last = [talk.requests[order[-1]][-1][-1].json]
    for prompt in ("What is this?", "And now?", "And then?")[: len(order)]:
        assert json.dumps(last).count(prompt) == 1, "nothing is lost and nothing is said twice"
    assert json.dumps(last).count("ValueError: out of order") == len(order)


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_what_a_provider_was_sent_before_it_is_sent_again_byte_for_byte(order: Any, stream: bool) -> None:
    """Prompt caches match by prefix, and signed thinking by its bytes."""
    talk = Talk(InMemoryConversationStore(), stream=stream)
    for style, prompt in zip(order, PROMPTS, strict=False):
        await talk.turn(style, prompt)

    for style, (*_, key) in STYLES.items():
        bodies = talk.bodies(style)
        for earlier, later in pairwise(bodies):
            before = earlier[key]
            assert json.dumps(later[key][: len(before)]) == json.dumps(before)
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


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_sealed_reasoning_goes_back_before_its_calls_and_to_no_other_style(stream: bool) -> None:
    talk = Talk(InMemoryConversationStore(), stream=stream)
    for style, prompt in zip(("responses", "openai", "responses", "anthropic"), PROMPTS, strict=False):
        await talk.turn(style, prompt)

    kinds = [item["type"] for item in talk.sent("responses", 1, 1)]
    own = ["reasoning", "message", *["function_call"] * 3, *["function_call_output"] * 3]
    foreign = own[1:]
    asked, answered = ["message"], ["message"]
    assert kinds == [*asked, *own, "reasoning", *answered, *asked, *foreign, *answered, *asked, *own]
    assert "c2VhbGVk" not in json.dumps(talk.bodies("openai") + talk.bodies("anthropic"))


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_thought_signatures_go_back_to_their_parts_and_to_no_other_style(stream: bool) -> None:
    talk = Talk(InMemoryConversationStore(), stream=stream)
    for style, prompt in zip(("gemini", "openai", "gemini", "anthropic"), PROMPTS, strict=False):
        await talk.turn(style, prompt)

    signatures = [
        [part["thoughtSignature"] for part in content["parts"] if "thoughtSignature" in part]
        for content in talk.sent("gemini", 1, 1)
        if content["role"] == "model"
    ]
    assert signatures == [["Z2VtaW5p"], ["ZW5k"], ["skip_thought_signature_validator"], [], ["Z2VtaW5p"]]
    assert "thought" not in json.dumps(talk.bodies("openai") + talk.bodies("anthropic"))


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
        for style, prompt in zip(("openai", "anthropic", "openai", "anthropic"), PROMPTS, strict=False):
            await talk.turn(style, prompt)
    await talks[1].store.aclose()

    in_memory, on_disk = (talk.bodies("openai") + talk.bodies("anthropic") for talk in talks)
    assert json.dumps(on_disk) == json.dumps(in_memory)


async def test_a_turn_that_was_cut_short_on_one_style_can_be_continued_on_the_other() -> None:
    store = InMemoryConversationStore()
    transport = ScriptedTransport(openai_turn(stream=False)[0])
    async with create_client("openai:m", style="openai", transport=transport, store=store) as client:
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
