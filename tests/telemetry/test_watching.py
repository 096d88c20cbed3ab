"""Runs that are watched behave as others do."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
from scripts import read, scripted

from toolnexus import (
    MissingExtra,
    ReaderGone,
    RunTimeout,
    StoreError,
    create_client,
    create_in_process_client,
)
from toolnexus.testing import call, openai_reply, openai_stream

DONE = openai_reply("Done.")


class Waiting:
    """A model that says one word, and then nothing until it is left."""

    def __init__(self) -> None:
        self.left = asyncio.Event()

    async def __call__(self, request: dict[str, Any]) -> AsyncIterator[str]:
        try:
            yield "Wel"
            await asyncio.Event().wait()
        finally:
            self.left.set()


def ended(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("toolnexus_runs_total{")]


@pytest.mark.parametrize("id", [None, "u1"])
async def test_a_reader_that_stops_asking_ends_a_watched_run_with_what_there_is(id: str | None) -> None:
    model = Waiting()
    client = create_in_process_client(generate=model, metrics=True, reader_timeout=0.1)
    events = client.stream("go", id=id)
    await anext(aiter(events))
    async with asyncio.timeout(10):
        await model.left.wait()
    with pytest.raises(ReaderGone) as caught:
        await anext(aiter(events))
    assert caught.value.partial is not None
    assert caught.value.partial.text == "Wel"
    await events.aclose()
    assert ended(client.metrics()) == ['toolnexus_runs_total{status="cancelled"} 1.0']


@pytest.mark.parametrize("id", [None, "u1"])
async def test_a_stream_that_is_left_by_break_ends_a_watched_run(id: str | None) -> None:
    model = Waiting()
    client = create_in_process_client(generate=model, metrics=True)
    async for _ in client.stream("go", id=id):
        break
    gc.collect()
    async with asyncio.timeout(10):
        await model.left.wait()
        await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))
    assert ended(client.metrics()) == ['toolnexus_runs_total{status="cancelled"} 1.0']


async def test_a_timeout_is_a_failure_and_carries_what_there_is() -> None:
    client = create_in_process_client(generate=Waiting(), metrics=True, timeout=0.1)
    with pytest.raises(RunTimeout) as caught:
        await client.ask("go", id="c", on_text=lambda _: None)
    assert caught.value.partial is not None
    assert ended(client.metrics()) == ['toolnexus_runs_total{status="failed"} 1.0']


async def test_an_answer_that_could_not_be_saved_is_a_failure() -> None:
    class Full:
        def get(self, id: str) -> None:
            return None

        def save(self, id: str, messages: list[Any]) -> None:
            raise OSError("disk full")

    client, _ = scripted(DONE, metrics=True, store=Full())
    with pytest.raises(StoreError):
        await client.ask("go", id="c")
    assert 'toolnexus_failures_total{kind="store"} 1.0' in client.metrics()


async def test_events_and_results_are_those_of_a_run_that_nobody_watches() -> None:
    async def add(a: int, b: int) -> int:
        return a + b

    async def outcome(**options: Any) -> Any:
        steps = openai_stream("Let me.", calls=[call("add", a=2, b=3)]), openai_stream("5")
        client, _ = scripted(*steps, **options)
        events = await read(client.stream("go", [add]))
        result = events[-1].result  # type: ignore[union-attr]
        return [type(event) for event in events], result.text, result.messages, result.usage

    assert await outcome(metrics=True, telemetry=True, capture_content=True) == await outcome()


@pytest.mark.parametrize(
    ("module", "option", "extra"),
    [("prometheus_client", "metrics", "metrics"), ("opentelemetry.trace", "telemetry", "otel")],
)
def test_what_is_not_installed_is_said_when_the_client_is_made(
    module: str, option: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=rf"toolnexus\[{extra}\]"):
        create_client("m", base_url="https://model.test", **{option: True})
