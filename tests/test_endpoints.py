from __future__ import annotations

import asyncio
from typing import Any

import pytest
from local import Seen, Server, Status, server

from toolnexus import ConfigurationError, ConnectionFailed, InvalidReply, MissingKey, ProviderError
from toolnexus.endpoints import endpoint_of, is_local

KEY = "sk-canary-0123456789"


def at(server: Server, model: str = "x", **options: Any) -> Any:
    return endpoint_of(model, base_url=server.url, environ={}, **options)


def test_an_endpoint_names_the_variable_of_its_key_and_shows_no_key() -> None:
    endpoint = endpoint_of("openai:gpt-5-mini", environ={"OPENAI_API_KEY": KEY})
    assert (endpoint.provider.name, endpoint.model, endpoint.key_variable) == ("openai", "gpt-5-mini", "OPENAI_API_KEY")
    assert endpoint.has_key
    assert not endpoint.is_local
    assert KEY not in repr(endpoint)


def test_a_missing_key_is_an_error_unless_it_may_be_missing() -> None:
    with pytest.raises(MissingKey, match="OPENAI_API_KEY"):
        endpoint_of("openai:x", environ={})
    assert not endpoint_of("openai:x", environ={}, key_required=False).has_key


async def test_models_are_listed_with_the_key_and_the_headers_of_the_wire() -> None:
    async with server(lambda _: {"data": [{"id": "b"}, {"id": "a"}, {"id": "b"}, {"no": 1}, 5]}) as there:
        assert await at(there, api_key=KEY).models(timeout=10) == ["b", "a"]
        assert await at(there, api_key=KEY, style="anthropic").models(timeout=10) == ["b", "a"]
    first, second = there.seen
    assert (first.path, first.headers["authorization"]) == ("/v1/models", f"Bearer {KEY}")
    assert (second.path, second.headers["x-api-key"]) == ("/v1/models", KEY)
    assert "anthropic-version" in second.headers


async def test_a_bare_list_is_one_too() -> None:
    async with server(lambda _: Status(200, [{"id": "a"}])) as there:
        assert await at(there).models(timeout=10) == ["a"]


async def test_all_pages_are_read_as_each_wire_has_them() -> None:
    def anthropic(seen: Seen) -> Any:
        last = seen.number == 2
        return {"data": [{"id": f"m{seen.number}"}], "has_more": not last, "last_id": f"m{seen.number}"}

    def gemini(seen: Seen) -> Any:
        found = [
            {"name": f"models/g{seen.number}", "supportedGenerationMethods": ["generateContent"]},
            {"name": "models/embedding", "supportedGenerationMethods": ["embedContent"]},
        ]
        return {"models": found, **({"nextPageToken": "a b"} if seen.number == 1 else {})}

    async with server(anthropic) as there:
        assert await at(there).models(timeout=10) == ["m1", "m2"]
    async with server(gemini) as there:
        assert await at(there).models(timeout=10) == ["g1", "g2"]


async def test_a_list_that_never_ends_is_read_up_to_a_bound() -> None:
    async with server(lambda seen: {"data": [{"id": f"{seen.number}"}], "has_more": True, "last_id": "x"}) as there:
        assert 1 < len(await at(there).models(timeout=30)) < 100


@pytest.mark.parametrize("body", ["<html>", "5", '{"data": "x"}', "{}"])
async def test_what_is_no_list_is_an_invalid_reply(body: str) -> None:
    async with server(lambda _: Status(200, body)) as there:
        with pytest.raises(InvalidReply):
            await at(there).models(timeout=10)


async def test_a_refused_key_is_an_auth_error_that_does_not_show_it() -> None:
    async with server(lambda _: Status(401, {"error": {"message": f"Incorrect API key provided: {KEY}"}})) as there:
        with pytest.raises(ProviderError) as caught:
            await at(there, api_key=KEY).models(timeout=10)
    assert (caught.value.kind, caught.value.status) == ("auth", 401)
    assert "canary" not in str(caught.value)
    assert str(caught.value).endswith(" The key is that of api_key=.")


async def test_nobody_waits_longer_than_asked_for() -> None:
    async def never(_: Seen) -> Any:
        await asyncio.Event().wait()

    async with server(never) as there:
        with pytest.raises(ConnectionFailed, match=r"within 0\.05 s"):
            await at(there).models(timeout=0.05)


async def test_a_server_says_that_it_is_up_without_being_shown_a_key() -> None:
    async with server(lambda seen: Status(200 if seen.path == "/api/version" else 500, {})) as there:
        environ = {"OLLAMA_HOST": there.url, "OLLAMA_API_KEY": KEY}
        assert await endpoint_of("ollama:x", environ=environ).is_up(timeout=10)
    assert [KEY in str(seen.headers) for seen in there.seen] == [False]


async def test_a_server_that_is_not_there_is_a_failed_connection() -> None:
    environ = {"OLLAMA_HOST": "http://127.0.0.1:9"}
    with pytest.raises(ConnectionFailed):
        await endpoint_of("ollama:x", environ=environ).is_up(timeout=10)
    with pytest.raises(ConnectionFailed):
        await endpoint_of("ollama:x", environ=environ).models(timeout=10)


async def test_where_nothing_is_known_nothing_is_asked() -> None:
    rows = {"quiet": {"base_url": "http://127.0.0.1:9/v1", "models_path": ""}}
    from toolnexus.endpoints import provider_from

    table = {name: provider_from(name, fields, trusted=True) for name, fields in rows.items()}
    endpoint = endpoint_of("quiet:x", environ={}, providers=table)
    assert not endpoint.lists_models
    assert await endpoint.is_up(timeout=1)
    with pytest.raises(ConfigurationError, match="quiet"):
        await endpoint.models(timeout=1)


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("http://localhost:1/v1", True),
        ("http://127.0.0.1", True),
        ("http://127.8.8.8/x", True),
        ("http://[::1]:5", True),
        ("http://localhost.example.org", False),
        ("https://example.org#localhost", False),
        ("http://127.0.0.1@example.org", False),
        ("http://0.0.0.0", False),
        ("http://[bad", False),
        ("", False),
    ],
)
def test_only_this_machine_is_local(url: str, local: bool) -> None:
    assert is_local(url) is local
