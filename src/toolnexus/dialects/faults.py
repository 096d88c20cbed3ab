"""What a provider's error means, whatever envelope it comes in and whatever the HTTP status says. Pure.

The codes and types that an error names come first, then its wording, then a status. The kinds are those of
`ProviderError`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, cast

from toolnexus import _json
from toolnexus.dialects.payloads import JSONObject, is_object, objects
from toolnexus.dialects.payloads import text as text_in
from toolnexus.errors import ProviderError

if TYPE_CHECKING:
    from toolnexus.events import Usage

_LONGEST_MESSAGE = 500
_LONGEST_TEXT = 8 * _LONGEST_MESSAGE
"""Characters of an error that are looked at."""

_DEEPEST = 8
"""How far down in an error is looked for what it says."""

_RETRYABLE = frozenset({"rate_limit", "overloaded", "server", "timeout", "malformed_tool_call"})

_NEXT_STEP = {
    "auth": "Check the API key, and that it may use this model.",
    "not_found": "Check the model's name and base_url.",
    "quota": "Add credit or raise the limit at the provider; waiting does not help.",
    "context_length": "Shorten the conversation, or take a model with a larger context.",
}

_CODES: Mapping[str, str] = {
    code: kind
    for kind, codes in {
        "context_length": (
            "context_length_exceeded context_length_error context_window_exceeded model_context_window_exceeded "
            "contextwindowexceedederror exceed_context_size_error request_too_large "
            "prompt_too_long input_too_long payload_too_large request_entity_too_large 1261"
        ),
        "quota": (
            "insufficient_quota exceeded_current_quota_error quota_exceeded billing_error billing_not_active "
            "billing_hard_limit_reached insufficient_balance insufficient_credits insufficient_funds payment_required "
            "credit_balance_too_low arrearage billing_disabled 1113"
        ),
        "rate_limit": (
            "rate_limit rate_limit_error rate_limit_exceeded rate_limit_reached_error rate_limited rate_limit_reached "
            "too_many_requests toomanyrequests requests tokens resource_exhausted throttling throttlingexception "
            "throttling.ratequota throttling.allocationquota 1302 1303 1305"
        ),
        "overloaded": (
            "overloaded overloaded_error engine_overloaded engine_overloaded_error server_overloaded model_overloaded "
            "service_unavailable service_unavailable_error serviceunavailable serviceunavailableexception unavailable "
            "modelnotreadyexception model_capacity_exhausted"
        ),
        "timeout": (
            "timeout timeout_error request_timeout gateway_timeout deadline_exceeded modeltimeoutexception "
            "vector_store_timeout"
        ),
        "server": (
            "server_error internal internal_error internal_server_error internalservererror internalserverexception "
            "bad_gateway upstream_error modelerrorexception cancelled aborted"
        ),
        "auth": (
            "authentication_error invalid_authentication_error invalid_api_key incorrect_api_key_error unauthenticated "
            "unauthorized permission_error permission_denied forbidden accessdeniedexception api_key_invalid "
            "unrecognizedclientexception expiredtokenexception credentials_missing access_token_expired "
            "access_token_type_unsupported service_disabled api_key_service_blocked"
        ),
        "not_found": (
            "not_found not_found_error model_not_found model_not_found_error resource_not_found_error notfounderror "
            "resourcenotfoundexception deploymentnotfound"
        ),
        "content_filter": (
            "content_filter content_filter_error content_policy_violation responsibleaipolicyviolation invalid_prompt "
            "data_inspection_failed image_content_policy_violation bio_policy misalignment_policy_violation 1301"
        ),
        "malformed_tool_call": "tool_use_failed malformed_function_call",
        "bad_request": (
            "invalid_image invalid_image_format invalid_base64_image invalid_image_url invalid_image_mode "
            "image_too_large image_too_small image_parse_error image_file_too_large image_file_not_found "
            "unsupported_image_media_type empty_image_file failed_to_download_image data_residency_mismatch"
        ),
    }.items()
    for code in codes.split()
}
"""What codes and types say for certain."""

_VAGUE_TYPES = frozenset(
    {"invalid_request_error", "badrequesterror", "bad_request", "invalid_argument", "validationexception"}
)
"""Types that many an exact error has; without any other sign the request is at fault."""

_WORDINGS: Mapping[str, re.Pattern[str]] = {
    kind: re.compile("|".join(phrases), re.IGNORECASE)
    for kind, phrases in {
        # Before context_length: "Request too large: tokens per minute limit 6000, requested 7200".
        "rate_limit": (
            r"(tokens|requests|input|output)[ _]per[ _](min|sec|hour|day)",
            r"\b[tr]p[md]\b",
            r"rate[ _]limit",
            r"too many requests",
        ),
        "quota": (
            r"insufficient[ _](quota|balance|credit|fund)",
            r"(credit|account) balance",
            r"exceeded your current quota",
            r"quota (is )?(used up|exhausted)",
            r"\bbilling\b",
            r"payment required",
            r"(out of|not enough|requires more) credits",
        ),
        "context_length": (
            r"context[ _-]?(length|window|limit|size)",
            r"(maximum|max) (context|input|prompt)",
            r"(prompt|input|request|messages?|inputs) (\w+ )?(is|are|was) too (long|large)",
            r"request too large",
            r"(prompt|input|request) exceeds (the )?max",
            r"exceed\w* (the )?(\w+ )?token limit",
            r"reduce the length",
            r"too many (input )?tokens",
            r"`inputs` tokens",
            r"input (length|tokens?)\b.*\b(exceed|too long|should be)",
            r"string too long(?!.*maximum length \d{1,4}\b)",  # call ids and names have limits too, short ones
        ),
        "content_filter": (
            r"content[ _](management )?(policy|filter)",
            r"safety (system|polic|filter)",
            r"(was|been|were) flagged",
            r"usage polic",
            r"inappropriate content",
            r"requires moderation",
        ),
        "overloaded": (
            r"overloaded",
            r"(over|at) capacity",
            r"no (available )?capacity",
            r"high (demand|load)",
            r"(currently|too) busy",
        ),
        "auth": (
            r"(invalid|incorrect|missing|no) (api[ _]key|auth|credential)",
            r"api[ _]key (is )?(invalid|not valid|missing)",
            r"unauthori[sz]ed",
        ),
        "not_found": (
            r"model\b.{0,80}\b(not found|not exist|does ?n.t exist)",
            r"no such model",
            r"not a valid model",
        ),
    }.items()
}
"""What the wording says, tried in this order."""

_STATUSES: Mapping[int, str] = {
    401: "auth",
    402: "quota",
    403: "auth",
    404: "not_found",
    408: "timeout",
    409: "server",
    410: "not_found",
    413: "context_length",
    425: "server",
    429: "rate_limit",
    498: "overloaded",
    503: "overloaded",
    529: "overloaded",
}

_HTML = re.compile(r"\s*<(!doctype|html|head|body)\b", re.IGNORECASE)
_TITLE = re.compile(r"<title[^>]*>(.*?)</title", re.IGNORECASE | re.DOTALL)
_SECONDS = re.compile(r"[0-9]{1,12}(\.[0-9]{1,9})?").fullmatch
_ALLOWANCE = re.compile(r"limit:?\s+(?:of\s+)?(\d[\d,]*)\b.{0,80}?requested:?\s+(\d[\d,]*)", re.IGNORECASE | re.DOTALL)
_NO_QUOTA = re.compile(r"quota exceeded for metric: \S+, limit: 0\b", re.IGNORECASE)
_PLEASE_WAIT = re.compile(r"please retry in ([0-9]{1,9}(?:\.[0-9]{1,9})?)s\b", re.IGNORECASE)
_REFUSED_PARAMETER = re.compile(
    r"(?:unsupported|unrecognized|unknown|unexpected|not permitted)[^'\"`]{0,60}['\"`]([\w.\[\]-]{1,64})['\"`]",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Complaint:
    """An error as a body tells it.

    Attributes:
        text: What it says, for people. Empty: nothing.
        words: Its codes and types, the most exact first, in lower case.
        status: The HTTP status that it names. None: it names none.
        retry_after: Seconds to wait, if it says so.
    """

    text: str
    words: tuple[str, ...] = ()
    status: int | None = None
    parameter: str | None = None
    request_id: str | None = None
    retry_after: float | None = None


def fault(status: int, headers: Mapping[str, str], body: object, *, now: float) -> ProviderError | None:
    """Return the error that an answer is, or None if it is none.

    Args:
        status: The HTTP status; 200 for a body or a stream's event that came with one.
        headers: Names in any case.
        body: The bytes of the body, or what its JSON decoded to.
        now: Seconds since the epoch, for a `Retry-After` that is a date.
    """
    refused = status >= 300
    value = _value(body) if isinstance(body, bytes | bytearray) else body
    complaint = _complaint(value, refused=refused)
    if complaint is None:
        return None
    lower = {name.lower(): text for name, text in headers.items()}
    kind = _kind(complaint, status)
    shown = status if refused else complaint.status
    return ProviderError(
        _message(kind, shown, complaint.text),
        kind=kind,
        retryable=kind in _RETRYABLE and not _never_fits(complaint.text),
        status=shown,
        request_id=lower.get("x-request-id") or lower.get("request-id") or complaint.request_id,
        retry_after=complaint.retry_after if (asked := _retry_after(lower, now)) is None else asked,
        parameter=complaint.parameter,
    )


def error_in(body: object) -> ProviderError | None:
    """The error that an answer with status 200, or an event of one, is. None: it is none."""
    return fault(200, {}, body, now=0.0)


def failure(told: object) -> ProviderError:
    """The error of an answer that the provider broke off.

    Args:
        told: What the answer says about it, if anything.
    """
    error = error_in({"error": told}) if told else None
    return error or ProviderError("The provider failed while it answered.", kind="server", retryable=True)


def malformed_call(usage: Usage | None = None) -> ProviderError:
    """The error of an answer that should have been a call, and was thrown away."""
    return ProviderError(
        "The model tried to call a tool and the provider could not read the call.",
        kind="malformed_tool_call",
        retryable=True,
        usage=usage,
    )


def _never_fits(text: str) -> bool:
    """Whether one request asks for more than is ever allowed at once: then no wait helps."""
    found = _ALLOWANCE.search(text)
    return found is not None and int(found[2].replace(",", "")) > int(found[1].replace(",", ""))


def _value(body: bytes | bytearray) -> object:
    try:
        return _json.loads(bytes(body))
    except ValueError:
        return body.decode("utf-8", "replace")


def _complaint(value: object, *, refused: bool) -> _Complaint | None:
    """What a body complains about. `refused`: it is an error for certain, whatever it looks like."""
    value = _first(value)
    if not is_object(value):
        return _Complaint(text=_plain(value)) if refused else None
    error = _first(value.get("error") or value.get("errors"))
    if isinstance(error, str):  # the text of an error, or the JSON of one
        inner = _value(error.encode("utf-8", "replace"))
        if is_object(inner):
            return _complaint(inner, refused=True)
        error = {"message": error}
    # Some relays send a blank error with a good reply.
    if is_object(error) and (refused or any(error.values())):
        return _read(error, value)
    return _read(value, value) if refused or _is_flat_error(value) else None


def _first(value: object) -> object:
    """The value itself; of a list, which some servers wrap an error in, its first element."""
    return next(iter(cast("list[object]", value)), None) if isinstance(value, list) else value


def _is_flat_error(body: JSONObject) -> bool:
    """Whether a body that came with a 200 and has no `error` is one nevertheless."""
    if body.get("object") == "error" or body.get("type") == "error" or body.get("error") is True:
        return True
    if "choices" in body or "content" in body:
        return False
    says = any(isinstance(body.get(key), str) for key in ("message", "msg", "detail"))
    numbered = any(_status(body.get(key)) is not None for key in ("code", "status", "statusCode", "status_code"))
    return says and (numbered or body.get("success") is False)


def _read(error: JSONObject, outer: JSONObject) -> _Complaint:
    inner = error.get("innererror")
    text = _text(error)
    details = objects(error.get("details"))
    named = [
        "quota_exceeded" if _is_used_up(details, text) else None,
        *(detail.get("reason") for detail in details),
        error.get("code"),
        inner.get("code") if is_object(inner) else None,
        error.get("type"),
        error.get("status"),
        error.get("__type"),
        outer.get("code"),
    ]
    numbers = [*named, error.get("statusCode"), error.get("status_code")]
    parameter = text_in(error.get("param")) or _located(error.get("detail"))
    if not parameter and (match := _REFUSED_PARAMETER.search(text)):
        parameter = match[1]
    return _Complaint(
        text=text,
        words=tuple(str(word).lower() for word in named if isinstance(word, str | int)),
        status=next((number for item in numbers if (number := _status(item)) is not None), None),
        parameter=parameter or None,
        request_id=text_in(outer.get("request_id")) or text_in(error.get("request_id")) or None,
        retry_after=_told_wait(details, text),
    )


def _is_used_up(details: Sequence[JSONObject], text: str) -> bool:
    """Whether Google says that a quota is used up for the day, or is 0. The wait that it names all the same is no help.

    Source: google.rpc.QuotaFailure.
    """
    violations = [violation for detail in details for violation in objects(detail.get("violations"))]
    return _NO_QUOTA.search(text) is not None or any(
        "perday" in text_in(violation.get("quotaId")).lower() or violation.get("quotaValue") in ("0", 0)
        for violation in violations
    )


def _told_wait(details: Sequence[JSONObject], text: str) -> float | None:
    """Seconds to wait, as Google's errors tell them. Source: google.rpc.RetryInfo."""
    told = next((delay for detail in details if (delay := text_in(detail.get("retryDelay")))), "")
    seconds = told.removesuffix("s")
    if told and _SECONDS(seconds):
        return float(seconds)
    found = _PLEASE_WAIT.search(text)
    return float(found[1]) if found else None


