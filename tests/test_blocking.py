"""The client for code without an event loop: `run_sync`, `ask_sync`, `stream_sync`."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from local import delta, said, streamed
from test_memory import client_of

from toolnexus import (
    ConfigurationError,
    Finished,
    InvalidConversationId,
    ProviderError,
    RunTimeout,
    TextDelta,
    define_tool,
)

POSIX = pytest.mark.skipif(os.name == "nt", reason="POSIX signals and forks")


class Server(ThreadingHTTPServer):
    """A model server in threads. It counts the connections that it accepts, and notes those that were hung up."""

    daemon_threads = True

    def __init__(self, answer: Callable[[dict[str, Any]], Any]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer = answer
        self.connections = 0
        self.bodies: list[dict[str, Any]] = []
        self.hung_up = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def setup(self) -> None:
        super().setup()
        self.server.connections += 1

    def log_message(self, *_: Any) -> None: ...

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.bodies.append(body)
        answer = self.server.answer(body)
        if isinstance(answer, int):
            self._send(answer, json.dumps({"error": {"message": "no more"}}).encode())
        elif isinstance(answer, dict):
            self._send(200, json.dumps(answer).encode())
        else:
            self._stream(answer)

    def _send(self, status: int, data: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, chunks: list[bytes]) -> None:
        """Send an event stream. One without its end mark stays open until the client hangs up."""
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for chunk in chunks:
            self.wfile.write(chunk)
        self.wfile.flush()
        if b"[DONE]" not in chunks[-1]:
            self.connection.settimeout(20)
            if self.connection.recv(1) == b"":
                self.server.hung_up.set()


@contextmanager
def serving(answer: Callable[[dict[str, Any]], Any]) -> Iterator[Server]:
    server = Server(answer)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def count(body: dict[str, Any]) -> Any:
    """Answers with the number of messages that it got, in the framing that was asked for."""
    text = str(len(body["messages"]))
    return streamed(text) if body.get("stream") else said(text)


def babble(body: dict[str, Any]) -> Any:
    """An answer that begins and then stays silent."""
    return [delta("Wel")]


async def add(a: int, b: int) -> int:
    return a + b


def test_run_and_ask_without_a_loop() -> None:
    with serving(count) as server:
        client = client_of(server.url)
        assert [client.ask_sync("hi", id="u1").text for _ in range(3)] == ["1", "3", "5"]
        assert client.run_sync("hi").text == "1"
        assert client.run_sync("hi", history=[{"role": "user", "content": "before"}]).text == "2"
        said: list[str] = []
        assert client.ask_sync("hi", id="u1", on_text=said.append).text == "7"
        assert said == ["7"]
        client.close()


def test_tools_of_both_kinds_run_and_errors_carry_what_was_done() -> None:
    threads: list[int] = []

    def where() -> str:
        threads.append(threading.get_ident())
        return "here"

    def answer(body: dict[str, Any]) -> Any:
        if len(body["messages"]) == 1:
            return said("Looking.", ("add", {"a": 2, "b": 3}), ("where", {}))
        return 400

    with serving(answer) as server:
        client = client_of(server.url)
        with pytest.raises(ProviderError, match="no more") as caught:
            client.run_sync("go", [add, where])
        client.close()

    assert caught.value.partial is not None
    assert [record.output for record in caught.value.partial.tool_calls] == ["5", "here"]
    assert threads[0] != threading.get_ident()


def test_connections_are_kept_from_call_to_call_and_thread_to_thread() -> None:
    with serving(count) as server:
        client = client_of(server.url)
        for _ in range(3):
            client.run_sync("hi")
        threads = [threading.Thread(target=client.run_sync, args=("hi",)) for _ in range(3)]
        for thread in threads:
            thread.start()
            thread.join()
        client.close()

    assert len(server.bodies) == 6
    assert server.connections == 1


def test_calls_of_several_threads_overlap() -> None:
    together = threading.Barrier(6, timeout=10)

    def answer(body: dict[str, Any]) -> Any:
        together.wait()
        return said(body["messages"][0]["content"])

    answers: dict[int, str] = {}
    with serving(answer) as server:
        client = client_of(server.url)

        def ask(n: int) -> None:
            answers[n] = client.ask_sync(f"{n}", id=f"u{n}").text

        threads = [threading.Thread(target=ask, args=(n,)) for n in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        client.close()

    assert answers == {n: str(n) for n in range(6)}


def test_what_is_wrong_with_a_call_is_raised_in_it() -> None:
    client = client_of("http://127.0.0.1:1")
    with pytest.raises(InvalidConversationId):
        client.ask_sync("hi", id="")
    with pytest.raises(TypeError, match="temperature"):
        client.run_sync("hi", temperature=0)  # type: ignore[call-arg]
    with pytest.raises(ConfigurationError, match="prompt"):
        client.run_sync("")


def test_a_timeout_holds_here_too() -> None:
    with serving(babble) as server:
        client = client_of(server.url)
        with pytest.raises(RunTimeout):
            client.ask_sync("hi", id="u1", timeout=0.2, on_text=str)
        assert server.hung_up.wait(5)
        client.close()


async def test_inside_a_running_loop_every_blocking_form_is_refused() -> None:
    client = client_of("http://127.0.0.1:1")
    for blocking in (
        lambda: client.run_sync("hi"),
        lambda: client.ask_sync("hi", id="u1"),
        lambda: next(client.stream_sync("hi")),
        client.close,
    ):
        with pytest.raises(ConfigurationError, match="An event loop is running"):
            blocking()
    gc.collect()  # a coroutine that was never awaited would be told now


async def test_in_a_worker_thread_of_a_running_loop_it_is_fine() -> None:
    with serving(count) as server:
        client = client_of(server.url)
        assert (await asyncio.to_thread(client.ask_sync, "hi", id="u1")).text == "1"
        assert (await client.ask("hi", id="u1")).text == "3"
        await client.aclose()


# Streams


def test_a_stream_without_a_loop_is_the_same_turn() -> None:
    with serving(count) as server:
        client = client_of(server.url)
        with client.stream_sync("hi", id="u1") as events:
            seen = list(events)
        assert [type(event) for event in seen] == [TextDelta, type(seen[1]), Finished]
        assert client.ask_sync("hi", id="u1").text == "3"
        assert list(events) == []
        client.close()


def test_nothing_is_sent_before_a_stream_is_read() -> None:
    with serving(count) as server:
        client = client_of(server.url)
        with client.stream_sync("hi"):
            pass
        client.close()

    assert server.bodies == []


@pytest.mark.parametrize("leave", ["with", "close", "break"])
def test_leaving_a_stream_early_closes_its_socket(leave: str) -> None:
    with serving(babble) as server:
        client = client_of(server.url)
        events = client.stream_sync("hi", id="u1")
        if leave == "with":
            with events:
                assert next(events) == TextDelta("Wel")
        else:
            for _ in events:
                break
            if leave == "close":
                events.close()
                events.close()
            else:
                del events
                gc.collect()
        assert server.hung_up.wait(5)
        client.close()


def test_a_stream_may_be_read_from_another_thread_than_it_was_begun_in() -> None:
    with serving(count) as server:
        client = client_of(server.url)
        events = client.stream_sync("hi")
        first = next(events)
        rest: list[Any] = []
        thread = threading.Thread(target=lambda: rest.extend(events))
        thread.start()
        thread.join(10)
        client.close()

    assert first == TextDelta("1")
    assert isinstance(rest[-1], Finished)


# Closing


def test_a_client_may_be_closed_twice_and_used_again() -> None:
    with serving(count) as server:
        client = client_of(server.url)
        assert client.ask_sync("hi", id="u1").text == "1"
        client.close()
        client.close()
        assert client.ask_sync("hi", id="u1").text == "3"
        client.close()

    assert server.connections == 2


def test_closing_ends_the_streams_that_are_open() -> None:
    with serving(babble) as server:
        client = client_of(server.url)
        events = client.stream_sync("hi")
        next(events)
        client.close()
        assert server.hung_up.wait(5)
        events.close()


# Ctrl-C and the end of the process


def process(code: str, *arguments: str) -> subprocess.Popen[str]:
    """A Python of its own, in its own group, so that a signal reaches nobody else."""
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(code), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def interrupted(started: subprocess.Popen[str]) -> tuple[str, str, float]:
    """Send Ctrl-C once the process says that it is time. Gives what it printed since, and how long it took to end."""
    assert started.stdout is not None
    assert started.stdout.readline() == "now\n", started.communicate(timeout=20)[1]
    began = time.monotonic()
    started.send_signal(signal.SIGINT)
    out, err = started.communicate(timeout=20)
    return out, err, time.monotonic() - began


SLOW_STORE = """
    import asyncio, json, sys, threading
    from pathlib import Path
    from toolnexus import create_in_process_client

    class Slow:
        def get(self, id):
            return None

        async def save(self, id, messages):
            await asyncio.sleep(0.3)
            Path(sys.argv[1]).write_text(json.dumps(messages))

    def generate(request):
        return {"tool_calls": [{"name": "act", "arguments": {}}]}

    async def act():
        print("now", flush=True)
        await asyncio.Event().wait()

    client = create_in_process_client(model="m", generate=generate, store=Slow())
