"""What a model's name and a client's options mean: where requests go, and with what credentials."""

from __future__ import annotations

import base64
import dataclasses
import json
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolnexus._endpoint import ENDINGS, Endpoint, provider_for, resolve
from toolnexus.dialects import DIALECTS, dialect
from toolnexus.errors import ConfigurationError, MissingKey, NoModelConfigured
from toolnexus.providers import PROVIDERS, UNKNOWN, Provider

CANARY = "sk-canary-5f/1c+9e=="
EVERY_KEY = {key: f"key-of-{row.name}-{key}" for row in PROVIDERS.values() for key in row.keys}


def found(model: str | None = "m", **options: Any) -> Endpoint:
    return resolve(model, **{"environ": {}, **options})


def refused(model: str | None = "m", **options: Any) -> str:
    with pytest.raises(ConfigurationError) as caught:
        found(model, **options)
    return str(caught.value)


# Which URL is called


@pytest.mark.parametrize(
    ("style", "base_url", "url"),
    [
        ("openai", "http://127.0.0.1:11434/v1", "http://127.0.0.1:11434/v1/chat/completions"),
        ("openai", "http://127.0.0.1:11434/v1/", "http://127.0.0.1:11434/v1/chat/completions"),
        ("openai", "http://127.0.0.1:11434", "http://127.0.0.1:11434/v1/chat/completions"),
        ("openai", "https://openrouter.ai/api/v1", "https://openrouter.ai/api/v1/chat/completions"),
        ("openai", "https://openrouter.ai", "https://openrouter.ai/api/v1/chat/completions"),
        ("openai", "https://api.deepseek.com", "https://api.deepseek.com/chat/completions"),
        ("openai", "https://gw.example.test", "https://gw.example.test/v1/chat/completions"),
        ("openai", "https://gw.example.test/", "https://gw.example.test/v1/chat/completions"),
        ("openai", "https://gw.example.test/v1/chat/completions", "https://gw.example.test/v1/chat/completions"),
        ("openai", "https://gw.example.test/v1/chat/completions/", "https://gw.example.test/v1/chat/completions"),
        ("openai", "https://gw.example.test//v1//", "https://gw.example.test/v1/chat/completions"),
        ("openai", "https://gw.example.test/llm", "https://gw.example.test/llm/chat/completions"),
        (
            "openai",
            "https://gw.example.test?api-version=2",
            "https://gw.example.test/v1/chat/completions?api-version=2",
        ),
        (
            "openai",
            "https://gw.example.test/llm/v1?api-version=2",
            "https://gw.example.test/llm/v1/chat/completions?api-version=2",
        ),
        ("openai", "https://GW.Example.Test/LLM", "https://gw.example.test/LLM/chat/completions"),
        ("openai", " https://gw.example.test/v1\n", "https://gw.example.test/v1/chat/completions"),
        ("openai", "http://[::1]:8080/v1", "http://[::1]:8080/v1/chat/completions"),
        ("anthropic", "https://api.anthropic.com", "https://api.anthropic.com/v1/messages"),
        ("anthropic", "https://api.anthropic.com/", "https://api.anthropic.com/v1/messages"),
        ("anthropic", "https://api.anthropic.com/v1", "https://api.anthropic.com/v1/messages"),
        ("anthropic", "https://api.anthropic.com/v1/messages", "https://api.anthropic.com/v1/messages"),
        ("anthropic", "https://gw.example.test", "https://gw.example.test/v1/messages"),
        ("anthropic", "https://gw.example.test/anthropic", "https://gw.example.test/anthropic/v1/messages"),
        ("anthropic", "http://localhost:11434", "http://localhost:11434/v1/messages"),
    ],
)
def test_a_base_url_may_be_given_in_any_form_that_documentation_has(style: str, base_url: str, url: str) -> None:
    assert found(style=style, base_url=base_url, api_key="k").url == url


SEGMENT = st.text("abcXYZ019-_.", min_size=1, max_size=5)


GEMINI = "https://generativelanguage.googleapis.com"


