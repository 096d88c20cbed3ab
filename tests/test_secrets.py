"""A key goes to its own provider, and is shown to nobody: whatever a server does with it."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import io
import json
import logging
import traceback
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from local import Seen, Server, Status, delta, event, said, server
from scripts import read
from test_memory import Noting

from toolnexus import Client, ConfigurationError, Retrying, ToolnexusError, create_client
from toolnexus.testing import Rewrite, ScriptedTransport, anthropic_reply, call, openai_reply
from toolnexus.transport.http import HTTPTransport

CANARY = "sk-canary/4f9+Q_xyzzy"
HALF = ["canary", "xyzzy", base64.b64encode(CANARY.encode()).decode()[3:12]]
"""Parts of the key that must not be seen either."""


class Watched:
    """All that anybody could see of a client's runs: errors, logs, events, output, reprs, stored messages."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.seen: list[str] = []
        self.store = Noting()
        self._caplog = caplog
        caplog.set_level(logging.DEBUG)

    def event(self, event: Any) -> None:
        self.seen += [repr(event), str(event), json.dumps(event.to_dict(), default=repr)]

    def error(self, error: BaseException) -> None:
        self.seen += traceback.format_exception(error)
        link: BaseException | None = error
        while link is not None:
            self.seen += [str(link), repr(link), repr(link.args), repr(vars(link))]
            link = link.__cause__ or link.__context__

    def client(self, client: Client) -> None:
        """Everything that can be reached from a client by looking at its parts."""
        engine = client._engine
        self.seen += [repr(client), repr(engine), repr(engine.source), repr(engine.source._endpoint)]  # type: ignore[attr-defined]
        self.seen += [
            repr(vars(client)),
            repr(vars(engine)),
            repr(vars(engine.source)),
            repr(client.conversation_store),
        ]

    def shows(self) -> list[str]:
        """Where the key, or much of it, is to be seen."""
        self.seen.append(self._caplog.text)
        for record in self._caplog.records:
            self.seen += [record.getMessage(), repr(record.args)]
        self.seen.append(repr(self.store.kept))
        return [text for text in self.seen if any(part in text for part in HALF)]


@pytest.fixture
def watched(caplog: pytest.LogCaptureFixture) -> Iterator[Watched]:
    """Afterwards nothing may have shown the key, printed output included."""
    watching = Watched(caplog)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        yield watching
    watching.seen += [out.getvalue(), err.getvalue()]
    assert watching.shows() == []
    assert watching.seen


async def fails(watched: Watched, url: str, key: str, *, stream: bool, **options: Any) -> ToolnexusError:
    """Ask, be refused, and watch all that there is to see."""
    client = create_client("m", base_url=url, api_key=key, store=watched.store, on_event=watched.event, **options)
    async with client:
        watched.client(client)
        asking = read(client.stream("hi", id="u1")) if stream else client.ask("hi", id="u1")
        with pytest.raises(ToolnexusError) as caught:
            await asking
        watched.error(caught.value)
        if caught.value.partial is not None:
            watched.seen.append(repr(caught.value.partial) + repr(caught.value.partial.messages))
        watched.client(client)
    return caught.value


def told(seen: Seen) -> str:
    """What the server was sent as its key."""
    return seen.headers["authorization"].removeprefix("Bearer ")


def echo_400(seen: Seen) -> Any:
    message = f"Incorrect API key provided: {told(seen)}."
    error = {"message": message, "param": told(seen), "code": told(seen), "type": "invalid_request_error"}
    return Status(400, {"error": error}, {"x-request-id": told(seen)})


def echo_headers_401(seen: Seen) -> Any:
    return Status(401, {"error": {"message": "Unauthorized", "headers": seen.headers}, "detail": repr(seen.headers)})


def echo_text_401(seen: Seen) -> Any:
    return Status(401, f"Unauthorized\n{seen.headers}")


def echo_escaped_403(seen: Seen) -> Any:
    return Status(403, json.dumps({"error": f"bad: {quote(told(seen), safe='')}"}).replace("/", "\\/"))


def echo_base64_403(seen: Seen) -> Any:
    return Status(403, {"error": {"message": base64.b64encode(seen.headers["authorization"].encode()).decode()}})


