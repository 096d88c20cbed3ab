"""A gateway on standard input and output, as a client starts it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from gateways import ERAS, START
from mcp import Client, types
from mcp.shared.message import SessionMessage

PROGRAM = """
import asyncio, os, subprocess, sys
from toolnexus import create_toolkit
from toolnexus.gateway.serving import serve_mcp

def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b

def noisy() -> str:
    "Prints."
    print("noise on standard output")
    os.write(1, b"more of it\\\\n")
    subprocess.run([sys.executable, "-c", "print('and more')"], check=True)
    return repr(sys.stdin.read())

async def slow() -> str:
    "Takes its time."
    await asyncio.sleep(0.2)
    return "slow but there"

async def stuck() -> str:
    "Never ends."
    print("stuck", file=sys.stderr, flush=True)
    await asyncio.Event().wait()

async def main():
    await serve_mcp(await create_toolkit([add, noisy, slow, stuck]), grace=float(sys.argv[1]))
    print("ended", file=sys.stderr)

asyncio.run(main())
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM.replace("\\\\n", "\\n"))
    return path


def started(program: Path, grace: float = 10.0) -> subprocess.Popen[bytes]:
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen([sys.executable, str(program), str(grace)], **pipes)


@asynccontextmanager
async def spawned(program: Path) -> AsyncGenerator[Any]:
    """A transport to a process that is waited for: the SDK's gives up after two seconds, which may be too few here."""
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    process = await asyncio.create_subprocess_exec(sys.executable, str(program), "5", **pipes)
    assert process.stdin is not None
    to_client, received = anyio.create_memory_object_stream[Any](0)
    to_send, from_client = anyio.create_memory_object_stream[Any](0)

    async def read(lines: asyncio.StreamReader) -> None:
        async with to_client:
            async for line in lines:
                await to_client.send(SessionMessage(types.jsonrpc_message_adapter.validate_json(line)))

    async def write(pipe: asyncio.StreamWriter) -> None:
        async with from_client:
            async for sent in from_client:
                pipe.write(sent.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
                await pipe.drain()

    async with anyio.create_task_group() as group:
        group.start_soon(read, process.stdout)
        group.start_soon(write, process.stdin)
        try:
            yield received, to_send
        finally:
            with anyio.CancelScope(shield=True):
                process.stdin.close()
                await process.wait()
            group.cancel_scope.cancel()


def call(number: int, name: str, **arguments: Any) -> dict[str, Any]:
    params = {"name": name, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


STARTED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def lines(*messages: Any) -> bytes:
    return b"".join(json.dumps(message).encode() + b"\n" for message in messages)


def answers(output: bytes) -> dict[Any, Any]:
    return {message["id"]: message for message in map(json.loads, output.splitlines())}


@pytest.mark.parametrize("era", ERAS)
async def test_clients_of_both_eras_list_and_call(era: str, program: Path) -> None:
    async with Client(spawned(program), mode=era) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["add", "noisy", "slow", "stuck"]
        assert (await client.call_tool("add", {"a": 2, "b": 3})).content[0].text == "5"
        assert (await client.call_tool("noisy", {})).content[0].text == "''"
        assert (await client.call_tool("add", {"a": 1, "b": 1})).content[0].text == "2"


def test_what_tools_print_goes_to_standard_error(program: Path) -> None:
    process = started(program)
    output, errors = process.communicate(lines(START, STARTED, call(2, "noisy")), timeout=60)
    assert answers(output)[2]["result"]["content"][0]["text"] == "''"
    for noise in (b"noise on standard output", b"more of it", b"and more", b"ended"):
        assert noise in errors
        assert noise not in output
    assert process.returncode == 0


def test_when_the_client_closes_its_side_open_calls_are_answered_and_the_process_ends(program: Path) -> None:
    process = started(program)
    output, _ = process.communicate(lines(START, STARTED, call(2, "slow"), call(3, "add", a=1, b=2)), timeout=60)
    assert answers(output)[2]["result"]["content"][0]["text"] == "slow but there"
    assert answers(output)[3]["result"]["content"][0]["text"] == "3"
    assert process.returncode == 0


def test_a_call_that_never_ends_does_not_keep_the_process(program: Path) -> None:
    process = started(program, grace=0.05)
    output, errors = process.communicate(lines(START, STARTED, call(2, "stuck")), timeout=60)
    assert "result" not in answers(output).get(2, {})
    assert b"ended" in errors
    assert process.returncode == 0


def test_lines_that_are_no_messages_are_answered_with_an_error_and_nothing_else_happens(program: Path) -> None:
    process = started(program)
    noise = b"hello\n\xff\xfe\n{\n\n   \n[]\n" + b"[" * 100_000 + b"\n"
    output, _ = process.communicate(lines(START) + noise + lines(STARTED, call(2, "add", a=1, b=2)), timeout=60)
    told = [json.loads(line) for line in output.splitlines()]
    assert [each["error"]["code"] for each in told if each["id"] is None] == [-32700] * 5
    assert answers(output)[2]["result"]["content"][0]["text"] == "3"


def test_large_messages_arrive_whole(program: Path) -> None:
    process = started(program)
    text = "x" * 8_000_000
    output, _ = process.communicate(lines(START, STARTED, call(2, "add", a=text, b=2)), timeout=60)
    assert answers(output)[2]["result"]["isError"] is True


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_although_the_client_still_listens(program: Path, number: signal.Signals) -> None:
    process = started(program, grace=0.05)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdin.write(lines(START, STARTED, call(2, "stuck")))
    process.stdin.flush()
    assert process.stderr.readline() == b"stuck\n"
    process.send_signal(number)
    assert process.wait(60) == 0
    assert process.stderr.read() == b"ended\n"
    for stream in (process.stdin, process.stdout, process.stderr):
        stream.close()