@pytest.mark.parametrize(
    ("base_url", "url"),
    [
        (GEMINI, f"{GEMINI}/v1beta/models/m"),
        (f"{GEMINI}/", f"{GEMINI}/v1beta/models/m"),
        (f"{GEMINI}/v1beta", f"{GEMINI}/v1beta/models/m"),
        (f"{GEMINI}/v1", f"{GEMINI}/v1/models/m"),
        (f"{GEMINI}/v1beta/models", f"{GEMINI}/v1beta/models/m"),
        (f"{GEMINI}/v1beta/models/gemini-3-pro:generateContent", f"{GEMINI}/v1beta/models/m"),
        (f"{GEMINI}/v1beta/models/gemini-3-pro:streamGenerateContent?alt=sse", f"{GEMINI}/v1beta/models/m"),
        ("https://gw.example.test", "https://gw.example.test/v1beta/models/m"),
        ("https://gw.example.test/gemini", "https://gw.example.test/gemini/models/m"),
        (
            "https://aiplatform.googleapis.com/v1/projects/p/locations/global/publishers/google",
            "https://aiplatform.googleapis.com/v1/projects/p/locations/global/publishers/google/models/m",
        ),
    ],
)
def test_a_models_name_is_part_of_a_gemini_url(base_url: str, url: str) -> None:
    for model in ("m", "models/m"):
        endpoint = found(model, style="gemini", base_url=base_url, api_key="k")
        assert endpoint.url_of(model, stream=False).partition("?")[0] == f"{url}:generateContent"
        assert endpoint.url_of(model, stream=True) == f"{url}:streamGenerateContent?alt=sse"


def test_a_query_stays_beside_the_one_that_asks_for_a_stream() -> None:
    endpoint = found(style="gemini", base_url="https://gw.example.test/v1beta?tier=2", api_key="k")
    assert endpoint.url_of("m", stream=False) == "https://gw.example.test/v1beta/models/m:generateContent?tier=2"
    assert endpoint.url_of("m", stream=True).endswith(":streamGenerateContent?tier=2&alt=sse")


def test_a_base_url_of_one_of_a_rows_styles_means_that_style() -> None:
    for base_url in (f"{GEMINI}/v1beta/openai/", f"{GEMINI}/v1beta/openai/chat/completions"):
        endpoint = found(base_url=base_url, api_key="k")
        assert endpoint.url == f"{GEMINI}/v1beta/openai/chat/completions"
        assert endpoint.headers["authorization"] == "Bearer k"
    assert found(base_url=f"{GEMINI}/v1beta", api_key="k").target.style == "gemini"


@given(
    segments=st.lists(SEGMENT, max_size=4),
    slashes=st.integers(1, 3),
    style=st.sampled_from(["openai", "anthropic"]),
)
def test_a_url_that_was_made_stays_as_it_is_when_it_is_given_again(
    segments: list[str], slashes: int, style: str
) -> None:
    base = "https://gw.example.test" + "".join("/" * slashes + segment for segment in segments) + "/" * (slashes - 1)
    url = found(style=style, base_url=base).url
    assert found(style=style, base_url=url).url == url
    assert "//" not in url.removeprefix("https://")
    assert url.endswith("/chat/completions" if style == "openai" else "/v1/messages")


@pytest.mark.parametrize("name", list(PROVIDERS))
def test_every_row_can_be_called(name: str) -> None:
    environ = {"AZURE_OPENAI_ENDPOINT": "https://mine.openai.azure.com", "AWS_REGION": "eu-west-1"}
    endpoint = found(f"{name}:m", api_key="k", environ=environ)
    assert endpoint.url.startswith(endpoint.target.host)
    assert endpoint.target.provider.name == name
    assert provider_for(endpoint.target.host).name == name


