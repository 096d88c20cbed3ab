from __future__ import annotations

from decimal import Decimal

import pytest

from toolnexus import Usage
from toolnexus.cli.spending import Spent, dollars, spent_on, tokens
from toolnexus.stores.log import Turn


def test_tokens_are_told_as_far_as_they_are_known() -> None:
    assert tokens(None) == ""
    assert tokens(Usage(prompt=1200, completion=80)) == "1200 + 80 tokens"
    assert tokens(Usage(prompt=1200, completion=80, cached=1024)) == "1200 + 80 tokens (1024 cached)"


@pytest.mark.parametrize(
    ("cost", "told"),
    [("0", "$0.00"), ("0.00001", "<$0.0001"), ("0.00123", "$0.0012"), ("0.5", "$0.5000"), ("12.346", "$12.35")],
)
def test_a_cost_has_as_many_digits_as_tell_something(cost: str, told: str) -> None:
    assert dollars(Decimal(cost)) == told


def test_what_is_unknown_is_not_counted_as_nothing() -> None:
    spent = Spent()
    assert spent.told() == "0 answers"
    spent.add(Usage(prompt=10, completion=5), Decimal("0.01"))
    assert spent.told() == "1 answer · 10 + 5 tokens · $0.0100"
    spent.add(None, None)
    assert spent.told() == "2 answers · 10 + 5 tokens · $0.0100 for 1 of them"


def test_a_conversation_is_the_sum_of_its_turns_also_of_those_that_left_no_trace() -> None:
    turns = [
        Turn(id="1", status="done", count=2, outcome={"usage": {"prompt": 10, "completion": 5, "newer": 1}}),
        Turn(id="2", status="failed", outcome={}),
        Turn(id="3", status="failed", outcome={"usage": {"prompt": 7}}),
        Turn(id="4", status="done", start=2, count=2),
    ]
    assert spent_on(turns).told() == "3 answers · 17 + 5 tokens"
