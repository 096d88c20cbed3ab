"""What a run cost, where that is known."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from decimal import Decimal
from typing import Any

from scripts import scripted

from toolnexus import RunResult, SQLiteStore, Step, Usage
from toolnexus.telemetry import prices
from toolnexus.testing import call, openai_reply

OPENAI = {"base_url": "https://api.openai.com/v1", "style": "openai"}
OPENROUTER = {"base_url": "https://openrouter.ai/api/v1"}
MILLION = Usage(prompt=1_000_000, completion=0, total=1_000_000)


async def add(a: int, b: int) -> int:
    return a + b


def charged(text: str, cost: object, **more: Any) -> dict[str, Any]:
    answer = openai_reply(text, **more)
    answer["usage"]["cost"] = cost
    return answer


async def cost_of(*answers: Any, **options: Any) -> Decimal | None:
    client, _ = scripted(*answers, **options)
    return (await client.run("go", [add])).cost


async def test_what_the_provider_charged_is_the_cost_of_all_replies_together() -> None:
    steps = charged("", 0.1, calls=[call("add", a=2, b=3)]), charged("5", 0.2)
    assert await cost_of(*steps, **OPENROUTER) == Decimal("0.3")


async def test_a_free_model_costs_nothing_which_is_not_unknown() -> None:
    assert await cost_of(charged("5", 0), **OPENROUTER) == Decimal(0)


async def test_what_other_servers_call_a_cost_is_not_taken_for_dollars() -> None:
    assert await cost_of(charged("5", 0.25)) is None


async def test_a_cost_that_is_no_amount_is_unknown() -> None:
    for cost in ("0.1", -1, True, {"total": 1}, None):
        assert await cost_of(charged("5", cost, model="no-such-model"), **OPENROUTER) is None


async def test_the_list_price_is_that_of_the_model_at_the_host_that_answered() -> None:
    answer = openai_reply("5", usage=MILLION, model="gpt-5-mini")
    known = await cost_of(answer, **OPENAI)
    assert known is not None
    assert known > 0
    assert await cost_of(answer, base_url="http://127.0.0.1:1/v1") is None


async def test_cached_tokens_cost_less() -> None:
    whole = Step(
        text="", reasoning="", finish_reason="stop", usage=MILLION, model="gpt-5-mini", host=OPENAI["base_url"]
    )
    cached = replace(whole, usage=replace(MILLION, cached=1_000_000))
    full, less = prices.of_steps([whole]), prices.of_steps([cached])
    assert full is not None
    assert less is not None
    assert 0 < less < full
    assert prices.of_steps([whole, cached]) == full + less


async def test_one_reply_of_unknown_cost_makes_the_cost_of_the_run_unknown() -> None:
    known, unknown = charged("", 0.1, calls=[call("add", a=2, b=3)]), openai_reply("5", usage=None)
    assert await cost_of(known, unknown, **OPENROUTER) is None
    assert RunResult(text="", status="failed").cost is None


async def test_counts_that_cannot_be_are_of_unknown_cost() -> None:
    odd = replace(MILLION, prompt=1, cached=1_000_000, cache_write=5)
    step = Step(
        text="", reasoning="", finish_reason="stop", usage=odd, model="gpt-5-mini", host="https://api.openai.com"
    )
    assert prices.of_steps([step]) is None


async def test_a_recorded_result_has_its_cost_again(tmp_path: Any) -> None:
    steps = charged("", 0.1, calls=[call("add", a=2, b=3)]), charged("5", 0)
    client, _ = scripted(*steps, store=SQLiteStore(tmp_path / "chat.db"), **OPENROUTER)
    first = await client.ask("go", [add], id="c", key="k")
    again = await client.ask("go", [add], id="c", key="k")
    assert again.replayed
    assert again.cost == first.cost == Decimal("0.1")
    assert [step.host for step in again.steps] == ["https://openrouter.ai"] * 2
    await client.conversation_store.aclose()  # type: ignore[attr-defined]


def test_a_sum_with_an_unknown_cost_is_unknown() -> None:
    assert (Usage(cost=1.0, cache_write=2) + Usage(cost=0.5, cache_write=3)) == Usage(cost=1.5, cache_write=5)
    assert (Usage(cost=1.0) + Usage()).cost is None


def test_without_the_extra_the_cost_is_unknown_and_a_run_never_loads_it() -> None:
    program = """
import asyncio, sys
from toolnexus import create_in_process_client
client = create_in_process_client(generate=lambda request: {"content": "5", "usage": {"prompt": 1, "completion": 1}})
result = asyncio.run(client.run("go"))
assert "genai_prices" not in sys.modules
sys.modules["genai_prices"] = None
print(result.cost)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "None\n"


async def test_loading_the_table_ahead_answers_the_same() -> None:
    await prices.load()
    assert await cost_of(openai_reply("5", usage=MILLION, model="gpt-5-mini"), **OPENAI)