@pytest.mark.parametrize(
    ("model", "url"),
    [
        ("openai:gpt-5-mini", "https://api.openai.com/v1/responses"),
        ("anthropic:claude-sonnet-5", "https://api.anthropic.com/v1/messages"),
        ("gemini:gemini-3", "https://generativelanguage.googleapis.com/v1beta/models/{model}:generateContent"),
        ("azure:gpt", "https://mine.openai.azure.com/openai/v1/responses"),
        ("bedrock:gpt", "https://bedrock-runtime.eu-west-1.amazonaws.com/openai/v1/responses"),
        ("zai:glm", "https://api.z.ai/api/paas/v4/chat/completions"),
        ("ollama:qwen3", "http://localhost:11434/v1/chat/completions"),
    ],
)
def test_a_rows_model_is_asked_at_the_rows_address(model: str, url: str) -> None:
    environ = {"AZURE_OPENAI_ENDPOINT": "https://mine.openai.azure.com/", "AWS_REGION": "eu-west-1"}
    assert found(model, api_key="k", environ=environ).url == url


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("192.168.0.7:1234", "http://192.168.0.7:1234"),
        ("192.168.0.7", "http://192.168.0.7:11434"),
        ("0.0.0.0", "http://localhost:11434"),
        ("0.0.0.0:80", "http://localhost:80"),
        (":9999", "http://localhost:9999"),
        ("[::]:9999", "http://localhost:9999"),
        ("[::1]:9999", "http://[::1]:9999"),
        ("box.lan", "http://box.lan:11434"),
        ("https://box.lan", "https://box.lan"),
    ],
)
def test_a_servers_own_form_of_its_address_is_understood(address: str, url: str) -> None:
    endpoint = found("ollama:qwen3", environ={"OLLAMA_HOST": address})
    assert endpoint.url == f"{url}/v1/chat/completions"
    assert endpoint.target.host == url
    assert endpoint.target.provider.name == "ollama"


def test_an_address_to_listen_on_is_none_of_a_provider_elsewhere() -> None:
    environ = {"OPENAI_BASE_URL": "0.0.0.0:8080", "OPENAI_API_KEY": "k"}
    assert found("openai:m", environ=environ).target.host == "https://0.0.0.0:8080"
    with pytest.raises(ConfigurationError, match="OPENAI_BASE_URL has to begin with https://"):
        found("openai:m", environ={**environ, "OPENAI_BASE_URL": ":8080"})


def test_a_row_without_an_address_of_its_own_says_how_to_give_it_one() -> None:
    assert "AZURE_OPENAI_ENDPOINT" in refused("azure:gpt", api_key="k")
    assert "AWS_REGION" in refused("bedrock:gpt", api_key="k")


def test_an_address_and_a_key_that_are_both_missing_are_said_at_once() -> None:
    said = refused("azure:gpt")
    assert "Set AZURE_OPENAI_ENDPOINT, or" in said
    assert said.endswith("It wants an API key as well. Set AZURE_OPENAI_API_KEY, or give api_key=.")
    assert "AWS_BEARER_TOKEN_BEDROCK" in refused("bedrock:gpt")
    assert "as well" not in refused("azure:gpt", environ={"AZURE_OPENAI_API_KEY": "k"})
    assert "as well" not in refused("azure:gpt", headers={"Authorization": "Bearer k"})


@pytest.mark.parametrize("given", ["my-resource", "My-Resource", " my-resource "])
def test_the_name_of_a_resource_is_its_address(given: str) -> None:
    environ = {"AZURE_OPENAI_ENDPOINT": given, "AZURE_OPENAI_API_KEY": "k"}
    assert found("azure:gpt", environ=environ).url == "https://my-resource.openai.azure.com/openai/v1/responses"


@pytest.mark.parametrize("region", ["evil.test/", "eu-west-1.evil.test#", "EU", "a b"])
def test_a_region_cannot_name_another_host(region: str) -> None:
    assert "AWS_REGION" in refused("bedrock:gpt", api_key="k", environ={"AWS_REGION": region})


@pytest.mark.parametrize(
    "base_url",
    [
        *("ftp://x.test", "x.test/v1", "https://", "https:///v1", "", "file:///etc/passwd"),
        *("https://x.test:port", "https://x.test:99999", "https://[::1", "https://a\\b.test", "https://a b.test"),
        *("https://a.test\r\nhost: b.test", "https://a.test/\x00", "https://a.test/{x}"),
    ],
)
def test_what_is_no_http_url_is_refused(base_url: str) -> None:
    assert "base" in refused(base_url=base_url)


def test_credentials_in_a_url_are_refused_and_not_shown() -> None:
    message = refused(base_url=f"https://user:{quote(CANARY, safe='')}@api.openai.com/v1")
    assert "api_key=" in message
    assert "canary" not in message


# Which model, which row, which style


