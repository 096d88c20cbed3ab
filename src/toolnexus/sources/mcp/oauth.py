"""Signs in to a server: the SDK's flow (discovery, registration, PKCE), run beside the requests that wait for it.

The SDK's provider holds its lock as long as a request is under way, so that no two are at once, and does not know when
tokens that it reads from a store expire. So it only fetches tokens here, and the requests carry them.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import secrets
import time
from collections.abc import AsyncGenerator, Callable
from contextvars import Context
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.exceptions import OAuthFlowError
from mcp.client.auth.utils import extract_scope_from_www_auth
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
)
from pydantic import AnyUrl, ValidationError

from toolnexus import _workers
from toolnexus.sources.mcp import faults
from toolnexus.sources.mcp._callback import Callback, listening
from toolnexus.suspension import read_answer

if TYPE_CHECKING:
    from toolnexus.sources.mcp.config import MCPOAuth, MCPServer
    from toolnexus.sources.mcp.tokens import Tokens
    from toolnexus.suspension import Request, WaitFor
    from toolnexus.tools import JSONObject

_log = logging.getLogger("toolnexus")

_SIGNING_IN = 600.0
"""Seconds that a person has. What servers keep of a sign-in does not last much longer."""
_ASKING = 30.0
"""Seconds for one request to the issuer."""
_EARLY = 30.0
"""Seconds before its end that a token counts as expired."""
_MOST_SIGN_INS = 2
_AGAIN = 300.0
"""Seconds in which that many sign-ins for the same thing are enough: one more would not help either."""
_LONG_AGO = 1.0
"""A point in time at which any token has expired."""


class SignIn:
    """Gives a server's requests their token, and gets one when there is none.

    Args:
        wait_for: Shows a person where to sign in. None: the address is only in the server's status.
        client_metadata_url: Where a document about this program is. None: there is none.
        done: Called when a person has signed in.
    """

    def __init__(
        self,
        server: MCPServer,
        tokens: Tokens,
        done: Callable[[], object],
        *,
        wait_for: WaitFor | None,
        client_metadata_url: str | None,
    ) -> None:
        self._server = server
        self._tokens = tokens
        self._wait_for = wait_for
        self._client_metadata_url = client_metadata_url
        self._done = done
        self._lock = asyncio.Lock()
        self._token: str | None = None
        self._expires_at: float | None = None
        self._known: JSONObject | None = None
        self._loaded = False
        self._signed_in: dict[tuple[int, str], list[float]] = {}
        self._task: asyncio.Task[None] | None = None
        self._asked: asyncio.Future[str] | None = None
        self._given: asyncio.Future[str] | None = None

    async def prepare(self, request: httpx2.Request) -> None:
        """Add the token, if there is one; one that has expired is renewed first, if nobody is needed for that."""
        if not self._loaded or self._is_over():
            async with self._lock:
                if not self._loaded or self._is_over():
                    await self._load()
                if self._is_over():
                    await self._refresh(request)
        self._carry(request)

    async def renew(self, request: httpx2.Request, refusal: httpx2.Response) -> bool:
        """Get another token than the one that was refused. Many may ask; one is fetched.

        Raises:
            MCPServerError: Somebody has to sign in, or it failed.
        """
        async with self._lock:
            if self._token is None or request.headers.get("authorization") == f"Bearer {self._token}":
                await self._sign_in(request, refusal)
        self._carry(request)
        return True

    def give(self, address: str) -> bool:
        """Take the address that the browser came back to, from a person. False: nobody is waited for."""
        if self._given is None or self._given.done():
            return False
        self._given.set_result(address)
        return True

    async def aclose(self) -> None:
        """Wait for nobody any more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    def _carry(self, request: httpx2.Request) -> None:
        if self._token is not None:
            request.headers["Authorization"] = f"Bearer {self._token}"

    def _is_over(self) -> bool:
        return self._expires_at is not None and time.time() > self._expires_at - _EARLY

    async def _load(self) -> None:
        self._known = await _workers.run(self._tokens.find, self._server.url or "")
        self._loaded = True
        here = _here(self._known, self._server.url or "")
        token = _read(OAuthToken, here.get("tokens"))
        self._token = None if token is None else token.access_token
        self._expires_at = cast("float | None", here.get("expires_at")) if token else None

    async def _refresh(self, request: httpx2.Request) -> None:
        """Try to get a new token without anybody."""
        provider = self._provider(Callback("http://127.0.0.1/callback"), None)
        if not provider.context.can_refresh_token():
            return
        provider.context.token_expiry_time = _LONG_AGO
        with contextlib.suppress(httpx2.HTTPError, OAuthFlowError):
            await self._drive(provider, request, None)

    async def _sign_in(self, request: httpx2.Request, refusal: httpx2.Response) -> None:
        loop = asyncio.get_running_loop()
        if self._task is None or self._task.done():
            self._asked = loop.create_future()
            self._given = loop.create_future()
            # In a context of its own: it outlives the request that it began with.
            self._task = loop.create_task(self._flow(request, refusal), context=Context())
        assert self._asked is not None
        await asyncio.wait({self._task, self._asked}, return_when=asyncio.FIRST_COMPLETED)
        if self._task.done():
            self._task.result()
            return
        url = self._asked.result()
        raise faults.MCPServerError(
            self._server.name, "needs_auth", f"somebody has to sign in at {url}", executed=False, url=url
        )

    def _check_it_helps(self, refusal: httpx2.Response) -> None:
        """Raise if somebody signed in for the same thing again and again just now."""
        now = time.monotonic()
        before = [each for each in self._signed_in.get(_wanted(refusal), ()) if now - each < _AGAIN]
        if len(before) >= _MOST_SIGN_INS:
            scope = _wanted(refusal)[1]
            what = f"the scope {faults.shown(scope, self._server)}" if scope else "a sign-in"
            reason = (
                f"it wants {what} again, although somebody signed in for that {len(before)} times just now. "
                "Ask whoever runs it what this account may do."
            )
            raise faults.MCPServerError(
                self._server.name, "needs_auth", reason, executed=False, status=refusal.status_code
            )

    async def _flow(self, request: httpx2.Request, refusal: httpx2.Response) -> None:
        said = self._server.oauth or None
        # What an earlier sign-in left: its client, what it may do, how to renew it.
        self._known = await _workers.run(self._tokens.find, self._server.url or "")
        old = _uri_of(_here(self._known, self._server.url or ""))
        try:
            async with listening(said.redirect_uri if said else None, _port(said, old)) as callback:
                provider = self._provider(callback, refusal)
                if provider.context.can_refresh_token() and refusal.status_code == 401:
                    provider.context.token_expiry_time = _LONG_AGO
                if refusal.status_code == 403:
                    # Else the SDK does not look again for what the resource is called, which a sign-in has to name.
                    provider.context.oauth_metadata = None
                await self._drive(provider, request, refusal)
        except faults.MCPServerError:
            raise
        except (OAuthFlowError, httpx2.HTTPError, OSError, ValueError, TimeoutError) as error:
            reason = f"the sign-in failed: {faults.shown(str(error) or type(error).__name__, self._server)}"
            fault = faults.MCPServerError(self._server.name, "needs_auth", reason, executed=False)
            if self._asked is not None and self._asked.done():
                _log.warning("%s", fault)
                return
            raise fault from error
        if self._asked is not None and self._asked.done():
            self._signed_in.setdefault(_wanted(refusal), []).append(time.monotonic())
            self._done()

    async def _drive(self, provider: _Provider, request: httpx2.Request, refusal: httpx2.Response | None) -> None:
        """Run the SDK's flow up to the point where it has a token.

        Args:
            refusal: What the request was answered with. None: it was not sent.
        """
        copy = httpx2.Request(request.method, request.url, headers=dict(request.headers))
        before = self._token
        flow: AsyncGenerator[httpx2.Request, httpx2.Response] = provider.async_auth_flow(copy)
        timeout = httpx2.Timeout(_ASKING)
        async with httpx2.AsyncClient(timeout=timeout) as client, contextlib.aclosing(flow):
            outgoing = await anext(flow)
            while True:
                if outgoing is not copy:
                    response = await client.send(outgoing)
                elif refusal is None or _token_of(provider) not in (None, before):
                    break
                else:
                    response, refusal = refusal, None
                outgoing = await flow.asend(response)
        tokens = provider.context.current_tokens
        self._token = None if tokens is None else tokens.access_token
        self._expires_at = provider.context.token_expiry_time if tokens is not None else None

    def _provider(self, callback: Callback, refusal: httpx2.Response | None) -> _Provider:
        said = self._server.oauth or None
        url = self._server.url or ""
        scope = " ".join(said.scopes) if said and said.scopes else None
        metadata = OAuthClientMetadata(
            client_name="toolnexus",
            redirect_uris=[AnyUrl(callback.uri)],
            grant_types=["authorization_code", "refresh_token"],
            response_types=["code"],
            token_endpoint_auth_method="none",  # noqa: S106 - that is the name of having none
            scope=scope,
        )

        async def show(address: str) -> None:
            if refusal is not None:
                self._check_it_helps(refusal)
            if self._asked is not None and not self._asked.done():
                self._asked.set_result(address)

        async def answer() -> AuthorizationCodeResult:
            return await self._answer(callback)

        storage = _Storage(self._tokens, url)
        provider = _Provider(url, metadata, storage, show, answer, self._client_metadata_url)
        provider.wanted_scope = scope
        storage.provider = provider
        here = _here(self._known, url)
        context = provider.context
        storage.tokens = _read(OAuthToken, here.get("tokens"))
        storage.client = _client(said, callback.uri) or _read(OAuthClientInformationFull, here.get("client"))
        # One that was registered for another address than where we listen now cannot be used for a new sign-in.
        registered = storage.client.redirect_uris if storage.client else None
        if storage.tokens is None and registered and callback.uri not in map(str, registered) and said is None:
            storage.client = None
        context.current_tokens = storage.tokens
        context.client_info = storage.client
        context.oauth_metadata = _read(OAuthMetadata, (self._known or {}).get("metadata"))
        context.token_expiry_time = cast("float | None", here.get("expires_at"))
        provider.has_secret = bool(said and said.client_id and said.client_secret)
        provider.loaded()
        return provider

    async def _answer(self, callback: Callback) -> AuthorizationCodeResult:
        """What the browser came back with: to us, or told by a person."""
        assert self._asked is not None
        assert self._given is not None
        url = self._asked.result()
        asking = asyncio.ensure_future(self._ask(url, callback.uri))
        waiting: set[asyncio.Future[Any]] = {callback.arrived, self._given, asking}
        try:
            async with asyncio.timeout(_SIGNING_IN):
                while True:
                    done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                    for each in done:
                        if (address := each.result()) is not None:
                            return _result(address)
                    waiting -= done
        except TimeoutError:
            raise OAuthFlowError(f"nobody signed in within {_SIGNING_IN:g} s") from None
        finally:
            asking.cancel()

    async def _ask(self, url: str, redirect_uri: str) -> str | None:
        """Ask a person. None: the browser will come to us, or nobody is there to ask."""
        if self._wait_for is None:
            return None
        request: Request = {
            "id": f"mcp.{secrets.token_hex(8)}",
            "kind": "authorization",
            "prompt": f"Sign in to the MCP server {self._server.name}.",
            "url": url,
            "data": {"server": self._server.name, "redirect_uri": redirect_uri},
        }
        answer = self._wait_for(request)
        if inspect.isawaitable(answer):
            answer = await answer
        if answer is None:
            return None
        said = read_answer(answer, "the answer of wait_for")
        if not said["ok"]:
            raise OAuthFlowError(f"it was declined: {said.get('reason') or 'no reason was given'}")
        data: Any = said.get("data")
        address = cast("JSONObject", data).get("url") if isinstance(data, dict) else data
        return address if isinstance(address, str) else None


