"""How long things took, as events tell it."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from scripts import read, scripted

from toolnexus import StepFinished, create_in_process_client
from toolnexus.testing import call, openai_reply, openai_stream


async def steps_of(stream: Any) -> list[StepFinished]:
    return [event for event in await read(stream) if isinstance(event, StepFinished)]


async def test_a_step_tells_how_long_its_reply_took_and_when_it_began() -> None:
    async def generate(request: dict[str, Any]) -> Any:
        await asyncio.sleep(0.02)
        yield "5"
        await asyncio.sleep(0.02)
        yield {}

    began = time.perf_counter()
    [step] = await steps_of(create_in_process_client(generate=generate).stream("go"))
    assert step.first_chunk is not None
    assert 0.01 < step.first_chunk < step.first_chunk + 0.01 < step.seconds < time.perf_counter() - began
    assert step.to_dict()["seconds"] == step.seconds


async def test_a_whole_reply_has_no_first_piece_and_neither_have_calls_alone() -> None:
    async def noop() -> str:
        return "ok"

    seen: list[Any] = []
    client, _ = scripted(
        openai_reply("5"), openai_stream(calls=[call("noop")]), openai_stream("5"), on_event=seen.append
    )
    await client.run("go")
    await read(client.stream("go", [noop]))
    firsts = [event.first_chunk for event in seen if isinstance(event, StepFinished)]
    assert firsts[:2] == [None, None]
    assert firsts[2] is not None


async def test_reasoning_is_a_first_piece() -> None:
    client, _ = scripted(openai_stream(reasoning="Hm."))
    [step] = await steps_of(client.stream("go"))
    assert step.first_chunk is not None