def test_a_models_name_goes_out_exactly_as_given() -> None:
    assert found("openai:ft:gpt-5:org::id ", api_key="k").model == "ft:gpt-5:org::id "
    assert found("qwen2.5:7b", base_url="http://127.0.0.1:11434/v1").model == "qwen2.5:7b"
    assert found("openai:gpt", base_url="https://gw.example.test/v1").model == "openai:gpt"


@pytest.mark.parametrize(
    ("given", "url", "model"),
    [
        ("http://127.0.0.1:9#qwen3:8b", "http://127.0.0.1:9/v1/chat/completions", "qwen3:8b"),
        ("https://gw.test/v1#org/model#2", "https://gw.test/v1/chat/completions", "org/model#2"),
        ("HTTPS://gw.test/v1/messages#claude", "https://gw.test/v1/messages", "claude"),
        ("http://localhost:11434#qwen3", "http://localhost:11434/v1/chat/completions", "qwen3"),
    ],
)
def test_a_url_and_a_model_can_be_given_in_one(given: str, url: str, model: str) -> None:
    endpoint = found(given)
    assert (endpoint.url, endpoint.model) == (url, model)
    assert "#" not in endpoint.url


def test_a_url_with_a_model_gets_the_key_of_its_host_only() -> None:
    assert found("https://api.x.ai/v1#grok", environ=EVERY_KEY).headers["authorization"].startswith("Bearer key-of-xai")
    assert "authorization" not in found("https://gw.test#openai:gpt", environ=EVERY_KEY).headers


@pytest.mark.parametrize("given", ["http://gw.test", "http://gw.test#", "https://gw.test/v1# "])
def test_a_url_without_a_model_says_how_to_add_one(given: str) -> None:
    with pytest.raises(NoModelConfigured, match="http://host#MODEL"):
        found(given)


def test_a_model_id_that_looks_like_a_url_goes_out_as_given_beside_a_base_url() -> None:
    assert found("https://models.test/m#1", base_url="https://gw.test").model == "https://models.test/m#1"


def test_the_end_of_a_base_url_tells_the_style() -> None:
    assert {path: style for style in DIALECTS if "{" not in (path := dialect(style).path)} == ENDINGS
    assert found(base_url="https://api.openai.com/v1/chat/completions", api_key="k").target.style == "openai"
    assert found(base_url="https://api.openai.com/v1/responses", api_key="k").target.style == "responses"
    assert found(base_url="https://gw.test/v1/messages").target.style == "anthropic"
    assert found(base_url="https://gw.test/v1/messages", style="openai").target.style == "openai"


def test_a_gateway_in_a_providers_place_is_asked_in_the_style_that_all_gateways_speak() -> None:
    environ = {"OPENAI_BASE_URL": "https://gw.test/v1", "OPENAI_API_KEY": "k"}
    assert found("openai:m", environ=environ).url == "https://gw.test/v1/chat/completions"
    assert found("openai:m", environ=environ, style="responses").url == "https://gw.test/v1/responses"
    environ["OPENAI_BASE_URL"] = "https://api.openai.com/v1"
    assert found("openai:m", environ=environ).target.style == "responses"
    environ["OPENAI_BASE_URL"] = "https://gw.test/v1/responses"
    assert found("openai:m", environ=environ).target.style == "responses"


@pytest.mark.parametrize(
    ("model", "options", "models_url", "probe_url"),
    [
        ("openai:m", {}, "https://api.openai.com/v1/models", None),
        ("anthropic:m", {}, "https://api.anthropic.com/v1/models", None),
        ("gemini:m", {}, f"{GEMINI}/v1beta/models", None),
        ("gemini:m", {"style": "openai"}, f"{GEMINI}/v1beta/openai/models", None),
        ("deepseek:m", {}, "https://api.deepseek.com/models", None),
        ("perplexity:m", {}, None, None),
        ("ollama:m", {}, "http://localhost:11434/v1/models", "http://localhost:11434/api/version"),
        ("ollama:m", {"style": "anthropic"}, "http://localhost:11434/v1/models", "http://localhost:11434/api/version"),
        ("lmstudio:m", {}, "http://localhost:1234/v1/models", "http://localhost:1234/v1/models"),
        ("llamacpp:m", {}, "http://localhost:8080/v1/models", "http://localhost:8080/health"),
        ("m", {"base_url": "https://gw.test/v1/chat/completions?v=2"}, "https://gw.test/v1/models?v=2", None),
        ("m", {"base_url": "https://gw.test/claude", "style": "anthropic"}, "https://gw.test/claude/v1/models", None),
        ("m", {"base_url": "https://gw.test", "style": "gemini"}, "https://gw.test/v1beta/models", None),
    ],
)
def test_where_models_are_listed_and_whether_a_server_is_up(
    model: str, options: dict[str, Any], models_url: str | None, probe_url: str | None
) -> None:
    endpoint = found(model, api_key="k", **options)
    assert (endpoint.models_url, endpoint.probe_url) == (models_url, probe_url)


