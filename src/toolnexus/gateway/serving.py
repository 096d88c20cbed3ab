"""Serves a toolkit to MCP clients: `serve_mcp`."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from toolnexus.errors import ConfigurationError

if TYPE_CHECKING:
    from toolnexus.gateway import OnCall, Upstream
    from toolnexus.gateway.server import Gateway
    from toolnexus.sources.skills.collection import Skills
    from toolnexus.toolkit import Toolkit

Transport = Literal["stdio", "http"]


async def serve_mcp(
    toolkit: Toolkit,
    transport: Transport = "stdio",
    *,
    host: str = "127.0.0.1",
    port: int = 8765,
    path: str = "/mcp",
    token: str | None = None,
    allowed_hosts: Iterable[str] = (),
    allowed_origins: Iterable[str] = (),
    skills: Skills | None = None,
    upstreams: Sequence[Upstream] | None = None,
    name: str = "toolnexus",
    version: str | None = None,
    instructions: str | None = None,
    on_call: OnCall | None = None,
    with_arguments: bool = False,
    client_approves: bool = False,
    on_ready: Callable[[str], Any] | None = None,
    grace: float = 5.0,
) -> None:
    """Serve a toolkit as an MCP server, until the client leaves (`stdio`) or the task is cancelled.

    In the main thread Ctrl-C and SIGTERM end it as well: running calls have `grace` seconds, and nothing is raised.

    Args:
        toolkit: Its tools are served. It is not closed.
        transport: `stdio` for a client that starts this process, such as Claude Desktop; `http` for streamable HTTP.
        host: The address to listen on. Any but loopback needs a token.
        port: 0: any that is free.
        path: Where the endpoint is.
        token: What every HTTP request has to carry as `Authorization: Bearer …`. None: nothing.
        allowed_hosts: Hosts that may stand in `Host` beside those of loopback.
        allowed_origins: Origins of web pages that may use it, beside those of loopback.
        skills: Served as resources. None: those of the toolkit.
        upstreams: What has resources and prompts to be passed on. None: the MCP servers of the toolkit.
        name: What the server is called.
        version: Its version. None: this library's.
        instructions: What clients may tell their model about it.
        on_call: Is told of every call, as a `ServedCall`.
        with_arguments: Whether it is told what a tool was called with.
        client_approves: Whether the client asks its person before each call: then a tool that needs approval runs at
            once. Otherwise the client's person is asked, if the client can be asked, or the call fails.
        on_ready: Is told the URL once it is listened on (`http`).
        grace: Seconds that running calls have to end.

    Raises:
        MissingExtra: The MCP SDK is not installed.
        ConfigurationError: The address cannot be listened on, or an option cannot be meant.
    """
    from toolnexus.gateway.server import Gateway

    if transport not in ("stdio", "http"):
        raise ConfigurationError(f"The transport is {transport!r:.100}; choose 'stdio' or 'http'.")
    gateway = Gateway(
        toolkit,
        skills=toolkit.skills if skills is None else skills,
        upstreams=_servers_of(toolkit) if upstreams is None else upstreams,
        name=name,
        version=version,
        instructions=instructions,
        on_call=on_call,
        with_arguments=with_arguments,
        client_approves=client_approves,
    )
    if transport == "stdio":
        from toolnexus.gateway.stdio import serve_standard

        await _until_signal(gateway, serve_standard(gateway, grace=grace), grace)
        return
    from toolnexus.gateway.http import HTTPOptions, listening, options_of

    options = HTTPOptions(
        host=host,
        port=port,
        path=path,
        token=token,
        allowed_hosts=options_of(allowed_hosts),
        allowed_origins=options_of(allowed_origins),
        grace=grace,
    )
    with _signalled() as stop:
        async with listening(gateway, options) as url:
            if on_ready is not None:
                on_ready(url)
            await stop.wait()


def _servers_of(toolkit: Toolkit) -> list[Upstream]:
    from toolnexus.gateway.upstreams import ServerBehind

    found: list[Upstream] = []
    for status in toolkit.mcp_status():
        with contextlib.suppress(ConfigurationError):  # one that is switched off, or wrong
            found.append(ServerBehind(toolkit.mcp(status.name)))
    return found


async def _until_signal(gateway: Gateway, serving: Awaitable[None], grace: float) -> None:
    """Serve until it is over, or a signal arrives and the running calls have ended."""
    with _signalled() as stop:
        task = asyncio.ensure_future(serving)
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                await gateway.idle(grace)
        finally:
            stopping.cancel()
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


@contextmanager
def _signalled() -> Generator[asyncio.Event]:
    """An event that Ctrl-C and SIGTERM set, where they can be caught."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    caught: list[int] = []
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
                loop.add_signal_handler(number, stop.set)
                caught.append(number)
    try:
        yield stop
    finally:
        for number in caught:
            loop.remove_signal_handler(number)
