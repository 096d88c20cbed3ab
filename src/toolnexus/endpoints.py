"""What can be known of an endpoint without asking a model: its address, its key's variable, the models it lists."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote, urlsplit

from toolnexus import _json
from toolnexus._endpoint import Endpoint, is_local, key_variable, resolve
from toolnexus._provider_rows import provider_from
from toolnexus.dialects.faults import fault
from toolnexus.errors import ConfigurationError, ConnectionFailed, InvalidReply, ProviderError
from toolnexus.providers import PROVIDERS, Provider
from toolnexus.transport import Limits

if TYPE_CHECKING:
    from toolnexus.transport import Response

__all__ = ["EndpointInfo", "endpoint_of", "is_local", "key_variable", "provider_from"]

_MOST_PAGES = 20
_LIMITS = Limits(connect=5.0, first_byte=30.0, silence=30.0, reply_bytes=16 * 1024 * 1024)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointInfo:
    """An endpoint as it would be asked. Its repr shows no secret.

    Attributes:
        provider: Its row of the provider table. One without a name: the host has none.
        url: Where requests go, without their query.
        model: The model that would be asked.
        key_variable: The environment variable that its key is taken from. None: it has no key, or the caller gave one.
        has_key: Whether requests carry one.
        lists_models: Whether it is known where its models are listed.
    """

    provider: Provider
    url: str
    model: str
    key_variable: str | None
    has_key: bool
    lists_models: bool
    _endpoint: Endpoint = field(repr=False)

    @property
    def is_local(self) -> bool:
        """Whether it is on this machine."""
        return is_local(self.url)

    async def models(self, *, timeout: float) -> list[str]:
        """The ids of the models that it lists, in its order. Those that only do other things than answer are left out
        where the list says so.

        Args:
            timeout: Seconds for all of it.

        Raises:
            ConfigurationError: It is not known where they are listed.
            ProviderError: It refused, as for a wrong key (`kind` is `auth`).
            ConnectionFailed: It did not answer.
            InvalidReply: The answer is no list of models.
        """
        url = self._endpoint.models_url
        if url is None:
            raise ConfigurationError(f"It is not known where {self.provider.name or self.url} lists its models.")
        found: dict[str, None] = {}
        more = ""
        for _ in range(_MOST_PAGES):
            page = self._read(await self._get(f"{url}{_joint(url)}{more}" if more else url, self._endpoint, timeout))
            found.update(dict.fromkeys(_ids(page)))
            more = _rest(page)
            if not more:
                break
        return list(found)

    async def is_up(self, *, timeout: float) -> bool:
        """Whether the server says that it is up, where it is known how to ask without a key.

        Raises:
            ConnectionFailed: It did not answer.
        """
        url = self._endpoint.probe_url
        if url is None:
            return True
        status = (await self._get(url, None, timeout)).status
        return status < 300 or status == 404  # there is nothing to ask at: another program in this server's place

    async def _get(self, url: str, sender: Endpoint | None, timeout: float) -> Response:
        from toolnexus.transport.http import HTTPTransport

        transport = HTTPTransport()
        try:
            async with asyncio.timeout(timeout):
                headers = dict(sender.headers) if sender else {}
                headers.pop("content-type", None)
                return await transport.get(url, headers=headers, limits=_LIMITS)
        except TimeoutError:
            host = urlsplit(url).netloc
            raise ConnectionFailed(
                f"{host} did not answer within {timeout:g} s.", request_sent=True, kind="timeout"
            ) from None
        finally:
            await transport.aclose()

    def _read(self, answer: Response) -> dict[str, Any]:
        error = fault(answer.status, answer.headers, answer.body, now=time.time())
        if error is not None:
            said = self._endpoint.redact(str(error))
            if error.kind == "auth":
                said = f"{said} {self._endpoint.whose_key}"
            raise ProviderError(said, kind=error.kind, status=error.status)
        try:
            page: Any = _json.loads(answer.body)
        except ValueError:
            page = None
        if isinstance(page, list):
            return {"data": page}
        if not isinstance(page, dict) or not isinstance(_entries(cast("dict[str, Any]", page)), list):
            raise InvalidReply(f"What {urlsplit(self.url).netloc} sent is no list of models.")
        return cast("dict[str, Any]", page)


def endpoint_of(
    model: str | None,
    *,
    base_url: str | None = None,
    style: str | None = None,
    api_key: str | None = None,
    providers: Mapping[str, Provider] | None = None,
    environ: Mapping[str, str],
    key_required: bool = True,
) -> EndpointInfo:
    """The endpoint that these options of `create_client` mean. Nothing is sent.

    Args:
        providers: Further rows of the provider table by name.
        environ: What keys and addresses are taken from.
        key_required: Whether a missing key is an error where the provider wants one.

    Raises:
        ConfigurationError: As for `create_client`.
    """
    rows = {**PROVIDERS, **(providers or {})}
    endpoint = resolve(
        model,
        base_url=base_url,
        style=style,
        api_key=api_key,
        environ=environ,
        key_required=key_required,
        providers=rows,
    )
    row = endpoint.target.provider
    variable = key_variable(row, environ) if api_key is None else None
    return EndpointInfo(
        provider=row,
        url=endpoint.shown_url,
        model=endpoint.model,
        key_variable=variable,
        has_key=bool(api_key or variable),
        lists_models=endpoint.models_url is not None,
        _endpoint=endpoint,
    )


def _joint(url: str) -> str:
    return "&" if "?" in url else "?"


def _entries(page: dict[str, Any]) -> Any:
    """The list in a page: `models` is what Gemini calls it, `data` everybody else."""
    return page.get("data", page.get("models"))


def _ids(page: dict[str, Any]) -> Iterator[str]:
    for entry in cast("list[Any]", _entries(page)):
        row = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}
        name = row.get("id", row.get("name"))
        methods = row.get("supportedGenerationMethods")
        if isinstance(name, str) and name and (not isinstance(methods, list) or "generateContent" in methods):
            yield name.removeprefix("models/")


def _rest(page: dict[str, Any]) -> str:
    """The query that asks for the next page. Empty: this is the last."""
    token, last = page.get("nextPageToken"), page.get("last_id")
    if isinstance(token, str) and token:
        return f"pageToken={quote(token, safe='')}"
    if page.get("has_more") is True and isinstance(last, str) and last:
        return f"after_id={quote(last, safe='')}"
    return ""