class _Provider(OAuthClientProvider):
    """The SDK's flow, with the scopes and the client of the configuration."""

    wanted_scope: str | None = None
    has_secret = False
    """Whether the client is the configuration's, with a secret."""

    def loaded(self) -> None:
        """What is stored has been put in place."""
        self._initialized = True
        self._choose_method()

    async def _initialize(self) -> None:
        self._initialized = True

    async def _perform_authorization_code_grant(self) -> tuple[str, str]:
        if self.wanted_scope is not None:
            self.context.client_metadata.scope = self.wanted_scope
        self._choose_method()
        return await super()._perform_authorization_code_grant()

    def _choose_method(self) -> None:
        """Send the secret as the issuer takes it: in the header, which each has to know, unless it says otherwise."""
        client, metadata = self.context.client_info, self.context.oauth_metadata
        if client is not None and self.has_secret:
            methods = metadata.token_endpoint_auth_methods_supported if metadata else None
            by_header = not methods or "client_secret_basic" in methods or "client_secret_post" not in methods
            client.token_endpoint_auth_method = "client_secret_basic" if by_header else "client_secret_post"


class _Storage:
    """Where the SDK's provider puts what it gets."""

    def __init__(self, tokens: Tokens, url: str) -> None:
        self._kept = tokens
        self._url = url
        self.provider: _Provider | None = None
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens
        await self._keep()

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info
        await self._keep()

    async def _keep(self) -> None:
        assert self.provider is not None
        context = self.provider.context
        metadata = context.oauth_metadata
        issuer = str(metadata.issuer) if metadata else context.auth_server_url or self._url
        client = context.client_info or self.client
        await _workers.run(
            self._kept.keep,
            issuer,
            self._url,
            client=_plain(client),
            metadata=_plain(metadata),
            tokens=_plain(self.tokens),
            expires_at=context.token_expiry_time if self.tokens is not None else None,
        )


