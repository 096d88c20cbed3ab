"""The seam to the network: one attempt at one request, no policy."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from toolnexus._checks import at_least


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long one request may wait, and how much it may bring.

    Attributes:
        connect: Seconds to connect, TLS included.
        first_byte: Seconds until the status line of the answer.
        silence: Seconds between two reads of the answer.
        reply_bytes: Size of one answer, streamed or whole.
    """

    connect: float = 10.0
    first_byte: float = 600.0
    silence: float = 120.0
    reply_bytes: int = 256 * 1024 * 1024

    def __post_init__(self) -> None:
        for name in ("connect", "first_byte", "silence"):
            at_least(name, getattr(self, name), 0)
        at_least("reply_bytes", self.reply_bytes, 1, whole=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """A whole answer. Header names are lower-case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class StreamedResponse(Protocol):
    """An answer whose body is read as it arrives. Header names are lower-case."""

    status: int
    headers: Mapping[str, str]

    def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives; not asking for the next chunk slows the sender.

        Raises:
            ConnectionFailed: The connection broke or fell silent.
            InvalidReply: The answer is larger than `Limits.reply_bytes`.
        """
        ...


class Transport(Protocol):
    """Opens connections to models. Give your own for proxies, client certificates, recording or tests.

    A transport follows no redirect, adds no credential and makes one attempt. Errors do not show headers or bodies.
    """

    async def post(self, url: str, *, headers: Mapping[str, str], body: bytes, limits: Limits) -> Response:
        """Send a request and read the whole answer, whatever its status.

        Raises:
            ConnectionFailed: No whole answer came.
            InvalidReply: The answer is larger than `limits.reply_bytes`.
        """
        ...

    def stream(
        self, url: str, *, headers: Mapping[str, str], body: bytes, limits: Limits
    ) -> AbstractAsyncContextManager[StreamedResponse]:
        """Send a request and give the answer as soon as its headers are there. Leaving closes the socket at once,
        unless the body was read to its end.

        Raises:
            ConnectionFailed: No answer came.
        """
        ...

    async def aclose(self) -> None:
        """Close what is open. May be called more than once."""
        ...
