"""The provider table is data; these are the rules that every row of it keeps."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from toolnexus.dialects import DIALECTS
from toolnexus.providers import PROVIDERS, UNKNOWN, Provider

STYLES = {"openai", "anthropic", "responses", "gemini"}
ROWS = pytest.mark.parametrize("row", PROVIDERS.values(), ids=lambda row: row.name)


@ROWS
def test_a_row_can_be_named_in_front_of_a_model(row: Provider) -> None:
    assert re.fullmatch("[a-z]+", row.name)
    assert PROVIDERS[row.name] is row


@ROWS
def test_a_row_speaks_styles_that_exist_and_one_that_is_built(row: Provider) -> None:
    assert set(row.styles) <= STYLES
    assert set(row.styles) & set(DIALECTS)
    assert set(row.style_urls) | set(row.style_auth) <= set(row.styles)


@ROWS
def test_a_row_lives_at_an_address_without_credentials_query_or_a_slash_at_the_end(row: Provider) -> None:
    for url in (row.base_url, *row.style_urls.values()):
        parts = urlsplit(url)
        assert parts.scheme == ("http" if row.local else "https")
        assert parts.hostname
        assert (
            url == f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}{parts.path.rstrip('/')}"
        )


@ROWS
def test_a_key_is_required_exactly_where_the_server_is_not_yours(row: Provider) -> None:
    assert row.key_required is not row.local
    assert row.keys or row.local
    assert set(row.bearer_keys) <= set(row.keys)


@ROWS
def test_the_names_of_a_rows_headers_are_in_lower_case(row: Provider) -> None:
    names = [*row.headers, *row.header_variables]
    assert names == [name.lower() for name in names]


@ROWS
def test_a_row_says_where_its_models_are_and_a_local_one_whether_it_is_up(row: Provider) -> None:
    assert row.models_path == "" or row.models_path.startswith("/")
    assert row.probe.startswith("/") is row.local


@ROWS
def test_a_row_takes_text_and_parts_that_exist(row: Provider) -> None:
    if row.parts is not None:
        assert {"text"} <= row.parts <= {"text", "image_url", "input_audio", "file"}


@ROWS
def test_a_row_that_wants_reasoning_does_not_refuse_it(row: Provider) -> None:
    assert not (row.wants_reasoning and row.refuses_reasoning)


@ROWS
def test_a_call_id_form_is_a_regular_expression(row: Provider) -> None:
    assert row.call_id_form is None or re.compile(row.call_id_form)


def test_no_variable_holds_the_key_of_two_providers() -> None:
    keys = [key for row in PROVIDERS.values() for key in row.keys]
    assert len(keys) == len(set(keys))


def test_no_two_rows_share_an_address() -> None:
    hosts = [urlsplit(row.base_url).netloc for row in PROVIDERS.values()]
    assert len(hosts) == len(set(hosts))


def test_every_provider_that_was_promised_is_there() -> None:
    promised = {
        *("openai", "anthropic", "gemini", "openrouter", "groq", "mistral", "deepseek", "xai", "together", "fireworks"),
        *("azure", "bedrock", "cerebras", "perplexity", "moonshot", "zai", "alibaba", "deepinfra", "huggingface"),
        *("sambanova", "nebius", "ollama", "lmstudio", "llamacpp", "vllm"),
    }
    assert set(PROVIDERS) == promised


def test_an_unknown_host_is_asked_without_a_key_and_without_assumptions() -> None:
    assert Provider(key_required=False) == UNKNOWN


def test_the_known_differences() -> None:
    assert PROVIDERS["openai"].max_tokens_field == "max_completion_tokens"
    assert PROVIDERS["anthropic"].default_max_tokens == 8192
    assert PROVIDERS["anthropic"].headers == {"anthropic-version": "2023-06-01"}
    assert PROVIDERS["groq"].refuses_reasoning
    assert re.fullmatch(PROVIDERS["mistral"].call_id_form or "", "a1B2c3D4e")
    assert [row.name for row in PROVIDERS.values() if row.local] == ["ollama", "lmstudio", "llamacpp", "vllm"]
    assert "--enable-auto-tool-choice" in PROVIDERS["vllm"].note


def test_a_repr_shows_no_header() -> None:
    assert "canary" not in repr(Provider(name="mine", headers={"authorization": "canary"}))


PAGE = Path(__file__).parent.parent / "docs" / "providers.md"


def line_of(row: Provider) -> str:
    """A row as the table of the page has it."""
    variables = [*row.keys, *([row.base_url_variable] if row.base_url_variable else []), *row.url_fields.values()]
    cells = [
        row.name,
        f"`{row.base_url}`",
        ", ".join(f"`{name}`" for name in variables),
        ", ".join(row.styles),
        row.schema_mode,
        "all of its style"
        if row.parts is None
        else ", ".join({"image_url": "images", "input_audio": "audio"}[part] for part in sorted(row.parts - {"text"})),
    ]
    return f"| {' | '.join(cell or 'none' for cell in cells)} |"


def test_the_table_of_the_page_is_the_table() -> None:
    shown = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    assert shown[1:] == [line_of(row) for row in PROVIDERS.values()]