def _status(value: object) -> int | None:
    """An HTTP status of an error, given as a number or as text."""
    if isinstance(value, str) and len(value) == 3 and value.isascii() and value.isdigit():
        value = int(value)
    return value if isinstance(value, int) and 400 <= value <= 599 else None


def _text(error: JSONObject, depth: int = 0) -> str:
    """What an error says. A relay's error also holds what stood behind it."""
    told = (error.get(key) for key in ("message", "Message", "msg", "detail", "error_msg", "title"))
    said = next(filter(None, (_plain(value, depth) for value in told)), "")
    metadata = error.get("metadata")
    raw = _plain(metadata.get("raw"), depth) if is_object(metadata) else ""
    return f"{said}: {raw}" if said and raw else said or raw


def _plain(value: object, depth: int = 0) -> str:
    """A text of an error as one line."""
    if depth == _DEEPEST:
        return ""
    if isinstance(value, list):
        return "; ".join(filter(None, (_plain(item, depth + 1) for item in cast("list[object]", value))))
    if is_object(value):
        return _problem(value, depth + 1)
    if not isinstance(value, str):
        return ""
    if _HTML.match(value):
        title = _TITLE.search(value)
        value = f"an HTML page, {title[1].strip()!r}" if title and title[1].strip() else "an HTML page"
    if len(value) > _LONGEST_TEXT:
        value = _cut(value, _LONGEST_TEXT)
    return " ".join(value.split())


