from __future__ import annotations

import pytest

from toolnexus import (
    ConfigurationError,
    ConnectionFailed,
    ConversationBusy,
    ConversationConflict,
    HookFailed,
    IncompleteReply,
    InvalidConversationId,
    MissingExtra,
    MissingKey,
    NoModelConfigured,
    ProviderError,
    RunResult,
    RunTimeout,
    StoreError,
)
from toolnexus.cli import exits


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (HookFailed("x"), 1),
        (InvalidConversationId("x"), 2),
        (ConfigurationError("x"), 3),
        (MissingExtra("x", extra="cli"), 3),
        (MissingKey("x"), 3),
        (NoModelConfigured("x"), 3),
        (ProviderError("x", kind="auth"), 3),
        (ProviderError("x", kind="rate_limit"), 4),
        (ProviderError("x", kind="refusal"), 4),
        (ConnectionFailed("x", request_sent=False), 4),
        (IncompleteReply("x"), 4),
        (StoreError("x"), 5),
        (ConversationConflict("c", expected=1, actual=2), 5),
        (ConversationBusy("c", waited=1), 5),
        (RunTimeout("x"), 6),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_error_has_its_exit_code(error: Exception, code: int) -> None:
    assert exits.ending(error).code == code


def test_a_limit_has_an_exit_code_of_its_own() -> None:
    assert exits.code_of(RunResult(text="x", status="done")) == 0
    assert exits.code_of(RunResult(text="x", status="incomplete", limit="max_steps")) == 6
