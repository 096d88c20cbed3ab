"""The rules of conftest.py, each seen failing."""

from __future__ import annotations

from pathlib import Path

import pytest

CONFTEST = (Path(__file__).parent / "conftest.py").read_text(encoding="utf-8")


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    """A test suite that has our conftest.py."""
    pytester.makeconftest(CONFTEST)
    pytester.makeini("[pytest]\nfilterwarnings = error\nmarkers = service(name): needs a service\n")
    return pytester


def run(suite: pytest.Pytester, source: str) -> pytest.RunResult:
    suite.makepyfile(source)
    return suite.runpytest_inprocess("-p", "no:cacheprovider")


def test_a_coroutine_test_passes_and_fails_like_any_other(suite: pytest.Pytester) -> None:
    result = run(
        suite,
        """
        async def test_right(tmp_path): assert tmp_path.exists()
        async def test_wrong(): assert 1 == 2
        """,
    )
    result.assert_outcomes(passed=1, failed=1)


def test_an_async_fixture_lives_on_the_loop_of_its_test_and_is_closed(suite: pytest.Pytester) -> None:
    result = run(
        suite,
        """
        import asyncio, pytest
        closed = []

        @pytest.fixture
        async def loop():
            yield asyncio.get_running_loop()
            closed.append(asyncio.get_running_loop())

        async def test_same(loop):
            assert loop is asyncio.get_running_loop()
            assert not closed

        def test_closed():
            assert len(closed) == 1
        """,
    )
    result.assert_outcomes(passed=2)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("global kept; kept = asyncio.create_task(asyncio.Event().wait())", "Task is still running"),
        ("asyncio.create_task(fail()); await asyncio.sleep(0)", "boom"),
        ("asyncio.get_running_loop().call_soon(int, 'x')", "invalid literal"),
        ("fail()", "never awaited"),
    ],
    ids=["a task that waits", "a failure nobody read", "a callback that raised", "a coroutine not awaited"],
)
def test_what_a_test_leaves_behind_is_an_error(suite: pytest.Pytester, body: str, says: str) -> None:
    result = run(
        suite,
        f"""
        import asyncio

        async def fail(): raise RuntimeError("boom")

        async def test_it():
            {body}
        """,
    )
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert says in result.stdout.str()


NEEDS_A_SERVICE = """
import pytest

@pytest.mark.service("redis")
def test_it(): pass
"""


def nobody_listens(suite: pytest.Pytester) -> None:
    suite.makeconftest(CONFTEST.replace('"redis": ("127.0.0.1", 6379)', '"redis": ("127.0.0.1", 1)'))


def test_a_test_without_its_service_is_skipped_and_listed(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TOOLNEXUS_SERVICES", raising=False)
    nobody_listens(suite)
    result = run(suite, NEEDS_A_SERVICE)
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*NOT TESTED*", "*::test_it: redis is not listening on 127.0.0.1:1"])


def test_a_test_without_its_service_fails_where_services_are_required(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLNEXUS_SERVICES", "required")
    nobody_listens(suite)
    run(suite, NEEDS_A_SERVICE).assert_outcomes(errors=1)
