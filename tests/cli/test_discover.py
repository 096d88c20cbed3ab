from __future__ import annotations

import asyncio
import time

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from toolnexus.cli import discover


def test_a_key_that_is_set_names_its_provider() -> None:
    found = discover.keys({"ANTHROPIC_API_KEY": "k", "GROQ_API_KEY": "k", "OPENAI_API_KEY": " ", "HOME": "/"})
    assert [(each.what, each.model) for each in found] == [
        ("ANTHROPIC_API_KEY (anthropic)", "anthropic:claude-sonnet-5"),
        ("GROQ_API_KEY (groq)", None),
    ]


def test_a_key_is_never_told() -> None:
    assert "sk-canary" not in repr(discover.keys({"OPENAI_API_KEY": "sk-canary"}))


async def listing(request: web.Request) -> web.Response:
    return web.json_response({"data": [{"id": "nomic-embed-text"}, {"id": "qwen2.5:7b"}, {"id": "other"}]})


def serving(handler: object) -> TestServer:
    app = web.Application()
    app.router.add_get("/v1/models", handler)
    return TestServer(app, host="127.0.0.1")


async def test_a_server_on_this_machine_is_found_with_its_first_model_that_talks() -> None:
    async with serving(listing) as server:
        address = f"127.0.0.1:{server.port}"
        found = await discover.servers({"OLLAMA_HOST": address})
    ours = [(each.what, each.model) for each in found if each.what.startswith("ollama")]
    assert ours == [(f"ollama at http://{address}", "ollama:qwen2.5:7b")]


@pytest.mark.parametrize(
    "answer",
    [
        web.Response(text="<html>"),
        web.Response(text='{"data": "x"}'),
        web.Response(text="[1]"),
        web.Response(text='{"data": [{"id": 5}, 6]}'),
        web.Response(status=401, text='{"data": [{"id": "x"}]}'),
        web.Response(status=302, headers={"location": "http://127.0.0.1:9/"}),
    ],
    ids=["page", "no list", "no object", "no ids", "refused", "elsewhere"],
)
async def test_a_server_of_something_else_is_not_taken(answer: web.Response) -> None:
    async def handler(request: web.Request) -> web.Response:
        return answer

    async with serving(handler) as server:
        found = await discover.servers({"OLLAMA_HOST": f"http://localhost:{server.port}/"})
    assert not [each for each in found if each.what.startswith("ollama")]


async def test_a_server_that_does_not_answer_is_waited_for_no_longer_than_the_others() -> None:
    asked = asyncio.Event()

    async def never(request: web.Request) -> web.Response:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with serving(never) as server:
        started = time.monotonic()
        await discover.servers({"OLLAMA_HOST": f"127.0.0.1:{server.port}"})
        assert asked.is_set()
        assert time.monotonic() - started < 2


async def test_a_server_on_another_machine_is_not_asked() -> None:
    for host in ("192.0.2.1:11434", "https://example.org", "0.0.0.0", "http://[bad"):
        found = await discover.servers({"OLLAMA_HOST": host})
        assert not [each for each in found if each.what.startswith("ollama")]


def test_what_was_found_reads_as_a_sentence() -> None:
    assert discover.told([]) == "no key in the environment and no server on this machine"
    found = [discover.Found(what=what, provider="p", model=None) for what in "AB"]
    assert discover.told(found) == "A, B"


@pytest.mark.parametrize(
    ("base_url", "sent"),
    [
        ("https://api.openai.com/v1", True),
        ("https://api.openai.com.example.org/v1", False),
        ("http://127.0.0.1:8080/v1", False),
        ("https://api.groq.com/openai/v1", False),
    ],
)
def test_a_key_goes_along_only_to_its_own_provider(base_url: str, sent: bool) -> None:
    assert discover.sends_key(base_url, {"OPENAI_API_KEY": "sk-canary"}) is sent