def test_an_unknown_provider_is_refused_with_the_rows_and_the_closest_one() -> None:
    message = refused("antropic:claude")
    assert "Did you mean 'anthropic'?" in message
    assert all(name in message for name in PROVIDERS)
    assert "base_url=" in refused("qwen2.5:7b")


def test_a_model_alone_does_not_say_where_it_is() -> None:
    assert "provider:gpt-5-mini" in refused("gpt-5-mini")


def test_a_style_stands_for_the_provider_that_it_is_named_after() -> None:
    assert found("claude", style="anthropic", api_key="k").url == "https://api.anthropic.com/v1/messages"


@pytest.mark.parametrize("model", [None, "", "  ", "openai:", "openai: "])
def test_without_a_model_the_ways_to_name_one_are_said(model: str | None) -> None:
    with pytest.raises(NoModelConfigured) as caught:
        found(model)
    assert "openai:" in str(caught.value)


def test_without_a_model_the_providers_that_have_a_key_are_named() -> None:
    with pytest.raises(NoModelConfigured) as caught:
        found(None, environ={"MISTRAL_API_KEY": CANARY, "GROQ_API_KEY": " "})
    assert "A key is set for mistral." in str(caught.value)
    assert "canary" not in str(caught.value)


def test_the_style_is_the_callers_else_the_rows_else_openai() -> None:
    assert found("openai:m", api_key="k").target.style == "responses"
    assert found("openai:m", api_key="k", style="openai").target.style == "openai"
    assert found("ollama:m").target.style == "openai"
    assert found("ollama:m", style="anthropic").target.style == "anthropic"
    assert found("m", base_url="https://api.anthropic.com", api_key="k").target.style == "anthropic"
    assert found("m", base_url="https://gw.example.test").target.style == "openai"


def test_an_unknown_style_is_refused() -> None:
    assert "Did you mean 'anthropic'?" in refused("openai:m", style="antropic", api_key="k")


def test_a_row_of_your_own_is_used_like_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    row = Provider(name="mine", base_url="https://llm.mine.test/v2", keys=("MINE_KEY",))
    monkeypatch.setitem(PROVIDERS, "mine", row)
    endpoint = found("mine:m", environ={"MINE_KEY": "k-123"})
    assert endpoint.url == "https://llm.mine.test/v2/chat/completions"
    assert endpoint.headers["authorization"] == "Bearer k-123"


def test_a_row_that_speaks_no_built_style_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PROVIDERS, "mine", Provider(name="mine", base_url="https://mine.test", styles=("telepathy",)))
    assert "telepathy, which is not built yet" in refused("mine:m", api_key="k")


# Whose key goes where


@pytest.mark.parametrize(
    ("origin", "name"),
    [
        ("https://api.openai.com", "openai"),
        ("https://api.openai.com:443", "openai"),
        ("https://API.OpenAI.com", "openai"),
        ("https://mine-2.openai.azure.com", "azure"),
        ("https://bedrock-runtime.us-east-1.amazonaws.com", "bedrock"),
        ("http://127.0.0.1:11434", "ollama"),
        ("http://[::1]:1234", "lmstudio"),
        ("http://api.openai.com", ""),
        ("https://api.openai.com:8443", ""),
        ("https://api.openai.com.evil.test", ""),
        ("https://evil.test/api.openai.com", ""),
        ("https://xapi.openai.com", ""),
        ("https://api.openai.com.", ""),
        ("https://a.b.openai.azure.com", ""),
        ("https://openai.azure.com", ""),
        ("https://bedrock-runtime.us-east-1.amazonaws.com.evil.test", ""),
        ("http://192.168.0.7:11434", ""),
        ("http://127.0.0.1:9", ""),
    ],
)
def test_a_host_belongs_to_a_row_only_if_it_is_exactly_the_rows(origin: str, name: str) -> None:
    assert provider_for(origin).name == name


