"""Secrets are found in whatever form they are echoed."""

from __future__ import annotations

import base64
import html
import json
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolnexus import _redaction

SECRETS = st.text(st.characters(exclude_categories=["Cs"]), min_size=9, max_size=30)
AROUND = st.text(st.characters(exclude_categories=["Cs"]), max_size=7)


@given(secret=SECRETS, before=AROUND, after=AROUND)
def test_an_echo_in_any_form_is_hidden(secret: str, before: str, after: str) -> None:
    text = before + secret + after
    forms = {
        text: secret,
        quote(text, safe=""): quote(secret, safe=""),
        quote_plus(text): quote_plus(secret),
        json.dumps(text): json.dumps(secret)[1:-1],
        json.dumps(text, ensure_ascii=False): json.dumps(secret, ensure_ascii=False)[1:-1],
        html.escape(text): html.escape(secret),
    }
    for echo, form in forms.items():
        assert form not in _redaction.redact(echo, [secret]).replace(_redaction.HIDDEN, "\0")
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        shown = _redaction.redact(encode(text.encode()).decode(), [secret])
        assert _redaction.HIDDEN in shown
        left = max(shown.split(_redaction.HIDDEN), key=len)
        assert len(left) <= 4 * len((before + after).encode()) / 3 + 4


@given(secret=SECRETS, before=st.binary(max_size=5))
def test_it_is_found_in_bytes_too(secret: str, before: bytes) -> None:
    assert _redaction.holds(before + secret.encode() + b"\xff", [secret])


def test_short_values_and_other_texts_stay() -> None:
    text = "none of this is a secret, nor is none"
    assert _redaction.redact(text, ["none", "", "another-secret"]) == text
    assert _redaction.longest([""]) == 0
    assert not _redaction.holds(b"none", ["none"])


@pytest.mark.parametrize(
    ("headers", "query", "found"),
    [
        ({"Authorization": "Bearer abc"}, "", {"Bearer abc", "abc"}),
        ({"Authorization": "Basic dTpwOnE="}, "", {"Basic dTpwOnE=", "dTpwOnE=", "u:p:q", "p:q"}),
        ({"Authorization": "Basic !"}, "", {"Basic !", "!"}),
        ({"Accept": "text/html", "X-Api-Key": "k"}, "", {"k", ""}),
        ({}, "a=1&access_token=t%2F", {"t/"}),
    ],
)
def test_names_say_what_is_secret(headers: dict[str, str], query: str, found: set[str]) -> None:
    assert set(_redaction.secrets_in(headers, query)) == found
