"""An MCP server that wants a sign-in, with the issuer that gives it."""

from __future__ import annotations

import base64
import hashlib
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlencode, urlsplit

import aiohttp
from aiohttp import web
from fake_http import Fake

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Guarded(Fake):
    """Attributes:
    valid: The tokens that it takes.
    expires_in: Seconds that a token is said to last.
    refreshed, registered: How often that was done.
    step: The scope that calls of tools want. Empty: none.
    gives: Whether tokens get the scopes that are asked for.
    methods: How the issuer says that it takes a client's secret. None: it does not say.
    sent: What came to the issuer for a token: the form, and how the client named itself in a header.
    """

    def __init__(self, *, cimd: bool = False) -> None:
        super().__init__()
        self.cimd = cimd
        self.valid: set[str] = set()
        self.expires_in = 3600
        self.refreshed = 0
        self.registered: list[dict[str, Any]] = []
        self.asked: list[dict[str, str]] = []
        self.step = ""
        self.gives = True
        self.methods: list[str] | None = None
        self.sent: list[tuple[dict[str, str], str | None]] = []
        self._scopes: dict[str, list[str]] = {}
        self._codes: dict[str, dict[str, str]] = {}
        self._number = 0

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        where = f'Bearer resource_metadata="{self.origin}/resource"'
        if token not in self.valid:
            return web.Response(status=401, headers={"WWW-Authenticate": f'{where}, scope="tides"'})
        called = request.method == "POST" and (await request.json()).get("method") == "tools/call"
        if called and self.step and self.step not in self._scopes.get(token, ()):
            wants = f'{where}, error="insufficient_scope", scope="{self.step}"'
            return web.Response(status=403, headers={"WWW-Authenticate": wants})
        return await super()._handle(request)

    async def elsewhere(self, request: web.Request) -> web.Response:
        origin = self.origin
        match request.path:
            case "/resource":
                return web.json_response({"resource": self.url, "authorization_servers": [origin]})
            case "/.well-known/oauth-authorization-server":
                return web.json_response(
                    {
                        "issuer": origin,
                        "authorization_endpoint": f"{origin}/authorize",
                        "token_endpoint": f"{origin}/token",
                        "registration_endpoint": f"{origin}/register",
                        "code_challenge_methods_supported": ["S256"],
                        "client_id_metadata_document_supported": self.cimd,
                        **({} if self.methods is None else {"token_endpoint_auth_methods_supported": self.methods}),
                    }
                )
            case "/register":
                self.registered.append(await request.json())
                return web.json_response(
                    {**self.registered[-1], "client_id": f"client-{len(self.registered)}"}, status=201
                )
            case "/authorize":
                query = dict(request.query)
                self.asked.append(query)
                code = f"code-{len(self.asked)}"
                self._codes[code] = query
                back = urlencode({"code": code, "state": query["state"]})
                return web.Response(status=302, headers={"Location": f"{query['redirect_uri']}?{back}"})
            case "/token":
                form = {name: values[0] for name, values in parse_qs(await request.text()).items()}
                self.sent.append((form, request.headers.get("Authorization")))
                return self._token(form)
            case _:
                return web.Response(status=404)

    def _token(self, form: dict[str, str]) -> web.Response:
        scope = ""
        if form["grant_type"] == "refresh_token":
            if form["refresh_token"] != f"refresh-{self._number}":
                return web.json_response({"error": "invalid_grant"}, status=400)
            self.refreshed += 1
        else:
            challenge = base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest()).rstrip(b"=")
            asked = self._codes.pop(form["code"])
            if asked["code_challenge"] != challenge.decode() or asked["client_id"] != form["client_id"]:
                return web.json_response({"error": "invalid_grant"}, status=400)
            scope = asked.get("scope", "") if self.gives else ""
        self._number += 1
        token = f"token-{self._number}"
        self.valid = {token}
        self._scopes[token] = scope.split()
        more = {"refresh_token": f"refresh-{self._number}", "expires_in": self.expires_in}
        return web.json_response({"access_token": token, "token_type": "Bearer", **more})


async def visit(url: str) -> str:
    """Do what a browser does at the issuer, and say where it is sent then."""
    async with aiohttp.ClientSession() as browser, browser.get(url, allow_redirects=False) as response:
        return response.headers["Location"]


async def come_back(url: str) -> None:
    """Let the browser come back as well."""
    address = await visit(url)
    assert urlsplit(address).hostname == "127.0.0.1"
    async with aiohttp.ClientSession() as browser, browser.get(address) as response:
        assert response.status == 200


@asynccontextmanager
async def guarded(*, cimd: bool = False) -> AsyncIterator[Guarded]:
    fake = Guarded(cimd=cimd)
    await fake.start()
    try:
        yield fake
    finally:
        await fake.stop()