def _cut(said: str, length: int) -> str:
    """The beginning of a text, in whole words: half a key would no longer be known as one and be shown."""
    return " ".join(said[:length].split()[:-1]) + "…"


def _problem(item: JSONObject, depth: int) -> str:
    """One of FastAPI's validation problems, `{"loc": ["body", "max_tokens"], "msg": "…"}`, or a nested error."""
    place = item.get("loc")
    said = _text(item, depth)
    if not isinstance(place, list):
        return said
    return f"{'.'.join(str(step) for step in cast('list[object]', place))}: {said}"


def _located(detail: object) -> str:
    """The field that the first of FastAPI's validation problems is about; empty if there is none."""
    place = next((problem.get("loc") for problem in objects(detail)), None)
    return text_in(cast("list[object]", place)[-1]) if isinstance(place, list) and place else ""


def _kind(complaint: _Complaint, status: int) -> str:
    for word in complaint.words:
        if kind := _CODES.get(word):
            return kind
    for kind, wording in _WORDINGS.items():
        if wording.search(complaint.text):
            return kind
    number = complaint.status or status
    if number < 300:  # an error in a 200 that names no status
        return "server" if _VAGUE_TYPES.isdisjoint(complaint.words) else "bad_request"
    return _STATUSES.get(number) or ("server" if number >= 500 else "bad_request")


def _message(kind: str, status: int | None, text: str) -> str:
    text = text or "it did not say why"
    if len(text) > _LONGEST_MESSAGE:
        text = _cut(text, _LONGEST_MESSAGE)
    if not text.endswith((".", "!", "?", "…")):
        text += "."
    where = "with an error" if status is None else f"{status}"
    message = f"The provider answered {where} ({kind}): {text}"
    return f"{message} {_NEXT_STEP[kind]}" if kind in _NEXT_STEP else message


def _retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds to wait. `retry-after-ms` is the finer figure; a value that makes no sense says nothing."""
    millis = headers.get("retry-after-ms", "").strip()
    if _SECONDS(millis):
        return float(millis) / 1000
    value = headers.get("retry-after", "").strip()  # RFC 9110, 10.2.3: seconds or a date
    if _SECONDS(value):
        return float(value)
    try:
        date = parsedate_to_datetime(value)
    except (ValueError, TypeError, OverflowError):
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return max(0.0, date.timestamp() - now)
