"""What an entry says of OAuth, in the words of every program. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

from toolnexus.sources.mcp.config import MCPOAuth

if TYPE_CHECKING:
    from toolnexus.sources.mcp._values import Values

KEYS = ("oauth", "auth", "scopes", "oauth_resource")

_TEXTS = {
    "clientid": "client_id",
    "clientsecret": "client_secret",
    "redirecturi": "redirect_uri",
    "resource": "resource",
    "authorizationurl": "authorization_url",
    "tokenurl": "token_url",
    "authservermetadataurl": "auth_server_metadata_url",
}
"""Names of fields in small letters without _, and what they are here."""


def oauth(values: Values) -> MCPOAuth | Literal[False] | None:
    """What an entry says of OAuth. False: it is not to be used. None: nothing is said.

    Raises:
        Refused: It cannot be used.
        Unresolved: A variable in it is not set.
    """
    key = "auth" if values.given.get("oauth") is None else "oauth"
    given = values.given.get(key)
    beside = {"scopes": values.given.get("scopes"), "resource": values.given.get("oauth_resource")}
    fields: Mapping[str, object] = {name: value for name, value in beside.items() if value is not None}
    if isinstance(given, Mapping):
        fields = {**fields, **cast("Mapping[str, object]", given)}
    elif given is not None and not isinstance(given, bool) and key == "oauth":
        raise values.invalid(key, "an object, or false")
    if given is False or fields.get("enabled") is False:
        return False
    return _read(values, key, fields) if fields else None


def _read(values: Values, key: str, fields: Mapping[str, object]) -> MCPOAuth:
    read: dict[str, Any] = {}
    for name, value in fields.items():
        plain = name.replace("_", "").lower()
        if value is None or plain == "enabled":
            continue
        if plain in {"scope", "scopes"}:
            read["scopes"] = _scopes(values, key, value)
        elif plain == "callbackport":
            if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 1 << 16:
                raise values.invalid(f"{name} in {key}", "a whole number from 1 to 65535")
            read["callback_port"] = value
        elif plain in _TEXTS:
            if not isinstance(value, str):
                raise values.invalid(f"{name} in {key}", "a text")
            read[_TEXTS[plain]] = values.variables.expanded(value)
        else:
            values.warn(key, f"{name} in it is not known here.")
    return MCPOAuth(**read)


def _scopes(values: Values, key: str, given: object) -> tuple[str, ...]:
    scopes = given.split() if isinstance(given, str) else given
    if not isinstance(scopes, list | tuple):
        raise values.invalid(f"the scopes in {key}", "a list of texts")
    texts = [each for each in cast("Sequence[object]", scopes) if isinstance(each, str)]
    if len(texts) < len(cast("Sequence[object]", scopes)):
        raise values.invalid(f"the scopes in {key}", "a list of texts")
    return tuple(values.variables.expanded(each) for each in texts)
