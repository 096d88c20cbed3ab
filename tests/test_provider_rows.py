"""Rows of the provider table that a user writes: what they can say, and what nobody else can say for them."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from toolnexus import ConfigurationError, ConnectionFailed, MissingKey, create_client
from toolnexus._endpoint import Endpoint, resolve
from toolnexus._provider_rows import provider_from, table
from toolnexus.providers import PROVIDERS, Provider
from toolnexus.testing import ScriptedTransport, openai_reply

CANARY = "sk-canary-in-a-header"
EVERYTHING: dict[str, Any] = {
    "base_url": "https://llm.corp.test/v2",
    "style_urls": {"anthropic": "https://llm.corp.test/claude"},
    "url_fields": {},
    "styles": ["openai", "anthropic"],
    "keys": ["CORP_KEY", "CORP_TOKEN"],
    "base_url_variable": "CORP_URL",
    "auth": "api-key",
    "style_auth": {"anthropic": "x-api-key"},
    "bearer_keys": ["CORP_TOKEN"],
    "key_required": False,
    "headers": {"X-Team": "blue"},
    "header_variables": {"X-Project": "CORP_PROJECT"},
    "max_tokens_field": "max_completion_tokens",
    "default_max_tokens": 4096,
    "call_id_form": "[a-z]{5}",
    "schema_mode": "prompt",
    "parts": ["text", "image_url"],
    "takes_stream_options": False,
    "refuses_reasoning": True,
    "wants_reasoning": True,
    "tells_cost": True,
    "models_path": "/all-models",
    "probe": "/up",
    "lists_instead": "aliases",
    "local": True,
    "start": "corpd",
    "get_model": "corpd get {model}",
    "note": "Ask the platform team.",
}


def found(model: str, rows: dict[str, Any], **options: Any) -> Endpoint:
    return resolve(model, **{"environ": {}, "providers": table(rows), **options})


def refused(name: str = "corp", *, trusted: bool = True, **given: Any) -> str:
    with pytest.raises(ConfigurationError) as caught:
        provider_from(name, given, trusted=trusted)
    return str(caught.value)


def test_every_field_of_a_row_can_be_written_as_data() -> None:
    assert set(EVERYTHING) == {field.name for field in fields(Provider)} - {"name"}
    row = provider_from("corp", EVERYTHING, trusted=True)
    assert row == Provider(
        **{
            **EVERYTHING,
            "name": "corp",
            "styles": ("openai", "anthropic"),
            "keys": ("CORP_KEY", "CORP_TOKEN"),
            "bearer_keys": ("CORP_TOKEN",),
            "headers": {"x-team": "blue"},
            "header_variables": {"x-project": "CORP_PROJECT"},
            "parts": frozenset({"text", "image_url"}),
        }
    )


def test_a_new_row_wants_a_key_if_it_names_one() -> None:
    url = "https://llm.corp.test/v1"
    assert not provider_from("corp", {"base_url": url}, trusted=True).key_required
    assert provider_from("corp", {"base_url": url, "keys": ["K"]}, trusted=True).key_required


def test_a_row_with_a_built_in_name_is_that_row_with_other_values() -> None:
    row = provider_from("anthropic", {"headers": {"anthropic-version": "2026-10-21"}}, trusted=True)
    assert row.headers == {"anthropic-version": "2026-10-21"}
    assert (row.keys, row.auth, row.key_required) == (PROVIDERS["anthropic"].keys, "x-api-key", True)


@pytest.mark.parametrize("trusted", [True, False])
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, ["base_url", "missing"]),
        ({"base_url": 7}, ["base_url", "'corp'", "7", "a text"]),
        ({"baseurl": "https://x.test"}, ["'baseurl'", "Did you mean 'base_url'?"]),
        ({"base_url": "x.test"}, ["base URL", "https://"]),
        ({"base_url": "https://user:secret@x.test"}, ["user name or password"]),
        ({"base_url": "https://x.test", "styles": "openai"}, ["styles", "'openai'", "a list of texts"]),
        ({"base_url": "https://x.test", "styles": []}, ["styles", "empty"]),
        ({"base_url": "https://x.test", "styles": ["opneai"]}, ["'opneai'", "Did you mean 'openai'?"]),
        ({"base_url": "https://x.test", "auth": "basic"}, ["auth", "'basic'", "bearer, x-api-key"]),
        ({"base_url": "https://x.test", "schema_mode": "magic"}, ["schema_mode", "native, tool, prompt"]),
        ({"base_url": "https://x.test", "style_auth": {"openai": 1}}, ["style_auth", "dict"]),
        ({"base_url": "https://x.test", "default_max_tokens": True}, ["default_max_tokens", "True", "whole number"]),
        ({"base_url": "https://x.test", "default_max_tokens": 0}, ["default_max_tokens", "0"]),
        ({"base_url": "https://x.test", "local": "yes"}, ["local", "'yes'", "true or false"]),
        ({"base_url": "https://x.test", "call_id_form": "("}, ["call_id_form", "regular expression"]),
        ({"base_url": "https://x.test", "models_path": "models"}, ["models_path", "begins with /"]),
        ({"base_url": "https://x.test", "headers": [CANARY]}, ["headers", "list"]),
        ({"base_url": "https://x.test", "headers": CANARY}, ["headers", "str"]),
    ],
)
def test_a_field_that_cannot_be_used_is_named_with_what_it_has_to_be(
    given: dict[str, Any], said: list[str], trusted: bool
) -> None:
    message = refused(trusted=trusted, **given)
    assert all(each in message for each in said), message
    assert "canary" not in message
    assert "secret" not in message


@pytest.mark.parametrize("name", ["", "my corp", "a:b", "http://x", "-a"])
def test_a_name_that_could_not_stand_before_a_model_is_refused(name: str) -> None:
    assert repr(name) in refused(name, base_url="https://x.test")


def test_a_bearer_key_is_one_of_the_keys() -> None:
    assert "'OTHER'" in refused(base_url="https://x.test", keys=["K"], bearer_keys=["OTHER"])


# Whose rows may say what


@pytest.mark.parametrize("name", ["corp", "openai"])
@pytest.mark.parametrize(
    "leak",
    [
        {"keys": ["OPENAI_API_KEY"]},
        {"keys": ["AWS_SECRET_ACCESS_KEY"]},
        {"keys": ["K"], "bearer_keys": ["K"]},
        {"base_url": "https://{x}.evil.test", "url_fields": {"x": "GITHUB_TOKEN"}},
        {"base_url_variable": "GITHUB_TOKEN"},
        {"header_variables": {"x-token": "GITHUB_TOKEN"}},
    ],
)
def test_a_project_sends_no_environment_variable_anywhere(name: str, leak: dict[str, Any]) -> None:
    given = {"base_url": "https://evil.test", **leak}
    message = refused(name, trusted=False, **given)
    assert "your own configuration file" in message
    assert "canary" not in message


@pytest.mark.parametrize(
    "change",
    [
        {"base_url": "https://evil.test"},
        {"style_urls": {"openai": "https://evil.test"}},
        {"styles": ["openai"]},
        {"headers": {"authorization": f"Bearer {CANARY}"}},
        {"auth": "api-key"},
        {"key_required": False},
        {"models_path": "/x"},
    ],
)
def test_a_project_cannot_move_a_built_in_provider(change: dict[str, Any]) -> None:
    message = refused("openai", trusted=False, **change)
    assert next(iter(change)) in message
    assert "canary" not in message


def test_a_project_may_add_a_provider_and_tune_a_built_in_one() -> None:
    assert provider_from("corp", {"base_url": "http://localhost:9000/v1"}, trusted=False).base_url
    assert provider_from("openai", {"schema_mode": "tool"}, trusted=False).schema_mode == "tool"


def test_a_projects_row_at_the_host_of_a_built_in_one_gets_no_key() -> None:
    row = provider_from("corp", {"base_url": "https://api.openai.com/v1"}, trusted=False)
    for model, base_url in (("corp:m", None), ("m", "https://api.openai.com/v1")):
        endpoint = found(model, {"corp": row}, base_url=base_url, environ={"OPENAI_API_KEY": CANARY})
        assert endpoint.target.provider.name == "corp"
        assert CANARY not in "".join(endpoint.headers.values())


def test_a_key_goes_to_the_host_of_the_row_that_names_it_and_nowhere_else() -> None:
    rows = {"corp": {"base_url": "https://llm.corp.test/v1", "keys": ["CORP_KEY"]}}
    environ = {"CORP_KEY": "key-of-corp", "OPENAI_API_KEY": "key-of-openai"}
    corp = found("corp:m", rows, environ=environ)
    assert corp.headers["authorization"] == "Bearer key-of-corp"
    assert found("m", rows, base_url="https://llm.corp.test/v1", environ=environ).headers == corp.headers
    assert found("openai:m", rows, environ=environ).headers["authorization"] == "Bearer key-of-openai"
    assert "authorization" not in found("m", rows, base_url="https://other.corp.test/v1", environ=environ).headers


def test_headers_of_a_users_row_stay_at_its_host() -> None:
    rows = {"anthropic": {"headers": {"anthropic-version": "2026-10-21", "x-gateway-token": CANARY}}}
    other = found("m", rows, base_url="https://gw.test", style="anthropic")
    assert other.headers["anthropic-version"] == "2023-06-01"
    assert CANARY not in "".join(other.headers.values())


def test_the_row_that_was_given_counts_where_two_have_one_host() -> None:
    rows = {"corp": {"base_url": "http://localhost:11434/v1", "max_tokens_field": "max_completion_tokens"}}
    assert found("m", rows, base_url="http://127.0.0.1:11434/v1").target.provider.name == "corp"
    assert found("ollama:m", rows).target.provider.name == "ollama"


# Through the client


async def test_a_client_knows_the_rows_that_it_was_given_and_no_other_client_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CORP_KEY", "key-of-corp")
    transport = ScriptedTransport(openai_reply("Hi."), openai_reply("Ho."))
    row: dict[str, Any] = {"base_url": "https://llm.corp.test/v2", "keys": ["CORP_KEY"], "auth": "api-key"}
    whole = Provider(base_url="https://llm.other.test", key_required=False, max_tokens_field="max_completion_tokens")
    options: dict[str, Any] = {"providers": {"corp": row, "other": whole}, "transport": transport}
    async with create_client("corp:m", **options) as client:
        assert (await client.run("Hi")).text == "Hi."
    async with create_client("other:m", **options) as client:
        assert (await client.run("Hi", max_tokens=5)).text == "Ho."
    first, second = transport.requests
    assert (first.url, first.headers["api-key"]) == ("https://llm.corp.test/v2/chat/completions", "key-of-corp")
    assert (second.url, second.json["max_completion_tokens"]) == ("https://llm.other.test/chat/completions", 5)
    with pytest.raises(ConfigurationError, match="There is no provider 'corp'"):
        create_client("corp:m")
    assert "corp" not in PROVIDERS


async def test_a_fallback_may_be_at_a_row_of_the_user() -> None:
    rows: dict[str, Any] = {"corp": {"base_url": "http://localhost:9000"}}
    transport = ScriptedTransport(ConnectionFailed("Nobody listens.", request_sent=False), openai_reply("From corp."))
    async with create_client(
        "ollama:m", fallbacks=["corp:n"], providers=rows, transport=transport, retries=0
    ) as client:
        assert (await client.run("Hi")).text == "From corp."


def test_what_is_no_row_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="'corp' is of the type str"):
        create_client("corp:m", providers={"corp": "https://llm.corp.test"})  # type: ignore[dict-item] - what is tested


def test_a_row_that_wants_a_key_but_names_none_asks_for_the_argument() -> None:
    with pytest.raises(MissingKey, match=r"Give api_key=\.$"):
        found("corp:m", {"corp": Provider(base_url="https://x.test")})
