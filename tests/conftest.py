"""How the tests run: coroutine tests each on a loop that must be left clean, and services that may be missing."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import socket
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Iterator

pytest_plugins = ["pytester"]

SECONDS = 60
"""What a coroutine test may take before it counts as hanging."""

SERVICES = {"postgres": ("127.0.0.1", 5432), "redis": ("127.0.0.1", 6379)}

# Timing differs with what else a machine does, and a run in CI has to say the same thing twice.
settings.register_profile("toolnexus", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("toolnexus")


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    """The event loop of one test and its async fixtures. Afterwards no task and no unread failure may be left."""
    problems: list[str] = []

    def collect(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        problems.append(f"{context['message']}: {context.get('exception') or context.get('task')!r}")

    async def remaining() -> set[asyncio.Task[Any]]:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        # What is already ending may end; what waits for something that never comes is still here afterwards.
        return (await asyncio.wait(tasks, timeout=1))[1] if tasks else set()

    with asyncio.Runner() as runner:
        runner.get_loop().set_exception_handler(collect)
        yield runner
        problems += [f"Task is still running: {task!r}" for task in runner.run(remaining())]
    gc.collect(1)  # failures that nobody looked at are told when their task is collected
    if problems:
        pytest.fail("The test left something behind.\n" + "\n".join(problems), pytrace=False)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a coroutine test."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}

    async def test() -> None:
        async with asyncio.timeout(SECONDS):
            await pyfuncitem.obj(**arguments)

    pyfuncitem._request.getfixturevalue("runner").run(test())
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> Any:
    """Set up an async generator fixture on the loop of its test."""
    if not inspect.isasyncgenfunction(fixturedef.func):
        return None
    runner = request.getfixturevalue("runner")
    values = fixturedef.func(**{name: request.getfixturevalue(name) for name in fixturedef.argnames})
    value = runner.run(anext(values))
    fixturedef.addfinalizer(lambda: runner.run(anext(values, None)))
    fixturedef.cached_result = (value, fixturedef.cache_key(request), None)
    return value


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose service is not there, or fail it where services have to be there."""
    for name in (mark.args[0] for mark in item.iter_markers("service")):
        if not _listens(*SERVICES[name]):
            missing = f"{name} is not listening on {SERVICES[name][0]}:{SERVICES[name][1]}"
            if os.environ.get("TOOLNEXUS_SERVICES") == "required":
                pytest.fail(f"{missing}, and TOOLNEXUS_SERVICES=required", pytrace=False)
            item.config.stash.setdefault(_SKIPPED, []).append(f"{item.nodeid}: {missing}")
            pytest.skip(missing)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say loudly what was not tested."""
    if skipped := config.stash.get(_SKIPPED, None):
        terminalreporter.section("NOT TESTED, because a service is missing", yellow=True)
        for line in skipped:
            terminalreporter.line(line)


_SKIPPED = pytest.StashKey[list[str]]()


def _listens(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=1).close()
    except OSError:
        return False
    return True