def test_a_key_comes_only_from_a_variable_of_the_row_that_the_host_belongs_to() -> None:
    for name, row in PROVIDERS.items():
        if "{" in row.base_url:
            continue
        sent = "\n".join(found(base_url=row.base_url, environ=EVERY_KEY, key_required=False).headers.values())
        shown = {key for key, value in EVERY_KEY.items() if value in sent}
        assert shown == set(row.keys[:1]), name


@pytest.mark.parametrize(
    "base_url",
    [
        "https://gw.example.test/v1",
        "http://api.openai.com/v1",
        "https://api.openai.com:444/v1",
        "http://127.0.0.1:9/v1",
    ],
)
@pytest.mark.parametrize("style", ["openai", "anthropic"])
def test_a_host_without_a_row_gets_no_key_from_the_environment(base_url: str, style: str) -> None:
    endpoint = found(base_url=base_url, style=style, environ=EVERY_KEY)
    assert "key-of" not in "".join(endpoint.headers.values())
    assert endpoint.target.provider.name == UNKNOWN.name


def test_a_base_url_from_the_rows_own_variable_is_the_rows_host() -> None:
    environ = {
        "OPENAI_BASE_URL": "https://gw.example.test/openai",
        "OPENAI_API_KEY": "k-openai",
        "OPENAI_ORG_ID": "org",
    }
    endpoint = found("openai:m", environ=environ)
    assert endpoint.url == "https://gw.example.test/openai/chat/completions"
    assert endpoint.target.host == "https://gw.example.test"
    assert endpoint.target.provider.name == "openai"
    assert endpoint.headers["authorization"] == "Bearer k-openai"


def test_an_argument_beats_the_variable_for_the_base_url() -> None:
    environ = {"OPENAI_BASE_URL": "https://gw.example.test", "OPENAI_API_KEY": "k-openai"}
    endpoint = found(base_url="https://other.test/v1", environ=environ)
    assert endpoint.target.host == "https://other.test"
    assert "k-openai" not in "".join(endpoint.headers.values())


def test_the_callers_key_always_wins() -> None:
    assert found("openai:m", api_key="mine", environ=EVERY_KEY).headers["authorization"] == "Bearer mine"
    assert found("m", base_url="https://gw.test", api_key="mine").headers["authorization"] == "Bearer mine"


def test_an_empty_key_of_the_caller_means_none() -> None:
    endpoint = found("ollama:m", api_key="", environ=EVERY_KEY)
    assert "authorization" not in endpoint.headers
    with pytest.raises(MissingKey):
        found("openai:m", api_key="", environ=EVERY_KEY)


def test_the_first_variable_that_is_set_wins_and_blank_ones_are_not_set() -> None:
    environ = {"MOONSHOTAI_API_KEY": " ", "MOONSHOT_API_KEY": "second"}
    assert found("moonshot:m", environ=environ).headers["authorization"] == "Bearer second"


@pytest.mark.parametrize(
    ("model", "options", "header", "value"),
    [
        ("openai:m", {"api_key": "k"}, "authorization", "Bearer k"),
        ("anthropic:m", {"api_key": "k"}, "x-api-key", "k"),
        ("anthropic:m", {"environ": {"ANTHROPIC_API_KEY": "k"}}, "x-api-key", "k"),
        ("anthropic:m", {"environ": {"ANTHROPIC_AUTH_TOKEN": "k"}}, "authorization", "Bearer k"),
        ("azure:m", {"base_url": "https://mine.openai.azure.com", "api_key": "k"}, "api-key", "k"),
        ("m", {"base_url": "https://gw.test", "style": "anthropic", "api_key": "k"}, "x-api-key", "k"),
        ("m", {"base_url": "https://gw.test", "style": "openai", "api_key": "k"}, "authorization", "Bearer k"),
        ("ollama:m", {"api_key": "k"}, "authorization", "Bearer k"),
        ("gemini:m", {"api_key": "k"}, "x-goog-api-key", "k"),
        ("gemini:m", {"api_key": "k", "style": "openai"}, "authorization", "Bearer k"),
        ("m", {"base_url": "https://gw.test", "style": "gemini", "api_key": "k"}, "x-goog-api-key", "k"),
    ],
)
def test_a_key_is_sent_as_its_provider_wants_it(model: str, options: dict[str, Any], header: str, value: str) -> None:
    headers = found(model, **options).headers
    assert headers[header] == value
    assert len({"authorization", "x-api-key", "api-key", "x-goog-api-key"} & set(headers)) == 1


