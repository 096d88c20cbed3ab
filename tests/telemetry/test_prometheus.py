"""What `client.metrics()` says."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from scripts import read, scripted

from toolnexus import (
    ConfigurationError,
    ProviderError,
    Tool,
    Usage,
    create_client,
    create_in_process_client,
    suspend,
    tool,
)
from toolnexus.testing import call, openai_reply, openai_stream
from toolnexus.transport import Response

DONE = openai_reply("Done.")
BUSY = Response(status=503, headers={}, body=b'{"error": {"message": "busy"}}')


class NoWait:
    """A clock on which nothing takes time."""

    def now(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


def values(text: str, series: str) -> dict[str, float]:
    """The samples of one series, by their labels."""
    found = re.findall(rf"^toolnexus_{series}(?:{{(.*)}})? (\S+)$", text, re.MULTILINE)
    return {labels.replace('"', ""): float(value) for labels, value in found}


async def add(a: int, b: int) -> int:
    return a + b


async def broken() -> str:
    raise ValueError("no")


async def ask_first() -> Any:
    return suspend("question", "Really?")


def named(name: str) -> Tool:
    return Tool(name=name, description="", input_schema={"type": "object"}, execute=lambda arguments, context: "ok")


async def test_runs_steps_tokens_and_calls_are_counted_from_the_first_run() -> None:
    first = openai_reply(calls=[call("add", a=2, b=3), call("broken")])
    first["usage"] = {
        "prompt_tokens": 7,
        "completion_tokens": 3,
        "prompt_tokens_details": {"cached_tokens": 2},
        "completion_tokens_details": {"reasoning_tokens": 1},
    }
    client, _ = scripted(first, DONE, metrics=True)
    assert client.metrics() == ""
    await client.run("go", [add, broken])

    text = client.metrics()
    assert values(text, "runs_total") == {"status=done": 1}
    assert values(text, "run_seconds_count") == {"": 1}
    assert values(text, "steps_total") == {"finish_reason=tool_calls,model=m": 1, "finish_reason=stop,model=m": 1}
    assert values(text, "request_seconds_count") == {"model=m": 2}
    assert values(text, "first_chunk_seconds_count") == {}
    assert values(text, "tokens_total") == {
        "kind=prompt,model=m": 17,
        "kind=completion,model=m": 8,
        "kind=cached,model=m": 2,
        "kind=reasoning,model=m": 1,
    }
    assert values(text, "tool_calls_total") == {"outcome=ok,tool=add": 1, "outcome=error,tool=broken": 1}
    assert values(text, "tool_seconds_count") == {"tool=add": 1, "tool=broken": 1}
    assert values(text, "cost_usd_total") == {}


async def test_it_sees_the_same_however_a_run_was_started() -> None:
    def steps() -> list[Any]:
        return [openai_stream("Let me.", calls=[call("add", a=2, b=3)]), openai_stream("5")]

    seen: list[dict[str, float]] = []
    for start in (
        lambda client: client.run("go", [add]),
        lambda client: client.ask("go", [add], id="user-42"),
        lambda client: client.conversation([add]).send("go"),
        lambda client: read(client.stream("go", [add])),
        lambda client: read(client.stream("go", [add], id="user-42")),
    ):
        client, _ = scripted(*steps(), metrics=True)
        await start(client)
        text = client.metrics()
        names = ("runs_total", "steps_total", "tokens_total", "tool_calls_total")
        seen.append({label: value for name in names for label, value in values(text, name).items()})
    assert seen == [seen[0]] * len(seen)
    assert seen[0]["status=done"] == 1


async def test_the_time_to_the_first_piece_of_a_stream_is_measured() -> None:
    client, _ = scripted(openai_stream("5"), metrics=True)
    await read(client.stream("go"))
    assert values(client.metrics(), "first_chunk_seconds_count") == {"model=m": 1}


async def test_how_runs_end_is_counted() -> None:
    gate = asyncio.Event()

    async def hang() -> None:
        gate.set()
        await asyncio.Event().wait()

    refused = Response(status=400, headers={}, body=b'{"error": {"message": "no"}}')
    client, _ = scripted(
        *(refused, openai_reply(calls=[call("ask_first")]), openai_reply("half", finish_reason="length")),
        *(openai_reply(calls=[call("hang")]), openai_stream("a", "b")),
        metrics=True,
    )
    with pytest.raises(ProviderError):
        await client.run("go")
    assert (await client.run("go", [ask_first])).status == "pending"
    assert (await client.run("go")).status == "incomplete"
    running = asyncio.ensure_future(client.run("go", [hang]))
    await gate.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    async with client.stream("go") as events:
        await anext(aiter(events))

    text = client.metrics()
    assert values(text, "runs_total") == {
        "status=failed": 1,
        "status=pending": 1,
        "status=incomplete": 1,
        "status=cancelled": 2,
    }
    assert values(text, "failures_total") == {"kind=bad_request": 1}
    assert values(text, "tool_calls_total") == {"outcome=suspended,tool=ask_first": 1, "outcome=cancelled,tool=hang": 1}


async def test_a_reader_that_leaves_after_the_last_event_has_cancelled_nothing() -> None:
    client, _ = scripted(openai_stream("a"), metrics=True)
    async with client.stream("go") as events:
        async for event in events:
            if event.type == "finished":
                break
    assert values(client.metrics(), "runs_total") == {"status=done": 1}


async def test_a_stream_that_is_never_read_is_no_run() -> None:
    client, _ = scripted(metrics=True)
    async with client.stream("go"):
        pass
    assert values(client.metrics(), "runs_total") == {}


async def test_a_recorded_result_is_counted_as_such_and_its_tokens_are_not() -> None:
    client, _ = scripted(DONE, metrics=True)
    await client.ask("go", id="user-42", key="k")
    assert (await client.ask("go", id="user-42", key="k")).replayed

    text = client.metrics()
    assert values(text, "runs_total") == {"status=done": 1, "status=replayed": 1}
    assert values(text, "run_seconds_count") == {"": 1}
    assert values(text, "tokens_total")["kind=prompt,model=m"] == 10


async def test_retries_are_counted_by_kind() -> None:
    client, _ = scripted(BUSY, DONE, metrics=True, retries=1, clock=NoWait())
    await client.run("go")
    assert sum(values(client.metrics(), "retries_total").values()) == 1


async def test_names_of_tools_that_a_model_invents_are_one_label() -> None:
    invented = [call(f"invented_{number}") for number in range(50)]
    client, _ = scripted(openai_reply(calls=[*invented, call("add", a=1, b=2)]), DONE, metrics=True)
    await client.run("go", [add])

    text = client.metrics()
    assert values(text, "tool_calls_total") == {"outcome=error,tool=other": 50, "outcome=ok,tool=add": 1}
    assert "invented" not in text


async def test_of_two_hundred_tools_fifty_have_a_label_of_their_own() -> None:
    tools = [named(f"tool_{number}") for number in range(200)]
    client, _ = scripted(openai_reply(calls=[call(each.name) for each in tools]), DONE, metrics=True)
    await client.run("go", tools)

    counted = values(client.metrics(), "tool_calls_total")
    assert len(counted) == 51
    assert counted["outcome=ok,tool=other"] == 150


async def test_what_servers_call_their_models_is_bounded_and_the_configured_one_stays() -> None:
    client, _ = scripted(*(openai_reply("x", model=f"made-up-{n}") for n in range(80)), DONE, metrics=True)
    for _ in range(81):
        await client.run("go")

    counted = values(client.metrics(), "steps_total")
    assert len(counted) == 51
    assert counted["finish_reason=stop,model=m"] == 1
    assert counted["finish_reason=stop,model=other"] == 31


async def test_no_id_and_nothing_that_was_said_is_in_a_label() -> None:
    client, _ = scripted(
        openai_reply("a secret answer", calls=[call("add", id="call_77", a=1, b=2)]), DONE, metrics=True
    )
    result = await client.ask("a secret question", [add], id="anna@example.com")

    text = client.metrics()
    for told in ("secret", "anna", "call_77", result.turn_id):
        assert told not in text


async def test_clients_count_apart() -> None:
    one, _ = scripted(DONE, metrics=True)
    two, _ = scripted(DONE, metrics=True)
    await one.run("go")
    await two.run("go")
    assert values(one.metrics(), "runs_total") == values(two.metrics(), "runs_total") == {"status=done": 1}


async def test_what_a_provider_charged_is_summed() -> None:
    answer = openai_reply("5")
    answer["usage"]["cost"] = 0.25
    client, _ = scripted(answer, answer, metrics=True, base_url="https://openrouter.ai/api/v1")
    await client.run("go")
    await client.run("go")
    assert values(client.metrics(), "cost_usd_total") == {"model=m": 0.5}


async def test_list_prices_are_summed_where_they_are_known() -> None:
    known = openai_reply("5", usage=Usage(prompt=1_000_000, completion=0, total=1_000_000), model="gpt-5-mini")
    client, _ = scripted(known, metrics=True, base_url="https://api.openai.com/v1", style="openai")
    await client.run("go")
    assert values(client.metrics(), "cost_usd_total")["model=gpt-5-mini"] > 0


async def test_a_model_in_this_process_is_counted_too() -> None:
    async def generate(request: dict[str, Any]) -> dict[str, Any]:
        return {"content": "5", "usage": {"prompt": 3, "completion": 2}}

    client = create_in_process_client(generate=generate, metrics=True)
    await client.run("go")
    assert values(client.metrics(), "tokens_total")["kind=prompt,model=in-process"] == 3


def test_a_client_that_counts_nothing_says_what_to_do() -> None:
    client = create_client("m", base_url="https://model.test")
    with pytest.raises(ConfigurationError, match="metrics=True"):
        client.metrics()


async def test_a_call_that_was_approved_is_counted_once_it_ran() -> None:
    @tool(needs_approval=True)
    async def pay() -> str:
        return "paid"

    client, _ = scripted(openai_reply(calls=[call("pay")]), DONE, metrics=True)
    waiting = await client.ask("go", [pay], id="c")
    await client.resume("c", [pay], answers=[{"id": waiting.pending[0]["id"], "ok": True}])

    text = client.metrics()
    assert values(text, "tool_calls_total") == {"outcome=suspended,tool=pay": 1, "outcome=ok,tool=pay": 1}
    assert values(text, "runs_total") == {"status=pending": 1, "status=done": 1}