def echo_page(seen: Seen) -> Any:
    return Status(502, f"<html><title>{told(seen)}</title></html>", {"content-type": "text/html"})


def echo_page_200(seen: Seen) -> Any:
    return Status(200, f"<html><title>{told(seen)}</title></html>", {"content-type": f"text/html; x={told(seen)}"})


def echo_garbage(seen: Seen) -> Any:
    return Status(200, f'{{"not json": "{told(seen)}', {"content-type": "application/json"})


def echo_wrong_json(seen: Seen) -> Any:
    return {"hello": told(seen), "choices": told(seen)}


def echo_error_in_200(seen: Seen) -> Any:
    return {"error": {"message": f"Key {told(seen)} is out of credit", "code": 402}}


def echo_stream_error(seen: Seen) -> Any:
    return [delta("Wel"), event({"error": {"message": f"Key {told(seen)} was revoked", "code": 401}})]


def echo_stream_garbage(seen: Seen) -> Any:
    return [delta("Wel"), f"data: {{not json {told(seen)}}}\n\n".encode()]


def echo_beyond_any_cut(seen: Seen) -> Any:
    """Wherever a long message is cut, it is within the key."""
    return {"error": {"message": "".join(f"{told(seen)}/" for _ in range(1000))}}


def echo_stream_beyond_any_cut(seen: Seen) -> Any:
    return [event({"error": {"message": "x" * n + told(seen) + " and more" * 1000}}) for n in range(485, 500)]


def echo_rate_limit(seen: Seen) -> Any:
    return Status(429, {"error": {"message": f"Slow down, {told(seen)}"}}, {"retry-after": "3600"})


ECHOES: list[Callable[[Seen], Any]] = [
    echo_400,
    echo_headers_401,
    echo_text_401,
    echo_escaped_403,
    echo_base64_403,
    echo_page,
    echo_page_200,
    echo_garbage,
    echo_wrong_json,
    echo_error_in_200,
    echo_stream_error,
    echo_stream_garbage,
    echo_beyond_any_cut,
    echo_stream_beyond_any_cut,
    echo_rate_limit,
]


@pytest.mark.parametrize("key", [CANARY, f"{CANARY}\n", f" \t{CANARY}\r\n"], ids=["bare", "newline", "blanks"])
@pytest.mark.parametrize("echo", ECHOES, ids=lambda echo: echo.__name__)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_server_that_fails_and_echoes_the_key_cannot_make_us_show_it(
    watched: Watched, echo: Any, key: str, stream: bool
) -> None:
    async with server(echo) as at:
        await fails(watched, at.url, key, stream=stream, retries=0)

    assert told(at.seen[0]) == CANARY, "the server did get it, and stripped"


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_retries_show_no_key_either(watched: Watched, stream: bool) -> None:
    class Instant:
        def now(self) -> float:
            return 0.0

        async def sleep(self, seconds: float) -> None: ...

    def tired(seen: Seen) -> Any:
        return Status(503, {"error": {"message": f"{told(seen)} is tired"}})

    async with server(tired) as at:
        await fails(watched, at.url, CANARY, stream=stream, retries=2, clock=Instant())

    assert len(at.seen) == 3
    assert sum(Retrying.__name__ in text for text in watched.seen) >= 2


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_redirect_is_not_followed_and_the_other_host_sees_nothing(
    watched: Watched, status: int, stream: bool
) -> None:
    async with server(lambda _: said("stolen")) as other:

        def away(seen: Seen) -> Any:
            return Status(status, "", {"location": f"{other.url}/chat/completions?key={told(seen)}"})

        async with server(away) as at:
            error = await fails(watched, at.url, CANARY, stream=stream)

    assert other.seen == []
    assert len(at.seen) == 1
    assert "not followed" in str(error)
    assert other.url.removesuffix("/v1") in str(error)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_server_that_is_not_there_is_named_without_the_key(watched: Watched, stream: bool) -> None:
    async with server(lambda _: said("hi")) as at:
        url = at.url
    error = await fails(watched, url, CANARY, stream=stream, retries=0)

    assert error.kind == "connection"