def test_a_missing_key_is_an_error_that_names_the_variables() -> None:
    with pytest.raises(MissingKey, match="ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN"):
        found("anthropic:m")
    with pytest.raises(MissingKey, match="OPENAI_API_KEY"):
        found("m", base_url="https://api.openai.com/v1", environ={"ANTHROPIC_API_KEY": "k"})


def test_no_key_is_needed_where_the_caller_or_the_transport_signs() -> None:
    signed = found("openai:m", headers={"Authorization": "Bearer mine"}, environ=EVERY_KEY)
    assert signed.headers["authorization"] == "Bearer mine"
    other = found("anthropic:m", headers={"Authorization": "Bearer mine"}, environ=EVERY_KEY)
    assert "x-api-key" not in other.headers
    assert "authorization" not in found("openai:m", key_required=False).headers


@pytest.mark.parametrize("key", [CANARY + "\n", " " + CANARY, CANARY + "\r\n\t"])
def test_a_key_is_stripped(key: str) -> None:
    assert found("openai:m", api_key=key).headers["authorization"] == f"Bearer {CANARY}"
    assert found("openai:m", environ={"OPENAI_API_KEY": key}).headers["authorization"] == f"Bearer {CANARY}"


@pytest.mark.parametrize("key", [CANARY + "\nx", CANARY + "\x00x", CANARY + "é", "Bearer " + CANARY, CANARY + "\x7f"])
def test_a_key_that_cannot_be_one_is_refused_without_showing_it(key: str) -> None:
    assert "canary" not in refused("openai:m", api_key=key)
    message = refused("openai:m", environ={"OPENAI_API_KEY": key})
    assert "OPENAI_API_KEY" in message
    assert "canary" not in message


def test_a_key_of_another_type_is_refused_without_showing_it() -> None:
    assert "type bytes" in refused("openai:m", api_key=CANARY.encode())


# Headers


def test_what_the_wire_needs_is_sent_to_every_host_of_its_style() -> None:
    for endpoint in (
        found("anthropic:m", api_key="k"),
        found(base_url="https://gw.test", style="anthropic"),
        found("ollama:m", style="anthropic"),
    ):
        assert endpoint.headers["anthropic-version"] == "2023-06-01"
        assert endpoint.target.provider.default_max_tokens == 8192
    plain = found(base_url="https://gw.test")
    assert set(plain.headers) == {"content-type", "user-agent"}
    assert plain.target.provider == UNKNOWN


def test_the_organisation_and_project_of_the_environment_go_to_their_provider_only() -> None:
    environ = {"OPENAI_API_KEY": "k", "OPENAI_ORG_ID": "org-1", "OPENAI_PROJECT_ID": " proj-1\n"}
    headers = found("openai:m", environ=environ).headers
    assert (headers["openai-organization"], headers["openai-project"]) == ("org-1", "proj-1")
    assert "openai-organization" not in found(base_url="https://gw.test", environ=environ).headers


def test_the_callers_headers_replace_ours_whatever_their_case() -> None:
    given = {"Anthropic-Version": "2026-10-21", "USER-AGENT": "mine/1", "X-Title": "a title "}
    headers = found("anthropic:m", api_key="k", headers=given).headers
    assert headers["anthropic-version"] == "2026-10-21"
    assert headers["user-agent"] == "mine/1"
    assert headers["x-title"] == "a title"
    assert len(headers) == len({name.lower() for name in headers})


