"""The contract in the hands of somebody who has a store of their own."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from toolnexus.testing import NASTY_IDS, StoreContract

TWO_METHODS = """
    import json

    class Mine:
        def __init__(self, folder):
            self.folder = folder

        async def get(self, id):
            path = self.folder / id.encode().hex()[:64]
            found = json.loads(path.read_text()) if path.exists() else {}
            return found.get(id)

        async def save(self, id, messages):
            path = self.folder / id.encode().hex()[:64]
            found = json.loads(path.read_text()) if path.exists() else {}
            path.write_text(json.dumps(found | {id: messages}, allow_nan=False))
"""
FIVE_LINES = """
    import pytest
    from toolnexus.testing import StoreContract

    @pytest.fixture
    def open(tmp_path):
        return lambda: Mine(tmp_path)

    class TestMine(StoreContract):
        %s
"""
REFUSED = "test_what_json_does_not_have_is_refused_by_its_place"
REPLACED = "test_half_a_character_is_replaced_or_refused_and_hurts_nothing"


@pytest.fixture
def run(pytester: pytest.Pytester) -> Callable[[str], pytest.RunResult]:
    def run(body: str) -> pytest.RunResult:
        pytester.makepyfile(TWO_METHODS + FIVE_LINES % body)
        return pytester.runpytest_inprocess("-q", "-rxX")

    return run


def test_a_store_of_two_methods_is_held_to_what_such_a_store_can_promise(
    run: Callable[[str], pytest.RunResult],
) -> None:
    done = run(f"""deviations = {{
            "{REFUSED}": "json says neither where nor what",
            "{REPLACED}": "json escapes it",
        }}""")
    outcomes = done.parseoutcomes()
    assert outcomes.pop("skipped") > 50
    assert outcomes.pop("passed") > 20
    assert outcomes.pop("xfailed") == 4
    assert outcomes == {}
    done.stdout.fnmatch_lines([f"XFAIL *{REPLACED} - json escapes it"])


def test_a_deviation_that_is_none_is_an_error(run: Callable[[str], pytest.RunResult]) -> None:
    done = run('deviations = {"test_an_unknown_id_is_none": "it was so once"}')
    done.stdout.fnmatch_lines(["*test_an_unknown_id_is_none*", "*XPASS(strict)*it was so once*"])


def test_a_deviation_from_a_promise_that_nobody_made_is_an_error() -> None:
    with pytest.raises(TypeError, match=r"Mine\.deviations names tests that do not exist: test_unheard_of"):
        type("Mine", (StoreContract,), {"deviations": {"test_unheard_of": "x"}})


def test_nasty_ids_are_ids_and_all_different() -> None:
    assert len(set(NASTY_IDS)) == len(NASTY_IDS)
    assert all(1 <= len(id) <= 512 for id in NASTY_IDS)