@pytest.mark.parametrize(
    "key", [f"{CANARY}\n{CANARY}", f"{CANARY} two", f"{CANARY}ß", f"{CANARY}\0", f"{CANARY}\ud83d"]
)
def test_a_key_that_no_header_can_hold_is_refused_when_the_client_is_made(watched: Watched, key: str) -> None:
    with pytest.raises(ConfigurationError, match="api_key") as caught:
        create_client("m", base_url="http://127.0.0.1:1", api_key=key)
    watched.error(caught.value)


@pytest.mark.parametrize("key", [f"{CANARY}\n{CANARY}", f"{CANARY}ß"])
def test_a_key_of_the_environment_that_no_header_can_hold_is_refused_by_its_name(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with pytest.raises(ConfigurationError, match="OPENAI_API_KEY") as caught:
        create_client("openai:m")
    watched.error(caught.value)


@pytest.mark.parametrize(
    "headers",
    [
        {"x-api-key": f"{CANARY}\nx-evil: 1"},
        {"authorization": f"Bearer {CANARY}ß"},
        {f"bad name {CANARY}": "x"},
        {"x-token": CANARY.encode()},
        {"content-length": CANARY},
    ],
    ids=["newline", "non-ascii", "name", "bytes", "framing"],
)
def test_a_header_that_cannot_be_sent_is_refused_without_its_value(watched: Watched, headers: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        create_client("m", base_url="http://127.0.0.1:1", headers=headers)
    watched.error(caught.value)


@pytest.mark.parametrize("place", ["header", "query"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_secrets_in_headers_and_queries_are_hidden_like_the_key(
    watched: Watched, place: str, stream: bool
) -> None:
    def echo(seen: Seen) -> Any:
        return Status(404, {"error": {"message": f"No route for {CANARY} or {quote(CANARY, safe='')}"}})

    async with server(echo) as at:
        if place == "header":
            await fails(watched, at.url, "none", stream=stream, headers={"x-gateway-token": CANARY})
        else:
            await fails(watched, f"{at.url}?api_key={quote(CANARY, safe='')}", "none", stream=stream)


async def test_a_url_with_credentials_in_it_is_refused_without_them(watched: Watched) -> None:
    with pytest.raises(ConfigurationError) as caught:
        create_client("m", base_url=f"http://user:{quote(CANARY)}@127.0.0.1:1")
    watched.error(caught.value)


async def test_a_run_that_succeeds_stores_and_shows_no_key(watched: Watched) -> None:
    def answer(seen: Seen) -> Any:
        return said("Done.") if seen.number == 2 else said(None, ("look", {}))

    async def look() -> str:
        return "seen"

    async with server(answer) as at:
        async with create_client(
            "m", base_url=at.url, api_key=CANARY, store=watched.store, on_event=watched.event
        ) as client:
            result = await client.ask("hi", [look], id="u1")
            watched.client(client)
        watched.seen += [repr(result), repr(result.messages), repr(dataclasses.astuple(result))]

    assert told(at.seen[1]) == CANARY
    assert watched.store.kept["u1"]
    assert all(CANARY not in json.dumps(body) for body in at.bodies)


# Whose key goes where

KEYS = {
    "OPENAI_API_KEY": "sk-key-of-openai",
    "ANTHROPIC_API_KEY": "sk-key-of-anthropic",
    "GROQ_API_KEY": "sk-key-of-groq",
    "MISTRAL_API_KEY": "sk-key-of-mistral",
    "OLLAMA_API_KEY": "sk-key-of-ollama",
}


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)


async def sent(model: str, **options: Any) -> tuple[str, set[str]]:
    """The URL of a request, and the variables whose keys were in it."""
    style = options.get("style") or ("anthropic" if model.startswith("anthropic:") else "openai")
    transport = ScriptedTransport(anthropic_reply("Hi.") if style == "anthropic" else openai_reply("Hi."))
    async with create_client(model, transport=transport, **{**options, "style": style}) as client:
        await client.run("hi")
    [request] = transport.requests
    everything = f"{request.url} {dict(request.headers)} {request.body!r}"
    return request.url, {name for name, value in KEYS.items() if value in everything}


NO_KEY: set[str] = set()


@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize(
    ("model", "host", "variables"),
    [
        ("openai:m", "api.openai.com", {"OPENAI_API_KEY"}),
        ("anthropic:m", "api.anthropic.com", {"ANTHROPIC_API_KEY"}),
        ("groq:m", "api.groq.com", {"GROQ_API_KEY"}),
        ("deepseek:m", "api.deepseek.com", NO_KEY),
    ],
)
async def test_a_row_sends_its_own_key_to_its_own_host(model: str, host: str, variables: set[str]) -> None:
    url, found = await sent(model)
    assert (urlsplit(url).netloc, found) == (host, variables)


@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize("model", ["m", "openai:m", "anthropic:m"])
@pytest.mark.parametrize("style", ["openai", "anthropic"])
@pytest.mark.parametrize(
    ("base_url", "variables"),
    [
        ("https://api.openai.com/v1", {"OPENAI_API_KEY"}),
        ("https://api.anthropic.com", {"ANTHROPIC_API_KEY"}),
        ("https://api.groq.com/openai/v1", {"GROQ_API_KEY"}),
        ("https://proxy.test/v1", NO_KEY),
        ("https://api.openai.com.evil.test/v1", NO_KEY),
        ("https://evil.test/api.openai.com/v1", NO_KEY),
        ("http://api.openai.com/v1", NO_KEY),
        ("https://api.openai.com:8443/v1", NO_KEY),
        ("http://127.0.0.1:9999/v1", NO_KEY),
    ],
)
async def test_a_key_follows_the_host_whatever_model_and_style_say(
    model: str, style: str, base_url: str, variables: set[str]
) -> None:
    url, found = await sent(model, base_url=base_url, style=style)
    assert (urlsplit(url).netloc, found) == (urlsplit(base_url).netloc, variables)


@pytest.mark.usefixtures("keys")
async def test_a_model_of_another_provider_in_one_call_changes_no_key() -> None:
    transport = ScriptedTransport(openai_reply("Hi."))
    async with create_client("openai:m", style="openai", transport=transport) as client:
        await client.run("hi", model="anthropic:claude")

    assert transport.requests[0].url == "https://api.openai.com/v1/chat/completions"
    assert transport.requests[0].json["model"] == "anthropic:claude"
    assert KEYS["ANTHROPIC_API_KEY"] not in str(transport.requests[0].headers)


@pytest.mark.usefixtures("keys")
async def test_on_the_wire_each_provider_gets_its_own_key_as_it_wants_it() -> None:
    def answer(seen: Seen) -> Any:
        return anthropic_reply("Hi.") if seen.path == "/v1/messages" else openai_reply("Hi.")

    async with server(answer) as at:
        await asked(at, "openai:m", "anthropic:m")

    first, second = (seen.headers for seen in at.seen)
    assert (first["host"], first["authorization"]) == ("api.openai.com", f"Bearer {KEYS['OPENAI_API_KEY']}")
    assert (second["host"], second["x-api-key"]) == ("api.anthropic.com", KEYS["ANTHROPIC_API_KEY"])
    assert "authorization" not in second
    assert "x-api-key" not in first


async def asked(at: Server, *models: str) -> None:
    """Ask each provider, with one server standing in for all of them."""
    address = at.url.removeprefix("http://").removesuffix("/v1")
    http = HTTPTransport()
    transport = Rewrite(http, {"api.openai.com": address, "api.anthropic.com": address})
    for model in models:
        async with create_client(model, style=model.partition(":")[0], transport=transport) as client:
            await client.run("hi", [look_up])
    await http.aclose()


async def look_up() -> str:
    return "found"


@pytest.mark.usefixtures("keys")
async def test_a_tool_is_told_nothing_of_the_key() -> None:
    seen: list[str] = []

    async def look(ctx: Any) -> str:
        seen.append(repr(ctx))
        return "ok"

    transport = ScriptedTransport(openai_reply(calls=[call("look")]), openai_reply("Done."))
    async with create_client("openai:m", style="openai", transport=transport) as client:
        await client.run("go", [look])

    assert all(KEYS["OPENAI_API_KEY"] not in text for text in seen)
