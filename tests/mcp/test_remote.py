"""Servers at a URL, and what goes wrong between them and us."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from fake_http import Fake, serving
from helpers import Changes, call, connected, in_proportion, size_of


def entry(fake: Fake, **more: Any) -> dict[str, Any]:
    return {"type": "http", "url": fake.url, **more}


@pytest.mark.parametrize("how", ["well", "stream", "closes_probe"])
async def test_a_server_is_used(how: str) -> None:
    async with serving(how) as fake, connected(entry(fake)) as servers:
        [status] = servers.status()
        assert (status.state, status.transport, status.protocol) == ("ready", "http", "2025-06-18")
        assert (await call(servers, text="hi")).output == "hi"
        assert fake.headers[-1]["mcp-protocol-version"] == "2025-06-18"


async def test_configured_headers_are_sent_and_never_shown(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "toolnexus")
    async with serving("500") as fake:
        async with connected(entry(fake, headers={"Authorization": "Bearer sk-verysecret"})) as servers:
            assert "500 Internal Server Error (go away, key [redacted])" in servers.status()[0].reason
        assert fake.headers[-1]["authorization"] == "Bearer sk-verysecret"
    assert "sk-verysecret" not in caplog.text


@pytest.mark.parametrize(
    ("how", "state", "told"),
    [
        ("401", "needs_auth", "401 Unauthorized"),
        ("403", "failed", "check them, and what they are for"),
        ("404", "failed", "check its path, which often ends in /mcp or /sse"),
        ("405", "failed", "does not take requests of this transport"),
        ("500", "failed", "The fault is the server's"),
        ("html", "failed", "a web page, status 200, instead of MCP"),
    ],
)
async def test_a_status_is_told_with_what_to_do(how: str, state: str, told: str) -> None:
    headers = {"Authorization": "Bearer sk-other"}  # so that no sign-in is begun
    async with serving(how) as fake, connected(entry(fake, headers=headers)) as servers:
        [status] = servers.status()
        assert status.state == state
        assert told in status.reason
        assert fake.url in status.reason


async def test_a_server_that_is_not_there() -> None:
    async with serving() as fake:
        url = fake.url
    async with connected({"type": "http", "url": url}) as servers:
        [status] = servers.status()
        assert status.state == "failed"
        assert "cannot be reached" in status.reason


async def test_an_untyped_url_falls_back_to_the_older_transport() -> None:
    async with serving("sse") as fake, connected({"url": fake.url}) as servers:
        assert servers.status()[0].transport == "sse"
        assert (await call(servers, text="hi")).output == "over sse"


async def test_when_neither_transport_works_both_are_told() -> None:
    async with serving("404") as fake, connected({"url": fake.url}) as servers:
        reason = servers.status()[0].reason
        assert reason.count("404 Not Found") == 2
        assert "Then SSE was tried" in reason


async def test_a_refused_message_of_the_older_transport_ends_its_call() -> None:
    async with serving("sse") as fake, connected({"type": "sse", "url": fake.url}) as servers:
        result = await call(servers, text="refuse")
        assert result.is_error
        assert "500 Internal Server Error (no)" in result.output
        assert (await call(servers, text="hi")).output == "over sse"


@pytest.mark.parametrize("how", ["drops", "cut_json", "cut_stream"])
async def test_a_connection_that_breaks_during_a_call_is_an_error_and_cancels_nobody(how: str) -> None:
    async with serving(how) as fake, connected(entry(fake)) as servers:
        result = await call(servers, text="hi")
        assert result.is_error
        assert "may have been executed, so it was not repeated" in result.output
        assert fake.calls == 1
        fake.how = "well"
        assert (await call(servers, text="hi")).output == "hi"


async def test_a_session_that_the_server_forgot_is_opened_again_and_the_call_repeated() -> None:
    async with serving() as fake, connected(entry(fake)) as servers:
        assert (await call(servers, text="one")).output == "one"
        fake.sessions.clear()
        assert (await call(servers, text="two")).output == "two"
        assert (fake.opened, fake.calls) == (2, 2)
        assert servers.status()[0].reconnects == 1


async def test_calls_wait_for_a_server_that_restarts() -> None:
    async with serving() as fake, connected(entry(fake)) as servers:
        await call(servers, text="one")
        await fake.stop()
        fake.sessions.clear()
        running = asyncio.ensure_future(call(servers, text="two"))
        await asyncio.sleep(0.1)
        await fake.start()
        assert (await running).output == "two"
        assert fake.calls == 2


async def test_a_stopped_server_is_an_error_in_the_result() -> None:
    async with serving() as fake, connected(entry(fake), startup_timeout=1.0) as servers:
        await fake.stop()
        result = await call(servers, text="hi")
        assert result.is_error
        assert "cannot be reached" in result.output
        assert servers.status()[0].state == "connecting"


async def test_cancelling_a_call_cancels_it_on_the_server() -> None:
    async with serving("hang") as fake, connected(entry(fake)) as servers:
        running = asyncio.ensure_future(call(servers, text="hi"))
        await fake.called.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await fake.heard.wait()
        assert fake.cancelled == [next(each["id"] for each in fake.requests if each.get("method") == "tools/call")]


async def test_a_call_that_hangs_ends_with_its_time_and_holds_up_no_other() -> None:
    async with serving("hang") as fake, connected(entry(fake), timeout=0.5) as servers:
        running = asyncio.ensure_future(call(servers, text="hi"))
        await fake.called.wait()
        fake.how = "well"
        assert (await call(servers, text="other")).output == "other"
        assert "not answered within 0.5 s" in (await running).output


async def test_what_a_server_tells_by_itself_is_heard() -> None:
    changes = Changes()
    async with serving() as fake, connected(entry(fake), on_change=changes) as servers:
        await fake.listens.wait()
        listed = sum(each.get("method") == "tools/list" for each in fake.requests)
        fake._events[-1].put_nowait({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        await changes.until(lambda: sum(each.get("method") == "tools/list" for each in fake.requests) > listed)
        assert len(servers.tools()) == 1


async def test_large_events_take_time_in_proportion_to_their_length() -> None:
    async with serving("big") as fake, connected(entry(fake), timeout=60) as servers:

        async def big(megabytes: int) -> None:
            result = await call(servers, text=str(megabytes << 20))
            assert size_of(result.metadata["file"]) == megabytes << 20

        await in_proportion(big, 4, 16, 6)