def _plain(model: Any) -> Any:
    return None if model is None else model.model_dump(mode="json", by_alias=True, exclude_none=True)


def _read(model: Any, value: Any) -> Any:
    """What was kept. None: it is missing, or not what it should be."""
    if not isinstance(value, dict):
        return None
    try:
        return model.model_validate(value)
    except ValidationError:
        return None


def _here(known: JSONObject | None, url: str) -> JSONObject:
    servers: Any = (known or {}).get("servers")
    here = cast("JSONObject", servers).get(url) if isinstance(servers, dict) else None
    return cast("JSONObject", here) if isinstance(here, dict) else {}


def _client(said: MCPOAuth | None, uri: str) -> OAuthClientInformationFull | None:
    """The client that the configuration names."""
    if said is None or said.client_id is None:
        return None
    return OAuthClientInformationFull(
        client_id=said.client_id,
        client_secret=said.client_secret,
        redirect_uris=[AnyUrl(uri)],
        token_endpoint_auth_method="client_secret_basic" if said.client_secret else "none",
    )


def _wanted(refusal: httpx2.Response) -> tuple[int, str]:
    """What a refusal is about: its status, and the scopes that it names."""
    return refusal.status_code, " ".join(sorted((extract_scope_from_www_auth(refusal) or "").split()))


def _uri_of(here: JSONObject) -> str | None:
    """The address that the client was registered for."""
    client: Any = here.get("client")
    uris: Any = cast("JSONObject", client).get("redirect_uris") if isinstance(client, dict) else None
    return str(cast("list[Any]", uris)[0]) if isinstance(uris, list) and uris else None


def _port(said: MCPOAuth | None, old: str | None) -> int | None:
    if said is not None and said.callback_port is not None:
        return said.callback_port
    return None if old is None else urlsplit(old).port


def _token_of(provider: _Provider) -> str | None:
    tokens = provider.context.current_tokens
    return None if tokens is None else tokens.access_token


def _result(address: str) -> AuthorizationCodeResult:
    query = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
    if "code" not in query:
        why = query.get("error_description") or query.get("error") or "the address holds no code"
        raise OAuthFlowError(f"it was refused: {why}")
    return AuthorizationCodeResult(code=query["code"], state=query.get("state"), iss=query.get("iss"))
