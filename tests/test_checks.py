"""What cannot be meant is refused where it is given."""

from __future__ import annotations

import math
from typing import Any

import pytest

from toolnexus import (
    ConfigurationError,
    Hooks,
    InMemoryConversationStore,
    Limits,
    create_client,
    create_in_process_client,
)

WHOLE = ["max_steps", "max_output", "concurrency", "retries"]
NUMBERS = [-1, math.nan, math.inf, pytest.param(10**400, id="huge"), "5", True]


def client_with(**options: Any) -> object:
    return create_client("m", base_url="http://127.0.0.1:9", **options)


@pytest.mark.parametrize("value", [*NUMBERS, 1.5, None])
@pytest.mark.parametrize("name", WHOLE)
def test_what_counts_is_a_whole_number(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} is .*a whole number"):
        client_with(**{name: value})


@pytest.mark.parametrize("value", NUMBERS)
@pytest.mark.parametrize("name", ["timeout", "reader_timeout", "max_retry_wait"])
def test_what_lasts_is_a_finite_number(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} is "):
        client_with(**{name: value})


@pytest.mark.parametrize("name", ["timeout", "reader_timeout", "max_tokens"])
def test_none_is_no_bound_where_the_documentation_says_so(name: str) -> None:
    client_with(**{name: None})


@pytest.mark.parametrize("value", [*NUMBERS, None])
@pytest.mark.parametrize("name", ["connect", "first_byte", "silence", "reply_bytes"])
def test_limits_are_checked_when_they_are_made(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} is "):
        Limits(**{name: value})


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("hooks", lambda event: None, "hooks has a function; give Hooks"),
        ("hooks", [Hooks(), 3], "hooks has a int; give Hooks"),
        ("system_prompt", 3, "system_prompt is of the type int"),
        ("limits", 3, "limits is of the type int; give a Limits"),
        ("store", "chats", "write 'sqlite:///NAME'"),
    ],
)
def test_an_option_of_another_type_is_refused(name: str, value: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        client_with(**{name: value})


async def test_an_option_that_the_verb_does_not_take_is_refused_by_name() -> None:
    client = create_in_process_client(generate=lambda _: {"content": "hi"})
    with pytest.raises(TypeError, match=r"no option 'id' here. Only `ask` and `stream` remember"):
        await client.run("hi", id="u1")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"no option 'temprature' here. There are busy"):
        await client.ask("hi", temprature=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="no option 'busy' here"):
        await client.run("hi", busy="raise")  # type: ignore[call-arg]


def test_a_store_that_is_a_class_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="the class InMemoryConversationStore"):
        create_in_process_client(generate=lambda _: {"content": "hi"}, store=InMemoryConversationStore)  # type: ignore[arg-type]