@pytest.mark.parametrize(
    "headers",
    [
        {"x-token": f"{CANARY}\r\nx-evil: 1"},
        {"x-token": f"{CANARY}\nx"},
        {"x-token": f"{CANARY}\x00x"},
        {"x-token": f"é{CANARY}"},
        {f"x {CANARY}": "1"},
        {f"{CANARY}\r\nhost": "1"},
        {"": CANARY},
        {"content-length": CANARY},
        {"Transfer-Encoding": CANARY},
        {"x-token": CANARY.encode()},
    ],
)
def test_a_header_that_cannot_be_sent_is_refused_without_showing_it(headers: dict[str, Any]) -> None:
    assert "canary" not in refused(base_url="https://gw.test", headers=headers)


# Secrets


def test_nothing_that_is_printed_shows_a_secret() -> None:
    endpoint = found(
        base_url=f"https://gw.test/v1?api-key={quote(CANARY, safe='')}", api_key=CANARY, headers={"x-token": CANARY}
    )
    assert "canary" not in repr(endpoint)
    assert "canary" not in f"{endpoint!s} {endpoint.shown_url} {endpoint.target!r}"


def test_an_endpoint_cannot_be_changed() -> None:
    endpoint = found("ollama:m")
    with pytest.raises(dataclasses.FrozenInstanceError):
        endpoint.url = "https://evil.test"  # type: ignore[misc] - what is tested
    with pytest.raises(TypeError):
        endpoint.headers["host"] = "evil.test"  # type: ignore[index] - what is tested


@pytest.mark.parametrize(
    "echo",
    [
        CANARY,
        quote(CANARY, safe=""),
        json.dumps(CANARY),
        json.dumps(CANARY).replace("/", "\\/"),
        f"Bearer {CANARY}",
        f"Bearer {CANARY}\n",
        base64.b64encode(CANARY.encode()).decode(),
        base64.urlsafe_b64encode(CANARY.encode()).decode(),
        base64.b64encode(f"Bearer {CANARY}".encode()).decode(),
        base64.b64encode(f"{{'key': '{CANARY}'}}".encode()).decode(),
    ],
)
def test_a_key_is_hidden_in_every_form_a_server_may_echo_it_in(echo: str) -> None:
    endpoint = found("openai:m", api_key=CANARY)
    shown = endpoint.redact(f"Incorrect API key: {echo}. Next time, bring another.")
    assert "[redacted]" in shown
    assert "canary" not in shown
    assert base64.b64encode(b"canary").decode()[:6] not in shown
    assert shown.startswith("Incorrect API key: ")
    assert shown.endswith(" Next time, bring another.")


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=8), st.binary(), st.binary())
def test_base64_never_hides_a_key_from_us(key: str, before: bytes, after: bytes) -> None:
    echoed = base64.b64encode(before + key.encode() + after).decode()
    assert "[redacted]" in found("openai:m", api_key=key).redact(echoed)


def test_secret_headers_and_queries_are_hidden_and_others_are_not() -> None:
    endpoint = found(
        base_url="https://gw.test/v1?sig_token=query-secret&api-version=2026-01-01",
        headers={"Cookie": "cookie-secret", "X-Gateway-Key": "header-secret", "x-title": "a plain title"},
    )
    text = "cookie-secret header-secret query-secret; a plain title 2026-01-01"
    assert endpoint.redact(text) == "[redacted] [redacted] [redacted]; a plain title 2026-01-01"


def test_a_placeholder_for_a_key_does_not_spoil_messages() -> None:
    assert found("ollama:m", api_key="none").redact("none of the models") == "none of the models"
    assert found("ollama:m").redact("any text") == "any text"


@pytest.mark.parametrize(
    "options",
    [
        {"base_url": f"https://{quote(CANARY, safe='')}@gw.test"},
        {"base_url": "https://gw.test:sk-canary"},
        {"base_url": f"https://gw test?key={CANARY}"},
        {"base_url": f"https://gw.test:x/?key={CANARY}"},
        {"api_key": CANARY + "\x00"},
        {"headers": {"x": CANARY + "\n\x00"}},
    ],
)
def test_an_error_shows_no_secret_and_was_raised_from_nothing_that_does(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        found(**options)
    shown = f"{caught.value} {caught.value!r}"
    assert "canary" not in shown
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
