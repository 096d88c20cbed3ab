"""Servers that want a sign-in."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import stat
from pathlib import Path
from typing import Any

import pytest
from fake_issuer import Guarded, come_back, guarded, visit
from helpers import Changes, call, connected

from toolnexus.sources.mcp.servers import MCPServers
from toolnexus.sources.mcp.tokens import Tokens


def entry(fake: Guarded, **more: Any) -> dict[str, Any]:
    return {"type": "http", "url": fake.url, **more}


async def test_without_anybody_the_address_is_in_the_status_and_nothing_hangs() -> None:
    changes = Changes()
    async with guarded() as fake, connected(entry(fake), on_change=changes) as servers:
        [status] = servers.status()
        assert status.state == "needs_auth"
        assert status.url is not None
        assert status.url.startswith(f"{fake.origin}/authorize?")
        assert "somebody has to sign in" in status.reason
        await come_back(status.url)  # somebody opens it on this machine
        await changes.until(lambda: servers.status()[0].state == "ready")
        assert (await call(servers, text="hi")).output == "hi"


async def test_an_address_from_another_machine_can_be_given() -> None:
    changes = Changes()
    async with guarded() as fake, connected(entry(fake), on_change=changes) as servers:
        server, url = servers.get("s"), servers.status()[0].url
        assert url is not None
        assert server.signed_in(await visit(url))
        await changes.until(lambda: servers.status()[0].state == "ready")
        assert not server.signed_in("http://127.0.0.1/callback?code=late")


async def test_a_person_is_asked_and_tokens_are_kept_for_this_user_alone(tmp_path: Path) -> None:
    asked: list[Any] = []
    folder = tmp_path / "tokens"

    async def wait_for(request: Any) -> Any:
        asked.append(request)
        return {"id": request["id"], "ok": True, "data": {"url": await visit(request["url"])}}

    async with guarded() as fake:
        changes = Changes()
        async with connected(entry(fake), wait_for=wait_for, tokens_dir=folder, on_change=changes) as servers:
            await changes.until(lambda: servers.status()[0].state == "ready")
            assert (await call(servers, text="hi")).output == "hi"
        [request] = asked
        assert (request["kind"], request["data"]["server"]) == ("authorization", "s")
        assert fake.asked[0]["code_challenge_method"] == "S256"
        assert fake.asked[0]["resource"] == fake.url
        [file] = folder.iterdir()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert json.loads(file.read_bytes())["issuer"].rstrip("/") == fake.origin
        async with connected(entry(fake), tokens_dir=folder) as servers:
            assert servers.status()[0].state == "ready"
        assert (len(asked), len(fake.registered)) == (1, 1)


async def test_a_kept_token_that_has_expired_is_renewed_without_anybody(tmp_path: Path) -> None:
    async with guarded() as fake:
        fake.expires_in = 1  # counts as expired at once
        await sign_in(fake, tmp_path)
        fake.valid.clear()
        async with connected(entry(fake), tokens_dir=tmp_path) as servers:
            assert servers.status()[0].state == "ready"
        assert fake.refreshed >= 1


async def test_a_refused_token_is_renewed_once_for_many_calls(tmp_path: Path) -> None:
    async with guarded() as fake:
        await sign_in(fake, tmp_path)
        async with connected(entry(fake), tokens_dir=tmp_path) as servers:
            assert (await call(servers, text="hi")).output == "hi"
            fake.valid.clear()
            results = await asyncio.gather(*(call(servers, text=str(number)) for number in range(8)))
            assert [each.output for each in results] == [str(number) for number in range(8)]
            assert fake.refreshed == 1


async def test_a_token_of_this_process_is_renewed_without_anybody() -> None:
    changes = Changes()
    async with guarded() as fake, connected(entry(fake), on_change=changes) as servers:
        await come_back(address(servers))
        await changes.until(lambda: servers.status()[0].state == "ready")
        fake.valid.clear()
        assert (await call(servers, text="hi")).output == "hi"
        assert (fake.refreshed, len(fake.asked), len(fake.registered)) == (1, 1, 1)


async def test_more_scopes_are_asked_for_beside_those_that_there_are() -> None:
    changes = Changes()
    async with guarded() as fake, connected(entry(fake), on_change=changes) as servers:
        await come_back(address(servers))
        await changes.until(lambda: servers.status()[0].state == "ready")
        fake.step = "storms"
        result = await call(servers, text="hi")
        assert (result.is_error, result.metadata["fault"]) == (True, "needs_auth")
        [told] = re.findall(r"sign in at (\S+)", result.output)
        await come_back(told)
        await changes.until(lambda: carries(fake, servers, "token-2"))
        assert (await call(servers, text="hi")).output == "hi"
        assert [set(each["scope"].split()) for each in fake.asked] == [{"tides"}, {"tides", "storms"}]
        assert [each["resource"] for each in fake.asked] == [fake.url, fake.url]
        assert len(fake.registered) == 1


async def test_who_signs_in_for_nothing_is_not_asked_for_ever() -> None:
    changes = Changes()
    asked: list[Any] = []

    async def wait_for(request: Any) -> Any:
        asked.append(request)
        return {"id": request["id"], "ok": True, "data": {"url": await visit(request["url"])}}

    async with guarded() as fake, connected(entry(fake), wait_for=wait_for, on_change=changes) as servers:
        await changes.until(lambda: servers.status()[0].state == "ready")
        fake.step, fake.gives = "storms", False
        for token in ("token-2", "token-3"):
            assert (await call(servers, text="hi")).metadata["fault"] == "needs_auth"
            await changes.until(lambda token=token: carries(fake, servers, token))
        result = await call(servers, text="hi")
        assert "wants the scope storms again" in result.output
        assert len(asked) == 3


@pytest.mark.parametrize(
    ("methods", "by_header"),
    [(None, True), (["client_secret_basic"], True), (["client_secret_post"], False)],
)
async def test_a_configured_secret_is_sent_as_the_issuer_takes_it(methods: list[str] | None, by_header: bool) -> None:
    changes = Changes()
    oauth = {"clientId": "ours", "clientSecret": "hush"}
    async with guarded() as fake:
        fake.methods = methods
        async with connected(entry(fake, oauth=oauth), on_change=changes) as servers:
            await come_back(address(servers))
            await changes.until(lambda: servers.status()[0].state == "ready")
            fake.valid.clear()
            assert (await call(servers, text="hi")).output == "hi"
        assert [form["grant_type"] for form, _ in fake.sent] == ["authorization_code", "refresh_token"]
        header = f"Basic {base64.b64encode(b'ours:hush').decode()}" if by_header else None
        assert [said for _, said in fake.sent] == [header, header]
        assert [form.get("client_secret") for form, _ in fake.sent] == [None if by_header else "hush"] * 2


def test_a_server_that_changes_its_issuer_is_known_at_the_new_one_alone(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path)
    for issuer in ("http://a.example", "http://b.example", "http://a.example"):
        for url in ("http://one.example", "http://two.example")[: 2 if issuer[7] == "a" else 1]:
            tokens.keep(issuer, url, client=None, metadata=None, tokens={"access_token": issuer}, expires_at=None)
            found = tokens.find(url)
            assert found is not None
            assert found["issuer"] == issuer


async def test_a_refresh_that_is_refused_needs_somebody_again(tmp_path: Path) -> None:
    async with guarded() as fake:
        await sign_in(fake, tmp_path)
        async with connected(entry(fake), tokens_dir=tmp_path) as servers:
            fake.valid.clear()
            fake._number = 100
            result = await call(servers, text="hi")
            assert result.is_error
            assert "somebody has to sign in" in result.output


async def test_who_declines_is_not_asked_for_ever() -> None:
    changes = Changes()
    asked: list[Any] = []

    def wait_for(request: Any) -> Any:
        asked.append(request)
        return {"id": request["id"], "ok": False, "reason": "not now"}

    async with guarded() as fake, connected(entry(fake), wait_for=wait_for, on_change=changes) as servers:
        assert servers.status()[0].state == "needs_auth"
        assert len(asked) == 1


async def test_a_client_metadata_document_stands_in_for_a_registration() -> None:
    about = "https://example.com/toolnexus.json"
    async with guarded(cimd=True) as fake, connected(entry(fake), client_metadata_url=about) as servers:
        url = servers.status()[0].url
        assert url is not None
        assert "client_id=https%3A%2F%2Fexample.com%2Ftoolnexus.json" in url
        assert not fake.registered


async def test_a_configured_client_and_its_scopes_are_used() -> None:
    oauth = {"clientId": "ours", "scopes": ["read", "write"]}
    async with guarded() as fake, connected(entry(fake, oauth=oauth)) as servers:
        url = servers.status()[0].url
        assert url is not None
        assert "client_id=ours&" in url
        assert "scope=read+write" in url
        assert not fake.registered


@pytest.mark.parametrize("more", [{"oauth": False}, {"headers": {"Authorization": "Bearer x"}}])
async def test_no_sign_in_is_begun_where_the_configuration_says_no(more: dict[str, Any]) -> None:
    async with guarded() as fake, connected(entry(fake, **more)) as servers:
        [status] = servers.status()
        assert (status.state, status.url) == ("needs_auth", None)
        assert not fake.registered


def carries(fake: Guarded, servers: MCPServers, token: str) -> bool:
    """Whether it is connected with this token."""
    return servers.status()[0].state == "ready" and fake.headers[-1].get("authorization") == f"Bearer {token}"


def address(servers: MCPServers) -> str:
    """Where somebody has to sign in."""
    url = servers.status()[0].url
    assert url is not None
    return url


async def sign_in(fake: Guarded, folder: Path) -> None:
    changes = Changes()
    async with connected(entry(fake), tokens_dir=folder, on_change=changes) as servers:
        url = servers.status()[0].url
        assert url is not None
        await come_back(url)
        await changes.until(lambda: servers.status()[0].state == "ready")
