"""What providers' errors mean, in every envelope they come in."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolnexus.dialects.faults import fault
from toolnexus.errors import ProviderError

NOW = 784_111_777.0
"""Sun, 06 Nov 1994 08:49:37 GMT"""


def fault_of(status: int, body: Any, **headers: str) -> ProviderError:
    raw = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    found = fault(status, {name.replace("_", "-"): value for name, value in headers.items()}, raw, now=NOW)
    assert found is not None
    return found


def openai(message: str, kind: str | None = None, code: Any = None, param: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def anthropic(kind: str, message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}


def google(code: int, status: str, message: str, *details: dict[str, Any]) -> dict[str, Any]:
    typed = [{"@type": "type.googleapis.com/google.rpc.Detail", **detail} for detail in details]
    return {"error": {"code": code, "message": message, "status": status, **({"details": typed} if typed else {})}}


def used_up(quota: str, value: str = "20") -> dict[str, Any]:
    return {"violations": [{"quotaMetric": "a.test/requests", "quotaId": quota, "quotaValue": value}]}


INVALID = "invalid_request_error"
EXHAUSTED = "RESOURCE_EXHAUSTED"
PLAN = "You exceeded your current quota, please check your plan and billing details."

KINDS = [
    # context_length, by code
    ("context_length", 400, openai("Too much.", INVALID, "context_length_exceeded")),
    ("context_length", 400, {"error": {"code": "1261", "message": "…"}}),
    ("context_length", 400, {"error": {"code": 400, "type": "exceed_context_size_error", "message": "…"}}),
    ("context_length", 413, anthropic("request_too_large", "Request exceeds the maximum size")),
    # by wording
    *(
        ("context_length", 400, openai(message, INVALID))
        for message in (
            "This model's maximum context length is 8192 tokens. However, your messages resulted in 9001 tokens.",
            "This model's maximum prompt length is 131072 but the request contains 200000 tokens.",
            "Please reduce the length of the messages or completion.",
            "the request exceeds the available context size, try increasing it",
            "Your input exceeds the context window of this model.",
            "Input is too long for requested model.",
            "too many tokens: total number of tokens in the prompt cannot exceed 4081",
            "The input token count (1050000) exceeds the maximum number of tokens allowed (1048576).",
            "Invalid 'messages[1].content': string too long. Expected a string with maximum length 1048576.",
            "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096.",
            "prompt is too long: 203114 tokens > 200000 maximum",
            "input length and `max_tokens` exceed context limit: 181000 + 32000 > 200000",
            "Prompt contains 40000 tokens, too large for model with 32768 maximum context length",
            "Range of input length should be [1, 30720]",
            "Invalid request: Your request exceeded model token limit: 131072 (requested: 140020)",
            "Prompt exceeds max length",
        )
    ),
    ("context_length", 500, {"message": "Input is too long for requested model."}),
    ("context_length", 413, "<html><head><title>413 Request Entity Too Large</title></head></html>"),
    # look-alikes
    ("rate_limit", 429, openai("Request too large: tokens per minute limit 6000", "tokens", "rate_limit_exceeded")),
    ("rate_limit", 413, openai("Request too large for model (TPM): Limit 6000", "tokens", "rate_limit_exceeded")),
    (
        "rate_limit",
        429,
        openai("Request too large for m on tokens per min (TPM): Limit 10000, Used 9000, Requested 2000"),
    ),
    (
        "bad_request",
        400,
        openai("Invalid 'tool_calls[0].id': string too long. Expected maximum length 40", INVALID),
    ),
    ("bad_request", 400, openai("max_tokens is too large: 32000.", INVALID, "invalid_value", "max_tokens")),
    # quota
    ("quota", 429, openai("Quota used up, see plan and billing.", "insufficient_quota", "insufficient_quota")),
    ("quota", 429, openai("You exceeded your current quota, please check your plan and billing details.")),
    ("quota", 400, anthropic(INVALID, "Your credit balance is too low to access the API.")),
    ("quota", 402, openai("Insufficient Balance", "unknown_error", "invalid_request_error")),
    ("quota", 402, ""),
    ("quota", 403, {"error": {"type": "billing_error", "message": "…"}}),
    ("quota", 429, {"error": {"message": "Your account is not active", "type": "billing_not_active", "code": "429"}}),
    # rate_limit
    ("rate_limit", 429, openai("busy", "rate_limit", "429")),
    ("rate_limit", 429, openai("Rate limit reached. Add a payment method at …/account/billing.", "requests")),
    ("rate_limit", 429, ""),
    (
        "rate_limit",
        429,
        {"error": {"code": 429, "message": "You exceeded your current quota", "status": "RESOURCE_EXHAUSTED"}},
    ),
    ("rate_limit", 400, {"__type": "ThrottlingException", "message": "Slow down"}),
    ("rate_limit", 500, openai("Upstream refused", None, 429)),
    ("rate_limit", 500, openai("Upstream refused", None, "429")),
    ("rate_limit", 503, {"error": {"message": "Provider returned error", "code": 429, "metadata": {"raw": "slow"}}}),
    # overloaded, server, timeout
    ("overloaded", 529, anthropic("overloaded_error", "Overloaded")),
    ("overloaded", 500, anthropic("overloaded_error", "Overloaded")),
    (
        "overloaded",
        429,
        openai("The engine is currently overloaded", "engine_overloaded_error"),
    ),
    ("overloaded", 503, "upstream connect error"),
    ("server", 500, anthropic("api_error", "Internal server error")),
    ("server", 502, "<html><body>Bad Gateway</body></html>"),
    ("server", 520, ""),
    ("server", 409, openai("Conflict")),
    ("timeout", 408, ""),
    ("timeout", 500, anthropic("timeout_error", "The request took too long")),
    # auth, not_found
    ("auth", 401, openai("Incorrect API key provided.", INVALID, "invalid_api_key")),
    ("auth", 403, anthropic("permission_error", "Not yours")),
    ("auth", 400, [{"error": {"code": 400, "message": "API key not valid.", "status": "INVALID_ARGUMENT"}}]),
    ("auth", 401, "no"),
    ("not_found", 404, anthropic("not_found_error", "model: nope")),
    ("not_found", 404, {"error": "model 'nope' not found, try pulling it first"}),
    ("not_found", 404, "<!doctype html><title>Not Found</title>"),
    ("not_found", 400, openai("nope is not a valid model ID", None, 400)),
    ("not_found", 404, {"detail": "Not Found"}),
    # content_filter
    ("content_filter", 400, openai("The response was filtered", None, "content_filter")),
    (
        "content_filter",
        400,
        {"error": {"code": "x", "innererror": {"code": "ResponsibleAIPolicyViolation"}}},
    ),
    ("content_filter", 403, openai("Your chosen model requires moderation and your input was flagged", None, 403)),
    ("content_filter", 400, openai("Your request was rejected as a result of our safety system.", INVALID)),
    # Google's
    ("rate_limit", 429, google(429, EXHAUSTED, PLAN, used_up("GenerateRequestsPerMinutePerProject"))),
    ("rate_limit", 429, google(429, EXHAUSTED, "Resource has been exhausted (e.g. check quota).")),
    ("rate_limit", 429, [google(429, EXHAUSTED, PLAN, {"retryDelay": "37s"})]),
    ("rate_limit", 429, google(429, EXHAUSTED, f"{PLAN}\n* Quota exceeded for metric: a.test/x, limit: 20, model: m")),
    ("quota", 429, google(429, EXHAUSTED, PLAN, used_up("PerMinute"), used_up("GenerateRequestsPerDayPerProject"))),
    ("quota", 429, google(429, EXHAUSTED, PLAN, used_up("PerMinute", "0"))),
    ("quota", 429, google(429, EXHAUSTED, f"{PLAN}\n* Quota exceeded for metric: a.test/x, limit: 0, model: m")),
    ("quota", 403, google(403, "PERMISSION_DENIED", "Turn it on.", {"reason": "BILLING_DISABLED"})),
    ("auth", 400, google(400, "INVALID_ARGUMENT", "Renew it.", {"reason": "API_KEY_INVALID"})),
    ("auth", 401, google(401, "UNAUTHENTICATED", "No.", {"reason": "ACCESS_TOKEN_EXPIRED"})),
    ("auth", 403, google(403, "PERMISSION_DENIED", "Your API key was reported as leaked.")),
    ("overloaded", 503, google(503, "UNAVAILABLE", "The model is overloaded. Please try again later.")),
    ("overloaded", 429, google(429, EXHAUSTED, "No capacity.", {"reason": "MODEL_CAPACITY_EXHAUSTED"})),
    ("server", 500, google(500, "INTERNAL", "An internal error has occurred.")),
    ("server", 499, google(499, "CANCELLED", "The operation was cancelled.")),
    ("timeout", 504, google(504, "DEADLINE_EXCEEDED", "Deadline expired before operation could complete.")),
    ("not_found", 404, google(404, "NOT_FOUND", "models/m is not found for API version v1beta.")),
    (
        "context_length",
        400,
        google(
            400, "INVALID_ARGUMENT", "The input token count (1050000) exceeds the maximum number of tokens allowed."
        ),
    ),
    ("bad_request", 400, google(400, "INVALID_ARGUMENT", "Function call is missing a thought_signature.")),
    ("bad_request", 400, google(400, "FAILED_PRECONDITION", "User location is not supported for the API use.")),
    # the rest
    ("malformed_tool_call", 400, openai("Failed to call a function.", INVALID, "tool_use_failed")),
    ("bad_request", 400, openai("temperature must be a number", INVALID)),
    ("bad_request", 422, {"detail": [{"loc": ["body", "top_k"], "msg": "Extra inputs are not permitted"}]}),
    ("bad_request", 400, {"object": "error", "message": "nope", "type": "BadRequestError", "code": 400}),
    ("bad_request", 301, ""),
]


@pytest.mark.parametrize(("kind", "status", "body"), KINDS)
def test_an_error_is_of_the_kind_that_it_says(kind: str, status: int, body: Any) -> None:
    found = fault_of(status, body)
    assert (found.kind, found.status) == (kind, status)
    assert found.retryable == (kind in {"rate_limit", "overloaded", "server", "timeout", "malformed_tool_call"})


@pytest.mark.parametrize(
    ("kind", "status", "body"),
    [
        ("rate_limit", 429, {"choices": None, "error": {"message": "Upstream refused", "code": 429}}),
        ("overloaded", 503, openai("engine queue is full", "service_unavailable", 503)),
        ("overloaded", None, anthropic("overloaded_error", "Overloaded")),
        ("bad_request", None, anthropic("invalid_request_error", "no")),
        ("server", None, {"error": "something broke"}),
        ("server", None, {"error": True, "message": "something broke"}),
        ("server", 500, {"code": 500, "msg": "404 NOT_FOUND", "success": False}),
        ("bad_request", 400, {"object": "error", "message": "nope", "code": 400}),
        ("context_length", None, {"error": '{"error": {"message": "context length exceeded"}}'}),
    ],
)
def test_an_error_inside_a_200_is_one(kind: str, status: int | None, body: Any) -> None:
    found = fault(200, {}, body, now=NOW)
    assert found is not None
    assert (found.kind, found.status) == (kind, status)


@pytest.mark.parametrize(
    "body",
    [
        {"choices": [], "error": None},
        {"choices": [{}], "error": {"message": "", "type": "", "param": "", "code": None}},
        {"type": "message", "content": [], "message": "hello"},
        {"choices": [], "code": 500, "message": "a field of theirs"},
        {"message": "hello"},
        {},
        [],
        [1],
        "text",
        None,
        b"<html></html>",
    ],
)
def test_an_answer_is_no_error(body: object) -> None:
    assert fault(200, {}, body, now=NOW) is None


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After-Ms": "350", "retry-after": "1"}, 0.35),
        ({"retry-after-ms": "soon", "RETRY-AFTER": "2"}, 2.0),
        ({"Retry-After": "0"}, 0.0),
        ({"Retry-After": "1.5"}, 1.5),
        ({"Retry-After": "Sun, 06 Nov 1994 08:49:47 GMT"}, 10.0),
        ({"Retry-After": "Sunday, 06-Nov-94 08:49:47 GMT"}, 10.0),
        ({"Retry-After": "Sun Nov  6 08:49:47 1994"}, 10.0),
        ({"Retry-After": "Sun, 06 Nov 1994 08:49:27 GMT"}, 0.0),
        ({"Retry-After": "-5"}, None),
        ({"Retry-After": "nan"}, None),
        ({"Retry-After": "inf"}, None),
        ({"Retry-After": "1_000"}, None),
        ({"Retry-After": "٣"}, None),
        ({"Retry-After": "Sun, 99 Nov 1994 08:49:47 GMT"}, None),
        ({"Retry-After": ""}, None),
        ({}, None),
    ],
)
def test_the_time_to_wait_is_read_in_every_form(headers: dict[str, str], seconds: float | None) -> None:
    found = fault(429, headers, b"", now=NOW)
    assert found is not None
    assert found.retry_after == seconds


@pytest.mark.parametrize(
    ("body", "headers", "seconds"),
    [
        (google(429, EXHAUSTED, PLAN, {"retryDelay": "37s"}), {}, 37.0),
        (google(429, EXHAUSTED, PLAN, used_up("PerMinute"), {"retryDelay": "36.429760048s"}), {}, 36.429760048),
        ([google(429, EXHAUSTED, PLAN, {"retryDelay": "0s"})], {}, 0.0),
        (google(429, EXHAUSTED, f"{PLAN}\nPlease retry in 25.465784708s."), {}, 25.465784708),
        (google(429, EXHAUSTED, PLAN, {"retryDelay": "37s"}), {"retry_after": "2"}, 2.0),
        (google(429, EXHAUSTED, PLAN, {"retryDelay": "soon"}), {}, None),
        (google(429, EXHAUSTED, PLAN, {"retryDelay": 37}), {}, None),
        (google(429, EXHAUSTED, PLAN), {}, None),
    ],
)
def test_the_time_to_wait_may_stand_in_the_error(body: Any, headers: dict[str, str], seconds: float | None) -> None:
    assert fault_of(429, body, **headers).retry_after == seconds


@given(st.text(), st.text())
def test_a_time_to_wait_is_never_negative_and_never_a_crash(millis: str, value: str) -> None:
    found = fault(503, {"retry-after-ms": millis, "retry-after": value}, b"", now=NOW)
    assert found is not None
    assert found.retry_after is None or 0 <= found.retry_after < 1e13


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "error",
                    "message",
                    "code",
                    "type",
                    "detail",
                    "metadata",
                    "loc",
                    "details",
                    "violations",
                    "reason",
                    "x",
                ]
            ),
            inner,
        )
    ),
    max_leaves=8,
)


@given(st.sampled_from([200, 400, 404, 429, 500]), json_values)
def test_no_body_is_a_crash(status: int, body: Any) -> None:
    found = fault(status, {}, body, now=NOW)
    assert found is not None or status == 200
    assert found is None or "\n" not in str(found)


def test_who_to_ask_about_it_is_kept() -> None:
    assert fault_of(500, {}, X_Request_ID="req_7").request_id == "req_7"
    assert fault_of(500, {}, request_id="req_8").request_id == "req_8"
    assert fault_of(500, anthropic("api_error", "no")).request_id == "req_1"


@pytest.mark.parametrize(
    ("body", "parameter"),
    [
        (openai("Unsupported parameter.", INVALID, "unsupported_parameter", "max_tokens"), "max_tokens"),
        (openai("Unsupported parameter: 'max_tokens' is not supported with this model."), "max_tokens"),
        ({"detail": [{"loc": ["body", "top_k"], "msg": "Extra inputs are not permitted"}]}, "top_k"),
        (openai("no"), None),
    ],
)
def test_the_field_that_was_refused_is_named(body: Any, parameter: str | None) -> None:
    assert fault_of(400, body).parameter == parameter


def test_the_message_is_what_the_server_said_on_one_line_and_what_to_do_next() -> None:
    message = str(fault_of(401, openai("Incorrect\nAPI   key.", INVALID, "invalid_api_key")))
    assert message.startswith("The provider answered 401 (auth): Incorrect API key.")
    assert "API key" in message.removeprefix("The provider answered 401 (auth): Incorrect API key.")
    assert len(str(fault_of(400, openai("x" * 5000)))) < 600
    assert "'502 Bad Gateway'" in str(fault_of(502, "<html><title>502 Bad Gateway</title><p>…</html>"))
    assert "base_url" in str(fault_of(404, ""))
    assert "sk-se" not in str(fault_of(400, openai("x" * 400 + " " + "y" * 90 + " sk-secret-key"))), "no half a key"
    assert "top_k: Extra inputs are not permitted" in str(
        fault_of(422, {"detail": [{"loc": ["body", "top_k"], "msg": "Extra inputs are not permitted"}]})
    )


@pytest.mark.parametrize(
    ("said", "helps"),
    [
        ("Request too large: tokens per minute limit 6000, requested 7200", False),
        ("Request too large for m on tokens per min (TPM): Limit 10,000, Requested 12,000.", False),
        ("Rate limit reached for m (TPM): Limit 40000, Used 38000, Requested 5000.", True),
        ("Rate limit reached", True),
    ],
)
def test_waiting_for_a_rate_limit_helps_unless_one_request_exceeds_it(said: str, helps: bool) -> None:
    error = fault(429, {}, openai(said, "tokens", "rate_limit_exceeded"), now=0.0)
    assert error is not None
    assert (error.kind, error.retryable) == ("rate_limit", helps)


@pytest.mark.parametrize(
    "wrap", [lambda inner: [{"msg": inner}], lambda inner: {"message": inner}, lambda inner: [inner]]
)
def test_an_error_may_be_nested_as_deep_as_json_can_be(wrap: Any) -> None:
    message: Any = "deep"
    for _ in range(400):
        message = wrap(message)
    assert fault(400, {}, {"error": {"message": message}}, now=NOW) is not None
    assert fault(200, {}, {"error": {"message": message}}, now=NOW) is not None