"""


@POSIX
@pytest.mark.parametrize("verb", ["ask_sync", "stream_sync"])
def test_ctrl_c_ends_the_turn_and_keeps_what_it_did(verb: str, tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    turn = {
        "ask_sync": 'client.ask_sync("go", [act], id="u1")',
        "stream_sync": 'with client.stream_sync("go", [act], id="u1") as events: list(events)',
    }[verb]
    code = textwrap.dedent(SLOW_STORE) + f"\ntry:\n    {turn}\nexcept KeyboardInterrupt:\n    print('interrupted')\n"
    out, err, seconds = interrupted(process(code, str(kept)))

    assert (out, err) == ("interrupted\n", "")
    assert [message["role"] for message in json.loads(kept.read_text())] == ["user", "assistant", "tool"]
    assert json.loads(kept.read_text())[-1]["content"] == "interrupted: outcome unknown"
    assert seconds < 5


@POSIX
@pytest.mark.parametrize("verb", ["run_sync", "stream_sync"])
def test_ctrl_c_closes_the_socket_and_the_process_can_go_on(verb: str) -> None:
    code = f"""
        import sys
        from toolnexus import create_client

        client = create_client("m", base_url=sys.argv[1], retries=0)

        def now(text):
            print("now", flush=True)

        try:
            if {verb!r} == "run_sync":
                client.ask_sync("hi", on_text=now)
            else:
                with client.stream_sync("hi") as events:
                    for event in events:
                        now(event)
        except KeyboardInterrupt:
            print("interrupted", client.run_sync("again").text)
    """
    with serving(lambda body: babble(body) if body.get("stream") else said("fine")) as server:
        out, err, seconds = interrupted(process(code, server.url))
        assert server.hung_up.wait(5)

    assert (out, err) == ("interrupted fine\n", "")
    assert seconds < 5


@POSIX
def test_ctrl_c_that_nobody_catches_ends_the_process() -> None:
    code = """
        import sys
        from toolnexus import create_client
        create_client("m", base_url=sys.argv[1]).ask_sync("hi", on_text=lambda _: print("now", flush=True))
    """
    with serving(babble) as server:
        started = process(code, server.url)
        _, err, seconds = interrupted(started)

    assert started.returncode == -signal.SIGINT
    assert err.strip().endswith("KeyboardInterrupt")
    assert err.count("Traceback") == 1
    assert seconds < 5


def test_a_process_that_leaves_everything_open_ends_at_once_and_silently() -> None:
    code = """
        import sys
        from toolnexus import create_client
        client = create_client("m", base_url=sys.argv[1])
        assert client.run_sync("hi").text == "1"
        events = client.stream_sync("hi")
        print(next(events).text)
    """
    with serving(lambda body: babble(body) if body.get("stream") else count(body)) as server:
        started = process(code, server.url)
        began = time.monotonic()
        out, err = started.communicate(timeout=20)

    assert (out, err, started.returncode) == ("Wel\n", "", 0)
    assert time.monotonic() - began < 5


@POSIX
def test_a_forked_process_gets_a_loop_of_its_own() -> None:
    code = """
        import os, sys, warnings
        from toolnexus import create_client
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of forks beside threads
        client = create_client("m", base_url=sys.argv[1])
        first = client.run_sync("hi").text
        if (child := os.fork()) == 0:
            os._exit(0 if client.run_sync("hi").text == "1" else 3)
        assert os.waitpid(child, 0)[1] == 0
        print(first, client.run_sync("hi").text)
    """
    with serving(count) as server:
        out, err = process(code, server.url).communicate(timeout=20)

    assert (out, err) == ("1 1\n", "")


def test_a_tool_may_block_its_thread_without_stopping_other_calls() -> None:
    held = threading.Event()

    def answer(body: dict[str, Any]) -> Any:
        return said("Done.") if len(body["messages"]) > 1 or "tools" not in body else said(None, ("block", {}))

    with serving(answer) as server:
        client = client_of(server.url)
        blocking = define_tool(lambda: held.wait(20), name="block")
        results: list[str] = []
        thread = threading.Thread(target=lambda: results.append(client.run_sync("go", [blocking]).text))
        thread.start()
        assert client.run_sync("hi").text == "Done."
        held.set()
        thread.join(20)
        client.close()

    assert results == ["Done."]
