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
        (ProviderError("x", kind="no_such_kind"), 4),
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


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ProviderError("No. The key is that of api_key=.", kind="auth"), "No. The key is that of TOOLNEXUS_API_KEY."),
        (ProviderError("No. Set A_KEY, or give api_key=.", kind="auth"), "No. Set A_KEY."),
        (ProviderError("No. Give api_key=.", kind="auth"), "No. Set TOOLNEXUS_API_KEY."),
        (
            ConnectionFailed("Gone. Start the server, or say with base_url= where it is.", request_sent=False),
            "Gone. Start the server, or say with --base-url where it is.",
        ),
        (ProviderError("api_key= is what a server says", kind="server"), "api_key= is what a server says"),
    ],
)
def test_what_the_library_advises_is_said_in_the_words_of_the_command_line(error: Exception, told: str) -> None:
    assert exits.told(error) == told


def test_a_limit_has_an_exit_code_of_its_own() -> None:
    assert exits.code_of(RunResult(text="x", status="done")) == 0
    assert exits.code_of(RunResult(text="x", status="incomplete", limit="max_steps")) == 6
