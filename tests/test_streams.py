"""Streams: nothing lost, nothing buffered without bound, and every way to leave one."""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
import textwrap
from typing import Any

import pytest
from local import Seen, delta, server, streamed
from test_memory import Noting, client_of

from toolnexus import Finished, ReaderGone, RunTimeout, TextDelta, define_tool

DELTAS = 10_000


class Burst:
    """A raw server that sends one stream as fast as the socket takes it and notes when it has to wait."""

    def __init__(self, text: str) -> None:
        self.pieces = [f"{n} {text}" for n in range(DELTAS)]
        self.blocked = asyncio.Event()
        self.waited = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            int(line.split(b":")[1]) for line in head.splitlines() if line.lower().startswith(b"content-length")
        )
        await reader.readexactly(length)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        for chunk in streamed(*self.pieces):
            writer.write(chunk)
            drained = asyncio.ensure_future(writer.drain())
            done, _ = await asyncio.wait({drained}, timeout=0.5)
            if not done:
                self.waited += 1
                self.blocked.set()
                await drained
        writer.close()

    async def __aenter__(self) -> str:
        self._server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()


async def test_a_burst_of_10_000_deltas_arrives_whole() -> None:
    burst = Burst("word")
    async with burst as url, client_of(url) as client, client.stream("go") as events:
        got = [event.text async for event in events if isinstance(event, TextDelta)]

    assert got == burst.pieces


async def test_a_reader_that_pauses_makes_the_server_wait_and_loses_nothing() -> None:
    burst = Burst("x" * 3000)  # 30 MB: more than the sockets hold
    got: list[str] = []
    async with burst as url, client_of(url) as client, client.stream("go") as events:
        async for event in events:
            if isinstance(event, TextDelta):
                got.append(event.text)
            if len(got) == 1:
                await asyncio.wait_for(burst.blocked.wait(), 20)

    assert got == burst.pieces
    assert burst.waited > 0


class Endless:
    """An answer that begins and then stays silent, and the note that the client hung up."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.began = asyncio.Event()

    def __call__(self, seen: Seen) -> Any:
        self.seen.append(seen)
        self.began.set()
        return self.babble()

    async def babble(self) -> Any:
        yield delta("Wel")
        await asyncio.Event().wait()

    async def hung_up(self) -> None:
        await asyncio.wait_for(self.seen[-1].gone.wait(), 5)


async def test_aclose_closes_the_socket_at_once() -> None:
    endless = Endless()
    async with server(endless) as at, client_of(at.url) as client:
        events = client.stream("go")
        await anext(events)
        await events.aclose()
        await endless.hung_up()


async def test_a_break_without_async_with_ends_the_run_when_the_stream_is_collected() -> None:
    endless = Endless()
    store = Noting()
    async with server(endless) as at, client_of(at.url, store=store) as client:
        async for _ in client.stream("go", id="u1"):
            break
        gc.collect()
        await endless.hung_up()
        # The turn is over too: another one gets in.
        async with client.stream("again", id="u1", busy_timeout=5) as events:
            await anext(events)

    assert store.calls == ["get:u1", "get:u1"]


async def test_cancelling_a_reader_closes_the_socket() -> None:
    endless = Endless()
    async with server(endless) as at, client_of(at.url) as client:

        async def read() -> None:
            async with client.stream("go") as events:
                async for _ in events:
                    pass

        task = asyncio.create_task(read())
        await endless.began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await endless.hung_up()


async def test_a_deadline_ends_a_stream_and_closes_its_socket() -> None:
    endless = Endless()
    async with server(endless) as at, client_of(at.url) as client:
        with pytest.raises(RunTimeout) as caught:
            async for _ in client.stream("go", timeout=0.3):
                pass
        await endless.hung_up()

    assert caught.value.partial is not None
    assert caught.value.partial.text == "Wel"


async def test_wait_for_around_ask_ends_the_turn() -> None:
    endless = Endless()
    store = Noting()
    async with server(endless) as at, client_of(at.url, store=store) as client:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.ask("go", id="u1", on_text=lambda _: None), 0.3)
        await endless.hung_up()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.ask("go", id="u1", on_text=lambda _: None), 0.3)

    assert store.calls == ["get:u1", "get:u1"]


@pytest.mark.parametrize("id", [None, "u1"])
async def test_a_reader_that_stops_asking_ends_the_run(id: str | None) -> None:
    endless = Endless()
    async with server(endless) as at, client_of(at.url, reader_timeout=0.2) as client:
        events = client.stream("go", id=id)
        await anext(events)
        await endless.hung_up()
        with pytest.raises(ReaderGone, match="Nobody read") as caught:
            await anext(events)

    assert caught.value.partial is not None
    assert (caught.value.partial.status, caught.value.partial.text) == ("failed", "Wel")


async def test_a_reader_that_waits_for_the_model_is_not_taken_for_one_that_left() -> None:
    async def slow() -> Any:
        yield delta("a")
        await asyncio.sleep(0.6)
        for chunk in streamed("b"):
            yield chunk

    async with server(lambda _: slow()) as at, client_of(at.url, reader_timeout=0.1) as client:
        events = [event async for event in client.stream("go")]

    assert isinstance(events[-1], Finished)
    assert events[-1].result.text == "ab"


async def test_nothing_is_sent_before_the_first_event_is_asked_for() -> None:
    async with server(lambda _: streamed("hi")) as at, client_of(at.url) as client:
        async with client.stream("go"):
            pass
        events = client.stream("go")
        await events.aclose()

    assert at.seen == []


async def test_tools_are_cancelled_when_a_stream_is_left() -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def hang() -> str:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return "never"

    def answer(_: Seen) -> Any:
        return streamed("Working.", calls=(("hang", {}),))

    async with server(answer) as at, client_of(at.url) as client:
        async with client.stream("go", [define_tool(hang)]) as events:
            async for _ in events:
                if began.is_set():
                    break
        assert ended.is_set()


async def test_events_turn_into_json() -> None:
    def add(a: int, b: int) -> int:
        return a + b

    def answer(seen: Seen) -> Any:
        return streamed("Let me see.", calls=(("add", {"a": 2, "b": 3}),)) if seen.number == 1 else streamed("5")

    async with server(answer) as at, client_of(at.url) as client:
        plain = [event.to_dict() async for event in client.stream("2 + 3?", [add])]

    assert [event["type"] for event in plain] == [
        "text_delta",
        "step_finished",
        "tool_started",
        "tool_finished",
        "text_delta",
        "step_finished",
        "finished",
    ]
    assert json.loads(json.dumps(plain[2])) == {
        "type": "tool_started",
        "id": "call_0",
        "name": "add",
        "args": {"a": 2, "b": 3},
    }
    assert plain[-1]["result"]["text"] == "5"


@pytest.mark.parametrize("leave", ["sys.exit(0)", "break"])
async def test_a_process_that_leaves_a_stream_can_exit_at_once(leave: str) -> None:
    endless = Endless()
    async with server(endless) as at:
        program = textwrap.dedent(f"""
            import asyncio, sys
            from toolnexus import create_client

            async def main():
                client = create_client("m", base_url={at.url!r})
                async for event in client.stream("go"):
                    {leave}
                await client.aclose()

            asyncio.run(main())
        """)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-W", "error", "-c", program, stderr=subprocess.PIPE
        )
        _, complaints = await asyncio.wait_for(process.communicate(), 20)

    assert process.returncode == 0, complaints.decode()
    assert complaints == b""
